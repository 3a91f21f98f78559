//! The merge path: from a packet to the train that it extends, starts or must not overtake.
//!
//! Written once, and compiled for each [`Policy`]. The flow of a packet is found by tiers, the cheapest first: a
//! [prediction](crate::coalesce::predict::prediction) of its headers (byte for byte, or by shape), a masked comparison with the
//! train of a guessed flow, and the headers themselves, looked up or dissected. After that, every packet takes the same
//! steps.

use super::{Merger, Unknown, gathered::examine_acknowledgment, packets_of, verified};
use crate::{
    bytes::byte_at,
    coalesce::{
        emit::{
            delivery::Sink,
            reason::{Close, NoMerge, Pass},
            verdict::Verdict,
        },
        hold::train::{Examined, beside_last, ending},
        profile::{Acknowledgments, FullTable, Refused},
        rx::{
            examine::{Candidate, examine, lengths_agree, verify_all},
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

/// Prediction that a packet may match.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedFlow {
    /// The packet may continue the current burst.
    Next(PredictionId),
    /// The packet may belong to the flow whose turn it is.
    Flow(PredictionId),
    /// No flow is expected, or another one.
    Nothing,
}

/// Flow of a packet, as found by the tiers before parsing.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The packet continues the train of this prediction.
    Next(PredictionId),
    /// The headers and the flow are known.
    Matched(FlowMatch),
    /// The packet may belong to this flow.
    Guessed(Guess),
}

/// Guessed flow of an unparsed packet.
#[derive(Debug)]
pub(crate) struct Guess {
    /// Headers used for the lookup.
    known: Option<ShapeId>,
    flow: FlowHash,
    found: Found<TrainId>,
}

/// Headers and flow of a packet, and the result of the table lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMatch {
    pub(crate) known: ShapeId,
    pub(crate) flow: FlowHash,
    pub(crate) found: Found<TrainId>,
    /// Whether the packet is known to obey the laws of equality in the found train.
    pub(crate) agrees: bool,
    /// Prediction of the flow that the packet resembles, so that it need not be examined.
    pub(crate) resembled: PredictionId,
}

impl<B: AsRef<[u8]>> Merger<B> {
    /// Returns the prediction that a packet may match, from the packets before it. Without that tier nothing is
    /// predicted.
    #[inline(always)]
    pub(crate) fn expect(&self, packet: &[u8], meta: &Meta) -> ExpectedFlow {
        let id = self.predictions.latest();
        let Some(latest) = self.predictions.get(id) else { return ExpectedFlow::Nothing };
        if latest.is_next(packet, meta, &self.shapes) {
            return ExpectedFlow::Next(id);
        }
        let follower = self.predictions.get(latest.follower);
        if follower.is_some_and(|follower| follower.has_ports_of(packet)) {
            return ExpectedFlow::Flow(latest.follower);
        }
        if latest.has_ports_of(packet) { ExpectedFlow::Flow(id) } else { ExpectedFlow::Nothing }
    }

    /// Processes a packet that may match this prediction.
    #[inline(never)]
    pub(crate) fn take_expected<P: Policy>(
        &mut self,
        id: PredictionId,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match self.look_up_expected(id, None, incoming.bytes(), incoming.meta) {
            Lookup::Next(next) => self.join_predicted::<P>(next, incoming, sink),
            Lookup::Matched(flow_match) => self.take_matched::<P>(incoming, flow_match, sink),
            Lookup::Guessed(_) => self.take_apart::<P>(None, incoming, sink),
        }
    }

    /// Processes a packet for which a guess found a train, or which must be parsed although its flow was expected.
    #[inline(never)]
    fn take_apart<P: Policy>(
        &mut self,
        flow_match: Option<FlowMatch>,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let flow_match = match flow_match {
            Some(flow_match) => Ok(flow_match),
            None => self.parse::<P>(incoming.bytes(), incoming.meta, &Guess::NONE),
        };
        match flow_match {
            Ok(flow_match) => self.take_matched::<P>(incoming, flow_match, sink),
            Err(unknown) => self.take_unknown::<P>(unknown, incoming, sink),
        }
    }

    /// Processes a packet of no expected flow, by the first tier that finds its flow.
    #[inline(never)]
    pub(crate) fn take<P: Policy>(
        &mut self,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let (packet, meta) = (incoming.bytes(), incoming.meta);
        if self.trains.is_empty() {
            if let Some((meta, reason)) = self.passes_as_the_last::<P>(packet, meta) {
                return self.pass_here(incoming.buffer, meta, reason, sink);
            }
            if let Some(known) = self.alone::<P>(packet, meta) {
                return self.pass_alone::<P>(incoming, known, sink);
            }
        }
        let guess = self.guess::<P>(packet, meta);
        if let Some(id) = self.predictions.of(guess.flow) {
            return self.take_expected::<P>(id, incoming, sink);
        }
        if let Some(flow_match) = self.locate_by_train(guess.found, packet, meta) {
            return self.take_apart::<P>(Some(flow_match), incoming, sink);
        }
        match self.parse::<P>(packet, meta, &guess) {
            Ok(flow_match) => self.take_matched::<P>(incoming, flow_match, sink),
            Err(unknown) => self.take_unknown::<P>(unknown, incoming, sink),
        }
    }

    /// Returns metadata and reason for a packet with the same header shape as the previous passed packet.
    #[inline(always)]
    fn passes_as_the_last<P: Policy>(&self, packet: &[u8], meta: &Meta) -> Option<(Meta, Pass)> {
        let passthrough = Some(&self.passthrough).filter(|_| P::tiers(self.tiers).prediction)?;
        let (known, reason) = passthrough.of(packet, meta, &self.shapes)?;
        Some(match verify_all(packet, &known.shape, &meta.checksum) {
            Ok(partial) => (verified(&known.shape, partial, *meta), reason),
            Err(reason) => (*meta, reason),
        })
    }

    /// Returns the headers of a packet that is unmergeable by its headers or flags, if they are those of the packet
    /// before it. While no train is held, its flow is irrelevant.
    #[inline(always)]
    fn alone<P: Policy>(&self, packet: &[u8], meta: &Meta) -> Option<ShapeId> {
        let latest = self.shapes.latest();
        let known = self.shapes.get(latest).filter(|_| P::tiers(self.tiers).masks)?;
        let flags = known.shape.flags.map_or(0, |at| byte_at(packet, at.into()));
        let ends =
            packet.len() > known.shape.header_len && ending(flags, P::rules(known)).is_some();
        let is_alone = known.refusal.is_some() || ends;
        (is_alone && known.has(packet) && lengths_agree(packet, &known.shape, meta))
            .then_some(latest)
    }

    /// Delivers a packet that is unmergeable by its headers or flags, while no train is held.
    #[inline(always)]
    fn pass_alone<P: Policy>(
        &mut self,
        incoming: RxPacket<'_, B>,
        known: ShapeId,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let headers = &self.shapes[known];
        match examine::<P>(incoming.bytes(), headers, incoming.meta) {
            Ok(candidate) => {
                let reason = ends_alone::<P>(headers, &candidate);
                debug_assert!(reason.is_some(), "the packet's flags end every train");
                let meta = verified(&headers.shape, candidate.partial, *incoming.meta);
                let reason = reason.unwrap_or(Pass::TcpPush);
                if meta.gso.is_none() {
                    let header_len = headers.shape.header_len;
                    self.passthrough.learn(incoming.bytes(), header_len, known, reason);
                }
                self.pass_here(incoming.buffer, meta, reason, sink)
            }
            Err(reason) => self.pass_here(incoming.buffer, *incoming.meta, reason, sink),
        }
    }

    /// Locates a packet by its headers, known or dissected.
    #[inline(always)]
    pub(crate) fn parse<P: Policy>(
        &mut self,
        packet: &[u8],
        meta: &Meta,
        guess: &Guess,
    ) -> Result<FlowMatch, Unknown> {
        let known = self.headers::<P>(packet, meta)?;
        Ok(self.locate(packet, meta, known, guess))
    }

    /// Processes a packet whose headers are unknown.
    #[cold]
    #[inline(never)]
    fn take_unknown<P: Policy>(
        &mut self,
        unknown: Unknown,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match unknown {
            Unknown::Passes(reason) => self.pass_unknown(incoming.into_frame(), reason, sink),
            Unknown::OneTooMany => {
                self.forget_shapes(sink);
                self.take::<P>(incoming, sink)
            }
        }
    }

    /// Finds the flow of a packet with this expectation, without parsing it.
    #[inline(always)]
    pub(crate) fn look_up<P: Policy>(
        &self,
        expected: ExpectedFlow,
        packet: &[u8],
        meta: &Meta,
    ) -> Lookup {
        match expected {
            ExpectedFlow::Next(next) => return Lookup::Next(next),
            ExpectedFlow::Flow(id) => return self.look_up_expected(id, None, packet, meta),
            ExpectedFlow::Nothing => {}
        }
        let guess = self.guess::<P>(packet, meta);
        match self.predictions.of(guess.flow) {
            Some(id) => self.look_up_expected(id, Some(guess.found), packet, meta),
            None => match self.locate_by_train(guess.found, packet, meta) {
                Some(flow_match) => Lookup::Matched(flow_match),
                None => Lookup::Guessed(guess),
            },
        }
    }

    /// Finds the flow of a packet without parsing it or verifying its checksums.
    #[inline(always)]
    pub(crate) fn look_up_unpredicted<P: Policy>(
        &self,
        packet: &[u8],
        meta: &Meta,
    ) -> Result<FlowMatch, Guess> {
        let guess = self.guess::<P>(packet, meta);
        self.locate_by_train(guess.found, packet, meta).ok_or(guess)
    }

    /// Finds the flow of a packet that may match this prediction, whose train may have been looked up.
    #[inline(always)]
    fn look_up_expected(
        &self,
        id: PredictionId,
        found: Option<Found<TrainId>>,
        packet: &[u8],
        meta: &Meta,
    ) -> Lookup {
        let Some(next) = self.predictions.get(id) else { return Lookup::Guessed(Guess::NONE) };
        // The prediction of the current burst was already checked.
        if id != self.predictions.latest() && next.is_next(packet, meta, &self.shapes) {
            return Lookup::Next(id);
        }
        let found = match next.train {
            TrainId::NONE => found.unwrap_or_else(|| self.table.find(next.flow, meta.hash)),
            slot => Found::Slot(slot),
        };
        let (known, flow, agrees) = (next.known, next.flow, false);
        if next.is_resembled_by(packet, meta, &self.shapes) {
            return Lookup::Matched(FlowMatch { known, flow, found, agrees, resembled: id });
        }
        if let Some(flow_match) = self.locate_by_train(found, packet, meta) {
            return Lookup::Matched(flow_match);
        }
        let Some(headers) = self.shapes.get(known) else { return Lookup::Guessed(Guess::NONE) };
        if next.has_headers_of(packet, headers) && lengths_agree(packet, &headers.shape, meta) {
            let resembled = PredictionId::NONE;
            return Lookup::Matched(FlowMatch { known, flow, found, agrees, resembled });
        }
        Lookup::Guessed(Guess::NONE)
    }

    /// Returns the headers of a packet, known or dissected.
    #[inline(always)]
    pub(crate) fn headers<P: Policy>(
        &mut self,
        packet: &[u8],
        meta: &Meta,
    ) -> Result<ShapeId, Unknown> {
        if P::tiers(self.tiers).masks
            && let Some(known) = self.known(packet, meta)
        {
            return Ok(known);
        }
        self.dissect(packet, meta)
    }

    /// Locates a predicted packet by the train that it continues.
    #[inline(always)]
    pub(crate) fn match_of(&self, next: PredictionId) -> FlowMatch {
        let slot = self.predictions.get(next).map_or(TrainId::NONE, |next| next.train);
        let train = self.trains.held(slot);
        let known = train.map_or_else(ShapeId::default, |train| train.known);
        let flow = train.map_or(FlowHash::NONE, |train| train.flow);
        let (found, agrees) = (Found::Slot(slot), true);
        FlowMatch { known, flow, found, agrees, resembled: PredictionId::NONE }
    }

    /// Guesses the flow of a packet by the headers of the packet before it.
    #[inline(always)]
    fn guess<P: Policy>(&self, packet: &[u8], meta: &Meta) -> Guess {
        let latest = self.shapes.latest();
        match self.shapes.get(latest).filter(|_| P::tiers(self.tiers).masks) {
            Some(known) => {
                let flow = self.hasher.flow(packet, &known.keys);
                Guess { known: Some(latest), flow, found: self.table.find(flow, meta.hash) }
            }
            None => Guess::NONE,
        }
    }

    /// Locates a packet by the train of a guessed flow, if its headers agree with those of the train.
    #[inline(always)]
    fn locate_by_train(
        &self,
        found: Found<TrainId>,
        packet: &[u8],
        meta: &Meta,
    ) -> Option<FlowMatch> {
        let Found::Slot(slot) = found else { return None };
        let train = self.trains.train(slot)?;
        let known = &self.shapes[train.known];
        // A packet without payload seldom agrees with data packets.
        let agrees = packet.len() > known.shape.header_len
            && known.equality.agrees(train.first.buffer.as_ref(), packet)
            && lengths_agree(packet, &known.shape, meta);
        let (known, flow, found) = (train.known, train.flow, Found::Slot(slot));
        let resembled = PredictionId::NONE;
        agrees.then_some(FlowMatch { known, flow, found, agrees, resembled })
    }

    /// Looks up the flow of a packet with these headers, unless the guess already found it.
    #[inline(always)]
    pub(crate) fn locate(
        &self,
        packet: &[u8],
        meta: &Meta,
        known: ShapeId,
        guess: &Guess,
    ) -> FlowMatch {
        let (agrees, resembled) = (false, PredictionId::NONE);
        if guess.known == Some(known) {
            return FlowMatch { known, flow: guess.flow, found: guess.found, agrees, resembled };
        }
        let flow = self.hasher.flow(packet, &self.shapes[known].keys);
        let found = self.table.find(flow, meta.hash);
        FlowMatch { known, flow, found, agrees, resembled }
    }

    /// Processes a packet with known headers and flow: examines it and takes it to the train of its flow.
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

    /// Examines a packet with known headers alone, unless it resembles one that was examined.
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

    /// Takes an examined packet to the current train of its flow.
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

    /// Returns the prediction of a train that an examined packet continues.
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

    /// Appends an examined packet to the train of its flow, or starts a train.
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

    /// Compares a packet with the train of its flow. `agrees` tells whether their headers were already compared.
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
                    let last = last.unwrap_or(&train.first).buffer.as_ref();
                    beside_last(last, examined.frame.buffer.as_ref(), &examined.candidate, known)?;
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

    /// Closes the train that refused a packet, which starts the next one or is delivered after it.
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

    /// Starts a train with a packet after another train had to be closed.
    #[inline(never)]
    pub(super) fn hold_behind<P: Policy>(
        &mut self,
        examined: Examined<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.hold::<P>(examined, None, sink)
    }

    /// Starts a train with a packet, unless nothing may follow it (rule G37).
    #[inline(always)]
    fn hold<P: Policy>(
        &mut self,
        examined: Examined<B>,
        free: Option<Place>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let known = &self.shapes[examined.known];
        if let Some(reason) = ends_alone::<P>(known, &examined.candidate) {
            let Examined { frame, candidate, .. } = examined;
            let meta = verified(&known.shape, candidate.partial, frame.meta);
            return self.pass_here(frame.buffer, meta, reason, sink);
        }
        self.start::<P>(examined, free, sink)
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

    /// Returns a free entry of the flow table, closing the oldest train of the bucket if needed (rule G3), unless the
    /// policy evicts none.
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

    /// Delivers a packet whose flow cannot be read completely, after every held train that it might belong to (rule
    /// G75).
    #[inline(never)]
    fn pass_unknown(
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

    /// Delivers a packet unchanged; inlined where most packets of a kind take this path.
    #[inline(always)]
    fn pass_here(
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

impl Guess {
    const NONE: Self = Self { known: None, flow: FlowHash::NONE, found: Found::Full(0) };
}

/// Returns the reason why a packet must not start a train (rule G37).
#[inline(always)]
fn ends_alone<P: Policy>(known: &CachedStack, candidate: &Candidate) -> Option<Pass> {
    let rules = P::rules(known);
    if candidate.payload_len == 0 && rules.acknowledgments.are_gathered() {
        return None;
    }
    match ending(candidate.flags, rules) {
        Some(Close::Finish) => Some(Pass::TcpFinish),
        Some(_) => Some(Pass::TcpPush),
        // A window update merges into data, and starts no train.
        None if rules.acknowledgments == Acknowledgments::WindowUpdates
            && candidate.payload_len == 0 =>
        {
            Some(Pass::Empty)
        }
        None => candidate.short_tail.then_some(Pass::Superframe),
    }
}

/// Returns whether a refused packet is delivered after the train instead of starting the next one.
#[inline(always)]
fn leaves_alone(
    refusal: NoMerge,
    candidate: &Candidate,
    is_gathered: bool,
    refused: Refused,
) -> bool {
    let is_duplicate = refusal == NoMerge::TcpAcknowledgmentAlone && candidate.payload_len == 0;
    // An implementation that flushes at a limit starts a new train with the next packet (rule L15).
    let is_limit = matches!(refusal, NoMerge::SizeLimit | NoMerge::SegmentLimit);
    !is_gathered && (is_duplicate || refused == Refused::Leaves && !is_limit)
}
