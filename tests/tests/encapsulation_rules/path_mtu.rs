//! Tests packets that exceed the path MTU of a tunnel.

use std::num::NonZeroU16;

use grosso::{
    Meta,
    meta::{Gso, GsoSize, VlanTag},
    tunnel::{
        Carrier, Endpoint, Header,
        encapsulate::Encapsulator,
        path_mtu::{Fit, TunnelMtu, fit},
    },
};
use grosso_testkit::{
    Packet,
    oracle::{Link, Verdict, is_right, verify},
};
use grosso_wire::LinkType;

use super::{
    formats::{V4, gre},
    putting::{Known, put},
    superframes::superframe,
};

/// Returns whether a frame fits into a tunnel whose device has this MTU, and the message to its sender if it does not.
/// The path has no limit.
fn fit_of(frame: &Known, link: LinkType, device: usize) -> (Fit, Vec<u8>) {
    fit_within(frame, link, TunnelMtu { device, ..TunnelMtu::UNLIMITED })
}

fn fit_within(frame: &Known, link: LinkType, mtu: TunnelMtu) -> (Fit, Vec<u8>) {
    // Earlier contents of the buffer have no effect.
    let mut message = vec![0xa5; 30];
    let fit = fit(&[&frame.bytes], &frame.meta, link, mtu, &mut message);
    (fit, message)
}

fn v4() -> Packet {
    Packet::new().ipv4(|ip| ip.df(true))
}

fn v6() -> Packet {
    Packet::new().ipv6(|ip| ip)
}

/// Returns a packet whose IP length is `len`.
fn of_len(start: Packet, len: usize) -> Known {
    let packet = start.udp(|u| u);
    let headers = packet.header_len();
    Known::new(packet.payload_len(len - headers).build())
}

#[test]
fn s49_what_fits_fits_to_the_byte() {
    for start in [v4(), v6()] {
        assert_eq!(fit_of(&of_len(start.clone(), 1450), LinkType::Raw, 1450).0, Fit::Fits);
        assert_eq!(fit_of(&of_len(start, 1451), LinkType::Raw, 1450).0, Fit::Told);
    }
    let unset = Packet::new().ipv4(|ip| ip.df(false));
    let longer = of_len(unset, 1451);
    assert_eq!(fit_of(&longer, LinkType::Raw, 1450).0, Fit::MayBeFragmented);
    // Neither the link header nor padding counts towards the length.
    let ethernet = Packet::new().ethernet(|e| e).vlan(|v| v).ipv4(|ip| ip.df(true)).udp(|u| u);
    let frame = Known::new(ethernet.payload_len(10).pad_to(60).build());
    assert_eq!(fit_of(&frame, LinkType::Ethernet, 38).0, Fit::Fits);
    assert_eq!(fit_of(&frame, LinkType::Ethernet, 37).0, Fit::Told);
}

/// Tests VLAN tags, in the frame or in the metadata. They do not count towards the device MTU, but they do count
/// towards the path MTU.
#[test]
fn s49_tags_take_room_of_the_path_and_none_of_the_device() {
    let long = |start: Packet| start.ipv4(|ip| ip.df(true)).udp(|u| u).payload_len(1218).build();
    let ethernet = || Packet::new().ethernet(|e| e);
    let beside = |bytes: Vec<u8>| {
        let vlan = Some(VlanTag { protocol: 0x8100, tci: 7 });
        Known { bytes, meta: Meta { vlan, ..Meta::default() } }
    };
    for (frame, tags) in [
        (Known::new(long(ethernet())), 0),
        (Known::new(long(ethernet().vlan(|v| v))), 4),
        (Known::new(long(ethernet().vlan(|v| v).vlan(|v| v))), 8),
        (beside(long(ethernet())), 4),
        (beside(long(ethernet().vlan(|v| v))), 8),
    ] {
        let fit = |device, path| fit_within(&frame, LinkType::Ethernet, TunnelMtu { device, path });
        assert_eq!(fit(1246, 1246 + tags).0, Fit::Fits, "{tags}");
        assert_eq!(fit(1245, 1246 + tags).0, Fit::Told, "{tags}");
        // The message reports the size that fits after the tags.
        let (refused, message) = fit(1246, 1245 + tags);
        assert_eq!(refused, Fit::Told, "{tags}");
        let link = message.len() - 576;
        assert_eq!(message[link + 26..link + 28], 1245_u16.to_be_bytes(), "{tags}");
        // Routers may fragment packets longer than the reported path MTU.
        for (path, forbids) in [(1246 + tags, 0x40), (1245 + tags, 0)] {
            let [local, remote] = V4;
            let endpoint = Endpoint::new(local, remote, gre(None, false, false, true), Carrier::Ip);
            let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
            encapsulator.set_mtu(TunnelMtu::of_path(path));
            let outer = put(&mut encapsulator, &frame, LinkType::Ethernet).unwrap().bytes;
            assert_eq!(outer[6], forbids, "{tags} {path}");
        }
    }
}

/// Tests that a superframe fits if its packets do.
#[test]
fn s49_a_superframe_fits_if_its_packets_do() {
    for (start, headers) in [(v4(), 40), (v6(), 60)] {
        let packet = start.tcp(|t| t).payload_len(30_000);
        let frame = superframe(&packet, 1400);
        assert_eq!(fit_of(&frame, LinkType::Raw, headers + 1400).0, Fit::Fits);
        assert_eq!(fit_of(&frame, LinkType::Raw, headers + 1399).0, Fit::Told);
    }
    let packet = v4().udp(|u| u).payload_len(3000);
    let mut frame = superframe(&packet, 1000);
    let size = NonZeroU16::new(1000).unwrap();
    frame.meta.gso = frame.meta.gso.map(|gso| Gso { size: GsoSize::Fragments(size), ..gso });
    assert_eq!(fit_of(&frame, LinkType::Raw, 1020).0, Fit::Fits);
    assert_eq!(fit_of(&frame, LinkType::Raw, 1019).0, Fit::Told);
    frame.meta.gso = frame.meta.gso.map(|gso| Gso { size: GsoSize::Parts, ..gso });
    let (head, rest) = frame.bytes.split_at(28);
    let (one, other) = rest.split_at(1200);
    for (mtu, expected) in [(1828, Fit::Fits), (1827, Fit::Told)] {
        let slices = [head, one, other];
        let mtu = TunnelMtu::of_path(mtu);
        let got = fit(&slices, &frame.meta, LinkType::Raw, mtu, &mut Vec::new());
        assert_eq!(got, expected);
    }
}

/// Tests the ICMP message that RFC 1191 section 4 prescribes to the sender of a packet that exceeds the MTU.
#[test]
fn s49_fragmentation_needed_goes_back_to_the_sender() {
    let packet = Packet::new().ethernet(|e| e).vlan(|v| v.id(9)).ipv4(|ip| ip.df(true).tos(3));
    let packet = packet.tcp(|t| t).payload_len(1400);
    let frame = packet.build();
    let (fit, message) = fit_of(&Known::new(frame.clone()), LinkType::Ethernet, 1422);
    assert_eq!(fit, Fit::Told);
    assert_eq!(message.len(), 18 + 576);
    assert_eq!(message[..6], frame[6..12]);
    assert_eq!(message[6..12], frame[..6]);
    assert_eq!(message[12..18], frame[12..18]);
    assert_eq!(message[18..20], [0x45, 0xc0]);
    assert_eq!((&message[30..34], &message[34..38]), (&frame[34..38], &frame[30..34]));
    assert_eq!((message[27], &message[38..40]), (1, &[3, 4][..]));
    assert_eq!(message[42..46], [0, 0, 5, 142]);
    assert_eq!(message[46..], frame[18..18 + 548]);
    assert!(is_right(&message, Link::Ethernet));
    assert_eq!(verdicts(&message, Link::Ethernet).len(), 2, "IP and ICMP");
    // A path MTU below 68 is invalid.
    let (_, message) = fit_of(&Known::new(frame), LinkType::Ethernet, 40);
    assert_eq!(message[44..46], [0, 68]);
}

/// Tests the ICMPv6 message that RFC 4443 section 3.2 and RFC 8201 prescribe to the sender of a packet that exceeds the
/// MTU.
#[test]
fn s49_packet_too_big_goes_back_to_the_sender() {
    let packet = v6().tcp(|t| t).payload_len(1400);
    let frame = packet.build();
    let (fit, message) = fit_of(&Known::new(frame.clone()), LinkType::Raw, 1430);
    assert_eq!(fit, Fit::Told);
    assert_eq!(message.len(), 1280);
    assert_eq!((&message[8..24], &message[24..40]), (&frame[24..40], &frame[8..24]));
    assert_eq!((message[6], &message[40..42]), (58, &[2, 0][..]));
    assert_eq!(message[44..48], [0, 0, 5, 150]);
    assert_eq!(message[48..], frame[..1232]);
    assert!(is_right(&message, Link::Ip));
    assert_eq!(verdicts(&message, Link::Ip).len(), 1);
}

fn verdicts(frame: &[u8], link: Link) -> Vec<Verdict> {
    verify(frame, link)
}

/// Tests rule W60: IPv6 packets of 1280 bytes are always accepted; if necessary, the tunnel's own packets are
/// fragmented.
#[test]
fn w60_the_floor_of_ipv6() {
    let told = |len| fit_of(&of_len(v6(), len), LinkType::Raw, 1000);
    assert_eq!(told(1000).0, Fit::Fits);
    assert_eq!(told(1280).0, Fit::MayBeFragmented);
    let (fit, message) = told(1281);
    assert_eq!(fit, Fit::Told);
    assert_eq!(message[44..48], [0, 0, 5, 0]);
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
    encapsulator.set_mtu(TunnelMtu::of_path(1000));
    for (frame, expected) in [
        (of_len(v6(), 1000), 0x40),
        (of_len(v6(), 1001), 0),
        (of_len(v6(), 1280), 0),
        (of_len(v6(), 1281), 0),
        (of_len(v4(), 1000), 0x40),
        (of_len(v4(), 1200), 0),
        (superframe(&v6().tcp(|t| t).payload_len(9000), 940), 0x40),
        (superframe(&v6().tcp(|t| t).payload_len(9000), 1200), 0),
    ] {
        assert_eq!(put(&mut encapsulator, &frame, LinkType::Raw).unwrap().bytes[6], expected);
    }
}

#[test]
fn no_icmp_error_answers_packets_that_forbid_one() {
    let long = |packet: Packet| Known::new(packet.payload_len(900).build());
    let ethernet = || Packet::new().ethernet(|e| e);
    let v4 = |packet: Packet| packet.ipv4(|ip| ip.df(true));
    let raw = LinkType::Raw;
    let mut group = long(v4(ethernet()).udp(|u| u));
    group.bytes[0] |= 1;
    for (frame, link) in [
        (long(v4(Packet::new()).icmp(|i| i.kind(3))), raw),
        (long(v4(Packet::new()).icmp(|i| i.kind(11))), raw),
        (long(Packet::new().ipv4(|ip| ip.df(true).fragment_offset(9).protocol(17))), raw),
        (long(Packet::new().ipv4(|ip| ip.df(true).source([0; 4])).udp(|u| u)), raw),
        (long(Packet::new().ipv4(|ip| ip.df(true).destination([224, 0, 0, 1])).udp(|u| u)), raw),
        (long(Packet::new().ipv4(|ip| ip.df(true).destination([255; 4])).udp(|u| u)), raw),
        (group, LinkType::Ethernet),
        (long(v4(ethernet().pppoe(|p| p)).udp(|u| u)), LinkType::Ethernet),
        (long(ethernet()), LinkType::Ethernet),
    ] {
        assert_eq!(fit_of(&frame, link, 500).0, Fit::Untold, "{:02x?}", &frame.bytes[..60]);
    }
    let long = |packet: Packet| Known::new(packet.payload_len(1400).build());
    let multicast = [0xff; 16];
    for packet in [
        Packet::new().ipv6(|ip| ip).icmp(|i| i.kind(1)),
        Packet::new().ipv6(|ip| ip).destination_options(|o| o).icmp(|i| i.kind(4)),
        Packet::new().ipv6(|ip| ip).icmp(|i| i.kind(137)),
        Packet::new().ipv6(|ip| ip.source([0; 16])).udp(|u| u),
        Packet::new().ipv6(|ip| ip.destination(multicast)).udp(|u| u),
    ] {
        assert_eq!(fit_of(&long(packet), raw, 1300).0, Fit::Untold);
    }
    let echo = |start: Packet, kind| long(start.icmp(|i| i.kind(kind)));
    assert_eq!(fit_of(&echo(self::v4(), 8), raw, 1300).0, Fit::Told);
    assert_eq!(fit_of(&echo(v6(), 128), raw, 1300).0, Fit::Told);
}

/// Tests that truncated frames do not cause a panic, for any metadata and MTU.
#[test]
fn any_beginning_of_a_frame_is_no_reason_to_panic() {
    let frame = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(1500).build();
    for len in 0..frame.len() {
        let meta = Meta { gso: Gso::every(1000), ..Meta::default() };
        for meta in [meta, Meta::default()] {
            let cut = Known { bytes: frame[..len].to_vec(), meta };
            fit_of(&cut, LinkType::Ethernet, 1300);
            fit_of(&cut, LinkType::Raw, 0);
        }
    }
}
