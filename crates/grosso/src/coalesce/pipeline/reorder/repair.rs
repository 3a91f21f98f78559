//! Stage that repairs reordering. The [`Resequencer`] decides which packets to release; the stage passes them to their
//! trains.

use grosso_wire::tcp;

use crate::{
    bytes::{byte_at, u32_at},
    coalesce::{
        emit::{
            reason::{Close, Pass, Release},
            verdict::Verdict,
        },
        flows::{
            flow_match::FlowMatch,
            flush_scope::FlushScope,
            merge::Merger,
            observed::{Observed, Predicted},
        },
        hold::train::Examined,
        pipeline::{
            burst_bypass::BurstBypass,
            reorder::{
                Resequencer,
                entry::{Span, Standing},
            },
            stage::{Downstream, Packet, Stage},
        },
        profile::Level,
        rx::policy::ByProfile,
    },
    flow::{FlowHash, Found},
};

impl<B: AsRef<[u8]>> Stage<B> for Resequencer<B> {
    fn take(
        &mut self,
        examined: Examined<B>,
        flow_match: &FlowMatch,
        next: &mut impl Downstream<B>,
    ) -> Result<Verdict, Examined<B>> {
        let known = &next.trains().0.shapes[examined.known];
        if !known.shape.is_tcp {
            return Err(examined);
        }
        if examined.candidate.payload_len == 0 && known.rules.acknowledgments.are_gathered() {
            self.flush_before(examined.flow, examined.candidate.flags, next);
            return Ok(admit(examined, next));
        }
        Ok(self.resequence(examined, flow_match, next))
    }

    #[inline(always)]
    fn flush_flow(&mut self, packet: &Packet<'_, B>, next: &mut impl Downstream<B>) -> bool {
        let Packet { incoming, flow_match } = packet;
        let flags = next.trains().0.shapes[flow_match.known].shape.flags;
        let flags = flags.map_or(0, |at| byte_at(incoming.bytes(), at.into()));
        self.flush_before(flow_match.flow, flags, next)
    }

    #[inline(always)]
    fn may_bypass(&mut self, predicted: &Predicted<'_>, _: &mut Merger<B>) -> bool {
        let Some(span) = span_of(predicted) else { return true };
        self.tick(span.now_ns);
        self.goes_on(predicted.observed.flow, &span)
    }

    /// Returns 0 for a TCP packet that does not continue its flow, and the maximum for every other packet.
    #[inline(always)]
    fn bypass_max(&self, next: &Predicted<'_>) -> u32 {
        match span_of(next) {
            Some(span) if !self.is_going_on(next.observed.flow, &span) => 0,
            _ => u32::MAX,
        }
    }

    fn learn_run(&mut self, run: &BurstBypass, _: &mut Merger<B>) {
        self.went_on(run.flow, run.payload_bytes() as u32);
    }

    fn flush(&mut self, scope: FlushScope, why: Release, next: &mut impl Downstream<B>) {
        if let FlushScope::Flow(flow) = scope {
            if let Some(entry) = self.find(flow) {
                self.flush_entry(entry, why, next);
            }
            return;
        }
        let mut at = self.first();
        while let Some(entry) = at {
            at = self.behind(entry);
            let is_meant = self.entry(entry).is_some_and(|known| match scope {
                FlushScope::AddressPair(address_pair) => known.address_pair == address_pair,
                FlushScope::Flow(_) | FlushScope::All => true,
            });
            if is_meant {
                self.flush_entry(entry, why, next);
            }
        }
    }

    /// Releases the packets that have waited long enough, starting with the flow that has waited longest.
    fn expire(&mut self, now_ns: u64, seen_ns: u64, next: &mut impl Downstream<B>) {
        self.tick_seen(now_ns, seen_ns);
        let mut at = self.first();
        while let Some(entry) = at {
            at = self.behind(entry);
            // One flush releases only the packets up to the next hole. If the profile does not wait for holes, the
            // packets after that hole are due immediately.
            while let Some(why) = self.due(entry) {
                self.flush_entry(entry, why, next);
            }
        }
    }

    fn learn_round_trip(&mut self, flow: FlowHash, round_trip_ns: u64) {
        self.learn(flow, round_trip_ns);
    }

    fn deadline(&self) -> Option<u64> {
        self.next_due()
    }
}

impl<B: AsRef<[u8]>> Resequencer<B> {
    /// Processes an examined TCP packet and releases it when its sequence number is due.
    fn resequence(
        &mut self,
        examined: Examined<B>,
        flow_match: &FlowMatch,
        next: &mut impl Downstream<B>,
    ) -> Verdict {
        let Some(span) = span(&examined, next) else { return admit(examined, next) };
        self.tick(examined.now_ns);
        if examined.candidate.flags & tcp::FIN as u8 != 0 || span.len == 0 {
            return self.resequence_barrier(examined, &span, next);
        }
        let known = self.visit(examined.flow);
        let standing = known.and_then(|entry| Some((entry, self.standing(entry, &span)?)));
        match standing {
            None => self.remember(examined, &span, next),
            Some((entry, Standing::Next)) => {
                // The train lookup is still valid, because no packet has been released since.
                let (merger, sink) = next.trains();
                let &FlowMatch { found, agrees, .. } = flow_match;
                let verdict = merger.admit::<ByProfile>(found, examined, agrees, sink);
                self.advance(entry, &span);
                self.hand_on(Release::Filled, next);
                verdict
            }
            Some((entry, Standing::Ahead(gap))) => {
                next.trains().0.stats.reorder.waited += u64::from(examined.candidate.packets);
                self.wait(entry, examined, &span, gap);
                self.hand_on(Release::Filled, next);
                self.keep_bounds(entry, next);
                Verdict::Waits
            }
            Some((_, Standing::Late)) => pass_late(examined, &span, next),
            Some((entry, Standing::Overlaps)) => {
                self.flush_entry(entry, Release::Overlap, next);
                self.advance(entry, &span);
                self.hand_on(Release::Overlap, next);
                let (merger, sink) = next.trains();
                merger.close_flow(examined.flow, Close::Barrier, sink);
                merger.pass_verified(examined, Pass::TcpOverlap, sink)
            }
        }
    }

    /// Flushes the flow of an unmergeable packet. A packet with SYN, FIN or RST also removes the flow. Returns whether
    /// packets may have been released.
    #[inline(always)]
    fn flush_before(&mut self, flow: FlowHash, flags: u8, next: &mut impl Downstream<B>) -> bool {
        let Some(entry) = self.find(flow) else { return false };
        let is_quiet = self.stays_quiet(entry);
        if !is_quiet {
            self.flush_entry(entry, Release::Barrier, next);
        }
        if flags & (tcp::SYN | tcp::RST | tcp::FIN) as u8 != 0 {
            self.remove(entry);
        }
        !is_quiet
    }

    /// Starts tracking a flow. Its first packet waits, because an earlier packet may still arrive.
    fn remember(
        &mut self,
        examined: Examined<B>,
        span: &Span,
        next: &mut impl Downstream<B>,
    ) -> Verdict {
        while let Some(entry) = self.victim(examined.flow) {
            self.flush_entry(entry, Release::Evicted, next);
            self.remove(entry);
        }
        let (merger, _) = next.trains();
        let address_pair = merger.address_pair(examined.frame.buffer.as_ref(), examined.known);
        merger.stats.reorder.waited += u64::from(examined.candidate.packets);
        if let Some(entry) = self.begin(examined, address_pair, span) {
            self.keep_bounds(entry, next);
        }
        Verdict::Waits
    }

    /// Processes a mergeable packet that later packets must not overtake, because it ends the flow or has no data.
    fn resequence_barrier(
        &mut self,
        examined: Examined<B>,
        span: &Span,
        next: &mut impl Downstream<B>,
    ) -> Verdict {
        let flags = examined.candidate.flags;
        let flow = examined.flow;
        let entry = self.visit(flow).and_then(|entry| self.entry(entry));
        // A packet that continues the flow is admitted first, because it may end the train; the queued packets are
        // released afterwards.
        if span.len > 0 && entry.is_some_and(|entry| entry.standing(span) == Standing::Next) {
            let verdict = admit(examined, next);
            self.flush_before(flow, flags, next);
            return verdict;
        }
        self.flush_before(flow, flags, next);
        admit(examined, next)
    }

    /// Releases queued packets until no limit is exceeded.
    fn keep_bounds(&mut self, entry: u32, next: &mut impl Downstream<B>) {
        if let Some(why) = self.full(entry) {
            self.flush_entry(entry, why, next);
        }
        while let Some(oldest) = self.excess() {
            self.flush_entry(oldest, Release::QueueBytes, next);
        }
        let bytes_max = &mut next.trains().0.stats.reorder.bytes_max;
        *bytes_max = (*bytes_max).max(self.bytes() as u64);
    }

    /// Releases all queued packets of a flow, or, if the start of the flow is unknown, only the packets that continue
    /// it.
    fn flush_entry(&mut self, entry: u32, why: Release, next: &mut impl Downstream<B>) {
        let is_given_up = match why {
            Release::PollEnd | Release::HoleTime | Release::TotalTime => true,
            Release::FlowBytes | Release::FlowRuns | Release::QueueBytes => true,
            Release::Begun | Release::Filled | Release::Barrier | Release::Overlap => false,
            Release::Evicted | Release::Finish => false,
        };
        let Some(flow) = self.entry(entry).map(|known| known.flow) else { return };
        match why {
            Release::Begun => self.go_on(entry),
            _ => self.release(entry, is_given_up),
        }
        self.hand_on(why, next);
        let closes = match why {
            Release::HoleTime | Release::TotalTime => Close::HoldTime,
            // The packets have already waited for a train's maximum hold time.
            Release::Begun if self.level() == Level::Holes => Close::HoldTime,
            Release::FlowBytes | Release::FlowRuns | Release::QueueBytes => Close::ReorderFull,
            // An eviction does not end a train. Otherwise, with many flows in a small table, they would end each
            // other's trains.
            Release::Evicted => return,
            Release::Begun | Release::Filled | Release::PollEnd => return,
            Release::Barrier | Release::Overlap | Release::Finish => return,
        };
        let (merger, sink) = next.trains();
        merger.close_flow(flow, closes, sink);
    }

    /// Releases the packets that are due.
    #[inline]
    fn hand_on(&mut self, why: Release, next: &mut impl Downstream<B>) {
        while let Some(examined) = self.next_leaving() {
            let packets = u64::from(examined.candidate.packets);
            next.trains().0.stats.reorder.released[why.index()] += packets;
            admit(examined, next);
        }
    }
}

/// Passes a released packet to the train of its flow.
fn admit<B: AsRef<[u8]>>(examined: Examined<B>, next: &mut impl Downstream<B>) -> Verdict {
    let (merger, sink) = next.trains();
    merger.admit_anew::<ByProfile>(examined, sink)
}

/// Delivers a late packet. If it precedes the train of its flow, it is delivered before the train.
fn pass_late<B: AsRef<[u8]>>(
    examined: Examined<B>,
    span: &Span,
    next: &mut impl Downstream<B>,
) -> Verdict {
    let (merger, sink) = next.trains();
    if let Found::Slot(slot) = merger.find(examined.flow, None)
        && let Some(train) = merger.trains.held(slot)
        && let Some(at) = merger.shapes[train.known].shape.sequence
    {
        let start = u32_at(train.first.buffer.as_ref(), at.into());
        if span.end().wrapping_sub(start) as i32 > 0 {
            merger.close(slot, Close::Barrier, sink);
        }
    }
    merger.pass_verified(examined, Pass::TcpLate, sink)
}

fn span<B: AsRef<[u8]>>(examined: &Examined<B>, next: &mut impl Downstream<B>) -> Option<Span> {
    let at = next.trains().0.shapes[examined.known].shape.sequence?;
    let Examined { frame, candidate, now_ns, .. } = examined;
    Some(Span {
        start: u32_at(frame.buffer.as_ref(), at.into()),
        len: candidate.payload_len as u32,
        is_pushed: candidate.flags & tcp::PSH as u8 != 0,
        now_ns: *now_ns,
    })
}

/// Returns the sequence range of a predicted TCP packet. PSH is ignored, because no packet of its flow is queued.
#[inline(always)]
fn span_of(predicted: &Predicted<'_>) -> Option<Span> {
    let &Predicted { observed: Observed { now_ns, .. }, sequence, payload_len, .. } = predicted;
    sequence.map(|start| Span { start, len: payload_len as u32, is_pushed: false, now_ns })
}

#[cfg(test)]
mod tests {
    use super::{FlushScope, Release, Resequencer, Stage, Verdict};
    use crate::coalesce::{
        pipeline::stage::probe::Probe,
        profile::{Profile, Reorder},
    };

    #[test]
    fn what_overtook_leaves_in_sequence() {
        let profile = Profile::linux();
        let mut probe = Probe::new(&profile);
        let mut stage = Resequencer::new(Reorder::WITHIN_BATCH, &profile.limits);
        for index in [1, 0, 3, 2] {
            let packet = probe.packet(index, 0);
            assert_eq!(probe.show(&mut stage, packet), Verdict::Waits);
        }
        assert_eq!(probe.merger.stats.reorder.waited, 4);
        stage.flush(FlushScope::All, Release::Finish, &mut probe);
        assert_eq!(probe.finish(), [4]);
    }
}
