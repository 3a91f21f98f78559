//! Pace of one flow: when its next packet is due, how long a superframe takes to fill up, and how many acknowledgments
//! the sender needs.

/// Parameters common to all flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    /// Maximum hold time of a train.
    pub(super) hold_ns_max: u64,
    /// Round-trip time to assume for flows without a measurement, or `None`.
    pub(super) round_trip_ns: Option<u64>,
}

/// Pace of a flow. Packets with the same arrival time, for example the packets of one poll, count as a single arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Arrival time of the latest packet.
    last_ns: u64,
    /// Average time between arrivals within a burst, in nanoseconds times [`WEIGHT`].
    gap: Option<u64>,
    /// Average payload per arrival, in bytes times [`WEIGHT`], excluding the last arrival of each burst.
    bytes: u64,
    /// Number of consecutive pauses so far.
    pauses: u8,
    /// Payload bytes of the current arrival counted so far.
    arriving: u64,
    /// Lowest reported round-trip time.
    round_trip_ns: Option<u64>,
    round: Round,
}

/// Amount of payload that arrives within one round trip.
#[derive(Clone, Copy, Debug)]
struct Round {
    since_ns: u64,
    bytes: u64,
    /// Payload bytes in the previous round.
    before: u64,
    /// Whether the previous round had more than 1.5 times the payload of the round before it.
    is_growing: bool,
}

impl Pace {
    /// Returns the pace of a flow whose first packet arrives now.
    pub(super) fn starting(now_ns: u64) -> Self {
        let round = Round { since_ns: now_ns, bytes: 0, before: 0, is_growing: true };
        let last_ns = now_ns;
        Self { last_ns, gap: None, bytes: 0, pauses: 0, arriving: 0, round_trip_ns: None, round }
    }

    /// Counts a packet. If it arrives more than the maximum hold time after the previous one, the interval is a pause.
    /// Pauses are excluded from the average gap; otherwise the average could exceed the hold time, and trains would not
    /// be held even within a burst.
    pub(super) fn arrive(&mut self, now_ns: u64, payload_len: usize, common: &Common) {
        let since_ns = now_ns.saturating_sub(self.last_ns);
        if since_ns >= FORGOTTEN_NS {
            let round_trip_ns = self.round_trip_ns;
            *self = Self { round_trip_ns, ..Self::starting(now_ns) };
        } else if since_ns > 0 {
            if since_ns > common.hold_ns_max {
                self.pauses = self.pauses.saturating_add(1);
            } else {
                self.pauses = 0;
                self.learn_gap(since_ns);
            }
            self.arriving = 0;
            self.last_ns = now_ns;
        }
        let payload_len = payload_len as u64;
        self.arriving += payload_len;
        let round_trip_ns = self.round_trip_ns(common).unwrap_or(LONG_PATH_NS);
        self.round.count(now_ns, payload_len, round_trip_ns);
    }

    /// Counts more packets that arrived at the same time as the latest packet.
    pub(super) fn arrive_more(&mut self, payload_bytes: usize) {
        let payload_bytes = payload_bytes as u64;
        self.arriving += payload_bytes;
        self.round.bytes = self.round.bytes.saturating_add(payload_bytes);
    }

    fn learn_gap(&mut self, gap_ns: u64) {
        let Some(gap) = self.gap else {
            (self.gap, self.bytes) = (Some(gap_ns.saturating_mul(WEIGHT)), self.arriving * WEIGHT);
            return;
        };
        self.gap = Some((gap - gap / WEIGHT).saturating_add(gap_ns));
        self.bytes = self.bytes - self.bytes / WEIGHT + self.arriving;
    }

    /// Records a measured round-trip time.
    pub(super) fn learn_round_trip(&mut self, round_trip_ns: u64) {
        let least = self.round_trip_ns.map_or(round_trip_ns, |known| known.min(round_trip_ns));
        self.round_trip_ns = Some(least.max(1));
    }

    /// Returns the time at which the next packet is due, which is one gap after the latest packet. Most packets arrive
    /// by that time. Returns `None` until a gap shorter than the hold time has been observed, and once the flow is
    /// idle.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let gap = self.gap.filter(|_| self.pauses < PAUSES_IDLE)?;
        Some(self.last_ns.saturating_add(gap / WEIGHT))
    }

    /// Returns the hold time of a train that starts now: at most the time that a superframe takes to fill up and, if
    /// the round-trip time is known, at most a sixteenth of it.
    pub(super) fn hold_ns(&self, common: &Common) -> u64 {
        let hold_ns_max = common.hold_ns_max;
        let most = match self.round_trip_ns(common) {
            Some(round_trip_ns) => hold_ns_max.min(round_trip_ns / ROUND_TRIP_SHARE),
            None => hold_ns_max,
        };
        let fill_ns = match self.gap {
            // One gap is added because the start of a burst is not aligned with a poll.
            Some(gap) if self.bytes > 0 => {
                (SUPERFRAME_BYTES.saturating_mul(gap) / self.bytes).saturating_add(gap / WEIGHT)
            }
            _ => most,
        };
        fill_ns.min(most).max(HOLD_NS_MIN).min(hold_ns_max)
    }

    /// Returns the maximum number of packets per TCP train at this payload length. The limit ensures that the sender
    /// gets enough acknowledgments.
    ///
    /// If the round-trip time is unknown, the minimum for a long path ([`LONG_PATH_NS`]) is assumed.
    pub(super) fn segments_max(&self, payload_len: u16, common: &Common) -> u16 {
        if self.round_trip_ns(common).is_some_and(|round_trip_ns| round_trip_ns < LONG_PATH_NS) {
            return SEGMENTS_MAX;
        }
        let in_flight = self.round.before / u64::from(payload_len.max(1));
        let share = (in_flight / ACKNOWLEDGMENTS_MIN).min(SEGMENTS_MAX.into()) as u16;
        // In slow start, more data will be in flight when this train is acknowledged, and every acknowledgment opens
        // the window.
        let share = if self.round.is_growing { share / 2 } else { share };
        share.max(SEGMENTS_MIN)
    }

    /// Returns whether the flow sends in bursts and its round-trip time is unknown.
    pub(super) fn is_blind(&self, common: &Common) -> bool {
        self.gap.is_some() && self.round_trip_ns(common).is_none()
    }

    fn round_trip_ns(&self, common: &Common) -> Option<u64> {
        self.round_trip_ns.or(common.round_trip_ns)
    }
}

impl Round {
    fn count(&mut self, now_ns: u64, payload_len: u64, round_trip_ns: u64) {
        if now_ns.saturating_sub(self.since_ns) >= round_trip_ns {
            let is_growing = self.bytes.saturating_mul(2) >= self.before.saturating_mul(3);
            *self = Self { since_ns: now_ns, bytes: 0, before: self.bytes, is_growing };
        }
        self.bytes = self.bytes.saturating_add(payload_len);
    }
}

/// Weight of all earlier arrivals in an average, relative to a new one. It is a power of two, so that division is a
/// shift.
const WEIGHT: u64 = 8;

/// Number of consecutive pauses after which a flow is idle. A single pause only separates two bursts.
const PAUSES_IDLE: u8 = 2;

/// Payload bytes of a full superframe.
const SUPERFRAME_BYTES: u64 = 64 * 1024;

/// Minimum hold time of a train in nanoseconds, roughly the transmission time of two 1500-byte packets at 10 Gb/s.
pub const HOLD_NS_MIN: u64 = 2_000;

/// Divisor that gives the maximum hold time of a train from the round-trip time.
const ROUND_TRIP_SHARE: u64 = 16;

/// Minimum round-trip time in nanoseconds that makes a path long. On a long path, the length of trains is limited so
/// that the sender still gets enough acknowledgments. On a shorter path, the bandwidth-delay product is only a few
/// dozen packets, and the limit would reduce throughput.
pub const LONG_PATH_NS: u64 = 1_000_000;

/// Number of acknowledgments that a sender needs per round trip. The receiver sends one for each train.
const ACKNOWLEDGMENTS_MIN: u64 = 16;

/// Lowest packet limit per train that the controller sets.
pub const SEGMENTS_MIN: u16 = 2;

/// Highest packet limit per train that the controller sets. This many packets fill a 64 KB superframe.
pub const SEGMENTS_MAX: u16 = 44;

/// Pause in nanoseconds after which a flow's state is reset, except for its round-trip time.
const FORGOTTEN_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::{Common, HOLD_NS_MIN, LONG_PATH_NS, Pace, SEGMENTS_MAX, SEGMENTS_MIN};

    const PAYLOAD: usize = 1448;
    const HOLD_NS_MAX: u64 = 100_000;
    const COMMON: Common = Common { hold_ns_max: HOLD_NS_MAX, round_trip_ns: None };

    /// Returns the pace of a flow after `count` packets that arrive `gap_ns` apart.
    fn steady(count: u64, gap_ns: u64) -> Pace {
        let mut pace = Pace::starting(0);
        (0..count).for_each(|i| pace.arrive(i * gap_ns, PAYLOAD, &COMMON));
        pace
    }

    #[test]
    fn the_next_packet_is_due_after_a_gap() {
        assert_eq!(steady(1, 1000).next_ns(), None, "one packet does not predict the next");
        assert_eq!(steady(2, 1000).next_ns(), Some(1000 + 1000));
        assert_eq!(steady(100, 1200).next_ns(), Some(99 * 1200 + 1200));
    }

    #[test]
    fn packets_of_one_instant_are_one_arrival() {
        let mut pace = Pace::starting(0);
        for poll in 0..40 {
            (0..32).for_each(|_| pace.arrive(poll * 40_000, PAYLOAD, &COMMON));
        }
        assert_eq!(pace.next_ns(), Some(40 * 40_000));
        // At 32 packets per 40 us, 64 KiB take 56 us. The 40 us between two polls come on top.
        assert_eq!(pace.hold_ns(&COMMON) / 1000, 56 + 40);
    }

    #[test]
    fn one_pause_does_not_end_a_burst_and_two_do() {
        let mut pace = steady(50, 1200);
        pace.arrive(10_000_000, PAYLOAD, &COMMON);
        assert_eq!(pace.next_ns(), Some(10_000_000 + 1200));
        pace.arrive(20_000_000, PAYLOAD, &COMMON);
        assert_eq!(pace.next_ns(), None);
        pace.arrive(20_001_200, PAYLOAD, &COMMON);
        assert_eq!(pace.next_ns(), Some(20_001_200 + 1200));
        assert_eq!(steady(50, 1_000_000).next_ns(), None);
    }

    #[test]
    fn a_flow_that_was_silent_for_long_starts_anew() {
        let mut pace = steady(50, 1200);
        pace.learn_round_trip(5_000_000);
        pace.arrive(200_000_000, PAYLOAD, &COMMON);
        assert_eq!(pace.next_ns(), None);
        assert_eq!(pace.round_trip_ns, Some(5_000_000));
    }

    #[test]
    fn a_train_is_held_while_it_fills_within_bounds() {
        // At 1448 bytes per 1200 ns, this is how long 64 KiB take, plus one gap.
        assert_eq!(steady(1000, 1200).hold_ns(&COMMON), 65536 * 1200 / 1448 + 1200);
        assert_eq!(steady(1000, 12_000).hold_ns(&COMMON), HOLD_NS_MAX);
        assert_eq!(steady(1000, 12).hold_ns(&COMMON), HOLD_NS_MIN);
        let short = Common { hold_ns_max: 500, ..COMMON };
        assert_eq!(
            steady(1000, 12).hold_ns(&short),
            500,
            "the configured maximum takes precedence"
        );
        assert_eq!(
            steady(1, 0).hold_ns(&COMMON),
            HOLD_NS_MAX,
            "an unknown pace counts as that of a LAN"
        );
    }

    #[test]
    fn a_train_is_held_a_sixteenth_of_the_round_trip() {
        let held = |round_trip_ns| {
            let mut pace = steady(1000, 12_000);
            pace.learn_round_trip(round_trip_ns);
            pace.hold_ns(&COMMON)
        };
        assert_eq!(held(160_000), 10_000);
        assert_eq!(held(16_000), HOLD_NS_MIN);
        assert_eq!(held(100_000_000), HOLD_NS_MAX);
        assert_eq!(held(0), HOLD_NS_MIN);
    }

    #[test]
    fn the_least_round_trip_counts() {
        let mut pace = steady(2, 1000);
        [300, 200, 400].into_iter().for_each(|told| pace.learn_round_trip(told));
        assert_eq!(pace.round_trip_ns, Some(200));
    }

    /// Returns the pace of a flow with these packet counts in consecutive rounds of 10 ms.
    fn rounds(packets: &[u64]) -> Pace {
        let mut pace = Pace::starting(0);
        pace.learn_round_trip(10_000_000);
        // The last packet starts one more round, which ends the previous round.
        for (round, &count) in (0..).zip(packets.iter().chain(&[1])) {
            (0..count).for_each(|i| pace.arrive(round * 10_000_000 + i, PAYLOAD, &COMMON));
        }
        pace
    }

    #[test]
    fn trains_of_a_long_path_leave_sixteen_acknowledgments_a_round_trip() {
        let cap = |packets: &[u64]| rounds(packets).segments_max(PAYLOAD as u16, &COMMON);
        assert_eq!(cap(&[160, 160, 160]), 10);
        assert_eq!(cap(&[860, 860, 860]), SEGMENTS_MAX, "1 Gb/s and 10 ms");
        assert_eq!(cap(&[10, 10]), SEGMENTS_MIN);
        // Each round has twice as many packets as the previous one, as in slow start.
        assert_eq!(cap(&[80, 160, 320]), 320 / 16 / 2);
        assert_eq!(cap(&[80, 160, 320, 320]), 320 / 16);
        assert_eq!(cap(&[320, 479]), 479 / 16, "less than one and a half times the previous round");
        assert_eq!(cap(&[320, 480]), 480 / 16 / 2);
    }

    #[test]
    fn the_estimate_of_all_paths_applies_until_one_is_measured() {
        let common = Common { round_trip_ns: Some(160_000), ..COMMON };
        let mut pace = steady(1000, 12_000);
        assert!(pace.is_blind(&COMMON) && !pace.is_blind(&common));
        assert!(!steady(1, 0).is_blind(&COMMON), "one packet is not a burst");
        assert_eq!(pace.segments_max(PAYLOAD as u16, &common), SEGMENTS_MAX);
        assert_eq!(pace.hold_ns(&common), 10_000);
        // The measured round-trip time is longer than the configured one and takes precedence.
        pace.learn_round_trip(10_000_000);
        assert_eq!(
            pace.segments_max(PAYLOAD as u16, &common),
            83 / 16,
            "83 packets per round trip"
        );
        assert_eq!(pace.hold_ns(&common), HOLD_NS_MAX);
        assert!(!pace.is_blind(&COMMON));
    }

    #[test]
    fn only_a_path_that_is_known_to_be_short_has_no_clock_to_keep() {
        let cap = |round_trip_ns: Option<u64>| {
            let mut pace = steady(2, 1000);
            round_trip_ns.into_iter().for_each(|told| pace.learn_round_trip(told));
            pace.segments_max(PAYLOAD as u16, &COMMON)
        };
        assert_eq!(cap(Some(LONG_PATH_NS - 1)), SEGMENTS_MAX);
        assert_eq!(cap(Some(LONG_PATH_NS)), SEGMENTS_MIN);
        assert_eq!(cap(None), SEGMENTS_MIN);
    }
}
