//! Split virtqueues in memory (virtio 1.3 section 2.7), with their notification rules for both sides.
//!
//! The rings of both sides have the same layout: flags, one of which disables notifications, the number of entries, the
//! entries, and an event index. The event index is the index of the other side's entry after which this side wants a
//! notification.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use super::{Addresses, DESCRIPTOR_BYTES, SIZE_MAX, Side};
use crate::memory::{Memory, Place};

/// A split virtqueue, as seen by one of its two sides.
#[derive(Debug)]
pub(crate) struct SplitParts {
    pub(crate) descriptors: Place,
    /// Entries that this side writes.
    pub(crate) mine: Entries,
    /// Entries that the other side writes.
    pub(crate) theirs: Entries,
    /// Whether each side requests notifications by writing an event index.
    event_index: bool,
    /// Index of the first entry that the other side has not been notified of.
    notified: u16,
}

/// A ring of entries, preceded by flags and index and followed by the event index.
#[derive(Debug)]
pub(crate) struct Entries {
    place: Place,
    size: u16,
    entry_bytes: usize,
}

impl SplitParts {
    /// Opens a split virtqueue of `size` entries. Returns `None` if a part is not entirely in the memory or not
    /// aligned, or if the size is not a power of two.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        addresses: &Addresses,
        size: u16,
        side: Side,
        event_index: bool,
    ) -> Option<Self> {
        if !size.is_power_of_two() || size > SIZE_MAX {
            return None;
        }
        let bytes = usize::from(size) * DESCRIPTOR_BYTES;
        let descriptors = memory.place(addresses.descriptors, bytes, DESCRIPTOR_BYTES)?;
        let available = Entries::new(memory, addresses.available, size, AVAILABLE_BYTES)?;
        let used = Entries::new(memory, addresses.used, size, USED_BYTES)?;
        let (mine, theirs) = match side {
            Side::Device => (used, available),
            Side::Driver => (available, used),
        };
        let notified = mine.count();
        Some(Self { descriptors, mine, theirs, event_index, notified })
    }

    /// Returns the index of the first entry that the other side has not been notified of.
    pub(crate) fn notified(&self) -> u16 {
        self.notified
    }

    /// Publishes the entries before index `now`. Returns whether the other side has requested an interrupt.
    pub(crate) fn publish(&mut self, now: u16) -> bool {
        let before = core::mem::replace(&mut self.notified, now);
        if before == now {
            return false;
        }
        self.mine.place.store(COUNT, now);
        // The request is read after the new entries became visible, because the other side looks for entries once more
        // after writing its request.
        fence(Ordering::SeqCst);
        if self.event_index {
            let event = self.theirs.place.load(self.theirs.event());
            return now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before);
        }
        self.theirs.place.load(FLAGS) & 1 == 0
    }

    /// Sets the event index, if event indices are supported, so that the other side sends a notification after `but`
    /// more entries. Returns whether there is already an entry after index `known`.
    pub(crate) fn ask(&mut self, known: u16, but: u16) -> bool {
        if self.event_index {
            self.mine.place.store(self.mine.event(), self.theirs.count().wrapping_add(but));
        } else {
            self.mine.place.store(FLAGS, 0);
        }
        fence(Ordering::SeqCst);
        self.theirs.count() != known
    }

    /// Disables notifications.
    pub(crate) fn hush(&mut self) {
        if !self.event_index {
            self.mine.place.store(FLAGS, 1);
        }
    }
}

impl Entries {
    fn new(memory: &Arc<Memory>, address: u64, size: u16, entry_bytes: usize) -> Option<Self> {
        let place = memory.place(address, entries_bytes(size, entry_bytes), entry_bytes.min(4))?;
        Some(Self { place, size, entry_bytes })
    }

    /// Returns the ring index, which is the number of entries ever added, modulo 2^16.
    #[inline]
    pub(crate) fn count(&self) -> u16 {
        self.place.load(COUNT)
    }

    /// Returns the head of an available entry.
    #[inline]
    pub(crate) fn head(&self, number: u16) -> u16 {
        self.place.load(self.at(number))
    }

    /// Writes an available entry.
    #[inline]
    pub(crate) fn offer(&self, number: u16, head: u16) {
        self.place.store(self.at(number), head);
    }

    /// Returns the head and the length of a used entry.
    #[inline]
    pub(crate) fn returned(&self, number: u16) -> (u32, u32) {
        let at = self.at(number);
        (self.place.load_long(at), self.place.load_long(at + 4))
    }

    /// Writes a used entry.
    #[inline]
    pub(crate) fn give_back(&self, number: u16, head: u16, written: u32) {
        let at = self.at(number);
        self.place.store_long(at, head.into());
        self.place.store_long(at + 4, written);
    }

    #[inline]
    fn at(&self, number: u16) -> usize {
        HEAD_BYTES + self.entry_bytes * usize::from(number & (self.size - 1))
    }

    fn event(&self) -> usize {
        HEAD_BYTES + self.entry_bytes * usize::from(self.size)
    }
}

/// Returns the length of a ring in bytes, including its flags, index and event index.
const fn entries_bytes(size: u16, entry_bytes: usize) -> usize {
    HEAD_BYTES + entry_bytes * size as usize + 2
}

/// Length of an available entry in bytes, and its alignment.
const AVAILABLE_BYTES: usize = 2;
/// Length of a used entry in bytes, which is aligned to 4 bytes.
const USED_BYTES: usize = 8;
/// Offset of the flags.
const FLAGS: usize = 0;
/// Offset of the ring index.
const COUNT: usize = 2;
/// Number of bytes before the entries.
const HEAD_BYTES: usize = 4;
