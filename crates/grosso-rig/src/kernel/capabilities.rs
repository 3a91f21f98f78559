//! Probes which headers the running kernel's GRO can parse to merge the packets inside.

use grosso_testkit::Packet;

use super::gro::{GroOptions, GroOracle};

/// Port on which the oracle's VXLAN device listens.
const VXLAN_PORT: u16 = 4789;
/// Number of payload bytes in each of the two segments that are sent.
const PAYLOAD_BYTES: usize = 100;

/// Result of sending two TCP segments after some other headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The headers, outermost first.
    pub headers: &'static str,
    /// Whether the kernel merged the two segments.
    pub merges: bool,
}

/// Tries each kind of header once on the running kernel.
///
/// # Errors
///
/// Fails with a message that contains the system's error. If the kernel has no VXLAN devices, VXLAN is reported as not
/// merged.
pub fn capabilities() -> Result<Vec<Capability>, String> {
    let vxlan = GroOptions { vxlan_port: Some(VXLAN_PORT), ..GroOptions::default() };
    let mut oracle = GroOracle::with(&vxlan).or_else(|_| GroOracle::new())?;
    HEADERS
        .iter()
        .map(|&(headers, before_tcp)| {
            let segment = |index: u32| {
                before_tcp(index)
                    .tcp(|tcp| tcp.sequence(100 + index * PAYLOAD_BYTES as u32))
                    .payload_len(PAYLOAD_BYTES)
                    .build()
            };
            let delivered = oracle.coalesce(&[segment(0), segment(1)]);
            let delivered = delivered.map_err(|error| format!("{headers}: {error}"))?;
            Ok(Capability { headers, merges: delivered.len() == 1 })
        })
        .collect()
}

/// Function that builds the headers before TCP for a segment with this index.
type BeforeTcp = fn(u32) -> Packet;

fn ipv4(packet: Packet, index: u32) -> Packet {
    packet.ipv4(|ip| ip.id(8 + index as u16))
}

fn ipv6(packet: Packet) -> Packet {
    packet.ipv6(|ip| ip)
}

fn link() -> Packet {
    Packet::new().ethernet(|ethernet| ethernet)
}

const HEADERS: &[(&str, BeforeTcp)] = &[
    ("ipv4", |index| ipv4(link(), index)),
    ("ipv6", |_| ipv6(link())),
    ("ipv6 hop-by-hop", |_| ipv6(link()).hop_by_hop(|options| options)),
    ("vlan ipv4", |index| ipv4(link().vlan(|tag| tag), index)),
    ("vlan vlan ipv4", |index| ipv4(link().vlan(|tag| tag.service()).vlan(|tag| tag), index)),
    ("mpls ipv4", |index| ipv4(link().mpls(|label| label), index)),
    ("pppoe ipv4", |index| ipv4(link().pppoe(|session| session), index)),
    ("ipv4 ipv4", |index| ipv4(ipv4(link(), index), index)),
    ("ipv4 ipv6", |index| ipv6(ipv4(link(), index))),
    ("ipv6 ipv4", |index| ipv4(ipv6(link()), index)),
    ("ipv6 ipv6", |_| ipv6(ipv6(link()))),
    ("ipv4 gre ipv4", |index| ipv4(ipv4(link(), index).gre(|gre| gre), index)),
    ("ipv4 gre key ipv4", |index| ipv4(ipv4(link(), index).gre(|gre| gre.key(7)), index)),
    ("ipv4 gre checksum ipv4", |index| ipv4(ipv4(link(), index).gre(|gre| gre.checksum()), index)),
    ("ipv4 gre ethernet ipv4", |index| {
        ipv4(ipv4(link(), index).gre(|gre| gre).ethernet(|inner| inner), index)
    }),
    ("ipv4 vxlan ethernet ipv4", |index| {
        let outer = ipv4(link(), index).udp(|udp| udp.destination_port(VXLAN_PORT));
        ipv4(outer.vxlan(|vxlan| vxlan).ethernet(|inner| inner), index)
    }),
];
