//! Network service header (RFC 8300), which contains a packet's service function path and its position in that path.
//!
//! ```text
//!  0                 2        3        4              7        8
//! +-----------------+--------+--------+--------------+--------+
//! |V|O|U|TTL|length |U|MD typ| next   | service path | index  |
//! +-----------------+--------+--------+--------------+--------+
//! | context: 16 bytes (type 1), or options (type 2)  ...
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Field, HeaderSpec, Layout, Layouts, Notation, Role, Segmentation, Structure,
    Tail, vxlan,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length in bytes of the base header and the service path header, without the context.
pub const HEADER_LEN: usize = 8;
/// Maximum header length in bytes: the 6-bit length field counts 4-byte words.
pub const LEN_MAX: usize = 252;

/// EtherType of the network service header.
pub const ETHERTYPE: u16 = 0x894f;

/// Bit of the first word: OAM packet.
pub const FLAG_OPERATIONS: u16 = 0x2000;
/// Metadata type: fixed-length context.
pub const METADATA_FIXED: u8 = 1;
/// Metadata type: variable-length context, possibly empty.
pub const METADATA_VARIABLE: u8 = 2;
/// Length in bytes of a header with a fixed-length context.
pub const LEN_FIXED: usize = 24;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version, flags, time to live and length.
    pub const FLAGS_TTL_LENGTH: Range<usize> = 0..2;
    /// Type of the context.
    pub const METADATA_TYPE: Range<usize> = 2..3;
    /// Type of the payload.
    pub const NEXT_PROTOCOL: Range<usize> = 3..4;
    /// Service path identifier.
    pub const SERVICE_PATH: Range<usize> = 4..7;
    /// Service index: position in the path.
    pub const SERVICE_INDEX: Range<usize> = 7..8;
}

layout::assert_layout! {
    NshHeader, HEADER_LEN;
    FLAGS_TTL_LENGTH = flags_ttl_length,
    METADATA_TYPE = metadata_type,
    NEXT_PROTOCOL = next_protocol,
    SERVICE_PATH = service_path,
    SERVICE_INDEX = service_index,
}

/// Network service header without its context.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
pub struct NshHeader {
    /// Version in the high two bits, flags, TTL in six bits, and length in 4-byte words in six bits.
    pub flags_ttl_length: U16,
    /// Type of the context, in the low four bits.
    pub metadata_type: u8,
    /// Type of the payload.
    pub next_protocol: u8,
    /// Service path identifier.
    pub service_path: [u8; 3],
    /// Service index: position in the path.
    pub service_index: u8,
}

impl NshHeader {
    /// Parses the header and returns it with its context and payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8], &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        if header.version() != 0 {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        if !is_length_of(header.metadata_type & METADATA_MASK, header.header_len()) {
            return Err(Malformed::new(NAME, Reason::Length));
        }
        let (context, payload) = layout::split_at(NAME, rest, header.header_len() - HEADER_LEN)?;
        Ok((header, context, payload))
    }

    /// Writes the header with its context and returns the rest of the buffer. The length field is derived from
    /// `context`, which must be a whole number of 4-byte words.
    pub fn emit<'a>(
        &self,
        context: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        let len = HEADER_LEN + context.len();
        let is_right = is_length_of(self.metadata_type & METADATA_MASK, len);
        if len > LEN_MAX || !len.is_multiple_of(4) || !is_right {
            return Err(Malformed::new(NAME, Reason::Length));
        }
        let mut header = *self;
        let word = self.flags_ttl_length.get() & !LENGTH_MASK | (len / 4) as u16;
        header.flags_ttl_length.set(word);
        layout::emit(NAME, &header, context, buffer)
    }

    /// Returns the version, which is 0.
    pub fn version(&self) -> u8 {
        (self.flags_ttl_length.get() >> 14) as u8
    }

    /// Returns the length of the header and its context in bytes, from the length field.
    pub fn header_len(&self) -> usize {
        usize::from(self.flags_ttl_length.get() & LENGTH_MASK) * 4
    }

    /// Returns the number of remaining hops between service functions.
    pub fn ttl(&self) -> u8 {
        (self.flags_ttl_length.get() >> TTL_SHIFT) as u8 & TTL_MAX
    }

    /// Sets the number of remaining hops (0 to 63).
    pub fn set_ttl(&mut self, ttl: u8) -> Result<(), Malformed> {
        if ttl > TTL_MAX {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let others = self.flags_ttl_length.get() & !(u16::from(TTL_MAX) << TTL_SHIFT);
        self.flags_ttl_length.set(others | u16::from(ttl) << TTL_SHIFT);
        Ok(())
    }

    /// Returns the 24-bit service path identifier.
    pub fn path(&self) -> u32 {
        let [a, b, c] = self.service_path;
        u32::from_be_bytes([0, a, b, c])
    }

    /// Sets the 24-bit service path identifier.
    pub fn set_path(&mut self, path: u32) -> Result<(), Malformed> {
        let [0, a, b, c] = path.to_be_bytes() else {
            return Err(Malformed::new(NAME, Reason::Value));
        };
        self.service_path = [a, b, c];
        Ok(())
    }
}

/// Returns the header of a packet at the start of path 0, without context.
impl Default for NshHeader {
    fn default() -> Self {
        let ttl = u16::from(TTL_MAX) << TTL_SHIFT;
        Self {
            flags_ttl_length: U16::new(ttl | (HEADER_LEN / 4) as u16),
            metadata_type: METADATA_VARIABLE,
            next_protocol: 0,
            service_path: [0; 3],
            service_index: 255,
        }
    }
}

/// Formats the header like `nsh path 7 index 255 ttl 63 next 3`.
impl fmt::Display for NshHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service_index, next_protocol, .. } = self;
        let (path, ttl) = (self.path(), self.ttl());
        write!(f, "{NAME} path {path} index {service_index} ttl {ttl} next {next_protocol}")
    }
}

/// Returns whether a header with this metadata type can have this length (RFC 8300 section 2.2).
fn is_length_of(metadata_type: u8, len: usize) -> bool {
    len >= HEADER_LEN && (metadata_type != METADATA_FIXED || len == LEN_FIXED)
}

const NAME: &str = SPEC.name;

const LENGTH_MASK: u16 = 0x3f;
const METADATA_MASK: u8 = 0x0f;
const TTL_MAX: u8 = 0x3f;
const TTL_SHIFT: u32 = 6;

/// Registry entry for NSH. Path and index are part of the flow: packets at different positions in their path are
/// different flows, like packets with different VLAN tags, and need not stay in order. TTL and context are equal in all
/// packets of a train.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "nsh",
    class: Class::Tunnel,
    announced: Announced {
        ethertypes: &[ETHERTYPE],
        tunnel_ethertypes: &[ETHERTYPE],
        next_protocols: &[vxlan::NEXT_NSH],
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("flags, TTL and length", field::FLAGS_TTL_LENGTH, Role::Tunnel)
            .shown(Notation::Hexadecimal),
        Field::equal("metadata type", field::METADATA_TYPE, Role::Tunnel),
        Field::equal("next protocol", field::NEXT_PROTOCOL, Role::Tunnel),
        Field::key("service path", field::SERVICE_PATH, Role::Channel).shown(Notation::Number),
        Field::key("service index", field::SERVICE_INDEX, Role::Channel),
    ])),
    tail: Tail { name: "context", role: Role::Tunnel },
    // All bits of the first word except the time to live.
    structure: Structure::Bits(&[(0, 0xf0), (1, 0x3f), (2, 0xff), (3, 0xff)]),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let word = u16_at(header, 0);
    let header_len = usize::from(word & LENGTH_MASK) * 4;
    let metadata_type = header[2] & METADATA_MASK;
    if word >> 14 != 0 || !is_length_of(metadata_type, header_len) {
        return Err(Stop::Malformed);
    }
    walk.push(Kind::Nsh, header_len)?;
    let is_known = matches!(metadata_type, METADATA_FIXED | METADATA_VARIABLE);
    if word & FLAG_OPERATIONS != 0 || !is_known {
        return Err(Stop::Unknown);
    }
    Ok(Next::Numbered(header[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 12] = [0x0f, 0xc3, 2, 3, 0, 0, 7, 255, 0, 1, 2, 0];

    fn header() -> NshHeader {
        let mut header = NshHeader { next_protocol: 3, ..NshHeader::default() };
        header.set_path(7).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (header, context, payload) = NshHeader::parse(&bytes).unwrap();
        assert_eq!((header.version(), header.header_len(), header.ttl()), (0, 12, 63));
        assert_eq!((header.path(), header.service_index), (7, 255));
        assert_eq!((context, payload), (&[0, 1, 2, 0][..], &b"payload"[..]));
        assert_refuses_prefixes(&BYTES, |bytes| NshHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(&[0, 1, 2, 0], buffer));
        let mut buffer = [0; 300];
        let reason = |context: &[u8], buffer: &mut [u8]| {
            header().emit(context, buffer).map_err(|error| error.reason).err()
        };
        assert_eq!(reason(&[0; 3], &mut buffer), Some(Reason::Length));
        assert_eq!(reason(&[0; 248], &mut buffer), Some(Reason::Length));
        assert_eq!(reason(&[0; 244], &mut buffer), None);
    }

    #[test]
    fn lengths_and_versions_that_contradict_are_refused() {
        let reason = |first: u8, second: u8, metadata_type: u8| {
            let mut bytes = [0; 32];
            bytes[..3].copy_from_slice(&[first, second, metadata_type]);
            NshHeader::parse(&bytes).map_err(|error| error.reason).err()
        };
        assert_eq!(reason(0x4f, 0xc2, 2), Some(Reason::Version));
        assert_eq!(reason(0x0f, 0xc1, 2), Some(Reason::Length));
        assert_eq!(reason(0x0f, 0xc2, 1), Some(Reason::Length));
        assert_eq!(reason(0x0f, 0xc6, 1), None);
        assert_eq!(reason(0x0f, 0xc2, 2), None);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let mut header = header();
        assert!(header.set_path(1 << 24).is_err() && header.set_ttl(64).is_err());
        header.set_ttl(1).unwrap();
        assert_eq!((header.ttl(), header.header_len()), (1, 8));
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "nsh path 7 index 255 ttl 63 next 3");
    }
}
