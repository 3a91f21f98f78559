//! The types of tunnels.

use std::str::FromStr;

use grosso::tunnel::IpVersion;

use crate::wrong::similar;

/// Tunnel types, with the names of `ip link`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vxlan,
    Geneve,
    Gre,
    Gretap,
    Ip6gre,
    Ip6gretap,
    Ipip,
    Sit,
    Ip6tnl,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Vxlan,
        Self::Geneve,
        Self::Gre,
        Self::Gretap,
        Self::Ip6gre,
        Self::Ip6gretap,
        Self::Ipip,
        Self::Sit,
        Self::Ip6tnl,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Gretap => "gretap",
            Self::Ip6gre => "ip6gre",
            Self::Ip6gretap => "ip6gretap",
            Self::Ipip => "ipip",
            Self::Sit => "sit",
            Self::Ip6tnl => "ip6tnl",
        }
    }

    /// Returns whether the tunnel has a GRE header.
    pub const fn is_gre(self) -> bool {
        matches!(self, Self::Gre | Self::Gretap | Self::Ip6gre | Self::Ip6gretap)
    }

    /// Returns whether the tunnel always uses UDP and has its own UDP port.
    pub const fn has_port(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve)
    }

    /// Returns whether the outer packets are always IPv6 (true) or always IPv4 (false); `None` if the addresses decide.
    pub const fn is_over_ipv6(self) -> Option<bool> {
        match self {
            Self::Vxlan | Self::Geneve => None,
            Self::Gre | Self::Gretap | Self::Ipip | Self::Sit => Some(false),
            Self::Ip6gre | Self::Ip6gretap | Self::Ip6tnl => Some(true),
        }
    }

    /// Returns the modes of the type, and the IP version of the packets in each.
    pub(super) const fn modes(self) -> &'static [(&'static str, Option<IpVersion>)] {
        match self {
            Self::Ipip => &[("any", None), ("ipip", Some(IpVersion::V4))],
            Self::Sit => {
                &[("any", None), ("ip6ip", Some(IpVersion::V6)), ("ipip", Some(IpVersion::V4))]
            }
            Self::Ip6tnl => {
                &[("any", None), ("ip6ip6", Some(IpVersion::V6)), ("ipip6", Some(IpVersion::V4))]
            }
            _ => &[("any", None)],
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            match similar(text, names.into_iter()) {
                Some(meant) => format!("no type \"{text}\"; did you mean {meant}?"),
                None => format!("no type \"{text}\"; types are {}", names.join(", ")),
            }
        })
    }
}

/// All types with a GRE header.
pub(super) const GRE: &[Kind] = &[Kind::Gre, Kind::Gretap, Kind::Ip6gre, Kind::Ip6gretap];
/// Types that always use UDP.
pub(super) const WITH_PORT: &[Kind] = &[Kind::Vxlan, Kind::Geneve];
/// Types that carry Ethernet frames by default.
pub(super) const ETHERNET: &[Kind] = &[Kind::Vxlan, Kind::Geneve, Kind::Gretap, Kind::Ip6gretap];
/// Types without a tunnel header.
pub(super) const BARE: &[Kind] = &[Kind::Ipip, Kind::Sit, Kind::Ip6tnl];
pub(super) const OVER_IPV4: &[Kind] = &[Kind::Gre, Kind::Gretap, Kind::Ipip, Kind::Sit];
pub(super) const OVER_IPV6: &[Kind] = &[Kind::Ip6gre, Kind::Ip6gretap, Kind::Ip6tnl];
/// Types that `encap` puts into UDP.
pub(super) const IN_UDP: &[Kind] =
    &[Kind::Gre, Kind::Gretap, Kind::Ip6gre, Kind::Ip6gretap, Kind::Ipip, Kind::Sit, Kind::Ip6tnl];
