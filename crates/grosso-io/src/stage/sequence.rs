//! Sequence numbers that persist between runs.
//!
//! With AES-GCM, a sequence number used twice with one key reveals both plaintexts and the key of
//! the integrity check (RFC 4106 section 2.1), and a peer rejects numbers below those that it has
//! seen. The numbers of a key that is stored in a file are therefore stored too: a number is
//! recorded as used on disk before it is used.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

/// A file with the sequence numbers of a pair of associations, locked against other processes.
#[derive(Debug)]
pub struct SequenceFile {
    file: File,
    path: PathBuf,
    numbers: Numbers,
}

/// Sequence numbers, in full 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Numbers up to this one count as used.
    pub sent: u64,
    /// Numbers up to this one count as received.
    pub received: u64,
}

impl SequenceFile {
    /// Opens the file, or creates it with no numbers used.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another program has it open,
    /// [`io::ErrorKind::InvalidData`] when its contents are anything else, and those of the file
    /// system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another program uses it")
            }
            TryLockError::Error(error) => error,
        })?;
        let mut text = String::new();
        (&file).take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
        let numbers = match text.is_empty() {
            true => Numbers::default(),
            false => parse(&text).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "it holds no sequence numbers")
            })?,
        };
        let mut opened = Self { file, path: path.to_owned(), numbers };
        // A file that cannot be written is better detected before the first packet.
        opened.write(numbers)?;
        if cfg!(unix) && text.is_empty() {
            sync_folder_of(path)?;
        }
        Ok(opened)
    }

    /// Writes the numbers, and waits until they are on disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&mut self, numbers: Numbers) -> io::Result<()> {
        let Numbers { sent, received } = numbers;
        // The length is constant and less than a sector, so a write takes effect as a whole or not
        // at all.
        let text = format!("{FIRST_LINE}\nout {sent:020}\nin {received:020}\n");
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_data()?;
        self.numbers = numbers;
        Ok(())
    }

    /// The numbers in the file.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Waits until the directory entry of a new file is on disk too, without which the numbers would be
/// lost.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn parse(text: &str) -> Option<Numbers> {
    let mut lines = text.lines();
    let first = lines.next()?;
    let mut number = |word: &str| lines.next()?.strip_prefix(word)?.trim().parse().ok();
    let numbers = Numbers { sent: number("out ")?, received: number("in ")? };
    (first == FIRST_LINE).then_some(numbers)
}

/// Sequence numbers reserved at a time, ahead of their use: at a million packets a second the file
/// is written once a second, and a crash costs one 4096th of the 32-bit numbers.
pub(super) const RESERVED_AT_ONCE: u64 = 1 << 20;

const FIRST_LINE: &str = "grosso-esp-sequences/1";
/// More bytes than the file ever has.
const TEXT_BYTES_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn numbers_are_there_again_and_nobody_else_gets_them_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.sequence");
        let mut first = SequenceFile::open(&path).unwrap();
        assert_eq!(first.numbers(), Numbers::default());
        let numbers = Numbers { sent: u64::MAX, received: 7 };
        first.write(Numbers { sent: 1, received: 2 }).unwrap();
        first.write(numbers).unwrap();
        assert_eq!(SequenceFile::open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        assert_eq!(SequenceFile::open(&path).unwrap().numbers(), numbers);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let good = "grosso-esp-sequences/1\nout 1\nin 2\n";
        for text in ["hello", "grosso-esp-sequences/2\nout 1\nin 2\n", &good[..good.len() - 3]] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(SequenceFile::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, good).unwrap();
        assert_eq!(SequenceFile::open(&path).unwrap().numbers(), Numbers { sent: 1, received: 2 });
    }
}
