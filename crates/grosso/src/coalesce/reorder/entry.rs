//! One flow: where it goes on, and the runs that wait.

use alloc::vec::Vec;

use crate::{
    coalesce::{Reorder, reason::Release},
    flow::{FlowHash, Place},
    reassemble::queue::Link,
};

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its first packets wait, because they may not have been the first that were sent.
    Build,
    /// Packets wait for a hole to fill.
    Active,
    /// Nothing waits.
    Idle,
    /// Nothing waits, and what was missing when the last hole was given up has not come yet.
    Recovery,
}

/// A remembered flow.
#[derive(Debug)]
pub(super) struct Entry {
    /// The hash of the flow.
    pub(super) flow: FlowHash,
    /// Its place in the table of flows.
    pub(super) place: Place,
    /// Its outermost addresses, for barriers.
    pub(super) address_pair: u32,
    pub(super) phase: Phase,
    /// Its neighbours in the queue of the phase.
    pub(super) link: Link,
    /// Time of its last packet.
    pub(super) seen_ns: u64,
    /// Memory that waits, in bytes.
    pub(super) bytes: usize,
    /// The sequence number with which it goes on.
    pub(super) next: u32,
    /// From when on the time of a hole is counted: when it appeared, or when something left last.
    progress_ns: u64,
    /// Runs that wait, in sequence, disjoint and not adjacent.
    runs: Vec<Run>,
    /// Sequence numbers that were given up as lost and have not come since: from the first on, and none from the second
    /// on.
    lost: u32,
    resume: u32,
    /// Time at which it was given up, and time at which the hole had appeared.
    given_up_ns: u64,
    missing_since_ns: u64,
    /// Packets in a row that were behind.
    late: u32,
    /// Time that holes took to fill lately; 0 when none has filled.
    fill_ns: u64,
    /// Round trip time; 0 when nobody told.
    round_trip_ns: u64,
}

/// Adjacent packets that wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    start: u32,
    end: u32,
    /// The first and the last of its packets.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Time at which the first of them came, by arrival.
    since_ns: u64,
    /// Its last packet has PSH.
    is_pushed: bool,
}

/// The sequence numbers of a packet, and when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) is_pushed: bool,
    pub(super) now_ns: u64,
}

impl Span {
    /// The sequence number behind it.
    pub(super) fn end(&self) -> u32 {
        self.start.wrapping_add(self.len)
    }
}

/// Place of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The flow goes on with it.
    Next,
    /// It is ahead, and fits into the gap before the run of this number.
    Ahead(usize),
    /// All of it was in what has left.
    Late,
    /// Some of it was in what has left or waits.
    Overlaps,
}

/// Neighbours of a packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// It is a run of its own.
    Alone,
    /// It goes behind this packet.
    Behind(u32),
    /// It goes before this packet.
    Before(u32),
    /// It goes between these packets.
    Between(u32, u32),
}

impl Entry {
    /// A flow that begins; its first packet waits. `runs` is an empty list.
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

    /// Puts a packet among the runs, as number `packet`; says which packets it goes between.
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

    /// Goes on behind what leaves.
    pub(super) fn advance(&mut self, end: u32, now_ns: u64) {
        self.late = 0;
        if self.ahead(end) > 0 {
            self.next = end;
        }
        self.progress_ns = now_ns;
    }

    /// Takes the first run, if the flow goes on with it.
    pub(super) fn take_next(&mut self, now_ns: u64) -> Option<Run> {
        let run = *self.runs.first().filter(|run| run.start == self.next)?;
        self.runs.remove(0);
        self.advance(run.end, now_ns);
        Some(run)
    }

    /// Takes all runs, whatever is missing before them, and goes on behind the last. The list is to be given back.
    pub(super) fn take_all(&mut self) -> Vec<Run> {
        self.next = self.runs.last().map_or(self.next, |last| last.end);
        core::mem::take(&mut self.runs)
    }

    /// Takes the memory of an emptied list of runs back.
    pub(super) fn give_back(&mut self, runs: Vec<Run>) {
        self.runs = runs;
    }

    /// Learns how long a hole took to fill: rising at half, falling at an eighth.
    pub(super) fn learn(&mut self, run: &Run, now_ns: u64) {
        self.learn_time(now_ns.saturating_sub(run.since_ns));
    }

    /// Learns how long a round trip takes.
    pub(super) fn learn_round_trip(&mut self, round_trip_ns: u64) {
        self.round_trip_ns = round_trip_ns.max(1);
    }

    /// Gives up what is missing before and between the runs.
    pub(super) fn give_up(&mut self, now_ns: u64) {
        let goes_on = self.runs.first().filter(|run| run.start == self.next);
        let first = goes_on.map_or(self.next, |run| run.end);
        let behind = self.runs.get(usize::from(goes_on.is_some()));
        let (Some(behind), Some(last)) = (behind, self.runs.last()) else { return };
        (self.lost, self.resume) = (first, last.start);
        self.missing_since_ns = behind.since_ns;
        self.given_up_ns = now_ns;
    }

    /// Notes a packet that was behind; whether there were enough in a row to show that the flow has gone back.
    pub(super) fn note_late(&mut self, span: &Span, reorder: &Reorder) -> bool {
        self.late += 1;
        if since(self.resume, self.lost) > 0 && since(span.end(), self.lost) > 0 {
            let took_ns = span.now_ns.saturating_sub(self.missing_since_ns);
            // What takes longer was retransmitted.
            if took_ns <= reorder.hole_ns() {
                self.learn_time(took_ns);
            }
            self.lost = span.end();
        }
        self.late >= LATE_MAX && self.runs.is_empty()
    }

    /// Forgets what was given up.
    pub(super) fn settle(&mut self) {
        self.lost = self.resume;
    }

    /// Finds the place of a packet.
    pub(super) fn standing(&self, span: &Span) -> Standing {
        let start = self.ahead(span.start);
        let end = start + i64::from(span.len);
        let is_build = self.phase == Phase::Build;
        if !is_build && end <= 0 {
            return Standing::Late;
        }
        let last = self.runs.last().map_or(0, |run| self.ahead(run.end));
        // Of numbers half the circle apart nobody knows which is ahead.
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

    /// Whether a packet is the next one of the flow, of which one came lately, nothing waits, and the phase is what it
    /// should be now.
    #[inline]
    pub(super) fn goes_on(&self, span: &Span, now_ns: u64, reorder: &Reorder) -> bool {
        let is_recent = now_ns.saturating_sub(self.seen_ns) < reorder.idle_ns;
        let is_next = self.runs.is_empty() && span.start == self.next && span.len > 0;
        is_recent
            && is_next
            && self.phase != Phase::Build
            && (self.is_quiet() || self.phase_now(now_ns, reorder) == self.phase)
    }

    /// Whether nothing of it waits, and nothing is missing.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.phase == Phase::Idle && self.runs.is_empty() && self.lost == self.resume
    }

    /// The phase of the flow now that packets came or left.
    pub(super) fn phase_now(&self, now_ns: u64, reorder: &Reorder) -> Phase {
        let is_missing = since(self.resume, self.lost) > 0;
        let is_recent = now_ns.saturating_sub(self.given_up_ns) < reorder.idle_ns;
        match (self.runs.is_empty(), self.phase) {
            (false, Phase::Build) => Phase::Build,
            (false, _) => Phase::Active,
            // Who never sends what was given up shall not be spared for ever.
            (true, _) if is_missing && is_recent => Phase::Recovery,
            (true, _) => Phase::Idle,
        }
    }

    /// Time at which packets that wait leave, and as what, if nothing else happens; trains are held for `hold_ns`.
    pub(super) fn due(&self, reorder: &Reorder, hold_ns: u64) -> Option<(u64, Release)> {
        let first = self.runs.first()?;
        // What leaves from here may still be held in a train.
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

    /// The list of runs, in whose memory others may wait when the flow is forgotten.
    pub(super) fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    /// Number of runs that wait.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Time for which a hole of this flow is waited for.
    fn hole_ns(&self, reorder: &Reorder) -> u64 {
        let most_ns = self.hole_ns_max(reorder);
        match self.fill_ns {
            0 => most_ns,
            fill_ns => fill_ns.saturating_mul(2).max(reorder.hole_ns_min).min(most_ns),
        }
    }

    /// The same at most. Where the time follows the flow, it stays below what the sender waits (P52).
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

    /// Distance by which a sequence number is ahead of the next, in serial arithmetic (RFC 9293 section 3.4).
    fn ahead(&self, sequence: u32) -> i64 {
        i64::from(since(sequence, self.next))
    }
}

fn since(sequence: u32, earlier: u32) -> i32 {
    sequence.wrapping_sub(earlier) as i32
}

/// Most runs that any bound allows.
pub(super) const RUNS_MAX: usize = 256;

/// This many packets in a row that are behind, and the flow is taken to have gone back: its sender sends everything
/// again, or its number was far ahead once by mistake.
const LATE_MAX: u32 = 16;
