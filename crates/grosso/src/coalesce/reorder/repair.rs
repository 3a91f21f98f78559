//! The coalescer where reordering is repaired: what the [`Resequencer`] decides is done to trains.

use grosso_wire::tcp;

use crate::{
    bytes::u32_at,
    coalesce::{
        Coalescer, Level, Sink, Verdict,
        merge::Located,
        policy::Profiled,
        reason::{Close, Pass, Release},
        reorder::{
            Resequencer,
            entry::{Span, Standing},
        },
        shape_id::ShapeId,
        train::Arrival,
        train_id::TrainId,
        verified,
    },
    flow::{FlowHash, Found},
    frame::Frame,
};

/// Flows whose packets must leave, whatever they wait for.
#[derive(Clone, Copy, Debug)]
pub(in crate::coalesce) enum Whose {
    /// The flow of this hash.
    Flow(FlowHash),
    /// All flows between these addresses.
    Pair(u32),
    /// All flows.
    All,
}

/// A packet that its flow goes on with.
#[derive(Debug)]
pub(in crate::coalesce) struct Next {
    entry: u32,
    span: Span,
}

/// A flow does not go on with a packet, as far as can be told without asking for all that waits.
#[derive(Debug)]
pub(in crate::coalesce) struct NotNext;

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Takes a packet of TCP that may be in a train, and lets it leave in the sequence of its flow.
    pub(in crate::coalesce) fn resequence(
        &mut self,
        arrival: Arrival<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let (Some(span), Some(resequencer)) = (self.span(&arrival), self.resequencer.as_mut())
        else {
            return self.admit_found(arrival, sink);
        };
        resequencer.tick(arrival.now_ns);
        if arrival.candidate.flags & tcp::FIN as u8 != 0 || span.len == 0 {
            return self.resequence_barrier(arrival, &span, sink);
        }
        let known = resequencer.visit(arrival.flow);
        let standing = known.and_then(|entry| Some((entry, resequencer.standing(entry, &span)?)));
        match standing {
            None => self.begin(arrival, &span, sink),
            Some((entry, Standing::Next)) => {
                let verdict = self.admit_found(arrival, sink);
                self.decide(Release::Filled, sink, |resequencer| resequencer.advance(entry, &span));
                verdict
            }
            Some((entry, Standing::Ahead(gap))) => {
                self.stats.reorder.waited += u64::from(arrival.candidate.packets);
                self.decide(Release::Filled, sink, |resequencer| {
                    resequencer.wait(entry, arrival, &span, gap);
                });
                self.keep_bounds(entry, sink);
                Verdict::Waits
            }
            Some((_, Standing::Late)) => self.pass_late(arrival, &span, sink),
            Some((entry, Standing::Overlaps)) => {
                self.let_go(entry, Release::Overlap, sink);
                self.decide(Release::Overlap, sink, |resequencer| {
                    resequencer.advance(entry, &span)
                });
                self.close_flow(arrival.flow, Close::Barrier, sink);
                self.pass_verified(arrival, Pass::TcpOverlap, sink)
            }
        }
    }

    /// Whether a flow goes on with a packet of its train; none where its reordering is not repaired.
    pub(in crate::coalesce) fn resequenced_next(
        &mut self,
        packet: &[u8],
        known: ShapeId,
        flow: FlowHash,
        now_ns: u64,
    ) -> Result<Option<Next>, NotNext> {
        let Some(resequencer) = &mut self.resequencer else { return Ok(None) };
        let shape = &self.shapes[known].shape;
        let Some(at) = shape.sequence else { return Ok(None) };
        let start = u32_at(packet, at.into());
        let len = (packet.len() - shape.header_len) as u32;
        // It leaves at once, so that nobody asks whether it was pushed.
        let span = Span { start, len, is_pushed: false, now_ns };
        resequencer.tick(now_ns);
        let entry = resequencer.visit_next(flow, &span).ok_or(NotNext)?;
        Ok(Some(Next { entry, span }))
    }

    /// Goes on behind a packet that left.
    pub(in crate::coalesce) fn advance(&mut self, next: Next, sink: &mut (impl Sink<B> + ?Sized)) {
        let Next { entry, span } = next;
        self.decide(Release::Filled, sink, |resequencer| resequencer.advance(entry, &span));
    }

    /// Releases the packets of a flow that wait, and looks up its train, which they may have started.
    pub(in crate::coalesce) fn found_behind_waiting(
        &mut self,
        located: &Located,
        frame: &Frame<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Found<TrainId> {
        if self.resequencer.is_none() {
            return located.found;
        }
        let flags = self.shapes[located.known].shape.flags;
        let flags = flags.and_then(|at| frame.buffer.as_ref().get(at as usize));
        self.let_go_before(located.flow, flags.copied().unwrap_or_default(), sink);
        self.table.find(located.flow, frame.meta.hash)
    }

    /// Lets everything leave that waits of some flows.
    pub(in crate::coalesce) fn let_go_of(
        &mut self,
        whose: Whose,
        why: Release,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Some(resequencer) = &self.resequencer else { return };
        if let Whose::Flow(flow) = whose {
            if let Some(entry) = resequencer.find(flow) {
                self.let_go(entry, why, sink);
            }
            return;
        }
        let mut at = resequencer.first();
        while let (Some(entry), Some(resequencer)) = (at, &self.resequencer) {
            at = resequencer.behind(entry);
            let known = resequencer.entry(entry);
            let is_meant = known.is_some_and(|known| match whose {
                Whose::Pair(pair) => known.pair == pair,
                Whose::Flow(_) | Whose::All => true,
            });
            if is_meant {
                self.let_go(entry, why, sink);
            }
        }
    }

    /// Lets everything leave that waits of the flow of a packet in no train; a connection that begins or ends with it
    /// is forgotten.
    pub(in crate::coalesce) fn let_go_before(
        &mut self,
        flow: FlowHash,
        flags: u8,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Some(entry) = self.resequencer.as_ref().and_then(|known| known.find(flow)) else {
            return;
        };
        self.let_go(entry, Release::Barrier, sink);
        if flags & (tcp::SYN | tcp::RST | tcp::FIN) as u8 != 0 {
            self.decide(Release::Barrier, sink, |resequencer| resequencer.remove(entry));
        }
    }

    /// Lets leave what has waited long enough, of the flow that waits longest first. All that came until `seen_ns` has
    /// been seen.
    pub(in crate::coalesce) fn let_go_due(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Some(resequencer) = &mut self.resequencer else { return };
        resequencer.tick_seen(now_ns, seen_ns);
        let mut at = resequencer.first();
        while let Some(entry) = at {
            at = self.resequencer.as_ref().and_then(|resequencer| resequencer.behind(entry));
            // What is ahead of a hole leaves first, and what is behind it at once if nothing waits for holes.
            while let Some(why) = self.resequencer.as_ref().and_then(|known| known.due(entry)) {
                self.let_go(entry, why, sink);
            }
        }
    }

    /// Remembers a flow, whose first packet waits: another may come that was sent before it.
    fn begin(
        &mut self,
        arrival: Arrival<B>,
        span: &Span,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let victim = |resequencer: &Resequencer<B>| resequencer.victim(arrival.flow);
        while let Some(entry) = self.resequencer.as_deref().and_then(victim) {
            self.let_go(entry, Release::Evicted, sink);
            self.decide(Release::Evicted, sink, |resequencer| resequencer.remove(entry));
        }
        let keys = &self.shapes[arrival.known].keys;
        let pair = self.hasher.pair(arrival.frame.buffer.as_ref(), keys);
        self.stats.reorder.waited += u64::from(arrival.candidate.packets);
        let flow = arrival.flow;
        self.decide(Release::Begun, sink, |resequencer| resequencer.begin(arrival, pair, span));
        if let Some(entry) = self.resequencer.as_ref().and_then(|known| known.find(flow)) {
            self.keep_bounds(entry, sink);
        }
        Verdict::Waits
    }

    /// A packet of a train that nothing may overtake, because the flow ends with it or because it has no data.
    fn resequence_barrier(
        &mut self,
        arrival: Arrival<B>,
        span: &Span,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let flags = arrival.candidate.flags;
        let flow = arrival.flow;
        let known = self.resequencer.as_mut().and_then(|known| known.visit(flow));
        let entry = known.and_then(|entry| self.resequencer.as_ref()?.entry(entry));
        // What the flow goes on with may end its train before the rest leaves.
        if span.len > 0 && entry.is_some_and(|entry| entry.standing(span) == Standing::Next) {
            let verdict = self.admit_found(arrival, sink);
            self.let_go_before(flow, flags, sink);
            return verdict;
        }
        self.let_go_before(flow, flags, sink);
        self.admit_found(arrival, sink)
    }

    /// Lets a packet pass all of which has left already, before the train of its flow if it is before that.
    fn pass_late(
        &mut self,
        arrival: Arrival<B>,
        span: &Span,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Found::Slot(slot) = self.table.find(arrival.flow, None)
            && let Some(train) = self.trains.held(slot)
            && let Some(at) = self.shapes[train.known].shape.sequence
        {
            let start = u32_at(train.first.buffer.as_ref(), at.into());
            if span.end().wrapping_sub(start) as i32 > 0 {
                self.close(slot, Close::Barrier, sink);
            }
        }
        self.pass_verified(arrival, Pass::TcpLate, sink)
    }

    /// Lets leave what waits beyond the bounds.
    fn keep_bounds(&mut self, entry: u32, sink: &mut (impl Sink<B> + ?Sized)) {
        if let Some(why) = self.resequencer.as_ref().and_then(|known| known.full(entry)) {
            self.let_go(entry, why, sink);
        }
        while let Some(oldest) = self.resequencer.as_ref().and_then(|known| known.excess()) {
            self.let_go(oldest, Release::QueueBytes, sink);
        }
        if let Some(resequencer) = &self.resequencer {
            let bytes = resequencer.bytes() as u64;
            self.stats.reorder.bytes_max = self.stats.reorder.bytes_max.max(bytes);
        }
    }

    /// Lets everything leave that waits of a flow, or what continues it if it has only begun.
    fn let_go(&mut self, entry: u32, why: Release, sink: &mut (impl Sink<B> + ?Sized)) {
        let is_given_up = match why {
            Release::PollEnd | Release::HoleTime | Release::TotalTime => true,
            Release::FlowBytes | Release::FlowRuns | Release::QueueBytes => true,
            Release::Begun | Release::Filled | Release::Barrier | Release::Overlap => false,
            Release::Evicted | Release::Finish => false,
        };
        let Some(flow) = self.resequencer.as_ref().and_then(|known| known.entry(entry)) else {
            return;
        };
        let flow = flow.flow;
        self.decide(why, sink, |resequencer| match why {
            Release::Begun => resequencer.go_on(entry),
            _ => resequencer.let_go(entry, is_given_up),
        });
        let has_waited = self.profile.reorder.level == Level::Holes;
        match why {
            Release::HoleTime | Release::TotalTime => self.close_flow(flow, Close::HoldTime, sink),
            // It was held as long as a train may be.
            Release::Begun if has_waited => self.close_flow(flow, Close::HoldTime, sink),
            Release::FlowBytes | Release::FlowRuns | Release::QueueBytes => {
                self.close_flow(flow, Close::ReorderFull, sink);
            }
            // Many flows in few places do not end each other's trains.
            Release::Evicted => {}
            Release::Begun | Release::Filled | Release::PollEnd => {}
            Release::Barrier | Release::Overlap | Release::Finish => {}
        }
    }

    /// Lets the resequencer decide, and joins what is to leave.
    fn decide<T>(
        &mut self,
        why: Release,
        sink: &mut (impl Sink<B> + ?Sized),
        decision: impl FnOnce(&mut Resequencer<B>) -> T,
    ) {
        let Some(resequencer) = &mut self.resequencer else { return };
        decision(resequencer);
        while let Some(arrival) = self.resequencer.as_mut().and_then(|known| known.next_leaving()) {
            self.stats.reorder.released[why.index()] += u64::from(arrival.candidate.packets);
            self.admit_found(arrival, sink);
        }
    }

    /// Takes a packet whose turn it is into the train of its flow.
    fn admit_found(&mut self, arrival: Arrival<B>, sink: &mut (impl Sink<B> + ?Sized)) -> Verdict {
        let found = self.table.find(arrival.flow, arrival.frame.meta.hash);
        self.admit::<Profiled>(found, arrival, false, sink)
    }

    /// Closes the train of a flow.
    fn close_flow(&mut self, flow: FlowHash, reason: Close, sink: &mut (impl Sink<B> + ?Sized)) {
        if let Found::Slot(slot) = self.table.find(flow, None) {
            self.close(slot, reason, sink);
        }
    }

    fn pass_verified(
        &mut self,
        arrival: Arrival<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Arrival { frame, candidate, known, .. } = arrival;
        let meta = verified(&self.shapes[known].shape, candidate.partial, frame.meta);
        self.pass(Frame { meta, ..frame }, reason, sink)
    }

    fn span(&self, arrival: &Arrival<B>) -> Option<Span> {
        let at = self.shapes[arrival.known].shape.sequence?;
        let Arrival { frame, candidate, now_ns, .. } = arrival;
        Some(Span {
            start: u32_at(frame.buffer.as_ref(), at.into()),
            len: candidate.payload_len as u32,
            is_pushed: candidate.flags & tcp::PSH as u8 != 0,
            now_ns: *now_ns,
        })
    }
}
