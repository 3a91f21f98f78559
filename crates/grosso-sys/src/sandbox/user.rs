//! Switches to another user and keeps capabilities.

use std::{io, path::Path};

use rustix::{
    process::{Gid, Uid},
    thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use super::{Role, keep_capabilities};
use crate::path;

/// A user and its primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Returns the user with this name in `/etc/passwd`.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::NotFound`] if there is no such user, or any error from reading the file.
    pub fn named(name: &str) -> io::Result<Self> {
        let users = path::read_text(Path::new("/etc/passwd"), USERS_BYTES_MAX)?;
        let found = users.lines().find_map(|line| Self::of(line, name));
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such user in /etc/passwd"))
    }

    /// Returns the user ID.
    #[must_use]
    pub fn number(self) -> u32 {
        self.uid
    }

    /// Parses a line `name:password:uid:gid:...` if it belongs to the user with this name.
    fn of(line: &str, name: &str) -> Option<Self> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let numbers = [fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?];
        // The kernel interprets the largest number as "unchanged".
        let [uid, gid] = numbers;
        (uid != u32::MAX && gid != u32::MAX).then_some(Self { uid, gid })
    }
}

/// Changes the calling thread's user, without supplementary groups, and keeps the capabilities of [`Role::Opener`].
/// Call it before other threads start, because threads that are already running keep the old user.
///
/// # Errors
///
/// Returns `EPERM` without `CAP_SETUID` and `CAP_SETGID`.
pub fn become_user(user: User) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)?;
    // The capabilities are still permitted, but not effective.
    keep_capabilities(Role::Opener.capabilities())
}

/// Maximum size in bytes of the user list.
const USERS_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name_and_never_unchanged() {
        let line = "grosso:x:998:997:Grosso:/:/usr/sbin/nologin";
        assert_eq!(User::of(line, "grosso"), Some(User { uid: 998, gid: 997 }));
        assert_eq!(User::of(line, "gross"), None);
        assert_eq!(User::of("grosso:x:4294967295:1::/:", "grosso"), None);
        assert_eq!(User::of("grosso:x:1", "grosso"), None);
        assert_eq!(User::named("root").unwrap(), User { uid: 0, gid: 0 });
    }
}
