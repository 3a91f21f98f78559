//! Looks up the flow of a packet, and the train of that flow.
//!
//! The code is generic over [`Policy`]. Eight tiers try to find the flow, cheapest first. Every tier that finds a
//! packet's flow gives the same result; earlier tiers are only faster:
//!
//! 1. The packet continues the current burst: the prediction of the previous packet's flow fits byte for byte
//!    ([`Merger::expect`]).
//! 2. It continues the train of the flow that is expected next: the prediction of that flow fits byte for byte.
//! 3. It has the shape and length of earlier packets of that flow, so it can start a train without being examined.
//! 4. Its headers agree, under a mask, with those of that flow's train or of a guessed flow's train.
//! 5. Its headers are those of that flow, ignoring fields that vary ([`Merger::look_up_expected`] walks tiers 2 to 5).
//! 6. No train is held, and the packet is unmergeable for the same reason as the packet before it, so its flow does not
//!    matter.
//! 7. Its header stack is in the cache, which gives the offsets of the fields to hash.
//! 8. The packet is dissected, and its header stack is cached ([`Merger::headers`] walks tiers 7 and 8).
//!
//! A packet that belongs to no expected flow starts at tier 6. Its flow is then guessed by hashing the packet at the
//! offsets of the previous packet's headers. If the guessed flow has a prediction, tiers 2 to 5 are tried, otherwise
//! only tier 4. If they do not find the flow, tiers 7 and 8 parse the packet.

use super::{Merger, Unknown, admit::ends_alone, verified};
use crate::{
    bytes::byte_at,
    checksum::Checksum,
    coalesce::{
        emit::{delivery::Sink, reason::Pass, verdict::Verdict},
        flows::flow_match::FlowMatch,
        hold::train::{Examined, ending},
        profile::{Padding, Rules},
        rx::{
            examine::{examine, lengths_agree, verify_all},
            policy::{ByProfile, Policy},
            rx_packet::RxPacket,
        },
        slots::{prediction_id::PredictionId, shape_id::ShapeId, train_id::TrainId},
    },
    flow::{FlowHash, Found},
    meta::Meta,
};

/// Prediction that a packet may match, given the packets before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedFlow {
    /// The packet may continue the current burst.
    Next(PredictionId),
    /// The packet may belong to the flow that is expected next.
    Flow(PredictionId),
    /// No flow is expected, or the packet does not belong to the expected flow.
    Nothing,
}

/// Flow of a packet, as found by the tiers that do not parse the packet.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The packet continues the train of this prediction.
    Next(PredictionId),
    /// The headers and the flow are known.
    Matched(FlowMatch),
    /// The packet probably belongs to this flow.
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

impl<B: AsRef<[u8]>> Merger<B> {
    /// Returns the prediction that a packet may match, based on the packets before it. Returns `Nothing` if prediction
    /// is disabled.
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

    /// Processes a packet whose train was found by guessing its flow, or one that must be parsed although its flow was
    /// expected.
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

    /// Processes a packet that belongs to no expected flow, using the first tier that finds its flow.
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

    /// Returns the metadata and the pass reason of a packet, if it has the same header shape as the last packet that
    /// was delivered unmerged.
    #[inline(always)]
    fn passes_as_the_last<P: Policy>(&self, packet: &[u8], meta: &Meta) -> Option<(Meta, Pass)> {
        let passthrough = Some(&self.passthrough).filter(|_| P::tiers(self.tiers).prediction)?;
        let (known, reason) = passthrough.of(packet, meta, &self.shapes)?;
        Some(match verify_all(packet, &known.shape, &meta.checksum) {
            Ok(partial) => (verified(&known.shape, partial, *meta), reason),
            Err(reason) => (*meta, reason),
        })
    }

    /// Returns the known headers of a packet that is unmergeable because of its headers or flags, if the previous
    /// packet had the same headers. While no train is held, the flow of such a packet does not matter.
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

    /// Delivers a packet that is unmergeable because of its headers or flags, while no train is held.
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

    /// Finds the flow of a packet by looking up its headers in the cache or dissecting them.
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
    fn take_unknown<P: Policy>(
        &mut self,
        unknown: Unknown,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match unknown {
            Unknown::Passes(reason) => {
                match P::IS_WATCHED && reason == Pass::Padded && self.trims() {
                    true => self.take_padded(incoming, sink),
                    false => self.pass_unknown(incoming.into_frame(), reason, sink),
                }
            }
            Unknown::OneTooMany => {
                self.forget_shapes(sink);
                self.take::<P>(incoming, sink)
            }
        }
    }

    /// Returns whether padding is removed from packets so that they can be merged. Acknowledgments that wait unmerged
    /// keep their padding.
    pub(crate) fn trims(&self) -> bool {
        let Rules { padding, acknowledgments, .. } = self.profile.rules;
        padding == Padding::Trim && !acknowledgments.are_gathered()
    }

    /// Processes a packet that was just dissected and has padding. If the innermost header is TCP, the padding is
    /// ignored. Otherwise the packet is not merged.
    #[cold]
    pub(crate) fn take_padded(
        &mut self,
        incoming: RxPacket<'_, B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let end = self.stack.end as usize;
        let packet = incoming.bytes().get(..end).unwrap_or_default();
        let mut headers = self.headers::<ByProfile>(packet, incoming.meta);
        if let Err(Unknown::OneTooMany) = headers {
            self.forget_shapes(sink);
            headers = self.headers::<ByProfile>(packet, incoming.meta);
        }
        let known = match headers {
            Ok(known) if self.shapes[known].shape.is_tcp => known,
            _ => return self.pass_unknown(incoming.into_frame(), Pass::Padded, sink),
        };
        // The checksum that the device computed also covers the padding.
        let checksum = match incoming.meta.checksum {
            Checksum::Complete { .. } => Checksum::None,
            verified => verified,
        };
        let meta = Meta { checksum, ..*incoming.meta };
        let examined = examine::<ByProfile>(packet, &self.shapes[known], &meta);
        let FlowMatch { flow, found, .. } = self.locate(packet, &meta, known, &Guess::NONE);
        let now_ns = incoming.now_ns;
        let frame = incoming.into_frame();
        let candidate = match examined {
            Ok(candidate) => candidate,
            Err(reason) => return self.pass_behind(found, frame, reason, sink),
        };
        let hash = frame.meta.hash;
        let examined = Examined { frame, candidate, known, flow, now_ns, resembles: false };
        let verdict = self.admit::<ByProfile>(found, examined, false, sink);
        if let (Verdict::Held | Verdict::Refused(_), Found::Slot(slot)) =
            (verdict, self.table.find(flow, hash))
            && let Some(train) = self.trains.held_mut(slot)
        {
            // The packet has just become the first of the train. The other packets of a train are stored without
            // padding.
            train.first.truncate(end);
        }
        verdict
    }

    /// Finds the flow of a packet that may match a prediction, without parsing the packet.
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

    /// Finds the flow of a packet that may match this prediction. `found` is the train of the prediction, if the caller
    /// has already looked it up.
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

    /// Returns the headers of a packet, from the cache or by dissection.
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

    /// Returns the headers, flow and train of a predicted packet. All are known from the train that the packet
    /// continues.
    #[inline(always)]
    pub(crate) fn match_of(&self, next: PredictionId) -> FlowMatch {
        let slot = self.predictions.get(next).map_or(TrainId::NONE, |next| next.train);
        let train = self.trains.held(slot);
        let known = train.map_or_else(ShapeId::default, |train| train.known);
        let flow = train.map_or(FlowHash::NONE, |train| train.flow);
        let (found, agrees) = (Found::Slot(slot), true);
        FlowMatch { known, flow, found, agrees, resembled: PredictionId::NONE }
    }

    /// Guesses the flow of a packet from the headers of the previous packet.
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

    /// Finds the flow of a packet by comparing it with the train of a guessed flow. The guess is right if the headers
    /// agree.
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
        // Headers of packets without payload seldom agree with those of data packets.
        let agrees = packet.len() > known.shape.header_len
            && known.equality.agrees(train.first.buffer.as_ref(), packet)
            && lengths_agree(packet, &known.shape, meta);
        let (known, flow, found) = (train.known, train.flow, Found::Slot(slot));
        let resembled = PredictionId::NONE;
        agrees.then_some(FlowMatch { known, flow, found, agrees, resembled })
    }

    /// Looks up the flow of a packet with these headers, unless guessing has already found it.
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
}

impl Guess {
    const NONE: Self = Self { known: None, flow: FlowHash::NONE, found: Found::Full(0) };
}
