//! Text files of a bounded length.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if there are more bytes; [`io::ErrorKind::InvalidInput`] if it is no regular file: a
/// pipe would keep a running program waiting, and a device has no end; whatever the system says.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let file = open(path)?;
    let mut text = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut text)?;
    if text.len() as u64 > bytes_max {
        let why = format!("more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Opens a regular file for reading.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is no regular file; whatever the system says.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without this flag the open itself would wait for somebody to write into a pipe.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_has_no_end_and_what_nobody_writes_to_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, folder.path()] {
            let refused = read(path, 1000).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }

    #[test]
    fn the_last_byte_within_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), "12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
