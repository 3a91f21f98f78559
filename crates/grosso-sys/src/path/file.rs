//! Functions that open, create, replace and remove files.

use std::{
    fs::{File, Metadata},
    io::{self, Write},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, fsync, ftruncate, linkat, renameat, unlinkat},
    io::Errno,
};

use super::{
    not_regular, read_bounded, regular,
    resolve::{Controller, Last, Place, control_of},
    text,
};

/// Opens a regular file for reading. The call never blocks.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] for any other kind of file, [`io::ErrorKind::PermissionDenied`] for a link
/// owned by another user, or any error from `open(2)`.
pub fn open(path: &Path) -> io::Result<File> {
    let place = Place::of(path, Last::Follow)?;
    open_regular(&place, OFlags::RDONLY)
}

/// Opens anything that can be read: a file, a pipe or a device. A FIFO blocks until a program opens its other end.
///
/// # Errors
/// Returns [`io::ErrorKind::PermissionDenied`] for a link owned by another user, or any error from `open(2)`.
pub fn open_any(path: &Path) -> io::Result<File> {
    Ok(Place::of(path, Last::Follow)?.open(OFlags::RDONLY, Mode::empty())?.into())
}

/// Opens an existing regular file for reading and writing. The call never blocks.
///
/// # Errors
/// Returns the same errors as [`open`], and [`io::ErrorKind::PermissionDenied`] if the caller may not write the file.
pub fn open_for_update(path: &Path) -> io::Result<File> {
    let place = Place::of(path, Last::Follow)?;
    writable(open_regular(&place, OFlags::RDWR)?, &place)
}

/// Opens an output: a new file with this mode (within the umask), or an existing one, which is truncated if it is a
/// regular file. A FIFO blocks until a program reads from it.
///
/// # Errors
/// Returns [`io::ErrorKind::PermissionDenied`] for a link owned by another user, and for a file with several names in
/// another user's directory, or any error from `open(2)`.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let place = Place::of(path, Last::Follow)?;
    let file: File = place.open(OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(mode))?.into();
    let file = writable(file, &place)?;
    if file.metadata()?.is_file() {
        ftruncate(&file, 0)?;
    }
    Ok(file)
}

/// Writes a complete output file; see [`create`].
///
/// # Errors
/// Returns the errors of [`create`], and errors from the file system.
pub fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    create(path, mode)?.write_all(contents)
}

/// Creates a file with this mode (within the umask), for reading and writing.
///
/// # Errors
/// Returns [`io::ErrorKind::AlreadyExists`] if the name is in use, or any error from `open(2)`.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    create_new_in(&Place::of(path, Last::Keep)?, mode)
}

/// Creates a file whose content is complete when its name appears, and waits until both the name and the content are on
/// disk. If the program is killed during the call, at most a file with the suffix `.new` remains, which the next call
/// replaces.
///
/// # Errors
/// Returns [`io::ErrorKind::AlreadyExists`] if the name is in use, or any error from the file system.
pub fn publish(path: &Path, contents: &[u8], mode: u32) -> io::Result<File> {
    let place = Place::of(path, Last::Follow)?;
    let beside = beside(&place)?;
    remove_if_there(&beside)?;
    let mut file = create_new_in(&beside, mode)?;
    file.write_all(contents)?;
    file.sync_all()?;
    // Unlike renaming, linking does not replace a file that was created in the meantime.
    let (from, to) = (&beside.directory, &place.directory);
    linkat(from, &beside.name, to, &place.name, AtFlags::empty())?;
    remove_if_there(&beside)?;
    synchronize(&place)?;
    Ok(file)
}

/// Replaces a file atomically: a reader sees the old content or the new one.
///
/// # Errors
/// Returns errors from the file system.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let place = Place::of(path, Last::Follow)?;
    let beside = beside(&place)?;
    remove_if_there(&beside)?;
    create_new_in(&beside, mode)?.write_all(contents)?;
    Ok(renameat(&beside.directory, &beside.name, &place.directory, &place.name)?)
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

/// Removes a directory entry that is not a directory. A link itself is removed, not its target.
///
/// # Errors
///
/// Returns any error from `unlink(2)`.
pub fn remove(path: &Path) -> io::Result<()> {
    let place = Place::of(path, Last::Keep)?;
    Ok(unlinkat(&place.directory, &place.name, AtFlags::empty())?)
}

/// Renames an entry and replaces an existing one with the new name.
///
/// # Errors
/// Returns any error from `rename(2)`.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (Place::of(from, Last::Keep)?, Place::of(to, Last::Keep)?);
    Ok(renameat(&from.directory, &from.name, &to.directory, &to.name)?)
}

/// Returns the metadata of the file that a path refers to.
///
/// # Errors
/// Returns [`io::ErrorKind::PermissionDenied`] for a link owned by another user, or any error from `stat(2)`.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    File::from(Place::of(path, Last::Follow)?.pin()?).metadata()
}

/// Returns whether a name is in use; a link counts, regardless of its target.
#[must_use]
pub fn is_there(path: &Path) -> bool {
    Place::of(path, Last::Keep).and_then(|place| place.pin()).is_ok()
}

/// Changes the owner of an entry. For a link, changes the owner of the link itself.
///
/// # Errors
/// Returns any error from `chown(2)`.
pub fn change_owner(path: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let place = Place::of(path, Last::Keep)?;
    let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
    Ok(chownat(&place.directory, &place.name, user, group, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn open_regular(place: &Place, access: OFlags) -> io::Result<File> {
    match place.open(access | OFlags::NONBLOCK, Mode::empty()) {
        // Sockets cannot be opened, and directories cannot be opened for writing.
        Err(error)
            if [Errno::NXIO, Errno::ISDIR].map(Some).contains(&Errno::from_io_error(&error)) =>
        {
            Err(not_regular())
        }
        file => regular(file?.into()),
    }
}

fn create_new_in(place: &Place, mode: u32) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    Ok(place.open(flags, Mode::from_raw_mode(mode))?.into())
}

/// Returns the directory entry of the same name with `.new` appended.
fn beside(place: &Place) -> io::Result<Place> {
    let mut name = place.name.clone();
    name.push(".new");
    place.renamed(name)
}

fn remove_if_there(place: &Place) -> io::Result<()> {
    match unlinkat(&place.directory, &place.name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

/// Waits until the entries of a place's directory are on disk.
fn synchronize(place: &Place) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    Ok(fsync(place.renamed(".".into())?.open(flags, Mode::empty())?)?)
}

/// Refuses a file with several names in another user's directory: that user may have linked one of them to a file that
/// only the caller can write.
fn writable(file: File, place: &Place) -> io::Result<File> {
    use std::os::{fd::AsFd, unix::fs::MetadataExt};

    let facts = file.metadata()?;
    let is_linked = facts.is_file() && facts.nlink() > 1;
    if is_linked && control_of(place.directory.as_fd())? != Controller::Own {
        let why = "the file has several hard links, and another user can replace one of them";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}
