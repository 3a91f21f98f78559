//! Identities of datagrams and their flows.

use core::{
    hash::{BuildHasher, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::keyed_hash::KeyedHash;

/// Fields that all fragments of a datagram share (rule F1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Source and destination addresses, big-endian. For IPv4, the first word holds both.
    pub(crate) addresses: [u64; 4],
    pub(crate) identification: u32,
    /// Protocol, for IPv4 only.
    pub(crate) protocol: u8,
    pub(crate) is_ipv6: bool,
    /// Whether the datagram is complete in its only fragment and independent of other fragments (RFC 6946).
    pub(crate) is_atomic: bool,
    /// Seeded hash of the VLAN, session and tunnel identifiers in the outer headers.
    pub(crate) outside: u64,
}

impl Key {
    pub(crate) fn hash(&self, state: &KeyedHash) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u64(self.addresses[0]);
        if self.is_ipv6 {
            self.addresses[1..].iter().for_each(|&word| hasher.write_u64(word));
        }
        let version = u64::from(self.is_ipv6) << 40 | u64::from(self.is_atomic) << 41;
        let protocol = u64::from(self.protocol) << 32 | version;
        hasher.write_u64(u64::from(self.identification) | protocol);
        hasher.write_u64(self.outside);
        hasher.finish()
    }

    /// Returns the hash of the source: an IPv4 address, or the first 64 bits of an IPv6 address, because one host may
    /// choose the remaining bits freely.
    pub(crate) fn source_hash(&self, state: &KeyedHash) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u64(self.addresses[0] >> if self.is_ipv6 { 0 } else { 32 });
        hasher.write_u64(u64::from(self.is_ipv6));
        hasher.finish()
    }

    pub(crate) fn identity(&self) -> Identity {
        let [a, b, c, d] = self.addresses;
        let wide = |high: u64, low: u64| {
            IpAddr::V6(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)))
        };
        let (source, destination) = match self.is_ipv6 {
            true => (wide(a, b), wide(c, d)),
            false => {
                (IpAddr::V4(Ipv4Addr::from((a >> 32) as u32)), IpAddr::V4(Ipv4Addr::from(a as u32)))
            }
        };
        let protocol = (!self.is_ipv6).then_some(self.protocol);
        let (identification, outside) = (self.identification, self.outside);
        Identity { source, destination, identification, protocol, outside }
    }
}

/// Identity of a fragmented datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Identification: 16 bits in IPv4, 32 bits in IPv6.
    pub identification: u32,
    /// IP protocol, which is part of the identity in IPv4 only.
    pub protocol: Option<u8>,
    /// Seeded hash of the outer identifiers (VLAN, session and tunnel), or 0 if there are none.
    pub outside: u64,
}

/// Flow of a datagram, read from its first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Flow {
    /// Transport protocol.
    pub protocol: u8,
    /// Offset of the transport header in the datagram's data, in bytes. It is greater than 0 if there are IPv6
    /// extension headers.
    pub transport: u16,
    /// Source and destination port, if the protocol has ports.
    pub ports: Option<[u16; 2]>,
}
