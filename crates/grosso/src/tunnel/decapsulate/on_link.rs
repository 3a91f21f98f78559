//! Ethernet frames that a label stack of the link layer carries, without IP around them.

use core::net::{IpAddr, Ipv4Addr};

use grosso_wire::{Kind, Layer, LinkType, Stack};

use super::{Decapsulation, Details, Front, Path, Presented, Refusal};
use crate::{
    bytes::u32_at,
    checksum::Checksum,
    meta::Meta,
    tunnel::{Tunnel, congestion::Congestion},
};

/// Plans the removal of a label stack around an Ethernet frame; `None` if the link layer has no such stack.
pub(super) fn plan(
    frame: &[u8],
    stack: &Stack,
    meta: &Meta,
    link: LinkType,
    presented: Presented,
) -> Option<Result<Decapsulation, Refusal>> {
    let layers = stack.layers();
    let links = layers.iter().position(|layer| layer.kind.is_ip()).unwrap_or(layers.len());
    let links = layers.get(..links)?;
    let label = links.iter().rposition(|layer| layer.kind == Kind::Mpls)?;
    let mut inside = links.get(label + 1..)?.iter().enumerate();
    let (skipped, inner) = inside.find(|(_, layer)| layer.kind != Kind::Pseudowire)?;
    if inner.kind != Kind::Ethernet {
        return None;
    }
    // Only Ethernet has a place for the addresses of the frame.
    if presented == Presented::OnItsLink && link != LinkType::Ethernet {
        return Some(Err(Refusal::LinkFamily));
    }
    let start = usize::from(inner.offset);
    // The stack may belong to another frame.
    let Some(len) = frame.len().checked_sub(start) else { return Some(Err(Refusal::Malformed)) };
    let Some(checksum) = checksum_inside(meta.checksum, start, len) else {
        return Some(Err(Refusal::ChecksumOutside));
    };
    let entry = u32_at(frame, usize::from(links.get(label)?.offset));
    Some(Ok(Decapsulation {
        tunnel: Tunnel::Header(Kind::Pseudowire),
        path: Path { source: NOWHERE, destination: NOWHERE, identifier: Some(entry >> 12) },
        details: Details { carried: Some(Kind::Ethernet), ..Details::NONE },
        congestion: Congestion::Unchanged,
        meta: Meta { checksum, vlan: None, hash: None, fragmented: None, ..*meta },
        front: Front::NONE,
        start,
        end: frame.len(),
        network: network(layers.get(label + 2 + skipped..)?),
        completed: None,
    }))
}

/// First IP header of the frame, at its start or after VLAN tags.
fn network(inside: &[Layer]) -> Option<Layer> {
    let first = inside.iter().find(|layer| layer.kind != Kind::Vlan)?;
    first.kind.is_ip().then_some(*first)
}

/// Returns the state of the checksums once `start` bytes are removed and `len` are left; `None` if a partial checksum
/// is not inside.
fn checksum_inside(checksum: Checksum, start: usize, len: usize) -> Option<Checksum> {
    match checksum {
        Checksum::Partial { start: partial, offset } => {
            let start = usize::from(partial).checked_sub(start)?;
            if start + usize::from(offset) + 2 > len {
                return None;
            }
            Some(Checksum::Partial { start: u16::try_from(start).ok()?, offset })
        }
        // The sum starts at the first IP header, which stays.
        kept => Some(kept),
    }
}

/// A label stack has no addresses.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
