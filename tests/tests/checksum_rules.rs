//! Tests checksum states rule by rule: `linux-offloads` section 4.

use grosso::{
    Frame, Meta, Profile, Verdict,
    checksum::{Checksum, complete},
    coalesce::reason::Pass,
    segment::Outgoing,
};
use grosso_rig::{
    engine::{Engine, coalesce, segment},
    frames::{Path, at, payload_lengths, plain},
    superframe::Superframe,
};
use grosso_testkit::{
    Packet,
    headers::{Gue, Tcp, Udp, Vxlan},
    oracle::{Link, is_right, sum},
    stream,
};

/// Returns the verdict on a packet with this checksum state, and the checksum state of its delivery.
fn received(frame: &[u8], checksum: Checksum) -> (Verdict, Checksum) {
    let mut engine = Engine::new(Profile::linux());
    let meta = Meta { checksum, ..Meta::default() };
    let verdict = engine.push_frame(Frame { buffer: frame.to_vec(), meta }, 0);
    engine.poll_end(0);
    assert_eq!(engine.delivered[0].bytes, frame);
    (verdict, engine.delivered[0].meta.checksum)
}

/// Returns the verdict on one packet with this checksum state.
fn verdict(frame: &[u8], checksum: Checksum) -> Verdict {
    received(frame, checksum).0
}

/// Returns one TCP segment whose checksum has these bits flipped.
fn tcp(bits: u16) -> Vec<u8> {
    Path::Ipv4.train(&[100], move |_, s| s.tcp(move |tcp| tcp.checksum_xor(bits))).remove(0)
}

/// Returns a TCP segment in VXLAN, with bits flipped in the outer and in the inner checksum.
fn vxlan(outer: u16, inner: u16) -> Vec<u8> {
    vxlan_with(|udp| udp.checksum_xor(outer), inner)
}

fn vxlan_with(outer: impl Fn(Udp) -> Udp, inner: u16) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(outer).vxlan(|v| v);
    let packet = packet.ethernet(|e| e).ipv4(|ip| ip);
    packet.tcp(|tcp| tcp.checksum_xor(inner)).payload_len(101).build()
}

const WRONG: Verdict = Verdict::Passed(Pass::Checksum);

#[test]
fn c01_nothing_known_is_verified() {
    let verified = Checksum::Unnecessary { levels: 0 };
    assert_eq!(received(&tcp(0), Checksum::None), (Verdict::Held, verified));
    assert_eq!(received(&tcp(1), Checksum::None), (WRONG, Checksum::None));
}

#[test]
fn c01_what_the_device_verified_is_not_verified_again() {
    assert_eq!(verdict(&tcp(1), Checksum::Unnecessary { levels: 0 }), Verdict::Held);
}

#[test]
fn c01_levels_count_from_the_outside() {
    let level = |levels| Checksum::Unnecessary { levels };
    assert_eq!(verdict(&vxlan(0, 0), level(0)), Verdict::Held);
    assert_eq!(verdict(&vxlan(0, 1), level(0)), WRONG);
    // Rule C30: the inner checksum is compared with the outer one, which the device verified.
    assert_eq!(verdict(&vxlan(1, 0), level(0)), WRONG);
    assert_eq!(verdict(&vxlan(1, 1), level(1)), Verdict::Held);
}

/// Returns a TCP segment over IPv6 with these extension headers, which contain pseudo-header addresses (RFC 8200
/// section 8.1, RFC 6275 section 6.3).
fn routed(extensions: impl Fn(Packet) -> Packet, index: u32, bits: u16) -> Vec<u8> {
    let packet = extensions(Packet::new().ethernet(|e| e).ipv6(|ip| ip));
    packet.tcp(|t| t.sequence(index * 100).checksum_xor(bits)).payload_len(100).build()
}

/// Tests headers with the same layout that differ only in the fields from which the pseudo-header addresses are read.
#[test]
fn c20_the_addresses_that_count_are_found_in_each_packet() {
    let segments =
        |kind, left| move |p: Packet| p.routing(|r| r.route(kind, left, &[[3; 16], [4; 16]]));
    let options = |data: &'static [u8]| move |p: Packet| p.destination_options(|d| d.data(data));
    let home = |p: Packet| p.destination_options(|d| d.home_address([5; 16]));
    const PADDED: [u8; 22] = {
        let mut data = [0; 22];
        (data[0], data[1]) = (1, 20);
        data
    };
    // Pad1 has no length byte.
    let later = |p: Packet| p.destination_options(|d| d.home_address_behind([0, 0, 0, 0], [6; 16]));
    let headers: [&dyn Fn(Packet) -> Packet; 10] = [
        &segments(4, 1),
        &segments(4, 0),
        &segments(2, 1),
        &segments(0, 2),
        &segments(0, 0),
        &segments(9, 1),
        &home,
        &options(&PADDED),
        &later,
        &|p| home(segments(2, 1)(p)),
    ];
    // Each packet passes through one engine twice, so that its layout is known the second time.
    let mut engine = Engine::new(Profile::linux());
    for (index, header) in headers.iter().chain(&headers).enumerate() {
        let verdict = engine.push(&routed(header, index as u32, 0));
        assert!(matches!(verdict, Verdict::Held | Verdict::Refused(_)), "{index}: {verdict:?}");
        assert_eq!(engine.push(&routed(header, index as u32, 1)), WRONG, "{index}");
    }
    engine.poll_end(0);
}

#[test]
fn c20_packets_under_way_join_and_are_cut_again() {
    let mobile = |p: Packet| {
        let p = p.routing(|r| r.route(2, 1, &[[4; 16]]));
        p.destination_options(|d| d.home_address([5; 16]))
    };
    let frames: Vec<_> = (0..20).map(|index| routed(mobile, index, 0)).collect();
    let joined = coalesce(&frames);
    assert_eq!(payload_lengths(&joined), [2000]);
    assert_eq!(segment(&joined[0]), frames);
}

/// Tests a packet whose complete checksum happens to equal its pseudo-header sum, which is the case for one packet in
/// 65536.
#[test]
fn c20_a_complete_checksum_that_is_its_seed_is_complete() {
    let packet = |index: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index));
        packet.tcp(|t| t.sequence(u32::from(index) * 100))
    };
    let equal = (0..=u16::MAX).find_map(|word| {
        let packet = packet(1).payload(&[&word.to_be_bytes()[..], &[7; 98]].concat());
        let (frame, (partial, start, offset)) = (packet.build(), packet.build_partial());
        let field = start + offset..start + offset + 2;
        (frame[field.clone()] == partial[field]).then_some(frame)
    });
    let mut frames: Vec<_> = (0..4).map(|index| packet(index).payload_len(100).build()).collect();
    frames[1] = equal.expect("one of 65536");
    let joined = coalesce(&frames);
    assert_eq!(payload_lengths(&joined), [400]);
    assert_eq!(segment(&joined[0]), frames);
}

/// Tests that an absent checksum does not count as one of the levels that a device verified (rule C20).
// Rules: C20
#[test]
fn c01_absent_outer_checksum_counts_for_no_level() {
    let absent = |inner| vxlan_with(Udp::checksum_zero, inner);
    assert_eq!(verdict(&absent(1), Checksum::Unnecessary { levels: 0 }), Verdict::Held);
    assert_eq!(verdict(&absent(1), Checksum::None), WRONG);
}

/// Returns the sum that a device computes, starting at the network header.
fn complete_sum(frame: &[u8], network: usize) -> Checksum {
    Checksum::Complete { sum: sum(&frame[network..]) }
}

#[test]
fn c21_carried_sum_decides() {
    for path in Path::PLAIN {
        for frame in [path.train(&[101], plain), path.datagrams(&[100], plain)].concat() {
            let carried = complete_sum(&frame, 14);
            let verified = Checksum::Unnecessary { levels: 0 };
            assert_eq!(received(&frame, carried), (Verdict::Held, verified));
            let Checksum::Complete { sum } = carried else { unreachable!() };
            let lie = Checksum::Complete { sum: sum ^ 0x0100 };
            assert_eq!(received(&frame, lie), (WRONG, lie));
        }
    }
    let frame = tcp(1);
    assert_eq!(verdict(&frame, complete_sum(&frame, 14)), WRONG);
}

/// Tests that the bytes before a checksum are subtracted from the device's sum.
// Rules: B64
#[test]
fn c22_carried_sum_serves_every_level() {
    let ethernet = || Packet::new().ethernet(|e| e);
    let headers = [
        (ethernet().ipv6(|ip| ip).destination_options(|d| d), 14),
        (ethernet().vlan(|v| v).vlan(|v| v).ipv4(|ip| ip), 22),
        (ethernet().pppoe(|p| p).ipv4(|ip| ip), 22),
        (
            ethernet()
                .ipv4(|ip| ip)
                .udp(|u| u)
                .vxlan(|v| v)
                .ethernet(|e| e)
                .vlan(|v| v)
                .ipv6(|ip| ip),
            14,
        ),
        (ethernet().ipv6(|ip| ip).udp(|u| u).geneve(|g| g).ethernet(|e| e).ipv4(|ip| ip), 14),
        (ethernet().ipv4(|ip| ip).udp(|u| u).gue(|g| g).ipv4(|ip| ip), 14),
        (ethernet().ipv4(|ip| ip).gre(|g| g.checksum().key(1)).ipv4(|ip| ip), 14),
        (ethernet().ipv4(|ip| ip).ipv6(|ip| ip), 14),
    ];
    for (headers, network) in headers {
        for bits in [0, 0x0200] {
            let packet = headers.clone().tcp(|tcp| tcp.checksum_xor(bits)).payload_len(99);
            let frame = packet.build();
            let expected = if bits == 0 { Verdict::Held } else { WRONG };
            assert_eq!(verdict(&frame, complete_sum(&frame, network)), expected);
        }
    }
}

#[test]
fn c20_partial_checksum_is_taken_as_right() {
    let (frame, start, offset) = partial(100);
    let checksum = Checksum::Partial { start, offset };
    assert_eq!(received(&frame, checksum), (Verdict::Held, checksum));
    assert_eq!(verdict(&frame, Checksum::None), WRONG);
}

/// Returns a segment with a partial checksum.
fn partial(sequence: u32) -> (Vec<u8>, u16, u16) {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    let packet = packet.tcp(|tcp| tcp.sequence(sequence)).payload_len(100);
    let (frame, start, offset) = packet.build_partial();
    (frame, start as u16, offset as u16)
}

#[test]
fn c20_partial_packets_merge_and_are_partial_again() {
    let mut engine = Engine::new(Profile::linux());
    let frames = [partial(100), partial(200)];
    for (frame, start, offset) in frames.clone() {
        let meta = Meta { checksum: Checksum::Partial { start, offset }, ..Meta::default() };
        engine.push_frame(Frame { buffer: frame, meta }, 0);
    }
    engine.poll_end(0);
    assert_eq!(payload_lengths(&engine.delivered), [200]);
    assert_eq!(segment(&engine.delivered[0]), frames.map(|(frame, ..)| frame));
}

/// Tests that the field must hold the pseudo-header sum, because segmentation would write only this sum.
#[test]
fn c20_partial_checksum_without_its_seed_passes() {
    let (mut frame, start, offset) = partial(100);
    frame[50] ^= 1;
    let checksum = Checksum::Partial { start, offset };
    assert_eq!(received(&frame, checksum), (Verdict::Passed(Pass::ChecksumForm), checksum));
}

#[test]
fn c20_partial_checksum_of_another_header_passes() {
    let (frame, start, offset) = partial(100);
    for (start, offset) in [(start - 20, offset), (start, offset - 2), (0, 0), (u16::MAX, u16::MAX)]
    {
        let checksum = Checksum::Partial { start, offset };
        assert_eq!(verdict(&frame, checksum), Verdict::Passed(Pass::ChecksumPartial));
    }
}

// Rules: B32
#[test]
fn c03_completing_stays_inside_the_packet() {
    let (frame, start, offset) = partial(100);
    for (start, offset) in [(153, 0), (154, 0), (0, 153), (u16::MAX, u16::MAX), (start, 120)] {
        let mut packet = frame.clone();
        assert!(complete(&mut packet, start, offset).is_err());
        assert_eq!(packet, frame);
    }
    let mut packet = frame;
    complete(&mut packet, start, offset).unwrap();
    assert!(is_right(&packet, Link::Ethernet));
}

#[test]
fn c03_superframes_are_cut_and_never_completed() {
    let out = coalesce(&Path::Ipv4.train(&[100, 100], plain)).remove(0);
    assert!(matches!(out.meta.checksum, Checksum::Partial { start: 34, offset: 16 }));
    assert!(segment(&out).iter().all(|packet| is_right(packet, Link::Ethernet)));
}

#[test]
fn c10_odd_segments_sum_right() {
    for size in [1, 3, 99, 101, 1447] {
        for tunnel in [false, true] {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
            let packet = match tunnel {
                true => packet.udp(|u| u).vxlan(|v| v).ethernet(|e| e).ipv6(|ip| ip),
                false => packet,
            };
            let packet = packet.tcp(|tcp| tcp).payload_len(5 * usize::from(size) + 1);
            let packets = Superframe::new(&packet, size).packets();
            assert!(packets.iter().all(|packet| is_right(packet, Link::Ethernet)));
        }
    }
}

#[test]
fn c11_absent_udp_checksum_is_no_wrong_one() {
    for path in Path::PLAIN {
        let frame = path.datagrams(&[100], |_, s| s.udp(Udp::checksum_zero)).remove(0);
        assert_eq!(verdict(&frame, Checksum::None), Verdict::Passed(Pass::ChecksumNone));
    }
}

#[test]
fn c30_verified_levels_are_reported() {
    let told = |frame: &[u8]| received(frame, Checksum::None).1;
    assert_eq!(told(&vxlan(0, 0)), Checksum::Unnecessary { levels: 1 });
    assert_eq!(told(&tcp(0)), Checksum::Unnecessary { levels: 0 });
    // Both checksums are off by 0x8000: each is wrong, although the two errors cancel out.
    assert_eq!(verdict(&vxlan(0x8000, 0x8000), Checksum::None), WRONG);
}

/// Tests local checksum offload at every depth: the outer checksum is correct once the device has completed the inner
/// one.
#[test]
fn c40_outer_checksums_are_complete_around_a_partial_one() {
    let tunnel = |packet: Packet| packet.udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    let mut headers = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    for _ in 0..3 {
        headers = tunnel(headers).ipv4(|ip| ip);
        let packet = headers.clone().tcp(|tcp| tcp).payload_len(250);
        for (mut bytes, meta) in
            Superframe::new(&packet, 100).cut(Outgoing::PARTIAL_CHECKSUMS).unwrap()
        {
            let Checksum::Partial { start, offset } = meta.checksum else { panic!("partial") };
            assert!(!is_right(&bytes, Link::Ethernet));
            complete(&mut bytes, start, offset).unwrap();
            assert!(is_right(&bytes, Link::Ethernet));
        }
    }
}

/// Returns VXLAN packets with remote checksum offload that contain a train of two TCP segments or UDP datagrams.
fn remote(udp: impl Fn(Udp) -> Udp, vxlan: impl Fn(Vxlan) -> Vxlan, is_tcp: bool) -> Vec<Vec<u8>> {
    let frame = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(&udp).vxlan(&vxlan);
        let packet = packet.ethernet(|e| e).ipv4(|ip| ip);
        let packet = match is_tcp {
            true => packet.tcp(|tcp| tcp.sequence(100 * index).checksum_seed()),
            false => packet.udp(Udp::checksum_seed),
        };
        packet.payload(&stream(100 * index, 100)).build()
    };
    (0..2).map(frame).collect()
}

#[test]
fn c50_bits_of_remote_checksum_offload_in_vxlan() {
    let frames = remote(|u| u, Vxlan::remote_checksum, true);
    assert_eq!(frames[0][42..46], 0x0820_0000_u32.to_be_bytes());
    assert_eq!(frames[0][49], 0x11);
    assert_eq!(payload_lengths(&coalesce(&frames)), [200]);
    let frames = remote(|u| u, Vxlan::remote_checksum, false);
    assert_eq!(frames[0][49], 0x91);
    assert_eq!(payload_lengths(&coalesce(&frames)), [200]);
}

/// Returns GUE packets with remote checksum offload that contain a train of two TCP segments.
fn remote_gue(gue: impl Fn(Gue) -> Gue) -> Vec<Vec<u8>> {
    let frame = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).gue(&gue).ipv4(|ip| ip);
        packet.tcp(|tcp| tcp.sequence(100 * index).checksum_seed()).payload_len(100).build()
    };
    (0..2).map(frame).collect()
}

/// Returns a change to a GUE header that adds private flags and remote checksum offload with this start and offset.
fn option(start: u16, at: u16) -> impl Fn(Gue) -> Gue {
    let option = [&[0x80, 0, 0, 0][..], &start.to_be_bytes(), &at.to_be_bytes()].concat();
    move |gue| gue.flags(1).options(&option)
}

#[test]
fn c51_remote_checksum_offload_in_gue() {
    let frames = remote_gue(Gue::remote_checksum);
    // Flag P, private flag REMCSUM, start 20 and offset 36 from the byte after the GUE header.
    assert_eq!(frames[0][42..54], [2, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, 36]);
    assert_eq!(frames, remote_gue(option(20, 36)));
    assert_eq!(payload_lengths(&coalesce(&frames)), [200]);
}

// Rules: B52
#[test]
fn c54_remote_checksum_offload_needs_a_verified_outer_checksum() {
    let passed = Verdict::Passed;
    let frames = remote(Udp::checksum_zero, Vxlan::remote_checksum, true);
    assert_eq!(verdict(&frames[0], Checksum::None), passed(Pass::RemoteChecksum));
    let frames = remote(|udp| udp.checksum_xor(1), Vxlan::remote_checksum, true);
    assert_eq!(verdict(&frames[0], Checksum::None), passed(Pass::Checksum));
}

// Rules: B13, P41
#[test]
fn c55_remote_checksum_offload_that_points_elsewhere_passes() {
    let passed = Verdict::Passed(Pass::RemoteChecksum);
    for low in [0x00, 0x10, 0x12, 0x7f, 0x91, 0xff] {
        let frames = remote(|u| u, |v| v.flags(0x0820_0000).reserved(low), true);
        assert_eq!(verdict(&frames[0], Checksum::None), passed, "{low:#x}");
    }
    for (start, at) in [(0, 36), (20, 19), (20, 0), (21, 37), (0xffff, 0xffff), (200, 216)] {
        let frames = remote_gue(option(start, at));
        assert_eq!(verdict(&frames[0], Checksum::None), passed, "{start} {at}");
    }
}

/// Tests an option that would extend beyond the header (B13, P40).
// Rules: B13, P40
#[test]
fn c55_remote_checksum_offload_beyond_its_header_passes() {
    let frames = remote_gue(|gue| gue.flags(1).options(&[0x80, 0, 0, 0]));
    assert_eq!(verdict(&frames[0], Checksum::None), Verdict::Passed(Pass::Malformed));
}

/// Tests that the inner checksum field must hold the pseudo-header sum for the receiver to complete. Segmentation would
/// not restore any other value.
#[test]
fn c53_remote_checksum_offload_without_a_seed_passes() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    let packet = packet.vxlan(Vxlan::remote_checksum).ethernet(|e| e).ipv4(|ip| ip);
    let frame = packet.tcp(|tcp| tcp.checksum_raw(0x1234)).payload_len(100).build();
    assert_eq!(verdict(&frame, Checksum::None), Verdict::Passed(Pass::ChecksumForm));
}

/// Tests for a bug in Linux, which completes the inner checksum but leaves the flag set, so that the receiver corrupts
/// the packet (B51).
// Rules: S45, B51
#[test]
fn c57_remote_checksum_offload_survives_joining_and_cutting() {
    for frames in [remote(|u| u, Vxlan::remote_checksum, true), remote_gue(Gue::remote_checksum)] {
        let delivered = coalesce(&frames);
        assert_eq!(payload_lengths(&delivered), [200]);
        assert_eq!(segment(&delivered[0]), frames);
    }
}

#[test]
fn c10_checksum_of_all_ones_is_not_the_one_that_cutting_writes() {
    let frame = |payload: &[u8], change: fn(Tcp) -> Tcp| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.tcp(change).payload(payload).build()
    };
    let checksum = frame(&[0; 2], |tcp| tcp)[50..52].to_vec();
    let passed = Verdict::Passed(Pass::ChecksumForm);
    assert_eq!(verdict(&frame(&checksum, |tcp| tcp.checksum_raw(0xffff)), Checksum::None), passed);
    assert_eq!(
        verdict(&frame(&checksum, |tcp| tcp.checksum_raw(0)), Checksum::None),
        Verdict::Held
    );
}

#[test]
fn c01_one_wrong_packet_among_right_ones_stays_apart() {
    let frames = Path::Ipv4.train(&[100; 5], at(2, |s| s.tcp(|tcp| tcp.checksum_xor(0x8000))));
    assert_eq!(payload_lengths(&coalesce(&frames)), [200, 100, 200]);
}
