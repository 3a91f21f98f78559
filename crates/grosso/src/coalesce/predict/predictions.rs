//! Predictions of recent flows: a bounded table, and the order in which flows alternate.

use crate::{
    coalesce::{
        predict::prediction::{Joined, Prediction},
        rx::shapes::CachedStack,
        slots::{prediction_id::PredictionId, slot_map::SlotMap, train_id::TrainId},
    },
    flow::FlowHash,
};

/// Prediction of each flow, in the slot selected by its hash. It outlives the train: the flow's next train continues
/// where the last one ended.
#[derive(Debug)]
pub(crate) struct Predictions {
    places: SlotMap<PredictionId, Prediction>,
    /// Prediction of the previous packet, if any.
    latest: PredictionId,
}

impl Default for Predictions {
    fn default() -> Self {
        Self { places: SlotMap::default(), latest: PredictionId::NONE }
    }
}

impl Predictions {
    /// Returns the prediction in a slot.
    #[inline(always)]
    pub(crate) fn get(&self, id: PredictionId) -> Option<&Prediction> {
        self.places.get(id)
    }

    /// Returns the prediction in a slot for modification.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: PredictionId) -> Option<&mut Prediction> {
        self.places.get_mut(id)
    }

    /// Returns the slot of the previous packet.
    #[inline(always)]
    pub(crate) fn latest(&self) -> PredictionId {
        self.latest
    }

    /// Returns the slot of a flow's prediction.
    #[inline(always)]
    pub(crate) fn of(&self, flow: FlowHash) -> Option<PredictionId> {
        let id = PredictionId::of(flow);
        self.get(id).is_some_and(|next| next.flow == flow).then_some(id)
    }

    /// Records the prediction of the latest packet.
    #[inline(always)]
    pub(crate) fn follow(&mut self, id: PredictionId) {
        if id != self.latest {
            let latest = self.latest;
            if let Some(latest) = self.get_mut(latest) {
                latest.follower = id;
            }
            self.latest = id;
        }
    }

    /// Records that the latest packet has no prediction.
    #[inline(always)]
    pub(crate) fn follow_none(&mut self) {
        self.latest = PredictionId::NONE;
    }

    /// Predicts the packet after one that was appended to a train, unless the slot belongs to another held train.
    /// Returns the slot of the prediction, or `NONE`.
    pub(crate) fn predict(&mut self, joined: &Joined<'_>) -> PredictionId {
        if self.places.len() == 0 {
            self.make_room();
        }
        let id = PredictionId::of(joined.flow);
        match self.get_mut(id) {
            Some(next) if next.train == joined.slot || next.train == TrainId::NONE => {
                next.predict(joined);
                self.follow(id);
                id
            }
            _ => PredictionId::NONE,
        }
    }

    /// Continues with a packet that resembles earlier ones of its flow and started this train. Returns its slot.
    #[inline(always)]
    pub(crate) fn go_on(
        &mut self,
        slot: TrainId,
        flow: FlowHash,
        packet: &[u8],
        known: &CachedStack,
    ) -> PredictionId {
        let id = PredictionId::of(flow);
        let Some(next) = self.get_mut(id) else { return PredictionId::NONE };
        debug_assert!(next.flow == flow, "the packet resembles others of its flow");
        next.go_on(slot, packet, known);
        self.follow(id);
        id
    }

    /// Clears the prediction of a train whose flow continued unpredictably.
    #[inline]
    pub(crate) fn forget(&mut self, id: PredictionId, slot: TrainId) {
        if let Some(next) = self.get_mut(id)
            && next.train == slot
        {
            next.forget();
        }
    }

    /// Ends a train. Its flow may continue in another one.
    #[inline(always)]
    pub(crate) fn end(&mut self, id: PredictionId, slot: TrainId) {
        if id != PredictionId::NONE
            && let Some(next) = self.get_mut(id)
            && next.train == slot
        {
            next.end_train();
        }
    }

    /// Clears all predictions, while no train is held.
    pub(crate) fn clear(&mut self) {
        self.places.iter_mut().for_each(Prediction::forget);
        self.latest = PredictionId::NONE;
    }

    #[cold]
    fn make_room(&mut self) {
        self.places.get_or_grow(PredictionId::LAST, Prediction::default);
    }
}
