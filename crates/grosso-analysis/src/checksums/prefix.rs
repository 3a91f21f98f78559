//! Checksums that cover only the first packet of a merged frame. Linux leaves such a checksum in place when it merges
//! packets by reference.
//!
//! Fraglist GRO (`rx-gro-list`, the default on OpenWrt) merges packets for forwarding. In a capture, the merged frame
//! has the headers of its first packet. The length fields cover the whole frame, but the checksum is still the first
//! packet's, so it is valid only over that packet's part of the payload.

use grosso_checksum::Sum;
use grosso_wire::{Kind, Stack, Stop, ipv4, tcp, udp};

use super::pseudo::pseudo;
use crate::headers::{is_ip, u16_at};

/// Returns the payload sizes that the frame's first packet may have, smallest first. The innermost transport checksum
/// is valid for each of them.
///
/// One size in 65,536 matches by chance. A frame that could be a single Ethernet packet is therefore accepted only if
/// its payload is a multiple of the size.
pub fn sizes(packet: &[u8], stack: &Stack) -> impl Iterator<Item = usize> {
    let prefix = FirstPacket::of(packet, stack);
    prefix.into_iter().flat_map(FirstPacket::sizes)
}

struct FirstPacket<'a> {
    payload: &'a [u8],
    /// Sum of the pseudo-header and the header, excluding lengths.
    base: u64,
    header_len: usize,
    /// Number of length fields that are included in the checksum.
    lengths: u64,
    must_divide: bool,
}

impl<'a> FirstPacket<'a> {
    fn of(packet: &'a [u8], stack: &Stack) -> Option<Self> {
        let layer = stack.last().filter(|_| stack.stop == Stop::Payload)?;
        let ip = stack.layers().iter().rfind(|layer| is_ip(layer))?;
        let network = stack.layers().iter().find(|layer| is_ip(layer))?;
        let (start, end) = (usize::from(layer.offset), stack.end as usize);
        let header = packet.get(start..layer.end())?;
        let payload = packet.get(layer.end()..if end == 0 { packet.len() } else { end })?;
        let (protocol, field, lengths) = match layer.kind {
            Kind::Tcp => (ipv4::PROTOCOL_TCP, tcp::field::CHECKSUM.start, 1),
            Kind::Udp => (ipv4::PROTOCOL_UDP, udp::field::CHECKSUM.start, 2),
            _ => return None,
        };
        if u16_at(header, field) == 0 {
            return None;
        }
        let length = match layer.kind {
            Kind::Udp => Sum::from_word(u16_at(header, udp::field::LENGTH.start)),
            _ => Sum::ZERO,
        };
        let base = (Sum::of(header).subtract(length) + pseudo(packet, ip, protocol, 0)).fold();
        let must_divide = layer.end() + payload.len() - usize::from(network.offset) <= MTU;
        Some(Self { payload, base: base.into(), header_len: header.len(), lengths, must_divide })
    }

    fn sizes(self) -> impl Iterator<Item = usize> {
        let Self { payload, base, header_len, lengths, must_divide } = self;
        let least = payload.len().div_ceil(PACKETS_MAX);
        let mut sum = base;
        payload.iter().enumerate().filter_map(move |(at, byte)| {
            sum += u64::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
            let size = at + 1;
            let is_possible = size >= least
                && (PAYLOAD_MIN..=SIZE_MAX).contains(&size)
                && size < payload.len()
                && (!must_divide || payload.len().is_multiple_of(size));
            // A valid sum is a multiple of 65,535 in one's-complement arithmetic.
            let total = || sum + lengths * (header_len + size) as u64;
            (is_possible && total().is_multiple_of(0xffff)).then_some(size)
        })
    }
}

/// Maximum number of packets in a frame merged by reference (`NAPI_GRO_CB(p)->count`).
const PACKETS_MAX: usize = 64;
/// Payload size of a packet at the largest MTU in common use, in bytes.
const SIZE_MAX: usize = 9216;
/// Minimum payload of the first packet in bytes. With a lower minimum, the checksum of a damaged packet would too often
/// match by chance.
const PAYLOAD_MIN: usize = 64;
/// Ethernet MTU.
const MTU: usize = 1500;

#[cfg(test)]
mod tests {
    use grosso_testkit::{
        Packet,
        oracle::{self, Description, Link},
    };
    use grosso_wire::{LinkType, Ports, dissect};

    use super::*;

    /// Returns a superframe with these headers. Its checksum is the one from its first packet.
    fn merged(headers: Packet, size: usize, len: usize) -> Vec<u8> {
        let (mut whole, start, offset) = headers.payload_len(len).build_superframe();
        let description = Description { gso_size: size, ..Description::default() };
        let first = oracle::segment(&whole, Link::Ethernet, description).unwrap().swap_remove(0);
        let field = start + offset..start + offset + 2;
        whole[field.clone()].copy_from_slice(&first[field]);
        whole
    }

    fn found(frame: &[u8]) -> Vec<usize> {
        sizes(frame, &dissect(frame, LinkType::Ethernet, &Ports::ASSIGNED)).collect()
    }

    #[test]
    fn the_checksum_verifies_over_the_first_packet() {
        let v4 = || Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        let v6 = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
        for ip in [v4, v6] {
            for headers in [ip().tcp(|t| t.timestamps(1, 2)), ip().udp(|u| u)] {
                let ethernet = || headers.clone();
                assert!(found(&merged(ethernet(), 1447, 4 * 1447 + 99)).contains(&1447));
                assert!(found(&merged(ethernet(), 100, 500)).contains(&100));
                // If the length is not a multiple of the segment size, a short frame may just be one damaged packet.
                assert!(!found(&merged(ethernet(), 100, 499)).contains(&100));
            }
        }
    }

    #[test]
    fn nothing_is_found_where_there_is_no_checksum() {
        let udp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
        assert!(found(&udp.payload_len(4000).build()).is_empty());
        let raw = Packet::new().ethernet(|e| e).payload_len(100).build();
        assert!(found(&raw).is_empty());
    }
}
