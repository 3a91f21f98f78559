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
        reason::Release,
    },
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
        let line = Line::of(profile);
        let behind = if !line.is_empty() {
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

    /// Whether trains are those of the exact laws.
    pub(super) fn is_by_laws(&self) -> bool {
        match self {
            Self::Laws => true,
            Self::Rules | Self::Staged(_) => false,
            Self::Batched(batched) => batched.behind.is_by_laws(),
        }
    }

    /// Takes one packet.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match self {
            Self::Laws => merger.push::<Laws>(incoming, sink),
            Self::Rules => push_by_rules(incoming, merger, sink),
            Self::Staged(line) => line.push(incoming, merger, sink),
            Self::Batched(batched) => batched.push(incoming, merger, sink),
        }
    }

    /// Takes one packet behind a batch. The exact laws are a profile's rules as well.
    fn push_behind(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match self.line_mut() {
            Some(line) => line.push(incoming, merger, sink),
            None => push_by_rules(incoming, merger, sink),
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
    /// Takes one packet: into the batch, unless it can be of no train or of any, or is of the flow that comes first.
    #[inline(never)]
    fn push(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if self.batch.is_leading()
            && self.behind.line_mut().is_none()
            && let Prospect::Next(next) = merger.expect::<Profiled>(incoming.bytes(), incoming.meta)
            && let Some(now_ns) = self.batch.lead(merger.flow_predicted(next), incoming.now_ns)
        {
            let incoming = Incoming { now_ns, ..incoming };
            merger.join_predicted::<Profiled>(next, incoming, sink);
            if self.batch.is_full() {
                self.flush(merger, sink);
            }
            return Verdict::Waits;
        }
        self.push_unpredicted(incoming, merger, sink)
    }

    /// Takes one packet of which nobody knows yet whose it is.
    #[inline(always)]
    fn push_unpredicted(
        &mut self,
        incoming: Incoming<'_, B>,
        merger: &mut Merger<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let flow = match merger.might_be_of(incoming.bytes(), incoming.meta) {
            Some(Whose::Flow(flow)) => flow,
            Some(Whose::AddressPair(_) | Whose::All) => {
                self.flush(merger, sink);
                return self.behind.push_behind(incoming, merger, sink);
            }
            None => return self.behind.push_behind(incoming, merger, sink),
        };
        match self.batch.lead(flow, incoming.now_ns) {
            Some(now_ns) => {
                self.behind.push_behind(Incoming { now_ns, ..incoming }, merger, sink);
            }
            None => self.batch.push(incoming, flow),
        }
        if self.batch.is_full() {
            self.flush(merger, sink);
        }
        Verdict::Waits
    }

    /// Takes the packets of the batch to what is behind it.
    #[inline(never)]
    fn flush(&mut self, merger: &mut Merger<B>, sink: &mut (impl Sink<B> + ?Sized)) {
        let Self { batch, behind } = self;
        let Some(now_ns) = batch.since_ns() else { return };
        match behind.line_mut() {
            Some(line) => batch.drain(|Frame { buffer, meta }| {
                line.push(Incoming { buffer, meta: &meta, now_ns }, merger, sink);
            }),
            None => batch.drain(|Frame { buffer, meta }| {
                merger.push::<Profiled>(Incoming { buffer, meta: &meta, now_ns }, sink);
            }),
        }
    }
}

/// Takes one packet by the rules of a profile, in a place of its own, so that the default has no instruction for it.
#[inline(never)]
fn push_by_rules<B: AsRef<[u8]>>(
    incoming: Incoming<'_, B>,
    merger: &mut Merger<B>,
    sink: &mut (impl Sink<B> + ?Sized),
) -> Verdict {
    merger.push::<Profiled>(incoming, sink)
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
        assert!(matches!(assembly, Assembly::Batched(_)) && assembly.is_by_laws());
        assert!(!of(&Profile::freebsd()).is_by_laws());
    }
}
