//! Kinds of tunnels, by name.

use grosso_wire::Kind;

use crate::reasons::reasons;

reasons! {
    /// Kind of tunnel, by its `ip link` name and carrier.
    Tunnel {
        /// VXLAN (RFC 7348).
        Vxlan = "vxlan",
        /// VXLAN with the generic protocol extension.
        VxlanGpe = "vxlan-gpe",
        /// Geneve (RFC 8926).
        Geneve = "geneve",
        /// GRE (RFC 2784).
        Gre = "gre",
        /// IPv4 in IPv4 (RFC 2003).
        Ipip = "ipip",
        /// IPv6 in IPv4 (RFC 4213).
        Sit = "sit",
        /// IPv4 in IPv6 (RFC 2473).
        Ip4ip6 = "ip4ip6",
        /// IPv6 in IPv6 (RFC 2473).
        Ip6ip6 = "ip6ip6",
        /// MPLS in IP (RFC 4023).
        Mpls = "mpls",
        /// GRE in GUE.
        GreGue = "gre/gue",
        /// IPv4 in GUE over IPv4.
        IpipGue = "ipip/gue",
        /// IPv6 in GUE over IPv4.
        SitGue = "sit/gue",
        /// IPv4 in GUE over IPv6.
        Ip4ip6Gue = "ip4ip6/gue",
        /// IPv6 in GUE over IPv6.
        Ip6ip6Gue = "ip6ip6/gue",
        /// MPLS in GUE.
        MplsGue = "mpls/gue",
        /// GRE in FOU.
        GreFou = "gre/fou",
        /// IPv4 in FOU over IPv4.
        IpipFou = "ipip/fou",
        /// IPv6 in FOU over IPv4.
        SitFou = "sit/fou",
        /// IPv4 in FOU over IPv6.
        Ip4ip6Fou = "ip4ip6/fou",
        /// IPv6 in FOU over IPv6.
        Ip6ip6Fou = "ip6ip6/fou",
        /// MPLS in FOU.
        MplsFou = "mpls/fou",
    }
}

/// Carrier of the header that an IP protocol number announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CarriedBy {
    Ip,
    Gue,
    Fou,
}

impl Tunnel {
    /// Returns the tunnel inside an IP header of the kind `ip` whose next header is `inside`; `None` if no tunnel has
    /// these.
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
