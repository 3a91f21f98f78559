//! Part of a frame that a tunnel carries, and the fields that outer headers copy from it.

use grosso_wire::{Kind, Layer, LinkType, Stack, Stop, ethernet, ipv4, ipv6, ipv6_extension, vlan};

use super::reason::Refusal;
use crate::{
    bytes::u16_at,
    checksum::Checksum,
    meta::{Gso, GsoSize, Meta, VlanTag},
    segment::IP_LEVELS_MAX,
    tunnel::outer::Inner,
};

/// Inner packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    /// Offset of the carried part in the frame, in bytes.
    pub(super) start: usize,
    /// Offset of the end of the carried part, in bytes. Bytes after it are padding.
    pub(super) end: usize,
    /// Type of the packet: Ethernet, IPv4 or IPv6.
    pub(super) kind: Kind,
    /// VLAN tag to write after the addresses of an Ethernet frame.
    pub(super) tag: Option<VlanTag>,
    /// First IP header, at the start or after VLAN tags.
    pub(super) network: Option<Inner>,
    /// Number of tunnels that the packet may still enter, or `None` if the packet has no tunnel encapsulation limit.
    pub(super) encapsulation_limit: Option<u8>,
    /// Whether the packet is a superframe.
    pub(super) is_superframe: bool,
    /// Number of wire packets that the frame represents.
    pub(super) packets: u32,
}

impl Inside {
    /// Finds the packet in the frame that consists of `slices`. The first slice contains all headers.
    pub(super) fn find(
        slices: &[&[u8]],
        stack: &Stack,
        meta: &Meta,
        link: LinkType,
        carries_ethernet: bool,
    ) -> Result<Self, Refusal> {
        if matches!(meta.gso, Some(Gso { size: GsoSize::Fragments(_), .. })) {
            return Err(Refusal::Superframe);
        }
        let head = slices.first().copied().unwrap_or_default();
        let layers = stack.layers();
        let levels = layers.iter().filter(|layer| is_ip(layer)).count();
        if levels >= IP_LEVELS_MAX || stack.stop == Stop::TooDeep {
            return Err(Refusal::TooDeep);
        }
        let is_tag = |layer: &&Layer| matches!(layer.kind, Kind::Ethernet | Kind::Vlan);
        let network = layers.iter().find(|layer| !is_tag(layer)).filter(|layer| is_ip(layer));
        let header = network.and_then(|ip| Some((head.get(usize::from(ip.offset)..)?, ip.kind)));
        let mut inside = Self {
            start: 0,
            end: slices.iter().map(|slice| slice.len()).sum(),
            kind: Kind::Ethernet,
            tag: None,
            network: header.map(|(header, kind)| Inner::of(header, kind)),
            encapsulation_limit: None,
            is_superframe: meta.gso.is_some(),
            packets: 1,
        };
        if let Some(gso) = &meta.gso {
            inside.packets = packets(inside.end, slices, stack, gso);
        }
        if carries_ethernet {
            inside.take_frame(head, meta, link)?;
        } else {
            inside.take_packet(head, stack, meta)?;
        }
        if let Checksum::Partial { start, offset } = meta.checksum {
            let first_end = layers.iter().find(|layer| is_ip(layer)).map(Layer::end);
            inside.check_partial(head, first_end, start, offset)?;
        }
        Ok(inside)
    }

    /// Returns the number of bytes from the frame that the tunnel carries after the header.
    pub(super) const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns the number of bytes at the end of the header that replace the first bytes of the frame.
    pub(super) const fn tagged_len(&self) -> usize {
        if self.tag.is_some() { ADDRESSES_LEN + vlan::HEADER_LEN } else { 0 }
    }

    fn take_frame(&mut self, head: &[u8], meta: &Meta, link: LinkType) -> Result<(), Refusal> {
        if link != LinkType::Ethernet {
            return Err(Refusal::NotEthernet);
        }
        if head.len() < ethernet::HEADER_LEN {
            return Err(Refusal::Truncated);
        }
        self.tag = meta.vlan;
        // The addresses are repeated in the header, before the tag.
        self.start = if self.tag.is_some() { ADDRESSES_LEN } else { 0 };
        Ok(())
    }

    fn take_packet(&mut self, head: &[u8], stack: &Stack, meta: &Meta) -> Result<(), Refusal> {
        let layers = stack.layers();
        let is_link = |layer: &&Layer| {
            matches!(layer.kind, Kind::Ethernet | Kind::Sll | Kind::Sll2 | Kind::Null)
        };
        let first = layers.iter().find(|layer| !is_link(layer));
        let ip = match first {
            Some(layer) if is_ip(layer) => layer,
            Some(layer) if layer.kind == Kind::Vlan => return Err(Refusal::VlanTag),
            None if stack.stop == Stop::Truncated => return Err(Refusal::Truncated),
            None if stack.stop == Stop::Malformed => return Err(Refusal::Malformed),
            _ => return Err(Refusal::NotIp),
        };
        if meta.vlan.is_some() {
            return Err(Refusal::VlanTag);
        }
        self.start = usize::from(ip.offset);
        self.kind = ip.kind;
        // The length fields of a superframe may have any value (rules S5, G50), so only the number of bytes counts.
        if meta.gso.is_none() {
            let end = declared_end(head, ip).ok_or(Refusal::LengthZero)?;
            if end > self.end {
                return Err(Refusal::Short);
            }
            self.end = end;
        }
        self.encapsulation_limit = encapsulation_limit(head, stack, ip);
        Ok(())
    }

    /// Checks that a partial checksum lies after the first IP header, which ends at `first_end`. Completing a checksum
    /// inside that header would change the identity of the packet.
    fn check_partial(
        &self,
        head: &[u8],
        first_end: Option<usize>,
        start: u16,
        offset: u16,
    ) -> Result<(), Refusal> {
        let at = usize::from(start) + usize::from(offset);
        // If there is a tag, the addresses are no longer part of the frame.
        let least = first_end.unwrap_or(self.start).max(self.start);
        let is_inside = usize::from(start) >= least && at + 2 <= self.end.min(head.len());
        // At an even offset, the checksum is one of the 16-bit words in the sum. At an odd offset, the sum of the
        // completed packet could not be predicted (rule C40).
        let is_word = offset.is_multiple_of(2);
        if is_inside && is_word { Ok(()) } else { Err(Refusal::ChecksumOutside) }
    }
}

/// Returns the end of an IP packet according to its length field, or `None` if the field contains no length.
fn declared_end(head: &[u8], ip: &Layer) -> Option<usize> {
    let start = usize::from(ip.offset);
    if ip.kind == Kind::Ipv4 {
        return match u16_at(head, start + ipv4::field::TOTAL_LENGTH.start) {
            0 => None,
            len => Some(start + usize::from(len)),
        };
    }
    let is_empty = head.get(start + ipv6::field::NEXT_HEADER.start) == Some(&ipv6::NEXT_NONE);
    match u16_at(head, start + ipv6::field::PAYLOAD_LENGTH.start) {
        0 if !is_empty => None,
        len => Some(start + ipv6::HEADER_LEN + usize::from(len)),
    }
}

/// Returns the limit from the destination options that directly follow an IPv6 header (RFC 2473 section 4.1.1).
fn encapsulation_limit(head: &[u8], stack: &Stack, ip: &Layer) -> Option<u8> {
    let next_header = head.get(usize::from(ip.offset) + ipv6::field::NEXT_HEADER.start);
    if ip.kind != Kind::Ipv6 || next_header != Some(&ipv6::NEXT_DESTINATION_OPTIONS) {
        return None;
    }
    let options = stack.layers().iter().find(|layer| layer.kind == Kind::Ipv6Extension)?;
    let body = head.get(usize::from(options.offset) + ipv6_extension::HEADER_LEN..options.end())?;
    ipv6_extension::Ipv6Options::new(body).find_map(|option| match option {
        Ok(ipv6_extension::Ipv6Option::EncapsulationLimit(limit)) => Some(limit),
        _ => None,
    })
}

/// Returns the number of packets into which a superframe of `len` bytes is segmented, regardless of the number that its
/// source reported.
fn packets(len: usize, slices: &[&[u8]], stack: &Stack, gso: &Gso) -> u32 {
    match gso.size {
        GsoSize::Every(size) => {
            let payload = len.saturating_sub(stack.header_len());
            payload.div_ceil(usize::from(size.get())).max(1) as u32
        }
        GsoSize::Parts | GsoSize::Fragments(_) => slices.len() as u32,
        GsoSize::Unknown => 1,
    }
}

fn is_ip(layer: &Layer) -> bool {
    layer.kind.is_ip()
}

/// Length of the two Ethernet addresses in bytes.
pub(super) const ADDRESSES_LEN: usize = 12;
