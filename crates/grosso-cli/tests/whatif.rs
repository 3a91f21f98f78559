//! `whatif` measures the effect of `coalesce` for many settings at once.
//!
//! Longer than 600 lines: all cases compare a report with the same model of `coalesce`.

use std::{collections::BTreeMap, process::Command};

use grosso::coalesce::RoundTrips;
use grosso_capture::Format;
use grosso_testkit::{Packet, Traffic, headers::Tcp};
use grosso_wire::{LinkType, Ports};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, START_NS, Timed, capture, capture_of, packets};

/// Returns a segment of a stream whose segments have 100 bytes.
fn segment(index: u32, change: fn(Tcp) -> Tcp) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
    packet.tcp(|t| change(t.sequence(index * 100))).payload_len(100).build()
}

/// Returns a stream of segments, each given by its arrival time in microseconds and its index.
fn disordered(packets: &[(u64, u32)]) -> Vec<u8> {
    let at = |&(time_us, index): &(u64, u32)| (START_NS + time_us * 1000, segment(index, |t| t));
    capture_of(Format::Pcapng, ETHERNET, &packets.iter().map(at).collect::<Vec<Timed>>())
}

/// Returns a stream whose segments arrive at these times in microseconds.
fn stream(times_us: &[u64]) -> Vec<u8> {
    let at =
        |(index, time_us): (u32, &u64)| (START_NS + time_us * 1000, segment(index, |t| t)) as Timed;
    capture_of(Format::Pcapng, ETHERNET, &(0..).zip(times_us).map(at).collect::<Vec<_>>())
}

/// Runs `whatif` with one setting, and returns the figures of this setting.
fn only(bench: &Bench, line: &str) -> Value {
    let report = bench.ok(&format!("whatif --json {line}")).json();
    assert_eq!(report["settings"].as_array().unwrap().len(), 1, "{report}");
    report["settings"][0].clone()
}

#[test]
fn a_capture_without_packets_gets_a_sentence_instead_of_a_table() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &[]));
    let text = bench.ok("whatif a.pcap").stdout;
    assert!(text.ends_with("No packets, so there is nothing to compare.\n"), "{text}");
    assert!(!text.contains("segments/train"), "{text}");
}

#[test]
fn reordering_that_prevents_merging_is_reported_with_remedies() {
    let bench = Bench::new();
    let swapped: Vec<_> = (0..60_u32).map(|i| (u64::from(i), i ^ 1)).collect();
    bench.put("swapped", &disordered(&swapped));
    let report = bench.ok("whatif --json swapped").json();
    let disorder = &report["disorder"];
    assert_eq!((&report["best"], &disorder["packets_up"]), (&Value::Null, &60.into()));
    assert_eq!(
        (&disorder["repaired"]["packets_up"], &disorder["not_merged"]),
        (&1.into(), &59.into())
    );
    // Running the printed command gives the printed result.
    let command = disorder["command"].as_str().unwrap();
    let again = bench.ok(&format!("{} --json", command.strip_prefix("grosso ").unwrap())).json();
    assert_eq!(again["output"]["packets"], 1, "{command}");
    let cures: Vec<&str> =
        disorder["live"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(cures.iter().any(|cure| cure.contains("rx-flow-hash")), "{cures:?}");
    assert!(cures.iter().any(|cure| cure.contains("grosso bridge DEV tap:NAME --reorder batch")));
    let text = bench.ok("whatif swapped").stdout;
    assert!(
        text.contains("59 packets arrived out of order and did not continue a train."),
        "{text}"
    );

    // The printed `coalesce` command gives the same result.
    let said =
        |line: &str| bench.ok(&format!("coalesce {line}")).stderr.contains("--reorder batch");
    assert!(said("swapped") && !said("swapped --reorder batch"));

    // Packets in order and lost packets do not count as reordering. If the user already tries a reorder level, there is
    // no advice.
    bench.put("ordered", &stream(&(0..60).collect::<Vec<_>>()));
    bench.put(
        "lost",
        &disordered(
            &(0..60_u32).map(|i| (u64::from(i), i + u32::from(i > 30))).collect::<Vec<_>>(),
        ),
    );
    assert!(!said("ordered") && !said("lost"));
    for line in ["ordered", "lost", "swapped --reorder off,batch"] {
        assert_eq!(
            bench.ok(&format!("whatif --json {line}")).json()["disorder"],
            Value::Null,
            "{line}"
        );
    }
}

#[test]
fn a_useful_hold_time_is_reported_with_commands_that_set_it() {
    let bench = Bench::new();
    bench.put("a", &stream(&(0..100).map(|i| 10 * i).collect::<Vec<_>>()));
    let report = bench.ok("whatif --json --profile linux --hold 0,50us a").json();
    let live: Vec<&str> =
        report["best"]["live"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(live[0], "echo 50000 > /sys/class/net/DEV/gro_flush_timeout");
    assert!(live.contains(&"ethtool -C DEV rx-usecs 50"), "{live:?}");
    assert_eq!(live.last(), Some(&"grosso bridge DEV tap:NAME --hold 50us"));
    // A poll that includes all packets needs no hold.
    let report = bench.ok("whatif --json --profile linux --hold 0,50us --batch 1ms a").json();
    assert_eq!(report["best"]["live"], serde_json::json!([]), "{report}");
}

/// Returns a capture from the repository that the documents use.
fn of_the_tree(name: &str) -> Vec<u8> {
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures");
    std::fs::read(format!("{captures}/{name}")).unwrap()
}

/// Returns the median, the 99th percentile and the maximum of a distribution.
fn quantiles(of: &Value) -> [u64; 3] {
    ["p50", "p99", "max"].map(|name| of[name].as_u64().unwrap())
}

#[test]
fn figures_are_those_worked_out_by_hand() {
    let bench = Bench::new();
    let every_us: Vec<u64> = (0..10).collect();
    bench.put("a", &stream(&every_us));
    let at = |options: &str| only(&bench, &format!("a --profile linux {options}"));

    // Without a gap there is one poll and one train. The packets wait for the last one: 9, 8, ... 0 us.
    let poll = at("--hold 0");
    assert_eq!(poll["packets_up"], 1);
    assert_eq!((&poll["trains"], &poll["merged_packets"]), (&1.into(), &10.into()));
    assert_eq!(poll["segments_per_train"]["mean"], 10.0);
    assert_eq!(quantiles(&poll["segments_per_train"]), [10, 10, 10]);
    // 4000 is in a bucket that ends with 4001.
    assert_eq!(quantiles(&poll["held_ns"]), [4001, 9000, 9000]);
    assert_eq!(poll["closed"], serde_json::json!({ "poll_end": 1 }));

    // The third packet arrives when the first one's hold has ended, so the packets form pairs that wait 2 us and 1 us.
    // The last pair is flushed at the end of the capture.
    let held = at("--hold 2us --batch 64");
    assert_eq!((&held["packets_up"], &held["trains"]), (&5.into(), &5.into()));
    assert_eq!(quantiles(&held["segments_per_train"]), [2, 2, 2]);
    assert_eq!(quantiles(&held["held_ns"]), [1000, 2000, 2000]);
    assert_eq!(held["closed"], serde_json::json!({ "hold_time": 4, "poll_end": 1 }));

    // If gaps end polls, a stack processes each poll immediately, and no hold is shorter than a poll.
    assert_eq!(at("--hold 2us")["packets_up"], 1);

    // A gap of one microsecond does not end a poll that allows such gaps, but it ends a poll that does not.
    assert_eq!(at("--hold 0 --batch 1us")["packets_up"], 1);
    assert_eq!(at("--hold 0 --batch 999ns")["packets_up"], 10);
    assert_eq!(at("--hold 0 --batch 4")["packets_up"], 3);
    assert_eq!(at("--hold 0 --batch stamp")["packets_up"], 10);
    assert_eq!(at("--hold 0 --max-segs 3")["packets_up"], 4);
}

#[test]
fn a_train_leaves_when_its_time_is_over_and_not_when_the_next_packet_comes() {
    let bench = Bench::new();
    bench.put("a", &stream(&[0, 1, 1000, 1001, 5000]));
    let setting = only(&bench, "a --profile linux --hold 20us");
    assert_eq!(setting["packets_up"], 3);
    // The waits are 20 and 19 us, each twice; the last packet is flushed at the end of the capture.
    let [p50, p99, max] = quantiles(&setting["held_ns"]);
    assert_eq!((p50, p99, max), (19_007, 20_000, 20_000));
}

/// The connections in this capture have round-trip times of microseconds, but only a capture of both directions shows
/// that. An unknown round-trip time might be long, and then the acknowledgment clock allows only trains of two.
#[test]
fn a_hold_that_is_found_asks_both_directions_for_the_round_trip() {
    let bench = Bench::new();
    bench.put("iperf3.pcapng", &of_the_tree("iperf3.pcapng"));
    let report = bench.ok("whatif --json --profile linux --hold 0,auto iperf3.pcapng").json();
    let up = |index: usize| report["settings"][index]["packets_up"].as_u64().unwrap();
    assert_eq!(report["settings"][1]["hold"], "auto");
    assert!(up(1) <= up(0), "{} and {}", up(0), up(1));
}

/// Returns the packets that the client sent in one of the repository's captures, over Ethernet and IPv4.
fn of_the_client(name: &str) -> Vec<Timed> {
    let client = |(_, frame): &Timed| frame.get(26..30) == Some(&[192, 0, 2, 1]);
    packets(&of_the_tree(name)).into_iter().filter(client).collect()
}

/// Returns whether a packet over Ethernet and IPv4 opens a TCP connection.
fn is_syn((_, frame): &Timed) -> bool {
    frame.get(47).is_some_and(|flags| flags & 0x02 != 0)
}

#[test]
fn with_one_direction_the_handshake_or_the_user_gives_the_round_trip() {
    let bench = Bench::new();
    let mut client = of_the_client("iperf3.pcapng");
    bench.put("whole", &capture_of(Format::Pcapng, ETHERNET, &client));
    client.retain(|packet| !is_syn(packet));
    bench.put("later", &capture_of(Format::Pcapng, ETHERNET, &client));
    let auto =
        |line: &str| only(&bench, &format!("--profile linux --batch 1us --hold auto {line}"));
    let fixed =
        |line: &str| only(&bench, &format!("--profile linux --batch 1us --hold 20us {line}"));
    let ended = |setting: &Value| setting["closed"]["ack_clock"].as_u64().unwrap_or(0);

    // With round-trip times of microseconds, there is no acknowledgment clock to preserve.
    let setting = auto("whole");
    assert_eq!((&setting["blind_flows"], ended(&setting)), (&0.into(), 0), "{setting}");
    // Without the handshakes, the round-trip times could have any length.
    let blind = auto("later");
    assert_eq!(blind["blind_flows"], 3, "{blind}");
    assert!(ended(&blind) > 50 && quantiles(&blind["segments_per_train"])[2] <= 4, "{blind}");
    assert_eq!(fixed("later")["blind_flows"], 0);
    let told = auto("later --round-trip 500us");
    assert_eq!((&told["blind_flows"], ended(&told)), (&0.into(), 0), "{told}");
    // Within its limit, a sixteenth of the round-trip time, the hold is as good as a fixed one.
    assert_eq!(told["segments_per_train"]["max"], fixed("later")["segments_per_train"]["max"]);
    // A measured round-trip time takes precedence.
    assert_eq!(auto("whole --round-trip 1s")["packets_up"], setting["packets_up"]);

    let note = "note: this capture shows no round-trip time for 3 flows";
    for line in ["whatif later --profile linux --hold auto", "coalesce -r later -w a --hold auto"] {
        let run = bench.ok(line);
        assert!(run.stderr.contains(note), "{}", run.stderr);
        assert!(
            run.stderr.contains("hint: if you know the round-trip time, pass --round-trip 200us"),
            "{}",
            run.stderr
        );
        assert!(
            !bench.ok(&format!("{line} --round-trip 500us")).stderr.contains("round-trip time")
        );
        assert!(!bench.ok(&line.replace("later", "whole")).stderr.contains("round-trip time"));
    }
    let line = "whatif later --json --profile linux --hold auto --round-trip 500us --batch 1us";
    let command = bench.ok(line).json()["best"]["command"].clone();
    let again = "grosso coalesce -r later -w gro.pcapng --hold auto --batch 1us --round-trip=500us";
    assert_eq!(command, again);
}

/// tshark sees both directions, and measures the round-trip time of each connection from its handshake.
#[test]
fn the_handshake_gives_the_round_trip_of_tshark() {
    if !crate::common::has("tshark") {
        return;
    }
    let bench = Bench::new();
    bench.put("iperf3.pcapng", &of_the_tree("iperf3.pcapng"));
    let fields = ["tcp.srcport", "tcp.analysis.initial_rtt"].map(|field| ["-e", field]);
    let output = Command::new("tshark")
        .args(["-Y", "ip.src == 192.0.2.1 && tcp.analysis.initial_rtt", "-T", "fields", "-r"])
        .arg(bench.path("iperf3.pcapng"))
        .args(fields.concat())
        .output()
        .unwrap();
    let expected: BTreeMap<u16, u64> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .map(|(port, seconds)| (port.parse().unwrap(), seconds.parse::<f64>().unwrap()))
        .map(|(port, seconds)| (port, (seconds * 1e9).round() as u64))
        .collect();
    let mut round_trips = RoundTrips::new(1);
    let mut found = BTreeMap::new();
    for (time_ns, frame) in of_the_client("iperf3.pcapng") {
        let port = u16::from_be_bytes([frame[34], frame[35]]);
        let told = round_trips.observe(&frame, LinkType::Ethernet, &Ports::ASSIGNED, time_ns);
        found.extend(told.map(|round_trip_ns| (port, round_trip_ns)));
    }
    assert_eq!(expected.len(), 3);
    assert_eq!(found, expected);
}

#[test]
fn data_that_merges_with_nothing_is_a_train_of_one() {
    let bench = Bench::new();
    let acknowledgment = {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.tcp(|t| t.source_port(9)).build()
    };
    let frames = [segment(0, Tcp::psh), segment(1, |t| t), acknowledgment, segment(3, Tcp::psh)];
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &frames));
    let setting = only(&bench, "a --profile linux --hold 1ms");
    // The pure acknowledgment is not part of a train. The last segment is not merged, and its PSH ends its own train at
    // once.
    assert_eq!((&setting["packets_up"], &setting["trains"]), (&4.into(), &3.into()));
    assert_eq!(quantiles(&setting["segments_per_train"]), [1, 1, 1]);
    assert_eq!(quantiles(&setting["held_ns"]), [0, 2000, 2000]);
    let passed = serde_json::json!({ "tcp_psh": 2, "empty": 1 });
    assert_eq!(setting["passed"], passed);
    assert_eq!(setting["not_merged"], serde_json::json!({ "tcp_sequence_ahead": 1 }));
}

#[test]
fn packets_that_are_taken_flow_by_flow_wait_for_the_end_of_their_poll() {
    let bench = Bench::new();
    let two_flows = (0..20).map(|index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        let port = 7 + (index % 2) as u16;
        let packet = packet.tcp(|t| t.source_port(port).sequence(index / 2 * 100));
        packet.payload_len(100).build()
    });
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &two_flows.collect::<Vec<_>>()));
    for options in ["--hold 0", "--hold 1ms"] {
        let setting = only(&bench, &format!("a --profile freebsd {options}"));
        assert_eq!(setting["packets_up"], 2, "{options}");
        assert_eq!(quantiles(&setting["segments_per_train"]), [10, 10, 10]);
        // The capture ends with the poll, so the packets wait 19, 18, ... 0 us.
        assert_eq!(setting["held_ns"]["max"], 19_000);
        assert_eq!(quantiles(&setting["held_ns"])[0].div_ceil(100), 91, "{setting}");
    }
    // With polls of four packets and a hold of 1 us, no train continues in the next poll.
    let setting = only(&bench, "a --profile freebsd --hold 1us --batch 4");
    assert_eq!(quantiles(&setting["segments_per_train"]), [2, 2, 2]);
    assert_eq!(setting["held_ns"]["max"], 3000);
}

#[test]
fn superframes_count_as_the_packets_of_the_wire() {
    let bench = Bench::new();
    let frames: Vec<_> = (0..200).map(|index| segment(index, |t| t)).collect();
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &frames));
    bench.ok("coalesce -q -r a -w b --max-segs 50 --batch 1000");
    let report = bench.ok("whatif --json --profile linux --hold 1ms b").json();
    assert_eq!(report["input"]["packets"], 4);
    assert_eq!(report["offered"]["wire_packets"], 200);
    assert_eq!(report["offered"]["superframes"], 4);
    // The four superframes merge into one train of 200 segments, although no bucket ends at 200.
    assert_eq!(quantiles(&report["settings"][0]["segments_per_train"]), [200, 200, 200]);
    let run = bench.ok("whatif --profile linux b");
    assert!(
        run.stderr.contains(
            "note: the capture already has 4 superframes: the capturing host merged \
             received packets"
        ),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("hint: grosso wire -r b -w - | grosso whatif -r -"));
    let cut = bench.ok("segment -q -r b -w -");
    let again = bench.pipe("whatif -r - --profile linux", &cut.bytes);
    assert_eq!(again.code, 0);
    assert!(!again.stderr.contains("superframe"), "{}", again.stderr);
}

#[test]
fn every_setting_does_what_coalesce_does() {
    let bench = Bench::new();
    for name in ["iperf3.pcapng", "host.pcap", "ipv6.pcap", "vxlan.pcapng", "fragments.pcapng"] {
        bench.put(name, &of_the_tree(name));
    }
    bench.put("many", &{
        let frames: Vec<_> = Traffic::new(11).take(2000).collect();
        capture(Format::Pcapng, ETHERNET, &frames)
    });
    let inputs =
        ["iperf3.pcapng", "host.pcap", "ipv6.pcap", "vxlan.pcapng", "fragments.pcapng", "many"];
    for input in inputs {
        for batch in ["64", "stamp", "5us"] {
            let line = format!("whatif --json -r {input} --batch {batch}");
            let every = bench.ok(&format!("{line} --profile all --hold 0,20us,auto")).json();
            let repaired =
                format!("{line} --profile linux,inet-lro --hold 0,20us --reorder batch,holes");
            let repaired = bench.ok(&repaired).json();
            let settings = |report: &Value| report["settings"].as_array().unwrap().clone();
            for setting in settings(&every).into_iter().chain(settings(&repaired)) {
                let name = |key: &str| setting[key].as_str().unwrap();
                let (profile, hold, reorder) = (name("profile"), name("hold"), name("reorder"));
                let line = format!(
                    "coalesce --json -r {input} -w out.pcapng --profile {profile} --hold {hold} \
                     --batch {batch} --reorder {reorder}"
                );
                let merged = bench.ok(&line).json();
                assert_eq!(setting["packets_up"], merged["output"]["packets"], "{line}");
                assert_eq!(setting["merged_packets"], merged["superframe_packets"], "{line}");
                for figure in ["superframes", "passed", "not_merged", "closed", "waited"] {
                    assert_eq!(setting[figure], merged[figure], "{figure}: {line}");
                }
            }
        }
    }
}

#[test]
fn what_is_repaired_within_a_poll_is_worked_out_by_hand() {
    let bench = Bench::new();
    // Segments arrive at intervals of a microsecond, but each pair is swapped.
    let swapped: Vec<_> = (0..12).map(|time| (u64::from(time), time ^ 1)).collect();
    bench.put("a", &disordered(&swapped));
    let report = bench.ok("whatif a --json --profile linux --hold 0 --reorder off,batch,holes");
    let [off, batch, holes] = [0, 1, 2].map(|index| report.json()["settings"][index].clone());
    // No segment directly follows the previous one in sequence.
    assert_eq!((&off["reorder"], &off["packets_up"]), (&"off".into(), &12.into()));
    assert_eq!(quantiles(&off["segments_per_train"]), [1, 1, 1]);
    assert_eq!(off["waited"], serde_json::json!({}));
    // All packets are in one poll. The first packet of a poll need not be the first that was sent, so all of them wait.
    for (setting, reorder) in [(batch, "batch"), (holes, "holes")] {
        assert_eq!((&setting["reorder"], &setting["packets_up"]), (&reorder.into(), &1.into()));
        assert_eq!(quantiles(&setting["segments_per_train"]), [12, 12, 12]);
        assert_eq!(setting["held_ns"]["max"], 11_000);
        assert_eq!(setting["waited"], serde_json::json!({ "finish": 12 }));
        assert_eq!(setting["not_merged"], serde_json::json!({}));
    }
    // A poll of a fixed number of packets is sorted as a whole: no hold ends within it.
    for (options, up) in
        [("--batch 6 --hold 0", 2), ("--batch 6 --hold 1ms", 1), ("--batch 64 --hold 2us", 1)]
    {
        let setting = only(&bench, &format!("a --profile linux --reorder batch {options}"));
        assert_eq!(setting["packets_up"], up, "{options}: {setting}");
    }
}

/// Segment 3 takes a longer path: it arrives 30 us after segment 4.
const TWO_PATHS: [(u64, u32); 8] =
    [(0, 0), (1, 1), (2, 2), (20, 4), (21, 5), (22, 6), (50, 3), (52, 7)];

#[test]
fn what_waits_for_a_hole_is_worked_out_by_hand() {
    let bench = Bench::new();
    bench.put("a", &disordered(&TWO_PATHS));
    let levels = "off,batch,holes,holes:25us";
    let line = format!("whatif a --profile linux --hold 0 --reorder {levels}");
    let report = bench.ok(&format!("{line} --json --html page.html")).json();
    assert_eq!(report["schema"], "grosso.whatif/1");
    // Columns: packets delivered, median and maximum number of segments per train, the longest wait in microseconds,
    // and the waits by reason.
    let expected = [
        // One train in each poll: segments 0 to 2, then 4 to 6, then 3 and 7.
        ("off", 4, [1, 3], 2, serde_json::json!({})),
        // The trains are the same as with "off". Segment 3 is late, because the segments after it have been delivered.
        ("batch", 4, [1, 3], 2, serde_json::json!({ "begun": 3, "poll_end": 3 })),
        // Segment 3 fills the hole before segments 4 to 6, which arrived 32 us before the end of the capture, and
        // segment 7 is merged with them.
        ("holes", 2, [3, 5], 32, serde_json::json!({ "begun": 3, "filled": 3 })),
        // Segments 4 to 6 waited until the hole time expired.
        ("holes:25us", 4, [1, 3], 25, serde_json::json!({ "begun": 3, "hole_time": 3 })),
    ];
    let settings = report["settings"].as_array().unwrap();
    assert_eq!(settings.len(), expected.len());
    for (setting, (reorder, up, segments, wait_us, waited)) in settings.iter().zip(expected) {
        assert_eq!((&setting["reorder"], &setting["packets_up"]), (&reorder.into(), &up.into()));
        let [p50, p99, max] = quantiles(&setting["segments_per_train"]);
        assert_eq!(([p50, p99], max), (segments, segments[1]), "{setting}");
        let [_, p99, max] = quantiles(&setting["held_ns"]);
        assert_eq!((p99, max), (wait_us * 1000, wait_us * 1000), "{setting}");
        assert_eq!(setting["waited"], waited);
        let late = setting["passed"]["tcp_late"].as_u64().unwrap_or(0);
        assert_eq!(late, u64::from(["batch", "holes:25us"].contains(&reorder)), "{setting}");
    }
    let command = "grosso coalesce -r a -w gro.pcapng --hold 0 --reorder holes --batch 5us";
    assert_eq!(report["best"]["command"], command);
    assert_eq!(report["best"]["fewest"]["reorder"], "holes");
    let merged = bench.ok(&format!("{} --json", &command["grosso ".len()..])).json();
    assert_eq!(merged["output"]["packets"], 2);

    let text = bench.ok(&line).stdout;
    let page = String::from_utf8(bench.get("page.html")).unwrap();
    assert_well_formed(&page);
    for name in
        ["linux", "linux, reorder batch", "linux, reorder holes", "linux, reorder holes:25us"]
    {
        assert!(text.contains(&format!("\n{name}\n")), "{name}: {text}");
        // The name occurs once in each of the three charts.
        assert_eq!(page.matches(&format!("\">{name}</text>")).count(), 3, "{name}");
    }
    assert!(text.contains("  waits ended by   begun 3, filled 3\n"), "{text}");
    assert!(
        text.contains(
            "
Fewest packets: linux, reorder holes with a hold time of 0: 2 packets delivered"
        ),
        "{text}"
    );
    assert!(page.contains("waits ended by: hole_time"), "{page}");
}

#[test]
fn what_is_in_order_already_is_the_same_repaired() {
    let bench = Bench::new();
    bench.put("a", &stream(&[0, 1, 2, 30, 31, 32]));
    let text = bench.ok("whatif a --profile linux --hold 0 --reorder off,batch").stdout;
    assert!(text.contains("\nlinux, reorder batch\n  the same as linux\n"), "{text}");
}

#[test]
fn the_best_setting_can_be_typed_again() {
    let bench = Bench::new();
    let bursts: Vec<u64> = (0..10).chain(30..40).collect();
    bench.put("a b.pcapng", &stream(&bursts));
    let mut command = bench.command("whatif --json --max-segs 30 -r");
    let run = crate::common::finished(command.arg("a b.pcapng").output().unwrap());
    let report = run.json();
    let best = &report["best"];
    // A hold of 50 us merges both bursts into one train and saves 19 packets. Without a hold, each burst is a train,
    // which saves 18 packets.
    let fewest = (&best["fewest"]["profile"], &best["fewest"]["hold_ns"]);
    assert_eq!(fewest, (&"linux".into(), &50_000.into()));
    assert_eq!(best["shortest"]["hold_ns"], 0, "{report}");
    let again = "grosso coalesce -r 'a b.pcapng' -w gro.pcapng --hold 0 --batch 5us --max-segs=30";
    assert_eq!(best["command"], again);
    bench.put("alone", &stream(&[0]));
    assert_eq!(bench.ok("whatif --json alone").json()["best"], Value::Null);
    let text = bench.ok("whatif alone").stdout;
    assert!(
        text.contains("No packets merge with any of these profiles, at any hold time: linux"),
        "{text}"
    );
}

#[test]
fn profiles_that_lose_are_named_and_never_the_best_while_others_are_there() {
    let bench = Bench::new();
    // Acknowledgments that advance: FreeBSD's LRO merges them, Linux does not.
    let acknowledgments = (0..20).map(|index| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|t| t.ack(index * 100)).build()
    });
    let frames: Vec<_> =
        acknowledgments.chain((0..4).map(|index| segment(index, |t| t.source_port(7)))).collect();
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &frames));
    let run = bench.ok("whatif a --profile linux,freebsd --hold 20us");
    assert!(run.stdout.contains("freebsd (lossy: use it only on a host that terminates TCP)"));
    let report = bench.ok("whatif a --json --profile linux,freebsd --hold 20us").json();
    assert_eq!(report["settings"][1]["packets_up"], 2);
    assert_eq!(report["best"]["fewest"]["profile"], "linux");
    let report = bench.ok("whatif a --json --profile freebsd --hold 20us").json();
    assert_eq!(report["best"]["fewest"]["profile"], "freebsd");
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let bench = Bench::new();
    bench.put("a", &stream(&[0, 1]));
    let run = bench.run("whatif a --profile linux,windows");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("windows") && run.stderr.contains("linux-8x8"), "{}", run.stderr);
    let run = bench.run("whatif");
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("hint: pass a capture, or - for standard input: grosso whatif FILE"),
        "{}",
        run.stderr
    );
    let run = bench.run("whatif a tcp");
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("grosso whatif FILE -f EXPRESSION"), "{}", run.stderr);
    let holds = (0..300).map(|hold| format!("{hold}ns")).collect::<Vec<_>>().join(",");
    let run = bench.run(&format!("whatif a --profile linux --hold {holds}"));
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("too many combinations: 300; the limit is 256"), "{}", run.stderr);
    assert_eq!(bench.run("whatif a --hold 20").code, 2);
    let run = bench.run("whatif a --reorder batch,path");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("expected off, batch, holes, or holes:TIME"), "{}", run.stderr);
    assert_eq!(bench.run("whatif none").code, 4);
    let told = bench.ok("whatif a").stdout;
    let run = bench.run("whatif a --html no/such/folder.html");
    assert_eq!((run.code, run.stdout), (4, told), "the report is printed without its page");
}

#[test]
fn a_capture_without_packets_has_a_report_too() {
    let bench = Bench::new();
    bench.put("a", &stream(&[]));
    let run = bench.ok("whatif a --html page.html");
    let page = String::from_utf8(bench.get("page.html")).unwrap();
    if let Some(defects) = grosso_testkit::browser::defects(&page) {
        assert!(defects.is_empty(), "{defects:#?}");
    }
    assert!(run.stdout.starts_with("a: 0 packets, 0 B in 0 ns\n"), "{}", run.stdout);
    assert!(run.stdout.contains("No packets, so there is nothing to compare."));
    let report = bench.ok("whatif a --json").json();
    assert_eq!(report["settings"][0]["held_ns"], Value::Null);
    assert_well_formed(&String::from_utf8(bench.get("page.html")).unwrap());
}

#[test]
fn a_damaged_capture_is_measured_up_to_the_damage() {
    let bench = Bench::new();
    let whole = stream(&[0, 1, 2, 3]);
    bench.put("a", &whole[..whole.len() - 20]);
    let run = bench.run("whatif a --profile linux --hold 0");
    assert_eq!(run.code, 3);
    assert!(run.stdout.contains("a: 3 packets"), "{}", run.stdout);
    assert!(run.stderr.contains("3 packets were processed."), "{}", run.stderr);
    assert_eq!(bench.run("whatif a --allow-truncated").code, 0);
}

#[test]
fn every_line_fits_a_terminal_and_nothing_is_painted_for_a_pipe() {
    let bench = Bench::new();
    let frames: Vec<_> = Traffic::new(8).take(900).collect();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &frames));
    let run = bench.ok("whatif a --profile all");
    let long = run.stdout.lines().find(|line| line.chars().count() > 80);
    assert_eq!(long, None);
    assert!(run.stdout.contains("Not visible in a trace:"));
    assert!(!run.stdout.contains('\x1b') && !run.stderr.contains(['\x1b', '\r']));
    let painted = bench.ok("whatif a --profile linux --color always").stdout;
    assert!(painted.contains('\x1b'));
    let quiet = bench.ok("whatif a -q");
    assert_eq!((quiet.stdout, quiet.stderr), (String::new(), String::new()));
}

#[test]
fn the_page_needs_nothing_else_and_shows_every_profile() {
    let bench = Bench::new();
    let frames: Vec<_> = Traffic::new(8).take(900).collect();
    bench.put("<a>", &capture(Format::Pcap, ETHERNET, &frames));
    let run = bench.ok("whatif <a> --html page.html");
    assert!(run.stdout.ends_with("Plots: page.html\n"), "{}", run.stdout);
    let page = String::from_utf8(bench.get("page.html")).unwrap();
    assert_well_formed(&page);
    assert!(["http", "url(", "src=", "<script", "<a>"].iter().all(|word| !page.contains(word)));
    // The page has three charts by hold, one of the train lengths, and one of the reasons for each of the four
    // profiles.
    assert_eq!(page.matches("<svg ").count(), 8);
    assert!(
        page.contains("by <code>grosso whatif '&lt;a&gt;' --html page.html</code>")
            || page.contains("Command: <code>grosso whatif")
    );
    // One dot for each setting in each chart by hold.
    assert!(page.matches("<circle ").count() >= 3 * 28, "{}", page.matches("<circle ").count());
}

/// Checks that every element that opens is closed, in order.
#[track_caller]
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let page = page.strip_prefix("<!doctype html>").expect("a page");
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag that ends");
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn any_number_of_jobs_gives_the_report_of_one() {
    let captures = ["host.pcap", "iperf3.pcapng", "ipv6.pcap", "vxlan.pcapng", "fragments.pcapng"];
    for name in captures {
        let bench = Bench::new();
        bench.put(name, &of_the_tree(name));
        let ask = |jobs: &str| {
            let run = bench.ok(&format!("whatif {name} --reorder off,holes --html page {jobs}"));
            let json = bench.ok(&format!("whatif {name} --json {jobs}")).stdout;
            let page = String::from_utf8(bench.get("page")).unwrap();
            let page: Vec<_> =
                page.lines().filter(|line| !line.contains("--html")).map(String::from).collect();
            let json = json.split("\"elapsed_s\"").next().unwrap().to_owned();
            (run.stdout, page, json)
        };
        let one = ask("");
        for jobs in ["-j 1", "--jobs 2", "--jobs 3", "--jobs 7", "--jobs 256"] {
            assert!(ask(jobs) == one, "{name} {jobs}");
        }
    }
}

#[test]
fn jobs_are_for_whatif_and_one_to_256() {
    let bench = Bench::new();
    bench.put("a", &of_the_tree("ipv6.pcap"));
    for line in ["whatif a --jobs 0", "whatif a --jobs 257", "coalesce a --jobs 2"] {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains("--jobs"), "{}", run.stderr);
    }
    // An impossible setting is reported once, by the first thread that finds it.
    let run = bench.run("whatif a --profile linux,missing --jobs 2");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
}

#[test]
fn lossy_profiles_that_merge_are_named_where_invertible_ones_do_not() {
    let bench = Bench::new();
    let pushed: Vec<Timed> =
        (0..40).map(|i| (START_NS + u64::from(i) * 1000, segment(i, Tcp::psh))).collect();
    bench.put("pushed", &capture_of(Format::Pcapng, ETHERNET, &pushed));
    let text = bench.ok("whatif pushed --profile linux,freebsd").stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains(
            "Lossy profiles are suitable only for hosts that terminate TCP: freebsd merges"
        ),
        "{text}"
    );
    let text = bench.ok("whatif pushed --profile linux").stdout;
    assert!(
        text.contains("No packets merge with any of these profiles, at any hold time: linux."),
        "{text}"
    );
}
