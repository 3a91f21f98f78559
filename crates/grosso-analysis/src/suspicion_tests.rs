//! Tests tunnel hints on datagrams that carry a tunnel, and on datagrams that must not be mistaken for one.

use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
    random::Random,
};
use grosso_wire::{LinkType, Ports, dissect};
use proptest::{collection::vec, prelude::*};

use super::*;

/// Port that is not assigned to any tunnel.
const PORT: u16 = 8472;

/// Returns the payload of the outermost UDP datagram.
fn payload(frame: &[u8]) -> &[u8] {
    let stack = dissect(frame, LinkType::Ethernet, &Ports::NONE);
    let udp = stack.last().unwrap();
    assert_eq!(udp.kind, Kind::Udp);
    &frame[udp.end()..stack.end as usize]
}

fn outer() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1)).udp(|u| u.destination_port(PORT))
}

/// Returns one tunnel of each type: its name for `--port`, its headers, and whether it carries Ethernet frames.
fn tunnels() -> [(&'static str, Packet, bool); 6] {
    [
        ("vxlan=8472", outer().vxlan(|v| v.vni(42)), true),
        ("geneve=8472", outer().geneve(|g| g.vni(7).option(0x0102, 3, &[1, 2, 3, 4])), true),
        ("gue=8472", outer().gue(|g| g), false),
        ("vxlan-gpe=8472", outer().vxlan(|v| v.gpe()), false),
        ("geneve=8472", outer().geneve(|g| g), false),
        ("fou=8472", outer(), false),
    ]
}

fn tcp(segment: Tcp) -> Tcp {
    segment.sequence(77).timestamps(1, 2)
}

fn ipv4(ip: Ipv4) -> Ipv4 {
    ip.id(9).df(true)
}

fn said(frame: &[u8]) -> Option<String> {
    tunnel_at(payload(frame), PORT).map(|tunnel| tunnel.to_string())
}

#[test]
fn b10_tunnel_hints_on_any_port_name_the_options_that_decapsulate() {
    for (words, tunnel, carries_frames) in tunnels() {
        let inside =
            || if carries_frames { tunnel.clone().ethernet(|e| e) } else { tunnel.clone() };
        for is_ipv6 in [false, true] {
            let ip = || if is_ipv6 { inside().ipv6(|ip| ip) } else { inside().ipv4(ipv4) };
            let words = match (words, is_ipv6) {
                ("fou=8472", false) => "fou=8472/4",
                ("fou=8472", true) => "fou=8472/41",
                (words, _) => words,
            };
            for len in [1, 600, 1300, 30_000] {
                let packets = [ip().tcp(tcp).payload_len(len), ip().udp(|u| u).payload_len(len)];
                for frame in packets.map(|packet| packet.build()) {
                    assert_eq!(said(&frame).as_deref(), Some(words), "{len}");
                }
                let (partial, ..) = ip().tcp(tcp).payload_len(len).build_partial();
                assert_eq!(said(&partial).as_deref(), Some(words), "{len}, partial");
            }
        }
    }
}

#[test]
fn b10_tunnel_hints_cover_datagrams_with_several_packets_and_segments_with_a_length() {
    for (words, tunnel, carries_frames) in tunnels() {
        let inside =
            || if carries_frames { tunnel.clone().ethernet(|e| e) } else { tunnel.clone() };
        let one = inside().ipv4(ipv4).udp(|u| u).payload_len(1000).build();
        let many = payload(&one).repeat(40);
        let tunnel = tunnel_at(&many, PORT).unwrap();
        assert!(tunnel.to_string().starts_with(words), "{tunnel}");
        let mut other = many.clone();
        let second = payload(&one).len();
        other[second..second + 60].fill(0xee);
        assert_eq!(
            tunnel_at(&other, PORT),
            None,
            "{words}: the second packet has no tunnel header"
        );
        // As with GSO_PARTIAL, the headers are those of the first segment.
        let segment = inside().ipv4(ipv4).tcp(tcp).payload_len(1000).build();
        let superframe = [payload(&segment), &[9; 20_000]].concat();
        let tunnel = tunnel_at(&superframe, PORT).unwrap();
        assert!(tunnel.to_string().starts_with(words), "{tunnel}");
    }
}

#[test]
fn b10_arp_in_vxlan_is_suspected_padded_or_not() {
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.extend_from_slice(&[7; 20]);
    for padding in [0, 18] {
        let padded = [&arp[..], &vec![0; padding]].concat();
        let frame = outer().vxlan(|v| v).ethernet(|e| e.ethertype_raw(0x0806)).payload(&padded);
        assert_eq!(said(&frame.build()).as_deref(), Some("vxlan=8472"));
    }
    arp[7] = 9;
    let frame = outer().vxlan(|v| v).ethernet(|e| e.ethertype_raw(0x0806)).payload(&arp);
    assert_eq!(said(&frame.build()), None, "ARP has no operation 9");
}

#[test]
fn b10_what_does_not_fit_is_not_suspected() {
    let frame = outer().vxlan(|v| v).ethernet(|e| e).ipv4(ipv4).udp(|u| u).payload_len(600).build();
    let fitting = payload(&frame);
    assert!(tunnel_at(fitting, PORT).is_some());
    for len in 0..fitting.len() {
        assert_eq!(tunnel_at(&fitting[..len], PORT), None, "the first {len} bytes");
    }
    assert_eq!(tunnel_at(&[fitting, &[0; 3]].concat(), PORT), None, "bytes after the packet");
    for (at, why) in [
        (0, "flags"),
        (2, "reserved bits"),
        (7, "the reserved byte"),
        (8 + 14 + 8, "the TTL, which the checksum covers"),
        (8 + 12, "the EtherType"),
    ] {
        let mut wrong = fitting.to_vec();
        wrong[at] ^= 1;
        assert_eq!(tunnel_at(&wrong, PORT), None, "{why}");
    }
    // A tunnel on its assigned port is recognized without a hint.
    for port in [0, 4789, 4790, 6081, 6080, 4500] {
        assert_eq!(tunnel_at(fitting, port), None);
    }
}

/// Checks payloads from other protocols, some of which begin like a tunnel header.
#[test]
fn b10_what_others_send_over_udp_is_no_tunnel() {
    let mut random = Random::new(0x6731_3462);
    let question = b"\x03www\x07example\x03com\x00\x00\x01\x00\x01";
    for round in 0..20_000_usize {
        let id = random.bytes(2);
        let noise = random.bytes(round % 1400);
        let query = [&id, &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], question].concat();
        let answer = [&id, &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..], question, &noise].concat();
        let notice = [&[8, 0, 0, 0, 0, 1, 0, 0][..], question, &noise].concat();
        let quic_long = [&[0xc0 | id[0] & 0x3f, 0, 0, 0, 1, 8][..], &noise].concat();
        let quic_short = [&[0x40 | id[0] & 0x3f][..], &noise].concat();
        let dtls = [&[23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, id[0], id[1], 4, 0][..], &noise].concat();
        let rtp = [&[0x80, 96, id[0], id[1]][..], &noise].concat();
        let stun = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &noise].concat();
        let ntp = [&[0x23, 2, 6, 0xe9][..], &random.bytes(44)].concat();
        let text = noise.iter().map(|byte| b' ' + byte % 95).collect();
        let same = vec![id[0]; noise.len()];
        for payload in
            [query, answer, notice, quic_long, quic_short, dtls, rtp, stun, ntp, text, same]
        {
            assert_eq!(tunnel_at(&payload, PORT), None, "{payload:x?}");
        }
    }
}

/// Generates the first bytes of payloads of all tunnel types, or none.
fn starts() -> impl Strategy<Value = Vec<u8>> {
    let starts: [&[u8]; 8] = [
        &[],
        &[8, 0, 0, 0, 0, 0, 1, 0],
        &[12, 0, 0, 1, 0, 0, 1, 0],
        &[0, 0, 0x65, 0x58, 0, 0, 1, 0],
        &[0, 4, 0, 0],
        &[0, 41, 0, 0],
        &[0x45, 0],
        &[0x60, 0, 0, 0],
    ];
    prop::sample::select(starts.map(<[u8]>::to_vec).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn b10_noise_is_no_tunnel_whatever_it_starts_with(
        start in starts(),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let payload = [start, noise].concat();
        prop_assert_eq!(tunnel_at(&payload, PORT), None);
    }
}
