//! Tests rules G50 to G66: the fields and size limits of superframes.

use grosso::{
    Profile, Verdict,
    checksum::Checksum,
    coalesce::reason::{Close, NoMerge},
    meta::{Cwr, Gso, GsoSize, IpLevels},
};
use grosso_rig::{
    engine::{Engine, Out, coalesce, coalesce_with},
    frames::{Path, assert_payloads, payload_lengths, plain},
};
use grosso_testkit::oracle::{checksum, pseudo_header, sum};

/// Returns the only superframe of a train.
#[track_caller]
fn superframe(path: Path, lengths: &[usize]) -> Out {
    let mut delivered = coalesce(&path.train(lengths, plain));
    assert_eq!(delivered.len(), 1);
    delivered.remove(0)
}

#[test]
fn g50_lengths_are_those_of_the_whole() {
    let ipv4 = superframe(Path::Ipv4, &[100, 100]).bytes;
    assert_eq!(ipv4[16..18], 240_u16.to_be_bytes());
    assert_eq!(checksum(&ipv4[14..34]), 0);
    let ipv6 = superframe(Path::Ipv6, &[100, 100]).bytes;
    assert_eq!(ipv6[18..20], 220_u16.to_be_bytes());
}

#[test]
fn g51_checksum_is_the_seed_of_the_whole() {
    for (path, addresses, tcp) in [(Path::Ipv4, 26..34, 34), (Path::Ipv6, 22..54, 54)] {
        let out = superframe(path, &[100, 100]);
        let (source, destination) = out.bytes[addresses.clone()].split_at(addresses.len() / 2);
        let seed = sum(&pseudo_header(source, destination, 6, 220));
        assert_eq!(out.bytes[tcp + 16..tcp + 18], seed.to_be_bytes());
        assert_eq!(out.meta.checksum, Checksum::Partial { start: tcp as u16, offset: 16 });
    }
}

#[test]
fn g52_description_of_a_superframe() {
    let description = |id: [u16; 3]| {
        let frames =
            Path::Ipv4.train(&[100, 100, 50], |index, s| s.ipv4(move |ip| ip.id(id[index])));
        coalesce(&frames)[0].meta.gso.unwrap()
    };
    let stepping = Gso { segments: 3, ..Gso::every(100).unwrap() };
    assert_eq!(description([7, 8, 9]), stepping);
    assert_eq!(description([7, 7, 7]), Gso { fixed_ids: IpLevels::from_bits(1), ..stepping });
    assert!(matches!(
        stepping,
        Gso { size: GsoSize::Every(_), cwr: Cwr::First, untrusted: false, .. }
    ));
}

#[test]
fn g52_fixed_identifications_are_reported_by_level() {
    for bits in 0..4 {
        let frames = Path::Ipip.train(&[100; 3], |index, s| {
            let id = |level: u8| if bits >> level & 1 == 1 { 7 } else { 7 + index as u16 };
            let (outer, inner) = (id(0), id(1));
            s.outer_ipv4(move |ip| ip.id(outer)).ipv4(move |ip| ip.id(inner))
        });
        let gso = coalesce(&frames)[0].meta.gso.unwrap();
        assert_eq!(gso.fixed_ids, IpLevels::from_bits(bits));
    }
}

#[test]
fn g53_a_packet_alone_is_unmodified_and_verified() {
    let frames = Path::Ipv4.train(&[100], plain);
    let out = &coalesce(&frames)[0];
    assert_eq!((&out.bytes, out.packets, out.joined), (&frames[0], 1, false));
    assert_eq!(out.meta.checksum, Checksum::Unnecessary { levels: 0 });
    assert_eq!(out.meta.gso, None);
}

/// Segments a train and compares the packets explicitly. Every test that coalesces makes the same comparison.
#[test]
fn g54_cutting_gives_the_packets_back() {
    for path in Path::ALL {
        let frames = path.train(&[100, 100, 100, 20], |index, s| {
            s.ipv4(move |ip| ip.id(index as u16)).tcp(move |tcp| {
                if index == 3 { tcp.psh().timestamps(1, 2) } else { tcp.timestamps(1, 2) }
            })
        });
        let delivered = coalesce(&frames);
        assert_eq!(delivered.len(), 1);
        assert_eq!(grosso_rig::engine::segment(&delivered[0]), frames);
    }
}

#[test]
fn g60_forty_five_full_segments_make_the_greatest_packet() {
    assert_payloads(&Path::Ipv4.train(&[1448; 60], plain), &[45 * 1448, 15 * 1448]);
}

#[test]
fn g60_ip_packet_has_at_most_65535_bytes() {
    for path in Path::IP {
        let last = (65535 - path.ip_and_tcp_len()) % 1000;
        let most = vec![1000; 65535 / 1000];
        let train = |last| path.train(&[&most[..65], &[last]].concat(), plain);
        assert_payloads(&train(last), &[65000 + last]);
        assert_payloads(&train(last + 1), &[65000, last + 1]);
    }
}

// Rules: G32
#[test]
fn g60_refusal_is_named() {
    let frames = Path::Ipv4.train(&[1448; 46], plain);
    let mut engine = Engine::new(Profile::linux());
    let verdicts: Vec<_> = frames.iter().map(|frame| engine.push(frame)).collect();
    assert_eq!(verdicts[45], Verdict::Refused(NoMerge::SizeLimit));
}

#[test]
fn g60_smaller_limit() {
    let delivered = coalesce_with(limited(1000), &Path::Ipv4.train(&[300; 4], plain));
    // 40 + 3 x 300 is below 1000, 40 + 4 x 300 is not.
    assert_eq!(payload_lengths(&delivered), [900, 300]);
    let delivered = coalesce_with(limited(940), &Path::Ipv4.train(&[300; 4], plain));
    assert_eq!(payload_lengths(&delivered), [600, 600]);
}

/// Returns the `linux` profile with another size limit.
fn limited(size_bytes: u32) -> Profile {
    let mut profile = Profile::linux();
    profile.limits.size_bytes = size_bytes;
    profile
}

#[test]
fn g61_beyond_65535_only_tcp_in_no_tunnel_grows() {
    let count = |path: Path, udp: bool| {
        let lengths = [1400; 60];
        let frames =
            if udp { path.datagrams(&lengths, plain) } else { path.train(&lengths, plain) };
        coalesce_with(limited(150_000), &frames).len()
    };
    assert_eq!(Path::PLAIN.map(|path| count(path, false)), [1, 1]);
    assert_eq!(Path::PLAIN.map(|path| count(path, true)), [2, 2]);
    for path in [Path::Ipip, Path::Ip6ip6, Path::PppoeIpv4, Path::PppoeIpv6] {
        assert_eq!(count(path, false), 2, "{path:?}");
    }
}

// Rules: G50
#[test]
fn g62_ipv4_superframe_beyond_65535_has_length_zero() {
    let delivered = coalesce_with(limited(150_000), &Path::Ipv4.train(&[1448; 103], plain));
    assert_eq!(payload_lengths(&delivered), [149_144]);
    assert_eq!(delivered[0].bytes[16..18], [0, 0]);
    assert_eq!(checksum(&delivered[0].bytes[14..34]), 0);
}

#[test]
fn g63_ipv6_superframe_beyond_65535_has_length_zero_and_no_jumbo_header() {
    let delivered = coalesce_with(limited(150_000), &Path::Ipv6.train(&[1448; 60], plain));
    assert_eq!(payload_lengths(&delivered), [60 * 1448]);
    assert_eq!(delivered[0].bytes[18..21], [0, 0, 6]);
}

#[test]
fn g63_ceiling_of_the_size_limit() {
    let delivered = coalesce_with(limited(524_280), &Path::Ipv6.train(&[9000; 60], plain));
    // 58 x 9000 + 60 is below 524280, one segment more is not.
    assert_eq!(payload_lengths(&delivered), [58 * 9000, 2 * 9000]);
}

#[test]
fn g64_the_number_of_tcp_segments_has_no_limit_but_size() {
    assert_payloads(&Path::Ipv4.train(&[1; 3000], plain), &[3000]);
}

#[test]
fn g64_limit_on_segments_of_a_profile() {
    let mut profile = Profile::linux();
    profile.limits.tcp_segments = 3;
    let frames = Path::Ipv4.train(&[100; 7], plain);
    assert_eq!(payload_lengths(&coalesce_with(profile, &frames)), [300, 300, 100]);
}

/// Tests that a full pool of parts ends the train, as a mismatch does. Linux would continue in a second list.
#[test]
fn g65_full_pool_of_parts_closes_the_train() {
    let mut profile = Profile::linux();
    profile.limits.parts = 2;
    let delivered = coalesce_with(profile, &Path::Ipv4.train(&[100; 5], plain));
    assert_eq!(payload_lengths(&delivered), [300, 200]);
    assert_eq!(delivered[0].closed, Close::PartsFull);
}
