//! Text files of a bounded length.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Reads a file of at most `bytes_max` bytes, which may be a pipe: nobody knows its length before its end.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if there are more bytes; whatever the system says.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut text)?;
    if text.len() as u64 > bytes_max {
        let why = format!("more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_too_long() {
        let refused = read(Path::new("/dev/zero"), 1000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/null"), 1000).unwrap(), "");
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
