//! The pseudo-header around a transport header.

use grosso_checksum::{Sum, pseudo_v4, pseudo_v6};
use grosso_wire::{Kind, Layer, Stack, ipv4, ipv6};

use crate::headers::u16_at;

/// The sum of the pseudo-header of a transport header of `protocol` inside the IP header `ip`.
///
/// `stack` is asked for a routing header, whose final address counts in place of the one in the
/// IPv6 header (RFC 8200 section 8.1).
pub(super) fn pseudo(packet: &[u8], stack: &Stack, ip: &Layer, protocol: u8, len: usize) -> Sum {
    let start = ip.offset as usize;
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    if ip.kind == Kind::Ipv4 {
        let source = array(packet, start + ipv4::field::SOURCE.start);
        let destination = array(packet, start + ipv4::field::DESTINATION.start);
        return pseudo_v4(source, destination, protocol, len);
    }
    let source = array(packet, start + ipv6::field::SOURCE.start);
    let destination = final_address(packet, stack, ip)
        .unwrap_or_else(|| array(packet, start + ipv6::field::DESTINATION.start));
    pseudo_v6(&source, &destination, protocol, len)
}

/// Where a routing header with segments left sends the packet in the end.
fn final_address(packet: &[u8], stack: &Stack, ip: &Layer) -> Option<[u8; 16]> {
    let mut protocol = packet.get(ip.offset as usize + ipv6::field::NEXT_HEADER.start).copied()?;
    let behind = stack.layers().iter().skip_while(|layer| layer.offset <= ip.offset);
    for layer in behind.take_while(|layer| layer.kind == Kind::Ipv6Extension) {
        let start = layer.offset as usize;
        let header = packet.get(start..layer.end())?;
        let segments_left = header.get(3).copied()?;
        if protocol == PROTOCOL_ROUTING && segments_left > 0 {
            let at = match header.get(2)? {
                // The segment routing header lists the last segment first (RFC 8754 section 2).
                4 => ROUTING_FIXED_BYTES,
                // The others list it last (RFC 2460 section 4.4, RFC 6275 section 6.4).
                _ => header.len().checked_sub(16)?,
            };
            return header.get(at..at + 16)?.try_into().ok();
        }
        protocol = *header.first()?;
    }
    None
}

fn array<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
    packet.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// Where a length field makes something end that starts at `start`; zero leaves it open.
pub(super) fn declared_end(
    packet: &[u8],
    start: usize,
    field: usize,
    before: usize,
) -> Option<usize> {
    let len = u16_at(packet, start + field) as usize;
    (len != 0).then_some(start + before + len)
}

const PROTOCOL_ROUTING: u8 = 43;
const ROUTING_FIXED_BYTES: usize = 8;
