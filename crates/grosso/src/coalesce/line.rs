//! The stages that a profile asks for, in a line before the trains.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    coalesce::{
        Level, Profile, Sink, Verdict,
        barrier::Whose,
        bypass::Bypasser,
        incoming::Incoming,
        lease::Lease,
        merge::{Merger, Prospect, Sought, Unknown},
        pacer::Pacer,
        policy::Profiled,
        prediction_id::PredictionId,
        reason::{Pass, Release},
        reorder::Resequencer,
        seen::{Predicted, Seen},
        stage::{Next, Packet, Stage, Step},
    },
    flow::FlowHash,
    frame::Frame,
};

/// Stages, in the order in which a packet meets them.
#[derive(Debug)]
pub(super) struct Line<B> {
    stages: Box<[AnyStage<B>]>,
    /// Packets that may go by them, and those that did.
    lease: Lease,
}

/// One of the stages that there are.
#[derive(Debug)]
enum AnyStage<B> {
    Bypass(Bypasser),
    Pace(Pacer),
    Resequence(Box<Resequencer<B>>),
}

/// The rest of a line, and the trains behind it.
struct Rest<'a, B, S: ?Sized> {
    stages: &'a mut [AnyStage<B>],
    merger: &'a mut Merger<B>,
    sink: &'a mut S,
}

impl<B: AsRef<[u8]>> Line<B> {
    /// The stages that a profile asks for.
    pub(super) fn of(profile: &Profile) -> Self {
        let mut stages = Vec::new();
        stages.extend(profile.bypass.map(|bypass| AnyStage::Bypass(Bypasser::new(bypass))));
        stages.extend(Pacer::of(profile).map(AnyStage::Pace));
        if profile.reorder.level != Level::Off {
            let resequencer = Resequencer::new(profile.reorder, &profile.limits);
            stages.push(AnyStage::Resequence(Box::new(resequencer)));
        }
        Self { stages: stages.into(), lease: Lease::NONE }
    }

    /// Whether it has no stage.
    pub(super) fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Whether packets may go by, which is asked before anything else.
    #[inline(always)]
    pub(super) fn is_leased(&self) -> bool {
        !self.lease.is_over()
    }

    /// Whether a packet that was predicted goes by, which is counted.
    #[inline(always)]
    pub(super) fn lets_by(&mut self, next: PredictionId, incoming: &Incoming<'_, B>) -> bool {
        let goes_by = self.lease.covers(next, incoming.meta, incoming.now_ns);
        if goes_by {
            self.lease.count();
        }
        goes_by
    }

    /// Takes note that a packet which went by did not join.
    #[cold]
    pub(super) fn note_unjoined(&mut self) {
        self.lease.note_unjoined();
    }

    /// Takes a packet while none may go by.
    #[inline(never)]
    pub(super) fn push_unleased(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if !self.stages.iter().all(Stage::lets_predict) {
            return self.push_unpredicted(incoming, merger, sink);
        }
        let prospect = merger.expect(incoming.bytes(), incoming.meta);
        self.push_prospect(prospect, incoming, merger, sink)
    }

    /// Takes a packet of which this is expected, and which the stages look at.
    #[inline(never)]
    pub(super) fn push_prospect(
        &mut self,
        prospect: Prospect,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.settle(merger);
        match merger.seek::<Profiled>(prospect, incoming.bytes(), incoming.meta) {
            Sought::Next(next) => self.push_predicted(next, incoming, merger, sink),
            sought => self.push_sought(sought, incoming, merger, sink),
        }
    }

    /// Takes a packet that is not to be predicted.
    #[cold]
    #[inline(never)]
    fn push_unpredicted(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.settle(merger);
        let sought = merger.seek_unpredicted::<Profiled>(incoming.bytes(), incoming.meta);
        self.push_sought(sought, incoming, merger, sink)
    }

    /// Takes a packet that was not predicted.
    #[inline(always)]
    fn push_sought(
        &mut self,
        sought: Sought,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let (packet, meta) = (incoming.bytes(), incoming.meta);
        let located = match sought {
            Sought::Next(next) => merger.located_by(next),
            Sought::Located(located) => located,
            Sought::Guessed(guess) => match merger.headers::<Profiled>(packet, meta) {
                Ok(known) => merger.locate(packet, meta, known, &guess),
                Err(Unknown::Passes(reason)) => {
                    return self.pass_unknown(incoming.into_frame(), reason, merger, sink);
                }
                Err(Unknown::OneTooMany) => {
                    return self.push_one_too_many(incoming, merger, sink);
                }
            },
        };
        self.push_located(0, Packet { incoming, located }, merger, sink)
    }

    /// Takes a packet that was predicted, past all stages that let it by.
    #[inline(always)]
    fn push_predicted(
        &mut self,
        next: PredictionId,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let predicted = merger.predicted(next, incoming.meta, incoming.now_ns);
        match self.stages.iter_mut().position(|stage| !stage.lets_by(&predicted, merger)) {
            None => {
                let verdict = merger.join_predicted::<Profiled>(next, incoming, sink);
                self.learn(self.stages.len(), &predicted.seen, verdict);
                self.lease_behind(&predicted.seen, merger);
                verdict
            }
            Some(stopped) => self.push_stopped(stopped, next, incoming, merger, sink),
        }
    }

    /// Takes a packet that was predicted and which the stage of this number did not let by.
    #[cold]
    #[inline(never)]
    fn push_stopped(
        &mut self,
        stopped: usize,
        next: PredictionId,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let located = merger.located_by(next);
        self.push_located(stopped, Packet { incoming, located }, merger, sink)
    }

    /// Takes a packet that the stage of this number is to look at.
    #[inline(always)]
    fn push_located(
        &mut self,
        first: usize,
        packet: Packet<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let seen = packet.seen(merger.shapes[packet.located.known].refusal.is_some());
        let mut looked = first;
        let mut step = Step::On;
        for stage in &mut self.stages[first..] {
            looked += 1;
            step = stage.look(&packet, merger);
            if step != Step::On {
                break;
            }
        }
        let (stages, behind) = self.stages.split_at_mut(looked);
        let verdict = match (step, stages.last_mut()) {
            (Step::Take, Some(stage)) => {
                stage.take(packet, &mut Rest { stages: behind, merger, sink })
            }
            (Step::Pass(reason), _) => Rest { stages: behind, merger, sink }.pass(packet, reason),
            _ => merger.take_located::<Profiled>(packet.incoming, packet.located, sink),
        };
        self.learn(looked - usize::from(step != Step::On), &seen, verdict);
        if !matches!(verdict, Verdict::Passed(_) | Verdict::Waits) {
            self.lease_behind(&seen, merger);
        }
        verdict
    }

    /// Lets the packets go by that are predicted behind one which all stages have seen, as many as each stage allows.
    #[inline(always)]
    fn lease_behind(&mut self, seen: &Seen<'_>, merger: &Merger<B>) {
        if let Some((prediction, next)) = merger.predicted_behind(seen) {
            let packets = self.stages.iter().map(|stage| stage.lets_more_by(&next)).min();
            self.lease = Lease::of(&next, prediction, packets.unwrap_or(0));
        }
    }

    /// Tells the stages before this one what became of a packet.
    #[inline(always)]
    fn learn(&mut self, end: usize, seen: &Seen<'_>, verdict: Verdict) {
        self.stages[..end].iter_mut().for_each(|stage| Stage::<B>::learn(stage, seen, verdict));
    }

    /// Tells the stages what went by them. Nothing else is asked of them before.
    #[inline(always)]
    pub(super) fn settle(&mut self, merger: &mut Merger<B>) {
        if self.lease.end() > 0 {
            self.learn_run(merger);
        }
    }

    #[inline(never)]
    fn learn_run(&mut self, merger: &mut Merger<B>) {
        self.stages.iter_mut().for_each(|stage| stage.learn_run(&self.lease, merger));
        self.lease.packets = 0;
    }

    /// Lets a packet through that was just dissected and whose flow cannot be read in full, behind all that it might be
    /// of (rule G75).
    #[inline(never)]
    pub(super) fn pass_unknown(
        &mut self,
        frame: Frame<B>,
        reason: Pass,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Some(whose) = merger.dissected_might_be_of(frame.buffer.as_ref(), &frame.meta) {
            self.flush(whose, Release::Barrier, merger, sink);
            merger.close_of(whose, frame.meta.hash, sink);
        }
        merger.pass(frame, reason, sink)
    }

    /// Takes a packet whose headers are too many beside those that are known: nothing may refer to any.
    #[cold]
    #[inline(never)]
    fn push_one_too_many(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.flush(Whose::All, Release::Finish, merger, sink);
        merger.forget_shapes(sink);
        self.push_unleased(incoming, merger, sink)
    }

    /// Hands on what waits of some flows.
    pub(super) fn flush(
        &mut self,
        whose: Whose,
        why: Release,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.settle(merger);
        self.each(merger, sink, |stage, next| stage.flush(whose, why, next));
    }

    /// Hands on what has waited long enough, where all that came until `seen_ns` has been seen.
    pub(super) fn expire(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.settle(merger);
        self.each(merger, sink, |stage, next| stage.expire(now_ns, seen_ns, next));
    }

    /// Learns how long a round trip of a flow takes. What went by is settled.
    pub(super) fn learn_round_trip(&mut self, flow: FlowHash, round_trip_ns: u64) {
        for stage in &mut *self.stages {
            stage.learn_round_trip(flow, round_trip_ns);
        }
    }

    /// Time at which something that waits must be handed on next.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.stages.iter().filter_map(Stage::deadline).min()
    }

    /// Asks each stage, the first first: what one hands on may wait in the next.
    fn each<S: Sink<B> + ?Sized>(
        &mut self,
        merger: &mut Merger<B>,
        sink: &mut S,
        mut act: impl FnMut(&mut AnyStage<B>, &mut Rest<'_, B, S>),
    ) {
        let mut stages = &mut self.stages[..];
        while let Some((stage, rest)) = stages.split_first_mut() {
            act(stage, &mut Rest { stages: &mut *rest, merger: &mut *merger, sink: &mut *sink });
            stages = rest;
        }
    }
}

impl<B: AsRef<[u8]>> Stage<B> for AnyStage<B> {
    #[inline(always)]
    fn look(&mut self, packet: &Packet<'_, B>, trains: &mut Merger<B>) -> Step {
        match self {
            Self::Bypass(stage) => stage.look(packet, trains),
            Self::Pace(stage) => stage.look(packet, trains),
            Self::Resequence(stage) => stage.look(packet, trains),
        }
    }

    #[inline(always)]
    fn take(&mut self, packet: Packet<'_, B>, next: &mut impl Next<B>) -> Verdict {
        match self {
            Self::Bypass(stage) => stage.take(packet, next),
            Self::Pace(stage) => stage.take(packet, next),
            Self::Resequence(stage) => stage.take(packet, next),
        }
    }

    #[inline(always)]
    fn lets_by(&mut self, predicted: &Predicted<'_>, trains: &mut Merger<B>) -> bool {
        match self {
            Self::Bypass(stage) => stage.lets_by(predicted, trains),
            Self::Pace(stage) => stage.lets_by(predicted, trains),
            Self::Resequence(stage) => stage.lets_by(predicted, trains),
        }
    }

    #[inline(always)]
    fn learn(&mut self, seen: &Seen<'_>, verdict: Verdict) {
        match self {
            Self::Bypass(stage) => Stage::<B>::learn(stage, seen, verdict),
            Self::Pace(stage) => Stage::<B>::learn(stage, seen, verdict),
            Self::Resequence(stage) => Stage::<B>::learn(&mut **stage, seen, verdict),
        }
    }

    #[inline(always)]
    fn lets_more_by(&self, next: &Predicted<'_>) -> u32 {
        match self {
            Self::Bypass(stage) => Stage::<B>::lets_more_by(stage, next),
            Self::Pace(stage) => Stage::<B>::lets_more_by(stage, next),
            Self::Resequence(stage) => stage.lets_more_by(next),
        }
    }

    fn learn_run(&mut self, run: &Lease, trains: &mut Merger<B>) {
        match self {
            Self::Bypass(stage) => stage.learn_run(run, trains),
            Self::Pace(stage) => stage.learn_run(run, trains),
            Self::Resequence(stage) => stage.learn_run(run, trains),
        }
    }

    #[inline(always)]
    fn lets_predict(&self) -> bool {
        match self {
            Self::Bypass(stage) => Stage::<B>::lets_predict(stage),
            Self::Pace(stage) => Stage::<B>::lets_predict(stage),
            Self::Resequence(stage) => stage.lets_predict(),
        }
    }

    fn pass(&mut self, packet: Packet<'_, B>, reason: Pass, next: &mut impl Next<B>) -> Verdict {
        match self {
            Self::Bypass(stage) => stage.pass(packet, reason, next),
            Self::Pace(stage) => stage.pass(packet, reason, next),
            Self::Resequence(stage) => stage.pass(packet, reason, next),
        }
    }

    fn flush(&mut self, whose: Whose, why: Release, next: &mut impl Next<B>) {
        match self {
            Self::Bypass(stage) => stage.flush(whose, why, next),
            Self::Pace(stage) => stage.flush(whose, why, next),
            Self::Resequence(stage) => stage.flush(whose, why, next),
        }
    }

    fn expire(&mut self, now_ns: u64, seen_ns: u64, next: &mut impl Next<B>) {
        match self {
            Self::Bypass(stage) => stage.expire(now_ns, seen_ns, next),
            Self::Pace(stage) => stage.expire(now_ns, seen_ns, next),
            Self::Resequence(stage) => stage.expire(now_ns, seen_ns, next),
        }
    }

    fn learn_round_trip(&mut self, flow: FlowHash, round_trip_ns: u64) {
        match self {
            Self::Bypass(stage) => Stage::<B>::learn_round_trip(stage, flow, round_trip_ns),
            Self::Pace(stage) => Stage::<B>::learn_round_trip(stage, flow, round_trip_ns),
            Self::Resequence(stage) => stage.learn_round_trip(flow, round_trip_ns),
        }
    }

    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Bypass(stage) => Stage::<B>::deadline(stage),
            Self::Pace(stage) => Stage::<B>::deadline(stage),
            Self::Resequence(stage) => stage.deadline(),
        }
    }
}

impl<B: AsRef<[u8]>, S: Sink<B> + ?Sized> Rest<'_, B, S> {
    /// The next stage, and what is behind it.
    #[inline(always)]
    fn split(&mut self) -> Option<(&mut AnyStage<B>, Rest<'_, B, S>)> {
        let (stage, stages) = self.stages.split_first_mut()?;
        Some((stage, Rest { stages, merger: &mut *self.merger, sink: &mut *self.sink }))
    }
}

impl<B: AsRef<[u8]>, S: Sink<B> + ?Sized> Next<B> for Rest<'_, B, S> {
    type Receiver = S;

    fn pass(&mut self, packet: Packet<'_, B>, reason: Pass) -> Verdict {
        if let Some((stage, mut rest)) = self.split() {
            return stage.pass(packet, reason, &mut rest);
        }
        let found = packet.located.found;
        self.merger.pass_behind(found, packet.incoming.into_frame(), reason, self.sink)
    }

    fn trains(&mut self) -> (&mut Merger<B>, &mut S) {
        (&mut *self.merger, &mut *self.sink)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Line;
    use crate::coalesce::{Bypass, Hold, Profile, Reorder};

    #[test]
    fn a_line_has_the_stages_that_a_profile_asks_for() {
        let len = |edit: fn(&mut Profile)| {
            let mut profile = Profile::linux();
            edit(&mut profile);
            Line::<Vec<u8>>::of(&profile).stages.len()
        };
        assert_eq!(len(|_| ()), 0);
        assert_eq!(len(|profile| profile.bypass = Some(Bypass::default())), 1);
        assert_eq!(len(|profile| profile.reorder = Reorder::WITHIN_BATCH), 1);
        assert_eq!(len(|profile| profile.hold = Hold::Controlled), 0, "nothing is held");
        let all = |profile: &mut Profile| {
            (profile.hold, profile.limits.hold_ns) = (Hold::Controlled, 1000);
            (profile.bypass, profile.reorder) = (Some(Bypass::default()), Reorder::holes(1000));
        };
        assert_eq!(len(all), 3);
    }
}
