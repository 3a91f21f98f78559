//! Accesses kernel files in `/proc`, `/sys` and `/dev`. Grosso itself chooses the names of these files.
//!
//! Only root and the kernel create entries in these directories, so the files are opened by name without checks.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

/// Reads a file as text.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if the name is not in `/proc` or `/sys`, or any error from `open(2)` or
/// `read(2)`.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(checked(path.as_ref())?)
}

/// Reads a file as bytes.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn read_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(checked(path.as_ref())?)
}

/// Writes a value to a file, for example a setting.
///
/// # Errors
///
/// Returns the same errors as [`read`], or any error from `write(2)`.
pub fn write(path: impl AsRef<Path>, value: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(checked(path.as_ref())?, value)
}

/// Opens a file for reading, for example a namespace.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(checked(path.as_ref())?)
}

/// Opens a file with these flags. The function allocates no memory unless it fails, so it can be used after `fork(2)`.
///
/// # Errors
/// Returns the errors of [`read`].
pub fn open_with(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    checked(path.as_ref())?;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a device for reading and writing.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn open_device(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(checked(path.as_ref())?)
}

/// Returns the target of a link.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::read_link(checked(path.as_ref())?)
}

/// Lists the names in a directory.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn names(path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    fs::read_dir(checked(path.as_ref())?)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Returns the metadata of the file that a path refers to.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::metadata(checked(path.as_ref())?)
}

/// Returns whether the file exists.
#[must_use]
pub fn is_there(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok()
}

/// Refuses a name that others may control.
fn checked(path: &Path) -> io::Result<&Path> {
    let is_plain = !path.components().any(|part| part == std::path::Component::ParentDir);
    match is_plain && TREES.iter().any(|tree| path.starts_with(tree)) {
        true => Ok(path),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is not in a directory that only root and the kernel control",
        )),
    }
}

/// Directory trees in which only root and the kernel create entries, for the kernel, its devices and its modules.
const TREES: [&str; 6] = ["/proc", "/sys", "/dev/net", "/dev/null", "/dev/kvm", "/lib/modules"];
