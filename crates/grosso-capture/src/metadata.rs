//! Metadata of a packet in a capture: timestamp, flags, and offload state.
//!
//! pcapng has standard flags for the two most important offload states (checksum not ready, segmentation pending).
//! Grosso stores all other states in a custom option. `docs/pcapng-option.md` describes its bytes, and
//! [`super::offload_option`] encodes them.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Gso, GsoSize, VlanTag},
};
use grosso_wire::{Kind, LinkType, Ports, Stack, dissect_into};

use super::tunnel_port::TunnelPort;

/// Metadata of one packet in a capture.
///
/// ```
/// use grosso_capture::PacketMeta;
///
/// let meta = PacketMeta { timestamp_ns: Some(1_700_000_000_000_000_000), ..PacketMeta::default() };
/// assert_eq!(meta.gso(), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketMeta {
    /// Timestamp in nanoseconds since the epoch, or `None` if the capture stores none. In this case, a writer stores 0
    /// and [counts the packet](super::CaptureWriter::without_time).
    pub timestamp_ns: Option<u64>,
    /// Index of the packet's interface within its section.
    pub interface: u32,
    /// Length on the link in bytes. A writer stores the captured length if that is larger.
    pub original_len: u32,
    /// `epb_flags` word as stored. The bits for the length of a frame check sequence are cleared if the data does not
    /// contain it. If `offload` is present, it takes precedence over bits 9 to 11.
    pub flags: Option<u32>,
    /// Offload state, or `None` if it was not recorded.
    pub offload: Option<Offload>,
}

impl PacketMeta {
    /// Converts the engine's metadata `meta` of a frame to capture metadata. `stack` is scratch space for the frame's
    /// headers, which are dissected with `ports`.
    ///
    /// The geometry of reassembled fragments ([`Meta::fragmented`]) is lost, because captures cannot store it.
    #[must_use]
    pub fn of_frame(
        frame: &[u8],
        meta: &Meta,
        link: LinkType,
        ports: &Ports,
        stack: &mut Stack,
    ) -> Self {
        dissect_into(frame, link, ports, stack);
        let transport = match stack.last().map(|layer| layer.kind) {
            Some(Kind::Tcp) => SegmentTransport::Tcp,
            Some(Kind::Udp) => SegmentTransport::Udp,
            _ => SegmentTransport::Unknown,
        };
        let tunnel_ports = TunnelPort::of_packet(frame, stack, ports);
        let transport = if meta.gso.is_some() { transport } else { SegmentTransport::Unknown };
        let offload = Offload { transport, tunnel_ports, ..Offload::new(meta) };
        let says_something = offload != Offload::default();
        Self {
            timestamp_ns: meta.timestamp_ns,
            original_len: frame.len() as u32,
            offload: says_something.then_some(offload),
            ..Self::default()
        }
    }

    /// Returns the engine's metadata of a packet, without the timestamp. `stack` contains the packet's headers. If no
    /// metadata was recorded, returns the default, which makes no claims about the packet.
    #[must_use]
    pub fn known(&self, stack: &Stack) -> Meta {
        self.offload.as_ref().map(|offload| offload.meta_of(stack)).unwrap_or_default()
    }

    /// Returns the segmentation parameters of a recorded superframe.
    #[must_use]
    pub fn gso(&self) -> Option<Gso> {
        self.offload.as_ref().and_then(|offload| offload.meta.gso)
    }

    /// Returns the VLAN tag that was recorded outside the packet.
    #[must_use]
    pub fn vlan(&self) -> Option<VlanTag> {
        self.offload.as_ref().and_then(|offload| offload.meta.vlan)
    }

    /// Returns whether the checksum is recorded as partial.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.offload.as_ref().is_some_and(Offload::is_partial)
    }

    /// Returns the `epb_flags` word to write: `flags` with bits 9 to 11 derived from `offload`.
    #[must_use]
    pub fn flags_to_write(&self) -> Option<u32> {
        let Some(offload) = &self.offload else { return self.flags };
        let kept = self.flags.map(|flags| flags & !flag::OFFLOADS);
        match (kept, offload.to_flags()) {
            (None, 0) => None,
            (kept, offload) => Some(kept.unwrap_or(0) | offload),
        }
    }
}

/// Bits of the `epb_flags` option (draft-ietf-opsawg-pcapng section 4.3.1).
///
/// Bits 0 and 1 are the direction, bits 2 to 4 the reception type, bits 5 to 8 the length of the frame check sequence,
/// and bits 16 to 31 link-layer errors.
pub mod flag {
    /// Bits 0 and 1: the packet was received.
    pub const INBOUND: u32 = 1;
    /// Bits 0 and 1: the packet was sent.
    pub const OUTBOUND: u32 = 2;
    /// Bits 5 to 8: length of the frame check sequence in bytes, or 0 if it is unknown.
    pub const FCS_BYTES: u32 = 0xf << 5;
    /// Bit 9: the checksum is not yet computed (partial).
    pub const CHECKSUM_NOT_READY: u32 = 1 << 9;
    /// Bit 10: the checksum has been verified.
    pub const CHECKSUM_VALID: u32 = 1 << 10;
    /// Bit 11: the packet is a TCP superframe that is not yet segmented.
    pub const TCP_SEGMENTATION: u32 = 1 << 11;
    /// Bits 9 to 11: all offload bits.
    pub const OFFLOADS: u32 = CHECKSUM_NOT_READY | CHECKSUM_VALID | TCP_SEGMENTATION;
}

/// Offload state of one packet: the engine's metadata, and information that only captures record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The engine's metadata without the timestamp, which is in [`PacketMeta`].
    pub meta: Meta,
    /// Whether the innermost transport checksum is partial and its offset must be derived from the headers, as by
    /// [`Offload::meta_of`]. If so, `meta.checksum` is [`Checksum::None`].
    pub has_partial_transport: bool,
    /// Transport protocol of the packets in a superframe.
    pub transport: SegmentTransport,
    /// Segment lengths of a superframe with [`GsoSize::Parts`], in bytes. Empty for other packets.
    pub parts: Vec<u32>,
    /// Inter-arrival times of the packets in a superframe in nanoseconds, starting with the second packet. Empty if
    /// they are unknown.
    pub arrivals_ns: Vec<u32>,
    /// Tunnels around the packet on UDP ports other than the assigned ones, outermost first; see [`Offload::ports`].
    pub tunnel_ports: Vec<TunnelPort>,
}

impl Offload {
    /// Creates the offload state for a frame with the engine's metadata `meta`. The packet boundaries of a superframe
    /// with one packet per buffer are lost.
    #[must_use]
    pub fn new(meta: &Meta) -> Self {
        let mut meta = Meta { timestamp_ns: None, ..*meta };
        if let Some(Gso { size: size @ GsoSize::Parts, .. }) = &mut meta.gso {
            *size = GsoSize::Unknown;
        }
        Self { meta, ..Self::default() }
    }

    /// Returns the offload state that the flags alone express, or `None` if bits 9 to 11 are all clear.
    #[must_use]
    pub fn from_flags(flags: u32) -> Option<Self> {
        if flags & flag::OFFLOADS == 0 {
            return None;
        }
        // If both bits are set, "not ready" takes precedence: the field does not contain a checksum yet.
        let has_partial_transport = flags & flag::CHECKSUM_NOT_READY != 0;
        let checksum = if flags & flag::CHECKSUM_VALID != 0 && !has_partial_transport {
            Checksum::Unnecessary { levels: 0 }
        } else {
            Checksum::None
        };
        let is_superframe = flags & flag::TCP_SEGMENTATION != 0;
        Some(Self {
            meta: Meta { checksum, gso: is_superframe.then_some(Gso::UNKNOWN), ..Meta::default() },
            has_partial_transport,
            transport: if is_superframe {
                SegmentTransport::Tcp
            } else {
                SegmentTransport::Unknown
            },
            ..Self::default()
        })
    }

    /// Returns whether a checksum of the packet is partial.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.has_partial_transport || matches!(self.meta.checksum, Checksum::Partial { .. })
    }

    /// Returns the state after a partial checksum has been completed.
    #[must_use]
    pub fn completed(self) -> Self {
        let checksum = if self.is_partial() { Checksum::None } else { self.meta.checksum };
        let meta = Meta { checksum, ..self.meta };
        Self { meta, has_partial_transport: false, ..self }
    }

    /// Returns the engine's metadata for a packet with these headers.
    ///
    /// The flags say that a checksum is partial, but not which one. It is assumed to be that of the innermost transport
    /// header, as in every Linux superframe.
    #[must_use]
    pub fn meta_of(&self, stack: &Stack) -> Meta {
        if self.has_partial_transport {
            return Meta { checksum: Checksum::of_transport(stack), ..self.meta };
        }
        self.meta
    }

    /// Returns the ports for dissecting this packet: those recorded with it and, for all other tunnel types, those in
    /// `base`.
    #[must_use]
    pub fn ports(&self, base: &Ports) -> Ports {
        TunnelPort::over(&self.tunnel_ports, base)
    }

    /// Returns bits 9 to 11 of the flags.
    #[must_use]
    pub fn to_flags(&self) -> u32 {
        let checksum = match self.meta.checksum {
            _ if self.is_partial() => flag::CHECKSUM_NOT_READY,
            Checksum::Unnecessary { .. } => flag::CHECKSUM_VALID,
            _ => 0,
        };
        let is_tcp = self.meta.gso.is_some() && self.transport == SegmentTransport::Tcp;
        checksum | if is_tcp { flag::TCP_SEGMENTATION } else { 0 }
    }
}

/// Transport protocol of the packets in a superframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentTransport {
    /// The protocol was not recorded.
    #[default]
    Unknown,
    /// TCP segments.
    Tcp,
    /// UDP datagrams.
    Udp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_follow_the_offload_state_and_keep_the_other_bits() {
        let offload = |transport| Offload {
            meta: Meta { gso: Some(Gso::UNKNOWN), ..Meta::default() },
            has_partial_transport: true,
            transport,
            ..Offload::default()
        };
        let mut meta = PacketMeta {
            flags: Some(0xffff_0001 | flag::CHECKSUM_VALID),
            offload: Some(offload(SegmentTransport::Tcp)),
            ..PacketMeta::default()
        };
        assert_eq!(meta.flags_to_write(), Some(0xffff_0a01));
        meta.offload = Some(offload(SegmentTransport::Udp));
        assert_eq!(meta.flags_to_write(), Some(0xffff_0201), "bit 11 is for TCP only");
        meta.offload = None;
        assert_eq!(meta.flags_to_write(), Some(0xffff_0401));
        meta.flags = None;
        assert_eq!(meta.flags_to_write(), None);
        meta.offload = Some(Offload::default());
        assert_eq!(meta.flags_to_write(), None);
    }

    #[test]
    fn flags_alone_are_understood() {
        assert_eq!(Offload::from_flags(0xffff_f1ff), None);
        let partial_tcp = Offload::from_flags(0xe00).unwrap();
        assert!(partial_tcp.is_partial());
        assert_eq!(
            partial_tcp.meta.checksum,
            Checksum::None,
            "the offset of the checksum is unknown"
        );
        assert_eq!(partial_tcp.meta.gso, Some(Gso::UNKNOWN));
        assert_eq!(partial_tcp.to_flags(), 0xa00);
        let valid = Offload::from_flags(0x400).unwrap();
        assert_eq!(valid.meta.checksum, Checksum::Unnecessary { levels: 0 });
        assert_eq!(valid.meta.gso, None);
    }

    #[test]
    fn a_completed_checksum_leaves_the_rest_of_the_state() {
        let vlan = Some(VlanTag { protocol: 0x8100, tci: 7 });
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let tunnel_ports = vec![TunnelPort::new(Kind::Vxlan, 8472)];
        let known = Offload {
            tunnel_ports: tunnel_ports.clone(),
            ..Offload::new(&Meta { checksum, vlan, ..Meta::default() })
        };
        let somewhere = Offload { has_partial_transport: true, ..known.clone() };
        for partial in [known, somewhere] {
            let completed = partial.completed();
            assert!(!completed.is_partial());
            assert_eq!((completed.meta.vlan, &completed.tunnel_ports), (vlan, &tunnel_ports));
        }
    }
}
