//! Tests rules G10 to G23: IPv4 and IPv6.

use grosso::{
    Profile, Verdict,
    coalesce::reason::{NoMerge, Pass},
};
use grosso_rig::{
    engine::{Engine, coalesce},
    frames::{Path, Segment, assert_apart, assert_payloads, at, payload_lengths, plain},
};
use grosso_testkit::{
    Packet,
    headers::{Extension, Ipv4, Ipv6},
};

/// Changes the second of three segments, and asserts its verdict, that the order is kept, and that the third segment
/// does not merge with the first.
#[track_caller]
fn assert_second(path: Path, change: impl Fn(Segment) -> Segment, verdict: Verdict) {
    let frames = path.train(&[100; 3], at(1, change));
    let mut engine = Engine::new(Profile::linux());
    engine.push(&frames[0]);
    assert_eq!(engine.push(&frames[1]), verdict, "{path:?}");
    assert_apart(&frames);
}

/// Asserts that both segments of a train with this change merge.
#[track_caller]
fn assert_merges(path: Path, change: impl Fn(usize, Segment) -> Segment) {
    assert_payloads(&path.train(&[100, 100], change), &[200]);
}

#[test]
fn g10_frame_shorter_than_an_ipv4_header_passes() {
    for len in 14..34 {
        let frame = Path::Ipv4.train(&[100], |_, s| s.frame(move |packet| packet.truncate(len)));
        let mut engine = Engine::new(Profile::linux());
        assert_eq!(engine.push(&frame[0]), Verdict::Passed(Pass::Truncated));
    }
}

#[test]
fn g10_options_pass() {
    let passed = Verdict::Passed(Pass::Ipv4Options);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.options(&[1])), passed);
    // Every packet has the same options.
    assert_apart(&Path::Ipv4.train(&[100; 3], |_, s| s.ipv4(|ip| ip.options(&[1; 4]))));
}

#[test]
fn g10_fragments_pass() {
    let passed = Verdict::Passed(Pass::Fragment);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.more_fragments(true)), passed);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.fragment_offset(1)), passed);
}

#[test]
fn g10_wrong_header_checksum_passes() {
    let passed = Verdict::Passed(Pass::Ipv4Checksum);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.checksum_xor(0x0100)), passed);
    assert_second(Path::Ipip, |s| s.outer_ipv4(|ip| ip.checksum_xor(0x0100)), passed);
}

#[test]
fn g10_protocol_without_a_handler_passes() {
    for packet in [
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).sctp(|sctp| sctp).payload_len(100),
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).icmp(|icmp| icmp).payload_len(100),
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).icmp(|icmp| icmp).payload_len(100),
    ] {
        let mut engine = Engine::new(Profile::linux());
        assert_eq!(engine.push(&packet.build()), Verdict::Passed(Pass::Protocol));
    }
}

#[test]
fn g11_padded_frame_leaves_behind_the_held_one_with_its_padding() {
    let frames = Path::Ipv4.train(&[100, 1], at(1, |s| s.frame(|packet| packet.pad_to(60))));
    let mut engine = Engine::new(Profile::linux());
    engine.push(&frames[0]);
    assert_eq!(engine.push(&frames[1]), Verdict::Passed(Pass::Padded));
    assert_eq!(frames[1].len(), 60);
    assert_apart(&frames);
}

#[test]
fn g11_total_length_beyond_the_frame_passes() {
    let short = Verdict::Passed(Pass::Short);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.total_len_raw(141)), short);
}

#[test]
fn g11_total_length_of_zero_passes() {
    let zero = Verdict::Passed(Pass::LengthZero);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.total_len_raw(0)), zero);
}

#[test]
fn g11_reserved_bit_passes_on_every_packet() {
    let passed = Verdict::Passed(Pass::Ipv4ReservedBit);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.reserved_bit(true)), passed);
    assert_apart(&Path::Ipv4.train(&[100, 100], |_, s| s.ipv4(|ip| ip.reserved_bit(true))));
}

/// Interleaves two connections of two segments each that differ in one header.
fn interleaved(path: Path, change: impl Fn(Segment) -> Segment) -> Vec<Vec<u8>> {
    let other = path.train(&[100, 100], |_, s| change(s));
    path.train(&[100, 100], plain).into_iter().zip(other).flat_map(|(a, b)| [a, b]).collect()
}

#[test]
fn g12_addresses_make_the_flow() {
    let source = |s: Segment| s.ipv4(|ip: Ipv4| ip.source([192, 168, 1, 201]));
    assert_payloads(&interleaved(Path::Ipv4, source), &[200, 200]);
    let destination = |s: Segment| s.ipv4(|ip: Ipv4| ip.destination([192, 168, 1, 101]));
    assert_payloads(&interleaved(Path::Ipv4, destination), &[200, 200]);
}

#[test]
fn g12_protocol_makes_the_flow() {
    let tcp = Path::Ipv4.train(&[100, 100], plain);
    let udp = Path::Ipv4.datagrams(&[100, 100], plain);
    let frames = [&tcp[0], &udp[0], &tcp[1], &udp[1]].map(Clone::clone);
    assert_payloads(&frames, &[200, 200]);
}

// Rules: G32
#[test]
fn g13_ttl_tos_or_df_differs() {
    let refused = Verdict::Refused;
    for path in Path::OVER_IPV4 {
        assert_second(path, |s| s.ttl(7), refused(NoMerge::TimeToLive));
        assert_second(path, |s| s.ipv4(|ip| ip.df(false)), refused(NoMerge::DontFragment));
        for bit in 0..8 {
            assert_second(path, move |s| s.tos(1 << bit), refused(NoMerge::TypeOfService));
        }
    }
}

/// Asserts the payload lengths delivered for segments with these IPv4 identifications.
#[track_caller]
fn assert_ids(df: bool, ids: &[u16], expected: &[usize]) {
    let edit = |index: usize, s: Segment| {
        let id = ids[index];
        s.ipv4(move |ip: Ipv4| ip.df(df).id(id))
    };
    assert_payloads(&Path::Ipv4.train(&vec![100; ids.len()], edit), expected);
}

#[test]
fn g14_identification_steps_or_stays_for_any_df() {
    for df in [true, false] {
        assert_ids(df, &[8, 9, 10], &[300]);
        assert_ids(df, &[8, 8, 8], &[300]);
        assert_ids(df, &[8, 9, 9], &[200, 100]);
        assert_ids(df, &[8, 8, 9], &[200, 100]);
        assert_ids(df, &[8, 10, 11], &[100, 200]);
        assert_ids(df, &[8, 7, 6], &[100, 100, 100]);
    }
}

#[test]
fn g14_identification_wraps() {
    assert_ids(false, &[65534, 65535, 0, 1], &[400]);
}

#[test]
fn g14_identification_of_a_gap_of_two_is_refused() {
    let refused = Verdict::Refused(NoMerge::Identification);
    assert_second(Path::Ipv4, |s| s.ipv4(|ip| ip.id(2)), refused);
}

#[test]
fn g14_each_level_has_a_mode_of_its_own() {
    for (outer, inner) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_merges(Path::Ipip, |index, s| {
            let index = index as u16;
            s.outer_ipv4(move |ip| ip.id(outer * index)).ipv4(move |ip| ip.id(inner * index))
        });
    }
}

/// Tests that the identification is compared even if DF is set, unlike in Linux before 6.18 (G14a), because
/// segmentation could not restore a random one.
#[test]
fn g14a_random_outer_identifications_with_df_stay_apart() {
    let ids = [0x1234, 0x8765, 0x0042];
    let frames = Path::Ipip.train(&[100; 3], |index, s| s.outer_ipv4(move |ip| ip.id(ids[index])));
    assert_apart(&frames);
}

#[test]
fn g15_the_first_header_survives() {
    let frames = Path::Ipv4.train(&[100, 100], |index, s| s.ipv4(move |ip| ip.id(index as u16)));
    let delivered = coalesce(&frames);
    let unchanged = |range: std::ops::Range<usize>| {
        assert_eq!(delivered[0].bytes[range.clone()], frames[0][range]);
    };
    unchanged(0..16); // Ethernet, version, TOS.
    unchanged(18..24); // Identification, fragment word, TTL, protocol.
    unchanged(26..50); // Addresses, TCP up to the checksum.
}

/// Tests that the flow label is compared but does not identify a flow; Linux would build two aggregates. A sender may
/// change the label within a connection, which must still keep its order.
#[test]
fn g20_interleaved_flow_labels_keep_the_order() {
    let frames = Path::Ipv6
        .train(&[100; 4], |index, s| s.ipv6(move |ip: Ipv6| ip.flow_label(index as u32 % 2)));
    assert_apart(&frames);
}

#[test]
fn g20_addresses_make_the_flow() {
    let source = |s: Segment| s.ipv6(|ip: Ipv6| ip.source([0xfd; 16]));
    assert_payloads(&interleaved(Path::Ipv6, source), &[200, 200]);
    let destination = |s: Segment| s.ipv6(|ip: Ipv6| ip.destination([0xfd; 16]));
    assert_payloads(&interleaved(Path::Ipv6, destination), &[200, 200]);
}

/// Functions that each add an extension header of one parsed kind.
const EXTENSIONS: [fn(Packet, u8) -> Packet; 3] = [
    |packet, byte| packet.hop_by_hop(|h| h.data(&[0x1e, 4, byte, 0, 0, 0])),
    |packet, byte| packet.routing(|r| r.data(&[byte; 6])),
    |packet, byte| packet.destination_options(|d| d.data(&[0x1e, 4, byte, 0, 0, 0])),
];

#[test]
fn g20_an_extension_header_differs() {
    for add in EXTENSIONS {
        let frames = Path::Ipv6
            .train(&[100, 100], |index, s| s.extensions(move |packet| add(packet, index as u8)));
        let mut engine = Engine::new(Profile::linux());
        engine.push(&frames[0]);
        assert_eq!(engine.push(&frames[1]), Verdict::Refused(NoMerge::Ipv6Extension));
        assert_apart(&frames);
    }
}

#[test]
fn g20_an_extension_header_comes_and_goes() {
    for add in EXTENSIONS {
        assert_apart(&Path::Ipv6.train(&[100; 3], at(1, |s| s.extensions(move |p| add(p, 0)))));
    }
}

#[test]
fn g21_equal_extension_headers_merge() {
    for add in EXTENSIONS {
        assert_merges(Path::Ipv6, |_, s| s.extensions(move |packet| add(packet, 5)));
    }
    assert_merges(Path::Ipv6, |_, s| {
        s.extensions(|packet| EXTENSIONS.iter().fold(packet, |packet, add| add(packet, 5)))
    });
}

/// Tests for a bug that random frames revealed, with the fast tiers off and on: if the last option in a packet was
/// truncated, a home address at the same offset in the next packet was left out of the checksum (RFC 6275 section 6.3).
#[test]
fn g21_a_home_address_in_the_place_of_an_option_that_is_cut_off_is_summed() {
    const HOME: [u8; 16] = [0xfd; 16];
    let of = |index: u32, options: fn(Extension) -> Extension| {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).destination_options(options);
        packet.tcp(|t| t.sequence(1 + 100 * index)).payload_len(100).build()
    };
    // Three bytes of padding, and then either an option of 200 bytes in a header of 32, or the home address.
    let cut_off = of(0, |d| d.data(&[&[1, 3, 0, 0, 0, 0x1e, 200][..], &[0; 23]].concat()));
    let home = |index| {
        of(index, |d| {
            let options = [&[1, 3, 0, 0, 0, 0xc9, 16][..], &HOME, &[1, 5, 0, 0, 0, 0, 0]].concat();
            d.home_address(HOME).data(&options)
        })
    };
    let mut engine = Engine::new(Profile::linux());
    engine.push(&cut_off);
    let verdicts = [engine.push(&home(1)), engine.push(&home(2))];
    let mut alone = Engine::new(Profile::linux());
    assert_eq!(verdicts[1], Verdict::Joined);
    assert_eq!([alone.push(&home(1)), alone.push(&home(2))][1], verdicts[1]);
}

#[test]
fn g21_fragment_headers_pass_also_atomic_ones() {
    let passed = Verdict::Passed(Pass::Fragment);
    assert_second(Path::Ipv6, |s| s.extensions(|p| p.fragment(|f| f)), passed);
    assert_second(Path::Ipv6, |s| s.extensions(|p| p.fragment(|f| f.more(true))), passed);
    assert_second(Path::Ipv6, |s| s.extensions(|p| p.fragment(|f| f.offset(1))), passed);
    assert_apart(&Path::Ipv6.train(&[100, 100], |_, s| s.extensions(|p| p.fragment(|f| f))));
}

#[test]
fn g21_authentication_header_and_unknown_headers_pass() {
    for next_header in [51, 59, 135, 253] {
        let change = move |s: Segment| s.ipv6(move |ip: Ipv6| ip.next_header(next_header));
        assert_second(Path::Ipv6, change, Verdict::Passed(Pass::Protocol));
    }
}

#[test]
fn g22_traffic_class_or_hop_limit_differs() {
    for path in Path::OVER_IPV6 {
        assert_second(path, |s| s.ttl(7), Verdict::Refused(NoMerge::TimeToLive));
        for bit in 0..8 {
            let refused = Verdict::Refused(NoMerge::TrafficClassOrFlowLabel);
            assert_second(path, move |s| s.tos(1 << bit), refused);
        }
    }
}

#[test]
fn g23_payload_length_that_is_not_that_of_the_frame_passes() {
    for (declared, reason) in [(119, Pass::Padded), (121, Pass::Short), (0, Pass::LengthZero)] {
        let change = move |s: Segment| s.ipv6(move |ip: Ipv6| ip.payload_len_raw(declared));
        assert_second(Path::Ipv6, change, Verdict::Passed(reason));
    }
    let padded = Path::Ipv6.train(&[100, 1], at(1, |s| s.frame(|packet| packet.pad_to(80))));
    assert_eq!(payload_lengths(&coalesce(&padded)), [100, 1]);
}
