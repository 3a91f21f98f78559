//! Determines from a file's mode and access control list which users can read or write the file.

use std::{fs::File, io, os::unix::fs::MetadataExt};

use rustix::{fs::fgetxattr, io::Errno, process::geteuid};

/// Users who can read or write a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// Only the owner, who is this user or root, and possibly this user through an access control list. systemd creates
    /// the files of `LoadCredential=` with such a list.
    Own,
    /// Other users as well.
    Others { mode: u32 },
}

/// Determines who can read or write an open file.
pub(super) fn of(file: &File) -> io::Result<Readers> {
    let facts = file.metadata()?;
    let mode = facts.mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(Readers::Own);
    }
    let user = geteuid().as_raw();
    let is_trusted = [0, user].contains(&facts.uid());
    let mut list = [0; LIST_BYTES_MAX];
    let is_own = match fgetxattr(file, "system.posix_acl_access", &mut list) {
        Ok(len) => is_trusted && list.get(..len).is_some_and(|list| is_for(list, user)),
        // The file has no list or one with too many entries, or the file system does not support lists.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(if is_own { Readers::Own } else { Readers::Others { mode } })
}

/// Returns whether an access control list, as the kernel stores it (`acl(5)`, `linux/posix_acl_xattr.h`), gives access
/// to nobody except the owner and this user. If there is a list, the group bits of the mode are its mask and give no
/// access by themselves.
fn is_for(list: &[u8], user: u32) -> bool {
    let Some((version, entries)) = list.split_first_chunk::<4>() else { return false };
    let (entries, rest) = entries.as_chunks::<8>();
    let is_harmless = |entry: &[u8; 8]| {
        let [tag_low, tag_high, permitted_low, permitted_high, id @ ..] = *entry;
        let tag = u16::from_le_bytes([tag_low, tag_high]);
        let permits_nothing = [permitted_low, permitted_high] == [0, 0];
        match tag {
            OWNER | MASK => true,
            USER => permits_nothing || u32::from_le_bytes(id) == user,
            _ => permits_nothing,
        }
    };
    u32::from_le_bytes(*version) == VERSION && rest.is_empty() && entries.iter().all(is_harmless)
}

/// Permission bits that give access to everybody except the owner of a file.
const OTHERS: u32 = 0o077;
/// Maximum length of a list that is read, in bytes: fifteen entries.
const LIST_BYTES_MAX: usize = 4 + 15 * 8;
/// Format version of access control lists.
const VERSION: u32 = 2;
/// Tags of entries in an access control list.
const OWNER: u16 = 1;
const USER: u16 = 2;
const MASK: u16 = 0x10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{XattrFlags, fsetxattr};

    use super::*;

    /// Encodes ACL entries, each with a tag, permissions and an ID.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permitted, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permitted.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const NOBODY: u32 = u32::MAX;
    const GROUP: u16 = 4;
    const OTHER: u16 = 0x20;

    /// Returns the ACL that systemd sets on a user's credential.
    fn credential(user: u32) -> Vec<u8> {
        let ends = [(GROUP, 0, NOBODY), (MASK, 4, NOBODY), (OTHER, 0, NOBODY)];
        list(&[[(OWNER, 4, NOBODY), (USER, 4, user)].as_slice(), &ends].concat())
    }

    #[test]
    fn a_list_for_this_user_alone_is_as_good_as_a_mode() {
        assert!(is_for(&credential(7), 7));
        assert!(!is_for(&credential(8), 7), "another user");
        for entry in [(GROUP, 4, NOBODY), (8, 4, 5), (OTHER, 4, NOBODY), (99, 1, 0)] {
            assert!(!is_for(&list(&[(OWNER, 4, NOBODY), entry]), 7), "{entry:?}");
        }
        assert!(!is_for(&[], 7) && !is_for(&credential(7)[..10], 7), "cut short");
        assert!(!is_for(&[3, 0, 0, 0], 7), "another version");
    }

    #[test]
    fn a_credential_of_systemd_is_for_this_user_though_its_mode_is_0440() {
        let file = tempfile::tempfile().unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o440)).unwrap();
        assert_eq!(of(&file).unwrap(), Readers::Others { mode: 0o440 });
        let name = "system.posix_acl_access";
        let set = |user| fsetxattr(&file, name, &credential(user), XattrFlags::empty());
        let own = geteuid().as_raw();
        match set(own) {
            Err(Errno::OPNOTSUPP) => {
                println!(
                    "skipped: this machine has no access control lists at its temporary files"
                );
                return;
            }
            result => result.unwrap(),
        }
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o440, "the mask determines the mode");
        assert_eq!(of(&file).unwrap(), Readers::Own);
        set(own + 1).unwrap();
        assert_eq!(of(&file).unwrap(), Readers::Others { mode: 0o440 });
    }
}
