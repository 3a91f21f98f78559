//! Functions that list, create, change and remove directories.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, symlinkat, unlinkat,
    },
    process::geteuid,
};

use super::resolve::{Last, Place};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Entry name.
    pub name: OsString,
    /// Whether the entry itself is a directory, if the file system reports it.
    pub is_directory: bool,
}

/// Lists a directory, in the file system's order.
///
/// # Errors
/// Returns any error from `open(2)` or `getdents(2)`.
pub fn entries(path: &Path) -> io::Result<Vec<Entry>> {
    entries_of(open(path)?)
}

/// Creates a directory with this mode, restricted by the umask.
///
/// # Errors
///
/// Returns [`io::ErrorKind::AlreadyExists`] if the name is in use, or any error from `mkdir(2)`.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    let place = Place::of(path, Last::Keep)?;
    Ok(mkdirat(&place.directory, &place.name, Mode::from_raw_mode(mode))?)
}

/// Creates a directory and its missing parents with this mode, restricted by the umask.
///
/// # Errors
/// Returns any error from `mkdir(2)`.
pub fn create_directories(path: &Path, mode: u32) -> io::Result<()> {
    let above: Vec<&Path> =
        path.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
    for directory in above.into_iter().rev() {
        match create_directory(directory, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
    }
    Ok(())
}

/// Creates a symbolic link.
///
/// # Errors
/// Returns [`io::ErrorKind::AlreadyExists`] if the name is in use, or any error from `symlink(2)`.
pub fn create_link(target: &Path, path: &Path) -> io::Result<()> {
    let place = Place::of(path, Last::Keep)?;
    Ok(symlinkat(target, &place.directory, &place.name)?)
}

/// Creates a directory that only the caller can access, or checks that only the caller can write to the existing one.
///
/// # Errors
/// Returns [`io::ErrorKind::PermissionDenied`] if other users can write to the directory, or any error from `mkdir(2)`.
pub fn prepare_private(path: &Path) -> io::Result<()> {
    match create_directory(path, 0o700) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result,
    }
    let facts = fstat(Place::of(path, Last::Keep)?.pin()?)?;
    let is_directory = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
    if is_directory && facts.st_uid == geteuid().as_raw() && facts.st_mode & 0o022 == 0 {
        return Ok(());
    }
    let why = "the path exists, but is not a directory that only this user can write to";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Removes a directory and its files. Directories inside must be empty.
///
/// # Errors
/// Returns any error from `unlink(2)`.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    let place = Place::of(path, Last::Keep)?;
    let directory = place.open(OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    for entry in entries_of(directory.try_clone()?)? {
        let flags = if entry.is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&directory, &entry.name, flags)?;
    }
    Ok(unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR)?)
}

/// Adds bits to the mode of a directory.
///
/// # Errors
/// Returns any error from `chmod(2)`.
pub fn set_directory_mode(path: &Path, add: u32) -> io::Result<()> {
    let directory = open(path)?;
    let mode = fstat(&directory)?.st_mode & 0o7777 | add;
    Ok(fchmod(&directory, Mode::from_raw_mode(mode))?)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let place = Place::of(path, Last::Follow)?;
    place.open(OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

fn entries_of(directory: OwnedFd) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system reports the type with the name.
            FileType::Unknown => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = openat(&directory, &name, flags, Mode::empty()).and_then(fstat);
                opened.map_or(FileType::Unknown, |facts| FileType::from_raw_mode(facts.st_mode))
            }
            kind => kind,
        };
        found.push(Entry { name, is_directory: kind == FileType::Directory });
    }
    Ok(found)
}
