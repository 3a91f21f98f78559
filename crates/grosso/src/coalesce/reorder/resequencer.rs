//! The flows that are remembered, and the packets that wait: which leave next, and why.

use alloc::vec::Vec;

use crate::{
    coalesce::{
        BucketChoice, Level, Limits, Reorder, TableShape,
        reason::Release,
        reorder::entry::{Entry, Joint, Phase, RUNS_MAX, Run, Span, Standing},
        train::Arrival,
    },
    flow::{FlowHash, Found, Table},
    reassemble::queue::{NONE, Queue, Slab},
};

/// Flows of which something waits or may be late, and the packets that wait.
///
/// It decides, and the stage acts: what is to leave lies in a queue of its own, in order.
#[derive(Debug)]
pub(in crate::coalesce) struct Resequencer<B> {
    reorder: Reorder,
    hold_ns: u64,
    table: Table<FlowHash, u32>,
    entries: Slab<Entry>,
    waiting: Slab<Waiting<B>>,
    /// Empty lists of runs that keep their memory.
    spare: Vec<Vec<Run>>,
    /// Memory that waits, in bytes.
    bytes: usize,
    /// Flows by how dear they are: first those of which nothing waits, then those of which something does, then
    /// those that wait for what was given up. Whoever was seen last is last; of the second, who waits longest is first.
    queues: [Queue; 3],
    /// The flow that went on last.
    latest: u32,
    /// Packets that are to leave, in order: the first and the last packet.
    leaving: (u32, u32),
    /// The time, as it was told last.
    now_ns: u64,
    /// Time until which all that came has been seen.
    seen_ns: u64,
}

/// A packet that waits.
#[derive(Debug)]
struct Waiting<B> {
    arrival: Arrival<B>,
    /// The packet behind it in its run.
    next: u32,
}

impl<B: AsRef<[u8]>> Resequencer<B> {
    pub(in crate::coalesce) fn new(reorder: Reorder, limits: &Limits) -> Self {
        let reorder = Reorder {
            flows: reorder.flows.clamp(1, FLOWS_MAX),
            flow_runs: reorder.flow_runs.clamp(1, RUNS_MAX),
            ..reorder
        };
        // Twice as many places as flows, so that few buckets are ever full.
        let shape = TableShape { buckets: reorder.flows.div_ceil(4), choice: BucketChoice::Seeded };
        Self {
            hold_ns: limits.hold_ns,
            table: Table::new(shape),
            entries: Slab::default(),
            waiting: Slab::default(),
            spare: Vec::new(),
            bytes: 0,
            queues: [Queue::EMPTY; 3],
            latest: NONE,
            leaving: (NONE, NONE),
            now_ns: 0,
            seen_ns: 0,
            reorder,
        }
    }

    /// Tells the time.
    pub(super) fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Tells the time, and until when what came has been seen.
    pub(super) fn tick_seen(&mut self, now_ns: u64, seen_ns: u64) {
        (self.now_ns, self.seen_ns) = (now_ns, seen_ns);
    }

    /// The flow of this hash, of which a packet came, unless none had come for long.
    pub(super) fn visit(&mut self, flow: FlowHash) -> Option<u32> {
        let entry = self.find(flow)?;
        let known = self.entries.get_mut(entry)?;
        let is_forgotten = self.now_ns.saturating_sub(known.seen_ns) >= self.reorder.idle_ns;
        known.seen_ns = self.now_ns;
        if is_forgotten && known.runs() == 0 {
            self.remove(entry);
            return None;
        }
        self.latest = entry;
        Some(entry)
    }

    /// Goes on with a packet of a flow of which nothing waits, as most do: what [`Self::visit`], [`Self::standing`] and
    /// [`Self::advance`] would do. Whether it was such a packet.
    #[inline(always)]
    pub(super) fn goes_on(&mut self, flow: FlowHash, span: &Span) -> bool {
        let entry = self.find(flow);
        let Some((entry, known)) = entry.and_then(|at| Some((at, self.entries.get_mut(at)?)))
        else {
            return false;
        };
        if !known.goes_on(span, self.now_ns, &self.reorder) {
            return false;
        }
        known.seen_ns = self.now_ns;
        known.advance(span.end(), self.now_ns);
        let queue = queue_of(known.phase);
        self.queues[queue].renew(&mut self.entries, |known| &mut known.link, entry);
        self.latest = entry;
        true
    }

    /// Whether the flow that went on last is this one, and goes on in the same way with such a packet.
    #[inline(always)]
    pub(super) fn is_going_on(&self, flow: FlowHash, span: &Span) -> bool {
        let latest = self.entries.get(self.latest).filter(|known| known.flow == flow);
        latest.is_some_and(|known| known.goes_on(span, self.now_ns, &self.reorder))
    }

    /// Renews a flow of which nothing waits or is missing, and which a flush would leave as it is. Whether it is such.
    pub(super) fn stays_quiet(&mut self, entry: u32) -> bool {
        let is_quiet = self.entries.get(entry).is_some_and(Entry::is_quiet);
        if is_quiet {
            self.queues[IDLE].renew(&mut self.entries, |known| &mut known.link, entry);
        }
        is_quiet
    }

    /// Goes on with packets behind the one that went on last, in the same instant.
    pub(super) fn went_on(&mut self, flow: FlowHash, payload_bytes: u32) {
        if let Some(known) = self.entries.get_mut(self.latest).filter(|known| known.flow == flow) {
            known.advance(known.next.wrapping_add(payload_bytes), self.now_ns);
        }
    }

    /// Learns how long a round trip of a flow takes, if it is remembered.
    pub(super) fn learn(&mut self, flow: FlowHash, round_trip_ns: u64) {
        let entry = self.find(flow);
        if let Some(known) = entry.and_then(|entry| self.entries.get_mut(entry)) {
            known.learn_round_trip(round_trip_ns);
        }
    }

    /// Finds the place of a packet in its flow. A flow that has gone back is forgotten, which gives `None`.
    pub(super) fn standing(&mut self, entry: u32, span: &Span) -> Option<Standing> {
        let known = self.entries.get_mut(entry)?;
        let standing = known.standing(span);
        if standing == Standing::Late && known.note_late(span, &self.reorder) {
            self.remove(entry);
            return None;
        }
        self.settle(entry);
        Some(standing)
    }

    /// A flow that has to give its place up for that of this hash, if there is no room for it.
    pub(super) fn victim(&self, flow: FlowHash) -> Option<u32> {
        let oldest = || self.queues.iter().find_map(Queue::first);
        match self.table.find(flow, None) {
            Found::Free(_) if self.entries.len() < self.reorder.flows => None,
            Found::Free(_) => oldest(),
            Found::Slot(entry) => Some(entry),
            Found::Full(bucket) => {
                let seen = |&entry: &u32| self.entries.get(entry).map(|known| known.seen_ns);
                self.table.slots(bucket).into_iter().min_by_key(seen)
            }
        }
    }

    /// Remembers a flow with its first packet, which waits. There must be room.
    pub(super) fn begin(
        &mut self,
        arrival: Arrival<B>,
        address_pair: u32,
        span: &Span,
    ) -> Option<u32> {
        let Found::Free(place) = self.table.find(arrival.flow, None) else { return None };
        let flow = arrival.flow;
        let runs = self.spare.pop().unwrap_or_default();
        let entry = self.entries.insert(Entry::new(flow, place, address_pair, span, runs));
        self.table.insert(place, flow, entry);
        self.queues[BUSY].push(&mut self.entries, |known| &mut known.link, entry);
        self.wait(entry, arrival, span, 0);
        Some(entry)
    }

    /// Lets a packet wait in the gap before the run of this number.
    pub(super) fn wait(&mut self, entry: u32, arrival: Arrival<B>, span: &Span, index: usize) {
        let bytes = self.memory(&arrival);
        // By its turn another flow may be in the place of its prediction.
        let arrival = Arrival { resembles: false, ..arrival };
        let packet = self.waiting.insert(Waiting { arrival, next: NONE });
        let Some(known) = self.entries.get_mut(entry) else { return };
        self.bytes += bytes;
        known.bytes += bytes;
        match known.insert(span, index, packet) {
            Joint::Alone => {}
            Joint::Behind(left) => self.link(left, packet),
            Joint::Before(right) => self.link(packet, right),
            Joint::Between(left, right) => {
                self.link(left, packet);
                self.link(packet, right);
            }
        }
        self.settle(entry);
    }

    /// The bound that a flow has reached, if it has.
    pub(super) fn full(&self, entry: u32) -> Option<Release> {
        let known = self.entries.get(entry)?;
        if known.bytes > self.reorder.flow_bytes {
            return Some(Release::FlowBytes);
        }
        (known.runs() > self.reorder.flow_runs).then_some(Release::FlowRuns)
    }

    /// The flow that waits longest, if more waits than may.
    pub(super) fn excess(&self) -> Option<u32> {
        self.queues[BUSY].first().filter(|_| self.bytes > self.reorder.queue_bytes)
    }

    /// Goes on behind a packet that leaves, and lets what continues it leave too.
    pub(super) fn advance(&mut self, entry: u32, span: &Span) {
        let Some(known) = self.entries.get_mut(entry) else { return };
        known.advance(span.end(), self.now_ns);
        if let Some(run) = known.take_next(self.now_ns) {
            known.learn(&run, self.now_ns);
            self.leave(entry, &run);
        }
        self.settle(entry);
    }

    /// Lets leave of a flow what continues it, and forgets that it might have begun earlier.
    pub(super) fn go_on(&mut self, entry: u32) {
        let Some(known) = self.entries.get_mut(entry) else { return };
        known.phase = Phase::Active;
        if let Some(run) = known.take_next(self.now_ns) {
            self.leave(entry, &run);
        }
        self.settle(entry);
    }

    /// Lets everything of a flow leave. What is missing may be given up, or not be waited for in the first place.
    pub(super) fn release(&mut self, entry: u32, is_given_up: bool) {
        let Some(known) = self.entries.get_mut(entry) else { return };
        match is_given_up {
            true => known.give_up(self.now_ns),
            false => known.settle(),
        }
        if known.phase == Phase::Build {
            known.phase = Phase::Active;
        }
        let mut runs = known.take_all();
        runs.drain(..).for_each(|run| self.leave(entry, &run));
        if let Some(known) = self.entries.get_mut(entry) {
            known.give_back(runs);
        }
        self.settle(entry);
    }

    /// Forgets a flow of which nothing waits.
    pub(super) fn remove(&mut self, entry: u32) {
        let Some(known) = self.entries.get(entry) else { return };
        let queue = queue_of(known.phase);
        self.table.remove(known.place);
        self.queues[queue].unlink(&mut self.entries, |known| &mut known.link, entry);
        self.spare.extend(self.entries.remove(entry).map(Entry::into_runs));
    }

    /// Takes the next packet that is to leave.
    pub(super) fn next_leaving(&mut self) -> Option<Arrival<B>> {
        let Waiting { arrival, next } = self.waiting.remove(self.leaving.0)?;
        self.leaving.0 = next;
        self.bytes -= self.memory(&arrival);
        Some(Arrival { now_ns: self.now_ns, ..arrival })
    }

    /// The flow that waits longest.
    pub(super) fn first(&self) -> Option<u32> {
        self.queues[BUSY].first()
    }

    /// The flow that waits longest but for those up to this one.
    pub(super) fn behind(&self, entry: u32) -> Option<u32> {
        self.queues[BUSY].behind(&self.entries, |known| &known.link, entry)
    }

    /// Reason for which something of a flow is to leave by now, if it is. What fills a hole may have come in time and
    /// not have been seen yet.
    pub(super) fn due(&self, entry: u32) -> Option<Release> {
        let (at_ns, why) = self.entries.get(entry)?.due(&self.reorder, self.hold_ns)?;
        let is_over = match why {
            Release::HoleTime | Release::TotalTime => at_ns <= self.seen_ns,
            _ => at_ns <= self.now_ns,
        };
        is_over.then_some(why)
    }

    /// Time at which something is to leave next.
    pub(super) fn next_due(&self) -> Option<u64> {
        let due = |entry: u32| self.entries.get(entry)?.due(&self.reorder, self.hold_ns);
        let busy = core::iter::successors(self.first(), |&entry| self.behind(entry));
        busy.filter_map(due).map(|(at_ns, _)| at_ns).min()
    }

    pub(super) fn entry(&self, entry: u32) -> Option<&Entry> {
        self.entries.get(entry)
    }

    pub(super) fn level(&self) -> Level {
        self.reorder.level
    }

    /// Memory that waits, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The flow of this hash.
    #[inline(always)]
    pub(super) fn find(&self, flow: FlowHash) -> Option<u32> {
        match self.entries.get(self.latest) {
            Some(latest) if latest.flow == flow => Some(self.latest),
            _ => self.look_up(flow),
        }
    }

    /// The flow of this hash, which is not the latest.
    #[inline(never)]
    fn look_up(&self, flow: FlowHash) -> Option<u32> {
        let Found::Slot(entry) = self.table.find(flow, None) else { return None };
        self.entries.get(entry).filter(|known| known.flow == flow).map(|_| entry)
    }

    /// Puts a flow into the queue of the phase that it is in now.
    fn settle(&mut self, entry: u32) {
        let Some(known) = self.entries.get_mut(entry) else { return };
        let before = queue_of(known.phase);
        known.phase = known.phase_now(self.now_ns, &self.reorder);
        let queue = queue_of(known.phase);
        if queue != before {
            self.queues[before].unlink(&mut self.entries, |known| &mut known.link, entry);
            self.queues[queue].push(&mut self.entries, |known| &mut known.link, entry);
        } else if queue != BUSY {
            self.queues[queue].renew(&mut self.entries, |known| &mut known.link, entry);
        }
    }

    /// Puts a run behind what is to leave already.
    fn leave(&mut self, entry: u32, run: &Run) {
        let mut at = run.first;
        let mut bytes = 0;
        while let Some(waiting) = self.waiting.get(at) {
            bytes += self.memory(&waiting.arrival);
            at = waiting.next;
        }
        if let Some(known) = self.entries.get_mut(entry) {
            known.bytes -= bytes;
        }
        match self.leaving.0 {
            NONE => self.leaving.0 = run.first,
            _ => self.link(self.leaving.1, run.first),
        }
        self.leaving.1 = run.last;
    }

    fn link(&mut self, packet: u32, behind: u32) {
        if let Some(waiting) = self.waiting.get_mut(packet) {
            waiting.next = behind;
        }
    }

    /// Memory that a waiting packet takes, however little of its buffer is filled (P33).
    fn memory(&self, arrival: &Arrival<B>) -> usize {
        let len = arrival.frame.buffer.as_ref().len();
        len.max(self.reorder.buffer_bytes) + size_of::<Waiting<B>>()
    }
}

fn queue_of(phase: Phase) -> usize {
    match phase {
        Phase::Idle => IDLE,
        Phase::Build | Phase::Active => BUSY,
        Phase::Recovery => 2,
    }
}

/// The queue of the flows of which nothing waits or is missing.
const IDLE: usize = 0;

/// The queue of the flows of which something waits.
const BUSY: usize = 1;

/// Most flows that any bound allows.
const FLOWS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Resequencer;
    use crate::{
        coalesce::{
            Profile, Reorder, examine::Candidate, reorder::entry::Span, shape_id::ShapeId,
            train::Arrival,
        },
        flow::FlowHash,
        frame::Frame,
        meta::{IpLevels, Meta},
    };

    /// The first packet of a flow with this hash.
    fn arrival(flow: FlowHash, now_ns: u64) -> Arrival<Vec<u8>> {
        let candidate = Candidate {
            payload_len: 1,
            flags: 0,
            packets: 1,
            size: 1,
            short_tail: false,
            partial: false,
            fixed_ids: IpLevels::default(),
        };
        let frame = Frame { buffer: Vec::new(), meta: Meta::default() };
        Arrival { frame, candidate, known: ShapeId::default(), flow, now_ns, resembles: false }
    }

    #[test]
    fn a_full_bucket_gives_the_flow_up_that_was_seen_longest_ago() {
        let mut known = Resequencer::new(Reorder::holes(1000), &Profile::linux().limits);
        // Eight flows fill one bucket of many.
        let flow = |number: u64| FlowHash::new(number << 33);
        for number in 1..=8 {
            let span = Span { start: 0, len: 1, is_pushed: false, now_ns: number };
            assert_eq!(known.victim(flow(number)), None);
            known.tick(number);
            known.begin(arrival(flow(number), number), 0, &span);
        }
        assert_eq!(known.victim(FlowHash::new(1)), None, "another bucket has room");
        let victim = |known: &Resequencer<_>| Some(known.entry(known.victim(flow(9))?)?.flow);
        assert_eq!(victim(&known), Some(flow(1)));
        known.tick(9);
        known.visit(flow(1));
        assert_eq!(victim(&known), Some(flow(2)));
    }
}
