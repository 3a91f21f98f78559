//! Tests that no packet is held longer than allowed, that the deadline is correct, and that the oldest train is
//! delivered first (P19, P22, P24).

use grosso::{
    Meta, Profile,
    coalesce::{Hold, reason::Close},
};
use grosso_rig::session::{Session, random_profile};
use grosso_testkit::{Packet, Traffic, random::Random};
use grosso_wire::LinkType;
use proptest::prelude::*;

proptest! {
    #![proptest_config(super::cases(300))]

    /// Tests a caller that calls `expire` at every deadline, as a timer does, and polls at arbitrary times.
    #[test]
    fn nothing_is_held_beyond_the_deadline(
        seed in any::<u64>().no_shrink(),
        count in 1..200_usize,
        hold_ns in 1..5000_u64,
    ) {
        let mut random = Random::new(seed);
        let mut profile = random_profile(&mut random);
        profile.limits.hold_ns = hold_ns;
        let hold = profile.hold;
        let mut session = Session::new(profile, LinkType::Ethernet, seed);
        for frame in Traffic::new(seed).take(count) {
            let now_ns = session.now_ns + random.below(hold_ns as usize) as u64;
            expire_until(&mut session, now_ns);
            session.push(&frame, Meta::default());
            assert_deadline(&session, hold, hold_ns);
            if random.one_in(5) {
                session.poll_end();
                assert_deadline(&session, hold, hold_ns);
            }
        }
        let now_ns = session.now_ns + hold_ns;
        expire_until(&mut session, now_ns);
        session.assert_settled();
        for left in &session.left {
            let first = &session.pushed[left.numbers[0]];
            assert!(left.at_ns - first.at_ns <= hold_ns, "held too long: {left:?}");
        }
    }

    /// Tests that trains are delivered in the order in which they started, whether a poll ends, time passes or the
    /// engine is finished.
    #[test]
    fn the_oldest_train_leaves_first(
        seed in any::<u64>().no_shrink(),
        count in 1..200_usize,
        by_time in any::<bool>(),
    ) {
        let mut profile = Profile::linux();
        profile.limits.hold_ns = if by_time { 1000 } else { 0 };
        let mut session = Session::new(profile, LinkType::Ethernet, seed);
        let mut random = Random::new(seed);
        for frame in Traffic::new(seed).burst_mean(2).take(count) {
            session.now_ns += random.below(40) as u64;
            session.push(&frame, Meta::default());
            if random.one_in(16) {
                let before = session.left.len();
                session.poll_end();
                assert_oldest_first(&session, before);
                assert!(by_time || session.held.is_empty(), "a poll without holding ends empty");
            }
        }
        let before = session.left.len();
        session.finish();
        assert_oldest_first(&session, before);
        session.assert_settled();
    }

    /// Tests a clock that stops, jumps, or reaches its end.
    #[test]
    fn any_clock_is_survived(seed in any::<u64>().no_shrink(), count in 1..100_usize) {
        let mut random = Random::new(seed);
        let mut profile = random_profile(&mut random);
        profile.limits.hold_ns = *random.choose(&[0, 1, u64::MAX / 2, u64::MAX]);
        let mut session = Session::new(profile, LinkType::Ethernet, seed);
        for frame in Traffic::new(seed).take(count) {
            session.now_ns = *random.choose(&[0, 1, 500, u64::MAX / 2, u64::MAX - 1, u64::MAX]);
            session.push(&frame, Meta::default());
            match random.below(4) {
                0 => session.poll_end(),
                1 => session.expire(),
                2 => session.poll_end_full(),
                _ => {}
            }
        }
        session.finish();
        session.assert_settled();
        session.assert_reversible();
    }
}

/// Tests that the age of a train is the age of its first packet: later packets do not extend the hold.
#[test]
fn joining_does_not_prolong() {
    let mut profile = Profile::linux();
    profile.limits.hold_ns = 100;
    let mut session = Session::new(profile, LinkType::Ethernet, 1);
    let train = |n: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(n as u16));
        packet.tcp(|t| t.sequence(100 + n * 50)).payload_len(50).build()
    };
    for n in 0..10 {
        session.now_ns = u64::from(n) * 10;
        session.push(&train(n), Meta::default());
        assert_eq!(session.deadline(), Some(100));
    }
    session.now_ns = 99;
    session.expire();
    assert_eq!(session.left.len(), 0);
    session.now_ns = 100;
    session.expire();
    assert_eq!((session.left.len(), session.left[0].packets), (1, 10));
    assert_eq!((session.left[0].closed, session.deadline()), (Close::HoldTime, None));
}

/// Advances the time to `now_ns`, and expires the timer at every deadline.
fn expire_until(session: &mut Session, now_ns: u64) {
    while let Some(deadline) = session.deadline().filter(|deadline| *deadline <= now_ns) {
        let before = session.left.len();
        session.now_ns = deadline;
        session.expire();
        assert!(session.left.len() > before, "the deadline has something to do");
        assert_oldest_first(session, before);
    }
    session.now_ns = now_ns;
}

/// Asserts that the deadline is that of the oldest held packet, or an earlier one that the controller set.
fn assert_deadline(session: &Session, hold: Hold, hold_ns: u64) {
    let oldest = session.held.iter().map(|number| session.pushed[*number].at_ns).min();
    let latest = oldest.map(|at_ns| at_ns + hold_ns);
    match hold {
        Hold::Fixed => assert_eq!(session.deadline(), latest),
        Hold::Controlled => {
            assert_eq!(session.deadline().is_some(), latest.is_some());
            assert!(session.deadline() <= latest);
        }
    }
}

fn assert_oldest_first(session: &Session, before: usize) {
    let firsts: Vec<usize> = session.left[before..].iter().map(|left| left.numbers[0]).collect();
    assert!(firsts.is_sorted(), "{firsts:?}");
}
