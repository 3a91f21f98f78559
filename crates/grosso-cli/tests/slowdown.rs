//! Streams of the kernel over a link with one fault, captured at both ends: `inspect` names the fault first.
//!
//! ```text
//!  host a                      host b
//!  a0 (veth) ---------------- e0   grosso bridge --impair   b0 (TAP)
//! ```

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use grosso_sys::{ethtool, interface::Control, namespace::NetworkNamespace};
use rustix::{net::sockopt::set_socket_recv_buffer_size, process::Signal};
use serde_json::Value;

use crate::{
    common::has,
    network::{A, B, Hosts, Running, connect, name},
};

/// The behavior of the two applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applications {
    Busy,
    SlowReader,
    PausingWriter,
}

/// A fault, and the cause to name first at host a and at host b; `None` if there is none to name.
type Situation = (&'static str, Applications, Option<&'static str>, Option<&'static str>);

const SITUATIONS: [Situation; 7] = [
    ("delay 2ms", Applications::Busy, None, None),
    ("delay 2ms loss 1%", Applications::Busy, Some("lost_after"), Some("lost_before")),
    ("delay 2ms reorder 1%", Applications::Busy, Some("reordered_after"), Some("reordered_before")),
    ("delay 2ms duplicate 2%", Applications::Busy, Some("duplicated"), Some("duplicated")),
    ("delay 2ms corrupt 1%", Applications::Busy, Some("lost_after"), Some("bad_checksums")),
    ("delay 2ms", Applications::SlowReader, Some("zero_window"), Some("zero_window")),
    ("delay 2ms", Applications::PausingWriter, Some("application"), Some("application")),
];

/// Bytes of a stream.
const BYTES: usize = 2 << 20;
/// A pause that is longer than any round trip here.
const PAUSE: Duration = Duration::from_millis(100);

#[test]
fn the_fault_of_a_stream_is_named_first_at_both_ends() {
    if !has("tcpdump") {
        return;
    }
    let mut wrong = Vec::new();
    for (seed, situation) in SITUATIONS.iter().enumerate() {
        let (impairment, applications, at_a, at_b) = *situation;
        let Some(hosts) = Hosts::new() else { return };
        for (expected, device, report) in
            run(&hosts, &format!("{impairment} seed {seed}"), applications)
                .into_iter()
                .zip([(at_a, "a0"), (at_b, "b0")])
                .map(|(report, (expected, device))| (expected, device, report))
        {
            let found = report["slowdown"]["causes"][0]["cause"].as_str();
            if found != expected {
                wrong.push(format!("{situation:?} at {device}: {}", report["slowdown"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a stream from host a to host b, and inspects what each of them captured.
fn run(hosts: &Hosts, impairment: &str, applications: Applications) -> [Value; 2] {
    let plain = || {
        let off = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-generic-segmentation"];
        let wishes = off.map(|feature| (feature, false));
        ethtool::set_features(&Control::new()?, &name("a0"), &wishes)
    };
    hosts.a.run(plain).unwrap().unwrap();
    let mut command = hosts.command("bridge e0 tap:b0 --no-coalesce");
    let bridge = Running::spawn(command.args(["--impair", impairment]));
    bridge.said("<->");
    hosts.address("b0");
    let dumps = [dump(hosts, &hosts.a, "a0"), dump(hosts, &hosts.b, "b0")];
    let [near, far] = connect((&hosts.a, A[0]), (&hosts.b, B[0]));
    if applications == Applications::SlowReader {
        set_socket_recv_buffer_size(&far, 16 << 10).unwrap();
    }
    thread::scope(|scope| {
        scope.spawn(|| write(&near, applications));
        read(&far, applications);
    });
    drop((near, far));
    for dump in dumps {
        dump.stop(Signal::INT);
    }
    bridge.stop(Signal::INT);
    ["a0", "b0"].map(|device| {
        let ended = hosts.run(&format!("inspect --quiet --json {device}.pcap"));
        serde_json::from_str(&ended.stdout).unwrap()
    })
}

fn dump(hosts: &Hosts, host: &NetworkNamespace, device: &str) -> Running {
    let mut command = Command::new("tcpdump");
    command.args(["-i", device, "-B", "65536", "-s", "2000", "-U", "-Z", "root", "-w"]);
    command.arg(hosts.path(&format!("{device}.pcap"))).arg("tcp");
    let dump = Running::spawn(host.host(&mut command).unwrap());
    dump.said("listening on");
    dump
}

fn write(mut stream: &TcpStream, applications: Applications) {
    let chunk = vec![7; 32 << 10];
    for _ in 0..bytes(applications) / chunk.len() {
        stream.write_all(&chunk).unwrap();
        if applications == Applications::PausingWriter {
            thread::sleep(PAUSE);
        }
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

fn read(mut stream: &TcpStream, applications: Applications) {
    let mut chunk = vec![0; 32 << 10];
    loop {
        if applications == Applications::SlowReader {
            thread::sleep(PAUSE);
        }
        if stream.read(&mut chunk).unwrap() == 0 {
            return;
        }
    }
}

/// Streams with pauses are shorter.
const fn bytes(applications: Applications) -> usize {
    match applications {
        Applications::Busy => BYTES,
        Applications::SlowReader | Applications::PausingWriter => BYTES / 4,
    }
}
