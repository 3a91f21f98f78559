//! UDP (RFC 768).
//!
//! ```text
//!  0               2               4               6               8
//! +---------------+---------------+---------------+---------------+
//! |  source port  |dest. port     |    length     |   checksum    |
//! +---------------+---------------+---------------+---------------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Cover, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail, ipv4,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Source port.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Length.
    pub const LENGTH: Range<usize> = 4..6;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 6..8;
}

layout::assert_layout! {
    UdpHeader, HEADER_LEN;
    SOURCE_PORT = source_port,
    DESTINATION_PORT = destination_port,
    LENGTH = length,
    CHECKSUM = checksum,
}

/// UDP header.
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
pub struct UdpHeader {
    /// Source port.
    pub source_port: U16,
    /// Destination port, by which the dissector recognizes tunnels.
    pub destination_port: U16,
    /// Length of the header and the payload in bytes, or 0 in a jumbogram (RFC 2675 section 4).
    pub length: U16,
    /// Checksum over the pseudo-header, header and payload, or 0 if there is none.
    pub checksum: U16,
}

impl UdpHeader {
    /// Parses the header and returns it with its payload, which ends at the declared length or at the end of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        let (header, payload): (&Self, _) = layout::split(NAME, bytes)?;
        match usize::from(header.length) {
            0 => Ok((header, payload)),
            1..HEADER_LEN => Err(Malformed::new(NAME, Reason::Length)),
            len => Ok((header, layout::clip(payload, len - HEADER_LEN))),
        }
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the length field for a payload of `bytes` bytes.
    pub fn set_payload_len(&mut self, bytes: usize) -> Result<(), Malformed> {
        let length = u16::try_from(bytes.saturating_add(HEADER_LEN));
        self.length.set(length.map_err(|_| Malformed::new(NAME, Reason::Value))?);
        Ok(())
    }

    /// Returns whether the header has a checksum.
    pub fn has_checksum(&self) -> bool {
        self.checksum.get() != 0
    }
}

/// Formats the header like `udp 49152 > 4789 len 1408`.
impl fmt::Display for UdpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source_port, self.destination_port);
        write!(f, "{NAME} {source} > {destination} len {}", self.length)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for UDP (RFC 768), as the transport of a train or around a tunnel (rules U11, T2, T3).
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "udp",
    class: Class::Transport,
    announced: Announced { protocols: &[ipv4::PROTOCOL_UDP], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::key("source port", field::SOURCE_PORT, Role::Port).shown(Notation::Number),
        Field::key("destination port", field::DESTINATION_PORT, Role::Port).shown(Notation::Number),
        Field::new("length", field::LENGTH, Role::Length, Law::Length { skip: 0 })
            .shown(Notation::Number),
        Field::new("checksum", field::CHECKSUM, Role::Checksum, Law::Checksum(COVER))
            .shown(Notation::Hexadecimal),
    ])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(2, 0xff), (3, 0xff)]),
    segmentation: Segmentation::Udp,
    remote_checksum: None,
    receive: None,
};

const COVER: Cover = Cover::Datagram { protocol: ipv4::PROTOCOL_UDP };

#[inline(always)]
pub(super) fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let length = u16_at(header, 4) as usize;
    walk.push(Kind::Udp, HEADER_LEN)?;
    match length.checked_sub(HEADER_LEN) {
        Some(payload_len) => walk.declare(payload_len),
        // RFC 2675 section 4: a UDP length of zero in a jumbogram means "to the end".
        None if length == 0 && walk.jumbo => {}
        None => return Err(Stop::Malformed),
    }
    Ok(Next::UdpPayload(u16_at(header, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 8] = [0xc0, 0x00, 0x12, 0xb5, 0x00, 0x0b, 0xab, 0xcd];

    fn header() -> UdpHeader {
        let mut header = UdpHeader {
            source_port: 0xc000.into(),
            destination_port: 4789.into(),
            checksum: 0xabcd.into(),
            ..UdpHeader::default()
        };
        header.set_payload_len(3).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"abcpadding"].concat();
        assert_eq!(UdpHeader::parse(&bytes), Ok((&header(), &b"abc"[..])));
        assert!(header().has_checksum());
        assert_refuses_prefixes(&BYTES, |bytes| UdpHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn length_zero_is_a_jumbogram_and_below_eight_malformed() {
        let bytes = |len| [0, 1, 0, 2, 0, len, 0, 0, b'a'];
        assert_eq!(UdpHeader::parse(&bytes(0)).unwrap().1, b"a");
        assert_eq!(UdpHeader::parse(&bytes(8)).unwrap().1, b"");
        for len in 1..8 {
            let reason = UdpHeader::parse(&bytes(len)).map_err(|error| error.reason).err();
            assert_eq!(reason, Some(Reason::Length));
        }
    }

    #[test]
    fn payload_beyond_the_field_is_refused() {
        let mut header = header();
        assert!(header.set_payload_len(65527).is_ok());
        assert!(header.set_payload_len(65528).is_err());
        assert_eq!(header.length.get(), 65535);
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "udp 49152 > 4789 len 11");
    }
}
