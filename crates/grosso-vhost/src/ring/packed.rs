//! The device's side of a packed virtqueue (virtio 1.3 section 2.8): the driver writes entries to a single ring of
//! descriptors, and the device writes the same entries back in order when it has used them.
//!
//! The ring itself always records how far the device has used it, so that another device can continue if one dies; see
//! [`locate`]. For this reason, the device marks descriptors as used only after it has written their lengths, and in
//! reverse order: the first descriptor of an entry is marked last, and the first entry of a frame is marked last. The
//! driver therefore sees only whole frames, and a device that finds only some of these marks can add the others.

use super::{Base, Chain, ChainFault, FETCHED_AHEAD, Taken, pieces::Pieces};
use crate::vring::{
    Cursor, Descriptor, HAS_NEXT, IS_AVAILABLE, IS_TABLE, IS_USED, IS_WRITTEN, PackedParts,
};

/// A packed virtqueue as used by its device.
#[derive(Debug)]
pub(super) struct PackedRing {
    parts: PackedParts,
    /// Position of the next descriptor to take.
    next: Cursor,
    /// Number of descriptors, starting at `next`, that are known to be available.
    known: u16,
    /// Number of descriptors taken since the last publish.
    taken: u16,
    /// Number of taken descriptors that precede the current frame.
    before: u16,
    /// Entries to mark as used at the next publish.
    returned: Vec<Returned>,
    is_broken: bool,
}

/// An entry to mark as used.
#[derive(Clone, Copy, Debug)]
struct Returned {
    chain: Chain,
    /// Whether the entry is the last entry of its frame.
    is_last: bool,
}

impl PackedRing {
    pub(super) fn new(parts: PackedParts, base: Base) -> Self {
        let left = match base {
            Base::Left(bits) => Some(Cursor::from_bits(bits as u16)),
            Base::Told(_) => None,
        };
        let left = left.filter(|place| place.index < parts.size());
        let next = left.unwrap_or_else(|| find(&parts));
        let (known, taken, before) = (0, 0, 0);
        let returned = Vec::new();
        Self { parts, next, known, taken, before, returned, is_broken: false }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn base(&self) -> u32 {
        // All taken descriptors have been used when this is called.
        let bits = u32::from(self.next.bits());
        bits << 16 | bits
    }

    pub(super) fn offered(&self) -> u16 {
        self.known
    }

    pub(super) fn begin(&mut self) {
        self.before = self.taken;
    }

    pub(super) fn undo(&mut self) {
        let by = self.at_hand();
        self.next = self.next.back(by, self.parts.size());
        self.known = self.known.saturating_add(by).min(self.parts.size());
        self.taken = self.before;
    }

    pub(super) fn has_all(&self) -> bool {
        self.at_hand() == self.parts.size()
    }

    pub(super) fn take(&mut self, pieces: &mut Pieces) -> Result<Option<Taken>, ChainFault> {
        if self.known == 0 {
            self.known = self.look();
        }
        if self.known == 0 || self.is_broken {
            return Ok(None);
        }
        let taken = self.walk(pieces);
        self.is_broken = taken.is_none();
        taken.map(Some).ok_or(ChainFault::Overrun)
    }

    pub(super) fn give_back(&mut self, chains: &[Chain]) {
        self.returned.extend(chains.iter().map(|chain| Returned { chain: *chain, is_last: false }));
        if let Some(last) = self.returned.last_mut() {
            last.is_last = true;
        }
    }

    pub(super) fn publish(&mut self) -> bool {
        let (size, count) = (self.parts.size(), core::mem::take(&mut self.taken));
        if count == 0 {
            return false;
        }
        let mut place = self.next.back(count, size);
        for frame in self.returned.chunk_by(|entry, _| !entry.is_last) {
            place = use_frame(&self.parts, place, frame);
        }
        debug_assert!(self.is_broken || place == self.next, "all taken entries are used");
        self.returned.clear();
        self.parts.wants(place, count)
    }

    pub(super) fn ask(&mut self) -> bool {
        let size = self.parts.size();
        let place = self.next.forward(self.known, size);
        self.parts.ask(place);
        self.taken + self.known < size && self.parts.is_available(place)
    }

    pub(super) fn hush(&mut self) {
        self.parts.hush();
    }

    #[inline]
    pub(super) fn ahead(&self) -> Option<u64> {
        let place = self.next.forward(FETCHED_AHEAD.min(self.known), self.parts.size());
        (self.known > FETCHED_AHEAD).then(|| self.parts.descriptor(place.index).address)
    }

    /// Returns the number of descriptors in the current frame.
    fn at_hand(&self) -> u16 {
        self.taken - self.before
    }

    /// Returns the number of available descriptors, at most [`LOOKED_AHEAD`].
    fn look(&self) -> u16 {
        let size = self.parts.size();
        let most = (size - self.taken).min(LOOKED_AHEAD);
        let mut place = self.next;
        for count in 0..most {
            if !self.parts.is_available(place) {
                return count;
            }
            place = place.forward(1, size);
        }
        most
    }

    /// Takes the chain at the next descriptor and adds its pieces. Walks to the end of the chain even after a fault,
    /// because the next chain starts there. Returns `None` if the end is not in the ring.
    fn walk(&mut self, pieces: &mut Pieces) -> Option<Taken> {
        let size = self.parts.size();
        let (mut place, mut walked) = (self.next, Ok(0));
        for slots in 1..=size - self.taken {
            let descriptor = self.parts.descriptor(place.index);
            place = place.forward(1, size);
            walked = match walked {
                Ok(bytes) => add(pieces, descriptor, bytes, slots == 1),
                Err(fault) => {
                    pieces.walked += 1;
                    Err(fault)
                }
            };
            if !descriptor.has(HAS_NEXT) {
                self.next = place;
                self.taken += slots;
                self.known = self.known.saturating_sub(slots);
                return Some(Taken::new(descriptor.number, slots, walked));
            }
        }
        None
    }
}

/// Adds a descriptor's buffer to a chain of `before` bytes and returns the new length. An indirect table is the only
/// descriptor of its chain, and only the direction flag of its descriptors is meaningful.
fn add(
    pieces: &mut Pieces,
    descriptor: Descriptor,
    before: u32,
    is_first: bool,
) -> Result<u32, ChainFault> {
    if !descriptor.has(IS_TABLE) {
        return pieces.add(descriptor, before);
    }
    if descriptor.has(HAS_NEXT) || !is_first {
        return Err(ChainFault::Table);
    }
    let mut bytes = before;
    for number in 0..Pieces::entries(descriptor)? {
        bytes = pieces.add(Descriptor::packed(pieces.entry(descriptor, number)?), bytes)?;
    }
    Ok(bytes)
}

/// Marks the entries of a frame, starting at `place`, as used. Returns the position after them.
#[inline]
fn use_frame(parts: &PackedParts, place: Cursor, frame: &[Returned]) -> Cursor {
    let size = parts.size();
    if let [Returned { chain: Chain { number, slots: 1, bytes }, .. }] = *frame {
        parts.give_back(place, number, bytes);
        return place.forward(1, size);
    }
    let mut end = place;
    for Returned { chain, .. } in frame {
        // The total length of several descriptors is written only together with the mark. It may exceed the buffer of
        // the first descriptor, and a device that took over before the mark would write beyond that buffer.
        if chain.slots > 1 {
            parts.name(end, chain.number);
        } else {
            parts.name_length(end, chain.bytes);
        }
        end = end.forward(chain.slots, size);
    }
    let mut place = end;
    for Returned { chain, .. } in frame.iter().rev() {
        for _ in 1..chain.slots {
            place = place.back(1, size);
            parts.mark(place, false);
        }
        place = place.back(1, size);
        parts.give_back(place, chain.number, chain.bytes);
    }
    end
}

/// Finds the entry to continue with after a previous device, which may have died at any time. If it died while marking
/// a frame, adds the missing marks.
fn find(parts: &PackedParts) -> Cursor {
    let place = locate(parts);
    let size = parts.size();
    let mut behind = place;
    let mut count = 0;
    while count < size && parts.is_available(behind) {
        behind = behind.forward(1, size);
        count += 1;
    }
    if count == 0 || count == size || !parts.is_used(behind) {
        return place;
    }
    for _ in 0..count {
        behind = behind.back(1, size);
        let is_written = parts.flags(behind.index) & IS_WRITTEN != 0;
        parts.mark(behind, is_written);
    }
    locate(parts)
}

/// Returns the next entry to take, which is the first entry after the used entries.
///
/// The flags of each descriptor show in which of two laps it was made available, and whether it was used in that lap.
/// Starting with the oldest descriptor, the ring contains used descriptors from one lap, used descriptors from the next
/// lap, and then available descriptors. A driver writes the first descriptor of a chain last. Until then, the oldest
/// descriptor is followed by descriptors from a further lap. A chain that is as long as the ring looks like missing
/// marks while the driver writes it; shorter chains do not.
fn locate(parts: &PackedParts) -> Cursor {
    let size = parts.size();
    let marks: Vec<Mark> = (0..size).map(|index| Mark::new(parts.flags(index))).collect();
    let number = |index: u16| usize::from(index);
    // The lap that a descriptor would have if it continued the lap of the previous descriptor.
    let lap = |index: u16| match index.checked_sub(1) {
        Some(before) => marks[number(before)].is_odd,
        None => !marks[number(size - 1)].is_odd,
    };
    let is_oldest = |index: &u16| lap(*index) != marks[number(*index)].is_odd;
    let is_used = |index: &u16| marks[number(*index)].is_used;
    let all = || (0..size).filter(is_oldest);
    // In one pass around the ring, the lap flag changes an odd number of times.
    let start = all().find(is_used).or_else(|| all().next()).unwrap_or(0);
    let oldest = marks[number(start)];
    if !oldest.is_used {
        return Cursor { index: start, is_odd: oldest.is_odd };
    }
    let follows = |index: &u16| {
        let before = index.checked_sub(1).unwrap_or(size - 1);
        let mark = marks[number(*index)];
        is_used(&before) && mark.is_used == (mark.is_odd != lap(*index))
    };
    let round = (start..size).chain(0..start);
    if let Some(index) = round.clone().find(follows) {
        return Cursor { index, is_odd: lap(index) };
    }
    // A chain that fills the ring is being written, so the next entry either follows it or is the chain itself.
    let mut behind = round.skip(2);
    match behind.find(is_oldest) {
        Some(index) => Cursor { index, is_odd: marks[number(index)].is_odd },
        None => Cursor { index: start, is_odd: !oldest.is_odd },
    }
}

/// Meaning of a descriptor's flags.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Whether the descriptor was made available in an odd lap.
    is_odd: bool,
    /// Whether the descriptor was used in that lap, or has never been made available.
    is_used: bool,
}

impl Mark {
    fn new(flags: u16) -> Self {
        let [is_odd, is_used] = [IS_AVAILABLE, IS_USED].map(|flag| flags & flag != 0);
        Self { is_odd, is_used: is_odd == is_used }
    }
}

/// Number of descriptors that are read ahead before the first one is taken, to bring them into the cache together.
const LOOKED_AHEAD: u16 = 64;
