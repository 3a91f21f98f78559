//! Kinds of tunnels, with their names.

use core::fmt;

use grosso_wire::Kind;

/// Tunnel type, named as in `ip link`, together with the protocol that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tunnel {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// VXLAN with the generic protocol extension.
    VxlanGpe,
    /// Geneve (RFC 8926).
    Geneve,
    /// GRE (RFC 2784).
    Gre,
    /// IPv4 in IPv4 (RFC 2003).
    Ipip,
    /// IPv6 in IPv4 (RFC 4213).
    Sit,
    /// IPv4 in IPv6 (RFC 2473).
    Ip4ip6,
    /// IPv6 in IPv6 (RFC 2473).
    Ip6ip6,
    /// MPLS in IP (RFC 4023).
    Mpls,
    /// GRE in GUE.
    GreGue,
    /// IPv4 in GUE over IPv4.
    IpipGue,
    /// IPv6 in GUE over IPv4.
    SitGue,
    /// IPv4 in GUE over IPv6.
    Ip4ip6Gue,
    /// IPv6 in GUE over IPv6.
    Ip6ip6Gue,
    /// MPLS in GUE.
    MplsGue,
    /// GRE in FOU.
    GreFou,
    /// IPv4 in FOU over IPv4.
    IpipFou,
    /// IPv6 in FOU over IPv4.
    SitFou,
    /// IPv4 in FOU over IPv6.
    Ip4ip6Fou,
    /// IPv6 in FOU over IPv6.
    Ip6ip6Fou,
    /// MPLS in FOU.
    MplsFou,
    /// Tunnel header for which `ip link` has no name. The name of the header is used instead.
    Header(Kind),
}

impl Tunnel {
    /// Returns the name of the tunnel type as used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::VxlanGpe => "vxlan-gpe",
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Ipip => "ipip",
            Self::Sit => "sit",
            Self::Ip4ip6 => "ip4ip6",
            Self::Ip6ip6 => "ip6ip6",
            Self::Mpls => "mpls",
            Self::GreGue => "gre/gue",
            Self::IpipGue => "ipip/gue",
            Self::SitGue => "sit/gue",
            Self::Ip4ip6Gue => "ip4ip6/gue",
            Self::Ip6ip6Gue => "ip6ip6/gue",
            Self::MplsGue => "mpls/gue",
            Self::GreFou => "gre/fou",
            Self::IpipFou => "ipip/fou",
            Self::SitFou => "sit/fou",
            Self::Ip4ip6Fou => "ip4ip6/fou",
            Self::Ip6ip6Fou => "ip6ip6/fou",
            Self::MplsFou => "mpls/fou",
            Self::Header(kind) => kind.name(),
        }
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Protocol that carries a tunnel header or an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CarriedBy {
    Ip,
    Gue,
    Fou,
}

impl Tunnel {
    /// Returns the tunnel type for the header that a UDP port announces.
    pub(super) const fn in_udp(kind: Kind) -> Self {
        match kind {
            Kind::Vxlan => Self::Vxlan,
            Kind::VxlanGpe => Self::VxlanGpe,
            Kind::Geneve => Self::Geneve,
            Kind::Mpls => Self::Mpls,
            kind => Self::Header(kind),
        }
    }

    /// Returns the type of a tunnel with an IP header of kind `ip` around a header of kind `inside`, or `None` if there
    /// is no such tunnel.
    pub(super) const fn of(carried_by: CarriedBy, ip: Kind, inside: Kind) -> Option<Self> {
        let names = match (ip, inside) {
            (_, Kind::Gre) => [Self::Gre, Self::GreGue, Self::GreFou],
            (_, Kind::Mpls) => [Self::Mpls, Self::MplsGue, Self::MplsFou],
            (Kind::Ipv4, Kind::Ipv4) => [Self::Ipip, Self::IpipGue, Self::IpipFou],
            (Kind::Ipv4, Kind::Ipv6) => [Self::Sit, Self::SitGue, Self::SitFou],
            (_, Kind::Ipv4) => [Self::Ip4ip6, Self::Ip4ip6Gue, Self::Ip4ip6Fou],
            (_, Kind::Ipv6) => [Self::Ip6ip6, Self::Ip6ip6Gue, Self::Ip6ip6Fou],
            _ => return None,
        };
        Some(names[carried_by as usize])
    }
}
