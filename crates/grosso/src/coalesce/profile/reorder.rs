//! Reordering repair and its limits.

/// Repair of reordering, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reorder {
    /// Whether packets wait for an earlier packet, and for how long.
    pub level: Level,
    /// Maximum time in nanoseconds to wait for a hole in a flow to be filled ([`Level::Holes`] only). No packet waits
    /// longer than twice this time, however many holes there are.
    ///
    /// Keep this time below the sender's loss timers: RACK waits for a quarter of the minimum round-trip time (RFC 8985
    /// section 6.2). If packets alternate between two paths, this time must be 2.5 to 6 times the difference in path
    /// delay.
    pub hole_ns_max: u64,
    /// Minimum time in nanoseconds to wait for a hole. Between the minimum and the maximum, each flow waits twice as
    /// long as its recent holes took to be filled, but at most an eighth of its round-trip time if that was
    /// [reported](crate::Coalescer::learn_round_trip). If minimum and maximum are equal, the time is fixed.
    pub hole_ns_min: u64,
    /// Minimum round-trip time of all connections in nanoseconds, or 0 if it is unknown. The wait for a hole is at most
    /// an eighth of it (P52). [`Hold::Controlled`](super::Hold::Controlled) also uses it for flows without a
    /// measurement.
    pub round_trip_ns: u64,
    /// Maximum number of tracked flows, at most 4096. At 10 Gb/s, at most 8 flows were seen waiting at the same time;
    /// the other entries only store a flow's next sequence number. After an eviction, tracking of the flow starts over,
    /// which costs one hold time but prevents no merge.
    pub flows: usize,
    /// Maximum number of runs of contiguous segments queued per flow, at most 256. It limits the cost of tiny segments
    /// that arrive out of order (SegmentSmack). If packets alternate between two paths, every other packet forms a run:
    /// 64 runs cover 150 us at 10 Gb/s.
    pub flow_runs: usize,
    /// Maximum memory of the packets queued per flow in bytes, counted by buffer size (P33).
    pub flow_bytes: usize,
    /// Maximum memory of the packets queued for all flows in bytes.
    pub queue_bytes: usize,
    /// Minimum memory in bytes that each buffer counts as, even if the packet is shorter.
    pub buffer_bytes: usize,
    /// Time in nanoseconds after which an idle flow is forgotten.
    pub idle_ns: u64,
}

/// Time that packets may wait for an earlier packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// No waiting: reordering is not repaired.
    Off,
    /// Packets wait until the end of the poll, which adds no delay. With [`Limits::hold_ns`], trains continue across
    /// polls.
    ///
    /// [`Limits::hold_ns`]: crate::coalesce::Limits::hold_ns
    Batch,
    /// Packets wait until the hole is filled or [`Reorder::hole_ns_max`] has passed.
    Holes,
}

impl Reorder {
    /// Settings without reordering repair.
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

    /// Settings that sort the packets within each poll, which adds no delay.
    pub const WITHIN_BATCH: Self = Self { level: Level::Batch, ..Self::OFF };

    /// Returns settings that wait at most `hole_ns` nanoseconds for a hole to be filled.
    #[must_use]
    pub const fn holes(hole_ns: u64) -> Self {
        Self { level: Level::Holes, hole_ns_max: hole_ns, hole_ns_min: hole_ns, ..Self::OFF }
    }

    /// Returns settings that wait between `hole_ns_min` and `hole_ns_max` nanoseconds for a hole to be filled,
    /// depending on how long the flow's recent holes took.
    #[must_use]
    pub const fn adaptive(hole_ns_min: u64, hole_ns_max: u64) -> Self {
        Self { hole_ns_min, ..Self::holes(hole_ns_max) }
    }

    /// Returns whether the waiting time adapts to each flow.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.level == Level::Holes && self.hole_ns_min < self.hole_ns_max
    }

    /// Returns the maximum waiting time for a hole in nanoseconds, or 0 if packets never wait beyond the end of the
    /// poll.
    #[must_use]
    pub fn hole_ns(&self) -> u64 {
        match (self.level, self.round_trip_ns) {
            (Level::Off | Level::Batch, _) => 0,
            (Level::Holes, 0) => self.hole_ns_max,
            (Level::Holes, round_trip_ns) => self.hole_ns_max.min(round_trip_ns / 8),
        }
    }

    /// Returns the maximum delay of a packet in nanoseconds, including its time in a held train. The delay exceeds this
    /// value only if the hold time of trains does.
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
