//! Pipeline of the stages that a profile enables. It is built once.

mod batch;
mod burst_bypass;
mod bypass;
mod hold_stage;
mod reorder;
mod stage;
mod stages;

use alloc::boxed::Box;

use crate::{
    coalesce::{
        emit::{delivery::Sink, reason::Release, verdict::Verdict},
        flows::{
            flush_scope::FlushScope,
            merge::{ExpectedFlow, Merger},
        },
        pipeline::{batch::Batcher, stages::Stages},
        profile::{Batch, Profile},
        rx::{
            policy::{ByProfile, Exact, Tiers},
            rx_packet::RxPacket,
        },
        slots::prediction_id::PredictionId,
    },
    flow::FlowHash,
    frame::Frame,
};

/// Pipeline that packets go through before they reach the trains.
#[derive(Debug)]
pub(crate) enum Pipeline<B> {
    /// No stages, and the exact rules. This is the default.
    Exact,
    /// No stages, and the rules of a profile.
    Rules,
    /// Stages, followed by the rules of a profile.
    Staged(Box<Stages<B>>),
    /// A batch that sorts packets by flow, followed by the rest of the pipeline.
    Batched(Box<Batched<B>>),
}

/// A batch, and the stages that process its packets afterwards.
#[derive(Debug)]
pub(crate) struct Batched<B> {
    batch: Batcher<B>,
    behind: Pipeline<B>,
}

impl<B: AsRef<[u8]>> Pipeline<B> {
    /// Builds the pipeline for a profile.
    pub(crate) fn of(profile: &Profile, tiers: Tiers) -> Self {
        let behind = if let Some(stages) = Stages::of(profile) {
            Self::Staged(Box::new(stages))
        } else if profile.is_more_than_laws() || tiers != Tiers::ALL {
            Self::Rules
        } else {
            Self::Exact
        };
        match profile.batch {
            Batch::AsItCame => behind,
            Batch::ByFlow { packets } => {
                Self::Batched(Box::new(Batched { batch: Batcher::new(packets), behind }))
            }
        }
    }

    /// Pushes one packet. If no stage has to examine it, it goes directly to the train that it continues. This fast
    /// path is the same for the exact rules and for those of a profile, because the latter include the exact rules.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Self::Batched(batched) = self
            && !batched.may_bypass_batch()
        {
            return batched.push(incoming, merger, sink);
        }
        let expected = merger.expect(incoming.bytes(), incoming.meta);
        match expected {
            ExpectedFlow::Next(next) if self.may_bypass(next, &incoming, merger) => {
                let verdict = merger.join_predicted::<ByProfile>(next, incoming, sink);
                if verdict != Verdict::Joined {
                    self.note_unmerged();
                }
                verdict
            }
            ExpectedFlow::Next(id) | ExpectedFlow::Flow(id) => match self {
                Self::Exact => merger.take_expected::<Exact>(id, incoming, sink),
                Self::Staged(stages) => stages.push_expected(expected, incoming, merger, sink),
                Self::Rules => merger.take_expected::<ByProfile>(id, incoming, sink),
                Self::Batched(batched) => batched.push(incoming, merger, sink),
            },
            ExpectedFlow::Nothing => match self {
                Self::Exact => merger.take::<Exact>(incoming, sink),
                Self::Staged(stages) => stages.push_expected(expected, incoming, merger, sink),
                Self::Rules => merger.take::<ByProfile>(incoming, sink),
                Self::Batched(batched) => batched.push(incoming, merger, sink),
            },
        }
    }

    /// Returns whether this predicted packet bypasses the stages.
    #[inline(always)]
    fn may_bypass(
        &mut self,
        next: PredictionId,
        incoming: &RxPacket<'_, B>,
        merger: &Merger<B>,
    ) -> bool {
        match self {
            Self::Exact | Self::Rules => true,
            Self::Staged(stages) => stages.may_bypass(next, incoming),
            Self::Batched(batched) => batched.may_bypass(merger.flow_predicted(next), incoming),
        }
    }

    /// Records that a packet on the fast path did not merge.
    #[inline(always)]
    fn note_unmerged(&mut self) {
        if let Self::Staged(stages) = self {
            stages.note_unmerged();
        }
    }

    /// Processes and empties the batch.
    #[inline]
    pub(crate) fn flush_batch(
        &mut self,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        if let Self::Batched(batched) = self {
            batched.flush(merger, sink);
        }
    }

    /// Processes the batch, and releases the queued packets of some flows.
    pub(crate) fn flush(
        &mut self,
        scope: FlushScope,
        why: Release,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.flush_batch(merger, sink);
        if let Some(stages) = self.stages_mut() {
            stages.flush(scope, why, merger, sink);
        }
    }

    /// Processes the batch, and releases the packets that have waited long enough. The caller has pushed all packets
    /// that arrived before `seen_ns`.
    pub(crate) fn expire(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.flush_batch(merger, sink);
        if let Some(stages) = self.stages_mut() {
            stages.expire(now_ns, seen_ns, merger, sink);
        }
    }

    /// Returns the stages, if there are any.
    pub(crate) fn stages_mut(&mut self) -> Option<&mut Stages<B>> {
        match self {
            Self::Exact | Self::Rules => None,
            Self::Staged(stages) => Some(stages),
            Self::Batched(batched) => batched.behind.stages_mut(),
        }
    }

    /// Returns the start time of the batch, if there is one.
    pub(crate) fn batched_since_ns(&self) -> Option<u64> {
        match self {
            Self::Exact | Self::Rules | Self::Staged(_) => None,
            Self::Batched(batched) => batched.batch.since_ns(),
        }
    }

    /// Returns the earliest deadline of a queued packet.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Exact | Self::Rules => None,
            Self::Staged(stages) => stages.deadline(),
            Self::Batched(batched) => batched.behind.deadline(),
        }
    }
}

impl<B: AsRef<[u8]>> Batched<B> {
    /// Returns whether a predicted packet may belong to the first flow of the batch, and thus skip the batch.
    fn may_bypass_batch(&self) -> bool {
        self.batch.is_leading() && matches!(self.behind, Pipeline::Exact | Pipeline::Rules)
    }

    /// Returns whether a packet of this flow skips the batch, which is the case if the packet arrived at the start time
    /// of the batch and does not fill the batch.
    #[inline(always)]
    fn may_bypass(&mut self, flow: FlowHash, incoming: &RxPacket<'_, B>) -> bool {
        let is_of_its_time = self.batch.since_ns().is_none_or(|since| since == incoming.now_ns);
        is_of_its_time
            && !self.batch.is_almost_full()
            && self.batch.lead(flow, incoming.now_ns).is_some()
    }

    /// Adds a packet to the batch, unless it belongs to the batch's first flow or its flow is unknown.
    #[inline(never)]
    fn push(
        &mut self,
        incoming: RxPacket<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let incoming = match merger.might_be_of(incoming.bytes(), incoming.meta) {
            Some(FlushScope::Flow(flow)) => match self.batch.lead(flow, incoming.now_ns) {
                Some(now_ns) => RxPacket { now_ns, ..incoming },
                None => {
                    self.batch.push(incoming, flow);
                    self.flush_full(merger, sink);
                    return Verdict::Waits;
                }
            },
            Some(FlushScope::AddressPair(_) | FlushScope::All) => {
                self.flush(merger, sink);
                incoming
            }
            None => incoming,
        };
        let verdict = self.behind.push(incoming, merger, sink);
        self.flush_full(merger, sink);
        verdict
    }

    /// Processes the batch if it is full.
    #[inline(always)]
    fn flush_full(&mut self, merger: &mut Merger<B>, sink: &mut (impl Sink<B> + ?Sized)) {
        if self.batch.is_full() {
            self.flush(merger, sink);
        }
    }

    /// Processes the packets of the batch.
    #[inline(never)]
    fn flush(&mut self, merger: &mut Merger<B>, sink: &mut (impl Sink<B> + ?Sized)) {
        let Self { batch, behind } = self;
        let Some(now_ns) = batch.since_ns() else { return };
        batch.drain(|Frame { buffer, meta }| {
            behind.push(RxPacket { buffer, meta: &meta, now_ns }, merger, sink);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Pipeline;
    use crate::coalesce::{
        profile::{Batch, Profile, Reorder},
        rx::policy::Tiers,
    };

    #[test]
    fn the_default_has_no_stage() {
        let of = |profile: &Profile| Pipeline::<Vec<u8>>::of(profile, Tiers::ALL);
        let mut profile = Profile::linux();
        assert!(matches!(of(&profile), Pipeline::Exact));
        assert!(matches!(of(&Profile::linux_6_12()), Pipeline::Rules));
        profile.reorder = Reorder::WITHIN_BATCH;
        assert!(matches!(of(&profile), Pipeline::Staged(_)));
        profile.reorder = Reorder::default();
        profile.batch = Batch::ByFlow { packets: 8 };
        let pipeline = of(&profile);
        let Pipeline::Batched(batched) = pipeline else { panic!("the profile has a batch") };
        assert!(matches!(batched.behind, Pipeline::Exact));
        let Pipeline::Batched(batched) = of(&Profile::freebsd()) else {
            panic!("the profile has a batch")
        };
        assert!(matches!(batched.behind, Pipeline::Rules));
    }
}
