//! Verification of every checksum in a packet: whether it is valid, and which value is expected.
//!
//! The innermost checksum is verified first, because the outer ones cover it. With local checksum offload (rule C40),
//! an outer checksum is computed for the packet with its inner checksum completed. Such a checksum is valid even though
//! it does not match the current bytes.

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{Kind, Layer, Stack, Stop, ipv4, ipv6, pppoe, sctp, tcp, udp, udp_lite};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    crc32c::crc32c,
    prefix,
    pseudo::{declared_end, pseudo},
};
use crate::headers::{is_ip, put_u16, u16_at, u32_at};

/// Result of verifying a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The checksum matches the covered bytes.
    Valid,
    /// The sender of a UDP datagram did not compute a checksum (RFC 768).
    ZeroUdp,
    /// Only IP headers were verified, because the protocol inside is unknown or its header is malformed.
    NotVerified,
    /// Some of the covered bytes are missing.
    Unverifiable,
    /// The checksum was left for a device to complete.
    Partial,
    /// The checksum does not match the covered bytes.
    Bad,
}

impl Verdict {
    /// Returns the name that text reports show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Partial => "partial",
            Self::ZeroUdp => "zero-udp",
            Self::Bad => "bad",
            Self::NotVerified => "not verified",
            Self::Unverifiable => "unverifiable",
        }
    }
}

/// Reason for a verdict that can have several reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The field was compared with the computed checksum.
    Sum,
    /// The checksum matches the current bytes, but will no longer match once the inner checksum is completed.
    Bytes,
    /// The field holds the pseudo-header sum, with the length or (as on Windows) without it.
    Seed,
    /// The field is zero, which tells a device to compute the checksum.
    Zero,
    /// The capture file states that the checksum is partial.
    Told,
    /// The packet is truncated in the capture.
    Truncated,
    /// A tunnel header asks the receiver to complete the checksum (rules C50, C51).
    Remote,
    /// The length field is shorter than the header or longer than the packet, so it is unknown which bytes are covered.
    Length,
    /// The field is zero, which means "no checksum", but a checksum is required here: in UDP over IPv6 outside tunnels
    /// (RFC 8200 section 8.1), and in UDP-Lite (RFC 3828 section 3.1).
    Missing,
    /// The checksum matches only the first packet of a frame that was merged by reference.
    Prefix,
    /// The packet has more headers than the dissector follows, and a checksum in one of them may be partial.
    Deep,
}

/// One checksum in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Header that contains the checksum.
    pub layer: Layer,
    /// Offset of the checksum in the packet.
    pub at: usize,
    /// Value of the checksum in the packet: 16 bits, or 32 bits for a CRC32c.
    pub found: u32,
    /// Expected value, if it can be computed.
    pub expected: Option<u32>,
    /// End of the covered bytes.
    end: usize,
    /// End of the bytes counted by the pseudo-header's length.
    packet_end: usize,
    /// Verdict on the checksum.
    pub verdict: Verdict,
    /// Reason for the verdict.
    pub why: Why,
    /// Nesting level; the outermost transport checksum is at level 0. An IP header checksum is at the same level as its
    /// payload.
    pub depth: usize,
}

impl Level {
    /// Returns the reason name for a wrong checksum; `None` if the checksum is not wrong.
    pub fn damage(&self) -> Option<&'static str> {
        let name = if self.layer.kind == Kind::Ipv4 { "ipv4_checksum" } else { "checksum" };
        (self.verdict == Verdict::Bad).then_some(name)
    }

    /// Returns the length of the checksum in bytes.
    pub const fn width(&self) -> usize {
        if matches!(self.layer.kind, Kind::Sctp) { 4 } else { 2 }
    }

    /// Writes a checksum value into the packet.
    pub(super) fn put(&self, packet: &mut [u8], value: u32) {
        let bytes = value.to_be_bytes();
        if self.width() == 2 {
            put_u16(packet, self.at, value as u16);
        } else if let Some(field) = packet.get_mut(self.at..self.at + bytes.len()) {
            field.copy_from_slice(&bytes);
        }
    }
}

/// Checksums of one packet, outermost first.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    list: Vec<Level>,
    is_fragment: bool,
    is_cut: bool,
    is_unread: bool,
    /// Number of payload bytes in the first packet, if the innermost checksum covers only that packet.
    pub prefix: Option<usize>,
}

impl Levels {
    /// Returns an iterator over the checksums, outermost first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Level> {
        self.list.iter()
    }

    /// Returns the number of checksums.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether the packet has no checksum.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the checksum at `index`.
    pub fn at(&self, index: usize) -> Option<Level> {
        self.list.get(index).copied()
    }

    /// Returns the verdict on the packet: the worst verdict on any of its checksums, or `None` if it has no checksum.
    pub fn worst(&self) -> Option<Verdict> {
        let own = self.list.iter().map(|level| level.verdict).max();
        let own = if self.is_unread { own.max(Some(Verdict::NotVerified)) } else { own };
        if self.is_fragment || self.is_cut { own.max(Some(Verdict::Unverifiable)) } else { own }
    }
}

/// Information in the capture about a partial checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No information.
    None,
    /// The checksum at this offset is partial.
    Partial {
        /// Offset in bytes from the start of the packet.
        at: usize,
    },
}

/// Verifies every checksum of `packet`, whose headers are in `stack`, and stores the results in `levels`.
///
/// `is_cut` means that the capture truncated the packet. Previous contents of `levels` are overwritten.
pub fn judge(packet: &[u8], is_cut: bool, stack: &Stack, claim: Claim, levels: &mut Levels) {
    levels.is_fragment = stack.stop == Stop::Fragment;
    levels.is_cut = is_cut && stack.stop == Stop::Truncated;
    levels.is_unread = false;
    levels.prefix = None;
    collect(packet, is_cut, stack, &mut levels.list);
    let remote = remote_checksum(packet, stack);
    // Amount by which the outer sums change once the inner checksums are completed.
    let mut to_add = Sum::ZERO;
    for level in levels.list.iter_mut().rev() {
        if level.end > packet.len() {
            level.verdict = Verdict::Unverifiable;
            level.why = Why::Truncated;
            continue;
        }
        let is_remote = remote == Some((level.layer.offset as usize, level.at));
        if level.layer.kind == Kind::Ipv4 {
            // An IPv4 header checksum covers only the header itself.
            judge_one(packet, stack, claim, false, Sum::ZERO, level);
            continue;
        }
        judge_one(packet, stack, claim, is_remote, to_add, level);
        if stack.stop == Stop::TooDeep && (level.verdict, level.why) == (Verdict::Bad, Why::Sum) {
            (level.verdict, level.why) = (Verdict::Unverifiable, Why::Deep);
        }
        let is_innermost = stack.last().is_some_and(|last| last == level.layer);
        if is_innermost && (level.verdict, level.why) == (Verdict::Bad, Why::Sum) {
            levels.prefix = prefix::sizes(packet, stack).next();
            if levels.prefix.is_some() {
                (level.verdict, level.why) = (Verdict::Valid, Why::Prefix);
            }
        }
        match (level.verdict, level.expected) {
            (Verdict::Partial, Some(expected)) => {
                to_add = (to_add + sum_of(expected)).subtract(sum_of(level.found));
            }
            // The checksum is valid for the current bytes. It will be updated along with the inner bytes, so the outer
            // checksums see no change.
            (Verdict::Valid, _) if level.why == Why::Bytes => to_add = Sum::ZERO,
            _ => {}
        }
    }
    levels.is_unread = is_unread(stack, &levels.list);
}

/// Returns the sum of a 16-bit or 32-bit checksum field.
fn sum_of(value: u32) -> Sum {
    Sum::of(&value.to_be_bytes())
}

/// Returns whether the dissector stopped early, either after the IP headers or at a malformed or truncated header, and
/// no checksum apart from IPv4 header checksums is valid.
fn is_unread(stack: &Stack, levels: &[Level]) -> bool {
    let is_covered =
        |level: &Level| level.layer.kind != Kind::Ipv4 && level.verdict == Verdict::Valid;
    let is_in_ip = stack.layers().iter().any(is_ip);
    match stack.stop {
        Stop::Unknown | Stop::TooDeep => is_in_ip && !levels.iter().any(is_covered),
        Stop::Malformed | Stop::Truncated => !levels.iter().any(is_covered),
        _ => false,
    }
}

/// Returns whether the innermost transport checksum field holds the pseudo-header sum. Does not read the payload.
pub fn is_seeded(packet: &[u8], stack: &Stack) -> bool {
    let Some(layer) = stack.last().filter(|l| l.kind.is_transport()) else {
        return false;
    };
    let Some(ip) = stack.layers().iter().rfind(|layer| is_ip(layer)) else { return false };
    let end = if stack.end == 0 { packet.len() } else { stack.end as usize };
    holds_seed(packet, &layer, ip, end)
}

/// Returns whether the innermost transport checksum is a pseudo-header sum without the length. Windows leaves the
/// checksum of a TCP superframe to the device in this form (NDIS large send offload). Does not read the payload.
pub fn is_seeded_without_length(packet: &[u8], stack: &Stack) -> bool {
    let Some(layer) = stack.last().filter(|layer| layer.kind == Kind::Tcp) else { return false };
    let Some(ip) = stack.layers().iter().rfind(|layer| is_ip(layer)) else { return false };
    holds_seed_without_length(packet, &layer, ip)
}

/// Returns whether a TCP superframe [has a pseudo-header sum without the length](is_seeded_without_length) and its
/// innermost IP header has a length of 0. The packet then extends to the end of the frame.
pub fn is_large_send_without_length(packet: &[u8], stack: &Stack) -> bool {
    let Some(ip) = stack.layers().iter().rfind(|layer| is_ip(layer)) else { return false };
    let field = match ip.kind {
        Kind::Ipv4 => ipv4::field::TOTAL_LENGTH,
        _ => ipv6::field::PAYLOAD_LENGTH,
    };
    u16_at(packet, ip.offset as usize + field.start) == 0 && is_seeded_without_length(packet, stack)
}

/// Returns whether the innermost transport checksum is a pseudo-header sum with the length of the whole frame, although
/// the length fields count only the first segment (rule S47).
pub fn is_seeded_to_the_end(packet: &[u8], stack: &Stack) -> bool {
    let innermost = stack.last().filter(|l| l.kind.is_transport());
    let ip = stack.layers().iter().rfind(|layer| is_ip(layer));
    let (Some(layer), Some(ip)) = (innermost, ip) else { return false };
    holds_seed(packet, &layer, ip, packet.len())
}

/// Returns whether the checksum in a GRE header is left for a device to compute. Offload metadata cannot express this.
pub fn has_gre_checksum_to_come(packet: &[u8], stack: &Stack) -> bool {
    stack.layers().iter().filter(|layer| layer.kind == Kind::Gre).any(|layer| {
        let start = layer.offset as usize;
        checksum_at(packet, layer).is_some_and(|at| u16_at(packet, start + at) == 0)
    })
}

/// Returns whether any transport checksum field holds the pseudo-header sum. Does not read the payload.
pub fn is_seeded_anywhere(packet: &[u8], stack: &Stack) -> bool {
    is_seeded(packet, stack)
        || is_seeded_without_length(packet, stack)
        || seeded_around(packet, stack).is_some()
}

/// Returns whether the innermost transport checksum is left to the sender's device: it [is a pseudo-header
/// sum](is_seeded), and no tunnel header delegates it to the receiver (rules C50, C51).
pub fn is_left_to_device(packet: &[u8], stack: &Stack) -> bool {
    is_seeded(packet, stack) && remote_checksum(packet, stack).is_none()
}

/// Returns the outermost UDP header whose checksum field holds only the pseudo-header sum.
pub fn seeded_around(packet: &[u8], stack: &Stack) -> Option<Layer> {
    let layers = stack.layers();
    let each = layers.iter().enumerate().filter(|(_, layer)| layer.kind == Kind::Udp);
    let mut seeded = each.filter(|&(index, udp)| {
        let Some(ip) = layers[..index].iter().rfind(|layer| is_ip(layer)) else { return false };
        let start = udp.offset as usize;
        let end = start + u16_at(packet, start + udp::field::LENGTH.start) as usize;
        holds_seed(packet, udp, ip, end)
    });
    seeded.next().map(|(_, udp)| *udp)
}

fn holds_seed(packet: &[u8], layer: &Layer, ip: &Layer, end: usize) -> bool {
    let len = end.saturating_sub(layer.offset as usize);
    holds_seed_of(packet, layer, ip, len)
}

fn holds_seed_without_length(packet: &[u8], layer: &Layer, ip: &Layer) -> bool {
    layer.kind == Kind::Tcp && holds_seed_of(packet, layer, ip, 0)
}

fn holds_seed_of(packet: &[u8], layer: &Layer, ip: &Layer, len: usize) -> bool {
    let (field, protocol) = place(layer);
    let found = u16_at(packet, layer.offset as usize + field);
    found == pseudo(packet, ip, protocol, len).fold()
}

/// Lists the checksums of a packet and the bytes that they cover. If a packet is truncated and has no length field, its
/// end lies beyond the captured bytes.
fn collect(packet: &[u8], is_cut: bool, stack: &Stack, list: &mut Vec<Level>) {
    list.clear();
    let mut end = packet.len() + usize::from(is_cut);
    let mut depth = 0;
    let mut outer = false;
    let mut is_ipv6 = false;
    for layer in stack.layers() {
        let start = layer.offset as usize;
        let mut level = Level {
            layer: *layer,
            at: start,
            found: 0,
            expected: None,
            end,
            packet_end: end,
            verdict: Verdict::Valid,
            why: Why::Sum,
            depth,
        };
        let field = match layer.kind {
            Kind::Pppoe => {
                let field = pppoe::field::LENGTH.start;
                end = within(declared_end(packet, start, field, PPPOE_UNCOUNTED), end, outer);
                outer = true;
                continue;
            }
            Kind::Ipv4 => {
                let declared = declared_end(packet, start, ipv4::field::TOTAL_LENGTH.start, 0);
                is_ipv6 = false;
                end = within(declared, end, outer);
                level.end = layer.end();
                outer = true;
                ipv4::field::CHECKSUM.start
            }
            Kind::Ipv6 => {
                let field = ipv6::field::PAYLOAD_LENGTH.start;
                is_ipv6 = true;
                end = within(declared_end(packet, start, field, ipv6::HEADER_LEN), end, outer);
                outer = true;
                continue;
            }
            Kind::Udp => {
                let declared = declared_end(packet, start, udp::field::LENGTH.start, 0);
                let reaches = declared.filter(|&udp_end| udp_end >= layer.end());
                // The IP length is used for a superframe that is too long for the transport length field (T13), and for
                // a jumbogram, whose length is 0 (RFC 2675). Over IPv4, Linux drops a datagram with length 0.
                let has_length = declared.is_some() || !is_ipv6;
                if has_length && reaches.is_none() && end - start <= u16::MAX.into() {
                    (level.verdict, level.why) = (Verdict::Bad, Why::Length);
                }
                end = reaches.unwrap_or(end).min(end);
                (level.end, level.packet_end) = (end, end);
                udp::field::CHECKSUM.start
            }
            Kind::UdpLite => {
                let covered = u16_at(packet, start + udp_lite::field::COVERAGE.start).into();
                match covered {
                    0 => {}
                    udp_lite::HEADER_LEN.. if start + covered <= end => level.end = start + covered,
                    _ => (level.verdict, level.why) = (Verdict::Bad, Why::Length),
                }
                udp_lite::field::CHECKSUM.start
            }
            Kind::Sctp => sctp::field::CHECKSUM.start,
            Kind::Tcp => tcp::field::CHECKSUM.start,
            Kind::Icmp => ICMP_CHECKSUM,
            Kind::Gre => match checksum_at(packet, layer) {
                Some(at) => at,
                None => continue,
            },
            _ => continue,
        };
        if stack.stop == Stop::Fragment && end_of_fragment(layer, stack) {
            continue;
        }
        level.at = start + field;
        level.found = match level.width() {
            2 => u16_at(packet, level.at).into(),
            _ => u32_at(packet, level.at),
        };
        depth += usize::from(layer.kind != Kind::Ipv4);
        list.push(level);
    }
}

/// Returns the end that a length field declares. An inner end is limited by the ends of the headers around it, whereas
/// the outermost end may lie beyond the captured bytes.
fn within(declared: Option<usize>, end: usize, is_inside: bool) -> usize {
    declared.map_or(end, |declared| if is_inside { declared.min(end) } else { declared })
}

/// Returns whether a transport header is in the first of several fragments, so that its checksum also covers bytes in
/// the other fragments.
fn end_of_fragment(layer: &Layer, stack: &Stack) -> bool {
    layer.kind != Kind::Ipv4 && stack.last().is_some_and(|last| last.offset == layer.offset)
}

fn judge_one(
    packet: &[u8],
    stack: &Stack,
    claim: Claim,
    is_remote: bool,
    to_add: Sum,
    level: &mut Level,
) {
    let start = level.layer.offset as usize;
    let covered = packet.get(start..level.end).unwrap_or_default();
    let is_udp = level.layer.kind == Kind::Udp;
    if level.why == Why::Length {
        return;
    }
    if level.layer.kind == Kind::Sctp {
        return judge_crc(covered, claim, level);
    }
    let found = level.found as u16;
    let is_udp_lite = level.layer.kind == Kind::UdpLite;
    let is_missing = found == 0 && (is_udp_lite || is_udp && needs_checksum(stack, &level.layer));
    if is_udp && found == 0 && !is_missing {
        level.verdict = Verdict::ZeroUdp;
        return;
    }
    let seed = seed(packet, stack, level);
    let bytes = Sum::of(covered) + seed.unwrap_or(Sum::ZERO);
    let completed = bytes + to_add;
    let expected = completed.subtract(Sum::from_word(found)).checksum();
    let is_nonzero = is_udp || is_udp_lite;
    level.expected = Some(if is_nonzero { nonzero(expected) } else { expected }.into());
    if is_missing {
        (level.verdict, level.why) = (Verdict::Bad, Why::Missing);
        return;
    }
    let holds_seed = seed.is_some_and(|seed| seed.fold() == found);
    let is_open = holds_seed
        || ip_around(stack, &level.layer)
            .is_some_and(|ip| holds_seed_without_length(packet, &level.layer, ip));
    (level.verdict, level.why) = if is_remote {
        level.expected = seed.map(|seed| seed.fold().into());
        (if holds_seed { Verdict::Valid } else { Verdict::Bad }, Why::Remote)
    } else if completed.is_valid() {
        (Verdict::Valid, Why::Sum)
    } else if bytes.is_valid() {
        (Verdict::Valid, Why::Bytes)
    } else if is_open {
        (Verdict::Partial, Why::Seed)
    } else if claim == (Claim::Partial { at: level.at }) {
        (Verdict::Partial, Why::Told)
    } else if found == 0 && matches!(level.layer.kind, Kind::Ipv4 | Kind::Gre) {
        (Verdict::Partial, Why::Zero)
    } else {
        (Verdict::Bad, Why::Sum)
    };
}

/// Verifies the CRC32c of SCTP. Zero means that the checksum is left to a device. (RFC 9653 defines another meaning of
/// zero, which both endpoints must negotiate.)
fn judge_crc(covered: &[u8], claim: Claim, level: &mut Level) {
    let expected = crc32c(covered, sctp::field::CHECKSUM).swap_bytes();
    level.expected = Some(expected);
    (level.verdict, level.why) = if expected == level.found {
        (Verdict::Valid, Why::Sum)
    } else if claim == (Claim::Partial { at: level.at }) {
        (Verdict::Partial, Why::Told)
    } else if level.found == 0 {
        (Verdict::Partial, Why::Zero)
    } else {
        (Verdict::Bad, Why::Sum)
    };
}

/// Returns whether a UDP header must have a checksum. Over IPv6, only the UDP header of a tunnel may omit it (RFC 8200
/// section 8.1, RFC 6936).
fn needs_checksum(stack: &Stack, udp: &Layer) -> bool {
    let is_in_ipv6 = ip_around(stack, udp).is_some_and(|ip| ip.kind == Kind::Ipv6);
    is_in_ipv6 && stack.last().is_some_and(|last| last == *udp) && stack.stop == Stop::Payload
}

/// Returns the pseudo-header sum that belongs to a checksum; `None` if the checksum covers no pseudo-header.
fn seed(packet: &[u8], stack: &Stack, level: &Level) -> Option<Sum> {
    let ip = ip_around(stack, &level.layer)?;
    let protocol = match level.layer.kind {
        Kind::Tcp => ipv4::PROTOCOL_TCP,
        Kind::Udp => ipv4::PROTOCOL_UDP,
        Kind::UdpLite => udp_lite::PROTOCOL,
        Kind::Icmp if ip.kind == Kind::Ipv6 => PROTOCOL_ICMPV6,
        _ => return None,
    };
    let len = level.packet_end.saturating_sub(level.layer.offset as usize);
    Some(pseudo(packet, ip, protocol, len))
}

/// Returns the IP header that immediately encloses a header.
fn ip_around<'a>(stack: &'a Stack, layer: &Layer) -> Option<&'a Layer> {
    stack.layers().iter().rfind(|around| around.offset < layer.offset && is_ip(around))
}

fn place(layer: &Layer) -> (usize, u8) {
    if layer.kind == Kind::Tcp {
        (tcp::field::CHECKSUM.start, ipv4::PROTOCOL_TCP)
    } else {
        (udp::field::CHECKSUM.start, ipv4::PROTOCOL_UDP)
    }
}

fn checksum_at(packet: &[u8], layer: &Layer) -> Option<usize> {
    let header = packet.get(layer.offset.into()..layer.end())?;
    layer.kind.spec().checksum(header).map(|(at, _)| at)
}

/// Returns where a header delegates a checksum to the receiver: the start of the covered bytes, and the offset of the
/// checksum.
fn remote_checksum(packet: &[u8], stack: &Stack) -> Option<(usize, usize)> {
    stack.layers().iter().find_map(|layer| {
        let read = layer.kind.spec().remote_checksum?;
        let remote = read(packet.get(layer.offset.into()..layer.end())?)?;
        let place = |from_end: usize| from_end.checked_add(layer.end());
        Some((place(remote.start)?, place(remote.at)?))
    })
}

const ICMP_CHECKSUM: usize = 2;
/// Number of PPPoE header bytes that the length field does not count (RFC 2516 section 4).
const PPPOE_UNCOUNTED: usize = 6;
const PROTOCOL_ICMPV6: u8 = 58;

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
