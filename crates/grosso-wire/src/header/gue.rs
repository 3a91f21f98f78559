//! GUE (draft-ietf-intarea-gue-09) as implemented by Linux (rules W20 to W23).
//!
//! ```text
//!  0            1            2                         4
//! +---+-+------+------------+-------------------------+
//! |ver|C| hlen |  protocol  |          flags          |
//! +---+-+------+------------+-------------------------+ 4
//! |                   private flags                   |  if P
//! +---------------------------------------------------+
//! |      checksum start     |     checksum offset     |  if remote checksum offload
//! +---------------------------------------------------+
//! ```
//!
//! Variant 1 has no header: the version field of an IP header takes the place of the variant. The length counts 4-byte
//! words after the first; words after the optional fields are skipped.

use core::fmt;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, AnnouncedByPort, Class, HeaderSpec, Layout, Layouts, Received, Refused, Remote,
    Role, Segmentation, Structure, Tail,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 4;
/// Maximum header length in bytes: 31 words after the first.
pub const LEN_MAX: usize = 128;

/// UDP port assigned by IANA.
pub const PORT: u16 = 6080;

/// Control bit of the first byte.
pub const CONTROL: u8 = 0x20;
/// Private flags are present.
pub const FLAG_PRIVATE: u16 = 0x0001;
/// Remote checksum offload.
pub const PRIVATE_FLAG_REMOTE_CHECKSUM: u32 = 0x8000_0000;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Variant, control bit and length.
    pub const VERSION_LENGTH: Range<usize> = 0..1;
    /// IP protocol of the payload, or type of the control message.
    pub const PROTOCOL: Range<usize> = 1..2;
    /// Flags.
    pub const FLAGS: Range<usize> = 2..4;
}

layout::assert_layout! {
    GueHeader, HEADER_LEN;
    VERSION_LENGTH = version_length,
    PROTOCOL = protocol,
    FLAGS = flags,
}

/// Fixed part of the GUE header.
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
pub struct GueHeader {
    /// Variant in the high two bits, control bit, and length in 4-byte words after the first.
    pub version_length: u8,
    /// IP protocol of the payload, or type of the control message.
    pub protocol: u8,
    /// Flags.
    pub flags: U16,
}

/// Optional fields indicated by the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GueFields {
    /// Checksum that the receiver must complete.
    pub remote_checksum: Option<GueRemoteChecksum>,
}

/// Remote checksum offload (rule C51). Both offsets count from the end of the GUE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GueRemoteChecksum {
    /// Start of the sum in bytes.
    pub start: u16,
    /// Offset of the checksum field in bytes.
    pub offset: u16,
}

impl GueHeader {
    /// Parses the header as a receiver must (rule W21) and returns it with its optional fields and payload. Unknown
    /// flags are an error, because they could change the layout.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, GueFields, &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        if header.version() != 0 {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        let (space, payload) = layout::split_at(NAME, rest, header.header_len() - HEADER_LEN)?;
        Ok((header, header.fields(space)?, payload))
    }

    /// Writes the header with its optional fields and returns the rest of the buffer. The length and the flags are
    /// derived from `fields`.
    pub fn emit<'a>(
        &self,
        fields: &GueFields,
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        let mut header = Self { version_length: self.version_length & !LENGTH_MASK, ..*self };
        let Some(GueRemoteChecksum { start, offset }) = fields.remote_checksum else {
            header.flags.set(0);
            return layout::emit(NAME, &header, &[], buffer);
        };
        header.flags.set(FLAG_PRIVATE);
        header.version_length |= 2;
        let places = u32::from(start) << 16 | u32::from(offset);
        let tail = [U32::new(PRIVATE_FLAG_REMOTE_CHECKSUM), U32::new(places)];
        layout::emit(NAME, &header, tail.as_bytes(), buffer)
    }

    /// Returns the variant, which is 0 for this header.
    pub fn version(&self) -> u8 {
        self.version_length >> 6
    }

    /// Returns whether this is a control message, which carries no packet.
    pub fn is_control(&self) -> bool {
        self.version_length & CONTROL != 0
    }

    /// Returns the length in bytes of the header with its optional fields, from the length field.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + 4 * usize::from(self.version_length & LENGTH_MASK)
    }

    /// Returns the optional fields after the first word.
    fn fields(&self, space: &[u8]) -> Result<GueFields, Malformed> {
        let malformed = |reason| Malformed::new(NAME, reason);
        let word = |offset| {
            let bytes = space.get(offset..).and_then(|bytes| bytes.first_chunk());
            bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(|| malformed(Reason::Length))
        };
        let private = match self.flags.get() {
            0 => return Ok(GueFields::default()),
            FLAG_PRIVATE => word(0)?,
            _ => return Err(malformed(Reason::Flags)),
        };
        match private {
            0 => Ok(GueFields::default()),
            PRIVATE_FLAG_REMOTE_CHECKSUM => {
                let places = word(4)?;
                let (start, offset) = ((places >> 16) as u16, places as u16);
                Ok(GueFields { remote_checksum: Some(GueRemoteChecksum { start, offset }) })
            }
            _ => Err(malformed(Reason::Flags)),
        }
    }
}

/// Formats the header like `gue proto 4 flags 0x0001 len 12`, with ` control` for a control message.
impl fmt::Display for GueHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = if self.is_control() { " control" } else { "" };
        let (protocol, len) = (self.protocol, self.header_len());
        write!(f, "{NAME}{control} proto {protocol} flags {:#06x} len {len}", self.flags)
    }
}

const NAME: &str = SPEC.name;

const LENGTH_MASK: u8 = 0x1f;

/// Registry entry for GUE.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "gue",
    class: Class::Tunnel,
    announced: Announced {
        port: Some(AnnouncedByPort {
            assigned: PORT,
            title: "GUE",
            code: 4,
            read: read_either_variant,
        }),
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Tunnel },
    structure: Structure::Whole,
    segmentation: Segmentation::Nothing,
    remote_checksum: Some(remote_checksum),
    receive: Some(receive),
};

/// Reads a request for remote checksum offload (rule C51). Offsets count from the end of the whole header. If the
/// fields are truncated, the returned offsets match no header (rule C55).
fn remote_checksum(header: &[u8]) -> Option<Remote> {
    let word = |at: usize| Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    let flags = word(0)? as u16;
    if flags & FLAG_PRIVATE == 0 || word(HEADER_LEN)? & PRIVATE_FLAG_REMOTE_CHECKSUM == 0 {
        return None;
    }
    let places =
        |places: u32| Remote { start: (places >> 16) as usize, at: places as u16 as usize };
    Some(word(HEADER_LEN + 4).map_or(Remote::NOWHERE, places))
}

/// Checks rules W20 and W21: control messages carry no packet, and unknown flags change the layout.
fn receive(header: &[u8]) -> Result<Received, Refused> {
    let word = |at: usize| header.get(at..).and_then(|bytes| bytes.first_chunk::<4>().copied());
    let first = word(0).map(u32::from_be_bytes).ok_or(Refused::Flags)?;
    if header.first().is_none_or(|byte| byte & CONTROL != 0) {
        return Err(Refused::Control);
    }
    let private = word(HEADER_LEN).map_or(0, u32::from_be_bytes);
    match first as u16 {
        0 => Ok(Received::default()),
        FLAG_PRIVATE if private & !PRIVATE_FLAG_REMOTE_CHECKSUM == 0 => Ok(Received::default()),
        _ => Err(Refused::Flags),
    }
}

#[inline(always)]
fn read_either_variant(walk: &mut Walk<'_, '_>) -> Step {
    match walk.rest.first().ok_or(Stop::Truncated)? >> 6 {
        0 => read(walk),
        // Version nibble of the IP header that replaces the GUE header (rule W22).
        1 => Ok(Next::Ip),
        _ => Err(Stop::Malformed),
    }
}

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let header_len = HEADER_LEN + (header[0] & LENGTH_MASK) as usize * 4;
    let fields = walk.rest.get(HEADER_LEN..header_len).ok_or(Stop::Truncated)?;
    let private = match u16_at(header, 2) {
        0 => Some(0),
        FLAG_PRIVATE => {
            let word = fields.first_chunk::<4>().ok_or(Stop::Malformed)?;
            Some(u32::from_be_bytes(*word))
        }
        _ => None,
    };
    // Rule W21: remote checksum offload is the only private field, and its word must be present.
    if private == Some(PRIVATE_FLAG_REMOTE_CHECKSUM) && fields.len() < 8 {
        return Err(Stop::Malformed);
    }
    walk.push(Kind::Gue, header_len)?;
    let control = header[0] & CONTROL != 0;
    match private {
        Some(0 | PRIVATE_FLAG_REMOTE_CHECKSUM) if !control => Ok(Next::Protocol(header[1])),
        _ => Err(Stop::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 12] = [0x02, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, 36];

    const FIELDS: GueFields =
        GueFields { remote_checksum: Some(GueRemoteChecksum { start: 20, offset: 36 }) };

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (header, fields, payload) = GueHeader::parse(&bytes).unwrap();
        assert_eq!((header.version(), header.is_control(), header.header_len()), (0, false, 12));
        assert_eq!((header.protocol, fields, payload), (4, FIELDS, &b"payload"[..]));
        assert_refuses_prefixes(&BYTES, |bytes| GueHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        let header = GueHeader { version_length: 0x1f, protocol: 4, flags: 0xffff.into() };
        assert_emits(&BYTES, |buffer| header.emit(&FIELDS, buffer));
        assert_emits(&[0, 4, 0, 0], |buffer| header.emit(&GueFields::default(), buffer));
    }

    #[test]
    fn w21_fields_longer_than_the_header_and_unknown_flags_are_refused() {
        let reason = |bytes: &[u8]| GueHeader::parse(bytes).map_err(|error| error.reason).err();
        assert_eq!(reason(&[0x01, 4, 0, 1, 0x80, 0, 0, 0]), Some(Reason::Length));
        assert_eq!(reason(&[0x00, 4, 0, 1]), Some(Reason::Length));
        assert_eq!(reason(&[0x00, 4, 0, 2]), Some(Reason::Flags));
        assert_eq!(reason(&[0x02, 4, 0, 1, 0x40, 0, 0, 0, 0, 0, 0, 0]), Some(Reason::Flags));
        assert_eq!(reason(&[0x40, 4, 0, 0]), Some(Reason::Version));
        assert_eq!(reason(&[0x01, 4, 0, 1, 0, 0, 0, 0]), None);
    }

    #[test]
    fn w21_excess_space_is_skipped() {
        let bytes = [0x02, 4, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, b'a'];
        let (_, fields, payload) = GueHeader::parse(&bytes).unwrap();
        assert_eq!((fields, payload), (GueFields::default(), &b"a"[..]));
    }

    #[test]
    fn display() {
        let (header, ..) = GueHeader::parse(&BYTES).unwrap();
        assert_eq!(header.to_string(), "gue proto 4 flags 0x0001 len 12");
    }
}
