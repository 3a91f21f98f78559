//! Reads captures, shows progress, stops on Ctrl-C, and records the hash and origin of each capture.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Cursor, Read},
    iter,
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{ReadingProgress, Session};
use crate::{
    digest::Digest,
    error::{Exit, Failure},
    links::Links,
    name::{Name, shown},
    report::{FileFacts, InputFacts, Interrupted},
};
use grosso_capture::{
    CaptureError, CaptureReader, CaptureWriter, Compression, Entry, Format, Merge,
    Origin as PacketOrigin, Outcome, Output as Destination, Packet,
};

/// Captures that are read as one input.
pub(crate) struct Input {
    pub(crate) reader: CaptureReader<Feed>,
    /// Name used in messages.
    pub(crate) name: String,
    pub(crate) links: Links,
    pub(crate) devices: Devices,
    origins: Vec<Origin>,
    /// State shared with the code that merges the captures; `None` if the packets are neither merged nor filtered.
    merged: Option<Merged>,
    /// Filter expression that selects the packets.
    filter: Option<String>,
    /// Whether the report contains the hashes. If not, the hash may still be needed for the output.
    names_hash: bool,
    /// Whether Ctrl-C interrupted the copying of a pipe, which leaves the copy incomplete.
    pub(crate) is_cut_off: bool,
    /// Part of the input that was read before Ctrl-C; `None` if reading was not interrupted.
    interruption: Option<Interrupted>,
    pass: Pass,
    progress: Box<dyn ReadingProgress>,
    interrupted: Arc<AtomicBool>,
}

/// State shared with the code that merges captures.
pub(crate) struct Merged {
    pub(crate) outcome: Rc<RefCell<Outcome>>,
    /// Failure in the filter, if any.
    pub(crate) fault: Rc<RefCell<Option<Failure>>>,
}

/// Mapping from interfaces to devices. The same device may appear as an interface in several captures.
#[derive(Clone)]
pub(crate) struct Devices(Option<Rc<RefCell<Outcome>>>);

impl Devices {
    /// Returns the first interface of the device to which `interface` belongs.
    #[inline]
    pub(crate) fn of(&self, interface: u32) -> u32 {
        self.0.as_ref().map_or(interface, |outcome| outcome.borrow().device(interface))
    }

    /// Returns where the most recently read packet comes from.
    #[inline]
    fn origin_of(&self, packet: &Packet<'_>) -> PacketOrigin {
        let merged = self.0.as_ref().and_then(|outcome| outcome.borrow_mut().next_origin());
        merged.unwrap_or(packet.origin)
    }
}

/// One of the input captures.
pub(crate) struct Origin {
    /// The path as the user typed it.
    path: PathBuf,
    /// Name used in messages.
    pub(crate) name: String,
    /// Length of the file in bytes; `None` for a pipe.
    len: Option<u64>,
    /// `pcap` or `pcapng`, and the compression. Set only if the capture was opened before the merge.
    format: Option<String>,
    record: Rc<RefCell<ReadRecord>>,
}

impl Origin {
    /// Describes the capture at `path`, which `source` reads. `len` is its length in bytes, if known.
    pub(crate) fn of(path: &Path, len: Option<u64>, source: &CaptureStream) -> Self {
        let record = Rc::clone(&source.record);
        Self { path: path.into(), name: name_of(path), len, format: None, record }
    }

    /// Records the format of a capture that is being merged.
    pub(crate) fn learn<R: Read>(&mut self, reader: &CaptureReader<R>) {
        self.format = Some(format_name(reader));
    }

    /// Returns the SHA-256 of the stored file in hexadecimal, or `None` if it was not requested or the file was not
    /// read completely.
    fn sha256(&self) -> Option<String> {
        let mut record = self.record.borrow_mut();
        if let Some(digest) = record.digest.take() {
            record.sha256 = digest.finish();
        }
        if record.is_at_end { record.sha256.clone() } else { None }
    }
}

/// A pass over the captures. Some commands first collect information that the second pass needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Only,
    First,
    Second,
}

/// Reason why reading ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The end of the file was reached.
    Complete,
    /// The named capture is damaged. Everything up to the damage was visited.
    Damaged(String, CaptureError),
    /// The user pressed Ctrl-C.
    Interrupted,
}

impl Input {
    /// Creates the input from captures that are already open.
    pub(crate) fn over(
        reader: CaptureReader<Feed>,
        origins: Vec<Origin>,
        merged: Option<Merged>,
        filter: Option<String>,
        session: &Session,
    ) -> Self {
        let total = origins.iter().map(|origin| origin.len).sum();
        Self {
            reader,
            name: name_of_all(&origins, |origin| origin.name.clone()),
            progress: session.observer.begin(total),
            links: Links { forced: session.forced_link },
            devices: Devices(merged.as_ref().map(|merged| Rc::clone(&merged.outcome))),
            origins,
            merged,
            filter,
            names_hash: session.names_hash,
            is_cut_off: false,
            interruption: None,
            pass: Pass::Only,
            interrupted: Arc::clone(&session.interrupted),
        }
    }

    /// Sets the pass that the progress bar and the Ctrl-C message show.
    pub(crate) fn name_pass(&mut self, pass: Pass) {
        self.pass = pass;
        match pass {
            Pass::Only => {}
            Pass::First => self.progress.name("pass 1 of 2"),
            Pass::Second => self.progress.name("pass 2 of 2"),
        }
    }

    /// Visits every entry until the input ends or is damaged, or the user presses Ctrl-C.
    pub(crate) fn each(
        &mut self,
        mut visit: impl FnMut(&Entry<'_>) -> Result<Next, Failure>,
    ) -> Result<Ending, Failure> {
        let ending = loop {
            if self.interrupted.load(Ordering::Relaxed) {
                break Ending::Interrupted;
            }
            match self.reader.next() {
                Ok(Some(mut entry)) => {
                    if let Entry::Packet(packet) = &mut entry {
                        packet.device = self.devices.of(packet.interface);
                        packet.origin = self.devices.origin_of(packet);
                    }
                    match visit(&entry) {
                        Ok(Next::Go) => {}
                        Ok(Next::Stop) => break Ending::Complete,
                        Err(failure) => {
                            self.progress.finish();
                            return Err(failure);
                        }
                    }
                }
                // Ctrl-C wakes a reader that is waiting for a pipe. To the reader, this looks like the end of the
                // input.
                Ok(None) | Err(_) if self.interrupted.load(Ordering::Relaxed) => {
                    break Ending::Interrupted;
                }
                Ok(None) => break self.end()?,
                Err(error) => {
                    let end = self.end()?;
                    let is_own = matches!(end, Ending::Complete);
                    break if is_own { Ending::Damaged(self.name.clone(), error) } else { end };
                }
            }
            if self.reader.packets().is_multiple_of(PACKETS_PER_LOOK) {
                self.progress.at(self.bytes_read());
            }
        };
        self.progress.finish();
        let ending = match ending {
            Ending::Complete if self.is_cut_off => Ending::Interrupted,
            Ending::Damaged(_, error) if self.is_cut_off && error.is_truncation() => {
                Ending::Interrupted
            }
            ending => ending,
        };
        if let Ending::Interrupted = ending {
            let packets = self.reader.packets();
            let in_first_pass = packets == 0 && self.pass == Pass::Second;
            let share = self.share();
            self.interruption = Some(Interrupted::after(packets, share, in_first_pass));
        }
        Ok(ending)
    }

    /// Registers `writer` to be flushed before every wait for more input.
    pub(crate) fn precede_waits_by(&self, writer: &Rc<RefCell<CaptureWriter<Destination>>>) {
        for origin in &self.origins {
            origin.record.borrow_mut().writer = Rc::downgrade(writer);
        }
    }

    /// Returns whether the merged captures were read completely or one of them was damaged.
    fn end(&mut self) -> Result<Ending, Failure> {
        let Some(merged) = &self.merged else { return Ok(Ending::Complete) };
        if let Some(failure) = merged.fault.borrow_mut().take() {
            self.progress.finish();
            return Err(failure);
        }
        let damage = merged.outcome.borrow_mut().damage.take();
        Ok(damage.map_or(Ending::Complete, |(index, damage)| {
            Ending::Damaged(self.origins[index].name.clone(), damage)
        }))
    }

    /// Returns the facts for the report. `bytes` is the total length of the packets. Valid only after reading.
    pub(crate) fn facts(&self, bytes: u64) -> InputFacts {
        InputFacts {
            path: self.path(),
            typed: self.typed(),
            sha256: self.sha256(),
            format: self.format_name(),
            packets: self.reader.packets(),
            bytes,
            files: self.files(),
            interrupted: self.interruption(),
        }
    }

    /// Returns a single name for all captures, with their paths.
    pub(crate) fn path(&self) -> Name {
        Name::from(name_of_all(&self.origins, |origin| origin.path.display().to_string()))
    }

    /// Returns the command-line arguments that read the same input again.
    pub(crate) fn typed(&self) -> Vec<String> {
        let paths = self.paths().map(|path| path.display().to_string());
        match (&self.filter, self.origins.len()) {
            (None, 1) => iter::once("-r".to_owned()).chain(paths).collect(),
            (None, _) => paths.collect(),
            (Some(filter), _) => paths.chain(["-f".to_owned(), filter.clone()]).collect(),
        }
    }

    /// Returns the paths of the captures.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.origins.iter().map(|origin| &*origin.path)
    }

    /// Returns the captures that were merged; empty if there is only one.
    fn files(&self) -> Vec<FileFacts> {
        let Some(merged) = self.merged.as_ref().filter(|_| self.origins.len() > 1) else {
            return Vec::new();
        };
        let outcome = merged.outcome.borrow();
        let each = self.origins.iter().zip(&outcome.packets);
        let facts = each.map(|(origin, &packets)| FileFacts {
            path: Name::of(&origin.path),
            sha256: origin.sha256().filter(|_| self.names_hash),
            packets,
        });
        facts.collect()
    }

    /// Returns the part of the input that was read before Ctrl-C; `None` if reading was not interrupted. Valid only
    /// after reading.
    pub(crate) fn interruption(&self) -> Option<Interrupted> {
        self.interruption
    }

    /// Returns the number of packets that had no timestamp and were given timestamp 0 in the merge.
    pub(crate) fn without_time(&self) -> u64 {
        self.merged.as_ref().map_or(0, |merged| merged.outcome.borrow().without_time)
    }

    /// Returns the number of bytes read and the total length of the files; `None` if one of them is a pipe.
    fn share(&self) -> Option<(u64, u64)> {
        let read = match self.reader.compression() {
            Compression::None if self.merged.is_none() => self.reader.offset(),
            // The offset of a packet in compressed input is unknown. In a merge, packets may be waiting for packets
            // from other captures.
            _ => self.bytes_read(),
        };
        let total: Option<u64> = self.origins.iter().map(|origin| origin.len).sum();
        let total = total.filter(|_| !self.is_cut_off)?;
        Some((read.min(total), total))
    }

    fn bytes_read(&self) -> u64 {
        self.origins.iter().map(|origin| origin.record.borrow().bytes).sum()
    }

    /// Returns `pcap` or `pcapng`, and the compression.
    fn format_name(&self) -> String {
        let mut names: Vec<&str> =
            self.origins.iter().filter_map(|origin| origin.format.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { format_name(&self.reader) } else { names.join(" and ") }
    }

    /// Returns the hash if there is only one capture and the report contains hashes.
    fn sha256(&self) -> Option<String> {
        match &self.origins[..] {
            [alone] => alone.sha256().filter(|_| self.names_hash),
            _ => None,
        }
    }

    /// Returns the name and hash of each capture whose hash is known. Valid only after reading.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = (&str, String)> {
        self.origins.iter().filter_map(|origin| Some((&*origin.name, origin.sha256()?)))
    }

    /// Returns whether the input is classic pcap.
    pub(crate) fn is_pcap(&self) -> bool {
        self.reader.format() == Format::Pcap
    }
}

/// Whether to continue reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Go,
    Stop,
}

impl Ending {
    /// Converts the reason why reading ended to the command's exit status. `done` says what happened to the packets
    /// before damage, for example "processed and written".
    pub(crate) fn conclude(
        self,
        input: &Input,
        session: &Session,
        done: &str,
    ) -> Result<Exit, Failure> {
        let (name, error) = match self {
            Self::Complete => return Ok(Exit::Yes),
            Self::Interrupted => return Ok(Exit::Interrupted),
            Self::Damaged(name, error) => (name, error),
        };
        let packets = input.reader.packets();
        let mut failure = Failure::capture(&name, &error);
        if !error.is_input() {
            return Err(failure);
        }
        let were = if packets == 1 { "packet was" } else { "packets were" };
        failure.message = format!("{}. {packets} {were} {done}.", failure.message);
        let is_truncated = failure.code == "input.truncated";
        if is_truncated && session.allow_truncated {
            session.note(failure.message);
            return Ok(Exit::Yes);
        }
        Err(if is_truncated {
            failure.hint("pass --allow-truncated to exit with code 0")
        } else {
            failure
        })
    }
}

/// Number of packets that cannot be parsed because their link type is unsupported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unparsed {
    packets: u64,
    link_type: u32,
}

impl Unparsed {
    /// Counts a packet that cannot be parsed.
    pub(crate) fn count(&mut self, packet: &Packet<'_>) {
        if self.packets == 0 {
            self.link_type = packet.description.link_type;
        }
        self.packets += 1;
    }

    /// Fails if any packet was counted. `fate` is a sentence about what happened to these packets.
    pub(crate) fn conclude(self, input: &Input, fate: &str) -> Result<(), Failure> {
        if self.packets == 0 {
            return Ok(());
        }
        let total = input.reader.packets();
        let message = format!(
            "{}: link type {} is not supported. {fate}{} of {total} were processed.",
            input.name,
            link_name(self.link_type),
            total - self.packets,
        );
        Err(Failure::input("input.link_type", message)
            .hint("if the capture records a wrong link type, pass --linktype NAME"))
    }
}

/// Returns the name that messages use for a capture.
pub(crate) fn name_of(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { shown(path) }
}

/// Returns a single name for all captures: the name of the first one, and how many others there are.
fn name_of_all(origins: &[Origin], name: impl Fn(&Origin) -> String) -> String {
    let first = origins.first().map(name).unwrap_or_default();
    match origins.len() {
        0 | 1 => first,
        captures => format!("{first} and {} more", captures - 1),
    }
}

fn format_name<R: Read>(reader: &CaptureReader<R>) -> String {
    match reader.compression() {
        Compression::None => reader.format().to_string(),
        other => format!("{}, {}", reader.format(), other.name()),
    }
}

/// State that is updated during reading: the hash, the number of bytes, and the output to flush.
#[derive(Debug)]
struct ReadRecord {
    /// Digest in progress, if any.
    digest: Option<Digest>,
    sha256: Option<String>,
    bytes: u64,
    is_at_end: bool,
    /// Output capture, if any.
    writer: Weak<RefCell<CaptureWriter<Destination>>>,
}

/// Byte stream of the input: a single file as it is, or several captures merged.
#[derive(Debug)]
pub(crate) enum Feed {
    File(Box<CaptureStream>),
    Merge(Box<Merge<CaptureStream>>),
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(source) => source.read(buffer),
            Self::Merge(merge) => merge.read(buffer),
        }
    }
}

/// The bytes of one capture.
#[derive(Debug)]
pub(crate) enum ByteStream {
    File(File),
    Memory(Cursor<Arc<[u8]>>),
}

impl Read for ByteStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Memory(bytes) => bytes.read(buffer),
        }
    }
}

/// A stream that is hashed as it is read, and that ends on Ctrl-C.
#[derive(Debug)]
pub(crate) struct CaptureStream {
    stream: ByteStream,
    record: Rc<RefCell<ReadRecord>>,
    interrupted: Arc<AtomicBool>,
}

impl CaptureStream {
    pub(crate) fn new(stream: ByteStream, is_hashed: bool, session: &Session) -> Self {
        let digest = if is_hashed { Digest::start() } else { None };
        let writer = Weak::new();
        let record = ReadRecord { digest, sha256: None, bytes: 0, is_at_end: false, writer };
        let interrupted = Arc::clone(&session.interrupted);
        Self { stream, record: Rc::new(RefCell::new(record)), interrupted }
    }
}

impl Read for CaptureStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let before_wait = || {
            if let Some(writer) = self.record.borrow().writer.upgrade() {
                // A failure recurs on the next write, and is reported there.
                let _ = writer.borrow_mut().flush();
            }
        };
        let is_there = match &self.stream {
            ByteStream::File(file) => wait(file, &self.interrupted, before_wait),
            ByteStream::Memory(_) => !self.interrupted.load(Ordering::Relaxed),
        };
        let read = if is_there { self.stream.read(buffer)? } else { 0 };
        let mut record = self.record.borrow_mut();
        if let Some(digest) = &mut record.digest {
            digest.update(&buffer[..read]);
        }
        record.bytes += read as u64;
        record.is_at_end = read == 0 && !self.interrupted.load(Ordering::Relaxed);
        Ok(read)
    }
}

/// Waits until the stream is readable. Returns `false` if the user presses Ctrl-C. Calls `before_wait` before it waits.
///
/// The kernel restarts a read after a signal, so a read from a silent pipe would never return. A signal does interrupt
/// `poll`, but not if another thread handles it, as in Python. The poll therefore has a timeout, after which the flag
/// is checked.
#[cfg(unix)]
fn wait(stream: &File, interrupted: &AtomicBool, before_wait: impl Fn()) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut timeout = &at_once;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) => {
                before_wait();
                timeout = &LOOK;
            }
            // Some streams cannot be polled but can still be read.
            _ => return true,
        }
    }
}

#[cfg(not(unix))]
fn wait(_stream: &File, interrupted: &AtomicBool, _before_wait: impl Fn()) -> bool {
    !interrupted.load(Ordering::Relaxed)
}

/// Returns the number of a link type, with its name if it is a common one.
fn link_name(number: u32) -> String {
    let name = match number {
        3 => "AX25",
        6 => "IEEE802_5",
        10 => "FDDI",
        104 => "C_HDLC",
        105 => "IEEE802_11",
        107 => "FRELAY",
        117 => "PFLOG",
        119 => "IEEE802_11_PRISM",
        127 => "IEEE802_11_RADIOTAP",
        163 => "IEEE802_11_AVS",
        281 => "DSA_TAG_BRCM",
        282 => "DSA_TAG_BRCM_PREPEND",
        284 => "DSA_TAG_DSA",
        285 => "DSA_TAG_EDSA",
        147..=162 => return format!("{number} (USER{})", number - 147),
        189 => "USB_LINUX",
        192 => "PPI",
        195 => "IEEE802_15_4",
        220 => "USB_LINUX_MMAPPED",
        227 => "CAN_SOCKETCAN",
        240 => "NETANALYZER",
        249 => "USBPCAP",
        253 => "NETLINK",
        _ => return number.to_string(),
    };
    format!("{number} ({name})")
}

/// Number of packets between updates of the progress bar.
const PACKETS_PER_LOOK: u64 = 1024;
