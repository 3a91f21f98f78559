//! Repair of reordering, and its bounds.

/// Repair of reordering, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reorder {
    /// Time that packets may wait for an earlier one.
    pub level: Level,
    /// Maximum time in nanoseconds to wait for a hole in a flow with [`Level::Holes`]. No packet waits longer than
    /// twice this time, regardless of the number of holes.
    ///
    /// Keep this time below the sender's loss timers: RACK waits for a quarter of the minimum round-trip time (RFC 8985
    /// section 6.2). If packets alternate between two paths, this time must be 2.5 to 6 times the difference in path
    /// delay.
    pub hole_ns_max: u64,
    /// Minimum time in nanoseconds to wait for a hole. Between the bounds, each flow waits twice as long as its recent
    /// holes took to fill, and at most an eighth of its round-trip time if
    /// [reported](crate::Coalescer::learn_round_trip). Equal bounds give a fixed time.
    pub hole_ns_min: u64,
    /// Minimum round-trip time of all connections in nanoseconds, or 0 if unknown. The wait for a hole is at most an
    /// eighth of this time (P52). Controlled holds use it for flows without a measurement.
    pub round_trip_ns: u64,
    /// Maximum number of tracked flows, at most 4096. At 10 Gb/s, at most 8 flows were observed waiting at once; the
    /// other entries store the next sequence number of their flows. An evicted flow starts over, which costs one hold
    /// time and no merge.
    pub flows: usize,
    /// Maximum number of runs of contiguous segments queued per flow, at most 256. It limits the cost of tiny segments
    /// that arrive out of order (SegmentSmack). Two paths that alternate per packet create a run for every other
    /// packet: 64 runs cover 150 us at 10 Gb/s.
    pub flow_runs: usize,
    /// Maximum memory of queued packets per flow in bytes, counted by buffer size (P33).
    pub flow_bytes: usize,
    /// Maximum memory of the queued packets of all flows in bytes.
    pub queue_bytes: usize,
    /// Minimum memory in bytes that each buffer counts as, even if the packet is shorter.
    pub buffer_bytes: usize,
    /// Time in nanoseconds after which an idle flow is forgotten.
    pub idle_ns: u64,
}

/// Time that packets may wait for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// No repair of reordering.
    Off,
    /// Until the end of the poll, which adds no delay. With [`Limits::hold_ns`], trains continue across the polls.
    ///
    /// [`Limits::hold_ns`]: crate::coalesce::Limits::hold_ns
    Batch,
    /// Until the hole fills, or [`Reorder::hole_ns_max`] has passed.
    Holes,
}

impl Reorder {
    /// No repair of reordering.
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

    /// Sorting of the packets of one poll, which adds no delay.
    pub const WITHIN_BATCH: Self = Self { level: Level::Batch, ..Self::OFF };

    /// Waits at most `hole_ns` nanoseconds for a hole to fill.
    #[must_use]
    pub const fn holes(hole_ns: u64) -> Self {
        Self { level: Level::Holes, hole_ns_max: hole_ns, hole_ns_min: hole_ns, ..Self::OFF }
    }

    /// Waits for a hole between `hole_ns_min` and `hole_ns_max` nanoseconds, depending on how long recent holes of the
    /// flow took to fill.
    #[must_use]
    pub const fn adaptive(hole_ns_min: u64, hole_ns_max: u64) -> Self {
        Self { hole_ns_min, ..Self::holes(hole_ns_max) }
    }

    /// Returns whether the waiting time adapts to each flow.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.level == Level::Holes && self.hole_ns_min < self.hole_ns_max
    }

    /// Returns the maximum waiting time for a hole in nanoseconds; 0 within a batch.
    #[must_use]
    pub fn hole_ns(&self) -> u64 {
        match (self.level, self.round_trip_ns) {
            (Level::Off | Level::Batch, _) => 0,
            (Level::Holes, 0) => self.hole_ns_max,
            (Level::Holes, round_trip_ns) => self.hole_ns_max.min(round_trip_ns / 8),
        }
    }

    /// Returns the maximum delay of a packet in nanoseconds, if trains are not held longer than that.
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
