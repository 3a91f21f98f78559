//! The end of a path that is a tunnel: sockets, and the tunnel in front of them.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::SocketAddr,
};

use grosso_io::{
    live::{UdpOptions, UdpPort},
    stage::{Tunnelled, TunnelledOptions},
};
use grosso_sys::{interface::InterfaceName, netlink::Netlink};

use crate::{commands::device::refused, error::Failure, tunnel::Description};

/// Whether there are sockets for a tunnel; if not, why.
pub(crate) fn check(description: &Description) -> Result<(), String> {
    match description.endpoint.udp() {
        Some(_) => Ok(()),
        None => {
            Err(format!("{} is not in UDP: encap fou or gue puts it there", description.name()))
        }
    }
}

/// Opens a tunnel's sockets, those of each queue with their share of the flows. `device` is what leads into the tunnel.
pub(super) fn open(
    description: &Description,
    device: &str,
    queues: usize,
    command: &str,
) -> Result<Vec<Tunnelled<UdpPort>>, Failure> {
    let endpoint = &description.endpoint;
    let none =
        || no_socket(command, (endpoint.local, 0).into(), &io::ErrorKind::Unsupported.into());
    let mut options = UdpOptions::of(endpoint).ok_or_else(none)?;
    options.shared = queues > 1;
    let seed = RandomState::new().hash_one(device);
    let open = |_| {
        let port = UdpPort::open(&options)?;
        let mut options = TunnelledOptions::new(endpoint.clone(), seed);
        options.outer_checksum = port.outer_checksum();
        options.address = address(device);
        Tunnelled::new(port, options)
    };
    let opened = (0..queues).map(open).collect::<io::Result<_>>();
    opened.map_err(|error| no_socket(command, options.local, &error))
}

/// The Ethernet address of a device, where it has one.
fn address(device: &str) -> Option<[u8; 6]> {
    let link = InterfaceName::new(device).and_then(|name| Netlink::new()?.link(&name));
    link.ok()?.hardware_address
}

/// Why there is no socket at a tunnel's own address.
pub(crate) fn no_socket(command: &str, local: SocketAddr, error: &io::Error) -> Failure {
    let (address, port) = (local.ip(), local.port());
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            let message = format!("{command}: local {address} is no address of this host");
            let hint =
                format!("ip addr shows which are; sudo ip addr add {address} dev IFACE adds it");
            Failure::environment("environment.local", message).hint(hint)
        }
        io::ErrorKind::AddrInUse => {
            let message = format!("{command}: {local}: another program or tunnel receives there");
            let hint = format!("ss -ulpn 'sport = :{port}' shows which; or choose another port");
            Failure::environment("environment.busy", message).hint(hint)
        }
        _ => refused(command, &format!("opening sockets at {local}"), "cap_net_admin", error),
    }
}
