//! Linux cooked capture version 2 (`LINKTYPE_LINUX_SLL2`), which libpcap writes for the device `any`.
//!
//! ```text
//!  0         2          4           8        10      11      12                 20
//! +---------+----------+-----------+---------+-------+-------+------------------+
//! |EtherType| reserved | interface | ARPHRD_ | type  |length |     address      |
//! +---------+----------+-----------+---------+-------+-------+------------------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use crate::error::Malformed;
use crate::ethernet::Address;
use crate::kind::Kind;
use crate::layout;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 20;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// EtherType.
    pub const ETHERTYPE: Range<usize> = 0..2;
    /// Reserved.
    pub const RESERVED: Range<usize> = 2..4;
    /// Index of the interface.
    pub const INTERFACE: Range<usize> = 4..8;
    /// `ARPHRD_` number of the device.
    pub const DEVICE_TYPE: Range<usize> = 8..10;
    /// Packet type: direction and kind of destination.
    pub const PACKET_TYPE: Range<usize> = 10..11;
    /// Length of the sender's address.
    pub const ADDRESS_LENGTH: Range<usize> = 11..12;
    /// Sender's address.
    pub const ADDRESS: Range<usize> = 12..20;
}

layout::assert_layout! {
    Sll2Header, HEADER_LEN;
    ETHERTYPE = ethertype,
    RESERVED = reserved,
    INTERFACE = interface,
    DEVICE_TYPE = device_type,
    PACKET_TYPE = packet_type,
    ADDRESS_LENGTH = address_length,
    ADDRESS = address,
}

/// Linux cooked capture version 2 header.
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
pub struct Sll2Header {
    /// EtherType of the payload.
    pub ethertype: U16,
    /// Reserved, 0.
    pub reserved: U16,
    /// Interface index, starting at 1.
    pub interface: U32,
    /// `ARPHRD_` number of the device.
    pub device_type: U16,
    /// Packet type: direction and kind of destination, as in [`sll`](crate::sll).
    pub packet_type: u8,
    /// Length of the sender's address in bytes, which may exceed the 8 recorded bytes.
    pub address_length: u8,
    /// Sender's address, padded with zeros.
    pub address: [u8; 8],
}

impl Sll2Header {
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

/// Formats the header like `sll2 interface 3 type 0 from 02:00:00:00:00:01 0x0800`.
impl fmt::Display for Sll2Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interface, kind, address) =
            (self.interface, self.packet_type, Address(self.address()));
        let ethertype = self.ethertype;
        write!(f, "{NAME} interface {interface} type {kind} from {address} {ethertype:#06x}")
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for Linux cooked capture version 2.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "sll2",
    class: Class::Link,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(0, 0xff), (1, 0xff)]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::Sll2, HEADER_LEN)?;
    Ok(Next::EtherType(u16_at(header, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 20] = [0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 3, 4, 5, 6, 7, 0, 0];

    fn header() -> Sll2Header {
        Sll2Header {
            ethertype: 0x86dd.into(),
            reserved: 0.into(),
            interface: 3.into(),
            device_type: 1.into(),
            packet_type: crate::sll::FROM_US,
            address_length: 6,
            address: [2, 3, 4, 5, 6, 7, 0, 0],
        }
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        assert_eq!(Sll2Header::parse(&bytes), Ok((&header(), &b"payload"[..])));
        assert_eq!(header().address(), [2, 3, 4, 5, 6, 7]);
        let long = Sll2Header { address_length: 255, ..header() };
        assert_eq!(long.address(), [2, 3, 4, 5, 6, 7, 0, 0]);
        assert_refuses_prefixes(&BYTES, |bytes| Sll2Header::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn display() {
        let expected = "sll2 interface 3 type 4 from 02:03:04:05:06:07 0x86dd";
        assert_eq!(header().to_string(), expected);
    }
}
