//! Tests the JSON of commands on devices: each report matches its command's schema, and this file lists every field.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    common::{Bench, assert_obeys, report},
    network::{A, B, Ended, Hosts, Running, connect, exchange, until},
};

/// Commands on devices that can run next to a path, and their command lines.
const BESIDE: [(&str, &str); 20] = [
    ("stats", "stats --json"),
    ("stats", "stats -v --per-queue --json"),
    ("stats", "stats --jsonl -i 0.05 -c 2 --delta"),
    ("monitor", "monitor --once -i 0.05 --json"),
    ("dev", "dev b0 --json"),
    ("dev", "dev -S e0 --json"),
    ("dev", "dev -c b0 --json"),
    ("dev", "dev -K b0 gro off --json"),
    ("capture", "capture -D --json"),
    ("capture", "capture -i e0 --duration 50ms -w x.pcapng --wire --json"),
    ("config check", "config check paths.toml --json"),
    ("config esp", "config esp xfrm --here 10.9.0.2 --key-file edge.key --json"),
    ("tunnel add", "tunnel add --json g0 type ipip local 10.9.0.2 remote 10.9.0.1 encap gue"),
    ("tunnel show", "tunnel show --json"),
    ("tunnel down", "tunnel down g0 --json"),
    ("tunnel up", "tunnel up g0 --json"),
    ("tunnel del", "tunnel del g0 --json"),
    ("doctor", "doctor --json"),
    ("lab profiles", "lab profiles --json"),
    ("lab run", "lab run two-hosts --time 100ms --json"),
];

/// Commands whose reports other tests validate: commands on captures and `conform` in their own tests, the lab's
/// experiments with the claims in `docs/sources.md`, and `bridge` and `run` below.
const ELSEWHERE: [&str; 39] = [
    "inspect",
    "coalesce",
    "segment",
    "wire",
    "reassemble",
    "decap",
    "encap",
    "fragment",
    "csum verify",
    "csum fix",
    "explain",
    "profiles",
    "profiles show",
    "whatif",
    "conform",
    "schema",
    "error",
    "bridge",
    "run",
    "export",
    "merge",
    "lab",
    "lab lro",
    "lab gso",
    "lab flows",
    "lab load",
    "lab reorder",
    "lab rtt",
    "lab tcp-stream",
    "lab tcp-maerts",
    "lab tcp-rr",
    "lab udp-stream",
    "lab udp-rr",
    "lab acks",
    "lab cost",
    "lab fragments",
    "lab tunnels",
    "lab vm",
    "lab nic",
];

#[test]
fn every_field_of_paths_and_devices_is_in_the_schema() {
    let Some(hosts) = Hosts::new() else { return };
    let path = "[[path]]\nleft = \"e0\"\nright = \"tap:b0\"\n";
    std::fs::write(hosts.path("paths.toml"), path).unwrap();
    std::fs::write(hosts.path("xfrm"), associations()).unwrap();
    for (command, line) in
        [("bridge", "bridge e0 tap:b0 --json"), ("run", "run -c paths.toml --json")]
    {
        let running = Running::spawn(&mut hosts.command(line));
        // With --json, the command prints nothing until it exits.
        until(|| hosts.run("stats -q").code == Some(0));
        hosts.address("b0");
        // The other host learns the address of this device from the first packet.
        exchange(&connect((&hosts.b, B[0]), (&hosts.a, A[0])), 1 << 20);
        if command == "run" {
            BESIDE.iter().for_each(|(command, line)| obeys(command, line, &hosts.run(line)));
        }
        obeys(command, line, &running.stop(Signal::TERM));
    }
    let failed = hosts.run("monitor --once --json");
    assert_eq!(report(&failed.stderr)["schema"], "grosso.error/1");
}

#[test]
fn the_reports_of_every_command_are_held_against_a_schema() {
    let list = Bench::new().ok("schema --json").json();
    let all = list["commands"].as_array().unwrap().iter();
    let all: BTreeSet<&str> = all.map(|entry| entry["command"].as_str().unwrap()).collect();
    let held: BTreeSet<&str> =
        BESIDE.iter().map(|(command, _)| *command).chain(ELSEWHERE).collect();
    let missing: Vec<_> = all.difference(&held).collect();
    assert!(missing.is_empty(), "no test requests the JSON of {missing:?}");
}

/// Asserts that each line of the output is a report that obeys the schema of the command.
fn obeys(command: &str, line: &str, ended: &Ended) {
    assert!(matches!(ended.code, Some(0 | 1)), "{line}: {ended:?}");
    let reports: Vec<Value> = ended.stdout.lines().map(report).collect();
    assert!(!reports.is_empty(), "{line}: {ended:?}");
    reports.iter().for_each(|report| assert_obeys(command, report, line));
}

/// Returns two associations as `ip xfrm state` prints them.
fn associations() -> String {
    let one = |from: &str, to: &str, spi: &str, digit: &str| {
        let key = digit.repeat(40);
        format!(
            "src {from} dst {to}\n\tproto esp spi {spi} mode transport\n\treplay-window 32\n\t\
             aead rfc4106(gcm(aes)) 0x{key} 128\n"
        )
    };
    one("10.9.0.1", "10.9.0.2", "0x1001", "a") + &one("10.9.0.2", "10.9.0.1", "0x1002", "b")
}
