//! Grosso's tunnel endpoints on the hosts: their sockets, and the devices that lead into the tunnels.

use std::io;

use grosso::tunnel::{Endpoint, decapsulate::OuterChecksum};
use grosso_io::{
    Port,
    live::{IpOptions, IpPort, TapOptions, TapPort, UdpOptions, UdpPort},
    port::PortCounter,
    runner::Snapshot,
    stage::{TunnelOptions, TunnelStage},
};
use grosso_sys::{ethtool::set_feature, interface::Control, namespace::NetworkNamespace};

use super::{
    tunnels::INSIDE,
    world::{B, World, name, set_up},
};

impl World {
    /// Creates the world as `new` does, with addresses at the engine's end of the wire, which makes the engine a
    /// separate IP host.
    ///
    /// The sender completes all checksums, as on a wire between real hosts. By default, this wire leaves checksums
    /// inside a tunnel to the next device, and a socket cannot report this state. On the engine's host, the kernel
    /// merges received packets.
    pub(crate) fn with_addresses() -> Option<Self> {
        let world = Self::new()?;
        let set = |wire: &str, feature: &str, on: bool| {
            set_feature(&Control::new()?, &name(wire), feature, on)
        };
        let ours = || {
            std::fs::write("/proc/sys/net/ipv6/conf/e0/disable_ipv6", "0")?;
            set_up("e0", B)?;
            set("e0", CHECKSUMS, false)?;
            set("e0", "rx-gro", true)
        };
        world.engine.run(ours).unwrap().unwrap();
        world.a.run(|| set("a0", CHECKSUMS, false)).unwrap().unwrap();
        Some(world)
    }
}

const CHECKSUMS: &str = "tx-checksum-ip-generic";

/// Opens a tunnel endpoint on a host's UDP sockets.
pub(crate) fn over_udp(host: &NetworkNamespace, endpoint: &Endpoint) -> TunnelStage<UdpPort> {
    let options = UdpOptions::of(endpoint).unwrap();
    let port = host.run(|| UdpPort::open(&options)).unwrap().unwrap();
    let checksum = port.outer_checksum();
    tunnelled(port, endpoint, checksum)
}

/// Opens a tunnel endpoint on a host's raw IP sockets.
pub(crate) fn over_ip(host: &NetworkNamespace, endpoint: &Endpoint) -> TunnelStage<IpPort> {
    let options = IpOptions::of(endpoint).unwrap();
    let port = host.run(|| IpPort::open(&options)).unwrap().unwrap();
    tunnelled(port, endpoint, OuterChecksum::InFrame)
}

/// Opens a tunnel endpoint over a port.
pub(crate) fn tunnelled<P: Port>(
    port: P,
    endpoint: &Endpoint,
    checksum: OuterChecksum,
) -> TunnelStage<P> {
    let mut options = TunnelOptions::new(endpoint.clone(), 1);
    options.outer_checksum = checksum;
    TunnelStage::new(port, options).unwrap()
}

/// Opens a host's device that leads into a tunnel over a wire with an MTU of 1500 bytes. It gets the inner addresses of
/// the first or the second host.
pub(crate) fn device(host: &NetworkNamespace, endpoint: &Endpoint, side: usize) -> TapPort {
    let layer = match endpoint.carries_ethernet() {
        true => grosso_sys::tun::Layer::Ethernet,
        false => grosso_sys::tun::Layer::Ip,
    };
    let open = || {
        let port = TapPort::open("tn0", layer, &TapOptions::default())?;
        let mtu = endpoint.mtu(1500).and_then(|mtu| u16::try_from(mtu).ok()).unwrap();
        Control::new()?.set_mtu(&name("tn0"), mtu)?;
        set_up("tn0", INSIDE[side])?;
        io::Result::Ok(port)
    };
    host.run(open).unwrap().unwrap()
}

/// Returns the value of a counter on a path's right port.
pub(crate) fn count(snapshot: &Snapshot, name: &str) -> u64 {
    let found = snapshot.right.iter().find(|(counter, _)| counter.name == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Checks that neither port lost packets, except at a full socket buffer, which depends on the CPU load.
pub(crate) fn assert_nothing_lost(snapshot: &Snapshot) {
    let counters = snapshot.left.iter().chain(&snapshot.right);
    let is_loss = |(counter, count): &&(PortCounter, u64)| {
        counter.is_loss && counter.name != "socket_rx_dropped" && *count > 0
    };
    let lost: Vec<_> = counters.filter(is_loss).map(|(c, count)| (c.name, *count)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Returns the number of wrong checksums that a host's kernel found in outer and inner headers, by counter.
pub(crate) fn checksum_errors(host: &NetworkNamespace) -> Vec<(String, u64)> {
    let read = || {
        let four = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
        let six = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
        io::Result::Ok((four, six))
    };
    let (four, six) = host.run(read).unwrap().unwrap();
    let lines: Vec<&str> = four.lines().collect();
    let four = lines.chunks(2).flat_map(|pair| {
        let mut columns = pair[0].split(' ').zip(pair[1].split(' '));
        let protocol = columns.next().map_or("", |(protocol, _)| protocol);
        columns.map(move |(name, value)| (format!("{protocol}{name}"), value))
    });
    let six = six.lines().filter_map(|line| line.split_once(' '));
    let all = four.chain(six.map(|(name, value)| (name.to_owned(), value.trim())));
    let errors = all.filter(|(name, _)| name.ends_with("InCsumErrors"));
    let errors = errors.map(|(name, value)| (name, value.parse().unwrap()));
    errors.filter(|(_, count)| *count > 0).collect()
}
