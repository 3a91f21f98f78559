//! Examination of a packet independently of any train, to decide whether it can be merged at all.

use grosso_checksum::Sum;
use grosso_wire::{Extent, Kind, Ports, Stack, Stop, geneve, gre, ipv4, tcp, udp};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    coalesce::{
        emit::reason::Pass,
        profile::{Options, Profile},
        rx::{policy::Policy, shapes::CachedStack},
    },
    meta::{Cwr, IpLevels, Meta},
    segment::IP_LEVELS_MAX,
    template::{
        render::pseudo_of,
        shape::{Covering, Shape},
    },
};

/// Packet that may be appended to a train or start one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) payload_len: usize,
    /// Low byte of the TCP flags; zero for UDP.
    pub(crate) flags: u8,
    /// Number of wire packets that the frame represents.
    pub(crate) packets: u16,
    /// Payload length in bytes of every packet except the last, which may be shorter.
    pub(crate) size: u16,
    /// Whether the last segment is shorter than the others, so that no packet may follow it.
    pub(crate) short_tail: bool,
    /// Whether the checksum is partial.
    pub(crate) partial: bool,
    /// IP levels at which a superframe has fixed identifications.
    pub(crate) fixed_ids: IpLevels,
}

/// Returns the reason why a packet cannot be merged. Its headers must not end in TCP or UDP, or must contradict the
/// length of the frame.
pub(crate) fn refusal_of_stack(stack: &Stack) -> Pass {
    match stack.stop {
        Stop::Fragment => Pass::Fragment,
        Stop::Encrypted => Pass::Encrypted,
        Stop::Truncated => Pass::Truncated,
        Stop::Malformed => Pass::Malformed,
        Stop::TooDeep => Pass::TooDeep,
        Stop::Payload | Stop::Unknown if ends_in_transport(stack) => match stack.extent {
            Extent::Padded => Pass::Padded,
            Extent::Jumbo => Pass::LengthZero,
            Extent::Short | Extent::Exact => Pass::Short,
        },
        _ => {
            let is_ip = |kind| matches!(kind, Kind::Ipv4 | Kind::Ipv6);
            let has_ip = stack.layers().iter().any(|layer| is_ip(layer.kind));
            if has_ip { Pass::Protocol } else { Pass::NotIp }
        }
    }
}

/// Returns whether the innermost header is TCP or UDP.
#[inline]
pub(crate) fn ends_in_transport(stack: &Stack) -> bool {
    let kind = stack.last().map(|layer| layer.kind);
    stack.stop == Stop::Payload && matches!(kind, Some(Kind::Tcp | Kind::Udp))
}

/// Returns the reason why packets with these headers can never be merged, whatever the values of the varying fields.
pub(crate) fn refusal_of_headers(
    packet: &[u8],
    stack: &Stack,
    shape: &Shape,
    ports: &Ports,
    profile: &Profile,
) -> Option<Pass> {
    for layer in stack.layers() {
        let start = layer.offset as usize;
        match layer.kind {
            Kind::Ipv4 if layer.len as usize != ipv4::HEADER_LEN => return Some(Pass::Ipv4Options),
            Kind::Ipv6Fragment => return Some(Pass::Fragment),
            Kind::Ipv6Extension if !profile.extension_headers => {
                return Some(Pass::Ipv6Extension);
            }
            Kind::Gre => {
                let flags = u16_at(packet, start + gre::field::FLAGS.start);
                if flags & !(gre::FLAG_CHECKSUM | gre::FLAG_KEY) != 0 {
                    return Some(Pass::GreFlags);
                }
            }
            Kind::Geneve if packet.get(start + 1).is_some_and(|b| b & geneve::CONTROL != 0) => {
                return Some(Pass::GeneveControl);
            }
            _ => {}
        }
    }
    // Merged packets must remain segmentable (rule S4).
    let ip_levels_max = (usize::from(profile.tunnels_max) + 1).min(IP_LEVELS_MAX);
    if shape.ip_levels > ip_levels_max {
        return Some(Pass::TunnelLevels);
    }
    if shape.is_tcp && !profile.tcp {
        return Some(Pass::TcpOff);
    }
    if !shape.is_tcp {
        let port = u16_at(packet, shape.transport + udp::field::DESTINATION_PORT.start);
        if port == ports.port(Kind::Esp) && port != 0 {
            // This is a keepalive or a key exchange, which must stay in order with the encrypted packets around it
            // (rule T9).
            return Some(Pass::Encrypted);
        }
        if !profile.udp {
            return Some(Pass::UdpOff);
        }
    }
    refusal_of_remote_checksum(shape)
}

/// Checks that a remote checksum is that of the transport header, and that the tunnel around it can have a checksum
/// (rules C54, C55).
fn refusal_of_remote_checksum(shape: &Shape) -> Option<Pass> {
    let remote = shape.remote_checksum?;
    let transport = shape.covers.last()?;
    let agrees = (remote.start, remote.at) == (transport.start as usize, transport.at as usize);
    (!agrees).then_some(Pass::RemoteChecksum)
}

/// Returns whether all length fields agree that the packet ends where the frame does. In a superframe, a length that
/// does not fit its field may be zero.
#[inline(always)]
pub(crate) fn lengths_agree(packet: &[u8], shape: &Shape, meta: &Meta) -> bool {
    for length in &shape.lengths {
        let end = length.from as usize + u16_at(packet, length.at as usize) as usize;
        if end != packet.len() {
            return meta.gso.is_some() && lengths_of_superframe_agree(packet, shape);
        }
    }
    true
}

/// Returns whether the nonzero length fields of a superframe agree with its length.
#[cold]
#[inline(never)]
fn lengths_of_superframe_agree(packet: &[u8], shape: &Shape) -> bool {
    shape.lengths.iter().all(|length| {
        let value = u16_at(packet, length.at as usize);
        let end = length.from as usize + value as usize;
        end == packet.len() || value == 0
    })
}

/// Examines a packet with known headers whose length fields agree with the frame, under the rules of a policy.
#[inline(always)]
pub(crate) fn examine<P: Policy>(
    packet: &[u8],
    known: &CachedStack,
    meta: &Meta,
) -> Result<Candidate, Pass> {
    if let Some(reason) = known.refusal {
        return Err(reason);
    }
    let (shape, rules) = (&known.shape, P::rules(known));
    let candidate = examine_alone(packet, shape, meta, rules.acknowledgments.join_trains())?;
    if candidate.flags & rules.flags_alone != 0 {
        return Err(Pass::TcpFlags);
    }
    if rules.congestion_alone && congestion_experienced(packet, shape) {
        return Err(Pass::Congestion);
    }
    if rules.options == Options::TimestampOnly && !known.has_timestamp_only {
        return Err(Pass::TcpOptions);
    }
    // A train that is not invertible would lose the superframe's segmentation parameters.
    match meta.gso {
        Some(_) if !P::is_invertible(known) => Err(Pass::Superframe),
        _ => Ok(candidate),
    }
}

/// Returns whether the innermost IP header is marked CE.
fn congestion_experienced(packet: &[u8], shape: &Shape) -> bool {
    traffic_class(packet, shape) & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED
}

/// Returns the TOS or traffic class of the innermost IP header.
pub(crate) fn traffic_class(packet: &[u8], shape: &Shape) -> u8 {
    let word = u16_at(packet, shape.ip.offset as usize);
    if shape.ip.kind == Kind::Ipv6 { (word >> 4) as u8 } else { word as u8 }
}

/// Examines a packet under the rules common to all policies. `takes_empty` says whether packets without payload may
/// merge.
#[inline(always)]
pub(crate) fn examine_alone(
    packet: &[u8],
    shape: &Shape,
    meta: &Meta,
    takes_empty: bool,
) -> Result<Candidate, Pass> {
    check_ipv4_headers(packet, shape)?;
    let mut flags = 0;
    if let Some(at) = shape.flags {
        flags = packet.get(at as usize).copied().unwrap_or(0);
        if flags & (tcp::SYN | tcp::RST | tcp::URG) as u8 != 0 {
            return Err(refusal_of_flags(flags));
        }
    }
    let payload_len = packet.len() - shape.header_len;
    if payload_len == 0 && !takes_empty {
        return Err(Pass::Empty);
    }
    let partial = verify(packet, shape, &meta.checksum)?;
    match meta.gso {
        None => {
            let size = u16::try_from(payload_len).map_err(|_| Pass::LengthZero)?;
            let fixed_ids = IpLevels::NONE;
            Ok(Candidate {
                payload_len,
                flags,
                packets: 1,
                size,
                short_tail: false,
                partial,
                fixed_ids,
            })
        }
        Some(_) => superframe(shape, meta, payload_len, flags, partial),
    }
}

/// Returns a superframe as a candidate that represents several packets, if its geometry is valid (rules G8, G77).
#[cold]
fn superframe(
    shape: &Shape,
    meta: &Meta,
    payload_len: usize,
    flags: u8,
    partial: bool,
) -> Result<Candidate, Pass> {
    let gso = meta.gso.ok_or(Pass::Superframe)?;
    let size = gso.size().ok_or(Pass::Superframe)?;
    let packets =
        u16::try_from(payload_len.div_ceil(size as usize)).map_err(|_| Pass::Superframe)?;
    let cwr_on_first = flags & tcp::CWR as u8 != 0 && gso.cwr == Cwr::First;
    if gso.untrusted || !shape.is_tcp || packets < 2 || gso.segments != packets || cwr_on_first {
        return Err(Pass::Superframe);
    }
    let short_tail = !payload_len.is_multiple_of(size as usize);
    let partial = if partial { gso.partial_members } else { partial };
    Ok(Candidate {
        payload_len,
        flags,
        packets,
        size,
        short_tail,
        partial,
        fixed_ids: gso.fixed_ids,
    })
}

#[cold]
fn refusal_of_flags(flags: u8) -> Pass {
    if flags & tcp::SYN as u8 != 0 {
        Pass::TcpSynchronize
    } else if flags & tcp::RST as u8 != 0 {
        Pass::TcpReset
    } else {
        Pass::TcpUrgent
    }
}

/// Verifies a packet's checksums in the same way as [`examine`]. The headers must have been examined.
#[inline(always)]
pub(crate) fn verify_all(packet: &[u8], shape: &Shape, state: &Checksum) -> Result<bool, Pass> {
    check_ipv4_headers(packet, shape)?;
    verify(packet, shape, state)
}

#[inline(always)]
fn check_ipv4_headers(packet: &[u8], shape: &Shape) -> Result<(), Pass> {
    for ip in &shape.identifications {
        check_ipv4(packet, ip.header as usize)?;
    }
    Ok(())
}

#[inline(always)]
fn check_ipv4(packet: &[u8], start: usize) -> Result<(), Pass> {
    let header = packet.get(start..).and_then(|rest| rest.first_chunk::<{ ipv4::HEADER_LEN }>());
    let Some(header) = header else { return Err(Pass::Truncated) };
    if !Sum::of(header).is_valid() {
        return Err(Pass::Ipv4Checksum);
    }
    if u16_at(header, ipv4::field::FRAGMENT.start) & RESERVED_BIT != 0 {
        return Err(Pass::Ipv4ReservedBit);
    }
    // The complement of a header sum is never all ones, so segmentation would not reproduce this value.
    if u16_at(header, ipv4::field::CHECKSUM.start) == 0xffff {
        return Err(Pass::ChecksumForm);
    }
    Ok(())
}

/// Verifies every checksum that has not been verified yet, and returns whether the innermost one is partial.
///
/// The payload is read at most once: an outer sum is the inner sum plus the header bytes in between (rules C20 to C22,
/// C30). Checksums that segmentation would write differently are refused.
#[inline(always)]
pub(crate) fn verify(packet: &[u8], shape: &Shape, state: &Checksum) -> Result<bool, Pass> {
    let Some((transport, tunnels)) = shape.covers.split_last() else {
        debug_assert!(false, "TCP and UDP have a checksum");
        return Err(Pass::Checksum);
    };
    let field = u16_at(packet, transport.at as usize);
    if transport.zero_means_none && field == 0 {
        return Err(Pass::ChecksumNone);
    }
    if let Checksum::Partial { start, offset } = *state {
        if (start, start.wrapping_add(offset)) != (transport.start, transport.at) {
            return Err(Pass::ChecksumPartial);
        }
        return is_seed(packet, transport).then_some(true).ok_or(Pass::ChecksumForm);
    }
    if shape.remote_checksum.is_some() {
        if !is_seed(packet, transport) {
            return Err(Pass::ChecksumForm);
        }
    } else if !transport.zero_means_none && field == 0xffff {
        // The sum is never zero, so its complement is never all ones.
        return Err(Pass::ChecksumForm);
    }
    if tunnels.is_empty() {
        if !matches!(state, Checksum::Unnecessary { .. }) {
            let behind = sum_behind(packet, shape, state);
            if !is_valid(packet, transport, behind) {
                return Err(Pass::Checksum);
            }
        }
        return Ok(false);
    }
    verify_tunnels(packet, shape, transport, tunnels, state)?;
    Ok(false)
}

/// Works like [`verify`], but is not inlined, for rare checksum states.
#[inline(never)]
pub(crate) fn verify_apart(packet: &[u8], shape: &Shape, state: &Checksum) -> Result<bool, Pass> {
    verify(packet, shape, state)
}

#[inline(never)]
fn verify_tunnels(
    packet: &[u8],
    shape: &Shape,
    transport: &Covering,
    tunnels: &[Covering],
    state: &Checksum,
) -> Result<(), Pass> {
    let present =
        |tunnel: &&Covering| !(tunnel.zero_means_none && u16_at(packet, tunnel.at as usize) == 0);
    let count = tunnels.iter().filter(present).count();
    let remote = shape.remote_checksum.is_some();
    if remote && count == 0 {
        // No checksum protects the packet, so its inner checksum must not be completed (rule C54).
        return Err(Pass::RemoteChecksum);
    }
    let all_ones = |tunnel: &Covering| u16_at(packet, tunnel.at as usize) == 0xffff;
    if tunnels.iter().any(|tunnel| !tunnel.zero_means_none && all_ones(tunnel)) {
        return Err(Pass::ChecksumForm);
    }
    let verified = match state {
        Checksum::Unnecessary { levels } => usize::from(*levels) + 1,
        _ => 0,
    };
    if verified >= count + usize::from(!remote) {
        return Ok(());
    }
    let between = |tunnel: &Covering| {
        packet.get(tunnel.start as usize..shape.transport).map_or(Sum::ZERO, Sum::of)
    };
    let behind = match tunnels.iter().filter(present).take(verified).last() {
        // A correct checksum determines the sum of everything it covers, so the payload need not be read.
        Some(tunnel) => Sum::ZERO.subtract(pseudo(packet, tunnel) + between(tunnel)),
        None => sum_behind(packet, shape, state),
    };
    if !remote && !is_valid(packet, transport, behind) {
        return Err(Pass::Checksum);
    }
    for tunnel in tunnels.iter().filter(present).skip(verified) {
        if !is_valid(packet, tunnel, behind + between(tunnel)) {
            return Err(Pass::Checksum);
        }
    }
    Ok(())
}

/// Returns the sum of the transport header and all bytes after it, computed from the bytes or derived from the device's
/// sum.
#[inline]
fn sum_behind(packet: &[u8], shape: &Shape, state: &Checksum) -> Sum {
    match state {
        Checksum::Complete { sum } => {
            let before = packet.get(shape.network..shape.transport).map_or(Sum::ZERO, Sum::of);
            Sum::from_word(*sum).subtract(before)
        }
        _ => packet.get(shape.transport..).map_or(Sum::ZERO, Sum::of),
    }
}

#[inline]
fn is_valid(packet: &[u8], covering: &Covering, sum: Sum) -> bool {
    (sum + pseudo(packet, covering)).is_valid()
}

#[inline]
fn is_seed(packet: &[u8], covering: &Covering) -> bool {
    u16_at(packet, covering.at as usize) == pseudo(packet, covering).fold()
}

#[inline]
fn pseudo(packet: &[u8], covering: &Covering) -> Sum {
    pseudo_of(covering, packet, packet.len() - covering.start as usize)
}

const RESERVED_BIT: u16 = 0x8000;

/// ECN codepoint CE (RFC 3168 section 5).
const CONGESTION_EXPERIENCED: u8 = 3;
