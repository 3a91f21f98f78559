//! Tests the headers before the ciphertext.

use grosso::tunnel::esp::{EspMode, Refusal, Traffic, classify};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Ipv6},
    oracle::{Link, is_right},
};
use grosso_wire::{LinkType, Ports, dissect};

use super::{
    association::{MODES, Recipe, SPI, TUNNEL_V4, TUNNEL_V6, VECTOR_SALT, decrypt},
    literal,
};

fn udp4(ip: impl Fn(Ipv4) -> Ipv4) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(ip).udp(|u| u).payload(b"0123456").build()
}

fn udp6(ip: impl Fn(Ipv6) -> Ipv6) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv6(ip).udp(|u| u).payload(b"0123456").build()
}

/// Tests the headers of transport mode byte by byte (RFC 4303 section 3.1.1).
#[test]
fn transport_mode_changes_length_protocol_and_checksum_of_ipv4() {
    let frame = udp4(|ip| ip.id(77).tos(0x28).options(&[0x94, 4, 0, 0]));
    let wire = Recipe::new(EspMode::Transport).encrypted(0x0102_0304, &frame);
    // The IP options stay in front of ESP. A plaintext of 15 bytes needs 3 bytes of padding and 2 of trailer.
    let esp = 14 + 24;
    assert_eq!(wire.len(), esp + 8 + 8 + 15 + 3 + 2 + 16);
    assert_eq!(wire[..16], frame[..16]);
    assert_eq!(wire[16..18], (wire.len() as u16 - 14).to_be_bytes());
    assert_eq!(wire[18..23], frame[18..23]);
    assert_eq!(wire[23], 50);
    assert_eq!(wire[26..esp], frame[26..esp]);
    assert!(is_right(&wire, Link::Ethernet));
    assert_eq!(wire[esp..esp + 4], SPI.to_be_bytes());
    assert_eq!(wire[esp + 4..esp + 8], [1, 2, 3, 4]);
    let vector = 0x0102_0304 ^ VECTOR_SALT;
    assert_eq!(wire[esp + 8..esp + 16], vector.to_be_bytes());
}

/// Tests that a header that was damaged in transit is not repaired.
#[test]
fn a_wrong_ipv4_checksum_stays_wrong() {
    let right = udp4(|ip| ip);
    let wrong = udp4(|ip| ip.checksum_xor(0x0101));
    let recipe = Recipe::new(EspMode::Transport);
    let wire = recipe.encrypted(1, &wrong);
    assert!(!is_right(&wire, Link::Ethernet));
    assert_eq!(decrypt(&mut recipe.decryptor(0), &wire), Ok(wrong));
    let mut damaged = recipe.encrypted(1, &right);
    damaged[22] ^= 4;
    let received = decrypt(&mut recipe.decryptor(0), &damaged).expect("the ICV does not cover it");
    assert!(!is_right(&received, Link::Ethernet));
}

/// Tests RFC 4303 section 3.1.1: headers that intermediate nodes read stay unencrypted, and options for the final
/// destination are encrypted.
#[test]
fn ipv6_extension_headers_stay_in_front_up_to_the_last_destination_options() {
    let start = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    let cases: [(Packet, &str, u8); 6] = [
        (start(), "eth ip6 esp", 17),
        (start().hop_by_hop(|h| h), "eth ip6 ext6 esp", 17),
        (start().destination_options(|d| d), "eth ip6 ext6 esp", 17),
        (
            start().hop_by_hop(|h| h).destination_options(|d| d).routing(|r| r),
            "eth ip6 ext6 ext6 ext6 esp",
            17,
        ),
        (start().routing(|r| r).destination_options(|d| d), "eth ip6 ext6 esp", 60),
        (
            start().hop_by_hop(|h| h).routing(|r| r).fragment(|f| f).destination_options(|d| d),
            "eth ip6 ext6 ext6 frag6 esp",
            60,
        ),
    ];
    let recipe = Recipe::new(EspMode::Transport);
    for (packet, shape, next_header) in cases {
        let frame = packet.udp(|u| u).payload(b"text").build();
        let mut wire = recipe.encrypted(1, &frame);
        assert_eq!(dissect(&wire, LinkType::Ethernet, &Ports::NONE).to_string(), shape);
        let received = recipe.decryptor(0).decrypt(&mut wire, LinkType::Ethernet).unwrap();
        assert_eq!(received.next_header, next_header, "{shape}");
        assert_eq!(wire[received.frame], frame);
    }
}

/// Tests the outer header of tunnel mode (RFC 4301 section 5.1.2).
#[test]
fn the_header_of_a_tunnel_repeats_what_routers_must_know() {
    let inner = udp4(|ip| ip.tos(0xb9).df(false).ttl(3).id(9));
    let wire = Recipe::new(TUNNEL_V4).encrypted(0x0001_0203, &inner);
    let len = (wire.len() as u16 - 14).to_be_bytes();
    assert_eq!(wire[..14], inner[..14]);
    assert_eq!(wire[14..24], [0x45, 0xb9, len[0], len[1], 2, 3, 0, 0, 64, 50]);
    assert_eq!(wire[26..34], [203, 0, 113, 1, 203, 0, 113, 2]);
    let wire = Recipe::new(TUNNEL_V4).encrypted(1, &udp4(|ip| ip.df(true)));
    assert_eq!(wire[20..22], [0x40, 0]);

    let inner = udp6(|ip| ip.traffic_class(0xb9).flow_label(0xabcde));
    let wire = Recipe::new(TUNNEL_V6).encrypted(1, &inner);
    let len = (wire.len() as u16 - 14 - 40).to_be_bytes();
    assert_eq!(wire[14..22], [0x6b, 0x9a, 0xbc, 0xde, len[0], len[1], 50, 64]);
    assert_eq!(wire[22..26], [0x20, 1, 0x0d, 0xb8]);
    assert_eq!((wire[37], wire[53]), (0xe1, 0xe2));

    // IPv6 in IPv4 sets DF, and the link layer announces the outer header.
    let wire = Recipe::new(TUNNEL_V4).encrypted(1, &inner);
    assert_eq!((&wire[12..16], &wire[20..22]), (&[8, 0, 0x45, 0xb9][..], &[0x40, 0][..]));
    let wire = Recipe::new(TUNNEL_V6).encrypted(1, &udp4(|ip| ip.tos(0xb9)));
    assert_eq!(wire[12..18], [0x86, 0xdd, 0x6b, 0x90, 0, 0]);
}

/// Tests the UDP header around ESP (RFC 3948 section 2.1), and its checksum (RFC 8200 section 8.1).
#[test]
fn udp_has_its_ports_its_length_and_a_checksum_only_over_ipv6() {
    for mode in MODES {
        for frame in [udp4(|ip| ip), udp6(|ip| ip)] {
            let recipe = Recipe { udp: true, ..Recipe::new(mode) };
            let wire = recipe.encrypted(1, &frame);
            let is_v4 = wire[12..14] == [8, 0];
            let udp = if is_v4 { 34 } else { 54 };
            assert_eq!(wire[if is_v4 { 23 } else { 20 }], 17);
            assert_eq!(wire[udp..udp + 4], [0x11, 0x95, 0x11, 0x94]);
            assert_eq!(wire[udp + 4..udp + 6], ((wire.len() - udp) as u16).to_be_bytes());
            assert_eq!(wire[udp + 6..udp + 8] == [0, 0], is_v4);
            assert!(is_right(&wire, Link::Ethernet));
            assert_eq!(wire[udp + 8..udp + 12], SPI.to_be_bytes());
        }
    }
}

/// Tests RFC 6040 section 4.2, all 16 combinations, with both versions outside and inside.
#[test]
fn congestion_in_the_tunnel_is_signaled() {
    const NOT: u8 = 0;
    const ONE: u8 = 1;
    const ZERO: u8 = 2;
    const CE: u8 = 3;
    // Indexed by the inner and then by the outer codepoint; `None` means that the packet is discarded.
    let table = [
        (NOT, [Some(NOT), Some(NOT), Some(NOT), None]),
        (ONE, [Some(ONE), Some(ONE), Some(ONE), Some(CE)]),
        (ZERO, [Some(ZERO), Some(ONE), Some(ZERO), Some(CE)]),
        (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
    ];
    for mode in [TUNNEL_V4, TUNNEL_V6] {
        let recipe = Recipe::new(mode);
        for (inner, row) in table {
            for (outer, expected) in row.into_iter().enumerate() {
                let v4 = |ecn: u8| udp4(|ip| ip.tos(0x28 | ecn));
                let v6 = |ecn: u8| udp6(|ip| ip.traffic_class(0x28 | ecn));
                for frame in [&v4 as &dyn Fn(u8) -> Vec<u8>, &v6] {
                    let mut wire = recipe.encrypted(1, &frame(inner));
                    match mode {
                        TUNNEL_V4 => wire[15] = wire[15] & !3 | outer as u8,
                        _ => wire[15] = wire[15] & !0x30 | (outer as u8) << 4,
                    }
                    let received = decrypt(&mut recipe.decryptor(0), &wire);
                    let expected = expected.map(frame).ok_or(Refusal::CongestionUntold);
                    assert_eq!(received, expected, "{inner} in {outer}");
                }
            }
        }
    }
}

/// Tests padding after a packet in a tunnel, which hides the length of the packet (RFC 4303 section 2.7).
#[test]
fn what_hides_the_length_of_a_tunnelled_packet_is_cut_off() {
    for (inner, next_header) in [(udp4(|ip| ip), 4), (udp6(|ip| ip), 41)] {
        for hidden in [0, 1, 5, 700] {
            let text = [&inner[14..], &vec![0xcc; hidden]].concat();
            let wire = literal::frame(1, &literal::with_trailer(&text, next_header));
            let received = decrypt(&mut Recipe::new(TUNNEL_V4).decryptor(0), &wire).unwrap();
            assert_eq!(received[14..], inner[14..]);
            assert_eq!(received[12..14], inner[12..14]);
        }
    }
}

/// Tests that packets with any initialization vector and up to 255 bytes of padding are accepted (RFC 4303 section
/// 2.4).
#[test]
fn long_padding_is_taken_off() {
    let inner = &udp4(|ip| ip)[14 + 20..];
    for padding in (3..=255_u8).step_by(4) {
        let counted: Vec<u8> = (1..=padding).collect();
        let text = [inner, &counted, &[padding, 17]].concat();
        let wire = literal::frame(1, &text);
        let received = decrypt(&mut Recipe::new(EspMode::Transport).decryptor(0), &wire).unwrap();
        assert_eq!(&received[34..], inner, "{padding}");
    }
}

/// Tests that keepalives and IKE are distinguished from ESP (rule W70, RFC 3948 sections 2.2 and 2.3).
#[test]
fn keepalives_and_ike_are_distinguished_from_esp() {
    let port = Some(4500);
    let datagram = |payload: &[u8]| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.udp(|u| u.destination_port(4500)).payload(payload).build()
    };
    let classify = |frame: &[u8], port| classify(frame, LinkType::Ethernet, port);
    let esp = literal::esp(1, &[1, 2, 2, 17]);
    let cases: [(Vec<u8>, Result<Traffic, Refusal>); 6] = [
        (datagram(&[0xff]), Ok(Traffic::Keepalive)),
        (datagram(b"\0\0\0\0ike"), Ok(Traffic::Ike)),
        (datagram(&esp), Ok(Traffic::Esp { spi: SPI, in_udp: true })),
        (literal::in_ipv4(&esp), Ok(Traffic::Esp { spi: SPI, in_udp: false })),
        (datagram(&[0xff, 0xff]), Err(Refusal::Truncated)),
        (datagram(&[]), Err(Refusal::Truncated)),
    ];
    for (frame, expected) in cases {
        assert_eq!(classify(&frame, port), expected);
    }
    assert_eq!(classify(&datagram(&esp), None), Err(Refusal::NotEsp));
    assert_eq!(classify(&datagram(&esp), Some(4501)), Err(Refusal::NotEsp));
}
