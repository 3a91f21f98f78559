//! Resolves a path to a descriptor of the last directory, and the final name in that directory.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat,
        stat,
    },
    io::Errno,
    process::{getegid, geteuid},
};

/// An open directory and the name of an entry, which need not exist.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
    /// Whether the name is a trusted link of procfs, which only the kernel can follow.
    is_kernel_link: bool,
}

/// Rule for a link at the end of a path: whether it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// A trusted link is followed.
    Follow,
    /// The link itself is used.
    Keep,
}

/// Users other than root and the caller who can replace a name, if there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Controller {
    /// No other user can replace the name.
    Own,
    /// The owner of a directory on the path, or every user with write permission in it, can replace the name.
    Others {
        /// Directory in which other users can replace the name.
        directory: PathBuf,
        /// Owner of the directory.
        owner: u32,
        /// Permissions of the directory.
        mode: u32,
    },
}

impl fmt::Display for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => formatter.write_str("no other user can replace it"),
            Self::Others { directory, owner, mode } => write!(
                formatter,
                "other users can replace it: user {owner} owns the directory {}, with mode \
                 {mode:04o}",
                directory.display(),
            ),
        }
    }
}

/// Returns whether users other than root and the caller can replace a name, or a directory on the path to it.
///
/// # Errors
/// Returns errors from resolving the directory.
pub fn control(path: &Path) -> io::Result<Controller> {
    let mut control = Controller::Own;
    walk(path, Last::Keep, &mut |directory| {
        if control == Controller::Own {
            control = control_of(directory)?;
        }
        Ok(())
    })?;
    Ok(control)
}

/// Returns a note for the user if others can replace a name.
#[must_use]
pub fn warning(path: &Path) -> Option<String> {
    match control(path) {
        Ok(others @ Controller::Others { .. }) => Some(format!("{}: {others}", path.display())),
        // An error is reported when the name is used.
        Ok(Controller::Own) | Err(_) => None,
    }
}

/// Returns whether other users can replace the entries of a directory. In a sticky directory they can replace only
/// their own entries.
pub(super) fn control_of(directory: BorrowedFd<'_>) -> io::Result<Controller> {
    let facts = fstat(directory)?;
    let group_is_trusted = facts.st_gid == 0 || facts.st_gid == getegid().as_raw();
    let writers = if group_is_trusted { 0o002 } else { 0o022 };
    let is_sticky = facts.st_mode & 0o1000 != 0;
    if is_trusted(&facts) && (facts.st_mode & writers == 0 || is_sticky) {
        return Ok(Controller::Own);
    }
    let shown = readlinkat(CWD, descriptor_path(directory), Vec::new())
        .map_or_else(|_| PathBuf::from("?"), |name| OsString::from_vec(name.into_bytes()).into());
    Ok(Controller::Others { directory: shown, owner: facts.st_uid, mode: facts.st_mode & 0o7777 })
}

impl Place {
    /// Resolves a path.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] for a link owned by another user, or any error from `open(2)`.
    pub(super) fn of(path: &Path, last: Last) -> io::Result<Self> {
        walk(path, last, &mut |_| Ok(()))
    }

    /// Opens the entry. If a link has replaced the entry since, the link is not followed.
    ///
    /// # Errors
    /// Returns any error from `open(2)`.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = match self.is_kernel_link {
            true => flags,
            false => flags | OFlags::NOFOLLOW,
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        loop {
            match openat(&self.directory, &self.name, flags, mode) {
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Returns the location of another name in the same directory.
    ///
    /// # Errors
    /// Returns `EMFILE` if this process has no descriptors left.
    pub(super) fn renamed(&self, name: OsString) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, name, is_kernel_link: false })
    }

    /// Pins the entry, regardless of its type, without opening it.
    ///
    /// # Errors
    /// Returns any error from `open(2)`.
    pub(super) fn pin(&self) -> io::Result<OwnedFd> {
        self.open(OFlags::PATH, Mode::empty())
    }
}

/// Resolves a path and calls `visit` for every directory on it.
fn walk(
    path: &Path,
    last: Last,
    visit: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<Place> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut pending = Vec::new();
    let mut directory = start(bytes)?;
    push(&mut pending, bytes);
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let is_last = pending.is_empty();
        let place = |directory| Place { directory, name: name.clone(), is_kernel_link: false };
        visit(directory.as_fd())?;
        if is_last && (last == Last::Keep || name == ".") {
            return Ok(place(directory));
        }
        if !is_last {
            match openat(&directory, &name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
                // The kernel also reports a symbolic link this way, which the code below follows.
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                opened => {
                    directory = opened?;
                    continue;
                }
            }
        }
        let entry = match openat(&directory, &name, PIN | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return Ok(place(directory)),
            entry => entry?,
        };
        let facts = fstat(&entry)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::Symlink {
            return if is_last { Ok(place(directory)) } else { Err(Errno::NOTDIR.into()) };
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let is_kernel_link = fstatfs(&entry)?.f_type == PROC_SUPER_MAGIC;
        check_link(&facts, is_kernel_link, &directory, path)?;
        if is_kernel_link {
            if is_last {
                return Ok(Place { directory, name, is_kernel_link });
            }
            directory = openat(&directory, &name, DIRECTORY, Mode::empty())?;
            continue;
        }
        let target = readlinkat(&entry, "", Vec::new())?.into_bytes();
        if target.first() == Some(&b'/') {
            directory = start(&target)?;
        }
        push(&mut pending, &target);
    }
    Ok(Place { directory, name: ".".into(), is_kernel_link: false })
}

/// Opens the directory that a path starts in.
fn start(path: &[u8]) -> io::Result<OwnedFd> {
    let name = if path.first() == Some(&b'/') { "/" } else { "." };
    Ok(openat(CWD, name, DIRECTORY, Mode::empty())?)
}

/// Pushes the components of a path so that the first is on top. A trailing slash denotes a directory.
fn push(pending: &mut Vec<OsString>, path: &[u8]) {
    if path.last() == Some(&b'/') {
        pending.push(".".into());
    }
    let names = path.split(|byte| *byte == b'/').rev();
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    let before = pending.len();
    pending.extend(names.map(|name| OsStr::from_bytes(name).to_owned()));
    if pending.len() == before && path.last() != Some(&b'/') {
        pending.push(".".into());
    }
}

/// Checks that root or the caller owns both a link and the directory that contains the link.
fn check_link(
    link: &Stat,
    is_kernel_link: bool,
    directory: &OwnedFd,
    path: &Path,
) -> io::Result<()> {
    // Only the kernel creates links in procfs. In a container, the root user who owns them may have no ID.
    let is_own = match is_kernel_link {
        true => is_trusted(link) || link.st_uid == OVERFLOW_USER,
        false => is_trusted(link) && is_trusted(&fstat(directory)?),
    };
    if is_own {
        return Ok(());
    }
    let why = format!(
        "{}: a symbolic link in this path belongs to user {}, or is in a directory of another \
         user; Grosso follows only links of root, and links of the caller in the caller's \
         directories",
        path.display(),
        link.st_uid,
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Returns whether root or the caller owns an entry. In a user namespace the owner of the root directory counts as
/// root.
pub(super) fn is_trusted(entry: &Stat) -> bool {
    let owner = entry.st_uid;
    owner == 0 || owner == geteuid().as_raw() || stat("/").is_ok_and(|root| owner == root.st_uid)
}

/// Returns the `/proc/self/fd` path through which the kernel finds the target of a descriptor.
pub(super) fn descriptor_path(file: impl AsFd) -> String {
    use std::os::fd::AsRawFd;

    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Flags of a descriptor that refers to an entry and cannot be read.
const PIN: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Flags of a descriptor that refers to a directory and cannot be read.
const DIRECTORY: OFlags = PIN.union(OFlags::DIRECTORY);
/// Maximum number of links in the resolution of one path: Linux's limit.
const LINKS_MAX: usize = 40;
/// ID that the kernel reports for users without an ID in a user namespace.
const OVERFLOW_USER: u32 = 65_534;
