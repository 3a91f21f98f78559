//! Predictions for recent flows, in a bounded table that also records the order in which flows alternate.

use crate::{
    coalesce::{
        predict::prediction::{Joined, Prediction},
        rx::shapes::CachedStack,
        slots::{prediction_id::PredictionId, slot_map::SlotMap, train_id::TrainId},
    },
    flow::FlowHash,
};

/// Prediction of each flow, in the slot selected by the flow's hash. It outlives the train, because the flow's next
/// train continues where the last one ended.
#[derive(Debug)]
pub(crate) struct Predictions {
    places: SlotMap<PredictionId, Prediction>,
    /// Prediction of the previous packet, or `NONE` if it had none.
    latest: PredictionId,
}

impl Default for Predictions {
    fn default() -> Self {
        Self { places: SlotMap::default(), latest: PredictionId::NONE }
    }
}

impl Predictions {
    /// Returns the prediction in a slot.
    pub(crate) fn get(&self, id: PredictionId) -> Option<&Prediction> {
        self.places.get(id)
    }

    /// Returns a mutable reference to the prediction in a slot.
    pub(crate) fn get_mut(&mut self, id: PredictionId) -> Option<&mut Prediction> {
        self.places.get_mut(id)
    }

    /// Returns the slot of the previous packet's prediction.
    pub(crate) fn latest(&self) -> PredictionId {
        self.latest
    }

    /// Returns the slot of a flow's prediction.
    #[inline(always)]
    pub(crate) fn of(&self, flow: FlowHash) -> Option<PredictionId> {
        let id = PredictionId::of(flow);
        self.get(id).is_some_and(|next| next.flow == flow).then_some(id)
    }

    /// Sets the prediction of the latest packet.
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
    pub(crate) fn follow_none(&mut self) {
        self.latest = PredictionId::NONE;
    }

    /// Predicts the packet after the one that was last appended to a train, and returns the slot of the prediction.
    /// Returns `NONE` if the slot belongs to another held train.
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

    /// Resumes the prediction of a flow after a packet that resembles earlier packets has started this train. Returns
    /// the slot of the prediction.
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

    /// Clears the prediction of a train whose flow did not continue as predicted.
    #[inline]
    pub(crate) fn forget(&mut self, id: PredictionId, slot: TrainId) {
        if let Some(next) = self.get_mut(id)
            && next.train == slot
        {
            next.forget();
        }
    }

    /// Detaches a train from its prediction. The flow may continue in another train.
    #[inline(always)]
    pub(crate) fn end(&mut self, id: PredictionId, slot: TrainId) {
        if id != PredictionId::NONE
            && let Some(next) = self.get_mut(id)
            && next.train == slot
        {
            next.end_train();
        }
    }

    /// Clears all predictions. No train may be held at this time.
    pub(crate) fn clear(&mut self) {
        self.places.iter_mut().for_each(Prediction::forget);
        self.latest = PredictionId::NONE;
    }

    fn make_room(&mut self) {
        self.places.get_or_grow(PredictionId::LAST, Prediction::default);
    }
}
