//! Tests tunnels between two hosts with a router between them. The path MTU shrinks and grows, and forged messages
//! report wrong MTUs.
//!
//! ```text
//!  host a                     router r                    host b
//!  t0 (10.8.0.1, fd08::1)                                 t0 (10.8.0.2, fd08::2)
//!  w0 10.9.1.1, fd09:1::1 --- ra .254      rb .254 ------ w0 10.9.2.1, fd09:2::1
//! ```
//!
//! Longer than 600 lines: all cases share a network with a router.

#![cfg(target_os = "linux")]

use std::{
    io::IoSlice,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

use grosso_checksum::{Sum, pseudo_v6};
use grosso_sys::{
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    packet::PacketSocket,
};

use crate::network::{
    CHUNK, Running, STALLED, connect, exchange, name, receive, send, skip, until,
};

/// The outer addresses of both hosts, IPv4 and IPv6.
const OUTSIDE: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(10, 9, 1, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd09, 1, 0, 0, 0, 0, 0, 1)),
    ],
    [
        IpAddr::V4(Ipv4Addr::new(10, 9, 2, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd09, 2, 0, 0, 0, 0, 0, 1)),
    ],
];

/// Returns the addresses of both hosts inside a tunnel; `net` distinguishes tunnels.
fn inside(net: u8, host: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 8, net, host).into(),
        Ipv6Addr::new(0xfd08, net.into(), 0, 0, 0, 0, 0, host.into()).into(),
    ]
}

/// Two hosts and the router between them. Their tunnels are stopped on drop.
struct Routed {
    hosts: [NetworkNamespace; 2],
    router: NetworkNamespace,
    folder: tempfile::TempDir,
}

impl Routed {
    fn new() -> Option<Self> {
        let made = [(); 3].map(|()| NetworkNamespace::new());
        let [Ok(a), Ok(b), Ok(router)] = made else {
            skip("no private network namespace");
            return None;
        };
        if !std::path::Path::new("/dev/net/tun").exists() {
            skip("no /dev/net/tun");
            return None;
        }
        let routed = Self { hosts: [a, b], router, folder: tempfile::tempdir().unwrap() };
        for (net, side) in [(1, "ra"), (2, "rb")] {
            let host = &routed.hosts[net - 1];
            let lay = || {
                let far = LinkChange::new().namespace(std::os::fd::AsFd::as_fd(host));
                Netlink::new()?.add_veth((&name(side), LinkChange::new()), (&name("w0"), far))
            };
            routed.router.run(lay).unwrap().unwrap();
            for (host, device, last) in [(&routed.router, side, "fe"), (host, "w0", "1")] {
                let four = u8::from_str_radix(last, 16).unwrap();
                ip(host, &format!("link set {device} up"));
                ip(host, &format!("addr add 10.9.{net}.{four}/24 dev {device}"));
                ip(host, &format!("addr add fd09:{net}::{last}/64 dev {device} nodad"));
            }
            ip(host, "link set lo up");
            ip(host, &format!("route add default via 10.9.{net}.254"));
            ip(host, &format!("-6 route add default via fd09:{net}::fe"));
            std::fs::create_dir(routed.folder.path().join(net.to_string())).unwrap();
        }
        let forward = || {
            for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{setting}"), "1").unwrap();
            }
        };
        routed.router.run(forward).unwrap();
        Some(routed)
    }

    /// Runs the program on a host, and asserts that it succeeds.
    fn grosso(&self, host: usize, line: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(line.split_whitespace()).env_remove("NOTIFY_SOCKET").env("NO_COLOR", "1");
        command.env("RUNTIME_DIRECTORY", self.folder.path().join((host + 1).to_string()));
        let ended = Running::spawn(self.hosts[host].host(&mut command).unwrap()).end();
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    }

    /// Creates a tunnel with these arguments and inner addresses.
    fn tunnel(&self, words: &str, family: usize, net: u8) {
        for host in 0..2 {
            let (local, remote) = (OUTSIDE[host][family], OUTSIDE[1 - host][family]);
            self.grosso(
                host,
                &format!("tunnel add t{net} type {words} local {local} remote {remote}"),
            );
            self.address(host, net);
        }
    }

    fn address(&self, host: usize, net: u8) {
        let addresses = inside(net, host as u8 + 1);
        for (address, bits) in addresses.iter().zip([24, 64]) {
            let nodad = if address.is_ipv6() { "nodad" } else { "" };
            ip(&self.hosts[host], &format!("addr add {address}/{bits} dev t{net} {nodad}"));
        }
    }

    /// Opens a connection inside a tunnel.
    fn connection(&self, net: u8, family: usize) -> [TcpStream; 2] {
        let [near, far] = [1, 2].map(|host| inside(net, host)[family]);
        connect((&self.hosts[0], near), (&self.hosts[1], far))
    }

    /// Sets the MTU of the router's link; an IPv6 link requires at least 1280 bytes.
    fn path(&self, mtu: usize) {
        for (net, device) in [(1, "ra"), (2, "rb")] {
            ip(&self.router, &format!("route replace 10.9.{net}.0/24 dev {device} mtu {mtu}"));
            let mtu = mtu.max(1280);
            let six = format!("-6 route replace fd09:{net}::/64 dev {device} metric 256 mtu {mtu}");
            ip(&self.router, &six);
        }
    }

    /// Sets the MTU of all links.
    fn links(&self, mtu: usize) {
        let [a, b] = &self.hosts;
        for (host, device) in [(a, "w0"), (b, "w0"), (&self.router, "ra"), (&self.router, "rb")] {
            ip(host, &format!("link set {device} mtu {mtu}"));
        }
    }

    /// Sends forged messages to the first host, from an address unrelated to either host. They claim that this tunnel's
    /// packets to the second host must not exceed the protocol's minimum MTU. There is one message for each source port
    /// that the host's tunnels use.
    fn sweep(&self, family: usize, words: &str) {
        let (protocol, port) = carrier(words);
        let hardware = |host: &NetworkNamespace, device: &str| {
            let link = host.run(|| Netlink::new()?.link(&name(device))).unwrap().unwrap();
            link.hardware_address.unwrap()
        };
        let near = hardware(&self.hosts[0], "w0");
        let far = hardware(&self.router, "ra");
        let [local, remote] = [OUTSIDE[0][family], OUTSIDE[1][family]];
        let socket =
            self.router.run(|| PacketSocket::builder().bind(&name("ra"))).unwrap().unwrap();
        for source in 49152..=65535 {
            let message = forged(local, remote, protocol, [source, port]);
            let ethertype: u16 = if local.is_ipv4() { 0x0800 } else { 0x86dd };
            let frame = [&near[..], &far, &ethertype.to_be_bytes(), &message].concat();
            while socket.send_vectored(&[IoSlice::new(&frame)]).is_err() {
                thread::yield_now();
            }
        }
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        for host in 0..2 {
            for net in 0..16 {
                let device = name(&format!("t{net}"));
                let is_there = || Netlink::new()?.link(&device);
                if !matches!(self.hosts[host].run(is_there), Ok(Ok(_))) {
                    continue;
                }
                let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
                command.args(["tunnel", "del", &format!("t{net}")]);
                command.env("RUNTIME_DIRECTORY", self.folder.path().join((host + 1).to_string()));
                if let Ok(command) = self.hosts[host].host(&mut command) {
                    // The test ends even if this command fails.
                    let _ = command.output();
                }
            }
        }
    }
}

/// Runs `ip` on a host.
fn ip(host: &NetworkNamespace, line: &str) -> String {
    let mut command = Command::new("ip");
    let output = host.host(command.args(line.split_whitespace())).unwrap().output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the protocol of a tunnel's outer packets and, for UDP, their destination port.
fn carrier(words: &str) -> (u8, u16) {
    let has = |word: &str| words.split(' ').any(|other| other == word);
    match words.split(' ').next().unwrap() {
        "vxlan" => (17, 4789),
        "geneve" => (17, 6081),
        _ if has("gue") => (17, 6080),
        _ if has("fou") => (17, 5555),
        kind if kind.contains("gre") => (47, 0),
        "ipip" => (4, 0),
        _ => (41, 0),
    }
}

/// Returns a forged message that a packet from `local` to `remote` was too long, as from an attacker that guessed the
/// UDP ports and the VXLAN identifier.
fn forged(local: IpAddr, remote: IpAddr, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let half = |number: u16| number.to_be_bytes();
    let udp = [half(ports[0]), half(ports[1]), half(1400), half(0x1234)].concat();
    let udp = [&udp[..], &[8, 0, 0, 0, 0, 0, 42, 0]].concat();
    // For tunnels without UDP, this is a GRE header without optional fields, or the start of a packet.
    let inside = if protocol == 17 { udp } else { [&[0_u8, 0, 8, 0][..], &[0x45; 12]].concat() };
    match (local, remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            let header = |source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: usize| {
                let mut header =
                    [&[0x45, 0], &half(len as u16)[..], &[0, 0, 0x40, 0, 64, protocol, 0, 0]]
                        .concat();
                header.extend(source.octets().into_iter().chain(destination.octets()));
                let checksum = Sum::of(&header).checksum().to_be_bytes();
                header[10..12].copy_from_slice(&checksum);
                header
            };
            let quoted = [header(local, remote, protocol, 1420), inside].concat();
            let mut error = [&[3, 4, 0, 0, 0, 0], &half(68)[..], &quoted].concat();
            let checksum = Sum::of(&error).checksum().to_be_bytes();
            error[2..4].copy_from_slice(&checksum);
            let stranger = Ipv4Addr::new(192, 0, 2, 99);
            [header(stranger, local, 1, 20 + error.len()), error].concat()
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let header = |source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: usize| {
                let fixed = [&[0x60, 0, 0, 0], &half(len as u16)[..], &[protocol, 64]].concat();
                [&fixed[..], &source.octets(), &destination.octets()].concat()
            };
            let quoted = [header(local, remote, protocol, 1400), inside].concat();
            let mut error = [&[2, 0, 0, 0, 0, 0], &half(1280)[..], &quoted].concat();
            let stranger: Ipv6Addr = "2001:db8::99".parse().unwrap();
            let pseudo = pseudo_v6(&stranger.octets(), &local.octets(), 58, error.len() as u32);
            let checksum = (Sum::of(&error) + pseudo).checksum().to_be_bytes();
            error[2..4].copy_from_slice(&checksum);
            [header(stranger, local, 58, error.len()), error].concat()
        }
        _ => unreachable!("both are of one family"),
    }
}

/// Number of networks whose streams run concurrently, because a stream that has lost packets pauses for seconds.
const SIDE_BY_SIDE: usize = 5;

/// Calls `look` for each item in a separate thread, which has the test's name. Each item has its own network.
fn side_by_side<T: Sync>(all: &[T], look: impl Fn(&T) + Sync) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE.min(all.len()) {
            let one_after_the_other = || {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    look(one);
                }
            };
            let thread = thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, one_after_the_other).unwrap();
        }
    });
}

/// Every tunnel type with each of its possible outer IP versions.
const TYPES: [(&str, usize); 20] = [
    ("vxlan id 42", 0),
    ("vxlan id 42", 1),
    ("vxlan id 42 df set", 0),
    ("vxlan id 42 df inherit", 0),
    ("geneve id 42", 0),
    ("geneve id 42", 1),
    ("gre", 0),
    ("gretap", 0),
    ("ipip", 0),
    ("sit nopmtudisc", 0),
    ("ipip encap gue encap-remcsum", 0),
    ("gre encap fou encap-dport 5555", 0),
    ("gretap encap gue", 0),
    ("sit nopmtudisc encap gue", 0),
    ("gretap key 9 csum seq nopmtudisc ignore-df", 0),
    ("ip6gre encaplimit none", 1),
    ("ip6gre encap gue encaplimit none", 1),
    ("ip6gretap", 1),
    ("ip6tnl", 1),
    ("ip6tnl encap gue encaplimit none", 1),
];

/// If the MTU shrinks and grows while inner streams over IPv4 and IPv6 run, none of them ends.
#[test]
fn a_path_that_shrinks_and_grows_ends_no_stream_of_any_tunnel() {
    side_by_side(&TYPES, |&(words, family)| {
        // No host has learned the path MTU yet.
        let Some(routed) = Routed::new() else { return };
        routed.tunnel(words, family, 0);
        let streams = [0, 1].map(|inner| routed.connection(0, inner));
        for mtu in [1500, 1280, 576, 552, 1400, 1500] {
            if family == 1 && mtu < 1280 {
                continue;
            }
            thread::scope(|scope| {
                // The MTU changes while bytes are in flight.
                scope.spawn(|| routed.path(mtu));
                streams.iter().for_each(|stream| exchange(stream, 1 << 18));
            });
        }
        for mtu in [1280, 1500] {
            thread::scope(|scope| {
                scope.spawn(|| routed.links(mtu));
                streams.iter().for_each(|stream| exchange(stream, 1 << 18));
            });
        }
        println!("{words} over IPv{}: no stream ended", [4, 6][family]);
    });
}

/// Returns the throughput of a stream in Mb/s; every byte is compared.
fn speed([near, far]: &[TcpStream; 2], bytes: usize) -> f64 {
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| send(near, 1, bytes));
        receive(far, 1, bytes);
    });
    bytes as f64 * 8.0 / 1e6 / begun.elapsed().as_secs_f64()
}

/// Prints the speed of inner streams over IPv4 and IPv6, before and after forged messages.
fn print(words: &str, family: usize, speeds: [[f64; 2]; 2]) {
    let [[v4, v6], [v4_after, v6_after]] = speeds;
    let outside = [4, 6][family];
    println!(
        "{words} over IPv{outside}: IPv4 inside {v4:.0} -> {v4_after:.0} Mb/s, \
         IPv6 inside {v6:.0} -> {v6_after:.0} Mb/s"
    );
}

/// Number of bytes in a stream whose speed is measured.
const BYTES: usize = CHUNK << 10;

/// Forged messages block no tunnel: neither one that carries traffic at that time, nor one that is created afterwards.
#[test]
fn forged_messages_silence_no_tunnel() {
    let tunnels = [
        ("vxlan id 42", 0),
        ("vxlan id 42 df set", 0),
        ("geneve id 42 df inherit", 0),
        ("ipip encap gue encap-dport 6080", 0),
        ("gre", 0),
        ("vxlan id 42", 1),
        ("ip6tnl encap gue encap-dport 6080 encaplimit none", 1),
        ("ip6gre encaplimit none", 1),
    ];
    for (words, family) in tunnels {
        // New hosts are needed, because their kernels cache the small path MTU of an earlier tunnel for ten minutes.
        let Some(routed) = Routed::new() else { return };
        routed.tunnel(words, family, 0);
        let streams = [0, 1].map(|inner| routed.connection(0, inner));
        let speeds = || [0, 1].map(|inner| speed(&streams[inner], BYTES));
        let before = speeds();
        thread::scope(|scope| {
            scope.spawn(|| routed.sweep(family, words));
            streams.iter().for_each(|stream| exchange(stream, BYTES));
        });
        print(words, family, [before, speeds()]);
        if family == 1 {
            assert_eq!(fragments(&routed, &streams), 0, "{words}: fragments after forged messages");
        }
        (0..2).for_each(|host| drop(routed.grosso(host, "tunnel del t0")));
        routed.tunnel(words, family, 1);
        let streams = [0, 1].map(|inner| routed.connection(1, inner));
        streams.iter().for_each(|stream| exchange(stream, BYTES));
        if family == 1 {
            // Forged messages cause no fragmentation; a genuine message does so immediately.
            assert_eq!(fragments(&routed, &streams), 0, "{words}: fragments in a later tunnel");
            routed.path(1280);
            until(|| fragments(&routed, &streams) > 0);
        }
    }
}

/// Tests that forged messages end no stream through a tunnel of any type, without measuring speed.
#[test]
fn forged_messages_end_no_stream_of_any_type() {
    side_by_side(&TYPES, |&(words, family)| {
        let Some(routed) = Routed::new() else { return };
        routed.tunnel(words, family, 0);
        let streams = [0, 1].map(|inner| routed.connection(0, inner));
        thread::scope(|scope| {
            scope.spawn(|| routed.sweep(family, words));
            streams.iter().for_each(|stream| exchange(stream, 1 << 22));
        });
        streams.iter().for_each(|stream| exchange(stream, 1 << 18));
        if family == 1 {
            assert_eq!(fragments(&routed, &streams), 0, "{words}: fragments after forged messages");
        }
        println!("{words} over IPv{}: no stream ended", [4, 6][family]);
    });
}

/// Returns the number of IPv6 fragments that the first host's tunnel sends while streams exchange bytes.
///
/// Fragments from the second host are not counted, because it received no message, and neither are ICMPv6 fragments,
/// which belong to probes and their answers.
fn fragments(routed: &Routed, streams: &[[TcpStream; 2]; 2]) -> usize {
    let open = || PacketSocket::builder().bind(&name("ra"));
    let wire = routed.router.run(open).unwrap().unwrap();
    let IpAddr::V6(first) = OUTSIDE[0][1] else { unreachable!() };
    let mut frame = [0; 2048];
    let mut count = 0;
    for stream in streams {
        exchange(stream, 1 << 18);
        while let Some(packet) = wire.receive(&mut frame).unwrap() {
            let frame = &frame[..packet.length];
            let is_fragment = frame[12..14] == [0x86, 0xdd] && frame[20] == FRAGMENT_HEADER;
            let is_counted =
                is_fragment && frame[22..38] == first.octets() && frame[FRAGMENTED] != ICMPV6;
            count += usize::from(is_counted);
        }
    }
    count
}

/// Protocol number of an IPv6 fragment header.
const FRAGMENT_HEADER: u8 = 44;
const ICMPV6: u8 = 58;
/// Position of the fragment header's Next Header in its frame.
const FRAGMENTED: usize = 14 + 40;

/// Runs `nft` on a host; false if the machine has no filters.
fn nft(host: &NetworkNamespace, rules: &str) -> bool {
    let mut command = Command::new("nft");
    let Ok(output) = host.host(command.arg(rules)).unwrap().output() else { return false };
    output.status.success()
}

/// Returns how often an event occurred on the sockets of the first host's tunnel.
fn happened(routed: &Routed, event: &str) -> u64 {
    let stats = crate::common::report(&routed.grosso(0, "stats --json"));
    let devices = stats["devices"].as_array().unwrap().iter();
    // Events that never happened are omitted.
    devices.filter_map(|device| device["events"][event].as_u64()).sum()
}

/// If a router silently drops long packets (RFC 8899 section 4.3), no stream stalls: probes detect the smaller MTU, and
/// longer packets are sent in fragments. When the path MTU grows again, the larger value is used.
#[test]
fn a_path_that_loses_long_packets_in_silence_ends_no_stream_and_is_used_again() {
    let tunnels =
        [("vxlan id 42 df set", 0), ("vxlan id 42", 1), ("ip6gre encaplimit none", 1), ("ipip", 0)];
    side_by_side(&tunnels, |&(words, family)| {
        let Some(routed) = Routed::new() else { return };
        let silence = "table inet quiet { chain out { type filter hook output priority 0; \
                       icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }";
        if !nft(&routed.router, silence) {
            return skip("nft is not installed");
        }
        routed.tunnel(words, family, 0);
        let streams = [0, 1].map(|inner| routed.connection(0, inner));
        for side in streams.iter().flatten() {
            // Packets lost before the probes are retransmitted with growing delays.
            side.set_read_timeout(Some(6 * STALLED)).unwrap();
            side.set_write_timeout(Some(6 * STALLED)).unwrap();
        }
        streams.iter().for_each(|stream| exchange(stream, 1 << 18));
        routed.path(1300);
        streams.iter().for_each(|stream| exchange(stream, 1 << 18));
        assert!(happened(&routed, "socket_path_narrow") > 0, "{words}");
        until(|| fragments_of(&routed, &streams, family));
        routed.path(1500);
        until(|| !fragments_of(&routed, &streams, family));
        println!("{words} over IPv{}: no stream ended", [4, 6][family]);
    });
}

/// Returns whether the first host, or for IPv4 a router, may fragment the streams' packets.
fn fragments_of(routed: &Routed, streams: &[[TcpStream; 2]; 2], family: usize) -> bool {
    if family == 1 { fragments(routed, streams) > 0 } else { !all_forbid(routed, streams) }
}

/// Returns whether all long IPv4 packets of the first host have DF set while streams exchange bytes.
fn all_forbid(routed: &Routed, streams: &[[TcpStream; 2]; 2]) -> bool {
    let open = || PacketSocket::builder().bind(&name("ra"));
    let wire = routed.router.run(open).unwrap().unwrap();
    let mut frame = [0; 2048];
    let mut all = true;
    for stream in streams {
        exchange(stream, 1 << 18);
        while let Some(packet) = wire.receive(&mut frame).unwrap() {
            let frame = &frame[..packet.length];
            let is_long = frame[12..14] == [8, 0] && packet.length > 1400;
            all &= !is_long || frame[20] & 0x40 != 0;
        }
    }
    all
}

/// A forged message triggers a probe, and the peer's answer refutes it. If the peer does not answer, the message
/// remains only a hint.
#[test]
fn a_forged_message_is_refuted_by_a_probe() {
    for (words, family) in [("vxlan id 42 df set mtu-min 1280", 0), ("vxlan id 42 mtu-min 1280", 1)]
    {
        let Some(routed) = Routed::new() else { return };
        routed.tunnel(words, family, 0);
        let streams = [0, 1].map(|inner| routed.connection(0, inner));
        streams.iter().for_each(|stream| exchange(stream, 1 << 18));
        routed.sweep(family, words);
        until(|| {
            streams.iter().for_each(|stream| exchange(stream, 1 << 16));
            happened(&routed, "socket_path_refuted") > 0
        });
        assert_eq!(happened(&routed, "socket_path_narrow"), 0, "{words}");
        until(|| !fragments_of(&routed, &streams, family));
    }
}

/// With a floor below the path MTU, senders learn the path MTU, but never a value below the floor; longer packets are
/// then sent in fragments.
#[test]
fn senders_learn_the_path_mtu_down_to_the_minimum() {
    let tunnels = [
        ("ipip mtu-min 1300", 0, 1400, 576),
        ("ip6tnl encaplimit none mtu-min 1350", 1, 1400, 1280),
    ];
    side_by_side(&tunnels, |&(words, family, above, below)| {
        let Some(routed) = Routed::new() else { return };
        routed.tunnel(words, family, 0);
        let stream = routed.connection(0, 0);
        exchange(&stream, 1 << 16);
        let overhead = [20, 40][family];
        let floor = if family == 0 { 1300 } else { 1350 };
        for (path, told) in [(above, above), (below, floor)] {
            routed.path(path);
            // Path MTU that the first host's kernel learned for the path through the tunnel.
            until(|| {
                exchange(&stream, 1 << 16);
                let route = ip(&routed.hosts[0], "route get 10.8.0.2");
                route.contains(&format!(" mtu {} ", told - overhead))
            });
        }
        exchange(&stream, 1 << 18);
        let shown = routed.grosso(0, "tunnel show");
        assert!(shown.contains(&format!("{below} bytes according to ICMP")), "{shown}");
    });
}

/// Returns whether the outer packets that carry a datagram from the first host have DF set.
fn forbids_fragments(routed: &Routed, net: u8, inner: usize) -> bool {
    let of_first_host = |frame: &[u8]| frame[12..14] == [8, 0] && frame[26..30] == [10, 9, 1, 1];
    outside_of(routed, net, inner, of_first_host)[20] & 0x40 != 0
}

/// Returns a frame on the first host's wire that matches `is_it` and carries a datagram from that host.
fn outside_of(routed: &Routed, net: u8, inner: usize, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let open = || PacketSocket::builder().bind(&name("ra"));
    let wire = routed.router.run(open).unwrap().unwrap();
    let [near, far] = [1, 2].map(|host| inside(net, host)[inner]);
    let sender = routed.hosts[0].run(|| UdpSocket::bind((near, 0))).unwrap().unwrap();
    // The port differs from that of the previous request, whose last datagrams may still arrive.
    let mark = format!("who carries this from {}?", sender.local_addr().unwrap());
    let mut frame = [0; 2048];
    let mut found = Vec::new();
    until(|| {
        sender.send_to(mark.as_bytes(), (far, 9)).unwrap();
        while let Some(packet) = wire.receive(&mut frame).unwrap() {
            let frame = &frame[..packet.length];
            if is_it(frame) && frame.windows(mark.len()).any(|part| part == mark.as_bytes()) {
                found = frame.to_vec();
            }
        }
        !found.is_empty()
    });
    found
}

/// Over UDP the kernel writes the outer header, with the flow label that Grosso passes.
#[test]
fn the_outer_flow_label_is_the_configured_one() {
    let Some(routed) = Routed::new() else { return };
    let IpAddr::V6(first) = OUTSIDE[0][1] else { unreachable!() };
    let of_first_host =
        |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame[22..38] == first.octets();
    for (net, (words, label)) in (0..).zip([
        ("ip6gre flowlabel 0x12345", 0x12345),
        ("vxlan id 7 flowlabel 0x12345", 0x12345),
        ("geneve id 7 flowlabel 0xfffff", 0xfffff),
        ("ip6tnl encap gue flowlabel 5 tos 0xb8", 5),
        ("vxlan id 7 dstport 4790 srcport 4790 4790 flowlabel 0", 0),
    ]) {
        routed.tunnel(words, 1, net);
        for inner in 0..2 {
            let frame = outside_of(&routed, net, inner, of_first_host);
            let word = u32::from_be_bytes([0, frame[15], frame[16], frame[17]]);
            assert_eq!(word & 0xf_ffff, label, "{words}, IPv{} inside", [4, 6][inner]);
        }
    }
}

/// The arguments have the same meaning as in `ip link`: the kernel's own VXLAN behaves alike.
#[test]
fn the_outer_df_bit_is_that_of_ip_link() {
    let Some(routed) = Routed::new() else { return };
    let both = |net| [0, 1].map(|inner| forbids_fragments(&routed, net, inner));
    for (net, (words, expected)) in (0..).zip([
        // Inner IPv4 datagrams have DF set here.
        ("vxlan id 7", [false, false]),
        ("vxlan id 7 df unset", [false, false]),
        ("vxlan id 7 df set", [true, true]),
        ("vxlan id 7 df inherit", [true, true]),
        ("geneve id 7 df inherit", [true, true]),
        ("ipip", [true, true]),
        ("gre nopmtudisc", [true, false]),
        ("gretap nopmtudisc ignore-df", [false, false]),
    ]) {
        if words.starts_with("vxlan") {
            for (host, device) in routed.hosts.iter().enumerate() {
                let (local, remote) = (OUTSIDE[host][0], OUTSIDE[1 - host][0]);
                let ends = format!("{words} local {local} remote {remote} dstport 4789 udpcsum");
                ip(device, &format!("link add t{net} type {ends}"));
                ip(device, &format!("link set t{net} up"));
                routed.address(host, net);
            }
            assert_eq!(both(net), expected, "the kernel's {words}");
            routed.hosts.iter().for_each(|host| drop(ip(host, &format!("link del t{net}"))));
        }
        routed.tunnel(words, 0, net);
        assert_eq!(both(net), expected, "{words}");
        for host in 0..2 {
            routed.grosso(host, &format!("tunnel del t{net}"));
        }
    }
}
