//! Header stacks: combinations of every link, tunnel, network and transport header that this crate can build.

use crate::Packet;
use crate::headers::{Ipv4, Tcp};
use crate::oracle::Link;
use crate::random::Random;

/// Headers before the outermost IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// No headers: the frame starts with IP.
    Bare,
    /// Ethernet.
    Ethernet,
    /// Ethernet and an 802.1Q tag.
    Vlan,
    /// Ethernet, an 802.1ad tag and an 802.1Q tag.
    DoubleVlan,
    /// Ethernet and a PPPoE session header.
    Pppoe,
    /// Ethernet and two MPLS labels.
    Mpls,
    /// Ethernet and NSH.
    Nsh,
}

/// An IP version, with its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4 without options.
    Ipv4,
    /// IPv6 without extension headers.
    Ipv6,
    /// IPv6 with destination options.
    Ipv6Options,
    /// IPv6 with a hop-by-hop header, and a routing header without addresses.
    Ipv6Routing,
    /// IPv6 with one of the [`ROUTES`] as its routing header.
    Ipv6Routed(Route),
    /// IPv6 between two mobile nodes away from home: with a type 2 routing header and a home address option.
    Ipv6Mobile,
}

/// A routing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The type: 0, 2 or 4.
    pub kind: u8,
    /// Number of segments left; the last segment is the final destination.
    pub left: u8,
}

/// A tunnel header after an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// IP in IP.
    Ip,
    /// GRE.
    Gre,
    /// GRE with a key.
    GreKey,
    /// GRE with a checksum and a key.
    GreChecksum,
    /// GRE with a sequence number.
    GreSequence,
    /// GRE that carries Ethernet.
    GreEthernet,
    /// VXLAN without an outer checksum.
    Vxlan,
    /// VXLAN with an outer checksum and a group policy.
    VxlanPolicy,
    /// VXLAN with an outer checksum and a VLAN tag inside.
    VxlanVlan,
    /// VXLAN with remote checksum offload.
    VxlanRemote,
    /// VXLAN-GPE that carries IP.
    VxlanGpe,
    /// VXLAN-GPE that carries NSH, which carries Ethernet.
    VxlanGpeNsh,
    /// Geneve with an option.
    Geneve,
    /// GUE without an outer checksum.
    Gue,
    /// GUE with remote checksum offload.
    GueRemote,
    /// GUE version 1.
    GueDirect,
    /// FOU with an outer checksum.
    Fou,
    /// L2TPv3 that carries Ethernet, in the oracle's default format.
    L2tp,
}

/// The innermost header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP without options.
    Tcp,
    /// TCP with timestamps.
    TcpTimestamps,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6.
    Icmp,
    /// SCTP.
    Sctp,
    /// ESP.
    Esp,
}

/// A stack of headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Headers before the outermost IP header.
    pub front: Front,
    /// The tunnels, each with the IP header before it; outermost first.
    pub tunnels: Vec<(Network, Tunnel)>,
    /// The IP header before the transport header.
    pub network: Network,
    /// The innermost header.
    pub transport: Transport,
}

/// Values that distinguish the packets of a flow and the flows of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the flow, which determines the inner source port and address.
    pub flow: u16,
    /// The TCP sequence number.
    pub sequence: u32,
    /// The TCP acknowledgment number.
    pub ack: u32,
    /// The value of the timestamp option.
    pub timestamp: u32,
    /// The IPv4 identification at each level, outermost first; 0 at levels that are not listed.
    pub ids: Vec<u16>,
}

impl Stack {
    /// Creates a stack without tunnels.
    pub fn plain(front: Front, network: Network, transport: Transport) -> Self {
        Self { front, tunnels: Vec::new(), network, transport }
    }

    /// Creates a random stack with at most two tunnels and at most [`HEADERS_MAX`] headers; most stacks contain TCP.
    pub fn random(random: &mut Random, link: Link) -> Self {
        loop {
            let fronts = if link == Link::Ip { &FRONTS[..1] } else { &FRONTS[1..] };
            let count = *random.choose(&[0, 0, 0, 1, 1, 2]);
            let tunnels =
                (0..count).map(|_| (any_network(random), *random.choose(TUNNELS))).collect();
            let stack = Self {
                front: *random.choose(fronts),
                tunnels,
                network: any_network(random),
                transport: if random.percent(60) {
                    Transport::TcpTimestamps
                } else {
                    *random.choose(TRANSPORTS)
                },
            };
            if stack.packet(&Place::default()).headers.len() <= HEADERS_MAX {
                return stack;
            }
        }
    }

    /// Returns every stack with at most one tunnel over Ethernet. Stacks without a tunnel include every front and every
    /// transport.
    pub fn all() -> Vec<Self> {
        let mut stacks = Vec::new();
        for &network in NETWORKS {
            for &front in FRONTS {
                stacks.push(Self::plain(front, network, Transport::TcpTimestamps));
            }
            for &transport in TRANSPORTS {
                stacks.push(Self::plain(Front::Ethernet, network, transport));
            }
            for &tunnel in TUNNELS {
                for transport in [Transport::Tcp, Transport::Udp] {
                    for inner in [Network::Ipv4, Network::Ipv6] {
                        let mut stack = Self::plain(Front::Ethernet, inner, transport);
                        stack.tunnels.push((network, tunnel));
                        stacks.push(stack);
                    }
                }
            }
        }
        stacks
    }

    /// Returns the link layer of the stack's frames.
    pub fn link(&self) -> Link {
        if self.front == Front::Bare { Link::Ip } else { Link::Ethernet }
    }

    /// Returns whether the stack's packets can form trains: they contain TCP or UDP, and no header that prevents
    /// merging (rules T21, C54).
    pub fn couples(&self) -> bool {
        let tunnels = || self.tunnels.iter().map(|(_, tunnel)| *tunnel);
        let remote = |tunnel| matches!(tunnel, Tunnel::VxlanRemote | Tunnel::GueRemote);
        matches!(self.transport, Transport::Tcp | Transport::TcpTimestamps | Transport::Udp)
            && tunnels().all(|tunnel| tunnel != Tunnel::GreSequence)
            && tunnels().filter(|tunnel| remote(*tunnel)).count() <= 1
    }

    /// Returns a packet of a flow, without payload; `place` selects the flow and the position in it.
    pub fn packet(&self, place: &Place) -> Packet {
        let mut packet = front(Packet::new(), self.front);
        for (level, (outer, tunnel)) in self.tunnels.iter().enumerate() {
            packet = network(packet, *outer, place, level);
            packet = through(packet, *tunnel, place);
        }
        packet = network(packet, self.network, place, self.tunnels.len());
        transport(packet, self.transport, place)
    }
}

impl Default for Place {
    fn default() -> Self {
        Self { flow: 0, sequence: 100, ack: 100, timestamp: 1, ids: Vec::new() }
    }
}

/// Maximum number of headers in a random stack. Two more still fit into a dissection, which holds 16.
pub const HEADERS_MAX: usize = 14;

/// Every front.
pub const FRONTS: &[Front] = &[
    Front::Bare,
    Front::Ethernet,
    Front::Vlan,
    Front::DoubleVlan,
    Front::Pppoe,
    Front::Mpls,
    Front::Nsh,
];

/// Every network, with one route of each shape.
pub const NETWORKS: &[Network] = &[
    Network::Ipv4,
    Network::Ipv6,
    Network::Ipv6Options,
    Network::Ipv6Routing,
    Network::Ipv6Routed(Route { kind: 0, left: 2 }),
    Network::Ipv6Routed(Route { kind: 4, left: 1 }),
    Network::Ipv6Mobile,
];

/// Every routing header with addresses.
pub const ROUTES: &[Route] = &[
    Route { kind: 0, left: 0 },
    Route { kind: 0, left: 1 },
    Route { kind: 0, left: 2 },
    Route { kind: 2, left: 0 },
    Route { kind: 2, left: 1 },
    Route { kind: 4, left: 0 },
    Route { kind: 4, left: 1 },
    Route { kind: 4, left: 2 },
];

/// Every tunnel.
pub const TUNNELS: &[Tunnel] = &[
    Tunnel::Ip,
    Tunnel::Gre,
    Tunnel::GreKey,
    Tunnel::GreChecksum,
    Tunnel::GreSequence,
    Tunnel::GreEthernet,
    Tunnel::Vxlan,
    Tunnel::VxlanPolicy,
    Tunnel::VxlanVlan,
    Tunnel::VxlanRemote,
    Tunnel::VxlanGpe,
    Tunnel::VxlanGpeNsh,
    Tunnel::Geneve,
    Tunnel::Gue,
    Tunnel::GueRemote,
    Tunnel::GueDirect,
    Tunnel::Fou,
    Tunnel::L2tp,
];

/// Every transport.
pub const TRANSPORTS: &[Transport] = &[
    Transport::Tcp,
    Transport::TcpTimestamps,
    Transport::Udp,
    Transport::Icmp,
    Transport::Sctp,
    Transport::Esp,
];

/// Returns a random network, IPv4 half of the time: only IPv4 has an identification, which may increment or stay fixed.
fn any_network(random: &mut Random) -> Network {
    if random.percent(40) {
        return Network::Ipv4;
    }
    match *random.choose(NETWORKS) {
        Network::Ipv6Routed(_) => Network::Ipv6Routed(*random.choose(ROUTES)),
        network => network,
    }
}

fn front(packet: Packet, front: Front) -> Packet {
    match front {
        Front::Bare => packet,
        Front::Ethernet => packet.ethernet(|e| e),
        Front::Vlan => packet.ethernet(|e| e).vlan(|v| v.id(7)),
        Front::DoubleVlan => packet.ethernet(|e| e).vlan(|v| v.id(100).service()).vlan(|v| v.id(7)),
        Front::Pppoe => packet.ethernet(|e| e).pppoe(|p| p),
        Front::Mpls => packet.ethernet(|e| e).mpls(|m| m.label(100)).mpls(|m| m.label(200)),
        Front::Nsh => packet.ethernet(|e| e).nsh(|n| n.path(7)),
    }
}

fn network(packet: Packet, network: Network, place: &Place, level: usize) -> Packet {
    let id = place.ids.get(level).copied().unwrap_or_default();
    // Flows differ in an address and in a port, so that tests show that both distinguish flows.
    let host = (place.flow & 3) as u8;
    let ipv6 = |packet: Packet| {
        packet.ipv6(|mut ip| {
            ip.source[14] = host;
            ip
        })
    };
    match network {
        Network::Ipv4 => packet.ipv4(|ip: Ipv4| {
            let mut source = ip.source;
            source[2] = source[2].wrapping_add(host);
            ip.source(source).id(id)
        }),
        Network::Ipv6 => ipv6(packet),
        Network::Ipv6Options => ipv6(packet).destination_options(|d| d),
        Network::Ipv6Routing => ipv6(packet).hop_by_hop(|h| h).routing(|r| r),
        Network::Ipv6Routed(Route { kind, left }) => {
            let stops: Vec<[u8; 16]> =
                (1..=left.max(1)).map(|stop| elsewhere(stop, host)).collect();
            ipv6(packet).routing(|r| r.route(kind, left, &stops))
        }
        Network::Ipv6Mobile => ipv6(packet)
            .routing(|r| r.route(2, 1, &[elsewhere(1, host)]))
            .destination_options(|d| d.home_address(elsewhere(2, host))),
    }
}

/// Returns an address for a routing header or a home address option. The fixed IPv6 header never contains this address.
fn elsewhere(number: u8, host: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfd, 0xbb]);
    (address[14], address[15]) = (host, number);
    address
}

fn through(packet: Packet, tunnel: Tunnel, place: &Place) -> Packet {
    match tunnel {
        Tunnel::Ip => packet,
        Tunnel::Gre => packet.gre(|g| g),
        Tunnel::GreKey => packet.gre(|g| g.key(7)),
        Tunnel::GreChecksum => packet.gre(|g| g.checksum().key(9)),
        Tunnel::GreSequence => packet.gre(|g| g.sequence(place.sequence)),
        Tunnel::GreEthernet => packet.gre(|g| g).ethernet(|e| e),
        Tunnel::Vxlan => packet.udp(|u| u.checksum_zero()).vxlan(|v| v.vni(42)).ethernet(|e| e),
        Tunnel::VxlanPolicy => packet.udp(|u| u).vxlan(|v| v.gbp(5)).ethernet(|e| e),
        Tunnel::VxlanVlan => packet.udp(|u| u).vxlan(|v| v).ethernet(|e| e).vlan(|v| v.id(9)),
        Tunnel::VxlanRemote => packet.udp(|u| u).vxlan(|v| v.remote_checksum()).ethernet(|e| e),
        Tunnel::VxlanGpe => packet.udp(|u| u).vxlan(|v| v.gpe()),
        Tunnel::VxlanGpeNsh => {
            packet.udp(|u| u).vxlan(|v| v.gpe()).nsh(|n| n.context(&[1, 2, 3, 4])).ethernet(|e| e)
        }
        Tunnel::Geneve => {
            packet.udp(|u| u).geneve(|g| g.option(0x0102, 3, &[1, 2, 3, 4])).ethernet(|e| e)
        }
        Tunnel::Gue => packet.udp(|u| u.checksum_zero()).gue(|g| g),
        Tunnel::GueRemote => packet.udp(|u| u).gue(|g| g.remote_checksum()),
        Tunnel::GueDirect => packet.gue_direct(|u| u),
        Tunnel::Fou => packet.fou(|u| u),
        Tunnel::L2tp => packet.l2tp(|l| l).ethernet(|e| e),
    }
}

fn transport(packet: Packet, transport: Transport, place: &Place) -> Packet {
    let port = 1500 + place.flow;
    let tcp = |t: Tcp| t.source_port(port).sequence(place.sequence).ack(place.ack);
    match transport {
        Transport::Tcp => packet.tcp(tcp),
        Transport::TcpTimestamps => packet.tcp(|t| tcp(t).timestamps(place.timestamp, 1)),
        Transport::Udp => packet.udp(|u| u.source_port(port)),
        Transport::Icmp => packet.icmp(|i| i.rest(place.sequence.to_be_bytes())),
        Transport::Sctp => packet.sctp(|s| s.source_port(port)),
        Transport::Esp => packet.esp(|e| e.spi(u32::from(port)).sequence(place.sequence)),
    }
}
