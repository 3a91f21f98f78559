//! Effect of a two-line patch that lets acknowledgments without data bypass the coalescer: they overtake the held
//! packets of their flow.

use grosso::{CoalesceOptions, Delivery, Frame, Meta, Sink, checksum::Checksum};
use grosso_io::{PortBuffer, PortCoalescer};
use grosso_wire::{LinkType, Ports};
use schemars::JsonSchema;
use serde::Serialize;

/// Numbers of packets that were delivered after a later packet, on a connection that carries data in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Overtaken {
    /// Number of packets that arrived.
    pub packets: usize,
    /// Number of packets that are overtaken if acknowledgments without data bypass the coalescer.
    pub past_it: usize,
    /// Number of packets that are overtaken if all packets pass through the coalescer, which then delivers held packets
    /// first.
    pub through_it: usize,
}

impl Overtaken {
    /// Counts the overtaken packets in 100 polls of data and acknowledgments.
    pub(super) fn count() -> Self {
        let packets = packets();
        Self {
            packets: packets.len(),
            past_it: overtaken(&packets, true),
            through_it: overtaken(&packets, false),
        }
    }
}

/// A packet, identified by its index in the list of all packets.
struct Sent {
    bytes: Vec<u8>,
    is_empty: bool,
}

/// Returns the number of packets that were delivered after a later packet.
fn overtaken(packets: &[Sent], acknowledgments_past_it: bool) -> usize {
    let mut coalescer =
        PortCoalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1).ports(Ports::NONE));
    let mut kept = Kept { packets, places: Vec::new() };
    for (place, packet) in packets.iter().enumerate() {
        if packet.is_empty && acknowledgments_past_it {
            kept.places.push(place);
        } else {
            let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
            let frame = Frame { buffer: PortBuffer::from(packet.bytes.clone()), meta };
            coalescer.push(frame, 0, &mut kept);
        }
        if (place + 1).is_multiple_of(PACKETS_A_POLL) {
            coalescer.poll_end(0, &mut kept);
        }
    }
    coalescer.finish(&mut kept);
    assert_eq!(kept.places.len(), packets.len(), "nothing is lost");
    let mut latest = 0;
    let is_late = |place: &&usize| {
        latest = latest.max(**place);
        **place < latest
    };
    kept.places.iter().filter(is_late).count()
}

/// A sink that records the indexes of the packets in the order of delivery.
struct Kept<'a> {
    packets: &'a [Sent],
    places: Vec<usize>,
}

impl Sink<PortBuffer> for Kept<'_> {
    fn deliver(&mut self, delivery: Delivery<'_, PortBuffer>) {
        // No two packets have the same bytes, so the bytes identify the packet.
        let place = |bytes: &[u8]| self.packets.iter().position(|sent| sent.bytes == bytes);
        self.places.extend(delivery.into_parts().filter_map(|part| place(part.buffer.as_ref())));
    }
}

/// Returns data packets in trains of three, with an acknowledgment after each train.
fn packets() -> Vec<Sent> {
    let mut sequence = 1_u32;
    let packet = |place: usize| {
        let is_empty = place % 4 == 3;
        let payload = if is_empty { 0 } else { PAYLOAD_BYTES };
        let bytes = segment(sequence, place as u32 / 4, payload);
        sequence = sequence.wrapping_add(payload as u32);
        Sent { bytes, is_empty }
    };
    (0..POLLS * PACKETS_A_POLL).map(packet).collect()
}

/// Returns an Ethernet frame with IPv6 and TCP. Its checksum is not computed, because the device is assumed to have
/// verified it.
fn segment(sequence: u32, acknowledgment: u32, payload: usize) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend((20 + payload as u16).to_be_bytes());
    bytes.extend([6, 64]);
    bytes.extend([0x20; 32]);
    bytes.extend([0, 1, 0, 2]);
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(acknowledgment.to_be_bytes());
    bytes.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 7);
    bytes
}

/// Number of polls.
const POLLS: usize = 100;
/// Number of packets per poll; every fourth is an acknowledgment.
const PACKETS_A_POLL: usize = 16;
/// Number of payload bytes in a packet with data.
const PAYLOAD_BYTES: usize = 1448;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p10_past_the_coalescer_acknowledgments_overtake_and_through_it_none_does() {
        let overtaken = Overtaken::count();
        assert_eq!(overtaken.through_it, 0);
        // The acknowledgment number changes after each train, so a train consists of three packets and the fourth
        // flushes it.
        assert_eq!(overtaken.past_it, 3 * overtaken.packets / 4);
    }
}
