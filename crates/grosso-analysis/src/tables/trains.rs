//! Rows of the train table. A row lists the packets that a coalescer delivers as one frame. Every captured frame is in
//! exactly one row.

use grosso::{Delivery, Sink, Verdict, coalesce::reason::Close};
use grosso_capture::Origin as Place;
use grosso_io::PortBuffer;
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use super::{FileNames, FrameOrigin, Headers, StackNames, packets_of};
use crate::replay::{Fate, Receiver, Records, Replay, Seen, why};

/// Packets that a coalescer delivers as one frame.
#[derive(Clone, Copy, Debug)]
pub struct TrainRow<'a> {
    /// Position in the order of delivery, starting at 1.
    pub train: u64,
    /// Packet numbers in the capture, starting at 1.
    pub numbers: &'a [u64],
    /// Timestamps of the first and last packets in nanoseconds, if all packets have one.
    pub times_ns: Option<(u64, u64)>,
    /// Time from the arrival of the first packet to the delivery in nanoseconds, which no packet of the train exceeds;
    /// `None` if the packet has no time.
    pub held_ns: Option<u64>,
    /// Interface number of the packets.
    pub interface: u32,
    /// Number of wire packets. Exceeds the length of `numbers` if the capture contains superframes.
    pub packets: u32,
    /// Length of the delivered frame in bytes.
    pub length: u64,
    /// Payload bytes in each packet except the last, if there are several packets of the same size.
    pub segment_size: Option<u16>,
    /// Headers of the first packet, with the payload length of the train.
    pub headers: Headers<'a>,
    /// Reason why the train ended: `never` for a packet that passed through, `capture_...` for a packet that the engine
    /// did not examine.
    pub closed: &'static str,
    /// Reason why the packet that ended the train did not join it, or why a packet passed through. `None` if no packet
    /// caused the delivery, or if packets are not examined individually.
    pub why: Option<&'static str>,
    /// Position of the first frame in its file.
    pub origin: FrameOrigin<'a>,
}

/// Callback for rows, which returns `false` to stop reading.
pub(crate) type TakeTrain<'v> = &'v mut dyn FnMut(TrainRow<'_>) -> bool;

/// Converter from a replay's deliveries to rows.
pub(crate) struct TrainWatcher<'v> {
    take: TakeTrain<'v>,
    /// Whether more rows are accepted.
    pub(crate) goes_on: bool,
    files: FileNames,
    trains: u64,
    stack_names: StackNames,
    stack: Stack,
    /// Trains delivered since the verdict on the previous packet.
    leaving: Vec<Leaving>,
    records: Records<PendingPacket>,
    free_numbers: Vec<Vec<u64>>,
    /// Time of the following deliveries in nanoseconds.
    now_ns: u64,
}

/// Properties of a packet in a coalescer, kept for the row of its train.
#[derive(Debug, Default)]
struct PendingPacket {
    number: u64,
    time_ns: u64,
    interface: u32,
    link: Option<LinkType>,
    ports: Ports,
    place: Place,
    /// Number and size of the wire packets according to the classifier.
    judged: (u32, Option<u16>),
}

/// Train that was delivered before the current packet had a verdict.
struct Leaving {
    first: PortBuffer,
    numbers: Vec<u64>,
    last_ns: u64,
    delivered_ns: u64,
    packets: u32,
    length: u64,
    segment_size: Option<u16>,
    /// Number of payload bytes, for a train of several packets.
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
            now_ns: 0,
        }
    }

    /// Pushes the next packet to a replay, and emits rows for the trains that are delivered as a result.
    pub(crate) fn push(&mut self, replay: &mut Replay, seen: &Seen<'_>) {
        match replay.push(seen, self) {
            Fate::Engine(verdict) => self.settle(Some((seen.packet.number, verdict))),
            Fate::Aside(aside) => {
                self.settle(None);
                self.alone(seen, aside.name());
            }
        }
    }

    /// Emits rows for all trains that the replay still holds, at the end of the capture or of a section.
    pub(crate) fn finish(&mut self, replay: &mut Replay) {
        replay.finish(self);
        self.settle(None);
    }

    /// Emits rows for the trains delivered while a packet was being pushed. `came` is the number of that packet and the
    /// verdict on it.
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
            held_ns: Some(left.delivered_ns.saturating_sub(first.time_ns)),
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

    /// Emits the row for a packet that bypasses the engine.
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
            held_ns: packet.timestamp_ns.map(|_| 0),
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
    /// Returns why packet `number` did not join the train. If the train consists of that packet alone, returns why the
    /// packet passed through.
    fn why(&self, number: u64, verdict: Verdict) -> Option<&'static str> {
        why(self.closed, verdict, self.numbers == [number])
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
        // The engine recognizes superframes only by recorded metadata, the classifier by other evidence too.
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
            delivered_ns: self.now_ns,
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

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions};
    use grosso_testkit::{Packet, headers::Tcp};

    use crate::Capture;

    /// Returns a packet of the flow with this payload.
    fn segment(sequence: u32, len: usize, change: fn(Tcp) -> Tcp) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(sequence as u16 / 100));
        packet.tcp(|tcp| change(tcp.sequence(sequence))).payload_len(len).build()
    }

    #[test]
    fn a_train_is_held_from_its_first_packet_to_its_delivery() {
        let mut options = WriterOptions::new(Format::Pcapng);
        options.interface = Interface::new(1);
        let mut writer = CaptureWriter::new(Vec::new(), options);
        for (time_us, data) in [
            (0, segment(100, 100, |tcp| tcp)),
            (10, segment(200, 100, |tcp| tcp)),
            (25, segment(300, 100, |tcp| tcp.psh())),
            (40, segment(400, 0, |tcp| tcp)),
            (50, segment(400, 100, |tcp| tcp)),
            (70, segment(900, 100, |tcp| tcp)),
        ] {
            let meta = PacketMeta { timestamp_ns: Some(time_us * 1000), ..PacketMeta::default() };
            writer.write_packet(&meta, &data).unwrap();
        }
        let mut held = Vec::new();
        let capture = Capture::from_bytes("a", writer.finish().unwrap());
        let take = |train: super::TrainRow<'_>| {
            held.push((train.numbers.to_vec(), train.held_ns));
            true
        };
        capture.trains("linux", take).unwrap();
        let trains = [
            (vec![1, 2, 3], Some(25_000)),
            (vec![4], Some(0)),
            // The next packet is not in sequence and ends the train.
            (vec![5], Some(20_000)),
            (vec![6], Some(0)),
        ];
        assert_eq!(held, trains);
    }
}
