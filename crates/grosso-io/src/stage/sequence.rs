//! Sequence numbers that outlive the program.
//!
//! With AES-GCM a sequence number that is used twice with one key gives away both texts and the key
//! of the integrity check (RFC 4106 section 2.1), and a peer takes nothing below the numbers that it
//! has seen. So the numbers of a key that lives in a file are kept in a file too: before any is
//! used, it is on the disk that it was.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

/// A file with the sequence numbers of a pair of associations, which nobody else may use meanwhile.
#[derive(Debug)]
pub struct SequenceFile {
    file: File,
    path: PathBuf,
    numbers: Numbers,
}

/// Sequence numbers, all 64 bits of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// All up to this one count as used.
    pub sent: u64,
    /// All up to this one count as received.
    pub received: u64,
}

impl SequenceFile {
    /// Opens the file, or makes it with nothing used.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another program has it open, [`io::ErrorKind::InvalidData`]
    /// when it is something else, and those of the file system.
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
        // What cannot be written is better known before the first packet.
        opened.write(numbers)?;
        if cfg!(unix) && text.is_empty() {
            sync_folder_of(path)?;
        }
        Ok(opened)
    }

    /// Writes the numbers, and waits until they are on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&mut self, numbers: Numbers) -> io::Result<()> {
        let Numbers { sent, received } = numbers;
        // Always as long, and shorter than a sector: it is there as a whole or not at all.
        let text = format!("{FIRST_LINE}\nout {sent:020}\nin {received:020}\n");
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_data()?;
        self.numbers = numbers;
        Ok(())
    }

    /// What the file says.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Waits until the name of a new file is on the disk as well: without it the numbers would be lost.
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

/// How many sequence numbers are said to be used at a time, ahead of their use: at a million packets a
/// second the file is written once a second, and of 32-bit numbers a crash costs a 4096th.
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
