//! Functions for files on systems other than Linux. They use the standard library, without further checks.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{read_bounded, regular, text};

/// Opens a regular file for reading.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if the file is not regular, or another error from the operating system.
pub fn open(path: &Path) -> io::Result<File> {
    regular(File::open(path)?)
}

/// Opens a file, pipe or device for reading.
///
/// # Errors
///
/// Returns errors from the operating system.
pub fn open_any(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens an existing regular file for reading and writing.
///
/// # Errors
/// Returns the same errors as [`open`].
pub fn open_for_update(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).write(true).open(path)?)
}

/// Opens an output: a new file, or an existing one, which is truncated.
///
/// # Errors
/// Returns errors from the operating system.
pub fn create(path: &Path, _mode: u32) -> io::Result<File> {
    File::create(path)
}

/// Writes a complete output file; see [`create`].
///
/// # Errors
/// Returns the errors of [`create`], and errors from the file system.
pub fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    create(path, mode)?.write_all(contents)
}

/// Creates a file, for reading and writing.
///
/// # Errors
/// Returns [`io::ErrorKind::AlreadyExists`] if the name is in use, or another error from the operating system.
pub fn create_new(path: &Path, _mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Creates a file whose content is complete when its name appears.
///
/// # Errors
/// Returns [`io::ErrorKind::AlreadyExists`] if the name is in use, or another error from the operating system.
pub fn publish(path: &Path, contents: &[u8], mode: u32) -> io::Result<File> {
    let beside = beside(path);
    remove_if_there(&beside)?;
    let mut file = create_new(&beside, mode)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::hard_link(&beside, path)?;
    fs::remove_file(&beside)?;
    Ok(file)
}

/// Replaces a file as a whole.
///
/// # Errors
/// Returns errors from the operating system.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let beside = beside(path);
    remove_if_there(&beside)?;
    create_new(&beside, mode)?.write_all(contents)?;
    fs::rename(&beside, path)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// Returns [`io::ErrorKind::FileTooLarge`] if there are more bytes, or any error from [`open`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_bounded(open(path)?, bytes_max)
}

/// Reads a regular text file of at most `bytes_max` bytes.
///
/// # Errors
/// Returns the same errors as [`read`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(read(path, bytes_max)?)
}

/// Removes a directory entry that is not a directory.
///
/// # Errors
///
/// Returns errors from the operating system.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Renames an entry and replaces an existing one with the new name.
///
/// # Errors
/// Returns errors from the operating system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Returns the metadata of the file that a path refers to.
///
/// # Errors
/// Returns errors from the operating system.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// Returns whether a name is in use.
#[must_use]
pub fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns a note for the user if others can replace a name. The result is always `None`, because owners are not
/// compared on this system.
#[must_use]
pub fn warning(_path: &Path) -> Option<String> {
    None
}

/// Returns the same name with `.new` appended.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
