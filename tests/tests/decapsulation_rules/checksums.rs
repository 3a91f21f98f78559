//! Tests how decapsulation treats outer checksums, and which state it reports for inner checksums.

use grosso::{
    Meta,
    checksum::{Checksum, complete},
    tunnel::decapsulate::{DecapsulationRules, Refusal, RemoteChecksumMode},
};
use grosso_testkit::{
    Packet,
    headers::Gue,
    oracle::{self, Link, is_right},
};
use grosso_wire::LinkType;

use super::taking::{Taken, rules, take, take_with};

fn take_knowing(frame: &[u8], checksum: Checksum) -> Result<Taken, Refusal> {
    let meta = Meta { checksum, ..Meta::default() };
    take_with(frame, &meta, LinkType::Ethernet, &rules())
}

fn take_by(frame: &[u8], rules: &DecapsulationRules) -> Result<Taken, Refusal> {
    take_with(frame, &Meta::default(), LinkType::Ethernet, rules)
}

fn with_mode(mode: RemoteChecksumMode) -> DecapsulationRules {
    let mut rules = rules();
    rules.remote_checksum = mode;
    rules
}

fn vxlan(wrong: u16) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_xor(wrong));
    packet.vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(301)
}

fn gue_gre(wrong_udp: u16, wrong_gre: u16) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u.checksum_xor(wrong_udp));
    let packet = packet.gue(|g| g).gre(|g| g.checksum().checksum_xor(wrong_gre));
    packet.ipv6(|ip| ip).tcp(|t| t).payload_len(77)
}

/// Returns the sum of a packet, starting at its first IP header, as computed by the oracle.
fn sum_of(packet: &[u8]) -> u16 {
    oracle::sum(&packet[14..])
}

/// Returns whether a checksum state has the correct sum of the packet; `0` and `0xffff` are the same sum.
fn is_sum(checksum: Checksum, packet: &[u8]) -> bool {
    matches!(checksum, Checksum::Complete { sum } if sum % 0xffff == sum_of(packet) % 0xffff)
}

#[test]
fn wrong_checksums_around_a_packet_are_named() {
    assert_eq!(take(&vxlan(1).build()).unwrap_err(), Refusal::UdpChecksum);
    assert_eq!(take(&gue_gre(1, 0).build()).unwrap_err(), Refusal::UdpChecksum);
    // The outer checksum is correct, although the inner checksum that it covers is wrong.
    assert_eq!(take(&gue_gre(0, 1).build()).unwrap_err(), Refusal::GreChecksum);
    let header = Packet::new().ethernet(|e| e).ipv4(|ip| ip.checksum_xor(1));
    let frame = header.ipv4(|ip| ip).udp(|u| u).build();
    assert_eq!(take(&frame).unwrap_err(), Refusal::Ipv4Checksum);
}

/// Tests that a receiver does not read the payload if it trusts the device, which has verified the checksums.
#[test]
fn verified_checksums_are_not_verified_again() {
    let unnecessary = |levels| Checksum::Unnecessary { levels };
    for (levels, inside) in [(1, unnecessary(0)), (2, unnecessary(1)), (255, unnecessary(254))] {
        let taken = take_knowing(&vxlan(1).build(), unnecessary(levels)).unwrap();
        assert_eq!(taken.meta.checksum, inside, "{levels}");
    }
    // One of two checksums was verified, so the payload is read to verify the other.
    let one =
        |wrong_udp, wrong_gre| take_knowing(&gue_gre(wrong_udp, wrong_gre).build(), unnecessary(0));
    let taken = one(1, 0).unwrap();
    assert!(is_sum(taken.meta.checksum, &taken.packet), "{:?}", taken.meta);
    assert_eq!(one(0, 1).unwrap_err(), Refusal::GreChecksum);
    let taken = take_knowing(&gue_gre(1, 1).build(), unnecessary(2)).unwrap();
    assert_eq!(taken.meta.checksum, unnecessary(0));
    // An absent checksum does not count as one of the verified levels.
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
    let frame = packet.vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).build();
    assert_eq!(take_knowing(&frame, unnecessary(0)).unwrap().meta.checksum, unnecessary(0));
}

/// Tests that a verified outer sum yields the sum of the inner packet.
#[test]
fn c30_a_verified_sum_becomes_the_sum_of_the_packet_inside() {
    for (packet, is_covered) in [
        (vxlan(0), true),
        (gue_gre(0, 0), true),
        (vxlan(0).pad_to(600), true),
        (Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g).ipv6(|ip| ip).udp(|u| u), false),
    ] {
        let frame = packet.build();
        let read = take(&frame).unwrap();
        let known = take_knowing(&frame, Checksum::Complete { sum: sum_of(&frame) }).unwrap();
        assert_eq!(read.packet, known.packet);
        assert!(is_sum(known.meta.checksum, &known.packet), "{:?}", known.meta);
        if is_covered {
            assert!(is_sum(read.meta.checksum, &read.packet), "{:?}", read.meta);
        } else {
            assert_eq!(read.meta.checksum, Checksum::None);
        }
    }
    // A wrong sum must not be trusted.
    let frame = vxlan(0).build();
    let wrong = Checksum::Complete { sum: sum_of(&frame) ^ 1 };
    assert_eq!(take_knowing(&frame, wrong).unwrap_err(), Refusal::UdpChecksum);
}

/// Tests that a checksum verified by the device yields the sum of the inner packet without reading the payload: if the
/// payload is changed, the sum stays the same.
#[test]
fn c30_a_verified_checksum_becomes_the_sum_of_the_packet_inside() {
    for (packet, levels) in [(vxlan(0), 0), (vxlan(0).pad_to(600), 0), (gue_gre(0, 0), 1)] {
        let mut frame = packet.build();
        let read = take(&frame).unwrap();
        frame[150] ^= 0x55;
        let known = take_knowing(&frame, Checksum::Unnecessary { levels }).unwrap();
        assert_ne!(known.packet, read.packet);
        assert!(is_sum(known.meta.checksum, &read.packet), "{:?}", known.meta);
    }
}

/// Tests that a congestion mark changes an IPv6 packet's sum. An IPv4 packet's sum stays the same, because the header
/// checksum compensates for the change.
#[test]
fn c30_a_sum_follows_the_mark_of_congestion() {
    let outer = || Packet::new().ethernet(|e| e).ipv4(|ip| ip.tos(3)).udp(|u| u).gue(|g| g);
    for packet in [
        outer().ipv4(|ip| ip.tos(2)).udp(|u| u).payload(b"payload"),
        outer().ipv6(|ip| ip.traffic_class(2)).udp(|u| u).payload(b"payload"),
    ] {
        let taken = take(&packet.build()).unwrap();
        assert!(is_sum(taken.meta.checksum, &taken.packet), "{:?}", taken.meta);
    }
}

#[test]
fn partial_checksums_move_with_the_packet() {
    let frames = [
        vxlan(0),
        gue_gre(0, 0),
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g.key(1)).ipv4(|ip| ip).udp(|u| u),
    ];
    for packet in frames {
        let (frame, start, offset) = packet.build_partial();
        let partial = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let mut taken = take_knowing(&frame, partial).unwrap();
        let Checksum::Partial { start, offset } = taken.meta.checksum else {
            panic!("{:?}", taken.meta)
        };
        complete(&mut taken.packet, start, offset).unwrap();
        assert_eq!(taken.packet, packet.out_of_tunnel().unwrap().build());
    }
}

#[test]
fn a_partial_checksum_around_the_packet_is_gone_with_its_header() {
    let frame = vxlan(1).build();
    let partial = |start, offset| Checksum::Partial { start, offset };
    // The outer UDP header starts after Ethernet and IPv4.
    let taken = take_knowing(&frame, partial(34, 6)).unwrap();
    assert_eq!(taken.meta.checksum, Checksum::None);
    // A checksum inside the one that is partial has to be verified.
    let gre = gue_gre(1, 1).build();
    assert_eq!(take_knowing(&gre, partial(54, 6)).unwrap_err(), Refusal::GreChecksum);
    // A checksum around the one that is partial counts as correct.
    let taken = take_knowing(&gue_gre(1, 1).build(), partial(66, 4)).unwrap();
    assert_eq!(taken.meta.checksum, Checksum::None);
    for (start, offset) in
        [(0, 0), (34, 4), (14, 10), (42, 0), (frame.len() as u16 - 1, 0), (u16::MAX, 6)]
    {
        let refusal = take_knowing(&frame, partial(start, offset)).unwrap_err();
        assert_eq!(refusal, Refusal::ChecksumOutside, "{start} {offset}");
    }
}

#[test]
fn w32_p46_udp_over_ipv6_needs_a_checksum_unless_configured() {
    let packet = |is_ipv6: bool| {
        let packet = Packet::new().ethernet(|e| e);
        let packet = if is_ipv6 { packet.ipv6(|ip| ip) } else { packet.ipv4(|ip| ip) };
        let packet = packet.udp(|u| u.checksum_zero()).vxlan(|v| v).ethernet(|e| e);
        packet.ipv4(|ip| ip).udp(|u| u).build()
    };
    let strict = DecapsulationRules::default();
    assert!(take_by(&packet(false), &strict).is_ok());
    assert_eq!(take_by(&packet(true), &strict).unwrap_err(), Refusal::UdpChecksumNone);
    assert!(take_by(&packet(true), &rules()).is_ok());
}

fn remote_vxlan() -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    packet.vxlan(|v| v.remote_checksum()).ethernet(|e| e)
}

fn remote_gue(edit: impl FnOnce(Gue) -> Gue) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).gue(edit);
    packet.ipv4(|ip| ip).udp(|u| u).payload_len(64)
}

/// Returns a change to a GUE header that adds private flags and remote checksum offload with these offsets, counted
/// from the end of the header.
fn places(start: u16, at: u16) -> impl FnOnce(Gue) -> Gue {
    let options = [&[0x80, 0, 0, 0][..], &start.to_be_bytes(), &at.to_be_bytes()].concat();
    move |gue| gue.flags(1).options(&options)
}

#[test]
fn c53_remote_checksum_offload_is_completed_or_stays_partial() {
    let packets = [
        remote_vxlan().ipv4(|ip| ip).tcp(|t| t).payload_len(301),
        remote_vxlan().ipv6(|ip| ip).udp(|u| u).payload_len(20),
        remote_vxlan().vlan(|v| v).ipv4(|ip| ip).udp(|u| u).payload_len(1),
        remote_gue(Gue::remote_checksum),
    ];
    for packet in packets {
        let frame = packet.build();
        let expected = packet.out_of_tunnel().unwrap().build();
        let completed = take_by(&frame, &with_mode(RemoteChecksumMode::Complete)).unwrap();
        assert_eq!(completed.packet, expected);
        assert_eq!(completed.meta.checksum, Checksum::None);
        let mut partial = take_by(&frame, &with_mode(RemoteChecksumMode::Partial)).unwrap();
        let Checksum::Partial { start, offset } = partial.meta.checksum else {
            panic!("{:?}", partial.meta)
        };
        assert_ne!(partial.packet, expected, "nothing is written");
        complete(&mut partial.packet, start, offset).unwrap();
        assert_eq!(partial.packet, expected);
    }
}

/// Tests a sum of zero. One's complement has two zeros, and UDP uses one of them for an absent checksum.
#[test]
fn p42_a_sum_of_zero_is_written_as_all_ones() {
    let mut seen = 0;
    for word in 0..=u16::MAX {
        let packet = remote_vxlan().ipv4(|ip| ip).udp(|u| u).payload(&word.to_be_bytes());
        let expected = packet.out_of_tunnel().unwrap().build();
        if expected[40..42] == [0xff, 0xff] {
            assert_eq!(take(&packet.build()).unwrap().packet, expected);
            seen += 1;
        }
    }
    assert_eq!(seen, 1);
}

/// Tests that the header that requested remote checksum offload is removed, and that the metadata reports the checksum
/// as completed.
#[test]
fn p43_b51_remote_checksum_offload_is_done_once() {
    let packet = remote_vxlan().ipv4(|ip| ip).gre(|g| g).ipv4(|ip| ip).tcp(|t| t).payload_len(100);
    let once = take(&packet.build()).unwrap();
    let twice = take_knowing(&once.packet, once.meta.checksum).unwrap();
    assert!(is_right(&twice.packet, Link::Ethernet));
    assert_eq!(twice.packet, packet.out_of_tunnel().unwrap().out_of_tunnel().unwrap().build());
    // If the metadata already contains the offset, the tunnel's request is not applied again.
    let (frame, start, offset) = packet.build_partial();
    let partial = Checksum::Partial { start: start as u16, offset: offset as u16 };
    assert_eq!(take_knowing(&frame, partial).unwrap().packet, once.packet);
}

#[test]
fn c54_b52_remote_checksum_offload_needs_a_checksum_around_it() {
    let unprotected = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
    let packet = unprotected.vxlan(|v| v.remote_checksum()).ethernet(|e| e);
    let frame = packet.ipv4(|ip| ip).tcp(|t| t).build();
    assert_eq!(take(&frame).unwrap_err(), Refusal::RemoteChecksumUnprotected);
    let wrong = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_xor(1));
    let packet = wrong.vxlan(|v| v.remote_checksum()).ethernet(|e| e);
    assert_eq!(take(&packet.ipv4(|ip| ip).tcp(|t| t).build()).unwrap_err(), Refusal::UdpChecksum);
}

#[test]
fn c55_p41_places_outside_the_packet_are_refused() {
    let len = remote_gue(|g| g).build().len() as u16 - 14 - 20 - 8 - 4;
    let refusal =
        |start, at| take(&remote_gue(places(start, at)).build()).map(|taken| taken.packet);
    assert!(refusal(20, 26).is_ok());
    assert!(refusal(len - 2, len - 2).is_ok());
    for (start, at) in [
        (len, len),
        (20, len),
        (20, len - 1),
        (0, u16::MAX),
        (u16::MAX, u16::MAX),
        (26, 20),
        (21, 27),
        (20, 27),
        (21, 26),
    ] {
        assert_eq!(refusal(start, at), Err(Refusal::RemoteChecksumPlace), "{start} {at}");
    }
    let far = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    let far = far.vxlan(|v| v.flags(0x0820_0000).reserved(0x7f)).ethernet(|e| e);
    let frame = far.ipv4(|ip| ip).udp(|u| u).build();
    assert_eq!(take(&frame).unwrap_err(), Refusal::RemoteChecksumPlace);
}

/// Tests for a former kernel bug: Linux read the inner packet as if it were the option.
#[test]
fn p40_b13_an_option_beyond_its_header_is_refused() {
    let frame = remote_gue(|g| g.flags(1).options(&[0x80, 0, 0, 0])).build();
    assert_eq!(take(&frame).unwrap_err(), Refusal::Malformed);
}

#[test]
fn c56_remote_checksum_offload_that_is_not_expected_is_refused() {
    for packet in [remote_vxlan().ipv4(|ip| ip).udp(|u| u), remote_gue(Gue::remote_checksum)] {
        let refusal = take_by(&packet.build(), &DecapsulationRules::default()).unwrap_err();
        assert_eq!(refusal, Refusal::RemoteChecksumOff);
    }
}

#[test]
fn a_partial_checksum_elsewhere_than_the_remote_one_is_refused() {
    let frame = remote_gue(Gue::remote_checksum).build();
    // The offset follows Ethernet, IPv4, UDP, GUE with its fields, and IPv4.
    let transport = 14 + 20 + 8 + 12 + 20;
    let partial = |start, offset| take_knowing(&frame, Checksum::Partial { start, offset });
    assert!(partial(transport, 6).is_ok());
    assert_eq!(partial(transport, 4).unwrap_err(), Refusal::RemoteChecksumPlace);
    assert_eq!(partial(transport - 20, 10).unwrap_err(), Refusal::RemoteChecksumPlace);
}

#[test]
fn a_sum_leaves_out_what_is_behind_the_packet() {
    let inside = Packet::new().ipv4(|ip| ip).udp(|u| u).payload(b"odd").build();
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).gue(|g| g.protocol_raw(4));
    let frame = outer.payload(&[&inside[..], b"something more"].concat()).build();
    let taken = take(&frame).unwrap();
    assert_eq!(taken.packet[14..], inside);
    assert!(is_sum(taken.meta.checksum, &taken.packet), "{:?}", taken.meta);
}

/// Function that adds the inner headers of a tunnel packet.
type Inner = fn(Packet) -> Packet;

#[test]
fn a_checksum_that_was_left_to_no_device_is_partial_where_that_is_asked_for() {
    let mut asked = rules();
    asked.completes_left_open = true;
    let around = |inner: Inner| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
        inner(packet.ethernet(|e| e)).payload_len(301).build()
    };
    let open: [(Inner, u16, u16); 3] = [
        (|packet| packet.ipv4(|ip| ip).tcp(|t| t.checksum_seed()), 34, 16),
        (|packet| packet.ipv6(|ip| ip).tcp(|t| t.checksum_seed()), 54, 16),
        (|packet| packet.vlan(|v| v).ipv4(|ip| ip).udp(|u| u.checksum_seed()), 38, 6),
    ];
    for (inner, start, offset) in open {
        let frame = around(inner);
        let taken = take_by(&frame, &asked).unwrap();
        assert_eq!(taken.meta.checksum, Checksum::Partial { start, offset });
        let mut packet = taken.packet;
        complete(&mut packet, start, offset).unwrap();
        assert!(is_right(&packet, Link::Ethernet));
        let not_asked = take_by(&frame, &rules()).unwrap();
        assert!(!matches!(not_asked.meta.checksum, Checksum::Partial { .. }));
    }
    let others: [Inner; 3] = [
        |packet| packet.ipv4(|ip| ip).tcp(|t| t),
        |packet| packet.ipv6(|ip| ip).tcp(|t| t.checksum_xor(1)),
        |packet| packet.ipv4(|ip| ip).udp(|u| u.checksum_zero()),
    ];
    for inner in others {
        let taken = take_by(&around(inner), &asked).unwrap();
        assert!(!matches!(taken.meta.checksum, Checksum::Partial { .. }));
    }
}
