//! Tests packets in any order, with any loss and any duplicates, in several flows at once.

use grosso::{
    Meta, Profile,
    coalesce::{Hold, Reorder},
};
use grosso_rig::{
    frames::{Path, Segment},
    session::{Session, random_profile, random_reorder},
};
use grosso_testkit::{
    Traffic, flows::assert_order_within_flows, headers::Tcp, oracle::Link, random::Random,
};
use grosso_wire::LinkType;

use super::connection::{HOLD_NS, HOLE_NS, holes, within_batch};

/// Interval at which the caller calls `expire`.
const TICK_NS: u64 = 7_000;
/// Interval between two packets of a flow, in nanoseconds.
const GAP_NS: u64 = 1_200;

/// Time of arrival, and the frame.
type Coming = (u64, Vec<u8>);

/// Returns segments of 100 bytes of one flow; the first has sequence number `first`.
fn segments(port: u16, first: u32, count: usize) -> Vec<Vec<u8>> {
    Path::Ipv4.train(&vec![100; count], move |index, s| {
        let sequence = first.wrapping_add(100 * index as u32);
        s.ipv4(move |ip| ip.id(index as u16))
            .tcp(move |tcp| tcp.source_port(port).sequence(sequence))
    })
}

/// Returns a packet that data must not overtake, or that has no position in the sequence.
fn odd(port: u16, random: &mut Random) -> Vec<u8> {
    let edits: [fn(Tcp) -> Tcp; 5] =
        [|t| t.ack(9), Tcp::syn, Tcp::rst, |t| t.urg().sequence(7), |t| t.checksum_xor(1)];
    let edit = *random.choose(&edits);
    let change = move |_, s: Segment| s.tcp(move |tcp| edit(tcp.source_port(port)));
    Path::Ipv4.train(&[random.below(2) * 100], change).remove(0)
}

/// Pushes frames as they arrive, and calls `expire` as often as a caller would. Checks that no packet is held longer
/// than the limit.
fn run(profile: Profile, mut coming: Vec<Coming>, polls: bool) -> Session {
    coming.sort_by_key(|(at_ns, _)| *at_ns);
    // The end of a wait is detected up to one tick late, and then the end of a train up to another tick late.
    let most_ns = profile.reorder.total_ns().max(profile.limits.hold_ns) + 2 * TICK_NS;
    let mut session = Session::new(profile, LinkType::Ethernet, 3);
    let mut ticked_ns = 0;
    for (at_ns, frame) in coming {
        while at_ns - ticked_ns >= TICK_NS {
            ticked_ns += TICK_NS;
            session.now_ns = ticked_ns;
            if polls { session.poll_end() } else { session.expire() }
        }
        session.now_ns = at_ns;
        session.push(&frame, Meta::default());
    }
    while let Some(deadline_ns) = session.deadline() {
        assert!(deadline_ns <= session.now_ns + most_ns);
        session.now_ns = session.now_ns.max(deadline_ns);
        session.expire();
    }
    session.assert_settled();
    session.assert_reversible();
    for left in &session.left {
        for &number in &left.numbers {
            let stayed_ns = left.at_ns - session.pushed[number].at_ns;
            assert!(stayed_ns <= most_ns, "{stayed_ns} ns of at most {most_ns}");
        }
    }
    session
}

#[test]
fn p22_every_packet_leaves_once_and_soon_whatever_comes() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut profile = random_profile(&mut random);
        profile.hold = Hold::Fixed;
        profile.limits.hold_ns = *random.choose(&[0, 1, HOLD_NS, HOLE_NS, 3 * HOLE_NS]);
        profile.reorder = random_reorder(&mut random);
        let spread_ns = random.below(300_000) + 1;
        let mut coming = Vec::new();
        for port in 0..4 {
            let first = *random.choose(&[0, 1 << 31, u32::MAX - 3000]);
            for (index, frame) in segments(port, first, 60).into_iter().enumerate() {
                let mut at_ns = || index as u64 * GAP_NS + random.below(spread_ns) as u64;
                let (once, again) = (at_ns(), at_ns());
                if random.percent(2) {
                    continue;
                }
                if random.percent(3) {
                    coming.push((again, frame.clone()));
                }
                if random.percent(2) {
                    coming.push((again, odd(port, &mut random)));
                }
                coming.push((once, frame));
            }
        }
        run(profile, coming, random.one_in(2));
    }
}

#[test]
fn all_header_stacks_and_any_clock_are_survived() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut profile = random_profile(&mut random);
        profile.reorder = random_reorder(&mut random);
        let mut frames: Vec<_> = Traffic::new(seed).take(100).collect();
        for _ in 0..random.below(60) {
            let (one, other) = (random.below(100), random.below(100));
            frames.swap(one, other);
        }
        let mut session = Session::new(profile, LinkType::Ethernet, seed);
        let jumps = random.one_in(3);
        for frame in frames {
            session.now_ns = match jumps {
                true => *random.choose(&[0, 1, 500, u64::MAX / 2, u64::MAX - 1, u64::MAX]),
                false => session.now_ns + random.below(2000) as u64,
            };
            session.push(&frame, Meta::default());
            match random.below(8) {
                0 => session.poll_end(),
                1 => session.expire(),
                _ => {}
            }
        }
        session.finish();
        session.assert_settled();
        session.assert_reversible();
    }
}

/// Runs the same packets twice, once in the order sent, and once with each packet delayed by `delay`. Returns both
/// runs.
fn both(profile: &Profile, delay: impl Fn(usize) -> u64) -> [Session; 2] {
    let frames = segments(1, 5, 2000);
    let coming = |delay: &dyn Fn(usize) -> u64| {
        let when = |index: usize| index as u64 * GAP_NS + delay(index);
        frames.iter().enumerate().map(|(index, frame)| (when(index), frame.clone())).collect()
    };
    [coming(&|_| 0), coming(&delay)].map(|coming| run(profile.clone(), coming, true))
}

#[test]
fn two_paths_leave_in_order_and_trains_are_as_long_as_on_one() {
    let mut profile = holes();
    profile.limits.hold_ns = 50_000;
    for skew_ns in [5_000, 20_000, 40_000, 80_000] {
        let delays: [&dyn Fn(usize) -> u64; 2] =
            [&|index| (index as u64 % 2) * skew_ns, &|index| (index as u64 / 16 % 2) * skew_ns];
        for delay in delays {
            let [straight, skewed] = both(&profile, delay);
            let packets: Vec<_> = skewed.packets().into_iter().map(|(bytes, _)| bytes).collect();
            assert_eq!(packets, segments(1, 5, 2000), "skew of {skew_ns} ns");
            let trains = [&straight, &skewed].map(|session| session.left.len());
            assert!(trains[1] <= trains[0] + trains[0] / 10 + 2, "{skew_ns} ns: {trains:?}");
        }
    }
}

#[test]
fn without_repair_the_same_paths_end_a_train_with_every_packet() {
    let mut profile = Profile::linux();
    profile.limits.hold_ns = 50_000;
    let [straight, skewed] = both(&profile, |index| (index as u64 % 2) * 40_000);
    assert!(skewed.left.len() > 20 * straight.left.len());
}

#[test]
fn within_a_poll_any_order_makes_the_same_trains() {
    let mut random = Random::new(9);
    for _ in 0..50 {
        let frames = segments(1, u32::MAX - 2500, 200);
        let outcomes = [false, true].map(|shuffles| {
            let mut session = Session::new(within_batch(), LinkType::Ethernet, 3);
            // The number of runs does not exceed the limit.
            for poll in frames.chunks(30) {
                let mut order: Vec<usize> = (0..poll.len()).collect();
                if shuffles {
                    random.shuffle(&mut order);
                }
                order.iter().for_each(|&place| {
                    session.push(&poll[place], Meta::default());
                });
                session.poll_end();
            }
            session.assert_settled();
            session.assert_reversible();
            session.left.iter().map(|left| left.bytes.clone()).collect::<Vec<_>>()
        });
        assert_eq!(outcomes[0], outcomes[1]);
    }
}

#[test]
fn p09_another_type_of_service_ends_the_train_and_keeps_its_place() {
    let frames = Path::Ipv4.train(&[100; 6], |index, s| s.tos(index as u8 % 2));
    let mut session = Session::new(within_batch(), LinkType::Ethernet, 3);
    for place in [0, 2, 1, 5, 4, 3] {
        session.push(&frames[place], Meta::default());
    }
    session.finish();
    let packets: Vec<_> = session.packets().into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(packets, frames);
    assert_order_within_flows(&frames, &packets, Link::Ethernet);
}

#[test]
fn p52_no_hole_is_waited_for_longer_than_an_eighth_of_the_round_trip() {
    for (round_trip_ns, hole_ns) in [(0, HOLE_NS), (200_000, 25_000), (4_000_000, HOLE_NS)] {
        let mut profile = holes();
        profile.limits.hold_ns = 0;
        profile.reorder.round_trip_ns = round_trip_ns;
        assert_eq!(profile.reorder.hole_ns(), hole_ns);
        let frames = segments(1, 5, 3);
        let mut session = Session::new(profile, LinkType::Ethernet, 3);
        session.push(&frames[0], Meta::default());
        session.poll_end();
        session.push(&frames[2], Meta::default());
        assert_eq!(session.deadline(), Some(hole_ns));
        session.now_ns = hole_ns;
        session.poll_end();
        assert_eq!(session.left.len(), 2);
    }
}

#[test]
fn p52_an_adaptive_hole_is_not_waited_for_longer_than_the_round_trip_of_its_flow_allows() {
    let adaptive = Reorder::adaptive(10_000, 100_000);
    let (fixed, mut bounded) = (Reorder::holes(100_000), adaptive);
    bounded.round_trip_ns = 160_000;
    for (reorder, round_trip_ns, hole_ns) in [
        (adaptive, None, 100_000),
        (adaptive, Some(400_000), 50_000),
        (adaptive, Some(8_000_000), 100_000),
        // The configured minimum applies.
        (adaptive, Some(8_000), 10_000),
        (adaptive, Some(0), 10_000),
        (fixed, Some(400_000), 100_000),
        (bounded, Some(400_000), 20_000),
    ] {
        let mut profile = holes();
        (profile.limits.hold_ns, profile.reorder) = (0, reorder);
        assert_eq!(profile.wants_round_trips(), reorder != fixed);
        let frames = [segments(1, 5, 6), segments(2, 5, 6)].concat();
        let mut session = Session::new(profile, LinkType::Ethernet, 3);
        let told = round_trip_ns.map(|told| (told, &frames[0]));
        for flow in 0..2 {
            session.push(&frames[6 * flow], Meta::default());
            session.poll_end();
            // Only the first flow's round-trip time is known.
            if let Some((round_trip_ns, packet)) = told {
                session.learn_round_trip(packet, round_trip_ns);
            }
            session.push(&frames[6 * flow + 2], Meta::default());
            let expected = if flow == 0 { hole_ns } else { reorder.hole_ns() };
            assert_eq!(session.deadline(), Some(session.now_ns + expected), "{reorder:?} {flow}");
            session.now_ns += expected;
            session.poll_end();
            session.now_ns += 1_000_000;
        }
        session.finish();
        session.assert_settled();
    }
}

#[test]
fn p52_an_adaptive_hole_takes_twice_what_holes_took_lately() {
    let mut profile = holes();
    profile.limits.hold_ns = 0;
    profile.reorder = Reorder::adaptive(10_000, 1_000_000);
    let frames = segments(1, 5, 400);
    let mut session = Session::new(profile, LinkType::Ethernet, 3);
    let push = |session: &mut Session, place: usize| {
        session.push(&frames[place], Meta::default());
    };
    push(&mut session, 0);
    session.poll_end();
    let mut waits = Vec::new();
    // In the first rounds, holes are filled after 40 us, later after 4 us, and finally after 80 us.
    for (round, place) in (1..301).step_by(2).enumerate() {
        let took_ns = [40_000, 4_000, 80_000][round / 50];
        push(&mut session, place + 1);
        waits.push(session.deadline().unwrap() - session.now_ns);
        session.now_ns += took_ns;
        session.poll_end();
        push(&mut session, place);
        session.poll_end();
    }
    assert_eq!(waits[0], 1_000_000, "nothing is known yet");
    assert!((70_000..=90_000).contains(&waits[49]), "{}", waits[49]);
    assert_eq!(waits[99], 10_000, "the least");
    assert!((140_000..=180_000).contains(&waits[149]), "{}", waits[149]);
    session.finish();
    session.assert_settled();
}
