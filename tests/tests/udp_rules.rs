//! UDP receive coalescing, rule by rule: `linux-offloads` sections 2.1 and 2.2.

use grosso::{
    Profile, Verdict,
    checksum::Checksum,
    coalesce::reason::{Close, NoMerge, Pass},
    meta::{Gso, IpLevels},
};
use grosso_rig::{
    engine::{Engine, coalesce, coalesce_with, segment},
    frames::{Path, Segment, assert_apart, assert_payloads, at, payload_lengths, plain},
};
use grosso_testkit::{
    headers::Udp,
    oracle::{pseudo_header, sum},
};

/// Changes the second of three datagrams, and asserts its verdict, that the order is kept, and that the other two are
/// delivered unchanged.
#[track_caller]
fn assert_second(change: impl Fn(Segment) -> Segment + Copy, verdict: Verdict) {
    for path in Path::PLAIN {
        let frames = path.datagrams(&[100; 3], at(1, change));
        let mut engine = Engine::new(Profile::linux());
        engine.push(&frames[0]);
        assert_eq!(engine.push(&frames[1]), verdict, "{path:?}");
        let leave: Vec<_> = coalesce(&frames).iter().flat_map(segment).collect();
        assert_eq!(leave, frames, "{path:?}");
    }
}

#[test]
fn u01_wrong_checksum_passes() {
    for bit in 0..16 {
        let change = move |s: Segment| s.udp(move |udp| udp.checksum_xor(1 << bit));
        assert_second(change, Verdict::Passed(Pass::Checksum));
    }
}

#[test]
fn u03_profile_without_udp_delivers_singly() {
    let mut profile = Profile::linux();
    profile.udp = false;
    let frames = Path::Ipv4.datagrams(&[100; 2], plain);
    let delivered = coalesce_with(profile, &frames);
    assert_eq!(payload_lengths(&delivered), [100, 100]);
    assert!(delivered.iter().all(|out| out.closed == Close::Never));
}

#[test]
fn u03_default_profile_joins_udp() {
    for path in Path::ALL {
        assert_payloads(&path.datagrams(&[100; 2], plain), &[200]);
    }
}

// Rules: U1, B62
#[test]
fn u10_no_checksum_passes() {
    assert_second(|s| s.udp(Udp::checksum_zero), Verdict::Passed(Pass::ChecksumNone));
    assert_apart(&Path::Ipv4.datagrams(&[100; 3], |_, s| s.udp(Udp::checksum_zero)));
}

#[test]
fn u10_empty_datagram_passes() {
    let mut engine = Engine::new(Profile::linux());
    let empty = Path::Ipv4.datagrams(&[0], plain);
    assert_eq!(engine.push(&empty[0]), Verdict::Passed(Pass::Empty));
    assert_payloads(&Path::Ipv4.datagrams(&[100, 0, 100], plain), &[100, 0, 100]);
}

#[test]
fn u10_length_that_is_not_that_of_the_packet_passes() {
    assert_second(|s| s.udp(|udp| udp.len_raw(107)), Verdict::Passed(Pass::Padded));
    assert_second(|s| s.udp(|udp| udp.len_raw(109)), Verdict::Passed(Pass::Short));
    assert_second(|s| s.udp(|udp| udp.len_raw(7)), Verdict::Passed(Pass::Malformed));
    assert_second(|s| s.udp(|udp| udp.len_raw(0)), Verdict::Passed(Pass::Malformed));
}

#[test]
fn u10_padded_frame_passes() {
    let change = |s: Segment| s.frame(|packet| packet.trailer(&[0; 6]));
    assert_second(change, Verdict::Passed(Pass::Padded));
}

#[test]
fn u11_ports_make_the_flow() {
    let changes: [fn(Udp) -> Udp; 2] = [|udp| udp.source_port(9), |udp| udp.destination_port(9)];
    for change in changes {
        let one = Path::Ipv4.datagrams(&[100, 100], plain);
        let two = Path::Ipv4.datagrams(&[100, 100], |_, s| s.udp(change));
        assert_payloads(&[&one[0], &two[0], &one[1], &two[1]].map(Clone::clone), &[200, 200]);
    }
}

#[test]
fn u11_datagrams_with_and_without_checksum_do_not_mix() {
    let mixed = |first| {
        Path::Ipv4.datagrams(&[100; 4], move |index, s| {
            if index % 2 == first { s.udp(Udp::checksum_zero) } else { s }
        })
    };
    assert_apart(&mixed(0));
    assert_apart(&mixed(1));
}

// Rules: B68
#[test]
fn u12_lengths_are_compared_with_the_first() {
    for path in Path::PLAIN {
        let leaves =
            |lengths: &[usize]| payload_lengths(&coalesce(&path.datagrams(lengths, plain)));
        assert_eq!(leaves(&[100, 60]), [160]);
        assert_eq!(leaves(&[100, 60, 100]), [160, 100]);
        assert_eq!(leaves(&[60, 100]), [60, 100]);
        assert_eq!(leaves(&[60, 100, 100]), [60, 200]);
    }
}

// Rules: G64
#[test]
fn u13_at_most_64() {
    let leaves =
        |count| payload_lengths(&coalesce(&Path::Ipv4.datagrams(&vec![100; count], plain)));
    assert_eq!(leaves(64), [6400]);
    assert_eq!(leaves(65), [6400, 100]);
    assert_eq!(leaves(130), [6400, 6400, 200]);
}

#[test]
fn u13_the_sixty_fourth_delivers_at_once() {
    let mut engine = Engine::new(Profile::linux());
    Path::Ipv4.datagrams(&[100; 64], plain).iter().for_each(|frame| {
        engine.push(frame);
    });
    assert_eq!(engine.delivered.len(), 1);
    assert_eq!(engine.delivered[0].closed, Close::SegmentLimit);
}

// Rules: B4
#[test]
fn u14_network_headers_differ() {
    let refused = Verdict::Refused;
    assert_second(|s| s.ttl(7), refused(NoMerge::TimeToLive));
    for (path, reason) in
        [(Path::Ipv4, NoMerge::TypeOfService), (Path::Ipv6, NoMerge::TrafficClassOrFlowLabel)]
    {
        let mut engine = Engine::new(Profile::linux());
        for frame in path.datagrams(&[100; 2], at(1, |s| s.tos(1))) {
            engine.push(&frame);
        }
        assert_eq!(engine.verdicts[1], refused(reason));
    }
}

#[test]
fn u14_df_differs() {
    assert_apart(&Path::Ipv4.datagrams(&[100; 3], at(1, |s| s.ipv4(|ip| ip.df(false)))));
}

#[test]
fn u14_identification_steps_or_stays() {
    let leaves = |ids: [u16; 3]| {
        let frames =
            Path::Ipv4.datagrams(&[100; 3], |index, s| s.ipv4(move |ip| ip.id(ids[index])));
        payload_lengths(&coalesce(&frames))
    };
    assert_eq!(leaves([7, 7, 7]), [300]);
    assert_eq!(leaves([7, 8, 9]), [300]);
    assert_eq!(leaves([7, 7, 8]), [200, 100]);
    assert_eq!(leaves([7, 9, 9]), [100, 200]);
}

#[test]
fn u15_superframe_of_two_datagrams() {
    let delivered = coalesce(&Path::Ipv4.datagrams(&[100; 2], plain));
    let bytes = &delivered[0].bytes;
    assert_eq!(bytes[16..18], 228_u16.to_be_bytes());
    assert_eq!(bytes[38..40], 208_u16.to_be_bytes());
    let seed = sum(&pseudo_header(&bytes[26..30], &bytes[30..34], 17, 208));
    assert_eq!(bytes[40..42], seed.to_be_bytes());
    assert_eq!(delivered[0].meta.checksum, Checksum::Partial { start: 34, offset: 6 });
    let fixed = IpLevels::from_bits(1);
    let gso = Gso { segments: 2, fixed_ids: fixed, ..Gso::every(100).unwrap() };
    assert_eq!(delivered[0].meta.gso, Some(gso));
}

#[test]
fn u17_superframe_is_cut_again_for_a_plain_socket() {
    let frames = Path::Ipv4.datagrams(&[100, 100, 60], plain);
    let delivered = coalesce(&frames);
    assert_eq!(payload_lengths(&delivered), [260]);
    assert_eq!(delivered[0].meta.gso.unwrap().size(), Some(100));
    assert_eq!(segment(&delivered[0]), frames);
}
