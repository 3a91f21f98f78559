//! Tests the format in which the inner packet is presented on each link type.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::VlanTag,
    tunnel::decapsulate::{Presented, Refusal},
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;

use super::taking::{rules, take, take_with};

const SLL: [u8; 14] = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
const SLL2: [u8; 18] = [0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0];

fn sll(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&SLL[..], &ethertype.to_be_bytes(), packet].concat()
}

fn sll2(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&ethertype.to_be_bytes(), &SLL2[..], packet].concat()
}

fn null(family: u32, packet: &[u8]) -> Vec<u8> {
    [&family.to_le_bytes()[..], packet].concat()
}

fn taken(frame: &[u8], link: LinkType) -> Result<Vec<u8>, Refusal> {
    take_with(frame, &Meta::default(), link, &rules()).map(|taken| taken.packet)
}

fn sit() -> Packet {
    Packet::new().ipv4(|ip| ip).ipv6(|ip| ip).udp(|u| u).payload(b"six in four")
}

fn vxlan() -> Packet {
    Packet::new().ipv4(|ip| ip).udp(|u| u).vxlan(|v| v)
}

#[test]
fn tags_around_an_ip_packet_stay_and_the_last_names_it() {
    let tagged = |p: Packet| p.ethernet(|e| e).vlan(|v| v.id(100).service()).vlan(|v| v.id(7));
    let packet = tagged(Packet::new()).ipv4(|ip| ip).ipv6(|ip| ip).udp(|u| u);
    let expected = packet.out_of_tunnel().unwrap().build();
    let taken = take(&packet.build()).unwrap();
    assert_eq!(taken.packet, expected);
    assert_eq!(expected[20..22], [0x86, 0xdd]);
    // No bytes remain around an inner Ethernet frame.
    let packet = tagged(Packet::new()).ipv4(|ip| ip).gre(|g| g).ethernet(|e| e).vlan(|v| v.id(3));
    let packet = packet.ipv4(|ip| ip).udp(|u| u);
    assert_eq!(take(&packet.build()).unwrap().packet, packet.out_of_tunnel().unwrap().build());
}

/// Tests rule W4: a VLAN tag in the metadata is treated like one in the frame, and the device's hash is dropped,
/// because it was computed for the outer frame.
#[test]
fn w04_a_tag_beside_the_frame_stays_as_tags_in_it_do_and_the_hash_goes() {
    let vlan = Some(VlanTag { protocol: 0x8100, tci: 7 });
    let meta = Meta { vlan, hash: Some(9), timestamp_ns: Some(5), ..Meta::default() };
    let ip = Packet::new().ethernet(|e| e).ipv4(|ip| ip).ipv4(|ip| ip).udp(|u| u).build();
    let known = take_with(&ip, &meta, LinkType::Ethernet, &rules()).unwrap().meta;
    assert_eq!((known.vlan, known.hash, known.timestamp_ns), (vlan, None, Some(5)));
    let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g).ethernet(|e| e);
    let frame = frame.ipv4(|ip| ip).udp(|u| u).build();
    let known = take_with(&frame, &meta, LinkType::Ethernet, &rules()).unwrap().meta;
    assert_eq!((known.vlan, known.hash), (None, None));
}

#[test]
fn pppoe_has_the_new_length_and_version() {
    let packet = Packet::new().ethernet(|e| e).pppoe(|p| p).ipv4(|ip| ip).gre(|g| g);
    let packet = packet.ipv6(|ip| ip).udp(|u| u).payload(b"short").pad_to(120);
    assert_eq!(take(&packet.build()).unwrap().packet, packet.out_of_tunnel().unwrap().build());
    let labelled = Packet::new().ethernet(|e| e).pppoe(|p| p).ipv4(|ip| ip).gre(|g| g);
    let labelled = labelled.mpls(|m| m).ipv4(|ip| ip).udp(|u| u).build();
    assert_eq!(take(&labelled).unwrap_err(), Refusal::LinkFamily);
}

#[test]
fn labels_around_a_tunnel_stay() {
    let labelled = || Packet::new().ethernet(|e| e).mpls(|m| m.label(9)).ipv4(|ip| ip).gre(|g| g);
    let packet = labelled().ipv6(|ip| ip).udp(|u| u);
    assert_eq!(take(&packet.build()).unwrap().packet, packet.out_of_tunnel().unwrap().build());
    // If only the tunnel were removed, the two label stacks would become one.
    let twice = labelled().mpls(|m| m).ipv4(|ip| ip).udp(|u| u).build();
    assert_eq!(take(&twice).unwrap_err(), Refusal::LinkFamily);
}

#[test]
fn cooked_captures_name_what_follows() {
    let inside = sit().out_of_tunnel().unwrap().build();
    let frame = sit().build();
    assert_eq!(taken(&sll(0x0800, &frame), LinkType::LinuxSll), Ok(sll(0x86dd, &inside)));
    assert_eq!(taken(&sll2(0x0800, &frame), LinkType::LinuxSll2), Ok(sll2(0x86dd, &inside)));
    // An inner frame loses its addresses and keeps its tag.
    let frame = vxlan().ethernet(|e| e).vlan(|v| v.id(5)).ipv4(|ip| ip).udp(|u| u).build();
    let tagged = &frame[20 + 8 + 8 + 14..];
    assert_eq!(taken(&sll(0x0800, &frame), LinkType::LinuxSll), Ok(sll(0x8100, tagged)));
    assert_eq!(taken(&sll2(0x0800, &frame), LinkType::LinuxSll2), Ok(sll2(0x8100, tagged)));
    // The inner frame contains ARP, or a length instead of an EtherType.
    for (field, name) in [(0x0806_u16, 0x0806), (0x0026, 0x0004)] {
        let inner = [&[2; 12][..], &field.to_be_bytes(), &[1; 46]].concat();
        let frame = vxlan().payload(&inner).build();
        assert_eq!(taken(&sll(0x0800, &frame), LinkType::LinuxSll), Ok(sll(name, &[1; 46])));
    }
    // VLAN tags of the outer frame are removed with it.
    let inside = Packet::new().ipv4(|ip| ip).udp(|u| u).build();
    let tagged = [
        &[0, 9, 8, 0][..],
        &vxlan().ethernet(|e| e.ethertype_raw(0x0800)).payload(&inside).build(),
    ];
    let frame = sll(0x8100, &tagged.concat());
    assert_eq!(taken(&frame, LinkType::LinuxSll), Ok(sll(0x0800, &inside)));
}

#[test]
fn without_a_link_layer_there_is_only_ip() {
    assert_eq!(taken(&sit().build(), LinkType::Raw), Ok(sit().out_of_tunnel().unwrap().build()));
    for packet in [
        vxlan().ethernet(|e| e).vlan(|v| v),
        vxlan().ethernet(|e| e),
        Packet::new().ipv4(|ip| ip).gre(|g| g).mpls(|m| m),
    ] {
        let packet = packet.ipv6(|ip| ip).udp(|u| u).payload(b"inside");
        let expected = packet.out_of_tunnel().unwrap().without_link().build();
        assert_eq!(taken(&packet.build(), LinkType::Raw), Ok(expected));
    }
    let arp = vxlan().ethernet(|e| e.ethertype_raw(0x0806)).payload(&[0; 28]).build();
    assert_eq!(taken(&arp, LinkType::Raw), Err(Refusal::LinkFamily));
    assert_eq!(taken(&null(2, &arp), LinkType::Null), Err(Refusal::LinkFamily));
}

/// Tests that a loopback capture keeps its family: the number for IPv6 differs between systems, so it cannot be
/// written.
#[test]
fn loopback_captures_keep_their_family() {
    let ipip = Packet::new().ipv4(|ip| ip).ipv4(|ip| ip).udp(|u| u);
    let inside = ipip.out_of_tunnel().unwrap().build();
    assert_eq!(taken(&null(2, &ipip.build()), LinkType::Null), Ok(null(2, &inside)));
    assert_eq!(taken(&null(2, &sit().build()), LinkType::Null), Err(Refusal::LinkFamily));
    let frame = vxlan().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    let inside = frame.out_of_tunnel().unwrap().without_link().build();
    assert_eq!(taken(&null(2, &frame.build()), LinkType::Null), Ok(null(2, &inside)));
}

#[test]
fn a_packet_alone_is_what_lies_in_the_tunnel_whatever_link_it_came_by() {
    let mut rules = rules();
    rules.presented = Presented::Alone;
    let frame = Packet::new().ethernet(|e| e).vlan(|v| v).ipv4(|ip| ip).udp(|u| u).payload(b"in");
    let packet = Packet::new().ipv6(|ip| ip).udp(|u| u).payload(b"in");
    for inside in [frame.build(), packet.build()] {
        let is_frame = inside[0] >> 4 != 6;
        let outer = |p: Packet| match is_frame {
            true => p.ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).payload(&inside).build(),
            false => p.ipv4(|ip| ip.protocol(41)).payload(&inside).build(),
        };
        for (link, frame) in [
            (LinkType::Raw, outer(Packet::new())),
            (LinkType::Ethernet, outer(Packet::new().ethernet(|e| e).vlan(|v| v.id(9)))),
        ] {
            let vlan = Some(VlanTag { protocol: 0x8100, tci: 7 });
            let meta = Meta { vlan, ..Meta::default() };
            let taken = take_with(&frame, &meta, link, &rules).unwrap();
            assert_eq!(taken.packet, inside);
            assert_eq!(taken.meta.vlan, None);
            assert!(!taken.plan.is_change());
            assert_eq!(frame[taken.plan.inner()], inside);
        }
    }
}

/// Tests RFC 4448: labels on a link have no IP around them.
#[test]
fn labels_around_a_frame_on_a_link_are_removed() {
    let inside = Packet::new().ethernet(|e| e).vlan(|v| v.id(3)).ipv4(|ip| ip).udp(|u| u);
    let (inside, start, offset) = inside.payload(b"in labels").build_partial();
    for control in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 7]] {
        let labels = [&[0, 1, 0x10, 64, 0, 2, 0x11, 64][..], control, &inside].concat();
        let around = Packet::new().ethernet(|e| e).build();
        let frame = [&around[..12], &[0x88, 0x47], &labels].concat();
        let before = frame.len() - inside.len();
        let checksum = Checksum::Partial { start: (before + start) as u16, offset: offset as u16 };
        let meta = Meta { checksum, hash: Some(9), ..Meta::default() };
        let out = take_with(&frame, &meta, LinkType::Ethernet, &rules()).unwrap();
        assert_eq!(out.packet, inside);
        let left = Checksum::Partial { start: start as u16, offset: offset as u16 };
        assert_eq!((out.meta.checksum, out.meta.hash), (left, None));
        // A partial checksum before the inner frame would be lost.
        let checksum = Checksum::Partial { start: 2, offset: 0 };
        let outside = take_with(&frame, &Meta { checksum, ..meta }, LinkType::Ethernet, &rules());
        assert_eq!(outside.err(), Some(Refusal::ChecksumOutside));
        // A cooked header has no room for the inner frame's addresses.
        let cooked = sll(0x8847, &labels);
        assert_eq!(taken(&cooked, LinkType::LinuxSll), Err(Refusal::LinkFamily));
        let mut alone = rules();
        alone.presented = Presented::Alone;
        let out = take_with(&cooked, &Meta::default(), LinkType::LinuxSll, &alone).unwrap();
        assert_eq!(out.packet, inside);
    }
}
