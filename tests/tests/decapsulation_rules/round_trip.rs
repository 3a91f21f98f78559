//! Tests for every stack of headers in the kit that decapsulation restores the encapsulated packet.

use grosso::{Meta, tunnel::decapsulate::Refusal};
use grosso_testkit::{
    Packet,
    oracle::Link,
    random::Random,
    stack::{Front, Network, Place, Stack, Transport, Tunnel},
};
use grosso_wire::LinkType;

use super::taking::{rules_with_fou, take_with};

/// Removes a packet's tunnel headers one by one, and compares the result at every level with the kit's packet.
fn check(stack: &Stack, packet: Packet) {
    let link = if stack.link() == Link::Ip { LinkType::Raw } else { LinkType::Ethernet };
    let mut packet = packet;
    for level in 0..=stack.tunnels.len() {
        // The FOU port determines its protocol.
        let inside = stack.tunnels.get(level + 1).map_or(stack.network, |(network, _)| *network);
        let rules = rules_with_fou(if inside == Network::Ipv4 { 4 } else { 41 });
        let taken = take_with(&packet.build(), &Meta::default(), link, &rules);
        let Some(expected) = expected(&packet, link) else {
            let is_encrypted = stack.transport == Transport::Esp;
            let refusal = if is_encrypted { Refusal::Encrypted } else { Refusal::NoTunnel };
            assert_eq!(taken.map(|taken| taken.packet), Err(refusal), "{stack:?}");
            return;
        };
        if matches!(taken, Err(Refusal::LinkFamily)) && may_be_unnamed(stack, level) {
            return;
        }
        let taken = taken.unwrap_or_else(|refusal| panic!("{refusal} at {level} of {stack:?}"));
        assert_eq!(taken.packet, expected.build(), "level {level} of {stack:?}");
        packet = expected;
    }
    unreachable!("there are as many tunnels as levels: {stack:?}");
}

/// Returns whether no link header can announce the contents of this tunnel: an outer service header's next protocol is
/// not rewritten, and neither PPP nor a label stack has a number for a service header.
fn may_be_unnamed(stack: &Stack, level: usize) -> bool {
    let is_service = matches!(stack.tunnels.get(level), Some((_, Tunnel::VxlanGpeNsh)));
    match stack.front {
        Front::Nsh => true,
        Front::Pppoe | Front::Mpls => is_service,
        _ => false,
    }
}

/// Returns the expected inner packet; without a link layer, only IP can be presented.
fn expected(packet: &Packet, link: LinkType) -> Option<Packet> {
    let inner = packet.out_of_tunnel()?;
    Some(if link == LinkType::Raw { inner.without_link() } else { inner })
}

/// Returns whether remote checksum offload is used only for the transport checksum directly inside its tunnel. The kit
/// leaves only this checksum to the receiver, not checksums of tunnels in between.
fn is_remote_right(stack: &Stack) -> bool {
    let is_remote =
        |(_, tunnel): &(Network, Tunnel)| matches!(tunnel, Tunnel::VxlanRemote | Tunnel::GueRemote);
    let has_checksum =
        matches!(stack.transport, Transport::Tcp | Transport::TcpTimestamps | Transport::Udp);
    match stack.tunnels.split_last() {
        Some((last, outer)) => !outer.iter().any(is_remote) && (has_checksum || !is_remote(last)),
        None => true,
    }
}

/// Returns whether decapsulation supports all tunnels in the stack. It does not support L2TPv3.
fn has_ends(stack: &Stack) -> bool {
    stack.tunnels.iter().all(|(_, tunnel)| *tunnel != Tunnel::L2tp)
}

#[test]
fn every_tunnel_gives_the_packet_that_was_put_in() {
    for stack in Stack::all().into_iter().filter(has_ends) {
        for len in [0, 1, 100, 1401] {
            check(&stack, stack.packet(&Place::default()).payload_len(len));
        }
    }
}

#[test]
fn nested_tunnels_come_off_one_by_one() {
    let mut nested = 0;
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let link = *random.choose(&[Link::Ethernet, Link::Ip]);
        let stack = Stack::random(&mut random, link);
        if !is_remote_right(&stack) || !has_ends(&stack) {
            continue;
        }
        nested += usize::from(stack.tunnels.len() > 1);
        let len = random.below(300);
        check(&stack, stack.packet(&Place::default()).payload_len(len));
    }
    assert!(nested > 400, "{nested}");
}
