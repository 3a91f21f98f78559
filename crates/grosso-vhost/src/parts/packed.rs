//! Parts of a packed ring in memory (virtio 1.3 section 2.8), and the rules by which each side of it tells the other.
//!
//! Both sides write into one ring of descriptors, lap by lap: two flags of a descriptor say in which lap it was made
//! available, and in which it was used. Each side says in four bytes of its own when it wants to be told.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use super::{Addresses, DESCRIPTOR_BYTES, Descriptor, IS_WRITTEN, SIZE_MAX, Side};
use crate::memory::{Memory, Place};

/// Place in a packed ring, which is gone round again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Number of the descriptor.
    pub(crate) index: u16,
    /// Whether it is in an odd lap, of which the first is one: virtio's wrap counter.
    pub(crate) is_odd: bool,
}

impl Cursor {
    /// The place of these bits, as messages and events have it.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self { index: bits & !IS_ODD, is_odd: bits & IS_ODD != 0 }
    }

    /// The bits by which messages and events say it.
    pub(crate) fn bits(self) -> u16 {
        self.index | if self.is_odd { IS_ODD } else { 0 }
    }

    /// The place so many descriptors on, a lap at most.
    #[inline]
    pub(crate) fn forward(self, by: u16, size: u16) -> Self {
        debug_assert!(self.index < size && by <= size, "{self:?} + {by} of {size}");
        // Neither is more than 2^15, so that the sum is a number of 16 bits but for one: both are the greatest.
        let end = u32::from(self.index) + u32::from(by);
        match end.checked_sub(size.into()) {
            None => Self { index: end as u16, ..self },
            Some(index) => Self { index: index as u16, is_odd: !self.is_odd },
        }
    }

    /// The place so many descriptors before, a lap at most.
    #[inline]
    pub(crate) fn back(self, by: u16, size: u16) -> Self {
        let Self { index, is_odd } = self.forward(size - by, size);
        Self { index, is_odd: !is_odd }
    }

    /// Descriptors from another place to this one, where they are fewer than a lap.
    fn behind(self, other: Self, size: u16) -> i32 {
        let lap = if self.is_odd == other.is_odd { 0 } else { size.into() };
        i32::from(self.index) - i32::from(other.index) + lap
    }
}

/// Parts of a packed ring as one side has them.
#[derive(Debug)]
pub(crate) struct PackedParts {
    descriptors: Place,
    size: u16,
    /// Events of which this side wants to be told, and the other one.
    mine: Place,
    theirs: Place,
    /// Whether each side may say by a place when it is to be told.
    event_index: bool,
    /// Whether this side has let the other one know that nobody waits.
    is_hushed: bool,
}

impl PackedParts {
    /// Parts of a ring of `size` descriptors; `None` if one of them is not wholly in the memory or not aligned, or
    /// there are no descriptors or too many.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        addresses: &Addresses,
        size: u16,
        side: Side,
        event_index: bool,
    ) -> Option<Self> {
        if size == 0 || size > SIZE_MAX {
            return None;
        }
        let bytes = usize::from(size) * DESCRIPTOR_BYTES;
        let descriptors = memory.place(addresses.descriptors, bytes, DESCRIPTOR_BYTES)?;
        let events = |at| memory.place(at, EVENTS_BYTES, EVENTS_BYTES);
        let (of_device, of_driver) = (events(addresses.used)?, events(addresses.available)?);
        let (mine, theirs) = match side {
            Side::Device => (of_device, of_driver),
            Side::Driver => (of_driver, of_device),
        };
        Some(Self { descriptors, size, mine, theirs, event_index, is_hushed: false })
    }

    /// Number of descriptors.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The flags of a descriptor by its number; what was written before them is seen afterwards.
    #[inline]
    pub(crate) fn flags(&self, index: u16) -> u16 {
        self.descriptors.load(at(index) + FLAGS)
    }

    /// Whether a descriptor was made available, and not used.
    #[inline]
    pub(crate) fn is_available(&self, place: Cursor) -> bool {
        self.flags(place.index) & LAPS == if place.is_odd { IS_AVAILABLE } else { IS_USED }
    }

    /// Whether a descriptor was used.
    #[inline]
    pub(crate) fn is_used(&self, place: Cursor) -> bool {
        self.flags(place.index) & LAPS == if place.is_odd { LAPS } else { 0 }
    }

    /// The descriptor of a number.
    #[inline]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        Descriptor::packed(self.descriptors.pair(at(index)))
    }

    /// Uses an entry, of which the first descriptor is at a place, after everything that was written before.
    #[inline]
    pub(crate) fn give_back(&self, place: Cursor, number: u16, written: u32) {
        let flags = used_flags(place, written > 0);
        let words = u64::from(written) | u64::from(number) << 32 | u64::from(flags) << 48;
        self.descriptors.store_quad(at(place.index) + LENGTH, words);
    }

    /// Writes the length of an entry that is used soon.
    pub(crate) fn name_length(&self, place: Cursor, written: u32) {
        self.descriptors.store_long(at(place.index) + LENGTH, written);
    }

    /// Writes the number of an entry that is used soon.
    pub(crate) fn name(&self, place: Cursor, number: u16) {
        self.descriptors.store(at(place.index) + NUMBER, number);
    }

    /// Marks a descriptor as used, after everything that was written before.
    pub(crate) fn mark(&self, place: Cursor, is_written: bool) {
        self.descriptors.store(at(place.index) + FLAGS, used_flags(place, is_written));
    }

    /// Whether the other side wants to be interrupted for so many descriptors in front of a place, which it can see.
    pub(crate) fn wants(&self, end: Cursor, count: u16) -> bool {
        // What it wants is read after it can see them: it looks once more when it has said so.
        fence(Ordering::SeqCst);
        let word = self.theirs.load_long(0);
        match word >> 16 & EVENTS_MASK {
            EVENTS_OFF => false,
            EVENTS_AT if self.event_index => {
                let behind = end.behind(Cursor::from_bits(word as u16), self.size);
                (1..=i32::from(count)).contains(&behind)
            }
            _ => true,
        }
    }

    /// Asks to be told of the descriptor at a place, where the other side goes by places, or of any.
    pub(crate) fn ask(&mut self, place: Cursor) {
        let word = if self.event_index { u32::from(place.bits()) | EVENTS_AT << 16 } else { 0 };
        self.mine.store_long(0, word);
        self.is_hushed = false;
        fence(Ordering::SeqCst);
    }

    /// Lets the other side know that nobody waits for its descriptors. The word stays in its caches if it does.
    #[inline]
    pub(crate) fn hush(&mut self) {
        if !core::mem::replace(&mut self.is_hushed, true) {
            self.mine.store_long(0, EVENTS_OFF << 16);
        }
    }
}

/// Position of a descriptor.
#[inline]
fn at(index: u16) -> usize {
    usize::from(index) * DESCRIPTOR_BYTES
}

/// Flags of a descriptor that is used in the lap of a place.
fn used_flags(place: Cursor, is_written: bool) -> u16 {
    (if place.is_odd { LAPS } else { 0 }) | if is_written { IS_WRITTEN } else { 0 }
}

/// The flag of a descriptor that is set where it was made available in an odd lap, and clear in an even one.
pub(crate) const IS_AVAILABLE: u16 = 1 << 7;
/// The flag that is the same where it was used in that lap.
pub(crate) const IS_USED: u16 = 1 << 15;
const LAPS: u16 = IS_AVAILABLE | IS_USED;
/// The bit of an odd lap beside an index.
const IS_ODD: u16 = 1 << 15;
/// Positions of a descriptor's length, number and flags.
const LENGTH: usize = 8;
const NUMBER: usize = 12;
const FLAGS: usize = 14;
/// Bytes of a side's events: a place, and behind it whether it wants to be told of nothing, or of that place only.
const EVENTS_BYTES: usize = 4;
const EVENTS_MASK: u32 = 3;
const EVENTS_OFF: u32 = 1;
const EVENTS_AT: u32 = 2;
