//! The predictions of flows seen lately: a bounded table, and the order in which flows take turns.

use crate::{
    coalesce::{
        by_id::ById,
        prediction::{Joined, Prediction},
        prediction_id::PredictionId,
        shapes::Known,
        train::Train,
        train_id::TrainId,
    },
    flow::FlowHash,
};

/// The prediction of each flow, in the place that its hash chooses. It stays when the train leaves: the next one of the
/// flow goes on where the last ended.
#[derive(Debug)]
pub(super) struct Predictions {
    places: ById<PredictionId, Prediction>,
    /// The one of the packet before, if there is one.
    latest: PredictionId,
}

impl Default for Predictions {
    fn default() -> Self {
        Self { places: ById::default(), latest: PredictionId::NONE }
    }
}

impl Predictions {
    /// The prediction in a place.
    #[inline(always)]
    pub(super) fn get(&self, id: PredictionId) -> Option<&Prediction> {
        self.places.get(id)
    }

    /// Works like [`Self::get`].
    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: PredictionId) -> Option<&mut Prediction> {
        self.places.get_mut(id)
    }

    /// The place of the packet before.
    #[inline(always)]
    pub(super) fn latest(&self) -> PredictionId {
        self.latest
    }

    /// The place of the prediction of a flow.
    #[inline(always)]
    pub(super) fn of(&self, flow: FlowHash) -> Option<PredictionId> {
        let id = PredictionId::of(flow);
        self.get(id).is_some_and(|next| next.flow == flow).then_some(id)
    }

    /// Notes which prediction the latest packet is of.
    #[inline(always)]
    pub(super) fn follow(&mut self, id: PredictionId) {
        if id != self.latest {
            let latest = self.latest;
            if let Some(latest) = self.get_mut(latest) {
                latest.follower = id;
            }
            self.latest = id;
        }
    }

    /// Notes that the latest packet is of no prediction.
    #[inline(always)]
    pub(super) fn follow_none(&mut self) {
        self.latest = PredictionId::NONE;
    }

    /// Predicts what comes behind a packet that joined a train, unless the place is another held train's. Gives the
    /// place, or none.
    pub(super) fn predict(&mut self, joined: &Joined<'_>) -> PredictionId {
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

    /// Goes on with a packet that resembles those of its flow before, and which started this train. Gives its place.
    #[inline(always)]
    pub(super) fn go_on<B: AsRef<[u8]>>(
        &mut self,
        slot: TrainId,
        train: &Train<B>,
        known: &Known,
    ) -> PredictionId {
        let id = PredictionId::of(train.flow);
        let Some(next) = self.get_mut(id) else { return PredictionId::NONE };
        debug_assert!(next.flow == train.flow, "the packet resembles others of its flow");
        next.go_on(slot, train.first.buffer.as_ref(), known);
        self.follow(id);
        id
    }

    /// Predicts nothing more of a train whose flow goes on in a way that no prediction knows.
    #[inline]
    pub(super) fn forget(&mut self, id: PredictionId, slot: TrainId) {
        if let Some(next) = self.get_mut(id)
            && next.train == slot
        {
            next.forget();
        }
    }

    /// Ends a train. Its flow may go on in another one.
    #[inline(always)]
    pub(super) fn end(&mut self, id: PredictionId, slot: TrainId) {
        if id != PredictionId::NONE
            && let Some(next) = self.get_mut(id)
            && next.train == slot
        {
            next.end_train();
        }
    }

    /// Forgets all; no train is held.
    pub(super) fn clear(&mut self) {
        self.places.iter_mut().for_each(Prediction::forget);
        self.latest = PredictionId::NONE;
    }

    #[cold]
    fn make_room(&mut self) {
        self.places.get_or_grow(PredictionId::LAST, Prediction::default);
    }
}
