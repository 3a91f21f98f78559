//! ICMP (RFC 792) and ICMPv6 (RFC 4443): the 8-byte header that all messages share.
//!
//! ```text
//!  0        1        2               4                        8
//! +--------+--------+---------------+------------------------+
//! |  type  |  code  |   checksum    |  depends on the type   |
//! +--------+--------+---------------+------------------------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail, ipv4, ipv6,
};
use crate::error::Malformed;
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Step, Walk};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;

/// ICMP: echo reply.
pub const ECHO_REPLY: u8 = 0;
/// ICMP: echo request.
pub const ECHO_REQUEST: u8 = 8;
/// ICMP: time exceeded; code 1 means that reassembly timed out (rule F40).
pub const TIME_EXCEEDED: u8 = 11;
/// ICMPv6: time exceeded.
pub const V6_TIME_EXCEEDED: u8 = 3;
/// ICMPv6: parameter problem.
pub const V6_PARAMETER_PROBLEM: u8 = 4;
/// ICMPv6: echo request.
pub const V6_ECHO_REQUEST: u8 = 128;
/// ICMPv6: echo reply.
pub const V6_ECHO_REPLY: u8 = 129;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Message type.
    pub const KIND: Range<usize> = 0..1;
    /// Code.
    pub const CODE: Range<usize> = 1..2;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Content that depends on the type.
    pub const REST: Range<usize> = 4..8;
}

layout::assert_layout! {
    IcmpHeader, HEADER_LEN;
    KIND = kind,
    CODE = code,
    CHECKSUM = checksum,
    REST = rest,
}

/// ICMP header.
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
pub struct IcmpHeader {
    /// Message type; the numbers of ICMP and ICMPv6 differ.
    pub kind: u8,
    /// Code, which distinguishes messages of the same type.
    pub code: u8,
    /// Checksum over the message, which in ICMPv6 includes a pseudo-header.
    pub checksum: U16,
    /// Type-specific content: identifier and sequence number of an echo, pointer, MTU.
    pub rest: [u8; 4],
}

impl IcmpHeader {
    /// Parses the header and returns it with its payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the identifier and sequence number of an echo.
    pub fn set_echo(&mut self, identifier: u16, sequence: u16) {
        let (identifier, sequence) = (identifier.to_be_bytes(), sequence.to_be_bytes());
        self.rest = [identifier[0], identifier[1], sequence[0], sequence[1]];
    }

    /// Returns the identifier and sequence number of an echo message.
    pub fn echo(&self) -> (u16, u16) {
        let [a, b, c, d] = self.rest;
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }
}

/// Formats the header like `icmp type 8 code 0`.
impl fmt::Display for IcmpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} type {} code {}", self.kind, self.code)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for ICMP. Packets with ICMP never merge.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "icmp",
    class: Class::Control,
    announced: Announced { protocols: &[ipv4::PROTOCOL_ICMP, ipv6::NEXT_ICMP], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    walk.push(Kind::Icmp, HEADER_LEN)?;
    Err(Stop::Payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 8] = [8, 1, 0xab, 0xcd, 0x12, 0x34, 0x56, 0x78];

    fn header() -> IcmpHeader {
        let mut header =
            IcmpHeader { kind: ECHO_REQUEST, code: 1, checksum: 0xabcd.into(), rest: [0; 4] };
        header.set_echo(0x1234, 0x5678);
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        assert_eq!(IcmpHeader::parse(&bytes), Ok((&header(), &b"payload"[..])));
        assert_eq!(header().echo(), (0x1234, 0x5678));
        assert_refuses_prefixes(&BYTES, |bytes| IcmpHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "icmp type 8 code 1");
    }
}
