//! Finds routes that would lead a tunnel's packets back into the tunnel, directly or through other tunnels.

use std::net::IpAddr;

use grosso_sys::{
    interface::{Control, InterfaceName},
    netlink::{Link, Netlink, RouteQuery},
};

use crate::{error::Failure, tunnel::Description};

/// A route to a remote address of a tunnel that leads back into the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteLoop {
    remote: IpAddr,
    /// Devices through which the packets pass, the tunnel's own device last.
    devices: Vec<String>,
}

impl RouteLoop {
    /// Returns the first route of a tunnel that leads back into it. `device` leads into the tunnel; `known` are
    /// Grosso's other tunnels, each with its device. Kernel tunnels are found through their devices. A route that
    /// cannot be queried does not count as a loop, because the packets themselves are also checked.
    pub(super) fn find(
        description: &Description,
        device: &str,
        known: &[(String, Description)],
    ) -> Option<Self> {
        let netlink = Netlink::new().ok()?;
        let own = Control::new().ok()?.index(&InterfaceName::new(device).ok()?).ok()?;
        let mut search = Search { netlink, own, known, seen: Vec::new() };
        let port = description.endpoint.udp().map(|udp| udp.destination);
        description.remotes().find_map(|remote| {
            search.seen.clear();
            let source = Some(description.endpoint.local);
            let devices = search.devices_to(remote, source, port)?;
            Some(Self { remote, devices })
        })
    }

    /// Returns the failure of `command` to start a tunnel because of this route.
    pub(super) fn refusal(&self, command: &str, tunnel: &str) -> Failure {
        let message = format!("{command}: {tunnel}: {}", self.sentence());
        let failure = Failure::environment("environment.loop", message);
        failure.hint(self.remedy())
    }

    /// Returns the note that a route of a running tunnel has become a loop.
    pub(super) fn note(&self, tunnel: &str) -> String {
        format!("{tunnel}: {}: {}", self.sentence(), self.remedy())
    }

    fn sentence(&self) -> String {
        let (remote, through) = (self.remote, self.devices.join(", then "));
        format!("the route to {remote} leads back into the tunnel, through {through}")
    }

    fn remedy(&self) -> String {
        format!("add a route outside the tunnel: sudo ip route add {} dev IFACE", self.remote)
    }
}

/// A search for a device, along routes and through tunnels.
struct Search<'a> {
    netlink: Netlink,
    /// Index of the device to find.
    own: u32,
    known: &'a [(String, Description)],
    /// Links whose routes were already followed.
    seen: Vec<u32>,
}

impl Search<'_> {
    /// Returns the names of the devices that packets to a host traverse up to the tunnel's own device; `None` if they
    /// do not reach it.
    fn devices_to(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        udp_port: Option<u16>,
    ) -> Option<Vec<String>> {
        let link = self.link_to(destination, source, udp_port)?;
        let name = link.name.as_str().to_owned();
        if link.index == self.own {
            return Some(vec![name]);
        }
        if self.seen.contains(&link.index) || self.seen.len() >= DEVICES_MAX {
            return None;
        }
        self.seen.push(link.index);
        let ways = self.tunnelled(&link);
        let rest = ways
            .into_iter()
            .find_map(|(remote, local, port)| self.devices_to(remote, local, port))?;
        Some([vec![name], rest].concat())
    }

    /// Returns the link through which packets leave. If it is a device that only tags packets, returns the link below
    /// it.
    fn link_to(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
        udp_port: Option<u16>,
    ) -> Option<Link> {
        let of_packets = source.and_then(|source| {
            let query = RouteQuery { destination, source, udp_port };
            self.netlink.route_link(&query).ok()
        });
        let by_destination = || Some(self.netlink.route(destination).ok()?.link);
        let mut link = self.netlink.link_at(of_packets.or_else(by_destination)?).ok()?;
        for _ in 0..DEVICES_MAX {
            let is_on_top = link.kind.as_deref().is_some_and(|kind| ON_TOP.contains(&kind));
            let Some(parent) = link.parent.filter(|_| is_on_top) else { break };
            link = self.netlink.link_at(parent).ok()?;
        }
        Some(link)
    }

    /// Returns the destinations, sources and ports of the outer packets of the tunnel that a device leads to.
    fn tunnelled(&self, link: &Link) -> Vec<(IpAddr, Option<IpAddr>, Option<u16>)> {
        if let Some(remote) = link.remote {
            return vec![(remote, None, None)];
        }
        let of = |description: &Description| {
            let end = &description.endpoint;
            let port = end.udp().map(|udp| udp.destination);
            description.remotes().map(|remote| (remote, Some(end.local), port)).collect()
        };
        let name = link.name.as_str();
        let found = self.known.iter().find(|(device, _)| device == name);
        found.map(|(_, description)| of(description)).unwrap_or_default()
    }
}

/// Types of links that send each packet through another link, unchanged or with a tag.
const ON_TOP: &[&str] = &["vlan", "macvlan", "ipvlan"];
/// Maximum number of devices whose routes are followed from one tunnel.
const DEVICES_MAX: usize = 64;
