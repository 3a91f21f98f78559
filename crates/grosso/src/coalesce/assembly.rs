//! Assembly of the stages that a profile asks for, made once.

use alloc::boxed::Box;

use crate::{
    coalesce::{
        Batch, Profile, Sink, Verdict,
        barrier::Whose,
        batch::Batcher,
        incoming::Incoming,
        line::Line,
        merge::{Merger, Prospect},
        policy::{Laws, Profiled, Tiers},
        prediction_id::PredictionId,
        reason::Release,
    },
    flow::FlowHash,
    frame::Frame,
};

/// The way of a packet to the trains.
#[derive(Debug)]
pub(super) enum Assembly<B> {
    /// By the exact laws, as it came: the default, with no stage at all.
    Laws,
    /// By the rules of a profile, as it came.
    Rules,
    /// By the rules of a profile, through the stages that it asks for.
    Staged(Box<Line<B>>),
    /// Flow by flow first.
    Batched(Box<Batched<B>>),
}

/// A batch, and what is behind it.
#[derive(Debug)]
pub(super) struct Batched<B> {
    batch: Batcher<B>,
    behind: Assembly<B>,
}

impl<B: AsRef<[u8]>> Assembly<B> {
    /// Assembles what a profile asks for.
    pub(super) fn of(profile: &Profile, tiers: Tiers) -> Self {
        let behind = if let Some(line) = Line::of(profile) {
            Self::Staged(Box::new(line))
        } else if profile.is_more_than_laws() || tiers != Tiers::ALL {
            Self::Rules
        } else {
            Self::Laws
        };
        match profile.batch {
            Batch::AsItCame => behind,
            Batch::ByFlow { packets } => {
                Self::Batched(Box::new(Batched { batch: Batcher::new(packets), behind }))
            }
        }
    }

    /// Takes one packet: at once into the train that it comes next in, where no stage need look at it. The exact laws
    /// are a profile's rules as well.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Self::Batched(batched) = self
            && !batched.may_let_by()
        {
            return batched.push(incoming, merger, sink);
        }
        let prospect = merger.expect(incoming.bytes(), incoming.meta);
        match prospect {
            Prospect::Next(next) if self.lets_by(next, &incoming, merger) => {
                let verdict = merger.join_predicted::<Profiled>(next, incoming, sink);
                if verdict != Verdict::Joined {
                    self.note_unjoined();
                }
                verdict
            }
            Prospect::Next(id) | Prospect::Flow(id) => match self {
                Self::Laws => merger.take_expected::<Laws>(id, incoming, sink),
                Self::Staged(line) => line.push_prospect(prospect, incoming, merger, sink),
                Self::Rules => merger.take_expected::<Profiled>(id, incoming, sink),
                Self::Batched(batched) => batched.push(incoming, merger, sink),
            },
            Prospect::Nothing => match self {
                Self::Laws => merger.take::<Laws>(incoming, sink),
                Self::Staged(line) => line.push_prospect(prospect, incoming, merger, sink),
                Self::Rules => merger.take::<Profiled>(incoming, sink),
                Self::Batched(batched) => batched.push(incoming, merger, sink),
            },
        }
    }

    /// Returns whether this predicted packet bypasses the stages.
    #[inline(always)]
    fn lets_by(
        &mut self,
        next: PredictionId,
        incoming: &Incoming<'_, B>,
        merger: &Merger<B>,
    ) -> bool {
        match self {
            Self::Laws | Self::Rules => true,
            Self::Staged(line) => line.lets_by(next, incoming),
            Self::Batched(batched) => batched.lets_by(merger.flow_predicted(next), incoming),
        }
    }

    /// Takes note that a packet which went by did not join.
    #[inline(always)]
    fn note_unjoined(&mut self) {
        if let Self::Staged(line) = self {
            line.note_unjoined();
        }
    }

    /// Ends a batch.
    #[inline]
    pub(super) fn flush_batch(
        &mut self,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        if let Self::Batched(batched) = self {
            batched.flush(merger, sink);
        }
    }

    /// Ends a batch, and hands on what waits of some flows.
    pub(super) fn flush(
        &mut self,
        whose: Whose,
        why: Release,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.flush_batch(merger, sink);
        if let Some(line) = self.line_mut() {
            line.flush(whose, why, merger, sink);
        }
    }

    /// Ends a batch, and hands on what has waited long enough, where all that came until `seen_ns` has been seen.
    pub(super) fn expire(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.flush_batch(merger, sink);
        if let Some(line) = self.line_mut() {
            line.expire(now_ns, seen_ns, merger, sink);
        }
    }

    /// The line of stages, where there is one.
    pub(super) fn line_mut(&mut self) -> Option<&mut Line<B>> {
        match self {
            Self::Laws | Self::Rules => None,
            Self::Staged(line) => Some(line),
            Self::Batched(batched) => batched.behind.line_mut(),
        }
    }

    /// Time at which the batch began, if there is one.
    pub(super) fn batched_since_ns(&self) -> Option<u64> {
        match self {
            Self::Laws | Self::Rules | Self::Staged(_) => None,
            Self::Batched(batched) => batched.batch.since_ns(),
        }
    }

    /// Time at which something that waits must be handed on next.
    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Laws | Self::Rules => None,
            Self::Staged(line) => line.deadline(),
            Self::Batched(batched) => batched.behind.deadline(),
        }
    }
}

impl<B: AsRef<[u8]>> Batched<B> {
    /// Whether a packet that was predicted may be of the flow that comes first, and go on at once, without a stage.
    #[inline(always)]
    fn may_let_by(&self) -> bool {
        self.batch.is_leading() && matches!(self.behind, Assembly::Laws | Assembly::Rules)
    }

    /// Whether a packet of this flow goes on at once: one that came when the batch began, which does not end with it.
    #[inline(always)]
    fn lets_by(&mut self, flow: FlowHash, incoming: &Incoming<'_, B>) -> bool {
        let is_of_its_time = self.batch.since_ns().is_none_or(|since| since == incoming.now_ns);
        is_of_its_time
            && !self.batch.is_almost_full()
            && self.batch.lead(flow, incoming.now_ns).is_some()
    }

    /// Takes one packet: into the batch, unless it can be of no train or of any, or is of the flow that comes first.
    #[inline(never)]
    fn push(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let incoming = match merger.might_be_of(incoming.bytes(), incoming.meta) {
            Some(Whose::Flow(flow)) => match self.batch.lead(flow, incoming.now_ns) {
                Some(now_ns) => Incoming { now_ns, ..incoming },
                None => {
                    self.batch.push(incoming, flow);
                    self.flush_full(merger, sink);
                    return Verdict::Waits;
                }
            },
            Some(Whose::AddressPair(_) | Whose::All) => {
                self.flush(merger, sink);
                incoming
            }
            None => incoming,
        };
        let verdict = self.behind.push(incoming, merger, sink);
        self.flush_full(merger, sink);
        verdict
    }

    /// Takes the packets of the batch to what is behind it, if it is full.
    #[inline(always)]
    fn flush_full(&mut self, merger: &mut Merger<B>, sink: &mut (impl Sink<B> + ?Sized)) {
        if self.batch.is_full() {
            self.flush(merger, sink);
        }
    }

    /// Takes the packets of the batch to what is behind it.
    #[inline(never)]
    fn flush(&mut self, merger: &mut Merger<B>, sink: &mut (impl Sink<B> + ?Sized)) {
        let Self { batch, behind } = self;
        let Some(now_ns) = batch.since_ns() else { return };
        batch.drain(|Frame { buffer, meta }| {
            behind.push(Incoming { buffer, meta: &meta, now_ns }, merger, sink);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Assembly;
    use crate::coalesce::{Batch, Profile, Reorder, policy::Tiers};

    #[test]
    fn the_default_has_no_stage() {
        let of = |profile: &Profile| Assembly::<Vec<u8>>::of(profile, Tiers::ALL);
        let mut profile = Profile::linux();
        assert!(matches!(of(&profile), Assembly::Laws));
        assert!(matches!(of(&Profile::linux_6_12()), Assembly::Rules));
        profile.reorder = Reorder::WITHIN_BATCH;
        assert!(matches!(of(&profile), Assembly::Staged(_)));
        profile.reorder = Reorder::default();
        profile.batch = Batch::ByFlow { packets: 8 };
        let assembly = of(&profile);
        let Assembly::Batched(batched) = assembly else { panic!("it has a batch") };
        assert!(matches!(batched.behind, Assembly::Laws));
        let Assembly::Batched(batched) = of(&Profile::freebsd()) else { panic!("it has a batch") };
        assert!(matches!(batched.behind, Assembly::Rules));
    }
}
