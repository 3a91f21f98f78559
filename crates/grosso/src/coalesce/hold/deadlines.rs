//! Deadlines of held trains with different hold times, in a heap.

use alloc::vec::Vec;

use crate::coalesce::slots::{slot_map::SlotMap, train_id::TrainId};

/// Heap of the deadlines of held trains, with the heap position of each slot.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<Deadline>,
    /// Position of each slot in the heap.
    places: SlotMap<TrainId, u32>,
    /// Number of deadlines set so far. Among equal deadlines, the one that was set first counts as earlier.
    count: u64,
}

/// Time at which a train must be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Deadline {
    at_ns: u64,
    number: u64,
    slot: TrainId,
}

impl Deadlines {
    /// Sets the deadline of a slot that has none.
    pub(super) fn insert(&mut self, slot: TrainId, at_ns: u64) {
        debug_assert!(self.place(slot).is_none(), "a train starts once");
        let place = self.heap.len();
        self.heap.push(Deadline { at_ns, number: self.count, slot });
        self.count += 1;
        *self.places.get_or_grow(slot, || NONE) = place as u32;
        self.rise(place);
    }

    /// Removes the deadline of a slot, if any.
    #[inline]
    pub(super) fn remove(&mut self, slot: TrainId) {
        let Some(place) = self.place(slot) else { return };
        self.places[slot] = NONE;
        self.heap.swap_remove(place);
        if let Some(moved) = self.heap.get(place) {
            self.places[moved.slot] = place as u32;
            self.rise(place);
            self.sink(place);
        }
    }

    /// Removes the earliest deadline if it has passed and returns its slot.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<TrainId> {
        let (_, slot) = self.first().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.remove(slot);
        Some(slot)
    }

    /// Returns the earliest deadline with its slot.
    pub(super) fn first(&self) -> Option<(u64, TrainId)> {
        self.heap.first().map(|deadline| (deadline.at_ns, deadline.slot))
    }

    /// Returns the deadline of a slot.
    pub(super) fn of(&self, slot: TrainId) -> Option<u64> {
        self.place(slot).map(|place| self.heap[place].at_ns)
    }

    fn place(&self, slot: TrainId) -> Option<usize> {
        let place = *self.places.get(slot)?;
        (place != NONE).then_some(place as usize)
    }

    #[inline(always)]
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= self.heap[place] {
                return;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        while let Some(left) = self.heap.get(2 * place + 1) {
            let is_right = self.heap.get(2 * place + 2).is_some_and(|right| right < left);
            let child = 2 * place + 1 + usize::from(is_right);
            if self.heap[place] <= self.heap[child] {
                return;
            }
            self.swap(child, place);
            place = child;
        }
    }

    fn swap(&mut self, one: usize, two: usize) {
        self.heap.swap(one, two);
        for place in [one, two] {
            self.places[self.heap[place].slot] = place as u32;
        }
    }
}

/// Marks a slot that has no position in the heap.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Deadlines, TrainId};
    use crate::coalesce::slots::slot_map::Id;

    /// Compares the heap with a map that is searched from start to end every time.
    #[test]
    fn the_earliest_is_always_first() {
        let mut deadlines = Deadlines::default();
        let mut expected = BTreeMap::new();
        let mut random = 1_u64;
        // Miri is several hundred times slower.
        let steps = if cfg!(miri) { 300 } else { 20_000_u64 };
        for number in 0..steps {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (slot, at_ns) = (TrainId::new((random >> 33) as usize % 50), (random >> 40) % 100);
            if random >> 63 == 0 && !expected.contains_key(&slot) {
                deadlines.insert(slot, at_ns);
                expected.insert(slot, (at_ns, number));
            } else {
                deadlines.remove(slot);
                expected.remove(&slot);
            }
            let first = expected.iter().min_by_key(|(_, deadline)| **deadline);
            assert_eq!(deadlines.first(), first.map(|(&slot, &(at_ns, _))| (at_ns, slot)));
            assert_eq!(deadlines.of(slot), expected.get(&slot).map(|(at_ns, _)| *at_ns));
            assert_eq!(deadlines.heap.len(), expected.len());
        }
    }
}
