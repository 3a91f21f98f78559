//! The outermost addresses of held trains, for packets that must not overtake any train between theirs.

use alloc::{boxed::Box, vec};

use crate::coalesce::{by_id::ById, train_id::TrainId};

/// The hash of the addresses of each train that a barrier has looked at. Most trains leave before one does, so nothing
/// is hashed when they start.
#[derive(Debug)]
pub(super) struct AddressPairs {
    /// The pair of the train in each slot, zero where none is noted: what a barrier scans.
    pairs: ById<TrainId, u32>,
    /// Noted trains by part of their pair, so that most barriers need not scan.
    counts: Box<[u32]>,
}

impl AddressPairs {
    pub(super) fn new() -> Self {
        Self { pairs: ById::default(), counts: vec![0; COUNTS].into_boxed_slice() }
    }

    /// Notes the pair of the train in a slot that has none.
    pub(super) fn note(&mut self, slot: TrainId, pair: u32) {
        let noted = self.pairs.get_or_grow(slot, || 0);
        debug_assert!(*noted == 0, "{slot:?} is noted once");
        *noted = pair;
        self.counts[pair as usize % COUNTS] += 1;
    }

    /// Forgets a train that was noted.
    #[cold]
    pub(super) fn forget(&mut self, slot: TrainId) {
        if let Some(pair) = self.pairs.get_mut(slot) {
            self.counts[*pair as usize % COUNTS] -= 1;
            *pair = 0;
        }
    }

    /// The slot of a noted train with this pair.
    pub(super) fn find(&self, pair: u32) -> Option<TrainId> {
        if self.counts[pair as usize % COUNTS] == 0 {
            return None;
        }
        self.pairs.find(|&noted| noted == pair)
    }
}

/// Counters of trains by their pair.
const COUNTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::AddressPairs;
    use crate::coalesce::{by_id::Id, train_id::TrainId};

    #[test]
    fn trains_between_two_hosts_are_found_however_many_they_are() {
        let mut pairs = AddressPairs::new();
        let trains = || (0..1 << 16).map(TrainId::new);
        trains().for_each(|slot| pairs.note(slot, 7));
        assert_eq!(pairs.find(7), Some(TrainId::new(0)));
        trains().for_each(|slot| pairs.forget(slot));
        assert_eq!(pairs.find(7), None);
    }
}
