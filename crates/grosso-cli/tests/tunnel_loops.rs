//! Tests tunnels whose outer route leads back into the tunnel, and overlays that only seem to contain such a loop.
//!
//! ```text
//!  host
//!  t0 (tunnel from 10.9.1.1, fd09:1::1 to 10.9.2.1, fd09:2::1)
//!  w0 (10.9.1.1, fd09:1::1) --- w1
//! ```

#![cfg(target_os = "linux")]

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use grosso_sys::{
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
};
use rustix::{
    net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover},
    process::Signal,
};
use serde_json::Value;

use crate::{
    common::report,
    network::{A, B, Ended, Running, connect, exchange, name, namespaces, set_up, until},
};

/// The tunnel endpoint addresses, IPv4 and IPv6.
const OUTSIDE: [[&str; 2]; 2] = [["10.9.1.1", "10.9.2.1"], ["fd09:1::1", "fd09:2::1"]];

/// A host behind the tunnel.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);

/// A host with routes to the remote endpoints of tunnels.
struct Host {
    network: NetworkNamespace,
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Option<Self> {
        let [network] = namespaces()?;
        let host = Self { network, folder: tempfile::tempdir().unwrap() };
        host.ip("link set lo up");
        host.ip("link add w0 type veth peer name w1");
        host.ip("link set w0 up");
        host.ip("link set w1 up");
        for (local, remote) in [("10.9.1.1/24", "10.9.2.1"), ("fd09:1::1/64", "fd09:2::1")] {
            host.ip(&format!("addr add {local} dev w0 nodad"));
            host.ip(&format!("route add {remote} dev w0"));
        }
        Some(host)
    }

    fn ip(&self, line: &str) -> String {
        ip(&self.network, line)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(line.split_whitespace()).env_remove("NOTIFY_SOCKET").env("NO_COLOR", "1");
        command.env("RUNTIME_DIRECTORY", self.folder.path()).current_dir(self.folder.path());
        self.network.host(&mut command).unwrap();
        command
    }

    fn run(&self, line: &str) -> Ended {
        Running::spawn(&mut self.command(line)).end()
    }

    /// Returns the command that runs these paths. Each is given by a device, and lines of TOML that describe the tunnel
    /// into which the device leads.
    fn paths(&self, paths: &[(&str, &str)]) -> Command {
        let path = |(device, tunnel): &(&str, &str)| {
            format!(
                "[[path]]\nname = \"{device}\"\nleft = {{ port = \"tap:{device}\" }}\n\
                 [path.right.tunnel]\n{tunnel}\n"
            )
        };
        let text: String = paths.iter().map(path).collect();
        std::fs::write(self.folder.path().join("paths.toml"), text).unwrap();
        self.command("run --config paths.toml")
    }

    /// Creates a persistent device, like the device of a stopped tunnel.
    fn keep_device(&self, device: &str) {
        self.ip(&format!("tuntap add {device} mode tap"));
        self.ip(&format!("link set {device} up"));
    }

    /// Configures an address on a tunnel's device. If the device carries Ethernet frames, also adds neighbor entries
    /// for the host behind the tunnel and for the remote endpoints.
    fn address(&self, device: &str) {
        self.ip(&format!("addr add 10.8.0.1/24 dev {device}"));
        if self.ip(&format!("link show {device}")).contains("link/ether") {
            for neighbour in ["10.8.0.2", OUTSIDE[0][1], OUTSIDE[1][1]] {
                let lladdr = "lladdr 02:00:00:00:00:09";
                self.ip(&format!("neigh add {neighbour} {lladdr} dev {device} nud permanent"));
            }
        }
    }

    /// Routes packets to the remote endpoints over a device.
    fn route_over(&self, device: &str) {
        for [_, remote] in OUTSIDE {
            self.ip(&format!("route del {remote}"));
            self.ip(&format!("route add {remote} dev {device}"));
        }
    }

    /// Sends one datagram that may be fragmented to a host behind the tunnel.
    fn send(&self, bytes: usize) {
        let socket = self.network.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap().unwrap();
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT).unwrap();
        socket.send_to(&vec![b'x'; bytes], (FAR, 9)).unwrap();
    }

    /// Returns the number of packets that the host sent into a device.
    fn sent_into(&self, device: &str) -> u64 {
        let path = format!("/sys/class/net/{device}/statistics/tx_packets");
        let read = || Netlink::new()?.link(&name(device));
        let link =
            self.network.run(read).unwrap().unwrap_or_else(|error| panic!("{path}: {error}"));
        link.statistics.transmit_packets
    }

    /// Returns the number of packets dropped for this reason.
    fn dropped(&self, reason: &str) -> u64 {
        let ended = self.run("stats --json");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let devices = report(&ended.stdout);
        let devices = devices["devices"].as_array().unwrap().iter();
        let find = |device: &Value| device["drops"][reason].as_u64();
        // A reason without packets is omitted.
        devices.filter_map(find).sum()
    }
}

/// Runs `ip` on a host.
fn ip(host: &NetworkNamespace, line: &str) -> String {
    let mut command = Command::new("ip");
    let output = host.host(command.args(line.split_whitespace())).unwrap().output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every tunnel type with each of its possible outer IP versions.
const TYPES: [(&str, usize); 17] = [
    ("vxlan id 42", 0),
    ("vxlan id 42", 1),
    ("geneve id 42", 0),
    ("geneve id 42", 1),
    ("gre nopmtudisc", 0),
    ("gretap nopmtudisc ignore-df", 0),
    ("gretap key 9 csum seq nopmtudisc ignore-df", 0),
    ("ipip nopmtudisc", 0),
    ("ipip encap gue nopmtudisc", 0),
    ("ipip encap fou encap-dport 5555 nopmtudisc", 0),
    ("gre encap fou encap-dport 5555 nopmtudisc", 0),
    ("gretap encap gue nopmtudisc ignore-df", 0),
    ("ip6gre encaplimit none", 1),
    ("ip6gretap", 1),
    ("ip6tnl", 1),
    ("ip6tnl encaplimit none", 1),
    ("ip6tnl encap gue encaplimit none", 1),
];

/// Maximum number of packets that the host sends into a tunnel for one datagram: two fragments, a few of their
/// fragments, and neighbor discovery. Without a loop guard, it sends hundreds of thousands.
const PACKETS_MAX: u64 = 100;

#[test]
fn a_datagram_in_a_tunnel_whose_route_leads_into_it_ends_at_once() {
    for (words, family) in TYPES {
        let Some(host) = Host::new() else { return };
        let [local, remote] = OUTSIDE[family];
        let ends = format!("local {local} remote {remote} noprobe");
        let made = host.run(&format!("tunnel add t0 type {words} {ends}"));
        assert_eq!(made.code, Some(0), "{words}: {made:?}");
        host.address("t0");
        host.route_over("t0");
        let before = host.sent_into("t0");
        host.send(1300);
        let dropped = || host.dropped("tunnel_out_loop");
        until(|| dropped() > 0 || host.sent_into("t0") > before + PACKETS_MAX);
        // A later packet is counted after the first one.
        let first = dropped();
        host.send(100);
        until(|| dropped() > first || host.sent_into("t0") > before + PACKETS_MAX);
        let sent = host.sent_into("t0") - before;
        let deleted = host.run("tunnel del t0");
        assert!(sent <= PACKETS_MAX, "{words} over IPv{}: {sent} packets", [4, 6][family]);
        assert_eq!(deleted.code, Some(0), "{words}: {deleted:?}");
        println!("{words} over IPv{}: {sent} packets", [4, 6][family]);
    }
}

const VXLAN: &str = "type = \"vxlan\"\nid = 42\nlocal = \"10.9.1.1\"\nremote = \"10.9.2.1\"\n";

#[test]
fn a_route_that_comes_to_lead_into_its_tunnel_is_noted_once_and_so_are_its_packets() {
    let Some(host) = Host::new() else { return };
    let running = Running::spawn(&mut host.paths(&[("t0", VXLAN)]));
    running.wait_for_line("<->");
    host.address("t0");
    host.route_over("t0");
    let mut seen = Vec::new();
    // Routes are checked while packets arrive.
    let sending = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while sending.load(Ordering::Relaxed) {
                host.send(1300);
                thread::sleep(Duration::from_millis(10));
            }
        });
        // If the program exits before it has printed both notes, the sender exits, too.
        let _stop = Stop(&sending);
        // On a busy machine, the route may be checked before the first packet returns.
        for _ in 0..2 {
            let (before, line) = running.wait_for_line_and_earlier("back into");
            seen.extend(before);
            seen.push(line);
        }
    });
    let ended = running.stop(Signal::TERM);
    seen.extend(ended.stderr.lines().map(str::to_owned));
    for note in ["so packets are dropped", "leads back into the tunnel, through"] {
        assert_eq!(seen.iter().filter(|line| line.contains(note)).count(), 1, "{seen:#?}");
    }
}

/// Guard that clears the flag when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Asserts that these paths are refused because their routes lead through these devices.
fn assert_refused(host: &Host, paths: &[(&str, &str)], through: &str) {
    let ended = Running::spawn(&mut host.paths(paths)).end();
    assert_eq!(ended.code, Some(4), "{through}: {ended:?}");
    let expected = format!("the route to 10.9.2.1 leads back into the tunnel, through {through}");
    assert!(ended.stderr.contains(&expected), "{through}: {ended:?}");
    assert!(ended.stderr.contains("ip route add 10.9.2.1 dev IFACE"), "{ended:?}");
}

#[test]
fn a_tunnel_whose_route_leads_into_it_is_not_started() {
    let Some(host) = Host::new() else { return };
    host.keep_device("t0");
    host.address("t0");
    host.route_over("t0");
    assert_refused(&host, &[("t0", VXLAN)], "t0");

    // The route is also a loop if it leads through a device on top of the tunnel's device.
    for kind in ["vlan id 5", "macvlan", "ipvlan"] {
        let mut add = Command::new("ip");
        add.args(format!("link add link t0 name over type {kind}").split(' '));
        if !host.network.host(&mut add).unwrap().status().unwrap().success() {
            println!("this kernel has no {kind}");
            continue;
        }
        host.ip("link set over up");
        host.route_over("over");
        assert_refused(&host, &[("t0", VXLAN)], "t0");
        host.route_over("t0");
        host.ip("link del over");
    }

    host.route_over("w0");
    let running = Running::spawn(&mut host.paths(&[("t0", VXLAN)]));
    running.wait_for_line("<->");
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
}

#[test]
fn two_tunnels_that_lead_into_each_other_are_not_started() {
    let Some(host) = Host::new() else { return };
    for device in ["t0", "t1"] {
        host.keep_device(device);
    }
    let other = "type = \"geneve\"\nid = 7\nlocal = \"10.9.1.1\"\nremote = \"10.9.3.1\"\n";
    host.ip("route add 10.9.3.1 dev t0");
    host.route_over("t1");
    // The second tunnel to start closes the loop.
    assert_refused(&host, &[("t1", other), ("t0", VXLAN)], "t1, then t0");

    // A kernel tunnel can close the loop too.
    let kernel = "link add k1 type vxlan id 5 local 10.9.1.1 remote 10.9.3.1 dstport 4790";
    host.ip(kernel);
    host.ip("link set k1 up");
    host.route_over("k1");
    assert_refused(&host, &[("t0", VXLAN)], "k1, then t0");
    host.ip("route del 10.9.3.1");
    host.ip("route add 10.9.3.1 dev w0");
    let running = Running::spawn(&mut host.paths(&[("t0", VXLAN)]));
    running.wait_for_line("<->");
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
}

/// Guests may have the same addresses as the hosts that carry their traffic: the tunnel connects the hosts, and the
/// guests' traffic is bridged through it.
#[test]
fn a_bridged_overlay_may_have_the_addresses_of_the_underlay() {
    let Some([a, b, guest_a, guest_b]) = namespaces() else { return };
    let lay = |host: &NetworkNamespace, near: &str, other: &NetworkNamespace, far: &str| {
        let there = LinkChange::new().namespace(other.as_fd());
        let add =
            || Netlink::new()?.add_veth((&name(near), LinkChange::new()), (&name(far), there));
        host.run(add).unwrap().unwrap();
        ip(host, &format!("link set {near} up"));
        ip(other, &format!("link set {far} up"));
    };
    lay(&a, "w0", &b, "w0");
    let folder = tempfile::tempdir().unwrap();
    let mut programs = Vec::new();
    for (host, guest, [local, remote]) in [(&a, &guest_a, [A, B]), (&b, &guest_b, [B, A])] {
        ip(host, "link set lo up");
        host.run(|| set_up("w0", local)).unwrap().unwrap();
        lay(host, "v0", guest, "g0");
        guest.run(|| set_up("g0", local)).unwrap().unwrap();
        // The MTU leaves room for the headers of the tunnel.
        ip(guest, "link set g0 mtu 1400");
        let place = folder.path().join(local[0].to_string());
        std::fs::create_dir(&place).unwrap();
        let file = place.join("paths.toml");
        let text = format!(
            "[[path]]\nname = \"o\"\nleft = {{ port = \"v0\" }}\n[path.right.tunnel]\n\
             type = \"vxlan\"\nid = 42\nlocal = \"{}\"\nremote = \"{}\"\n",
            local[0], remote[0]
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(["run", "--config"]).arg(&file).env_remove("NOTIFY_SOCKET");
        command.env("RUNTIME_DIRECTORY", &place);
        let running = Running::spawn(host.host(&mut command).unwrap());
        running.wait_for_line("<->");
        programs.push(running);
    }
    for family in [0, 1] {
        let (near, far): (IpAddr, IpAddr) = (A[family], B[family]);
        exchange(&connect((&guest_a, near), (&guest_b, far)), 1 << 20);
    }
    for program in programs {
        let ended = program.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains("so packets are dropped"), "{ended:?}");
    }
}
