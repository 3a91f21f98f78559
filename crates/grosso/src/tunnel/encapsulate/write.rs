//! Writing of tunnel headers, outermost first.

use alloc::vec::Vec;

use grosso_wire::{
    Kind, ethernet, geneve, gre, gue, ipv4, ipv6, ipv6_extension, udp, vxlan, zerocopy::IntoBytes,
};

use super::{
    inside::{ADDRESSES_LEN, Inside},
    reason::Refusal,
    remote::Remote,
};
use crate::{
    bytes::put_u16,
    tunnel::{
        Carrier, DontFragment, Dscp, Endpoint, Header, TimeToLive,
        outer::{FLOW_LABEL_MASK, Fields, OuterEnds},
    },
};

/// Header field values that cannot be derived from the endpoint and the inner packet alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Hash of the packet's flow.
    pub(super) flow: u64,
    /// Whether routers must not fragment the packet.
    pub(super) is_atomic: bool,
    pub(super) identification: u16,
    pub(super) sequence: u32,
}

/// Offsets of the headers that need a checksum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// Offset of the UDP header, if it needs a checksum.
    pub(super) udp: Option<usize>,
    /// Offset of the GRE header, if it needs a checksum.
    pub(super) gre: Option<usize>,
    /// Whether the receiver completes the inner checksum.
    pub(super) is_remote: bool,
}

/// Writes the headers, with zero in their checksum fields.
pub(super) fn write(
    endpoint: &Endpoint,
    ends: &OuterEnds,
    inside: &Inside,
    head: &[u8],
    remote: Option<Remote>,
    numbers: &Numbers,
    header: &mut Vec<u8>,
) -> Result<Written, Refusal> {
    header.clear();
    header.resize(ends.header_len(), 0);
    let protocol = match (&endpoint.header, inside.kind) {
        (Header::Gre { .. }, _) => ipv4::PROTOCOL_GRE,
        (_, Kind::Ipv4) => ipv4::PROTOCOL_IPV4,
        _ => ipv4::PROTOCOL_IPV6,
    };
    let mut written = Written::default();
    let outer_protocol = match &endpoint.carrier {
        Carrier::Ip => write_limit(endpoint, inside, protocol, header)?,
        _ => ipv4::PROTOCOL_UDP,
    };
    let udp_at = header.len();
    if let Some(udp) = endpoint.udp() {
        let ports = [source_port(endpoint, numbers.flow), udp.destination, 0, 0];
        header.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        written.udp = udp.checksum.then_some(udp_at);
    }
    if let Carrier::Gue(udp) = &endpoint.carrier {
        let remote = remote.filter(|_| udp.remote_checksum.transmit);
        written.is_remote = write_gue(endpoint, protocol, remote, header);
    }
    match &endpoint.header {
        Header::Ip => {}
        Header::Gre { key, checksum, sequence, .. } => {
            written.gre = checksum.then_some(header.len());
            let sequence = sequence.then_some(numbers.sequence);
            write_gre(*key, *checksum, sequence, ethertype(inside.kind), header);
        }
        Header::Vxlan { identifier, policy, generic_protocol } => {
            let does_remote = endpoint.udp().is_some_and(|udp| udp.remote_checksum.transmit);
            let remote = remote.filter(|_| does_remote);
            let next = generic_protocol.then_some(inside.kind);
            written.is_remote = write_vxlan(*identifier, *policy, next, remote, header);
        }
        Header::Geneve { identifier, options, .. } => {
            write_geneve(*identifier, options, ethertype(inside.kind), header);
        }
    }
    if let Some(tag) = inside.tag {
        header.extend_from_slice(head.get(..ADDRESSES_LEN).unwrap_or_default());
        header.extend([tag.protocol, tag.tci].iter().flat_map(|word| word.to_be_bytes()));
    }

    let payload_len = header.len() - ends.header_len() + inside.len();
    let fits = ends.counted_len() + payload_len <= LENGTH_MAX;
    // Only an IP header may omit the length of a superframe (rules G50, G63, T13).
    let is_open = inside.is_superframe && matches!(endpoint.carrier, Carrier::Ip);
    if !fits && !is_open {
        return Err(Refusal::TooLong);
    }
    if endpoint.udp().is_some() {
        let len = header.len() - udp_at + inside.len();
        put_u16(header, udp_at + udp::field::LENGTH.start, len as u16);
    }
    let fields = fields(endpoint, inside, numbers, outer_protocol, payload_len);
    ends.emit(&mut header[..ends.header_len()], &fields);
    Ok(written)
}

/// Returns the fields of the outermost header (rules W1, W3).
fn fields(
    endpoint: &Endpoint,
    inside: &Inside,
    numbers: &Numbers,
    protocol: u8,
    payload_len: usize,
) -> Fields {
    let inner = inside.network.as_ref();
    let class = inner.map_or(0, |inner| inner.traffic_class);
    let dscp = match endpoint.dscp {
        Dscp::Fixed(dscp) => dscp,
        Dscp::Inherit => class >> 2,
    };
    let hop_limit = match (endpoint.ttl, inner) {
        (TimeToLive::Fixed(ttl), _) => ttl,
        (TimeToLive::Inherit, Some(inner)) => inner.hop_limit,
        (TimeToLive::Inherit, None) => HOP_LIMIT,
    };
    Fields {
        traffic_class: dscp << 2 | endpoint.congestion.entering(class),
        flow_label: endpoint.flow_label.unwrap_or(numbers.flow as u32 & FLOW_LABEL_MASK),
        hop_limit,
        identification: numbers.identification,
        dont_fragment: numbers.is_atomic,
        protocol,
        payload_len,
    }
}

/// Returns whether routers must not fragment the packet, according to the endpoint's configuration (rule W3).
pub(super) fn dont_fragment(endpoint: &Endpoint, inside: &Inside) -> bool {
    match endpoint.dont_fragment {
        DontFragment::Unset | DontFragment::Ignored => false,
        DontFragment::Set => true,
        DontFragment::Inherit => {
            let is_virtual =
                matches!(endpoint.header, Header::Vxlan { .. } | Header::Geneve { .. });
            inside.network.is_some_and(|inner| inner.dont_fragment.unwrap_or(is_virtual))
        }
    }
}

/// Writes the destination options with the encapsulation limit, if one is configured (RFC 2473 section 4.1.1, rule
/// W61). Returns the protocol number for the IP header.
fn write_limit(
    endpoint: &Endpoint,
    inside: &Inside,
    protocol: u8,
    header: &mut Vec<u8>,
) -> Result<u8, Refusal> {
    let left = match inside.encapsulation_limit {
        Some(limit) if endpoint.local.is_ipv6() => {
            Some(limit.checked_sub(1).ok_or(Refusal::EncapsulationLimit)?)
        }
        _ => None,
    };
    let Some(limit) = endpoint.encapsulation_limit else { return Ok(protocol) };
    let [limit_kind, padding] =
        [ipv6_extension::OPTION_ENCAPSULATION_LIMIT, ipv6_extension::OPTION_PADN];
    header.extend([protocol, 0, limit_kind, 1, left.unwrap_or(limit), padding, 1, 0]);
    Ok(ipv6::NEXT_DESTINATION_OPTIONS)
}

/// Writes a GUE header according to rules W20, W23 and C51. Returns whether the receiver completes a checksum.
fn write_gue(
    endpoint: &Endpoint,
    protocol: u8,
    remote: Option<Remote>,
    header: &mut Vec<u8>,
) -> bool {
    let gre_len = match &endpoint.header {
        // The GRE checksum would have to be valid both before and after the inner checksum is completed.
        Header::Gre { checksum: true, .. } => None,
        Header::Gre { key, sequence, .. } => {
            let optional = [key.is_some(), *sequence];
            Some(gre::HEADER_LEN + 4 * optional.into_iter().filter(|is| *is).count())
        }
        _ => Some(0),
    };
    let places = remote.zip(gre_len).and_then(|(remote, gre_len)| {
        let start = remote.start.checked_add(gre_len as u16)?;
        Some([start, start.checked_add(remote.offset)?])
    });
    let (words, flags) = if places.is_some() { (2, gue::FLAG_PRIVATE) } else { (0, 0) };
    header.extend([words, protocol]);
    header.extend(flags.to_be_bytes());
    if let Some(places) = places {
        header.extend(gue::PRIVATE_FLAG_REMOTE_CHECKSUM.to_be_bytes());
        header.extend(places.iter().flat_map(|place| place.to_be_bytes()));
    }
    places.is_some()
}

/// Writes a GRE header according to rule W50.
fn write_gre(
    key: Option<u32>,
    checksum: bool,
    sequence: Option<u32>,
    protocol: u16,
    header: &mut Vec<u8>,
) {
    let mut flags = 0;
    for (is_there, flag) in [
        (checksum, gre::FLAG_CHECKSUM),
        (key.is_some(), gre::FLAG_KEY),
        (sequence.is_some(), gre::FLAG_SEQUENCE),
    ] {
        flags |= if is_there { flag } else { 0 };
    }
    header.extend([flags, protocol].iter().flat_map(|word| word.to_be_bytes()));
    let words = [checksum.then_some(0), key, sequence];
    header.extend(words.iter().flatten().flat_map(|word| word.to_be_bytes()));
}

/// Writes a VXLAN header according to rules W30, W31 and C50. Returns whether the receiver completes a checksum.
fn write_vxlan(
    identifier: u32,
    policy: Option<u16>,
    next: Option<Kind>,
    remote: Option<Remote>,
    header: &mut Vec<u8>,
) -> bool {
    let [_, a, b, c] = identifier.to_be_bytes();
    let mut vxlan =
        vxlan::VxlanHeader { flags: vxlan::FLAG_VNI.into(), vni: [a, b, c], reserved: 0 };
    if let Some(id) = policy {
        let policy = vxlan::GroupPolicy { id, ..vxlan::GroupPolicy::default() };
        vxlan.set_group_policy(Some(policy));
    }
    if let Some(kind) = next {
        let next = if kind == Kind::Ipv4 { vxlan::NEXT_IPV4 } else { vxlan::NEXT_IPV6 };
        vxlan.set_next_protocol(Some(next));
    }
    let remote =
        remote.map(|Remote { start, offset }| vxlan::VxlanRemoteChecksum { start, offset });
    // Remote checksum offload is not used if the header cannot express it (rule C52).
    let is_remote = remote.is_some() && vxlan.set_remote_checksum(remote).is_ok();
    header.extend_from_slice(vxlan.as_bytes());
    is_remote
}

/// Writes a Geneve header according to rule W40. The C bit is set if any of the options is critical (RFC 8926 section
/// 3.4).
fn write_geneve(identifier: u32, options: &[u8], protocol: u16, header: &mut Vec<u8>) {
    let is_critical = geneve::GeneveOptions::new(options)
        .any(|option| option.is_ok_and(|option| option.is_critical()));
    let flags = if is_critical { geneve::CRITICAL } else { 0 };
    header.extend([(options.len() / 4) as u8, flags]);
    header.extend(protocol.to_be_bytes());
    header.extend((identifier << 8).to_be_bytes());
    header.extend_from_slice(options);
}

/// Returns the source port for the packets of a flow: the flow hash scaled to the port range (rule W3).
fn source_port(endpoint: &Endpoint, flow: u64) -> u16 {
    let Some(udp) = endpoint.udp() else { return 0 };
    let (first, last) = (*udp.source.start(), *udp.source.end());
    let ports = u64::from(last.saturating_sub(first)) + 1;
    first + (((flow >> 32) * ports) >> 32) as u16
}

const fn ethertype(kind: Kind) -> u16 {
    match kind {
        Kind::Ethernet => ethernet::ETHERTYPE_BRIDGING,
        Kind::Ipv4 => ethernet::ETHERTYPE_IPV4,
        _ => ethernet::ETHERTYPE_IPV6,
    }
}

/// Maximum value of a length field.
const LENGTH_MAX: usize = u16::MAX as usize;
/// Hop limit or TTL of the outer header if the inner packet has none.
const HOP_LIMIT: u8 = 64;
