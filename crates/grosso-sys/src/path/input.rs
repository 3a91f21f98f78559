//! Files that the user names on the command line as input.
//!
//! Links owned by other users are followed here, as in any program that the user starts: the files are only read, the
//! user named them, and captures in shared directories are often reached through a colleague's links. This module does
//! not create, change or remove files. The kernel refuses other users' links in sticky directories
//! (`fs.protected_symlinks`).

use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
};

use super::{not_regular, regular};

/// Opens anything that can be read: a file, a pipe or a device. A FIFO blocks until a program opens its other end.
///
/// # Errors
/// Returns any error from `open(2)`.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Opens a regular file. The call never blocks.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if the path refers to anything else, or any error from `open(2)`.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let path = path.as_ref();
    // A socket cannot be opened.
    if metadata(path)?.is_file() { regular(options.open(path)?) } else { Err(not_regular()) }
}

/// Lists the paths in a directory, in the file system's order.
///
/// # Errors
/// Returns any error from `open(2)` or `getdents(2)`.
pub fn entries(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
}

/// Returns the absolute path without links.
///
/// # Errors
/// Returns any error from `realpath(3)`.
pub fn canonical(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Returns the metadata of the file that a path refers to.
///
/// # Errors
/// Returns any error from `stat(2)`.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// Returns whether a path refers to a regular file.
#[must_use]
pub fn is_file(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok_and(|facts| facts.is_file())
}

/// Returns whether a path refers to a directory.
#[must_use]
pub fn is_directory(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok_and(|facts| facts.is_dir())
}

/// Returns whether a path refers to an existing entry.
#[must_use]
pub fn is_there(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok()
}
