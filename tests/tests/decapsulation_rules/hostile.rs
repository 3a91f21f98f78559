//! Tests hostile input: nothing panics, nothing outside the packet is written, and a refused frame is unchanged.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    tunnel::{
        Tunnel,
        decapsulate::{DecapsulateStats, Decapsulation, DecapsulationRules, RemoteChecksumMode},
    },
};
use grosso_rig::damage::{checksum, frames, links};
use grosso_testkit::stack::{Place, Stack};
use grosso_wire::{Kind, LinkType, dissect};
use proptest::prelude::*;

use super::taking::rules_with_fou;

fn some_rules() -> impl Strategy<Value = DecapsulationRules> {
    let modes = prop_oneof![
        Just(RemoteChecksumMode::Refuse),
        Just(RemoteChecksumMode::Partial),
        Just(RemoteChecksumMode::Complete),
    ];
    (any::<u8>(), modes, any::<bool>()).prop_map(|(protocol, mode, ipv6_without_checksum)| {
        let mut rules = rules_with_fou(protocol);
        rules.remote_checksum = mode;
        rules.ipv6_without_checksum = ipv6_without_checksum;
        rules
    })
}

/// Decapsulates until no tunnel is left, and checks the invariants each time.
fn check(frame: &[u8], of: &[u8], mut meta: Meta, link: LinkType, rules: &DecapsulationRules) {
    let mut packet = frame.to_vec();
    let mut of = of.to_vec();
    let mut stats = DecapsulateStats::default();
    loop {
        let stack = dissect(&of, link, &rules.ports);
        let planned = Decapsulation::plan(&packet, &stack, &meta, link, rules);
        stats.count(&planned);
        let Ok(plan) = planned else { return };
        let mut bytes = packet.clone();
        let range = plan.apply(&mut bytes);
        assert!(range.start <= range.end && range.end <= packet.len(), "{range:?}");
        assert_eq!(range.len(), plan.packet_len());
        let inner = plan.inner();
        assert!(inner.start <= inner.end && range.end == inner.end);
        assert_eq!(bytes[inner.end..], packet[inner.end..], "bytes after the packet are unchanged");
        assert_eq!(
            bytes[..range.start],
            packet[..range.start],
            "bytes before the packet are unchanged"
        );
        if let Checksum::Partial { start, offset } = plan.meta.checksum {
            assert!(usize::from(start) + usize::from(offset) + 2 <= range.len());
        }
        // Each tunnel has at least an IP header or a label stack entry.
        let is_labels = plan.tunnel == Tunnel::Header(Kind::Pseudowire);
        assert!(range.len() + if is_labels { 4 } else { 20 } <= packet.len());
        packet = bytes[range].to_vec();
        of = packet.clone();
        meta = plan.meta;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn damaged_frames(
        frame in frames(),
        link in links(),
        rules in some_rules(),
        state in (any::<u8>(), 0_u16..200, 0_u16..40),
        size in prop::option::of(1_u16..2000),
    ) {
        let (kind, start, offset) = state;
        let gso = size.and_then(Gso::every);
        let meta = Meta { checksum: checksum(kind, start, offset), gso, ..Meta::default() };
        check(&frame, &frame, meta, link, &rules);
    }

    #[test]
    fn headers_of_another_frame(
        frame in frames(),
        other in frames(),
        rules in some_rules(),
        state in (any::<u8>(), any::<u16>(), any::<u16>()),
    ) {
        let meta = Meta { checksum: checksum(state.0, state.1, state.2), ..Meta::default() };
        let stack = dissect(&other, LinkType::Ethernet, &rules.ports);
        if let Ok(plan) = Decapsulation::plan(&frame, &stack, &meta, LinkType::Ethernet, &rules) {
            let mut bytes = frame.clone();
            let range = plan.apply(&mut bytes);
            prop_assert!(range.start <= range.end && range.end <= frame.len());
        }
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..200), link in links()) {
        check(&bytes, &bytes, Meta::default(), link, &DecapsulationRules::default());
    }
}

/// Tests that a plan for a longer frame has no effect on a shorter one.
#[test]
fn a_plan_for_another_frame_does_not_panic() {
    for stack in Stack::all() {
        let frame = stack.packet(&Place::default()).payload_len(100).build();
        let rules = rules_with_fou(4);
        let dissected = dissect(&frame, LinkType::Ethernet, &rules.ports);
        let meta = Meta::default();
        let Ok(plan) = Decapsulation::plan(&frame, &dissected, &meta, LinkType::Ethernet, &rules)
        else {
            continue;
        };
        for len in 0..frame.len() {
            plan.apply(&mut frame[..len].to_vec());
        }
    }
}
