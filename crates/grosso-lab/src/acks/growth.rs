//! A model of how a sender's window grows when acknowledgments arrive one by one, merged, or merged with a count.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::{Acknowledgment, Counting, Sender};

/// Growth of a sender's window if the receiver acknowledges every second segment and a stage in between replaces
/// several acknowledgments with the last one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Growth {
    /// The way in which the sender counts acknowledgments.
    pub counting: Counting,
    /// Number of acknowledgments that are merged into one.
    pub merged: usize,
    /// Whether the sender knows the number of merged acknowledgments.
    pub is_counted: bool,
    /// Number of round trips that slow start needs to grow from 10 to 860 segments, which is the number in flight at 10
    /// Gb/s with a round-trip time of one millisecond.
    pub slow_start_round_trips: u32,
    /// Growth of the window in segments during 100 round trips of congestion avoidance.
    pub avoidance_segments: u64,
}

impl Growth {
    /// Returns all rows of the table.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for counting in COUNTINGS {
            for merged in MERGED {
                all.push(Self::of(counting, merged, false));
                if merged > 1 {
                    all.push(Self::of(counting, merged, true));
                }
            }
        }
        all
    }

    fn of(counting: Counting, merged: usize, is_counted: bool) -> Self {
        let mut sender = Sender::new(counting, SEGMENT, 0);
        let mut slow_start_round_trips = 0;
        while sender.congestion_window < SEGMENTS_WANTED * u64::from(SEGMENT) {
            round_trip(&mut sender, merged, is_counted);
            slow_start_round_trips += 1;
        }
        sender.slow_start_threshold = sender.congestion_window;
        let before = sender.congestion_window;
        for _ in 0..AVOIDANCE_ROUND_TRIPS {
            round_trip(&mut sender, merged, is_counted);
        }
        let gained = sender.congestion_window - before;
        let avoidance_segments = gained / u64::from(SEGMENT);
        Self { counting, merged, is_counted, slow_start_round_trips, avoidance_segments }
    }
}

/// Delivers everything in flight, with one acknowledgment for every two segments.
fn round_trip(sender: &mut Sender, merged: usize, is_counted: bool) {
    let (first, flight) = (sender.unacknowledged, sender.flight());
    let segments = flight.div_ceil(u64::from(SEGMENT));
    let acknowledgments = segments.div_ceil(SEGMENTS_AN_ACKNOWLEDGMENT);
    let mut taken = 0;
    while taken < acknowledgments {
        let packets = (acknowledgments - taken).min(merged as u64);
        taken += packets;
        let bytes = (taken * SEGMENTS_AN_ACKNOWLEDGMENT * u64::from(SEGMENT)).min(flight);
        let last = Acknowledgment {
            number: first.wrapping_add(bytes as u32),
            window: u16::MAX,
            ..Acknowledgment::default()
        };
        sender.acknowledge_as(&last, if is_counted { packets } else { 1 });
    }
}

/// The sender's ways of counting: the older method, which counts packets, and byte counting with both limits from RFC
/// 3465.
const COUNTINGS: [Counting; 3] =
    [Counting::Packets, Counting::Bytes { limit: 1 }, Counting::Bytes { limit: 2 }];
/// Numbers of acknowledgments merged into one: one; two, because hn(4) considers more harmful; and as many as a
/// superframe of 45 segments causes.
const MERGED: [usize; 3] = [1, 2, 22];
/// Number of payload bytes in a segment.
const SEGMENT: u32 = 1448;
/// Number of segments per acknowledgment (RFC 5681 section 4.2).
const SEGMENTS_AN_ACKNOWLEDGMENT: u64 = 2;
/// Number of segments in flight at 10 Gb/s with a round-trip time of one millisecond.
pub(super) const SEGMENTS_WANTED: u64 = 860;
/// Number of simulated round trips of congestion avoidance.
pub(super) const AVOIDANCE_ROUND_TRIPS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips(counting: Counting, merged: usize, is_counted: bool) -> u32 {
        Growth::of(counting, merged, is_counted).slow_start_round_trips
    }

    #[test]
    fn p15_counts_restore_what_merging_takes() {
        for limit in [1, 2] {
            let counting = Counting::Bytes { limit };
            let alone = round_trips(counting, 1, false);
            assert!(round_trips(counting, 22, false) > 3 * alone);
            assert!(round_trips(counting, 22, true) <= alone);
        }
        assert!(
            round_trips(Counting::Packets, 22, false)
                > 3 * round_trips(Counting::Packets, 1, false)
        );
        assert_eq!(
            round_trips(Counting::Packets, 22, true),
            round_trips(Counting::Packets, 1, false)
        );
    }

    #[test]
    fn slow_start_doubles_where_the_limit_is_what_each_acknowledges() {
        // Doubling 10 segments six times gives fewer than 860; doubling them seven times gives more.
        assert_eq!(round_trips(Counting::Bytes { limit: 2 }, 1, false), 7);
        // Each round trip increases the window by half: 10 * 1.5^n.
        assert_eq!(round_trips(Counting::Packets, 1, false), 11);
        assert_eq!(round_trips(Counting::Bytes { limit: 1 }, 1, false), 11);
    }

    #[test]
    fn avoidance_gains_a_segment_a_round_trip_by_bytes_and_half_of_one_by_packets() {
        let gained = |counting, merged| Growth::of(counting, merged, false).avoidance_segments;
        assert_eq!(gained(Counting::Bytes { limit: 2 }, 1), 100);
        assert!((45..=50).contains(&gained(Counting::Packets, 1)));
        assert_eq!(gained(Counting::Bytes { limit: 2 }, 22), 4);
    }
}
