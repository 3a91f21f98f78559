//! Tests local and remote checksum offload.

use grosso::{
    Meta,
    checksum::Checksum,
    features::{Device, Features, Work},
    tunnel::{
        Carrier, Endpoint, Header,
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_testkit::Packet;
use grosso_wire::{LinkType, dissect};

use super::{
    formats::{V4, VXLAN, all, gre, remote, udp, with_remote_checksum, without_checksum},
    putting::{Known, link_of, packets, partial, put, take},
    superframes::superframe,
};

fn end(header: Header, carrier: Carrier) -> (Endpoint, Encapsulator) {
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, header, carrier);
    (endpoint.clone(), Encapsulator::new(endpoint, 1).unwrap())
}

fn tcp() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.sequence(9)).payload_len(500)
}

/// Tests that outer checksums around a partial one are computed without reading the payload, which is not even in
/// memory.
#[test]
fn c40_checksums_around_a_partial_one_are_made_without_its_payload() {
    let mut made = 0;
    for endpoint in all() {
        let mut encapsulators = [(); 2].map(|()| Encapsulator::new(endpoint.clone(), 1).unwrap());
        for (_, packet) in packets(&endpoint) {
            let frame = Known::partial(&packet.payload_len(801));
            let Checksum::Partial { start, .. } = frame.meta.checksum else { unreachable!() };
            let (head, payload) = frame.bytes.split_at(usize::from(start) + 32);
            let other_payload = vec![0x5a; payload.len()];
            let [header, other_header] = [payload, &other_payload[..]].map(|payload| {
                let encapsulator = &mut encapsulators[usize::from(payload == other_payload)];
                let put_in = encapsulator
                    .encapsulate(&[head, payload], &frame.meta, link_of(&endpoint))
                    .unwrap();
                assert!(matches!(put_in.meta.checksum, Checksum::Partial { .. }));
                put_in.header.to_vec()
            });
            assert_eq!(header, other_header, "{endpoint:?}");
            made += 1;
        }
    }
    assert_eq!(made, 39 * 4);
}

/// Tests that a checksum that was already partial is left to the device, at its new offset.
#[test]
fn c40_the_checksum_inside_stays_the_partial_one() {
    let (_, mut encapsulator) = end(VXLAN, Carrier::Udp(udp(4789)));
    let sent = put(&mut encapsulator, &Known::partial(&tcp()), LinkType::Ethernet).unwrap();
    assert_eq!(sent.meta.checksum, partial(20 + 8 + 8 + 14 + 20, 16));
    assert_ne!(sent.bytes[26..28], [0, 0]);
    // Without an outer checksum, the result is the same.
    let (_, mut encapsulator) = end(VXLAN, Carrier::Udp(without_checksum(4789)));
    let sent = put(&mut encapsulator, &Known::partial(&tcp()), LinkType::Ethernet).unwrap();
    assert_eq!(sent.meta.checksum, partial(70, 16));
    assert_eq!(sent.bytes[26..28], [0, 0], "W23: no checksum is written");
}

/// Tests that the outer checksum is left to the device if the inner checksum is complete. If there are two outer
/// checksums, the inner one of them is left to the device.
#[test]
fn c40_around_a_complete_checksum_the_outer_one_is_partial() {
    for (header, carrier, expected) in [
        (VXLAN, Carrier::Udp(udp(4789)), partial(20, 6)),
        (VXLAN, Carrier::Udp(without_checksum(4789)), Checksum::None),
        (gre(None, true, false, true), Carrier::Ip, partial(20, 4)),
        (gre(None, true, false, true), Carrier::Gue(udp(6080)), partial(32, 4)),
        (gre(None, false, false, true), Carrier::Gue(udp(6080)), partial(20, 6)),
    ] {
        let (_, mut encapsulator) = end(header, carrier);
        for checksum in [Checksum::None, Checksum::Complete { sum: 7 }] {
            let frame = Known { bytes: tcp().build(), meta: Meta { checksum, ..Meta::default() } };
            let sent = put(&mut encapsulator, &frame, LinkType::Ethernet).unwrap();
            assert_eq!(sent.meta.checksum, expected);
        }
    }
}

/// Tests that verified checksums stay marked as verified only if encapsulation adds no unverified outer checksum.
#[test]
fn what_is_known_of_checksums_is_kept_where_it_is_still_true() {
    let checksum = Checksum::Unnecessary { levels: 1 };
    let frame = Known { bytes: tcp().build(), meta: Meta { checksum, ..Meta::default() } };
    let (_, mut bare) = end(VXLAN, Carrier::Udp(without_checksum(4789)));
    let sent = put(&mut bare, &frame, LinkType::Ethernet).unwrap();
    assert_eq!(sent.meta.checksum, checksum);
    let (_, mut covered) = end(VXLAN, Carrier::Udp(udp(4789)));
    let sent = put(&mut covered, &frame, LinkType::Ethernet).unwrap();
    assert_eq!(sent.meta.checksum, partial(20, 6));
}

/// Tests rules C50 and C52 with Ethernet, IPv4 and TCP inside VXLAN.
#[test]
fn c50_c52_vxlan_states_the_offset_of_a_partial_checksum() {
    let (endpoint, mut encapsulator) = end(VXLAN, Carrier::Udp(with_remote_checksum(4789)));
    let frame = Known::partial(&tcp());
    let sent = put(&mut encapsulator, &frame, LinkType::Ethernet).unwrap();
    assert_eq!(sent.bytes[28..36], [0x08, 0x20, 0, 0, 0xab, 0xcd, 0xef, 0x11]);
    assert_eq!(sent.meta.checksum, partial(20, 6), "the inner pseudo-header sum is now payload");
    assert_eq!(sent.bytes[36..], frame.bytes);
    let on_the_wire = Known::new(sent.completed());
    let taken = take(&endpoint, &on_the_wire);
    assert_eq!((taken.bytes, taken.meta.checksum), (frame.bytes, frame.meta.checksum));
    let datagram = Packet::new().ethernet(|e| e).vlan(|v| v).ipv6(|ip| ip).udp(|u| u);
    let sent = put(&mut encapsulator, &Known::partial(&datagram), LinkType::Ethernet).unwrap();
    assert_eq!(sent.bytes[35], 0x80 | 29);
    assert_eq!(encapsulator.stats().remote_checksums, 2);
}

// Rules: W23
#[test]
fn c51_c52_gue_states_the_offset_of_a_partial_checksum() {
    let packet = Packet::new().ipv4(|ip| ip).udp(|u| u).payload_len(100);
    for (header, protocol, gre_len) in
        [(Header::Ip, 4, 0), (gre(Some(9), false, false, false), 47, 8)]
    {
        let (endpoint, mut encapsulator) = end(header, Carrier::Gue(with_remote_checksum(6080)));
        let frame = Known::partial(&packet);
        let sent = put(&mut encapsulator, &frame, LinkType::Raw).unwrap();
        let (start, offset) = (20 + gre_len, 26 + gre_len);
        let expected = [2, protocol, 0, 1, 0x80, 0, 0, 0, 0, start, 0, offset];
        assert_eq!(sent.bytes[28..40], expected);
        let taken = take(&endpoint, &Known::new(sent.completed()));
        assert_eq!((taken.bytes, taken.meta.checksum), (frame.bytes, frame.meta.checksum));
    }
}

/// Tests that a packet is sent without remote checksum offload if the header fields cannot represent the offset, or if
/// the result would be wrong.
#[test]
fn c52_remote_checksum_offload_is_left_out_where_it_cannot_be() {
    let goes_without = |header: Header, frame: &Known| {
        let ethernet = matches!(header, Header::Vxlan { .. });
        let (carrier, link) = if ethernet {
            (Carrier::Udp(with_remote_checksum(4789)), LinkType::Ethernet)
        } else {
            (Carrier::Gue(with_remote_checksum(6080)), LinkType::Raw)
        };
        let (_, mut encapsulator) = end(header, carrier);
        let sent = put(&mut encapsulator, frame, link).unwrap();
        assert_eq!(encapsulator.stats().remote_checksums, 0);
        if ethernet {
            assert_eq!(sent.bytes[28], 0x08);
            assert_eq!((sent.bytes[29], sent.bytes[35]), (0, 0));
        } else {
            assert_eq!((sent.bytes[28], sent.bytes[31]), (0, 0));
        }
    };
    // This packet has no partial checksum.
    goes_without(VXLAN, &Known::new(tcp().build()));
    // The start of the checksum does not fit into seven bits, although it is counted in units of two bytes.
    let options =
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).destination_options(|o| o.data(&[0; 206]));
    goes_without(VXLAN, &Known::partial(&options.tcp(|t| t)));
    // An outer checksum would have to be correct both before and after the receiver completes the partial one.
    let ip = || Packet::new().ipv4(|ip| ip).tcp(|t| t).payload_len(9);
    goes_without(gre(None, true, false, false), &Known::partial(&ip()));
    let inner = Packet::new().ipv4(|ip| ip).gre(|g| g.checksum()).ipv4(|ip| ip).tcp(|t| t);
    goes_without(Header::Ip, &Known::partial(&inner));
    let inner = Packet::new().ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    goes_without(Header::Ip, &Known::partial(&inner.ipv4(|ip| ip).tcp(|t| t)));
    // The checksum offset matches neither TCP nor UDP.
    let mut odd = Known::partial(&tcp());
    odd.meta.checksum = partial(34, 4);
    goes_without(VXLAN, &odd);
}

/// Tests that remote checksum offload is used for a checksum inside another tunnel, if no checksum between the two
/// tunnels would become wrong.
#[test]
fn c52_remote_checksum_offload_reaches_through_a_tunnel_without_a_checksum() {
    let (endpoint, mut encapsulator) = end(Header::Ip, Carrier::Gue(with_remote_checksum(6080)));
    let inner = Packet::new().ipv4(|ip| ip).gre(|g| g).ipv4(|ip| ip).tcp(|t| t).payload_len(10);
    let frame = Known::partial(&inner);
    let sent = put(&mut encapsulator, &frame, LinkType::Raw).unwrap();
    assert_eq!(encapsulator.stats().remote_checksums, 1);
    assert_eq!(take(&endpoint, &Known::new(sent.completed())).completed(), inner.build());
}

/// Tests a device that can only compute the checksum of UDP directly in IP. That suffices for any inner packet, as in
/// Herbert's `NETIF_F_HW_CSUM` emulation: the device completes the outer checksum, and the receiver completes the inner
/// one.
#[test]
fn c52_remote_checksum_offload_needs_no_generic_checksum_of_the_device() {
    let device = Device::new(Features::CHECKSUM_IPV4 | Features::CHECKSUM_IPV6);
    for endpoint in all().into_iter().chain(remote()) {
        let is_remote = remote().contains(&endpoint);
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
        for (_, packet) in packets(&endpoint) {
            let packet = packet.payload_len(77);
            let sent =
                put(&mut encapsulator, &Known::partial(&packet), link_of(&endpoint)).unwrap();
            let stack = dissect(&sent.bytes, LinkType::Raw, &endpoint.rules().ports);
            let work = device.work(&sent.bytes, sent.bytes.len(), &stack, &sent.meta);
            let expected = if is_remote { Work::Nothing } else { Work::Complete };
            assert_eq!(work, expected, "{endpoint:?}");
            let taken = take(&endpoint, &Known::new(sent.completed()));
            assert_eq!(taken.completed(), packet.build(), "{endpoint:?}");
        }
    }
}

/// Tests that every packet of a superframe has both the flag and the pseudo-header sum.
#[test]
fn c57_b51_a_superframe_keeps_its_remote_checksum() {
    for endpoint in remote() {
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
        for (_, packet) in packets(&endpoint) {
            let whole = superframe(&packet.payload_len(2000), 1000);
            let sent = put(&mut encapsulator, &whole, link_of(&endpoint)).unwrap();
            assert!(matches!(sent.meta.checksum, Checksum::Partial { start, .. } if start > 48));
            assert_eq!(take(&endpoint, &sent).bytes, whole.bytes);
        }
        assert_eq!(encapsulator.stats().remote_checksums, 4);
    }
}

#[test]
fn c03_a_partial_checksum_outside_the_packet_is_refused() {
    let (_, mut encapsulator) = end(Header::Ip, Carrier::Ip);
    let bytes = tcp().build();
    for (start, offset) in [
        (0, 6),
        (13, 6),
        (14, 0),
        (14, 20),
        (32, 18),
        (554, 0),
        (34, 60_000),
        (34, 15),
        (65_535, 65_535),
    ] {
        let meta = Meta { checksum: partial(start, offset), ..Meta::default() };
        let refusal =
            put(&mut encapsulator, &Known { bytes: bytes.clone(), meta }, LinkType::Ethernet);
        assert_eq!(refusal, Err(Refusal::ChecksumOutside), "{start} {offset}");
    }
}
