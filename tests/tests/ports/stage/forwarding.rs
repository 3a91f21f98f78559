//! Tests a tunnel that carries Ethernet frames to several peers.

use std::net::IpAddr;

use grosso::{
    Meta,
    features::{Device, Features},
    meta::Gso,
    tunnel::{Carrier, Endpoint, Header},
};
use grosso_io::{
    Transmitted,
    memory::{MemoryPort, wire},
    stage::{EthernetLink, Forwarding, REMOTES_MAX, Remote, TunnelOptions, TunnelStage},
};
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
};
use grosso_wire::LinkType;

use super::{
    ends::{counter, receive, send},
    formats::{VXLAN, udp},
};

const LOCAL: [u8; 4] = [192, 0, 2, 1];
/// Peers: the endpoint's remote address, and two more. The last one has a different next hop.
const REMOTES: [[u8; 4]; 3] = [[192, 0, 2, 2], [192, 0, 2, 3], [198, 51, 100, 4]];
const NEXT: [u8; 6] = [6; 6];

fn address(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn endpoint() -> Endpoint {
    let carrier = Carrier::Udp(udp(4789, true, false));
    Endpoint::new(LOCAL.into(), REMOTES[0].into(), VXLAN, carrier)
}

fn forwarding() -> Forwarding {
    let mut forwarding = Forwarding::new([REMOTES[1].into()]);
    forwarding.remotes.push(Remote { address: REMOTES[2].into(), next: Some(NEXT) });
    forwarding
}

fn options(forwarding: Forwarding) -> TunnelOptions {
    let mut options = TunnelOptions::new(endpoint(), 1);
    options.link = Some(EthernetLink { source: [4; 6], destination: [5; 6] });
    options.forwarding = Some(forwarding);
    options
}

fn tunnel(forwarding: Forwarding) -> (TunnelStage<MemoryPort>, MemoryPort) {
    let (near, far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 256);
    (TunnelStage::new(near, options(forwarding)).unwrap(), far)
}

/// Returns a frame between the devices with these addresses.
fn frame(destination: [u8; 6], source: u8) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e.destination(destination).source(address(source)));
    packet.ipv4(|ip| ip).udp(|udp| udp).payload_len(50).build()
}

/// Returns the frame as received from another endpoint.
fn arriving(from: [u8; 4], frame: &[u8]) -> Vec<u8> {
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(from).destination(LOCAL));
    let outer = outer.udp(|udp| udp.destination_port(4789)).vxlan(|v| v.vni(7));
    outer.payload(frame).build()
}

/// Returns the tunnel endpoint and the next hop to which each frame was sent.
fn went(far: &mut MemoryPort) -> Vec<([u8; 4], [u8; 6])> {
    let ends = |(frame, _): (Vec<u8>, Meta)| {
        assert!(oracle::is_right(&frame, Link::Ethernet));
        (frame[30..34].try_into().unwrap(), frame[..6].try_into().unwrap())
    };
    receive(far, 1).into_iter().map(ends).collect()
}

fn all() -> Vec<([u8; 4], [u8; 6])> {
    vec![(REMOTES[0], [5; 6]), (REMOTES[1], [5; 6]), (REMOTES[2], NEXT)]
}

#[test]
fn a_frame_goes_to_where_its_destination_was_seen_and_to_all_before() {
    let (mut near, mut far) = tunnel(forwarding());
    let there = frame(address(9), 1);
    assert_eq!(send(&mut near, &there), Transmitted::Taken);
    assert_eq!(went(&mut far), all());
    for (number, remote) in REMOTES.into_iter().enumerate() {
        let back = frame(address(1), 9);
        assert_eq!(send(&mut far, &arriving(remote, &back)), Transmitted::Taken);
        assert_eq!(receive(&mut near, 1)[0].0, back);
        assert_eq!(send(&mut near, &there), Transmitted::Taken);
        assert_eq!(went(&mut far), [all()[number]], "it moved");
    }
    let group = frame([0xff; 6], 1);
    assert_eq!(send(&mut near, &group), Transmitted::Taken);
    assert_eq!(went(&mut far), all());
    assert_eq!(counter(&mut near, "tunnel_out_flooded"), 2);
    assert_eq!(counter(&mut near, "tunnel_out_frames"), 3 + 3 + 3);
    // Five minutes later, learned addresses have expired.
    receive(&mut near, 301_000_000_000);
    assert_eq!(send(&mut near, &there), Transmitted::Taken);
    assert_eq!(went(&mut far), all());
}

#[test]
fn a_superframe_for_all_goes_to_all() {
    let (mut near, mut far) = tunnel(forwarding());
    let packet = Packet::new().ethernet(|e| e.destination([0xff; 6])).ipv4(|ip| ip);
    let (frame, start, offset) = packet.udp(|u| u).payload_len(3000).build_superframe();
    let checksum =
        grosso::checksum::Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { checksum, gso: Gso::every(1000), ..Meta::default() };
    assert_eq!(grosso_io::Port::transmit(&mut near, &[&frame], &meta).unwrap(), Transmitted::Taken);
    let expected: Vec<_> = all().into_iter().flat_map(|end| [end; 3]).collect();
    assert_eq!(went(&mut far), expected);
}

#[test]
fn packets_from_unknown_or_other_peers_are_dropped_by_name() {
    let mut forwarding = forwarding();
    forwarding.configured = vec![(address(9), REMOTES[1].into())];
    let (mut near, mut far) = tunnel(forwarding);
    assert_eq!(send(&mut near, &frame(address(9), 1)), Transmitted::Taken);
    assert_eq!(went(&mut far), [all()[1]]);
    let mut group = frame(address(1), 9);
    group[6] |= 1;
    for (from, frame, name) in [
        ([192, 0, 2, 9], frame(address(1), 8), "tunnel_in_foreign_address"),
        (REMOTES[0], frame(address(1), 9), "tunnel_in_moved"),
        (REMOTES[1], group, "tunnel_in_no_device"),
    ] {
        assert_eq!(send(&mut far, &arriving(from, &frame)), Transmitted::Taken);
        assert!(receive(&mut near, 1).is_empty(), "{name}");
        assert_eq!(counter(&mut near, name), 1, "{name}");
    }
    assert_eq!(send(&mut far, &arriving(REMOTES[1], &frame(address(1), 9))), Transmitted::Taken);
    assert_eq!(receive(&mut near, 1).len(), 1);
    // No address was learned from any of these frames.
    assert_eq!(send(&mut near, &frame(address(8), 1)), Transmitted::Taken);
    assert_eq!(went(&mut far), all());
}

#[test]
fn w31_what_a_policy_forbids_to_learn_is_not_learned() {
    let (near, mut far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 256);
    let mut options = options(forwarding());
    options.endpoint.header =
        Header::Vxlan { identifier: 7, policy: Some(1), generic_protocol: false };
    let mut near = TunnelStage::new(near, options).unwrap();
    for (flags, expected) in [(0x8848_0001, all()), (0x8808_0001, vec![all()[1]])] {
        let outer =
            Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(REMOTES[1]).destination(LOCAL));
        let outer = outer.udp(|udp| udp.destination_port(4789));
        let outer = outer.vxlan(|v| v.vni(7).flags(flags)).payload(&frame(address(1), 9));
        assert_eq!(send(&mut far, &outer.build()), Transmitted::Taken);
        assert_eq!(receive(&mut near, 1).len(), 1);
        assert_eq!(send(&mut near, &frame(address(9), 1)), Transmitted::Taken);
        assert_eq!(went(&mut far), expected, "{flags:x}");
    }
}

#[test]
fn a_flood_of_sources_takes_no_more_than_the_table() {
    let mut forwarding = forwarding();
    forwarding.addresses_max = 10;
    let (mut near, mut far) = tunnel(forwarding);
    for source in 0..100 {
        let flood = arriving(REMOTES[2], &frame(address(1), source));
        assert_eq!(send(&mut far, &flood), Transmitted::Taken);
        assert_eq!(receive(&mut near, 1).len(), 1, "what is not learned is taken all the same");
    }
    assert_eq!(counter(&mut near, "tunnel_in_unlearned"), 90);
    for (destination, expected) in [(3, vec![all()[2]]), (50, all())] {
        assert_eq!(send(&mut near, &frame(address(destination), 1)), Transmitted::Taken);
        assert_eq!(went(&mut far), expected);
    }
}

#[test]
fn ends_that_cannot_be_are_refused() {
    let refused = |options: TunnelOptions| {
        let port = wire(LinkType::Ethernet, Device::new(Features::NONE), 1).0;
        TunnelStage::new(port, options).unwrap_err().to_string()
    };
    let with = |remotes: Vec<IpAddr>| refused(options(Forwarding::new(remotes)));
    assert!(with(vec![REMOTES[0].into()]).contains("configured twice"));
    assert!(with(vec!["2001:db8::1".parse().unwrap()]).contains("both be IPv4 or both be IPv6"));
    let many = (0..REMOTES_MAX as u8).map(|last| [10, 0, 0, last].into()).collect();
    assert!(with(many).contains("at most 64"));
    let mut packets = options(forwarding());
    packets.endpoint = Endpoint::new(LOCAL.into(), REMOTES[0].into(), Header::Ip, Carrier::Ip);
    assert!(refused(packets).contains("Ethernet frames"));
}
