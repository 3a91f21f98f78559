//! How each field of each header varies along a train.
//!
//! One table a header, outermost field first; every byte of the fixed part belongs to exactly one
//! field. What follows the fixed part (options, tags, extension contents) is equal along a train,
//! byte for byte.

use core::ops::Range;

use grosso_wire::{Kind, ethernet, gre, ipv4, ipv6, mpls, pppoe, tcp, udp, vlan, vxlan};

use crate::coalesce::reason::NoMerge;

/// One field of a header and its law.
#[derive(Clone, Debug)]
pub struct Field {
    /// Where it lies, in bytes from the start of its header.
    pub bytes: Range<usize>,
    /// How it varies.
    pub law: Law,
}

/// How a field varies along a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Equal, and a different value is a different flow.
    Key(NoMerge),
    /// Equal; a different value ends the train.
    Equal(NoMerge),
    /// The bytes from `skip` bytes after the header's start to the end of the packet. A length that
    /// does not fit is written as zero (rules G50, G63), which only IP allows.
    Length {
        /// Bytes at the start of the header that the length does not count.
        skip: usize,
    },
    /// Steps by one a packet, or stays fixed: one mode an IP level (rule G14, RFC 6864).
    Identification,
    /// Advances by the payload so far (rule S10).
    Sequence,
    /// TCP flags: FIN and PSH are on the last packet only, CWR on the first or on all; the rest is
    /// equal (rules G35, S11).
    Flags(NoMerge),
    /// The one's-complement sum of what [`Cover`] says.
    Checksum(Cover),
}

/// What a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The header itself (IPv4).
    Header,
    /// The header and everything after it (GRE).
    Packet,
    /// A pseudo-header of the enclosing IP header, this header and everything after it (TCP).
    Transport,
    /// As [`Cover::Transport`], but zero says that there is none, and stays zero (UDP, RFC 768).
    Datagram,
}

/// The laws of a header's fixed part, which for GRE depend on its flags. A header that has no table
/// is equal along a train in all its bytes.
#[must_use]
pub const fn of(kind: Kind, header: &[u8]) -> &'static [Field] {
    match kind {
        Kind::Ethernet => ETHERNET,
        Kind::Vlan => VLAN,
        Kind::Pppoe => PPPOE,
        Kind::Mpls => MPLS,
        Kind::Ipv4 => IPV4,
        Kind::Ipv6 => IPV6,
        Kind::Tcp => TCP,
        Kind::Udp => UDP,
        Kind::Vxlan | Kind::VxlanGpe | Kind::Geneve => VNI,
        Kind::Gre if has_checksum(header) => GRE_WITH_CHECKSUM,
        Kind::Gre => GRE,
        _ => &[],
    }
}

/// What a difference in the bytes behind the fixed part is called.
#[must_use]
pub const fn tail_refusal(kind: Kind) -> NoMerge {
    match kind {
        Kind::Tcp => NoMerge::TcpOptions,
        Kind::Ipv6Extension => NoMerge::Ipv6Extension,
        Kind::Geneve | Kind::Gue | Kind::Gre | Kind::Vxlan | Kind::VxlanGpe => {
            NoMerge::TunnelHeader
        }
        _ => NoMerge::LinkHeader,
    }
}

/// Ethernet II. The addresses are no part of the flow: a path that changes its router keeps its
/// order.
pub const ETHERNET: &[Field] = &[
    Field { bytes: ethernet::field::DESTINATION, law: Law::Equal(NoMerge::LinkHeader) },
    Field { bytes: ethernet::field::SOURCE, law: Law::Equal(NoMerge::LinkHeader) },
    Field { bytes: ethernet::field::ETHERTYPE, law: Law::Equal(NoMerge::LinkHeader) },
];

/// 802.1Q and 802.1ad. The 12 bits of the identifier are part of the flow, the priority is not.
pub const VLAN: &[Field] = &[
    Field { bytes: vlan::field::TCI, law: Law::Key(NoMerge::LinkHeader) },
    Field { bytes: vlan::field::ETHERTYPE, law: Law::Equal(NoMerge::LinkHeader) },
];

/// PPPoE session (RFC 2516, rule G5a). The length counts from the PPP protocol on.
pub const PPPOE: &[Field] = &[
    Field { bytes: pppoe::field::VERSION_TYPE, law: Law::Equal(NoMerge::LinkHeader) },
    Field { bytes: pppoe::field::CODE, law: Law::Equal(NoMerge::LinkHeader) },
    Field { bytes: pppoe::field::SESSION, law: Law::Key(NoMerge::LinkHeader) },
    Field { bytes: pppoe::field::LENGTH, law: Law::Length { skip: 6 } },
    Field { bytes: pppoe::field::PROTOCOL, law: Law::Equal(NoMerge::LinkHeader) },
];

/// MPLS (RFC 3032). The 20 bits of the label are part of the flow.
pub const MPLS: &[Field] =
    &[Field { bytes: mpls::field::ENTRY, law: Law::Key(NoMerge::LinkHeader) }];

/// IPv4 without options (RFC 791, rules G12 to G15).
pub const IPV4: &[Field] = &[
    Field { bytes: ipv4::field::VERSION_IHL, law: Law::Equal(NoMerge::HeaderStack) },
    Field { bytes: ipv4::field::TOS, law: Law::Equal(NoMerge::TypeOfService) },
    Field { bytes: ipv4::field::TOTAL_LENGTH, law: Law::Length { skip: 0 } },
    Field { bytes: ipv4::field::IDENTIFICATION, law: Law::Identification },
    Field { bytes: ipv4::field::FRAGMENT, law: Law::Equal(NoMerge::DontFragment) },
    Field { bytes: ipv4::field::TTL, law: Law::Equal(NoMerge::TimeToLive) },
    Field { bytes: ipv4::field::PROTOCOL, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: ipv4::field::CHECKSUM, law: Law::Checksum(Cover::Header) },
    Field { bytes: ipv4::field::SOURCE, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: ipv4::field::DESTINATION, law: Law::Key(NoMerge::OtherFlow) },
];

/// IPv6 (RFC 8200, rules G20 to G23). The flow label is no part of the flow: a sender may change it
/// in the middle of a connection (RFC 6438), and the order of that connection must survive it.
pub const IPV6: &[Field] = &[
    Field { bytes: ipv6::field::WORD, law: Law::Equal(NoMerge::TrafficClassOrFlowLabel) },
    Field { bytes: ipv6::field::PAYLOAD_LENGTH, law: Law::Length { skip: ipv6::HEADER_LEN } },
    Field { bytes: ipv6::field::NEXT_HEADER, law: Law::Equal(NoMerge::OtherFlow) },
    Field { bytes: ipv6::field::HOP_LIMIT, law: Law::Equal(NoMerge::TimeToLive) },
    Field { bytes: ipv6::field::SOURCE, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: ipv6::field::DESTINATION, law: Law::Key(NoMerge::OtherFlow) },
];

/// TCP (RFC 9293, rules G31 to G35). The urgent pointer is compared even when URG is clear, where
/// Linux does not (rule G33): cutting could not give it back.
pub const TCP: &[Field] = &[
    Field { bytes: tcp::field::SOURCE_PORT, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: tcp::field::DESTINATION_PORT, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: tcp::field::SEQUENCE, law: Law::Sequence },
    Field { bytes: tcp::field::ACKNOWLEDGMENT, law: Law::Equal(NoMerge::TcpAcknowledgment) },
    Field { bytes: tcp::field::OFFSET_FLAGS, law: Law::Flags(NoMerge::TcpFlags) },
    Field { bytes: tcp::field::WINDOW, law: Law::Equal(NoMerge::TcpWindow) },
    Field { bytes: tcp::field::CHECKSUM, law: Law::Checksum(Cover::Transport) },
    Field { bytes: tcp::field::URGENT, law: Law::Equal(NoMerge::TcpUrgentPointer) },
];

/// UDP (RFC 768), as the transport of a train or around a tunnel (rules U11, T2, T3).
pub const UDP: &[Field] = &[
    Field { bytes: udp::field::SOURCE_PORT, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: udp::field::DESTINATION_PORT, law: Law::Key(NoMerge::OtherFlow) },
    Field { bytes: udp::field::LENGTH, law: Law::Length { skip: 0 } },
    Field { bytes: udp::field::CHECKSUM, law: Law::Checksum(Cover::Datagram) },
];

/// VXLAN and Geneve: the network identifier at bytes 4 to 6 is part of the flow (rules T5, T6).
pub const VNI: &[Field] = &[
    Field { bytes: vxlan::field::FLAGS, law: Law::Equal(NoMerge::TunnelHeader) },
    Field { bytes: vxlan::field::VNI, law: Law::Key(NoMerge::OtherFlow) },
    Field {
        bytes: vxlan::field::VNI.end..vxlan::HEADER_LEN,
        law: Law::Equal(NoMerge::TunnelHeader),
    },
];

/// GRE without a checksum (RFC 2784, RFC 2890, rule T21). The key behind it, when there is one, is
/// part of the flow.
pub const GRE: &[Field] = &[
    Field { bytes: gre::field::FLAGS, law: Law::Equal(NoMerge::TunnelHeader) },
    Field { bytes: gre::field::PROTOCOL, law: Law::Equal(NoMerge::TunnelHeader) },
];

/// GRE with a checksum.
pub const GRE_WITH_CHECKSUM: &[Field] = &[
    Field { bytes: gre::field::FLAGS, law: Law::Equal(NoMerge::TunnelHeader) },
    Field { bytes: gre::field::PROTOCOL, law: Law::Equal(NoMerge::TunnelHeader) },
    Field { bytes: gre::field::CHECKSUM, law: Law::Checksum(Cover::Packet) },
];

const fn has_checksum(gre_header: &[u8]) -> bool {
    !gre_header.is_empty() && gre_header[0] & (gre::FLAG_CHECKSUM >> 8) as u8 != 0
}

#[cfg(test)]
mod tests {
    use grosso_testkit::stack::{Place, Stack};
    use grosso_wire::{HeaderSpec, Kind, LinkType, Ports, dissect};
    use std::{format, string::String, vec::Vec};

    use super::{Law, of, tail_refusal};
    use crate::coalesce::reason::NoMerge;

    /// The law of each byte of a header by the tables here.
    fn here(kind: Kind, header: &[u8]) -> Vec<String> {
        let mut bytes = Vec::new();
        for field in of(kind, header) {
            let law = match field.law {
                Law::Key(reason) if kind == Kind::Ipv4 && field.bytes.start == 9 => {
                    format!("Equal {reason}")
                }
                Law::Key(reason) => format!("Key {reason}"),
                Law::Equal(reason) => format!("Equal {reason}"),
                Law::Flags(reason) => format!("Flags {reason}"),
                Law::Length { skip } => format!("Length {skip}"),
                Law::Identification => "Identification".into(),
                Law::Sequence => "Sequence".into(),
                Law::Checksum(cover) => format!("{cover:?}"),
            };
            assert_eq!(bytes.len(), field.bytes.start);
            bytes.resize(field.bytes.end, law);
        }
        let tail = if kind == Kind::Gre { NoMerge::TunnelHeader } else { tail_refusal(kind) };
        bytes.resize(header.len(), format!("Equal {}", tail));
        bytes
    }

    /// The same by the header's specification.
    fn there(spec: &HeaderSpec, header: &[u8]) -> Vec<String> {
        use grosso_wire::{Cover, Law, Role};
        let mut bytes = Vec::new();
        for field in spec.layout(header).fields {
            let reason = NoMerge::of(field.role);
            let law = match field.law {
                // The key of GRE had no field.
                Law::Key { .. } if field.role == Role::Channel => "Equal tunnel-header".into(),
                Law::Key { .. } => format!("Key {reason}"),
                Law::Equal => format!("Equal {reason}"),
                Law::Flags => format!("Flags {reason}"),
                Law::Length { skip } => format!("Length {skip}"),
                Law::Identification => "Identification".into(),
                Law::Sequence => "Sequence".into(),
                Law::Checksum(Cover::Transport { .. }) => "Transport".into(),
                Law::Checksum(Cover::Datagram { .. }) => "Datagram".into(),
                Law::Checksum(cover) => format!("{cover:?}"),
            };
            assert_eq!(bytes.len(), field.bytes.start);
            bytes.resize(field.bytes.end, law);
        }
        bytes.resize(header.len(), format!("Equal {}", NoMerge::of(spec.tail.role)));
        bytes
    }

    #[test]
    fn the_specifications_say_the_same() {
        let mut kinds = Vec::new();
        for stack in Stack::all() {
            let frame = stack.packet(&Place::default()).payload_len(20).build();
            let found = dissect(
                &frame,
                LinkType::Ethernet,
                &Ports { fou: Some((5555, 4)), ..Ports::ASSIGNED },
            );
            for layer in found.layers() {
                let header = &frame[layer.offset as usize..layer.end()];
                assert_eq!(here(layer.kind, header), there(layer.kind.spec(), header), "{found}");
                kinds.push(layer.kind);
            }
        }
        let seen = Kind::ALL.iter().filter(|kind| kinds.contains(kind)).count();
        assert!(seen >= 15, "{seen}");
    }
}
