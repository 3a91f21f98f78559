//! Tests the command `grosso tunnel` between two hosts, with the kernel's VXLAN or Grosso as the peer, and its errors.
//!
//! Longer than 600 lines: all cases share two hosts, whose setup is half of a test.

#![cfg(target_os = "linux")]

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::fd::AsFd,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use grosso_sys::{
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    common::report,
    network::{
        A, B, Ended, Hosts, Running, connect, exchange, program_with_open_tun, set_up, skip, until,
    },
};

/// Inner addresses of the first and the second host.
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 8, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 8, 0, 2));

/// Two hosts with addresses on their link. Dropping this value stops their background processes.
struct Ends(Hosts);

impl Ends {
    fn new() -> Option<Self> {
        let hosts = Hosts::new()?;
        // The far end of the wire belongs to the second host itself, because the tunnels connect the hosts' stacks.
        let own = || {
            std::fs::write("/proc/sys/net/ipv6/conf/e0/disable_ipv6", "0")?;
            set_up("e0", B)
        };
        hosts.b.run(own).unwrap().unwrap();
        for host in ["a", "b"] {
            std::fs::create_dir(hosts.path(host)).unwrap();
        }
        Some(Self(hosts))
    }

    /// Returns the directory of the program's files on a host.
    fn folder(&self, host: &NetworkNamespace) -> PathBuf {
        self.0.path(if core::ptr::eq(host, &self.0.a) { "a" } else { "b" })
    }

    /// Runs the program on a host until it exits.
    fn run_on(&self, host: &NetworkNamespace, line: &str) -> Ended {
        self.run_with(host, host, line)
    }

    /// Runs a command on a host with the program's files of another host.
    fn run_with(&self, host: &NetworkNamespace, owner: &NetworkNamespace, line: &str) -> Ended {
        self.end_of(Command::new(env!("CARGO_BIN_EXE_grosso")), (host, owner), line)
    }

    /// Runs a command on a host until it exits, using the state files of host `owner`, which may be the same host.
    fn end_of(
        &self,
        mut command: Command,
        (host, owner): (&NetworkNamespace, &NetworkNamespace),
        line: &str,
    ) -> Ended {
        command.args(line.split_whitespace()).env_remove("NOTIFY_SOCKET").env("NO_COLOR", "1");
        command.env("RUNTIME_DIRECTORY", self.folder(owner));
        Running::spawn(host.host(&mut command).unwrap()).end()
    }

    /// Runs the program on the second host.
    fn run(&self, line: &str) -> Ended {
        self.run_on(&self.0.b, line)
    }

    fn ok(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    }

    /// Returns the only tunnel in the output of `show`.
    fn shown(&self) -> Value {
        let shown = report(&self.ok("tunnel show --json"));
        assert_eq!(shown["schema"], "grosso.tunnel/1", "{shown}");
        shown["tunnels"][0].clone()
    }

    /// Runs `ip` on a host.
    fn ip(&self, host: &NetworkNamespace, line: &str) -> String {
        other(host, &format!("ip {line}"))
    }
}

/// Runs another program on a host.
fn other(host: &NetworkNamespace, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = host.host(command.args(words)).unwrap().output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

impl Drop for Ends {
    fn drop(&mut self) {
        for host in ["a", "b"] {
            let folder = std::fs::read_dir(self.0.path(host).join("tunnels"));
            let namespaces = folder.into_iter().flatten().flatten();
            let files = namespaces.map(|namespace| std::fs::read_dir(namespace.path()));
            for entry in files.flatten().flatten().flatten() {
                let path = entry.path();
                if path.extension().is_none_or(|end| end != "pid") {
                    continue;
                }
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let number = text.split(' ').next().and_then(|number| number.parse().ok());
                if let Some(pid) = number.and_then(Pid::from_raw) {
                    // A process that has exited need not be killed.
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
    }
}

const VXLAN: &str = "tunnel add vx0 type vxlan id 42 local 10.9.0.2 remote 10.9.0.1";

/// Creates a tunnel to the kernel's own device at the peer, with inner addresses.
fn beside_the_kernel() -> Option<Ends> {
    let ends = Ends::new()?;
    let (a, b) = (&ends.0.a, &ends.0.b);
    let kernel =
        "link add vx0 type vxlan id 42 local 10.9.0.1 remote 10.9.0.2 dstport 4789 udpcsum";
    ends.ip(a, kernel);
    ends.ip(a, "addr add 10.8.0.1/24 dev vx0");
    ends.ip(a, "link set vx0 up");
    let added = ends.ok(VXLAN);
    assert_eq!(
        added,
        "vx0: up, mtu 1450 (1500 - ip 20 - udp 8 - vxlan 8 - ethernet 14), vnet_hdr on, uso out \
         64 KB\n"
    );
    ends.ip(b, "addr add 10.8.0.2/24 dev vx0");
    Some(ends)
}

/// The kernel's tunnel leaves inner checksums to a device, but the veth pair between these two hosts does not complete
/// them.
#[test]
fn a_tunnel_carries_traffic_and_survives_its_process() {
    let Some(ends) = beside_the_kernel() else { return };
    let connection = connect((&ends.0.a, NEAR), (&ends.0.b, FAR));
    exchange(&connection, 1 << 20);

    let shown = ends.shown();
    assert_eq!((&shown["name"], &shown["state"]), (&"vx0".into(), &"up".into()), "{shown}");
    assert_eq!((&shown["mtu"], &shown["path_mtu_bytes"]), (&1450.into(), &1500.into()), "{shown}");
    for key in ["rx_bytes", "tx_bytes"] {
        assert!(shown["transfer"][key].as_u64() > Some(1 << 20), "{key}: {shown}");
    }
    assert!(shown["last_packet_age_ns"].is_u64(), "{shown}");
    until(|| ends.shown()["last_packet_age_ns"].as_u64() > Some(10_000_000));
    let features = shown["features"].as_array().unwrap();
    assert!(features.contains(&"tx-tcp-segmentation".into()), "{shown}");
    let text = ends.ok("tunnel show vx0");
    for line in [
        "interface: vx0  (vxlan 42)\n",
        "  endpoint: 10.9.0.1:4789      local: 10.9.0.2\n",
        "  ports:    from 49152-65535, chosen per flow\n",
        "  transfer: ",
        " sent, last packet: ",
        "  offload:  rx ",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }

    let pid = Pid::from_raw(shown["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    until(|| ends.shown()["state"] == "ended");
    assert!(ends.ok("tunnel show").contains("its process ended unexpectedly"));
    let up = ends.ok("tunnel up vx0");
    assert!(up.starts_with("vx0: up, mtu 1450 "), "{up}");
    exchange(&connection, 1 << 20);

    let again = ends.run("tunnel up vx0");
    assert!(again.stderr.contains("vx0 is already up, in process "), "{again:?}");
    let down = &report(&ends.ok("tunnel down vx0 --json"))["tunnels"][0];
    assert_eq!((&down["state"], &down["device_is_there"]), (&"down".into(), &true.into()));
    assert_eq!(ends.shown()["state"], "down");
    assert!(ends.ip(&ends.0.b, "-d link show vx0").contains("persist on"), "the device stays");
    let down = ends.run("tunnel down vx0");
    assert!(down.code == Some(0) && down.stderr.contains("vx0 is already down"), "{down:?}");
    ends.ok("tunnel up vx0");
    exchange(&connection, 1 << 16);
    let gone = &report(&ends.ok("tunnel del vx0 --json"))["tunnels"][0];
    assert_eq!((&gone["name"], &gone["device_is_there"]), (&"vx0".into(), &false.into()));
    assert!(!ends.ip(&ends.0.b, "link show").contains("vx0"));
    let none = ends.run("tunnel show");
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.contains("this user has no tunnels"), "{none:?}");
}

#[test]
fn a_tunnel_of_another_user_carries_traffic_shows_it_and_goes() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let Some(ends) = beside_the_kernel() else { return };
    const NOBODY: u32 = 65534;
    let probe = ends.0.path("probe");
    std::fs::write(&probe, "").unwrap();
    if let Err(error) = chown(&probe, Some(NOBODY), None) {
        return skip(&format!("no other user can be had: {error}"));
    }
    // Only the user can access the test's directory, but the process must be able to traverse it.
    std::fs::set_permissions(ends.0.path("."), PermissionsExt::from_mode(0o711)).unwrap();
    ends.ok("tunnel down vx0");
    let (b, line) = (&ends.0.b, "tunnel up vx0 --user nobody");
    let up = ends.end_of(program_with_open_tun(), (b, b), line);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(up.stdout.starts_with("vx0: up, mtu 1450 "), "{up:?}");
    exchange(&connect((&ends.0.a, NEAR), (&ends.0.b, FAR)), 1 << 20);
    let shown = ends.shown();
    assert!(shown["transfer"]["tx_bytes"].as_u64() > Some(1 << 20), "{shown}");
    let stats = ends.ok("stats --json");
    assert!(stats.contains("\"vx0\""), "{stats}");
    for task in std::fs::read_dir(format!("/proc/{}/task", shown["pid"])).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        assert!(value("Uid:").split_whitespace().eq(["65534"; 4]), "{status}");
        assert_eq!(value("Groups:").trim(), "", "{status}");
        assert_eq!((value("NoNewPrivs:").trim(), value("Seccomp:").trim()), ("1", "2"), "{status}");
        let is_path = value("Name:").trim().starts_with("vx0");
        assert!(!is_path || value("CapEff:").trim() == "0000000000000000", "{status}");
    }
    ends.ok("tunnel del vx0");
    assert!(!ends.ip(&ends.0.b, "link show").contains("vx0"));
    let left = std::fs::read_dir(ends.0.path("b")).unwrap().flatten();
    let own = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "own"));
    assert_eq!(own.count(), 0, "the directory is removed too");
}

/// The queue of a tunnel's device holds a burst while Grosso is not reading from the device. Grosso does not change a
/// queue length that the user has set.
#[test]
fn a_burst_waits_in_front_of_a_tunnel_and_a_chosen_length_stays() {
    let Some(ends) = beside_the_kernel() else { return };
    let b = &ends.0.b;
    let link = || b.run(|| Netlink::new()?.link(&crate::network::name("vx0"))).unwrap().unwrap();
    let pid = ends.shown()["pid"].as_i64().unwrap().try_into().unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    exchange(&connect((&ends.0.a, NEAR), (b, FAR)), 1 << 10);
    kill_process(pid, Signal::STOP).unwrap();
    let before = link().statistics;
    let socket = b.run(|| UdpSocket::bind((FAR, 0))).unwrap().unwrap();
    for _ in 0..1500 {
        socket.send_to(&[0; 100], (NEAR, 9)).unwrap();
    }
    assert_eq!(link().statistics.transmit_dropped, before.transmit_dropped, "{:?}", link());
    kill_process(pid, Signal::CONT).unwrap();
    ends.ok("tunnel down vx0");
    ends.ip(b, "link set vx0 txqueuelen 300");
    ends.ok("tunnel up vx0");
    assert_eq!(link().transmit_queue_length, 300);
}

#[test]
fn a_user_that_is_not_there_leaves_a_tunnel_as_it_was() {
    let Some(ends) = beside_the_kernel() else { return };
    ends.ok("tunnel down vx0");
    let ended = ends.run("tunnel up vx0 --user nosuchuser");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("tunnel up: user nosuchuser: no such user"), "{ended:?}");
    assert_eq!(ends.shown()["state"], "down");
    ends.ok("tunnel up vx0");
}

#[test]
fn two_of_them_carry_ip_in_gue_with_checksums_left_to_the_other_end() {
    let Some(ends) = Ends::new() else { return };
    let (a, b) = (&ends.0.a, &ends.0.b);
    for (host, near, far, inside) in
        [(a, A[1], B[1], "10.8.0.1/24"), (b, B[1], A[1], "10.8.0.2/24")]
    {
        let line = format!(
            "tunnel add gue0 mtu 1400 type ip6tnl local {near} remote {far} encap gue encap-remcsum"
        );
        let ended = ends.run_on(host, &line);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            ended.stdout.starts_with("gue0: up, mtu 1400 (as configured; the path allows 1440")
        );
        ends.ip(host, &format!("addr add {inside} dev gue0"));
    }
    exchange(&connect((a, NEAR), (b, FAR)), 1 << 20);
    let shown = ends.shown();
    assert_eq!(shown["summary"], "ip6tnl over gue, remcsum");
    let rates = &shown["offload"];
    assert!(rates["tx_packets"].as_u64() > rates["tx_frames"].as_u64(), "superframes: {shown}");
}

/// Tunnel names belong to one network namespace, even though all namespaces share the directory of state files.
#[test]
fn a_tunnel_of_another_network_namespace_is_neither_seen_nor_ended() {
    let Some(ends) = Ends::new() else { return };
    let (a, b) = (&ends.0.a, &ends.0.b);
    for (host, local, remote) in [(a, A[0], B[0]), (b, B[0], A[0])] {
        let none = ends.run_with(host, b, "tunnel show");
        assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none:?}");
        let line = format!("tunnel add vx0 type vxlan id 42 local {local} remote {remote}");
        let added = ends.run_with(host, b, &line);
        assert_eq!(added.code, Some(0), "{added:?}");
    }
    let pid = ends.shown()["pid"].clone();
    let deleted = ends.run_with(a, b, "tunnel del vx0");
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let again = ends.run_with(a, b, "tunnel del vx0");
    assert_eq!(again.code, Some(4), "{again:?}");
    assert!(again.stderr.contains("in this network namespace"), "{again:?}");
    let shown = ends.shown();
    assert_eq!((&shown["state"], &shown["pid"]), (&"up".into(), &pid), "{shown}");
    assert!(ends.ip(b, "link show").contains("vx0"));
}

/// Creates the same tunnel on both hosts, with inner addresses.
fn between_two(ends: &Ends, words: &str) {
    let (a, b) = (&ends.0.a, &ends.0.b);
    let family = usize::from(words.starts_with("ip6"));
    let [near, far] = [A[family], B[family]];
    for (host, local, remote, inside) in
        [(a, near, far, "10.8.0.1/24"), (b, far, near, "10.8.0.2/24")]
    {
        let line = format!("tunnel add t0 type {words} local {local} remote {remote}");
        let ended = ends.run_on(host, &line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        assert!(ended.stdout.starts_with("t0: up, mtu "), "{ended:?}");
        ends.ip(host, &format!("addr add {inside} dev t0"));
    }
}

#[test]
fn tunnels_directly_in_ip_carry_traffic() {
    for words in [
        "gretap key 9 csum seq",
        "ipip ttl inherit",
        "sit nopmtudisc",
        "ip6gre key 7 csum",
        "ip6gretap encaplimit none",
        "ip6tnl",
    ] {
        let Some(ends) = Ends::new() else { return };
        between_two(&ends, words);
        exchange(&connect((&ends.0.a, NEAR), (&ends.0.b, FAR)), 1 << 20);
        let shown = ends.shown();
        // Drops at a full socket buffer depend on the CPU load, so they are ignored.
        let mut drops = shown["drops"].as_object().unwrap().keys();
        assert!(drops.all(|name| name == "socket_rx_dropped"), "{words}: {shown}");
    }
}

/// Tests that the keyword `mode` selects the IP version that a tunnel carries, as in `ip link`. Packets of the other
/// version are neither sent nor accepted.
#[test]
fn the_mode_of_a_tunnel_selects_the_packets_it_carries() {
    for (words, carried) in [
        ("ipip mode ipip", [true, false]),
        ("sit mode ip6ip", [false, true]),
        ("sit encap gue", [true, true]),
    ] {
        let Some(ends) = Ends::new() else { return };
        between_two(&ends, words);
        let inside = [[NEAR, FAR], ["fd08::1", "fd08::2"].map(|address| address.parse().unwrap())];
        for (host, address) in [(&ends.0.a, inside[1][0]), (&ends.0.b, inside[1][1])] {
            ends.ip(host, &format!("addr add {address}/64 dev t0 nodad"));
        }
        let bind = |host: &NetworkNamespace, address| host.run(|| UdpSocket::bind((address, 0)));
        let sockets = inside.map(|[near, far]| {
            [bind(&ends.0.a, near), bind(&ends.0.b, far)].map(|socket| socket.unwrap().unwrap())
        });
        let mut arrived = [false; 2];
        until(|| {
            for ([near, far], arrived) in sockets.iter().zip(&mut arrived) {
                near.send_to(b"which version is this?", far.local_addr().unwrap()).unwrap();
                far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                *arrived |= far.recv(&mut [0; 64]).is_ok();
            }
            arrived == carried || arrived == [true; 2]
        });
        assert_eq!(arrived, carried, "{words}");
    }
}

/// A tunnel passes inner fragments unchanged, because the host that reassembles them may be behind this one.
#[test]
fn a_tunnel_directly_in_ip_leaves_fragments_inside_to_the_hosts() {
    for words in ["gre", "ip6tnl"] {
        let Some(ends) = Ends::new() else { return };
        between_two(&ends, words);
        let bind = |host: &NetworkNamespace, address| host.run(|| UdpSocket::bind((address, 0)));
        let (near, far) = (bind(&ends.0.a, NEAR), bind(&ends.0.b, FAR));
        let (near, far) = (near.unwrap().unwrap(), far.unwrap().unwrap());
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        near.send_to(&[7; 5000], far.local_addr().unwrap()).unwrap();
        assert_eq!(far.recv(&mut [0; 6000]).unwrap(), 5000, "{words}");
        let stats = ends.ok("stats");
        assert!(!stats.contains("ip_reasm_"), "{words}: {stats}");
    }
}

#[test]
fn a_tunnel_directly_in_ip_is_shown_and_survives_its_process() {
    let Some(ends) = Ends::new() else { return };
    between_two(&ends, "gre key 7");
    let connection = connect((&ends.0.a, NEAR), (&ends.0.b, FAR));
    exchange(&connection, 1 << 20);
    let shown = ends.shown();
    assert_eq!((&shown["summary"], &shown["mtu"]), (&"gre key 7".into(), &1472.into()), "{shown}");
    let text = ends.ok("tunnel show t0");
    assert!(text.contains("  endpoint: 10.9.0.1      local: 10.9.0.2\n"), "{text}");
    assert!(!text.contains("ports:"), "{text}");
    let pid = Pid::from_raw(shown["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    until(|| ends.shown()["state"] == "ended");
    ends.ok("tunnel up t0");
    exchange(&connection, 1 << 20);
    ends.ok("tunnel del t0");

    let other = ends.run("tunnel add t0 type gre key 8 local 10.9.0.2 remote 10.9.0.1");
    assert_eq!(other.code, Some(0), "{other:?}");
    ends.ip(&ends.0.b, "addr add 10.8.0.2/24 dev t0");
    // Packets that the first host still sends have the other key.
    until(|| !ends.shown()["drops"].as_object().unwrap().is_empty());
    let shown = ends.shown();
    assert!(shown["drops"].to_string().contains("foreign_identifier"), "{shown}");
}

/// The kernel does not report the previous name of a renamed device.
#[test]
fn a_renamed_device_is_reported_and_stays() {
    let Some(ends) = Ends::new() else { return };
    ends.ok("tunnel add t0 type ipip local 10.9.0.2 remote 10.9.0.1");
    for change in ["t0 down", "t0 name other", "other up"] {
        ends.ip(&ends.0.b, &format!("link set {change}"));
    }
    let shown = ends.ok("tunnel show t0");
    assert!(shown.contains("; its device was renamed or moved\n"), "{shown}");
    let ended = ends.run("tunnel del t0");
    let note = "note: device t0 does not exist; if it was renamed, delete it: sudo ip link del";
    assert!(ended.code == Some(0) && ended.stderr.contains(note), "{ended:?}");
    ends.ip(&ends.0.b, "link del other");
}

#[test]
fn a_smaller_path_mtu_is_reported_and_the_device_is_unchanged() {
    for (words, family, mtu, left) in [
        ("gre", 0, 1476, 1276),
        ("ip6tnl encaplimit none", 1, 1460, 1260),
        ("ipip encap gue", 0, 1468, 1268),
    ] {
        let Some(ends) = Ends::new() else { return };
        between_two(&ends, words);
        let connection = connect((&ends.0.a, NEAR), (&ends.0.b, FAR));
        exchange(&connection, 1 << 16);
        for (host, device) in [(&ends.0.a, "a0"), (&ends.0.b, "e0")] {
            let own = ["route replace 10.9.0.0/24", "-6 route replace fd09::/64 metric 256"];
            ends.ip(host, &format!("{} dev {device} mtu 1300", own[family]));
        }
        // The process checks its routes periodically.
        until(|| {
            exchange(&connection, 1 << 16);
            ends.shown()["drops"]["tunnel_out_too_big"].as_u64() > Some(0)
        });
        let shown = ends.shown();
        assert_eq!(shown["mtu"], mtu, "{shown}");
        assert_eq!(shown["path_mtu_bytes"], 1300, "{shown}");
        let text = ends.ok("tunnel show");
        let says = format!("  mtu:      {mtu} (as configured; the path allows {left}: 1300 - ip ");
        assert!(text.contains(&says), "{says}{text}");
    }
}

/// Creates a third host behind the second, connected by its own wire.
fn third(ends: &Ends) -> NetworkNamespace {
    let (b, c) = (&ends.0.b, NetworkNamespace::new().unwrap());
    let lay = || {
        let far = LinkChange::new().namespace(c.as_fd());
        let ends = [crate::network::name("e1"), crate::network::name("c0")];
        Netlink::new()?.add_veth((&ends[0], LinkChange::new()), (&ends[1], far))
    };
    b.run(lay).unwrap().unwrap();
    for (host, device, address) in [(b, "e1", "10.10.0.2/24"), (&c, "c0", "10.10.0.3/24")] {
        ends.ip(host, &format!("addr add {address} dev {device}"));
        ends.ip(host, &format!("link set {device} up"));
    }
    ends.ip(&c, "route add 10.9.0.0/24 via 10.10.0.2");
    c
}

/// Returns the number of packets that a host's VXLAN device received.
fn received(host: &NetworkNamespace) -> u64 {
    let links: Value = serde_json::from_str(&other(host, "ip -s -j link show vx0")).unwrap();
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// Connects the second host's tunnel to two kernels as peers, exchanges a stream with the first peer in each direction,
/// and returns the number of packets that each peer received.
fn between_three(words: &str) -> Option<[u64; 2]> {
    let ends = Ends::new()?;
    let (a, b) = (&ends.0.a, &ends.0.b);
    let c = third(&ends);
    for (host, local, inside) in [(a, "10.9.0.1", "10.8.0.1"), (&c, "10.10.0.3", "10.8.0.3")] {
        let link = "02:00:00:00:00:0".to_owned() + inside.split('.').next_back().unwrap();
        let vxlan = format!("type vxlan id 42 local {local} remote 10.9.0.2 dstport 4789 udpcsum");
        ends.ip(host, &format!("link add vx0 address {link} {vxlan}"));
        ends.ip(host, &format!("addr add {inside}/24 dev vx0"));
        ends.ip(host, "link set vx0 up");
    }
    ends.ok(&format!("{VXLAN} remote 10.10.0.3 {words}"));
    ends.ip(b, "addr add 10.8.0.2/24 dev vx0");
    let near = connect((a, NEAR), (b, FAR));
    let far = connect((&c, IpAddr::V4(Ipv4Addr::new(10, 8, 0, 3))), (b, FAR));
    exchange(&far, 1 << 18);
    let before = [received(a), received(&c)];
    exchange(&near, 1 << 20);
    let after = [received(a), received(&c)];
    let text = ends.ok("tunnel show vx0");
    assert!(text.contains("  endpoint: 10.9.0.1:4789 "), "{text}");
    assert!(text.contains("  and:      10.10.0.3:4789\n"), "{text}");
    let remotes = ends.shown()["remotes"].to_string();
    assert_eq!(remotes, r#"["10.9.0.1","10.10.0.3"]"#);
    Some([after[0] - before[0], after[1] - before[1]])
}

#[test]
fn each_of_several_peers_receives_packets_for_its_hosts() {
    let Some([near, far]) = between_three("") else { return };
    assert!(near > 50 && far < 20, "learned: {near} {far}");
    let entries = "fdb 02:00:00:00:00:01 10.9.0.1 fdb 02:00:00:00:00:03 10.10.0.3";
    let Some([near, far]) = between_three(&format!("nolearning {entries}")) else { return };
    assert!(near > 50 && far < 20, "configured: {near} {far}");
    let Some([near, far]) = between_three("nolearning") else { return };
    assert!(
        near > 50 && far > 50,
        "no address is known, so all peers get the packets: {near} {far}"
    );
}

#[test]
fn several_other_ends_are_exported_as_entries_of_the_kernels_table() {
    let Some(ends) = Ends::new() else { return };
    let _far = third(&ends);
    let b = &ends.0.b;
    let words = "fdb 02:00:00:00:00:03 10.10.0.3 ageing 60 maxaddress 100";
    ends.ok(&format!("{VXLAN} remote 10.10.0.3 {words}"));
    let commands = ends.ok("tunnel export vx0 --as ip");
    ends.ok("tunnel del vx0");
    for line in commands.lines() {
        other(b, line);
    }
    let link = ends.ip(b, "-d link show vx0");
    assert!(link.contains("ageing 60 maxaddr 100 "), "{link}");
    assert!(!link.contains("nolearning"), "{link}");
    let entries = other(b, "bridge fdb show dev vx0");
    for entry in [
        "00:00:00:00:00:00 dst 10.9.0.1 ",
        "00:00:00:00:00:00 dst 10.10.0.3 ",
        "02:00:00:00:00:03 dst 10.10.0.3 ",
    ] {
        assert!(entries.contains(entry), "{entry}: {entries}");
    }
}

#[test]
fn what_is_exported_makes_the_same_tunnel_in_the_kernel() {
    let Some(ends) = Ends::new() else { return };
    let b = &ends.0.b;
    let more = "ttl 7 tos 0x28 srcport 1000 2000 dstport 5000 noudpcsum df inherit";
    ends.ok(&format!("{VXLAN} {more}"));
    let commands = ends.ok("tunnel export vx0 --as ip");
    let toml = ends.ok("tunnel export vx0 --as toml");
    ends.ok("tunnel del vx0");
    for line in commands.lines() {
        ends.ip(b, line.strip_prefix("ip ").unwrap());
    }
    let link = ends.ip(b, "-d link show vx0");
    for words in [
        "mtu 1450",
        "vxlan id 42 remote 10.9.0.1 local 10.9.0.2 srcport 1000 2000 dstport 5000",
        "ttl 7",
        "tos 0x28",
        "df inherit",
        "noudpcsum",
    ] {
        assert!(link.contains(words), "{words}: {link}");
    }
    std::fs::write(ends.0.path("vx0.toml"), toml).unwrap();
    let checked = ends.0.run("config check vx0.toml");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("vx0: tap:vx0 <-> vxlan:42:10.9.0.1, 1 queue"), "{checked:?}");
}

/// Tests that the second of two tunnels is refused if both would accept the same packets, as the kernel does.
#[test]
fn a_second_tunnel_for_the_same_packets_is_refused() {
    let Some(ends) = Ends::new() else { return };
    let add = |name: &str, words: &str| {
        let line = format!("tunnel add {name} type {words} local 10.9.0.2 remote 10.9.0.1");
        ends.run(&line)
    };
    for (number, (words, code)) in (0..).zip([
        ("gre", 0),
        ("gre ttl 7 csum", 4),
        ("gre key 5", 0),
        ("gre key 5", 4),
        ("gretap", 0),
        ("ipip mode ipip", 0),
        ("sit", 4),
        ("sit mode ip6ip", 0),
        ("ipip encap gue", 0),
    ]) {
        let ended = add(&format!("t{number}"), words);
        assert_eq!(ended.code, Some(code), "{words}: {ended:?}");
        let is_named = ended.stderr.contains("would receive the same packets");
        assert_eq!(is_named, code == 4, "{words}: {ended:?}");
    }
}

#[test]
fn impossible_tunnels_are_reported_with_a_remedy() {
    let Some(ends) = Ends::new() else { return };
    let add = "tunnel add vx0 type vxlan id 42";
    for (line, code, message, hint) in [
        (
            format!("{add} local 10.9.0.9 remote 10.9.0.1"),
            4,
            "tunnel add: local 10.9.0.9 is not an address of this host",
            "sudo ip addr add 10.9.0.9",
        ),
        (
            format!("{add} local 10.9.0.2 remote 192.0.2.1"),
            4,
            "tunnel add: no route to remote 192.0.2.1: ",
            "ip route get 192.0.2.1",
        ),
        (
            "tunnel add e0 type vxlan id 1 local 10.9.0.2 remote 10.9.0.1".to_owned(),
            4,
            "tunnel add: interface e0 already exists",
            "ip -d link show e0",
        ),
        (
            format!("{add} local 10.9.0.2 remote 10.9.0.1 dstprot 1"),
            2,
            "tunnel add: no option \"dstprot\"; did you mean dstport?",
            "grosso help tunnel add",
        ),
        ("tunnel add vx0 vxlan id 1".to_owned(), 2, "type is missing", "[mtu BYTES] type TYPE"),
        (
            "tunnel add vx0 mtu 9 type vxlan".to_owned(),
            2,
            "mtu 9: expected a number from 68",
            "hint: ",
        ),
        (
            "tunnel add a/b type vxlan".to_owned(),
            2,
            "\"a/b\" is not a valid device name",
            "1 to 15",
        ),
        ("tunnel up vx9".to_owned(), 4, "tunnel up: no tunnel \"vx9\"", "this user has no tunnels"),
    ] {
        let ended = ends.run(&line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.stderr.contains(message), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(hint), "{line}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{line}");
    }
    assert_eq!(ends.ok("tunnel show"), "", "nothing is left of the failed tunnel");
    assert!(!ends.ip(&ends.0.b, "link show").contains("vx0"));

    ends.ok(VXLAN);
    let taken = ends.run(VXLAN);
    assert_eq!(taken.code, Some(4), "{taken:?}");
    assert!(taken.stderr.contains("tunnel vx0 already exists"), "{taken:?}");
    let second = ends.run(&VXLAN.replace("vx0", "vx1").replace("42", "43"));
    assert_eq!(second.code, Some(4), "{second:?}");
    let message = "tunnel add: 10.9.0.2:4789: already in use by another program or tunnel";
    assert!(second.stderr.contains(message), "{second:?}");
    assert!(second.stderr.contains("ss -ulpn 'sport = :4789'"), "{second:?}");
    let export = ends.run("tunnel export vx0 --as ip --json");
    assert_eq!((export.code, &*export.stdout), (Some(2), ""), "{export:?}");
    assert_eq!(report(&export.stderr)["code"], "usage.json");
    let misspelt = ends.run("tunnel show vx00");
    assert!(misspelt.stderr.contains("did you mean vx0?"), "{misspelt:?}");
}

#[test]
fn missing_privileges_are_named_with_the_command_that_gives_them() {
    let Some(ends) = Ends::new() else { return };
    let gre = "tunnel add gre0 type gre local 10.9.0.2 remote 10.9.0.1";
    let admin = "run it with sudo, or: sudo setcap cap_net_admin";
    for (left, line, message, hint) in [
        ("-all", VXLAN, "opening vx0 needs CAP_NET_ADMIN", admin.to_owned()),
        (
            "-all,+net_admin",
            gre,
            "opening an IP socket at 10.9.0.2 needs CAP_NET_RAW",
            format!("{admin},cap_net_raw+ep"),
        ),
    ] {
        let mut command = Command::new("setpriv");
        let bounding = format!("--bounding-set={left}");
        command.args([&bounding, "--inh-caps=-all", env!("CARGO_BIN_EXE_grosso")]);
        command.args(line.split(' ')).env("RUNTIME_DIRECTORY", ends.folder(&ends.0.b));
        let ended = Running::spawn(ends.0.b.host(&mut command).unwrap()).end();
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let says = format!("grosso: tunnel add: {message}\nhint: {hint}");
        assert!(ended.stderr.starts_with(&says), "{}", ended.stderr);
    }
    assert!(!ends.ip(&ends.0.b, "link show").contains("gre0"), "nothing is left");
}

#[test]
fn a_tunnel_without_the_privilege_to_probe_prints_a_note_and_carries() {
    let Some(ends) = Ends::new() else { return };
    for (words, is_noted) in [("", true), (" noprobe", false)] {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all,+net_admin", "--inh-caps=-all"]);
        command.arg(env!("CARGO_BIN_EXE_grosso")).args(format!("{VXLAN}{words}").split(' '));
        command.env("RUNTIME_DIRECTORY", ends.folder(&ends.0.b));
        let ended = Running::spawn(ends.0.b.host(&mut command).unwrap()).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let note = "vxlan:42:10.9.0.1: the path MTU is not probed with echo requests: path MTU \
                    probes need CAP_NET_RAW";
        assert_eq!(ended.stderr.contains(note), is_noted, "{ended:?}");
        assert_eq!(ends.shown()["state"], "up");
        ends.ok("tunnel del vx0");
    }
}

/// If the path MTU turns out to be small, the kernel fragments IPv6 packets itself, and learns the MTU through `lo`.
#[test]
fn a_tunnel_whose_kernel_cannot_learn_the_path_mtu_prints_a_note() {
    let Some(ends) = Ends::new() else { return };
    let add = |words: &str| {
        let ended = ends.run(&format!("tunnel add t0 type {words}"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ends.ok("tunnel del t0");
        ended.stderr.contains("lo is down") && ended.stderr.contains("sudo ip link set lo up")
    };
    let six = "vxlan id 42 local fd09::2 remote fd09::1";
    assert!(add(six));
    let others =
        ["vxlan id 42 local 10.9.0.2 remote 10.9.0.1", "ip6gre local fd09::2 remote fd09::1"];
    for words in others.map(str::to_owned).into_iter().chain([format!("{six} noprobe")]) {
        assert!(!add(&words), "{words}");
    }
    ends.ip(&ends.0.b, "link set lo up");
    assert!(!add(six));
}

#[test]
fn a_foreground_tunnel_ends_on_a_signal() {
    let Some(ends) = Ends::new() else { return };
    let mut command = ends.0.command(&format!("{VXLAN} --foreground"));
    let running = Running::spawn(command.env("RUNTIME_DIRECTORY", ends.folder(&ends.0.b)));
    running.wait_for_line("vx0: vx0 <-> vxlan:42:10.9.0.1, 1 queue");
    assert_eq!(ends.shown()["pid"].as_u64(), Some(running.id().into()));
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
    assert_eq!(ends.shown()["state"], "down");
    ends.ok("tunnel del vx0");
}
