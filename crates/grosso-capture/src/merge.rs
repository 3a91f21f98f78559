//! Merging of several captures into one, which contains only the selected packets, in time order.
//!
//! The order is the same as in Wireshark's `mergecap`: the next packet is the earliest of the captures' next packets.
//! Among packets with equal timestamps, the one from the last capture comes first. A packet without a timestamp is
//! written immediately. There is one difference: if one capture ends at the time at which another begins, the first is
//! read to its end, as if a single capture had been split at this time.

mod devices;

use core::cmp::Reverse;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

use self::devices::Devices;
use super::entry::{Block, Entry, Origin, Packet};
use super::error::CaptureError;
use super::format::Format;
use super::metadata::PacketMeta;
use super::options::{Options, code, push_option};
use super::order::ByteOrder;
use super::pcapng;
use super::reader::CaptureReader;
use super::writer::{CaptureWriter, WriterOptions};

/// Filter that decides whether to keep a packet.
pub type Select = Box<dyn FnMut(&Packet<'_>) -> io::Result<bool>>;

/// Reader that merges several captures into one. The type implements `Read` and returns the bytes of the merged capture
/// file.
///
/// A single capture keeps its format, its blocks and every byte of the selected packets. Several captures become one
/// pcapng section, with one interface per original interface and a comment on each that names the original capture.
/// Names and secrets are kept if they are in this host's byte order.
///
/// ```no_run
/// use grosso_capture::{CaptureReader, Merge};
///
/// let open = |path: &str| CaptureReader::open(path).map(|reader| (reader, path.to_owned()));
/// let merge = Merge::new(vec![open("a.pcap")?, open("b.pcap")?], None, true)?;
/// let mut merged = CaptureReader::new(merge)?; // packets of both files in order of time
/// while let Some(_entry) = merged.next()? {}
/// # Ok::<(), grosso_capture::CaptureError>(())
/// ```
pub struct Merge<R: Read> {
    members: Vec<Member<R>>,
    select: Option<Select>,
    writer: CaptureWriter<Ready>,
    ready: Ready,
    taken: usize,
    is_batched: bool,
    is_ended: bool,
    outcome: Rc<RefCell<Outcome>>,
}

/// Progress and result of a [`Merge`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of selected packets from each capture.
    pub packets: Vec<u64>,
    /// First damage found: the index of the damaged capture, and the error.
    pub damage: Option<(usize, CaptureError)>,
    /// Number of selected packets without a timestamp. They get timestamp 0 in the merged capture.
    pub without_time: u64,
    devices: Devices,
    /// Origins that have not been requested yet, or `None` if origins are not recorded.
    origins: Option<VecDeque<Origin>>,
}

impl Outcome {
    /// Starts recording the origin of every packet. Call this function before reading, and then take one origin for
    /// each packet that is read, so that the number of stored origins never exceeds the number of packets in the
    /// reader's buffer.
    pub fn remember_origins(&mut self) {
        self.origins = Some(VecDeque::new());
    }

    /// Removes and returns the origin of the merged capture's next packet.
    pub fn next_origin(&mut self) -> Option<Origin> {
        self.origins.as_mut()?.pop_front()
    }

    fn count(&mut self, origin: Origin) {
        self.packets[origin.file as usize] += 1;
        if let Some(origins) = &mut self.origins {
            origins.push_back(origin);
        }
    }

    /// Returns the first interface of the device to which `interface` belongs. An interface continues an earlier one if
    /// its capture begins after the earlier capture has ended, and both interfaces have the same properties.
    #[must_use]
    pub fn device(&self, interface: u32) -> u32 {
        self.devices.of(interface)
    }
}

struct Member<R> {
    reader: CaptureReader<R>,
    name: String,
    /// Numbers that the current section's interfaces have in the merged capture.
    interfaces: Vec<u32>,
    /// Packets read ahead: usually one, or several if their order depends on whether the capture ends.
    next: VecDeque<Pending>,
    has_begun: bool,
    is_at_end: bool,
}

/// Packet that has not been written yet, because other captures may contain earlier ones.
struct Pending {
    meta: PacketMeta,
    origin: Origin,
    data: Vec<u8>,
    options: Vec<u8>,
    order: ByteOrder,
}

impl<R: Read> Merge<R> {
    /// Merges one or more captures. `captures` contains each capture with its name. If `is_batched` is true, packets
    /// may be delayed until later ones have been read; pass false for live captures.
    ///
    /// # Errors
    /// Returns errors of the merged capture itself, for example too many interfaces. Damage before the first packet of
    /// a capture is reported in the [`Outcome`] instead.
    pub fn new(
        captures: Vec<(CaptureReader<R>, String)>,
        select: Option<Select>,
        is_batched: bool,
    ) -> Result<Self, CaptureError> {
        let ready = Ready::default();
        let options = match &captures[..] {
            [(alone, _)] => WriterOptions::like(alone),
            _ => WriterOptions::new(Format::Pcapng),
        };
        let outcome = Outcome { packets: vec![0; captures.len()], ..Outcome::default() };
        let member = |(reader, name)| Member {
            reader,
            name,
            interfaces: Vec::new(),
            next: VecDeque::new(),
            has_begun: false,
            is_at_end: false,
        };
        let mut merge = Self {
            members: captures.into_iter().map(member).collect(),
            select,
            writer: CaptureWriter::new(ready.clone(), options),
            ready,
            taken: 0,
            is_batched,
            is_ended: false,
            outcome: Rc::new(RefCell::new(outcome)),
        };
        if merge.members.len() > 1 {
            for index in 0..merge.members.len() {
                merge.declare_pcap(index)?;
            }
        }
        Ok(merge)
    }

    /// Returns the outcome, which is updated as the merged capture is read.
    #[must_use]
    pub fn outcome(&self) -> Rc<RefCell<Outcome>> {
        Rc::clone(&self.outcome)
    }

    /// Declares the interface of a classic pcap file before its first packet.
    fn declare_pcap(&mut self, index: usize) -> Result<(), CaptureError> {
        let member = &mut self.members[index];
        if member.reader.format() == Format::Pcap {
            for interface in member.reader.interfaces() {
                let options = origin(&member.name, None);
                let number = self.writer.add_interface_with(interface, &options)?;
                let position = member.interfaces.len();
                let mut outcome = self.outcome.borrow_mut();
                outcome.devices.declare(number, index, interface.link_type, position, None);
                member.interfaces.push(number);
            }
        }
        Ok(())
    }

    /// Prepares the next bytes of the merged capture. Returns `false` at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let mut is_more = true;
        while is_more && self.ready.0.borrow().is_empty() {
            let packets = if self.is_batched { PACKETS_PER_BATCH } else { 1 };
            for _ in 0..packets {
                is_more =
                    if self.members.len() == 1 { self.copy_one()? } else { self.merge_one()? };
                if !is_more {
                    self.writer.begin().map_err(io::Error::other)?;
                    break;
                }
            }
            self.writer.flush().map_err(io::Error::other)?;
        }
        Ok(is_more)
    }

    /// Copies the next entry when there is only one capture.
    fn copy_one(&mut self) -> io::Result<bool> {
        let entry = match self.members[0].reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(false),
            Err(damage) => {
                self.outcome.borrow_mut().damage = Some((0, damage));
                return Ok(false);
            }
        };
        if let Entry::Packet(packet) = &entry {
            if !is_wanted(&mut self.select, packet)? {
                return Ok(true);
            }
            self.outcome.borrow_mut().count(packet.origin);
        }
        self.writer.copy(&entry).map_err(io::Error::other)?;
        Ok(true)
    }

    /// Writes the earliest of the captures' next packets.
    fn merge_one(&mut self) -> io::Result<bool> {
        for index in 0..self.members.len() {
            self.look(index)?;
        }
        let times = self.members.iter().enumerate();
        let times = times.filter_map(|(index, member)| {
            let time_ns = member.next.front()?.meta.timestamp_ns;
            Some((time_ns, time_ns.map(|_| Reverse(index)), index))
        });
        // A packet without a timestamp has `None`, which sorts before every timestamp.
        let Some((time_ns, _, last)) = times.min() else { return Ok(false) };
        let first = self.ending_at(time_ns)?.unwrap_or(last);
        if !self.members[first].has_begun {
            self.members[first].has_begun = true;
            self.begin(first);
        }
        let Some(packet) = self.members[first].next.pop_front() else { return Ok(false) };
        let options = Options::new(&packet.options, packet.order);
        let written = self.writer.write_packet_with(&packet.meta, &packet.data, &options);
        written.map_err(io::Error::other)?;
        self.outcome.borrow_mut().without_time = self.writer.without_time();
        self.outcome.borrow_mut().count(Origin { file: first as u32, ..packet.origin });
        Ok(true)
    }

    /// Returns a capture that ends at the time at which another begins. Its packets come first. Captures that began
    /// before that time are preferred.
    fn ending_at(&mut self, time_ns: Option<u64>) -> io::Result<Option<usize>> {
        let is_now = |member: &Member<R>| {
            member.next.front().is_some_and(|packet| packet.meta.timestamp_ns == time_ns)
        };
        let is_beginning = self.members.iter().any(|member| !member.has_begun && is_now(member));
        if time_ns.is_none() || !self.is_batched || !is_beginning {
            return Ok(None);
        }
        let tied = (0..self.members.len()).filter(|&index| is_now(&self.members[index]));
        let mut tied: Vec<usize> = tied.collect();
        tied.sort_by_key(|&index| !self.members[index].has_begun);
        if tied.len() < 2 {
            return Ok(None);
        }
        for index in tied {
            let is_same = |packet: &Pending| packet.meta.timestamp_ns == time_ns;
            while self.members[index].next.iter().all(is_same)
                && self.members[index].next.len() < PACKETS_AHEAD_MAX
                && self.read(index)?
            {}
            let member = &self.members[index];
            if member.is_at_end && member.next.iter().all(is_same) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Determines the devices of a capture's interfaces before its first packet.
    fn begin(&mut self, index: usize) {
        let has_ended: Vec<bool> = self
            .members
            .iter()
            .map(|member| member.has_begun && member.is_at_end && member.next.is_empty())
            .collect();
        self.outcome.borrow_mut().devices.begin(index, &has_ended);
    }

    /// Reads up to the next selected packet of a capture, and writes the blocks before it.
    fn look(&mut self, index: usize) -> io::Result<()> {
        if self.members[index].next.is_empty() {
            self.read(index)?;
        }
        Ok(())
    }

    /// Reads another selected packet of a capture, and writes the blocks before it. Returns `false` at the end of the
    /// capture.
    fn read(&mut self, index: usize) -> io::Result<bool> {
        let Member { reader, name, interfaces, next, is_at_end, .. } = &mut self.members[index];
        while !*is_at_end {
            match reader.next() {
                Ok(None) => *is_at_end = true,
                Ok(Some(Entry::Packet(packet))) => {
                    if is_wanted(&mut self.select, &packet)? {
                        let number = interfaces.get(packet.interface as usize).copied();
                        next.push_back(Pending::of(&packet, number.unwrap_or_default()));
                        return Ok(true);
                    }
                }
                Ok(Some(Entry::Block(block))) => {
                    let passed = pass(&block, name, interfaces, &mut self.writer);
                    passed.map_err(io::Error::other)?;
                    if let (Some(interface), Some(&number)) = (&block.interface, interfaces.last())
                    {
                        let (link, position) = (interface.link_type, interfaces.len() - 1);
                        let mut outcome = self.outcome.borrow_mut();
                        outcome.devices.declare(number, index, link, position, Some(&block));
                    }
                }
                Err(damage) => {
                    *is_at_end = true;
                    self.outcome.borrow_mut().damage.get_or_insert((index, damage));
                }
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Merge<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.ready.0.borrow().len() {
            self.ready.0.borrow_mut().clear();
            self.taken = 0;
            if !self.is_ended {
                self.is_ended = !self.advance()?;
            }
        }
        let ready = self.ready.0.borrow();
        let read = buffer.len().min(ready.len() - self.taken);
        buffer[..read].copy_from_slice(&ready[self.taken..self.taken + read]);
        self.taken += read;
        Ok(read)
    }
}

impl<R: Read> core::fmt::Debug for Merge<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Merge").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl Pending {
    fn of(packet: &Packet<'_>, interface: u32) -> Self {
        Self {
            meta: PacketMeta { interface, ..packet.meta() },
            origin: packet.origin,
            data: packet.data.to_vec(),
            options: packet.options().as_bytes().to_vec(),
            order: packet.order(),
        }
    }
}

fn is_wanted(select: &mut Option<Select>, packet: &Packet<'_>) -> io::Result<bool> {
    select.as_mut().map_or(Ok(true), |select| select(packet))
}

/// Writes a block from one of several captures, with the merged capture's interface numbers.
fn pass(
    block: &Block<'_>,
    name: &str,
    interfaces: &mut Vec<u32>,
    writer: &mut CaptureWriter<Ready>,
) -> Result<(), CaptureError> {
    if block.is_section_header() {
        interfaces.clear();
        return Ok(());
    }
    if let Some(interface) = &block.interface {
        let number = writer.add_interface_with(interface, &origin(name, Some(block)))?;
        interfaces.push(number);
        return Ok(());
    }
    if block.order != ByteOrder::NATIVE || !block.is_copyable() {
        return Ok(());
    }
    if block.kind != pcapng::INTERFACE_STATISTICS {
        return writer.copy(&Entry::Block(*block));
    }
    let mut raw = block.raw.to_vec();
    let number = raw.get(8..12).and_then(|bytes| bytes.first_chunk::<4>());
    let number = number.and_then(|bytes| interfaces.get(block.order.u32_from(*bytes) as usize));
    let Some(&number) = number else { return Ok(()) };
    raw[8..12].copy_from_slice(&block.order.u32_bytes(number));
    writer.copy(&Entry::Block(Block { raw: &raw, ..*block }))
}

/// Returns the options for an interface: its original options, and a comment that names the original capture. If that
/// capture's byte order differs, only options whose values do not depend on it are kept.
fn origin(name: &str, had: Option<&Block<'_>>) -> Vec<u8> {
    let mut options = Vec::new();
    let order = ByteOrder::NATIVE;
    if let Some(block) = had {
        for option in block.options().iter().flatten() {
            let is_writers =
                [code::INTERFACE_RESOLUTION, code::INTERFACE_FCS_LENGTH, code::INTERFACE_OFFSET];
            let is_bytes = INTERFACE_BYTES.contains(&option.code) || block.order == order;
            if is_bytes && !is_writers.contains(&option.code) {
                push_option(&mut options, order, option.code, option.value);
            }
        }
    }
    let comment = format!("from {name}");
    let end = comment.floor_char_boundary(usize::from(u16::MAX));
    push_option(&mut options, order, code::COMMENT, &comment.as_bytes()[..end]);
    options
}

/// Bytes of the merged capture that the caller has not read yet.
#[derive(Clone, Debug, Default)]
struct Ready(Rc<RefCell<Vec<u8>>>);

impl Write for Ready {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Interface options that have the same encoding in both byte orders: comment, name, description, addresses, filter,
/// operating system, hardware.
const INTERFACE_BYTES: [u16; 9] = [code::COMMENT, 2, 3, 4, 5, 6, 11, 12, 15];
/// Number of packets to merge per batch.
const PACKETS_PER_BATCH: usize = 64;
/// Maximum number of packets with equal timestamps to read ahead when checking whether a capture ends with them.
const PACKETS_AHEAD_MAX: usize = 4096;
