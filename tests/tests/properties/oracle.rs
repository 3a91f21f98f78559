//! Tests that the engine builds the same trains, packet by packet, as the test kit's slow reference implementation.

use grosso::{Meta, Profile, coalesce::reason::Close};
use grosso_rig::{engine::PORTS, session::Session};
use grosso_testkit::{
    Traffic,
    oracle::{FOU_PORT, Layer, Lengths, Link, Rules, Stop, flow_of, parse, trains},
};
use grosso_wire::{LinkType, dissect};
use proptest::prelude::*;

proptest! {
    #![proptest_config(super::cases(600))]

    #[test]
    fn trains_are_those_of_the_slow_merger(
        seed in any::<u64>().no_shrink(),
        count in 1..200_usize,
        tunnels_max in 0..3_u8,
    ) {
        let traffic = Traffic::new(seed).take(count);
        let frames: Vec<Vec<u8>> =
            traffic.filter(|frame| is_readable_to_both(frame)).collect();
        let mut profile = Profile::linux();
        profile.tunnels_max = tunnels_max;
        let mut session = Session::new(profile, LinkType::Ethernet, seed);
        for frame in &frames {
            session.push(frame, Meta::default());
        }
        session.finish();
        let mut groups: Vec<Vec<usize>> =
            session.left.iter().map(|left| left.numbers.clone()).collect();
        groups.sort();
        let rules = Rules { tunnels_max: tunnels_max.into(), ..Rules::default() };
        let expected = trains(&frames, Link::Ethernet, rules);
        let difference = groups.iter().zip(&expected).find(|(group, train)| **group != train.packets);
        if let Some((group, train)) = difference {
            let closed: Vec<(&[usize], Close)> =
                session.left.iter().map(|left| (&left.numbers[..], left.closed)).collect();
            let verdicts: Vec<_> = session.pushed.iter().map(|pushed| pushed.verdict).collect();
            prop_assert!(
                false,
                "engine: {group:?}\noracle: {train:?}\nengine trains: {closed:?}\n\
                 oracle trains: {expected:?}\nverdicts: {verdicts:?}\nflow {:?}\nframe {}",
                flow_of(&frames[train.packets[0]], Link::Ethernet),
                grosso_testkit::flows::hex(&frames[*train.packets.last().unwrap_or(&0)]),
            );
        }
    }
}

/// Returns whether the engine and the oracle parse the frame in the same way. A frame that the engine cannot parse, for
/// example because it ends inside its TCP options, ends every train to which it might belong, but no train in the
/// oracle. The engine is configured with IPv4 for the FOU port, whereas the oracle inspects the packet.
fn is_readable_to_both(frame: &[u8]) -> bool {
    if dissect(frame, LinkType::Ethernet, &PORTS).stop != grosso_wire::Stop::Payload {
        return false;
    }
    let parsed = parse(frame, Link::Ethernet, Lengths::Declared);
    let is_fou = |layer: &Layer| layer.number("destination_port") == u64::from(FOU_PORT);
    let differs = |pair: &[Layer]| is_fou(&pair[0]) && pair[1].name != "ipv4";
    parsed.stop == Stop::Transport && !parsed.layers.windows(2).any(differs)
}
