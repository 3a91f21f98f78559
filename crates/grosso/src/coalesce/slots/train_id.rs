//! IDs of held trains.

use crate::coalesce::slots::slot_map::Id;

/// ID of a held train. It is reused after the train is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrainId(u32);

impl TrainId {
    /// Marker for no train. The number is above any limit.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Id for TrainId {
    /// Returns the ID for this slot.
    fn new(slot: usize) -> Self {
        Self(slot as u32)
    }

    /// Returns the slot of the train, which is its index in every table that has one entry per train.
    fn place(self) -> usize {
        self.0 as usize
    }
}
