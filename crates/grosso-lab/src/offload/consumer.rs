//! Measures how much a consumer in memory gains if it receives a frame in parts instead of a copy, or instead of a list
//! of whole packets. One consumer reads only headers, and the others read every byte. A TAP or a packet socket copies
//! every byte into the kernel, which hides the gain, and accepts no lists.

mod reader;

use std::{cell::RefCell, hint::black_box, sync::Arc};

use grosso::{
    CoalesceOptions, Delivery, Frame, Meta, Sink,
    checksum::Checksum,
    meta::Gso,
    segment::{Outgoing, Segments},
};
use grosso_io::{PortBuffer, PortCoalescer};
use grosso_sys::scheduling::own_cpu_time;
use grosso_wire::{LinkType, Ports};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::reader::ReaderKind;
use self::reader::{Consumed, MemoryReader, Reader};
use crate::{
    statistics::Spread,
    verdict::{Bound, Evidence, Unit, Verdict},
};

/// Throughput of consumers that read packets in memory, in gigabits per CPU-second.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Consumer {
    /// Number of payload bytes in each packet.
    pub payload_bytes: usize,
    /// Rate of a consumer that reads only headers and gets each frame in parts: the packets stay in their receive
    /// buffers.
    pub parts: Spread,
    /// Rate of a consumer that reads only headers, if each packet is copied before the frame is delivered.
    pub copied: Spread,
    /// Rates of the consumers that read every byte.
    pub reading: Vec<ReadingConsumer>,
    /// Rates of the same trains, delivered as parts and as lists.
    pub lists: Vec<ListConsumer>,
}

/// Rate in gigabits per CPU-second for a consumer that reads every byte, including the consumer's own time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ReadingConsumer {
    /// The consumer.
    pub consumer: ReaderKind,
    /// Rate if frames are delivered in parts.
    pub parts: Spread,
    /// Rate if each packet is copied before delivery.
    pub copied: Spread,
}

/// Gigabits per CPU-second of the same trains in two forms. The packets stay in their receive buffers in both.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ListConsumer {
    /// The consumer.
    pub consumer: ReaderKind,
    /// Rate if a train is delivered as one superframe, with one header and parts of payload.
    pub parts: Spread,
    /// Rate if a train is delivered as a list of whole packets, each with its own headers.
    pub list: Spread,
}

impl Consumer {
    /// Measures parts and copies in turn, `runs` times, and then parts and lists. A NIC has verified the checksums of
    /// the packets.
    #[must_use]
    pub fn measure(payload_bytes: u16, runs: usize) -> Self {
        let packets = train(payload_bytes);
        let packets_over_and_over = packets.iter().cycle().take(BUFFERS);
        // Each packet has its own buffer, as in a ring's slots, because a single buffer would stay in the cache.
        let ring: Vec<_> = packets_over_and_over.map(|packet| Arc::new(packet.clone())).collect();
        let readings = Reader::all().into_iter().map(|mut reader| {
            let [parts, copied] = in_turn(&ring, packets.len(), runs, &mut reader);
            ReadingConsumer { consumer: reader.kind(), parts, copied }
        });
        let (mut headers, reading): (Vec<_>, Vec<_>) =
            readings.partition(|reading| reading.consumer == ReaderKind::Headers);
        let ReadingConsumer { parts, copied, .. } = headers.remove(0);
        let lists =
            MemoryReader::all().map(|reader| forms_in_turn(&ring, packets.len(), runs, reader));
        let (payload_bytes, lists) = (payload_bytes.into(), lists.into());
        Self { payload_bytes, parts, copied, reading, lists }
    }

    /// Returns each consumer with its figures for parts and for copies.
    pub(super) fn readings(&self) -> impl Iterator<Item = (ReaderKind, &Spread, &Spread)> {
        let headers = (ReaderKind::Headers, &self.parts, &self.copied);
        let reading = self.reading.iter().map(|one| (one.consumer, &one.parts, &one.copied));
        [headers].into_iter().chain(reading)
    }
}

impl ListConsumer {
    /// Judges which form of a train costs less. The publication names both forms, without figures.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let (claim, bound, cause) = match self.consumer {
            ReaderKind::Headers => (
                "reading only headers: slices are faster than lists",
                Bound::AtLeast(1.0),
                "the coalescer has already read every header, so the headers of a list are in the cache",
            ),
            ReaderKind::EveryByte => (
                "reading every byte: slices are within 20 % of lists",
                Bound::Within(1.0 / 1.2),
                "other load on the machine",
            ),
            ReaderKind::VhostUser => return None,
        };
        let evidence = Evidence::ratio(&self.parts, &self.list, bound);
        Some(evidence.verdict(claim, Unit::Times, cause))
    }
}

/// Measures alternately how fast a reader receives frames in parts and as copies.
fn in_turn(ring: &[Slot], train: usize, runs: usize, reader: &mut Reader) -> [Spread; 2] {
    let [mut parts, mut copied] = [Vec::new(), Vec::new()];
    let spare: RefCell<Vec<Vec<u8>>> = RefCell::default();
    for _ in 0..runs.max(1) {
        let mut consume = |delivery: &Delivery<'_, PortBuffer>| reader.consume(delivery);
        parts.push(gigabits_a_cpu_second(ring, train, &mut consume, lend, drop));
        let copy = |slot: &Slot| {
            let mut copy = spare.borrow_mut().pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(slot);
            PortBuffer::from(copy)
        };
        let keep = |copy: PortBuffer| spare.borrow_mut().extend(copy.into_own());
        copied.push(gigabits_a_cpu_second(ring, train, &mut consume, copy, keep));
    }
    [Spread::of(parts), Spread::of(copied)]
}

/// Measures alternately how fast a reader receives trains as superframes and as lists.
fn forms_in_turn(
    ring: &[Slot],
    train: usize,
    runs: usize,
    mut reader: MemoryReader,
) -> ListConsumer {
    let [mut parts, mut list] = [Vec::new(), Vec::new()];
    for _ in 0..runs.max(1) {
        let mut consume = |delivery: &Delivery<'_, PortBuffer>| reader.consume(delivery);
        parts.push(gigabits_a_cpu_second(ring, train, &mut consume, lend, drop));
        let mut consume = |delivery: &Delivery<'_, PortBuffer>| reader.consume_list(delivery);
        list.push(gigabits_a_cpu_second(ring, train, &mut consume, lend, drop));
    }
    ListConsumer { consumer: reader.kind(), parts: Spread::of(parts), list: Spread::of(list) }
}

/// Returns a packet in its receive buffer.
fn lend(slot: &Slot) -> PortBuffer {
    PortBuffer::shared(Arc::clone(slot), 0..slot.len())
}

/// The memory of a received packet.
type Slot = Arc<Vec<u8>>;

/// Coalesces all packets several times, one train per poll, and delivers the trains. Returns the rate in gigabits per
/// CPU-second.
fn gigabits_a_cpu_second(
    ring: &[Slot],
    train: usize,
    consume: &mut dyn FnMut(&Delivery<'_, PortBuffer>) -> Consumed,
    take: impl Fn(&Slot) -> PortBuffer,
    mut give_back: impl FnMut(PortBuffer),
) -> f64 {
    let options = CoalesceOptions::new(LinkType::Ethernet, 0x6c61_6221);
    let mut coalescer = PortCoalescer::new(options);
    let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
    let mut bytes = 0_u64;
    let sink: &mut dyn Sink<PortBuffer> = &mut |delivery: Delivery<'_, PortBuffer>| {
        let consumed = consume(&delivery);
        black_box((consumed.sum, consumed.header_bytes));
        bytes += consumed.bytes;
        delivery.into_parts().for_each(|part| give_back(part.buffer));
    };
    let started = own_cpu_time();
    for round in 0..ROUNDS {
        for poll in ring.chunks(train) {
            for slot in poll {
                coalescer.push(Frame { buffer: take(slot), meta }, round, sink);
            }
            coalescer.poll_end(round, sink);
        }
    }
    let seconds = (own_cpu_time() - started).as_secs_f64();
    bytes as f64 * 8e-9 / seconds
}

/// Returns the packets of one TCP train over IPv4: as many as fit into 64 KiB.
fn train(payload_bytes: u16) -> Vec<Vec<u8>> {
    let count = (64 << 10) / usize::from(payload_bytes + 52) - 1;
    let payload = vec![0x42; count * usize::from(payload_bytes)];
    let length = u16::try_from(payload.len() + 52).unwrap_or(u16::MAX).to_be_bytes();
    let mut superframe = HEADERS.to_vec();
    superframe[16..18].copy_from_slice(&length);
    superframe.extend_from_slice(&payload);
    let checksum = Checksum::Partial { start: 34, offset: 16 };
    let meta = Meta { gso: Gso::every(payload_bytes), checksum, ..Meta::default() };
    let slices = [&superframe[..]];
    let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
    let mut packets = Vec::new();
    if let Ok(mut segments) = Segments::new(&slices, &meta, link, &ports, Outgoing::default()) {
        let mut buffer = vec![0; segments.packet_len_max()];
        while let Ok(Some(segment)) = segments.write_next(&mut buffer) {
            packets.push(buffer[..segment.len()].to_vec());
        }
    }
    packets
}

/// Headers: Ethernet, IPv4 from 10.93.0.1 to 10.93.0.2, and TCP with timestamps.
#[rustfmt::skip]
const HEADERS: [u8; 66] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
    0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 93, 0, 1, 10, 93, 0, 2,
    0x9c, 0x40, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 0x10, 0, 0, 0, 0, 0,
    1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9,
];

/// Number of different packet buffers, which together exceed a CPU's private cache.
const BUFFERS: usize = 8 << 10;
/// Number of passes over the packets, which together amount to several gigabytes. Unit tests make one pass, because
/// they do not check the figures.
const ROUNDS: u64 = if cfg!(test) { 1 } else { 40 };

#[cfg(test)]
mod tests {
    use grosso_checksum::Sum;

    use super::*;

    #[test]
    fn packets_of_the_train_join_to_one_superframe() {
        for payload_bytes in [1448, 8948] {
            let packets = train(payload_bytes);
            assert!(packets.len() >= 6, "{} packets", packets.len());
            let mut coalescer = PortCoalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1));
            let mut joined = Vec::new();
            let mut sink = |delivery: Delivery<'_, PortBuffer>| {
                joined.push(delivery.meta.gso.map(|gso| usize::from(gso.segments)));
            };
            for packet in &packets {
                coalescer.push(Frame::new(PortBuffer::from(packet.clone())), 0, &mut sink);
            }
            coalescer.poll_end(0, &mut sink);
            assert_eq!(joined, [Some(packets.len())]);
        }
    }

    #[test]
    fn consumers_of_every_byte_read_parts_and_what_a_machine_gets() {
        let packets = train(1448);
        let readers = Reader::all();
        assert_eq!(readers.len(), 3, "{readers:?}");
        for mut reader in readers {
            let reads = reader.kind() != ReaderKind::Headers;
            let mut coalescer = PortCoalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1));
            let mut seen = 0;
            let mut sink = |delivery: Delivery<'_, PortBuffer>| {
                let bytes = delivery.slices().collect::<Vec<_>>().concat();
                let words = bytes.chunks(2).map(|word| match *word {
                    [high, low] => u64::from(u16::from_be_bytes([high, low])),
                    _ => u64::from(word[0]) << 8,
                });
                let consumed = reader.consume(&delivery);
                assert_eq!(consumed.bytes, bytes.len() as u64, "{:?}", reader.kind());
                // RFC 1071 section 4.1: the sum of all 16-bit words, modulo 65535.
                let expected = if reads { words.sum::<u64>() % 65535 } else { 0 };
                assert_eq!(u64::from(consumed.sum.fold()) % 65535, expected, "{:?}", reader.kind());
                seen += 1;
            };
            for packet in &packets {
                let checksum = Checksum::Unnecessary { levels: 0 };
                let meta = Meta { checksum, ..Meta::default() };
                coalescer.push(
                    Frame { buffer: PortBuffer::from(packet.clone()), meta },
                    0,
                    &mut sink,
                );
            }
            coalescer.poll_end(0, &mut sink);
            assert_eq!(seen, 1);
        }
    }

    #[test]
    fn packets_of_a_list_keep_their_headers_and_a_superframe_has_one_header() {
        let packets = train(1448);
        let mut coalescer = PortCoalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1));
        let [mut headers, mut every_byte] = MemoryReader::all();
        let mut seen = 0;
        let mut sink = |delivery: Delivery<'_, PortBuffer>| {
            let lengths = [headers.consume(&delivery), headers.consume_list(&delivery)];
            let count = packets.len();
            assert_eq!(
                lengths.map(|read| read.header_bytes),
                [1, count].map(|n| n * HEADERS.len())
            );
            let list = every_byte.consume_list(&delivery);
            let sent = Sum::of(&packets.concat());
            assert_eq!(list.sum.checksum(), sent.checksum());
            let superframe = packets.concat().len() - (count - 1) * HEADERS.len();
            assert_eq!([every_byte.consume(&delivery).bytes, list.bytes], [superframe as u64; 2]);
            seen += 1;
        };
        for packet in &packets {
            coalescer.push(Frame::new(PortBuffer::from(packet.clone())), 0, &mut sink);
        }
        coalescer.poll_end(0, &mut sink);
        assert_eq!(seen, 1);
    }

    #[test]
    fn each_consumer_is_measured_with_parts_and_with_copies() {
        let consumer = Consumer::measure(8948, 2);
        let kinds: Vec<ReaderKind> = consumer.readings().map(|(kind, ..)| kind).collect();
        assert_eq!(kinds, [ReaderKind::Headers, ReaderKind::EveryByte, ReaderKind::VhostUser]);
        for (kind, parts, copied) in consumer.readings() {
            for spread in [parts, copied] {
                assert!(spread.values().len() == 2 && spread.min > 0.0, "{kind:?}: {spread:?}");
            }
        }
        assert_eq!(consumer.lists.len(), 2);
        for ListConsumer { consumer, parts, list } in &consumer.lists {
            for spread in [parts, list] {
                assert!(spread.values().len() == 2 && spread.min > 0.0, "{consumer:?}: {spread:?}");
            }
        }
    }
}
