//! Repair of reordering, and the bounds of it.

/// Repair of reordering, and the bounds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reorder {
    /// Time for which what is ahead may wait.
    pub level: Level,
    /// With [`Level::Holes`], how long nothing may leave of a flow that waits for a hole to fill, in nanoseconds, at
    /// most. No packet waits longer than twice that, however many holes there are.
    ///
    /// It must stay below the sender's timers of loss: a sender with RACK waits for a quarter of its shortest
    /// round trip (RFC 8985 section 6.2). Packets that took two paths want 2.5 to 6 times the difference of the paths.
    pub hole_ns_max: u64,
    /// The same at least: in between, each flow has twice the time that its holes took to fill lately, and no more than
    /// an eighth of its round trip if that was [told](crate::Coalescer::learn_round_trip). Where both are the same, the
    /// time is fixed.
    pub hole_ns_min: u64,
    /// The shortest round trip of the connections in nanoseconds, or 0 if it is not known: no hole is waited for
    /// longer than an eighth of it (P52). Controlled holds take it for that of flows of which none was measured.
    pub round_trip_ns: u64,
    /// Flows remembered, at most 4096. No more than 8 were ever seen to wait at once behind
    /// 10 Gb/s; the rest remember where their flow goes on. A flow that is not remembered begins anew, which costs it
    /// one hold and no train.
    pub flows: usize,
    /// Runs that wait of one flow, at most 256: what tiny segments out of order can cost (SegmentSmack). Two paths
    /// that take turns packet by packet make a run of every other one: 64 runs are 150 us of 10 Gb/s.
    pub flow_runs: usize,
    /// Memory that waits of one flow, in bytes, by the size of its buffers (P33).
    pub flow_bytes: usize,
    /// Memory that waits of all flows, in bytes.
    pub queue_bytes: usize,
    /// Least memory that a buffer takes, in bytes, however little of it is filled.
    pub buffer_bytes: usize,
    /// Time for which a flow is remembered of which nothing comes, in nanoseconds.
    pub idle_ns: u64,
}

/// Time for which what is ahead of its flow may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Not at all.
    Off,
    /// Until the end of the poll, which is no time at all. Together with [`Limits::hold_ns`] trains go on behind it.
    ///
    /// [`Limits::hold_ns`]: crate::coalesce::Limits::hold_ns
    Batch,
    /// Until the hole fills, or [`Reorder::hole_ns_max`] is over.
    Holes,
}

impl Reorder {
    /// Reordering is left as it is.
    pub const OFF: Self = Self {
        level: Level::Off,
        hole_ns_max: 100_000,
        hole_ns_min: 100_000,
        round_trip_ns: 0,
        flows: 256,
        flow_runs: 64,
        flow_bytes: 256 << 10,
        queue_bytes: 8 << 20,
        buffer_bytes: 0,
        idle_ns: 100_000_000,
    };

    /// Packets of one poll are put in order, which delays nothing.
    pub const WITHIN_BATCH: Self = Self { level: Level::Batch, ..Self::OFF };

    /// A packet that is ahead waits for this many nanoseconds until the hole before it fills.
    #[must_use]
    pub const fn holes(hole_ns: u64) -> Self {
        Self { level: Level::Holes, hole_ns_max: hole_ns, hole_ns_min: hole_ns, ..Self::OFF }
    }

    /// As [`Self::holes`], where the time follows what the holes of each flow took, between these nanoseconds.
    #[must_use]
    pub const fn adaptive(hole_ns_min: u64, hole_ns_max: u64) -> Self {
        Self { hole_ns_min, ..Self::holes(hole_ns_max) }
    }

    /// Whether the time of a hole follows its flow.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.level == Level::Holes && self.hole_ns_min < self.hole_ns_max
    }

    /// Time for which a hole may be waited for, in nanoseconds; none within a batch.
    #[must_use]
    pub fn hole_ns(&self) -> u64 {
        match (self.level, self.round_trip_ns) {
            (Level::Off | Level::Batch, _) => 0,
            (Level::Holes, 0) => self.hole_ns_max,
            (Level::Holes, round_trip_ns) => self.hole_ns_max.min(round_trip_ns / 8),
        }
    }

    /// Time for which a packet may be delayed in all, in nanoseconds, where trains are held no longer than that.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.hole_ns().saturating_mul(2)
    }
}

impl Default for Reorder {
    fn default() -> Self {
        Self::OFF
    }
}
