//! Slots, and queues of slots. Memory is allocated only when more slots are in use than ever before.

use alloc::vec::Vec;

/// Values in numbered, reusable slots.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: u32,
    used: usize,
}

#[derive(Debug)]
enum SlabSlot<T> {
    Used(T),
    /// Index of the next free slot.
    Free(u32),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, used: 0 }
    }
}

impl<T> Slab<T> {
    /// Inserts a value into a free slot. The caller limits the number of values.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.used += 1;
        let index = self.free;
        if let Some(slot @ &mut SlabSlot::Free(next)) = self.slots.get_mut(index as usize) {
            self.free = next;
            *slot = SlabSlot::Used(value);
            return index;
        }
        self.slots.push(SlabSlot::Used(value));
        self.slots.len() as u32 - 1
    }

    /// Removes a value from its slot.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        if matches!(slot, SlabSlot::Free(_)) {
            return None;
        }
        self.used -= 1;
        let SlabSlot::Used(value) = core::mem::replace(slot, SlabSlot::Free(self.free)) else {
            return None;
        };
        self.free = index;
        Some(value)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match self.slots.get(index as usize) {
            Some(SlabSlot::Used(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.slots.get_mut(index as usize) {
            Some(SlabSlot::Used(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value in a used slot, whose index comes from a queue, a table or an insertion.
    pub(crate) fn used(&self, index: u32) -> Option<&T> {
        let value = self.get(index);
        debug_assert!(value.is_some(), "slot {index} is free");
        value
    }

    /// Returns a mutable reference to the value in a used slot.
    pub(crate) fn used_mut(&mut self, index: u32) -> Option<&mut T> {
        let value = self.get_mut(index);
        debug_assert!(value.is_some(), "slot {index} is free");
        value
    }

    /// Returns the number of used slots.
    pub(crate) fn len(&self) -> usize {
        self.used
    }
}

/// The neighbors of a slot in one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    before: u32,
    behind: u32,
}

impl Link {
    /// Link of a slot that is in no queue.
    pub(crate) const NONE: Self = Self { before: NONE, behind: NONE };
}

/// Queue of linked slots, longest waiting first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// Returns the slot that has waited longest.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Returns the slot that was queued last, or [`NONE`].
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Returns the slot after the given one, or the first.
    pub(crate) fn behind<T>(
        &self,
        slab: &Slab<T>,
        link: impl Fn(&T) -> &Link,
        slot: u32,
    ) -> Option<u32> {
        let behind = link(slab.get(slot)?).behind;
        (behind != NONE).then_some(behind)
    }

    /// Appends a slot that is not in this queue. `link` returns the slot's neighbors.
    pub(crate) fn push<T>(
        &mut self,
        slab: &mut Slab<T>,
        link: impl Fn(&mut T) -> &mut Link,
        slot: u32,
    ) {
        if let Some(value) = slab.used_mut(slot) {
            *link(value) = Link { before: self.last, behind: NONE };
        }
        match slab.get_mut(self.last) {
            Some(last) => link(last).behind = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }

    /// Removes a slot.
    pub(crate) fn unlink<T>(
        &mut self,
        slab: &mut Slab<T>,
        link: impl Fn(&mut T) -> &mut Link,
        slot: u32,
    ) {
        let Some(value) = slab.used_mut(slot) else { return };
        let Link { before, behind } = core::mem::replace(link(value), Link::NONE);
        match slab.get_mut(before) {
            Some(value) => link(value).behind = behind,
            None => self.first = behind,
        }
        match slab.get_mut(behind) {
            Some(value) => link(value).before = before,
            None => self.last = before,
        }
    }

    /// Moves a slot to the end of its queue.
    pub(crate) fn renew<T>(
        &mut self,
        slab: &mut Slab<T>,
        link: impl Fn(&mut T) -> &mut Link,
        slot: u32,
    ) {
        if self.last != slot {
            self.move_last(slab, link, slot);
        }
    }

    #[inline(never)]
    fn move_last<T>(&mut self, slab: &mut Slab<T>, link: impl Fn(&mut T) -> &mut Link, slot: u32) {
        self.unlink(slab, &link, slot);
        self.push(slab, link, slot);
    }
}

/// Index for "no slot".
pub(crate) const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{Link, Queue, Slab};

    fn order(queue: &mut Queue, slab: &mut Slab<(u8, Link)>) -> Vec<u8> {
        let mut values = Vec::new();
        while let Some(slot) = queue.first() {
            queue.unlink(slab, |value| &mut value.1, slot);
            values.extend(slab.remove(slot).map(|value| value.0));
        }
        values
    }

    #[test]
    fn slots_are_used_again_and_a_queue_keeps_its_order() {
        let mut slab = Slab::default();
        let mut queue = Queue::EMPTY;
        for round in 0..3 {
            let slots: Vec<_> = (0..5).map(|i| slab.insert((i, Link::NONE))).collect();
            assert!(slots.iter().all(|&slot| slot < 5), "round {round}: {slots:?}");
            slots.iter().for_each(|&slot| queue.push(&mut slab, |value| &mut value.1, slot));
            queue.renew(&mut slab, |value| &mut value.1, slots[0]);
            queue.unlink(&mut slab, |value| &mut value.1, slots[2]);
            slab.remove(slots[2]);
            assert!(slab.remove(slots[2]).is_none() && slab.len() == 4);
            assert_eq!(order(&mut queue, &mut slab), [1, 3, 4, 0]);
        }
    }
}
