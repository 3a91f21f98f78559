//! Cache of recent header stacks. A packet whose stack is known need not be dissected.
//!
//! A few bits of a packet determine its headers: EtherTypes, protocols, versions, header lengths, tunnel ports and
//! flags. A packet that has the same bits as a dissected packet has the same headers.

use alloc::boxed::Box;
use core::ops::{Index, Range};

use grosso_wire::{Field, Law, Role, Stack, ipv4, tcp};

use crate::{
    coalesce::{
        emit::reason::{NoMerge, Pass},
        profile::{Options, Rules, Vary},
        rx::{bounds::Bounds, last_packet::LastPacket},
        slots::{
            shape_id::ShapeId,
            slot_map::{Id, SlotMap},
        },
    },
    flow::Keys,
    template::{
        compare::{
            Difference, Mask, TIMESTAMP_LAYOUT, TUNNEL_BYTES, difference, obeys_equality,
            timestamps,
        },
        shape::Shape,
    },
};

/// A known header stack.
#[derive(Clone, Debug)]
pub(crate) struct CachedStack {
    pub(crate) stack: Stack,
    pub(crate) shape: Shape,
    pub(crate) keys: Keys,
    /// Bits that are equal in all packets of a train.
    pub(crate) equality: Mask,
    /// Bits that are equal in all packets of a train except the last: all except those of sequence numbers,
    /// identifications and checksums.
    pub(crate) predicted: Mask,
    /// Bits of `predicted` except acknowledgment, window and timestamps, which change between trains.
    pub(crate) recurring: Mask,
    /// Bits of `recurring` that are the same for all flows.
    pub(crate) form: Mask,
    /// Bits that determine the headers and the flow.
    pub(crate) identity: Mask,
    /// Bits that determine the headers.
    structure: Mask,
    /// Headers of an example packet, zero-padded to the length of tunnel headers.
    example: Box<[u8]>,
    /// Rules on the permitted differences between packets of a train.
    pub(crate) rules: Rules,
    /// Whether trains are invertible.
    pub(crate) is_invertible: bool,
    /// Whether the headers have no TCP options, or only two NOPs and a timestamp. Computed only if the rules need it.
    pub(crate) has_timestamp_only: bool,
    /// Limits on a train with these headers.
    pub(crate) bounds: Bounds,
    /// Header bytes that a superframe takes from its last packet.
    pub(crate) last_packet: LastPacket,
    /// Offset of the timestamps, if they may vary.
    pub(crate) timestamps: Option<u16>,
    /// Reason why packets with these headers can never be merged.
    pub(crate) refusal: Option<Pass>,
}

/// Bounded cache of known header stacks.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    known: SlotMap<ShapeId, CachedStack>,
    latest: ShapeId,
}

impl Shapes {
    /// Returns the ID of the packet's headers if they match those of the previous packet or one of the first entries.
    #[inline(always)]
    pub(crate) fn find(&mut self, packet: &[u8]) -> Option<ShapeId> {
        if self.known.get(self.latest)?.has(packet) {
            return Some(self.latest);
        }
        self.find_early(packet)
    }

    #[inline(never)]
    fn find_early(&mut self, packet: &[u8]) -> Option<ShapeId> {
        let found = self.known.iter().take(LOOK_BACK).position(|known| known.has(packet));
        let found = ShapeId::new(found?);
        self.latest = found;
        Some(found)
    }

    /// Returns the ID of the packet's headers. Searches the whole cache.
    pub(crate) fn search(&mut self, packet: &[u8]) -> Option<ShapeId> {
        let found = self.known.find(|known| known.has(packet))?;
        self.latest = found;
        Some(found)
    }

    /// Returns the ID of the headers used last.
    #[inline]
    pub(crate) fn latest(&self) -> ShapeId {
        self.latest
    }

    #[inline]
    pub(crate) fn get(&self, id: ShapeId) -> Option<&CachedStack> {
        self.known.get(id)
    }

    /// Returns whether the cache is full.
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= SHAPES_MAX
    }

    /// Clears the cache. No ID may be in use.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// Stores the headers of a packet whose innermost header is TCP or UDP, and returns their ID.
    pub(crate) fn remember(
        &mut self,
        stack: &Stack,
        shape: Shape,
        packet: &[u8],
        rules: &Rules,
        bounds: Bounds,
        refusal: Option<Pass>,
    ) -> ShapeId {
        self.latest =
            self.known.push(CachedStack::new(stack, shape, packet, rules, bounds, refusal));
        self.latest
    }
}

impl Index<ShapeId> for Shapes {
    type Output = CachedStack;

    /// Returns the headers with this ID. This cannot fail, because entries are removed only while no ID is in use.
    fn index(&self, id: ShapeId) -> &CachedStack {
        &self.known[id]
    }
}

impl CachedStack {
    fn new(
        stack: &Stack,
        shape: Shape,
        packet: &[u8],
        rules: &Rules,
        bounds: Bounds,
        refusal: Option<Pass>,
    ) -> Self {
        let header = packet.get(..stack.header_len()).unwrap_or_default();
        // UDP packets are merged only if segmentation can restore them.
        let rules = if shape.is_tcp { rules } else { &Rules::INVERTIBLE };
        let mut example = header.to_vec();
        example.resize(header.len().max(TUNNEL_BYTES), 0);
        let predicted = predicted(&shape);
        let recurring = recurring(&predicted, stack, header);
        let timestamps = timestamps(stack, header).filter(|_| rules.varies_timestamps());
        let equality = Mask::equality(stack, header, rules);
        let options_start = shape.transport + tcp::HEADER_LEN;
        let options = header.get(options_start..).unwrap_or_default();
        let are_as_long = options.len() == TIMESTAMP_LAYOUT.len() + 8;
        let is_looked_into = rules.varies_timestamps() || rules.options == Options::TimestampOnly;
        let structure =
            structure(stack, header, (is_looked_into && are_as_long).then_some(options_start));
        let has_timestamp_only =
            options.is_empty() || are_as_long && options.starts_with(&TIMESTAMP_LAYOUT);
        debug_assert!(
            equality.includes(&structure),
            "a packet that agrees with a train has the headers of the train"
        );
        debug_assert!(
            recurring.includes(&structure),
            "a packet that resembles a train has the headers of the train"
        );
        let keys = Keys::of(stack.layers(), header);
        let mut identity = structure.clone();
        keys.bits().for_each(|(at, bits)| identity.add(at, bits));
        let mut form = recurring.clone();
        keys.bits().for_each(|(at, bits)| form.clear(at, bits));
        form.include(&structure);
        Self {
            last_packet: latest(stack, header, rules, timestamps.as_ref()),
            rules: *rules,
            is_invertible: rules.is_invertible(),
            has_timestamp_only,
            timestamps: timestamps.map(|timestamps| timestamps.start as u16),
            stack: *stack,
            shape,
            keys,
            equality,
            predicted,
            recurring,
            form,
            identity,
            structure,
            example: example.into(),
            bounds,
            refusal,
        }
    }

    /// Returns whether a packet with these headers has no payload.
    pub(crate) fn is_empty(&self, packet: &[u8]) -> bool {
        packet.len() == self.shape.header_len
    }

    /// Checks each field that must be equal in two packets with these headers.
    pub(crate) fn obeys_equality(&self, first: &[u8], other: &[u8]) -> bool {
        obeys_equality(&self.stack, first, other, &self.rules, self.timestamps.map(usize::from))
    }

    /// Returns the outermost difference between two packets with these headers.
    pub(crate) fn difference(&self, first: &[u8], other: &[u8]) -> NoMerge {
        match difference(&self.equality, &self.stack, first, other, &self.rules) {
            Difference::Field(role) => NoMerge::of(role),
            Difference::Timestamps => NoMerge::TcpTimestamp,
            Difference::Headers => NoMerge::HeaderStack,
        }
    }

    /// Returns whether a dissected packet has these headers, with checksums that cover the same bytes.
    pub(crate) fn is_of(&self, stack: &Stack, packet: &[u8]) -> bool {
        let shape = Shape::new(stack, packet);
        let (own, its) = (self.shape.covers.iter(), shape.covers.iter());
        let covers = own.map(|cover| (cover.at, cover.ends));
        self.stack.layers() == stack.layers() && covers.eq(its.map(|cover| (cover.at, cover.ends)))
    }

    /// Returns whether a packet has these headers.
    #[inline(always)]
    pub(crate) fn has(&self, packet: &[u8]) -> bool {
        packet.len() >= self.shape.header_len && self.structure.agrees(&self.example, packet)
    }
}

/// Returns all bits except those of sequence numbers, identifications and checksums.
fn predicted(shape: &Shape) -> Mask {
    let mut mask = Mask::every(shape.header_len);
    let mut remove = |start: u16, field: Range<usize>| {
        field.for_each(|at| mask.remove(usize::from(start) + at));
    };
    for ip in &shape.identifications {
        remove(ip.header, ipv4::field::IDENTIFICATION);
        remove(ip.header, ipv4::field::CHECKSUM);
    }
    shape.covers.iter().for_each(|cover| remove(cover.at, 0..2));
    shape.sequence.iter().for_each(|&at| remove(at, 0..4));
    mask
}

/// Returns the subset of `predicted` that stays the same between trains.
fn recurring(predicted: &Mask, stack: &Stack, header: &[u8]) -> Mask {
    let mut mask = predicted.clone();
    for layer in stack.layers() {
        let start = layer.offset as usize;
        let layout = layer.kind.spec().layout(header.get(start..).unwrap_or_default());
        let changes = |field: &&Field| matches!(field.role, Role::Acknowledgment | Role::Window);
        for field in layout.fields.iter().filter(changes) {
            field.bytes.clone().for_each(|at| mask.remove(start + at));
        }
    }
    timestamps(stack, header).into_iter().flatten().for_each(|at| mask.remove(at));
    mask
}

/// Returns the header bytes that a superframe takes from its last packet.
fn latest(
    stack: &Stack,
    header: &[u8],
    rules: &Rules,
    timestamps: Option<&Range<usize>>,
) -> LastPacket {
    let mut latest = LastPacket::default();
    let mut take = |vary: Vary, start: usize, len: usize| {
        if vary == Vary::Latest {
            (start..start + len).for_each(|at| latest.add(at, header.len()));
        }
    };
    for layer in stack.layers() {
        let start = layer.offset as usize;
        let layout = layer.kind.spec().layout(header.get(start..).unwrap_or_default());
        for field in layout.fields {
            let vary = match field.law {
                Law::Equal | Law::Identification => rules.vary(field.role),
                _ => Vary::Equal,
            };
            take(vary, start + field.bytes.start, field.bytes.len());
        }
    }
    if let Some(&Range { start, .. }) = timestamps {
        take(rules.timestamp_value, start, 4);
        take(rules.timestamp_echo, start + 4, 4);
    }
    latest
}

/// Returns the bits that determine the headers. If timestamps may vary or are the only permitted option, they also
/// distinguish timestamps from other options of the same total length.
fn structure(stack: &Stack, header: &[u8], options: Option<usize>) -> Mask {
    let mut mask = Mask::structure(stack, header);
    if let Some(start) = options {
        (start..start + TIMESTAMP_LAYOUT.len()).for_each(|at| mask.add(at, 0xff));
    }
    mask
}

/// Maximum number of cached header stacks, about 4.9 KiB each. At the maximum, all trains are closed and the cache is
/// cleared.
const SHAPES_MAX: usize = 64;

/// Number of entries compared with a packet before it is dissected.
const LOOK_BACK: usize = 4;
