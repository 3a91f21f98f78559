//! `wire` restores the packets on the wire; `csum` and `explain` show facts about them.
//!
//! Longer than 600 lines: all cases share the builder of captures that this command restores.

use std::collections::BTreeMap;

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions, flag};
use grosso_testkit::{
    Packet,
    headers::Tcp,
    oracle::{self, Lengths, Link, flow_of},
    stack::{Front, Network, Place, Stack, Transport, Tunnel},
};

use crate::common::{
    Bench, ETHERNET, START_NS, Timed, capture, capture_of, each, frames, has, packets, tshark,
};

/// The offset of the header checksum after Ethernet.
const IPV4_CHECKSUM_AT: usize = 14 + 10;
/// The offset of the TCP flags after Ethernet and IPv4.
const TCP_FLAGS_AT: usize = 14 + 20 + 13;

/// Returns a host's capture of one flow: SYNs, a superframe, plain segments.
fn host_capture(mss: u16, lengths: &[usize]) -> Vec<Vec<u8>> {
    let option = |mss: u16| [vec![2, 4], mss.to_be_bytes().to_vec()].concat();
    let frame = |id: u16, edit: &dyn Fn(Tcp) -> Tcp, len: usize| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id)).tcp(edit);
        packet.payload_len(len).build_superframe().0
    };
    let mut frames = Vec::new();
    if mss > 0 {
        frames.push(frame(1, &|t: Tcp| t.syn().no_ack().sequence(99).options(&option(mss)), 0));
    }
    let (mut id, mut sequence) = (100_u16, 100_u32);
    for &len in lengths {
        frames.push(frame(id, &|t: Tcp| t.psh().sequence(sequence).timestamps(1, 1), len));
        id = id.wrapping_add(len.div_ceil(1448).max(1) as u16);
        sequence += len as u32;
    }
    frames
}

/// Returns a capture of one frame, truncated to `len` bytes.
fn cut_to(len: usize, frame: &[u8]) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
    let meta = PacketMeta { original_len: frame.len() as u32, ..PacketMeta::default() };
    writer.write_packet(&meta, &frame[..len]).unwrap();
    writer.finish().unwrap()
}

/// Returns a capture of these frames in simple packet blocks, which have no timestamps.
fn without_times(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    writer.add_interface(&Interface::new(ETHERNET)).unwrap();
    let mut file = writer.finish().unwrap();
    for frame in frames {
        let padded = frame.len().next_multiple_of(4);
        let length = 16 + padded as u32;
        for word in [3, length, frame.len() as u32] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(frame);
        file.resize(file.len() + padded - frame.len(), 0);
        file.extend(length.to_ne_bytes());
    }
    file
}

/// Returns a frame in the opposite direction: ports and addresses are swapped, so the sums stay the same.
fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut reversed = frame.to_vec();
    let (addresses, ports) = (14 + 12, 14 + 20);
    for (at, len) in [(addresses, 4), (ports, 2)] {
        let (source, destination) = reversed[at..at + 2 * len].split_at_mut(len);
        source.swap_with_slice(destination);
    }
    reversed
}

/// Returns the TCP payload of each flow by sequence number.
fn streams(frames: &[Vec<u8>], link: Link) -> BTreeMap<String, BTreeMap<u32, u8>> {
    let mut streams: BTreeMap<String, BTreeMap<u32, u8>> = BTreeMap::new();
    for frame in frames {
        let parsed = oracle::parse(frame, link, Lengths::Declared);
        let Some(flow) = flow_of(frame, link) else { continue };
        let Some(tcp) = parsed.last().filter(|layer| layer.name == "tcp") else { continue };
        let first = tcp.number("sequence") as u32;
        let stream = streams.entry(flow.to_string()).or_default();
        for (at, byte) in parsed.payload(frame).iter().enumerate() {
            stream.insert(first.wrapping_add(at as u32), *byte);
        }
    }
    streams
}

fn is_wire(frames: &[Vec<u8>], link: Link, mtu: usize) {
    for frame in frames {
        assert!(oracle::is_right(frame, link), "{:?}", oracle::verify(frame, link));
        assert!(frame.len() <= mtu + 14, "{} bytes", frame.len());
    }
}

#[test]
fn superframes_are_split_by_the_mss_of_the_syn() {
    let bench = Bench::new();
    let input = host_capture(1460, &[1448, 50_000, 10, 20_000, 700]);
    bench.put("send.pcap", &capture(Format::Pcap, ETHERNET, &input));
    let report = bench.ok("wire -r send.pcap -w wire.pcap --json").json();
    assert_eq!(report["superframes"]["split"], 2);
    assert_eq!(report["superframes"]["sizes"][0]["bytes"], 1448);
    assert_eq!(report["superframes"]["sizes"][0]["source"], "syn");
    assert_eq!(report["checksums_completed"], 4);
    let output = frames(&bench.get("wire.pcap"));
    assert_eq!(output.len(), 4 + 35 + 14);
    is_wire(&output, Link::Ethernet, 1500);
    assert_eq!(streams(&output, Link::Ethernet), streams(&input, Link::Ethernet));
    let pushed = output.iter().filter(|frame| frame[47] & 8 != 0).count();
    assert_eq!(pushed, 5, "PSH is on the last packet of each superframe only");
    let text = bench.ok("wire -r send.pcap -w wire.pcap").stdout;
    assert_eq!(
        text,
        "wire.pcap: 6 -> 53 packets\n2 superframes split (mss 1448, from SYN), 4 checksums \
         completed\n0 packets left unchanged\n"
    );
    // From a pipe the result is the same, because the SYN arrives first.
    let piped = bench.pipe("wire -r - -w -", &bench.get("send.pcap"));
    assert_eq!(piped.bytes, bench.get("wire.pcap"));
    assert!(!piped.stderr.contains("note:"), "{}", piped.stderr);
    assert_eq!(bench.ok("inspect wire.pcap --json").json()["verdict"]["vantage"], "wire");
}

#[test]
fn received_partial_checksums_show_a_virtual_link() {
    let bench = Bench::new();
    let vantage = |plain: Vec<u8>| {
        let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
        for frame in [host_capture(0, &[50_000]).remove(0), plain] {
            let original_len = frame.len() as u32;
            let meta =
                PacketMeta { original_len, flags: Some(flag::INBOUND), ..PacketMeta::default() };
            writer.write_packet(&meta, &frame).unwrap();
        }
        bench.put("a", &writer.finish().unwrap());
        bench.run("inspect a --json").json()["verdict"]["vantage"].clone()
    };
    let plain = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(9);
    assert_eq!(vantage(plain.build()), "receiver-host");
    assert_eq!(vantage(plain.build_partial().0), "sender-host", "the text for virtual links");
}

#[test]
fn shares_are_of_what_the_link_carried_and_a_replay_loses_all_that_is_too_long() {
    let bench = Bench::new();
    let mut frames = host_capture(1460, &[50_000, 700, 2000]);
    let text = |frames: &[Vec<u8>], len: usize| {
        let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
        for frame in frames {
            let meta = PacketMeta { original_len: frame.len() as u32, ..PacketMeta::default() };
            writer.write_packet(&meta, &frame[..len.min(frame.len())]).unwrap();
        }
        bench.put("a", &writer.finish().unwrap());
        bench.run("inspect a").stdout.replace("\n", " ")
    };
    for len in [usize::MAX, 80] {
        let text = text(&frames, len);
        assert!(text.contains("superframes   2 packets, 98.4 % of bytes"), "{len}: {text}");
        assert!(text.contains("would lose 2 packets (98.4 % of the bytes)"), "{len}: {text}");
    }
    // Packets of a link with a larger MTU are not superframes.
    let long = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(8000).build();
    frames.extend([long.clone(), long]);
    let text = text(&frames, usize::MAX);
    assert!(text.contains("superframes   2 packets"), "{text}");
    assert!(text.contains("would lose 4 packets (98.8 % of the bytes)"), "{text}");
}

#[test]
fn sources_of_the_segment_size_come_in_order() {
    let bench = Bench::new();
    let source = |frames: &[Vec<u8>], options: &str| {
        bench.put("a", &capture(Format::Pcap, ETHERNET, frames));
        let report = bench.ok(&format!("wire -r a -w b --json {options}")).json();
        let size = &report["superframes"]["sizes"][0];
        (size["bytes"].as_u64().unwrap(), size["source"].as_str().unwrap().to_string())
    };
    let of = |bytes, source: &str| (bytes, source.to_string());
    assert_eq!(source(&host_capture(1300, &[40_000]), "--mss 500"), of(500, "given"));
    assert_eq!(source(&host_capture(1300, &[40_000]), ""), of(1288, "syn"));
    assert_eq!(source(&host_capture(0, &[40_000; 5]), ""), of(1448, "ip_id"));
    // In mid-stream, no frame has PSH, and some senders do not change the identification.
    let mut multiples = host_capture(0, &[1200, 36_000, 48_000]);
    for frame in &mut multiples {
        frame[TCP_FLAGS_AT] &= !0x08;
        frame[14 + 4..14 + 6].fill(0);
        frame[14 + 10..14 + 12].fill(0);
        let complete = oracle::checksum(&frame[14..14 + 20]);
        frame[14 + 10..14 + 12].copy_from_slice(&complete.to_be_bytes());
    }
    assert_eq!(source(&multiples, ""), of(1200, "plain_segments"));
    assert_eq!(source(&host_capture(0, &[40_000]), "--mtu 1280"), of(1228, "given"));
    assert_eq!(source(&host_capture(0, &[40_000]), ""), of(1448, "mtu"));
    bench.put("a", &capture(Format::Pcap, ETHERNET, &host_capture(0, &[40_000])));
    let run = bench.run("wire --strict -r a -w b");
    assert_eq!(run.code, 1);
    assert_eq!(frames(&bench.get("b")), host_capture(0, &[40_000]));
    // The SYNs announce only an upper bound of the segment size. Superframes whose lengths are multiples of this bound
    // show that it is the segment size.
    for (lengths, code) in [(&[40_000][..], 1), (&[28_960, 43_440], 0)] {
        let mut shaken = host_capture(1460, lengths);
        shaken.insert(1, reversed(&shaken[0]));
        bench.put("a", &capture(Format::Pcap, ETHERNET, &shaken));
        assert_eq!(bench.run("wire --strict -r a -w b").code, code, "{lengths:?}");
    }
    let piped = bench
        .pipe("wire -q -r - -w -", &capture(Format::Pcap, ETHERNET, &host_capture(0, &[9000])));
    assert_eq!(piped.code, 0);
    let piped =
        bench.pipe("wire -r - -w -", &capture(Format::Pcap, ETHERNET, &host_capture(0, &[9000])));
    assert!(piped.stderr.contains("note: a pipe is read only once"), "{}", piped.stderr);
}

#[test]
fn a_right_checksum_that_equals_a_partial_one_is_right_beside_complete_ones() {
    const LEN: usize = 3948;
    let checksum = |frame: &[u8]| u16::from_be_bytes([frame[50], frame[51]]);
    let packet = |index: u32, first: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        let packet = packet.tcp(|tcp| tcp.sequence(index * LEN as u32));
        packet.payload(&[&first.to_be_bytes()[..], &[7; LEN - 2]].concat())
    };
    // One checksum in 65,536 equals its pseudo-header sum by chance.
    let is_either = |first: &u16| {
        let packet = packet(2, *first);
        checksum(&packet.build()) == checksum(&packet.build_partial().0)
    };
    let either = (0..=u16::MAX).find(is_either).unwrap();
    let complete = |index| packet(index, 0).build();
    let wire = [complete(1), packet(2, either).build(), complete(3), complete(4)];
    let bench = Bench::new();
    bench.put("wire.pcap", &capture(Format::Pcap, ETHERNET, &wire));
    let report = bench.ok("wire --strict --json -r wire.pcap -w out.pcap").json();
    assert_eq!(report["left"], serde_json::json!({}), "{report}");
    assert!(bench.get("out.pcap") == bench.get("wire.pcap"));
    // If no other checksum is complete, nothing shows whether this one is.
    let partial = |index| packet(index, 0).build_partial().0;
    let host = [partial(1), packet(2, either).build(), partial(3), partial(4)];
    bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, &host));
    let report = bench.run("wire --strict --json -r host.pcap -w out.pcap").json();
    assert_eq!(report["left"].as_object().unwrap().values().count(), 1, "{report}");
}

/// Behind a router that lowers the MSS, two segments may be shorter than one Ethernet packet.
#[test]
fn a_frame_that_would_fit_is_in_doubt_where_superframes_are_no_multiples_of_a_full_packet() {
    const MSS: usize = 1188;
    let mut sequence = 100;
    let mut frame = |len: usize, is_end: bool| {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip);
        let edit = |tcp: Tcp| tcp.sequence(sequence).timestamps(1, 1);
        let packet = packet.tcp(|tcp| if is_end { edit(tcp).psh() } else { edit(tcp) });
        sequence += len as u32;
        packet.payload_len(len).build_superframe().0
    };
    let bench = Bench::new();
    let mut put = |name: &str, lengths: &[usize], is_end: bool| {
        let frames: Vec<_> = lengths.iter().map(|&len| frame(len, is_end)).collect();
        bench.put(name, &capture(Format::Pcap, ETHERNET, &frames));
    };
    // If a sender writes slowly, every superframe ends with PSH, and the lengths of the superframes prove nothing.
    for is_end in [false, true] {
        put("clamped.pcap", &[10 * MSS, 5 * MSS, 8 * MSS, 6000, MSS + 156, 100], is_end);
        let report = bench.run("wire --strict --json -r clamped.pcap -w out.pcap").json();
        let left = serde_json::json!({ "segment_size_unknown": 4, "perhaps_superframe": 1 });
        assert_eq!(
            (&report["left"], &report["checksums_completed"]),
            (&left, &1.into()),
            "{report}"
        );
        let report = bench.ok("wire --json -r clamped.pcap -w out.pcap").json();
        assert!(report["guessed"].as_u64() >= Some(5), "{report}");
    }
    // If all superframes are multiples of a full packet, or if there are none, a frame that fits the MTU is a single
    // packet.
    for lengths in [&[14_280, 7140, 11_424, 1344, 100][..], &[1428, 1344, 100]] {
        put("plain.pcap", lengths, false);
        let report = bench.run("wire --strict --json -r plain.pcap -w out.pcap").json();
        let packets = lengths.iter().filter(|&&len| len <= 1428).count();
        assert_eq!(report["checksums_completed"], packets, "{report}");
    }
}

#[test]
fn udp_is_never_guessed() {
    let bench = Bench::new();
    let udp = |len| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.destination_port(99));
        packet.payload_len(len).build_superframe().0
    };
    let input = capture(Format::Pcap, ETHERNET, &[udp(4115), udp(4115), udp(4115), udp(800)]);
    bench.put("udp.pcap", &input);
    let run = bench.ok("wire -r udp.pcap -w out.pcap");
    assert!(
        run.stderr.starts_with(
            "grosso: note: 3 UDP superframes (12345 B payload) not split: the capture does not \
             record the segment size.\n\
             grosso: hint: if you know the sender's segment size, add --uso-size BYTES; `grosso \
             capture` records it.\n"
        ),
        "{}",
        run.stderr
    );
    assert_eq!(frames(&bench.get("out.pcap"))[..3], frames(&input)[..3]);
    bench.ok("wire -r udp.pcap -w out.pcap --uso-size 1200");
    let output = frames(&bench.get("out.pcap"));
    assert_eq!(output.len(), 3 * 4 + 1);
    is_wire(&output, Link::Ethernet, 1500);
}

#[test]
fn times_are_those_of_the_superframe_or_of_the_line() {
    let bench = Bench::new();
    let input = host_capture(1460, &[2896]);
    bench.put("a", &capture(Format::Pcap, ETHERNET, &input));
    let times = |options: &str| -> Vec<u64> {
        bench.ok(&format!("wire -q -r a -w b {options}"));
        packets(&bench.get("b"))[1..].iter().map(|(time, _)| time - START_NS).collect()
    };
    assert_eq!(times(""), [1000, 1000]);
    // 1514 bytes and 24 bytes of overhead, ten bits per nanosecond.
    assert_eq!(times("--ts line=10G"), [1000, 1000 + 1538 * 8 / 10]);
    // Timestamps that the capture recorded for single packets take precedence over the option.
    let train: Vec<Timed> = (0..3_u32)
        .map(|i| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
            let packet = packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000);
            (START_NS + u64::from(i) * 77, packet.build())
        })
        .collect();
    bench.put("c", &capture_of(Format::Pcapng, ETHERNET, &train));
    bench.ok("coalesce -q -r c -w d");
    assert_eq!(packets(&bench.get("d")).len(), 1);
    bench.ok("wire -q -r d -w e --ts line=10G");
    assert_eq!(packets(&bench.get("e")), train);
}

#[test]
fn superframes_inside_tunnels_are_split() {
    let bench = Bench::new();
    for tunnel in [
        Tunnel::Ip,
        Tunnel::Gre,
        Tunnel::GreChecksum,
        Tunnel::Vxlan,
        Tunnel::VxlanPolicy,
        Tunnel::Geneve,
        Tunnel::Gue,
    ] {
        for network in [Network::Ipv4, Network::Ipv6] {
            let mut stack = Stack::plain(Front::Vlan, network, Transport::TcpTimestamps);
            stack.tunnels.push((Network::Ipv4, tunnel));
            let input = [stack.packet(&Place::default()).payload_len(20_000).build_superframe().0];
            bench.put("a", &capture(Format::Pcap, ETHERNET, &input));
            let report = bench.ok("wire -r a -w b --json").json();
            assert_eq!(report["superframes"]["split"], 1, "{stack:?}");
            let output = frames(&bench.get("b"));
            is_wire(&output, Link::Ethernet, 1504);
            assert_eq!(streams(&output, Link::Ethernet), streams(&input, Link::Ethernet));
        }
    }
}

#[test]
fn trains_of_partial_packets_leave_complete() {
    let bench = Bench::new();
    let packet = |i: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
        packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000)
    };
    let partial: Vec<_> = (0..5).map(|i| packet(i).build_partial().0).collect();
    let complete: Vec<_> = (0..5).map(|i| packet(i).build()).collect();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &partial));
    bench.ok("coalesce -q -r a -w b");
    assert_eq!(packets(&bench.get("b")).len(), 1);
    bench.ok("segment -q -r b -w c");
    assert_eq!(frames(&bench.get("c")), partial);
    bench.ok("wire -q -r b -w c");
    assert_eq!(frames(&bench.get("c")), complete);
    bench.ok("wire -q -r a -w c");
    assert_eq!(frames(&bench.get("c")), complete);
}

#[test]
fn senders_that_do_not_count_keep_their_identification() {
    let bench = Bench::new();
    let frame = |sequence: u32, len: usize| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(0));
        packet.tcp(|t| t.sequence(sequence)).payload_len(len).build_superframe().0
    };
    let input = [frame(0, 1460), frame(1460, 1460), frame(2920, 14_600)];
    bench.put("a", &capture(Format::Pcap, ETHERNET, &input));
    bench.ok("wire -q -r a -w b");
    let output = frames(&bench.get("b"));
    assert_eq!(output.len(), 12);
    assert!(output.iter().all(|frame| frame[18..20] == [0, 0]));
}

#[test]
fn tshark_finds_nothing_wrong() {
    if !has("tshark") {
        return;
    }
    let bench = Bench::new();
    let input = host_capture(1460, &[1448, 60_000, 10, 40_000, 700, 1449]);
    bench.put("send.pcap", &capture(Format::Pcap, ETHERNET, &input));
    let wrong = "tcp.checksum.status == 0 || ip.checksum.status == 0 || _ws.malformed \
                 || tcp.analysis.lost_segment || tcp.analysis.retransmission";
    for line in ["wire -q -r send.pcap -w out.pcapng", "csum fix -q -r send.pcap -w out.pcapng"] {
        bench.ok(line);
        assert_eq!(tshark(&bench.path("out.pcapng"), wrong), Vec::<String>::new(), "{line}");
    }
    bench.ok("wire -q -r send.pcap -w wire.pcapng");
    bench.ok("coalesce -q -r wire.pcapng -w gro.pcapng");
    bench.ok("segment -q -r gro.pcapng -w back.pcapng");
    assert_eq!(tshark(&bench.path("back.pcapng"), wrong), Vec::<String>::new());
    let count = tshark(&bench.path("wire.pcapng"), "tcp").len();
    assert_eq!(tshark(&bench.path("back.pcapng"), "tcp").len(), count);
}

#[test]
fn ipv4_header_checksum_left_to_the_device_is_completed() {
    let bench = Bench::new();
    let packet = |n: u16| Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(n));
    // Some devices complete only IPv4 header checksums: in TCP and ICMP packets, in fragments, and in outer tunnel
    // headers.
    let right = [
        packet(1).tcp(|t| t).payload_len(100).build(),
        packet(2).icmp(|icmp| icmp).payload_len(40).build(),
        packet(3).gre(|g| g).ipv4(|ip| ip.id(7)).udp(|u| u).payload_len(60).build(),
        packet(4).tcp(|t| t).payload_len(400).build(),
    ];
    let mut sent = right.clone();
    for frame in &mut sent {
        frame[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].fill(0);
    }
    for format in [Format::Pcap, Format::Pcapng] {
        bench.put("sent", &capture(format, ETHERNET, &sent));
        let report = bench.ok("wire sent -w wire --json").json();
        assert_eq!(report["checksums_completed"], 4);
        assert_eq!(frames(&bench.get("wire")), right);
        assert_eq!(bench.ok("inspect wire --json").json()["verdict"]["vantage"], "wire");
    }
    // The header is complete although the capture truncated the bytes after it.
    bench.put("short.pcap", &cut_to(60, &sent[3]));
    let report = bench.ok("wire short.pcap -w wire.pcap --json").json();
    assert_eq!(report["checksums_completed"], 1);
    assert_eq!(report["left"], serde_json::json!({}));
    assert_eq!(frames(&bench.get("wire.pcap")), [right[3][..60].to_vec()]);
}

#[test]
fn verdicts_are_listed_with_expected_values() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(40);
    let inner = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    let inner = inner.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.checksum_xor(0x4600)).payload_len(40);
    let zero =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero()).payload_len(9);
    let (partial, ..) = packet.build_partial();
    let input = [packet.build(), partial, inner.build(), zero.build()];
    bench.put("mixed.pcapng", &capture(Format::Pcapng, ETHERNET, &input));
    let run = bench.run("csum verify -r mixed.pcapng");
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stdout.starts_with("  packet  proto            found   expected  verdict\n"));
    let (verdicts, cure) = run.stdout.split_once("Partial: ").unwrap();
    assert!(verdicts.ends_with("1 valid, 1 partial, 1 bad, 1 zero-udp, 0 unverifiable\n"));
    assert!(cure.ends_with("on the sender: ethtool -K DEV tx off\n"), "{cure}");
    let report = bench.run("csum verify --json -r mixed.pcapng").json();
    let rows = report["rows"].as_array().unwrap();
    let row = |packet: u64, level: &str| {
        let found = rows.iter().find(|row| row["packet"] == packet && row["level"] == level);
        found.unwrap_or_else(|| panic!("{packet} {level}: {rows:?}"))
    };
    let field = |frame: &[u8]| u64::from(u16::from_be_bytes([frame[50], frame[51]]));
    assert_eq!(row(2, "")["verdict"], "partial");
    assert_eq!(row(2, "")["found"], field(&input[1]));
    assert_eq!(row(2, "")["expected"], field(&input[0]));
    assert_eq!(row(3, "inner")["verdict"], "bad");
    assert_eq!(row(3, "inner")["proto"], "udp4/vxlan/tcp4");

    bench.ok("csum fix --only partial -r mixed.pcapng -w fixed.pcapng");
    let fixed = frames(&bench.get("fixed.pcapng"));
    assert_eq!(fixed[1], input[0]);
    assert_eq!((&fixed[0], &fixed[2], &fixed[3]), (&input[0], &input[2], &input[3]));
    bench.ok("csum fix --only bad -r mixed.pcapng -w fixed.pcapng");
    let fixed = frames(&bench.get("fixed.pcapng"));
    assert_eq!(fixed[1], input[1]);
    assert!(oracle::is_right(&fixed[2], Link::Ethernet));
    bench.ok("csum fix --only all -r mixed.pcapng -w fixed.pcapng");
    assert!(frames(&bench.get("fixed.pcapng")).iter().all(|f| oracle::is_right(f, Link::Ethernet)));
}

#[test]
fn explanation_names_the_rule_and_the_values() {
    let bench = Bench::new();
    let data = |i: u32, stamp: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
        packet.tcp(|t| t.sequence(i * 1000).timestamps(stamp, 7)).payload_len(1000).build()
    };
    let ack = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.timestamps(78, 7)).build();
    let input = [data(0, 77), data(1, 77), data(2, 78), data(3, 78), data(5, 78), ack];
    bench.put("wire.pcapng", &capture(Format::Pcapng, ETHERNET, &input));
    let explain = |n: u32| bench.ok(&format!("explain wire.pcapng -n {n}")).stdout;
    let first = explain(1);
    assert!(first.contains("no train of its flow is held"), "{first}");
    assert!(first.contains("STARTS A TRAIN"), "{first}");
    let second = explain(2);
    assert!(second.contains("flow held since #1: 1 packet, 1000 B, gso_size 1000"), "{second}");
    assert!(second.contains("MERGED\n"), "{second}");
    assert!(second.contains("2 packets (#1 to #2) -> 1 of 2066 B (no_merge)"), "{second}");
    let third = explain(3);
    assert!(third.contains("parse       eth ip4 tcp(nop,nop,ts)"), "{third}");
    assert!(third.contains("flow held since #1: 2 packets, 2000 B, gso_size 1000"), "{third}");
    assert!(third.contains("NOT MERGED: tcp_timestamp (TSval 77 -> 78)"), "{third}");
    assert!(third.contains("gro flush   2 packets (#1 to #2) -> 1 of 2066 B"), "{third}");
    assert!(third.contains("#3 starts the next train"), "{third}");
    let fifth = explain(5);
    assert!(fifth.contains("tcp_sequence_ahead (expected 4000, found 5000)"), "{fifth}");
    let sixth = explain(6);
    assert!(sixth.contains("PASSED THROUGH: empty"), "{sixth}");
    assert!(sixth.contains("#6 unchanged"), "{sixth}");
    let run = bench.run("explain wire.pcapng -n 7");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("no packet 7; the capture has 6 packets"), "{}", run.stderr);
    let report = bench.ok("explain wire.pcapng -n 3 --json").json();
    assert_eq!(report["decision"]["reason"], "tcp_timestamp");
    assert_eq!(report["lookup"]["packets"], 2);
}

#[test]
fn duration_is_from_the_earliest_packet_to_the_latest() {
    let bench = Bench::new();
    let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900).build();
    let seconds = [3, 5, 1, 2].map(|s| (START_NS + s * 1_000_000_000, frame.clone()));
    bench.put("a", &capture_of(Format::Pcap, ETHERNET, &seconds));
    let text = bench.ok("inspect a").stdout;
    assert!(text.starts_with("a: pcap, Ethernet, 4 packets, 3816 B, 4.0 s,"), "{text}");
    let input = &bench.ok("inspect a --json").json()["input"];
    assert_eq!(input["first_ts_ns"], START_NS + 1_000_000_000);
    assert_eq!(input["last_ts_ns"], START_NS + 5_000_000_000);
    let report = bench.ok("whatif a --profile linux --hold 0 --json").json();
    assert_eq!(report["offered"]["duration_ns"], 4_000_000_000_u64);
}

#[test]
fn inspect_reports_the_capture_point() {
    let bench = Bench::new();
    let vantage = |frames: &[Vec<u8>]| {
        bench.put("a", &capture(Format::Pcap, ETHERNET, frames));
        let run = bench.run("inspect a --json");
        let vantage = run.json()["verdict"]["vantage"].as_str().unwrap().to_string();
        let is_wire = ["wire", "empty"].contains(&&*vantage);
        assert_eq!(run.code, i32::from(!is_wire), "{vantage}");
        vantage
    };
    assert_eq!(vantage(&host_capture(1460, &[1448, 50_000, 20_000])), "sender-host");
    let plain = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900);
    assert_eq!(vantage(&[plain.build()]), "wire");
    let merged = host_capture(0, &[50_000]);
    assert_eq!(vantage(&[plain.build(), merged[0].clone()]), "receiver-host");
    assert_eq!(vantage(&[]), "empty");
    // Frames that were not parsed are not evidence of a wire capture.
    assert_eq!(vantage(&[vec![0xff; 60]]), "unknown");
    bench.put("a", &capture(Format::Pcap, 105, &[vec![0; 60]]));
    let run = bench.run("inspect a --json");
    let verdict = &run.json()["verdict"];
    assert_eq!((run.code, &verdict["wire_faithful"]), (3, &false.into()));
    assert_eq!(verdict["reasons"], serde_json::json!(["nothing_parsed"]));
    bench.put("a", &capture(Format::Pcap, ETHERNET, &host_capture(1460, &[1448, 50_000, 20_000])));
    let report = bench.run("inspect a --json").json();
    assert_eq!(report["superframes"]["packets"], 2);
    assert_eq!(report["superframes"]["wire_packets_estimate"], 35 + 14);
    assert_eq!(report["superframes"]["mss"][0]["bytes"], 1448);
    assert_eq!(report["superframes"]["mss"][0]["source"], "syn");
    // No frame follows the last superframe.
    assert_eq!(report["superframes"]["mss"][0]["ip_id_agree"], 1);
    assert_eq!(report["checksums"]["partial"], 4);
    let fragment = |offset: u16, more: bool, len: usize| {
        let ip = Packet::new()
            .ethernet(|e| e)
            .ipv4(|ip| ip.fragment_offset(offset).more_fragments(more));
        ip.payload_len(len).build()
    };
    let parts = [fragment(0, true, 800), fragment(100, false, 50), fragment(0, true, 800)];
    bench.put("a", &capture(Format::Pcap, ETHERNET, &parts[..2]));
    let report = bench.ok("inspect a --json").json();
    assert_eq!(report["fragments"]["complete"], 1);
    assert_eq!(report["fragments"]["incomplete"], 0);
}

#[test]
fn remains_of_a_sender_s_superframes_do_not_indicate_a_receiver() {
    let bench = Bench::new();
    let frames = host_capture(1460, &[1448, 50_000, 20_000, 100]);
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
    for frame in &frames {
        let meta = PacketMeta { original_len: frame.len() as u32, ..PacketMeta::default() };
        let captured = if frame.len() == frames[2].len() { 2000 } else { frame.len() };
        writer.write_packet(&meta, &frame[..captured]).unwrap();
    }
    bench.put("host.pcap", &writer.finish().unwrap());
    let vantage =
        |file| bench.run(&format!("inspect {file} --json")).json()["verdict"]["vantage"].clone();
    assert_eq!(vantage("host.pcap"), "sender-host");
    let wire = bench.ok("wire host.pcap -w wire.pcap --json").json();
    assert_eq!(wire["left"]["captured_short"], 1, "{wire}");
    assert_eq!(vantage("wire.pcap"), "host");
}

/// Blocks that are copied have no time; new blocks must have one.
#[test]
fn packets_without_a_time_are_noted_where_they_get_that_of_0() {
    let bench = Bench::new();
    bench.put("simple.pcapng", &without_times(&host_capture(1460, &[2896, 100])));
    for (line, written, noted) in [
        ("coalesce simple.pcapng -w out.pcapng", 0, 0),
        ("wire simple.pcapng -w out.pcapng", 4, 4),
        ("wire simple.pcapng -F pcap -w out.pcapng", 4, 4),
        // Merging captures sets the times of packets before they are segmented.
        ("wire simple.pcapng simple.pcapng -w out.pcapng", 8, 6),
    ] {
        let run = bench.ok(line);
        let mut found = 0;
        each(&bench.get("out.pcapng"), |packet| {
            found += usize::from(packet.timestamp_ns == Some(0));
        });
        let note =
            format!("note: {noted} packets without a timestamp are written with timestamp 0");
        let is_noted = run.stderr.contains(&note);
        assert_eq!((found, is_noted), (written, noted > 0), "{line}: {}", run.stderr);
    }
}
