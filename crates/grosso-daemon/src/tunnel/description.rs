//! Description of a tunnel: the endpoint that the engine uses, and settings that the engine does not need. The table in
//! `keywords` converts keywords to these settings and back.

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
};

use grosso::tunnel::{
    Carrier, DontFragment, Dscp, Endpoint, Header, RemoteChecksumUse, TimeToLive, Udp,
};
use grosso_io::stage::Forwarding;
use grosso_wire::{geneve, gue, vxlan};

use super::kind::Kind;

/// A tunnel endpoint, with settings that the engine does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Type of the tunnel.
    pub kind: Kind,
    /// Endpoint that the engine uses.
    pub endpoint: Endpoint,
    /// Remote endpoints, if there are several.
    pub forwarding: Option<Forwarding>,
    /// Whether echo requests probe the MTU of the path.
    pub probes: bool,
    /// Smallest path MTU that the tunnel's own MTU adapts to, in bytes counted from the outer IP header.
    pub mtu_min: Option<u16>,
}

impl Description {
    /// Creates a tunnel of this type with default settings, but without addresses and ports.
    pub(super) fn new(kind: Kind) -> Self {
        let header = match kind {
            Kind::Vxlan => Header::Vxlan { identifier: 0, policy: None, generic_protocol: false },
            Kind::Geneve => {
                Header::Geneve { identifier: 0, options: Vec::new(), inherit_protocol: false }
            }
            Kind::Gre | Kind::Gretap | Kind::Ip6gre | Kind::Ip6gretap => Header::Gre {
                key: None,
                checksum: false,
                sequence: false,
                ethernet: matches!(kind, Kind::Gretap | Kind::Ip6gretap),
            },
            Kind::Ipip | Kind::Sit | Kind::Ip6tnl => Header::Ip,
        };
        let carrier = if kind.has_port() { Carrier::Udp(default_udp()) } else { Carrier::Ip };
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mut endpoint = Endpoint::new(nowhere, nowhere, header, carrier);
        endpoint.ttl = TimeToLive::Fixed(TTL);
        endpoint.dscp = Dscp::Inherit;
        // The defaults of `ip link`.
        endpoint.dont_fragment =
            if kind.has_port() { DontFragment::Unset } else { DontFragment::Set };
        endpoint.encapsulation_limit =
            (kind.is_over_ipv6() == Some(true)).then_some(ENCAPSULATION_LIMIT);
        Self { kind, endpoint, forwarding: None, probes: true, mtu_min: None }
    }

    /// Sets the destination port if no keyword did. FOU has no default port.
    pub(super) fn set_default_port(&mut self) {
        let port = match (&self.endpoint.header, &self.endpoint.carrier) {
            (Header::Vxlan { generic_protocol: true, .. }, _) => vxlan::PORT_GPE,
            (Header::Vxlan { .. }, _) => vxlan::PORT,
            (Header::Geneve { .. }, _) => geneve::PORT,
            (_, Carrier::Gue(_) | Carrier::DirectGue(_)) => gue::PORT,
            _ => return,
        };
        if let Some(udp) = self.udp_mut().filter(|udp| udp.destination == 0) {
            udp.destination = port;
        }
    }

    /// Returns the UDP header, if the tunnel has one.
    pub(super) fn udp_mut(&mut self) -> Option<&mut Udp> {
        match &mut self.endpoint.carrier {
            Carrier::Ip => None,
            Carrier::Udp(udp) | Carrier::Gue(udp) | Carrier::DirectGue(udp) => Some(udp),
        }
    }

    /// Returns the addresses of all remote endpoints; the main endpoint comes first.
    pub fn remotes(&self) -> impl Iterator<Item = IpAddr> {
        let more = self.forwarding.iter().flat_map(|forwarding| &forwarding.remotes);
        core::iter::once(self.endpoint.remote).chain(more.map(|remote| remote.address))
    }

    /// Returns whether both tunnels are carried directly in IP, and some packets would reach both tunnels.
    pub fn takes_same(&self, other: &Self) -> bool {
        let is_bare = |end: &Self| matches!(end.endpoint.carrier, Carrier::Ip);
        let (one, two) = (&self.endpoint, &other.endpoint);
        let is_same = match (&one.header, &two.header) {
            (
                Header::Gre { key, ethernet, .. },
                Header::Gre { key: other, ethernet: frames, .. },
            ) => (key, ethernet) == (other, frames),
            (Header::Ip, Header::Ip) => {
                one.version.is_none() || two.version.is_none() || one.version == two.version
            }
            _ => false,
        };
        let meets = |remote| other.remotes().any(|other| other == remote);
        is_same
            && is_bare(self)
            && is_bare(other)
            && one.local == two.local
            && self.remotes().any(meets)
    }

    /// Returns whether both tunnels receive on the same UDP port at the same address, which only one socket can use.
    pub fn shares_port(&self, other: &Self) -> bool {
        let port = |end: &Endpoint| end.udp().map(|udp| (end.local, udp.destination));
        let own = port(&self.endpoint);
        own.is_some() && own == port(&other.endpoint)
    }

    /// Returns whether one tunnel always sends from a UDP port that the other receives on or always sends from.
    pub fn sends_from_port_of(&self, other: &Self) -> bool {
        let ports = |end: &Self| {
            let udp = end.endpoint.udp();
            let only = |udp: &Udp| (udp.source.len() == 1).then_some(*udp.source.start());
            [udp.and_then(only), udp.map(|udp| udp.destination)]
        };
        let ([from, at], [other_from, other_at]) = (ports(self), ports(other));
        let is_one = |port: Option<u16>, other: Option<u16>| port.is_some() && port == other;
        self.endpoint.local == other.endpoint.local
            && (is_one(from, other_from) || is_one(from, other_at) || is_one(at, other_from))
    }

    /// Returns the number of sockets that each queue can send from if there are `queues` queues and every socket has
    /// its own source port. Returns 0 if there are too few ports, and `None` for a tunnel without UDP or with one
    /// socket for both directions.
    pub fn senders(&self, queues: usize) -> Option<usize> {
        let Udp { source, destination, .. } = self.endpoint.udp()?;
        // A tunnel that sends and receives on the same port has one socket for both.
        let is_shared = *source == (*destination..=*destination);
        // A socket's share of the ports must contain one for each queue, even the share that includes the receive port.
        let needed = queues + usize::from(source.contains(destination));
        (!is_shared).then(|| source.len() / needed)
    }

    /// Returns the mode keyword for packets in a tunnel without a header of its own.
    pub(super) fn mode(&self) -> &'static str {
        let modes = self.kind.modes();
        let mode = modes.iter().find(|(_, version)| *version == self.endpoint.version);
        mode.map_or("any", |(mode, _)| mode)
    }

    /// Returns the name of this endpoint in counters and messages: `ipip:192.0.2.2`, `vxlan:42:192.0.2.2`.
    pub fn name(&self) -> String {
        let kind = self.kind.name();
        let remote = self.endpoint.remote;
        match &self.endpoint.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                format!("{kind}:{identifier}:{remote}")
            }
            Header::Gre { key: Some(key), .. } => format!("{kind}:{key}:{remote}"),
            Header::Ip | Header::Gre { .. } => format!("{kind}:{remote}"),
        }
    }

    /// Returns a short description of the tunnel, for example `ipip over gue, remcsum`.
    pub fn summary(&self) -> String {
        let carrier = match &self.endpoint.carrier {
            Carrier::Udp(_) if !self.kind.has_port() => " over fou",
            Carrier::Gue(_) => " over gue",
            Carrier::DirectGue(_) => " over gue variant 1",
            Carrier::Ip | Carrier::Udp(_) => "",
        };
        let offload = self.endpoint.udp().is_some_and(|udp| udp.remote_checksum.transmit);
        let remote = if offload { ", remcsum" } else { "" };
        let identifier = match &self.endpoint.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                format!(" {identifier}")
            }
            Header::Gre { key: Some(key), .. } => format!(" key {key}"),
            Header::Ip | Header::Gre { .. } => String::new(),
        };
        format!("{}{identifier}{carrier}{remote}", self.kind.name())
    }
}

/// Returns the UDP header without keywords: [`Description::set_default_port`] chooses the port if no keyword does.
pub(super) fn default_udp() -> Udp {
    Udp {
        source: SOURCE_PORTS,
        destination: 0,
        checksum: true,
        ipv6_without_checksum: false,
        remote_checksum: RemoteChecksumUse::default(),
    }
}

/// Default TTL or hop limit: Linux's default for tunnels over IPv6 and for unicast.
pub(super) const TTL: u8 = 64;
/// Default encapsulation limit (rule W61).
pub(super) const ENCAPSULATION_LIMIT: u8 = 4;
/// Source ports of packets: the dynamic ports (RFC 6335 section 6). Linux uses 32768 to 60999 by default.
pub(super) const SOURCE_PORTS: RangeInclusive<u16> = 49152..=65535;
