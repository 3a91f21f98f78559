//! Tests which trains the hold controller holds, and for how long.

use grosso::{
    Profile,
    coalesce::{HOLD_NS_MIN, Hold, LONG_PATH_NS, SEGMENTS_MAX, SEGMENTS_MIN, reason::Close},
};
use grosso_testkit::{headers::Tcp, random::Random};

use super::{HOLD_NS, MSS, SHORT_PATH_NS, World, holding};

/// Time in nanoseconds that a full packet takes at 10 Gb/s.
const PACKET_NS: u64 = 1_230;

fn controlled(hold_ns: u64) -> World {
    World::new(holding(Hold::Controlled, hold_ns))
}

#[test]
fn an_idle_flow_pays_nothing() {
    let mut world = controlled(HOLD_NS);
    for packet in 0..50 {
        world.arrive(1, packet * 1_000_000);
        assert_eq!(world.session.held.len(), 0);
    }
    assert_eq!(world.residences(), [0; 50]);
    // The first packet of any other flow is not held either.
    for flow in 2..50 {
        world.arrive(flow, 60_000_000);
        assert_eq!(world.session.held.len(), 0);
    }
}

#[test]
fn a_packet_that_is_due_after_the_deadline_is_not_waited_for() {
    // The round-trip time allows a hold time of 10 us.
    for (gap_ns, held) in [(10_001, 0), (10_000, 1)] {
        let mut world = controlled(HOLD_NS);
        world.arrive(1, 0);
        world.learn_round_trip(1, 160_000);
        world.arrive(1, gap_ns);
        assert_eq!(world.session.held.len(), held, "every {gap_ns} ns");
    }
}

#[test]
fn a_steady_flow_fills_its_trains() {
    let mut world = controlled(100_000);
    (0..1 + 44 * 20).for_each(|packet| world.arrive(1, packet * PACKET_NS));
    // The path is unknown, so the first rounds of a millisecond count as slow start.
    assert!(world.trains()[..10].iter().all(|&packets| packets <= 2 * u32::from(SEGMENTS_MIN)));

    let mut world = controlled(100_000);
    world.arrive(1, 0);
    world.learn_round_trip(1, SHORT_PATH_NS);
    (1..1 + 44 * 20).for_each(|packet| world.arrive(1, packet * PACKET_NS));
    world.pass_until(u64::MAX / 2);
    let trains = world.trains();
    assert_eq!(trains[0], 1);
    assert!(trains[1..].iter().all(|&packets| packets == u32::from(SEGMENTS_MAX)), "{trains:?}");
    world.assert_settled();
}

/// Tests the limit on the hold time for several round-trip times. On an unknown path, it is the configured maximum.
#[test]
fn the_round_trip_bounds_the_time() {
    for (round_trip_ns, bound_ns) in [
        (None, HOLD_NS),
        (Some(LONG_PATH_NS), HOLD_NS),
        (Some(100_000_000), HOLD_NS),
        (Some(160_000), 10_000),
        // The bound is never too short for two packets to merge.
        (Some(8_000), HOLD_NS_MIN),
        (Some(0), HOLD_NS_MIN),
    ] {
        let mut world = controlled(HOLD_NS);
        world.arrive(1, 0);
        round_trip_ns.into_iter().for_each(|told| world.learn_round_trip(1, told));
        // The flow is too slow to fill a superframe in any of these times.
        for packet in 1..50 {
            world.pass_until(packet * 3_000);
            world.push(1);
            let oldest = world.session.held.first().map(|&held| world.session.pushed[held].at_ns);
            assert_eq!(
                world.session.deadline(),
                oldest.map(|at_ns| at_ns + bound_ns),
                "{round_trip_ns:?}"
            );
        }
    }
}

/// Tests that the hold time is also limited by the time that it takes to fill a superframe: 64 KiB of full packets, one
/// every 123 ns.
#[test]
fn a_fast_flow_is_held_no_longer_than_a_superframe_takes() {
    let mut world = controlled(HOLD_NS);
    for packet in 0..2000 {
        world.pass_until(packet * 123);
        world.push(1);
    }
    let oldest = world.session.held.first().map(|&held| world.session.pushed[held].at_ns);
    let filled_ns = 64 * 1024 * 123 / MSS as u64 + 123;
    assert_eq!(world.session.deadline(), oldest.map(|at_ns| at_ns + filled_ns));
}

#[test]
fn a_round_trip_is_that_of_its_flow_only() {
    let mut world = controlled(HOLD_NS);
    for flow in [1, 2] {
        world.arrive(flow, 0);
        world.learn_round_trip(flow, SHORT_PATH_NS);
    }
    world.learn_round_trip(1, 16_000);
    for packet in 1..20 {
        [1, 2].into_iter().for_each(|flow| world.arrive(flow, packet * 3_000));
    }
    let longest = |port: u16| {
        let residences = world.residences();
        let of_flow = world.session.left.iter().zip(residences);
        let of_flow = of_flow.filter(|(left, _)| left.bytes[34..36] == port.to_be_bytes());
        of_flow.map(|(_, residence)| residence).max()
    };
    assert_eq!(longest(1), Some(0));
    assert!(longest(2) > Some(HOLD_NS / 2));
    // A frame without a flow is ignored.
    world.session.learn_round_trip(&[0; 3], 16_000);
}

/// Returns the trains of each 10 ms round in which this many packets arrive back to back at 10 Gb/s.
fn rounds(packets: &[u64]) -> Vec<Vec<u32>> {
    const ROUND_NS: u64 = 10_000_000;
    let mut world = controlled(100_000);
    world.arrive(1, 0);
    world.learn_round_trip(1, ROUND_NS);
    let mut trains = Vec::new();
    for (round, &count) in (1..).zip(packets) {
        let before = world.trains().len();
        (0..count).for_each(|packet| world.arrive(1, round * ROUND_NS + packet * PACKET_NS));
        world.pass_until((round + 1) * ROUND_NS - 1);
        trains.push(world.trains()[before..].to_vec());
    }
    world.assert_settled();
    trains
}

fn longest(trains: &[u32]) -> u32 {
    trains.iter().copied().max().unwrap_or(0)
}

/// Tests that on a long path, at least sixteen trains are delivered per round trip, so that the sender gets sixteen
/// acknowledgments.
#[test]
fn a_long_path_keeps_sixteen_trains_a_round_trip() {
    let trains = rounds(&[320, 320, 320, 320]);
    let last = trains.last().expect("four rounds");
    assert_eq!(longest(last), 320 / 16);
    assert!(last.len() >= 16, "{last:?}");
    // At 1 Gb/s with a round-trip time of 10 ms, trains reach the maximum length.
    assert_eq!(longest(&rounds(&[860, 860, 860])[2]), u32::from(SEGMENTS_MAX));
    // With only ten packets in flight, trains have the minimum length.
    assert_eq!(longest(&rounds(&[10, 10, 10])[2]), u32::from(SEGMENTS_MIN));
}

#[test]
fn slow_start_keeps_trains_half_as_long() {
    let trains = rounds(&[80, 160, 320, 640, 640, 640]);
    let longest: Vec<u32> = trains.iter().map(|trains| longest(trains)).collect();
    // The trains in each round are limited by the size of the previous round, and by whether it had grown.
    assert_eq!(longest, [2, 2, 5, 10, 20, 40]);
}

#[test]
fn the_bound_of_the_clock_has_a_name() {
    let mut world = controlled(HOLD_NS);
    (0..10).for_each(|packet| world.arrive(1, packet * PACKET_NS));
    assert!(world.closed().contains(&Close::AcknowledgmentClock), "{:?}", world.closed());
}

#[test]
fn what_ends_a_train_ends_it_at_once() {
    for (len, edit) in [(MSS, Tcp::psh as fn(Tcp) -> Tcp), (MSS, Tcp::fin), (100, |tcp| tcp)] {
        let mut world = controlled(HOLD_NS);
        (0..4).for_each(|packet| world.arrive(1, packet * PACKET_NS));
        world.session.now_ns += 10;
        world.push_with(1, len, edit);
        assert_eq!(world.session.held.len(), 0);
        world.assert_settled();
    }
}

/// Tests that with a maximum hold time of zero, no mode holds anything across polls.
#[test]
fn no_time_to_hold_is_no_hold() {
    let mut world = controlled(0);
    (0..100).for_each(|packet| world.arrive(1, packet * 10));
    assert_eq!(world.residences(), [0; 100]);
    assert_eq!(world.session.deadline(), None);
}

/// Tests random arrivals of many flows with any round-trip time: no packet is held longer than its bound.
#[test]
fn nothing_is_ever_held_beyond_its_bound() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let hold_ns = *random.choose(&[1, 1_999, 2_000, 20_000, 500_000]);
        let mut world = controlled(hold_ns);
        // One bound for each flow. For half of the flows, the round-trip time is known from the start.
        let mut bounds = Vec::new();
        for flow in 0..20 {
            world.arrive(flow, 0);
            let round_trip_ns = 10_u64.pow(random.below(8) as u32);
            let mut bound_ns = hold_ns;
            if random.one_in(2) {
                world.learn_round_trip(flow, round_trip_ns);
                bound_ns = (round_trip_ns / 16).max(2_000).min(hold_ns);
            }
            bounds.push(bound_ns);
        }
        let mut now_ns = 0;
        for _ in 0..1500 {
            let mean_ns = 10_usize.pow(random.below(6) as u32);
            now_ns += random.geometric(1 + mean_ns) as u64;
            world.pass_until(now_ns);
            for _ in 0..random.below(4) {
                let flow = random.below(20) as u16;
                let len = if random.one_in(20) { 600 } else { MSS };
                let ends = random.one_in(50);
                world.push_with(flow, len, |tcp| if ends { tcp.psh() } else { tcp });
            }
            if random.one_in(2) {
                world.session.poll_end();
            }
        }
        world.pass_until(now_ns + hold_ns);
        for (left, residence) in world.session.left.iter().zip(world.residences()) {
            let port = u16::from_be_bytes([left.bytes[34], left.bytes[35]]);
            assert!(residence <= bounds[usize::from(port)], "seed {seed}: {residence}");
        }
        world.assert_settled();
    }
}

/// Tests more flows than the controller remembers: the trains of forgotten flows end with the poll.
#[test]
fn a_flood_of_flows_is_held_by_the_same_rules() {
    let mut profile = holding(Hold::Controlled, HOLD_NS);
    profile.limits.flows = 512;
    let mut world = World::new(profile);
    for packet in 0..20_000_u64 {
        world.pass_until(packet * 100);
        world.push((packet % 10_000) as u16);
        if packet % 8 == 0 {
            world.session.poll_end();
        }
    }
    world.pass_until(u64::MAX / 2);
    assert!(world.residences().into_iter().all(|residence| residence <= HOLD_NS));
    world.assert_settled();
}

#[test]
fn every_profile_holds_for_a_fixed_time() {
    assert!(Profile::all().iter().all(|profile| profile.hold == Hold::Fixed));
    assert_eq!(Hold::default(), Hold::Fixed);
}
