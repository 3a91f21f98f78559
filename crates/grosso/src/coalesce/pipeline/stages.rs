//! Stages that a profile enables. Packets go through them before they reach the trains.

use crate::{
    coalesce::{
        emit::{
            delivery::Sink,
            reason::{Pass, Release},
            verdict::Verdict,
        },
        flows::{
            flow_match::FlowMatch,
            flush_scope::FlushScope,
            merge::{ExpectedFlow, Guess, Lookup, Merger, Unknown},
            observed::{Observed, Predicted},
        },
        hold::train::Examined,
        pipeline::{
            burst_bypass::BurstBypass,
            bypass::Bypasser,
            hold_stage::HoldStage,
            reorder::Resequencer,
            stage::{Downstream, Packet, Stage},
        },
        profile::{Level, Profile},
        rx::{examine::Candidate, policy::ByProfile, rx_packet::RxPacket},
        slots::prediction_id::PredictionId,
    },
    flow::FlowHash,
    frame::Frame,
};

/// Stages in the order in which packets go through them. Each stage has its own slot, so an absent stage costs no
/// instructions.
#[derive(Debug)]
pub(crate) struct Stages<B> {
    bypasser: Option<Bypasser>,
    hold_stage: Option<HoldStage>,
    resequencer: Option<Resequencer<B>>,
    /// Burst of packets that may bypass the stages.
    burst: BurstBypass,
}

/// Runs code for each stage in order. The code may use the slot index.
macro_rules! each_stage {
    ($stages:ident, $stage:ident $(at $slot:ident)? => $act:expr) => {
        if let Some($stage) = &mut $stages.bypasser {
            $(let $slot = 0;)?
            $act
        }
        if let Some($stage) = &mut $stages.hold_stage {
            $(let $slot = 1;)?
            $act
        }
        if let Some($stage) = &mut $stages.resequencer {
            $(let $slot = 2;)?
            $act
        }
    };
}

/// Number of stage slots.
const SLOTS: usize = 3;

/// Downstream of the last stage, which passes packets on to the trains.
struct ToTrains<'a, B, S: ?Sized> {
    merger: &'a mut Merger<B>,
    sink: &'a mut S,
}

impl<B: AsRef<[u8]>> Stages<B> {
    /// Creates the stages for a profile, if it needs any.
    pub(crate) fn of(profile: &Profile) -> Option<Self> {
        let repairs = profile.reorder.level != Level::Off;
        let bypasser = profile.bypass.map(Bypasser::new);
        let hold_stage = HoldStage::of(profile);
        let resequencer = repairs.then(|| Resequencer::new(profile.reorder, &profile.limits));
        let is_empty = bypasser.is_none() && hold_stage.is_none() && resequencer.is_none();
        (!is_empty).then_some(Self { bypasser, hold_stage, resequencer, burst: BurstBypass::NONE })
    }

    /// Returns whether a predicted packet may bypass the stages, and counts it if so.
    #[inline(always)]
    pub(crate) fn may_bypass(&mut self, next: PredictionId, incoming: &RxPacket<'_, B>) -> bool {
        let goes_by = self.burst.covers(next, incoming.meta, incoming.now_ns);
        if goes_by {
            self.burst.count();
        }
        goes_by
    }

    /// Records that a packet on the fast path did not merge.
    #[cold]
    pub(crate) fn note_unmerged(&mut self) {
        self.burst.note_unmerged();
    }

    /// Pushes a packet through the stages. `expected` is the prediction that it may match.
    #[inline(never)]
    pub(crate) fn push_expected(
        &mut self,
        expected: ExpectedFlow,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.settle(merger);
        if !self.allows_prediction() {
            return self.push_unpredicted(incoming, merger, sink);
        }
        match merger.look_up::<ByProfile>(expected, incoming.bytes(), incoming.meta) {
            Lookup::Next(next) => self.push_predicted(next, incoming, merger, sink),
            Lookup::Matched(flow_match) if flow_match.resembled != PredictionId::NONE => {
                self.push_resembling(flow_match, incoming, merger, sink)
            }
            Lookup::Matched(flow_match) => {
                self.push_matched(0, Packet { incoming, flow_match }, merger, sink)
            }
            Lookup::Guessed(guess) => self.push_guessed(&guess, incoming, merger, sink),
        }
    }

    /// Pushes a packet that must not be predicted.
    #[cold]
    fn push_unpredicted(
        &mut self,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match merger.look_up_unpredicted::<ByProfile>(incoming.bytes(), incoming.meta) {
            Ok(flow_match) => self.push_packet(0, Packet { incoming, flow_match }, merger, sink),
            Err(guess) => self.push_guessed(&guess, incoming, merger, sink),
        }
    }

    /// Pushes a packet that must be parsed.
    #[inline(never)]
    fn push_guessed(
        &mut self,
        guess: &Guess,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match merger.parse::<ByProfile>(incoming.bytes(), incoming.meta, guess) {
            Ok(flow_match) => self.push_packet(0, Packet { incoming, flow_match }, merger, sink),
            Err(Unknown::Passes(Pass::Padded)) if merger.trims() => {
                if let Some(scope) = merger.dissected_might_be_of(incoming.bytes(), incoming.meta) {
                    self.flush(scope, Release::Barrier, merger, sink);
                    // Other packets may have been dissected during the release, so this one is dissected again.
                    merger.must_not_overtake(incoming.bytes(), incoming.meta);
                }
                merger.take_padded(incoming, sink)
            }
            Err(Unknown::Passes(reason)) => {
                self.pass_unknown(incoming.into_frame(), reason, merger, sink)
            }
            Err(Unknown::OneTooMany) => self.push_one_too_many(incoming, merger, sink),
        }
    }

    /// Pushes the next packet of a train. It bypasses the stages that permit this.
    #[inline(always)]
    fn push_predicted(
        &mut self,
        next: PredictionId,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let predicted = merger.predicted(next, incoming.meta, incoming.now_ns);
        if let Some(stopped) = self.stopped(&predicted, merger) {
            let flow_match = merger.match_of(next);
            return self.push_packet(stopped, Packet { incoming, flow_match }, merger, sink);
        }
        let verdict = merger.join_predicted::<ByProfile>(next, incoming, sink);
        self.learn_and_bypass(&predicted.observed, verdict, merger);
        verdict
    }

    /// Pushes a packet that resembles earlier packets. It bypasses the stages that permit this.
    #[inline(always)]
    fn push_resembling(
        &mut self,
        flow_match: FlowMatch,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let resembled = merger.resembled(&flow_match, &incoming);
        if let Some(stopped) = self.stopped(&resembled, merger) {
            return self.push_packet(stopped, Packet { incoming, flow_match }, merger, sink);
        }
        let observed = resembled.observed;
        let verdict = merger.take_matched::<ByProfile>(incoming, flow_match, sink);
        self.learn_and_bypass(&observed, verdict, merger);
        verdict
    }

    /// Returns whether all stages allow prediction.
    #[inline(always)]
    fn allows_prediction(&mut self) -> bool {
        each_stage!(self, stage => if !Stage::<B>::allows_prediction(stage) {
            return false;
        });
        true
    }

    /// Returns the slot of the first stage that a packet must not bypass, if any.
    #[inline(always)]
    fn stopped(&mut self, predicted: &Predicted<'_>, merger: &mut Merger<B>) -> Option<usize> {
        each_stage!(self, stage at slot => if !stage.may_bypass(predicted, merger) {
            return Some(slot);
        });
        None
    }

    /// Works like [`Self::push_matched`], but is not inlined, for packets that usually bypass the stages.
    #[inline(never)]
    fn push_packet(
        &mut self,
        first: usize,
        packet: Packet<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.push_matched(first, packet, merger, sink)
    }

    /// Pushes a packet with a known flow to the stages, starting with slot `first`.
    #[inline(always)]
    fn push_matched(
        &mut self,
        first: usize,
        packet: Packet<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        each_stage!(self, stage at slot => {
            if slot >= first
                && let Some(reason) = stage.look(&packet, merger)
            {
                return self.pass(slot, slot + 1, packet, reason, merger, sink);
            }
        });
        match merger.examine::<ByProfile>(&packet.incoming, &packet.flow_match) {
            Ok(candidate) => self.push_examined(candidate, packet, merger, sink),
            Err(reason) => self.pass(SLOTS, first, packet, reason, merger, sink),
        }
    }

    /// Pushes an examined packet that may be merged.
    #[inline(never)]
    fn push_examined(
        &mut self,
        candidate: Candidate,
        packet: Packet<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let observed = packet.observed(false);
        let Packet { incoming, flow_match } = packet;
        let FlowMatch { known, flow, found, agrees, resembled } = flow_match;
        let now_ns = incoming.now_ns;
        let resembles = resembled != PredictionId::NONE;
        let frame = incoming.into_frame();
        let mut examined = Examined { frame, candidate, known, flow, now_ns, resembles };
        let verdict = 'taken: {
            let mut next = ToTrains { merger: &mut *merger, sink: &mut *sink };
            each_stage!(self, stage => match stage.take(examined, &flow_match, &mut next) {
                Ok(verdict) => break 'taken verdict,
                Err(unwanted) => examined = unwanted,
            });
            merger.admit::<ByProfile>(found, examined, agrees, sink)
        };
        self.learn_and_bypass(&observed, verdict, merger);
        verdict
    }

    /// Delivers an unmergeable packet, after all queued packets of its flow in stage `first` and the stages after it.
    /// The stages before `end` have already examined it.
    #[inline(always)]
    fn pass(
        &mut self,
        end: usize,
        first: usize,
        packet: Packet<'_, B>,
        reason: Pass,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let observed = packet.observed(merger.shapes[packet.flow_match.known].refusal.is_some());
        let FlowMatch { flow, mut found, .. } = packet.flow_match;
        each_stage!(self, stage at slot => {
            let mut next = ToTrains { merger: &mut *merger, sink: &mut *sink };
            if slot >= first && stage.flush_flow(&packet, &mut next) {
                // A packet that was just released may have started the train of this flow.
                found = merger.find(flow, packet.incoming.meta.hash);
            }
        });
        let frame = packet.incoming.into_frame();
        let verdict = merger.pass_behind(found, frame, reason, sink);
        self.learn(end, &observed, verdict);
        verdict
    }

    /// Reports the verdict on a packet to all stages, and lets the next packets bypass the stages.
    #[inline(always)]
    fn learn_and_bypass(&mut self, observed: &Observed<'_>, verdict: Verdict, merger: &Merger<B>) {
        self.learn(SLOTS, observed, verdict);
        self.bypass_after(observed, merger);
    }

    /// Lets predicted packets bypass the stages after a packet that all stages have observed. The stage that permits
    /// the fewest packets sets the number.
    #[inline(always)]
    fn bypass_after(&mut self, observed: &Observed<'_>, merger: &Merger<B>) {
        if let Some((prediction, next)) = merger.predicted_behind(observed) {
            let mut packets = u32::MAX;
            each_stage!(self, stage => {
                packets = packets.min(Stage::<B>::bypass_max(stage, &next));
            });
            self.burst = BurstBypass::of(&next, prediction, packets);
        }
    }

    /// Reports the verdict on a packet to the stages before slot `end`.
    #[inline(always)]
    fn learn(&mut self, end: usize, observed: &Observed<'_>, verdict: Verdict) {
        each_stage!(self, stage at slot => if slot < end {
            Stage::<B>::learn(stage, observed, verdict);
        });
    }

    /// Reports the packets that bypassed the stages to each stage. Every other function of the stages requires this
    /// first.
    #[inline(always)]
    pub(crate) fn settle(&mut self, merger: &mut Merger<B>) {
        if self.burst.end() > 0 {
            self.learn_run(merger);
        }
    }

    #[inline(never)]
    fn learn_run(&mut self, merger: &mut Merger<B>) {
        each_stage!(self, stage => stage.learn_run(&self.burst, merger));
        self.burst.packets = 0;
    }

    /// Delivers a packet that was just dissected and whose flow cannot be read completely. Trains and queued packets of
    /// flows that it might belong to are delivered first (rule G75).
    #[inline(never)]
    pub(crate) fn pass_unknown(
        &mut self,
        frame: Frame<B>,
        reason: Pass,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Some(scope) = merger.dissected_might_be_of(frame.buffer.as_ref(), &frame.meta) {
            self.flush(scope, Release::Barrier, merger, sink);
            merger.close_of(scope, frame.meta.hash, sink);
        }
        merger.pass(frame, reason, sink)
    }

    /// Pushes a packet whose header stack does not fit into the cache. The cache is cleared, so all packets that refer
    /// to a cached stack are released first.
    #[cold]
    fn push_one_too_many(
        &mut self,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.flush(FlushScope::All, Release::Finish, merger, sink);
        merger.forget_shapes(sink);
        let expected = merger.expect(incoming.bytes(), incoming.meta);
        self.push_expected(expected, incoming, merger, sink)
    }

    /// Releases the queued packets of some flows.
    pub(crate) fn flush(
        &mut self,
        scope: FlushScope,
        why: Release,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.settle(merger);
        let mut next = ToTrains { merger, sink };
        each_stage!(self, stage => stage.flush(scope, why, &mut next));
    }

    /// Releases the packets that have waited long enough. All packets that arrived before `seen_ns` have been pushed.
    pub(crate) fn expire(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.settle(merger);
        let mut next = ToTrains { merger, sink };
        each_stage!(self, stage => stage.expire(now_ns, seen_ns, &mut next));
    }

    /// Records a measured round-trip time of a flow, after settling the fast path.
    pub(crate) fn learn_round_trip(&mut self, flow: FlowHash, round_trip_ns: u64) {
        each_stage!(self, stage => Stage::<B>::learn_round_trip(stage, flow, round_trip_ns));
    }

    /// Returns the earliest deadline of a queued packet.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.resequencer.as_ref().and_then(Stage::deadline)
    }
}

impl<B: AsRef<[u8]>, S: Sink<B> + ?Sized> Downstream<B> for ToTrains<'_, B, S> {
    type Receiver = S;

    fn trains(&mut self) -> (&mut Merger<B>, &mut S) {
        (&mut *self.merger, &mut *self.sink)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Stages;
    use crate::coalesce::profile::{Bypass, Hold, Profile, Reorder};

    #[test]
    fn the_stages_are_those_that_a_profile_asks_for() {
        let slots_of = |edit: fn(&mut Profile)| {
            let mut profile = Profile::linux();
            edit(&mut profile);
            let Stages::<Vec<u8>> { bypasser, hold_stage, resequencer, .. } = Stages::of(&profile)?;
            Some([bypasser.is_some(), hold_stage.is_some(), resequencer.is_some()])
        };
        assert_eq!(slots_of(|_| ()), None);
        let bypassed = |profile: &mut Profile| profile.bypass = Some(Bypass::default());
        assert_eq!(slots_of(bypassed), Some([true, false, false]));
        let repaired = |profile: &mut Profile| profile.reorder = Reorder::WITHIN_BATCH;
        assert_eq!(slots_of(repaired), Some([false, false, true]));
        assert_eq!(slots_of(|profile| profile.hold = Hold::Controlled), None, "nothing is held");
        let all = |profile: &mut Profile| {
            (profile.hold, profile.limits.hold_ns) = (Hold::Controlled, 1000);
            (profile.bypass, profile.reorder) = (Some(Bypass::default()), Reorder::holes(1000));
        };
        assert_eq!(slots_of(all), Some([true; 3]));
    }
}
