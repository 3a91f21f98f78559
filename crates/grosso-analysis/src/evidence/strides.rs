//! Finds tunnel headers that repeat at a fixed stride inside one UDP frame.
//!
//! A userspace tunnel passes many datagrams to the kernel at once (`UDP_SEGMENT`). A capture on the same host shows
//! them as one frame: a tunnel header and a packet, the next tunnel header and packet, and so on.

use grosso_wire::{Extent, Kind, Layer, dissect, ipv4, ipv6, udp};

use super::sight::Sight;
use crate::headers::{is_ip, put_u16, u16_at, u32_at};

/// Returns the distance in bytes between consecutive tunnel headers, if there are several.
pub(super) fn find(sight: &Sight<'_>) -> Option<u16> {
    let packet = sight.packet.data;
    let mut layers = sight.stack.layers().iter();
    let udp = layers.by_ref().find(|layer| layer.kind == Kind::Udp)?;
    let tunnel = layers.next()?;
    let declared = u16_at(packet, udp.offset as usize + udp::field::LENGTH.start) as usize;
    // A superframe may be longer than its length field can express (rule T13).
    let end = if declared == 0 { packet.len() } else { udp.offset as usize + declared };
    let payload = packet.get(udp.end()..end.min(packet.len()))?;
    if tunnel.kind == Kind::Esp {
        return numbered(payload);
    }
    // A packet without a length field, such as ARP, ends where the tunnel header repeats.
    let is_inside = |layer: &&Layer| layer.offset >= tunnel.offset && is_ip(layer);
    let stride = match sight.stack.layers().iter().find(is_inside) {
        Some(_) => (sight.stack.end as usize).checked_sub(udp.end())?,
        None => repetition(payload)?,
    };
    if stride == 0 || stride >= payload.len() {
        return None;
    }
    let mut datagrams = payload.chunks(stride);
    let first = datagrams.next()?;
    let fixed = if is_ip(tunnel) { 0 } else { FIXED_BYTES.min(tunnel.len as usize) };
    let mut alone = packet.get(..udp.end())?.to_vec();
    let is_all = datagrams.all(|datagram| {
        datagram.get(..fixed) == first.get(..fixed) && {
            alone.truncate(udp.end());
            alone.extend_from_slice(datagram);
            is_datagram(&mut alone, sight, udp)
        }
    });
    if is_all { u16::try_from(stride).ok() } else { None }
}

/// Returns whether the headers and the start of a superframe's payload form one datagram of its tunnel. The inner
/// packet must end where the datagram ends.
fn is_datagram(packet: &mut [u8], sight: &Sight<'_>, udp: &Layer) -> bool {
    let len = packet.len();
    let ip = sight.stack.layers().iter().rfind(|layer| layer.offset < udp.offset && is_ip(layer));
    let Some(ip) = ip else { return false };
    let (field, from) = match ip.kind {
        Kind::Ipv4 => (ipv4::field::TOTAL_LENGTH.start, ip.offset as usize),
        _ => (ipv6::field::PAYLOAD_LENGTH.start, ip.end()),
    };
    let lengths = [
        (ip.offset as usize + field, from),
        (udp.offset as usize + udp::field::LENGTH.start, udp.offset as usize),
    ];
    for (at, from) in lengths {
        let Ok(length) = u16::try_from(len.saturating_sub(from)) else { return false };
        put_u16(packet, at, length);
    }
    let stack = dissect(packet, sight.link, &sight.ports);
    let inside = |layer: &Layer| layer.offset > udp.offset && is_ip(layer);
    let is_short = len.saturating_sub(udp.end()) <= FRAME_BYTES_MIN + FIXED_BYTES;
    match (stack.layers().iter().any(inside), stack.extent) {
        (true, Extent::Exact) => true,
        // Ethernet pads short frames. Only IP declares a length.
        (true, Extent::Padded) | (false, _) => {
            is_short && stack.layers().len() > sight_len(sight, udp)
        }
        (true, _) => false,
    }
}

/// Returns the number of headers up to and including the tunnel header after the outermost UDP header.
fn sight_len(sight: &Sight<'_>, udp: &Layer) -> usize {
    sight.stack.layers().iter().filter(|layer| layer.offset <= udp.offset).count() + 1
}

/// Returns the offset at which the first tunnel header is repeated.
fn repetition(payload: &[u8]) -> Option<usize> {
    let (first, rest) = payload.split_first_chunk::<FIXED_BYTES>()?;
    let found = rest.windows(FIXED_BYTES).position(|window| window == first)?;
    Some(FIXED_BYTES + found)
}

/// Returns the distance in bytes between consecutive ESP headers: same SPI, and consecutive sequence numbers.
fn numbered(payload: &[u8]) -> Option<u16> {
    let (spi, sequence) = (u32_at(payload, 0), u32_at(payload, 4));
    let header = |at: usize, index: u32| {
        at + ESP_BYTES_MIN <= payload.len()
            && u32_at(payload, at) == spi
            && u32_at(payload, at + 4) == sequence.wrapping_add(index)
    };
    let stride = (ESP_BYTES_MIN..payload.len()).find(|&at| header(at, 1))?;
    let mut headers = (1..).zip((stride..payload.len()).step_by(stride));
    if headers.all(|(index, at)| header(at, index)) { u16::try_from(stride).ok() } else { None }
}

/// Number of bytes at the start of a tunnel header that are the same in all packets of the tunnel.
const FIXED_BYTES: usize = 8;
/// Minimum length of an Ethernet frame without its frame check sequence. Shorter frames are padded.
const FRAME_BYTES_MIN: usize = 60;
/// Combined length of the ESP header, the shortest trailer, and an 8-byte integrity check value.
const ESP_BYTES_MIN: usize = 8 + 4 + 8;
