//! Tracked flows and queued packets, and the decision which packets to release next and why.

use alloc::vec::Vec;

use crate::{
    coalesce::{
        emit::reason::Release,
        hold::train::Examined,
        pipeline::reorder::entry::{Entry, Joint, Phase, RUNS_MAX, Run, Span, Standing},
        profile::{Level, Limits, Reorder},
    },
    flow::{BucketChoice, FlowHash, Found, Table, TableShape},
    reassemble::queue::{NONE, Queue, Slab},
};

/// Tracked flows and queued packets.
///
/// The resequencer decides which packets to release and lists them in order; the stage then releases them.
#[derive(Debug)]
pub(crate) struct Resequencer<B> {
    reorder: Reorder,
    hold_ns: u64,
    table: Table<FlowHash, u32>,
    entries: Slab<Entry>,
    waiting: Slab<Waiting<B>>,
    /// Empty lists of runs, kept to reuse their memory.
    spare: Vec<Vec<Run>>,
    /// Memory of all queued packets in bytes.
    bytes: usize,
    /// Queues in eviction order: idle flows, then flows with queued packets (longest waiting first), then recovering
    /// flows. Idle and recovering flows are ordered by their last activity.
    queues: [Queue; 3],
    /// Flow that most recently received its next packet.
    latest: u32,
    /// First and last packet in the list of packets to release.
    leaving: (u32, u32),
    /// Current time.
    now_ns: u64,
    /// Time up to which all arrived packets have been pushed.
    seen_ns: u64,
}

/// A queued packet.
#[derive(Debug)]
struct Waiting<B> {
    examined: Examined<B>,
    /// Next packet in the same run.
    next: u32,
}

impl<B: AsRef<[u8]>> Resequencer<B> {
    pub(crate) fn new(reorder: Reorder, limits: &Limits) -> Self {
        let reorder = Reorder {
            flows: reorder.flows.clamp(1, FLOWS_MAX),
            flow_runs: reorder.flow_runs.clamp(1, RUNS_MAX),
            ..reorder
        };
        // The table has twice as many ways as there can be flows, so buckets are seldom full.
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

    /// Sets the time.
    pub(super) fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sets the current time, and the time up to which all arrived packets have been pushed.
    pub(super) fn tick_seen(&mut self, now_ns: u64, seen_ns: u64) {
        (self.now_ns, self.seen_ns) = (now_ns, seen_ns);
    }

    /// Returns the entry of an arriving packet's flow, unless the flow was idle for too long.
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

    /// Advances a flow without queued packets, if the packet continues it, and returns whether it did. In this common
    /// case, the call replaces [`Self::visit`], [`Self::standing`] and [`Self::advance`].
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

    /// Returns whether this flow was the last to receive its next packet, and a packet with this sequence range would
    /// continue it.
    #[inline(always)]
    pub(super) fn is_going_on(&self, flow: FlowHash, span: &Span) -> bool {
        let latest = self.entries.get(self.latest).filter(|known| known.flow == flow);
        latest.is_some_and(|known| known.goes_on(span, self.now_ns, &self.reorder))
    }

    /// Returns whether no packet of the flow is queued or missing. A flush would not change such a flow; only its
    /// activity is recorded.
    pub(super) fn stays_quiet(&mut self, entry: u32) -> bool {
        let is_quiet = self.entries.get(entry).is_some_and(Entry::is_quiet);
        if is_quiet {
            self.queues[IDLE].renew(&mut self.entries, |known| &mut known.link, entry);
        }
        is_quiet
    }

    /// Advances the flow of the last packet past further packets that arrived at the same time.
    pub(super) fn went_on(&mut self, flow: FlowHash, payload_bytes: u32) {
        if let Some(known) = self.entries.get_mut(self.latest).filter(|known| known.flow == flow) {
            known.advance(known.next.wrapping_add(payload_bytes), self.now_ns);
        }
    }

    /// Records a measured round-trip time of a tracked flow.
    pub(super) fn learn(&mut self, flow: FlowHash, round_trip_ns: u64) {
        let entry = self.find(flow);
        if let Some(known) = entry.and_then(|entry| self.entries.get_mut(entry)) {
            known.learn_round_trip(round_trip_ns);
        }
    }

    /// Returns the position of a packet in its flow. Removes the flow and returns `None` if the flow has restarted.
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

    /// Returns the flow to evict if the table is full, to make room for a flow with this hash.
    pub(super) fn victim(&self, flow: FlowHash) -> Option<u32> {
        let oldest = || self.queues.iter().find_map(Queue::first);
        match self.table.find(flow, None) {
            Found::Free(_) if self.entries.len() < self.reorder.flows => None,
            Found::Free(_) => oldest(),
            Found::Slot(entry) => Some(entry),
            Found::Full(bucket) => {
                let observed = |&entry: &u32| self.entries.get(entry).map(|known| known.seen_ns);
                self.table.slots(bucket).into_iter().min_by_key(observed)
            }
        }
    }

    /// Starts tracking a flow whose first packet waits. The caller has made room in the table.
    pub(super) fn begin(
        &mut self,
        examined: Examined<B>,
        address_pair: u32,
        span: &Span,
    ) -> Option<u32> {
        let Found::Free(place) = self.table.find(examined.flow, None) else { return None };
        let flow = examined.flow;
        let runs = self.spare.pop().unwrap_or_default();
        let entry = self.entries.insert(Entry::new(flow, place, address_pair, span, runs));
        self.table.insert(place, flow, entry);
        self.queues[BUSY].push(&mut self.entries, |known| &mut known.link, entry);
        self.wait(entry, examined, span, 0);
        Some(entry)
    }

    /// Queues a packet in the gap before run `index`.
    pub(super) fn wait(&mut self, entry: u32, examined: Examined<B>, span: &Span, index: usize) {
        let bytes = self.memory(&examined);
        // Another flow may use the slot of its prediction by the time the packet is released.
        let examined = Examined { resembles: false, ..examined };
        let packet = self.waiting.insert(Waiting { examined, next: NONE });
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

    /// Returns the reason for a release if a flow has reached one of its limits.
    pub(super) fn full(&self, entry: u32) -> Option<Release> {
        let known = self.entries.get(entry)?;
        if known.bytes > self.reorder.flow_bytes {
            return Some(Release::FlowBytes);
        }
        (known.runs() > self.reorder.flow_runs).then_some(Release::FlowRuns)
    }

    /// Returns the flow that has waited longest if the limit for all flows is exceeded.
    pub(super) fn excess(&self) -> Option<u32> {
        self.queues[BUSY].first().filter(|_| self.bytes > self.reorder.queue_bytes)
    }

    /// Advances past a delivered packet, and releases the packets that continue it.
    pub(super) fn advance(&mut self, entry: u32, span: &Span) {
        let Some(known) = self.entries.get_mut(entry) else { return };
        known.advance(span.end(), self.now_ns);
        if let Some(run) = known.take_next(self.now_ns) {
            known.learn(&run, self.now_ns);
            self.leave(entry, &run);
        }
        self.settle(entry);
    }

    /// Releases the packets that continue a flow. After that, packets before the flow's first one are no longer
    /// expected.
    pub(super) fn go_on(&mut self, entry: u32) {
        let Some(known) = self.entries.get_mut(entry) else { return };
        known.phase = Phase::Active;
        if let Some(run) = known.take_next(self.now_ns) {
            self.leave(entry, &run);
        }
        self.settle(entry);
    }

    /// Releases all packets of a flow. If `is_given_up` is set, the missing data counts as given up and may still
    /// arrive late; otherwise it is no longer expected.
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

    /// Removes a flow without queued packets.
    pub(super) fn remove(&mut self, entry: u32) {
        let Some(known) = self.entries.get(entry) else { return };
        let queue = queue_of(known.phase);
        self.table.remove(known.place);
        self.queues[queue].unlink(&mut self.entries, |known| &mut known.link, entry);
        self.spare.extend(self.entries.remove(entry).map(Entry::into_runs));
    }

    /// Takes the next packet to release.
    pub(super) fn next_leaving(&mut self) -> Option<Examined<B>> {
        let Waiting { examined, next } = self.waiting.remove(self.leaving.0)?;
        self.leaving.0 = next;
        self.bytes -= self.memory(&examined);
        Some(Examined { now_ns: self.now_ns, ..examined })
    }

    /// Returns the flow that has waited longest.
    pub(super) fn first(&self) -> Option<u32> {
        self.queues[BUSY].first()
    }

    /// Returns the flow after `entry` in the queue of waiting flows, longest waiting first.
    pub(super) fn behind(&self, entry: u32) -> Option<u32> {
        self.queues[BUSY].behind(&self.entries, |known| &known.link, entry)
    }

    /// Returns the reason if packets of a flow must be released now. A hole is given up only once every packet that
    /// arrived before the deadline has been pushed.
    pub(super) fn due(&self, entry: u32) -> Option<Release> {
        let (at_ns, why) = self.entries.get(entry)?.due(&self.reorder, self.hold_ns)?;
        let is_over = match why {
            Release::HoleTime | Release::TotalTime => at_ns <= self.seen_ns,
            _ => at_ns <= self.now_ns,
        };
        is_over.then_some(why)
    }

    /// Returns the time of the next release.
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

    /// Returns the queued memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the flow with this hash.
    #[inline(always)]
    pub(super) fn find(&self, flow: FlowHash) -> Option<u32> {
        match self.entries.get(self.latest) {
            Some(latest) if latest.flow == flow => Some(self.latest),
            _ => self.look_up(flow),
        }
    }

    /// Looks up the flow with this hash, which is known not to be the latest flow.
    #[inline(never)]
    fn look_up(&self, flow: FlowHash) -> Option<u32> {
        let Found::Slot(entry) = self.table.find(flow, None) else { return None };
        self.entries.get(entry).filter(|known| known.flow == flow).map(|_| entry)
    }

    /// Moves a flow to the queue of its current phase.
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

    /// Appends a run to the list of packets to release.
    fn leave(&mut self, entry: u32, run: &Run) {
        let mut at = run.first;
        let mut bytes = 0;
        while let Some(waiting) = self.waiting.get(at) {
            bytes += self.memory(&waiting.examined);
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

    /// Returns the memory that a queued packet occupies, by the size of its buffer (P33).
    fn memory(&self, examined: &Examined<B>) -> usize {
        let len = examined.frame.buffer.as_ref().len();
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

/// Queue of idle flows.
const IDLE: usize = 0;

/// Queue of flows with queued packets.
const BUSY: usize = 1;

/// Upper bound on the configurable number of flows.
const FLOWS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Resequencer;
    use crate::{
        coalesce::{
            hold::train::Examined,
            pipeline::reorder::entry::Span,
            profile::{Profile, Reorder},
            rx::examine::Candidate,
            slots::shape_id::ShapeId,
        },
        flow::FlowHash,
        frame::Frame,
        meta::{IpLevels, Meta},
    };

    /// Returns the first packet of a flow that has this hash.
    fn examined(flow: FlowHash, now_ns: u64) -> Examined<Vec<u8>> {
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
        Examined { frame, candidate, known: ShapeId::default(), flow, now_ns, resembles: false }
    }

    #[test]
    fn a_full_bucket_gives_the_flow_up_that_was_seen_longest_ago() {
        let mut known = Resequencer::new(Reorder::holes(1000), &Profile::linux().limits);
        // These eight flows fill one bucket of many.
        let flow = |number: u64| FlowHash::new(number << 33);
        for number in 1..=8 {
            let span = Span { start: 0, len: 1, is_pushed: false, now_ns: number };
            assert_eq!(known.victim(flow(number)), None);
            known.tick(number);
            known.begin(examined(flow(number), number), 0, &span);
        }
        assert_eq!(known.victim(FlowHash::new(1)), None, "another bucket has room");
        let victim = |known: &Resequencer<_>| Some(known.entry(known.victim(flow(9))?)?.flow);
        assert_eq!(victim(&known), Some(flow(1)));
        known.tick(9);
        known.visit(flow(1));
        assert_eq!(victim(&known), Some(flow(2)));
    }
}
