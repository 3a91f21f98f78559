//! Tests that no train is held too long, whether or not more packets arrive.

use grosso::coalesce::{Hold, reason::Close};

use super::{HOLD_NS, HOLDS, SHORT_PATH_NS, World, holding};

/// Tests a slow flow, which would be held forever if each packet restarted the timer. The controller does not hold a
/// train at all unless it expects the next packet in time.
#[test]
fn p22_a_trickle_is_released_at_the_time_of_its_first_packet() {
    for (hold, part_of_hold, expected) in [
        (Hold::Fixed, 9, vec![2; 10]),
        (Hold::Fixed, 3, vec![4; 5]),
        // The first packet reveals nothing about the rate of the others.
        (Hold::Controlled, 9, vec![1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]),
        (Hold::Controlled, 3, vec![1, 4, 4, 4, 4, 3]),
    ] {
        let mut world = World::new(holding(hold, HOLD_NS));
        world.arrive(1, 0);
        world.learn_round_trip(1, SHORT_PATH_NS);
        for packet in 1..20 {
            world.arrive(1, packet * HOLD_NS * part_of_hold / 10);
        }
        world.pass_until(u64::MAX / 2);
        assert_eq!(world.trains(), expected, "{hold:?}, every {part_of_hold} tenths");
        let longest = world.residences().into_iter().max().unwrap_or(0);
        assert!(longest <= HOLD_NS, "{hold:?}: {longest}");
        world.assert_settled();
    }
}

/// Tests a receiver that cannot keep up: polls of 64 packets follow each other without a pause, so no timer expires,
/// and each poll continues every train.
#[test]
fn p23_polls_without_end_hold_nothing_beyond_the_poll_in_which_its_time_is_over() {
    const POLL_NS: u64 = 6_000;
    for hold in HOLDS {
        let mut profile = holding(hold, HOLD_NS);
        // Only the time limit ends a train.
        profile.limits.size_bytes = 524_280;
        let mut world = World::new(profile);
        for poll in 0..200 {
            world.session.now_ns = poll * POLL_NS;
            for flow in 0..64 {
                world.push(flow);
            }
            world.session.poll_end();
        }
        let longest = world.residences().into_iter().max().unwrap_or(0);
        assert!((POLL_NS..HOLD_NS + POLL_NS).contains(&longest), "{hold:?}: {longest}");
        world.session.finish();
        world.assert_settled();
    }
}

#[test]
fn p24_the_oldest_flow_leaves_first_in_either_way_to_hold() {
    for hold in HOLDS {
        let mut world = World::new(holding(hold, HOLD_NS));
        // These flows are fast enough to be held from the second packet on.
        for packet in 0..6 {
            for flow in 0..50 {
                world.arrive(flow, u64::from(packet * 50 + flow) * 10);
            }
        }
        let before = world.session.left.len();
        world.pass_until(u64::MAX / 2);
        let firsts: Vec<_> =
            world.session.left[before..].iter().map(|left| left.numbers[0]).collect();
        assert_eq!(firsts.len(), 50, "{hold:?}: all were held");
        assert!(firsts.is_sorted(), "{hold:?}: {firsts:?}");
        world.assert_settled();
    }
}

/// Tests the order at the end of a poll in which several flows are not expected to continue in time.
#[test]
fn p24_flows_that_are_not_waited_for_leave_oldest_first() {
    let mut world = World::new(holding(Hold::Controlled, HOLD_NS));
    for packet in 0..3 {
        world.pass_until(packet * 10 * HOLD_NS);
        (0..50).rev().for_each(|flow| world.push(flow));
        world.session.poll_end();
        assert_eq!(world.session.held.len(), 0);
    }
    let firsts: Vec<_> = world.session.left.iter().map(|left| left.numbers[0]).collect();
    assert!(firsts.is_sorted(), "{firsts:?}");
}

/// Tests that the timer releases everything in time after traffic stops, and that afterwards no timer is left.
#[test]
fn p25_all_is_out_in_time_when_traffic_stops() {
    for hold in HOLDS {
        let mut world = World::new(holding(hold, HOLD_NS));
        for packet in 0..8 {
            for flow in 0..30 {
                world.arrive(flow, u64::from(packet * 30 + flow) * 20);
            }
        }
        let stopped_ns = world.session.now_ns;
        assert!(!world.session.held.is_empty(), "{hold:?}: something was held");
        world.pass_until(stopped_ns + HOLD_NS);
        assert!(world.session.left.iter().all(|left| left.at_ns <= stopped_ns + HOLD_NS));
        world.assert_settled();
    }
}

/// Tests finishing the engine, which also happens when the configuration changes: one coalescer ends and the next one
/// starts.
#[test]
fn p25_the_end_drains_whatever_is_held_however_long_it_may_be() {
    for hold in HOLDS {
        let mut world = World::new(holding(hold, u64::MAX));
        for packet in 0..20 {
            (0..30).for_each(|flow| world.arrive(flow, packet * 10));
        }
        assert!(!world.session.held.is_empty(), "{hold:?}: something was held");
        let before = world.session.left.len();
        world.session.finish();
        assert!(world.closed()[before..].iter().all(|&closed| closed == Close::PollEnd));
        world.assert_settled();
    }
}
