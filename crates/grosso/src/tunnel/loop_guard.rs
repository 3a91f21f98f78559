//! Detection of a tunnel's own outer packets among those that it is about to encapsulate.
//!
//! If the route to a tunnel's remote address leads into the tunnel, each packet that the tunnel sends comes back to be
//! encapsulated again. Counting IP headers does not prevent this: a packet that is fragmented on the way comes back as
//! fragments, and a fragment shows only one IP header, whatever it contains.
//!
//! Only the outermost IP header of a packet is compared. Hosts behind the tunnel may therefore have the same addresses
//! as its endpoints, as long as their packets differ in protocol or port.

use alloc::vec::Vec;
use core::net::IpAddr;

use grosso_wire::{LinkType, Ports, dissect, ethernet, ipv4, ipv6, ipv6_fragment, udp, vlan};

#[cfg(feature = "esp")]
use super::esp::{EspMode, Outer, SecurityAssociation};
use super::{Carrier, Endpoint, Header};
use crate::bytes::{u16_at, u32_at};

/// Detector of the outer packets of one tunnel or ESP association, which must not be encapsulated again.
///
/// An outer packet goes from the tunnel's local address to one of its remote addresses. It has the tunnel's IP protocol
/// and, in UDP, the tunnel's destination port; for ESP, the SPI is compared too. A later fragment contains neither port
/// nor SPI. It is recognized if a first fragment with the same identification was recognized at most
/// [`FRAGMENT_AGE_NS`] ago.
///
/// ```
/// use grosso::tunnel::{Carrier, Endpoint, Header, LoopGuard};
/// use grosso_wire::LinkType;
/// # use grosso_testkit::Packet;
/// # let packet = |protocol| {
/// #     let ip = Packet::new().ipv4(|ip| ip.source([192, 0, 2, 1]).destination([192, 0, 2, 2]).protocol(protocol));
/// #     ip.payload(&[0x45; 20]).build()
/// # };
///
/// let [local, remote] = ["192.0.2.1".parse()?, "192.0.2.2".parse()?];
/// let ipip = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
/// let mut guard = LoopGuard::new(&ipip, []);
///
/// let (ipip_packet, icmp_packet) = (packet(4), packet(1));
/// assert!(guard.is_own(&ipip_packet, LinkType::Raw, 0));
/// assert!(!guard.is_own(&icmp_packet, LinkType::Raw, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LoopGuard {
    ends: OuterAddresses,
    mark: Mark,
    /// Most recently recognized first fragments. Once the list is full, it is used as a ring.
    fragments: Vec<FirstFragment>,
    oldest: usize,
}

/// Addresses of outer packets.
#[derive(Debug)]
enum OuterAddresses {
    V4 { local: [u8; 4], remotes: Vec<[u8; 4]> },
    V6 { local: [u8; 16], remotes: Vec<[u8; 16]> },
}

/// Field of an outer packet that identifies the tunnel, in addition to the addresses.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// IP protocols, each of which identifies the tunnel.
    Protocols([u8; 2]),
    /// UDP port that identifies the tunnel.
    Port(u16),
    /// SPI that identifies the tunnel, for ESP either directly in IP or in UDP to this port.
    #[cfg(feature = "esp")]
    Spi { spi: u32, port: Option<u16> },
}

/// First fragment of an outer packet. Later fragments have the same identification, destination and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FragmentKey {
    identification: u32,
    /// Index of the remote address.
    remote: u8,
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct FirstFragment {
    key: FragmentKey,
    seen_ns: u64,
}

/// Parts of an IP packet that are compared in addition to its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OuterPayload<'a> {
    protocol: u8,
    bytes: &'a [u8],
    fragment: Option<FragmentFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FragmentFacts {
    identification: u32,
    is_first: bool,
    /// Protocol, which is given in every fragment of the packet.
    protocol: u8,
}

impl LoopGuard {
    /// Creates a guard for the outer packets of `endpoint`, whose remote addresses are [`Endpoint::remote`] and
    /// `remotes`. Addresses of another family are ignored.
    pub fn new(endpoint: &Endpoint, remotes: impl IntoIterator<Item = IpAddr>) -> Self {
        let mark = match (&endpoint.carrier, &endpoint.header) {
            (Carrier::Udp(udp) | Carrier::Gue(udp) | Carrier::DirectGue(udp), _) => {
                Mark::Port(udp.destination)
            }
            (Carrier::Ip, Header::Ip) => {
                Mark::Protocols([ipv4::PROTOCOL_IPV4, ipv4::PROTOCOL_IPV6])
            }
            (Carrier::Ip, _) => Mark::Protocols([ipv4::PROTOCOL_GRE; 2]),
        };
        let remotes = core::iter::once(endpoint.remote).chain(remotes);
        Self::with(OuterAddresses::new(endpoint.local, remotes), mark)
    }

    /// Creates a guard for the outer packets of an association in tunnel mode. Returns `None` for transport mode, in
    /// which a loop ends by itself: fragments are not encrypted, so a returning packet grows until it is too long.
    #[cfg(feature = "esp")]
    #[must_use]
    pub fn of_esp(association: &SecurityAssociation) -> Option<Self> {
        let ends = match association.mode {
            EspMode::Transport => return None,
            EspMode::Tunnel(Outer::V4 { source, destination }) => {
                OuterAddresses::new(source.into(), [destination.into()])
            }
            EspMode::Tunnel(Outer::V6 { source, destination }) => {
                OuterAddresses::new(source.into(), [destination.into()])
            }
        };
        let port = association.udp_ports.map(|ports| ports.destination);
        Some(Self::with(ends, Mark::Spi { spi: association.spi, port }))
    }

    fn with(ends: OuterAddresses, mark: Mark) -> Self {
        Self { ends, mark, fragments: Vec::with_capacity(FRAGMENTS_MAX), oldest: 0 }
    }

    /// Returns whether a frame is an outer packet of the tunnel, or a fragment of one. `head` must contain all headers;
    /// `now_ns` is the current time in nanoseconds.
    pub fn is_own(&mut self, head: &[u8], link: LinkType, now_ns: u64) -> bool {
        let Some(packet) = network(head, link) else { return false };
        match self.ends.remote(packet) {
            Some(remote) => self.is_own_packet(packet, remote, now_ns),
            None => false,
        }
    }

    /// Returns whether a packet between the endpoints' addresses is an outer packet.
    fn is_own_packet(&mut self, packet: &[u8], remote: u8, now_ns: u64) -> bool {
        let Some(payload) = OuterPayload::of(packet) else { return false };
        let Some(fragment) = payload.fragment else { return self.mark.is_on(&payload) };
        let FragmentFacts { identification, protocol, .. } = fragment;
        let key = FragmentKey { identification, remote, protocol };
        if !fragment.is_first {
            return self.remembers(key, now_ns);
        }
        let is_own = self.mark.is_on(&payload);
        if is_own {
            self.remember(FirstFragment { key, seen_ns: now_ns });
        }
        is_own
    }

    fn remember(&mut self, fragment: FirstFragment) {
        if self.fragments.len() < FRAGMENTS_MAX {
            self.fragments.push(fragment);
        } else if let Some(oldest) = self.fragments.get_mut(self.oldest) {
            *oldest = fragment;
            self.oldest = (self.oldest + 1) % FRAGMENTS_MAX;
        }
    }

    fn remembers(&self, key: FragmentKey, now_ns: u64) -> bool {
        self.fragments.iter().any(|first| {
            first.key == key && now_ns.saturating_sub(first.seen_ns) <= FRAGMENT_AGE_NS
        })
    }
}

impl OuterAddresses {
    fn new(local: IpAddr, remotes: impl IntoIterator<Item = IpAddr>) -> Self {
        let remotes = remotes.into_iter();
        match local {
            IpAddr::V4(local) => Self::V4 {
                local: local.octets(),
                remotes: remotes
                    .filter_map(|remote| match remote {
                        IpAddr::V4(remote) => Some(remote.octets()),
                        IpAddr::V6(_) => None,
                    })
                    .collect(),
            },
            IpAddr::V6(local) => Self::V6 {
                local: local.octets(),
                remotes: remotes
                    .filter_map(|remote| match remote {
                        IpAddr::V6(remote) => Some(remote.octets()),
                        IpAddr::V4(_) => None,
                    })
                    .collect(),
            },
        }
    }

    /// Returns the index of the remote address that is the packet's destination, or `None` if the packet does not go
    /// from the local address to a remote one.
    fn remote(&self, packet: &[u8]) -> Option<u8> {
        let version = packet.first()? >> 4;
        match self {
            Self::V4 { local, remotes } => {
                let is_from_here =
                    version == 4 && packet.get(ipv4::field::SOURCE)? == local.as_slice();
                is_from_here.then(|| position(remotes, packet.get(ipv4::field::DESTINATION)))?
            }
            Self::V6 { local, remotes } => {
                let is_from_here =
                    version == 6 && packet.get(ipv6::field::SOURCE)? == local.as_slice();
                is_from_here.then(|| position(remotes, packet.get(ipv6::field::DESTINATION)))?
            }
        }
    }
}

fn position<const BYTES: usize>(remotes: &[[u8; BYTES]], address: Option<&[u8]>) -> Option<u8> {
    let address = address?;
    let index = remotes.iter().position(|remote| remote.as_slice() == address)?;
    // All remote addresses from the 256th on share an index, which only helps to tell fragments apart.
    Some(u8::try_from(index).unwrap_or(u8::MAX))
}

impl Mark {
    /// Returns whether a payload has this mark. The payload must not be that of a later fragment.
    fn is_on(self, payload: &OuterPayload<'_>) -> bool {
        let is_udp_to = |port: u16| {
            let destination = payload.bytes.get(udp::field::DESTINATION_PORT);
            payload.protocol == ipv4::PROTOCOL_UDP && destination == Some(&port.to_be_bytes()[..])
        };
        match self {
            Self::Protocols(protocols) => protocols.contains(&payload.protocol),
            Self::Port(port) => is_udp_to(port),
            #[cfg(feature = "esp")]
            Self::Spi { spi, port } => {
                let at = match port {
                    None if payload.protocol == ipv4::PROTOCOL_ESP => 0,
                    Some(port) if is_udp_to(port) => udp::HEADER_LEN,
                    _ => return false,
                };
                payload.bytes.get(at..at + 4) == Some(&spi.to_be_bytes()[..])
            }
        }
    }
}

impl<'a> OuterPayload<'a> {
    /// Returns the payload of an IP packet, or `None` if its headers are truncated.
    fn of(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::of_v4(packet),
            6 => Self::of_v6(packet),
            _ => None,
        }
    }

    fn of_v4(packet: &'a [u8]) -> Option<Self> {
        let header_len = usize::from(packet.first()? & 0xf) * 4;
        if header_len < ipv4::HEADER_LEN {
            return None;
        }
        let bytes = packet.get(header_len..)?;
        let protocol = *packet.get(ipv4::field::PROTOCOL.start)?;
        let word = u16_at(packet, ipv4::field::FRAGMENT.start);
        let is_fragment = word & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0;
        let fragment = is_fragment.then(|| FragmentFacts {
            identification: u16_at(packet, ipv4::field::IDENTIFICATION.start).into(),
            is_first: word & ipv4::OFFSET_MASK == 0,
            protocol,
        });
        Some(Self { protocol, bytes, fragment })
    }

    fn of_v6(packet: &'a [u8]) -> Option<Self> {
        let mut protocol = *packet.get(ipv6::field::NEXT_HEADER.start)?;
        let mut bytes = packet.get(ipv6::HEADER_LEN..)?;
        let mut fragment = None;
        for _ in 0..EXTENSIONS_MAX {
            let len = match protocol {
                ipv6::NEXT_HOP_BY_HOP | ipv6::NEXT_ROUTING | ipv6::NEXT_DESTINATION_OPTIONS => {
                    8 + 8 * usize::from(*bytes.get(1)?)
                }
                ipv6::NEXT_FRAGMENT => ipv6_fragment::HEADER_LEN,
                _ => break,
            };
            let (header, behind) = bytes.split_at_checked(len)?;
            let is_fragment = protocol == ipv6::NEXT_FRAGMENT;
            (protocol, bytes) = (header[0], behind);
            if is_fragment {
                let word = u16_at(header, ipv6_fragment::field::FRAGMENT.start);
                let offset = word & ipv6_fragment::OFFSET_MASK;
                if word & ipv6_fragment::MORE_FRAGMENTS == 0 && offset == 0 {
                    continue;
                }
                fragment = Some(FragmentFacts {
                    identification: u32_at(header, ipv6_fragment::field::IDENTIFICATION.start),
                    is_first: offset == 0,
                    protocol,
                });
                if offset != 0 {
                    break;
                }
            }
        }
        Some(Self { protocol, bytes, fragment })
    }
}

/// Returns the outermost IP packet of a frame.
fn network(head: &[u8], link: LinkType) -> Option<&[u8]> {
    match link {
        LinkType::Raw => Some(head),
        LinkType::Ethernet => {
            let mut at = ethernet::field::ETHERTYPE.start;
            for _ in 0..=TAGS_MAX {
                let ethertype = u16::from_be_bytes(*head.get(at..)?.first_chunk()?);
                match ethertype {
                    ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6 => {
                        return head.get(at + 2..);
                    }
                    tag if vlan::ETHERTYPES.contains(&tag) => at += vlan::HEADER_LEN,
                    _ => break,
                }
            }
            network_behind(head, link)
        }
        _ => network_behind(head, link),
    }
}

/// Returns the outermost IP packet after any kind of link layer, for example PPPoE.
fn network_behind(head: &[u8], link: LinkType) -> Option<&[u8]> {
    let stack = dissect(head, link, &Ports::NONE);
    let ip = stack.layers().iter().find(|layer| layer.kind.is_ip())?;
    head.get(usize::from(ip.offset)..)
}

/// Maximum number of first fragments that are remembered, at 16 bytes each. The kernel sends the fragments of a packet
/// back to back, so one entry per sending CPU suffices.
pub const FRAGMENTS_MAX: usize = 256;
/// Time in nanoseconds for which a first fragment is remembered. Later fragments follow immediately in the same queue,
/// and a 16-bit identification is reused after 65536 packets.
pub const FRAGMENT_AGE_NS: u64 = 1_000_000_000;
/// Maximum number of VLAN tags that are read without dissecting the frame.
const TAGS_MAX: usize = 2;
/// Maximum number of IPv6 extension headers that are skipped to find the protocol.
const EXTENSIONS_MAX: usize = 8;

#[cfg(test)]
mod tests;
