//! Compares frames that this crate builds with published frames, and checks that the oracle detects fields that are
//! wrong on purpose.

use grosso_testkit::Packet;
use grosso_testkit::oracle::{Link, State, is_right, verify};
use grosso_testkit::stack::{Front, Network, Place, Stack, Transport, Tunnel};

/// Returns the state of every checksum in a frame, with the name of its header.
fn states(frame: &[u8]) -> Vec<(&'static str, State)> {
    verify(frame, Link::Ethernet).iter().map(|v| (v.name, v.state)).collect()
}

fn tcp4() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t)
}

/// Tests two packets from smoltcp's tests, from 192.168.1.1 to 192.168.1.2: a 28-byte TCP segment and a 12-byte
/// datagram.
#[test]
fn segments_that_others_wrote_down() {
    let addresses = |ip: grosso_testkit::headers::Ipv4| {
        ip.source([192, 168, 1, 1]).destination([192, 168, 1, 2])
    };
    let tcp = Packet::new().ipv4(addresses).tcp(|t| {
        let t = t.source_port(48896).destination_port(80).sequence(0x01234567).ack(0x89abcdef);
        t.flags(0x035).window(0x0123).urgent_pointer(0x0201).options(&[3, 3, 12, 1])
    });
    let expected = [
        0xbf, 0x00, 0x00, 0x50, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x60, 0x35, 0x01,
        0x23, 0x01, 0xb6, 0x02, 0x01, 0x03, 0x03, 0x0c, 0x01, 0xaa, 0x00, 0x00, 0xff,
    ];
    assert_eq!(tcp.payload(&[0xaa, 0, 0, 0xff]).build()[20..], expected);

    let udp = Packet::new().ipv4(addresses);
    let udp = udp.udp(|u| u.source_port(48896).destination_port(53)).payload(&[0xaa, 0, 0, 0xff]);
    let expected = [0xbf, 0x00, 0x00, 0x35, 0x00, 0x0c, 0x12, 0x4d, 0xaa, 0x00, 0x00, 0xff];
    assert_eq!(udp.build()[20..], expected);
}

/// Tests that the packet of the kernel's gro.c test can be built header by header.
#[test]
fn the_default_packet_is_the_kernel_fixture() {
    let mut expected = vec![0xaa, 0, 0, 0, 0, 1, 0xaa, 0, 0, 0, 0, 2, 0x08, 0x00];
    expected.extend([0x45, 0, 0, 41, 0, 0, 0x40, 0, 8, 6, 0xee, 0x52]);
    expected.extend([192, 168, 1, 200, 192, 168, 1, 100]);
    expected.extend([0x05, 0xdc, 0x1f, 0x40, 0, 0, 0, 100, 0, 0, 0, 100]);
    expected.extend([0x50, 0x10, 0xff, 0xff, 0xa4, 0x72, 0, 0, b'a']);
    assert_eq!(tcp4().payload(b"a").build(), expected);
}

#[test]
fn every_default_build_is_right() {
    for stack in Stack::all() {
        for len in [0, 1, 2, 99, 1000] {
            let frame = stack.packet(&Place::default()).payload_len(len).build();
            let verdicts = verify(&frame, stack.link());
            assert!(is_right(&frame, stack.link()), "{stack:?}\n{verdicts:?}");
            let canonical =
                verdicts.iter().all(|v| v.state != State::Right || v.found == v.expected);
            assert!(canonical, "{stack:?}\n{verdicts:?}");
        }
    }
}

#[test]
fn every_level_is_verified() {
    let stack = Stack {
        front: Front::DoubleVlan,
        tunnels: vec![(Network::Ipv4, Tunnel::GreChecksum), (Network::Ipv6Options, Tunnel::Fou)],
        network: Network::Ipv4,
        transport: Transport::Tcp,
    };
    let names: Vec<_> = states(&stack.packet(&Place::default()).build());
    let right = |name| (name, State::Right);
    assert_eq!(names, ["ipv4", "gre", "udp", "ipv4", "tcp"].map(right));
}

/// Asserts that flipping any bit from byte `first` on makes a checksum wrong.
fn assert_every_flip_is_seen(packet: Packet, first: usize) {
    let frame = packet.payload_len(9).build();
    let right = states(&frame);
    for bit in first * 8..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(states(&flipped), right, "bit {} of byte {}", bit % 8, bit / 8);
    }
}

#[test]
fn every_flipped_bit_under_a_checksum_is_seen() {
    let start = || Packet::new().ethernet(|e| e);
    assert_every_flip_is_seen(tcp4(), 14);
    assert_every_flip_is_seen(start().ipv4(|ip| ip).icmp(|i| i), 14);
    assert_every_flip_is_seen(start().ipv6(|ip| ip).tcp(|t| t.timestamps(1, 2)), 22);
    assert_every_flip_is_seen(start().ipv6(|ip| ip).udp(|u| u), 22);
    assert_every_flip_is_seen(start().ipv6(|ip| ip).icmp(|i| i), 22);
    let gre = start().ipv4(|ip| ip).gre(|g| g.checksum());
    assert_every_flip_is_seen(gre.ipv6(|ip| ip).udp(|u| u.checksum_zero()), 14);
    let vxlan = start().ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    assert_every_flip_is_seen(vxlan.ipv6(|ip| ip).tcp(|t| t), 14);
    let remote = start().ipv4(|ip| ip).udp(|u| u).gue(|g| g.remote_checksum());
    assert_every_flip_is_seen(remote.ipv4(|ip| ip).tcp(|t| t), 14);
}

#[test]
fn lies_are_lies() {
    let wrong = |name| (name, State::Wrong);
    let right = |name| (name, State::Right);
    let start = || Packet::new().ethernet(|e| e);
    let states = |packet: Packet| states(&packet.build());
    assert_eq!(
        states(start().ipv4(|ip| ip.checksum_xor(1)).tcp(|t| t)),
        [wrong("ipv4"), right("tcp")]
    );
    assert_eq!(
        states(start().ipv4(|ip| ip).tcp(|t| t.checksum_xor(1))),
        [right("ipv4"), wrong("tcp")]
    );
    assert_eq!(
        states(start().ipv4(|ip| ip).tcp(|t| t.checksum_zero())),
        [right("ipv4"), wrong("tcp")]
    );
    assert_eq!(
        states(start().ipv4(|ip| ip).udp(|u| u.checksum_raw(7))),
        [right("ipv4"), wrong("udp")]
    );
    assert_eq!(
        states(start().ipv4(|ip| ip).icmp(|i| i.checksum_xor(2))),
        [right("ipv4"), wrong("icmp")]
    );
    let absent = states(start().ipv4(|ip| ip).udp(|u| u.checksum_zero()));
    assert_eq!(absent, [right("ipv4"), ("udp", State::Absent)]);
    let gre = start().ipv4(|ip| ip).gre(|g| g.checksum().checksum_xor(4)).ipv6(|ip| ip).tcp(|t| t);
    assert_eq!(states(gre), [right("ipv4"), wrong("gre"), right("tcp")]);
    // A wrong length changes which bytes the transport checksum covers.
    let short = start().ipv4(|ip| ip.total_len_raw(45)).tcp(|t| t).payload_len(9);
    assert_eq!(states(short), [right("ipv4"), wrong("tcp")]);
    // If the checksum field holds only the pseudo-header sum, the checksum is wrong unless a header announces remote
    // checksum offload.
    assert_eq!(
        states(start().ipv4(|ip| ip).tcp(|t| t.checksum_seed())),
        [right("ipv4"), wrong("tcp")]
    );
}

#[test]
fn overrides_are_written() {
    let frame = Packet::new()
        .ethernet(|e| e.ethertype_raw(0x1234))
        .ipv4(|ip| ip.version_ihl_raw(0x4f).total_len_raw(7).protocol(99).reserved_bit(true))
        .udp(|u| u.len_raw(3))
        .build();
    assert_eq!(frame[12..14], [0x12, 0x34]);
    assert_eq!(frame[14..24], [0x4f, 0, 0, 7, 0, 0, 0xc0, 0, 8, 99]);
    assert_eq!(frame[38..40], [0, 3]);
    let tcp = tcp4().payload_len(0);
    assert_eq!(tcp.pad_to(60).trailer(&[9, 9]).build()[54..], [0, 0, 0, 0, 0, 0, 9, 9]);
    assert_eq!(tcp4().payload_len(100).truncate(37).build().len(), 37);
}

/// Tests rule C50: if the tunnel carries Ethernet, IPv4 and TCP, the VXLAN header starts with the word 0x08200000 and
/// ends with the byte 0x11.
#[test]
fn c50_vxlan_remote_checksum_bits() {
    let vxlan = |packet: Packet| packet.udp(|u| u).vxlan(|v| v.remote_checksum());
    let packet = vxlan(Packet::new().ethernet(|e| e).ipv4(|ip| ip)).ethernet(|e| e);
    let frame = packet.ipv4(|ip| ip).tcp(|t| t).payload_len(100).build();
    assert_eq!(frame[42..50], [0x08, 0x20, 0, 0, 0, 0, 1, 0x11]);
    let expected = ["ipv4", "udp", "ipv4"].map(|name| (name, State::Right));
    assert_eq!(states(&frame), [&expected[..], &[("tcp", State::Remote)]].concat());
}

/// Tests rule C51: after flag P and the private flags come the start and the offset, both relative to the end of the
/// GUE header.
#[test]
fn c51_gue_remote_checksum_fields() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    let packet = packet.gue(|g| g.remote_checksum()).ipv4(|ip| ip).udp(|u| u);
    let frame = packet.payload_len(10).build();
    assert_eq!(frame[42..54], [0x02, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, 26]);
}

#[test]
fn a_partial_checksum_completes_to_the_right_one() {
    for stack in Stack::all().into_iter().filter(Stack::couples) {
        let packet = stack.packet(&Place::default()).payload_len(33);
        let (mut frame, start, offset) = packet.build_partial();
        let announced = stack.tunnels.iter();
        if announced.clone().any(|(_, t)| matches!(t, Tunnel::VxlanRemote | Tunnel::GueRemote)) {
            assert_eq!(frame, packet.build(), "{stack:?}");
            continue;
        }
        let completed = !grosso_testkit::oracle::sum(&frame[start..]);
        // Rule C3: a checksum that is computed as zero is written as all ones.
        let completed = if completed == 0 { 0xffff } else { completed };
        frame[start + offset..start + offset + 2].copy_from_slice(&completed.to_be_bytes());
        assert_eq!(frame, packet.build(), "{stack:?}");
    }
}

#[test]
fn a_computed_zero_is_all_ones_in_udp_alone() {
    let find = |packet: &dyn Fn(u16) -> Packet| {
        (0..=u16::MAX).map(|value| packet(value).build()).find_map(|frame| {
            let verdict = verify(&frame, Link::Ethernet)[1];
            matches!(verdict.found, 0 | 0xffff).then_some(verdict)
        })
    };
    let start = || Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    let udp = find(&|value| start().udp(|u| u).payload(&value.to_be_bytes()));
    assert_eq!(udp.map(|v| (v.found, v.expected, v.state)), Some((0xffff, 0xffff, State::Right)));
    let tcp = find(&|value| start().tcp(|t| t).payload(&value.to_be_bytes()));
    assert_eq!(tcp.map(|v| (v.found, v.expected, v.state)), Some((0, 0, State::Right)));
}

#[test]
fn a_stream_has_the_same_bytes_however_it_is_cut() {
    let whole = grosso_testkit::stream(u32::MAX - 20, 100);
    assert_eq!(whole.len(), 100);
    for cut in 0..100_u32 {
        let rest = grosso_testkit::stream((u32::MAX - 20).wrapping_add(cut), 100 - cut as usize);
        assert_eq!(whole[cut as usize..], rest, "cut at {cut}");
    }
}

/// Tests that a packet in transit has the checksum for its final destination (RFC 8200 section 8.1) and for its
/// sender's home address (RFC 6275 section 11.3.1).
#[test]
fn checksums_are_those_of_the_last_stop_and_of_home() {
    let address = |last: u8| [0xfd, 0xcc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let plain = |source, destination| {
        let packet =
            Packet::new().ethernet(|e| e).ipv6(|ip| ip.source(source).destination(destination));
        packet.tcp(|t| t).payload_len(99).build()
    };
    let arrived = plain(address(1), address(9));
    let routed = |kind, left, stops: &[[u8; 16]], home: bool| {
        let (at, from) = (address(5), address(if home { 7 } else { 1 }));
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip.source(from).destination(at));
        let packet = packet.routing(|r| r.route(kind, left, stops));
        let packet = match home {
            true => packet.destination_options(|d| d.home_address(address(1))),
            false => packet,
        };
        packet.tcp(|t| t).payload_len(99).build()
    };
    let (stop, last) = (address(6), address(9));
    for frame in [
        routed(0, 1, &[stop, last], false),
        routed(0, 2, &[stop, last], false),
        routed(2, 1, &[last], false),
        routed(2, 1, &[last], true),
        routed(4, 1, &[last, stop], false),
        routed(4, 2, &[last, stop], false),
    ] {
        let transport = frame.len() - 20 - 99;
        assert_eq!(frame[transport..transport + 20], arrived[54..74]);
        assert!(is_right(&frame, Link::Ethernet), "{frame:?}");
        // The checksum covers the final destination, so a flipped bit in it is detected.
        let mut other = frame.clone();
        let at = frame.windows(16).position(|bytes| bytes == last).expect("the last stop");
        other[at + 15] ^= 1;
        assert!(!is_right(&other, Link::Ethernet), "{other:?}");
    }
    // With no segments left, the routing header only records the route.
    let here = routed(0, 0, &[stop, last], false);
    let transport = here.len() - 20 - 99;
    assert_eq!(here[transport..transport + 20], plain(address(1), address(5))[54..74]);
    assert!(is_right(&here, Link::Ethernet));
}

#[test]
fn an_answer_goes_the_other_way() {
    let sent = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g).ipv6(|ip| ip);
    let sent = sent.tcp(|t| t).payload_len(10);
    let there = sent.build();
    let back = sent.clone().answer().build();
    let exchanged = [(0, 6, 6), (26, 30, 4), (46, 62, 16), (78, 80, 2)];
    let mut expected = there.clone();
    for (one, other, len) in exchanged {
        expected[one..one + len].copy_from_slice(&there[other..other + len]);
        expected[other..other + len].copy_from_slice(&there[one..one + len]);
    }
    // A checksum does not depend on the order of its words, so swapping addresses and ports does not change it.
    assert_eq!(back, expected);
    assert_eq!(sent.answer().answer().build(), there);
}
