//! Named hosts, the wires between them, and the namespaces of data paths.

use std::{io, net::IpAddr, os::fd::AsFd};

use grosso_sys::{
    ethtool::set_feature,
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    path::kernel,
};
use grosso_wire::{ipv4, ipv6};

use crate::netns::{engine_network, segment_in_the_kernel, set_up_host};

/// A host and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomHost {
    /// The name.
    pub name: String,
    /// Whether the host forwards packets.
    pub forwards: bool,
    /// The devices: ends of wires, and the data paths' TAP and TUN devices.
    pub devices: Vec<HostDevice>,
    /// The default gateways, at most one per IP version.
    pub gateways: Vec<IpAddr>,
}

/// A device of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// The name, which must be unique in the network.
    pub name: String,
    /// The addresses, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// A wire between two devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomWire {
    /// Names of the devices at the two ends.
    pub ends: [String; 2],
    /// MTU of both devices in bytes, from the IP header on.
    pub mtu: u16,
    /// Whether superframes and partial checksums may cross the wire, as between two VMs on one host. If not, packets
    /// are segmented to the MTU and have complete checksums, as on a cable.
    pub offloads: bool,
}

/// Names and addresses in a data path's configuration that determine the namespace in which the path runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathPlace {
    /// Devices that the path opens in the namespace where it runs.
    pub opens: Vec<String>,
    /// Devices that the path creates for hosts.
    pub makes: Vec<String>,
    /// The source address of the path's tunnel.
    pub address: Option<IpAddr>,
}

/// A network in which to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomNetwork {
    /// The hosts.
    pub hosts: Vec<CustomHost>,
    /// The wires.
    pub wires: Vec<CustomWire>,
    /// The data paths.
    pub paths: Vec<PathPlace>,
}

/// A contradiction in the description of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Contradiction {
    /// The name or address that causes the contradiction.
    pub about: String,
    /// Explanation of the contradiction.
    pub what: String,
}

/// Location of a device: the host with this index, or the data path with this index that does not run on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Host(usize),
    Path(usize),
}

impl CustomNetwork {
    /// Checks that every device has exactly one location, and that every path finds its devices.
    ///
    /// # Errors
    /// Returns the first contradiction.
    pub fn check(&self) -> Result<(), Contradiction> {
        let wrong =
            |about: &String, what: String| Err(Contradiction { about: about.clone(), what });
        let is_name = |name: &String| match InterfaceName::new(name) {
            Err(error) => wrong(name, error.to_string()),
            Ok(_) => Ok(()),
        };
        let hosts: Vec<&String> = self.hosts.iter().map(|host| &host.name).collect();
        if let Some(name) = twice(&hosts) {
            return wrong(name, format!("two hosts are named \"{name}\""));
        }
        let devices =
            || self.hosts.iter().flat_map(|host| &host.devices).map(|device| &device.name);
        let ends: Vec<&String> = self.wires.iter().flat_map(|wire| &wire.ends).collect();
        let made: Vec<&String> = self.paths.iter().flat_map(|path| &path.makes).collect();
        for name in devices() {
            is_name(name)?;
            if ![&ends, &made].iter().any(|names| names.contains(&name)) {
                return wrong(name, format!("no [[wire]] connects {name}, and no path creates it"));
            }
        }
        for (what, names) in [
            ("two hosts have a device named", devices().collect()),
            ("more than one [[wire]] connects", ends.clone()),
            (
                "a path creates a device that a [[wire]] also connects:",
                ends.iter().chain(&made).copied().collect(),
            ),
        ] {
            if let Some(name) = twice(&names) {
                return wrong(name, format!("{what} {name}"));
            }
        }
        for name in ends {
            is_name(name)?;
            if self.spot(name).is_none() {
                return wrong(name, format!("no host has a device {name}, and no path opens it"));
            }
        }
        for name in made {
            if self.host_with(name).is_none() {
                return wrong(name, format!("a path creates {name}, but no host lists it"));
            }
        }
        for host in &self.hosts {
            let addresses = host.devices.iter().flat_map(|device| &device.addresses);
            let addresses: Vec<String> = addresses.map(|(own, _)| own.to_string()).collect();
            if let Some(address) = twice(&addresses.iter().collect::<Vec<_>>()) {
                return wrong(address, format!("host {} has address {address} twice", host.name));
            }
        }
        for wire in &self.wires {
            self.check_mtu(wire)?;
        }
        (0..self.paths.len()).try_for_each(|path| self.place(path).map(drop))
    }

    /// Checks that a wire's MTU is large enough for the IP versions of the addresses at its ends.
    fn check_mtu(&self, wire: &CustomWire) -> Result<(), Contradiction> {
        let CustomWire { ends: [end, other], mtu, .. } = wire;
        let devices = self.hosts.iter().flat_map(|host| &host.devices);
        let at_end = devices.filter(|device| wire.ends.contains(&device.name));
        let mut addresses = at_end.flat_map(|device| &device.addresses);
        let (least, of) = match addresses.any(|(address, _)| address.is_ipv6()) {
            true => (ipv6::MTU_MIN, "IPv6"),
            false => (ipv4::MTU_MIN, "IPv4"),
        };
        if *mtu >= least {
            return Ok(());
        }
        let what = format!("mtu {mtu} between {end} and {other}: the minimum for {of} is {least}");
        Err(Contradiction { about: end.clone(), what })
    }

    /// Returns the index of the host to which a device belongs.
    fn host_with(&self, device: &str) -> Option<usize> {
        let has = |host: &CustomHost| host.devices.iter().any(|own| own.name == device);
        self.hosts.iter().position(has)
    }

    /// Returns the location of a wire's end.
    fn spot(&self, end: &str) -> Option<Spot> {
        let path = || self.paths.iter().position(|path| path.opens.iter().any(|name| name == end));
        self.host_with(end).map(Spot::Host).or_else(|| path().map(Spot::Path))
    }

    /// Returns the location of a path: the host that has the path's devices or tunnel address or, without such a host,
    /// a location of the path's own.
    fn place(&self, path: usize) -> Result<Spot, Contradiction> {
        let wrong = |about: &str, what| Err(Contradiction { about: about.into(), what });
        let PathPlace { opens, address, .. } = &self.paths[path];
        let mut spots = Vec::new();
        for name in opens {
            if !self.wires.iter().any(|wire| wire.ends.contains(name)) {
                return wrong(name, format!("no [[wire]] connects {name}"));
            }
            spots.push((name.clone(), self.host_with(name).map_or(Spot::Path(path), Spot::Host)));
        }
        if let Some(address) = address {
            let has = |host: &CustomHost| {
                host.devices
                    .iter()
                    .flat_map(|device| &device.addresses)
                    .any(|(own, _)| own == address)
            };
            let about = address.to_string();
            let Some(host) = self.hosts.iter().position(has) else {
                return wrong(
                    &about,
                    format!("no host has address {about}, which is the local address of a tunnel"),
                );
            };
            spots.push((about, Spot::Host(host)));
        }
        match &spots[..] {
            [(one, spot), (other, another)] if spot != another => wrong(
                one,
                format!(
                    "a path cannot use both {one} and {other}, because they are on different hosts"
                ),
            ),
            [(_, spot), ..] => Ok(*spot),
            [] => Ok(Spot::Path(path)),
        }
    }

    /// Creates the hosts and the wires. The paths' devices do not exist yet; see [`LaidNetwork::connect`].
    ///
    /// # Errors
    /// Returns the kernel's error, which is `EPERM` without the privileges of [`grosso_sys::userns::enter`].
    pub fn lay(&self) -> io::Result<LaidNetwork> {
        let invalid = |wrong: Contradiction| io::Error::new(io::ErrorKind::InvalidInput, wrong);
        self.check().map_err(invalid)?;
        let hosts: Vec<_> = self.hosts.iter().map(open_host).collect::<io::Result<_>>()?;
        let paths: Vec<_> =
            self.paths.iter().map(|_| engine_network()).collect::<io::Result<_>>()?;
        let places = (0..self.paths.len()).map(|path| self.place(path));
        let places = places.collect::<Result<_, _>>().map_err(invalid)?;
        let laid = LaidNetwork { spec: self.clone(), hosts, paths, places };
        for wire in &self.wires {
            laid.lay_wire(wire)?;
        }
        // A tunnel needs its local address when it is opened.
        laid.give_addresses(false)?;
        Ok(laid)
    }
}

/// A network that has been created. Dropping it removes the namespaces, except those that a path or a socket still
/// uses.
#[derive(Debug)]
pub struct LaidNetwork {
    spec: CustomNetwork,
    hosts: Vec<NetworkNamespace>,
    paths: Vec<NetworkNamespace>,
    places: Vec<Spot>,
}

impl LaidNetwork {
    /// Returns the namespace in which a path opens its devices.
    #[must_use]
    pub fn of_path(&self, path: usize) -> &NetworkNamespace {
        self.network(self.places[path])
    }

    /// Returns the namespace of a host.
    #[must_use]
    pub fn of_host(&self, host: usize) -> &NetworkNamespace {
        &self.hosts[host]
    }

    /// Returns the namespaces of all hosts.
    #[must_use]
    pub fn hosts(&self) -> &[NetworkNamespace] {
        &self.hosts
    }

    /// Moves the devices that the paths have created to their hosts, and configures the addresses of these devices and
    /// the routes of the hosts.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn connect(&self) -> io::Result<()> {
        for (path, place) in self.spec.paths.iter().enumerate() {
            for name in &place.makes {
                let Some(host) = self.spec.host_with(name) else { continue };
                if self.places[path] != Spot::Host(host) {
                    let to = LinkChange::new().namespace(self.hosts[host].as_fd());
                    self.of_path(path).run(|| {
                        let netlink = Netlink::new()?;
                        let link = netlink.link(&InterfaceName::new(name)?)?;
                        netlink.change_link(link.index, to)
                    })??;
                }
            }
        }
        self.give_addresses(true)?;
        for (host, network) in self.spec.hosts.iter().zip(&self.hosts) {
            network.run(|| host.add_routes())??;
        }
        Ok(())
    }

    /// Configures addresses: those of the devices that paths create if `made` is set, otherwise those of all other
    /// devices.
    fn give_addresses(&self, made: bool) -> io::Result<()> {
        let makes = |name: &String| self.spec.paths.iter().any(|path| path.makes.contains(name));
        for (host, network) in self.spec.hosts.iter().zip(&self.hosts) {
            let mut devices = host.devices.iter().filter(|device| makes(&device.name) == made);
            network.run(|| devices.try_for_each(HostDevice::set_up))??;
        }
        Ok(())
    }

    fn network(&self, spot: Spot) -> &NetworkNamespace {
        match spot {
            Spot::Host(host) => &self.hosts[host],
            Spot::Path(path) => &self.paths[path],
        }
    }

    fn lay_wire(&self, wire: &CustomWire) -> io::Result<()> {
        let place = |end: &String| {
            let spot = self.spec.spot(end).ok_or(io::ErrorKind::NotFound)?;
            // A path that opens one end of this wire may run on a host because it opens another device there.
            Ok::<_, io::Error>(self.network(match spot {
                Spot::Path(path) => self.places[path],
                host @ Spot::Host(_) => host,
            }))
        };
        let [near, far] = &wire.ends;
        let (here, there) = (place(near)?, place(far)?);
        let mtu = wire.mtu.into();
        here.run(|| {
            let far_end = LinkChange::new().namespace(there.as_fd()).mtu(mtu);
            let ends = [InterfaceName::new(near)?, InterfaceName::new(far)?];
            Netlink::new()?.add_veth((&ends[0], LinkChange::new().mtu(mtu)), (&ends[1], far_end))
        })??;
        for (network, end) in [(here, near), (there, far)] {
            network.run(|| {
                let (control, name) = (Control::new()?, InterfaceName::new(end)?);
                if !wire.offloads {
                    segment_in_the_kernel(end)?;
                    set_feature(&control, &name, "tx-checksum-ip-generic", false)?;
                }
                control.set_up(&name, true)
            })??;
        }
        Ok(())
    }
}

impl HostDevice {
    /// Configures the addresses of the device, which must be in the calling thread's namespace.
    fn set_up(&self) -> io::Result<()> {
        let (netlink, control) = (Netlink::new()?, Control::new()?);
        let name = InterfaceName::new(&self.name)?;
        if self.addresses.iter().any(|(address, _)| address.is_ipv6()) {
            let settings =
                [("accept_dad", "0"), ("router_solicitations", "0"), ("disable_ipv6", "0")];
            for (setting, value) in settings {
                kernel::write(format!("/proc/sys/net/ipv6/conf/{}/{setting}", self.name), value)?;
            }
        }
        control.set_up(&name, true)?;
        let index = control.index(&name)?;
        let mut addresses = self.addresses.iter();
        addresses.try_for_each(|(address, bits)| netlink.add_address(index, *address, *bits))
    }
}

impl CustomHost {
    /// Adds the host's routes. The calling thread must be in the host's namespace.
    fn add_routes(&self) -> io::Result<()> {
        let (netlink, control) = (Netlink::new()?, Control::new()?);
        for gateway in &self.gateways {
            let reaches = |device: &&HostDevice| {
                device.addresses.iter().any(|own| is_in_prefix(*own, *gateway))
            };
            let device = self.devices.iter().find(reaches).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "host {}: no device has an address in the network of gateway {gateway}",
                        self.name
                    ),
                )
            })?;
            let index = control.index(&InterfaceName::new(&device.name)?)?;
            let all: IpAddr = match gateway {
                IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            netlink.add_route(index, (all, 0), Some(*gateway))?;
        }
        Ok(())
    }
}

/// Returns whether an address belongs to a device's network.
fn is_in_prefix((own, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let number = |address| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    let rest = 128_u32.saturating_sub(bits.into());
    let network = |address| number(address).checked_shr(rest).unwrap_or(0);
    own.is_ipv4() == address.is_ipv4() && network(own) == network(address)
}

/// Returns a name that appears more than once in a list.
fn twice<'a>(names: &[&'a String]) -> Option<&'a String> {
    let is_again = |(i, name): &(usize, &&String)| names[..*i].contains(name);
    names.iter().enumerate().find(is_again).map(|(_, name)| *name)
}

fn open_host(host: &CustomHost) -> io::Result<NetworkNamespace> {
    let network = engine_network()?;
    network.run(|| {
        set_up_host(TCP_BUFFER_BYTES)?;
        if host.forwards {
            for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                match kernel::write(format!("/proc/sys/net/{switch}"), "1") {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    })??;
    Ok(network)
}

/// Maximum size of a TCP socket buffer in bytes: less than 1000 packets, which is the length of a wire's backlog.
const TCP_BUFFER_BYTES: usize = 640 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, devices: &[(&str, &str)]) -> CustomHost {
        let devices = devices.iter().map(|(name, address)| HostDevice {
            name: (*name).into(),
            addresses: vec![(address.parse().unwrap(), 24)],
        });
        CustomHost {
            name: name.into(),
            forwards: false,
            devices: devices.collect(),
            gateways: vec![],
        }
    }

    fn wire(one: &str, other: &str) -> CustomWire {
        CustomWire { ends: [one.into(), other.into()], mtu: 1500, offloads: false }
    }

    fn network() -> CustomNetwork {
        let nic = PathPlace { opens: vec!["e0".into()], makes: vec!["b0".into()], address: None };
        CustomNetwork {
            hosts: vec![host("a", &[("a0", "10.1.0.1")]), host("b", &[("b0", "10.1.0.2")])],
            wires: vec![wire("a0", "e0")],
            paths: vec![nic],
        }
    }

    #[test]
    fn a_path_is_where_what_it_opens_is() {
        let network = network();
        assert_eq!(network.check(), Ok(()));
        assert_eq!(network.place(0), Ok(Spot::Path(0)), "e0 belongs to no host");
        let mut tunnel = network.clone();
        tunnel.hosts.push(host("c", &[("c0", "10.2.0.1")]));
        tunnel.wires.push(wire("c0", "e1"));
        tunnel.paths.push(PathPlace {
            opens: vec!["e1".into()],
            makes: Vec::new(),
            address: Some("10.1.0.1".parse().unwrap()),
        });
        let wrong = tunnel.check().unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "a path cannot use both e1 and 10.1.0.1, because they are on different hosts"
        );
        tunnel.paths[1].opens.clear();
        assert_eq!(tunnel.place(1), Ok(Spot::Host(0)));
    }

    #[test]
    fn contradictions_are_named() {
        let refused = |change: &dyn Fn(&mut CustomNetwork)| {
            let mut network = network();
            change(&mut network);
            network.check().unwrap_err().to_string()
        };
        let said = [
            refused(&|network| network.hosts[1].name = "a".into()),
            refused(&|network| network.hosts[1].devices[0].name = "a0".into()),
            refused(&|network| network.wires.push(wire("a0", "e0"))),
            refused(&|network| network.paths[0].opens.clear()),
            refused(&|network| network.paths[0].makes.push("b1".into())),
            refused(&|network| network.paths[0].opens.push("x0".into())),
            refused(&|network| network.paths[0].address = Some("10.9.0.1".parse().unwrap())),
            refused(&|network| network.wires.clear()),
            refused(&|network| network.hosts[0].devices[0].addresses.extend_from_within(..)),
            refused(&|network| network.wires[0].mtu = 67),
            refused(&|network| {
                network.wires[0].mtu = 1279;
                network.hosts[0].devices[0].addresses.push(("fd00::1".parse().unwrap(), 64));
            }),
        ];
        assert_eq!(
            said,
            [
                "two hosts are named \"a\"",
                "two hosts have a device named a0",
                "more than one [[wire]] connects a0",
                "no host has a device e0, and no path opens it",
                "a path creates b1, but no host lists it",
                "no [[wire]] connects x0",
                "no host has address 10.9.0.1, which is the local address of a tunnel",
                "no [[wire]] connects a0, and no path creates it",
                "host a has address 10.1.0.1 twice",
                "mtu 67 between a0 and e0: the minimum for IPv4 is 68",
                "mtu 1279 between a0 and e0: the minimum for IPv6 is 1280",
            ]
        );
    }

    #[test]
    fn a_router_is_behind_the_device_whose_network_it_is_in() {
        let own = |text: &str, bits| (text.parse().unwrap(), bits);
        let is_in = |own, address: &str| is_in_prefix(own, address.parse().unwrap());
        assert!(is_in(own("10.1.0.1", 24), "10.1.0.254"));
        assert!(!is_in(own("10.1.0.1", 24), "10.1.1.1"));
        assert!(
            is_in(own("fd93::1", 64), "fd93::2") && !is_in(own("fd93::1", 64), "fd93:0:0:1::2")
        );
        assert!(!is_in(own("0.0.0.0", 0), "::1"), "another version of IP");
        assert!(
            is_in(own("10.1.0.1", 0), "192.0.2.1"),
            "a prefix of no bits matches all addresses"
        );
    }
}
