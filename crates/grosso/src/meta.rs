//! Metadata of a frame, similar to that of an `skb` in Linux.
//!
//! Metadata is never read from the packet. It comes from a device, a hypervisor or an earlier stage of the engine, for
//! example in a `virtio_net_hdr`, a receive descriptor or a pcapng option.

use core::num::NonZeroU16;

use grosso_wire::{Kind, Layer, LinkType, Ports, Stack, dissect_into};

use crate::checksum::Checksum;

/// Metadata of one frame.
///
/// ```
/// use grosso::{Meta, checksum::Checksum, meta::Gso};
///
/// let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
/// let superframe = Meta { gso: Gso::every(1448), ..meta };
/// # assert!(superframe.gso.is_some());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// State of the checksums.
    pub checksum: Checksum,
    /// Segmentation parameters if the frame is a superframe.
    pub gso: Option<Gso>,
    /// VLAN tag that the device removed from the frame.
    pub vlan: Option<VlanTag>,
    /// Receive hash computed by the device.
    pub hash: Option<u32>,
    /// Arrival time in nanoseconds on the caller's clock.
    pub timestamp_ns: Option<u64>,
    /// Geometry of the IP fragments that the packet was reassembled from, if it must be sent in fragments of the same
    /// sizes.
    pub fragmented: Option<Fragmented>,
}

impl Meta {
    /// Dissects a frame with this metadata as [`grosso_wire::dissect_into`] does. For a superframe, dissection ends
    /// with the header that has the partial checksum. If a program sent tunnel datagrams with `UDP_SEGMENT`, this is
    /// the outer UDP header, because each datagram has its own inner headers.
    pub fn dissect_into(&self, frame: &[u8], link: LinkType, ports: &Ports, stack: &mut Stack) {
        dissect_into(frame, link, ports, stack);
        if self.cuts_around(stack) {
            dissect_into(frame, link, &Ports::NONE, stack);
        }
    }

    /// Returns whether a frame with these headers is a superframe of UDP datagrams with inner headers.
    ///
    /// In such a superframe, the outer UDP checksum is partial. It is also partial in a tunneled superframe that leaves
    /// the inner checksum to the receiver (rule C50). The inner IP length tells the two apart: in a superframe of
    /// datagrams, it covers only the first datagram.
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

/// Geometry of the IP fragments that a packet was reassembled from (rules S61, S62, P38). The DF bit and the IPv4
/// identification are in the packet's own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmented {
    /// Length of the longest fragment in bytes, including its IP header.
    pub largest: NonZeroU16,
    /// IPv6 identification of the fragments; the reassembled packet has no fragment header.
    pub identification: u32,
}

/// VLAN tag that is stored outside the frame, like `skb->vlan_tci`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol: 0x8100 or 0x88a8.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN ID.
    pub tci: u16,
}

/// Segmentation parameters that the headers of a superframe do not contain (rules S1, G52).
///
/// ```
/// use grosso::meta::Gso;
///
/// let gso = Gso::every(1448).expect("a size above zero");
/// assert_eq!(gso.size(), Some(1448));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Packet boundaries in the payload.
    pub size: GsoSize,
    /// Number of packets in the superframe, or 0 if unknown (rule S3).
    pub segments: u16,
    /// IPv4 levels whose identification is the same in every packet instead of increasing (rule G14).
    pub fixed_ids: IpLevels,
    /// Packets that get CWR if it is set in the superframe.
    pub cwr: Cwr,
    /// Whether the packets had partial checksums before they were merged. If so, segmentation restores partial
    /// checksums.
    pub partial_members: bool,
    /// Whether the parameters come from an untrusted source, for example a guest (rules G8, V7).
    pub untrusted: bool,
}

impl Gso {
    /// Parameters of a superframe of unknown structure, which cannot be merged or segmented.
    pub const UNKNOWN: Self = Self {
        size: GsoSize::Unknown,
        segments: 0,
        fixed_ids: IpLevels::NONE,
        cwr: Cwr::First,
        partial_members: false,
        untrusted: false,
    };

    /// Returns trusted parameters for packets of `size` payload bytes, or `None` if `size` is zero.
    ///
    /// The number of segments is not set, identifications increase, and only the first packet carries CWR.
    #[must_use]
    pub const fn every(size: u16) -> Option<Self> {
        match NonZeroU16::new(size) {
            Some(size) => Some(Self { size: GsoSize::Every(size), ..Self::UNKNOWN }),
            None => None,
        }
    }

    /// Returns the payload length in bytes of every packet except the last, if all have the same.
    #[must_use]
    pub const fn size(&self) -> Option<u16> {
        match self.size {
            GsoSize::Every(size) => Some(size.get()),
            GsoSize::Parts | GsoSize::Fragments(_) | GsoSize::Unknown => None,
        }
    }
}

/// Packet boundaries in the payload of a superframe.
///
/// Linux marks [`GsoSize::Parts`] with a `gso_size` of 0xffff, which is also a size that a user could request (rule S2,
/// B19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoSize {
    /// Every packet has this many payload bytes; the last packet has the remaining bytes.
    Every(NonZeroU16),
    /// Every buffer of the superframe is the payload of one packet (K98).
    Parts,
    /// The superframe is a UDP datagram to be split into IP fragments with at most this many bytes of data (UFO, rule
    /// S30).
    Fragments(NonZeroU16),
    /// The boundaries are unknown, for example in a capture that only marks the frame as a superframe.
    Unknown,
}

/// Packets in a train that have CWR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cwr {
    /// Only the first packet has CWR, as RFC 3168 requires (rule S11).
    #[default]
    First,
    /// Every packet has CWR, as AccECN requires (RFC 9768, rule G34a).
    Every,
}

/// Set of IP header levels. The outermost header is level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpLevels(u8);

impl IpLevels {
    /// Empty set.
    pub const NONE: Self = Self(0);
    /// All levels.
    pub const ALL: Self = Self(u8::MAX);

    /// Returns the set that contains level `n` if bit `n` of `bits` is set.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the set as bits. Bit `n` is set if the set contains level `n`.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether `level` is in the set; false for levels above 7.
    #[must_use]
    pub const fn contains(self, level: usize) -> bool {
        level < 8 && self.0 & (1 << level) != 0
    }

    /// Returns the set with `level` added.
    #[must_use]
    pub const fn with(self, level: usize) -> Self {
        Self(if level < 8 { self.0 | (1 << level) } else { self.0 })
    }
}
