//! Offload features of a device, with their ethtool names, and the work that a frame needs before the device accepts
//! it.

use core::ops::{BitAnd, BitOr, BitOrAssign};

use grosso_wire::{Class, Kind, Layer, Segmentation, Stack, tcp};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize, Meta},
    segment::Outgoing,
};

/// Declares the feature bits. Each has a constant, an ethtool name and a description.
macro_rules! features {
    ($($(#[doc = $sentence:literal])+ $constant:ident = $bit:literal, $name:literal;)+) => {
        impl Features {
            $($(#[doc = $sentence])+ pub const $constant: Self = Self(1 << $bit);)+

            /// Every feature, with its ethtool name.
            pub const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$constant),)+];
        }
    };
}

/// Set of offload features.
///
/// ```
/// use grosso::features::Features;
///
/// let features = Features::TCP_SEGMENTATION | Features::SCATTER_GATHER | Features::CHECKSUM_IPV4;
/// assert!(features.active().contains(Features::TCP_SEGMENTATION));
/// assert_eq!(Features::named("tx-tcp-segmentation"), Some(Features::TCP_SEGMENTATION));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u32);

features! {
    /// Transmission of frames from several buffers.
    SCATTER_GATHER = 0, "tx-scatter-gather";
    /// TCP and UDP checksums over IPv4, outside tunnels.
    CHECKSUM_IPV4 = 1, "tx-checksum-ipv4";
    /// Any checksum described by a start and an offset.
    CHECKSUM_GENERIC = 2, "tx-checksum-ip-generic";
    /// TCP and UDP checksums directly after the fixed IPv6 header.
    CHECKSUM_IPV6 = 3, "tx-checksum-ipv6";
    /// Software segmentation of superframes that the caller sends. Needs scatter-gather.
    GENERIC_SEGMENTATION = 4, "tx-generic-segmentation";
    /// TCP segmentation over IPv4.
    TCP_SEGMENTATION = 5, "tx-tcp-segmentation";
    /// TCP segmentation that keeps CWR on the first packet only (RFC 3168).
    TCP_ECN_SEGMENTATION = 6, "tx-tcp-ecn-segmentation";
    /// TCP segmentation that may change IPv4 identifications. In this crate, it also applies to UDP segmentation.
    TCP_MANGLEID_SEGMENTATION = 7, "tx-tcp-mangleid-segmentation";
    /// TCP segmentation over IPv6.
    TCP6_SEGMENTATION = 8, "tx-tcp6-segmentation";
    /// TCP segmentation that keeps CWR on every packet (AccECN).
    TCP_ACCECN_SEGMENTATION = 9, "tx-tcp-accecn-segmentation";
    /// UDP segmentation into datagrams.
    UDP_SEGMENTATION = 10, "tx-udp-segmentation";
    /// Segmentation inside GRE.
    GRE_SEGMENTATION = 11, "tx-gre-segmentation";
    /// Segmentation inside GRE with a checksum.
    GRE_CHECKSUM_SEGMENTATION = 12, "tx-gre-csum-segmentation";
    /// Segmentation inside IP-in-IPv4.
    IPXIP4_SEGMENTATION = 13, "tx-ipxip4-segmentation";
    /// Segmentation inside IP-in-IPv6.
    IPXIP6_SEGMENTATION = 14, "tx-ipxip6-segmentation";
    /// Segmentation inside a UDP tunnel without an outer checksum.
    UDP_TUNNEL_SEGMENTATION = 15, "tx-udp_tnl-segmentation";
    /// Segmentation inside a UDP tunnel with an outer checksum.
    UDP_TUNNEL_CHECKSUM_SEGMENTATION = 16, "tx-udp_tnl-csum-segmentation";
    /// Segmentation that repeats outer headers which the device does not parse (rule S47).
    GSO_PARTIAL = 17, "tx-gso-partial";
    /// Segmentation of packets with remote checksum offload.
    REMOTE_CHECKSUM_SEGMENTATION = 18, "tx-tunnel-remcsum-segmentation";
    /// Acceptance of unverified superframes from untrusted sources.
    GSO_ROBUST = 19, "tx-gso-robust";
}

impl Features {
    /// Empty set.
    pub const NONE: Self = Self(0);
    /// Set of all features.
    pub const ALL: Self = Self((1 << 20) - 1);

    /// Returns the feature with this ethtool name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, feature)| *feature)
    }

    /// Returns whether the set contains all features of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the set without the features of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the features of `self` whose dependencies are met: segmentation needs scatter-gather and a checksum
    /// offload for the resulting packets (R5).
    #[must_use]
    pub fn active(self) -> Self {
        let mut active = self;
        let checksum4 = Self::CHECKSUM_GENERIC.0 | Self::CHECKSUM_IPV4.0;
        let checksum6 = Self::CHECKSUM_GENERIC.0 | Self::CHECKSUM_IPV6.0;
        if !active.contains(Self::SCATTER_GATHER) {
            active = active.without(Self::SEGMENTATION | Self::GENERIC_SEGMENTATION);
        }
        if active.0 & checksum4 == 0 {
            active = active.without(Self::OVER_IPV4);
        }
        if active.0 & checksum6 == 0 {
            active = active.without(Self::TCP6_SEGMENTATION);
        }
        if active.0 & (checksum4 | checksum6) == 0 {
            active = active.without(Self::SEGMENTATION);
        }
        active
    }

    const OVER_IPV4: Self = Self(
        Self::TCP_SEGMENTATION.0 | Self::TCP_ECN_SEGMENTATION.0 | Self::TCP_MANGLEID_SEGMENTATION.0,
    );

    /// All kinds of hardware segmentation.
    const SEGMENTATION: Self = Self(
        Self::OVER_IPV4.0
            | Self::TCP6_SEGMENTATION.0
            | Self::TCP_ACCECN_SEGMENTATION.0
            | Self::UDP_SEGMENTATION.0
            | Self::TUNNELS.0
            | Self::GSO_PARTIAL.0
            | Self::GSO_ROBUST.0,
    );

    /// Features for segmentation inside tunnels.
    const TUNNELS: Self = Self(
        Self::GRE_SEGMENTATION.0
            | Self::GRE_CHECKSUM_SEGMENTATION.0
            | Self::IPXIP4_SEGMENTATION.0
            | Self::IPXIP6_SEGMENTATION.0
            | Self::UDP_TUNNEL_SEGMENTATION.0
            | Self::UDP_TUNNEL_CHECKSUM_SEGMENTATION.0
            | Self::REMOTE_CHECKSUM_SEGMENTATION.0
            | Self::UNNAMED_SEGMENTATION.0,
    );

    /// Segmentation inside a header for which ethtool has no feature, and which no device supports.
    const UNNAMED_SEGMENTATION: Self = Self(1 << 31);
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Features {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Capabilities of a transmit device.
///
/// ```
/// use grosso::features::{Device, Features, Work};
/// use grosso::{LinkType, Meta, Ports};
/// # let frame = grosso_testkit::Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(9).build();
///
/// let device = Device::new(Features::NONE);
/// let stack = grosso_wire::dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
/// assert_eq!(device.work(&frame, frame.len(), &stack, &Meta::default()), Work::Nothing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// Active offload features.
    pub features: Features,
    /// Limit on the length of a superframe in bytes, counted from the first IP header. A superframe must be shorter
    /// than this (rules S2, G60).
    pub gso_max_size: u32,
    /// Maximum number of packets per superframe (rule S2).
    pub gso_max_segs: u32,
}

impl Device {
    /// Returns a device with these features and Linux's default limits.
    #[must_use]
    pub const fn new(features: Features) -> Self {
        Self { features, gso_max_size: 65536, gso_max_segs: 65535 }
    }
}

/// Work that a frame needs before a device accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// No work: the device accepts the frame.
    Nothing,
    /// The caller must complete the partial checksum.
    Complete,
    /// The caller must segment the frame into packets.
    Segment(Outgoing),
}

impl Device {
    /// Returns the work that a frame needs before it is sent to this device, like Linux's `netif_needs_gso`. `frame`
    /// must contain all headers; `len` is the length of the whole frame in bytes.
    #[must_use]
    pub fn work(&self, frame: &[u8], len: usize, stack: &Stack, meta: &Meta) -> Work {
        let Some(gso) = meta.gso else {
            return match meta.checksum {
                Checksum::Partial { start, .. } if !self.completes_from(start, stack) => {
                    Work::Complete
                }
                _ => Work::Nothing,
            };
        };
        let checksums = self.completes_checksum(stack.layers());
        let needed = needed(frame, stack, &gso);
        let is_ip = |layer: &&Layer| layer.kind.is_ip();
        let network = stack.layers().iter().find(is_ip).map_or(0, |ip| usize::from(ip.offset));
        let fits = len.saturating_sub(network) < self.gso_max_size as usize
            && u32::from(gso.segments) <= self.gso_max_segs;
        let takes = |needed| self.features.contains(needed) && checksums && fits;
        let is_robust = !gso.untrusted || self.features.contains(Features::GSO_ROBUST);
        if takes(needed) && is_robust && matches!(gso.size, GsoSize::Every(_)) {
            return Work::Nothing;
        }
        let innermost = needed.without(Features::TUNNELS) | Features::GSO_PARTIAL;
        if takes(innermost)
            && is_robust
            && needed != innermost
            && matches!(gso.size, GsoSize::Every(_))
        {
            return Work::Segment(Outgoing::GSO_PARTIAL);
        }
        Work::Segment(if checksums { Outgoing::PARTIAL_CHECKSUMS } else { Outgoing::COMPLETE })
    }

    /// Returns whether the device completes the checksum of the header at `start`. Headers inside it do not matter:
    /// remote checksum offload leaves a tunnel's outer checksum to the device and the inner one to the receiver.
    fn completes_from(&self, start: u16, stack: &Stack) -> bool {
        if self.features.contains(Features::CHECKSUM_GENERIC) {
            return true;
        }
        let layers = stack.layers();
        let found = layers.iter().position(|layer| layer.offset == start);
        let Some((outside, summed)) = found.and_then(|at| layers.split_at_checked(at)) else {
            return false;
        };
        let segmentation = summed.first().map(|layer| layer.kind.spec().segmentation);
        let is_transport = matches!(segmentation, Some(Segmentation::Tcp | Segmentation::Udp));
        is_transport && self.completes_checksum(outside)
    }

    /// Returns whether the device completes the innermost TCP or UDP checksum of these headers. With IPv6 extension
    /// headers or tunnels, only the generic feature does (B22).
    fn completes_checksum(&self, layers: &[Layer]) -> bool {
        if self.features.contains(Features::CHECKSUM_GENERIC) {
            return true;
        }
        let mut ip = layers.iter().filter(|l| l.kind.is_ip());
        let is_extension = |layer: &Layer| layer.kind.class() == Class::Extension;
        let extended = layers.iter().any(is_extension);
        // Without the generic feature, a device finds the IP header only after link-layer headers that it can parse.
        let mut links = layers.iter().take_while(|layer| !layer.kind.is_ip());
        if links.any(|layer| layer.kind.spec().segmentation == Segmentation::Never) {
            return false;
        }
        match (ip.next().map(|layer| layer.kind), ip.next()) {
            (Some(Kind::Ipv4), None) => self.features.contains(Features::CHECKSUM_IPV4),
            (Some(Kind::Ipv6), None) => {
                !extended && self.features.contains(Features::CHECKSUM_IPV6)
            }
            _ => false,
        }
    }
}

/// Returns the features that a device needs to segment this superframe, corresponding to Linux's `gso_type` (rule S1).
#[must_use]
pub fn needed(frame: &[u8], stack: &Stack, gso: &Gso) -> Features {
    let mut needed = Features::NONE;
    let mut ip = None;
    let mut above = None;
    let header_len = stack.header_len();
    for layer in stack.layers() {
        let spec = layer.kind.spec();
        let header = frame.get(layer.offset.into()..layer.end()).unwrap_or_default();
        let has_checksum = || spec.checksum(header).is_some();
        needed |= match spec.segmentation {
            Segmentation::Nothing => Features::NONE,
            Segmentation::Ip => match (above, ip.replace(layer.kind)) {
                (Some(Class::Network | Class::Extension), Some(Kind::Ipv4)) => {
                    Features::IPXIP4_SEGMENTATION
                }
                (Some(Class::Network | Class::Extension), _) => Features::IPXIP6_SEGMENTATION,
                _ => Features::NONE,
            },
            Segmentation::Gre if has_checksum() => Features::GRE_CHECKSUM_SEGMENTATION,
            Segmentation::Gre => Features::GRE_SEGMENTATION,
            Segmentation::Udp if layer.end() == header_len => {
                Features::UDP_SEGMENTATION | identifications_needed(gso)
            }
            Segmentation::Udp if has_checksum() => Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION,
            Segmentation::Udp => Features::UDP_TUNNEL_SEGMENTATION,
            Segmentation::Tcp => tcp_needed(frame, layer.offset.into(), ip, gso),
            Segmentation::Never => Features::UNNAMED_SEGMENTATION,
        };
        above = Some(spec.class);
    }
    if crate::segment::remote_checksum(stack, frame) {
        needed |= Features::REMOTE_CHECKSUM_SEGMENTATION;
    }
    needed
}

/// Returns the feature that preserves fixed identifications, or the empty set if no identification is fixed. Linux
/// always increments the identifications of UDP packets, and has no separate feature for devices that keep them fixed.
fn identifications_needed(gso: &Gso) -> Features {
    match gso.fixed_ids.bits() {
        0 => Features::NONE,
        _ => Features::TCP_MANGLEID_SEGMENTATION,
    }
}

fn tcp_needed(frame: &[u8], start: usize, ip: Option<Kind>, gso: &Gso) -> Features {
    let mut needed = match ip {
        Some(Kind::Ipv6) => Features::TCP6_SEGMENTATION,
        _ => Features::TCP_SEGMENTATION,
    };
    needed |= identifications_needed(gso);
    let flags = u16_at(frame, start + tcp::field::OFFSET_FLAGS.start);
    if flags & tcp::CWR != 0 {
        needed |= match gso.cwr {
            Cwr::First => Features::TCP_ECN_SEGMENTATION,
            Cwr::Every => Features::TCP_ACCECN_SEGMENTATION,
        };
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::Features;

    #[test]
    fn every_feature_has_one_name_of_ethtool_and_is_found_by_it() {
        for (i, (name, feature)) in Features::NAMES.iter().enumerate() {
            assert!(name.starts_with("tx-"), "{name}");
            assert_eq!(Features::named(name), Some(*feature));
            assert!(Features::NAMES[..i].iter().all(|(_, other)| !other.contains(*feature)));
            assert!(Features::ALL.contains(*feature));
        }
        assert_eq!(Features::named("tx-nothing"), None);
    }

    #[test]
    fn r5_segmentation_wants_scatter_gather_and_a_checksum_for_what_it_cuts() {
        let checksums = Features::CHECKSUM_IPV4 | Features::CHECKSUM_IPV6;
        let tcp = Features::TCP_SEGMENTATION | Features::TCP6_SEGMENTATION;
        let wanted = tcp | checksums | Features::SCATTER_GATHER;
        assert_eq!(wanted.active(), wanted);
        let without = |lost| wanted.without(lost).active();
        assert_eq!(without(Features::SCATTER_GATHER), checksums);
        let no_v4 = without(Features::CHECKSUM_IPV4);
        assert_eq!(no_v4 & tcp, Features::TCP6_SEGMENTATION);
        let no_v6 = without(Features::CHECKSUM_IPV6);
        assert_eq!(no_v6 & tcp, Features::TCP_SEGMENTATION);
        assert_eq!(without(checksums), Features::SCATTER_GATHER);
        let generic = wanted.without(checksums) | Features::CHECKSUM_GENERIC;
        assert_eq!(generic.active(), generic);
        assert_eq!(
            (Features::ALL.without(Features::SCATTER_GATHER)).active() & tcp,
            Features::NONE
        );
    }
}
