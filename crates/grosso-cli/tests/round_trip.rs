//! Tests that `segment` reverses `coalesce`: every byte and every timestamp is restored.

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions, flag};
use grosso_testkit::{
    Packet, Traffic,
    flows::{assert_conserved, assert_order_within_flows},
    oracle::Link,
    random::Random,
    stack::{Stack, Tunnel},
};

use crate::common::{Bench, ETHERNET, START_NS, Timed, capture, capture_of, each, frames, packets};

/// Asserts that two captures have the same packets and timestamps, in the same order within each flow.
fn assert_same(before: &[Timed], after: &[Timed], link: Link) {
    let with_time = |packets: &[Timed]| -> Vec<Vec<u8>> {
        let bytes = |(time, data): &Timed| [data.as_slice(), &time.to_be_bytes()].concat();
        packets.iter().map(bytes).collect()
    };
    assert_conserved(&with_time(before), &with_time(after));
    let data = |packets: &[Timed]| packets.iter().map(|(_, data)| data.clone()).collect::<Vec<_>>();
    assert_order_within_flows(&data(before), &data(after), link);
}

/// Coalesces and segments a capture; returns the number of coalesced frames.
fn round_trip(bench: &Bench, input: &[u8], options: &str, link: Link) -> usize {
    round_trip_with_tunnels(bench, input, options, "", link)
}

/// Runs a round trip in which both commands know the tunnel ports.
fn round_trip_with_tunnels(
    bench: &Bench,
    input: &[u8],
    options: &str,
    tunnels: &str,
    link: Link,
) -> usize {
    bench.put("a", input);
    bench.ok(&format!("coalesce -q -r a -w b {options} {tunnels}"));
    bench.ok(&format!("segment -q -r b -w c {tunnels}"));
    assert_same(&packets(input), &packets(&bench.get("c")), link);
    packets(&bench.get("b")).len()
}

fn uneven_times(frames: Vec<Vec<u8>>, seed: u64) -> Vec<Timed> {
    let mut random = Random::new(seed);
    let mut now = START_NS;
    let time = |frame| {
        now += *random.choose(&[0, 0, 1, 999, 40_000, 5_000_000_000]);
        (now, frame)
    };
    frames.into_iter().map(time).collect()
}

#[test]
fn traffic_of_every_stack_comes_back() {
    let bench = Bench::new();
    for seed in 0..40 {
        let (link, number) = if seed % 2 == 0 { (Link::Ethernet, 1) } else { (Link::Ip, 101) };
        let traffic: Vec<_> = Traffic::over(link, seed).take(300).collect();
        let count = traffic.len();
        let input = capture_of(Format::Pcapng, number, &uneven_times(traffic, seed));
        let options = ["", "--batch stamp", "--batch 7 --hold 1ms", "--max-segs 3 --no-udp"];
        let merged = round_trip(&bench, &input, options[seed as usize % 4], link);
        assert!(merged <= count);
    }
}

#[test]
fn all_stacks_with_one_tunnel_come_back_and_those_that_can_are_merged() {
    let bench = Bench::new();
    for stack in Stack::all() {
        let (link, number) =
            if stack.link() == Link::Ip { (Link::Ip, 101) } else { (Link::Ethernet, 1) };
        let stacks = [stack.clone()];
        let frames: Vec<_> =
            Traffic::of(&stacks, 7).deviations_percent(0).burst_mean(9).take(60).collect();
        let input = capture(Format::Pcapng, number, &frames);
        let has_l2tp = stack.tunnels.iter().any(|(_, tunnel)| *tunnel == Tunnel::L2tp);
        let tunnels = if has_l2tp { "--l2tp 4/default" } else { "" };
        let merged = round_trip_with_tunnels(&bench, &input, "", tunnels, link);
        // FOU has no assigned port, so without `--port` it is read as UDP.
        if stack.couples() {
            assert!(merged < 60, "{stack:?}: {merged}");
        }
    }
}

#[test]
fn link_types_without_ethernet_come_back() {
    let bench = Bench::new();
    let train: Vec<_> = (0..10_u32)
        .map(|i| {
            let ipv4 = Packet::new().ipv4(|ip| ip.id(i as u16));
            ipv4.tcp(|t| t.sequence(i * 100)).payload_len(100).build()
        })
        .collect();
    let fronts: [(u32, Vec<u8>); 4] = [
        (0, vec![2, 0, 0, 0]),
        (108, vec![0, 0, 0, 2]),
        (113, vec![0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]),
        (276, [vec![8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6], vec![7; 8]].concat()),
    ];
    for (link_type, front) in fronts {
        let frames: Vec<_> = train.iter().map(|ip| [&front[..], ip].concat()).collect();
        let input = capture(Format::Pcapng, link_type, &frames);
        bench.put("a", &input);
        bench.ok("coalesce -q -r a -w b");
        bench.ok("segment -q -r b -w c");
        assert_eq!(packets(&bench.get("b")).len(), 1, "link type {link_type}");
        assert_eq!(packets(&bench.get("c")), packets(&input), "link type {link_type}");
    }
}

#[test]
fn classic_pcap_becomes_pcapng_that_gives_it_back() {
    let bench = Bench::new();
    let frames: Vec<_> = Traffic::benign(3).take(200).collect();
    let input = capture(Format::Pcap, ETHERNET, &frames);
    bench.put("a.pcap", &input);
    let run = bench.ok("coalesce -r a.pcap -w b.pcapng");
    assert_eq!(run.stderr.matches("note: writing pcapng").count(), 1, "{}", run.stderr);
    assert_eq!(bench.ok("coalesce -r a.pcap").stderr, "", "nothing is written");
    assert!(bench.get("b.pcapng").starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    bench.ok("segment -r b.pcapng -w c.pcap -F pcap");
    assert_same(&packets(&input), &packets(&bench.get("c.pcap")), Link::Ethernet);
}

#[test]
fn times_that_a_superframe_cannot_hold_keep_packets_apart() {
    let bench = Bench::new();
    let train = |i: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
        packet.tcp(|t| t.sequence(i * 100)).payload_len(100).build()
    };
    // Timestamps that go backwards, and steps of more than 2^32 nanoseconds.
    let times = [5, 6, 4, 3, 3 + (1 << 33), 4 + (1 << 33)];
    let packets: Vec<Timed> =
        times.iter().zip(0..).map(|(time, i)| (START_NS + time, train(i))).collect();
    let input = capture_of(Format::Pcapng, ETHERNET, &packets);
    let merged = round_trip(&bench, &input, "", Link::Ethernet);
    assert_eq!(merged, 4, "two, one, one, two");
}

#[test]
fn packet_options_are_kept_or_prevent_merging() {
    let bench = Bench::new();
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    let mut put = |i: u32, flags: Option<u32>| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
        let packet = packet.tcp(|t| t.sequence(i * 100)).payload_len(100);
        let (data, ..) = packet.build_partial();
        let partial = flags.is_some_and(|flags| flags & flag::CHECKSUM_NOT_READY != 0);
        let data = if partial { data } else { packet.build() };
        let meta = PacketMeta { timestamp_ns: Some(START_NS), flags, ..PacketMeta::default() };
        writer.write_packet(&meta, &data).unwrap();
    };
    // Two incoming packets, two outgoing packets with partial checksums, and two without flags.
    for (i, flags) in [Some(1), Some(1), Some(0x202), Some(0x202), None, None].iter().enumerate() {
        put(i as u32, *flags);
    }
    let input = writer.finish().unwrap();
    bench.put("a", &input);
    bench.ok("coalesce -q -r a -w b");
    bench.ok("segment -q -r b -w c");
    let said = |bytes: &[u8]| {
        let mut said = Vec::new();
        each(bytes, |packet| said.push((packet.meta().flags, packet.data.to_vec())));
        said.sort();
        said
    };
    let before = said(&input);
    assert_eq!(packets(&bench.get("b")).len(), 3);
    assert_eq!(said(&bench.get("c")), before);
}

#[test]
fn partial_checksums_merge_and_return_although_pcap_cannot_record_them() {
    let bench = Bench::new();
    let packet = |i: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
        packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000)
    };
    let mut frames: Vec<_> = (0..5).map(|i| packet(i).build_partial().0).collect();
    frames.extend((5..9).map(|i| packet(i).build()));
    let input = capture(Format::Pcap, ETHERNET, &frames);
    assert_eq!(round_trip(&bench, &input, "", Link::Ethernet), 2);
}

#[test]
fn superframes_of_unknown_size_pass_as_they_are() {
    let bench = Bench::new();
    let frames = (0..3_u32).map(|i| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16 * 10));
        packet.tcp(|t| t.sequence(i * 14_480)).payload_len(14_480).build_superframe().0
    });
    let input = capture(Format::Pcap, ETHERNET, &frames.collect::<Vec<_>>());
    bench.put("a", &input);
    let run = bench.ok("coalesce -r a -w b");
    assert!(run.stderr.contains("note: 3 superframes of the input could not be merged further"));
    assert_eq!(packets(&bench.get("b")), packets(&input));
}

#[test]
fn packets_with_comments_pass_in_their_place() {
    let bench = Bench::new();
    let frames: Vec<_> = (0..6_u32)
        .map(|i| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
            packet.tcp(|t| t.sequence(i * 100)).payload_len(100).build()
        })
        .collect();
    let plain = capture(Format::Pcapng, ETHERNET, &frames);
    // The third packet gets a comment: an option of eight bytes, and four bytes that end the list.
    let comment = [1, 0, 4, 0, b'h', b'e', b'r', b'e', 0, 0, 0, 0];
    let mut input = Vec::new();
    let mut reader = grosso_capture::CaptureReader::new(&plain[..]).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        let (raw, number) = match entry {
            grosso_capture::Entry::Packet(packet) => (packet.raw(), packet.number),
            grosso_capture::Entry::Block(block) => (block.raw, 0),
        };
        if number != 3 {
            input.extend_from_slice(raw);
            continue;
        }
        let length = (raw.len() + comment.len()) as u32;
        let mut block = raw[..raw.len() - 4].to_vec();
        block[4..8].copy_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&comment);
        block.extend_from_slice(&length.to_le_bytes());
        input.extend_from_slice(&block);
    }
    bench.put("a", &input);
    let run = bench.ok("coalesce --json -r a -w b");
    assert_eq!(run.json()["passed"]["capture_options"], 1);
    let merged = bench.get("b");
    assert_eq!(packets(&merged).len(), 3, "two, the one with the comment, three");
    assert!(merged.windows(4).any(|window| window == b"here"));
    bench.ok("segment -q -r b -w c");
    assert_eq!(packets(&bench.get("c")), packets(&input));
}

#[test]
fn sections_and_interfaces_are_kept_apart() {
    let bench = Bench::new();
    let mut input = Vec::new();
    for section in 0..2_u32 {
        let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
        let ethernet = writer.add_interface(&Interface::new(1)).unwrap();
        let raw = writer.add_interface(&Interface::new(101)).unwrap();
        for i in 0..8_u32 {
            let sequence = (section * 8 + i) / 2 * 50;
            let id = (section * 8 + i) / 2;
            let ip = |packet: Packet| {
                let packet = packet.ipv4(|ip| ip.id(id as u16));
                packet.tcp(|t| t.sequence(sequence)).payload_len(50).build()
            };
            let (interface, data) = if i % 2 == 0 {
                (ethernet, ip(Packet::new().ethernet(|e| e)))
            } else {
                (raw, ip(Packet::new()))
            };
            let timestamp_ns = Some(START_NS + u64::from(i));
            let meta = PacketMeta { timestamp_ns, interface, ..PacketMeta::default() };
            writer.write_packet(&meta, &data).unwrap();
        }
        input.extend(writer.finish().unwrap());
    }
    bench.put("a", &input);
    bench.ok("coalesce -q -r a -w b");
    bench.ok("segment -q -r b -w c");
    assert_eq!(frames(&bench.get("b")).len(), 4, "a train for each section and interface");
    let sorted = |bytes: &[u8]| {
        let mut packets = packets(bytes);
        packets.sort();
        packets
    };
    assert_eq!(sorted(&bench.get("c")), sorted(&input));
}

#[test]
fn pipes_do_what_files_do() {
    let bench = Bench::new();
    let frames: Vec<_> = Traffic::benign(11).take(300).collect();
    let input = capture(Format::Pcapng, ETHERNET, &frames);
    let merged = bench.pipe("coalesce -r - -w -", &input);
    assert_eq!(merged.code, 0, "{}", merged.stderr);
    assert!(
        merged.stderr.contains("superframe"),
        "the report is not on standard error: {}",
        merged.stderr
    );
    let back = bench.pipe("segment -q -r - -w -", &merged.bytes);
    assert_eq!(back.code, 0);
    assert_same(&packets(&input), &packets(&back.bytes), Link::Ethernet);
}
