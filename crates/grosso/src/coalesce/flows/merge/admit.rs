//! Admission of packets whose flow is known. A packet is examined, and then extends the train of its flow, starts a
//! train, or is delivered.
//!
//! The code is generic over [`Policy`].

use super::{Merger, gathered::examine_acknowledgment, packets_of, verified};
use crate::{
    coalesce::{
        emit::{
            delivery::Sink,
            reason::{Close, NoMerge, Pass},
            verdict::Verdict,
        },
        flows::flow_match::FlowMatch,
        hold::train::{Examined, beside_last, echoes_zero, ending},
        profile::{Acknowledgments, FullTable, Refused, ZeroEcho},
        rx::{
            examine::{Candidate, examine},
            policy::Policy,
            rx_packet::RxPacket,
            shapes::CachedStack,
        },
        slots::{prediction_id::PredictionId, shape_id::ShapeId, train_id::TrainId},
    },
    flow::{FlowHash, Found, Place},
    frame::Frame,
    meta::Meta,
};

impl<B: AsRef<[u8]>> Merger<B> {
    /// Processes a packet with known headers and flow: examines the packet and passes it to the train of its flow.
    #[inline(always)]
    pub(crate) fn take_matched<P: Policy>(
        &mut self,
        incoming: RxPacket<'_, B>,
        flow_match: FlowMatch,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let FlowMatch { known, flow, found, agrees, resembled } = flow_match;
        let now_ns = incoming.now_ns;
        match self.examine::<P>(&incoming, &flow_match) {
            Ok(candidate) => {
                let frame = incoming.into_frame();
                let resembles = resembled != PredictionId::NONE;
                let examined = Examined { frame, candidate, known, flow, now_ns, resembles };
                self.admit::<P>(found, examined, agrees, sink)
            }
            Err(reason) => self.pass_behind(found, incoming.into_frame(), reason, sink),
        }
    }

    /// Examines a packet with known headers, independently of any train. A packet that resembles an already examined
    /// one is not examined again.
    #[inline(always)]
    pub(crate) fn examine<P: Policy>(
        &self,
        incoming: &RxPacket<'_, B>,
        flow_match: &FlowMatch,
    ) -> Result<Candidate, Pass> {
        let (packet, meta) = (incoming.bytes(), incoming.meta);
        let known = &self.shapes[flow_match.known];
        if let Some(resembled) = self.predictions.get(flow_match.resembled) {
            return Ok(resembled.candidate(packet, &known.shape));
        }
        match P::rules(known).acknowledgments.are_gathered() && known.is_empty(packet) {
            true => examine_acknowledgment(packet, known, meta),
            false => examine::<P>(packet, known, meta),
        }
    }

    /// Passes an examined packet to the current train of its flow.
    pub(crate) fn admit_anew<P: Policy>(
        &mut self,
        examined: Examined<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let found = self.table.find(examined.flow, examined.frame.meta.hash);
        if let Some(next) = self.next_of_examined(found, &examined) {
            let Examined { frame: Frame { buffer, meta }, now_ns, .. } = examined;
            let incoming = RxPacket { buffer, meta: &meta, now_ns };
            return self.join_predicted::<P>(next, incoming, sink);
        }
        self.admit::<P>(found, examined, false, sink)
    }

    /// Returns the prediction that an examined packet matches: that of its flow's train.
    #[inline]
    fn next_of_examined(
        &self,
        found: Found<TrainId>,
        examined: &Examined<B>,
    ) -> Option<PredictionId> {
        let Found::Slot(slot) = found else { return None };
        let id = self.trains.held(slot)?.prediction;
        let next = self.predictions.get(id).filter(|next| next.train == slot)?;
        let Examined { frame, candidate, .. } = examined;
        let packet = frame.buffer.as_ref();
        next.is_next_of_examined(packet, &frame.meta, candidate, &self.shapes).then_some(id)
    }

    /// Appends an examined packet to the train of its flow, or starts a train with it.
    #[inline(always)]
    pub(crate) fn admit<P: Policy>(
        &mut self,
        found: Found<TrainId>,
        examined: Examined<B>,
        agrees: bool,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let free = match found {
            Found::Slot(slot) => return self.offer::<P>(slot, examined, agrees, sink),
            Found::Free(free) => Some(free).filter(|_| !self.trains.is_full()),
            Found::Full(_) => None,
        };
        self.hold::<P>(examined, free, sink)
    }

    /// Compares a packet with the train of its flow and appends it if it fits. `agrees` is true if the lookup has
    /// already shown that their headers agree.
    #[inline]
    fn offer<P: Policy>(
        &mut self,
        slot: TrainId,
        examined: Examined<B>,
        agrees: bool,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let tiers = P::tiers(self.tiers);
        let Some(train) = self.trains.held_mut(slot) else {
            return self.hold_behind::<P>(examined, sink);
        };
        let known = &self.shapes[train.known];
        let rules = P::rules(known);
        let is_gathered =
            rules.acknowledgments.are_gathered() && examined.candidate.payload_len == 0;
        let admitted = if is_gathered || rules.acknowledgments.are_gathered() && train.is_empty() {
            let own = &self.shapes[examined.known];
            train.gathers(&examined, known, own).map(|()| train.fixed_ids)
        } else {
            let agrees = if agrees { Ok(()) } else { train.agrees(&examined, known, tiers.masks) };
            let last = rules.compares_with_last().then(|| self.pool.last(&train.rest));
            agrees.and_then(|()| {
                if let Some(last) = last {
                    let (first, packet) =
                        (train.first.buffer.as_ref(), examined.frame.buffer.as_ref());
                    let last = last.map_or(first, |last| last.buffer.as_ref());
                    beside_last(first, last, packet, &examined.candidate, known)?;
                }
                train.admits::<P>(&examined, known)
            })
        };
        let fixed_ids = match admitted {
            Ok(fixed_ids) => fixed_ids,
            Err(refusal) => {
                let leaves = leaves_alone(refusal, &examined.candidate, is_gathered, rules.refused);
                return self.refuse::<P>(slot, examined, refusal, leaves, sink);
            }
        };
        let Examined { frame, candidate, .. } = examined;
        let header_len = known.shape.header_len;
        let part = match is_gathered {
            true => 0..frame.buffer.as_ref().len(),
            false => header_len..header_len + candidate.payload_len,
        };
        if let Err(buffer) = self.pool.push(&mut train.rest, frame.buffer, part) {
            let frame = Frame { buffer, ..frame };
            self.close(slot, Close::PartsFull, sink);
            return self.hold_behind::<P>(Examined { frame, ..examined }, sink);
        }
        let mut ends = None;
        if is_gathered {
            train.packets += 1;
        } else {
            ends = train.join::<P>(&candidate, fixed_ids, known);
            if ends.is_none() && tiers.prediction {
                match self.pool.last(&train.rest).filter(|_| candidate.packets == 1) {
                    Some(last) => {
                        let last = last.buffer.as_ref();
                        let is_controlled = self.retention.fixed_ns().is_none();
                        let is_watched = P::IS_WATCHED && (is_controlled || !known.is_invertible);
                        let joined = train.joined((slot, is_watched), known, rules, last);
                        train.prediction = self.predictions.predict(&joined);
                    }
                    None => self.predictions.forget(train.prediction, slot),
                }
            }
        }
        if P::IS_WATCHED && self.is_watched {
            let clock = self.note_joined(slot, &frame.meta, examined.now_ns);
            ends = ends.or(clock);
        }
        if let Some(reason) = ends {
            self.close(slot, reason, sink);
        }
        Verdict::Joined
    }

    /// Closes a train because a packet did not fit into it. The packet then starts the next train or is delivered
    /// unmerged.
    #[inline(never)]
    fn refuse<P: Policy>(
        &mut self,
        slot: TrainId,
        examined: Examined<B>,
        refusal: NoMerge,
        leaves_alone: bool,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.stats.refused[refusal.index()] += 1;
        self.close(slot, Close::NoMerge, sink);
        if leaves_alone {
            let Examined { frame, candidate, known, .. } = examined;
            let meta = verified(&self.shapes[known].shape, candidate.partial, frame.meta);
            let packets = u32::from(candidate.packets);
            self.deliver_single(frame.buffer, meta, packets, Close::Never, sink);
        } else {
            self.hold_behind::<P>(examined, sink);
        }
        Verdict::Refused(refusal)
    }

    /// Starts a train with a packet for which another train had to be closed.
    #[inline(never)]
    pub(super) fn hold_behind<P: Policy>(
        &mut self,
        examined: Examined<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.hold::<P>(examined, None, sink)
    }

    /// Starts a train with a packet, or delivers the packet if none may follow it in a train (rule G37).
    #[inline(always)]
    fn hold<P: Policy>(
        &mut self,
        examined: Examined<B>,
        free: Option<Place>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let known = &self.shapes[examined.known];
        let rules = P::rules(known);
        let is_without_echo = rules.zero_echo == ZeroEcho::Alone
            && echoes_zero(examined.frame.buffer.as_ref(), known);
        let alone = if is_without_echo {
            Some(Pass::TcpOptions)
        } else {
            ends_alone::<P>(known, &examined.candidate)
        };
        if let Some(reason) = alone {
            let Examined { frame, candidate, .. } = examined;
            let meta = verified(&known.shape, candidate.partial, frame.meta);
            return self.pass_here(frame.buffer, meta, reason, sink);
        }
        self.start::<P>(examined, free, sink)
    }

    /// Returns whether a packet may start a train but must not be appended to one.
    fn joins_none(&self, known: ShapeId, frame: &Frame<B>) -> bool {
        let known = &self.shapes[known];
        known.rules.zero_echo == ZeroEcho::Starts && echoes_zero(frame.buffer.as_ref(), known)
    }

    /// Starts a train with a packet.
    #[inline(always)]
    fn start<P: Policy>(
        &mut self,
        examined: Examined<B>,
        free: Option<Place>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Examined { ref frame, known, flow, resembles, .. } = examined;
        // If this packet were used for prediction, a packet with the same timestamps would be appended to the train,
        // which is not allowed.
        let resembles = resembles && !(P::IS_WATCHED && self.joins_none(known, frame));
        let place = match free {
            Some(place) => place,
            None => match self.room_for::<P>(known, flow, frame.meta.hash, sink) {
                Some(place) => place,
                None => return self.pass_verified(examined, Pass::TableFull, sink),
            },
        };
        let slot = self.trains.insert(examined, place);
        self.table.insert(place, flow, slot);
        if P::IS_WATCHED && self.is_watched {
            self.watch(slot, known);
        }
        match resembles {
            true => self.go_on(slot),
            false => self.predictions.follow_none(),
        }
        Verdict::Held
    }

    /// Returns a free entry of the flow table. If the bucket is full, closes its oldest train first (rule G3), unless
    /// the policy never evicts trains.
    #[cold]
    fn room_for<P: Policy>(
        &mut self,
        known: ShapeId,
        flow: FlowHash,
        device_hash: Option<u32>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Option<Place> {
        if P::rules(&self.shapes[known]).full == FullTable::Leaves {
            return match self.table.find(flow, device_hash) {
                Found::Free(place) if !self.trains.is_full() => Some(place),
                _ => None,
            };
        }
        if self.trains.is_full()
            && let Some((oldest, _)) = self.trains.oldest()
        {
            self.close(oldest, Close::TableFull, sink);
        }
        let (oldest, reason) = match self.table.find(flow, device_hash) {
            Found::Free(place) => return Some(place),
            Found::Full(bucket) => {
                (self.trains.oldest_of(&self.table.slots(bucket)), Close::BucketFull)
            }
            Found::Slot(slot) => (Some(slot), Close::NoMerge),
        };
        let train = oldest.and_then(|slot| Some((slot, self.trains.held(slot)?.place)));
        debug_assert!(train.is_some(), "a full bucket contains trains");
        let (slot, place) = train.unwrap_or_default();
        self.close(slot, reason, sink);
        Some(place)
    }

    /// Delivers a packet whose flow cannot be read completely. Held trains that it might belong to are delivered first
    /// (rule G75).
    #[inline(never)]
    pub(super) fn pass_unknown(
        &mut self,
        frame: Frame<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Some(scope) = self.dissected_might_be_of(frame.buffer.as_ref(), &frame.meta) {
            self.close_of(scope, frame.meta.hash, sink);
        }
        self.pass(frame, reason, sink)
    }

    /// Delivers a packet after the train of its flow.
    #[inline(always)]
    pub(crate) fn pass_behind(
        &mut self,
        found: Found<TrainId>,
        frame: Frame<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Found::Slot(slot) = found {
            self.close(slot, Close::Barrier, sink);
        }
        self.pass(frame, reason, sink)
    }

    /// Delivers a packet unchanged.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        frame: Frame<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.pass_here(frame.buffer, frame.meta, reason, sink)
    }

    /// Delivers an examined packet and marks its checksums as verified.
    pub(crate) fn pass_verified(
        &mut self,
        examined: Examined<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Examined { frame, candidate, known, .. } = examined;
        let meta = verified(&self.shapes[known].shape, candidate.partial, frame.meta);
        self.pass(Frame { meta, ..frame }, reason, sink)
    }

    /// Delivers a packet unchanged. Inlined for callers that deliver most of their packets this way.
    #[inline(always)]
    pub(super) fn pass_here(
        &mut self,
        buffer: B,
        meta: Meta,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.stats.passed[reason.index()] += 1;
        self.deliver_single(buffer, meta, packets_of(&meta), Close::Never, sink);
        Verdict::Passed(reason)
    }
}

/// Returns the reason why a packet must not start a train (rule G37).
#[inline(always)]
pub(super) fn ends_alone<P: Policy>(known: &CachedStack, candidate: &Candidate) -> Option<Pass> {
    let rules = P::rules(known);
    if candidate.payload_len == 0 && rules.acknowledgments.are_gathered() {
        return None;
    }
    match ending(candidate.flags, rules) {
        Some(Close::Finish) => Some(Pass::TcpFinish),
        Some(_) => Some(Pass::TcpPush),
        // A window update merges into data packets but does not start a train.
        None if rules.acknowledgments == Acknowledgments::WindowUpdates
            && candidate.payload_len == 0 =>
        {
            Some(Pass::Empty)
        }
        None => candidate.short_tail.then_some(Pass::Superframe),
    }
}

/// Returns whether a packet that does not fit into a train is delivered after it instead of starting the next one.
#[inline(always)]
fn leaves_alone(
    refusal: NoMerge,
    candidate: &Candidate,
    is_gathered: bool,
    refused: Refused,
) -> bool {
    let is_duplicate = refusal == NoMerge::TcpAcknowledgmentAlone && candidate.payload_len == 0;
    // An implementation that flushes at a limit does start a new train with the next packet (rule L15).
    let is_limit = matches!(refusal, NoMerge::SizeLimit | NoMerge::SegmentLimit);
    !is_gathered && (is_duplicate || refused == Refused::Leaves && !is_limit)
}
