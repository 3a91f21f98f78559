//! Tunnel headers that repeat at a stride inside one UDP frame.
//!
//! A tunnel in userspace hands the kernel many datagrams at once (`UDP_SEGMENT`), and a capture of its host shows them as
//! one: the first has tunnel header and packet, and behind that packet the next tunnel header follows.

use core::ops::Range;

use grosso_wire::{Extent, Kind, LinkType, Ports, Stack, dissect, geneve, udp};

use super::judge::Sight;
use crate::headers::{is_ip, u16_at, u32_at};

/// The bytes from one tunnel header to the next, if there are several.
pub(super) fn find(sight: &Sight<'_>) -> Option<u16> {
    let packet = sight.packet.data;
    let mut layers = sight.stack.layers().iter();
    let udp = layers.by_ref().find(|layer| layer.kind == Kind::Udp)?;
    let tunnel = layers.next()?;
    let declared = u16_at(packet, udp.offset as usize + udp::field::LENGTH.start) as usize;
    // A superframe may be longer than the field can say (rule T13).
    let end = if declared == 0 { packet.len() } else { udp.offset as usize + declared };
    let payload = udp.end()..end.min(packet.len());
    if tunnel.kind == Kind::Esp {
        return numbered(packet, payload);
    }
    let headers =
        tunnel.offset as usize..if is_ip(tunnel) { tunnel.offset as usize } else { tunnel.end() };
    let inside = if is_ip(tunnel) { LinkType::Raw } else { inside(packet, sight.stack)? };
    // What declares no length, as ARP, is followed by where its tunnel header stands again.
    let has_length =
        sight.stack.layers().iter().any(|layer| layer.offset >= tunnel.offset && is_ip(layer));
    let stride = if has_length {
        (sight.stack.end as usize).checked_sub(payload.start)?
    } else {
        repetition(packet, &headers, &payload)?
    };
    if !is_whole(packet, &headers, &payload, stride, inside, &sight.ports) {
        return None;
    }
    u16::try_from(stride).ok()
}

/// Whether the payload of a UDP datagram is several tunnel headers with a packet each, `stride` bytes apart.
fn is_whole(
    packet: &[u8],
    headers: &Range<usize>,
    payload: &Range<usize>,
    stride: usize,
    inside: LinkType,
    ports: &Ports,
) -> bool {
    if stride <= headers.len() || payload.len() <= stride {
        return false;
    }
    let first = packet.get(headers.clone()).unwrap_or_default();
    let datagrams = packet.get(payload.clone()).unwrap_or_default().chunks(stride);
    datagrams.skip(1).all(|datagram| {
        let Some((header, rest)) = datagram.split_at_checked(first.len()) else { return false };
        is_alike(header, first) && is_packet(rest, inside, ports)
    })
}

/// Whether two tunnel headers are of one tunnel: the same flags, protocol and network. Options may differ.
fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let len = one.len().min(FIXED_BYTES);
    one[..len] == other[..len]
}

/// Whether a packet fills its datagram.
fn is_packet(bytes: &[u8], link: LinkType, ports: &Ports) -> bool {
    let stack = dissect(bytes, link, ports);
    let is_padded = stack.extent == Extent::Padded && bytes.len() <= FRAME_BYTES_MIN;
    match link {
        LinkType::Raw => stack.layers().first().is_some_and(is_ip) && stack.extent == Extent::Exact,
        _ => {
            let has_ip = stack.layers().iter().any(is_ip);
            !has_ip && bytes.len() <= FRAME_BYTES_MIN
                || has_ip && (stack.extent == Extent::Exact || is_padded)
        }
    }
}

/// What lies behind the outermost tunnel header.
fn inside(packet: &[u8], stack: &Stack) -> Option<LinkType> {
    let mut layers = stack.layers().iter().skip_while(|layer| layer.kind != Kind::Udp).skip(1);
    let tunnel = layers.next()?;
    let next = layers.next();
    match next {
        Some(layer) if layer.kind == Kind::Ethernet => Some(LinkType::Ethernet),
        Some(layer) if is_ip(layer) => Some(LinkType::Raw),
        None if tunnel.kind == Kind::Geneve => {
            let protocol = u16_at(packet, tunnel.offset as usize + geneve::field::PROTOCOL.start);
            (protocol == grosso_wire::ethernet::ETHERTYPE_BRIDGING).then_some(LinkType::Ethernet)
        }
        _ => None,
    }
}

/// Where the first tunnel header stands again.
fn repetition(packet: &[u8], headers: &Range<usize>, payload: &Range<usize>) -> Option<usize> {
    let first = packet.get(headers.start..headers.end.min(headers.start + FIXED_BYTES))?;
    if first.len() < FIXED_BYTES {
        return None;
    }
    let rest = packet.get(headers.end..payload.end)?;
    let found = rest.windows(first.len()).position(|window| window == first)?;
    Some(headers.end + found - payload.start)
}

/// The bytes from one ESP header to the next: the same SPI, and a sequence number that counts.
fn numbered(packet: &[u8], payload: Range<usize>) -> Option<u16> {
    let bytes = packet.get(payload)?;
    let (spi, sequence) = (u32_at(bytes, 0), u32_at(bytes, 4));
    let header = |at: usize, index: u32| {
        at + ESP_BYTES_MIN <= bytes.len()
            && u32_at(bytes, at) == spi
            && u32_at(bytes, at + 4) == sequence.wrapping_add(index)
    };
    let stride = (ESP_BYTES_MIN..bytes.len()).find(|&at| header(at, 1))?;
    let is_all =
        (1..).zip((stride..bytes.len()).step_by(stride)).all(|(index, at)| header(at, index));
    if is_all { u16::try_from(stride).ok() } else { None }
}

/// Bytes at the start of a tunnel header that are the same in all packets of a tunnel.
const FIXED_BYTES: usize = 8;
/// The shortest Ethernet frame without its check sequence, to which shorter ones are padded.
const FRAME_BYTES_MIN: usize = 60;
/// The headers of ESP, the least trailer and a check value of 8 bytes.
const ESP_BYTES_MIN: usize = 8 + 4 + 8;
