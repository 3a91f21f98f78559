//! PPPoE session headers with their PPP protocol (RFC 2516 section 4).
//!
//! ```text
//!  0        1        2             4             6             8
//! +---+----+--------+-------------+-------------+-------------+
//! |ver|type|  code  |   session   |   length    |PPP protocol |
//! +---+----+--------+-------------+-------------+-------------+
//! ```
//!
//! The length counts the PPP protocol field and everything after it.

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Field, HeaderSpec, Law, Layout, Layouts, Role, Segmentation, Structure, Tail,
    ethernet,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;

/// First byte of every header: version 1, type 1.
pub const VERSION_TYPE: u8 = 0x11;
/// Code of session data.
pub const CODE_SESSION: u8 = 0;
/// PPP protocol of IPv4.
pub const PROTOCOL_IPV4: u16 = 0x0021;
/// PPP protocol of IPv6.
pub const PROTOCOL_IPV6: u16 = 0x0057;
/// Length in bytes of the PPP protocol field, which counts towards the length field.
pub const PROTOCOL_LEN: usize = 2;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and type.
    pub const VERSION_TYPE: Range<usize> = 0..1;
    /// Code.
    pub const CODE: Range<usize> = 1..2;
    /// Session identifier.
    pub const SESSION: Range<usize> = 2..4;
    /// Length of the PPP protocol field and everything after it.
    pub const LENGTH: Range<usize> = 4..6;
    /// PPP protocol.
    pub const PROTOCOL: Range<usize> = 6..8;
}

layout::assert_layout! {
    PppoeHeader, HEADER_LEN;
    VERSION_TYPE = version_type,
    CODE = code,
    SESSION = session,
    LENGTH = length,
    PROTOCOL = protocol,
}

/// PPPoE session header.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
pub struct PppoeHeader {
    /// Version and type, always [`VERSION_TYPE`].
    pub version_type: u8,
    /// [`CODE_SESSION`]; discovery packets have a different EtherType.
    pub code: u8,
    /// Session identifier.
    pub session: U16,
    /// Length of the PPP protocol field and the payload in bytes.
    pub length: U16,
    /// PPP protocol number of the payload.
    pub protocol: U16,
}

impl PppoeHeader {
    /// Parses the header and returns it with its payload, which ends at the declared length or at the end of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        let (header, payload): (&Self, _) = layout::split(NAME, bytes)?;
        if header.version_type != VERSION_TYPE {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        let payload_len = usize::from(header.length).checked_sub(PROTOCOL_LEN);
        let payload_len = payload_len.ok_or_else(|| Malformed::new(NAME, Reason::Length))?;
        Ok((header, layout::clip(payload, payload_len)))
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the length field for a payload of `bytes` bytes after the PPP protocol.
    pub fn set_payload_len(&mut self, bytes: usize) -> Result<(), Malformed> {
        let length = u16::try_from(bytes.saturating_add(PROTOCOL_LEN));
        self.length.set(length.map_err(|_| Malformed::new(NAME, Reason::Value))?);
        Ok(())
    }
}

/// Returns a header for session 0 without payload.
impl Default for PppoeHeader {
    fn default() -> Self {
        Self {
            version_type: VERSION_TYPE,
            code: CODE_SESSION,
            session: U16::ZERO,
            length: U16::new(PROTOCOL_LEN as u16),
            protocol: U16::ZERO,
        }
    }
}

/// Formats the header like `pppoe session 7 0x0021 len 42`.
impl fmt::Display for PppoeHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} session {} {:#06x} len {}", self.session, self.protocol, self.length)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for PPPoE sessions (RFC 2516, rule G5a). The length counts the PPP protocol field and everything
/// after it.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "pppoe",
    class: Class::Link,
    announced: Announced { ethertypes: &[ethernet::ETHERTYPE_PPPOE_SESSION], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("version and type", field::VERSION_TYPE, Role::Link),
        Field::equal("code", field::CODE, Role::Link),
        Field::key("session", field::SESSION, Role::Link),
        Field::new("length", field::LENGTH, Role::Length, Law::Length { skip: UNCOUNTED }),
        Field::equal("PPP protocol", field::PROTOCOL, Role::Link),
    ])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(0, 0xff), (1, 0xff), (6, 0xff), (7, 0xff)]),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: None,
};

/// Number of bytes at the start of the header that the length field does not include.
const UNCOUNTED: usize = HEADER_LEN - PROTOCOL_LEN;

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let length = u16_at(header, 4) as usize;
    if header[0] != VERSION_TYPE || length < PROTOCOL_LEN {
        return Err(Stop::Malformed);
    }
    if header[1] != CODE_SESSION {
        return Err(Stop::Unknown);
    }
    walk.push(Kind::Pppoe, HEADER_LEN)?;
    walk.declare(length - PROTOCOL_LEN);
    match u16_at(header, 6) {
        PROTOCOL_IPV4 => Ok(Next::Header(Kind::Ipv4)),
        PROTOCOL_IPV6 => Ok(Next::Header(Kind::Ipv6)),
        _ => Err(Stop::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 8] = [0x11, 0, 0x12, 0x34, 0, 5, 0, 0x57];

    fn header() -> PppoeHeader {
        let mut header = PppoeHeader {
            session: 0x1234.into(),
            protocol: PROTOCOL_IPV6.into(),
            ..PppoeHeader::default()
        };
        header.set_payload_len(3).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"abcpadding"].concat();
        assert_eq!(PppoeHeader::parse(&bytes), Ok((&header(), &b"abc"[..])));
        assert_eq!(PppoeHeader::parse(&bytes[..9]), Ok((&header(), &b"a"[..])));
        assert_refuses_prefixes(&BYTES, |bytes| PppoeHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn contradictions_are_refused() {
        let reason =
            |bytes: [u8; 8]| PppoeHeader::parse(&bytes).map_err(|error| error.reason).err();
        assert_eq!(reason([0x21, 0, 0, 1, 0, 2, 0, 0x21]), Some(Reason::Version));
        assert_eq!(reason([0x11, 0, 0, 1, 0, 1, 0, 0x21]), Some(Reason::Length));
        assert_eq!(reason([0x11, 0, 0, 1, 0, 2, 0, 0x21]), None);
        let mut header = header();
        assert!(header.set_payload_len(65533).is_ok());
        assert!(header.set_payload_len(65534).is_err());
        assert_eq!(header.length.get(), 65535);
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "pppoe session 4660 0x0057 len 5");
    }
}
