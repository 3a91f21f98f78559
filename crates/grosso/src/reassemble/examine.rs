//! Examination of a single frame: whether it is a fragment that can be reassembled, and to which datagram it belongs.

use core::ops::Range;

use grosso_checksum::Sum;
use grosso_wire::{Extent, Kind, Layer, Stack, Stop, ipv4, ipv6, ipv6_fragment};

use crate::{
    bytes::{byte_at, u16_at, u32_at, u64_at},
    checksum::Checksum,
    first_fragment::{BrokenChain, TCP_FLAGS_END, transport_of},
    meta::Meta,
    reassemble::{
        identity::{Flow, Key},
        reason::{Discard, IcmpError, Pass},
        rules::{Overlap, ReassemblyRules},
    },
    template::HEADER_BYTES_MAX,
};

/// Fragment that was examined and found valid.
#[derive(Clone, Debug)]
pub(crate) struct ArrivedFragment {
    pub(crate) is_ipv6: bool,
    /// Range of the data in the frame.
    pub(crate) data: Range<u32>,
    /// Offset of the data in the datagram.
    pub(crate) offset: u32,
    /// Whether more fragments follow.
    pub(crate) more: bool,
    /// Offset of the IP header in the frame.
    pub(crate) ip: u16,
    /// Number of headers before the IP header of the fragment.
    pub(crate) outside: usize,
    pub(crate) ecn: u8,
    pub(crate) dont_fragment: bool,
    /// Flow, if the frame is the first fragment.
    pub(crate) flow: Option<Flow>,
    /// Sum of the data, if the device supplied it.
    pub(crate) sum: Option<Sum>,
}

impl ArrivedFragment {
    pub(crate) fn len(&self) -> u32 {
        self.data.end - self.data.start
    }

    pub(crate) fn end(&self) -> u32 {
        self.offset + self.len()
    }

    pub(crate) fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Returns the length of the IP header and the data in bytes.
    pub(crate) fn size(&self) -> u32 {
        self.data.end - u32::from(self.ip)
    }
}

/// Reason why a frame is not reassembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The frame passes through unchanged.
    Pass(Pass),
    /// The frame is discarded, and an ICMP error may be sent.
    Discard { reason: Discard, error: Option<IcmpError>, ip: u16 },
}

impl From<Pass> for Refusal {
    fn from(reason: Pass) -> Self {
        Self::Pass(reason)
    }
}

/// Reads the outermost fragment header of a frame. Ignores one inside a tunnel unless fragments in tunnels are
/// reassembled. The returned key identifies the datagram, but does not include the outer headers.
pub(crate) fn examine(
    packet: &[u8],
    stack: &Stack,
    meta: &Meta,
    rules: &ReassemblyRules,
) -> Result<(Key, ArrivedFragment), Refusal> {
    let layers = stack.layers();
    let is_joined = |layers: &[Layer]| {
        rules.in_tunnels || layers.iter().filter(|layer| layer.kind.is_ip()).count() <= 1
    };
    let Some(last) = stack.last().filter(|_| stack.stop == Stop::Fragment) else {
        let fragment = layers.iter().position(|layer| layer.kind == Kind::Ipv6Fragment);
        return match fragment.map(|place| &layers[..=place]) {
            Some(layers) if is_joined(layers) && stack.extent != Extent::Short => {
                atomic(packet, layers, meta)
            }
            Some(layers) if is_joined(layers) => Err(Pass::Truncated.into()),
            _ => Err(Pass::Whole.into()),
        };
    };
    if !is_joined(layers) {
        return Err(Pass::Whole.into());
    }
    if stack.extent == Extent::Short || stack.end as usize > packet.len() {
        return Err(Pass::Truncated.into());
    }
    if last.end() > HEADER_BYTES_MAX {
        return Err(Pass::HeaderTooLong.into());
    }
    let data = last.end() as u32..stack.end;
    let (key, mut arrival) = if last.kind == Kind::Ipv4 {
        ipv4(packet, layers, &last, data, rules.overlap != Overlap::Linux)?
    } else {
        ipv6(packet, layers, &last, data)?
    };
    if let Checksum::Complete { sum } = meta.checksum {
        arrival.sum = Some(sum_of_data(packet, layers, &arrival.data, sum));
    }
    Ok((key, arrival))
}

/// Reads an atomic fragment, whose header is the last of `layers`. An atomic fragment is a whole datagram and is
/// independent of other fragments with the same identification (RFC 6946 section 4, rule F30). If the metadata requests
/// an offload at an offset in the frame, the fragment header must be kept, because removing it would change that
/// offset.
fn atomic(packet: &[u8], layers: &[Layer], meta: &Meta) -> Result<(Key, ArrivedFragment), Refusal> {
    let is_finished = !matches!(meta.checksum, Checksum::Partial { .. }) && meta.gso.is_none();
    let fragment = layers.last().copied().unwrap_or_default();
    let ip = layers.iter().rfind(|layer| layer.kind == Kind::Ipv6).copied().unwrap_or_default();
    let field = usize::from(ip.offset) + ipv6::field::PAYLOAD_LENGTH.start;
    let end = ip.end() + usize::from(u16_at(packet, field));
    if fragment.end() > HEADER_BYTES_MAX {
        return Err(Pass::HeaderTooLong.into());
    }
    let data = fragment.end() as u32..end as u32;
    if !is_finished || data.is_empty() {
        return Err(Pass::Atomic.into());
    }
    let (mut key, mut arrival) = match ipv6(packet, layers, &fragment, data) {
        Err(Refusal::Discard { reason: Discard::HeaderChain, .. }) => {
            return Err(Pass::Atomic.into());
        }
        read => read?,
    };
    key.is_atomic = true;
    if let Checksum::Complete { sum } = meta.checksum {
        arrival.sum = Some(sum_of_data(packet, layers, &arrival.data, sum));
    }
    Ok((key, arrival))
}

fn ipv4(
    packet: &[u8],
    layers: &[Layer],
    ip: &Layer,
    data: Range<u32>,
    refuses_tiny: bool,
) -> Result<(Key, ArrivedFragment), Refusal> {
    let start = ip.offset as usize;
    if u16_at(packet, start + ipv4::field::TOTAL_LENGTH.start) == 0 {
        return Err(Pass::LengthZero.into());
    }
    let header = packet.get(start..ip.end()).unwrap_or_default();
    if !Sum::of(header).is_valid() {
        return Err(Pass::Ipv4Checksum.into());
    }
    let word = u16_at(header, ipv4::field::FRAGMENT.start);
    let protocol = byte_at(header, ipv4::field::PROTOCOL.start);
    let offset = u32::from(word & ipv4::OFFSET_MASK) * 8;
    let len = data.end - data.start;
    let discard = |reason| Refusal::Discard { reason, error: None, ip: ip.offset };
    // RFC 3128: a fragment that starts inside the TCP header serves only to hide it. RFC 1858 section 3.2: a filter
    // must see the flags. Linux does reassemble such fragments.
    let is_tiny = offset == 0 && len < TCP_FLAGS_END || offset == 8;
    if refuses_tiny && protocol == ipv4::PROTOCOL_TCP && is_tiny && len > 0 {
        return Err(discard(Discard::TinyFragment));
    }
    let key = Key {
        addresses: [u64_at(header, ipv4::field::SOURCE.start), 0, 0, 0],
        identification: u16_at(header, ipv4::field::IDENTIFICATION.start).into(),
        protocol,
        is_ipv6: false,
        is_atomic: false,
        outside: 0,
    };
    let flow = (offset == 0).then(|| flow(protocol, 0, packet, &data));
    let arrival = ArrivedFragment {
        is_ipv6: key.is_ipv6,
        data,
        offset,
        more: word & ipv4::MORE_FRAGMENTS != 0,
        ip: ip.offset,
        outside: layers.len() - 1,
        ecn: byte_at(header, ipv4::field::TOS.start) & 3,
        dont_fragment: word & ipv4::DONT_FRAGMENT != 0,
        flow,
        sum: None,
    };
    Ok((key, arrival))
}

fn ipv6(
    packet: &[u8],
    layers: &[Layer],
    fragment: &Layer,
    data: Range<u32>,
) -> Result<(Key, ArrivedFragment), Refusal> {
    let place = layers.iter().rposition(|layer| layer.kind == Kind::Ipv6).unwrap_or(0);
    let ip = layers.get(place).copied().unwrap_or_default();
    let problem = |reason, code, pointer: usize| Refusal::Discard {
        reason,
        error: Some(IcmpError::ParameterProblem { code, pointer: pointer as u32 }),
        ip: ip.offset,
    };
    let fragment_start = fragment.offset as usize;
    let in_packet = fragment_start - ip.offset as usize;
    let between = layers.get(place + 1..layers.len() - 1).unwrap_or_default();
    if between.iter().any(|layer| layer.kind == Kind::Ipv6Fragment) {
        return Err(problem(Discard::SecondFragmentHeader, 0, in_packet));
    }
    let header = packet.get(ip.offset as usize..).unwrap_or_default();
    if u16_at(header, ipv6::field::PAYLOAD_LENGTH.start) == 0 {
        return Err(problem(Discard::PayloadLengthZero, 0, in_packet));
    }
    let word = u16_at(packet, fragment_start + ipv6_fragment::field::FRAGMENT.start);
    let offset = u32::from(word & ipv6_fragment::OFFSET_MASK);
    let mut told = None;
    if offset == 0 && !data.is_empty() {
        let next = byte_at(packet, fragment_start);
        let bytes = packet.get(data.start as usize..data.end as usize).unwrap_or_default();
        let (protocol, transport) = transport_of(next, bytes).map_err(|end| match end {
            BrokenChain::Truncated => problem(Discard::HeaderChain, 3, 0),
            BrokenChain::Fragment(at) => {
                let pointer = in_packet + ipv6_fragment::HEADER_LEN + at;
                problem(Discard::SecondFragmentHeader, 0, pointer)
            }
        })?;
        told = Some(flow(protocol, transport, packet, &data));
    }
    let word_at = |at| u64_at(header, ipv6::field::SOURCE.start + at);
    let key = Key {
        addresses: [word_at(0), word_at(8), word_at(16), word_at(24)],
        identification: u32_at(packet, fragment_start + ipv6_fragment::field::IDENTIFICATION.start),
        // The next header is not part of the key (rule F1).
        protocol: 0,
        is_ipv6: true,
        is_atomic: false,
        outside: 0,
    };
    let arrival = ArrivedFragment {
        is_ipv6: key.is_ipv6,
        data,
        offset,
        more: word & ipv6_fragment::MORE_FRAGMENTS != 0,
        ip: ip.offset,
        outside: place,
        ecn: byte_at(header, 1) >> 4 & 3,
        dont_fragment: false,
        flow: told,
        sum: None,
    };
    Ok((key, arrival))
}

/// Returns the flow of a datagram, given its first fragment.
fn flow(protocol: u8, transport: usize, packet: &[u8], data: &Range<u32>) -> Flow {
    let at = data.start as usize + transport;
    let is_there = at + 4 <= data.end as usize;
    let ports = (is_there && PROTOCOLS_WITH_PORTS.contains(&protocol))
        .then(|| [u16_at(packet, at), u16_at(packet, at + 2)]);
    Flow { protocol, transport: transport as u16, ports }
}

/// Returns the sum of a frame's data, derived from the sum of everything after the link-layer header. All headers in
/// between have an even length (rule C22).
fn sum_of_data(packet: &[u8], layers: &[Layer], data: &Range<u32>, sum: u16) -> Sum {
    let network = layers.iter().find(|layer| layer.kind.is_ip());
    let network = network.map_or(0, |layer| layer.offset as usize);
    let (start, end) = (data.start as usize, data.end as usize);
    let before = packet.get(network..start).map_or(Sum::ZERO, Sum::of);
    let behind = packet.get(end..).map_or(Sum::ZERO, Sum::of);
    let behind = if (end - start) % 2 == 1 { behind.at_odd_offset() } else { behind };
    Sum::from_word(sum).subtract(before).subtract(behind)
}

/// Protocols whose header starts with ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const PROTOCOLS_WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
