//! Tests captures that tcpdump records of iperf3 traffic between two network namespaces.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use grosso_testkit::{
    flows::{assert_conserved, assert_order_within_flows},
    oracle::{self, Link},
};

use crate::common::{Bench, frames, has, packets, tshark};

/// Two namespaces and the veth pair between them, removed on drop.
struct Lab {
    names: [String; 2],
}

impl Lab {
    /// Creates the hosts; `None` if the test cannot create namespaces, or a tool is missing.
    fn new(tag: &str) -> Option<Self> {
        if !["tcpdump", "iperf3", "tshark"].iter().all(|tool| has(tool)) {
            return None;
        }
        let names = ["a", "b"].map(|end| format!("grosso-{tag}-{end}-{}", std::process::id()));
        let lab = Self { names };
        let [a, b] = &lab.names;
        let is_made = ip(&format!("netns add {a}"))
            && ip(&format!("netns add {b}"))
            && ip(&format!("link add v0 netns {a} type veth peer name v0 netns {b}"))
            && ip(&format!("-n {a} addr add 10.99.0.1/24 dev v0"))
            && ip(&format!("-n {b} addr add 10.99.0.2/24 dev v0"))
            && ip(&format!("-n {a} link set v0 up"))
            && ip(&format!("-n {b} link set v0 up"));
        if !is_made {
            println!("skipped: no network namespaces here");
        }
        is_made.then_some(lab)
    }

    fn command(&self, end: usize, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]).args(line.split(' '));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Captures one transfer on the sending host.
    fn capture(&self, path: &Path, traffic: &str) {
        let mut server = self.command(1, "iperf3 -s -1").spawn().unwrap();
        let line = format!("tcpdump -i v0 -B 65536 -U -w {}", path.display());
        let mut tcpdump = self.command(0, &line).spawn().unwrap();
        // The file header is written as soon as the capture is running.
        while std::fs::metadata(path).map_or(0, |metadata| metadata.len()) < 24 {
            assert!(tcpdump.try_wait().unwrap().is_none(), "tcpdump does not run");
            std::thread::yield_now();
        }
        // The server may not listen yet, but it will as long as its process runs.
        let client = format!("iperf3 -c 10.99.0.2 {traffic}");
        while !self.command(0, &client).status().unwrap().success() {
            assert!(server.try_wait().unwrap().is_none(), "iperf3 does not serve");
        }
        server.wait().unwrap();
        stop(&mut tcpdump);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> bool {
    let run = Command::new("ip").args(line.split(' ')).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Ends tcpdump as Ctrl-C does, so that it writes its buffer.
fn stop(child: &mut Child) {
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    child.wait().unwrap();
}

#[test]
fn capture_of_a_sender_becomes_the_wire_and_comes_back_from_coalescing() {
    let Some(lab) = Lab::new("send") else { return };
    let bench = Bench::new();
    lab.capture(&bench.path("send.pcap"), "-n 8M");
    let report = bench.run("inspect send.pcap --json").json();
    assert_eq!(report["verdict"]["vantage"], "sender-host");
    assert!(report["superframes"]["packets"].as_u64().unwrap() > 0);
    assert_eq!(report["checksums"]["bad"], 0);
    assert_eq!(report["superframes"]["mss"][0]["source"], "syn");

    bench.ok("wire -q -r send.pcap -w wire.pcapng");
    let wire = frames(&bench.get("wire.pcapng"));
    assert!(wire.iter().all(|frame| frame.len() <= 1514));
    assert!(wire.iter().all(|frame| oracle::is_right(frame, Link::Ethernet)));
    // A checksum of zero is written as 0xffff (rule C3), and tshark expects zero.
    let wrong = "(tcp.checksum.status == 0 && tcp.checksum != 0xffff) || ip.checksum.status == 0 \
                 || _ws.malformed";
    assert_eq!(tshark(&bench.path("wire.pcapng"), wrong), Vec::<String>::new());

    for name in ["send.pcap", "wire.pcapng"] {
        bench.ok(&format!("coalesce -q -r {name} -w gro.pcapng"));
        bench.ok("segment -q -r gro.pcapng -w back.pcapng");
        let (before, after) = (packets(&bench.get(name)), packets(&bench.get("back.pcapng")));
        let data = |packets: &[crate::common::Timed]| -> Vec<_> {
            packets.iter().map(|(_, data)| data.clone()).collect()
        };
        let timed = |packets: &[crate::common::Timed]| -> Vec<_> {
            packets.iter().map(|(time, data)| [&time.to_be_bytes(), &data[..]].concat()).collect()
        };
        assert_conserved(&timed(&before), &timed(&after));
        assert_order_within_flows(&data(&before), &data(&after), Link::Ethernet);
    }
    let merged = frames(&bench.get("gro.pcapng"));
    assert!(merged.len() < wire.len(), "{} of {}", merged.len(), wire.len());
}
