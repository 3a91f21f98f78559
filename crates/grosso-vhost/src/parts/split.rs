//! Parts of a split ring in memory (virtio 1.3 section 2.7), and the rules by which each side of it tells the other.
//!
//! Both sides do the same: each has entries with a number that says how many there are, a flag by which it wants to be
//! told of nothing, and the number of the entry of the other side behind which it wants to be told.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use super::{Addresses, DESCRIPTOR_BYTES, SIZE_MAX, Side};
use crate::memory::{Memory, Place};

/// Parts of a split ring as one side has them.
#[derive(Debug)]
pub(crate) struct SplitParts {
    pub(crate) descriptors: Place,
    /// The entries that this side writes.
    pub(crate) mine: Entries,
    /// The entries that the other side writes.
    pub(crate) theirs: Entries,
    /// Whether each side says by a number when it is to be told.
    event_index: bool,
    /// Number of the first entry of which the other side was not told.
    told: u16,
}

/// Entries of a ring, with flags and their number in front, and a number of the other side's events behind.
#[derive(Debug)]
pub(crate) struct Entries {
    place: Place,
    size: u16,
    entry_bytes: usize,
}

impl SplitParts {
    /// Parts of a ring of `size` entries; `None` if one of them is not wholly in the memory or not aligned, or the size
    /// is no power of two.
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
        let told = mine.count();
        Some(Self { descriptors, mine, theirs, event_index, told })
    }

    /// Number of the first entry of which the other side was not told.
    pub(crate) fn told(&self) -> u16 {
        self.told
    }

    /// Tells of the entries in front of number `now`; returns whether the other side wants to be interrupted for them.
    pub(crate) fn publish(&mut self, now: u16) -> bool {
        let before = core::mem::replace(&mut self.told, now);
        if before == now {
            return false;
        }
        self.mine.place.store(COUNT, now);
        // What it wants is read after it can see them: it looks once more when it has said so.
        fence(Ordering::SeqCst);
        if self.event_index {
            let event = self.theirs.place.load(self.theirs.event());
            return now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before);
        }
        self.theirs.place.load(FLAGS) & 1 == 0
    }

    /// Asks to be told of the next entry but so many, where the other side goes by numbers. Returns whether there is
    /// one already behind number `known`.
    pub(crate) fn ask(&mut self, known: u16, but: u16) -> bool {
        if self.event_index {
            self.mine.place.store(self.mine.event(), self.theirs.count().wrapping_add(but));
        } else {
            self.mine.place.store(FLAGS, 0);
        }
        fence(Ordering::SeqCst);
        self.theirs.count() != known
    }

    /// Lets the other side know that nobody waits for its entries.
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

    /// Number of entries that were ever there, modulo 2^16.
    #[inline]
    pub(crate) fn count(&self) -> u16 {
        self.place.load(COUNT)
    }

    /// The head of an available entry.
    #[inline]
    pub(crate) fn head(&self, number: u16) -> u16 {
        self.place.load(self.at(number))
    }

    /// Writes an available entry.
    #[inline]
    pub(crate) fn offer(&self, number: u16, head: u16) {
        self.place.store(self.at(number), head);
    }

    /// The head and the length of a used entry.
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

/// Bytes of entries, and of the numbers in front of them and behind.
const fn entries_bytes(size: u16, entry_bytes: usize) -> usize {
    HEAD_BYTES + entry_bytes * size as usize + 2
}

/// Bytes of an available entry, and of a used one, of which each is also what its entries are aligned to, up to 4.
const AVAILABLE_BYTES: usize = 2;
const USED_BYTES: usize = 8;
/// Position of the flags, and of the number of entries.
const FLAGS: usize = 0;
const COUNT: usize = 2;
/// Bytes in front of the entries.
const HEAD_BYTES: usize = 4;
