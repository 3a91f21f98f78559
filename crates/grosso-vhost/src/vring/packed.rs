//! Packed virtqueues in memory (virtio 1.3 section 2.8), with their notification rules for both sides.
//!
//! Both sides write to the same ring of descriptors, lap by lap. Two flags of a descriptor show in which lap it was
//! made available and in which lap it was used. Each side requests notifications in its own four-byte area.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use super::{Addresses, DESCRIPTOR_BYTES, Descriptor, IS_WRITTEN, SIZE_MAX, Side};
use crate::memory::{Memory, Place};

/// Position in a packed virtqueue, with the wrap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Index of the descriptor.
    pub(crate) index: u16,
    /// The wrap counter of virtio, which is true in odd laps. The first lap is odd.
    pub(crate) is_odd: bool,
}

impl Cursor {
    /// Decodes a position from messages and event areas.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self { index: bits & !IS_ODD, is_odd: bits & IS_ODD != 0 }
    }

    /// Encodes a position for messages and event areas.
    pub(crate) fn bits(self) -> u16 {
        self.index | if self.is_odd { IS_ODD } else { 0 }
    }

    /// Returns the position `by` descriptors later. `by` is at most one lap.
    #[inline]
    pub(crate) fn forward(self, by: u16, size: u16) -> Self {
        debug_assert!(self.index < size && by <= size, "{self:?} + {by} of {size}");
        // Both numbers are at most 2^15, so the sum needs more than 16 bits only if both are 2^15. In that case, it is
        // reduced by the size.
        let end = u32::from(self.index) + u32::from(by);
        match end.checked_sub(size.into()) {
            None => Self { index: end as u16, ..self },
            Some(index) => Self { index: index as u16, is_odd: !self.is_odd },
        }
    }

    /// Returns the position `by` descriptors earlier. `by` is at most one lap.
    #[inline]
    pub(crate) fn back(self, by: u16, size: u16) -> Self {
        let Self { index, is_odd } = self.forward(size - by, size);
        Self { index, is_odd: !is_odd }
    }

    /// Returns how many descriptors this position is after `other`. The distance must be less than one lap.
    fn behind(self, other: Self, size: u16) -> i32 {
        let lap = if self.is_odd == other.is_odd { 0 } else { size.into() };
        i32::from(self.index) - i32::from(other.index) + lap
    }
}

/// A packed virtqueue as used by one side.
#[derive(Debug)]
pub(crate) struct PackedParts {
    descriptors: Place,
    size: u16,
    /// Event suppression area of this side.
    mine: Place,
    /// Event suppression area of the other side.
    theirs: Place,
    /// Whether this side specifies the position at which it wants a notification.
    event_index: bool,
    /// Whether this side has disabled notifications.
    is_hushed: bool,
}

impl PackedParts {
    /// Opens a packed virtqueue of `size` descriptors. Returns `None` if a part is not entirely in the memory or not
    /// aligned, or if the size is invalid.
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

    /// Returns the number of descriptors.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Returns a descriptor's flags with acquire ordering.
    #[inline]
    pub(crate) fn flags(&self, index: u16) -> u16 {
        self.descriptors.load(at(index) + FLAGS)
    }

    /// Returns whether a descriptor is available and has not been used.
    #[inline]
    pub(crate) fn is_available(&self, place: Cursor) -> bool {
        self.flags(place.index) & LAPS == if place.is_odd { IS_AVAILABLE } else { IS_USED }
    }

    /// Returns whether a descriptor has been used.
    #[inline]
    pub(crate) fn is_used(&self, place: Cursor) -> bool {
        self.flags(place.index) & LAPS == if place.is_odd { LAPS } else { 0 }
    }

    #[inline]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        Descriptor::packed(self.descriptors.pair(at(index)))
    }

    /// Marks an entry as used, with release ordering. The first descriptor of the entry is at `place`.
    #[inline]
    pub(crate) fn give_back(&self, place: Cursor, number: u16, written: u32) {
        let flags = used_flags(place, written > 0);
        let words = u64::from(written) | u64::from(number) << 32 | u64::from(flags) << 48;
        self.descriptors.store_quad(at(place.index) + LENGTH, words);
    }

    /// Writes the length of an entry before it is marked as used.
    pub(crate) fn name_length(&self, place: Cursor, written: u32) {
        self.descriptors.store_long(at(place.index) + LENGTH, written);
    }

    /// Writes the buffer ID of an entry before it is marked as used.
    pub(crate) fn name(&self, place: Cursor, number: u16) {
        self.descriptors.store(at(place.index) + NUMBER, number);
    }

    /// Marks a descriptor as used with release ordering.
    pub(crate) fn mark(&self, place: Cursor, is_written: bool) {
        self.descriptors.store(at(place.index) + FLAGS, used_flags(place, is_written));
    }

    /// Returns whether the other side requested a notification for one of the `count` descriptors before `end`.
    pub(crate) fn wants(&self, end: Cursor, count: u16) -> bool {
        // The request is read after the new entries became visible, because the other side looks for entries once more
        // after writing its request.
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

    /// Requests a notification for the descriptor at `place` if positions are supported, otherwise for any descriptor.
    pub(crate) fn ask(&mut self, place: Cursor) {
        let word = if self.event_index { u32::from(place.bits()) | EVENTS_AT << 16 } else { 0 };
        self.mine.store_long(0, word);
        self.is_hushed = false;
        fence(Ordering::SeqCst);
    }

    /// Disables notifications. The word is written only if it changes, so that it stays in the other side's caches.
    #[inline]
    pub(crate) fn hush(&mut self) {
        if !core::mem::replace(&mut self.is_hushed, true) {
            self.mine.store_long(0, EVENTS_OFF << 16);
        }
    }
}

/// Returns the offset of a descriptor.
#[inline]
fn at(index: u16) -> usize {
    usize::from(index) * DESCRIPTOR_BYTES
}

/// Returns the flags of a descriptor used in the lap of `place`.
fn used_flags(place: Cursor, is_written: bool) -> u16 {
    (if place.is_odd { LAPS } else { 0 }) | if is_written { IS_WRITTEN } else { 0 }
}

/// VIRTQ_DESC_F_AVAIL: set if the descriptor was made available in an odd lap, and clear for an even lap.
pub(crate) const IS_AVAILABLE: u16 = 1 << 7;
/// VIRTQ_DESC_F_USED: equal to the available flag once the descriptor has been used in that lap.
pub(crate) const IS_USED: u16 = 1 << 15;
const LAPS: u16 = IS_AVAILABLE | IS_USED;
/// Bit that contains the wrap counter in a 16-bit position.
const IS_ODD: u16 = 1 << 15;
/// Offset of the length in a descriptor.
const LENGTH: usize = 8;
/// Offset of the buffer ID in a descriptor.
const NUMBER: usize = 12;
/// Offset of the flags in a descriptor.
const FLAGS: usize = 14;
/// Length of an event suppression area in bytes: a position, followed by flags.
const EVENTS_BYTES: usize = 4;
const EVENTS_MASK: u32 = 3;
const EVENTS_OFF: u32 = 1;
const EVENTS_AT: u32 = 2;
