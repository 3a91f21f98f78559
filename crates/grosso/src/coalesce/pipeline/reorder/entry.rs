//! State of one flow: its next sequence number and its queued runs.

use alloc::vec::Vec;

use crate::{
    coalesce::{emit::reason::Release, profile::Reorder},
    flow::{FlowHash, Place},
    reassemble::queue::Link,
};

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The flow is new. Its packets wait, because earlier ones may still arrive.
    Build,
    /// Packets are waiting for a hole to be filled.
    Active,
    /// No packet is waiting.
    Idle,
    /// No packet is waiting, but packets that were given up as lost may still arrive.
    Recovery,
}

/// A tracked flow.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) flow: FlowHash,
    /// Position in the flow table.
    pub(super) place: Place,
    /// Hash of the outermost addresses, for ordering flushes.
    pub(super) address_pair: u32,
    pub(super) phase: Phase,
    /// Neighbors of the entry in the queue of its phase.
    pub(super) link: Link,
    /// Arrival time of the last packet.
    pub(super) seen_ns: u64,
    /// Memory of the queued packets in bytes.
    pub(super) bytes: usize,
    /// Next expected sequence number.
    pub(super) next: u32,
    /// Time at which the wait for the current hole began: when the hole appeared, or when the last packet was released.
    progress_ns: u64,
    /// Queued runs, ordered by sequence number. There is a gap between any two of them.
    runs: Vec<Run>,
    /// Start of the sequence range that was given up as lost and has not arrived since.
    lost: u32,
    /// End of this range.
    resume: u32,
    /// Time at which the range was given up.
    given_up_ns: u64,
    /// Time at which the hole in this range appeared.
    missing_since_ns: u64,
    /// Number of consecutive late packets.
    late: u32,
    /// Smoothed time that it took for holes of this flow to be filled, or 0 before the first hole.
    fill_ns: u64,
    /// Round-trip time, or 0 if it is unknown.
    round_trip_ns: u64,
}

/// A run of adjacent queued packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    start: u32,
    end: u32,
    /// First packet of the run.
    pub(super) first: u32,
    /// Last packet of the run.
    pub(super) last: u32,
    /// Arrival time of the first packet.
    since_ns: u64,
    /// Whether PSH is set in the last packet.
    is_pushed: bool,
}

/// Sequence range of a packet and its arrival time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) is_pushed: bool,
    pub(super) now_ns: u64,
}

impl Span {
    /// Returns the sequence number after the packet.
    pub(super) fn end(&self) -> u32 {
        self.start.wrapping_add(self.len)
    }
}

/// Position of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The packet continues the flow.
    Next,
    /// The packet is later than the expected one, and falls into the gap before the run with this index.
    Ahead(usize),
    /// The whole payload has already been delivered.
    Late,
    /// Part of the payload has already been delivered or is queued.
    Overlaps,
}

/// Neighbors of a queued packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// The packet forms a new run.
    Alone,
    /// The packet extends a run whose last packet has this index.
    Behind(u32),
    /// The packet extends a run whose first packet has this index.
    Before(u32),
    /// The packet joins two runs: it fits between the packets with these indexes.
    Between(u32, u32),
}

impl Entry {
    /// Creates the entry of a new flow whose first packet waits. `runs` is an empty list whose memory is reused.
    pub(super) fn new(
        flow: FlowHash,
        place: Place,
        address_pair: u32,
        span: &Span,
        runs: Vec<Run>,
    ) -> Self {
        Self {
            flow,
            place,
            address_pair,
            phase: Phase::Build,
            link: Link::NONE,
            seen_ns: span.now_ns,
            bytes: 0,
            next: span.start,
            progress_ns: span.now_ns,
            runs,
            lost: 0,
            resume: 0,
            given_up_ns: 0,
            missing_since_ns: 0,
            late: 0,
            fill_ns: 0,
            round_trip_ns: 0,
        }
    }

    /// Inserts the packet with index `packet` into the runs and returns its neighbors.
    pub(super) fn insert(&mut self, span: &Span, index: usize, packet: u32) -> Joint {
        self.late = 0;
        if self.phase == Phase::Build {
            if self.ahead(span.start) < 0 {
                self.next = span.start;
            }
        } else if self.runs.is_empty() {
            self.progress_ns = span.now_ns;
        }
        let left = index.checked_sub(1).filter(|&left| self.runs[left].end == span.start);
        let right = self.runs.get(index).copied().filter(|run| run.start == span.end());
        match (left, right) {
            (Some(left), Some(right)) => {
                self.runs.remove(index);
                let run = &mut self.runs[left];
                let joint = Joint::Between(run.last, right.first);
                let since_ns = run.since_ns.min(right.since_ns);
                *run = Run { first: run.first, start: run.start, since_ns, ..right };
                joint
            }
            (Some(left), None) => {
                let run = &mut self.runs[left];
                let joint = Joint::Behind(run.last);
                (run.end, run.last, run.is_pushed) = (span.end(), packet, span.is_pushed);
                joint
            }
            (None, Some(_)) => {
                let run = &mut self.runs[index];
                let joint = Joint::Before(run.first);
                (run.start, run.first) = (span.start, packet);
                joint
            }
            (None, None) => {
                let &Span { start, is_pushed, now_ns: since_ns, .. } = span;
                let run = Run {
                    start,
                    end: span.end(),
                    first: packet,
                    last: packet,
                    since_ns,
                    is_pushed,
                };
                self.runs.insert(index, run);
                Joint::Alone
            }
        }
    }

    /// Advances the flow to the end of a delivered packet.
    pub(super) fn advance(&mut self, end: u32, now_ns: u64) {
        self.late = 0;
        if self.ahead(end) > 0 {
            self.next = end;
        }
        self.progress_ns = now_ns;
    }

    /// Removes and returns the first run if it continues the flow.
    pub(super) fn take_next(&mut self, now_ns: u64) -> Option<Run> {
        let run = *self.runs.first().filter(|run| run.start == self.next)?;
        self.runs.remove(0);
        self.advance(run.end, now_ns);
        Some(run)
    }

    /// Removes and returns all runs, regardless of gaps before them, and advances to the end of the last run. The
    /// caller must return the list with [`Self::give_back`].
    pub(super) fn take_all(&mut self) -> Vec<Run> {
        self.next = self.runs.last().map_or(self.next, |last| last.end);
        core::mem::take(&mut self.runs)
    }

    /// Takes back an emptied list of runs to reuse its memory.
    pub(super) fn give_back(&mut self, runs: Vec<Run>) {
        self.runs = runs;
    }

    /// Updates the smoothed time that it takes for a hole to be filled. A new value has a weight of 1/2 if it is higher
    /// and 1/8 if it is lower.
    pub(super) fn learn(&mut self, run: &Run, now_ns: u64) {
        self.learn_time(now_ns.saturating_sub(run.since_ns));
    }

    /// Records a measured round-trip time.
    pub(super) fn learn_round_trip(&mut self, round_trip_ns: u64) {
        self.round_trip_ns = round_trip_ns.max(1);
    }

    /// Gives up on the data missing before and between the queued runs.
    pub(super) fn give_up(&mut self, now_ns: u64) {
        let goes_on = self.runs.first().filter(|run| run.start == self.next);
        let first = goes_on.map_or(self.next, |run| run.end);
        let behind = self.runs.get(usize::from(goes_on.is_some()));
        let (Some(behind), Some(last)) = (behind, self.runs.last()) else { return };
        (self.lost, self.resume) = (first, last.start);
        self.missing_since_ns = behind.since_ns;
        self.given_up_ns = now_ns;
    }

    /// Counts a late packet. Returns whether enough consecutive packets were late to show that the flow has restarted
    /// at an earlier sequence number.
    pub(super) fn note_late(&mut self, span: &Span, reorder: &Reorder) -> bool {
        self.late += 1;
        if since(self.resume, self.lost) > 0 && since(span.end(), self.lost) > 0 {
            let took_ns = span.now_ns.saturating_sub(self.missing_since_ns);
            // A packet that took longer is a retransmission and does not count.
            if took_ns <= reorder.hole_ns() {
                self.learn_time(took_ns);
            }
            self.lost = span.end();
        }
        self.late >= LATE_MAX && self.runs.is_empty()
    }

    /// Clears the range that was given up as lost.
    pub(super) fn settle(&mut self) {
        self.lost = self.resume;
    }

    /// Returns the position of a packet relative to what was delivered and queued.
    pub(super) fn standing(&self, span: &Span) -> Standing {
        let start = self.ahead(span.start);
        let end = start + i64::from(span.len);
        let is_build = self.phase == Phase::Build;
        if !is_build && end <= 0 {
            return Standing::Late;
        }
        let last = self.runs.last().map_or(0, |run| self.ahead(run.end));
        // Sequence numbers half the number space apart have no defined order.
        let is_wide = end.max(last) - start.min(0) > i64::from(i32::MAX);
        if is_wide || !is_build && start < 0 {
            return Standing::Overlaps;
        }
        let index = self.runs.partition_point(|run| self.ahead(run.start) < start);
        let left = index.checked_sub(1).map_or(i64::MIN, |left| self.ahead(self.runs[left].end));
        let right = self.runs.get(index).map_or(i64::MAX, |run| self.ahead(run.start));
        match left > start || right < end {
            true => Standing::Overlaps,
            false if start == 0 && !is_build => Standing::Next,
            false => Standing::Ahead(index),
        }
    }

    /// Returns whether a packet continues the flow in the simple case: the flow was recently active, no packets are
    /// queued, and the phase does not change.
    #[inline]
    pub(super) fn goes_on(&self, span: &Span, now_ns: u64, reorder: &Reorder) -> bool {
        let is_recent = now_ns.saturating_sub(self.seen_ns) < reorder.idle_ns;
        let is_next = self.runs.is_empty() && span.start == self.next && span.len > 0;
        is_recent
            && is_next
            && self.phase != Phase::Build
            && (self.is_quiet() || self.phase_now(now_ns, reorder) == self.phase)
    }

    /// Returns whether no packet is queued or missing.
    pub(super) fn is_quiet(&self) -> bool {
        self.phase == Phase::Idle && self.runs.is_empty() && self.lost == self.resume
    }

    /// Returns the phase of the flow after packets arrived or were released.
    pub(super) fn phase_now(&self, now_ns: u64, reorder: &Reorder) -> Phase {
        let is_missing = since(self.resume, self.lost) > 0;
        let is_recent = now_ns.saturating_sub(self.given_up_ns) < reorder.idle_ns;
        match (self.runs.is_empty(), self.phase) {
            (false, Phase::Build) => Phase::Build,
            (false, _) => Phase::Active,
            // A flow whose sender never retransmits the missing data must not stay in this phase forever.
            (true, _) if is_missing && is_recent => Phase::Recovery,
            (true, _) => Phase::Idle,
        }
    }

    /// Returns when and why queued packets will be released if nothing else happens first. `hold_ns` is the hold time
    /// of trains.
    pub(super) fn due(&self, reorder: &Reorder, hold_ns: u64) -> Option<(u64, Release)> {
        let first = self.runs.first()?;
        // A packet that leaves this queue may still be held in a train, which delays it further.
        let most_ns = self.hole_ns_max(reorder).saturating_mul(2).saturating_sub(hold_ns);
        if self.phase == Phase::Build {
            let is_pushed = self.runs.len() == 1 && first.is_pushed;
            let wait_ns = if is_pushed { 0 } else { hold_ns.min(most_ns) };
            return Some((self.progress_ns.saturating_add(wait_ns), Release::Begun));
        }
        let oldest_ns = self.runs.iter().map(|run| run.since_ns).min()?;
        let total_ns = oldest_ns.saturating_add(most_ns);
        let hole_ns = self.progress_ns.saturating_add(self.hole_ns(reorder));
        Some(match (reorder.hole_ns(), hole_ns <= total_ns) {
            (0, _) => (hole_ns, Release::PollEnd),
            (_, true) => (hole_ns, Release::HoleTime),
            (_, false) => (total_ns, Release::TotalTime),
        })
    }

    /// Returns the list of runs, for reuse, when the flow is removed.
    pub(super) fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    /// Returns the number of queued runs.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns how long to wait for a hole in this flow.
    fn hole_ns(&self, reorder: &Reorder) -> u64 {
        let most_ns = self.hole_ns_max(reorder);
        match self.fill_ns {
            0 => most_ns,
            fill_ns => fill_ns.saturating_mul(2).max(reorder.hole_ns_min).min(most_ns),
        }
    }

    /// Returns the longest time to wait for a hole. If the waiting time adapts to the flow, it stays below the sender's
    /// loss timers (P52).
    fn hole_ns_max(&self, reorder: &Reorder) -> u64 {
        let most_ns = reorder.hole_ns();
        match self.round_trip_ns {
            0 => most_ns,
            round_trip_ns => most_ns.min((round_trip_ns / 8).max(reorder.hole_ns_min)),
        }
    }

    fn learn_time(&mut self, took_ns: u64) {
        self.fill_ns = match self.fill_ns {
            0 => took_ns,
            known if took_ns > known => known + (took_ns - known).div_ceil(2),
            known => known - (known - took_ns) / 8,
        }
        .max(1);
    }

    /// Returns the distance of a sequence number from the expected one, in serial arithmetic (RFC 9293 section 3.4).
    fn ahead(&self, sequence: u32) -> i64 {
        i64::from(since(sequence, self.next))
    }
}

fn since(sequence: u32, earlier: u32) -> i32 {
    sequence.wrapping_sub(earlier) as i32
}

/// Upper bound on the configurable number of runs.
pub(super) const RUNS_MAX: usize = 256;

/// Number of consecutive late packets after which the flow counts as restarted. Either the sender is retransmitting
/// everything, or an earlier sequence number was wrong and far too high.
const LATE_MAX: u32 = 16;
