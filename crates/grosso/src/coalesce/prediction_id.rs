//! Identities of predictions.

use crate::{coalesce::by_id::Id, flow::FlowHash};

/// Names the place of a prediction, which is for one flow at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PredictionId(u16);

impl PredictionId {
    /// No place.
    pub(super) const NONE: Self = Self(u16::MAX);

    /// Flows of which something is predicted. Of two whose hashes choose one place, the one whose train is held keeps
    /// it.
    pub(super) const COUNT: u16 = 512;

    /// The last of their places.
    pub(super) const LAST: Self = Self(Self::COUNT - 1);

    /// The place that the hash of a flow chooses.
    #[inline(always)]
    pub(super) fn of(flow: FlowHash) -> Self {
        Self(u64::from(flow) as u16 % Self::COUNT)
    }
}

impl Id for PredictionId {
    #[inline(always)]
    fn new(place: usize) -> Self {
        Self(place as u16)
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.0.into()
    }
}
