//! Flow names. A name has one part for each header.

use std::fmt;

use super::parse::{Layer, Lengths, Link, Parsed, Stop, parse};

/// The flow to which a packet belongs: the addresses, protocol and ports at every level down to the innermost transport
/// header, and the identifiers between these levels (VLAN, PPPoE session, MPLS label, GRE key, VNI, service path and
/// index, L2TP session).
///
/// MAC addresses, VLAN priority and the IPv6 flow label are not part of the flow key: they may change within a flow,
/// but its packets must still stay in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(String);

impl fmt::Display for Flow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns the flow of `frame`; `None` if it is a fragment, is not IP, or cannot be parsed down to its transport
/// header.
pub fn flow_of(frame: &[u8], link: Link) -> Option<Flow> {
    flow_of_parsed(&parse(frame, link, Lengths::Declared))
}

/// Returns the flow of a parsed frame.
pub fn flow_of_parsed(parsed: &Parsed) -> Option<Flow> {
    if matches!(parsed.stop, Stop::Broken | Stop::Fragment) {
        return None;
    }
    let innermost = parsed.layers.iter().rposition(Layer::is_ip)?;
    let mut parts: Vec<String> = parsed.layers.iter().filter_map(part).collect();
    // The contents of the innermost IP header, parsed or not.
    let behind = &parsed.layers[innermost + 1..];
    if behind.iter().all(|layer| !matches!(layer.name, "tcp" | "udp")) {
        let last = parsed.layers[innermost..].iter().rev().find_map(|layer| {
            let field = if layer.name == "ipv4" { "protocol" } else { "next_header" };
            layer.fields.contains_key(field).then(|| layer.number(field))
        });
        parts.push(format!("protocol {}", last.unwrap_or_default()));
    }
    Some(Flow(parts.join(", ")))
}

/// Returns the part of a flow's name that one header contributes.
fn part(layer: &Layer) -> Option<String> {
    Some(match layer.name {
        "vlan" => format!("vlan {}", layer.number("tag") & 0x0fff),
        "pppoe" => format!("pppoe {:#x}", layer.number("session")),
        "mpls" => format!("mpls {}", layer.number("entry") >> 12),
        "ipv4" => {
            format!("{} > {}", dotted(layer.bytes("source")), dotted(layer.bytes("destination")))
        }
        "ipv6" => {
            format!("{} > {}", colons(layer.bytes("source")), colons(layer.bytes("destination")))
        }
        "tcp" | "udp" => {
            let ports = (layer.number("source_port"), layer.number("destination_port"));
            format!("{} {} > {}", layer.name, ports.0, ports.1)
        }
        "vxlan" | "vxlan-gpe" | "geneve" => format!("vni {}", layer.number("vni")),
        "nsh" => format!("nsh {} {}", layer.number("path"), layer.number("index")),
        "l2tp" => format!("l2tp {:#x}", layer.number("session")),
        "gre" if layer.fields.contains_key("key") => format!("gre key {:#x}", layer.number("key")),
        "esp" => format!("esp {:#x}", layer.number("spi")),
        _ => return None,
    })
}

fn dotted(address: &[u8]) -> String {
    address.iter().map(u8::to_string).collect::<Vec<_>>().join(".")
}

fn colons(address: &[u8]) -> String {
    address
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect::<Vec<_>>()
        .join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;

    #[test]
    fn a_flow_names_every_level() {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v.vni(42));
        let packet = packet.ethernet(|e| e).ipv6(|ip| ip).hop_by_hop(|h| h).tcp(|t| t);
        let flow = flow_of(&packet.build(), Link::Ethernet).expect("a readable flow");
        let inner =
            "fdaa:0001:0000:0000:0000:0000:0000:0002 > fdaa:0001:0000:0000:0000:0000:0000:0001";
        let outer = "192.168.1.200 > 192.168.1.100, udp 1500 > 4789, vni 42";
        assert_eq!(flow.to_string(), format!("{outer}, {inner}, tcp 1500 > 8000"));
    }

    #[test]
    fn a_flow_survives_what_may_change_under_way() {
        let flow = |label, mac, priority| {
            let packet = Packet::new().ethernet(|e| e.source([mac; 6]));
            let packet = packet.vlan(|v| v.id(7).priority(priority));
            let packet = packet.ipv6(|ip| ip.flow_label(label)).tcp(|t| t);
            flow_of(&packet.build(), Link::Ethernet).expect("a readable flow")
        };
        assert_eq!(flow(1, 2, 3), flow(4, 5, 6));
    }

    #[test]
    fn fragments_and_garbage_have_no_flow() {
        let first = Packet::new().ethernet(|e| e).ipv4(|ip| ip.more_fragments(true)).tcp(|t| t);
        assert_eq!(flow_of(&first.build(), Link::Ethernet), None);
        let cut = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(10).build();
        assert_eq!(flow_of(&cut[..40], Link::Ethernet), None);
        assert_eq!(flow_of(&[0xff; 60], Link::Ethernet), None);
        assert_eq!(flow_of(&[], Link::Ethernet), None);
    }
}
