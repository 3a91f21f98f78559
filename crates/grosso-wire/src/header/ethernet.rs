//! Ethernet II (RFC 894).
//!
//! ```text
//!  0                   6                   12        14
//! +-------------------+-------------------+---------+
//! |    destination    |      source       |EtherType|
//! +-------------------+-------------------+---------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Field, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail,
    vxlan,
};
use crate::error::Malformed;
use crate::kind::Kind;
use crate::layout;
use crate::walk::{Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 14;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of an 802.1Q tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of an 802.1ad service tag.
pub const ETHERTYPE_VLAN_SERVICE: u16 = 0x88a8;
/// EtherType that switches used for service tags before 802.1ad.
pub const ETHERTYPE_VLAN_OLD: u16 = 0x9100;
/// EtherType of a PPPoE session.
pub const ETHERTYPE_PPPOE_SESSION: u16 = 0x8864;
/// EtherType of MPLS.
pub const ETHERTYPE_MPLS: u16 = 0x8847;
/// EtherType of MPLS with an upstream-assigned label; formerly multicast MPLS.
pub const ETHERTYPE_MPLS_MULTICAST: u16 = 0x8848;
/// EtherType of transparent Ethernet bridging: an Ethernet header follows a tunnel header.
pub const ETHERTYPE_BRIDGING: u16 = 0x6558;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Destination address.
    pub const DESTINATION: Range<usize> = 0..6;
    /// Source address.
    pub const SOURCE: Range<usize> = 6..12;
    /// EtherType.
    pub const ETHERTYPE: Range<usize> = 12..14;
}

layout::assert_layout! {
    EthernetHeader, HEADER_LEN;
    DESTINATION = destination,
    SOURCE = source,
    ETHERTYPE = ethertype,
}

/// Ethernet header.
#[repr(C)]
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
pub struct EthernetHeader {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// EtherType of the payload. Values below 0x0600 are 802.3 lengths, which are not supported.
    pub ethertype: U16,
}

impl EthernetHeader {
    /// Parses the header and returns it with its payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Returns whether the destination is a multicast address.
    pub fn is_multicast(&self) -> bool {
        self.destination[0] & 1 != 0
    }
}

/// Formats the header like `eth 02:00:00:00:00:01 > 02:00:00:00:00:02 0x0800`.
impl fmt::Display for EthernetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (Address(&self.source), Address(&self.destination));
        write!(f, "{NAME} {source} > {destination} {:#06x}", self.ethertype)
    }
}

/// Link-layer address, printed as hexadecimal bytes separated by colons.
pub(crate) struct Address<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let colon = if i > 0 { ":" } else { "" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for Ethernet. The addresses do not identify the flow: packets must stay in order when their path
/// moves to another router.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "eth",
    class: Class::Link,
    announced: Announced {
        tunnel_ethertypes: &[ETHERTYPE_BRIDGING],
        next_protocols: &[vxlan::NEXT_ETHERNET],
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("destination", field::DESTINATION, Role::Link),
        Field::equal("source", field::SOURCE, Role::Link),
        Field::equal("EtherType", field::ETHERTYPE, Role::Link),
    ])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(12, 0xff), (13, 0xff)]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

#[inline(always)]
pub(super) fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::Ethernet, HEADER_LEN)?;
    walk.after_ethernet(u16_at(header, 12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 14] =
        [0x03, 0, 0, 0, 0, 0x01, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x86, 0xdd];

    fn header() -> EthernetHeader {
        EthernetHeader {
            destination: [3, 0, 0, 0, 0, 1],
            source: [2, 0x11, 0x22, 0x33, 0x44, 0x55],
            ethertype: ETHERTYPE_IPV6.into(),
        }
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        assert_eq!(EthernetHeader::parse(&bytes), Ok((&header(), &b"payload"[..])));
        assert!(header().is_multicast());
        assert_refuses_prefixes(&BYTES, |bytes| EthernetHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "eth 02:11:22:33:44:55 > 03:00:00:00:00:01 0x86dd");
    }
}
