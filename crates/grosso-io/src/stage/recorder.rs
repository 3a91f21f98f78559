//! Records sequence numbers in a file, in the thread that uses them, or in another thread or process.
//!
//! A file system can be frozen for a backup, or a disk can be slow; writing to a file then blocks. The thread of a path
//! must not block, so another thread or process writes the file, and the path sends requests over a socket before it
//! needs the numbers. A number is used only after the answer has arrived.

use std::io;
#[cfg(unix)]
use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use super::{Numbers, SequenceFile};

/// Writer that records ESP sequence numbers in a file.
#[derive(Debug)]
pub struct SequenceRecorder {
    recorded: Numbers,
    /// Numbers in the file when it was opened. Higher numbers have not been used.
    unused: Numbers,
    writer: Writer,
}

#[derive(Debug)]
enum Writer {
    /// The calling thread writes the file, and may block.
    Here(SequenceFile),
    /// Another thread or process writes the file.
    #[cfg(unix)]
    Apart { link: UnixStream, asked: Option<Numbers> },
}

/// State of a request to record numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordState {
    /// There is no request.
    Idle,
    /// The request has not been answered yet.
    Waiting,
    /// The file could not be written.
    Failed,
}

impl SequenceRecorder {
    /// Creates a recorder that writes in the calling thread. This thread blocks while the disk is busy.
    ///
    /// # Errors
    /// Returns errors from the file system.
    pub fn here(mut file: SequenceFile) -> io::Result<Self> {
        // Detects a file that cannot be written before the first packet arrives.
        file.write(file.numbers())?;
        Ok(Self { recorded: file.numbers(), unused: file.numbers(), writer: Writer::Here(file) })
    }

    /// Creates a recorder in another thread or process: `start` gets the file, the fingerprint of its keys and a
    /// socket, and must run [`record`] with these arguments in that thread or process. Reserves the first numbers for
    /// sending, and waits until they are recorded.
    ///
    /// # Errors
    /// Returns any error from `start` or from the file system, and [`io::ErrorKind::TimedOut`] if the file cannot be
    /// written within [`ANSWER_WAIT`], for example because the file system is frozen.
    #[cfg(unix)]
    pub fn apart(
        file: SequenceFile,
        start: impl FnOnce(File, u128, UnixStream) -> io::Result<()>,
    ) -> io::Result<Self> {
        let recorded = file.numbers();
        let (link, other) = UnixStream::pair()?;
        link.set_read_timeout(Some(ANSWER_WAIT))?;
        let (file, keys) = file.into_parts();
        start(file, keys, other)?;
        let mut recorder =
            Self { recorded, unused: recorded, writer: Writer::Apart { link, asked: None } };
        let sent = recorded.sent.saturating_add(super::sequence::RESERVED_AT_ONCE);
        recorder.ask(Numbers { sent, ..recorded });
        let Writer::Apart { link, .. } = &recorder.writer else { return Ok(recorder) };
        let answer = receive(link);
        link.set_nonblocking(true)?;
        match (recorder.take(answer), answer) {
            (RecordState::Idle, _) => Ok(recorder),
            (RecordState::Waiting, _) => Err(io::Error::new(io::ErrorKind::TimedOut, FROZEN)),
            (RecordState::Failed, Err(kind)) => Err(kind.into()),
            (RecordState::Failed, Ok(_)) => Err(io::Error::other("cannot write the file")),
        }
    }

    /// Returns the numbers that the file records.
    pub(super) fn recorded(&self) -> Numbers {
        self.recorded
    }

    /// Returns the numbers in the file when it was opened. Higher numbers have not been used.
    pub(super) fn unused(&self) -> Numbers {
        self.unused
    }

    /// Returns whether another thread writes the file, so that numbers must be requested ahead.
    pub(super) fn is_apart(&self) -> bool {
        !matches!(self.writer, Writer::Here(_))
    }

    /// Returns whether an answer is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.writer {
            Writer::Here(_) => false,
            #[cfg(unix)]
            Writer::Apart { asked, .. } => asked.is_some(),
        }
    }

    /// Requests that `numbers` be recorded, unless a request is still unanswered. Numbers that are already recorded are
    /// available immediately.
    pub(super) fn ask(&mut self, numbers: Numbers) -> RecordState {
        let is_ahead = numbers.sent > self.recorded.sent;
        let received = self.recorded.received.min(numbers.received);
        match &mut self.writer {
            Writer::Here(file) => {
                let written = if is_ahead { file.write(numbers) } else { file.note(numbers) };
                match written {
                    Ok(()) => {
                        self.recorded = numbers;
                        RecordState::Idle
                    }
                    Err(_) => RecordState::Failed,
                }
            }
            #[cfg(unix)]
            Writer::Apart { asked: Some(_), .. } => RecordState::Waiting,
            #[cfg(unix)]
            Writer::Apart { link, asked } => {
                let bytes = request(numbers, is_ahead);
                // There is room for the request, because the last one was answered. A partial write counts as a
                // failure, because part of a request would be useless.
                if !link.write(&bytes).is_ok_and(|count| count == bytes.len()) {
                    return RecordState::Failed;
                }
                *asked = Some(numbers);
                self.recorded.received = received;
                RecordState::Waiting
            }
        }
    }

    /// Handles the answer to the last request, if it has arrived.
    pub(super) fn poll(&mut self) -> RecordState {
        match &self.writer {
            Writer::Here(_) => RecordState::Idle,
            #[cfg(unix)]
            Writer::Apart { asked: None, .. } => RecordState::Idle,
            #[cfg(unix)]
            Writer::Apart { link, .. } => {
                let answer = receive(link);
                self.take(answer)
            }
        }
    }

    /// Returns the descriptor that becomes readable with an answer.
    #[cfg(unix)]
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.writer {
            Writer::Here(_) => None,
            Writer::Apart { link, .. } => Some(link.as_fd()),
        }
    }

    /// Records the last numbers, and waits up to [`ANSWER_WAIT`] until they are recorded. If this fails, more numbers
    /// than were used remain recorded.
    pub(super) fn finish(&mut self, numbers: Numbers) {
        match &mut self.writer {
            Writer::Here(file) => {
                let _ = file.write(numbers);
            }
            #[cfg(unix)]
            Writer::Apart { link, .. } => {
                // The socket's timeout was set when the recorder was created.
                let _ = link.set_nonblocking(false);
                if self.is_waiting() && self.poll() == RecordState::Waiting {
                    return;
                }
                // The exact numbers must reach the disk, just like reserved numbers.
                self.recorded.sent = 0;
                if self.ask(numbers) == RecordState::Waiting {
                    let _ = self.poll();
                }
            }
        }
    }

    #[cfg(unix)]
    fn take(&mut self, answer: Result<u8, io::ErrorKind>) -> RecordState {
        let Writer::Apart { asked, .. } = &mut self.writer else { return RecordState::Idle };
        match answer {
            Ok(WRITTEN) => {
                self.recorded = asked.take().unwrap_or(self.recorded);
                RecordState::Idle
            }
            Err(
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted,
            ) => RecordState::Waiting,
            // The next request tries again.
            _ => {
                *asked = None;
                RecordState::Failed
            }
        }
    }
}

/// Records requested numbers in the file for these keys until the other side disconnects. Run it in a thread that may
/// wait for the disk.
#[cfg(unix)]
pub fn record(file: File, keys: u128, mut link: UnixStream) {
    let mut file = SequenceFile::from_parts(file, keys);
    let mut bytes = [0; REQUEST_BYTES];
    while link.read_exact(&mut bytes).is_ok() {
        let (numbers, is_ahead) = understood(bytes);
        let written = if is_ahead { file.write(numbers) } else { file.note(numbers) };
        if link.write_all(&[if written.is_ok() { WRITTEN } else { FAILED }]).is_err() {
            return;
        }
    }
}

#[cfg(unix)]
fn request(numbers: Numbers, is_ahead: bool) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..8].copy_from_slice(&numbers.sent.to_ne_bytes());
    bytes[8..16].copy_from_slice(&numbers.received.to_ne_bytes());
    bytes[16] = is_ahead.into();
    bytes
}

#[cfg(unix)]
fn understood(bytes: [u8; REQUEST_BYTES]) -> (Numbers, bool) {
    let long = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    (Numbers { sent: long(0), received: long(8) }, bytes[16] != 0)
}

#[cfg(unix)]
fn receive(mut link: &UnixStream) -> Result<u8, io::ErrorKind> {
    let mut answer = [0];
    match link.read(&mut answer) {
        Ok(0) => Err(io::ErrorKind::BrokenPipe),
        Ok(_) => Ok(answer[0]),
        Err(error) => Err(error.kind()),
    }
}

/// Length of a request in bytes: two numbers, and a flag for whether they must be on the disk.
#[cfg(unix)]
const REQUEST_BYTES: usize = 17;
#[cfg(unix)]
const WRITTEN: u8 = 1;
#[cfg(unix)]
const FAILED: u8 = 0;
/// Maximum time to wait for the file to be written. The wait occurs twice: when the recorder is created, and when the
/// exact numbers are recorded at the end.
#[cfg(unix)]
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);
#[cfg(unix)]
const FROZEN: &str =
    "the file cannot be written in time; its file system may be frozen or unreachable";
