//! Generates the conformance vectors for coalescing. A vector contains the packets of one poll, and the superframes
//! that an implementation must build from them.
//!
//! Longer than 600 lines: the vectors are tables of packets, and share functions that build packets.

use grosso_rig::{
    engine::{Out, coalesce, segment},
    frames::{Path, Segment, at, plain},
};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Ipv6, Tcp, Udp},
    oracle::{Link, Rules, flow_of, trains},
};
use grosso_wire::{
    LinkType, Ports, dissect,
    virtio::{Form, Order, VirtioHeader},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    book::{Book, Pair, Span},
    superframe::{Description, unhex},
};

/// Packets of one poll.
struct Case {
    name: &'static str,
    rules: &'static [&'static str],
    shows: &'static str,
    frames: Vec<Vec<u8>>,
}

#[derive(Serialize)]
struct Vector {
    name: &'static str,
    rules: &'static [&'static str],
    shows: &'static str,
    r#in: Span,
    /// Frames of each flow, if there are several flows. The order within each flow must be kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flows: Vec<Vec<usize>>,
    out: Vec<Train>,
}

/// Packets that are delivered together.
#[derive(Serialize)]
struct Train {
    packets: Vec<usize>,
    /// The delivered frame: the packet itself, or a superframe.
    frame: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    superframe: Option<Description>,
}

/// Builds the pair of files.
pub(crate) fn book() -> Book {
    let mut book = Book::new("coalesce");
    for Case { name, rules, shows, frames } in cases() {
        let span = book.frames(&frames);
        let mut unclaimed: Vec<_> = (0..frames.len()).collect();
        let out = coalesce(&frames);
        let out =
            out.iter().map(|out| train(out, &frames, span, &mut unclaimed, &mut book)).collect();
        let flows = flows(&frames, span);
        book.vector(&Vector { name, rules, shows, r#in: span, flows, out });
    }
    book
}

/// Describes a delivery by its packet numbers. If several packets have the same bytes, the first one that no other
/// delivery contains is used.
fn train(
    out: &Out,
    frames: &[Vec<u8>],
    span: Span,
    unclaimed: &mut Vec<usize>,
    book: &mut Book,
) -> Train {
    let packets: Vec<usize> = segment(out)
        .iter()
        .map(|packet| {
            let place = unclaimed.iter().position(|index| frames[*index] == *packet);
            span.number(unclaimed.remove(place.expect("a packet that came in")))
        })
        .collect();
    match out.joined {
        true => {
            let superframe = Some(Description::of(&out.bytes, &out.meta));
            Train { packets, frame: book.frame(&out.bytes), superframe }
        }
        false => Train { frame: packets[0], packets, superframe: None },
    }
}

/// Returns the frames by flow if there are several flows. A frame whose flow cannot be read belongs to the flow of the
/// previous frame.
fn flows(frames: &[Vec<u8>], span: Span) -> Vec<Vec<usize>> {
    let mut flows: Vec<(String, Vec<usize>)> = Vec::new();
    let mut last = 0;
    for (index, frame) in frames.iter().enumerate() {
        if let Some(flow) = flow_of(frame, Link::Ethernet).map(|flow| flow.to_string()) {
            last = flows.iter().position(|(name, _)| *name == flow).unwrap_or(flows.len());
            if last == flows.len() {
                flows.push((flow, Vec::new()));
            }
        }
        match flows.get_mut(last) {
            Some((_, numbers)) => numbers.push(span.number(index)),
            None => flows.push((String::new(), vec![span.number(index)])),
        }
    }
    if flows.len() < 2 {
        Vec::new()
    } else {
        flows.into_iter().map(|(_, numbers)| numbers).collect()
    }
}

/// Asserts that the engine and the literal oracle merge a vector's packets into exactly its superframes.
pub(crate) fn assert_passes(pair: &Pair, vector: &Value) {
    let name = &vector["name"];
    let frames = pair.frames(&vector["in"]);
    let first = vector["in"]["first"].as_u64().expect("a number") as usize;
    let out = vector["out"].as_array().expect("a list");
    let delivered = coalesce(&frames);
    assert_eq!(delivered.len(), out.len(), "{name}");
    for (delivered, out) in delivered.iter().zip(out) {
        let packets = pair.frames(&out["packets"]);
        assert_eq!(delivered.bytes, pair.frame(&out["frame"]), "{name}");
        assert_eq!(segment(delivered), packets, "{name}");
        assert_eq!(delivered.joined, packets.len() > 1, "{name}");
        if delivered.joined {
            let superframe = &out["superframe"];
            let read = Description::meta(superframe);
            assert_eq!(
                (read.checksum, read.gso),
                (delivered.meta.checksum, delivered.meta.gso),
                "{name}"
            );
            assert_virtio(&delivered.bytes, superframe, name);
        }
    }
    let places = |out: &Value| -> Vec<usize> {
        let numbers = out["packets"].as_array().expect("a list").iter();
        numbers.map(|number| number.as_u64().expect("a number") as usize - first).collect()
    };
    let mut told: Vec<Vec<usize>> = out.iter().map(places).collect();
    told.sort();
    let oracle = trains(&frames, Link::Ethernet, Rules { tunnels_max: 1, ..Rules::default() });
    let oracle: Vec<_> = oracle.into_iter().map(|train| train.packets).collect();
    assert_eq!(told, oracle, "{name}: the oracle joins otherwise");
}

/// Asserts that the 10-byte header before a superframe is read as the same metadata.
fn assert_virtio(bytes: &[u8], superframe: &Value, name: &Value) {
    let header = unhex(superframe["virtio"].as_str().expect("hexadecimal"));
    let (header, _) = VirtioHeader::parse(&header, Form::Short, Order::Little).expect("a header");
    let stack = dissect(bytes, LinkType::Ethernet, &Ports::ASSIGNED);
    let meta = grosso::vnet::understand(&header, bytes, LinkType::Ethernet, &stack, Form::Short);
    let meta = meta.unwrap_or_else(|error| panic!("{name}: {error}"));
    let gso = meta.gso.expect("a superframe");
    let told = Description::meta(superframe);
    assert_eq!(meta.checksum, told.checksum, "{name}");
    assert_eq!(
        (gso.size(), gso.segments),
        (told.gso.and_then(|gso| gso.size()), told.gso.unwrap().segments)
    );
}

/// Returns the cases, ordered by their first rules.
fn cases() -> Vec<Case> {
    [link(), ipv4(), ipv6(), tcp(), flags(), sizes(), order(), udp(), tunnels()]
        .into_iter()
        .flatten()
        .collect()
}

fn case(
    name: &'static str,
    rules: &'static [&'static str],
    shows: &'static str,
    frames: Vec<Vec<u8>>,
) -> Case {
    Case { name, rules, shows, frames }
}

/// Returns three segments, the second of which is modified by `change`.
fn second(path: Path, change: impl Fn(Segment) -> Segment) -> Vec<Vec<u8>> {
    path.train(&[100; 3], at(1, change))
}

/// Returns three segments, each modified by `change`.
fn every(path: Path, change: impl Fn(Segment) -> Segment) -> Vec<Vec<u8>> {
    path.train(&[100; 3], |_, segment| change(segment))
}

/// Returns segments with these flags in addition to ACK.
fn with_flags(flags: &[u16]) -> Vec<Vec<u8>> {
    Path::Ipv4.train(&vec![100; flags.len()], |index, segment| {
        let flags = flags[index];
        segment.tcp(move |tcp| tcp.flag(flags))
    })
}

/// Returns segments with these identifications.
fn ids(df: bool, ids: &[u16]) -> Vec<Vec<u8>> {
    Path::Ipv4.train(&vec![100; ids.len()], |index, segment| {
        let id = ids[index];
        segment.ipv4(move |ip| ip.id(id).df(df))
    })
}

/// Returns the packets of two flows, alternating between the flows.
fn interleaved(one: Vec<Vec<u8>>, other: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    one.into_iter().zip(other).flat_map(|(one, other)| [one, other]).collect()
}

fn link() -> Vec<Case> {
    vec![
        case(
            "g04_ethernet_source_differs",
            &["G4"],
            "Packets of a connection with different Ethernet source addresses are not merged.",
            second(Path::Ipv4, |s| s.ethernet(|e| e.source([2, 0, 0, 0, 0, 9]))),
        ),
        case(
            "g05a_pppoe_joins",
            &["G5a"],
            "Packets of a PPPoE session are merged, and the PPPoE length covers the superframe.",
            Path::PppoeIpv4.train(&[100; 3], plain),
        ),
        case(
            "g06_vlan_equal",
            &["G6"],
            "Packets with the same VLAN tag are merged.",
            every(Path::Ipv4, |s| s.link(|p| p.vlan(|tag| tag.id(7).priority(3)))),
        ),
        case(
            "g06_vlan_identifiers_differ",
            &["G6"],
            "Packets of different VLANs are not merged, even if everything else is equal.",
            Path::Ipv4.train(&[100; 4], |index, s| {
                s.link(move |p| p.vlan(|tag| tag.id(7 + index as u16 % 2)))
            }),
        ),
        case(
            "g06_vlan_priority_differs",
            &["G6"],
            "A packet with a different VLAN priority is not merged.",
            Path::Ipv4.train(&[100; 3], |index, s| {
                s.link(move |p| p.vlan(|tag| tag.id(7).priority(u8::from(index == 1))))
            }),
        ),
    ]
}

fn ipv4() -> Vec<Case> {
    vec![
        case(
            "g10_options",
            &["G10"],
            "Packets with IPv4 options are not merged, even if all have the same options.",
            every(Path::Ipv4, |s| s.ipv4(|ip| ip.options(&[1; 4]))),
        ),
        case(
            "g10_fragments",
            &["G10"],
            "IP fragments are not merged, and keep their position.",
            Path::Ipv4.train(&[104; 3], at(1, |s| s.ipv4(|ip| ip.df(false).more_fragments(true)))),
        ),
        case(
            "g10_header_checksum_wrong",
            &["G10"],
            "A packet with a wrong IPv4 header checksum is not merged and not changed.",
            second(Path::Ipv4, |s| s.ipv4(|ip| ip.checksum_xor(0x0100))),
        ),
        case(
            "g11_padding",
            &["G11"],
            "A frame with Ethernet padding is not merged, and keeps its padding.",
            Path::Ipv4.train(&[100, 1], at(1, |s| s.frame(|packet| packet.pad_to(60)))),
        ),
        case(
            "g11_padding_behind_equal_payload",
            &["G11"],
            "Padding is not payload: a frame with bytes after its packet is not merged.",
            second(Path::Ipv4, |s| s.frame(|packet| packet.trailer(&[0; 6]))),
        ),
        case(
            "g11_total_length_beyond_the_frame",
            &["G11"],
            "A packet whose total length exceeds its frame is not merged.",
            second(Path::Ipv4, |s| s.ipv4(|ip| ip.total_len_raw(141))),
        ),
        case(
            "g11_reserved_bit",
            &["G11"],
            "Packets with the reserved bit of the IPv4 fragment word are not merged.",
            every(Path::Ipv4, |s| s.ipv4(|ip| ip.reserved_bit(true))),
        ),
        case(
            "g12_addresses_make_the_flow",
            &["G12", "G76"],
            "Alternating packets of two hosts become one superframe per host.",
            interleaved(
                Path::Ipv4.train(&[100; 2], plain),
                Path::Ipv4
                    .train(&[100; 2], |_, s| s.ipv4(|ip: Ipv4| ip.source([192, 168, 1, 201]))),
            ),
        ),
        case(
            "g13_ttl_differs",
            &["G13"],
            "A packet with a different TTL, which took another path, is not merged.",
            second(Path::Ipv4, |s| s.ttl(7)),
        ),
        case(
            "g13_dscp_differs",
            &["G13"],
            "A packet with a different DSCP is not merged.",
            second(Path::Ipv4, |s| s.tos(0x28)),
        ),
        case(
            "g13_ce_among_ect",
            &["G13"],
            "A congestion mark is not lost: CE is not merged with ECT(0).",
            Path::Ipv4.train(&[100; 3], |index, s| s.tos(if index == 1 { 3 } else { 2 })),
        ),
        case(
            "g13_df_differs",
            &["G13"],
            "A packet without DF is not merged with packets that have DF.",
            second(Path::Ipv4, |s| s.ipv4(|ip| ip.df(false))),
        ),
        case(
            "g14_ids_step_with_df",
            &["G14"],
            "With DF, packets whose identifications increase by one are merged.",
            ids(true, &[5, 6, 7]),
        ),
        case(
            "g14_ids_stay_with_df",
            &["G14"],
            "With DF, packets with a constant identification are merged; splitting keeps it.",
            ids(true, &[5, 5, 5]),
        ),
        case(
            "g14_ids_step_without_df",
            &["G14"],
            "Without DF, packets whose identifications increase by one are merged.",
            ids(false, &[5, 6, 7]),
        ),
        case(
            "g14_ids_stay_without_df",
            &["G14"],
            "Without DF, packets with a constant identification are merged.",
            ids(false, &[5, 5, 5]),
        ),
        case(
            "g14_ids_step_then_stay",
            &["G14"],
            "After increasing identifications, a repeated one is not merged.",
            ids(true, &[5, 6, 6]),
        ),
        case(
            "g14_ids_stay_then_step",
            &["G14"],
            "After a constant identification, a higher one is not merged.",
            ids(true, &[5, 5, 6]),
        ),
        case(
            "g14_ids_wrap",
            &["G14"],
            "Identifications wrap from 65535 to 0.",
            ids(true, &[65535, 0, 1]),
        ),
        case(
            "g14_ids_skip",
            &["G14"],
            "A packet that skips an identification is not merged: splitting could not restore it.",
            ids(true, &[5, 7, 8]),
        ),
        case(
            "g14_ids_skip_without_df",
            &["G14"],
            "Without DF, the identification matters even under RFC 6864: a router may fragment the packet.",
            ids(false, &[5, 7, 8]),
        ),
        case(
            "g14_ids_fall",
            &["G14"],
            "Packets with decreasing identifications are not merged.",
            ids(true, &[7, 6, 5]),
        ),
    ]
}

fn ipv6() -> Vec<Case> {
    let option = |byte: u8| {
        move |p: Packet| p.destination_options(move |d| d.data(&[0x1e, 4, byte, 0, 0, 0]))
    };
    let hop = |p: Packet| p.hop_by_hop(|h| h.data(&[0x1e, 4, 5, 0, 0, 0]));
    vec![
        case(
            "g20_flow_label_differs",
            &["G20"],
            "A packet with a different flow label is not merged.",
            second(Path::Ipv6, |s| s.ipv6(|ip: Ipv6| ip.flow_label(9))),
        ),
        case(
            "g20_extension_header_differs",
            &["G20"],
            "Every byte of an extension header is compared.",
            Path::Ipv6.train(&[100; 3], |index, s| s.extensions(option(u8::from(index == 1)))),
        ),
        case(
            "g20_extension_header_comes_and_goes",
            &["G20"],
            "A packet with an extension header is not merged with packets without one.",
            second(Path::Ipv6, move |s| s.extensions(option(0))),
        ),
        case(
            "g21_hop_by_hop_equal",
            &["G21"],
            "Packets with equal hop-by-hop options are merged.",
            every(Path::Ipv6, move |s| s.extensions(hop)),
        ),
        case(
            "g21_destination_options_equal",
            &["G21"],
            "Packets with equal destination options are merged.",
            every(Path::Ipv6, move |s| s.extensions(option(5))),
        ),
        case(
            "g21_atomic_fragments",
            &["G21"],
            "A packet with a fragment header is not merged, even if it is a whole packet.",
            every(Path::Ipv6, |s| s.extensions(|p| p.fragment(|f| f))),
        ),
        case(
            "g22_traffic_class_differs",
            &["G22"],
            "A packet with a different traffic class is not merged.",
            second(Path::Ipv6, |s| s.tos(0x28)),
        ),
        case(
            "g22_ce_among_ect",
            &["G22"],
            "A congestion mark is not lost in IPv6: CE is not merged with ECT(0).",
            Path::Ipv6.train(&[100; 3], |index, s| s.tos(if index == 1 { 3 } else { 2 })),
        ),
        case(
            "g22_hop_limit_differs",
            &["G22"],
            "A packet with a different hop limit is not merged.",
            second(Path::Ipv6, |s| s.ttl(7)),
        ),
        case(
            "g23_payload_length_beyond_the_frame",
            &["G23"],
            "A packet whose payload length exceeds its frame is not merged.",
            second(Path::Ipv6, |s| s.ipv6(|ip| ip.payload_len_raw(121))),
        ),
    ]
}

/// Returns a selective acknowledgment option with one block, which starts at `start`.
fn sack(start: u8) -> [u8; 12] {
    [1, 1, 5, 10, 0, 0, 0, start, 0, 0, 0, 200]
}

fn tcp() -> Vec<Case> {
    let tcp = |change: fn(Tcp) -> Tcp| second(Path::Ipv4, move |s| s.tcp(change));
    vec![
        case(
            "g30_checksum_wrong_ipv4",
            &["G30"],
            "A packet with a wrong TCP checksum is not merged: splitting would give it a correct one.",
            tcp(|tcp| tcp.checksum_xor(0x5555)),
        ),
        case(
            "g30_checksum_wrong_ipv6",
            &["G30"],
            "A packet with a wrong TCP checksum is not merged over IPv6 either.",
            second(Path::Ipv6, |s| s.tcp(|tcp| tcp.checksum_xor(1))),
        ),
        case(
            "g30_data_offset_too_small",
            &["G30"],
            "A packet whose TCP header has fewer than five words is not merged.",
            tcp(|tcp| tcp.data_offset_raw(4)),
        ),
        case(
            "g31_ports_make_the_flow",
            &["G31", "G76"],
            "Alternating packets of two connections become one superframe per connection.",
            interleaved(
                Path::Ipv4.train(&[100; 3], plain),
                Path::Ipv4.train(&[100; 3], |_, s| s.tcp(|tcp| tcp.source_port(1501))),
            ),
        ),
        case(
            "g32_window_differs",
            &["G32"],
            "A change of the window is not lost: the packet is not merged.",
            tcp(|tcp| tcp.window(1000)),
        ),
        case(
            "g32_acknowledgment_differs",
            &["G32"],
            "A packet with a higher acknowledgment number is not merged.",
            tcp(|tcp| tcp.ack(101)),
        ),
        case(
            "g32_sack_differs",
            &["G32"],
            "Packets with different selective acknowledgments are not merged.",
            Path::Ipv4
                .train(&[100; 3], |index, s| s.tcp(move |tcp| tcp.options(&sack(index as u8)))),
        ),
        case(
            "g32_sack_equal",
            &["G32"],
            "Packets with equal selective acknowledgments are merged.",
            every(Path::Ipv4, |s| s.tcp(|tcp| tcp.options(&sack(1)))),
        ),
        case(
            "g32_timestamps_differ",
            &["G32"],
            "Timestamps are compared like any other option.",
            Path::Ipv4.train(&[100; 3], |index, s| {
                s.tcp(move |tcp| tcp.timestamps(1 + u32::from(index == 2), 1))
            }),
        ),
        case(
            "g32_timestamps_equal",
            &["G32"],
            "Packets with equal timestamps are merged.",
            every(Path::Ipv6, |s| s.tcp(|tcp| tcp.timestamps(1, 1))),
        ),
        case(
            "g32_options_come_and_go",
            &["G32"],
            "A packet with a header of a different length is not merged.",
            tcp(|tcp| tcp.options(&[1; 4])),
        ),
        case(
            "g32_reserved_bits_differ",
            &["G32"],
            "The reserved bits of the TCP header are compared.",
            tcp(|tcp| tcp.flag(0x800)),
        ),
        case(
            "g33_urgent_pointer_differs",
            &["G33"],
            "The urgent pointer is compared even without URG: splitting could not restore it.",
            tcp(|tcp| tcp.urgent_pointer(1)),
        ),
        case(
            "g33_no_ack_flag",
            &["G33"],
            "Segments without the ACK flag are merged.",
            every(Path::Ipv4, |s| s.tcp(Tcp::no_ack)),
        ),
    ]
}

fn flags() -> Vec<Case> {
    const NONE: u16 = 0;
    vec![
        case(
            "g34_ece_on_all",
            &["G34"],
            "Packets that all have ECE are merged.",
            with_flags(&[Tcp::ECE; 3]),
        ),
        case(
            "g34_ece_on_one",
            &["G34"],
            "ECE on one packet is not copied to others.",
            with_flags(&[NONE, Tcp::ECE, NONE]),
        ),
        case(
            "g34_ae_on_all",
            &["G34"],
            "Packets that all have AE are merged.",
            with_flags(&[Tcp::AE; 3]),
        ),
        case(
            "g34_cwr_on_the_first",
            &["G34"],
            "A first packet with CWR is not merged with packets without CWR.",
            with_flags(&[Tcp::CWR, NONE, NONE]),
        ),
        case(
            "g34_cwr_in_the_middle",
            &["G34"],
            "A packet with CWR between packets without CWR is not merged.",
            with_flags(&[NONE, Tcp::CWR, NONE]),
        ),
        case(
            "g34b_cwr_on_all",
            &["G34b", "G34a"],
            "Packets that all have CWR are merged; after splitting, every packet has CWR.",
            with_flags(&[Tcp::CWR; 3]),
        ),
        case(
            "g36_psh_closes",
            &["G36", "G35"],
            "A packet with PSH is merged and ends the superframe.",
            with_flags(&[NONE, NONE, Tcp::PSH, NONE, NONE]),
        ),
        case(
            "g36_psh_first",
            &["G36"],
            "No packet is merged with an earlier packet that has PSH.",
            with_flags(&[Tcp::PSH, NONE, NONE]),
        ),
        case(
            "g36_psh_on_all",
            &["G36"],
            "Packets that all have PSH are not merged.",
            with_flags(&[Tcp::PSH; 3]),
        ),
        case(
            "g36_fin_closes",
            &["G36", "G35"],
            "A packet with FIN and payload is merged and ends the superframe.",
            with_flags(&[NONE, NONE, Tcp::FIN, NONE]),
        ),
        case(
            "g36_fin_without_payload",
            &["G36"],
            "A packet with FIN but without payload is not merged.",
            Path::Ipv4.train(&[100, 100, 0], at(2, |s| s.tcp(Tcp::fin))),
        ),
        case(
            "g36_syn",
            &["G36"],
            "A packet with SYN is not merged.",
            with_flags(&[NONE, Tcp::SYN, NONE]),
        ),
        case(
            "g36_rst",
            &["G36"],
            "A packet with RST is not merged, and overtakes no packets.",
            with_flags(&[NONE, NONE, Tcp::RST]),
        ),
        case(
            "g36_urg",
            &["G36"],
            "A packet with URG is not merged.",
            with_flags(&[Tcp::URG, Tcp::URG]),
        ),
    ]
}

fn sizes() -> Vec<Case> {
    let lengths = |lengths: &[usize]| Path::Ipv4.train(lengths, plain);
    vec![
        case(
            "g32_longer_starts_the_next",
            &["G32"],
            "A longer segment starts a new superframe.",
            lengths(&[100, 101, 101]),
        ),
        case(
            "g38_pure_acks_among_data",
            &["G38"],
            "A pure acknowledgment is not merged, and keeps its position.",
            lengths(&[100, 0, 100]),
        ),
        case(
            "g38_pure_acks",
            &["G38"],
            "Pure acknowledgments are not merged.",
            lengths(&[0, 0, 0]),
        ),
        case(
            "g39_shorter_closes",
            &["G39"],
            "A shorter segment is merged and ends the superframe.",
            lengths(&[100, 50, 100]),
        ),
        case(
            "g39_runt_behind_a_shorter_one",
            &["G39"],
            "After a shorter segment nothing is merged, not even a segment of the same length.",
            lengths(&[100, 100, 50, 50]),
        ),
        case(
            "g39_unequal",
            &["G39", "G32"],
            "Packets of unequal size are restored when the superframes are split.",
            lengths(&[300, 1448, 10, 1448]),
        ),
        case(
            "g39_ipv6",
            &["G39"],
            "Over IPv6, a shorter segment is merged and ends the superframe.",
            Path::Ipv6.train(&[100, 100, 50, 100], plain),
        ),
        case(
            "g60_at_most_65535",
            &["G60"],
            "A superframe has at most 65535 bytes: 46 segments of 1448 bytes become two superframes.",
            lengths(&[1448; 46]),
        ),
    ]
}

fn order() -> Vec<Case> {
    let train = |order: &[usize]| {
        let frames = Path::Ipv4.train(&[100; 4], plain);
        order.iter().map(|index| frames[*index].clone()).collect()
    };
    let sequences = [0xffff_ff9c, 0, 100];
    vec![
        case(
            "g40_sequence_wraps",
            &["G40"],
            "The sequence number may wrap within a superframe.",
            Path::Ipv4
                .train(&[100; 3], |index, s| s.tcp(move |tcp| tcp.sequence(sequences[index]))),
        ),
        case(
            "g40_reordered",
            &["G40"],
            "Segments that arrive out of order are forwarded in their order of arrival.",
            train(&[0, 2, 1]),
        ),
        case(
            "g40_gap",
            &["G40", "G32"],
            "Segments before and after a gap are not merged.",
            train(&[0, 1, 3]),
        ),
        case(
            "g40_repeated",
            &["G40"],
            "A retransmitted segment is forwarded after the superframe that contains the original.",
            train(&[0, 1, 0]),
        ),
        case(
            "g75_wrong_checksum_overtakes_nothing",
            &["G75"],
            "A packet with a wrong checksum does not overtake earlier packets of its flow.",
            Path::Ipv4.train(&[100; 4], at(2, |s| s.tcp(|tcp| tcp.checksum_xor(1)))),
        ),
        case(
            "g75_options_overtake_nothing",
            &["G75"],
            "A packet with IPv4 options does not overtake earlier packets of its flow.",
            Path::Ipv4.train(&[100; 4], at(2, |s| s.ipv4(|ip| ip.options(&[1; 4])))),
        ),
        case(
            "g75_pure_ack_overtakes_nothing",
            &["G75"],
            "A pure acknowledgment does not overtake earlier packets of its flow.",
            Path::Ipv4.train(&[100, 100, 0, 100], plain),
        ),
    ]
}

fn udp() -> Vec<Case> {
    let second = |change: fn(Segment) -> Segment| Path::Ipv4.datagrams(&[100; 3], at(1, change));
    vec![
        case(
            "u01_checksum_wrong",
            &["U1"],
            "A datagram with a wrong checksum is not merged.",
            second(|s| s.udp(|udp| udp.checksum_xor(1))),
        ),
        case(
            "u10_checksum_zero",
            &["U10", "U1"],
            "Datagrams without a checksum are not merged: splitting would add one.",
            Path::Ipv4.datagrams(&[100; 3], |_, s| s.udp(Udp::checksum_zero)),
        ),
        case(
            "u11_checksum_zero_on_one",
            &["U11"],
            "A datagram without a checksum is not merged with datagrams that have one.",
            second(|s| s.udp(Udp::checksum_zero)),
        ),
        case(
            "u10_empty",
            &["U10"],
            "An empty datagram is not merged, and keeps its position.",
            Path::Ipv4.datagrams(&[100, 0, 100], plain),
        ),
        case(
            "u10_length_too_short",
            &["U10"],
            "A datagram that is shorter than its packet is not merged.",
            second(|s| s.udp(|udp| udp.len_raw(107))),
        ),
        case(
            "u11_ports_make_the_flow",
            &["U11", "G76"],
            "Alternating datagrams of two flows become one superframe per flow.",
            interleaved(
                Path::Ipv4.datagrams(&[100; 2], plain),
                Path::Ipv4.datagrams(&[100; 2], |_, s| s.udp(|udp| udp.source_port(9))),
            ),
        ),
        case(
            "u12_equal_then_shorter",
            &["U12"],
            "Datagrams of equal size are merged; a shorter one is merged and ends the superframe.",
            Path::Ipv6.datagrams(&[100, 100, 50, 50], plain),
        ),
        case(
            "u12_longer_starts_the_next",
            &["U12"],
            "A longer datagram starts a new superframe.",
            Path::Ipv4.datagrams(&[50, 100, 100], plain),
        ),
        case(
            "u13_at_most_64",
            &["U13"],
            "A superframe has at most 64 datagrams.",
            Path::Ipv4.datagrams(&[8; 66], plain),
        ),
        case(
            "u14_ttl_differs",
            &["U14"],
            "The IP header is compared for UDP as for TCP.",
            second(|s| s.ttl(7)),
        ),
        case(
            "u14_ids_skip",
            &["U14"],
            "Identifications are compared for UDP as for TCP.",
            Path::Ipv4.datagrams(&[100; 3], |index, s| s.ipv4(move |ip| ip.id(index as u16 * 2))),
        ),
    ]
}

/// Returns three segments in VXLAN. The second has a different inner TTL, network identifier or inner checksum.
fn vxlan(ttl: u8, vni: u32, wrong: u16) -> Vec<Vec<u8>> {
    let frame = |index: u16| {
        let is_second = index == 1;
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index)).udp(Udp::checksum_zero);
        let packet = packet.vxlan(|v| v.vni(if is_second { vni } else { 1 })).ethernet(|e| e);
        let packet = packet.ipv4(|ip| ip.id(70 + index).ttl(if is_second { ttl } else { 8 }));
        let bits = if is_second { wrong } else { 0 };
        let packet = packet.tcp(|t| t.sequence(1 + 100 * u32::from(index)).checksum_xor(bits));
        packet.payload_len(100).build()
    };
    (0..3).map(frame).collect()
}

fn tunnels() -> Vec<Case> {
    let gre = |index: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index)).gre(|g| g.key(7));
        let packet = packet.ipv4(|ip| ip).tcp(|t| t.sequence(1 + 100 * u32::from(index)));
        packet.payload_len(100).build()
    };
    vec![
        case(
            "t04_vxlan_joins",
            &["T4", "T5"],
            "Packets in VXLAN are merged if the inner and outer headers satisfy the rules.",
            vxlan(8, 1, 0),
        ),
        case(
            "t04_inner_ttl_differs",
            &["T4"],
            "The inner header is compared like the outer one.",
            vxlan(7, 1, 0),
        ),
        case(
            "t05_vxlan_identifier_differs",
            &["T5"],
            "Packets of different VXLAN networks are not merged.",
            vxlan(8, 2, 0),
        ),
        case(
            "t10_inner_checksum_wrong",
            &["T10"],
            "A packet with a wrong inner checksum is not merged.",
            vxlan(8, 1, 1),
        ),
        case(
            "t20_ip_in_ip_joins",
            &["T20"],
            "IP-in-IP packets are merged; each level has its own identification mode.",
            Path::Ipip.train(&[100; 3], |index, s| s.outer_ipv4(move |ip| ip.id(index as u16))),
        ),
        case(
            "t21_gre_joins",
            &["T21"],
            "GRE packets with the same key are merged.",
            (0..3).map(gre).collect(),
        ),
    ]
}
