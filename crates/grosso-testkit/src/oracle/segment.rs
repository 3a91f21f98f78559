//! Segmentation of superframes, one packet at a time (rules S7 to S45).

use super::parse::{Lengths, Link, Parsed, Stop, parse};
use super::sum::{add, checksum, sum};

/// Metadata that describes how to segment a superframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Number of payload bytes in every segment except the last.
    pub gso_size: usize,
    /// Bit mask of the IP levels at which all segments have the same IPv4 identification. Bit 0 is the outermost IP
    /// header, of either version.
    pub fixed_ids: u32,
    /// Whether every segment keeps CWR, as AccECN requires, instead of only the first.
    pub cwr_on_all: bool,
}

/// Reason why a superframe cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The segment size is zero.
    NoSize,
    /// The frame has no TCP or UDP header (rule S3).
    NoTransport,
    /// A GRE header has a sequence number; a superframe cannot hold the numbers of all segments (rule S43).
    GreSequence,
}

/// Segments a superframe into packets with complete checksums. If the payload fits into one segment, the result is one
/// packet.
pub fn segment(
    superframe: &[u8],
    link: Link,
    description: Description,
) -> Result<Vec<Vec<u8>>, Refusal> {
    if description.gso_size == 0 {
        return Err(Refusal::NoSize);
    }
    let parsed = parse(superframe, link, Lengths::Whole);
    let transport = parsed.last().filter(|last| matches!(last.name, "tcp" | "udp"));
    let Some(transport) = transport.filter(|_| parsed.stop == Stop::Transport) else {
        return Err(Refusal::NoTransport);
    };
    if parsed.layers.iter().any(|l| l.name == "gre" && l.number("flags") & 0x1000 != 0) {
        return Err(Refusal::GreSequence);
    }
    let (header, payload) = superframe.split_at(transport.inside());
    let count = payload.len().div_ceil(description.gso_size).max(1);
    let packets = (0..count).map(|index| {
        let start = index * description.gso_size;
        let end = payload.len().min(start + description.gso_size);
        let mut packet = [header, &payload[start..end]].concat();
        advance(&mut packet, &parsed, description, index, count);
        complete(&mut packet, &parsed);
        packet
    });
    Ok(packets.collect())
}

/// Sets the fields of packet `index` of `count` that depend on the packet's position.
fn advance(
    packet: &mut [u8],
    parsed: &Parsed,
    description: Description,
    index: usize,
    count: usize,
) {
    let mut level = 0;
    for layer in &parsed.layers {
        if layer.name == "ipv4" && description.fixed_ids >> level & 1 == 0 {
            let id = (layer.number("id") as u16).wrapping_add(index as u16);
            put(packet, layer.offset + 4, id);
        }
        if layer.is_ip() {
            level += 1;
        }
        if layer.name == "tcp" {
            let bytes = (index * description.gso_size) as u32;
            let sequence = (layer.number("sequence") as u32).wrapping_add(bytes);
            packet[layer.offset + 4..layer.offset + 8].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut packet[layer.offset + 13];
            if index + 1 != count {
                // Only the last segment has FIN (0x01) and PSH (0x08) (rule S11).
                *flags &= !0x09;
            }
            if index != 0 && !description.cwr_on_all {
                *flags &= !0x80;
            }
        }
    }
}

/// Writes every length and checksum, starting with the innermost header.
fn complete(packet: &mut [u8], parsed: &Parsed) {
    let remote = parsed.has_remote_checksum();
    for (index, layer) in parsed.layers.iter().enumerate().rev() {
        let len = packet.len() - layer.offset;
        let innermost = index + 1 == parsed.layers.len();
        match layer.name {
            "pppoe" => put(packet, layer.offset + 4, fit(len - 6)),
            "ipv4" => {
                put(packet, layer.offset + 2, fit(len));
                put(packet, layer.offset + 10, 0);
                let right = checksum(&packet[layer.offset..layer.inside()]);
                put(packet, layer.offset + 10, right);
            }
            "ipv6" => put(packet, layer.offset + 4, fit(len - 40)),
            "tcp" => transport(packet, parsed, index, remote),
            "udp" => {
                put(packet, layer.offset + 4, fit(len));
                // A tunnel header without a checksum stays without one (rule S40); an innermost UDP header always gets
                // one (rule S20).
                if innermost || layer.number("checksum") != 0 {
                    transport(packet, parsed, index, innermost && remote);
                }
            }
            "gre" if layer.number("flags") & 0x8000 != 0 => {
                put(packet, layer.offset + 4, 0);
                let right = checksum(&packet[layer.offset..]);
                put(packet, layer.offset + 4, right);
            }
            _ => {}
        }
    }
}

/// Writes the checksum of a transport header, or only its pseudo-header sum (rule S45).
fn transport(packet: &mut [u8], parsed: &Parsed, index: usize, seed_only: bool) {
    let layer = &parsed.layers[index];
    let (protocol, at) =
        if layer.name == "tcp" { (6, layer.offset + 16) } else { (17, layer.offset + 6) };
    let len = packet.len() - layer.offset;
    let seed = pseudo_sum(parsed, index, protocol, len);
    put(packet, at, 0);
    let right = match !add(seed, sum(&packet[layer.offset..])) {
        _ if seed_only => seed,
        0 if protocol == 17 => 0xffff,
        value => value,
    };
    put(packet, at, right);
}

/// Returns the folded, uncomplemented pseudo-header sum of the layer at `index`; zero if no IP header encloses the
/// layer.
pub(crate) fn pseudo_sum(parsed: &Parsed, index: usize, protocol: u8, len: usize) -> u16 {
    parsed.pseudo_header_of(index, protocol, len).map_or(0, |bytes| sum(&bytes))
}

/// Returns the length, or zero if a 16-bit field cannot hold it (rule G50).
pub(crate) fn fit(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(0)
}

/// Writes a 16-bit field.
pub(crate) fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
