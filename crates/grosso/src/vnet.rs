//! Conversion between a frame's metadata and `virtio_net_hdr`.
//!
//! The kernel accepts the headers that this module writes (rules V1 to V9). The headers that it reads come from a
//! kernel or from an untrusted guest, so every field is checked against the frame before use. Each contradiction has a
//! named error.
//!
//! ```
//! use grosso::{LinkType, Meta, Ports, vnet};
//! use grosso_wire::{dissect, virtio::Form};
//! # let frame = grosso_testkit::Packet::new().ipv4(|ip| ip).tcp(|t| t).payload_len(9).build();
//!
//! let stack = dissect(&frame, LinkType::Raw, &Ports::ASSIGNED);
//! let described = vnet::describe(&frame, frame.len(), &stack, &Meta::default(), Form::Buffers)?;
//! let meta = vnet::understand(&described.header, &frame, LinkType::Raw, &stack, Form::Buffers)?;
//! assert_eq!(meta, Meta::default());
//! # Ok::<(), vnet::VnetError>(())
//! ```

use core::num::NonZeroU16;

use grosso_checksum::Sum;
use grosso_wire::{
    Ends, Kind, Layer, LinkType, Ports, Stack, dissect, tcp, udp,
    virtio::{
        FLAG_DATA_VALID, FLAG_NEEDS_CHECKSUM, FLAG_UDP_TUNNEL_CHECKSUM, Form, GSO_ECN, GSO_NONE,
        GSO_TCP_IPV4, GSO_TCP_IPV6, GSO_TUNNEL_IPV4, GSO_TUNNEL_IPV6, GSO_UDP, GSO_UDP_SEGMENTS,
        VirtioHeader,
    },
};

use crate::{
    checksum::{Checksum, checksum_field, ip_layers, opened, pseudo_sum, transport},
    meta::{Cwr, Gso, GsoSize, IpLevels, Meta},
    reasons::reasons,
};

reasons! {
    /// Contradiction between a frame and a virtio header.
    VnetError {
        /// The virtio header or the link-layer header is incomplete (rule V1, B33).
        Short = "vnet_short",
        /// The checksum lies outside the frame (rule V3, B32).
        ChecksumOutside = "vnet_checksum_outside",
        /// The checksum starts before the end of the first IP header (rule V3, B32).
        ChecksumInHeaders = "vnet_checksum_in_headers",
        /// The checksum is not that of the transport header to be segmented (rule V4).
        ChecksumPlace = "vnet_checksum_place",
        /// The checksum must be partial, but is complete (rules V4, V8).
        ChecksumMissing = "vnet_checksum_missing",
        /// The segmentation type is unknown (rule V2).
        UnknownType = "vnet_unknown_type",
        /// The segmentation type does not match the headers of the frame (rule V5, B37).
        TypeMismatch = "vnet_type_mismatch",
        /// The superframe has a segment size of 0 bytes (rule V2).
        SizeZero = "vnet_size_zero",
        /// The segment size is 65535, which Linux reserves for a list of parts (rule V2, B19).
        SizeReserved = "vnet_size_reserved",
        /// The ECN bit is set for a protocol other than TCP (rule V4).
        EcnWithoutTcp = "vnet_ecn_without_tcp",
        /// The superframe has more segments than allowed (rule V4: 128 datagrams; B35).
        TooManySegments = "vnet_too_many_segments",
        /// The header describes a tunnel that is over both IPv4 and IPv6 (rule V8).
        TunnelTwice = "vnet_tunnel_twice",
        /// The header describes a tunnel, but its format has no fields for the tunnel's offsets.
        TunnelForm = "vnet_tunnel_form",
        /// The tunnel contains a packet without segmentation, or a datagram to be fragmented (rule V8).
        TunnelInner = "vnet_tunnel_inner",
        /// The offsets of the tunnel's headers do not match the frame (rule V8).
        TunnelPlaces = "vnet_tunnel_places",
        /// The tunnel's outer checksum is partial, but its field does not contain a pseudo-header sum (rule V8).
        TunnelPseudoSumMissing = "vnet_tunnel_pseudo_sum_missing",
        /// The metadata of the frame cannot be expressed in a virtio header (rule V20).
        Inexpressible = "vnet_inexpressible",
    }
}

impl core::error::Error for VnetError {}

/// Virtio header, and the change that the caller must make to the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Virtio header. Its offsets include the VLAN tag that the caller has yet to insert into the frame.
    pub header: VirtioHeader,
    /// Offset of a checksum field, and the pseudo-header sum to write to it in place of the complete checksum.
    pub pseudo_sum: Option<(usize, [u8; 2])>,
}

/// Length of a VLAN tag in bytes.
pub const TAG_LEN: u16 = 4;
/// Maximum number of datagrams per superframe (rule V4).
const DATAGRAMS_MAX: usize = 128;

/// Encodes the metadata of a frame for a kernel.
///
/// `head` must contain all headers of the frame, `len` is the length of the whole frame in bytes, and `stack` is the
/// dissection of `head` by [`Meta::dissect_into`]. A verified checksum becomes partial: the kernel ignores
/// `VIRTIO_NET_HDR_F_DATA_VALID` on write (rule V6) and would otherwise sum the payload again.
///
/// # Errors
/// Returns the reason why the kernel would reject the frame.
pub fn describe(
    head: &[u8],
    len: usize,
    stack: &Stack,
    meta: &Meta,
    form: Form,
) -> Result<Described, VnetError> {
    let mut described = Described { header: VirtioHeader::default(), pseudo_sum: None };
    let header = &mut described.header;
    header.buffers = 1;
    // The kernel keeps this many bytes contiguous. Zero means the whole frame.
    header.header_length = u16::try_from(stack.header_len().min(len)).unwrap_or(0);
    match meta.checksum {
        Checksum::Partial { start, offset } => {
            check_checksum(start, offset, len, minimum_start(stack))?;
            needs_checksum(header, start, offset);
            if meta.gso.is_some() {
                described.pseudo_sum = pseudo_sum_to_finish(head, len, stack, start);
            }
        }
        Checksum::Unnecessary { levels } => {
            if let Some((start, offset, pseudo_sum)) = verified_pseudo_sum(head, stack, levels) {
                needs_checksum(header, start, offset);
                described.pseudo_sum = Some((usize::from(start) + usize::from(offset), pseudo_sum));
            }
        }
        Checksum::None | Checksum::Complete { .. } => {}
    }
    if let Some(gso) = meta.gso {
        describe_gso(header, head, len, stack, &gso, form)?;
    }
    if meta.vlan.is_some() {
        shift(header)?;
    }
    Ok(described)
}

fn needs_checksum(header: &mut VirtioHeader, start: u16, offset: u16) {
    header.flags |= FLAG_NEEDS_CHECKSUM;
    (header.checksum_start, header.checksum_offset) = (start, offset);
}

fn describe_gso(
    header: &mut VirtioHeader,
    head: &[u8],
    len: usize,
    stack: &Stack,
    gso: &Gso,
    form: Form,
) -> Result<(), VnetError> {
    let transport = transport(stack).ok_or(VnetError::TypeMismatch)?;
    let (size, covered_from) = match gso.size {
        GsoSize::Every(size) => (size, transport.end()),
        GsoSize::Fragments(size) => (size, usize::from(transport.offset)),
        GsoSize::Parts | GsoSize::Unknown => return Err(VnetError::Inexpressible),
    };
    let payload = len.saturating_sub(covered_from);
    if payload <= usize::from(size.get()) {
        // A single packet gets no GSO type, because the packet would keep the type and some readers would fail (rule
        // V9).
        return Ok(());
    }
    let kind = segmentation(stack, &transport, gso.size).ok_or(VnetError::TypeMismatch)?;
    check_gso(kind, size, payload)?;
    if !header.has(FLAG_NEEDS_CHECKSUM) {
        return Err(VnetError::ChecksumMissing);
    }
    check_place(header, &transport)?;
    header.gso_type = kind;
    header.gso_size = size.get();
    if has_cwr(head, &transport) {
        if gso.cwr == Cwr::Every {
            return Err(VnetError::Inexpressible);
        }
        header.gso_type |= GSO_ECN;
    }
    describe_tunnel(header, head, stack, form)
}

/// Encodes the offsets of a UDP tunnel around a superframe (rule V8). Other tunnels cannot be
/// expressed.
fn describe_tunnel(
    header: &mut VirtioHeader,
    head: &[u8],
    stack: &Stack,
    form: Form,
) -> Result<(), VnetError> {
    let Some(tunnel) = tunnel(stack) else {
        let is_nested = ip_layers(stack).count() != 1;
        return if is_nested { Err(VnetError::Inexpressible) } else { Ok(()) };
    };
    let tunnel = tunnel?;
    if form < Form::Tunnel {
        return Err(VnetError::TunnelForm);
    }
    if header.segmentation() == GSO_UDP {
        return Err(VnetError::TunnelInner);
    }
    header.gso_type |= tunnel.bit;
    header.outer_transport = tunnel.outer.offset;
    header.inner_network = tunnel.inner.offset;
    if u16_at(head, usize::from(tunnel.outer.offset) + udp::field::CHECKSUM.start) != Some(0) {
        header.flags |= FLAG_UDP_TUNNEL_CHECKSUM;
    }
    Ok(())
}

/// Adds the length of a VLAN tag to all offsets, because the tag will be inserted into the frame.
fn shift(header: &mut VirtioHeader) -> Result<(), VnetError> {
    let moved = |place: u16| place.checked_add(TAG_LEN).ok_or(VnetError::ChecksumOutside);
    header.header_length = moved(header.header_length)?;
    if header.has(FLAG_NEEDS_CHECKSUM) {
        header.checksum_start = moved(header.checksum_start)?;
    }
    if header.tunnel() != 0 {
        header.outer_transport = moved(header.outer_transport)?;
        header.inner_network = moved(header.inner_network)?;
    }
    Ok(())
}

/// Returns the start, the offset and the pseudo-header sum of the innermost checksum. Returns `None` if this checksum
/// or an outer one is not verified, or if the field already contains the pseudo-header sum, which is then completed
/// later.
fn verified_pseudo_sum(head: &[u8], stack: &Stack, levels: u8) -> Option<(u16, u16, [u8; 2])> {
    let (transport, pseudo_sum) = opened(head, stack)?;
    let around = stack.layers().iter().filter(|layer| layer.offset < transport.offset);
    let present = around.filter(|layer| has_checksum(head, layer)).count();
    if usize::from(levels) < present {
        return None;
    }
    let (offset, field) = checksum_field(&transport);
    let found = u16_at(head, field)?;
    if transport.kind == Kind::Udp && found == 0 {
        return None;
    }
    // The field already contains the pseudo-header sum, because the receiver of a tunnel completes the checksum (remote
    // checksum offload).
    (pseudo_sum != found).then_some((transport.offset, offset, pseudo_sum.to_be_bytes()))
}

/// Returns the pseudo-header sum for a TCP superframe whose checksum field contains that sum without the length.
/// Guests and VMMs that use the large send offload of Windows leave the field like this, but the kernel expects the sum
/// to include the length (rule C3).
fn pseudo_sum_to_finish(
    head: &[u8],
    len: usize,
    stack: &Stack,
    start: u16,
) -> Option<(usize, [u8; 2])> {
    let transport = transport(stack).filter(|it| it.kind == Kind::Tcp && it.offset == start)?;
    let (_, field) = checksum_field(&transport);
    let ends = Ends::of(head, ip_layers(stack).last()?);
    let sum_of = |len: usize| ends.pseudo(head, TCP, len).fold();
    let whole = sum_of(len.checked_sub(usize::from(start))?);
    let found = u16_at(head, field)?;
    (found != whole && found == sum_of(0)).then_some((field, whole.to_be_bytes()))
}

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// Detects a partial checksum that the port cannot report. A checksum is partial if the innermost checksum field
/// contains the pseudo-header sum, which senders with checksum offload write. Returns `None` if it does not, or if the
/// value is also a valid complete checksum, which one packet in 65536 has by chance.
#[must_use]
pub fn unflagged_partial(frame: &[u8], stack: &Stack) -> Option<Checksum> {
    let transport = transport(stack)?;
    let (offset, field) = checksum_field(&transport);
    let pseudo_sum = pseudo_sum(frame, stack, &transport)?;
    let covered = frame.get(transport.offset.into()..stack.end as usize)?;
    let is_partial = u16_at(frame, field)? == pseudo_sum
        && !(Sum::of(covered) + Sum::from_word(pseudo_sum)).is_valid();
    is_partial.then_some(Checksum::Partial { start: transport.offset, offset })
}

/// Decodes the virtio header of a frame into metadata. The header length field is ignored (rule V20). The dissection
/// `stack` is used only for superframes; it may be empty if the header's type is [`GSO_NONE`].
///
/// # Errors
/// Returns an error if the header and the frame contradict each other.
pub fn understand(
    header: &VirtioHeader,
    frame: &[u8],
    link: LinkType,
    stack: &Stack,
    form: Form,
) -> Result<Meta, VnetError> {
    let packet = understand_packet(header, frame.len(), link)?;
    if header.gso_type == GSO_NONE {
        return Ok(packet);
    }
    understand_gso(header, packet.checksum, frame, link, stack, form)
}

/// Decodes the virtio header of a packet of `packet_len` bytes into metadata, like [`understand`], if the header's type
/// is [`GSO_NONE`]. The result is returned in registers, which is faster at high packet rates.
///
/// # Errors
/// Returns an error if the header and the packet contradict each other.
pub fn understand_packet(
    header: &VirtioHeader,
    packet_len: usize,
    link: LinkType,
) -> Result<Meta, VnetError> {
    if link == LinkType::Ethernet && packet_len < ETHERNET_LEN {
        return Err(VnetError::Short);
    }
    let checksum = if header.has(FLAG_NEEDS_CHECKSUM) {
        let (start, offset) = (header.checksum_start, header.checksum_offset);
        let link_len = if link == LinkType::Ethernet { ETHERNET_LEN } else { 0 };
        check_checksum(start, offset, packet_len, link_len + IPV4_LEN)?;
        Checksum::Partial { start, offset }
    } else if header.has(FLAG_DATA_VALID) {
        Checksum::Unnecessary { levels: 0 }
    } else {
        Checksum::None
    };
    Ok(Meta { checksum, ..Meta::default() })
}

/// Returns the metadata of a superframe whose checksum fields have been decoded.
fn understand_gso(
    header: &VirtioHeader,
    checksum: Checksum,
    frame: &[u8],
    link: LinkType,
    stack: &Stack,
    form: Form,
) -> Result<Meta, VnetError> {
    // `provisional` serves only to find out whether the frame is a superframe of tunnel datagrams.
    let packet = Meta { checksum, ..Meta::default() };
    let provisional = Meta { gso: Gso::every(header.gso_size), ..packet };
    let is_around = header.tunnel() == 0 && provisional.cuts_around(stack);
    let outer = is_around.then(|| dissect(frame, link, &Ports::NONE));
    let stack = outer.as_ref().unwrap_or(stack);
    let kind = header.segmentation();
    if header.tunnel() != 0 {
        check_tunnel(header, frame, stack, form)?;
    }
    let is_tcp = matches!(kind, GSO_TCP_IPV4 | GSO_TCP_IPV6);
    if !is_tcp && !matches!(kind, GSO_UDP | GSO_UDP_SEGMENTS) {
        return Err(VnetError::UnknownType);
    }
    if header.has_ecn() && !is_tcp {
        return Err(VnetError::EcnWithoutTcp);
    }
    let size = NonZeroU16::new(header.gso_size).ok_or(VnetError::SizeZero)?;
    let cut = if kind == GSO_UDP { GsoSize::Fragments(size) } else { GsoSize::Every(size) };
    let transport = transport(stack).ok_or(VnetError::TypeMismatch)?;
    if segmentation(stack, &transport, cut) != Some(kind) {
        return Err(VnetError::TypeMismatch);
    }
    // A packet socket reports a superframe in a tunnel in the same way as one without a tunnel. Only the checksum start
    // shows that the type refers to the inner headers (rule T12).
    let is_nested = ip_layers(stack).count() != 1;
    if header.has(FLAG_NEEDS_CHECKSUM) {
        check_place(header, &transport)?;
    } else if is_nested || kind == GSO_UDP_SEGMENTS {
        return Err(VnetError::ChecksumMissing);
    }
    let from = if kind == GSO_UDP { usize::from(transport.offset) } else { transport.end() };
    let payload = frame.len().saturating_sub(from);
    check_gso(kind, size, payload)?;
    if payload <= usize::from(size.get()) {
        // The kernel treats the frame as a plain packet (rule V6).
        return Ok(packet);
    }
    let segments = payload.div_ceil(usize::from(size.get()));
    let segments = u16::try_from(segments).map_err(|_| VnetError::TooManySegments)?;
    let gso = Gso {
        size: cut,
        segments,
        fixed_ids: IpLevels::NONE,
        // The header cannot express CWR on every segment (rule V20).
        cwr: Cwr::First,
        partial_members: false,
        // The header may come from an untrusted source (rules G8, V7).
        untrusted: true,
    };
    Ok(Meta { gso: Some(gso), ..packet })
}

/// Checks rule V8, and that the headers are at the stated offsets, which the kernel does not check.
fn check_tunnel(
    header: &VirtioHeader,
    frame: &[u8],
    stack: &Stack,
    form: Form,
) -> Result<(), VnetError> {
    if form < Form::Tunnel {
        return Err(VnetError::TunnelForm);
    }
    if header.tunnel() == GSO_TUNNEL_IPV4 | GSO_TUNNEL_IPV6 {
        return Err(VnetError::TunnelTwice);
    }
    if matches!(header.segmentation(), GSO_NONE | GSO_UDP) {
        return Err(VnetError::TunnelInner);
    }
    if !header.has(FLAG_NEEDS_CHECKSUM) {
        return Err(VnetError::ChecksumMissing);
    }
    let tunnel = tunnel(stack).ok_or(VnetError::TunnelPlaces)??;
    let places = (header.outer_transport, header.inner_network, header.tunnel());
    if places != (tunnel.outer.offset, tunnel.inner.offset, tunnel.bit) {
        return Err(VnetError::TunnelPlaces);
    }
    let field = usize::from(tunnel.outer.offset) + udp::field::CHECKSUM.start;
    if header.has(FLAG_UDP_TUNNEL_CHECKSUM) && u16_at(frame, field) == Some(0) {
        return Err(VnetError::TunnelPseudoSumMissing);
    }
    Ok(())
}

/// The only UDP tunnel around a transport header.
struct TunnelHeaders {
    outer: Layer,
    inner: Layer,
    bit: u8,
}

/// Returns the UDP tunnel of a frame with two IP headers. Returns an error if there are more than two.
fn tunnel(stack: &Stack) -> Option<Result<TunnelHeaders, VnetError>> {
    let transport = transport(stack)?;
    let is_outer = |layer: &&Layer| layer.kind == Kind::Udp && layer.offset < transport.offset;
    let outer = *stack.layers().iter().find(is_outer)?;
    let mut ip = ip_layers(stack);
    let (Some(first), Some(&inner), None) = (ip.next(), ip.next(), ip.next()) else {
        return Some(Err(VnetError::Inexpressible));
    };
    let bit = if first.kind == Kind::Ipv6 { GSO_TUNNEL_IPV6 } else { GSO_TUNNEL_IPV4 };
    let ordered = first.offset < outer.offset && outer.offset < inner.offset;
    Some(if ordered {
        Ok(TunnelHeaders { outer, inner, bit })
    } else {
        Err(VnetError::Inexpressible)
    })
}

/// Returns the GSO type that matches these headers (rules V4, V5).
fn segmentation(stack: &Stack, transport: &Layer, cut: GsoSize) -> Option<u8> {
    let ip = ip_layers(stack).last()?;
    match (transport.kind, ip.kind, cut) {
        (Kind::Tcp, Kind::Ipv4, GsoSize::Every(_)) => Some(GSO_TCP_IPV4),
        (Kind::Tcp, Kind::Ipv6, GsoSize::Every(_)) => Some(GSO_TCP_IPV6),
        (Kind::Udp, _, GsoSize::Every(_)) => Some(GSO_UDP_SEGMENTS),
        (Kind::Udp, _, GsoSize::Fragments(_)) => Some(GSO_UDP),
        _ => None,
    }
}

/// Checks the segment size, and the number of segments that it implies (rules V2, V4, B35).
fn check_gso(kind: u8, size: NonZeroU16, payload: usize) -> Result<(), VnetError> {
    if size.get() == u16::MAX {
        return Err(VnetError::SizeReserved);
    }
    let segments = payload.div_ceil(usize::from(size.get()));
    let limit = if kind == GSO_UDP_SEGMENTS { DATAGRAMS_MAX } else { usize::from(u16::MAX) };
    if segments > limit { Err(VnetError::TooManySegments) } else { Ok(()) }
}

/// Checks that the checksum lies inside the frame, and that its range starts at `least` or later (rule V3).
fn check_checksum(start: u16, offset: u16, len: usize, least: usize) -> Result<(), VnetError> {
    if usize::from(start) + usize::from(offset) + 2 > len {
        return Err(VnetError::ChecksumOutside);
    }
    if usize::from(start) < least { Err(VnetError::ChecksumInHeaders) } else { Ok(()) }
}

/// Checks that the checksum to complete is that of the transport header (rule V4).
fn check_place(header: &VirtioHeader, transport: &Layer) -> Result<(), VnetError> {
    let expected = (transport.offset, checksum_field(transport).0);
    let found = (header.checksum_start, header.checksum_offset);
    if found == expected { Ok(()) } else { Err(VnetError::ChecksumPlace) }
}

/// Returns the minimum offset of a transport header in a frame with these headers.
fn minimum_start(stack: &Stack) -> usize {
    let first = ip_layers(stack).next();
    first.map_or(IPV4_LEN, |ip| {
        usize::from(ip.offset) + if ip.kind == Kind::Ipv6 { IPV6_LEN } else { IPV4_LEN }
    })
}

fn has_cwr(head: &[u8], transport: &Layer) -> bool {
    let field = usize::from(transport.offset) + tcp::field::OFFSET_FLAGS.start;
    transport.kind == Kind::Tcp && u16_at(head, field).is_some_and(|flags| flags & tcp::CWR != 0)
}

/// Returns whether a header around the transport header has its own nonzero checksum.
fn has_checksum(head: &[u8], layer: &Layer) -> bool {
    let start = usize::from(layer.offset);
    let header = head.get(start..layer.end());
    header.is_none_or(|header| layer.kind.spec().checksum(header).is_some())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// Length of an Ethernet header in bytes.
const ETHERNET_LEN: usize = 14;
/// Length of an IPv4 header without options in bytes.
const IPV4_LEN: usize = 20;
/// Length of the fixed IPv6 header in bytes.
const IPV6_LEN: usize = 40;

#[cfg(test)]
mod tests;
