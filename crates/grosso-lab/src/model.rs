//! A deterministic model of a sender's congestion control, which shows the effect of a sequence of acknowledgments.

use grosso::acknowledge::{Record, Summary};
use grosso_wire::tcp;

/// Way in which a sender counts acknowledgments to increase its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counting {
    /// Each acknowledgment of new data counts as one segment or, in congestion avoidance, as a fraction of one (RFC
    /// 5681 section 3.1).
    Packets,
    /// Acknowledged bytes count, up to `limit` segments per packet: appropriate byte counting (RFC 3465).
    Bytes {
        /// The limit L from RFC 3465 section 2.3, in segments.
        limit: u32,
    },
}

/// Fields of an acknowledgment that the model uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgment {
    /// Acknowledgment number.
    pub number: u32,
    /// Window as sent, before scaling.
    pub window: u16,
    /// Timestamp echo in milliseconds of the sender's clock.
    pub echo: Option<u32>,
    /// Whether the ECE flag is set.
    pub congestion_echo: bool,
    /// Whether the acknowledgment has payload.
    pub has_payload: bool,
    /// Time of arrival in nanoseconds.
    pub arrived_ns: u64,
}

impl From<&Record> for Acknowledgment {
    fn from(record: &Record) -> Self {
        Self {
            number: record.acknowledgment,
            window: record.window,
            echo: record.timestamps().map(|(_, echo)| echo),
            congestion_echo: record.has(tcp::ECE),
            has_payload: false,
            arrived_ns: record.arrived_ns,
        }
    }
}

/// A sender that always has data to send. It uses Reno with NewReno recovery (RFC 5681, RFC 6582) and ECN (RFC 3168).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    counting: Counting,
    /// Number of payload bytes in a segment.
    segment: u64,
    /// The congestion window in bytes.
    pub congestion_window: u64,
    /// The slow start threshold in bytes.
    pub slow_start_threshold: u64,
    /// Number of bytes acknowledged since the window last grew in congestion avoidance or, if packets are counted, the
    /// fraction of a byte that is left over.
    counted: u64,
    /// Sequence number of the first unacknowledged byte.
    pub unacknowledged: u32,
    /// Sequence number of the next byte to send; after a timeout, this byte is a retransmission.
    pub next: u32,
    /// Sequence number of the first byte that has never been sent.
    highest: u32,
    /// Number of bytes that the receiver can accept, which limits the data in flight; [`u64::MAX`] by default.
    pub room: u64,
    /// Window in the latest acknowledgment, unscaled.
    pub window: u16,
    /// Number of duplicate acknowledgments since the last acknowledgment of new data.
    pub duplicates: u32,
    /// Total number of duplicate acknowledgments.
    pub duplicates_total: u32,
    /// Number of segments retransmitted because of duplicate or partial acknowledgments.
    pub retransmits: u32,
    /// Sequence number at which the current recovery ends.
    recovery: Option<u32>,
    /// Sequence number up to which duplicates do not signal a loss, because they are the result of a timeout.
    timed_out_until: Option<u32>,
    /// Number of acknowledgments with ECE.
    pub congestion_echoes: u32,
    /// Sequence number up to which further congestion echoes do not reduce the window again.
    reduced_until: Option<u32>,
    /// Round-trip times in milliseconds, one for each acknowledgment of new data.
    pub round_trips_ms: Vec<u32>,
}

impl Sender {
    /// Creates a sender in slow start with a window of ten segments (RFC 6928) of `segment` bytes each. `first` is the
    /// first sequence number.
    #[must_use]
    pub fn new(counting: Counting, segment: u32, first: u32) -> Self {
        let segment = u64::from(segment.max(1));
        let mut sender = Self {
            counting,
            segment,
            congestion_window: SEGMENTS_FIRST * segment,
            slow_start_threshold: u64::MAX,
            counted: 0,
            unacknowledged: first,
            next: first,
            highest: first,
            room: u64::MAX,
            window: 0,
            duplicates: 0,
            duplicates_total: 0,
            retransmits: 0,
            recovery: None,
            timed_out_until: None,
            congestion_echoes: 0,
            reduced_until: None,
            round_trips_ms: Vec::new(),
        };
        sender.send();
        sender
    }

    /// Processes an acknowledgment.
    pub fn acknowledge(&mut self, packet: &Acknowledgment) {
        self.acknowledge_as(packet, 1);
    }

    /// Processes an acknowledgment that replaces `packets` acknowledgments.
    pub(crate) fn acknowledge_as(&mut self, packet: &Acknowledgment, packets: u64) {
        self.congestion_echoes += u32::from(packet.congestion_echo);
        let acknowledged = distance(self.unacknowledged, packet.number);
        let is_known = distance(packet.number, self.highest) >= 0;
        if acknowledged > 0 && is_known {
            if let Some(echo) = packet.echo {
                let now_ms = (packet.arrived_ns / NS_A_MS) as u32;
                self.round_trips_ms.push(now_ms.wrapping_sub(echo));
            }
            self.advance(packet.number, acknowledged as u64, packets);
        } else if acknowledged == 0
            && !packet.has_payload
            && packet.window == self.window
            && self.unacknowledged != self.next
        {
            self.repeat();
        }
        self.window = packet.window;
        if packet.congestion_echo {
            self.reduce();
        }
        self.send();
    }

    /// Processes several acknowledgments that were merged into one with a count. They are handled as one acknowledgment
    /// that has the last number and represents that many packets (RFC 3465 section 2.3). If there is no count, call
    /// [`Self::acknowledge`].
    pub fn acknowledge_merged(&mut self, summary: &Summary) {
        self.congestion_echoes += summary.congestion_echoes;
        let acknowledged = distance(self.unacknowledged, summary.last);
        if acknowledged > 0 && distance(summary.last, self.highest) >= 0 {
            if let Some(timestamps) = summary.timestamps {
                let now_ms = (summary.last_arrived_ns / NS_A_MS) as u32;
                self.round_trips_ms.push(now_ms.wrapping_sub(timestamps.echo_latest));
            }
            self.advance(summary.last, acknowledged as u64, u64::from(summary.packets));
        }
        for _ in 0..summary.duplicates {
            self.repeat();
        }
        self.window = summary.window;
        if summary.congestion_echoes > 0 {
            self.reduce();
        }
        self.send();
    }

    /// Handles a retransmission timeout: all unacknowledged data is retransmitted, in slow start from one segment (RFC
    /// 5681 section 3.1).
    pub fn time_out(&mut self) {
        self.slow_start_threshold = (self.flight() / 2).max(2 * self.segment);
        self.congestion_window = self.segment;
        (self.duplicates, self.counted, self.recovery) = (0, 0, None);
        self.timed_out_until = Some(self.highest);
        self.next = self.unacknowledged;
        self.send();
    }

    /// Returns the number of bytes in flight, which the congestion window limits.
    #[must_use]
    pub fn flight(&self) -> u64 {
        u64::from(self.next.wrapping_sub(self.unacknowledged))
    }

    /// Returns whether the window grows with every acknowledgment rather than once per round trip.
    #[must_use]
    pub fn is_in_slow_start(&self) -> bool {
        self.congestion_window < self.slow_start_threshold
    }

    /// Processes new data: `bytes` bytes that `packets` packets acknowledge for the first time.
    fn advance(&mut self, number: u32, bytes: u64, packets: u64) {
        let is_used = self.congestion_window < 2 * self.flight();
        self.unacknowledged = number;
        // Segments that were to be retransmitted after a timeout may have arrived after all.
        if distance(self.next, number) > 0 {
            self.next = number;
        }
        self.duplicates = 0;
        match self.recovery {
            // The next missing segment is retransmitted immediately (RFC 6582 section 3.2 step 3).
            Some(recovery) if distance(number, recovery) > 0 => {
                self.retransmits += 1;
                let deflated = self.congestion_window.saturating_sub(bytes) + self.segment;
                self.congestion_window = deflated.max(self.segment);
            }
            Some(_) => {
                self.recovery = None;
                self.congestion_window = self.slow_start_threshold;
            }
            // If less than half of the window was used, its size proves nothing about the path (RFC 7661).
            None if is_used => self.grow(bytes, packets),
            None => {}
        }
    }

    fn grow(&mut self, bytes: u64, packets: u64) {
        match self.counting {
            Counting::Packets if self.is_in_slow_start() => {
                self.congestion_window += packets * self.segment;
            }
            Counting::Packets => {
                for _ in 0..packets {
                    // Fractions of a byte are kept for the next acknowledgment.
                    self.counted += self.segment * self.segment;
                    let share = self.counted / self.congestion_window;
                    self.counted %= self.congestion_window;
                    self.congestion_window += share;
                }
            }
            Counting::Bytes { limit } => {
                let counted = bytes.min(packets * u64::from(limit) * self.segment);
                if self.is_in_slow_start() {
                    self.congestion_window += counted;
                    return;
                }
                self.counted += counted;
                if self.counted >= self.congestion_window {
                    self.counted -= self.congestion_window;
                    self.congestion_window += self.segment;
                }
            }
        }
    }

    /// Counts a duplicate acknowledgment; the third one signals a loss (RFC 5681 section 3.2).
    fn repeat(&mut self) {
        self.duplicates += 1;
        self.duplicates_total += 1;
        // Segments that arrive twice cause duplicate acknowledgments as well (RFC 6582 section 4).
        if self.timed_out_until.is_some_and(|until| distance(self.unacknowledged, until) > 0) {
            return;
        }
        if self.recovery.is_some() {
            self.congestion_window += self.segment;
        } else if self.duplicates == DUPLICATES_OF_A_LOSS {
            self.slow_start_threshold = (self.flight() / 2).max(2 * self.segment);
            self.congestion_window =
                self.slow_start_threshold + u64::from(DUPLICATES_OF_A_LOSS) * self.segment;
            self.recovery = Some(self.highest);
            self.retransmits += 1;
        }
    }

    /// Halves the window because of a congestion echo, at most once per round trip (RFC 3168 section 6.1.2).
    fn reduce(&mut self) {
        let is_answered =
            self.reduced_until.is_some_and(|until| distance(self.unacknowledged, until) > 0);
        if is_answered || self.recovery.is_some() {
            return;
        }
        self.slow_start_threshold = (self.congestion_window / 2).max(2 * self.segment);
        self.congestion_window = self.slow_start_threshold;
        self.reduced_until = Some(self.next);
    }

    /// Sends as much as the windows allow. Sends old data again only after a timeout.
    fn send(&mut self) {
        let window = self.congestion_window.min(self.room).min(FLIGHT_BYTES_MAX);
        let allowed = window.max(self.flight());
        self.next = self.unacknowledged.wrapping_add(allowed as u32);
        if distance(self.highest, self.next) > 0 {
            self.highest = self.next;
        }
    }
}

/// Returns the distance from one sequence number to another in serial arithmetic (RFC 9293 section 3.4).
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Number of segments in the initial window (RFC 6928 section 2).
const SEGMENTS_FIRST: u64 = 10;
/// Number of duplicate acknowledgments that signal a loss (RFC 5681 section 3.2).
const DUPLICATES_OF_A_LOSS: u32 = 3;
/// The largest window that TCP can advertise (RFC 7323 section 2.3).
const FLIGHT_BYTES_MAX: u64 = 1 << 30;
const NS_A_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1000;

    fn sender() -> Sender {
        Sender::new(Counting::Bytes { limit: 2 }, SEGMENT, 0)
    }

    fn acknowledge(sender: &mut Sender, number: u32) {
        sender.acknowledge(&Acknowledgment { number, ..Acknowledgment::default() });
    }

    #[test]
    fn a_timeout_sends_everything_again_from_one_segment_and_takes_what_arrived() {
        let mut sender = sender();
        sender.time_out();
        assert_eq!((sender.next, sender.slow_start_threshold), (SEGMENT, 5 * 1000));
        // Only the first segment was lost, so the data after it is acknowledged without another retransmission.
        acknowledge(&mut sender, 10 * SEGMENT);
        assert_eq!((sender.unacknowledged, sender.flight()), (10 * SEGMENT, 3 * 1000));
        assert_eq!(sender.retransmits, 0);
    }

    #[test]
    fn duplicates_of_what_is_sent_again_signal_no_loss() {
        let mut sender = sender();
        sender.time_out();
        acknowledge(&mut sender, SEGMENT);
        (0..5).for_each(|_| acknowledge(&mut sender, SEGMENT));
        assert_eq!((sender.retransmits, sender.duplicates_total), (0, 5));
        acknowledge(&mut sender, 10 * SEGMENT);
        (0..3).for_each(|_| acknowledge(&mut sender, 10 * SEGMENT));
        assert_eq!(sender.retransmits, 1, "more bytes cause a retransmission");
    }

    #[test]
    fn no_more_is_in_flight_than_there_is_room_for_and_a_window_without_use_stays() {
        let mut sender = sender();
        sender.room = 12 * 1000;
        for number in 1..=100 {
            acknowledge(&mut sender, number * SEGMENT);
            assert!(sender.flight() <= 12 * 1000, "{}", sender.flight());
        }
        assert_eq!(sender.congestion_window, 24 * 1000);
    }
}
