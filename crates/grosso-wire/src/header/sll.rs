//! Linux cooked capture (`LINKTYPE_LINUX_SLL`), which libpcap writes for the device `any`.
//!
//! ```text
//!  0             2             4             6                 14         16
//! +-------------+-------------+-------------+-----------------+----------+
//! | packet type |  ARPHRD_    | address len |     address     |EtherType |
//! +-------------+-------------+-------------+-----------------+----------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use crate::error::Malformed;
use crate::ethernet::Address;
use crate::kind::Kind;
use crate::layout;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 16;

/// Packet type: to this host.
pub const TO_US: u8 = 0;
/// Packet type: broadcast.
pub const BROADCAST: u8 = 1;
/// Packet type: multicast.
pub const MULTICAST: u8 = 2;
/// Packet type: between other hosts.
pub const TO_OTHERS: u8 = 3;
/// Packet type: sent by this host.
pub const FROM_US: u8 = 4;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Packet type.
    pub const PACKET_TYPE: Range<usize> = 0..2;
    /// `ARPHRD_` number of the device.
    pub const DEVICE_TYPE: Range<usize> = 2..4;
    /// Length of the sender's address.
    pub const ADDRESS_LENGTH: Range<usize> = 4..6;
    /// Sender's address.
    pub const ADDRESS: Range<usize> = 6..14;
    /// EtherType.
    pub const ETHERTYPE: Range<usize> = 14..16;
}

layout::assert_layout! {
    SllHeader, HEADER_LEN;
    PACKET_TYPE = packet_type,
    DEVICE_TYPE = device_type,
    ADDRESS_LENGTH = address_length,
    ADDRESS = address,
    ETHERTYPE = ethertype,
}

/// Linux cooked capture header.
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
pub struct SllHeader {
    /// Packet type: direction and kind of destination.
    pub packet_type: U16,
    /// `ARPHRD_` number of the device.
    pub device_type: U16,
    /// Length of the sender's address in bytes, which may exceed the 8 recorded bytes.
    pub address_length: U16,
    /// Sender's address, padded with zeros.
    pub address: [u8; 8],
    /// EtherType of the payload.
    pub ethertype: U16,
}

impl SllHeader {
    /// Parses the header and returns it with its payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Returns the recorded part of the sender's address.
    pub fn address(&self) -> &[u8] {
        layout::clip(&self.address, self.address_length.into())
    }
}

/// Formats the header like `sll type 0 from 02:00:00:00:00:01 0x0800`.
impl fmt::Display for SllHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = (self.packet_type, Address(self.address()));
        write!(f, "{NAME} type {kind} from {address} {:#06x}", self.ethertype)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for Linux cooked capture.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "sll",
    class: Class::Link,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(14, 0xff), (15, 0xff)]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::Sll, HEADER_LEN)?;
    Ok(Next::EtherType(u16_at(header, 14)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 16] = [0, 4, 0, 1, 0, 6, 2, 3, 4, 5, 6, 7, 0, 0, 8, 0];

    fn header() -> SllHeader {
        SllHeader {
            packet_type: u16::from(FROM_US).into(),
            device_type: 1.into(),
            address_length: 6.into(),
            address: [2, 3, 4, 5, 6, 7, 0, 0],
            ethertype: 0x0800.into(),
        }
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        assert_eq!(SllHeader::parse(&bytes), Ok((&header(), &b"payload"[..])));
        assert_eq!(header().address(), [2, 3, 4, 5, 6, 7]);
        let long = SllHeader { address_length: 20.into(), ..header() };
        assert_eq!(long.address(), [2, 3, 4, 5, 6, 7, 0, 0]);
        assert_refuses_prefixes(&BYTES, |bytes| SllHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "sll type 4 from 02:03:04:05:06:07 0x0800");
    }
}
