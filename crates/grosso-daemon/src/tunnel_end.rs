//! Opens a tunnel as an endpoint of a path: opens its sockets, and wraps them in the tunnel.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::SocketAddr,
};

use grosso::tunnel::{Carrier, Endpoint, decapsulate::OuterChecksum};
use grosso_io::{
    Port,
    live::{IpOptions, IpPort, UdpOptions, UdpPort},
    stage::{Fragmentation, FragmentationOptions, TunnelOptions, TunnelStage},
};
use grosso_sys::{
    datagram::EchoSocket, errno::ErrorClass, interface::InterfaceName, netlink::Netlink,
};

use super::notices::Notices;
use crate::{
    device::{forbidden, privilege, refused},
    error::Failure,
    tunnel::Description,
};

/// A tunnel endpoint of a path, one port for each queue.
pub(super) enum Ends {
    /// Ports that carry the tunnel in UDP.
    Udp(Vec<TunnelStage<UdpPort>>),
    /// Ports that carry the tunnel directly in IP. The kernel does not reassemble the fragments that these ports read.
    Ip(Vec<TunnelStage<Fragmentation<IpPort>>>),
}

/// Opens the tunnel's sockets for each queue, which receives a share of the flows. `device` leads into the tunnel.
pub(super) fn open(
    description: &Description,
    device: &str,
    queues: usize,
    notices: &Notices,
    command: &str,
) -> Result<Ends, Failure> {
    let endpoint = &description.endpoint;
    let seed = RandomState::new().hash_one(device);
    let mut options = TunnelOptions::new(endpoint.clone(), seed);
    options.address = address(device);
    options.forwarding = description.forwarding.clone();
    options.mtu_min = description.mtu_min.map(usize::from);
    options.loop_notice = Some(notices.looped.clone());
    if let Some(mut sockets) = UdpOptions::of(endpoint) {
        sockets.remotes = description.remotes().collect();
        sockets.shared = queues > 1;
        sockets.senders_max = sockets.senders_max.min(description.senders(queues).unwrap_or(1));
        sockets.probes = description.probes;
        sockets.route_notice = Some(notices.route_changed.clone());
        let open = |_| UdpPort::open(&sockets);
        let ports = (0..queues).map(open).collect::<io::Result<Vec<_>>>();
        let ports = ports.map_err(|error| no_socket(command, sockets.local, &error))?;
        let checksum = ports.first().map(UdpPort::outer_checksum);
        options.outer_checksum = checksum.unwrap_or(OuterChecksum::InFrame);
        return tunnelled(ports, &options, command).map(Ends::Udp);
    }
    let no_socket = |error| no_socket(command, (endpoint.local, 0).into(), &error);
    let mut sockets =
        IpOptions::of(endpoint).ok_or_else(|| no_socket(io::ErrorKind::Unsupported.into()))?;
    sockets.remotes = description.remotes().collect();
    sockets.probes = description.probes;
    sockets.route_notice = Some(notices.route_changed.clone());
    let ports = IpPort::open_queues(&sockets, queues).map_err(no_socket)?;
    let joined = ports.into_iter().map(|port| {
        let mut joining = FragmentationOptions::new(seed);
        if let Some(rules) = &mut joining.rules {
            rules.in_tunnels = false;
        }
        joining.ports = endpoint.ports();
        // Only the sender fragments IPv6, and the kernel does not do so for raw sockets.
        joining.follows_path = endpoint.local.is_ipv6();
        Fragmentation::new(port, &joining)
    });
    let ports = joined.collect::<io::Result<Vec<_>>>().map_err(no_socket)?;
    tunnelled(ports, &options, command).map(Ends::Ip)
}

/// Wraps each port in the tunnel.
fn tunnelled<P: Port>(
    ports: Vec<P>,
    options: &TunnelOptions,
    command: &str,
) -> Result<Vec<TunnelStage<P>>, Failure> {
    let ends = ports.into_iter().map(|port| TunnelStage::new(port, options.clone()));
    ends.collect::<io::Result<_>>()
        .map_err(|error| Failure::environment("environment.tunnel", format!("{command}: {error}")))
}

/// Returns the Ethernet address of a device, if it has one.
fn address(device: &str) -> Option<[u8; 6]> {
    let link = InterfaceName::new(device).and_then(|name| Netlink::new()?.link(&name));
    link.ok()?.hardware_address
}

/// Returns a note if a tunnel's path MTU is not probed although no option forbids it, or if probing has no effect.
pub fn unprobed(description: &Description) -> Option<String> {
    let probing = description.probes.then(|| EchoSocket::open(description.endpoint.local))?;
    let Err(error) = probing else { return unreported_mtu(description) };
    let why = match ErrorClass::of(&error) {
        ErrorClass::Forbidden => {
            let remedy = privilege(&["net_admin", "net_raw"]);
            format!("path MTU probes need CAP_NET_RAW ({remedy}); noprobe disables them")
        }
        _ => error.to_string(),
    };
    let name = description.name();
    Some(format!("{name}: the path MTU is not probed with echo requests: {why}"))
}

/// Returns a note if the kernel cannot learn the path MTU of a UDP tunnel over IPv6, although the kernel creates the
/// fragments. The message that reports the path MTU to the kernel passes through the loopback device, which is down in
/// a new network namespace.
fn unreported_mtu(description: &Description) -> Option<String> {
    let Endpoint { local, carrier, .. } = &description.endpoint;
    let is_reported = local.is_ipv6() && !matches!(carrier, Carrier::Ip);
    let lo = InterfaceName::new("lo").and_then(|name| Netlink::new()?.link(&name)).ok()?;
    let name = description.name();
    (is_reported && !lo.up).then(|| {
        format!(
            "{name}: lo is down, so the kernel cannot learn the MTU of a path that silently \
             drops long packets: sudo ip link set lo up"
        )
    })
}

/// Returns the failure of a command that could not open a socket at a tunnel's local address.
pub fn no_socket(command: &str, local: SocketAddr, error: &io::Error) -> Failure {
    let (address, port) = (local.ip(), local.port());
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            let message = format!("{command}: local {address} is not an address of this host");
            let hint = format!(
                "ip addr lists the addresses; to add this one: sudo ip addr add \
                         {address} dev IFACE"
            );
            Failure::environment("environment.local", message).hint(hint)
        }
        // An error without an error number comes from Grosso and concerns the source ports. An error from the kernel
        // concerns the receive port.
        io::ErrorKind::AddrInUse if error.raw_os_error().is_none() => {
            let hint = format!(
                "ss -uanp 'src {address}' shows the programs; set other ports with srcport or \
                 encap-sport, or use fewer queues"
            );
            Failure::environment("environment.busy", format!("{command}: {address}: {error}"))
                .hint(hint)
        }
        io::ErrorKind::AddrInUse => {
            let message = format!(
                "{command}: {local}: already in use by another program or \
                                   tunnel"
            );
            let hint =
                format!("find the program with ss -ulpn 'sport = :{port}', or choose another port");
            Failure::environment("environment.busy", message).hint(hint)
        }
        _ if port == 0 && ErrorClass::of(error) == ErrorClass::Forbidden => {
            let what = format!("opening an IP socket at {address}");
            forbidden(command, &what, &["net_raw"])
        }
        _ => refused(command, &format!("opening sockets at {local}"), "net_admin", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::describe;

    #[test]
    fn queues_share_few_source_ports() {
        // All queues receive at the last of these ports.
        let words = "vxlan id 1 local 127.77.1.1 remote 127.77.1.2 srcport 4774 4789 noprobe";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let description = describe("run", &words).unwrap();
        let notices = Notices::none();
        for queues in 1..=4 {
            assert!(open(&description, "lo", queues, &notices, "run").is_ok(), "{queues}");
        }
    }
}
