//! Tests the command `grosso bridge` with kernel TCP on both sides.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{Read, Write},
    net::UdpSocket,
    process::Command,
    thread,
};

use grosso_sys::{interface::Control, tun::TunBuilder};
use grosso_testkit::Packet;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    common::report,
    network::{
        A, B, CHUNK, Hosts, Running, connect, exchange, name, namespaces, receive, send, skip,
        until,
    },
};

#[test]
fn streams_are_whole_and_sigterm_ends_with_a_summary_and_zero() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0 --hold 20us");
    hosts.address("b0");
    for (a, b) in A.into_iter().zip(B) {
        exchange(&connect((&hosts.a, a), (&hosts.b, b)), 4 << 20);
        exchange(&connect((&hosts.b, b), (&hosts.a, a)), 1 << 20);
    }
    bridge.signal(Signal::USR1);
    bridge.wait_for_line("b0");
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("e0") && ended.stdout.contains("b0"), "{ended:?}");
}

#[test]
fn lossy_profiles_require_a_host_that_terminates_tcp() {
    let Some(hosts) = Hosts::new() else { return };
    let refused = hosts.run("bridge e0 tap:b0 --profile freebsd");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("merging is lossy"), "{refused:?}");
    assert!(refused.stderr.contains("pass --terminates"), "{refused:?}");
    let refused = hosts.run("bridge e0 lo --profile freebsd --terminates");
    assert_eq!(refused.code, Some(2), "neither port is a host: {refused:?}");
    // The sender transmits single packets, so that there is something to merge.
    let mut single = Command::new(env!("CARGO_BIN_EXE_grosso"));
    single.args(["dev", "-K", "a0", "tso", "off", "gso", "off"]);
    assert!(hosts.a.host(&mut single).unwrap().output().unwrap().status.success());
    let line = "bridge e0 tap:b0 --profile freebsd --terminates --hold 100us --json";
    let bridge = Running::spawn(&mut hosts.command(line));
    until(|| hosts.b.run(|| crate::network::set_up("b0", B)).unwrap().is_ok());
    for (a, b) in A.into_iter().zip(B) {
        exchange(&connect((&hosts.a, a), (&hosts.b, b)), 4 << 20);
        exchange(&connect((&hosts.b, b), (&hosts.a, a)), 1 << 20);
    }
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary = report(&ended.stdout);
    let joined = &summary["devices"][0]["counters"]["rx_gro_bytes"];
    assert!(joined.as_u64().unwrap() > 1 << 20, "the streams were merged: {joined}");
}

#[test]
fn train_acknowledgments_are_expanded_only_for_a_host_that_terminates_tcp() {
    let Some(hosts) = Hosts::new() else { return };
    for (line, why) in [
        ("bridge e0 tap:b0 --expand-acks", "--terminates"),
        (
            "bridge e0 lo --terminates --expand-acks",
            "requires a tap, tun or fd port, but the ports are e0 and lo",
        ),
    ] {
        let refused = hosts.run(line);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let mut single = Command::new(env!("CARGO_BIN_EXE_grosso"));
    single.args(["dev", "-K", "a0", "tso", "off", "gso", "off"]);
    assert!(hosts.a.host(&mut single).unwrap().output().unwrap().status.success());
    let line = "bridge e0 tap:b0 --terminates --expand-acks --hold 100us --json";
    let bridge = Running::spawn(&mut hosts.command(line));
    until(|| hosts.b.run(|| crate::network::set_up("b0", B)).unwrap().is_ok());
    for (a, b) in A.into_iter().zip(B) {
        exchange(&connect((&hosts.a, a), (&hosts.b, b)), 4 << 20);
    }
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary = report(&ended.stdout);
    let counted =
        |device: usize, name: &str| summary["devices"][device]["counters"][name].as_u64().unwrap();
    let [one, several] = ["rx_acks_expanded", "rx_acks_expanded_into"].map(|name| counted(1, name));
    assert!(one > 0 && several >= 2 * one, "{one} {several}");
    assert!(counted(0, "tx_frames") > counted(1, "rx_frames"));
    assert_eq!(counted(0, "rx_acks_expanded"), 0, "not those of the wire");
}

#[test]
fn eight_flows_over_two_queues_are_whole_on_a_good_wire_and_on_a_bad_one() {
    let bad = ["--impair", "delay 100us jitter 20us loss 0.1% duplicate 0.1% seed 7"];
    for impairment in [&[][..], &bad] {
        let Some(hosts) = Hosts::new() else { return };
        let mut command = hosts.command("bridge e0 tap:b0 --queues 2");
        let bridge = Running::spawn(command.args(impairment));
        bridge.wait_for_line("2 queues");
        hosts.address("b0");
        thread::scope(|scope| {
            for flow in 0..8 {
                let hosts = &hosts;
                let family = flow % 2;
                let ends = move || connect((&hosts.a, A[family]), (&hosts.b, B[family]));
                scope.spawn(move || exchange(&ends(), 1 << 20));
            }
        });
        assert_eq!(bridge.threads().len(), 2);
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
    }
}

/// Tests VXLAN packets whose outer checksum the kernel's GRO has verified. The engine derives the sum of the inner
/// transport packet, without the VLAN tag, from this checksum. The sum decides which packets merge.
#[test]
fn sums_behind_a_verified_outer_checksum_decide_what_merges() {
    let Some([host]) = namespaces() else { return };
    let open = || {
        let device = TunBuilder::tap(name("n0")).virtio_header(true).napi(true).open()?;
        Control::new()?.set_up(device.name(), true)?;
        Ok::<_, std::io::Error>(device)
    };
    let device = host.run(open).unwrap().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.args(["bridge", "n0", "tap:b0", "--hold", "50ms", "--json"]);
    let bridge = Running::spawn(host.host(&mut command).unwrap());
    until(|| host.run(|| Control::new()?.set_up(&name("b0"), true)).unwrap().is_ok());
    let write = |number: u16, wrong: u16| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number)).udp(|u| u);
        let inner = outer.vxlan(|v| v).ethernet(|e| e).vlan(|v| v).ipv4(|ip| ip.id(number));
        let inner = inner.tcp(|tcp| tcp.sequence(1000 * u32::from(number)).checksum_xor(wrong));
        let frame = inner.payload_len(1000).build();
        device.write(&[&[0; 10], &frame[..]].concat()).unwrap();
    };
    (0..SENT).for_each(|number| write(number, 0));
    (SENT..2 * SENT).for_each(|number| write(number, 1));
    let counted = |summary: &Value, name: &str| {
        summary["devices"][0]["counters"][name].as_u64().unwrap_or_default()
    };
    let stats = || {
        let mut stats = Command::new(env!("CARGO_BIN_EXE_grosso"));
        let stats = host.host(stats.args(["stats", "--jsonl", "n0"])).unwrap().output().unwrap();
        serde_json::from_slice::<Value>(&stats.stdout).unwrap_or_default()
    };
    let all = u64::from(2 * SENT);
    until(|| stats()["rx_frames"].as_u64().is_some_and(|frames| frames >= all));
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary = report(&ended.stdout);
    assert!(counted(&summary, "rx_csum_unnecessary") >= all, "{summary}");
    assert_eq!(counted(&summary, "rx_csum_bad"), u64::from(SENT), "{summary}");
    assert_eq!(counted(&summary, "rx_gro_wire_packets"), u64::from(SENT), "{summary}");
}

/// Number of packets with correct checksums, and of packets with a wrong one.
const SENT: u16 = 40;

/// Returns how often the first queue's thread has given up its CPU, according to the kernel.
fn sleeps(running: &Running) -> u64 {
    let (_, number) = running.threads().into_iter().next().unwrap();
    let file = format!("/proc/{}/task/{number}/status", running.id());
    let status = fs::read_to_string(file).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_poll_takes_the_configured_number_of_frames() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("own.toml");
    fs::write(&profile, "[limits]\nfull-poll-ns = 0\n").unwrap();
    let superframes = |options: &str| {
        let hosts = Hosts::new()?;
        let mut off = Command::new("ethtool");
        off.args(["-K", "a0", "tso", "off", "gso", "off", "gro", "off", "tx", "off"]);
        if !hosts.a.host(&mut off).unwrap().output().is_ok_and(|output| output.status.success()) {
            skip("ethtool is not installed");
            return None;
        }
        let bridge = hosts.start(&format!("bridge e0 tap:b0 {options}"));
        hosts.address("b0");
        exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 4 << 20);
        let line: Value =
            serde_json::from_str(&hosts.run("stats --jsonl e0").stdout).expect("a line of e0");
        bridge.stop(Signal::TERM);
        line["rx_gro_packets"].as_u64()
    };
    // With the default profile, trains stay open if a poll has used its whole budget.
    let own = format!("--poll-budget 1 --profile {}", profile.display());
    let counts = [own.as_str(), "--poll-budget 1", ""].map(superframes);
    let [Some(alone), Some(going_on), Some(usual)] = counts else { return };
    assert!(alone == 0 && going_on > 0 && usual > 0, "{alone} {going_on} {usual}");
}

#[test]
fn a_thread_that_polls_busily_does_not_sleep_between_two_frames() {
    let rounds = |busy: &str| {
        let hosts = Hosts::new()?;
        let bridge = hosts.start(&format!("bridge e0 tap:b0 {busy}"));
        hosts.address("b0");
        let [mut near, mut far] = connect((&hosts.a, A[0]), (&hosts.b, B[0]));
        let before = sleeps(&bridge);
        let mut byte = [7];
        for _ in 0..ROUNDS {
            near.write_all(&byte).unwrap();
            far.read_exact(&mut byte).unwrap();
            far.write_all(&byte).unwrap();
            near.read_exact(&mut byte).unwrap();
        }
        let slept = sleeps(&bridge) - before;
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
        Some(slept)
    };
    let (Some(busy), Some(usual)) = (rounds("--busy-poll 1s"), rounds("")) else { return };
    assert!(busy < ROUNDS / 10 && usual > 2 * busy, "{busy} {usual}");
}

#[test]
fn a_connection_outlives_the_death_and_return_of_the_data_path() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0 --persist");
    hosts.address("b0");
    let ends = connect((&hosts.a, A[0]), (&hosts.b, B[0]));
    exchange(&ends, 1 << 20);
    let ended = bridge.stop(Signal::KILL);
    assert_eq!(ended.code, None, "it was killed: {ended:?}");
    thread::scope(|scope| {
        let [near, far] = &ends;
        // Data sent now is lost until the path is restored.
        scope.spawn(|| send(near, 3, 64 * CHUNK));
        let bridge = hosts.start("bridge e0 tap:b0 --persist");
        receive(far, 3, 64 * CHUNK);
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
    });
}

#[test]
fn held_packets_are_delivered_at_shutdown() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0 --hold 3600s");
    hosts.address("b0");
    let bind = || UdpSocket::bind((B[0], 0));
    let (held, passed) = (hosts.b.run(bind).unwrap().unwrap(), hosts.b.run(bind).unwrap().unwrap());
    let sender = hosts.a.run(|| UdpSocket::bind((A[0], 0))).unwrap().unwrap();
    for i in 0..3 {
        sender.send_to(&[i; 100], held.local_addr().unwrap()).unwrap();
    }
    // An empty datagram cannot be part of a train, and arrives after all others.
    sender.send_to(&[], passed.local_addr().unwrap()).unwrap();
    passed.set_read_timeout(Some(crate::network::STALLED)).unwrap();
    let mut buffer = [0; 200];
    assert_eq!(passed.recv(&mut buffer).unwrap(), 0);
    held.set_nonblocking(true).unwrap();
    assert!(held.recv(&mut buffer).is_err(), "the packets are held");
    let ended = bridge.stop(Signal::INT);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stdout.contains("b0"), "the summary: {ended:?}");
    for i in 0..3 {
        assert_eq!(held.recv(&mut buffer).unwrap(), 100);
        assert!(buffer[..100].iter().all(|byte| *byte == i));
    }
}

#[test]
fn a_device_that_is_removed_ends_it_with_its_name_and_four() {
    for device in ["e0", "b0"] {
        let Some(hosts) = Hosts::new() else { return };
        let bridge = hosts.start("bridge e0 tap:b0");
        hosts.remove(device);
        let ended = bridge.end();
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let message = format!("grosso: bridge: {device}: the device was removed");
        assert_eq!(ended.stderr, message);
        assert!(ended.stdout.contains("e0"), "the summary: {ended:?}");
    }
}

#[test]
fn device_options_are_applied() {
    let Some(hosts) = Hosts::new() else { return };
    let link = |device: &str| {
        let mut command = Command::new("ip");
        let command = hosts.b.host(command.args(["-d", "link", "show", device])).unwrap();
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let bridge = Running::spawn(&mut hosts.command("bridge e0 tap:t%d --mtu 9000 --json"));
    until(|| link("t0").contains(",UP"));
    assert!(link("t0").contains("mtu 9000"), "{}", link("t0"));
    assert!(link("e0").contains("mtu 1500") && link("e0").contains("promiscuity 1"));
    let ended = bridge.stop(Signal::TERM);
    let summary = report(&ended.stdout);
    assert_eq!(summary["schema"], "grosso.bridge/1", "{summary}");
    assert_eq!(summary["devices"][1]["device"], "t0", "{summary}");
    assert_eq!(link("t0"), "", "the device outlived the command");
    let bridge = hosts.start("bridge e0 tap:b0 --persist --no-promisc");
    assert!(link("e0").contains("promiscuity 0"));
    bridge.stop(Signal::TERM);
    assert!(link("b0").contains("persist on"), "{}", link("b0"));
}

#[test]
fn devices_that_cannot_be_opened_are_reported_with_a_remedy() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.add_wire("a1", "wire0");
    for (line, message, hint) in [
        ("bridge wire tap:b0", "bridge: no interface \"wire\"; did you mean wire0?", "wire0"),
        ("bridge xdp:e1 tap:b0", "bridge: no interface \"e1\"", "interfaces here:"),
        (
            "bridge e0 tap:lo",
            "bridge: opening lo: the existing device is not of the requested type",
            "ip -d link",
        ),
        ("bridge e0 fd:77", "bridge: fd:77: the descriptor is not open", "must leave"),
        ("bridge e0 tap:b0 --cpus 4096", "CPU 4096 does not exist; the number of CPUs is", ""),
        (
            "bridge xdp:e0 tap:b0 --queues 64",
            "bridge: opening e0: the interface has fewer than 64 queues",
            "ethtool -l",
        ),
    ] {
        let ended = hosts.run(line);
        assert_eq!(ended.code, Some(4), "{line}: {ended:?}");
        assert!(ended.stderr.contains(message), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(hint), "{line}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{line}");
    }
    let first = hosts.start("bridge e0 tap:b0");
    let ended = hosts.run("bridge lo tap:b0");
    assert!(
        ended.stderr.contains("opening b0: another program has opened the device"),
        "{}",
        ended.stderr
    );
    first.stop(Signal::TERM);
}

#[test]
fn a_wrong_command_line_is_refused_before_any_device_is_touched() {
    let Some(hosts) = Hosts::new() else { return };
    for line in [
        "bridge e0",
        "bridge e0 e0",
        "bridge e0 vlan:3",
        "bridge e0 tun:t0",
        "bridge e0 fd:3 --queues 2",
        "bridge e0 tap:b0 --queues 0",
        "bridge e0 tap:b0 --queues 65",
        "bridge e0 tap:b0 --hold soon",
        "bridge e0 tap:b0 --cpus 0,x",
        "bridge e0 tap:b0 --metrics here",
        "bridge e0 tap:b0 --name a/b",
        "bridge e0 tap:b0 --impair delay",
        "bridge e0 tap:b0 --rx 100",
        "bridge e0 tap:b0 --rx 1048576",
        "bridge tap:b0 tap:b1 --rx 512",
        "bridge e0 tap:b0 --tx 100",
        "bridge e0 tap:b0 --tx 16384",
        "bridge tap:b0 tap:b1 --tx 512",
    ] {
        let ended = hosts.run(line);
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
    }
}

#[test]
fn missing_privileges_are_named_with_the_command_that_gives_them() {
    let Some(hosts) = Hosts::new() else { return };
    // `setcap` replaces the file's previous capabilities.
    let both = "setcap cap_net_admin,cap_net_raw+ep";
    let admin = "opening b0 needs CAP_NET_ADMIN";
    for (left, line, needs, hint) in [
        ("-all", "bridge tap:b0 tap:b1", admin, "setcap cap_net_admin+ep"),
        ("-all,+net_raw", "bridge tap:b0 tap:b1", admin, both),
        (
            "-all",
            "bridge e0 tap:b0",
            "opening e0 needs CAP_NET_RAW; the command also needs CAP_NET_ADMIN",
            both,
        ),
        ("-all,+net_admin", "bridge e0 tap:b0", "opening e0 needs CAP_NET_RAW", both),
        ("-all", "bridge xdp:e0 tap:b0", "opening e0 needs CAP_NET_ADMIN, CAP_NET_RAW", "setcap"),
        ("-all", "dev -K e0 gro off", "needs CAP_NET_ADMIN\n", "setcap cap_net_admin+ep"),
        ("-all,+net_raw", "dev -K e0 gro off", "needs CAP_NET_ADMIN\n", both),
    ] {
        let mut command = Command::new("setpriv");
        let bounding = format!("--bounding-set={left}");
        command.args([&bounding, "--inh-caps=-all", env!("CARGO_BIN_EXE_grosso")]);
        command.args(line.split(' '));
        let ended = Running::spawn(hosts.b.host(&mut command).unwrap()).end();
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.stderr.contains(needs) && ended.stderr.contains(hint), "{}", ended.stderr);
    }
}

#[test]
fn a_missing_device_file_is_named_with_the_command_that_brings_it() {
    let Some(hosts) = Hosts::new() else { return };
    let script = format!(
        "mount -t tmpfs none /dev/net && exec {} bridge e0 tap:b0",
        env!("CARGO_BIN_EXE_grosso")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let ended = Running::spawn(hosts.b.host(&mut command).unwrap()).end();
    if ended.stderr.contains("unshare:") || ended.stderr.contains("mount:") {
        return skip(&ended.stderr);
    }
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let message = "grosso: bridge: /dev/net/tun: no such device\nhint: ";
    assert!(ended.stderr.starts_with(message), "{}", ended.stderr);
}

#[test]
fn an_interface_that_another_path_has_is_noted_until_that_ends() {
    let Some(hosts) = Hosts::new() else { return };
    let note = "note: e0: another Grosso path also reads from this device";
    let first = Running::spawn(&mut hosts.command("bridge e0 tap:b0"));
    first.wait_for_line("1 queue");
    let second = Running::spawn(&mut hosts.command("bridge e0 tap:b1"));
    second.wait_for_line(note);
    assert!(!first.stop(Signal::TERM).stderr.contains(note));
    assert_eq!(second.stop(Signal::TERM).code, Some(0));
    let third = Running::spawn(&mut hosts.command("bridge e0 tap:b0"));
    third.wait_for_line("1 queue");
    assert!(!third.stop(Signal::TERM).stderr.contains(note));
}

#[test]
fn a_device_that_is_down_is_noted() {
    let Some(hosts) = Hosts::new() else { return };
    let down = || Control::new()?.set_up(&name("e0"), false);
    hosts.b.run(down).unwrap().unwrap();
    let bridge = hosts.start("bridge e0 tap:b0");
    bridge.wait_for_line(
        "note: e0 is down, so no packets can pass; to bring it up: sudo ip link set e0 up",
    );
    assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
}

/// Number of one-byte requests, each sent after the response to the previous one.
const ROUNDS: u64 = 500;
