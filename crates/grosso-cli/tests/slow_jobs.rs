//! The guide's jobs "why is it slow", "which flow" and "which setting": the command of each row must find the fault of
//! transfers that are slow by construction.

use std::{fs, path::Path};

use grosso_capture::Format;
use grosso_testkit::transfer::{Capture, Fault, PORT, transfer, transfers};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, capture_of};

/// Writes the captures of slow transfers that the guide names.
pub(crate) fn put_transfers(folder: &Path, seed: u64) {
    let at_sender = |fault| transfer(fault, seed).at_sender;
    let healthy = Fault::Healthy;
    for (name, packets) in [
        ("loss.pcap", at_sender(Fault::Loss(16))),
        ("reordering.pcap", transfer(Fault::Reordering(20), seed).at_receiver),
        ("mtu.pcap", at_sender(Fault::BlackHole)),
        ("vpn.pcap", at_sender(Fault::PathMtu)),
        ("acks.pcap", at_sender(Fault::AckLoss(10))),
        ("lro.pcap", at_sender(Fault::MergingRouter)),
        ("turns.pcap", turns(FLOWS, seed)),
        ("flows.pcap", transfers(&[healthy, Fault::Loss(16), healthy, healthy], seed).at_sender),
        ("push.pcap", transfers(&[healthy, healthy, Fault::PushOnEveryPacket], seed).at_receiver),
    ] {
        put(&folder.join(name), &packets);
    }
}

fn put(path: &Path, packets: &Capture) {
    fs::write(path, capture_of(Format::Pcap, ETHERNET, packets)).unwrap();
}

/// Returns a capture at the receiver of this many transfers whose packets alternate.
fn turns(flows: u16, seed: u64) -> Capture {
    transfer(Fault::Alternating(flows), seed).at_receiver
}

/// Returns the commands of the guide's table that read this capture.
fn commands(capture: &str) -> Vec<String> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");
    let text = fs::read_to_string(guide).unwrap();
    let command = |line: &str| {
        let command = line.strip_prefix("| ")?.split(" | ").nth(1)?;
        let command = command.strip_prefix("`grosso ")?.strip_suffix('`')?;
        command.ends_with(&format!(" {capture}")).then(|| command.to_owned())
    };
    let commands: Vec<_> = text.lines().filter_map(command).collect();
    assert!(!commands.is_empty(), "no job has {capture}");
    commands
}

#[test]
fn the_command_of_each_job_names_the_fault_of_the_transfer_first() {
    let bench = Bench::new();
    for seed in SEEDS {
        put_transfers(&bench.path(""), seed);
        for (capture, cause) in [
            ("loss.pcap", "lost_after"),
            ("reordering.pcap", "reordered_before"),
            ("mtu.pcap", "black_hole"),
            ("vpn.pcap", "path_mtu"),
            ("acks.pcap", "acks_lost"),
            ("lro.pcap", "merged_by_router"),
            ("turns.pcap", "alternating_flows"),
        ] {
            for command in commands(capture) {
                let causes = causes(&bench, &command);
                assert_eq!(causes[0]["cause"], cause, "{command}, seed {seed}: {causes}");
                let flow = causes[0]["flow"].as_str().unwrap();
                assert!(flow.ends_with(":5201"), "{command}, seed {seed}: {flow}");
            }
        }
    }
}

#[test]
fn the_command_of_each_job_lists_the_faulty_flow_first() {
    let bench = Bench::new();
    for seed in SEEDS {
        put_transfers(&bench.path(""), seed);
        for command in commands("flows.pcap") {
            let report = bench.run(&format!("{command} --json")).json();
            let row = &report["slowdown"]["flows"]["rows"][0];
            assert!(is_from(row, PORT + 1), "{command}, seed {seed}: {row}");
            assert_eq!(row["cause"], "lost_after", "{command}, seed {seed}: {row}");
        }
        for command in commands("push.pcap") {
            let report = bench.run(&format!("{command} --json")).json();
            let row = &report["flows"]["rows"][0];
            assert!(is_from(row, PORT + 2), "{command}, seed {seed}: {row}");
            let ended = row["merging"]["ended"].as_object().unwrap();
            let (why, _) = ended.iter().max_by_key(|(_, count)| count.as_u64()).unwrap();
            assert_eq!(why, "tcp_psh", "{command}, seed {seed}: {row}");
        }
    }
}

/// Tests the answers to "which setting do I change" by using the setting.
#[test]
fn the_suggested_setting_removes_the_cause() {
    let bench = Bench::new();
    for seed in SEEDS {
        put_transfers(&bench.path(""), seed);
        for command in commands("turns.pcap") {
            let option = suggested(&bench, &command);
            let before = per_train(&bench, "turns.pcap");
            let after = per_train(&bench, &format!("turns.pcap {option}"));
            assert!(after > 2.0 * before, "{option}, seed {seed}: {before}, then {after}");
        }
        for command in commands("reordering.pcap") {
            let option = suggested(&bench, &command);
            let before = out_of_order(&bench, "reordering.pcap");
            let after = out_of_order(&bench, &format!("reordering.pcap {option}"));
            assert!(before > 4 * after, "{option}, seed {seed}: {before}, then {after}");
        }
    }
}

/// Tests the truth of the situation: next to nothing merges, unless the flows are few, or are spread over more queues.
#[test]
fn alternating_flows_merge_if_fewer_of_them_share_a_queue() {
    let bench = Bench::new();
    for seed in SEEDS {
        let all = turns(FLOWS, seed);
        let of_flow = |frame: &[u8], flow: u16| {
            let tcp = if frame[12..14] == [8, 0] { 34 } else { 54 };
            let port = (PORT + flow).to_be_bytes();
            frame[tcp..tcp + 2] == port || frame[tcp + 2..tcp + 4] == port
        };
        let mut queue = all.clone();
        queue.retain(|(_, frame)| (0..2).any(|flow| of_flow(frame, flow)));
        for (name, packets) in [("all", &all), ("queue", &queue), ("few", &turns(4, seed))] {
            put(&bench.path(name), packets);
        }
        assert!(per_train(&bench, "all") < 1.1, "seed {seed}");
        for name in ["queue", "few"] {
            assert!(per_train(&bench, name) > 2.0, "{name}, seed {seed}");
            let causes = causes(&bench, &format!("inspect {name}"));
            assert_eq!(causes, serde_json::json!([]), "{name}, seed {seed}");
        }
    }
}

/// Returns the causes that a command lists.
fn causes(bench: &Bench, command: &str) -> Value {
    bench.run(&format!("{command} --json")).json()["slowdown"]["causes"].take()
}

/// Returns the Grosso option that a command suggests for the first cause.
fn suggested(bench: &Bench, command: &str) -> String {
    let causes = causes(bench, command);
    let option = causes[0]["grosso"].as_str().unwrap().strip_prefix("grosso bridge DEV tap:NAME ");
    option.unwrap().to_owned()
}

/// Returns the trains of the largest direction, if a poll has 16 packets: about 24 us at 8 Gb/s.
fn merging(bench: &Bench, options: &str) -> Value {
    let report = bench.ok(&format!("coalesce --json --flows --batch 16 {options}")).json();
    report["flows"]["rows"][0]["merging"].clone()
}

fn per_train(bench: &Bench, options: &str) -> f64 {
    merging(bench, options)["packets_per_train"].as_f64().unwrap()
}

/// Returns the number of trains that ended because the next packet was not in sequence.
fn out_of_order(bench: &Bench, options: &str) -> u64 {
    let merging = merging(bench, options);
    let ended = merging["ended"].as_object().unwrap().iter();
    let in_sequence = |(why, _): &(&String, &Value)| why.starts_with("tcp_sequence");
    ended.filter(in_sequence).map(|(_, count)| count.as_u64().unwrap()).sum()
}

fn is_from(row: &Value, port: u16) -> bool {
    row["flow"].as_str().unwrap().contains(&format!(":{port} > "))
}

/// Number of flows in `turns.pcap`: more than a poll has packets.
const FLOWS: u16 = 20;
const SEEDS: std::ops::Range<u64> = 7001..7004;
