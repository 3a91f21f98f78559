//! Detection of packets that are too long for a tunnel, and ICMP messages to their senders.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use grosso_checksum::{Sum, pseudo_v6};
use grosso_wire::{Kind, Layer, LinkType, Ports, Stack, dissect, icmp, ipv4, ipv6, vlan};

use super::outer::{Fields, OuterEnds};
use crate::{
    bytes::{put_u16, put_u32, u16_at},
    meta::{GsoSize, Meta},
};

/// Maximum packet length of a tunnel in bytes, starting with the inner IP header. `usize::MAX` means that there is no
/// limit.
///
/// VLAN tags before an inner packet count toward the limit of the path, but not toward that of the tunnel's device, as
/// on any Ethernet device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelMtu {
    /// Limit of the tunnel's device in bytes, without VLAN tags.
    pub device: usize,
    /// Limit of the path in bytes ([`Endpoint::mtu`](super::Endpoint::mtu)), including VLAN tags.
    pub path: usize,
}

impl TunnelMtu {
    /// No limits.
    pub const UNLIMITED: Self = Self { device: usize::MAX, path: usize::MAX };

    /// Returns limits with this limit for the path and none for the device.
    #[must_use]
    pub const fn of_path(path: usize) -> Self {
        Self { path, ..Self::UNLIMITED }
    }

    /// Returns the maximum packet length after `tags` bytes of VLAN tags.
    #[must_use]
    pub const fn behind(self, tags: usize) -> usize {
        let path = self.path.saturating_sub(tags);
        if path < self.device { path } else { self.device }
    }
}

/// Result of [`fit`]: whether a tunnel can carry a frame unfragmented (rule S49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The packet fits, or all packets of the superframe fit.
    Fits,
    /// The packet does not fit but may be fragmented. Either the inner packet is IPv4, or the outer packet is
    /// fragmented around an IPv6 packet of up to 1280 bytes, which every link must carry (rule W60, RFC 8200 section
    /// 5).
    MayBeFragmented,
    /// The packet does not fit, and an ICMP message to its sender was written.
    Told,
    /// The packet does not fit, and ICMP forbids a message: the packet is an ICMP error, a later fragment or not IP, or
    /// it has a group or unspecified address (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4).
    Untold,
}

/// Checks whether a tunnel can carry the frame in `slices`. The first slice must contain all headers.
///
/// If it cannot and the sender must be notified, writes a complete frame for `link` in the reverse direction to
/// `message`. As in Linux, the message's source address is the packet's destination, because a bridge has no address of
/// its own. The caller must limit the rate of messages (RFC 1812 section 4.3.2.8).
pub fn fit(
    slices: &[&[u8]],
    meta: &Meta,
    link: LinkType,
    mtu: TunnelMtu,
    message: &mut Vec<u8>,
) -> Fit {
    let head = slices.first().copied().unwrap_or_default();
    let stack = dissect(head, link, &Ports::NONE);
    let len = slices.iter().map(|slice| slice.len()).sum();
    let Longest { network, len: packet_len, tags } = Longest::of(&stack, slices, len, meta);
    let mtu = mtu.behind(tags);
    let Some(ip) = network else {
        return if packet_len <= mtu { Fit::Fits } else { Fit::Untold };
    };
    let packet = head.get(usize::from(ip.offset)..).unwrap_or_default();
    if packet_len <= mtu {
        return Fit::Fits;
    }
    let may_be_fragmented = if ip.kind == Kind::Ipv4 {
        u16_at(packet, ipv4::field::FRAGMENT.start) & ipv4::DONT_FRAGMENT == 0
    } else {
        packet_len <= ipv6::MTU_MIN.into()
    };
    if may_be_fragmented {
        return Fit::MayBeFragmented;
    }
    match write(head, &stack, &ip, packet, mtu, message) {
        Some(()) => Fit::Told,
        None => Fit::Untold,
    }
}

/// Returns whether the encapsulated frame fits into the reported path MTU. If not, the outer packet must be sent
/// without DF, so that routers may fragment it (rule W60).
pub(super) fn is_carried(stack: &Stack, slices: &[&[u8]], meta: &Meta, mtu: TunnelMtu) -> bool {
    let len = slices.iter().map(|slice| slice.len()).sum();
    // A frame that fits even with its Ethernet header also fits with a VLAN tag from the metadata, which is shorter.
    if meta.gso.is_none() && len <= mtu.behind(0) {
        return true;
    }
    let longest = Longest::of(stack, slices, len, meta);
    longest.len <= mtu.behind(longest.tags)
}

/// Parses an ICMPv6 message about the path MTU. Returns the destination of the quoted packet, the MTU in bytes, and the
/// quoted packet, which starts with its IP header and may be truncated. The content is unauthenticated.
#[must_use]
pub fn read_v6(message: &[u8]) -> Option<(Ipv6Addr, u32, &[u8])> {
    let (header, quoted) = message.split_at_checked(icmp::HEADER_LEN)?;
    let destination = quoted.get(ipv6::field::DESTINATION)?.first_chunk::<16>()?;
    Some((Ipv6Addr::from(*destination), u32::from_be_bytes(*header.last_chunk()?), quoted))
}

/// Longest packet that a frame represents.
struct Longest {
    /// First IP header of the packet, at the start or after VLAN tags, if there is one.
    network: Option<Layer>,
    /// Length of the packet in bytes from its IP header on, or from the end of the link layer if there is no IP header.
    len: usize,
    /// Length in bytes of the headers between the Ethernet header and the packet, for example VLAN tags, including a
    /// tag in the metadata.
    tags: usize,
}

impl Longest {
    fn of(stack: &Stack, slices: &[&[u8]], len: usize, meta: &Meta) -> Self {
        let layers = stack.layers();
        let is_link = |layer: &&Layer| !layer.kind.is_ip();
        let links = layers.iter().take_while(is_link).count();
        let network = layers.get(links).copied();
        let behind = layers.last().map_or(0, Layer::end);
        let start = network.map_or(behind, |ip| ip.offset.into());
        let tags = match layers.first() {
            Some(frame) if frame.kind == Kind::Ethernet => {
                let beside = meta.vlan.map_or(0, |_| vlan::HEADER_LEN);
                start.saturating_sub(frame.end()) + beside
            }
            _ => 0,
        };
        let rest = len.saturating_sub(start);
        let len = network.map_or(rest, |ip| packet_len(stack, &ip, slices, rest, meta));
        Self { network, len, tags }
    }
}

/// Returns the length of the longest packet in bytes, starting with its IP header `ip`. The frame has `rest` bytes from
/// the start of that header on.
fn packet_len(stack: &Stack, ip: &Layer, slices: &[&[u8]], rest: usize, meta: &Meta) -> usize {
    let start = usize::from(ip.offset);
    let Some(gso) = meta.gso else {
        // Padding is not part of the packet.
        let head = slices.first().copied().unwrap_or_default();
        let declared = match ip.kind {
            Kind::Ipv4 => u16_at(head, start + ipv4::field::TOTAL_LENGTH.start).into(),
            _ => {
                let payload = u16_at(head, start + ipv6::field::PAYLOAD_LENGTH.start);
                ipv6::HEADER_LEN + usize::from(payload)
            }
        };
        return declared.min(rest);
    };
    let headers = stack.header_len();
    let payload = match gso.size {
        GsoSize::Every(size) => usize::from(size.get()),
        GsoSize::Parts => {
            let first = slices.first().map_or(0, |head| head.len().saturating_sub(headers));
            slices.iter().skip(1).map(|slice| slice.len()).fold(first, usize::max)
        }
        // Packets of unknown size are treated as the smallest possible packets.
        GsoSize::Unknown => 0,
        // Fragments share only the IP header.
        GsoSize::Fragments(size) => return ip.end() - start + usize::from(size.get()),
    };
    (headers + payload).saturating_sub(start).min(rest)
}

/// Writes the message. Returns `None` if no message may be sent.
fn write(
    head: &[u8],
    stack: &Stack,
    ip: &Layer,
    packet: &[u8],
    mtu: usize,
    message: &mut Vec<u8>,
) -> Option<()> {
    let ends = way_back(packet, ip.kind)?;
    let mut inside = stack.layers().iter().skip_while(|layer| layer.offset <= ip.offset);
    let payload = inside.find(|layer| layer.kind != Kind::Ipv6Extension);
    if payload.is_some_and(|layer| layer.kind == Kind::Icmp && is_error(head, layer, ip.kind)) {
        return None;
    }
    message.clear();
    write_link(head, stack, ip, message)?;
    let start = message.len();
    let header_len = ends.header_len();
    message.resize(start + header_len + icmp::HEADER_LEN, 0);
    let (len_max, protocol) = match ends {
        OuterEnds::V4 { .. } => (IPV4_ERROR_BYTES_MAX, ipv4::PROTOCOL_ICMP),
        OuterEnds::V6 { .. } => (IPV6_ERROR_BYTES_MAX, ipv6::NEXT_ICMP),
    };
    let quoted = packet.len().min(len_max - header_len - icmp::HEADER_LEN);
    message.extend_from_slice(&packet[..quoted]);
    let (header, error) = message[start..].split_at_mut(header_len);
    let fields = Fields {
        traffic_class: INTERNETWORK_CONTROL,
        flow_label: 0,
        hop_limit: HOP_LIMIT,
        identification: 0,
        dont_fragment: true,
        protocol,
        payload_len: error.len(),
    };
    ends.emit(header, &fields);
    write_error(error, &ends, mtu);
    Some(())
}

/// Returns the addresses for a message about a packet: from the packet's destination to its source.
fn way_back(packet: &[u8], kind: Kind) -> Option<OuterEnds> {
    if kind == Kind::Ipv4 {
        let is_first = u16_at(packet, ipv4::field::FRAGMENT.start) & ipv4::OFFSET_MASK == 0;
        let source = packet.get(ipv4::field::DESTINATION)?.first_chunk::<4>()?;
        let destination = packet.get(ipv4::field::SOURCE)?.first_chunk::<4>()?;
        let is_one = |address: &[u8; 4]| {
            let address = Ipv4Addr::from(*address);
            !(address.is_unspecified() || address.is_multicast() || address.is_broadcast())
        };
        let is_right = is_first && is_one(source) && is_one(destination);
        is_right.then_some(OuterEnds::V4 { source: *source, destination: *destination })
    } else {
        let source = packet.get(ipv6::field::DESTINATION)?.first_chunk::<16>()?;
        let destination = packet.get(ipv6::field::SOURCE)?.first_chunk::<16>()?;
        let is_one = |address: &[u8; 16]| {
            let address = Ipv6Addr::from(*address);
            !(address.is_unspecified() || address.is_multicast())
        };
        let is_right = is_one(source) && is_one(destination);
        is_right.then_some(OuterEnds::V6 { source: *source, destination: *destination })
    }
}

/// Returns whether the packet is an ICMP message that must not be answered with an error.
fn is_error(head: &[u8], layer: &Layer, version: Kind) -> bool {
    let kind = head.get(usize::from(layer.offset)).copied().unwrap_or(0);
    if version == Kind::Ipv4 {
        // Destination unreachable, source quench, redirect, time exceeded, and parameter problem.
        matches!(kind, 3 | 4 | 5 | 11 | 12)
    } else {
        kind < icmp::V6_ECHO_REQUEST || kind == V6_REDIRECT
    }
}

/// Writes the packet's link layer for the reverse direction. Returns `None` if it has no addresses or a group address.
fn write_link(head: &[u8], stack: &Stack, ip: &Layer, message: &mut Vec<u8>) -> Option<()> {
    for layer in stack.layers().iter().take_while(|layer| layer.offset < ip.offset) {
        let bytes = head.get(usize::from(layer.offset)..layer.end())?;
        match layer.kind {
            Kind::Ethernet => {
                let (addresses, ethertype) = bytes.split_at(12);
                let (destination, source) = addresses.split_at(6);
                if (destination[0] | source[0]) & 1 != 0 {
                    return None;
                }
                message.extend_from_slice(source);
                message.extend_from_slice(destination);
                message.extend_from_slice(ethertype);
            }
            Kind::Vlan => message.extend_from_slice(bytes),
            _ => return None,
        }
    }
    Some(())
}

/// Writes the ICMP error "fragmentation needed" (RFC 1191 section 4) or "packet too big" (RFC 4443 section 3.2).
fn write_error(error: &mut [u8], ends: &OuterEnds, mtu: usize) {
    let pseudo = match ends {
        OuterEnds::V4 { .. } => {
            error[..2].copy_from_slice(&[3, 4]);
            put_u16(error, 6, mtu.clamp(ipv4::MTU_MIN.into(), u16::MAX.into()) as u16);
            Sum::ZERO
        }
        OuterEnds::V6 { source, destination } => {
            error[..2].copy_from_slice(&[2, 0]);
            put_u32(error, 4, mtu.clamp(ipv6::MTU_MIN.into(), u32::MAX as usize) as u32);
            pseudo_v6(source, destination, ipv6::NEXT_ICMP, error.len() as u32)
        }
    };
    let checksum = (pseudo + Sum::of(error)).checksum();
    put_u16(error, icmp::field::CHECKSUM.start, checksum);
}

/// Maximum length of an ICMPv6 error in bytes, which every link can carry (RFC 4443 section 2.4).
const IPV6_ERROR_BYTES_MAX: usize = ipv6::MTU_MIN as usize;
/// Maximum length in bytes of an ICMP error (RFC 1812 section 4.3.2.3).
const IPV4_ERROR_BYTES_MAX: usize = 576;
/// Precedence of ICMP errors (RFC 1812 section 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;
const V6_REDIRECT: u8 = 137;
