//! Tests interruption by Ctrl-C: the report says how many packets and what share of the file it covers.
#![cfg(unix)]

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
};

use grosso_capture::Format;
use grosso_testkit::{Packet, Traffic};

use crate::common::{Bench, ETHERNET, Run, capture, finished, report};

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Returns several megabytes of packets that every command copies.
fn long_capture() -> Vec<u8> {
    let packet = |id: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(id));
        packet.udp(|u| u).payload_len(1000).build()
    };
    capture(Format::Pcap, ETHERNET, &(0..4000).map(packet).collect::<Vec<_>>())
}

/// Interrupts a command whose output pipe is not read, so that the command waits in the middle of its input.
fn interrupted_while_writing(bench: &Bench, line: &str) -> Run {
    let mut command = bench.command(line);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // The first byte shows that the command has started writing, and the pipe cannot hold the rest.
    stdout.read_exact(&mut [0]).unwrap();
    interrupt(&child);
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    finished(child.wait_with_output().unwrap())
}

const WRITERS: [&str; 9] = [
    "coalesce -r a -w -",
    "segment -r a -w -",
    "wire -r a -w -",
    "reassemble -r a -w -",
    "decap -r a -w -",
    "decap --recursive -r a -w -",
    "fragment --mtu 1500 -r a -w -",
    "csum fix --only all -r a -w -",
    "encap -r a -w - type ipip local 192.0.2.1 remote 192.0.2.2",
];

#[test]
fn d16_the_part_of_the_file_that_was_read_is_reported() {
    let bench = Bench::new();
    let input = long_capture();
    bench.put("a", &input);
    // The length of a packet in the file.
    let record = (input.len() - 24) as f64 / 4000.0;
    for line in WRITERS {
        let (command, options) = line.split_once(' ').unwrap();
        let run = interrupted_while_writing(&bench, &format!("{command} --json {options}"));
        assert_eq!(run.code, 130, "{line}: {}", run.stderr);
        let report = report(run.stderr.trim_end());
        let packets = report["input"]["packets"].as_u64().unwrap();
        assert!(packets > 0 && packets < 4000, "{line}: {packets}");
        let interrupted = &report["input"]["interrupted"];
        assert_eq!(interrupted["packets"], packets, "{line}: {report}");
        let percent = interrupted["percent"].as_f64().unwrap();
        let expected = packets as f64 * record / input.len() as f64 * 100.0;
        assert!((percent - expected).abs() < 0.2, "{line}: {percent}, not {expected}");
        let said = format!("interrupted after {packets} packets, {percent:.1} % of the file");
        assert!(report["warnings"].to_string().contains(&said), "{line}: {report}");

        let run = interrupted_while_writing(&bench, line);
        assert_eq!(run.code, 130, "{line}: {}", run.stderr);
        let mut lines = run.stderr.lines();
        let note = lines.find(|said| said.starts_with("grosso: note: interrupted after "));
        let note = note.unwrap_or_else(|| panic!("{line}: {}", run.stderr));
        assert!(note.ends_with(" % of the file") && !note.contains("100"), "{line}: {note}");
    }
}

/// Interrupts a command that has read almost all of the input from a pipe that stays open.
fn interrupted_while_waiting(bench: &Bench, line: &str, input: &[u8]) -> Run {
    // When the write returns, the pipe holds only the last part of the input.
    interrupted_behind(bench, line, input, |_| ())
}

/// Writes input to a pipe that stays open, and interrupts the command once `is_far` returns true.
fn interrupted_behind(bench: &Bench, line: &str, input: &[u8], is_far: fn(&Child)) -> Run {
    let mut command = bench.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    is_far(&child);
    interrupt(&child);
    let run = finished(child.wait_with_output().unwrap());
    drop(stdin);
    run
}

#[test]
fn the_number_of_packets_from_a_pipe_is_reported() {
    let bench = Bench::new();
    let input = long_capture();
    for line in [
        "inspect -",
        "csum verify -r -",
        "whatif -",
        "coalesce -r - -w b",
        "wire -r - -w b",
        "segment -r - -w b",
        "reassemble -r - -w b",
        "decap -r - -w b",
        "decap --recursive -r - -w b",
        "fragment --mtu 1500 -r - -w b",
        "csum fix -r - -w b",
        "encap -r - -w b type ipip local 192.0.2.1 remote 192.0.2.2",
    ] {
        let (command, options) = line.split_once(' ').unwrap();
        let json = format!("{command} --json {options}");
        let run = interrupted_while_waiting(&bench, &json, &input);
        assert_eq!(run.code, 130, "{line}: {}", run.stderr);
        let report = run.json();
        let packets = report["input"]["packets"].as_u64().unwrap();
        assert!(packets > 3000, "{line}: {packets}");
        let expected = serde_json::json!({ "packets": packets, "percent": null });
        assert_eq!(report["input"]["interrupted"], expected, "{line}");
        let said = format!("\"interrupted after {packets} packets\"");
        assert!(report["warnings"].to_string().contains(&said), "{line}: {report}");
        let run = interrupted_while_waiting(&bench, line, &input);
        let note = run.stderr.lines().find(|said| said.contains("note: interrupted after "));
        assert!(note.is_some_and(|note| note.ends_with(" packets")), "{line}: {}", run.stderr);
    }
}

/// `explain` cannot answer a question about a packet that was not read before the interruption.
#[test]
fn explain_reports_that_the_packet_was_not_reached() {
    let bench = Bench::new();
    let input = long_capture();
    let run = interrupted_while_waiting(&bench, "explain - -n 9999", &input);
    assert_eq!(run.code, 130, "{}", run.stderr);
    assert!(run.stderr.starts_with("grosso: interrupted after "), "{}", run.stderr);
    assert!(run.stderr.ends_with(" packets, before packet 9999\n"), "{}", run.stderr);
    let error = interrupted_while_waiting(&bench, "explain --json - -n 9999", &input).json_error();
    assert_eq!(error["code"], "interrupted");
}

/// If a command is interrupted before it has read any input, it reports nothing about the capture, not even its format.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_from_which_nothing_came_was_interrupted_and_not_damaged() {
    let bench = Bench::new();
    let header = &long_capture()[..24];
    for line in [
        "inspect -",
        "inspect - -f udp",
        "csum verify -r -",
        "explain - -n 1",
        "wire -r - -w b",
        "decap -r - -w b",
    ] {
        for begun in [&[][..], &header[..3], &header[..20]] {
            let run = interrupted_behind(&bench, line, begun, until_asleep);
            assert_eq!(run.code, 130, "{line}: {}", run.stderr);
            let said = "grosso: standard input: interrupted before the first packet\n";
            assert_eq!(run.stderr, said, "{line}");
            assert!(!bench.path("b").exists(), "{line}");
        }
    }
}

/// Waits until a command sleeps. A command sleeps only while it waits for input.
#[cfg(target_os = "linux")]
fn until_asleep(child: &Child) {
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
        std::thread::yield_now();
    }
}

#[test]
fn what_ends_by_itself_was_not_interrupted() {
    let bench = Bench::new();
    bench.put("a", &capture(Format::Pcap, ETHERNET, &Traffic::new(1).take(50).collect::<Vec<_>>()));
    for line in ["inspect a --json", "wire --json -r a -w b", "whatif --json a"] {
        let report = bench.run(line).json();
        assert!(report["input"].get("interrupted").is_none(), "{line}: {report}");
    }
}
