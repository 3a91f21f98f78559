//! Decapsulation of any stack with modified bytes, with any metadata and on any link: no input causes a panic, no byte
//! outside the packet is written, and each decapsulation makes the packet shorter.

use crate::{Decisions, stack};
use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    tunnel::{
        Tunnel,
        decapsulate::{Decapsulation, DecapsulationRules, RemoteChecksumMode},
    },
};
use grosso_testkit::{
    oracle::{FOU_PORT, Link},
    stack::Place,
};
use grosso_wire::{Kind, LinkType, dissect};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let link = decisions.choose(&[
        LinkType::Ethernet,
        LinkType::Raw,
        LinkType::Null,
        LinkType::LinuxSll,
        LinkType::LinuxSll2,
        LinkType::Ppp,
        LinkType::PppEther,
    ]);
    let rules = rules(&mut decisions);
    let meta = meta(&mut decisions);
    let frame = match decisions.byte() & 1 {
        0 => changed(&mut decisions, link),
        _ => decisions.rest().to_vec(),
    };
    take_out(frame, meta, link, &rules);
}

fn rules(decisions: &mut Decisions<'_>) -> DecapsulationRules {
    let modes =
        [RemoteChecksumMode::Complete, RemoteChecksumMode::Partial, RemoteChecksumMode::Refuse];
    let mut rules = DecapsulationRules::default();
    rules.remote_checksum = decisions.choose(&modes);
    rules.ipv6_without_checksum = decisions.byte() & 1 != 0;
    rules.ports = rules.ports.with_fou(FOU_PORT, decisions.choose(&[4, 41, 47, 137, 17]));
    rules
}

fn meta(decisions: &mut Decisions<'_>) -> Meta {
    let checksum = match decisions.byte() % 5 {
        0 => Checksum::None,
        1 | 2 => Checksum::Unnecessary { levels: decisions.byte() },
        3 => Checksum::Complete { sum: decisions.word() },
        _ => Checksum::Partial {
            start: decisions.byte().into(),
            offset: decisions.choose(&[6, 16, 4, 0, u16::MAX]),
        },
    };
    let gso = if decisions.byte() & 3 == 0 { Gso::every(decisions.word()) } else { None };
    Meta { checksum, gso, ..Meta::default() }
}

/// Returns a frame from the test kit, with some bytes changed.
fn changed(decisions: &mut Decisions<'_>, link: LinkType) -> Vec<u8> {
    let kit = if link == LinkType::Ethernet { Link::Ethernet } else { Link::Ip };
    let payload = usize::from(decisions.byte());
    let packet = stack(decisions, kit).packet(&Place::default()).payload_len(payload);
    let mut frame = packet.build();
    while !decisions.is_over() {
        let at = usize::from(decisions.byte()) % frame.len();
        frame[at] = decisions.byte();
    }
    frame
}

fn take_out(mut packet: Vec<u8>, mut meta: Meta, link: LinkType, rules: &DecapsulationRules) {
    loop {
        let stack = dissect(&packet, link, &rules.ports);
        let Ok(plan) = Decapsulation::plan(&packet, &stack, &meta, link, rules) else { return };
        let mut bytes = packet.clone();
        let range = plan.apply(&mut bytes);
        assert!(range.start <= range.end && range.end == plan.inner().end);
        assert_eq!(range.len(), plan.packet_len());
        assert_eq!(bytes[range.end..], packet[range.end..], "bytes after the packet are unchanged");
        assert_eq!(
            bytes[..range.start],
            packet[..range.start],
            "bytes before the packet are unchanged"
        );
        if let Checksum::Partial { start, offset } = plan.meta.checksum {
            assert!(usize::from(start) + usize::from(offset) + 2 <= range.len());
        }
        // At least an Ethernet header and a label, or an IP header, is removed.
        let least = if plan.tunnel == Tunnel::Header(Kind::Pseudowire) { 18 } else { 20 };
        assert!(range.len() + least <= packet.len(), "a tunnel has headers");
        packet = bytes[range].to_vec();
        meta = plan.meta;
    }
}
