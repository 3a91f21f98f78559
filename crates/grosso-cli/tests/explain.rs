//! Tests that `explain` names the law or the limit behind every reason that the engine reports.
//!
//! Longer than 600 lines: tables with one case per reason of the engine.

use std::collections::BTreeSet;

use grosso::{
    checksum::Checksum,
    coalesce::reason::{Close, NoMerge, Pass},
    meta::{Meta, VlanTag},
};
use grosso_capture::{CaptureWriter, Format, Offload, PacketMeta, WriterOptions};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
};

use crate::common::{Bench, ETHERNET, START_NS, capture};

/// Frames of a capture, command options, and text that must appear in the explanation of the last frame.
struct Case {
    frames: Vec<(Vec<u8>, Option<Offload>)>,
    options: &'static str,
    says: &'static [&'static str],
}

fn case(frames: Vec<Vec<u8>>, options: &'static str, says: &'static [&'static str]) -> Case {
    Case { frames: frames.into_iter().map(|frame| (frame, None)).collect(), options, says }
}

fn ethernet() -> Packet {
    Packet::new().ethernet(|e| e)
}

/// Returns the `index`th segment of 100 bytes.
fn segment(index: u32, ip: fn(Ipv4) -> Ipv4, tcp: fn(Tcp) -> Tcp) -> Vec<u8> {
    let packet = ethernet().ipv4(|header| ip(header.id(index as u16)));
    packet.tcp(|t| tcp(t.sequence(index * 100))).payload_len(100).build()
}

fn plain(index: u32) -> Vec<u8> {
    segment(index, |ip| ip, |t| t)
}

/// Returns a plain segment, and the next one with these changes.
fn second(ip: fn(Ipv4) -> Ipv4, tcp: fn(Tcp) -> Tcp) -> Vec<Vec<u8>> {
    vec![plain(0), segment(1, ip, tcp)]
}

/// Returns a segment with a bit next to the header length that no standard defines.
fn reserved_bit(index: u32) -> Vec<u8> {
    let mut frame = plain(index);
    frame[14 + 20 + 12] |= 0x04;
    let checksum = 14 + 20 + 16;
    let sum = !u16::from_be_bytes([frame[checksum], frame[checksum + 1]]);
    let (sum, carry) = sum.overflowing_add(0x0400);
    frame[checksum..checksum + 2].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
    frame
}

fn datagram(port: u16, len: usize) -> Vec<u8> {
    let packet = ethernet().ipv4(|ip| ip).udp(|u| u.source_port(port));
    packet.payload_len(len).build()
}

fn inner(packet: Packet, sequence: u32) -> Vec<u8> {
    packet.ipv4(|ip| ip).tcp(|t| t.sequence(sequence)).payload_len(100).build()
}

fn ipv6(sequence: u32, change: impl Fn(Packet) -> Packet) -> Vec<u8> {
    change(ethernet().ipv6(|ip| ip)).tcp(|t| t.sequence(sequence)).payload_len(100).build()
}

/// Creates a directory with profiles that are not built in.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.put("bucket.toml", b"base = \"linux\"\n[table]\nbuckets = 1\n");
    bench.put("parts.toml", b"base = \"linux\"\n[limits]\nparts = 1\n");
    bench.put("reorder.toml", b"base = \"linux\"\n[reorder]\nlevel = \"batch\"\n");
    bench.put("full.toml", b"base = \"linux\"\n[reorder]\nlevel = \"batch\"\nflow-runs = 1\n");
    bench.put("tcp-off.toml", b"base = \"linux\"\ntcp = false\n");
    bench.put("plain.toml", b"base = \"linux\"\nextension-headers = false\n");
    bench.put("bypass.toml", b"base = \"linux\"\nbypass = [1, 1, 1000]\n");
    bench
}

/// Runs `explain` on packet `number` of the case's capture, as text.
fn explain(bench: &Bench, case: &Case, number: usize) -> String {
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    for (time, (data, offload)) in (START_NS..).step_by(1000).zip(&case.frames) {
        let meta = PacketMeta {
            timestamp_ns: Some(time),
            offload: offload.clone(),
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, data).unwrap();
    }
    bench.put("a.pcapng", &writer.finish().unwrap());
    let line = format!("explain a.pcapng -n {number} {}", case.options);
    let run = bench.ok(&line);
    let long = run.stdout.lines().find(|line| line.chars().count() > 80);
    assert_eq!(long, None, "{line}");
    // Line breaks do not matter.
    run.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks every case, and that only reasons which no capture can cause are without a case.
#[track_caller]
fn check<R: Copy + Ord + std::fmt::Display>(
    cases: Vec<(R, Case)>,
    all: &[R],
    out_of_reach: &[R],
    target: impl Fn(&Case) -> usize,
    named: impl Fn(R) -> String,
) {
    let bench = bench();
    let mut explained: BTreeSet<R> = out_of_reach.iter().copied().collect();
    for (reason, case) in &cases {
        let text = explain(&bench, case, target(case));
        assert!(text.contains(&named(*reason)), "{reason}: {text}");
        for words in case.says {
            assert!(text.contains(words), "{reason}: no \"{words}\" in: {text}");
        }
        explained.insert(*reason);
    }
    let missing: Vec<String> =
        all.iter().filter(|reason| !explained.contains(reason)).map(R::to_string).collect();
    assert_eq!(missing, [""; 0], "add a case that shows how explain names it");
}

#[test]
fn every_reason_to_pass_is_explained() {
    let one = |frame: Vec<u8>, says| case(vec![frame], "", says);
    let tcp = |change: fn(Tcp) -> Tcp| segment(0, |ip| ip, change);
    let ip = |change: fn(Ipv4) -> Ipv4| segment(0, change, |t| t);
    let geneve = ethernet().ipv4(|ip| ip).udp(|u| u).geneve(|g| g.control(true)).ethernet(|e| e);
    let remote = {
        let outer = ethernet().ipv4(|ip| ip).udp(|u| u.checksum_zero());
        let mut frame = inner(outer.vxlan(|v| v.remote_checksum()).ethernet(|e| e), 0);
        // The last byte of the VXLAN header specifies the position of a checksum, but there is no checksum.
        frame[49] += 1;
        frame
    };
    let tags = (0..14).fold(ethernet(), |packet, _| packet.vlan(|v| v));
    let options = (0..3).fold(ethernet().ipv6(|ip| ip), |packet, _| {
        packet.destination_options(|d| d.data(&[0; 200]))
    });
    let other_form_of_zero = {
        let frame = |payload: &[u8], change: fn(Tcp) -> Tcp| {
            ethernet().ipv4(|ip| ip).tcp(change).payload(payload).build()
        };
        let checksum = frame(&[0, 0], |t| t)[50..52].to_vec();
        frame(&checksum, |t| t.checksum_raw(0xffff))
    };
    let checksum = Checksum::Partial { start: 14, offset: 10 };
    let partial = Offload::new(&Meta { checksum, ..Meta::default() });
    let never = &["would merge never: "][..];
    let cases = vec![
        (Pass::NotIp, one(ethernet().payload(&[0; 46]).build(), never)),
        (Pass::Truncated, one(plain(0)[..40].to_vec(), &["would merge with a complete capture"])),
        (Pass::Malformed, one(tcp(|t| t.data_offset_raw(4)), &["consistent headers"])),
        (
            Pass::TooDeep,
            one(inner(tags, 0), &["limit headers per packet: the maximum is 16", "fewer headers"]),
        ),
        (
            Pass::HeaderTooLong,
            one(
                options.tcp(|t| t).payload_len(100).build(),
                &["limit header bytes: the maximum is 512, would be 6"],
            ),
        ),
        (Pass::Protocol, one(ethernet().ipv4(|ip| ip).sctp(|s| s).payload_len(9).build(), never)),
        (
            Pass::Encrypted,
            one(ethernet().ipv4(|ip| ip).esp(|e| e).payload_len(99).build(), &["decrypted"]),
        ),
        (Pass::Fragment, one(ip(|ip| ip.more_fragments(true)), &["grosso reassemble"])),
        (
            Pass::Padded,
            one(
                ethernet().ipv4(|ip| ip).tcp(|t| t).payload_len(9).trailer(&[0]).build(),
                &["without trailing bytes"],
            ),
        ),
        (Pass::Short, one(plain(0)[..153].to_vec(), &["a complete capture"])),
        (Pass::LengthZero, one(ip(|ip| ip.total_len_raw(0)), &["grosso capture"])),
        (Pass::Ipv4Options, one(ip(|ip| ip.options(&[1])), &["header without options"])),
        (Pass::Ipv4ReservedBit, one(ip(|ip| ip.reserved_bit(true)), &["bit that is zero"])),
        (Pass::Ipv4Checksum, one(ip(|ip| ip.checksum_xor(1)), &["a correct checksum"])),
        (Pass::Checksum, one(tcp(|t| t.checksum_xor(1)), &["a correct checksum"])),
        (
            Pass::ChecksumForm,
            one(other_form_of_zero, &["the checksum that segmentation would write"]),
        ),
        (
            Pass::ChecksumNone,
            one(
                ethernet().ipv4(|ip| ip).udp(|u| u.checksum_zero()).payload_len(9).build(),
                &["would merge with a UDP checksum"],
            ),
        ),
        (
            Pass::ChecksumPartial,
            Case {
                frames: vec![(plain(0), Some(partial))],
                options: "",
                says: &["in the innermost header"],
            },
        ),
        (Pass::RemoteChecksum, one(remote, &["an outer checksum"])),
        (
            Pass::Empty,
            one(
                ethernet().ipv4(|ip| ip).tcp(|t| t).build(),
                &["payload; or with --profile myri10ge, freebsd-2011, freebsd"],
            ),
        ),
        (Pass::TcpSynchronize, one(tcp(Tcp::syn), never)),
        (Pass::TcpReset, one(tcp(Tcp::rst), never)),
        (Pass::TcpUrgent, one(tcp(Tcp::urg), never)),
        (
            Pass::TcpFlags,
            case(
                vec![tcp(Tcp::ece)],
                "--profile inet-lro",
                &["does not exclude; or with --profile linux"],
            ),
        ),
        (
            Pass::TcpOptions,
            case(
                vec![tcp(|t| t.options(&[1, 1, 1, 1]))],
                "--profile inet-lro",
                &["two NOPs and a timestamp; or with --profile linux"],
            ),
        ),
        (
            Pass::Congestion,
            case(vec![ip(|ip| ip.tos(3))], "--profile inet-lro", &["no congestion mark; or with"]),
        ),
        (Pass::TcpFinish, one(tcp(Tcp::fin), &["(longer --hold", "rule G37"])),
        (Pass::TcpPush, one(tcp(Tcp::psh), &["(longer --hold", "rule G37"])),
        (
            Pass::TunnelLevels,
            one(
                inner(ethernet().ipv4(|ip| ip).ipv4(|ip| ip), 0),
                &["limit tunnels-max: the maximum is 1, would be 2", "--tunnels 2"],
            ),
        ),
        (
            Pass::GreFlags,
            one(inner(ethernet().ipv4(|ip| ip).gre(|g| g.sequence(1)), 0), &["GRE without"]),
        ),
        (Pass::GeneveControl, one(inner(geneve, 0), never)),
        (
            Pass::Bypass,
            case(vec![plain(0), plain(1)], "--profile ./bypass.toml", &["seldom merge"]),
        ),
        (
            Pass::TableFull,
            case(
                vec![plain(0), tcp(|t| t.source_port(9))],
                "--profile inet-lro --max-flows 1",
                &["limit limits.flows: the maximum is 1, would be 2", "(larger --max-flows"],
            ),
        ),
        (
            Pass::TcpLate,
            case(
                vec![plain(0), plain(0)],
                "--batch 1 --profile ./reorder.toml",
                &["with the sequence number that follows the previous"],
            ),
        ),
        (
            Pass::TcpOverlap,
            case(
                vec![plain(0), segment(0, |ip| ip, |t| t.sequence(1))],
                "--profile ./reorder.toml",
                &["with the sequence number that follows the previous"],
            ),
        ),
        (Pass::TcpOff, case(vec![plain(0)], "--profile ./tcp-off.toml", &["with --profile linux"])),
        (
            Pass::Ipv6Extension,
            case(
                vec![ipv6(0, |packet| packet.hop_by_hop(|h| h))],
                "--profile ./plain.toml",
                &["with --profile linux"],
            ),
        ),
        (
            Pass::UdpOff,
            case(vec![datagram(7, 9)], "--no-udp", &["would merge with --profile linux"]),
        ),
        (
            Pass::Superframe,
            one(
                ethernet().ipv4(|ip| ip).tcp(|t| t).payload_len(20_000).build_superframe().0,
                &["grosso wire"],
            ),
        ),
    ];
    let out_of_reach = [Pass::Excluded];
    check(
        cases,
        Pass::ALL,
        &out_of_reach,
        |case| case.frames.len(),
        |reason| format!("PASSED THROUGH: {reason}"),
    );
}

#[test]
fn every_reason_not_to_merge_is_explained() {
    let linux = |frames, says| case(frames, "", says);
    let same = |ip: Ipv4| ip;
    let outer = |sequence: u32, has_checksum: bool| {
        let packet = ethernet().ipv4(|ip| ip);
        let packet = packet.udp(|u| if has_checksum { u } else { u.checksum_zero() });
        inner(packet.vxlan(|v| v).ethernet(|e| e), sequence)
    };
    let geneve = |sequence: u32, reserved: u8| {
        let packet = ethernet().ipv4(|ip| ip).udp(|u| u.checksum_zero());
        inner(packet.geneve(|g| g.reserved(reserved)).ethernet(|e| e), sequence)
    };
    let tagged = |index: u32, tci: u16| {
        let vlan = Some(VlanTag { protocol: 0x8100, tci });
        (plain(index), Some(Offload::new(&Meta { vlan, ..Meta::default() })))
    };
    let data = |index: u32, len: usize| {
        let packet = ethernet().ipv4(|ip| ip.id(index as u16));
        packet.tcp(|t| t.sequence(index * 100)).payload_len(len).build()
    };
    let moved = {
        let packet = Packet::new().ethernet(|e| e.source([2; 6])).ipv4(|ip| ip.id(1));
        packet.tcp(|t| t.sequence(100)).payload_len(100).build()
    };
    let partial = {
        let packet = ethernet().ipv4(|ip| ip.id(1)).tcp(|t| t.sequence(100)).payload_len(100);
        packet.build_partial().0
    };
    let empty = {
        let packet = ethernet().ipv4(|ip| ip.id(1)).tcp(|t| t.sequence(100));
        packet.build()
    };
    let options = |data: &'static [u8], sequence| {
        ipv6(sequence, |packet| packet.destination_options(|d| d.data(data)))
    };
    let stamped = |index, change| segment(index, |ip| ip, change);
    let cases = vec![
        (
            NoMerge::LinkHeader,
            linux(
                vec![plain(0), moved],
                &["law eth source stays the same", "would merge with source"],
            ),
        ),
        (
            NoMerge::VlanTag,
            Case {
                frames: vec![tagged(0, 1), tagged(1, 2)],
                options: "",
                says: &["the VLAN tag in the train's metadata"],
            },
        ),
        (
            NoMerge::TypeOfService,
            linux(
                second(|ip| ip.tos(4), |t| t),
                &[
                    "(tos 0 -> 4)",
                    "law ip4 tos stays the same",
                    "tos 0 as before; or with --profile",
                ],
            ),
        ),
        (
            NoMerge::DontFragment,
            linux(second(|ip| ip.df(false), |t| t), &["fragment word 0x4000 -> 0x0000"]),
        ),
        (
            NoMerge::TimeToLive,
            linux(second(|ip| ip.ttl(9), |t| t), &["-> 9)", "law ip4 ttl stays the same"]),
        ),
        (
            NoMerge::Identification,
            linux(
                second(|ip| ip.id(7), |t| t),
                &[
                    "(id 0 -> 7)",
                    "ip4 id increases by one per packet, or stays constant",
                    "id 1, or 0 in a train",
                ],
            ),
        ),
        (
            NoMerge::TrafficClassOrFlowLabel,
            linux(
                vec![ipv6(0, |p| p), {
                    let packet = ethernet().ipv6(|ip| ip.flow_label(1));
                    packet.tcp(|t| t.sequence(100)).payload_len(100).build()
                }],
                &["class and label 0x60000000 -> 0x60000001", "law ip6 class and label"],
            ),
        ),
        (
            NoMerge::Ipv6Extension,
            linux(
                vec![options(&[1, 4, 0, 0, 0, 0], 0), options(&[1, 4, 0, 0, 0, 1], 100)],
                &["content stays the same, byte for byte"],
            ),
        ),
        (
            NoMerge::TunnelHeader,
            linux(vec![geneve(0, 0), geneve(100, 1)], &["law geneve reserved byte stays the same"]),
        ),
        (
            NoMerge::HeaderStack,
            linux(
                vec![ipv6(0, |p| p), ipv6(100, |packet| packet.hop_by_hop(|h| h))],
                &["(eth ip6 tcp -> eth ip6 ", "eth ip6 tcp as before"],
            ),
        ),
        (
            NoMerge::ChecksumPresence,
            linux(
                vec![outer(0, true), outer(100, false)],
                &["law udp checksum is present in every packet, or in none"],
            ),
        ),
        (NoMerge::ChecksumState, linux(vec![plain(0), partial], &["all complete, or all partial"])),
        (
            NoMerge::TcpAcknowledgment,
            linux(
                second(same, |t| t.ack(1_000_000)),
                &[
                    "-> 1000000)",
                    "law tcp ack stays the same",
                    "as before; or with --profile inet-lro",
                ],
            ),
        ),
        (
            NoMerge::TcpAcknowledgmentAlone,
            case(
                vec![plain(0), empty],
                "--profile ndis-rsc",
                &["a later acknowledgment number or another window"],
            ),
        ),
        (
            NoMerge::TcpFlags,
            linux(
                second(same, Tcp::ece),
                &["(flags 0x010 -> 0x050)", "tcp flags stay the same, except for FIN and PSH"],
            ),
        ),
        (NoMerge::TcpFlags, linux(vec![plain(0), reserved_bit(1)], &["(flags 0x010 -> 0x410)"])),
        (
            NoMerge::TcpWindow,
            linux(second(same, |t| t.window(1)), &["-> 1)", "law tcp window stays the same"]),
        ),
        (
            NoMerge::TcpUrgentPointer,
            linux(second(same, |t| t.urgent_pointer(1)), &["(urgent pointer 0 -> 1)"]),
        ),
        (
            NoMerge::TcpTimestamp,
            linux(
                vec![stamped(0, |t| t.timestamps(77, 7)), stamped(1, |t| t.timestamps(78, 7))],
                &[
                    "(TSval 77 -> 78)",
                    "law tcp options stays the same",
                    "or with --profile inet-lro",
                ],
            ),
        ),
        (
            NoMerge::TcpOptions,
            linux(
                vec![stamped(0, |t| t.timestamps(77, 7)), stamped(1, |t| t.options(&[1; 12]))],
                &["(options 0101080a0000004d00000007 -> 010101010101010101010101)"],
            ),
        ),
        (
            NoMerge::TcpSequenceBehind,
            linux(
                second(same, |t| t.sequence(99)),
                &[
                    "(expected 100, found 99)",
                    "sequence advances by the payload length",
                    "sequence 100",
                ],
            ),
        ),
        (
            NoMerge::TcpSequenceAhead,
            linux(second(same, |t| t.sequence(101)), &["(expected 100, found 101)"]),
        ),
        (
            NoMerge::Longer,
            linux(
                vec![data(0, 100), data(1, 101)],
                &["(100 B -> 101 B)", "at most 100 B of payload; or with --profile inet-lro"],
            ),
        ),
        (
            NoMerge::SizeLimit,
            case(
                vec![plain(0), plain(1), plain(2)],
                "--max-size 300",
                &["limit limits.size-bytes: the maximum is 299, would be 340", "--max-size 341"],
            ),
        ),
        (
            NoMerge::SegmentLimit,
            case(
                vec![plain(0), plain(1), plain(2)],
                "--max-segs 2",
                &["limit limits.tcp-segments: the maximum is 2, would be 3", "--max-segs 3"],
            ),
        ),
    ];
    // No capture can force two flows to have the same hash. Superframes have a separate test, because `coalesce` has to
    // create them.
    let elsewhere = [NoMerge::OtherFlow, NoMerge::SuperframeSize];
    check(
        cases,
        NoMerge::ALL,
        &elsewhere,
        |case| case.frames.len(),
        |reason| format!("NOT MERGED: {reason}"),
    );
}

#[test]
fn what_became_of_packets_that_are_taken_flow_by_flow_shows_where_they_left() {
    let bench = bench();
    let train = case(vec![plain(0), plain(1)], "--profile freebsd", &[]);
    assert!(explain(&bench, &train, 1).contains("STARTS A TRAIN"));
    assert!(explain(&bench, &train, 2).contains("flow held since #1: 1 packet, 100 B"));
    // The flow whose packets come first is delivered at once; packets of other flows wait.
    let other = segment(0, |ip| ip, |tcp| tcp.source_port(7).syn());
    let behind = case(vec![plain(0), other], "--profile freebsd", &[]);
    assert!(explain(&bench, &behind, 2).contains("HELD UNTIL THE END OF THE POLL"));
}

#[test]
fn a_superframe_of_another_size_is_explained() {
    let bench = Bench::new();
    let frames = [(0, 100), (100, 100), (200, 99), (299, 99)].map(|(sequence, len)| {
        let packet = ethernet().ipv4(|ip| ip.id((sequence / 99) as u16));
        packet.tcp(|t| t.sequence(sequence)).payload_len(len).build()
    });
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &frames));
    bench.ok("coalesce -q -r a -w b --max-segs 2");
    let text = bench.ok("explain b -n 2").stdout;
    assert!(text.contains("NOT MERGED: superframe_size"), "{text}");
    assert!(text.contains("a superframe with segments of 100 B"), "{text}");
}

#[test]
fn every_reason_to_close_is_explained() {
    let push = |change: fn(Tcp) -> Tcp| vec![plain(0), segment(1, |ip| ip, change)];
    let connections = |count: u16| {
        let one = |port| {
            let packet = ethernet().ipv4(|ip| ip).tcp(|t| t.source_port(port));
            packet.payload_len(100).build()
        };
        (0..count).map(one).collect::<Vec<_>>()
    };
    let short = {
        let packet = ethernet().ipv4(|ip| ip.id(1)).tcp(|t| t.sequence(100));
        vec![plain(0), packet.payload_len(99).build()]
    };
    let acknowledgment = ethernet().ipv4(|ip| ip).tcp(|t| t).build();
    let stacks = (0..7).flat_map(|tags| (0..11).map(move |words| (tags, words)));
    let stacks = stacks.map(|(tags, words)| {
        let packet = (0..tags).fold(ethernet(), |packet, _| packet.vlan(|v| v)).ipv4(|ip| ip);
        let port = (tags * 11 + words) as u16;
        packet.tcp(|t| t.source_port(port).options(&vec![1; 4 * words])).payload_len(100).build()
    });
    let cases = vec![
        (Close::PollEnd, case(push(|t| t), "--batch 1", &["The poll ended (rule G71)."])),
        (
            Close::HoldTime,
            case(push(|t| t), "--hold 1us", &["(limits.hold-ns: the maximum is 1000)"]),
        ),
        (Close::Push, case(push(Tcp::psh), "", &["A packet with PSH ended the train (rule G36)."])),
        (
            Close::Finish,
            case(push(Tcp::fin), "", &["A packet with FIN ended the train (rule G36)."]),
        ),
        (Close::ShortSegment, case(short, "", &["A shorter packet ended the train"])),
        (
            Close::SegmentLimit,
            case(
                vec![datagram(7, 100), datagram(7, 100)],
                "--max-segs 2",
                &["(limits.udp-segments: the maximum is 2, would be 3)"],
            ),
        ),
        (Close::NoMerge, case(second(|ip| ip.ttl(9), |t| t), "", &["It was #2."])),
        (Close::Barrier, case(vec![plain(0), acknowledgment], "", &["It was #2."])),
        (
            Close::BucketFull,
            case(
                connections(9),
                "--profile ./bucket.toml",
                &["(trains per bucket: the maximum is 8"],
            ),
        ),
        (
            Close::TableFull,
            case(
                connections(3),
                "--max-flows 2",
                &["(limits.flows: the maximum is 2, would be 3)"],
            ),
        ),
        (
            Close::HeaderStacksFull,
            case(
                stacks.collect(),
                "--batch 1000",
                &["(header stacks: the maximum is 64, would be 65)"],
            ),
        ),
        (
            Close::ReorderFull,
            case(
                vec![plain(0), segment(1, |ip| ip, |t| t.sequence(500))],
                "--profile ./full.toml",
                &["A limit of reordering repair was reached."],
            ),
        ),
        (
            Close::PartsFull,
            case(
                vec![plain(0), plain(1), plain(2)],
                "--profile ./parts.toml",
                &["(limits.parts: the maximum is 1, would be 2)"],
            ),
        ),
    ];
    // No train is closed for the first reason; the second needs a known long round trip.
    let out_of_reach = [Close::Never, Close::AcknowledgmentClock];
    let target = |case: &Case| if case.options.contains("full.toml") { 2 } else { 1 };
    check(cases, Close::ALL, &out_of_reach, target, |reason| format!("({reason}) ended by"));
}

/// `explain` describes a header by its specification if it has no specific text for it.
#[test]
fn a_service_header_is_named_with_the_field_that_differs() {
    let chained = |sequence: u32, ttl: u8| inner(ethernet().nsh(|n| n.path(7).ttl(ttl)), sequence);
    let bench = bench();
    let text = explain(&bench, &case(vec![chained(0, 63), chained(100, 62)], "", &[]), 2);
    for words in ["eth nsh ip4 tcp", "tunnel_header", "law nsh flags, TTL and length"] {
        assert!(text.contains(words), "no \"{words}\" in: {text}");
    }
    let report = bench.run("inspect --json a.pcapng").json();
    assert_eq!(report["tunnels"][0]["kind"], "nsh", "{report}");
}

/// `--l2tp` specifies the format of L2TPv3 sessions; without it, the format is not guessed.
#[test]
fn an_l2tp_session_is_named_if_its_format_is_configured() {
    let session = |sequence: u32, cookie: u8| {
        let packet = ethernet().ipv4(|ip| ip).l2tp(|l| l.cookie(&[cookie; 4]).without_sublayer());
        inner(packet.ethernet(|e| e), sequence)
    };
    let frames = || vec![session(0, 1), session(100, 2)];
    let bench = bench();
    let text = explain(&bench, &case(frames(), "--l2tp 4/none", &[]), 2);
    for words in ["eth ip4 l2tp eth ip4 tcp", "tunnel_header", "law l2tp cookie and sublayer"] {
        assert!(text.contains(words), "no \"{words}\" in: {text}");
    }
    let report = bench.run("inspect --json a.pcapng --l2tp 4/none").json();
    assert_eq!(report["tunnels"][0]["kind"], "l2tp", "{report}");
    let text = explain(&bench, &case(frames(), "", &[]), 2);
    assert!(text.contains("PASSED THROUGH: protocol"), "{text}");
    let cure = "would merge with --l2tp and the session format, for example --l2tp 4/default \
                (packets do not contain the format)";
    assert!(text.contains(cure), "{text}");
    // A control message contains no packet, and other protocols contain no L2TP.
    let control = ethernet().ipv4(|ip| ip.protocol(115)).payload(&[0; 20]).build();
    let other = ethernet().ipv4(|ip| ip.protocol(89)).payload(&[1; 20]).build();
    for frame in [control, other] {
        let text = explain(&bench, &case(vec![frame], "", &[]), 1);
        assert!(text.contains("would merge never: ") && !text.contains("--l2tp"), "{text}");
    }
}
