//! Metadata of a packet, beside its bytes.
//!
//! Nothing here is read from the packet: a device, a hypervisor or an earlier stage of the engine supplied it, as in
//! `virtio_net_hdr`, a receive descriptor or a pcapng option.

use core::num::NonZeroU16;

use grosso_wire::{Kind, Layer, LinkType, Ports, Stack, dissect_into};

use crate::checksum::Checksum;

/// Metadata of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Knowledge about the checksums.
    pub checksum: Checksum,
    /// Description of the segmentation, if the frame is a superframe.
    pub gso: Option<Gso>,
    /// VLAN tag that the device took out of the frame.
    pub vlan: Option<VlanTag>,
    /// The receive hash that the device computed.
    pub hash: Option<u32>,
    /// Arrival of the frame, in nanoseconds of the caller's clock.
    pub timestamp_ns: Option<u64>,
    /// The fragments that the packet was joined from, if it is to leave in such fragments again.
    pub fragmented: Option<Fragmented>,
}

impl Meta {
    /// Finds the headers of a frame of which this is known, as [`grosso_wire::dissect_into`] does. A superframe is cut
    /// behind the header whose checksum is partial. If that is a UDP header around others, as of a program that sends
    /// a tunnel's datagrams by `UDP_SEGMENT`, each datagram has headers of its own behind it, so it is the last here.
    pub fn dissect_into(&self, frame: &[u8], link: LinkType, ports: &Ports, stack: &mut Stack) {
        dissect_into(frame, link, ports, stack);
        if self.cuts_around(stack) {
            dissect_into(frame, link, &Ports::NONE, stack);
        }
    }

    /// Whether a frame with these headers is a superframe of UDP datagrams with headers of their own inside.
    ///
    /// The outer UDP checksum is the partial one of a superframe inside too, whose own checksum is left to the receiver
    /// (rule C50). The length in the first IP header behind tells them apart: that of a datagram ends with it.
    pub(crate) fn cuts_around(&self, stack: &Stack) -> bool {
        let (Checksum::Partial { start, .. }, Some(gso)) = (self.checksum, self.gso) else {
            return false;
        };
        let layers = stack.layers();
        let Some(outer) = layers.iter().position(|layer| layer.kind == Kind::Udp) else {
            return false;
        };
        let (udp, inside) = (layers[outer], &layers[outer + 1..]);
        let is_ip = |layer: &Layer| layer.kind.is_ip();
        let ends_within = |size: u16| stack.end as usize <= udp.end() + usize::from(size);
        udp.offset == start
            && !inside.is_empty()
            && (!inside.iter().any(is_ip) || gso.size().is_none_or(ends_within))
    }
}

/// Fragments of a packet that was joined from them on its way (rules S61, S62, P38). Don't-fragment bit and IPv4
/// identification need no place here: the header of the whole packet has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmented {
    /// Bytes of the longest fragment, from its IP header on.
    pub largest: NonZeroU16,
    /// The identification of IPv6 fragments, whose header is not in the whole packet.
    pub identification: u32,
}

/// A VLAN tag beside the frame, as `skb->vlan_tci` holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag protocol: 0x8100 or 0x88a8.
    pub protocol: u16,
    /// Priority, drop eligibility and identifier.
    pub tci: u16,
}

/// Segmentation of a superframe: the part of its laws that its headers cannot tell (rules S1, G52).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Boundaries of the packets in the payload.
    pub size: GsoSize,
    /// Number of packets that the superframe stands for; 0 if its source did not say (rule S3).
    pub segments: u16,
    /// The IPv4 levels whose identification is the same on every packet instead of increasing (rule G14).
    pub fixed_ids: IpLevels,
    /// The packets that carry CWR, if the superframe does.
    pub cwr: Cwr,
    /// The packets had partial checksums when they were merged, so segmentation gives partial checksums back.
    pub partial_members: bool,
    /// The description came from a source that cannot be trusted, such as a guest (rules G8, V7).
    pub untrusted: bool,
}

impl Gso {
    /// A superframe about which nothing else is known: it joins no train, and nobody can cut it.
    pub const UNKNOWN: Self = Self {
        size: GsoSize::Unknown,
        segments: 0,
        fixed_ids: IpLevels::NONE,
        cwr: Cwr::First,
        partial_members: false,
        untrusted: false,
    };

    /// A trusted description that cuts the payload every `size` bytes; `None` when `size` is zero.
    ///
    /// The number of segments is left open, identifications increase, and CWR is on the first packet.
    #[must_use]
    pub const fn every(size: u16) -> Option<Self> {
        match NonZeroU16::new(size) {
            Some(size) => Some(Self { size: GsoSize::Every(size), ..Self::UNKNOWN }),
            None => None,
        }
    }

    /// Payload bytes of each packet but the last, if they are all equal.
    #[must_use]
    pub const fn size(&self) -> Option<u16> {
        match self.size {
            GsoSize::Every(size) => Some(size.get()),
            GsoSize::Parts | GsoSize::Fragments(_) | GsoSize::Unknown => None,
        }
    }
}

/// Boundaries of the packets in the payload of a superframe.
///
/// Linux marks the second case with a `gso_size` of 0xffff, a value that a user could also ask for
/// (rule S2, B19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoSize {
    /// Every this many bytes; the last packet carries the rest.
    Every(NonZeroU16),
    /// At the ends of the superframe's buffers: each is the payload of one packet (K98).
    Parts,
    /// Into IP fragments whose data is at most this many bytes: UFO (rule S30).
    Fragments(NonZeroU16),
    /// Nowhere that its source tells, as in a capture whose flags alone mark a superframe.
    Unknown,
}

/// Packets of a train that carry CWR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cwr {
    /// Only the first, as RFC 3168 senders want (rule S11).
    #[default]
    First,
    /// Every packet, as AccECN wants (RFC 9768, rule G34a).
    Every,
}

/// A set of IP levels of a packet; the outermost is level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpLevels(u8);

impl IpLevels {
    /// No level.
    pub const NONE: Self = Self(0);
    /// Every level.
    pub const ALL: Self = Self(u8::MAX);

    /// The set whose level `n` is bit `n` of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Level `n` as bit `n`.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether `level` is in the set; levels beyond 7 are in none.
    #[inline]
    #[must_use]
    pub const fn contains(self, level: usize) -> bool {
        level < 8 && self.0 & (1 << level) != 0
    }

    /// The set with `level` in it.
    #[inline]
    #[must_use]
    pub const fn with(self, level: usize) -> Self {
        Self(if level < 8 { self.0 | (1 << level) } else { self.0 })
    }
}
