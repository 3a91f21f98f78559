//! IDs of predictions.

use crate::{coalesce::slots::slot_map::Id, flow::FlowHash};

/// ID of a prediction slot, which belongs to one flow at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PredictionId(u16);

impl PredictionId {
    /// Marker for no slot.
    pub(crate) const NONE: Self = Self(u16::MAX);

    /// Number of predicted flows. If two flows hash to the same slot, the flow with a held train keeps it.
    pub(crate) const COUNT: u16 = 512;

    /// Last slot.
    pub(crate) const LAST: Self = Self(Self::COUNT - 1);

    /// Returns the slot for a flow hash.
    pub(crate) fn of(flow: FlowHash) -> Self {
        Self(u64::from(flow) as u16 % Self::COUNT)
    }
}

impl Id for PredictionId {
    fn new(place: usize) -> Self {
        Self(place as u16)
    }

    fn place(self) -> usize {
        self.0.into()
    }
}
