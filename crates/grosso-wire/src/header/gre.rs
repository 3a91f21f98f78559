//! GRE (RFC 2784) with key and sequence number (RFC 2890).
//!
//! ```text
//!  0                 2                 4
//! +-----------------+-----------------+
//! |C|R|K|S|s|  |ver |    EtherType    |
//! +-----------------+-----------------+ 4
//! |    checksum     |    reserved     |  if C
//! +-----------------+-----------------+
//! |                key                |  if K
//! +-----------------------------------+
//! |          sequence number          |  if S
//! +-----------------------------------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Cover, Field, HeaderSpec, Law, Layout, Layouts, Notation, Received, Refused,
    Role, Segmentation, Structure, Tail, ipv4,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 4;
/// Maximum header length in bytes, with all three optional fields.
pub const LEN_MAX: usize = 16;

/// Checksum and reserved word are present.
pub const FLAG_CHECKSUM: u16 = 0x8000;
/// Routing is present (RFC 1701). Obsolete and not supported.
pub const FLAG_ROUTING: u16 = 0x4000;
/// A key is present.
pub const FLAG_KEY: u16 = 0x2000;
/// A sequence number is present.
pub const FLAG_SEQUENCE: u16 = 0x1000;
/// Version bits of the flag word.
pub const VERSION_MASK: u16 = 0x0007;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Flags and version.
    pub const FLAGS: Range<usize> = 0..2;
    /// EtherType of the payload.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Checksum, if the flags indicate one.
    pub const CHECKSUM: Range<usize> = 4..6;
}

layout::assert_layout! {
    GreHeader, HEADER_LEN;
    FLAGS = flags,
    PROTOCOL = protocol,
}

/// Fixed part of the GRE header.
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
pub struct GreHeader {
    /// Flags and version.
    pub flags: U16,
    /// EtherType of the payload.
    pub protocol: U16,
}

/// Optional fields, as the flags indicate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GreFields {
    /// Checksum over the header and the payload, followed by a reserved word of 0.
    pub checksum: Option<u16>,
    /// Key that identifies the tunnel.
    pub key: Option<u32>,
    /// Sequence number.
    pub sequence: Option<u32>,
}

impl GreHeader {
    /// Parses the header and returns it with its optional fields and payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, GreFields, &[u8]), Malformed> {
        let (header, mut rest): (&Self, _) = layout::split(NAME, bytes)?;
        if header.version() != 0 {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        if header.flags.get() & FLAG_ROUTING != 0 {
            return Err(Malformed::new(NAME, Reason::Flags));
        }
        let mut word = |flag| -> Result<Option<u32>, Malformed> {
            if header.flags.get() & flag == 0 {
                return Ok(None);
            }
            let (word, behind): (&U32, _) = layout::split(NAME, rest)?;
            rest = behind;
            Ok(Some(word.get()))
        };
        let checksum = word(FLAG_CHECKSUM)?.map(|word| (word >> 16) as u16);
        let fields = GreFields { checksum, key: word(FLAG_KEY)?, sequence: word(FLAG_SEQUENCE)? };
        Ok((header, fields, rest))
    }

    /// Writes the header with its optional fields and returns the rest of the buffer. The C, K and S flags are derived
    /// from `fields`; the checksum is written unchanged.
    pub fn emit<'a>(
        &self,
        fields: &GreFields,
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        let words = [
            (FLAG_CHECKSUM, fields.checksum.map(|checksum| u32::from(checksum) << 16)),
            (FLAG_KEY, fields.key),
            (FLAG_SEQUENCE, fields.sequence),
        ];
        let mut flags = self.flags.get() & !(FLAG_CHECKSUM | FLAG_KEY | FLAG_SEQUENCE);
        let mut tail = [U32::ZERO; 3];
        let mut count = 0;
        for (flag, word) in words {
            if let Some(word) = word {
                flags |= flag;
                tail[count].set(word);
                count += 1;
            }
        }
        let header = Self { flags: flags.into(), ..*self };
        layout::emit(NAME, &header, tail[..count].as_bytes(), buffer)
    }

    /// Returns the version: 0, or 1 for PPTP.
    pub fn version(&self) -> u8 {
        (self.flags.get() & VERSION_MASK) as u8
    }

    /// Returns the length of the header and its optional fields in bytes, from the flags.
    pub fn header_len(&self) -> usize {
        let fields = self.flags.get() & (FLAG_CHECKSUM | FLAG_KEY | FLAG_SEQUENCE);
        HEADER_LEN + 4 * fields.count_ones() as usize
    }
}

/// Formats the header like `gre flags 0x2000 0x0800`.
impl fmt::Display for GreHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} flags {:#06x} {:#06x}", self.flags, self.protocol)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for GRE (RFC 2784, RFC 2890, rule T21). The key is part of the flow.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "gre",
    class: Class::Tunnel,
    announced: Announced { protocols: &[ipv4::PROTOCOL_GRE], ..Announced::NEVER },
    read,
    layouts: Layouts::Chosen(layout_of),
    tail: Tail { name: "content", role: Role::Tunnel },
    structure: Structure::Bits(&[(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff)]),
    segmentation: Segmentation::Gre,
    remote_checksum: None,
    receive: Some(receive),
};

/// Returns the fields up to the key, which follows the checksum if there is one.
fn layout_of(header: &[u8]) -> &'static Layout {
    let flags = header.first().map_or(0, |high| u16::from(*high) << 8);
    match (flags & FLAG_CHECKSUM != 0, flags & FLAG_KEY != 0) {
        (false, false) => &PLAIN,
        (false, true) => &KEYED,
        (true, false) => &SUMMED,
        (true, true) => &SUMMED_AND_KEYED,
    }
}

const FLAGS: Field = Field::equal("flags", field::FLAGS, Role::Tunnel).shown(Notation::Hexadecimal);
const PROTOCOL: Field =
    Field::equal("protocol", field::PROTOCOL, Role::Tunnel).shown(Notation::Hexadecimal);
const CHECKSUM: Field =
    Field::new("checksum", field::CHECKSUM, Role::Checksum, Law::Checksum(Cover::Packet))
        .shown(Notation::Hexadecimal);
const RESERVED: Field =
    Field::equal("reserved word", 6..8, Role::Tunnel).shown(Notation::Hexadecimal);

static PLAIN: Layout = Layout::new(&[FLAGS, PROTOCOL]);
static KEYED: Layout = Layout::new(&[FLAGS, PROTOCOL, key_at(4)]);
static SUMMED: Layout = Layout::new(&[FLAGS, PROTOCOL, CHECKSUM, RESERVED]);
static SUMMED_AND_KEYED: Layout = Layout::new(&[FLAGS, PROTOCOL, CHECKSUM, RESERVED, key_at(8)]);

const fn key_at(start: usize) -> Field {
    Field::key("key", start..start + 4, Role::Channel).shown(Notation::Number)
}

/// Checks rules W50 and W51. Unlike Linux, which also ignores the bits that RFC 2784 section 2.3 requires to be zero,
/// this function ignores only the bits that the RFC requires receivers to ignore.
fn receive(header: &[u8]) -> Result<Received, Refused> {
    let flags = header.first_chunk().map_or(u16::MAX, |flags| u16::from_be_bytes(*flags));
    if flags & (FLAG_ROUTING | MUST_BE_ZERO | VERSION_MASK) != 0 {
        return Err(Refused::Flags);
    }
    Ok(Received::default())
}

/// Bits 4 and 5: a receiver without support for RFC 1701 discards packets that have them set.
const MUST_BE_ZERO: u16 = 0x0c00;

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let flags = u16_at(header, 0);
    // Routing (RFC 1701) and other versions change the layout, so only the base word is known.
    if flags & (FLAG_ROUTING | VERSION_MASK) != 0 {
        walk.push(Kind::Gre, HEADER_LEN)?;
        return Err(Stop::Unknown);
    }
    let optional = flags & (FLAG_CHECKSUM | FLAG_KEY | FLAG_SEQUENCE);
    walk.push(Kind::Gre, HEADER_LEN + 4 * optional.count_ones() as usize)?;
    Ok(Next::Tunnelled(u16_at(header, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 16] =
        [0xb0, 0, 0x65, 0x58, 0xab, 0xcd, 0, 0, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 7];

    const FIELDS: GreFields =
        GreFields { checksum: Some(0xabcd), key: Some(0x1122_3344), sequence: Some(7) };

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (header, fields, payload) = GreHeader::parse(&bytes).unwrap();
        assert_eq!((header.version(), header.header_len()), (0, 16));
        assert_eq!(header.protocol.get(), crate::ethernet::ETHERTYPE_BRIDGING);
        assert_eq!((fields, payload), (FIELDS, &b"payload"[..]));
        assert_refuses_prefixes(&BYTES, |bytes| GreHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        let header = GreHeader { flags: 0.into(), protocol: 0x6558.into() };
        assert_emits(&BYTES, |buffer| header.emit(&FIELDS, buffer));
    }

    #[test]
    fn each_field_alone() {
        let header = GreHeader { flags: 0xb000.into(), protocol: 0x0800.into() };
        let none = GreFields::default();
        let key = GreFields { key: Some(1), ..none };
        let sequence = GreFields { sequence: Some(2), ..none };
        let checksum = GreFields { checksum: Some(3), ..none };
        let cases: [(GreFields, &[u8]); 4] = [
            (none, &[0, 0, 8, 0]),
            (key, &[0x20, 0, 8, 0, 0, 0, 0, 1]),
            (sequence, &[0x10, 0, 8, 0, 0, 0, 0, 2]),
            (checksum, &[0x80, 0, 8, 0, 0, 3, 0, 0]),
        ];
        for (fields, bytes) in cases {
            assert_emits(bytes, |buffer| header.emit(&fields, buffer));
            assert_eq!(GreHeader::parse(bytes).unwrap().1, fields);
        }
        assert_eq!(BYTES[field::CHECKSUM], [0xab, 0xcd]);
    }

    #[test]
    fn w50_versions_and_routing_are_refused() {
        let reason = |flags: u16| {
            let [high, low] = flags.to_be_bytes();
            let bytes = [high, low, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            GreHeader::parse(&bytes).map_err(|error| error.reason).err()
        };
        assert_eq!(reason(0x0001), Some(Reason::Version));
        assert_eq!(reason(0x4000), Some(Reason::Flags));
        assert_eq!(reason(0x0ff8), None);
    }

    #[test]
    fn display() {
        let (header, ..) = GreHeader::parse(&BYTES).unwrap();
        assert_eq!(header.to_string(), "gre flags 0xb000 0x6558");
    }
}
