//! Configuration of a tunnel endpoint.

use alloc::vec::Vec;
use core::{fmt, net::IpAddr, ops::RangeInclusive};

use grosso_wire::{Kind, Ports, geneve, gre, gue, ipv4, ipv6, udp, vxlan};

use crate::tunnel::CongestionMode;

/// Configuration of a tunnel endpoint: the headers that it adds to sent packets and expects on received ones. The field
/// names follow `ip link`.
///
/// ```
/// use grosso::tunnel::{Carrier, Endpoint, Header};
///
/// let [local, remote] = ["192.0.2.1".parse()?, "192.0.2.2".parse()?];
/// let gre = Header::Gre { key: Some(7), checksum: false, sequence: false, ethernet: false };
/// let endpoint = Endpoint::new(local, remote, gre, Carrier::Ip);
/// assert_eq!(endpoint.mtu(1500), Some(1472));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// Address of this endpoint.
    pub local: IpAddr,
    /// Address of the remote endpoint. It must be of the same family as `local`.
    pub remote: IpAddr,
    /// Tunnel header.
    pub header: Header,
    /// Protocol that carries the tunnel header.
    pub carrier: Carrier,
    /// Only IP version that the tunnel carries, like `mode` in `ip link`, or `None` for both versions.
    pub version: Option<IpVersion>,
    /// TTL or hop limit of the outer header.
    pub ttl: TimeToLive,
    /// DSCP of the outer header.
    pub dscp: Dscp,
    /// ECN mode of the outer header (RFC 6040, rule W1).
    pub congestion: CongestionMode,
    /// DF bit of the outer IPv4 header. Routers never fragment IPv6.
    pub dont_fragment: DontFragment,
    /// IPv6 flow label (20 bits). `None` derives it from the flow.
    pub flow_label: Option<u32>,
    /// Number of further tunnels that a packet may enter, sent as an IPv6 destination option. Available only for
    /// tunnels directly in IPv6 (RFC 2473 section 4.1.1, rule W61).
    pub encapsulation_limit: Option<u8>,
}

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Tunnel header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// No tunnel header: the tunnel is IPIP, SIT, IP4IP6 or IP6IP6, depending on the IP versions.
    Ip,
    /// GRE (RFC 2784, RFC 2890).
    Gre {
        /// Key, which is the same in both directions.
        key: Option<u32>,
        /// Whether packets have checksums. If so, received packets without a checksum are refused (rule W51).
        checksum: bool,
        /// Whether packets have sequence numbers. If so, late packets are dropped (rule W51), and superframes must be
        /// segmented before they are encapsulated (rule S43).
        sequence: bool,
        /// Whether the tunnel carries Ethernet frames, like `gretap`, instead of IP packets.
        ethernet: bool,
    },
    /// VXLAN (RFC 7348).
    Vxlan {
        /// Network identifier (24 bits).
        identifier: u32,
        /// Group policy of sent packets (rule W31). If this is `None`, received packets with a policy are refused.
        policy: Option<u16>,
        /// Whether the header gives the payload type and the tunnel carries IP packets (VXLAN-GPE, rule W31).
        generic_protocol: bool,
    },
    /// Geneve (RFC 8926).
    Geneve {
        /// Network identifier (24 bits).
        identifier: u32,
        /// Encoded options of sent packets, at most 252 bytes.
        options: Vec<u8>,
        /// Whether the tunnel carries IP packets instead of Ethernet frames (rule W41).
        inherit_protocol: bool,
    },
}

/// Protocol that carries the tunnel header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// IP, for GRE and for tunnels without a header.
    Ip,
    /// UDP: the tunnel is VXLAN or Geneve, or FOU for GRE and tunnels without a header.
    Udp(Udp),
    /// GUE over UDP, for GRE and for tunnels without a header.
    Gue(Udp),
    /// GUE variant 1 over UDP, which has no GUE header (rule W22), for tunnels without a header.
    DirectGue(Udp),
}

/// UDP settings of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Range of source ports. All packets of a flow use the same port, so that the network can spread flows over paths
    /// without reordering packets.
    pub source: RangeInclusive<u16>,
    /// Destination port, which is the same for both endpoints.
    pub destination: u16,
    /// Whether sent packets have a UDP checksum.
    pub checksum: bool,
    /// Whether received packets over IPv6 may lack a checksum (RFC 6935, rule W32). Over IPv4, they always may.
    pub ipv6_without_checksum: bool,
    /// Use of remote checksum offload, which leaves an inner checksum to the remote endpoint. Available only for VXLAN
    /// and GUE with an outer checksum (rules C50 to C57).
    pub remote_checksum: RemoteChecksumUse,
}

/// Use of remote checksum offload by an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteChecksumUse {
    /// Whether sent packets use remote checksum offload.
    pub transmit: bool,
    /// Whether received packets may use remote checksum offload.
    pub receive: bool,
    /// Whether the checksums of received packets are completed rather than left partial (rule C53).
    pub complete: bool,
}

/// TTL or hop limit of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeToLive {
    /// A fixed value.
    Fixed(u8),
    /// The value from the inner packet, if it is an IP packet.
    Inherit,
}

/// DSCP of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dscp {
    /// A fixed value (6 bits).
    Fixed(u8),
    /// The value from the inner packet, if it is an IP packet.
    Inherit,
}

/// DF bit of a tunnel's outer packets. Packets longer than the path MTU
/// ([`Encapsulator::set_mtu`](crate::tunnel::encapsulate::Encapsulator::set_mtu)) are always sent without DF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DontFragment {
    /// DF is not set.
    Unset,
    /// DF is not set, and inner packets with DF are carried regardless of their length (`ignore-df`).
    Ignored,
    /// DF is set.
    Set,
    /// DF is copied from the inner IPv4 packet. For inner IPv6 packets, it is set in VXLAN and Geneve but not in other
    /// tunnels, as in Linux.
    Inherit,
}

impl Endpoint {
    /// Creates an endpoint with the defaults of `ip link`: a TTL of 64, the inner packet's DSCP, and DF set.
    #[must_use]
    pub const fn new(local: IpAddr, remote: IpAddr, header: Header, carrier: Carrier) -> Self {
        Self {
            local,
            remote,
            header,
            carrier,
            version: None,
            ttl: TimeToLive::Fixed(64),
            dscp: Dscp::Inherit,
            congestion: CongestionMode::Normal,
            dont_fragment: DontFragment::Set,
            flow_label: None,
            encapsulation_limit: None,
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the first contradiction.
    pub fn check(&self) -> Result<(), Contradiction> {
        if self.local.is_ipv4() != self.remote.is_ipv4() {
            return Err(Contradiction::Families);
        }
        if self.flow_label.is_some_and(|label| label > FLOW_LABEL_MAX) {
            return Err(Contradiction::FlowLabel);
        }
        if matches!(self.dscp, Dscp::Fixed(dscp) if dscp > DSCP_MAX) {
            return Err(Contradiction::Dscp);
        }
        let is_plain = matches!(self.carrier, Carrier::Ip);
        if self.encapsulation_limit.is_some() && (self.local.is_ipv4() || !is_plain) {
            return Err(Contradiction::EncapsulationLimit);
        }
        self.check_header()?;
        self.udp().map_or(Ok(()), |udp| self.check_udp(udp))
    }

    fn check_header(&self) -> Result<(), Contradiction> {
        let fits = matches!(
            (&self.header, &self.carrier),
            (Header::Vxlan { .. } | Header::Geneve { .. }, Carrier::Udp(_))
                | (Header::Gre { .. }, Carrier::Ip | Carrier::Udp(_) | Carrier::Gue(_))
                | (Header::Ip, _)
        );
        if !fits {
            return Err(Contradiction::Carrier);
        }
        match &self.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. }
                if *identifier > IDENTIFIER_MAX =>
            {
                Err(Contradiction::Identifier)
            }
            Header::Vxlan { policy: Some(_), generic_protocol: true, .. } => {
                Err(Contradiction::PolicyAndProtocol)
            }
            Header::Geneve { options, .. } if !are_whole(options) => Err(Contradiction::Options),
            _ => Ok(()),
        }
    }

    fn check_udp(&self, udp: &Udp) -> Result<(), Contradiction> {
        if udp.destination == 0 || *udp.source.start() == 0 || udp.source.is_empty() {
            return Err(Contradiction::Port);
        }
        let offload = udp.remote_checksum;
        if !offload.transmit && !offload.receive {
            return Ok(());
        }
        let has_room = matches!(
            (&self.header, &self.carrier),
            (Header::Vxlan { generic_protocol: false, .. }, _) | (_, Carrier::Gue(_))
        );
        match (has_room, udp.checksum) {
            (false, _) => Err(Contradiction::RemoteChecksum),
            (true, false) => Err(Contradiction::RemoteChecksumUnprotected),
            (true, true) => Ok(()),
        }
    }

    /// Returns the UDP settings, or `None` if the carrier is not UDP.
    #[must_use]
    pub const fn udp(&self) -> Option<&Udp> {
        match &self.carrier {
            Carrier::Ip => None,
            Carrier::Udp(udp) | Carrier::Gue(udp) | Carrier::DirectGue(udp) => Some(udp),
        }
    }

    /// Returns whether the tunnel carries Ethernet frames instead of IP packets.
    #[must_use]
    pub const fn carries_ethernet(&self) -> bool {
        match &self.header {
            Header::Ip => false,
            Header::Gre { ethernet, .. } => *ethernet,
            Header::Vxlan { generic_protocol, .. } => !*generic_protocol,
            Header::Geneve { inherit_protocol, .. } => !*inherit_protocol,
        }
    }

    /// Returns the UDP ports for dissecting frames of this tunnel.
    #[must_use]
    pub fn ports(&self) -> Ports {
        match (&self.header, &self.carrier) {
            (Header::Vxlan { generic_protocol, .. }, Carrier::Udp(udp)) => {
                let kind = if *generic_protocol { Kind::VxlanGpe } else { Kind::Vxlan };
                Ports::NONE.with(kind, udp.destination)
            }
            (Header::Geneve { .. }, Carrier::Udp(udp)) => {
                Ports::NONE.with(Kind::Geneve, udp.destination)
            }
            (_, Carrier::Gue(udp) | Carrier::DirectGue(udp)) => {
                Ports::NONE.with(Kind::Gue, udp.destination)
            }
            // The first bits of the packet determine its IP version.
            (Header::Ip, Carrier::Udp(udp)) => {
                Ports::NONE.with_fou(udp.destination, ipv4::PROTOCOL_IPV4)
            }
            (Header::Gre { .. }, Carrier::Udp(udp)) => {
                Ports::NONE.with_fou(udp.destination, ipv4::PROTOCOL_GRE)
            }
            (_, Carrier::Ip) => Ports::NONE,
        }
    }

    /// Returns the name and length in bytes of each header that the tunnel adds, starting with the outermost. For a
    /// tunnel that carries Ethernet, this includes the inner Ethernet header, because the MTU is measured
    /// from the IP header.
    pub fn overhead(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let ip = if self.local.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let limit = if self.encapsulation_limit.is_some() { ENCAPSULATION_LIMIT_BYTES } else { 0 };
        let udp = if self.udp().is_some() { udp::HEADER_LEN } else { 0 };
        let gue = if matches!(self.carrier, Carrier::Gue(_)) { gue::HEADER_LEN } else { 0 };
        let offload = gue > 0 && self.udp().is_some_and(|udp| udp.remote_checksum.transmit);
        let (private, remote) =
            if offload { (GUE_PRIVATE_BYTES, GUE_REMOTE_BYTES) } else { (0, 0) };
        let (name, header) = match &self.header {
            Header::Ip => ("", 0),
            Header::Gre { key, checksum, sequence, .. } => {
                let optional = [key.is_some(), *checksum, *sequence];
                ("gre", gre::HEADER_LEN + 4 * optional.into_iter().filter(|is| *is).count())
            }
            Header::Vxlan { .. } => ("vxlan", vxlan::HEADER_LEN),
            Header::Geneve { options, .. } => ("geneve", geneve::HEADER_LEN + options.len()),
        };
        let ethernet = if self.carries_ethernet() { grosso_wire::ethernet::HEADER_LEN } else { 0 };
        let parts = [
            ("ip", ip),
            ("encapsulation limit", limit),
            ("udp", udp),
            ("gue", gue),
            ("private flags", private),
            ("remcsum", remote),
            (name, header),
            ("ethernet", ethernet),
        ];
        parts.into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    /// Returns the tunnel's MTU for this path MTU, both in bytes, or `None` if no room remains.
    #[must_use]
    pub fn mtu(&self, path_mtu: usize) -> Option<usize> {
        let overhead: usize = self.overhead().map(|(_, bytes)| bytes).sum();
        path_mtu.checked_sub(overhead).filter(|mtu| *mtu > 0)
    }
}

/// Returns whether a list of Geneve options fits into the header and its last option is complete (rule W40).
fn are_whole(options: &[u8]) -> bool {
    let mut rest = options;
    while let [_, _, _, words, ..] = rest {
        let len = 4 + usize::from(words & 0x1f) * 4;
        match rest.get(len..) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty() && options.len() <= GENEVE_OPTIONS_BYTES_MAX
}

/// Contradiction in the configuration of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contradiction {
    /// The addresses belong to different families.
    Families,
    /// The carrier cannot carry the header.
    Carrier,
    /// The network identifier has more than 24 bits.
    Identifier,
    /// A VXLAN header with a group policy cannot name the payload type (rule W31).
    PolicyAndProtocol,
    /// The options are incomplete, or longer than 252 bytes.
    Options,
    /// A port is 0, or the range of source ports is empty.
    Port,
    /// The flow label has more than 20 bits.
    FlowLabel,
    /// The DSCP has more than 6 bits.
    Dscp,
    /// The encapsulation limit requires a tunnel directly in IPv6.
    EncapsulationLimit,
    /// The header does not support remote checksum offload.
    RemoteChecksum,
    /// Remote checksum offload requires an outer checksum, because nothing else protects the packet (rule C52).
    RemoteChecksumUnprotected,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Families => "the local and the remote address must both be IPv4 or both be IPv6",
            Self::Carrier => "the carrier protocol does not support this header",
            Self::Identifier => "an identifier must be below 2^24",
            Self::PolicyAndProtocol => "group policy and generic protocol cannot be combined",
            Self::Options => "the options are incomplete or longer than 252 bytes",
            Self::Port => "a port must be 1 to 65535",
            Self::FlowLabel => "a flow label must be below 2^20",
            Self::Dscp => "a DSCP must be below 64",
            Self::EncapsulationLimit => "an encapsulation limit requires a tunnel directly in IPv6",
            Self::RemoteChecksum => "remote checksum offload requires GUE, or VXLAN without GPE",
            Self::RemoteChecksumUnprotected => {
                "remote checksum offload requires a checksum in the UDP header"
            }
        })
    }
}

impl core::error::Error for Contradiction {}

/// Maximum network identifier of VXLAN and Geneve.
const IDENTIFIER_MAX: u32 = 0xff_ffff;
const FLOW_LABEL_MAX: u32 = 0xf_ffff;
const DSCP_MAX: u8 = 63;
/// Maximum length of Geneve options in bytes. The length field has 6 bits and counts 4-byte words.
const GENEVE_OPTIONS_BYTES_MAX: usize = 252;
/// Length in bytes of the destination options that contain the encapsulation limit and padding (RFC 2473 section
/// 4.1.1).
const ENCAPSULATION_LIMIT_BYTES: usize = 8;
/// Length in bytes of the private flags of GUE (rule C51).
const GUE_PRIVATE_BYTES: usize = 4;
/// Length in bytes of GUE's fields for remote checksum offload (rule C51).
const GUE_REMOTE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use super::*;

    const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
    const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
    const VXLAN: Header = Header::Vxlan { identifier: 42, policy: None, generic_protocol: false };

    fn udp() -> Udp {
        Udp {
            source: 49152..=65535,
            destination: 4789,
            checksum: true,
            ipv6_without_checksum: false,
            remote_checksum: RemoteChecksumUse::default(),
        }
    }

    fn offloading(checksum: bool) -> Udp {
        let remote_checksum = RemoteChecksumUse { transmit: true, receive: true, complete: false };
        Udp { checksum, remote_checksum, ..udp() }
    }

    fn parts(endpoint: &Endpoint) -> Vec<(&'static str, usize)> {
        endpoint.check().unwrap();
        endpoint.overhead().collect()
    }

    #[test]
    fn k137_an_mtu_is_what_the_headers_leave() {
        let end = |address, header, carrier| Endpoint::new(address, address, header, carrier);
        let gue = end(V4, Header::Ip, Carrier::Gue(offloading(true)));
        let expected = [("ip", 20), ("udp", 8), ("gue", 4), ("private flags", 4), ("remcsum", 4)];
        assert_eq!(parts(&gue), expected);
        assert_eq!(gue.mtu(1500), Some(1460));
        assert_eq!(end(V4, VXLAN, Carrier::Udp(udp())).mtu(1500), Some(1450));
        assert_eq!(end(V6, VXLAN, Carrier::Udp(udp())).mtu(1500), Some(1430));
        assert_eq!(end(V4, Header::Ip, Carrier::Ip).mtu(1500), Some(1480));
        assert_eq!(end(V4, Header::Ip, Carrier::DirectGue(udp())).mtu(1500), Some(1472));
        let mut ip6 = end(V6, Header::Ip, Carrier::Ip);
        ip6.encapsulation_limit = Some(4);
        assert_eq!(ip6.mtu(1500), Some(1452));
        assert_eq!(ip6.mtu(48), None);
        let gre = Header::Gre { key: Some(1), checksum: true, sequence: true, ethernet: true };
        assert_eq!(parts(&end(V4, gre, Carrier::Ip)), [("ip", 20), ("gre", 16), ("ethernet", 14)]);
        let options = vec![1, 2, 3, 1, 0, 0, 0, 0];
        let geneve = Header::Geneve { identifier: 1, options, inherit_protocol: true };
        assert_eq!(parts(&end(V4, geneve, Carrier::Udp(udp())))[2], ("geneve", 16));
    }

    #[test]
    fn what_cannot_be_is_called_by_name() {
        let refused = |header, carrier, edit: fn(&mut Endpoint)| {
            let mut end = Endpoint::new(V6, V6, header, carrier);
            edit(&mut end);
            end.check().err()
        };
        let same = |_: &mut Endpoint| {};
        let plain = || Carrier::Udp(udp());
        assert_eq!(refused(VXLAN, plain(), same), None);
        assert_eq!(refused(VXLAN, plain(), |end| end.local = V4), Some(Contradiction::Families));
        assert_eq!(refused(VXLAN, Carrier::Ip, same), Some(Contradiction::Carrier));
        let gre = Header::Gre { key: None, checksum: false, sequence: false, ethernet: false };
        assert_eq!(refused(gre, Carrier::DirectGue(udp()), same), Some(Contradiction::Carrier));
        let vxlan = |identifier, policy, generic_protocol| Header::Vxlan {
            identifier,
            policy,
            generic_protocol,
        };
        let large = vxlan(1 << 24, None, false);
        assert_eq!(refused(large, plain(), same), Some(Contradiction::Identifier));
        let both = vxlan(1, Some(1), true);
        assert_eq!(refused(both, plain(), same), Some(Contradiction::PolicyAndProtocol));
        for options in [vec![1, 2, 3], vec![1, 2, 3, 2, 0, 0, 0, 0], vec![0; 256]] {
            let geneve = Header::Geneve { identifier: 1, options, inherit_protocol: false };
            assert_eq!(refused(geneve, plain(), same), Some(Contradiction::Options));
        }
        let limit: fn(&mut Endpoint) = |end| end.encapsulation_limit = Some(4);
        assert_eq!(refused(Header::Ip, Carrier::Ip, limit), None);
        assert_eq!(refused(VXLAN, plain(), limit), Some(Contradiction::EncapsulationLimit));
        let label: fn(&mut Endpoint) = |end| end.flow_label = Some(1 << 20);
        assert_eq!(refused(VXLAN, plain(), label), Some(Contradiction::FlowLabel));
        let dscp: fn(&mut Endpoint) = |end| end.dscp = Dscp::Fixed(64);
        assert_eq!(refused(VXLAN, plain(), dscp), Some(Contradiction::Dscp));
        let portless = Carrier::Udp(Udp { destination: 0, ..udp() });
        assert_eq!(refused(VXLAN, portless, same), Some(Contradiction::Port));
    }

    // Rules: B52
    #[test]
    fn c52_remote_checksum_offload_has_a_place_and_a_checksum_around_it() {
        let refused = |header, carrier| Endpoint::new(V4, V4, header, carrier).check().err();
        assert_eq!(refused(VXLAN, Carrier::Udp(offloading(true))), None);
        assert_eq!(refused(Header::Ip, Carrier::Gue(offloading(true))), None);
        let place = Some(Contradiction::RemoteChecksum);
        assert_eq!(refused(Header::Ip, Carrier::Udp(offloading(true))), place);
        assert_eq!(refused(Header::Ip, Carrier::DirectGue(offloading(true))), place);
        let gpe = Header::Vxlan { identifier: 1, policy: None, generic_protocol: true };
        assert_eq!(refused(gpe, Carrier::Udp(offloading(true))), place);
        let protection = Some(Contradiction::RemoteChecksumUnprotected);
        assert_eq!(refused(VXLAN, Carrier::Udp(offloading(false))), protection);
    }
}
