//! Lets the running kernel encapsulate packets, and compares the output of `decap` with the packets on the kernel's own
//! tunnel devices.

#![cfg(target_os = "linux")]

use std::{
    net::{IpAddr, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
};

use grosso_testkit::{flows::assert_conserved, random::Random};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Bench, frames, has};
use crate::network::{A, B, Hosts, skip, until};

/// Payload that only the last datagram has.
const MARK: &[u8] = b"that was all of it";

/// The tunnel devices, as `ip link` arguments. `LOCAL` and `REMOTE` stand for the hosts' addresses.
const DEVICES: [&str; 5] = [
    "vxlan id 42 local LOCAL remote REMOTE dstport 4789 udpcsum",
    "geneve id 42 remote REMOTE",
    "gretap local LOCAL remote REMOTE key 7",
    "gre local LOCAL remote REMOTE",
    "ipip local LOCAL remote REMOTE",
];

#[test]
fn the_outside_of_a_tunnel_device_becomes_its_inside() {
    if !["tcpdump", "ip"].iter().all(|tool| has(tool)) {
        return;
    }
    for device in DEVICES {
        let Some(hosts) = Hosts::new() else { return };
        // In this test, the second host itself is the far endpoint, so its interface gets the addresses that Grosso's
        // device usually has.
        let wake = || std::fs::write("/proc/sys/net/ipv6/conf/e0/disable_ipv6", "0");
        hosts.b.run(wake).unwrap().unwrap();
        hosts.address("e0");
        let is_made = add(&hosts, device, 0) && add(&hosts, device, 1);
        if !is_made {
            skip_device(device);
            continue;
        }
        let bench = Bench::new();
        let outside = capture(&hosts, "e0", "outside.pcap", &bench);
        let inside = capture(&hosts, "t0", "inside.pcap", &bench);
        talk(&hosts);
        for (mut tcpdump, file) in [(outside, "outside.pcap"), (inside, "inside.pcap")] {
            let holds = |bytes: &[u8]| bytes.windows(MARK.len()).any(|window| window == MARK);
            until(|| std::fs::read(bench.path(file)).is_ok_and(|bytes| holds(&bytes)));
            kill_process(Pid::from_raw(tcpdump.id() as i32).unwrap(), Signal::INT).unwrap();
            tcpdump.wait().unwrap();
        }
        let run = bench.run("decap -r outside.pcap -w decap.pcap --strict");
        assert_eq!(run.code, 0, "{device}: {}", run.stdout);
        // tcpdump shows plain IP on a device without a link layer, so the comparison excludes the outer link layer.
        let ip = |name: &str, has_link: bool| -> Vec<Vec<u8>> {
            let skip = if has_link { 14 } else { 0 };
            frames(&bench.get(name)).iter().map(|frame| without_padding(&frame[skip..])).collect()
        };
        let is_ethernet = !device.starts_with("gre ") && !device.starts_with("ipip");
        let got = ip("decap.pcap", true);
        assert!(got.len() > 40, "{device}: {}", got.len());
        assert_conserved(&ip("inside.pcap", is_ethernet), &got);
    }
}

/// Skips the test of a device. Every kernel with namespaces has VXLAN; others may be missing.
fn skip_device(device: &str) {
    if device.starts_with("vxlan") {
        skip("this machine has no VXLAN devices");
    } else {
        println!("skipped: this machine has no {device} devices");
    }
}

/// Returns an IP packet without the bytes beyond its declared length.
fn without_padding(packet: &[u8]) -> Vec<u8> {
    let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    packet[..len.min(packet.len())].to_vec()
}

/// Creates a tunnel device on the first or the second host.
fn add(hosts: &Hosts, device: &str, host: usize) -> bool {
    let (local, remote) = if host == 0 { (A[0], B[0]) } else { (B[0], A[0]) };
    let words = device.replace("LOCAL", &local.to_string()).replace("REMOTE", &remote.to_string());
    let address = inner(host);
    let lines = [
        format!("link add t0 type {words}"),
        "link set t0 addrgenmode none".into(),
        "link set t0 multicast off arp off mtu 1400".into(),
        format!("addr add {address}/24 dev t0"),
        "link set t0 up".into(),
    ];
    lines.iter().all(|line| ip(hosts, host, line))
        && (device.starts_with("gre ") || device.starts_with("ipip") || neighbours(hosts, host))
}

/// Sets the Ethernet address of a host's tunnel device, and adds the other host as a neighbor, because the devices do
/// not use ARP.
fn neighbours(hosts: &Hosts, host: usize) -> bool {
    let other = inner(1 - host);
    ip(hosts, host, &format!("link set t0 address 02:00:00:00:00:0{}", host + 1))
        && ip(hosts, host, &format!("neigh add {other} lladdr 02:00:00:00:00:0{} dev t0", 2 - host))
}

fn inner(host: usize) -> IpAddr {
    IpAddr::from([10, 77, 0, host as u8 + 1])
}

fn ip(hosts: &Hosts, host: usize, line: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(line.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    let namespace = if host == 0 { &hosts.a } else { &hosts.b };
    namespace.host(&mut command).unwrap().status().is_ok_and(|status| status.success())
}

/// Starts tcpdump at the device where the datagrams arrive, and waits until it runs.
fn capture(hosts: &Hosts, device: &str, file: &str, bench: &Bench) -> Child {
    let file = bench.path(file);
    let mut tcpdump = Command::new("tcpdump");
    let filter = if device == "t0" {
        "ip"
    } else {
        "udp port 4789 or udp port 6081 or ip proto 47 or ip proto 4"
    };
    tcpdump.args(["-i", device, "-B", "65536", "-U", "-w"]).arg(&file).arg(filter);
    tcpdump.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tcpdump = hosts.b.host(&mut tcpdump).unwrap().spawn().unwrap();
    until(|| {
        assert!(tcpdump.try_wait().unwrap().is_none(), "tcpdump does not run");
        is_begun(&file)
    });
    tcpdump
}

fn is_begun(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|metadata| metadata.len() >= 24)
}

/// Sends datagrams of many lengths through the tunnel in both directions; the long ones are fragmented.
fn talk(hosts: &Hosts) {
    let mut random = Random::new(7);
    let near = hosts.a.run(|| UdpSocket::bind((inner(0), 0))).unwrap().unwrap();
    let far = hosts.b.run(|| UdpSocket::bind((inner(1), 0))).unwrap().unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut send = |datagram: &[u8]| {
        for (from, to) in [(&near, &far), (&far, &near)] {
            to.set_read_timeout(Some(crate::network::STALLED)).unwrap();
            from.send(datagram).unwrap();
            let len = to.recv(&mut buffer).unwrap();
            assert!(buffer[..len] == *datagram, "the kernel takes its own tunnel");
        }
    };
    for len in [0, 1, 20, 1372, 1373, 5000, 60_000] {
        send(&random.bytes(len));
    }
    for _ in 0..10 {
        let len = random.below(3000);
        send(&random.bytes(len));
    }
    send(MARK);
}
