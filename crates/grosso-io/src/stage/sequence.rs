//! Stores sequence numbers in a file, so that they persist between runs.
//!
//! A peer rejects packets with old numbers, and a packet whose number has been received must never be accepted again.
//! If a key is stored in a file, its sequence numbers must therefore be stored too. A number is recorded on disk as
//! sent before it is used, and as received before its packet is delivered. The file also contains a fingerprint of the
//! key.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use grosso_sys::path;

/// A file with the sequence numbers of a pair of associations, locked against other processes.
#[derive(Debug)]
pub struct SequenceFile {
    file: File,
    path: PathBuf,
    keys: u128,
    numbers: Numbers,
}

/// 64-bit sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Highest sequence number that is treated as already sent.
    pub sent: u64,
    /// Highest sequence number that is treated as already received.
    pub received: u64,
}

impl SequenceFile {
    /// Opens the file for the keys with this fingerprint. If there is no file, creates one that records no number as
    /// used.
    ///
    /// The fingerprint must reveal nothing about the keys: use a digest.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if another program has the file open, [`io::ErrorKind::InvalidData`] if
    /// the file is empty, belongs to other keys or has other content, and [`io::ErrorKind::InvalidInput`] if it is not
    /// a regular file. Also returns any error from the file system.
    pub fn open(path: &Path, keys: u128) -> io::Result<Self> {
        let file = match path::open_for_update(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path::publish(path, text(keys, Numbers::default()).as_bytes(), 0o600)?
            }
            other => other?,
        };
        lock(&file)?;
        let numbers = read(&file, keys)?;
        Ok(Self { file, path: path.to_owned(), keys, numbers })
    }

    /// Checks that the file belongs to the keys with this fingerprint, if the file exists.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidData`] if the file belongs to other keys, or any error from the file system.
    pub fn check(path: &Path, keys: u128) -> io::Result<()> {
        match path::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => read(&other?, keys).map(|_| ()),
        }
    }

    /// Returns the file and the fingerprint, for another thread or process.
    #[cfg(unix)]
    pub(super) fn into_parts(self) -> (File, u128) {
        (self.file, self.keys)
    }

    /// Wraps a file that is already locked, with the fingerprint of its keys.
    #[cfg(unix)]
    pub(super) fn from_parts(file: File, keys: u128) -> Self {
        Self { file, path: PathBuf::new(), keys, numbers: Numbers::default() }
    }

    /// Writes the numbers and waits until they are on disk.
    ///
    /// # Errors
    /// Returns errors from the file system.
    pub fn write(&mut self, numbers: Numbers) -> io::Result<()> {
        self.note(numbers)?;
        self.file.sync_data()
    }

    /// Writes the numbers without waiting for the disk: they survive the end of the process, but survive a power loss
    /// only once the kernel has written them.
    ///
    /// # Errors
    /// Returns errors from the file system.
    pub fn note(&mut self, numbers: Numbers) -> io::Result<()> {
        // The text has a constant length and is shorter than a sector, so a write takes effect as a whole or not at
        // all.
        self.file.rewind()?;
        self.file.write_all(text(self.keys, numbers).as_bytes())?;
        self.numbers = numbers;
        Ok(())
    }

    /// Returns the numbers in the file.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock(file: &File) -> io::Result<()> {
    // If the program was killed, the process that records its numbers ends shortly after it and releases the lock.
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "another program is using the file",
                ));
            }
        }
    }
}

/// Maximum time to wait for the file lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Pause between attempts to lock the file.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

fn text(keys: u128, Numbers { sent, received }: Numbers) -> String {
    format!("{FIRST_LINE}\nkeys {keys:032x}\nout {sent:020}\nin {received:020}\n")
}

/// Reads the numbers from a file, which must belong to the keys with this fingerprint.
fn read(mut file: &File, keys: u128) -> io::Result<Numbers> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut text = String::new();
    file.rewind()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
    if text.is_empty() {
        return Err(wrong("the file is empty, so the sequence numbers of these keys are lost"));
    }
    match parse(&text) {
        Some((found, numbers)) if found == keys => Ok(numbers),
        Some(_) => Err(wrong("the file belongs to different keys")),
        None => Err(wrong("the file contains no sequence numbers")),
    }
}

/// Parses the fingerprint and the numbers. Returns `None` for truncated text, even if its digits look complete.
fn parse(text: &str) -> Option<(u128, Numbers)> {
    let mut lines = text.lines();
    let first = lines.next()?;
    let mut value = |word: &str| Some(lines.next()?.strip_prefix(word)?.trim());
    let keys = u128::from_str_radix(value("keys ")?, 16).ok()?;
    let numbers =
        Numbers { sent: value("out ")?.parse().ok()?, received: value("in ")?.parse().ok()? };
    let is_whole = text.ends_with('\n') && lines.next().is_none();
    (first == FIRST_LINE && is_whole).then_some((keys, numbers))
}

/// Number of sequence numbers that are reserved for sending at a time. With this value, the file is written once per
/// second at a million packets per second, and a crash wastes at most 1/4096 of the 32-bit numbers.
pub(super) const RESERVED_AT_ONCE: u64 = 1 << 20;

const FIRST_LINE: &str = "grosso-esp-sequences/2";
/// Upper bound on the length of the file in bytes.
const TEXT_BYTES_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEYS: u128 = 0xfeed;

    #[test]
    fn numbers_are_there_again_and_nobody_else_gets_them_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.sequence");
        // A program that was killed while creating the file left this behind.
        std::fs::write(folder.path().join("edge.sequence.new"), "half").unwrap();
        let mut first = SequenceFile::open(&path, KEYS).unwrap();
        assert_eq!(first.numbers(), Numbers::default());
        let numbers = Numbers { sent: u64::MAX, received: 7 };
        first.write(Numbers { sent: 1, received: 2 }).unwrap();
        first.write(numbers).unwrap();
        let again = SequenceFile::open(&path, KEYS).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        assert_eq!(SequenceFile::open(&path, KEYS).unwrap().numbers(), numbers);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let opened = SequenceFile::open(&path, KEYS).map(|_| ());
        for result in [opened, SequenceFile::check(&path, KEYS)] {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_file_that_is_empty_or_of_something_else_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        assert!(SequenceFile::check(&path, KEYS).is_ok());
        let good = "grosso-esp-sequences/2\nkeys feed\nout 1\nin 2\n";
        for (text, expected) in [
            ("", "the file is empty"),
            ("hello", "the file contains no"),
            ("grosso-esp-sequences/1\nout 1\nin 2\n", "the file contains no"),
            (&good[..good.len() - 3], "the file contains no"),
            (&good.replace("in 2\n", "in 20")[..good.len()], "the file contains no"),
            (&good.replace("in 2\n", "in 2\nin 3\n"), "the file contains no"),
            (&good.replace("feed", "feee"), "the file belongs to different keys"),
        ] {
            std::fs::write(&path, text).unwrap();
            let opened = SequenceFile::open(&path, KEYS).map(|_| ());
            for result in [opened, SequenceFile::check(&path, KEYS)] {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                assert!(error.to_string().starts_with(expected), "{error}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, good).unwrap();
        let numbers = SequenceFile::open(&path, KEYS).unwrap().numbers();
        assert_eq!(numbers, Numbers { sent: 1, received: 2 });
    }
}
