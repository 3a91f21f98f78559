//! Tests fragments that no honest sender creates.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Gso, GsoSize},
    reassemble::{
        IcmpError, Overlap, ReassemblyMode, ReassemblyVerdict, Returned,
        reason::{Discard, Pass},
    },
};
use grosso_rig::fragments::{Piece, Rig, Version, cut};
use grosso_testkit::{Packet, oracle, random::Random};

use super::{DEAD, data, overlap, push_all, rules, whole};

fn link() -> Packet {
    Packet::new().ethernet(|e| e)
}

/// Pushes this frame into a new rig, and returns the rig and the verdict.
fn pushed(frame: &[u8]) -> (Rig, ReassemblyVerdict) {
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    let verdict = rig.push(frame);
    (rig, verdict)
}

/// Asserts that a frame is refused with a parameter problem that quotes it, starting at its IP header.
fn assert_problem(frame: &[u8], reason: Discard, code: u8, pointer: u32) -> Rig {
    let (rig, verdict) = pushed(frame);
    assert_eq!(verdict, ReassemblyVerdict::Discarded(reason));
    let error = IcmpError::ParameterProblem { code, pointer };
    assert_eq!(rig.problems, [(error, frame[14..].to_vec())]);
    assert_eq!(error.type_and_code(true), (4, code));
    rig
}

// Rules: P29
#[test]
fn f10_misaligned_ipv4_is_rounded_down_as_linux_does_or_refused() {
    let data = data(Version::V4, 48, 10);
    let hanging = Piece { offset: 0, more: true, data: data[..21].to_vec() };
    let rest = Piece::of(&data, 16, 48);
    let pieces = [hanging, rest];
    let linux = whole(overlap(Overlap::Linux), Version::V4, &pieces);
    assert_eq!(linux, [Version::V4.whole(1, &data)]);
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    let verdicts = push_all(&mut rig, Version::V4, 1, &pieces);
    assert_eq!(verdicts, [ReassemblyVerdict::Discarded(Discard::Misaligned), DEAD]);
    assert!(rig.problems.is_empty());
}

/// Tests a device's sum, which also covers the removed bytes.
#[test]
fn f10_the_sum_of_a_fragment_that_is_rounded_down_is_not_believed() {
    let data = data(Version::V4, 48, 11);
    let hanging = Piece { offset: 0, more: true, data: data[..21].to_vec() };
    let mut rig = Rig::new(overlap(Overlap::Linux));
    for piece in [hanging, Piece::of(&data, 16, 48)] {
        let frame = Version::V4.frame(1, &piece);
        let checksum = Checksum::Complete { sum: oracle::sum(&frame[14..]) };
        rig.push_frame(&frame, Meta { checksum, ..Meta::default() });
    }
    let whole = rig.whole.pop().expect("a datagram");
    assert_eq!(whole.meta.checksum, Checksum::Complete { sum: oracle::sum(&whole.bytes[14..]) });
}

#[test]
fn f10_b46_misaligned_ipv6_kills_the_datagram_with_a_pointer_to_its_length() {
    let hanging = Piece { offset: 8, more: true, data: vec![7; 21] };
    assert_problem(&Version::V6.frame(1, &hanging), Discard::Misaligned, 0, 4);
    for policy in [Overlap::Drop, Overlap::Linux] {
        let data = data(Version::V6, 64, 10);
        let mut rig = Rig::new(overlap(policy));
        push_all(&mut rig, Version::V6, 1, &[Piece::of(&data, 0, 32), hanging.clone()]);
        assert_eq!(rig.held_bytes(), 0, "{policy:?}");
        assert_eq!(rig.discarded.last().map(|(reason, _)| *reason), Some(Discard::Misaligned));
    }
}

// Rules: P29
#[test]
fn f11_no_data_kills_the_datagram() {
    for version in Version::ALL {
        let data = data(version, 64, 11);
        for (offset, more) in [(32, false), (32, true), (0, true)] {
            let empty = Piece { offset, more, data: vec![] };
            let pieces = [vec![Piece::of(&data, 0, 32), empty], cut(&data, 32)].concat();
            let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
            let verdicts = push_all(&mut rig, version, 1, &pieces);
            assert_eq!(
                verdicts[1..],
                [ReassemblyVerdict::Discarded(Discard::ZeroLength), DEAD, DEAD]
            );
            rig.finish();
        }
    }
    // The fragment is empty after its length is rounded down.
    let tiny = Piece { offset: 8, more: true, data: vec![1; 7] };
    let mut rig = Rig::new(overlap(Overlap::Linux));
    let verdict = rig.push(&Version::V4.frame(1, &tiny));
    assert_eq!(verdict, ReassemblyVerdict::Discarded(Discard::ZeroLength));
}

#[test]
fn f13_b46_beyond_65535_kills_the_datagram() {
    let far = |offset| Piece { offset, more: false, data: vec![7; 16] };
    assert_problem(&Version::V6.frame(1, &far(65_528)), Discard::Oversize, 0, 42);
    let extended = link().ipv6(|ip| ip).destination_options(|o| o);
    let extended = extended.fragment(|f| f.offset(65_528 / 8).next_header(17)).payload(&[7; 16]);
    assert_problem(&extended.build(), Discard::Oversize, 0, 50);
    let (rig, verdict) = pushed(&Version::V4.frame(1, &far(65_528)));
    assert_eq!(verdict, ReassemblyVerdict::Discarded(Discard::Oversize));
    assert!(rig.problems.is_empty());
}

/// Tests all lengths at all offsets near the maximum: unless the whole fragment fits into an IP packet, nothing is
/// delivered.
// Rules: F13
#[test]
fn p28_every_offset_and_length_near_the_limit() {
    for version in Version::ALL {
        let limit = if version == Version::V4 { 65_515 } else { 65_535 };
        for end in limit - 40..=limit + 40 {
            let data = vec![0x11; end];
            let mut pieces = cut(&data[..65_472], 32_736);
            pieces.iter_mut().for_each(|piece| piece.more = true);
            pieces.push(Piece { offset: 65_472, more: false, data: vec![0x11; end - 65_472] });
            let whole = whole(rules(ReassemblyMode::Coalesce), version, &pieces);
            let expected = if end <= limit { vec![version.whole(1, &data)] } else { vec![] };
            assert_eq!(whole, expected, "{version:?} {end}");
        }
    }
    // With IP options, the header of the first fragment may make the packet too long.
    let frame = |piece: &Piece, options: &[u8]| {
        let (offset, more) = ((piece.offset / 8) as u16, piece.more);
        let packet = link().ipv4(|ip| {
            ip.df(false).options(options).protocol(17).fragment_offset(offset).more_fragments(more)
        });
        packet.payload(&piece.data).build()
    };
    let data = vec![0; 65_515];
    for (options, verdict) in [
        (&[][..], ReassemblyVerdict::Completed),
        (&[1; 4], ReassemblyVerdict::Discarded(Discard::Oversize)),
    ] {
        let mut rig = Rig::new(rules(ReassemblyMode::KeepGeometry));
        let verdicts: Vec<_> =
            cut(&data, 32_768).iter().map(|piece| rig.push(&frame(piece, options))).collect();
        assert_eq!(verdicts.last(), Some(&verdict));
        rig.finish();
    }
}

#[test]
fn f30_atomic_fragments_are_handed_up_beside_a_datagram_of_the_same_key() {
    let data = data(Version::V6, 64, 30);
    let pieces = cut(&data, 32);
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
        // A datagram that is complete at once needs no table entry.
        let mut rules = rules(mode);
        rules.limits.datagrams = 1;
        let mut rig = Rig::new(rules);
        push_all(&mut rig, Version::V6, 1, &pieces[..1]);
        let packet = |link: Packet| link.udp(|u| u).payload_len(9);
        let atomic = packet(link().ipv6(|ip| ip).fragment(|f| f.id(1))).pad_to(90).build();
        assert_eq!(rig.push(&atomic), ReassemblyVerdict::Completed);
        // Only the fragment header is removed. The headers before and after it stay unchanged.
        let around = |link: Packet| packet(link.destination_options(|d| d).fragment(|f| f.id(1)));
        let deep = around(link().ipv6(|ip| ip).ipv6(|ip| ip).hop_by_hop(|h| h)).build();
        assert_eq!(rig.push(&deep), ReassemblyVerdict::Completed);
        push_all(&mut rig, Version::V6, 1, &pieces[1..]);
        let inner = link().ipv6(|ip| ip).ipv6(|ip| ip).hop_by_hop(|h| h).destination_options(|d| d);
        let whole = [packet(link().ipv6(|ip| ip)).build(), packet(inner).build()];
        assert_eq!(rig.take_whole(), [&whole[..], &[Version::V6.whole(1, &data)]].concat());
        rig.finish();
    }
}

#[test]
fn f30_atomic_fragments_that_are_not_finished_keep_their_header() {
    let packet = link().ipv6(|ip| ip).fragment(|f| f.id(1)).udp(|u| u).payload_len(9);
    let (partial, start, offset) = packet.build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let cut = link().ipv6(|ip| ip).fragment(|f| f.next_header(6)).payload(&[0; 19]).build();
    let empty = link().ipv6(|ip| ip).fragment(|f| f.next_header(59)).build();
    for (frame, checksum) in [(partial, checksum), (cut, Checksum::None), (empty, Checksum::None)] {
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        let verdict = rig.push_frame(&frame, Meta { checksum, ..Meta::default() });
        assert_eq!(verdict, ReassemblyVerdict::Passed(Pass::Atomic));
        assert_eq!(rig.passed, [(frame, Pass::Atomic)]);
    }
}

#[test]
fn f30_an_atomic_fragment_longer_than_the_pppoe_length_is_refused() {
    let packet = link().pppoe(|p| p).ipv6(|ip| ip).fragment(|f| f.id(1)).udp(|u| u);
    let mut packet = packet.payload_len(9).build();
    assert_eq!(pushed(&packet).1, ReassemblyVerdict::Completed);
    packet[14 + 5] -= 1;
    let (mut rig, verdict) = pushed(&packet);
    assert_eq!(verdict, ReassemblyVerdict::Passed(Pass::Truncated));
    assert_eq!(rig.passed, [(packet, Pass::Truncated)]);
    rig.finish();
}

#[test]
fn f31_p29_a_first_fragment_has_all_headers() {
    let first = |packet: Packet, next: u8, len: usize| {
        let packet = packet.fragment(|f| f.more(true).next_header(next));
        packet.payload(&vec![0; len]).build()
    };
    let plain = || link().ipv6(|ip| ip);
    // TCP, UDP, ICMPv6 and SCTP with incomplete headers; 8 bytes are the smallest aligned length.
    for (next, least) in [(6, 24), (17, 8), (58, 8), (132, 8)] {
        for len in (8..=32).step_by(8) {
            let (_, verdict) = pushed(&first(plain(), next, len));
            let expected = if len >= least {
                ReassemblyVerdict::Held
            } else {
                ReassemblyVerdict::Discarded(Discard::HeaderChain)
            };
            assert_eq!(verdict, expected, "protocol {next}, {len} bytes");
        }
    }
    let rig = assert_problem(&first(plain(), 6, 16), Discard::HeaderChain, 3, 0);
    assert_eq!(rig.held_datagrams(), 0);
    // Destination options that extend beyond the fragment, and ones that end with it.
    let options = |units: u8, next: u8, len: usize| {
        let packet = plain().fragment(|f| f.more(true).next_header(60));
        let mut data = vec![0; len];
        data[..2].copy_from_slice(&[next, units]);
        packet.payload(&data).build()
    };
    for (frame, held) in [
        (options(0, 17, 16), true),
        (options(0, 17, 8), false),
        (options(2, 17, 16), false),
        (options(0, 59, 8), true),
        (options(255, 17, 16), false),
    ] {
        assert_eq!(pushed(&frame).1 == ReassemblyVerdict::Held, held);
    }
    // A later fragment needs no headers.
    let later = plain().fragment(|f| f.offset(1).more(true).next_header(6)).payload(&[0; 8]);
    assert_eq!(pushed(&later.build()).1, ReassemblyVerdict::Held);
}

#[test]
fn p29_tiny_tcp_fragments_die_alone() {
    let tcp = |offset: u16, more: bool, len: usize| {
        let packet = link()
            .ipv4(|ip| ip.id(1).df(false).protocol(6).fragment_offset(offset).more_fragments(more));
        packet.payload(&vec![0x50; len]).build()
    };
    let tiny = ReassemblyVerdict::Discarded(Discard::TinyFragment);
    for (frame, expected) in [
        (tcp(0, true, 8), tiny),
        (tcp(0, true, 16), ReassemblyVerdict::Held),
        (tcp(1, false, 40), tiny),
        (tcp(1, true, 40), tiny),
        (tcp(2, true, 40), ReassemblyVerdict::Held),
    ] {
        assert_eq!(pushed(&frame).1, expected);
    }
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    let verdicts =
        [(0, true, 24), (1, true, 16), (3, false, 8)].map(|(o, m, l)| rig.push(&tcp(o, m, l)));
    assert_eq!(verdicts, [ReassemblyVerdict::Held, tiny, ReassemblyVerdict::Completed]);
    // Linux's policy accepts tiny fragments.
    let mut rig = Rig::new(overlap(Overlap::Linux));
    let verdicts =
        [(0, true, 8), (1, true, 8), (2, false, 8)].map(|(o, m, l)| rig.push(&tcp(o, m, l)));
    let held = ReassemblyVerdict::Held;
    assert_eq!(verdicts, [held, held, ReassemblyVerdict::Completed]);
}

#[test]
fn f32_a_second_fragment_header_is_pointed_at() {
    let adjacent = link().ipv6(|ip| ip).fragment(|f| f).fragment(|f| f.more(true).next_header(17));
    assert_problem(&adjacent.payload(&[0; 16]).build(), Discard::SecondFragmentHeader, 0, 48);
    let inside = link().ipv6(|ip| ip).fragment(|f| f.more(true)).fragment(|f| f.next_header(17));
    assert_problem(&inside.payload(&[0; 16]).build(), Discard::SecondFragmentHeader, 0, 48);
    let behind_options = link().ipv6(|ip| ip).fragment(|f| f.more(true));
    let behind_options = behind_options.destination_options(|o| o).fragment(|f| f.next_header(17));
    let frame = behind_options.payload(&[0; 16]).build();
    assert_problem(&frame, Discard::SecondFragmentHeader, 0, 56);
}

#[test]
fn f32_a_payload_length_of_zero_is_pointed_at() {
    let packet = link().ipv6(|ip| ip.payload_len_raw(0)).fragment(|f| f.more(true).next_header(17));
    assert_problem(&packet.payload(&[0; 16]).build(), Discard::PayloadLengthZero, 0, 40);
}

#[test]
fn b42_f25_a_description_of_how_to_cut_a_fragment_is_dropped() {
    let data = data(Version::V4, 64, 42);
    let gso = std::num::NonZeroU16::new(8).and_then(|size| {
        Gso::every(8).map(|gso| Gso { size: GsoSize::Fragments(size), untrusted: true, ..gso })
    });
    assert!(gso.is_some());
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
        let mut rig = Rig::new(rules(mode));
        for piece in cut(&data, 32) {
            rig.push_frame(&Version::V4.frame(1, &piece), Meta { gso, ..Meta::default() });
        }
        let whole = rig.whole.pop().expect("a datagram");
        assert_eq!((whole.meta.gso, rig.stats().gso_stripped), (None, 2));
        assert!(whole.frames.iter().all(|(_, _, meta)| meta.gso.is_none()));
    }
}

// Rules: F22
#[test]
fn b44_extension_headers_in_front_of_the_fragment_header() {
    let data = data(Version::V6, 100, 44);
    for count in 0..=3 {
        let around = |packet: Packet| match count {
            0 => packet,
            1 => packet.hop_by_hop(|h| h),
            2 => packet.hop_by_hop(|h| h.data(&[1, 12, 0])).destination_options(|o| o),
            _ => packet.hop_by_hop(|h| h).destination_options(|o| o).routing(|r| r),
        };
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            let mut rig = Rig::new(rules(mode));
            for piece in cut(&data, 48).iter().rev() {
                let packet = around(link().ipv6(|ip| ip)).fragment(|f| {
                    f.id(9).offset((piece.offset / 8) as u16).more(piece.more).next_header(17)
                });
                rig.push(&packet.payload(&piece.data).build());
            }
            // The test kit writes the same headers around the given UDP header.
            let expected = around(link().ipv6(|ip| ip));
            let expected = expected.udp(|udp| udp).payload(&data[8..]).build();
            assert_eq!(rig.take_whole(), [expected], "{count} {mode:?}");
        }
    }
}

#[test]
fn what_is_no_fragment_or_cannot_be_read_passes_as_it_came() {
    let fragment = Version::V4.frame(1, &Piece { offset: 0, more: true, data: vec![0; 64] });
    let mut wrong_checksum = fragment.clone();
    wrong_checksum[24] ^= 1;
    let mut length_zero = fragment.clone();
    length_zero[16..18].fill(0);
    length_zero[24..26].fill(0);
    let sum = oracle::checksum(&length_zero[14..34]);
    length_zero[24..26].copy_from_slice(&sum.to_be_bytes());
    let long = link().ipv6(|ip| ip).destination_options(|o| o.data(&[0; 500]));
    let long = long.fragment(|f| f.more(true).next_header(17)).payload(&[0; 16]).build();
    for (frame, reason) in [
        (link().ipv4(|ip| ip).udp(|u| u).payload_len(40).build(), Pass::Whole),
        (vec![0; 60], Pass::Whole),
        (vec![], Pass::Whole),
        (fragment[..60].to_vec(), Pass::Truncated),
        (wrong_checksum, Pass::Ipv4Checksum),
        (length_zero, Pass::LengthZero),
        (long, Pass::HeaderTooLong),
    ] {
        let (mut rig, verdict) = pushed(&frame);
        assert_eq!(verdict, ReassemblyVerdict::Passed(reason));
        assert_eq!(rig.passed, [(frame, reason)]);
        assert_eq!(rig.stats().passed[reason.index()], 1);
        rig.finish();
    }
}

#[test]
fn padding_behind_a_fragment_is_no_data() {
    let data = data(Version::V4, 24, 3);
    let pieces = cut(&data, 16);
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
        let mut rig = Rig::new(rules(mode));
        for piece in &pieces {
            let mut frame = Version::V4.frame(1, piece);
            frame.resize(60, 0xee);
            rig.push(&frame);
        }
        assert_eq!(rig.take_whole(), [Version::V4.whole(1, &data)]);
    }
}

#[test]
fn every_buffer_of_a_discarded_datagram_comes_back_with_the_reason() {
    let data = data(Version::V4, 64, 4);
    let mut rig = Rig::new(rules(ReassemblyMode::KeepGeometry));
    push_all(&mut rig, Version::V4, 1, &[Piece::of(&data, 48, 64), Piece::of(&data, 0, 16)]);
    push_all(&mut rig, Version::V4, 1, &[Piece::of(&data, 8, 24)]);
    let why = Returned::Discarded(Discard::Overlap);
    assert_eq!(rig.returned, [(1, why), (0, why), (2, why)]);
    let [(Discard::Overlap, missing)] = &rig.discarded[..] else { panic!("{:?}", rig.discarded) };
    assert!(missing.iter().eq([&(16..48)]));
    rig.finish();
}

/// Tests frames with every bit of every byte flipped: nothing panics, nothing is lost, and no limit is exceeded.
#[test]
fn damaged_fragments_are_survived() {
    let mut random = Random::new(5);
    for version in Version::ALL {
        let data = data(version, 200, 5);
        let frames: Vec<_> = cut(&data, 64).iter().map(|piece| version.frame(1, piece)).collect();
        for mode in
            [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry, ReassemblyMode::Virtual]
        {
            let mut rig = Rig::new(rules(mode));
            for at in 0..frames[0].len() * 8 {
                for frame in &frames {
                    let mut frame = frame.clone();
                    if let Some(byte) = frame.get_mut(at / 8) {
                        *byte ^= 1 << (at % 8);
                    }
                    if random.one_in(8) {
                        frame.truncate(random.below(frame.len()));
                    }
                    rig.push(&frame);
                }
            }
            rig.finish();
        }
    }
}
