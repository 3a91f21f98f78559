//! Tests the flow table: `inspect`, `coalesce` and `whatif` list the same flows, and the flows' trains add up to the
//! total in the report.

use std::{collections::BTreeMap, process::Command};

use grosso_analysis::slowdown::CONNECTIONS_MAX;
use grosso_capture::Format;
use grosso_testkit::{
    Packet, Traffic,
    transfer::{Fault, transfer},
};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, START_NS, Timed, capture_of};

/// Returns a 100-byte segment of the TCP flow from this source port.
fn segment(port: u16, index: u32) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
    packet.tcp(|t| t.source_port(port).sequence(index * 100)).payload_len(100).build()
}

/// Returns packet `index` of this TCP flow.
fn packet_of(flow: u32, index: u32) -> Vec<u8> {
    let [_, high, middle, low] = flow.to_be_bytes();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source([10, high, middle, low]));
    packet.tcp(|t| t.sequence(1 + index)).payload_len(1).build()
}

fn datagram(port: u16, len: usize) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    packet.udp(|u| u.source_port(port)).payload_len(len).build()
}

fn put(bench: &Bench, name: &str, packets: &[(u64, Vec<u8>)]) {
    let at = |(time_us, packet): &(u64, Vec<u8>)| (START_NS + time_us * 1000, packet.clone());
    let packets: Vec<Timed> = packets.iter().map(at).collect();
    bench.put(name, &capture_of(Format::Pcapng, ETHERNET, &packets));
}

fn rows(table: &Value) -> &Vec<Value> {
    table["rows"].as_array().unwrap()
}

fn sum(table: &Value, figure: fn(&Value) -> u64) -> u64 {
    rows(table).iter().map(figure).sum()
}

#[test]
fn the_trains_of_all_flows_are_those_of_the_report() {
    let bench = Bench::new();
    for (seed, options) in
        [(1, ""), (2, "--hold 20us"), (3, "--profile freebsd"), (4, "--reorder batch")]
    {
        let mut packets = Vec::new();
        for number in 0..600 {
            packets.push((number, segment(1000 + (number % 7) as u16, number as u32 / 7)));
        }
        packets.extend((0..400).map(|n| (600 + n, datagram(2000 + (n % 3) as u16, 200))));
        packets.extend(Traffic::benign(seed).take(300).map(|p| (1001, p)));
        put(&bench, "a", &packets);
        let hold = if options.contains("--hold") { options } else { "--hold 0" };
        let rest = if hold == options { "" } else { options };
        let profile = if rest.contains("--profile") { rest } else { "--profile linux" };
        let reorder = if rest.contains("--reorder") { rest } else { "" };
        let line = format!("whatif --json --flows=10000 {hold} {profile} {reorder} a");
        let report = bench.ok(&line).json();
        let (table, setting) = (&report["slowdown"]["flows"], &report["settings"][0]);
        assert_eq!(sum(table, |row| row["merging"]["trains"].as_u64().unwrap()), setting["trains"]);
        let mut why: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows(table) {
            let ended = row["merging"]["ended"].as_object().unwrap();
            let all: u64 = ended.values().map(|count| count.as_u64().unwrap()).sum();
            assert_eq!(all, row["merging"]["trains"]);
            for (reason, count) in ended {
                *why.entry(reason.clone()).or_default() += count.as_u64().unwrap();
            }
        }
        for (reason, count) in setting["closed"].as_object().unwrap() {
            if reason != "no_merge" && reason != "barrier" {
                assert_eq!(why.get(reason).copied(), count.as_u64(), "{reason}: {report}");
            }
        }
    }
}

#[test]
fn every_command_lists_the_same_flows() {
    let bench = Bench::new();
    let mut packets: Vec<_> = (0..64).map(|n| (n, segment(1000, n as u32))).collect();
    packets.extend((0..10).map(|n| (100 + n * 1000, segment(1001, n as u32))));
    packets.extend((0..20).map(|n| (200, datagram(2000, if n == 19 { 50 } else { 400 }))));
    put(&bench, "a", &packets);
    let plain = bench.ok("inspect --json --flows a").json()["slowdown"]["flows"].clone();
    let whatif = bench.ok("whatif --json --flows a").json()["slowdown"]["flows"].clone();
    let merged = bench.ok("coalesce --json --flows a").json()["flows"].clone();
    for table in [&plain, &whatif, &merged] {
        let row = |row: &Value| {
            let mut row = row.clone();
            row.as_object_mut().unwrap().remove("merging");
            row
        };
        assert_eq!(table["directions"], 3);
        assert!(rows(table).iter().map(row).eq(rows(&plain).iter().map(row)), "{table}");
    }
    // `inspect` merges according to `coalesce`'s default rules.
    assert_eq!(plain, merged);
    let udp = &rows(&merged)[0];
    assert_eq!(
        (&udp["protocol"], &udp["bytes"], &udp["packets"]),
        (&"udp".into(), &7650.into(), &20.into())
    );
    assert_eq!((&udp["segment_bytes"], &udp["lost_before"]), (&400.into(), &Value::Null));
    assert_eq!(udp["merging"]["ended"], serde_json::json!({"short_segment": 1}));
    let tcp = &rows(&merged)[1];
    assert_eq!(tcp["merging"]["packets_per_train"], 64.0);
    assert_eq!(tcp["merging"]["held_ns"]["max"], 63_000);
    // Each packet of the slow flow is in a separate poll, and the hold ends before the next poll.
    let slow = &rows(&whatif)[2];
    assert_eq!((&slow["packets"], &slow["merging"]["trains"]), (&10.into(), &10.into()));
    assert_eq!(slow["merging"]["ended"], serde_json::json!({"poll_end": 10}));
    // Text and JSON list the flows in the same order, and no line is too long for a terminal.
    let text = bench.ok("coalesce --flows --sort merged a").stdout;
    assert!(
        text.contains("3 directions, sorted by merged; trains as merged by linux, hold 0:"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let order: Vec<_> = text.lines().filter(|line| line.contains(" > ")).collect();
    assert!(order[0].contains(":1000 > ") && order[1].starts_with("udp "), "{order:?}");
}

#[test]
fn memory_does_not_grow_with_the_number_of_flows() {
    let bench = Bench::new();
    // Without the limit, these flows of one or two packets each take more than 400 MB.
    let flows = 4 * CONNECTIONS_MAX as u32;
    let mut packets = Vec::new();
    for flow in 0..flows {
        packets.extend((0..=flow % 2).map(|index| (u64::from(flow), packet_of(flow, index))));
    }
    put(&bench, "a", &packets);
    drop(packets);
    let program = bench.command("inspect --json --flows=10 a");
    let mut limited = Command::new("sh");
    let script = format!("ulimit -v {MEMORY_KIB_MAX} && exec \"$0\" \"$@\"");
    limited.args(["-c", &script]).arg(program.get_program()).args(program.get_args());
    let output = limited.current_dir(program.get_current_dir().unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let slowdown = serde_json::from_slice::<Value>(&output.stdout).unwrap()["slowdown"].take();
    assert_eq!(slowdown["flows"]["directions"], flows);
    assert_eq!(slowdown["evicted"], flows - CONNECTIONS_MAX as u32);
}

#[test]
fn the_old_limit_of_held_trains_is_named_by_a_hint() {
    let bench = Bench::new();
    put(&bench, "a", &[(0, segment(1000, 0))]);
    for command in ["coalesce", "whatif"] {
        let ended = bench.run(&format!("{command} --flows 64 a"));
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("--max-flows 64 limits the trains held at once"),
            "{}",
            ended.stderr
        );
    }
    bench.ok("coalesce --max-flows 64 a");
}

#[test]
fn an_exported_table_has_the_flows_of_the_report() {
    let bench = Bench::new();
    let mut packets: Vec<_> = (0..64).map(|n| (n, segment(1000, n as u32))).collect();
    packets.extend((0..20).map(|_| (200, datagram(2000, 400))));
    put(&bench, "a", &packets);
    let report = bench.ok("export --json a --flows flows.parquet").json();
    let merged = bench.ok("coalesce --json --flows a").json()["flows"].clone();
    let counts = &report["flows"]["counts"];
    assert_eq!((&counts["rows"], &counts["packets"]), (&merged["directions"], &84.into()));
    assert_eq!(counts["bytes"], sum(&merged, |row| row["bytes"].as_u64().unwrap()));
    let mut shards = 0;
    for shard in ["1/2", "2/2"] {
        let line = format!("export --json a --flows shard.parquet --shard {shard}");
        shards += bench.ok(&line).json()["flows"]["counts"]["rows"].as_u64().unwrap();
    }
    assert_eq!(shards, 2);
    assert!(bench.get("flows.parquet").starts_with(b"PAR1"));
    let ended = bench.run("export a --flows 64");
    assert!(ended.code == 2 && ended.stderr.contains("--max-flows 64"), "{}", ended.stderr);
}

#[test]
fn exported_packets_have_the_events_that_the_flows_count() {
    let bench = Bench::new();
    for (fault, captured) in [Fault::Loss(16), Fault::Healthy].map(|f| (f, transfer(f, 1001))) {
        for (place, packets) in [captured.at_sender, captured.at_receiver].iter().enumerate() {
            bench.put("a", &capture_of(Format::Pcapng, ETHERNET, packets));
            let table = bench.run("inspect --json --flows a").json()["slowdown"]["flows"].clone();
            let row = &rows(&table)[0];
            let report = bench.ok("export --json a --parquet packets.parquet").json();
            let events = &report["packets"]["counts"]["events"];
            let (event, figure) =
                [("retransmitted", "retransmissions"), ("lost_before", "lost_before")][place];
            match fault {
                Fault::Healthy => assert_eq!(events, &serde_json::json!({})),
                _ => {
                    assert!(row[figure].as_u64() > Some(0), "{row}");
                    assert_eq!(events, &serde_json::json!({ event: row[figure] }));
                }
            }
        }
    }
}

/// Memory that `inspect --flows` may use for any number of flows, in KiB. See `CONNECTIONS_MAX` in `docs/bounds.md`.
const MEMORY_KIB_MAX: u32 = 240 << 10;
