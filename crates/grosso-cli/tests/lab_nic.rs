//! Tests `grosso lab nic` on a veth pair with the sink at the peer: its report, and that the device's settings are
//! restored however the lab ends. `experiments` checks the figures.

#![cfg(target_os = "linux")]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{
    common::{Bench, finished},
    veth_lab::{Net, ended, listening},
};

/// Returns the child processes of a process.
fn children(parent: u32) -> Vec<Pid> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let numbers = std::fs::read_to_string(path).unwrap();
    numbers.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

#[test]
fn each_feature_is_turned_off_and_on_and_put_back() {
    let Some(net) = Net::new() else { return };
    // A state that is hard to restore: some features are requested but off, and one has an unusual setting.
    net.set(&[("tx-checksum-ip-generic", false), ("rx-gro", false)]);
    let before = net.features();
    let run = net.run("--runs 1 --time 20ms --html page.html --json");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(net.features(), before);
    let report = run.json();
    assert_eq!(report["schema"], "grosso.lab-nic/2");
    assert_eq!(report["environment"]["nic"], "v0");
    assert_eq!(report["environment"]["peer"], "192.0.2.2:5297");
    let rows = report["rows"].as_array().unwrap();
    let states = |feature: &str| {
        let rows = rows.iter().filter(|row| row["feature"] == feature);
        rows.map(|row| (row["on"] == true, row["as_found"] == true)).collect::<Vec<_>>()
    };
    assert_eq!(states("rx-gro"), [(false, true), (true, false)]);
    assert_eq!(states("tx-checksum-ip-generic"), [(false, true), (true, false)]);
    // TCP segmentation depends on checksum offload, which is off.
    assert_eq!(states("tx-tcp-segmentation"), [(false, false)]);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("Feature tx-tcp-segmentation cannot be turned on at the moment."),
        "{notes}"
    );
    for verdict in report["verdicts"].as_array().unwrap() {
        // The stream is TCP over IPv4.
        let claim = verdict["claim"].as_str().unwrap();
        let others =
            ["udp", "sctp", "tcp6", "vlan", "tnl", "tunnel", "gre-", "ipxip", "esp", "-list"];
        let expected = match others.iter().any(|other| claim.contains(other)) {
            true => "cannot_be_shown_here",
            false => "undecided",
        };
        assert_eq!(verdict["verdict"], expected, "one run proves nothing: {verdict}");
    }
    assert!(report["verdicts"].to_string().contains("an SCTP stream"), "{report}");
    assert!(states("tx-sctp-segmentation").is_empty(), "{report}");
    let page = String::from_utf8(net.bench.get("page.html")).unwrap();
    assert!(page.contains("lab nic v0 --peer 192.0.2.2 --runs 1"), "how to repeat it");
}

#[test]
fn a_lab_that_is_killed_leaves_nothing_changed() {
    let Some(net) = Net::new() else { return };
    let before = net.features();
    for delay_ms in [0, 1, 7, 30, 90, 200, 400] {
        let mut lab = net.changing(&before);
        thread::sleep(Duration::from_millis(delay_ms));
        lab.kill().unwrap();
        let (_, said) = ended(lab);
        assert_eq!(net.features(), before, "{delay_ms} ms: {said}");
    }
}

#[test]
fn a_sink_outlives_foreign_clients_and_a_closed_output() {
    let bench = Bench::new();
    let (mut sink, address) = listening(&mut bench.command("lab sink 127.0.0.1:0"));
    for _ in 0..3 {
        let mut client = TcpStream::connect(&address).unwrap();
        client.write_all(b"?").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(sink.try_wait().unwrap(), None);
    sink.kill().unwrap();
    sink.wait().unwrap();
}

#[test]
fn ctrl_c_and_the_end_of_the_watchdog_leave_nothing_changed() {
    let Some(net) = Net::new() else { return };
    let before = net.features();
    let lab = net.changing(&before);
    // As a terminal does, the signal goes to all processes of the group.
    let group = Pid::from_child(&lab);
    kill_process_group(group, Signal::INT).unwrap();
    assert_eq!(ended(lab), (Some(130), String::new()));
    assert_eq!(net.features(), before);
    let lab = net.changing(&before);
    let watchdogs = children(lab.id());
    assert_eq!(watchdogs.len(), 1);
    kill_process(watchdogs[0], Signal::KILL).unwrap();
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    assert_eq!(ended(lab), (Some(130), String::new()));
    assert_eq!(net.features(), before);
}

#[test]
fn a_second_lab_is_refused_and_changes_nothing() {
    let Some(net) = Net::new() else { return };
    let before = net.features();
    let first = net.changing(&before);
    let second = net.run("--no-html");
    assert_eq!(second.code, 4, "{}", second.stderr);
    let busy = "another `grosso lab` is measuring v0; wait until it ends";
    assert!(second.stderr.contains(busy), "{}", second.stderr);
    kill_process_group(Pid::from_child(&first), Signal::INT).unwrap();
    assert_eq!(ended(first).0, Some(130));
    assert_eq!(net.features(), before);
}

#[test]
fn wrong_arguments_and_directions_are_named_with_a_remedy() {
    let Some(net) = Net::new() else { return };
    let before = net.features();
    let run = net.run("--feature gro");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("cannot measure feature gro of "), "{}", run.stderr);
    assert!(run.stderr.contains("rx-gro,"), "{}", run.stderr);
    let mut elsewhere = net.bench.command("lab nic lo --peer 192.0.2.2 --feature rx-gro --no-html");
    let run = finished(net.network.host(&mut elsewhere).unwrap().output().unwrap());
    assert_eq!(run.code, 4, "{}", run.stderr);
    let why = "192.0.2.2:5297 is not routed through lo";
    assert!(run.stderr.contains(why) && run.stderr.contains("ip route get"), "{}", run.stderr);
    let mut nobody = net.bench.command("lab nic v0 --peer 192.0.2.2:1 --no-html");
    let run = finished(net.network.host(&mut nobody).unwrap().output().unwrap());
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(run.stderr.contains("start `grosso lab sink` on that host"), "{}", run.stderr);
    assert_eq!(net.features(), before);
}
