//! ESP (RFC 4303 section 2), and its encapsulation in UDP (RFC 3948 section 2).
//!
//! ```text
//!  0               4               8
//! +---------------+---------------+- - - - - - -
//! |      SPI      |   sequence    | encrypted
//! +---------------+---------------+- - - - - - -
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, AnnouncedByPort, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure,
    Tail, ipv4,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Step, Walk};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;

/// UDP port used by ESP and IKE for NAT traversal.
pub const PORT: u16 = 4500;
/// Payload of a NAT keepalive: a single byte (RFC 3948 section 2.3).
pub const KEEPALIVE: u8 = 0xff;
/// First payload bytes of IKE on the ESP port, in place of an SPI (RFC 3948 section 2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Security parameters index.
    pub const SPI: Range<usize> = 0..4;
    /// Sequence number.
    pub const SEQUENCE: Range<usize> = 4..8;
}

layout::assert_layout! {
    EspHeader, HEADER_LEN;
    SPI = spi,
    SEQUENCE = sequence,
}

/// ESP header.
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
pub struct EspHeader {
    /// Security parameters index, which is never 0 on the wire (RFC 4303 section 2.1).
    pub spi: U32,
    /// Sequence number.
    pub sequence: U32,
}

impl EspHeader {
    /// Parses the header and returns it with the encrypted bytes.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        let (header, payload): (&Self, _) = layout::split(NAME, bytes)?;
        if header.spi == U32::ZERO {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        Ok((header, payload))
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }
}

/// Returns whether a UDP payload to [`PORT`] is ESP rather than a keepalive or IKE (rule W70).
pub fn is_esp_in_udp(payload: &[u8]) -> bool {
    payload != [KEEPALIVE] && !payload.starts_with(&NON_ESP_MARKER)
}

/// Formats the header like `esp spi 0x00001000 seq 1`.
impl fmt::Display for EspHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} spi {:#010x} seq {}", self.spi, self.sequence)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for ESP. Packets with ESP never merge.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "esp",
    class: Class::Security,
    announced: Announced {
        protocols: &[ipv4::PROTOCOL_ESP],
        port: Some(AnnouncedByPort { assigned: PORT, title: "ESP", code: 6, read: read_in_udp }),
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read_in_udp(walk: &mut Walk<'_, '_>) -> Step {
    if is_esp_in_udp(walk.rest) { read(walk) } else { Err(Stop::Payload) }
}

fn read(walk: &mut Walk<'_, '_>) -> Step {
    walk.push(Kind::Esp, HEADER_LEN)?;
    Err(Stop::Encrypted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 8] = [0, 0, 0x10, 0, 0, 0, 0, 7];

    fn header() -> EspHeader {
        EspHeader { spi: 0x1000.into(), sequence: 7.into() }
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"hidden"].concat();
        assert_eq!(EspHeader::parse(&bytes), Ok((&header(), &b"hidden"[..])));
        assert_refuses_prefixes(&BYTES, |bytes| EspHeader::parse(bytes).map(|_| ()));
        assert!(EspHeader::parse(&[0, 0, 0, 0, 0, 0, 0, 7]).is_err());
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn w70_keepalive_and_ike_are_not_esp() {
        assert!(!is_esp_in_udp(&[0xff]));
        assert!(!is_esp_in_udp(&[0, 0, 0, 0, 1, 2, 3, 4]));
        assert!(is_esp_in_udp(&[0xff, 0xff]));
        assert!(is_esp_in_udp(&BYTES));
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "esp spi 0x00001000 seq 7");
    }
}
