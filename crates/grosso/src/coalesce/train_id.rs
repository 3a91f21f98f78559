//! Identities of held trains.

use crate::coalesce::by_id::Id;

/// Names a held train until it leaves, when the name may go to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrainId(u32);

impl TrainId {
    /// No train: more than any limit allows.
    pub(super) const NONE: Self = Self(u32::MAX);
}

impl Id for TrainId {
    /// The train in this slot.
    #[inline(always)]
    fn new(slot: usize) -> Self {
        Self(slot as u32)
    }

    /// The slot of the train, in every list that has something of each train.
    #[inline(always)]
    fn place(self) -> usize {
        self.0 as usize
    }
}
