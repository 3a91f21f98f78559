//! Tests that other programs understand the IP fragments of `fragment`, that `reassemble` restores the packets, and
//! that nothing is lost.
//!
//! Longer than 600 lines: the tests apply `fragment`, and then its inverse `reassemble`, to the same captures.

use std::collections::BTreeMap;

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions};
use grosso_testkit::{Packet, flows::assert_conserved, random::Random};

use crate::common::{
    Bench, ETHERNET, START_NS, Timed, capture, capture_of, frames, has, packets, tshark,
};

/// A filter for packets that tshark considers wrong.
const WRONG: &str = "_ws.malformed || _ws.expert.severity == error || ip.checksum.status == 0 || \
                     udp.checksum.status == 0 || tcp.checksum.status == 0";

/// Returns one packet of each kind that `fragment` splits, and some that it does not.
fn all_kinds() -> Vec<Vec<u8>> {
    let v4 = |id| Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(id).df(false));
    let v6 = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    let vlan = || Packet::new().ethernet(|e| e).vlan(|v| v);
    vec![
        v4(1).udp(|u| u).payload_len(4000).build(),
        v4(2).tcp(|t| t).payload_len(3001).build(),
        v4(3).udp(|u| u).payload_len(100).build(),
        Packet::new()
            .ethernet(|e| e)
            .ipv4(|ip| ip.id(4).df(true))
            .udp(|u| u)
            .payload_len(5003)
            .build(),
        // A record route option, which only the first fragment has, and a security option, which all fragments have.
        Packet::new()
            .ethernet(|e| e)
            .ipv4(|ip| ip.id(5).df(false).options(&[7, 7, 4, 0, 0, 0, 0, 130, 4, 1, 2, 0]))
            .udp(|u| u)
            .payload_len(2500)
            .build(),
        v6().udp(|u| u).payload_len(4000).build(),
        v6().hop_by_hop(|h| h).udp(|u| u).payload_len(3333).build(),
        v6().hop_by_hop(|h| h).destination_options(|d| d).tcp(|t| t).payload_len(2048).build(),
        vlan().ipv4(|ip| ip.id(6).df(false)).udp(|u| u).payload_len(1999).build(),
        vlan().vlan(|v| v).ipv6(|ip| ip).udp(|u| u).payload_len(60_000).build(),
        v4(7).udp(|u| u).payload_len(65_507).build(),
    ]
}

/// Fragments the packets of file `a` into file `b`, with an MTU of 1280 bytes.
fn fragment(bench: &Bench, input: &[u8]) {
    bench.put("a", input);
    bench.ok("fragment -q -r a -w b --mtu 1280 --ignore-df --strict");
}

/// Returns fragments of an IPv4 datagram. For each, `pieces` contains the offset, whether more fragments follow, and
/// the data.
fn pieces(id: u16, pieces: &[(u16, bool, &[u8])]) -> Vec<Vec<u8>> {
    let piece = |&(offset, more, data): &(u16, bool, &[u8])| {
        let ip = Packet::new().ethernet(|e| e).ipv4(move |ip| {
            let ip = ip.id(id).df(false).fragment_offset(offset / 8).more_fragments(more);
            ip.protocol(17)
        });
        ip.payload(data).build()
    };
    pieces.iter().map(piece).collect()
}

#[test]
fn every_kind_of_packet_comes_back_with_its_time() {
    let bench = Bench::new();
    let input = capture(Format::Pcapng, ETHERNET, &all_kinds());
    fragment(&bench, &input);
    let lengths: Vec<_> = frames(&bench.get("b")).iter().map(Vec::len).collect();
    assert!(lengths.len() > 100 && lengths.iter().all(|&len| len <= 14 + 8 + 1280), "{lengths:?}");
    bench.ok("reassemble -q -r b -w c --strict");
    assert_eq!(packets(&bench.get("c")), packets(&input));
}

/// The smallest MTU of IPv4 results in thousands of fragments of 16 and 48 bytes.
#[test]
fn d16_what_fragment_makes_for_any_mtu_reassemble_joins() {
    let bench = Bench::new();
    let mut all = all_kinds();
    let options = |ip: grosso_testkit::headers::Ipv4| ip.id(8).df(false).options(&[1; 40]);
    let longest = || Packet::new().ethernet(|e| e).ipv4(options);
    all.push(longest().udp(|u| u).payload_len(65_515 - 48).build());
    all.push(longest().tcp(|t| t).payload_len(1000).build());
    let input = capture(Format::Pcap, ETHERNET, &all);
    bench.put("a", &input);
    for mtu in [68, 72, 76, 80, 84, 88] {
        let line = format!("fragment --json -r a -w b --mtu {mtu} --ignore-df");
        assert!(bench.ok(&line).json()["fragments"].as_u64().unwrap() > 5000);
        bench.ok("reassemble -q -r b -w c --strict");
        assert!(packets(&bench.get("c")) == packets(&input), "MTU {mtu}");
    }
}

#[test]
fn c12_a_wrong_ipv4_header_checksum_is_left_and_counted() {
    let bench = Bench::new();
    let packet = |bits| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false).checksum_xor(bits));
        packet.udp(|u| u.checksum_xor(bits)).payload_len(2000).build()
    };
    bench.put("a", &capture(Format::Pcap, ETHERNET, &[packet(1)]));
    let report = bench.ok("fragment --json -r a -w b --mtu 1280").json();
    assert_eq!(report["left"], serde_json::json!({ "ipv4_checksum": 1 }));
    assert_eq!(bench.get("b"), bench.get("a"));
    assert_eq!(bench.run("fragment -q -r a -w b --mtu 1280 --strict").code, 1);
    // A wrong transport checksum stays wrong in the fragments.
    let wrong = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|u| u.checksum_xor(1));
    let wrong = wrong.payload_len(2000).build();
    bench.put("a", &capture(Format::Pcap, ETHERNET, core::slice::from_ref(&wrong)));
    bench.ok("fragment -q -r a -w b --mtu 1280 --strict");
    bench.ok("reassemble -q -r b -w c");
    assert_eq!(frames(&bench.get("c")), [wrong]);
    assert_eq!(bench.run("csum verify -q -r c").code, 1);
}

#[test]
fn d16_atomic_fragments_lose_their_header() {
    let bench = Bench::new();
    let datagram = |is_atomic| {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).hop_by_hop(|h| h);
        let packet = if is_atomic { packet.fragment(|f| f.id(7)) } else { packet };
        packet.udp(|u| u).payload_len(100).build()
    };
    bench.put("a", &capture(Format::Pcap, ETHERNET, &[datagram(true)]));
    bench.ok("reassemble -q -r a -w b --strict");
    assert_eq!(frames(&bench.get("b")), [datagram(false)]);
}

#[test]
fn fragments_of_all_packets_in_any_order_come_back() {
    let bench = Bench::new();
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let input = capture(Format::Pcap, ETHERNET, &all_kinds());
        fragment(&bench, &input);
        let mut fragments = frames(&bench.get("b"));
        random.shuffle(&mut fragments);
        bench.put("c", &capture(Format::Pcap, ETHERNET, &fragments));
        bench.ok("reassemble -q -r c -w d --strict");
        let output = packets(&bench.get("d"));
        let data: Vec<_> = output.iter().map(|(_, data)| data.clone()).collect();
        assert_conserved(&frames(&input), &data);
        assert!(output.is_sorted_by_key(|(time, _)| *time), "seed {seed}");
    }
}

#[test]
fn tshark_joins_what_fragment_writes_and_finds_nothing_wrong() {
    if !has("tshark") {
        return;
    }
    let bench = Bench::new();
    let input = capture(Format::Pcap, ETHERNET, &all_kinds());
    fragment(&bench, &input);
    bench.ok("reassemble -q -r b -w c --strict");
    for file in ["b", "c"] {
        assert_eq!(tshark(&bench.path(file), WRONG), [""; 0], "{file}");
    }
    let payloads = |file| {
        let mut lines = fields(&bench, file, "udp.payload");
        lines.extend(fields(&bench, file, "tcp.payload"));
        lines.sort();
        lines
    };
    let whole = payloads("a");
    assert_eq!(whole.len(), all_kinds().len());
    assert_eq!(payloads("b"), whole);
    assert_eq!(payloads("c"), whole);
}

/// Returns the values of a field in all packets that have it.
fn fields(bench: &Bench, file: &str, field: &str) -> Vec<String> {
    let output = std::process::Command::new("tshark")
        .args(["-T", "fields", "-e", field, "-Y", field, "-r"])
        .arg(bench.path(file))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect()
}

#[test]
fn incomplete_datagrams_stay_in_their_place_and_are_listed() {
    let bench = Bench::new();
    let middle = pieces(0x4d, &[(0, true, &[1; 16]), (32, true, &[2; 16]), (56, false, &[3; 5])]);
    let end = pieces(0x4e, &[(0, true, &[4; 24])]);
    let start = pieces(0x4f, &[(24, false, &[5; 3])]);
    let other = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(9).build();
    let all = [&middle[..2], &end, &[other], &start, &middle[2..]].concat();
    let input = capture(Format::Pcap, ETHERNET, &all);
    bench.put("a", &input);
    let run = bench.ok("reassemble -r a -w b");
    assert_eq!(bench.get("b"), input);
    let shown = "\
b: 6 -> 6 packets; 0 datagrams of 0 fragments
3 sets of fragments left unchanged:
  192.168.1.200 > 192.168.1.100, identification 0x004d, UDP
    missing; packets 1-2, 6; missing bytes 16-31, 48-55
  192.168.1.200 > 192.168.1.100, identification 0x004e, UDP
    missing; packet 3; missing everything from byte 24 on
  192.168.1.200 > 192.168.1.100, identification 0x004f, UDP
    missing; packet 5; missing bytes 0-23
";
    assert_eq!(run.stdout, shown);
    assert_eq!(bench.run("reassemble -q -r a -w b --strict").code, 1);
    let report = bench.ok("reassemble --json -r a -w b").json();
    assert_eq!(report["schema"], "grosso.reassemble/1");
    assert_eq!(report["left"], serde_json::json!({"missing": 3}));
    let open = serde_json::json!([{"start": 24, "end": null}]);
    assert_eq!(report["sets"][1]["missing"], open);
    let set = &report["sets"][0];
    assert_eq!(set["packets"], serde_json::json!([1, 2, 6]));
    let gaps = serde_json::json!([{"start": 16, "end": 32}, {"start": 48, "end": 56}]);
    assert_eq!((&set["missing"], set["data_bytes"].as_u64()), (&gaps, Some(61)));
    assert_eq!(report["sets"][1]["data_bytes"], serde_json::Value::Null);
}

#[test]
fn overlapping_fragments_follow_the_policy() {
    let bench = Bench::new();
    let (a, b, c) = ([b'a'; 24], [b'b'; 16], [b'c'; 8]);
    let all = pieces(9, &[(0, true, &a), (16, true, &b), (32, false, &c)]);
    let input = capture(Format::Pcap, ETHERNET, &all);
    bench.put("a", &input);
    let run = bench.ok("reassemble -r a -w b");
    assert_eq!(bench.get("b"), input);
    assert!(run.stdout.contains("UDP\n    overlap; packets 1-2\n"), "{}", run.stdout);
    // A later fragment of an abandoned datagram is refused too.
    assert!(run.stdout.contains("  refused          dead 1 (packet 3)\n"), "{}", run.stdout);
    assert_eq!(bench.run("reassemble -q -r a -w b --strict").code, 1);
    for (policy, data) in [("first", [&a[..], &b[8..], &c]), ("last", [&a[..16], &b, &c])] {
        bench.ok(&format!("reassemble -q -r a -w b --overlap {policy} --strict"));
        let whole = frames(&bench.get("b"));
        assert_eq!(whole.len(), 1);
        assert_eq!(whole[0][34..], data.concat(), "{policy}");
    }
    bench.ok("reassemble -q -r a -w b --overlap linux");
    assert_eq!(bench.get("b"), input);
}

#[test]
fn duplicates_vanish_with_their_datagram_and_stay_without_it() {
    let bench = Bench::new();
    let all = pieces(9, &[(0, true, &[1; 16]), (0, true, &[1; 16]), (16, false, &[2; 3])]);
    bench.put("a", &capture(Format::Pcap, ETHERNET, &all));
    let report = bench.ok("reassemble --json -r a -w b --strict").json();
    assert_eq!((&report["datagrams"], &report["duplicates"]), (&1.into(), &1.into()));
    assert_eq!(frames(&bench.get("b")).len(), 1);
    bench.put("a", &capture(Format::Pcap, ETHERNET, &all[..2]));
    let report = bench.ok("reassemble --json -r a -w b").json();
    assert_eq!((&report["datagrams"], &report["duplicates"]), (&0.into(), &0.into()));
    assert_eq!(report["sets"][0]["packets"], serde_json::json!([1, 2]));
    assert_eq!(frames(&bench.get("b")), all[..2]);
}

#[test]
fn fragments_of_different_vlans_are_distinguished() {
    let bench = Bench::new();
    let piece = |vlan, offset: u16, more, byte| {
        let packet = Packet::new().ethernet(|e| e).vlan(move |v| v.id(vlan)).ipv4(move |ip| {
            let ip = ip.id(1).df(false).protocol(17);
            ip.fragment_offset(offset / 8).more_fragments(more)
        });
        packet.payload(&[byte; 16]).build()
    };
    // The second datagram is complete; one fragment of the first is duplicated.
    let all = [
        piece(1, 0, true, b'a'),
        piece(2, 0, true, b'b'),
        piece(1, 0, true, b'a'),
        piece(2, 16, false, b'b'),
    ];
    bench.put("a", &capture(Format::Pcap, ETHERNET, &all));
    bench.ok("reassemble -q -r a -w b");
    let output = frames(&bench.get("b"));
    assert_eq!(output.len(), 3);
    assert_eq!(output[..2], [all[0].clone(), all[2].clone()]);
    assert_eq!(output[2][38..], [b'b'; 32]);
}

#[test]
fn capture_time_ends_waiting() {
    let bench = Bench::new();
    let all = pieces(9, &[(0, true, &[1; 16]), (16, false, &[2; 3])]);
    let other = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).build();
    let second = 1_000_000_000;
    let timed: Vec<Timed> = vec![
        (START_NS, all[0].clone()),
        (START_NS + second, other),
        (START_NS + 2 * second, all[1].clone()),
    ];
    let input = capture_of(Format::Pcap, ETHERNET, &timed);
    bench.put("a", &input);
    bench.ok("reassemble -q -r a -w b --strict --timeout 2100ms");
    assert_eq!(packets(&bench.get("b")).len(), 2);
    let run = bench.run("reassemble -r a -w b --strict --timeout 1s");
    assert_eq!(run.code, 1);
    assert_eq!(bench.get("b"), input);
    assert!(
        run.stdout.contains("timeout; packet 1; missing everything from byte"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("missing; packet 3; missing bytes 0-15"), "{}", run.stdout);
    assert_eq!(bench.run("reassemble -r a -w b --timeout 30").code, 2);
    // Unfragmented packets advance the time too.
    bench.put("a", &capture_of(Format::Pcap, ETHERNET, &timed[..2]));
    let run = bench.ok("reassemble -r a -w b --timeout 1s");
    assert!(
        run.stdout.contains("timeout; packet 1; missing everything from byte"),
        "{}",
        run.stdout
    );
}

#[test]
fn interfaces_and_sections_are_not_mixed() {
    let bench = Bench::new();
    let all = pieces(9, &[(0, true, &[1; 16]), (16, false, &[2; 3])]);
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    for piece in &all {
        let number = writer.add_interface(&Interface::new(ETHERNET)).unwrap();
        let meta =
            PacketMeta { timestamp_ns: Some(START_NS), interface: number, ..PacketMeta::default() };
        writer.write_packet(&meta, piece).unwrap();
    }
    let two_interfaces = writer.finish().unwrap();
    let section = |piece: usize| capture(Format::Pcapng, ETHERNET, &all[piece..=piece]);
    for input in [two_interfaces, [section(0), section(1)].concat()] {
        bench.put("a", &input);
        let report = bench.ok("reassemble --json -r a -w b").json();
        assert_eq!(report["datagrams"], 0);
        assert_eq!(report["left"], serde_json::json!({"end_of_capture": 1, "missing": 1}));
        assert_eq!(packets(&bench.get("b")), packets(&input));
    }
}

/// If the user stops `tcpdump | grosso` with Ctrl-C, the packets received so far must be in the output.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_that_is_interrupted_gives_what_came() {
    use std::{io::Write, process::Stdio};

    let bench = Bench::new();
    let input = capture(Format::Pcap, ETHERNET, &all_kinds()[..3]);
    fragment(&bench, &input);
    let fragments = bench.get("b");
    let mut command = bench.command("reassemble -r - -w c");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fragments).unwrap();
    let read = || {
        let text = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
        let written = text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        written.parse::<usize>().unwrap()
    };
    while read() < fragments.len() {
        std::thread::yield_now();
    }
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let run = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(run.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&run.stdout).contains("2 datagrams of 7 fragments"));
    assert_eq!(packets(&bench.get("c")), packets(&input));
}

#[test]
fn a_pipe_gives_what_a_file_does() {
    let bench = Bench::new();
    fragment(&bench, &capture(Format::Pcap, ETHERNET, &all_kinds()));
    bench.ok("reassemble -q -r b -w c");
    let piped = bench.pipe("reassemble -q -r - -w -", &bench.get("b"));
    assert_eq!((piped.code, piped.stderr.as_str()), (0, ""));
    assert_eq!(piped.bytes, bench.get("c"));
    let cut = bench.get("b");
    let run = bench.pipe("reassemble -r - -w d", &cut[..cut.len() - 9]);
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("standard input: ends inside packet"), "{}", run.stderr);
    assert!(run.stdout.contains("missing"), "{}", run.stdout);
}

#[test]
fn fragments_that_the_capture_cut_stay() {
    let bench = Bench::new();
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
    let whole = pieces(9, &[(0, true, &[1; 64]), (64, false, &[2; 3])]);
    for piece in &whole {
        let meta = PacketMeta {
            timestamp_ns: Some(START_NS),
            original_len: piece.len() as u32,
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, &piece[..piece.len().min(60)]).unwrap();
    }
    let input = writer.finish().unwrap();
    bench.put("a", &input);
    let run = bench.run("reassemble -r a -w b --strict");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("  not reassembled  truncated 1\n"), "{}", run.stdout);
    assert_eq!(bench.get("b"), input);
}

#[test]
fn little_memory_evicts_the_oldest_datagram_and_reports_it() {
    let bench = Bench::new();
    let first = |id| pieces(id, &[(0, true, &[1; 1000])]);
    let mut all: Vec<_> = (0..200).flat_map(first).collect();
    all.extend(pieces(199, &[(1000, false, &[2; 8])]));
    bench.put("a", &capture(Format::Pcap, ETHERNET, &all));
    let report = bench.ok("reassemble --json -r a -w b --memory 128K").json();
    assert_eq!(report["datagrams"], 1);
    let (evicted, lost) = (&report["left"]["memory_full"], &report["left"]["missing"]);
    assert!(evicted.as_u64().unwrap() > 100, "{report}");
    assert_eq!(evicted.as_u64().unwrap() + lost.as_u64().unwrap(), 199);
    assert_eq!(frames(&bench.get("b"))[..199], all[..199]);
    let text = bench.ok("reassemble -r a -w b --memory 128K").stdout;
    assert!(text.ends_with("  and 189 more (-v lists them)\n"), "{text}");
    assert_eq!(bench.run("reassemble -r a -w b --memory 1K").code, 2);
}

#[test]
fn nothing_is_lost_whatever_comes() {
    let bench = Bench::new();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        fragment(&bench, &capture(Format::Pcap, ETHERNET, &all_kinds()[..9]));
        let mut fragments = Vec::new();
        for mut frame in frames(&bench.get("b")) {
            let copies = *random.choose(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
            for _ in 0..copies {
                fragments.push(frame.clone());
            }
            if random.one_in(20) {
                // A flipped bit turns the frame into another fragment at the same position, or into an invalid frame.
                let at = random.within(14, frame.len() - 1);
                frame[at] ^= 1 << random.below(8);
                fragments.push(frame);
            }
        }
        for _ in 0..random.below(30) {
            let (one, other) = (random.below(fragments.len()), random.below(fragments.len()));
            fragments.swap(one, other);
        }
        bench.put("c", &capture(Format::Pcap, ETHERNET, &fragments));
        let policy = random.choose(&["drop", "first", "last", "linux"]);
        let report = bench.ok(&format!("reassemble --json -r c -w d --overlap {policy}")).json();
        let count = |name: &str| report[name].as_u64().unwrap() as usize;
        let output = frames(&bench.get("d"));
        let vanished = count("fragments") + count("duplicates");
        assert_eq!(fragments.len() - vanished + count("datagrams"), output.len(), "seed {seed}");
        let mut came: BTreeMap<&[u8], usize> = BTreeMap::new();
        fragments.iter().for_each(|frame| *came.entry(frame).or_default() += 1);
        let new = output.iter().filter(|frame| match came.get_mut(frame.as_slice()) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
        assert_eq!(new.count(), count("datagrams"), "seed {seed}");
        // Listed packets are in the output, each at most once.
        let listed: usize = report["sets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|set| set["packets"].as_array().unwrap().len())
            .sum();
        let refused = report["refused"].as_object().unwrap();
        let refused: u64 = refused.values().map(|set| set["count"].as_u64().unwrap()).sum();
        let passed = report["passed"].as_object().unwrap();
        let passed: u64 = passed.values().map(|count| count.as_u64().unwrap()).sum();
        let plain = fragments.len() - vanished - listed - (refused + passed) as usize;
        assert!(plain <= 4 + fragments.len() / 20, "seed {seed}: {plain} are not accounted for");
    }
}

#[test]
fn what_must_not_be_cut_stays_whole_and_is_named() {
    let bench = Bench::new();
    let df = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).udp(|u| u).payload_len(3000);
    let superframe = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).tcp(|t| t);
    let (superframe, ..) = superframe.payload_len(20_000).build_superframe();
    let small = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).udp(|u| u).payload_len(30);
    let all = [df.build(), superframe, small.build()];
    let input = capture(Format::Pcap, ETHERNET, &all);
    bench.put("a", &input);
    let run = bench.ok("fragment -r a -w b --mtu 1500");
    assert_eq!(bench.get("b"), input);
    assert_eq!(
        run.stdout,
        "b: 3 -> 3 packets; 0 split into 0 fragments\n  longer than MTU  dont_fragment 1, \
         superframe 1\n"
    );
    assert_eq!(
        run.stderr.lines().take(4).collect::<Vec<_>>(),
        [
            "grosso: note: 1 packet longer than the MTU not fragmented: DF forbids fragmentation",
            "grosso: hint: to fragment such packets anyway, pass --ignore-df",
            "grosso: note: 1 superframe not fragmented: a superframe consists of several packets",
            "grosso: hint: to split superframes into packets first, run `grosso wire`",
        ]
    );
    assert_eq!(bench.run("fragment -q -r a -w b --mtu 1500 --strict").code, 1);
    let report = bench.ok("fragment --json -r a -w b --mtu 1500 --ignore-df").json();
    assert_eq!(report["schema"], "grosso.fragment/1");
    assert_eq!((&report["cut"], &report["fragments"]), (&1.into(), &3.into()));
    assert_eq!(report["left"], serde_json::json!({"superframe": 1}));
    assert_eq!(bench.run("fragment -r a -w b").code, 2, "the user must set the MTU");
    assert_eq!(bench.run("fragment -r a -w b --mtu 67").code, 2);
}

#[test]
fn partial_checksums_are_completed_before_anything_is_cut() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|u| u).payload_len(4000);
    bench.put("a", &capture(Format::Pcap, ETHERNET, &[packet.build_partial().0]));
    bench.ok("fragment -q -r a -w b --mtu 1500 --strict");
    bench.ok("reassemble -q -r b -w c --strict");
    assert_eq!(frames(&bench.get("c")), [packet.build()]);
}

/// Regression test: TCP superframes below the size of a jumbo packet were split into fragments that no host ever sent.
#[test]
fn fragment_uses_the_classifier_and_the_user_overrides_it() {
    let bench = Bench::new();
    let headers = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false));
    let stream = headers.clone().tcp(|t| t).payload_len(8000);
    let datagram = headers.udp(|u| u).payload_len(4000);
    let left = |input: &Packet, options: &str| {
        bench.put("a", &capture(Format::Pcap, ETHERNET, &[input.build_superframe().0]));
        bench.ok(&format!("fragment --json -r a -w b --mtu 1300 {options}")).json()
    };
    for (input, options, wanted) in [
        (&stream, "", serde_json::json!({"superframe": 1})),
        (&stream, "--mss 1448", serde_json::json!({"superframe": 1})),
        (&stream, "--mss 8000", serde_json::json!({})),
        // IP splits a datagram into fragments if it is longer than the link's MTU.
        (&datagram, "", serde_json::json!({})),
        (&datagram, "--uso-size 1200", serde_json::json!({"superframe": 1})),
    ] {
        let report = left(input, options);
        assert_eq!(report["left"], wanted, "{options}: {report}");
        if wanted == serde_json::json!({}) {
            bench.ok("reassemble -q -r b -w c --strict");
            assert_eq!(frames(&bench.get("c")), [input.build()], "{options}");
        }
    }
}

/// Rules C50, C51: the checksum field holds the pseudo-header sum, and the tunnel header asks the receiver to complete
/// the checksum.
#[test]
fn a_checksum_that_a_tunnel_leaves_to_the_receiver_stays() {
    let bench = Bench::new();
    let outer = |id| Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id).df(false)).udp(|u| u);
    let inner = |packet: Packet| packet.ipv4(|ip| ip).tcp(|t| t).payload_len(2000).build();
    let frames = [
        inner(outer(1).gue(|g| g.remote_checksum())),
        inner(outer(2).vxlan(|v| v.remote_checksum()).ethernet(|e| e)),
    ];
    let input = capture(Format::Pcap, ETHERNET, &frames);
    fragment(&bench, &input);
    bench.ok("reassemble -q --strict -r b -w c");
    assert!(bench.get("c") == input);
}

#[test]
fn one_seed_gives_one_file_and_none_gives_others() {
    let bench = Bench::new();
    let v6 = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).payload_len(4000).build();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &[v6.clone(), v6]));
    let made = |seed: &str| {
        bench.ok(&format!("fragment -q -r a -w b --mtu 1280 {seed}"));
        frames(&bench.get("b"))
    };
    assert_eq!(made("--seed 7"), made("--seed 7"));
    assert_ne!(made("--seed 7"), made("--seed 8"));
    assert_ne!(made(""), made(""));
    let seven = made("--seed 7");
    let identification = |frame: &Vec<u8>| frame[58..62].to_vec();
    let half = seven.len() / 2;
    assert!(seven[..half].iter().all(|f| identification(f) == identification(&seven[0])));
    assert_ne!(identification(&seven[0]), identification(&seven[half]));
}

#[test]
fn a_datagram_beyond_the_snapshot_length_is_written_whole() {
    let bench = Bench::new();
    let packet =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|u| u).payload_len(60_000);
    fragment(&bench, &capture(Format::Pcap, ETHERNET, &[packet.build()]));
    let mut options = WriterOptions::new(Format::Pcap);
    options.interface = Interface { snaplen: 1514, ..Interface::new(ETHERNET) };
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for (time, data) in packets(&bench.get("b")) {
        let meta = PacketMeta { timestamp_ns: Some(time), ..PacketMeta::default() };
        writer.write_packet(&meta, &data).unwrap();
    }
    bench.put("b", &writer.finish().unwrap());
    bench.ok("reassemble -q -r b -w c --strict");
    assert_eq!(frames(&bench.get("c")), [packet.build()]);
    if has("tcpdump") {
        // libpcap truncates packets that are longer than the snap length in the file header.
        let output = std::process::Command::new("tcpdump")
            .args(["-w", "-", "-r"])
            .arg(bench.path("c"))
            .output()
            .unwrap();
        assert_eq!(frames(&output.stdout), [packet.build()]);
    }
}

#[test]
fn fragments_of_fragments_are_one_set() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false).id(3));
    let packet = packet.udp(|u| u).payload_len(9000).build();
    bench.put("a", &capture(Format::Pcap, ETHERNET, std::slice::from_ref(&packet)));
    bench.ok("fragment -q -r a -w b --mtu 1500");
    bench.ok("fragment -q -r b -w c --mtu 576");
    bench.ok("reassemble -q -r c -w d --strict");
    assert_eq!(frames(&bench.get("d")), [packet]);
}

/// Returns 35 datagrams of four fragments each: the first fragments of all datagrams, then the rest of each datagram.
fn interleaved(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    assert_eq!(frames.len(), 35 * 4);
    let firsts = frames.chunks(4).map(|datagram| datagram[0].clone());
    firsts.chain(frames.chunks(4).flat_map(|datagram| datagram[1..].to_vec())).collect()
}

/// In a file, even many interleaved fragments do not mean that an identification was reused. Rule F4 applies only to
/// hosts with little memory.
#[test]
fn d15_many_interleaved_datagrams_of_one_source_are_all_joined() {
    let bench = Bench::new();
    let datagram = |id| {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(id).df(false));
        packet.udp(|u| u).payload(&vec![id as u8; 2000]).build()
    };
    let whole: Vec<_> = (1..=35).map(datagram).collect();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &whole));
    bench.ok("fragment -q -r a -w b --mtu 576");
    bench.put("c", &capture(Format::Pcap, ETHERNET, &interleaved(&frames(&bench.get("b")))));
    bench.ok("reassemble -q -r c -w d --strict");
    assert_eq!(frames(&bench.get("d")), whole);
    if has("tshark") {
        assert_eq!(tshark(&bench.path("c"), "ip.fragments").len(), 35);
        assert_eq!(fields(&bench, "c", "udp.payload"), fields(&bench, "d", "udp.payload"));
    }
    let report = bench.ok("reassemble --json -r c -w d --distance 64").json();
    assert!(report["left"]["distance"].as_u64().unwrap() > 10, "{report}");
    assert!(report["datagrams"].as_u64().unwrap() < 35, "{report}");
}

#[test]
fn d15_many_interleaved_datagrams_around_a_tunnel_are_all_joined() {
    let bench = Bench::new();
    let inner = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(2000).build();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &vec![inner.clone(); 35]));
    let tunnel = "type vxlan id 42 local 192.0.2.1 remote 192.0.2.2 df unset";
    bench.ok(&format!("encap -q -r a -w b --seed 1 {tunnel}"));
    bench.ok("fragment -q -r b -w c --mtu 576 --strict");
    bench.put("d", &capture(Format::Pcap, ETHERNET, &interleaved(&frames(&bench.get("c")))));
    bench.ok("decap -q --recursive -r d -w e --strict");
    assert_eq!(frames(&bench.get("e")), vec![inner; 35]);
    let report = bench.ok("decap --json --recursive -r d -w e --distance 64").json();
    assert!(report["joined"][0]["left"]["distance"].as_u64().unwrap() > 10, "{report}");
}

/// A missing fragment was lost if data that follows it in the datagram arrived, or if the sender started another
/// datagram. Otherwise, it may have arrived after the end of the capture.
#[test]
fn d16_a_lost_fragment_is_distinguished_from_the_end_of_the_capture() {
    let bench = Bench::new();
    let gap = pieces(1, &[(0, true, &[1; 16]), (32, true, &[2; 16])]);
    let cut = pieces(2, &[(0, true, &[3; 16]), (16, true, &[4; 16])]);
    let last = pieces(3, &[(16, false, &[5; 3])]);
    // Two datagrams whose fragments alternate until the capture ends.
    let ends = [4, 5].map(|id| pieces(id, &[(0, true, &[6; 16]), (16, true, &[7; 16])]));
    let ends = (0..2).flat_map(|piece| ends.iter().map(move |set| set[piece].clone()));
    let all: Vec<_> = [gap, cut, last].concat().into_iter().chain(ends).collect();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &all));
    let run = bench.ok("reassemble -r a -w b");
    for line in [
        "missing; packets 1-2; missing bytes 16-31 and everything from byte 48 on",
        "missing; packets 3-4; missing everything from byte 32 on",
        "missing; packet 5; missing bytes 0-15",
        "end_of_capture; packets 6, 8; missing everything from byte 32 on",
        "end_of_capture; packets 7, 9; missing everything from byte 32 on",
    ] {
        assert!(run.stdout.contains(&format!("    {line}\n")), "{line}\n{}", run.stdout);
    }
    let report = bench.ok("reassemble --json -r a -w b").json();
    let open = |start| serde_json::json!({"start": start, "end": null});
    let missing = |set: usize| &report["sets"][set]["missing"];
    let inner = serde_json::json!({"start": 16, "end": 32});
    assert_eq!(*missing(0), serde_json::json!([inner, open(48)]));
    for set in [1, 3, 4] {
        assert_eq!(*missing(set), serde_json::json!([open(32)]), "set {set}");
    }
}

/// Offset of the checksum in an IPv4 header after Ethernet.
const HEADER_CHECKSUM: usize = 14 + 10;

/// Every command assumes that a header checksum of 0 was left to a device, and that any other wrong header checksum is
/// damage.
#[test]
fn fragments_whose_header_checksum_is_left_to_the_device_are_joined() {
    let bench = Bench::new();
    let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(9).df(false)).udp(|u| u);
    let whole = whole.payload_len(4000).build();
    fragment(&bench, &capture(Format::Pcap, ETHERNET, std::slice::from_ref(&whole)));
    let fragments = frames(&bench.get("b"));
    let with = |checksum: &dyn Fn(&mut [u8])| {
        let changed = fragments.iter().map(|frame| {
            let mut frame = frame.clone();
            checksum(&mut frame[HEADER_CHECKSUM..HEADER_CHECKSUM + 2]);
            frame
        });
        capture(Format::Pcap, ETHERNET, &changed.collect::<Vec<_>>())
    };
    bench.put("open", &with(&|field| field.fill(0)));
    assert_eq!(bench.ok("csum verify --json open").json()["checksums"]["bad"], 0);
    let report = bench.ok("reassemble --strict --json -r open -w c").json();
    assert_eq!((&report["datagrams"], &report["fragments"]), (&1.into(), &4.into()), "{report}");
    assert_eq!(frames(&bench.get("c")), std::slice::from_ref(&whole));
    // In an anonymized capture every header checksum is wrong and must be corrected first.
    bench.put("wrong", &with(&|field| field[0] ^= 0x5a));
    let run = bench.ok("reassemble -r wrong -w c");
    assert!(run.stderr.contains("grosso csum fix --only bad"), "{}", run.stderr);
    assert_eq!(bench.get("c"), bench.get("wrong"));
    bench.ok("csum fix -q --only bad -r wrong -w fixed");
    bench.ok("reassemble -q --strict -r fixed -w c");
    assert_eq!(frames(&bench.get("c")), [whole]);
}

/// A checksum of 0 in the outer header of a tunnel is also left to a device.
#[test]
fn a_tunnel_whose_header_checksum_is_left_to_the_device_is_removed() {
    let bench = Bench::new();
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    let whole = outer.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(100).build();
    let mut frame = whole.clone();
    frame[HEADER_CHECKSUM..HEADER_CHECKSUM + 2].fill(0);
    bench.put("a", &capture(Format::Pcap, ETHERNET, &[frame, whole]));
    let report = bench.ok("decap --json --strict -r a -w b").json();
    assert_eq!(report["decapsulated"], 2, "{report}");
    let output = frames(&bench.get("b"));
    assert_eq!(output[0], output[1]);
}

/// Grosso remembers the last datagram of a limited number of address pairs. Beyond this limit, an incomplete datagram
/// counts as cut off by the end of the capture, even if its source sent another one.
#[test]
fn d17_pairs_of_addresses_beyond_the_bound_are_not_remembered() {
    const PAIRS_MAX: u32 = 65536;
    let first = |pair: u32, id: u16| {
        let [_, a, b, c] = pair.to_be_bytes();
        let packet = Packet::new()
            .ethernet(|e| e)
            .ipv4(|ip| ip.source([10, a, b, c]).id(id).df(false).protocol(17).more_fragments(true));
        packet.payload(&[1; 16]).build()
    };
    for (others, is_remembered) in [(PAIRS_MAX - 1, true), (PAIRS_MAX, false)] {
        let mut all: Vec<_> = (0..others).map(|pair| first(pair, 1)).collect();
        // The source of this pair starts a second datagram.
        all.extend([first(others, 1), first(others, 2)]);
        let bench = Bench::new();
        bench.put("a", &capture(Format::Pcap, ETHERNET, &all));
        let left = bench.ok("reassemble --json -r a -w b").json()["left"].clone();
        assert_eq!(left["missing"] == 1, is_remembered, "{others}: {left}");
    }
}
