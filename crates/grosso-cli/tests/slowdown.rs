//! Streams of the kernel over a link with one fault, captured at both ends: `inspect` names the fault first.
//!
//! ```text
//!  host a                      host b
//!  a0 (veth) ---------------- e0   grosso bridge --impair   b0 (TAP)
//! ```
//!
//! Counters of both kernels show whether a stream had this fault and no other. On a busy machine it may have others:
//! a timer that fires late retransmits, and a reader that waits for a CPU closes its window. Such a stream is repeated.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use grosso_sys::{ethtool, interface::Control, namespace::NetworkNamespace};
use rustix::process::Signal;
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

/// A fault, and the cause to name first in each capture.
struct Situation {
    /// The impairment of the link.
    impairment: &'static str,
    applications: Applications,
    bytes: usize,
    /// A shell command for host a and one for host b, before the stream.
    setup: [&'static str; 2],
    /// Whether the counters show this fault and no other.
    is_made: fn(&Counters) -> bool,
    /// The cause at host a and at host b; `None` if there is none to name.
    causes: [Option<&'static str>; 2],
    /// Whether the capture at host b shows the fault.
    is_visible_at_b: bool,
}

const HEALTHY: Situation = Situation {
    impairment: "delay 2ms",
    applications: Applications::Busy,
    bytes: BYTES,
    setup: ["", ""],
    is_made: |counters| counters.is_clean() && !counters.is_window_limited(),
    causes: [None, None],
    is_visible_at_b: true,
};

const LOSS: Situation = Situation {
    impairment: "delay 2ms loss 1%",
    is_made: |counters| {
        let (needed, unneeded) = (counters.a("RetransSegs"), counters.b("TCPDSACKOldSent"));
        needed >= MANY && unneeded * 4 <= needed && counters.b("TCPOFOQueue") >= MANY
    },
    causes: [Some("lost_after"), Some("lost_before")],
    ..HEALTHY
};

const REORDERING: Situation = Situation {
    impairment: "delay 2ms reorder 2%",
    is_made: |counters| counters.b("TCPOFOQueue") >= MANY.max(3 * counters.a("RetransSegs")),
    causes: [Some("reordered_after"), Some("reordered_before")],
    ..HEALTHY
};

const DUPLICATION: Situation = Situation {
    impairment: "delay 2ms duplicate 2%",
    is_made: |counters| counters.b("TCPDSACKOldSent") >= MANY && counters.a("RetransSegs") == 0,
    causes: [Some("duplicated"); 2],
    ..HEALTHY
};

const CORRUPTION: Situation = Situation {
    impairment: "delay 2ms corrupt 1%",
    is_made: |counters| counters.b("InCsumErrors") >= MANY && counters.b("TCPDSACKOldSent") < MANY,
    causes: [Some("lost_after"), Some("bad_checksums")],
    ..HEALTHY
};

const LOST_ACKS: Situation = Situation {
    setup: ["", LOSE_ACKS],
    is_made: |counters| counters.is_clean() && !counters.is_window_limited(),
    causes: [Some("acks_lost"); 2],
    ..HEALTHY
};

const SMALL_WINDOW: Situation = Situation {
    // Much longer than the time that a reader waits for a CPU.
    impairment: "delay 10ms",
    bytes: BYTES / 4,
    setup: ["", "sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384'"],
    is_made: |counters| counters.is_clean() && counters.window_percent >= 60.0,
    causes: [Some("receive_window"); 2],
    ..HEALTHY
};

const SLOW_READER: Situation = Situation {
    applications: Applications::SlowReader,
    bytes: BYTES / 4,
    setup: ["", "sysctl -qw net.ipv4.tcp_rmem='4096 65536 65536'"],
    is_made: |counters| counters.b("TCPToZeroWindowAdv") >= MANY && counters.a("RetransSegs") == 0,
    causes: [Some("zero_window"); 2],
    ..HEALTHY
};

const PAUSING_WRITER: Situation = Situation {
    applications: Applications::PausingWriter,
    bytes: BYTES / 4,
    is_made: |counters| counters.is_clean() && !counters.is_window_limited(),
    causes: [Some("application"); 2],
    ..HEALTHY
};

/// A link that drops packets larger than 1300 bytes; the sender probes with smaller ones after timeouts.
const BLACK_HOLE: Situation = Situation {
    setup: [
        "sysctl -qw net.ipv4.tcp_mtu_probing=1",
        "ip link set b0 mtu 1500; ip link set e0 mtu 1300",
    ],
    is_made: |counters| counters.a("TCPTimeouts") >= 3 && counters.b("TCPOFOQueue") <= MANY,
    causes: [Some("black_hole"), None],
    is_visible_at_b: false,
    ..HEALTHY
};

/// Host b drops one of ten acknowledgments that it sends.
const LOSE_ACKS: &str = "nft add table ip t && \
    nft add chain ip t out '{ type filter hook output priority 0; }' && \
    nft add rule ip t out ip length 40-60 tcp flags == ack numgen inc mod 10 0 drop";

/// A congestion window of 16 packets, smaller than the first receive window, and no tail loss probes: these retransmit
/// when an acknowledgment waits for a CPU.
const CALM_SENDER: &str = "sysctl -qw net.ipv4.tcp_early_retrans=0 && \
    ip route replace 10.9.0.0/24 dev a0 src 10.9.0.1 cwnd lock 16";

/// Bytes of most streams.
const BYTES: usize = 2 << 20;
/// Events that make a fault.
const MANY: u64 = 4;
/// A pause that is longer than any round trip here.
const PAUSE: Duration = Duration::from_millis(100);
/// Attempts to make a situation.
const ATTEMPTS: u64 = 8;

#[test]
fn the_fault_of_a_stream_is_named_first_at_both_ends() {
    judge(&[HEALTHY, LOSS, SMALL_WINDOW]);
}

mod night {
    use super::*;

    #[test]
    #[ignore = "streams with pauses and timeouts: .ci/night guests"]
    fn each_fault_of_a_stream_is_named_first_at_both_ends() {
        judge(&[
            HEALTHY,
            LOSS,
            REORDERING,
            DUPLICATION,
            CORRUPTION,
            LOST_ACKS,
            SMALL_WINDOW,
            SLOW_READER,
            PAUSING_WRITER,
            BLACK_HOLE,
        ]);
    }
}

/// Judges a stream of each situation.
fn judge(situations: &[Situation]) {
    if !["tcpdump", "nft", "ss"].into_iter().all(has) {
        return;
    }
    let mut wrong = Vec::new();
    for (seed, situation) in situations.iter().enumerate() {
        let reports = match make(situation, seed as u64) {
            Some(Ok(reports)) => reports,
            Some(Err(others)) => {
                let causes = situation.causes;
                wrong.push(format!("{causes:?}: no stream with this fault alone in {others:?}"));
                continue;
            }
            None => return,
        };
        let points = if situation.is_visible_at_b { 2 } else { 1 };
        for (report, expected) in reports.into_iter().zip(situation.causes).take(points) {
            let found = report["slowdown"]["causes"][0]["cause"].as_str();
            if found != expected {
                let (path, slowdown) = (&report["input"]["path"], &report["slowdown"]);
                wrong.push(format!("{expected:?} in {path}: {slowdown}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes a situation, or returns the counters of streams with other faults; `None` if the machine has no networks.
fn make(situation: &Situation, seed: u64) -> Option<Result<[Value; 2], Vec<Counters>>> {
    let mut others = Vec::new();
    for attempt in 0..ATTEMPTS {
        let hosts = Hosts::new()?;
        let seed = seed + 100 * attempt;
        let (counters, reports) = run(&hosts, situation, seed);
        if (situation.is_made)(&counters) && counters.is_captured {
            return Some(Ok(reports));
        }
        others.push(counters);
    }
    Some(Err(others))
}

/// Runs a stream from host a to host b, and inspects what each of them captured.
fn run(hosts: &Hosts, situation: &Situation, seed: u64) -> (Counters, [Value; 2]) {
    let plain = || {
        let off = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-generic-segmentation"];
        let wishes = off.map(|feature| (feature, false));
        ethtool::set_features(&Control::new()?, &name("a0"), &wishes)
    };
    hosts.a.run(plain).unwrap().unwrap();
    let mut command = hosts.command("bridge e0 tap:b0 --no-coalesce");
    let impairment = format!("{} seed {seed}", situation.impairment);
    let bridge = Running::spawn(command.args(["--impair", &impairment]));
    bridge.said("<->");
    hosts.address("b0");
    shell(&hosts.a, CALM_SENDER);
    for (host, script) in [&hosts.a, &hosts.b].into_iter().zip(situation.setup) {
        shell(host, script);
    }
    let dumps = [dump(hosts, &hosts.a, "a0"), dump(hosts, &hosts.b, "b0")];
    let [near, far] = connect((&hosts.a, A[0]), (&hosts.b, B[0]));
    thread::scope(|scope| {
        scope.spawn(|| write(&near, situation));
        read(&far, situation.applications);
    });
    let mut counters = Counters::read(hosts);
    drop((near, far));
    for dump in dumps {
        let ended = dump.stop(Signal::INT);
        counters.is_captured &= ended.stderr.contains("\n0 packets dropped by kernel");
    }
    bridge.stop(Signal::INT);
    let reports = ["a0", "b0"].map(|device| {
        let ended = hosts.run(&format!("inspect --quiet --json {device}.pcap"));
        serde_json::from_str(&ended.stdout).unwrap()
    });
    (counters, reports)
}

/// Counters of the two kernels after a stream.
#[derive(Debug, Default)]
struct Counters {
    hosts: [HashMap<String, u64>; 2],
    /// The part of the busy time in which the receive window limited the sender.
    window_percent: f64,
    /// Whether tcpdump captured every packet.
    is_captured: bool,
}

impl Counters {
    fn read(hosts: &Hosts) -> Self {
        let read = |host: &NetworkNamespace| host.run(host_counters).unwrap();
        let output = host_output(&hosts.a, Command::new("ss").args(["-tinaH"]));
        // For example `busy:52ms rwnd_limited:48ms(92.3%)`; absent if it is zero.
        let limited = output.split_once("rwnd_limited:").and_then(|(_, rest)| {
            let (percent, _) = rest.split_once('(')?.1.split_once("%)")?;
            percent.parse().ok()
        });
        assert!(output.contains("busy:"), "{output}");
        Self {
            hosts: [read(&hosts.a), read(&hosts.b)],
            window_percent: limited.unwrap_or(0.0),
            is_captured: true,
        }
    }

    fn a(&self, name: &str) -> u64 {
        self.hosts[0].get(name).copied().unwrap_or(0)
    }

    fn b(&self, name: &str) -> u64 {
        self.hosts[1].get(name).copied().unwrap_or(0)
    }

    /// Whether nothing was lost, reordered, repeated or damaged, and the window stayed open.
    fn is_clean(&self) -> bool {
        let at_b = ["TCPOFOQueue", "TCPDSACKOldSent", "TCPToZeroWindowAdv", "InCsumErrors"];
        self.a("RetransSegs") == 0 && at_b.iter().all(|name| self.b(name) == 0)
    }

    fn is_window_limited(&self) -> bool {
        self.window_percent > 10.0
    }
}

/// The TCP counters above zero of the network namespace of this thread.
fn host_counters() -> HashMap<String, u64> {
    let mut counters = HashMap::new();
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("Tcp")).collect();
        for pair in lines.chunks_exact(2) {
            let [names, values] = [pair[0], pair[1]].map(|line| line.split_whitespace().skip(1));
            let counted = names.zip(values).filter(|(_, value)| *value != "0");
            let number = |value: &str| value.parse().unwrap_or(0);
            counters.extend(counted.map(|(name, value)| (name.to_owned(), number(value))));
        }
    }
    counters
}

fn shell(host: &NetworkNamespace, script: &str) {
    host_output(host, Command::new("sh").args(["-c", script]));
}

fn host_output(host: &NetworkNamespace, command: &mut Command) -> String {
    let output = host.host(command).unwrap().output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn dump(hosts: &Hosts, host: &NetworkNamespace, device: &str) -> Running {
    let mut command = Command::new("tcpdump");
    command.args([
        "-i",
        device,
        "-B",
        "65536",
        "-s",
        "2000",
        "--immediate-mode",
        "-U",
        "-Z",
        "root",
    ]);
    command.arg("-w").arg(hosts.path(&format!("{device}.pcap"))).arg("tcp or icmp");
    let dump = Running::spawn(host.host(&mut command).unwrap());
    dump.said("listening on");
    dump
}

fn write(mut stream: &TcpStream, situation: &Situation) {
    let chunk = vec![7; 32 << 10];
    for _ in 0..situation.bytes / chunk.len() {
        stream.write_all(&chunk).unwrap();
        if situation.applications == Applications::PausingWriter {
            thread::sleep(PAUSE);
        }
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

fn read(mut stream: &TcpStream, applications: Applications) {
    let mut chunk = vec![0; 16 << 10];
    loop {
        if applications == Applications::SlowReader {
            thread::sleep(PAUSE);
        }
        if stream.read(&mut chunk).unwrap() == 0 {
            return;
        }
    }
}
