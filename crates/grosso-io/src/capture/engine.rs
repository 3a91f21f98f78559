//! Conversion between the metadata of captures and the engine's.

use core::num::NonZeroU16;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{self, Gso},
};
use grosso_wire::{Kind, LinkType, Ports, Stack, dissect_into, tcp, udp};

use super::metadata::{
    ChecksumState, Cut, Offload, PacketMeta, PartialPlace, SegmentTransport, Segmentation,
};
use super::tunnel_port::TunnelPort;

impl PacketMeta {
    /// Metadata for a capture of a frame with the engine's metadata `meta`. `stack` is scratch
    /// space for the frame's headers, which are dissected with `ports`.
    pub(crate) fn of_frame(
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
        let mut offload = Offload::of_engine(meta, transport, Vec::new());
        offload.tunnel_ports = TunnelPort::of_packet(frame, stack, ports);
        let says_something = offload != Offload::default();
        Self {
            timestamp_ns: meta.timestamp_ns,
            original_len: frame.len() as u32,
            offload: says_something.then_some(offload),
            ..Self::default()
        }
    }
}

impl ChecksumState {
    /// The engine's checksum state for a packet with these headers.
    ///
    /// Flags alone say that a checksum is partial, but not which one. It is taken to be that of the
    /// innermost transport header, as in every superframe of Linux.
    #[must_use]
    pub fn to_engine(self, stack: &Stack) -> Checksum {
        match self {
            Self::None => Checksum::None,
            Self::Unnecessary { levels } => Checksum::Unnecessary { levels },
            Self::Complete { sum } => Checksum::Complete { sum },
            Self::Partial { place: Some(PartialPlace { start, offset }) } => {
                Checksum::Partial { start, offset }
            }
            Self::Partial { place: None } => innermost(stack),
        }
    }
}

/// The partial checksum of the innermost transport header.
fn innermost(stack: &Stack) -> Checksum {
    let Some(layer) = stack.last() else { return Checksum::None };
    let offset = match layer.kind {
        Kind::Tcp => tcp::field::CHECKSUM.start,
        Kind::Udp => udp::field::CHECKSUM.start,
        _ => return Checksum::None,
    };
    Checksum::Partial { start: layer.offset, offset: offset as u16 }
}

impl Segmentation {
    /// The engine's description of the segmentation; `None` when the capture does not say where to
    /// cut.
    ///
    /// Parts of unequal size do not fit into the engine's description: the caller of the segmenter
    /// passes such parts as slices.
    #[must_use]
    pub fn to_engine(&self) -> Option<Gso> {
        let cut = match &self.cut {
            Cut::Unknown => return None,
            Cut::Every(size) => meta::Cut::Every(NonZeroU16::new(*size)?),
            Cut::Parts(_) => meta::Cut::Parts,
            Cut::Fragments(size) => meta::Cut::Fragments(NonZeroU16::new(*size)?),
        };
        Some(Gso {
            cut,
            segments: self.segments,
            fixed_ids: self.fixed_ids,
            cwr: self.cwr,
            partial_members: self.partial_members,
            untrusted: self.untrusted,
        })
    }
}

impl Offload {
    /// The metadata of a frame in the engine, for the capture that it is written to. Ports of
    /// tunnels are left empty.
    #[must_use]
    pub fn of_engine(meta: &Meta, transport: SegmentTransport, arrivals_ns: Vec<u32>) -> Self {
        let gso = meta.gso.map(|gso| Segmentation {
            cut: match gso.cut {
                meta::Cut::Every(size) => Cut::Every(size.get()),
                meta::Cut::Parts => Cut::Unknown,
                meta::Cut::Fragments(size) => Cut::Fragments(size.get()),
            },
            transport,
            segments: gso.segments,
            fixed_ids: gso.fixed_ids,
            cwr: gso.cwr,
            partial_members: gso.partial_members,
            untrusted: gso.untrusted,
        });
        Self {
            checksum: match meta.checksum {
                Checksum::None => ChecksumState::None,
                Checksum::Unnecessary { levels } => ChecksumState::Unnecessary { levels },
                Checksum::Complete { sum } => ChecksumState::Complete { sum },
                Checksum::Partial { start, offset } => {
                    ChecksumState::Partial { place: Some(PartialPlace { start, offset }) }
                }
            },
            gso,
            vlan: meta.vlan,
            hash: meta.hash,
            arrivals_ns,
            tunnel_ports: Vec::new(),
        }
    }

    /// The engine's metadata for a packet with these headers, except its timestamp.
    #[must_use]
    pub fn to_engine(&self, stack: &Stack) -> Meta {
        Meta {
            checksum: self.checksum.to_engine(stack),
            gso: self.gso.as_ref().and_then(Segmentation::to_engine),
            vlan: self.vlan,
            hash: self.hash,
            timestamp_ns: None,
        }
    }
}
