//! Compares the output of `grosso stats` for running paths with the kernel's counts of the same packets.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    path::Path,
    process::Stdio,
};

use grosso_sys::interface::Control;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    common::report,
    network::{A, B, Ended, Hosts, Running, connect, exchange, name, until},
};

fn json(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    report(&ended.stdout)
}

/// Returns a device's entry in a JSON report.
fn of<'a>(report: &'a Value, device: &str) -> &'a Value {
    let devices = report["devices"].as_array().unwrap();
    devices.iter().find(|line| line["device"] == device).unwrap_or_else(|| panic!("{report}"))
}

fn count(device: &Value, counter: &str) -> u64 {
    device[counter].as_u64().unwrap_or_else(|| panic!("{counter} in {device}"))
}

/// Returns a kernel counter for a device on the second host.
fn kernel(hosts: &Hosts, device: &str, counter: &str) -> u64 {
    let mut command = std::process::Command::new("ip");
    let command = hosts.b.host(command.args(["-s", "-j", "link", "show", device])).unwrap();
    let links: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let (way, what) = counter.split_once('_').unwrap();
    links[0]["stats64"][way][what].as_u64().unwrap_or_else(|| panic!("{counter}: {links}"))
}

/// Returns the number of TCP segments that the second host sent; for a superframe, each of its segments counts.
fn segments_sent(hosts: &Hosts) -> u64 {
    let snmp = hosts.b.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut fields = names.split(' ').zip(values.split(' '));
    fields.find(|(name, _)| *name == "OutSegs").unwrap().1.parse().unwrap()
}

#[test]
fn frames_and_packets_are_those_that_the_kernel_counted() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0");
    hosts.address("b0");
    exchange(&connect((&hosts.b, B[0]), (&hosts.a, A[0])), 8 << 20);
    // The last acknowledgment may be in flight during the count.
    until(|| {
        let report = json(&hosts.run("stats --json"));
        let tap = of(&report, "b0");
        count(tap, "rx_frames") == kernel(&hosts, "b0", "tx_packets")
            && count(tap, "tx_frames") == kernel(&hosts, "b0", "rx_packets")
    });
    let report = json(&hosts.run("stats --json"));
    assert_eq!(report["schema"], "grosso.stats_list/1");
    let (wire, tap) = (of(&report, "e0"), of(&report, "b0"));
    assert_eq!((&wire["peer"], &tap["peer"]), (&"b0".into(), &"e0".into()));
    let (packets, segments) = (count(tap, "rx_packets"), segments_sent(&hosts));
    assert!(count(tap, "rx_frames") < segments / 2, "the host sends superframes");
    // Besides TCP there are a few packets of neighbor discovery.
    assert!((segments..segments + 60).contains(&packets), "{packets} for {segments}: {tap}");
    assert_eq!(packets, count(wire, "tx_packets"));
    assert_eq!(count(tap, "rx_bytes"), count(wire, "tx_bytes"));
    assert_eq!(count(wire, "rx_packets"), count(tap, "tx_packets"));
    let needs = count(wire, "tx_needs_csum");
    assert!(needs > 0 && needs + count(wire, "tx_csum_none") == count(tap, "rx_frames"), "{wire}");
    bridge.stop(Signal::TERM);
}

#[test]
fn packets_of_the_wire_are_merged_at_its_device_and_cut_at_its_device() {
    let Some(hosts) = Hosts::new() else { return };
    let mut off = std::process::Command::new("ethtool");
    off.args(["-K", "a0", "tso", "off", "gso", "off", "gro", "off", "tx", "off"]);
    let is_off =
        hosts.a.host(&mut off).unwrap().output().is_ok_and(|output| output.status.success());
    if !is_off {
        return crate::network::skip("ethtool is not installed");
    }
    let bridge = hosts.start("bridge e0 tap:b0 --hold 100us");
    hosts.address("b0");
    exchange(&connect((&hosts.a, A[1]), (&hosts.b, B[1])), 4 << 20);
    let report = json(&hosts.run("stats --json"));
    let (wire, tap) = (of(&report, "e0"), of(&report, "b0"));
    assert_eq!(count(wire, "rx_packets"), count(wire, "rx_frames"), "a wire has no superframes");
    let (made, merged) = (count(wire, "rx_gro_packets"), count(wire, "rx_gro_wire_packets"));
    assert!(made > 0 && merged > 2 * made, "{wire}");
    assert_eq!(count(&wire["rx_gro_packets_by_proto"], "tcp6"), made);
    let flushed: u64 =
        wire["rx_gro_flush"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(flushed >= made, "{wire}");
    assert_eq!(count(tap, "rx_gro_packets"), 0, "nothing that came from the host was merged");
    let sum = count(&wire["rx_gro_segs"], "sum");
    assert_eq!(sum, count(tap, "tx_packets"));
    bridge.stop(Signal::TERM);
}

#[test]
fn trains_that_are_held_are_gauges_of_the_moment_and_no_change() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0 --hold 3600s");
    hosts.address("b0");
    let sender = hosts.a.run(|| UdpSocket::bind((A[0], 0))).unwrap().unwrap();
    for port in [7, 7, 7, 9] {
        sender.send_to(&[port as u8; 100], (B[0], port)).unwrap();
    }
    let held = || {
        let report = json(&hosts.run("stats --json"));
        let wire = of(&report, "e0");
        (count(wire, "rx_gro_held"), count(wire, "rx_gro_held_packets"))
    };
    until(|| held() == (2, 4));
    let page = hosts.run("stats --prom").stdout;
    assert!(page.contains("# TYPE grosso_rx_gro_held gauge\ngrosso_rx_gro_held{"), "{page}");
    assert!(
        page.contains("grosso_rx_gro_held_packets{device=\"e0\",path=\"e0-b0\"} 4\n"),
        "{page}"
    );
    let lines = hosts.run("stats -i 0.05 -c 2 --jsonl --delta e0").stdout;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((count(&last, "rx_gro_held"), &last["delta"]["rx_gro_held"]), (2, &Value::Null));
    // An ICMP "port unreachable" message is not a packet of the flow. A datagram without payload is one, and flushes
    // the flow's train.
    sender.send_to(&[], (B[0], 9)).unwrap();
    until(|| held() == (1, 3));
    bridge.stop(Signal::TERM);
}

#[test]
fn every_output_format_has_the_same_counters() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = "bridge e0 tap:b0 --queues 2 --name edge --metrics 127.0.0.1:0";
    let bridge = Running::spawn(&mut hosts.command(bridge));
    let address = bridge.wait_for_line("metrics: http://");
    let address = address.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    bridge.wait_for_line("<->");
    hosts.address("b0");
    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);

    let text = hosts.run("stats b0");
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.stdout.starts_with("b0 (path edge, to e0)\n    rx_packets: "), "{text:?}");
    assert!(!text.stdout.contains("e0 (path"), "{text:?}");

    let lines = hosts.run("stats -i 0.05 -c 3 --jsonl --delta e0");
    let lines: Vec<Value> = lines.stdout.lines().map(report).collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].get("delta").is_none() && lines.iter().all(|l| l["schema"] == "grosso.stats/1")
    );
    for pair in lines.windows(2) {
        let [before, now] = pair else { unreachable!() };
        let change = count(now, "rx_packets") - count(before, "rx_packets");
        assert_eq!(count(&now["delta"], "rx_packets"), change);
        // If a reading is late, it also serves as the next one, because values that were just read are not requested
        // again.
        assert!(count(now, "ts_ns") >= count(before, "ts_ns"));
    }

    let each = json(&hosts.run("stats --json --per-queue"));
    let each = each["devices"].as_array().unwrap();
    let queues: BTreeSet<_> =
        each.iter().map(|line| (line["device"].as_str().unwrap(), count(line, "queue"))).collect();
    assert_eq!(queues, [("b0", 0), ("b0", 1), ("e0", 0), ("e0", 1)].into());

    let series = |page: &str| -> BTreeSet<String> {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let page = hosts.run("stats --prom").stdout;
    assert!(
        series(&page).contains("grosso_rx_packets_total{device=\"e0\",path=\"edge\"}"),
        "{page}"
    );
    let scraped = hosts.b.run(|| {
        Control::new().unwrap().set_up(&name("lo"), true).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    });
    let scraped = scraped.unwrap();
    assert_eq!(series(scraped.split_once("\r\n\r\n").unwrap().1), series(&page));
    bridge.stop(Signal::TERM);
}

#[test]
fn unavailable_counters_are_reported_with_a_remedy() {
    let Some(hosts) = Hosts::new() else { return };
    let none = hosts.run("stats");
    assert_eq!((none.code, none.stdout.as_str()), (Some(4), ""), "{none:?}");
    assert!(
        none.stderr.contains("no data path") && none.stderr.contains("grosso bridge"),
        "{none:?}"
    );
    let none = report(&hosts.run("stats --jsonl").stderr);
    assert_eq!(none["code"], "environment.nothing_running");
    for line in
        ["stats -c 2", "stats --delta", "stats -i 0", "stats -i 1 --json", "stats --prom --json"]
    {
        assert_eq!(hosts.run(line).code, Some(2), "{line}");
    }
    let bridge = hosts.start("bridge e0 tap:b0");
    let missing = hosts.run("stats eth7");
    assert_eq!(missing.code, Some(4));
    assert!(
        missing.stderr.contains("eth7")
            && missing.stderr.contains("the data paths use these devices: b0, e0"),
        "{missing:?}"
    );
    // The series continues until the paths have ended.
    let lines = hosts.path("lines");
    let mut series = hosts.command("stats -i 0.05 --jsonl");
    series.stdout(fs::File::create(&lines).unwrap()).stderr(Stdio::piped());
    let series = series.spawn().unwrap();
    until(|| fs::metadata(&lines).unwrap().len() > 0);
    bridge.stop(Signal::TERM);
    let ended = series.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the data paths have ended"));
}

#[test]
fn killed_programs_leave_nothing_and_hanging_ones_delay_no_other() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.add_wire("a1", "e1");
    let hung = hosts.start("bridge e0 tap:b0");
    let killed = hosts.start("bridge e1 tap:b1");
    assert_eq!(json(&hosts.run("stats --json"))["devices"].as_array().unwrap().len(), 4);
    hung.pause();
    let report = hosts.run("stats --json");
    assert_eq!(json(&report)["devices"].as_array().unwrap().len(), 2);
    let warning = json(&report)["warnings"][0].as_str().unwrap().to_owned();
    assert!(warning.contains("no answer") && warning.contains(&hung.id().to_string()), "{warning}");
    hung.signal(Signal::CONT);
    let socket = hosts.path(&format!("{}.sock", killed.id()));
    assert!(Path::exists(&socket));
    killed.stop(Signal::KILL);
    assert!(socket.exists(), "the program could not remove its socket");
    assert_eq!(json(&hosts.run("stats --json"))["devices"].as_array().unwrap().len(), 2);
    assert!(!socket.exists());
    hung.stop(Signal::TERM);
}
