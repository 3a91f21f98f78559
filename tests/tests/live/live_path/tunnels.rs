//! Tests kernel TCP inside kernel VXLAN, between two hosts whose interfaces are TAPs with the longest virtio header.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
};

use grosso::features::Features;
use grosso_io::{
    live::{TapOptions, TapPort},
    runner::{RunOptions, Snapshot},
};
use grosso_sys::{namespace::NetworkNamespace, tun::Layer};
use grosso_wire::virtio::Form;

use super::{
    sockets::exchange,
    world::{A, B, World, next_network, set_up, skip, start},
};

const BYTES: usize = 4 << 20;

/// The hosts' addresses inside the tunnel.
pub(crate) const INSIDE: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(10, 19, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd19, 0, 0, 0, 0, 0, 0, 1)),
    ],
    [
        IpAddr::V4(Ipv4Addr::new(10, 19, 0, 2)),
        IpAddr::V6(Ipv6Addr::new(0xfd19, 0, 0, 0, 0, 0, 0, 2)),
    ],
];

/// Adds a VXLAN device with these `ip link` arguments to a host, and configures its addresses.
pub(crate) fn add_vxlan(
    host: &NetworkNamespace,
    (local, remote): (IpAddr, IpAddr),
    inside: [IpAddr; 2],
    words: &[&str],
) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(["link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "4789"]);
    command.args(["local", &local.to_string(), "remote", &remote.to_string()]);
    command.args(words);
    if !host.host(&mut command)?.status()?.success() {
        return Err(io::Error::other("ip link add: refused"));
    }
    host.run(|| set_up("vx0", inside))?
}

/// Sends streams inside a tunnel over IPv4 or IPv6, and returns the counters of the path.
fn tunnelled(outer: usize, checksum: bool, options: [&TapOptions; 2]) -> Option<Snapshot> {
    let world = World::new()?;
    let (outside_a, outside_b) = (A.map(next_network), B.map(next_network));
    let open = |name, addresses, options| {
        let port = TapPort::open(name, Layer::Ethernet, options)?;
        set_up(name, addresses)?;
        io::Result::Ok(port)
    };
    let a = world.a.run(|| open("a1", outside_a, options[0])).unwrap().unwrap();
    let b = world.b.run(|| open("b1", outside_b, options[1])).unwrap().unwrap();
    let path = start(a, b, RunOptions::new(1));
    let [there, back] = [(outside_a, outside_b), (outside_b, outside_a)]
        .map(|(local, remote)| (local[outer], remote[outer]));
    let six = if checksum { "noudp6zerocsumtx" } else { "udp6zerocsumtx" };
    let words = [if checksum { "udpcsum" } else { "noudpcsum" }, six, "udp6zerocsumrx"];
    let made = add_vxlan(&world.a, there, INSIDE[0], &words)
        .and_then(|()| add_vxlan(&world.b, back, INSIDE[1], &words));
    if let Err(error) = made {
        skip(&format!("no VXLAN devices: {error}"));
        return None;
    }
    for (a, b) in INSIDE[0].into_iter().zip(INSIDE[1]) {
        exchange((&world.a, a), (&world.b, b), BYTES);
    }
    Some(path.stop().snapshot)
}

fn longest() -> TapOptions {
    let mut options = TapOptions::default();
    options.header = Form::Tunnel;
    options
}

#[test]
fn streams_in_a_tunnel_pass_as_superframes_with_the_longest_header() {
    for outer in [0, 1] {
        for checksum in [false, true] {
            let options = longest();
            let Some(snapshot) = tunnelled(outer, checksum, [&options, &options]) else { return };
            for way in [snapshot.left_to_right, snapshot.right_to_left] {
                assert_eq!((way.cut, way.uncut), (0, 0), "{way:?}");
                assert!(way.rx_bytes / way.rx_frames > 1514, "superframes pass: {way:?}");
            }
        }
    }
}

#[test]
fn streams_in_a_tunnel_are_cut_for_and_joined_from_a_host_without_offloads() {
    for outer in [0, 1] {
        let mut plain = TapOptions::default();
        plain.receive = Features::NONE;
        plain.transmit = Features::NONE;
        let Some(snapshot) = tunnelled(outer, true, [&plain, &longest()]) else { return };
        let (there, back) = (snapshot.left_to_right, snapshot.right_to_left);
        assert!(there.tx_frames < there.rx_frames, "joined: {there:?}");
        assert!(back.cut > 0 && back.tx_frames > back.rx_frames, "cut: {back:?}");
    }
}
