//! Determines packets' payload and checksum states, using only the testkit's oracle.

use core::ops::{AddAssign, Range};
use std::borrow::Cow;

use grosso_testkit::oracle::{
    self, FOU_PORT, Layer, Lengths, Link, Parsed, State, Stop, Verdict, parse, verify,
};

use super::captures::Captured;

/// Totals of the payload of several packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Number of payload bytes.
    pub(crate) bytes: u64,
    /// Sum of all TCP and UDP payload bytes. Segmentation does not change it, but a modified byte does.
    pub(crate) sum: u64,
}

impl AddAssign for Carried {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.sum += other.sum;
    }
}

impl core::iter::Sum for Carried {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |mut total, one| {
            total += one;
            total
        })
    }
}

/// Returns the link layer for a link type number of capture files; `None` if no command reads it.
pub(crate) fn link_of(link_type: u32) -> Option<Link> {
    match link_type {
        1 => Some(Link::Ethernet),
        101 => Some(Link::Ip),
        _ => None,
    }
}

/// Whether an IP packet directly after the UDP header of FOU is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fou {
    Read,
    Opaque,
}

/// Returns the bytes after the innermost header.
pub(crate) fn payload(packet: &Captured, fou: Fou) -> Carried {
    let Some(link) = link_of(packet.link_type) else {
        return Carried { bytes: packet.data.len() as u64, sum: 0 };
    };
    // If a packet is too long for its length field, the field may be zero. Then only the complete packet shows where it
    // ends, so the truncated bytes are replaced by zeros.
    let mut data = Cow::Borrowed(&packet.data);
    if packet.original_len > usize::from(u16::MAX) {
        data.to_mut().resize(packet.original_len.max(packet.data.len()), 0);
    }
    let mut parsed = parse(&data, link, Lengths::Declared);
    let is_fou = |layer: &Layer| {
        layer.name == "udp" && layer.number("destination_port") == u64::from(FOU_PORT)
    };
    if let (Fou::Opaque, Some(udp)) = (fou, parsed.layers.iter().position(is_fou)) {
        parsed.layers.truncate(udp + 1);
        parsed.stop = Stop::Transport;
    }
    let missing = data.len() - packet.data.len();
    let bytes = parsed.payload(&data);
    let bytes = &bytes[..bytes.len().saturating_sub(missing)];
    let sum = match parsed.stop {
        Stop::Transport => bytes.iter().map(|&byte| u64::from(byte)).sum(),
        _ => 0,
    };
    Carried { bytes: bytes.len() as u64, sum }
}

/// Returns the number of bytes that are divided between fragments of the outermost IP packet. They follow the headers
/// that every fragment repeats (RFC 8200 section 4.5: everything up to the routing header).
pub(crate) fn fragmentable(packet: &Captured) -> u64 {
    let whole = packet.data.len() as u64;
    let Some(link) = link_of(packet.link_type) else { return whole };
    let parsed = parse(&packet.data, link, Lengths::Declared);
    part(&parsed).map_or(whole, |part| part.len() as u64)
}

/// Returns the number of bytes in fragment headers of atomic fragments, which are delivered without these headers (RFC
/// 6946).
pub(crate) fn atomic(packet: &Captured) -> u64 {
    let Some(link) = link_of(packet.link_type) else { return 0 };
    let parsed = parse(&packet.data, link, Lengths::Declared);
    let Some(part) = part(&parsed) else { return 0 };
    let headers = parsed.layers.iter().filter(|layer| is_atomic(layer));
    headers.filter(|layer| part.contains(&layer.offset)).map(|layer| layer.len as u64).sum()
}

/// Returns the range of bytes that is divided into fragments.
fn part(parsed: &Parsed) -> Option<Range<usize>> {
    let outermost = parsed.layers.iter().position(|layer| layer.is_ip())?;
    let behind = parsed.layers.iter().enumerate().skip(outermost + 1);
    let is_option = |name| matches!(name, "hop_by_hop" | "routing" | "destination_options");
    let extensions =
        behind.take_while(|(_, layer)| is_option(layer.name) || layer.name == "fragment");
    let of_each =
        extensions.filter(|(_, layer)| layer.name != "destination_options" && !is_atomic(layer));
    let last = of_each.last().map_or(outermost, |(index, _)| index);
    let start = parsed.layers[last].inside();
    Some(start..parsed.layers[outermost].end.max(start))
}

fn is_atomic(layer: &Layer) -> bool {
    layer.name == "fragment" && layer.number("offset") & 0xfff9 == 0
}

/// Returns a wrong checksum in a frame, if any: one that matches neither the current bytes nor the packet after a
/// device has completed its inner partial checksums.
pub(crate) fn wrong(frame: &[u8], link: Link) -> Option<Verdict> {
    let mut completed = frame.to_vec();
    for as_is in verify(frame, link).into_iter().rev().filter(|v| v.state != State::Absent) {
        let once_completed = verify(&completed, link);
        let now = once_completed.iter().find(|verdict| verdict.layer == as_is.layer)?;
        // With nested tunnels, one level may leave a checksum to the receiver, and the oracle treats that level as the
        // innermost.
        let is_right = now.found == now.expected;
        if is_right || as_is.state != State::Wrong || now.state != State::Wrong {
            continue;
        }
        let parsed = parse(&completed, link, Lengths::Declared);
        if !is_partial(&parsed, now) {
            return Some(as_is);
        }
        let at = parsed.layers[now.layer].offset + field(now.name);
        completed[at..at + 2].copy_from_slice(&now.expected.to_be_bytes());
    }
    None
}

/// Returns whether no checksum of a frame is left to a device.
pub(crate) fn is_complete(frame: &[u8], link: Link) -> bool {
    oracle::is_right(frame, link)
}

/// Returns whether a tunnel header of a frame leaves a checksum to the receiver (rules C50, C51).
pub(crate) fn is_remote(frame: &[u8], link: Link) -> bool {
    parse(frame, link, Lengths::Declared).has_remote_checksum()
}

/// Returns whether the field holds the initial value for a device: the sum of the pseudo-header, or zero in GRE (rules
/// G51, T11).
fn is_partial(parsed: &Parsed, verdict: &Verdict) -> bool {
    let layer = &parsed.layers[verdict.layer];
    let len = layer.end - layer.offset;
    let pseudo = |protocol| {
        let bytes = parsed.pseudo_header_of(verdict.layer, protocol, len);
        bytes.is_some_and(|bytes| oracle::sum(&bytes) == verdict.found)
    };
    match verdict.name {
        "tcp" => pseudo(6),
        "udp" => pseudo(17),
        "gre" => verdict.found == 0,
        _ => false,
    }
}

/// Returns the offset of the checksum in a header with this name.
fn field(name: &str) -> usize {
    match name {
        "tcp" => 16,
        "udp" => 6,
        _ => 4,
    }
}
