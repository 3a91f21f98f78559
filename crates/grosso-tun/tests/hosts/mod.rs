//! Hosts in network namespaces, and packets to send to them.
#![allow(dead_code, reason = "every test program has this module and uses a part of it")]

use std::net::{IpAddr, Ipv4Addr};

use grosso_sys::{
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::Netlink,
    userns,
};
use grosso_testkit::Packet;
use grosso_tun::{Batch, Tun, TunOptions};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Creates a network namespace. Prints the reason and returns `None` if that fails.
pub(crate) fn namespace() -> Option<NetworkNamespace> {
    let namespace = NetworkNamespace::new().map_err(|error| error.to_string());
    let namespace = namespace.and_then(|namespace| match userns::tap() {
        Ok(()) => Ok(namespace),
        Err(refusal) => Err(refusal.to_string()),
    });
    match namespace {
        Ok(namespace) => Some(namespace),
        Err(why) => {
            println!("skipped: {why}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: {why}");
            None
        }
    }
}

/// Creates a host with this address and a TUN device named `tun0`.
pub(crate) fn host(address: Ipv4Addr, options: &TunOptions) -> Option<(NetworkNamespace, Tun)> {
    let namespace = namespace()?;
    let tun = namespace.run(|| {
        // Neighbor discovery would add packets that the tests did not send.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        Tun::open("tun0", &options.clone().address(address.into(), 24).up())
    });
    Some((namespace, tun.unwrap().unwrap()))
}

pub(crate) fn set_up(name: &str, address: Ipv4Addr) -> std::io::Result<()> {
    let name = InterfaceName::new(name)?;
    let netlink = Netlink::new()?;
    netlink.add_address(netlink.link(&name)?.index, IpAddr::V4(address), 24)?;
    Control::new()?.set_up(&name, true)
}

/// Removes the host's device.
pub(crate) fn remove(host: &NetworkNamespace) {
    let name = InterfaceName::new("tun0").unwrap();
    let remove = || {
        let netlink = Netlink::new()?;
        netlink.delete_link(netlink.link(&name)?.index)
    };
    host.run(remove).unwrap().unwrap();
}

/// Returns a batch of one packet.
pub(crate) fn batch(packet: Vec<u8>) -> Batch {
    [packet].into_iter().collect()
}

/// Returns a datagram for a socket on a host, with a correct or an incorrect checksum.
pub(crate) fn datagram(port: u16, payload: &[u8], is_good: bool) -> Vec<u8> {
    let packet = Packet::new().ipv4(|ip| ip.source(B.octets()).destination(A.octets()));
    let mut packet = packet.udp(|udp| udp.destination_port(port)).payload(payload).build();
    if !is_good {
        *packet.last_mut().unwrap() ^= 1;
    }
    packet
}
