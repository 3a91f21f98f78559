//! The header stacks seen lately, so that a packet whose stack is known need not be dissected.
//!
//! What headers a packet has is decided by a few bits of them: EtherTypes, protocols, versions,
//! header lengths, tunnel ports and flags. A packet that agrees in those bits with one that was
//! dissected has the same headers.

use alloc::{boxed::Box, vec::Vec};

use grosso_wire::{Kind, Layer, Stack};

use crate::{
    coalesce::{reason::Pass, train::Bounds},
    flow::Keys,
    template::{compare::Mask, shape::Shape},
};

/// A known header stack.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) stack: Stack,
    pub(crate) shape: Shape,
    pub(crate) keys: Keys,
    /// The bits that are equal along a train.
    pub(crate) equality: Mask,
    /// The bits that decide what headers there are.
    structure: Mask,
    /// A packet that has them.
    example: Box<[u8]>,
    /// The limits of a train with these headers.
    pub(crate) bounds: Bounds,
    /// Why packets with these headers are in no train, whatever else they hold.
    pub(crate) refusal: Option<Pass>,
}

/// A bounded list of known header stacks.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    known: Vec<Known>,
    latest: usize,
}

impl Shapes {
    /// The place of the packet's headers, if they are those of the packet before or among the first
    /// known.
    #[inline]
    pub(crate) fn find(&mut self, packet: &[u8]) -> Option<usize> {
        if self.known.get(self.latest)?.has(packet) {
            return Some(self.latest);
        }
        let found = self.known.iter().take(LOOK_BACK).position(|known| known.has(packet))?;
        self.latest = found;
        Some(found)
    }

    /// The place of the packet's headers, wherever it is.
    pub(crate) fn search(&mut self, packet: &[u8]) -> Option<usize> {
        let found = self.known.iter().position(|known| known.has(packet))?;
        self.latest = found;
        Some(found)
    }

    /// The place of the headers used last.
    #[inline]
    pub(crate) fn latest(&self) -> usize {
        self.latest
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&Known> {
        self.known.get(place)
    }

    /// Whether another one exceeds the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= SHAPES_MAX
    }

    /// Forgets all; nothing may refer to any.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// Remembers the headers of a packet, whose innermost is TCP or UDP; gives their place.
    pub(crate) fn remember(
        &mut self,
        stack: &Stack,
        shape: Shape,
        packet: &[u8],
        bounds: Bounds,
        refusal: Option<Pass>,
    ) -> usize {
        self.known.push(Known::new(stack, shape, packet, bounds, refusal));
        self.latest = self.known.len() - 1;
        self.latest
    }
}

impl Known {
    #[cold]
    fn new(
        stack: &Stack,
        shape: Shape,
        packet: &[u8],
        bounds: Bounds,
        refusal: Option<Pass>,
    ) -> Self {
        let header = packet.get(..stack.header_len()).unwrap_or_default();
        Self {
            stack: *stack,
            shape,
            keys: Keys::of(stack.layers(), header),
            equality: Mask::equality(stack, header),
            structure: structure(stack),
            example: header.into(),
            bounds,
            refusal,
        }
    }

    #[inline]
    fn has(&self, packet: &[u8]) -> bool {
        packet.len() >= self.shape.header_len && self.structure.agrees(&self.example, packet)
    }
}

/// The bits that the dissector looks at, apart from lengths.
fn structure(stack: &Stack) -> Mask {
    let mut mask = Mask::nothing(stack.header_len());
    for layer in stack.layers() {
        for (at, bits) in structure_bits(layer) {
            mask.add(layer.offset as usize + at, bits);
        }
    }
    mask
}

/// Those bits of one header: places in it, each with the bits that count.
fn structure_bits(layer: &Layer) -> impl Iterator<Item = (usize, u8)> {
    let whole: core::ops::Range<usize> = match layer.kind {
        Kind::Ethernet => 12..14,
        Kind::Sll => 14..16,
        Kind::Sll2 => 0..2,
        Kind::Null => 0..4,
        Kind::Vlan | Kind::Udp => 2..4,
        Kind::Geneve | Kind::Gre | Kind::Vxlan | Kind::VxlanGpe => 0..4,
        Kind::Gue => 0..layer.len as usize,
        Kind::Ipv6Extension => 0..2,
        Kind::Mpls | Kind::Pppoe | Kind::Ipv4 | Kind::Ipv6 | Kind::Tcp => 0..0,
        // No train has these.
        Kind::Ipv6Fragment | Kind::Icmp | Kind::Esp => 0..0,
    };
    let single: &[(usize, u8)] = match layer.kind {
        Kind::Ipv4 => &[(0, 0xff), (6, 0x3f), (7, 0xff), (9, 0xff)],
        Kind::Ipv6 => &[(0, 0xf0), (6, 0xff)],
        Kind::Tcp => &[(12, 0xf0)],
        Kind::Mpls => &[(2, 0x01)],
        Kind::Pppoe => &[(0, 0xff), (1, 0xff), (6, 0xff), (7, 0xff)],
        // The low byte of the second word says where remote checksum offload points.
        Kind::Vxlan | Kind::VxlanGpe => &[(7, 0xff)],
        _ => &[],
    };
    whole.map(|at| (at, 0xff)).chain(single.iter().copied())
}

/// Most header stacks remembered; about 1.3 KiB each. Reaching it ends all trains and starts
/// afresh.
const SHAPES_MAX: usize = 64;

/// How many of them a packet is compared with before it is dissected.
const LOOK_BACK: usize = 4;
