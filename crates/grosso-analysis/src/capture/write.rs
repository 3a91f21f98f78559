//! Writes captures and records their origin. Never overwrites the input, and never writes a capture to a terminal.

use std::{
    borrow::Cow,
    cell::RefCell,
    io::IsTerminal,
    path::{Path, PathBuf},
    rc::Rc,
};

use grosso_capture::{
    Block, CaptureError, CaptureWriter, Entry, Format, Output as Destination, Packet, PacketMeta,
    SNAPLEN_DEFAULT, WriterOptions,
    options::{code, push_end, push_option},
    same_file,
};
use grosso_sys::path;

use super::{
    Session,
    read::{Devices, Input},
    target::compressor,
};
use crate::{
    error::Failure,
    line::{Lines, Spacing, Timing},
    name::{Name, shown},
    report::{OutputFacts, Place},
};

/// Output capture.
pub(crate) struct Output {
    /// Writer shared with the input, which flushes it before every wait; `None` if only the report is wanted.
    writer: Option<Rc<RefCell<CaptureWriter<Destination>>>>,
    /// The path as the user typed it.
    path: Option<Name>,
    /// Name used in messages.
    name: String,
    pub(crate) format: Format,
    /// Whether the capture goes to standard output. If so, nothing else may be written there.
    pub(crate) is_standard: bool,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Simulated links that delay packets; `None` to keep the timestamps.
    lines: Option<Lines>,
    devices: Devices,
}

impl Output {
    /// Creates the output capture for `input`.
    pub(crate) fn create(
        path: Option<&Path>,
        format: Format,
        input: &Input,
        session: &Session,
    ) -> Result<Self, Failure> {
        Self::open(path, format, input, session, 0)
    }

    /// Creates the output capture for packets that may be longer than those in `input`.
    pub(crate) fn create_for_longer(
        path: Option<&Path>,
        format: Format,
        input: &Input,
        session: &Session,
    ) -> Result<Self, Failure> {
        Self::open(path, format, input, session, SNAPLEN_DEFAULT)
    }

    fn open(
        path: Option<&Path>,
        format: Format,
        input: &Input,
        session: &Session,
        snaplen_min: u32,
    ) -> Result<Self, Failure> {
        let (packets, bytes) = (0, 0);
        let devices = input.devices.clone();
        let Some(path) = path else {
            let name = "the report".into();
            let (writer, path, is_standard, lines) = (None, None, false, None);
            return Ok(Self {
                writer,
                path,
                name,
                format,
                is_standard,
                packets,
                bytes,
                lines,
                devices,
            });
        };
        let is_standard = path.as_os_str() == "-";
        if is_standard && std::io::stdout().is_terminal() {
            let message = "refusing to write a capture to the terminal; use -w FILE or a pipe";
            return Err(Failure::usage("usage.terminal", message));
        }
        let name = if is_standard { "standard output".into() } else { shown(path) };
        refuse_input(input, path, &name)?;
        let mut options = WriterOptions::like(&input.reader);
        options.format = format;
        options.snaplen_min = snaplen_min;
        // The packets were parsed with the forced link type, so the output records that type.
        options.link_type = session.forced_link.and_then(|link| link.to_pcap().try_into().ok());
        options.comments.push(session.command_line.clone());
        let writer = match is_standard {
            true => CaptureWriter::to_standard_output(options),
            false => {
                note_others(path, session);
                let file = path::create(path, OUTPUT_MODE).map_err(|error| {
                    Failure::environment("environment.write", format!("{name}: {error}"))
                        .of_system(&path.display().to_string(), &error)
                })?;
                CaptureWriter::to_file(file, path.display().to_string(), options)
            }
        };
        if let Some(program) = compressor(path) {
            session.note(format!("{name} is written uncompressed, despite its name"));
            session.hint(&format!("to compress it: -w - | {program} > {name}"));
        }
        let writer = Rc::new(RefCell::new(writer));
        input.precede_waits_by(&writer);
        let (writer, path) = (Some(writer), Some(Name::of(path)));
        Ok(Self { writer, path, name, format, is_standard, packets, bytes, lines: None, devices })
    }

    /// Sets how the timestamps of a superframe's segments are spaced.
    pub(crate) fn space(&mut self, spacing: Spacing) {
        self.lines = match spacing {
            Spacing::Same => None,
            Spacing::Line(bits_per_second) => Some(Lines::new(bits_per_second)),
        };
    }

    /// Writes an entry unchanged, except that a packet gets a later timestamp if its link is still busy.
    #[inline]
    pub(crate) fn copy(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        match entry {
            Entry::Packet(packet) => {
                self.packets += 1;
                self.bytes += packet.data.len() as u64;
                if let Some(meta) = self.later(packet) {
                    let options = packet.options();
                    let Some(writer) = &self.writer else { return Ok(()) };
                    let written =
                        writer.borrow_mut().write_packet_with(&meta, packet.data, &options);
                    return written.map_err(|error| self.fail(&error));
                }
            }
            // Interface numbers start over at 0 in a new section.
            Entry::Block(block) if block.is_section_header() => {
                self.lines.iter_mut().for_each(Lines::clear);
            }
            Entry::Block(_) => {}
        }
        let Some(writer) = &self.writer else { return Ok(()) };
        writer.borrow_mut().copy(entry).map_err(|error| self.fail(&error))
    }

    /// Writes a packet.
    #[inline]
    pub(crate) fn write(&mut self, meta: &PacketMeta, data: &[u8]) -> Result<(), Failure> {
        self.write_part(meta, data, Timing::Recorded, None)
    }

    /// Writes a packet. For a segment of a superframe, `timing` says how its timestamp was chosen. If `from` is given,
    /// also copies that packet's options, except those that are no longer valid.
    #[inline]
    pub(crate) fn write_part(
        &mut self,
        meta: &PacketMeta,
        data: &[u8],
        timing: Timing,
        from: Option<&Packet<'_>>,
    ) -> Result<(), Failure> {
        self.packets += 1;
        self.bytes += data.len() as u64;
        let meta = self.spaced(meta, data.len(), timing);
        let Some(writer) = &self.writer else { return Ok(()) };
        let mut writer = writer.borrow_mut();
        let written = match from {
            Some(from) => writer.write_packet_with(&meta, data, &from.options()),
            None => writer.write_packet(&meta, data),
        };
        written.map_err(|error| self.fail(&error))
    }

    /// Writes a packet that was created from the packet `from`, with those options of `from` that are still valid.
    pub(crate) fn write_changed(
        &mut self,
        meta: &PacketMeta,
        data: &[u8],
        from: &Packet<'_>,
    ) -> Result<(), Failure> {
        self.write_part(meta, data, Timing::Recorded, Some(from))
    }

    /// Returns the number of packets and other blocks whose options were damaged. Options after the damage are dropped.
    pub(crate) fn damaged_options(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.borrow().damaged_options())
    }

    /// Returns the facts for the report.
    fn facts(&self, input: &Input) -> OutputFacts {
        let written = self.writer.as_ref().map_or(0, |writer| writer.borrow().without_time());
        OutputFacts {
            path: self.path.clone(),
            format: self.format.to_string(),
            packets: self.packets,
            bytes: self.bytes,
            damaged_options: self.damaged_options(),
            without_time: written + input.without_time(),
        }
    }

    /// Completes the capture. A pcapng file records the hash of the input in its last block, because the section header
    /// may already have been written to a pipe before the hash was known.
    ///
    /// Returns the facts about the output, and the stream to which the report is written.
    pub(crate) fn finish(mut self, input: &Input) -> Result<(OutputFacts, Place), Failure> {
        let (facts, place) = (self.facts(input), Place::beside(self.is_standard));
        let Some(writer) = self.writer.take().and_then(Rc::into_inner) else {
            return Ok((facts, place));
        };
        let mut writer = writer.into_inner();
        let fail = |error| Failure::capture(&self.name, &error);
        if self.format == Format::Pcapng {
            for (name, hash) in input.hashes() {
                let comment = format!("grosso: made from {name}, SHA-256 {hash}");
                let raw = comment_block(&comment, input);
                let order = input.reader.order();
                let block = Block { kind: NAME_BLOCK, raw: &raw, order, interface: None };
                writer.copy(&Entry::Block(block)).map_err(fail)?;
            }
        }
        writer.finish().map_err(fail)?;
        Ok((facts, place))
    }

    /// Returns the metadata of a packet of `len` bytes. If the link is still busy, the timestamp is the time at which
    /// it becomes free.
    #[inline]
    fn spaced<'a>(
        &mut self,
        meta: &'a PacketMeta,
        len: usize,
        timing: Timing,
    ) -> Cow<'a, PacketMeta> {
        let Some(lines) = &mut self.lines else { return Cow::Borrowed(meta) };
        let device = self.devices.of(meta.interface);
        let timestamp_ns = lines.start(meta, device, len, timing);
        if timestamp_ns == meta.timestamp_ns {
            return Cow::Borrowed(meta);
        }
        Cow::Owned(PacketMeta { timestamp_ns, ..meta.clone() })
    }

    /// Returns the metadata of a packet with a delayed timestamp, or `None` if the packet keeps its timestamp.
    #[inline]
    fn later(&mut self, packet: &Packet<'_>) -> Option<PacketMeta> {
        let lines = self.lines.as_mut()?;
        let meta = packet.meta();
        let timestamp_ns = lines.start(&meta, packet.device, packet.data.len(), Timing::Recorded);
        (timestamp_ns != meta.timestamp_ns).then_some(PacketMeta { timestamp_ns, ..meta })
    }

    #[cold]
    fn fail(&self, error: &CaptureError) -> Failure {
        Failure::capture(&self.name, error)
    }
}

/// Builds a name resolution block without names. It is the only block type that may appear anywhere, belongs to no
/// interface and can hold a comment.
fn comment_block(comment: &str, input: &Input) -> Vec<u8> {
    let order = input.reader.order();
    let mut options = Vec::new();
    push_option(&mut options, order, code::COMMENT, comment.as_bytes());
    push_end(&mut options, order);
    let length = (NAME_BLOCK_BYTES + options.len()) as u32;
    let mut raw = Vec::with_capacity(length as usize);
    raw.extend_from_slice(&order.u32_bytes(NAME_BLOCK));
    raw.extend_from_slice(&order.u32_bytes(length));
    // An empty record list consists of its end marker.
    raw.extend_from_slice(&[0; 4]);
    raw.extend_from_slice(&options);
    raw.extend_from_slice(&order.u32_bytes(length));
    raw
}

/// Prints a note if other users can replace the output.
pub fn note_others(path: &Path, session: &Session) {
    let note = (path.as_os_str() != "-").then(|| path::warning(path)).flatten();
    note.into_iter().for_each(|note| session.note(note));
}

/// Fails if the output is one of the input captures.
pub(crate) fn refuse_input(input: &Input, output: &Path, name: &str) -> Result<(), Failure> {
    input.paths().try_for_each(|read| refuse_same_file(read, output, name))
}

/// Fails if the output is the same file as `input`.
pub fn refuse_same_file(input: &Path, output: &Path, name: &str) -> Result<(), Failure> {
    let (read, written) = (device(input, STANDARD_INPUT), device(output, STANDARD_OUTPUT));
    // If both are the same terminal or /dev/null, nothing is overwritten.
    if path::input::is_file(&written) && same_file(&read, &written).unwrap_or(false) {
        let message = format!("{name}: input and output are the same file");
        let hint = "write to another file and rename it; captures are never edited in place";
        return Err(Failure::usage("usage.same_file", message).hint(hint));
    }
    Ok(())
}

fn device(path: &Path, standard: &str) -> PathBuf {
    if path.as_os_str() == "-" { standard.into() } else { path.into() }
}

/// Path of the file opened as standard input. `/dev/stdin` may have been replaced.
const STANDARD_INPUT: &str =
    if cfg!(target_os = "linux") { "/proc/self/fd/0" } else { "/dev/fd/0" };
/// Path of the file opened as standard output.
const STANDARD_OUTPUT: &str =
    if cfg!(target_os = "linux") { "/proc/self/fd/1" } else { "/dev/fd/1" };
/// Permissions of output files, before the umask.
pub const OUTPUT_MODE: u32 = 0o666;
/// Block type of a name resolution block.
const NAME_BLOCK: u32 = 4;
/// Length of an empty block in bytes: type, two lengths, and the end-of-records marker.
const NAME_BLOCK_BYTES: usize = 16;
