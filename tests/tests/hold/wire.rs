//! Tests how long trains become when many connections share a link.
//!
//! A full packet takes 1.23 us at 10 Gb/s, so 16 packets take 20 us and 44 packets take 54 us, whoever sends them. A
//! train of 15 packets within 20 us, or any train of 40 packets, is possible only if the packets of a sender arrive
//! together. They do: TCP passes superframes of up to 44 packets to its device, and these packets leave back to back.
//! Therefore each connection here sends bursts of 44 packets back to back, in random order, and the receiver polls at
//! intervals.

use grosso::{
    Profile,
    coalesce::{Batch, Hold},
};
use grosso_testkit::random::Random;

use super::{HOLD_NS, HOLDS, SHORT_PATH_NS, World, holding};

/// A link and its receiver.
#[derive(Clone, Copy)]
struct Wire {
    /// Time that a full packet takes on the link, in hundredths of a nanosecond.
    packet_ns_x100: u64,
    flows: u16,
    /// Interval between the receiver's polls.
    poll_ns: u64,
}

const TEN_GIGABIT: u64 = 123_000;
const FORTY_GIGABIT: u64 = 30_750;

/// Number of packets per burst.
const BURST: u64 = 44;

impl Wire {
    /// Returns the mean number of packets per train over this many bursts, and the longest time for which a train was
    /// held.
    fn carry(self, profile: Profile, bursts: u64) -> (f64, u64) {
        let mut world = World::new(profile);
        let mut random = Random::new(1);
        let mut poll_at = self.poll_ns;
        let mut before = 0;
        for flow in 0..self.flows {
            world.arrive(flow, 0);
            world.learn_round_trip(flow, SHORT_PATH_NS);
        }
        for burst in 0..bursts + u64::from(self.flows) {
            // The first burst of each connection reveals the rate within its bursts.
            let flow = match u16::try_from(burst) {
                Ok(first) if first < self.flows => first,
                _ => random.below(self.flows.into()) as u16,
            };
            if burst == u64::from(self.flows) {
                world.session.finish();
                before = world.session.left.len();
            }
            for packet in 0..BURST {
                let at_ns = (burst * BURST + packet) * self.packet_ns_x100 / 100;
                while at_ns >= poll_at {
                    world.session.poll_end();
                    world.session.now_ns = poll_at;
                    poll_at += self.poll_ns;
                }
                world.push(flow);
            }
        }
        world.session.finish();
        let trains = &world.trains()[before..];
        let mean = f64::from(trains.iter().sum::<u32>()) / trains.len() as f64;
        let held_ns = world.residences()[before..].iter().max().copied().unwrap_or(0);
        world.assert_settled();
        (mean, held_ns)
    }
}

/// Tests 200 connections: a train has up to 16 packets, plus the packets of the poll in which the time expires.
#[test]
fn trains_of_two_hundred_connections_have_fifteen_packets_within_20_us() {
    let wire = Wire { packet_ns_x100: TEN_GIGABIT, flows: 200, poll_ns: 10_000 };
    for hold in HOLDS {
        let (packets, held_ns) = wire.carry(holding(hold, HOLD_NS), 60);
        assert!(packets >= 15.0, "{hold:?}: {packets}");
        assert!(held_ns <= HOLD_NS, "{hold:?}: {held_ns}");
    }
}

/// Tests whole bursts, which take 14 us to arrive at 40 Gb/s and 54 us at 10 Gb/s.
#[test]
fn trains_of_one_to_64_connections_have_forty_packets() {
    for (packet_ns_x100, hold_ns) in [(FORTY_GIGABIT, HOLD_NS), (TEN_GIGABIT, 100_000)] {
        for flows in [1, 8, 32, 64] {
            let wire = Wire { packet_ns_x100, flows, poll_ns: 5_000 };
            for hold in HOLDS {
                let (packets, held_ns) = wire.carry(holding(hold, hold_ns), 60);
                assert!(packets >= 40.0, "{flows} {hold:?} {hold_ns}: {packets}");
                assert!(held_ns <= hold_ns, "{flows} {hold:?} {hold_ns}: {held_ns}");
            }
        }
    }
}

/// Compares holding with sorting a poll's packets by flow, as FreeBSD does: sorting merges packets within one poll;
/// holding merges as many, and more if a burst is split between two polls.
#[test]
fn holding_is_never_worse_than_a_sorted_batch() {
    let mut sorted = holding(Hold::Fixed, 0);
    sorted.batch = Batch::ByFlow { packets: 256 };
    for flows in [1, 64, 200, 1000] {
        for poll_ns in [5_000, 20_000] {
            let wire = Wire { packet_ns_x100: TEN_GIGABIT, flows, poll_ns };
            let (in_batches, _) = wire.carry(sorted.clone(), 60);
            for hold in HOLDS {
                let (held, _) = wire.carry(holding(hold, HOLD_NS), 60);
                assert!(held >= in_batches, "{flows} {hold:?} {poll_ns}: {held} < {in_batches}");
            }
        }
    }
}
