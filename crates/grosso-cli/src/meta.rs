//! Translation of the packet metadata in captures to that of the engine, and back.

use grosso::{Meta, checksum::Checksum, meta::Gso};
use grosso_io::capture::{self, ChecksumState, Offload, Segmentation, TunnelPort, flag};
use grosso_wire::{Ports, Stack};

use crate::checksums::Claim;

/// The checksum of a packet that is partial according to the capture.
pub(crate) fn claim(said: &capture::PacketMeta, stack: &Stack) -> Claim {
    let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
    claim_of(state, stack)
}

/// The same for a packet whose innermost transport checksum is known to be partial.
pub(crate) fn claim_of_transport(stack: &Stack) -> Claim {
    claim_of(ChecksumState::Partial { place: None }, stack)
}

fn claim_of(state: ChecksumState, stack: &Stack) -> Claim {
    match state.to_engine(stack) {
        Checksum::Partial { start, offset } => {
            Claim::Partial { at: start as usize + offset as usize }
        }
        _ => Claim::None,
    }
}

/// The ports by which the headers of a packet are found: those that the user named, else those that the
/// capture recorded with the packet, else the assigned ones. `given` are the user's and the assigned ones.
pub(crate) fn ports(said: &capture::PacketMeta, given: Ports) -> Ports {
    ports_in(tunnels(said), given)
}

/// The same for a packet inside these tunnels.
pub(crate) fn ports_in(tunnels: &[TunnelPort], given: Ports) -> Ports {
    let mut ports = TunnelPort::over(tunnels, &given);
    if !tunnels.is_empty() {
        TunnelPort::unassigned(&given).for_each(|named| named.set(&mut ports));
    }
    ports
}

/// The tunnels on unassigned ports that the capture recorded with a packet.
pub(crate) fn tunnels(said: &capture::PacketMeta) -> &[TunnelPort] {
    said.offload.as_ref().map_or(&[], |offload| &offload.tunnel_ports)
}

/// A superframe of unknown geometry, which no train may include.
pub(crate) fn opaque() -> Option<Gso> {
    Gso::every(1).map(|gso| Gso { untrusted: true, ..gso })
}

/// The metadata that still holds for a packet that was cut from a superframe: direction and the like, the
/// tag and the hash that a device took, the ports of its tunnels. Without any of these, only flags remain.
pub(crate) fn of_segment(from: &capture::PacketMeta, is_partial: bool) -> capture::PacketMeta {
    let kept = from.flags.unwrap_or(0) & !flag::OFFLOADS;
    let flags = kept | if is_partial { flag::CHECKSUM_NOT_READY } else { 0 };
    let beside = from.offload.as_ref().filter(|offload| {
        offload.vlan.is_some() || offload.hash.is_some() || !offload.tunnel_ports.is_empty()
    });
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
            tunnel_ports: offload.tunnel_ports.clone(),
        }),
    }
}

/// The metadata of a packet in the form of the engine. A superframe of unknown geometry stays
/// one.
pub(crate) fn known(said: &capture::PacketMeta, stack: &Stack) -> Meta {
    let Some(offload) = &said.offload else { return Meta::default() };
    let gso = offload.gso.as_ref().and_then(|gso| gso.to_engine().or_else(opaque));
    Meta { gso, ..offload.to_engine(stack) }
}

/// The metadata of a packet that was put into a tunnel or taken out of one, for which `known` holds
/// now. `tunnels` are those around it on unassigned ports.
pub(crate) fn of_tunnelled(
    from: &capture::PacketMeta,
    known: &Meta,
    tunnels: Vec<TunnelPort>,
) -> capture::PacketMeta {
    let mut written = of_segment(from, false);
    let Some(offload) = &from.offload else {
        // There was no metadata, and only a partial checksum, a segment size or a tunnel's port requires some.
        let is_unfinished =
            matches!(known.checksum, Checksum::Partial { .. }) || known.gso.is_some();
        if is_unfinished || !tunnels.is_empty() {
            let known = if is_unfinished { known } else { &Meta::default() };
            let left = Offload::of_engine(known, Default::default(), Vec::new());
            written.offload = Some(Offload { tunnel_ports: tunnels, ..left });
        }
        return written;
    };
    let left = Offload::of_engine(known, Default::default(), Vec::new());
    let gso = left.gso.map(|found| match offload.gso.clone() {
        Some(recorded) => Segmentation { fixed_ids: found.fixed_ids, ..recorded },
        None => found,
    });
    let mut left = Offload { gso, tunnel_ports: tunnels, ..left };
    if left.gso.is_some() {
        left.arrivals_ns.clone_from(&offload.arrivals_ns);
    }
    // A checksum state that no device reported was not captured.
    if matches!(offload.checksum, ChecksumState::None) && is_sum(left.checksum) {
        left.checksum = ChecksumState::None;
    }
    written.offload = (left != Offload::default()).then_some(left);
    written.flags = from.flags.map(|flags| flags & !flag::OFFLOADS).filter(|flags| *flags != 0);
    written
}

fn is_sum(checksum: ChecksumState) -> bool {
    matches!(checksum, ChecksumState::Complete { .. })
}
