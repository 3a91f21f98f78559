//! Decapsulation of Ethernet frames in an MPLS label stack directly on the link, without an outer IP header.

use core::net::{IpAddr, Ipv4Addr};

use grosso_wire::{Kind, Layer, LinkType, Stack};

use super::{Decapsulation, Details, Front, Path, Presented, Refusal};
use crate::{
    bytes::u32_at,
    checksum::Checksum,
    meta::Meta,
    tunnel::{Tunnel, congestion::Congestion},
};

/// MPLS label stack that directly follows the link header and contains an Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labeled {
    /// Last label of the stack.
    label: Layer,
    /// Index of the frame's Ethernet header in the list of layers.
    inner: usize,
}

impl Labeled {
    /// Finds the label stack. Returns `None` if the link layer has none, which is the case for nearly all packets.
    #[inline]
    pub(super) fn find(stack: &Stack) -> Option<Self> {
        let layers = stack.layers();
        let links = layers.iter().take_while(|layer| !layer.kind.is_ip());
        let (label, &last) =
            links.enumerate().filter(|(_, layer)| layer.kind == Kind::Mpls).last()?;
        let mut inside = layers.iter().enumerate().skip(label + 1);
        let (inner, layer) = inside.find(|(_, layer)| layer.kind != Kind::Pseudowire)?;
        (layer.kind == Kind::Ethernet).then_some(Self { label: last, inner })
    }

    /// Plans the removal of the label stack.
    #[cold]
    pub(super) fn plan(
        self,
        frame: &[u8],
        stack: &Stack,
        meta: &Meta,
        link: LinkType,
        presented: Presented,
    ) -> Result<Decapsulation, Refusal> {
        // Only an Ethernet link can keep the addresses of the frame.
        if presented == Presented::OnItsLink && link != LinkType::Ethernet {
            return Err(Refusal::LinkFamily);
        }
        let inside = stack.layers().get(self.inner..).unwrap_or_default();
        let start = inside.first().map_or(frame.len(), |layer| usize::from(layer.offset));
        // The stack may be that of another frame.
        let len = frame.len().checked_sub(start).ok_or(Refusal::Malformed)?;
        let checksum =
            checksum_inside(meta.checksum, start, len).ok_or(Refusal::ChecksumOutside)?;
        let entry = u32_at(frame, usize::from(self.label.offset));
        Ok(Decapsulation {
            tunnel: Tunnel::Header(Kind::Pseudowire),
            path: Path { source: NOWHERE, destination: NOWHERE, identifier: Some(entry >> 12) },
            details: Details { carried: Some(Kind::Ethernet), ..Details::NONE },
            congestion: Congestion::Unchanged,
            meta: Meta { checksum, vlan: None, hash: None, fragmented: None, ..*meta },
            front: Front::NONE,
            start,
            end: frame.len(),
            network: network(inside.get(1..).unwrap_or_default()),
            completed: None,
        })
    }
}

/// Returns the first IP header in the frame, at the start or after VLAN tags.
fn network(inside: &[Layer]) -> Option<Layer> {
    let first = inside.iter().find(|layer| layer.kind != Kind::Vlan)?;
    first.kind.is_ip().then_some(*first)
}

/// Returns the state of the checksums after removing the first `start` bytes, which leaves `len` bytes. Returns `None`
/// if a partial checksum is not in the remaining bytes.
fn checksum_inside(checksum: Checksum, start: usize, len: usize) -> Option<Checksum> {
    match checksum {
        Checksum::Partial { start: partial, offset } => {
            let start = usize::from(partial).checked_sub(start)?;
            if start + usize::from(offset) + 2 > len {
                return None;
            }
            Some(Checksum::Partial { start: u16::try_from(start).ok()?, offset })
        }
        // The sum starts at the first IP header, which is kept.
        kept => Some(kept),
    }
}

/// Placeholder for endpoint addresses, which a label stack lacks.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
