//! Tests `segment(coalesce(x)) == x`, byte for byte and in the order of every flow.

use grosso::Meta;
use grosso_rig::session::{Session, random_profile, received};
use grosso_testkit::{
    Traffic,
    flows::{assert_conserved, assert_order_within_flows},
    oracle::Link,
    random::Random,
    stack::{Front, NETWORKS, Stack, TRANSPORTS, TUNNELS},
};
use grosso_wire::LinkType;
use proptest::prelude::*;

use super::trains::readable_train;

proptest! {
    #![proptest_config(super::cases(400))]

    /// Tests hostile traffic over every stack, with any limits, polls, holds, hash seeds and checksum states.
    #[test]
    fn cutting_gives_back_what_was_joined(
        seed in any::<u64>().no_shrink(),
        count in 1..200_usize,
        raw in any::<bool>(),
    ) {
        let (link, kit) = link(raw);
        let frames: Vec<_> = Traffic::over(kit, seed).take(count).collect();
        let session = run(&frames, link, kit, seed);
        session.assert_reversible();
    }

    /// Tests that every train in up to two tunnels becomes one superframe if Linux's limits permit it, and that this
    /// superframe is segmented into the same train.
    #[test]
    fn a_train_within_the_limits_is_one_superframe(
        seed in any::<u64>().no_shrink(),
        count in 2..20_usize,
    ) {
        let train = readable_train(seed, count);
        let mut profile = grosso::Profile::linux();
        profile.tunnels_max = 2;
        let mut session = Session::new(profile, LinkType::Ethernet, seed);
        for frame in &train.frames {
            session.push(frame, Meta::default());
        }
        session.finish();
        session.assert_settled();
        prop_assert_eq!(session.left.len(), 1, "{:?}", train);
        session.assert_reversible();
    }

    /// Tests that superframes from a device or an earlier stage are merged further, and are segmented into the original
    /// packets (rule G77).
    #[test]
    fn superframes_join_further(seed in any::<u64>().no_shrink(), count in 1..200_usize) {
        let frames: Vec<_> = Traffic::new(seed).deviations_percent(3).take(count).collect();
        let first = run(&frames, LinkType::Ethernet, Link::Ethernet, seed);
        let mut random = Random::new(!seed);
        let mut second = Session::new(random_profile(&mut random), LinkType::Ethernet, seed);
        for left in &first.left {
            second.push(&left.bytes, left.meta);
            if random.one_in(10) {
                second.poll_end();
            }
        }
        second.finish();
        second.assert_settled();
        assert_eq!(packets(&first).len(), frames.len());
        let (before, after) = (packets(&first), packets(&second));
        assert_conserved(&before, &after);
        assert_order_within_flows(&before, &after, Link::Ethernet);
    }
}

/// Tests every stack of the kit with at most one tunnel, and every pair of tunnels, exhaustively instead of randomly.
#[test]
fn every_stack_comes_back() {
    let mut stacks = Stack::all();
    for &outer in TUNNELS {
        for &inner in TUNNELS {
            let mut random = Random::new(stacks.len() as u64);
            let mut network = || *random.choose(NETWORKS);
            let tunnels = vec![(network(), outer), (network(), inner)];
            let network = network();
            let transport = *random.choose(TRANSPORTS);
            let front = Front::Ethernet;
            stacks.push(Stack { front, tunnels, network, transport });
        }
    }
    for (index, stack) in stacks.iter().enumerate() {
        let (link, kit) = link(stack.link() == Link::Ip);
        let seed = index as u64;
        let frames: Vec<_> = Traffic::of(&[stack.clone(), stack.clone()], seed).take(60).collect();
        println!("{stack:?}");
        run(&frames, link, kit, seed).assert_reversible();
    }
}

/// Pushes frames with random metadata, polls and holds.
fn run(frames: &[Vec<u8>], link: LinkType, kit: Link, seed: u64) -> Session {
    let mut profiles = Random::new(seed ^ 1);
    let mut session = Session::new(random_profile(&mut profiles), link, profiles.bits());
    let knows_checksums = profiles.one_in(2);
    let poll_mean = *profiles.choose(&[1, 4, 16, 64]);
    let mut random = Random::new(seed ^ 2);
    for frame in frames {
        let (bytes, meta) = if knows_checksums {
            received(frame, kit, &mut random)
        } else {
            (frame.clone(), Meta::default())
        };
        session.push(&bytes, meta);
        session.now_ns += random.below(60) as u64;
        if random.one_in(poll_mean) {
            session.poll_end();
        }
        if random.one_in(poll_mean) {
            session.expire();
        }
    }
    session.finish();
    session.assert_settled();
    session
}

fn packets(session: &Session) -> Vec<Vec<u8>> {
    session.packets().into_iter().map(|(bytes, _)| bytes).collect()
}

fn link(raw: bool) -> (LinkType, Link) {
    if raw { (LinkType::Raw, Link::Ip) } else { (LinkType::Ethernet, Link::Ethernet) }
}
