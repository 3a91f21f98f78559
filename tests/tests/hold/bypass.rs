//! Tests that flows bypass coalescing if it does not pay off (P48).

use grosso::{
    Meta, Profile, Verdict,
    checksum::Checksum,
    coalesce::{Bypass, Hold, reason::Pass},
};
use grosso_rig::session::{Session, random_profile};
use grosso_testkit::{Traffic, headers::Tcp, random::Random};
use grosso_wire::LinkType;

use super::{MSS, packet};

/// Returns a profile that observes ten packets, and bypasses the next forty if fewer than two of the ten merge.
fn bypassing() -> Profile {
    let bytes = |packets: u32| packets * packet(1, 0, MSS, |tcp| tcp).len() as u32;
    let mut profile = Profile::linux();
    profile.bypass = Some(Bypass { probe_bytes: bytes(10), joined_min: 2, skip_bytes: bytes(40) });
    profile
}

/// Returns the verdicts on packets of one flow in polls of four packets. A packet can merge if `joins` returns true for
/// it.
fn verdicts(meta: Meta, count: u32, joins: impl Fn(u32) -> bool) -> Vec<Verdict> {
    let mut session = Session::new(bypassing(), LinkType::Ethernet, 1);
    let mut verdicts = Vec::new();
    for number in 0..count {
        let ends = !joins(number);
        let frame = packet(1, number, MSS, |tcp| if ends { tcp.psh() } else { tcp });
        verdicts.push(session.push(&frame, meta));
        if number % 4 == 3 {
            session.poll_end();
        }
    }
    session.finish();
    session.assert_settled();
    session.assert_reversible();
    verdicts
}

const PASSED: Verdict = Verdict::Passed(Pass::Bypass);

#[test]
fn p48_a_flow_that_is_seldom_joined_passes_and_is_tried_again() {
    let verdicts = verdicts(Meta::default(), 110, |_| false);
    for (number, verdict) in verdicts.iter().enumerate() {
        // Ten packets are observed, the next forty bypass, and so on.
        assert_eq!(*verdict == PASSED, number % 50 >= 10, "{number}: {verdict:?}");
    }
}

#[test]
fn p48_a_flow_that_is_joined_never_passes() {
    assert!(!verdicts(Meta::default(), 400, |_| true).contains(&PASSED));
    // A flow whose packets can be merged from some point on is recognized at the next trial.
    let late = verdicts(Meta::default(), 400, |number| number >= 20);
    assert_eq!(late.iter().filter(|&&verdict| verdict == PASSED).count(), 40);
}

#[test]
fn p48_a_checksum_that_a_device_verified_costs_nothing() {
    let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
    assert!(!verdicts(meta, 400, |_| false).contains(&PASSED));
}

#[test]
fn p48_a_flow_passes_alone() {
    let mut session = Session::new(bypassing(), LinkType::Ethernet, 1);
    for number in 0..40 {
        let idle = session.push(&packet(1, number, MSS, Tcp::psh), Meta::default());
        assert_eq!(idle == PASSED, number >= 10);
        let busy = session.push(&packet(2, number, MSS, |tcp| tcp), Meta::default());
        assert_ne!(busy, PASSED);
    }
    session.finish();
    session.assert_settled();
    session.assert_reversible();
}

/// Tests that the held packets of a flow are delivered before packets that bypass coalescing.
#[test]
fn p48_what_passes_overtakes_nothing() {
    let mut random = Random::new(7);
    for _ in 0..20 {
        let mut profile = bypassing();
        profile.limits.hold_ns = u64::MAX;
        let mut session = Session::new(profile, LinkType::Ethernet, 1);
        for number in 0..300 {
            let ends = random.percent(80);
            let frame = packet(1, number, MSS, |tcp| if ends { tcp.psh() } else { tcp });
            session.push(&frame, Meta::default());
        }
        session.finish();
        session.assert_settled();
        // The flow keeps its order.
        session.assert_reversible();
    }
}

/// Tests that a bypass that never starts does not change the deliveries.
#[test]
fn a_bypass_that_never_comes_about_changes_nothing() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut profile = random_profile(&mut random);
        profile.hold = Hold::Fixed;
        let never = Bypass { probe_bytes: u32::MAX, joined_min: 0, skip_bytes: 0 };
        let [one, two] = [None, Some(never)].map(|bypass| {
            let mut profile = profile.clone();
            profile.bypass = bypass;
            let mut session = Session::new(profile, LinkType::Ethernet, seed);
            for (number, frame) in Traffic::new(seed).take(200).enumerate() {
                session.now_ns += number as u64;
                session.push(&frame, Meta::default());
                if number % 16 == 0 {
                    session.poll_end();
                }
            }
            session.finish();
            let left = session.left.into_iter().map(|left| (left.bytes, left.meta, left.closed));
            left.collect::<Vec<_>>()
        });
        assert_eq!(one, two, "seed {seed}");
    }
}

/// Tests the size limit that a consumer with a small buffer sets: it applies to every train, and longer superframes
/// pass unchanged (P49).
#[test]
fn p49_a_consumer_with_a_small_buffer_sets_how_long_trains_are() {
    for size_bytes in [3_000, 9_000, 37_500] {
        let mut profile = Profile::linux();
        profile.limits.size_bytes = size_bytes;
        let mut session = Session::new(profile, LinkType::Ethernet, 1);
        (0..200).for_each(|number| {
            session.push(&packet(1, number, MSS, |tcp| tcp), Meta::default());
        });
        session.finish();
        session.assert_settled();
        let longest = session.left.iter().map(|left| left.bytes.len() - 14).max();
        let full = (size_bytes as usize - 1 - 40) / MSS * MSS + 40;
        assert_eq!(longest, Some(full), "at most {size_bytes}");
    }
}
