//! Tests rules G1 to G8: the flow table, the link layer, and which packets can be in a train.

use grosso::{
    Frame, Meta, Profile, Verdict,
    coalesce::reason::{Close, NoMerge, Pass},
    meta::{Cwr, Gso, GsoSize, VlanTag},
};
use grosso_rig::{
    engine::{Engine, Out, coalesce, coalesce_with},
    frames::{Path, assert_apart, assert_payloads, at, payload_lengths, plain},
    superframe::Superframe,
};
use grosso_testkit::{Packet, headers::Tcp};

#[test]
fn g01_contexts_share_nothing() {
    let frames = Path::Ipv4.train(&[100, 100], plain);
    for frame in &frames {
        assert_eq!(coalesce(std::slice::from_ref(frame))[0].bytes, *frame);
    }
}

/// Returns interleaved connections of two segments: all first segments, then all second ones.
fn interleaved(flows: u16) -> Vec<Vec<u8>> {
    let train = |flow| {
        Path::Ipv4.train(&[100, 100], move |_, s| s.tcp(move |tcp| tcp.source_port(1500 + flow)))
    };
    let trains: Vec<_> = (0..flows).map(train).collect();
    (0..2).flat_map(|index| trains.iter().map(move |train| train[index].clone())).collect()
}

/// Pushes each frame with the device hash that `hash` returns for its index.
fn with_hashes(profile: Profile, frames: &[Vec<u8>], hash: impl Fn(usize) -> u32) -> Vec<Out> {
    let mut engine = Engine::new(profile);
    for (index, frame) in frames.iter().enumerate() {
        let meta = Meta { hash: Some(hash(index)), ..Meta::default() };
        engine.push_frame(Frame { buffer: frame.clone(), meta }, 0);
    }
    engine.poll_end(0);
    engine.checked(frames)
}

#[test]
fn g02_device_hash_chooses_the_bucket() {
    let delivered = with_hashes(Profile::linux_8x8(), &interleaved(9), |index| index as u32 % 9);
    assert_eq!(payload_lengths(&delivered), [200; 9]);
}

#[test]
fn g02_only_the_low_bits_of_the_device_hash_count() {
    let delivered =
        with_hashes(Profile::linux_8x8(), &interleaved(9), |index| index as u32 % 9 * 8);
    assert_eq!(payload_lengths(&delivered), [100; 18]);
}

#[test]
fn g03_eight_interleaved_flows_merge_in_one_bucket() {
    let delivered = coalesce_with(Profile::linux_8x8(), &interleaved(8));
    assert_eq!(payload_lengths(&delivered), [200; 8]);
}

#[test]
fn g03_nine_interleaved_flows_thrash_one_bucket() {
    let delivered = coalesce_with(Profile::linux_8x8(), &interleaved(9));
    assert_eq!(payload_lengths(&delivered), [100; 18]);
    assert_eq!(delivered.iter().filter(|out| out.closed == Close::BucketFull).count(), 10);
}

// Rules: B56
#[test]
fn g03_the_default_table_is_not_thrashed() {
    assert_payloads(&interleaved(500), &[200; 500]);
}

#[test]
fn g04_ethernet_addresses_differ() {
    let source = at(1, |s| s.ethernet(|e| e.source([0xaa, 0, 0, 0, 0, 3])));
    assert_apart(&Path::Ipv4.train(&[100; 3], source));
    let destination = at(1, |s| s.ethernet(|e| e.destination([0xaa, 0, 0, 0, 0, 3])));
    assert_apart(&Path::Ipv6.train(&[100; 3], destination));
}

/// Tests that Ethernet addresses do not identify a flow (unlike in Linux): no packet overtakes another if the path
/// moves to another router.
#[test]
fn g04_interleaved_ethernet_addresses_keep_the_order() {
    let frames = Path::Ipv4.train(&[100; 4], |index, s| {
        s.ethernet(move |e| e.source([0xaa, 0, 0, 0, 0, index as u8 % 2]))
    });
    assert_apart(&frames);
}

#[test]
fn g04_vlan_tags_beside_the_frame_differ() {
    let frames = Path::Ipv4.train(&[100; 3], plain);
    let mut engine = Engine::new(Profile::linux());
    let verdicts = [7, 7, 8]
        .map(|tci| Meta { vlan: Some(VlanTag { protocol: 0x8100, tci }), ..Meta::default() });
    for (frame, meta) in frames.iter().zip(verdicts) {
        engine.push_frame(Frame { buffer: frame.clone(), meta }, 0);
    }
    engine.poll_end(0);
    assert_eq!(engine.verdicts[2], Verdict::Refused(NoMerge::VlanTag));
    let delivered = engine.checked(&frames);
    assert_eq!(payload_lengths(&delivered), [200, 100]);
    assert_eq!(delivered[0].meta.vlan.unwrap().tci, 7);
}

#[test]
fn g04_hash_of_the_device_need_not_be_equal_in_the_seeded_table() {
    let frames = Path::Ipv4.train(&[100, 100], plain);
    let delivered = with_hashes(Profile::linux(), &frames, |index| index as u32);
    assert_eq!(payload_lengths(&delivered), [200]);
}

#[test]
fn g05_ethertypes_without_a_handler_pass() {
    let arp = Packet::new().ethernet(|e| e.ethertype_raw(0x0806)).payload(&[0; 28]).build();
    let mut engine = Engine::new(Profile::linux());
    assert_eq!(engine.push(&arp), Verdict::Passed(Pass::NotIp));
    assert_eq!(engine.checked(std::slice::from_ref(&arp))[0].bytes, arp);
}

/// Tests MPLS, for which Linux has no GRO handler. In Grosso, the label is part of the flow.
#[test]
fn g05_mpls_merges() {
    let labelled = |label| {
        Path::Ipv4.train(&[100, 100], move |_, s| {
            s.link(move |packet| packet.mpls(|m| m.label(label)).mpls(|m| m))
        })
    };
    let (one, two) = (labelled(100), labelled(200));
    assert_payloads(&one, &[200]);
    assert_payloads(&[&one[0], &two[0], &one[1], &two[1]].map(Clone::clone), &[200, 200]);
}

/// Tests a service chain: its path and index are part of the flow, so the packets at each chain position merge even if
/// they alternate on one wire. Any other difference in the header ends the train.
#[test]
fn g05_nsh_merges() {
    type Edit = fn(grosso_testkit::headers::Nsh) -> grosso_testkit::headers::Nsh;
    let chained = |edit: Edit| {
        Path::Ipv4.train(&[100, 100], move |_, s| s.link(move |packet| packet.nsh(edit)))
    };
    let one = chained(|n| n);
    assert_payloads(&one, &[200]);
    for other in [chained(|n| n.path(2)), chained(|n| n.index(254))] {
        let mixed = [&one[0], &other[0], &one[1], &other[1]].map(Clone::clone);
        assert_payloads(&mixed, &[200, 200]);
    }
    let carried = |byte: u8| {
        Path::Ipv4.train(&[100, 100], move |_, s| {
            s.link(move |packet| packet.nsh(|n| n.context(&[byte; 16])))
        })
    };
    for (one, other) in [(one, chained(|n| n.ttl(62))), (carried(1), carried(2))] {
        let mixed = [&one[0], &other[1]].map(Clone::clone);
        assert_eq!(second(&mixed), Verdict::Refused(NoMerge::TunnelHeader));
    }
    for passed in [chained(|n| n.operations(true)), chained(|n| n.next_raw(6))] {
        assert_eq!(second(&passed), Verdict::Passed(Pass::NotIp));
    }
    for malformed in [chained(|n| n.version(1)), chained(|n| n.length_raw(1))] {
        assert_eq!(second(&malformed), Verdict::Passed(Pass::Malformed));
    }
}

#[test]
fn g05a_pppoe_merges_and_its_length_is_rewritten() {
    for path in [Path::PppoeIpv4, Path::PppoeIpv6] {
        let delivered = coalesce(&path.train(&[100, 100], plain));
        let length = (path.ip_and_tcp_len() + 200 + 2) as u16;
        assert_eq!(delivered[0].bytes[18..20], length.to_be_bytes());
    }
}

/// Tests the length field of a PPPoE session, which also counts the two bytes of the protocol field.
#[test]
fn g05a_pppoe_stays_within_its_length_field() {
    let most = 65535 - 2 - Path::PppoeIpv4.ip_and_tcp_len() - 65 * 1000;
    let train = |last| Path::PppoeIpv4.train(&[&[1000; 65][..], &[last]].concat(), plain);
    assert_payloads(&train(most), &[65000 + most]);
    assert_payloads(&train(most + 1), &[65000, most + 1]);
}

#[test]
fn g05a_pppoe_of_another_version_code_or_length_passes() {
    type Edit = fn(grosso_testkit::headers::Pppoe) -> grosso_testkit::headers::Pppoe;
    let cases: [(Edit, Pass); 4] = [
        (|p| p.version_type(0x21), Pass::Malformed),
        (|p| p.code(9), Pass::NotIp),
        (|p| p.len_raw(141), Pass::Short),
        (|p| p.len_raw(143), Pass::Short),
    ];
    for (edit, reason) in cases {
        let frames = Path::PppoeIpv4.train(&[100, 100], at(1, |s| s.pppoe(edit)));
        assert_eq!(second(&frames), Verdict::Passed(reason));
    }
}

/// Returns the verdict on the second of two frames.
fn second(frames: &[Vec<u8>]) -> Verdict {
    let mut engine = Engine::new(Profile::linux());
    engine.push(&frames[0]);
    engine.push(&frames[1])
}

/// Returns segments whose VLAN tags have these identifiers and priorities.
fn tagged(tags: [(u16, u8); 4]) -> Vec<Vec<u8>> {
    Path::Ipv4.train(&[100; 4], move |index, s| {
        let (id, priority) = tags[index];
        s.link(move |packet| packet.vlan(|tag| tag.id(id).priority(priority)))
    })
}

#[test]
fn g06_equal_vlan_tags_merge() {
    assert_payloads(&tagged([(7, 3); 4]), &[400]);
}

#[test]
fn g06_vlan_identifier_is_part_of_the_flow() {
    let frames = tagged([(7, 0), (7, 0), (8, 0), (8, 0)]);
    let interleaved = [0, 2, 1, 3].map(|index| frames[index].clone());
    assert_payloads(&interleaved, &[200, 200]);
}

/// Tests that the VLAN priority is compared but does not identify a flow (unlike in Linux), so that a connection keeps
/// its order.
#[test]
fn g06_interleaved_vlan_priorities_keep_the_order() {
    assert_apart(&tagged([(7, 0), (7, 1), (7, 0), (7, 1)]));
}

/// Tests the limit of fifteen headers after the link layer; Linux supports 14.
#[test]
fn g07_a_sixteenth_header_passes() {
    let stacked = |count: usize| {
        Path::Ipv4.train(&[100, 100], move |_, s| {
            s.link(move |packet| (0..count).fold(packet, |packet, _| packet.vlan(|tag| tag)))
        })
    };
    assert_payloads(&stacked(13), &[200]);
    assert_eq!(second(&stacked(14)), Verdict::Passed(Pass::TooDeep));
    assert_eq!(second(&stacked(100)), Verdict::Passed(Pass::TooDeep));
}

/// Returns two superframes of two segments each, in sequence, pushed with this metadata.
fn superframes(
    packet: impl Fn(u32) -> Packet,
    change: impl Fn(&mut Gso) + Copy,
) -> (Vec<Verdict>, Vec<Out>) {
    let mut engine = Engine::new(Profile::linux());
    for index in 0..2 {
        let frame = Superframe::new(&packet(index * 200), 100).gso(|gso| {
            gso.segments = 2;
            change(gso);
        });
        engine.push_frame(Frame { buffer: frame.bytes, meta: frame.meta }, 0);
    }
    engine.poll_end(0);
    (engine.verdicts, engine.delivered)
}

fn tcp(before: u32) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(before as u16 / 100));
    packet.tcp(|tcp| tcp.sequence(100 + before)).payload_len(200)
}

#[test]
fn g08_trusted_tcp_superframes_merge() {
    let (verdicts, delivered) = superframes(tcp, |_| ());
    assert_eq!(verdicts, [Verdict::Held, Verdict::Joined]);
    assert_eq!(payload_lengths(&delivered), [400]);
    assert_eq!(delivered[0].packets, 4);
}

// Rules: B8
#[test]
fn g08_superframes_that_cannot_be_trusted_or_described_pass() {
    let passed = [Verdict::Passed(Pass::Superframe); 2];
    assert_eq!(superframes(tcp, |gso| gso.untrusted = true).0, passed);
    assert_eq!(superframes(tcp, |gso| gso.segments = 0).0, passed);
    assert_eq!(superframes(tcp, |gso| gso.segments = 3).0, passed);
    assert_eq!(superframes(tcp, |gso| gso.size = GsoSize::Parts).0, passed);
}

#[test]
fn g08_udp_superframes_pass() {
    let udp = |_| Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(200);
    assert_eq!(superframes(udp, |_| ()).0, [Verdict::Passed(Pass::Superframe); 2]);
}

/// Tests superframes with CWR only on the first segment: metadata cannot describe a train of them.
#[test]
fn g08_superframes_with_cwr_on_the_first_segment_pass() {
    let cwr = |before| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(before as u16 / 100));
        packet.tcp(|tcp| Tcp::cwr(tcp.sequence(100 + before))).payload_len(200)
    };
    assert_eq!(superframes(cwr, |_| ()).0, [Verdict::Passed(Pass::Superframe); 2]);
    let (verdicts, _) = superframes(cwr, |gso| gso.cwr = Cwr::Every);
    assert_eq!(verdicts, [Verdict::Held, Verdict::Joined]);
}
