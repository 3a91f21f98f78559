//! Outermost addresses of held trains, for packets that must not overtake any train between the same addresses.

use alloc::{boxed::Box, vec};

use crate::coalesce::slots::{slot_map::SlotMap, train_id::TrainId};

/// Hashes of the addresses of the trains that an ordering flush has examined. They are not computed when a train
/// starts, because most trains are delivered before any flush.
#[derive(Debug)]
pub(crate) struct AddressPairs {
    /// Address hash of the train in each slot; zero if it has not been computed. An ordering flush scans this list.
    pairs: SlotMap<TrainId, u32>,
    /// Number of trains for each value of some bits of the hash. The flush skips the scan if the number is zero.
    counts: Box<[u32]>,
}

impl AddressPairs {
    pub(crate) fn new() -> Self {
        Self { pairs: SlotMap::default(), counts: vec![0; COUNTS].into_boxed_slice() }
    }

    /// Stores the address hash of the train in a slot. The slot must not have a hash yet.
    pub(crate) fn note(&mut self, slot: TrainId, pair: u32) {
        let noted = self.pairs.get_or_grow(slot, || 0);
        debug_assert!(*noted == 0, "{slot:?} is noted once");
        *noted = pair;
        self.counts[pair as usize % COUNTS] += 1;
    }

    /// Removes a train whose hash was stored.
    pub(crate) fn forget(&mut self, slot: TrainId) {
        if let Some(pair) = self.pairs.get_mut(slot) {
            self.counts[*pair as usize % COUNTS] -= 1;
            *pair = 0;
        }
    }

    /// Returns the slot of a stored train with this hash.
    pub(crate) fn find(&self, pair: u32) -> Option<TrainId> {
        if self.counts[pair as usize % COUNTS] == 0 {
            return None;
        }
        self.pairs.find(|&noted| noted == pair)
    }
}

/// Number of counters.
const COUNTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::AddressPairs;
    use crate::coalesce::slots::{slot_map::Id, train_id::TrainId};

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
