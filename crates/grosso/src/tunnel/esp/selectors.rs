//! Addresses of the packets that an association carries (RFC 4301 sections 5.1 and 5.2).

use alloc::vec::Vec;
use core::net::IpAddr;

use grosso_wire::{ipv4, ipv6};

/// Addresses that packets must have, from the sender's point of view. An empty list matches all addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Source prefixes.
    pub sources: Vec<Prefix>,
    /// Destination prefixes.
    pub destinations: Vec<Prefix>,
}

impl Selectors {
    /// Selectors that match all packets.
    pub const ALL: Self = Self { sources: Vec::new(), destinations: Vec::new() };

    /// Returns whether both addresses of the IP packet at the start of `packet` match.
    pub(super) fn carry(&self, packet: &[u8]) -> bool {
        if self.sources.is_empty() && self.destinations.is_empty() {
            return true;
        }
        let (source, destination) = match packet.first().map(|first| first >> 4) {
            Some(4) => (ipv4::field::SOURCE, ipv4::field::DESTINATION),
            _ => (ipv6::field::SOURCE, ipv6::field::DESTINATION),
        };
        let among = |prefixes: &[Prefix], field| {
            let Some(address) = packet.get(field) else { return false };
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.holds(address))
        };
        among(&self.sources, source) && among(&self.destinations, destination)
    }
}

/// Address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u32,
}

impl Prefix {
    /// Creates the prefix of the first `bits` bits of `address`. Returns `None` if `bits` exceeds the length of the
    /// address or if one of the remaining bits is set.
    #[must_use]
    pub fn new(address: IpAddr, bits: u32) -> Option<Self> {
        let (value, len) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let rest = value.checked_shl(bits).unwrap_or(0);
        (bits <= len && rest == 0).then_some(Self { address, bits })
    }

    fn holds(&self, address: &[u8]) -> bool {
        match self.address {
            IpAddr::V4(own) => shares(&own.octets(), address, self.bits),
            IpAddr::V6(own) => shares(&own.octets(), address, self.bits),
        }
    }
}

/// Returns whether two addresses belong to the same family and start with the same bits.
fn shares(own: &[u8], other: &[u8], bits: u32) -> bool {
    let (bytes, rest) = (bits as usize / 8, bits % 8);
    if own.len() != other.len() || own[..bytes] != other[..bytes] {
        return false;
    }
    let mask = !(0xff_u8 >> rest);
    own.get(bytes).zip(other.get(bytes)).is_none_or(|(own, other)| (own ^ other) & mask == 0)
}
