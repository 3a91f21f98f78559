//! Moves predicted packets from the stages to their train.

use super::Merger;
use crate::{
    bytes::u32_at,
    coalesce::{
        emit::{delivery::Sink, reason::Close, verdict::Verdict},
        flows::{
            flow_match::FlowMatch,
            observed::{Observed, Predicted},
        },
        hold::train::Examined,
        predict::prediction::Prediction,
        rx::{
            examine::examine,
            policy::{ByProfile, Policy},
            rx_packet::RxPacket,
        },
        slots::{prediction_id::PredictionId, shape_id::ShapeId, train_id::TrainId},
    },
    flow::{FlowHash, Found},
    meta::Meta,
};

impl<B: AsRef<[u8]>> Merger<B> {
    /// Starts predicting packets for a new train. Its first packet resembles earlier packets, so the next one is
    /// predictable.
    #[inline(always)]
    pub(super) fn go_on(&mut self, slot: TrainId) {
        let Some(train) = self.trains.held_mut(slot) else { return };
        let known = &self.shapes[train.known];
        let packet = train.first.buffer.as_ref();
        train.prediction = self.predictions.go_on(slot, train.flow, packet, known);
    }

    pub(crate) fn flow_predicted(&self, id: PredictionId) -> FlowHash {
        self.predictions.get(id).map_or(FlowHash::NONE, |next| next.flow)
    }

    /// Returns the data that the stages need about a predicted packet.
    #[inline(always)]
    pub(crate) fn predicted<'a>(
        &self,
        id: PredictionId,
        meta: &'a Meta,
        now_ns: u64,
    ) -> Predicted<'a> {
        let next = self.predictions.get(id);
        debug_assert!(next.is_some_and(|next| next.room > 0), "the packet continues a train");
        let (len, payload_len) = next.map_or((0, 0), |next| (next.len, next.payload_len()));
        let flow = next.map_or(FlowHash::NONE, |next| next.flow);
        Predicted {
            observed: Observed { flow, len, meta, now_ns, is_refused: false },
            found: Found::Slot(next.map_or(TrainId::NONE, |next| next.train)),
            sequence: next.and_then(Prediction::sequence),
            payload_len,
        }
    }

    /// Returns the data that the stages need about a packet that resembles earlier packets.
    #[inline(always)]
    pub(crate) fn resembled<'a>(
        &self,
        flow_match: &FlowMatch,
        incoming: &RxPacket<'a, B>,
    ) -> Predicted<'a> {
        let &FlowMatch { known, flow, found, resembled, .. } = flow_match;
        let (packet, &RxPacket { meta, now_ns, .. }) = (incoming.bytes(), incoming);
        let payload_len = self.predictions.get(resembled).map_or(0, Prediction::payload_len);
        let at = self.shapes[known].shape.sequence;
        Predicted {
            observed: Observed { flow, len: packet.len(), meta, now_ns, is_refused: false },
            found,
            sequence: at.map(|at| u32_at(packet, at.into())),
            payload_len,
        }
    }

    /// Returns the predicted successor of the packet that has just arrived, which has the same metadata and arrival
    /// time.
    #[inline(always)]
    pub(crate) fn predicted_behind<'a>(
        &self,
        observed: &Observed<'a>,
    ) -> Option<(PredictionId, Predicted<'a>)> {
        let id = self.predictions.latest();
        let next = self.predictions.get(id)?;
        let is_behind = next.flow == observed.flow && next.room > 0;
        is_behind.then(|| (id, self.predicted(id, observed.meta, observed.now_ns)))
    }

    /// Appends the packet that continues a train.
    #[inline(always)]
    pub(crate) fn join_predicted<P: Policy>(
        &mut self,
        id: PredictionId,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.predictions.follow(id);
        let next = self.predictions.get_mut(id);
        let slot = next.as_ref().map_or(TrainId::NONE, |next| next.train);
        let (Some(train), Some(next)) = (self.trains.held_mut(slot), next) else {
            return self.take_unpredicted(id, incoming, sink);
        };
        let header_len = usize::from(next.header_len);
        let payload_len = next.len - header_len;
        let RxPacket { buffer, meta, now_ns } = incoming;
        if let Err(buffer) = self.pool.push(&mut train.rest, buffer, header_len..next.len) {
            let (known, flow) = (train.known, train.flow);
            self.close(slot, Close::PartsFull, sink);
            let incoming = RxPacket { buffer, meta, now_ns };
            return self.hold_unexamined(incoming, known, flow, sink);
        }
        train.packets += 1;
        train.payload_len += payload_len;
        train.fixed_ids = next.fixed_ids;
        next.room -= 1;
        next.step(payload_len);
        if P::IS_WATCHED && next.is_watched {
            if next.is_summed {
                // The packet repeats the acknowledgment of the packet before it.
                self.acknowledgments.repeat(slot, meta, now_ns);
            }
            let packets = train.packets;
            if self.retention.is_full(slot, packets) {
                return self.close_full(slot, sink);
            }
        }
        Verdict::Joined
    }

    /// Closes a train that has reached the packet limit that ensures enough acknowledgments for the sender.
    #[inline(never)]
    fn close_full(&mut self, slot: TrainId, sink: &mut (impl Sink<B> + ?Sized)) -> Verdict {
        self.close(slot, Close::AcknowledgmentClock, sink);
        Verdict::Joined
    }

    /// Processes a packet whose predicted train is missing, using the other tiers. This should be unreachable. The
    /// function is not compiled for each policy, because the rules of a profile include the exact rules.
    #[cold]
    fn take_unpredicted(
        &mut self,
        id: PredictionId,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Some(next) = self.predictions.get_mut(id) {
            next.forget();
        }
        self.take::<ByProfile>(incoming, sink)
    }

    /// Starts a train with a packet whose predicted train had to be closed.
    #[cold]
    fn hold_unexamined(
        &mut self,
        incoming: RxPacket<'_, B>,
        known: ShapeId,
        flow: FlowHash,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let now_ns = incoming.now_ns;
        let frame = incoming.into_frame();
        match examine::<ByProfile>(frame.buffer.as_ref(), &self.shapes[known], &frame.meta) {
            Ok(candidate) => {
                let examined = Examined { frame, candidate, known, flow, now_ns, resembles: false };
                self.hold_behind::<ByProfile>(examined, sink)
            }
            Err(reason) => {
                debug_assert!(false, "a predicted packet is mergeable: {reason}");
                self.pass(frame, reason, sink)
            }
        }
    }
}
