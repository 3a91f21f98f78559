//! Reading of captures, with progress, interruption, hash and provenance.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use grosso_io::capture::{CaptureError, CaptureReader, Compression, Entry, Format, Packet};
use grosso_wire::LinkType;

use crate::{
    digest::Digest,
    error::{Exit, Failure},
    name::{Name, shown},
    progress::Progress,
    report::{InputFacts, Interrupted},
    talk::Talk,
};

/// The state that every command needs beside its own options.
pub(crate) struct Session {
    pub(crate) talk: Talk,
    /// The link type that the user set.
    pub(crate) forced_link: Option<LinkType>,
    pub(crate) allow_truncated: bool,
    pub(crate) strict: bool,
    /// Set by Ctrl-C.
    pub(crate) interrupted: Arc<AtomicBool>,
    /// The command line, for provenance.
    pub(crate) command_line: String,
    pub(crate) started: Instant,
}

impl Session {
    /// Seconds since the command began.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// A capture that is read.
pub(crate) struct Input {
    pub(crate) reader: CaptureReader<Source>,
    /// The path as the user typed it.
    pub(crate) path: PathBuf,
    /// The name in messages.
    pub(crate) name: String,
    pub(crate) links: Links,
    /// Bytes of the file; `None` for a pipe.
    file_len: Option<u64>,
    /// Ctrl-C ended the pipe that was copied here, so its end is not the real one.
    pub(crate) is_cut_off: bool,
    /// The extent of the reading that Ctrl-C ended.
    interruption: Option<Interrupted>,
    progress: Progress,
    record: Rc<RefCell<ReadRecord>>,
    interrupted: Arc<AtomicBool>,
}

/// The end of a reading.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The end of the file.
    Complete,
    /// Damage; everything before it was visited.
    Damaged(CaptureError),
    /// The user pressed Ctrl-C.
    Interrupted,
}

impl Input {
    /// Opens a capture; `-` is standard input. `is_hashed` says whether its hash is needed.
    pub(crate) fn open(path: &Path, is_hashed: bool, session: &Session) -> Result<Self, Failure> {
        let (stream, bytes) = open_stream(path)?;
        Self::over(stream, bytes, path, is_hashed, session)
    }

    /// Reads a capture from a stream that came from `path`, of so many bytes if that is known.
    pub(crate) fn over(
        stream: File,
        bytes: Option<u64>,
        path: &Path,
        is_hashed: bool,
        session: &Session,
    ) -> Result<Self, Failure> {
        let name = name_of(path);
        let source = Source::new(stream, is_hashed, session);
        let (record, interrupted) = (Rc::clone(&source.record), Arc::clone(&source.interrupted));
        let reader = CaptureReader::new(source).map_err(|error| match error {
            CaptureError::Io { source, .. } => io_failure(path, source),
            other => Failure::capture(&name, &other),
        })?;
        Ok(Self {
            reader,
            path: path.into(),
            progress: Progress::new(bytes, !session.talk.quiet),
            name,
            links: Links { forced: session.forced_link },
            file_len: bytes,
            is_cut_off: false,
            interruption: None,
            record,
            interrupted,
        })
    }

    /// Visits every entry up to the end, damage or Ctrl-C.
    pub(crate) fn each(
        &mut self,
        mut visit: impl FnMut(&Entry<'_>) -> Result<Next, Failure>,
    ) -> Result<Ending, Failure> {
        let ending = loop {
            if self.interrupted.load(Ordering::Relaxed) {
                break Ending::Interrupted;
            }
            match self.reader.next() {
                Ok(Some(entry)) => match visit(&entry) {
                    Ok(Next::Go) => {}
                    Ok(Next::Stop) => break Ending::Complete,
                    Err(failure) => {
                        self.progress.finish();
                        return Err(failure);
                    }
                },
                // Ctrl-C wakes a reader that waits for a pipe with an end that is not the real one.
                Ok(None) | Err(_) if self.interrupted.load(Ordering::Relaxed) => {
                    break Ending::Interrupted;
                }
                Ok(None) => break Ending::Complete,
                Err(error) => break Ending::Damaged(error),
            }
            if self.reader.packets().is_multiple_of(PACKETS_PER_LOOK) {
                self.progress.at(self.reader.file_bytes());
            }
        };
        self.progress.finish();
        let ending = match ending {
            Ending::Complete if self.is_cut_off => Ending::Interrupted,
            Ending::Damaged(error) if self.is_cut_off && error.is_truncation() => {
                Ending::Interrupted
            }
            ending => ending,
        };
        if let Ending::Interrupted = ending {
            self.interruption = Some(Interrupted::after(self.reader.packets(), self.share()));
        }
        Ok(ending)
    }

    /// The facts for the report, about packets that have `bytes` bytes together. Valid after reading.
    pub(crate) fn facts(&self, bytes: u64) -> InputFacts {
        InputFacts {
            path: Name::of(&self.path),
            sha256: self.sha256(),
            format: self.format_name(),
            packets: self.reader.packets(),
            bytes,
            interrupted: self.interruption(),
        }
    }

    /// The extent of the reading, if Ctrl-C ended it. Valid after reading.
    pub(crate) fn interruption(&self) -> Option<Interrupted> {
        self.interruption
    }

    /// The number of bytes of the file that were read, and the total; `None` for a pipe.
    fn share(&self) -> Option<(u64, u64)> {
        let read = match self.reader.compression() {
            Compression::None => self.reader.offset(),
            // The end of a packet in compressed bytes is not known.
            _ => self.reader.file_bytes(),
        };
        let file_len = self.file_len.filter(|_| !self.is_cut_off)?;
        Some((read.min(file_len), file_len))
    }

    /// `pcap` or `pcapng`, and the compression.
    pub(crate) fn format_name(&self) -> String {
        match self.reader.compression() {
            Compression::None => self.reader.format().to_string(),
            other => format!("{}, {}", self.reader.format(), other.name()),
        }
    }

    /// The SHA-256 of the stored file, in hexadecimal; `None` unless it was requested and all of the file was read.
    /// Valid after reading.
    pub(crate) fn sha256(&self) -> Option<String> {
        let mut record = self.record.borrow_mut();
        if let Some(digest) = record.digest.take() {
            record.sha256 = digest.finish();
        }
        if record.is_at_end { record.sha256.clone() } else { None }
    }

    /// Whether the file is classic pcap.
    pub(crate) fn is_pcap(&self) -> bool {
        self.reader.format() == Format::Pcap
    }
}

/// The decision whether to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Go,
    Stop,
}

impl Ending {
    /// Turns the end of a reading into the end of the command. `done` is the work that was done on the packets up to
    /// there, such as "processed and written".
    pub(crate) fn conclude(
        self,
        input: &Input,
        session: &mut Session,
        done: &str,
    ) -> Result<Exit, Failure> {
        let error = match self {
            Self::Complete => return Ok(Exit::Yes),
            Self::Interrupted => return Ok(Exit::Interrupted),
            Self::Damaged(error) => error,
        };
        let packets = input.reader.packets();
        let mut failure = Failure::capture(&input.name, &error);
        if !error.is_input() {
            return Err(failure);
        }
        let were = if packets == 1 { "packet was" } else { "packets were" };
        failure.message = format!("{}. {packets} {were} {done}.", failure.message);
        let is_truncated = failure.code == "input.truncated";
        if is_truncated && session.allow_truncated {
            session.talk.note(failure.message);
            return Ok(Exit::Yes);
        }
        Err(if is_truncated { failure.hint("--allow-truncated to exit 0") } else { failure })
    }
}

/// The rules by which packets are parsed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    forced: Option<LinkType>,
}

impl Links {
    /// The link type of a packet; `None` if the dissector does not know it.
    #[inline]
    pub(crate) fn of(self, packet: &Packet<'_>) -> Option<LinkType> {
        match self.forced {
            Some(link) => Some(link),
            None => LinkType::from_pcap(packet.description.link_type),
        }
    }
}

/// Packets that could not be parsed because of their link type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unparsed {
    packets: u64,
    link_type: u32,
}

impl Unparsed {
    /// Counts one packet.
    pub(crate) fn count(&mut self, packet: &Packet<'_>) {
        if self.packets == 0 {
            self.link_type = packet.description.link_type;
        }
        self.packets += 1;
    }

    /// Fails if there were any. `fate` is the phrase for their fate.
    pub(crate) fn conclude(self, input: &Input, fate: &str) -> Result<(), Failure> {
        if self.packets == 0 {
            return Ok(());
        }
        let total = input.reader.packets();
        let message = format!(
            "{}: link type {} is not one I can parse. {fate}{} of {total} processed.",
            input.name,
            link_name(self.link_type),
            total - self.packets,
        );
        Err(Failure::input("input.link_type", message).hint("--linktype ethernet to override"))
    }
}

/// Opens a file or standard input, and returns the number of bytes if that is known.
pub(crate) fn open_stream(path: &Path) -> Result<(File, Option<u64>), Failure> {
    let fail = |source| io_failure(path, source);
    if path.as_os_str() == "-" {
        return Ok((standard_input().map_err(fail)?, None));
    }
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        let message = format!("{}: is a directory", name_of(path));
        return Err(Failure::environment("environment.read", message));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

/// The failure to read a capture.
pub(crate) fn io_failure(path: &Path, source: io::Error) -> Failure {
    let path = name_of(path);
    Failure::capture(&path.clone(), &CaptureError::Io { path, source })
}

/// The name of a capture in messages.
fn name_of(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { shown(path) }
}

/// Facts about the file that reading collects besides its packets.
struct ReadRecord {
    /// Present until the hash is taken.
    digest: Option<Digest>,
    sha256: Option<String>,
    is_at_end: bool,
}

/// A stream that is hashed while it is read, and that Ctrl-C ends.
pub(crate) struct Source {
    stream: File,
    record: Rc<RefCell<ReadRecord>>,
    interrupted: Arc<AtomicBool>,
}

impl Source {
    pub(crate) fn new(stream: File, is_hashed: bool, session: &Session) -> Self {
        let digest = if is_hashed { Digest::start() } else { None };
        let record = ReadRecord { digest, sha256: None, is_at_end: false };
        let interrupted = Arc::clone(&session.interrupted);
        Self { stream, record: Rc::new(RefCell::new(record)), interrupted }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read =
            if wait(&self.stream, &self.interrupted) { self.stream.read(buffer)? } else { 0 };
        let mut record = self.record.borrow_mut();
        if let Some(digest) = &mut record.digest {
            digest.update(&buffer[..read]);
        }
        record.is_at_end = read == 0 && !self.interrupted.load(Ordering::Relaxed);
        Ok(read)
    }
}

/// Standard input without a buffer of its own, which could hold bytes while [`wait`] sees none.
#[cfg(unix)]
fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;

    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

#[cfg(windows)]
fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;

    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

/// Waits until there is something to read; `false` if the user pressed Ctrl-C meanwhile.
///
/// A read of a silent pipe is restarted after a signal, so it would never end; a poll is not.
#[cfg(unix)]
fn wait(stream: &File, interrupted: &AtomicBool) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};

    loop {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
            Err(rustix::io::Errno::INTR) => {}
            // A stream that cannot be polled can still be read.
            _ => return true,
        }
    }
}

#[cfg(not(unix))]
fn wait(_stream: &File, interrupted: &AtomicBool) -> bool {
    !interrupted.load(Ordering::Relaxed)
}

/// A link type by number and, if it is a usual one, by name.
fn link_name(number: u32) -> String {
    let name = match number {
        3 => "AX25",
        6 => "IEEE802_5",
        9 => "PPP",
        10 => "FDDI",
        50 => "PPP_HDLC",
        51 => "PPP_ETHER",
        104 => "C_HDLC",
        105 => "IEEE802_11",
        107 => "FRELAY",
        117 => "PFLOG",
        119 => "IEEE802_11_PRISM",
        127 => "IEEE802_11_RADIOTAP",
        147..=162 => return format!("{number} (USER{})", number - 147),
        189 => "USB_LINUX",
        192 => "PPI",
        195 => "IEEE802_15_4",
        220 => "USB_LINUX_MMAPPED",
        227 => "CAN_SOCKETCAN",
        239 => "NFLOG",
        240 => "NETANALYZER",
        249 => "USBPCAP",
        253 => "NETLINK",
        _ => return number.to_string(),
    };
    format!("{number} ({name})")
}

/// The number of packets between two updates of the progress bar.
const PACKETS_PER_LOOK: u64 = 1024;
