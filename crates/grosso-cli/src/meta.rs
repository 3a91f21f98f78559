//! What captures say about packets, in the engine's words, and back.

use core::num::NonZeroU16;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Cut, Cwr, Gso, IpLevels, VlanTag},
};
use grosso_io::capture::{self, ChecksumState, Offload, PartialPlace, SegmentTransport, flag};
use grosso_wire::{Kind, Stack, tcp, udp};

use crate::checksums::Claim;

/// What the capture says about the checksums of a packet.
///
/// Flags alone say that a checksum is partial, not which: it is the one of the innermost transport
/// header, as in every superframe of Linux.
pub(crate) fn checksum(state: ChecksumState, stack: &Stack) -> Checksum {
    match state {
        ChecksumState::None => Checksum::None,
        ChecksumState::Unnecessary { levels } => Checksum::Unnecessary { levels },
        ChecksumState::Complete { sum } => Checksum::Complete { sum },
        ChecksumState::Partial { place: Some(PartialPlace { start, offset }) } => {
            Checksum::Partial { start, offset }
        }
        ChecksumState::Partial { place: None } => match stack.last() {
            Some(layer) if layer.kind == Kind::Tcp => {
                Checksum::Partial { start: layer.offset, offset: tcp::field::CHECKSUM.start as u16 }
            }
            Some(layer) if layer.kind == Kind::Udp => {
                Checksum::Partial { start: layer.offset, offset: udp::field::CHECKSUM.start as u16 }
            }
            _ => Checksum::None,
        },
    }
}

/// Which checksum of a packet the capture says is partial.
pub(crate) fn claim(said: &capture::PacketMeta, stack: &Stack) -> Claim {
    let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
    match checksum(state, stack) {
        Checksum::Partial { start, offset } => {
            Claim::Partial { at: start as usize + offset as usize }
        }
        _ => Claim::None,
    }
}

/// How the capture says that a superframe is cut; `None` when it does not say where.
///
/// Parts are of unequal size, so they are no description that the engine can hold: whoever cuts
/// hands it the parts as slices.
pub(crate) fn gso(segmentation: &capture::Segmentation) -> Option<Gso> {
    let cut = match &segmentation.cut {
        capture::Cut::Unknown => return None,
        capture::Cut::Every(size) => Cut::Every(NonZeroU16::new(*size)?),
        capture::Cut::Parts(_) => Cut::Parts,
        capture::Cut::Fragments(size) => Cut::Fragments(NonZeroU16::new(*size)?),
    };
    Some(Gso {
        cut,
        segments: segmentation.segments,
        fixed_ids: IpLevels::from_bits(segmentation.fixed_ids),
        cwr: if segmentation.cwr_on_all { Cwr::Every } else { Cwr::First },
        partial_members: segmentation.partial_members,
        untrusted: segmentation.untrusted,
    })
}

/// A superframe of unknown geometry, which no train may take in.
pub(crate) fn opaque() -> Option<Gso> {
    Gso::every(1).map(|gso| Gso { untrusted: true, ..gso })
}

/// What the engine says about a superframe, for the capture that it is written to.
pub(crate) fn offload(meta: &Meta, is_tcp: bool, arrivals_ns: Vec<u32>) -> Offload {
    let gso = meta.gso.map(|gso| capture::Segmentation {
        cut: match gso.cut {
            Cut::Every(size) => capture::Cut::Every(size.get()),
            Cut::Parts => capture::Cut::Unknown,
            Cut::Fragments(size) => capture::Cut::Fragments(size.get()),
        },
        transport: if is_tcp { SegmentTransport::Tcp } else { SegmentTransport::Udp },
        segments: gso.segments,
        fixed_ids: gso.fixed_ids.bits(),
        cwr_on_all: gso.cwr == Cwr::Every,
        partial_members: gso.partial_members,
        untrusted: gso.untrusted,
    });
    Offload {
        checksum: match meta.checksum {
            Checksum::None => ChecksumState::None,
            Checksum::Unnecessary { levels } => ChecksumState::Unnecessary { levels },
            Checksum::Complete { sum } => ChecksumState::Complete { sum },
            Checksum::Partial { start, offset } => {
                ChecksumState::Partial { place: Some(PartialPlace { start, offset }) }
            }
        },
        gso,
        vlan: meta.vlan.map(|VlanTag { protocol, tci }| capture::VlanTag { protocol, tci }),
        hash: meta.hash,
        arrivals_ns,
    }
}

/// The engine's word for a VLAN tag beside the packet.
pub(crate) fn vlan(offload: &Offload) -> Option<VlanTag> {
    offload.vlan.map(|tag| VlanTag { protocol: tag.protocol, tci: tag.tci })
}

/// What is left to say about a packet that was cut from a superframe: direction and the like, the
/// tag and the hash that a device took. `None` says nothing beyond the flags.
pub(crate) fn of_segment(from: &capture::PacketMeta, is_partial: bool) -> capture::PacketMeta {
    let kept = from.flags.unwrap_or(0) & !flag::OFFLOADS;
    let flags = kept | if is_partial { flag::CHECKSUM_NOT_READY } else { 0 };
    let beside =
        from.offload.as_ref().filter(|offload| offload.vlan.is_some() || offload.hash.is_some());
    capture::PacketMeta {
        timestamp_ns: from.timestamp_ns,
        interface: from.interface,
        original_len: 0,
        flags: (flags != 0).then_some(flags),
        offload: beside.map(|offload| Offload {
            checksum: if is_partial {
                ChecksumState::Partial { place: None }
            } else {
                ChecksumState::None
            },
            gso: None,
            vlan: offload.vlan,
            hash: offload.hash,
            arrivals_ns: Vec::new(),
        }),
    }
}
