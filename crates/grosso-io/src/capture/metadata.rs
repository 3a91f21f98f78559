//! Metadata of a packet in a capture: time, flags, and the state of offloads.
//!
//! pcapng has standard flags for the two offload facts that every capture should hold (checksum not
//! ready, segmentation pending). The rest is in one custom option: `docs/pcapng-option.md`
//! describes its bytes and [`super::offload_option`] encodes them.

use grosso::meta::{Cwr, IpLevels, VlanTag};
use grosso_wire::Ports;

use super::tunnel_port::TunnelPort;

/// Metadata of one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketMeta {
    /// Nanoseconds since the epoch; `None` where the capture holds no time.
    pub timestamp_ns: Option<u64>,
    /// The number of the packet's interface within its section.
    pub interface: u32,
    /// Length on the link in bytes. A writer writes the captured length when this is smaller.
    pub original_len: u32,
    /// The `epb_flags` word as it stands. `offload`, when present, takes precedence for bits 9 to
    /// 11.
    pub flags: Option<u32>,
    /// The state of offloads; `None` when the capture does not record it.
    pub offload: Option<Offload>,
}

impl PacketMeta {
    /// The `epb_flags` word to write: `flags` with bits 9 to 11 derived from `offload`.
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
/// Bits 0-1 are the direction, 2-4 the kind of address it was received by, 5-8 the length of the
/// frame check sequence, 16-31 link-layer errors.
pub mod flag {
    /// Bits 0 and 1: the packet was received.
    pub const INBOUND: u32 = 1;
    /// Bits 0 and 1: the packet was sent.
    pub const OUTBOUND: u32 = 2;
    /// Bit 9: the checksum is still to be computed (partial).
    pub const CHECKSUM_NOT_READY: u32 = 1 << 9;
    /// Bit 10: the checksum has been verified.
    pub const CHECKSUM_VALID: u32 = 1 << 10;
    /// Bit 11: the packet is a TCP superframe that is still to be segmented.
    pub const TCP_SEGMENTATION: u32 = 1 << 11;
    /// Bits 9 to 11.
    pub const OFFLOADS: u32 = CHECKSUM_NOT_READY | CHECKSUM_VALID | TCP_SEGMENTATION;
}

/// The offload state of one packet: all that `virtio_net_hdr` and a receive descriptor hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// State of the checksums.
    pub checksum: ChecksumState,
    /// Segmentation of a superframe; `None` for a single packet.
    pub gso: Option<Segmentation>,
    /// A VLAN tag that the device removed from the packet.
    pub vlan: Option<VlanTag>,
    /// The receive hash that the device computed.
    pub hash: Option<u32>,
    /// Arrival time of each packet of the superframe but the first, in nanoseconds after the packet
    /// before it. Empty when unknown.
    pub arrivals_ns: Vec<u32>,
    /// The tunnels around the packet on UDP ports other than their assigned ones, outermost first:
    /// see [`Offload::ports`].
    pub tunnel_ports: Vec<TunnelPort>,
}

impl Offload {
    /// The offload state that the flags alone express; `None` when bits 9 to 11 are all clear.
    #[must_use]
    pub fn from_flags(flags: u32) -> Option<Self> {
        if flags & flag::OFFLOADS == 0 {
            return None;
        }
        // Partial is the stronger statement where both are set: the field holds no checksum yet.
        let checksum = if flags & flag::CHECKSUM_NOT_READY != 0 {
            ChecksumState::Partial { place: None }
        } else if flags & flag::CHECKSUM_VALID != 0 {
            ChecksumState::Unnecessary { levels: 0 }
        } else {
            ChecksumState::None
        };
        let gso = (flags & flag::TCP_SEGMENTATION != 0)
            .then(|| Segmentation { transport: SegmentTransport::Tcp, ..Segmentation::default() });
        Some(Self { checksum, gso, ..Self::default() })
    }

    /// The ports for dissecting this packet: those that the capture recorded with it, and `base`
    /// for all others.
    #[must_use]
    pub fn ports(&self, base: &Ports) -> Ports {
        TunnelPort::over(&self.tunnel_ports, base)
    }

    /// Bits 9 to 11 of the flags.
    #[must_use]
    pub fn to_flags(&self) -> u32 {
        let checksum = match self.checksum {
            ChecksumState::None | ChecksumState::Complete { .. } => 0,
            ChecksumState::Unnecessary { .. } => flag::CHECKSUM_VALID,
            ChecksumState::Partial { .. } => flag::CHECKSUM_NOT_READY,
        };
        let is_tcp = |gso: &Segmentation| gso.transport == SegmentTransport::Tcp;
        checksum | if self.gso.as_ref().is_some_and(is_tcp) { flag::TCP_SEGMENTATION } else { 0 }
    }
}

/// State of a packet's checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// Nothing is known.
    #[default]
    None,
    /// The first `levels` + 1 checksums, counted from the outermost, are verified.
    Unnecessary {
        /// Verified checksums beyond the first.
        levels: u8,
    },
    /// The ones' complement sum from the first network header to the end of the packet.
    Complete {
        /// That sum, folded to 16 bits and not complemented.
        sum: u16,
    },
    /// One checksum field holds only the pseudo-header sum.
    Partial {
        /// Location of the field; `None` when only the flags are known and the headers have to be
        /// parsed.
        place: Option<PartialPlace>,
    },
}

/// Location of a partial checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialPlace {
    /// Start of the summed bytes, in bytes from the start of the packet.
    pub start: u16,
    /// Offset of the checksum field, in bytes from `start`.
    pub offset: u16,
}

/// Segmentation of a superframe into packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Segment boundaries in the payload.
    pub cut: Cut,
    /// Transport protocol of the packets.
    pub transport: SegmentTransport,
    /// Number of packets in the superframe; 0 when unknown.
    pub segments: u16,
    /// IP levels whose identification is the same in every packet.
    pub fixed_ids: IpLevels,
    /// The packets in which CWR is set, if the superframe has it.
    pub cwr: Cwr,
    /// The packets had partial checksums when they were merged.
    pub partial_members: bool,
    /// The description came from an untrusted source, such as a guest.
    pub untrusted: bool,
}

/// Segment boundaries in the payload of a superframe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Unknown: only the flags mark the packet as a superframe.
    #[default]
    Unknown,
    /// Segments of this many bytes; the last one carries the rest.
    Every(u16),
    /// Segments of these lengths in bytes.
    Parts(Vec<u32>),
    /// IP fragments with at most this many bytes of data.
    Fragments(u16),
}

/// Transport protocol of the packets of a superframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentTransport {
    /// Not recorded.
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
        let offload = |checksum, transport| Offload {
            checksum,
            gso: Some(Segmentation { transport, ..Segmentation::default() }),
            ..Offload::default()
        };
        let partial = ChecksumState::Partial { place: None };
        let mut meta = PacketMeta {
            flags: Some(0xffff_0001 | flag::CHECKSUM_VALID),
            offload: Some(offload(partial, SegmentTransport::Tcp)),
            ..PacketMeta::default()
        };
        assert_eq!(meta.flags_to_write(), Some(0xffff_0a01));
        meta.offload = Some(offload(partial, SegmentTransport::Udp));
        assert_eq!(meta.flags_to_write(), Some(0xffff_0201), "bit 11 is for TCP alone");
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
        assert_eq!(partial_tcp.checksum, ChecksumState::Partial { place: None });
        assert_eq!(partial_tcp.gso.unwrap().cut, Cut::Unknown);
        let valid = Offload::from_flags(0x400).unwrap();
        assert_eq!(valid.checksum, ChecksumState::Unnecessary { levels: 0 });
        assert_eq!(valid.gso, None);
    }
}
