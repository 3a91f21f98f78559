//! Converts packet metadata between captures and the engine.

use grosso::{Meta, checksum::Checksum, meta::Gso};
use grosso_capture::{Offload, PacketMeta, TunnelPort, flag};
use grosso_wire::{Ports, Stack};

use crate::checksums::Claim;

/// Returns the checksum that the capture marks as partial, if any.
pub fn claim(said: &PacketMeta, stack: &Stack) -> Claim {
    claim_of(said.known(stack).checksum)
}

/// Returns the claim that a packet's innermost transport checksum is partial.
pub fn claim_of_transport(stack: &Stack) -> Claim {
    claim_of(Checksum::of_transport(stack))
}

fn claim_of(checksum: Checksum) -> Claim {
    match checksum {
        Checksum::Partial { start, offset } => {
            Claim::Partial { at: start as usize + offset as usize }
        }
        _ => Claim::None,
    }
}

/// Returns the UDP ports used to parse a packet: those configured by the user, otherwise those recorded with the
/// packet, otherwise the assigned ones. `given` contains the configured and the assigned ports.
pub fn ports(said: &PacketMeta, given: Ports) -> Ports {
    ports_in(tunnels(said), given)
}

/// Returns the UDP ports used to parse a packet that is inside these tunnels.
pub fn ports_in(tunnels: &[TunnelPort], given: Ports) -> Ports {
    let mut ports = TunnelPort::over(tunnels, &given);
    if !tunnels.is_empty() {
        TunnelPort::unassigned(&given).for_each(|named| named.set(&mut ports));
    }
    ports
}

/// Returns the tunnels on unassigned ports that were recorded with a packet.
pub fn tunnels(said: &PacketMeta) -> &[TunnelPort] {
    said.offload.as_ref().map_or(&[], |offload| &offload.tunnel_ports)
}

/// Returns the metadata that remains valid for a segment of a superframe: direction and similar flags, the VLAN tag and
/// hash from the device, and the ports of the surrounding tunnels. If none of these was recorded, only flags remain.
pub fn of_segment(from: &PacketMeta, is_partial: bool) -> PacketMeta {
    let kept = from.flags.unwrap_or(0) & !flag::OFFLOADS;
    let flags = kept | if is_partial { flag::CHECKSUM_NOT_READY } else { 0 };
    let beside = from.offload.as_ref().map(|offload| Offload {
        meta: Meta { vlan: offload.meta.vlan, hash: offload.meta.hash, ..Meta::default() },
        tunnel_ports: offload.tunnel_ports.clone(),
        ..Offload::default()
    });
    let beside = beside.filter(|beside| *beside != Offload::default());
    PacketMeta {
        timestamp_ns: from.timestamp_ns,
        interface: from.interface,
        original_len: 0,
        flags: (flags != 0).then_some(flags),
        offload: beside.map(|beside| Offload { has_partial_transport: is_partial, ..beside }),
    }
}

/// Returns the metadata of a packet that was encapsulated or decapsulated. `known` is its metadata for the engine, and
/// `tunnels` are the tunnels around it on unassigned ports.
pub fn of_tunnelled(from: &PacketMeta, known: &Meta, tunnels: Vec<TunnelPort>) -> PacketMeta {
    let mut written = of_segment(from, false);
    let Some(recorded) = &from.offload else {
        // The capture recorded no metadata. The output needs metadata only for a partial checksum, a segment size or a
        // tunnel port.
        let is_unfinished =
            matches!(known.checksum, Checksum::Partial { .. }) || known.gso.is_some();
        if is_unfinished || !tunnels.is_empty() {
            let known = if is_unfinished { known } else { &Meta::default() };
            written.offload = Some(Offload { tunnel_ports: tunnels, ..Offload::new(known) });
        }
        return written;
    };
    let mut left = Offload { tunnel_ports: tunnels, ..Offload::new(known) };
    if let Some(found) = &mut left.meta.gso {
        left.transport = recorded.transport;
        left.parts.clone_from(&recorded.parts);
        left.arrivals_ns.clone_from(&recorded.arrivals_ns);
        if let Some(gso) = recorded.meta.gso {
            *found = Gso { fixed_ids: found.fixed_ids, ..gso };
        }
    }
    // If no device reported a checksum state, the output records none.
    let is_told = recorded.is_partial() || recorded.meta.checksum != Checksum::None;
    if !is_told && matches!(left.meta.checksum, Checksum::Complete { .. }) {
        left.meta.checksum = Checksum::None;
    }
    written.offload = (left != Offload::default()).then_some(left);
    written.flags = from.flags.map(|flags| flags & !flag::OFFLOADS).filter(|flags| *flags != 0);
    written
}
