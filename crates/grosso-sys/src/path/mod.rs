//! Access to files and sockets by names that other users may control. No other module opens, creates, changes, removes,
//! binds or connects to a path.
//!
//! | rule | reason |
//! |---|---|
//! | A path is resolved once, to the descriptor of a directory and a final name; every call acts on that descriptor. | A directory that is renamed or replaced later changes nothing. |
//! | A symbolic link is followed only if root or the caller owns both the link and its directory. | `/var/run` and the `..data` link of a ConfigMap work; a link that another user made does not redirect the caller. |
//! | A file is regular unless the caller accepts pipes and devices. | Opening a FIFO could block, and `/dev/zero` never ends. |
//! | A file with several hard links is not written in a directory of another user. | The other name may be a file that its owner cannot write. |
//! | A socket has its mode before it has its name. | No name is looked up again to change its mode. |
//! | A connection to a socket uses a descriptor whose type and owner were checked. | The name cannot be replaced between check and use. |
//!
//! The owner of the root directory counts as root: inside a user namespace the host's root has no user ID of its own.
//!
//! Files in `/proc`, `/sys` and `/dev` with names that Grosso chose belong to the kernel or root, so [`kernel`] opens
//! them without these checks. [`input`] opens input files named by the user, for example captures, and follows other
//! users' links.
//!
//! On systems other than Linux the functions for files have the same names and use the standard library without checks.
//!
//! `clippy.toml` forbids the functions that this module replaces everywhere else.
#![expect(clippy::disallowed_methods, reason = "the one module that may act on names")]

#[cfg(any(target_os = "linux", target_os = "android"))]
mod directory;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod file;
pub mod input;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod kernel;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod portable;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod resolve;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod socket;
#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub use self::portable::{
    create, create_new, is_there, metadata, open, open_any, open_for_update, publish, read,
    read_text, remove, rename, replace, warning, write,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use self::{
    directory::{
        Entry, create_directories, create_directory, create_link, entries, prepare_private,
        remove_directory, set_directory_mode,
    },
    file::{
        change_owner, create, create_new, is_there, metadata, open, open_any, open_for_update,
        publish, read, read_text, remove, rename, replace, write,
    },
    resolve::{Controller, control, warning},
};

use std::{
    fs::File,
    io::{self, Read},
};

/// Reads a file to its end. Fails if the file has more than `bytes_max` bytes.
fn read_bounded(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Converts the bytes of a file to text.
fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let why = format!("not UTF-8 text: invalid byte at offset {offset}");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// Refuses everything but a regular file.
fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}
