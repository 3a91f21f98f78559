//! The rows about trains: packets that leave a coalescer as one. Every frame of a capture is in one row.

use grosso::{Delivery, Sink, Verdict, coalesce::reason::Close};
use grosso_capture::Origin as Place;
use grosso_io::PortBuffer;
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use super::{FileNames, FrameOrigin, Headers, StackNames, packets_of};
use crate::replay::{Fate, Receiver, Records, Replay, Seen};

/// Packets that leave a coalescer as one.
#[derive(Clone, Copy, Debug)]
pub struct TrainRow<'a> {
    /// Its place in the order of leaving, counted from 1.
    pub train: u64,
    /// The places of its packets in the capture, counted from 1.
    pub numbers: &'a [u64],
    /// The times of its first and last packet, if all have one.
    pub times_ns: Option<(u64, u64)>,
    /// The number of their interface.
    pub interface: u32,
    /// Packets of the wire in it: more than it has numbers if the capture holds superframes.
    pub packets: u32,
    /// Bytes of the frame that leaves.
    pub length: u64,
    /// The payload of all its packets but the last, if there are several of one size.
    pub segment_size: Option<u16>,
    /// The headers of its first packet; its payload is that of the train.
    pub headers: Headers<'a>,
    /// The reason why the train ended: `never` for a packet that passed through, `capture_...` for a packet that the
    /// engine did not examine.
    pub closed: &'static str,
    /// The reason why the packet that came then did not join it, or why it passes through alone; none if it left for
    /// another reason than a packet, or before packets are taken one by one.
    pub why: Option<&'static str>,
    /// The place of its first frame in the file that it comes from.
    pub origin: FrameOrigin<'a>,
}

/// Takes rows; `false` says that there are enough.
pub(crate) type TakeTrain<'v> = &'v mut dyn FnMut(TrainRow<'_>) -> bool;

/// Makes rows of what leaves a replay.
pub(crate) struct TrainWatcher<'v> {
    take: TakeTrain<'v>,
    /// Whether more rows are wanted.
    pub(crate) goes_on: bool,
    files: FileNames,
    trains: u64,
    stack_names: StackNames,
    stack: Stack,
    /// The trains that left since the verdict on the packet before.
    leaving: Vec<Leaving>,
    records: Records<PendingPacket>,
    free_numbers: Vec<Vec<u64>>,
}

/// The properties of a packet on its way that its row wants.
#[derive(Debug, Default)]
struct PendingPacket {
    number: u64,
    time_ns: u64,
    interface: u32,
    link: Option<LinkType>,
    ports: Ports,
    place: Place,
    /// The packets of the wire that it was, by the judge, and their size.
    judged: (u32, Option<u16>),
}

/// A train that left because of a packet that has no verdict yet.
struct Leaving {
    first: PortBuffer,
    numbers: Vec<u64>,
    last_ns: u64,
    packets: u32,
    length: u64,
    segment_size: Option<u16>,
    /// The payload of a train of several packets.
    joined: Option<u32>,
    closed: Close,
}

impl<'v> TrainWatcher<'v> {
    pub(crate) fn new(files: FileNames, take: TakeTrain<'v>) -> Self {
        Self {
            take,
            goes_on: true,
            files,
            trains: 0,
            stack_names: StackNames::default(),
            stack: Stack::new(0),
            leaving: Vec::new(),
            records: Records::default(),
            free_numbers: Vec::new(),
        }
    }

    /// Takes the next packet to a replay, and makes rows of what leaves.
    pub(crate) fn push(&mut self, replay: &mut Replay, seen: &Seen<'_>) {
        match replay.push(seen, self) {
            Fate::Engine(verdict) => self.settle(Some((seen.packet.number, verdict))),
            Fate::Aside(aside) => {
                self.settle(None);
                self.alone(seen, aside.name());
            }
        }
    }

    /// Makes rows of all that a replay holds, because the capture or its section ends.
    pub(crate) fn finish(&mut self, replay: &mut Replay) {
        replay.finish(self);
        self.settle(None);
    }

    /// Makes rows of what left while the packet of this number came, which had this verdict.
    fn settle(&mut self, came: Option<(u64, Verdict)>) {
        let mut leaving = core::mem::take(&mut self.leaving);
        for mut left in leaving.drain(..) {
            self.show(&left, came.and_then(|(number, verdict)| left.why(number, verdict)));
            left.numbers.clear();
            self.free_numbers.push(left.numbers);
            self.records.give_back(left.first);
        }
        self.leaving = leaving;
    }

    fn show(&mut self, left: &Leaving, why: Option<&'static str>) {
        let Self { take, files, stack_names, stack, records, .. } = self;
        let (first, data) = (records.of(&left.first), left.first.as_ref());
        let mut headers = match first.link {
            Some(link) => {
                dissect_into(data, link, &first.ports, stack);
                stack_names.headers(data, data.len(), stack)
            }
            None => Headers::default(),
        };
        headers.payload = left.joined.or(headers.payload);
        self.trains += 1;
        let row = TrainRow {
            train: self.trains,
            numbers: &left.numbers,
            times_ns: Some((first.time_ns, left.last_ns)),
            interface: first.interface,
            packets: left.packets,
            length: left.length,
            segment_size: left.segment_size,
            headers,
            closed: left.closed.name(),
            why,
            origin: files.origin(first.place),
        };
        self.goes_on = self.goes_on && take(row);
    }

    /// Makes the row of a packet that stays outside of the engine.
    fn alone(&mut self, seen: &Seen<'_>, closed: &'static str) {
        let Self { take, files, stack_names, stack, .. } = self;
        let (packet, data) = (seen.packet, &seen.data);
        let headers = match seen.link {
            Some(link) => {
                dissect_into(data, link, &seen.ports, stack);
                stack_names.headers(data, packet.original_len as usize, stack)
            }
            None => Headers::default(),
        };
        self.trains += 1;
        let (packets, segment_size) = packets_of(seen);
        let row = TrainRow {
            train: self.trains,
            numbers: &[packet.number],
            times_ns: packet.timestamp_ns.map(|time| (time, time)),
            interface: packet.interface,
            packets,
            length: packet.original_len.into(),
            segment_size,
            headers,
            closed,
            why: None,
            origin: files.origin(packet.origin),
        };
        self.goes_on = self.goes_on && take(row);
    }
}

impl Leaving {
    /// The reason for which the packet that came did not join, or for which this is that packet, alone.
    fn why(&self, number: u64, verdict: Verdict) -> Option<&'static str> {
        let is_by_packet = match self.closed {
            Close::NoMerge | Close::Barrier => true,
            Close::Never => self.numbers == [number],
            _ => false,
        };
        match verdict {
            Verdict::Refused(reason) if is_by_packet => Some(reason.name()),
            Verdict::Passed(reason) if is_by_packet => Some(reason.name()),
            _ => None,
        }
    }
}

impl Sink<PortBuffer> for TrainWatcher<'_> {
    fn deliver(&mut self, mut delivery: Delivery<'_, PortBuffer>) {
        let records = &mut self.records;
        let mut numbers = self.free_numbers.pop().unwrap_or_default();
        numbers.extend(delivery.parts().map(|part| records.of(&part.buffer).number));
        let payload: usize = delivery.parts().map(|part| part.range().len()).sum();
        let last_ns = delivery.parts().last().map_or(0, |part| records.of(&part.buffer).time_ns);
        let joined = delivery.is_joined().then_some(payload as u32);
        // The engine knows of superframes by what a capture recorded, the judge also by evidence.
        let judged: u32 = delivery.parts().map(|part| records.of(&part.buffer).judged.0).sum();
        let (packets, length) = (delivery.packets.max(judged), delivery.len as u64);
        let closed = delivery.closed;
        let Some(first) = delivery.next_part().map(|part| part.buffer) else { return };
        let (_, judged_size) = records.of(&first).judged;
        let segment_size = delivery.meta.gso.and_then(|gso| gso.size()).or(judged_size);
        while let Some(part) = delivery.next_part() {
            records.give_back(part.buffer);
        }
        self.leaving.push(Leaving {
            first,
            numbers,
            last_ns,
            packets,
            length,
            segment_size,
            joined,
            closed,
        });
    }
    fn discard(&mut self, buffer: PortBuffer) {
        self.records.give_back(buffer);
    }
}

impl Receiver for TrainWatcher<'_> {
    fn keep(&mut self, seen: &Seen<'_>) -> PortBuffer {
        let (buffer, kept) = self.records.add(&seen.data);
        kept.number = seen.packet.number;
        kept.time_ns = seen.time.unwrap_or(0);
        kept.interface = seen.packet.interface;
        kept.place = seen.packet.origin;
        kept.judged = packets_of(seen);
        (kept.link, kept.ports) = (seen.link, seen.ports);
        buffer
    }
}
