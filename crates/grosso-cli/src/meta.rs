//! What the commands make of what captures say about packets.

use grosso::{checksum::Checksum, meta::Gso};
use grosso_io::capture::{self, ChecksumState, Offload, flag};
use grosso_wire::Stack;

use crate::checksums::Claim;

/// Which checksum of a packet the capture says is partial.
pub(crate) fn claim(said: &capture::PacketMeta, stack: &Stack) -> Claim {
    let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
    match state.to_engine(stack) {
        Checksum::Partial { start, offset } => {
            Claim::Partial { at: start as usize + offset as usize }
        }
        _ => Claim::None,
    }
}

/// A superframe of unknown geometry, which no train may take in.
pub(crate) fn opaque() -> Option<Gso> {
    Gso::every(1).map(|gso| Gso { untrusted: true, ..gso })
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
