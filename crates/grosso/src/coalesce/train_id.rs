//! Identities of held trains.

/// Names a held train until it leaves, when the name may go to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrainId(u32);

impl TrainId {
    /// No train: more than any limit allows.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// The train in this slot.
    #[inline(always)]
    pub(crate) fn new(slot: usize) -> Self {
        Self(slot as u32)
    }

    /// The slot of the train, in every list that has something of each train.
    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}
