//! Geneve (RFC 8926 section 3.4).
//!
//! ```text
//!  0            1            2                         4
//! +---+--------+-+-+--------+-------------------------+
//! |ver| length |O|C|reserved|        EtherType        |
//! +---+--------+-+-+--------+------------+------------+ 4
//! |                 VNI                  |  reserved  |
//! +--------------------------------------+------------+ 8
//! |              options, 0 to 252 bytes              |
//! +- - - - - - - - - - - - - - - - - - - - - - - - - -+
//! ```
//!
//! The length counts the 4-byte words of all options; the length of each option counts the words of its data:
//!
//! ```text
//!  0                         2            3            4
//! +-------------------------+------------+---+--------+
//! |          class          |    type    |   | length |
//! +-------------------------+------------+---+--------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, AnnouncedByPort, Class, Field, HeaderSpec, Layout, Layouts, Notation, Received,
    Refused, Role, Segmentation, Structure, Tail, ethernet,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;
/// Maximum length of the options in bytes.
pub const OPTIONS_LEN_MAX: usize = 252;

/// UDP port assigned by IANA.
pub const PORT: u16 = 6081;

/// O bit of the second byte: control packet.
pub const CONTROL: u8 = 0x80;
/// C bit of the second byte: critical options are present.
pub const CRITICAL: u8 = 0x40;
/// Bit of an option's type: receivers must not ignore the option.
pub const OPTION_CRITICAL: u8 = 0x80;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and length of the options.
    pub const VERSION_LENGTH: Range<usize> = 0..1;
    /// The O and C bits.
    pub const FLAGS: Range<usize> = 1..2;
    /// EtherType of the payload.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Network identifier.
    pub const VNI: Range<usize> = 4..7;
    /// Reserved.
    pub const RESERVED: Range<usize> = 7..8;
}

layout::assert_layout! {
    GeneveHeader, HEADER_LEN;
    VERSION_LENGTH = version_length,
    FLAGS = flags,
    PROTOCOL = protocol,
    VNI = vni,
    RESERVED = reserved,
}

/// Fixed part of the Geneve header.
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
pub struct GeneveHeader {
    /// Version in the high two bits; length of the options, in 4-byte words, in the low six bits.
    pub version_length: u8,
    /// The O and C bits and six reserved bits.
    pub flags: u8,
    /// EtherType of the payload.
    pub protocol: U16,
    /// Network identifier.
    pub vni: [u8; 3],
    /// Reserved, 0.
    pub reserved: u8,
}

impl GeneveHeader {
    /// Parses the header and returns it with its options and payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, GeneveOptions<'_>, &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        if header.version() != 0 {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        let (options, payload) = layout::split_at(NAME, rest, header.header_len() - HEADER_LEN)?;
        Ok((header, GeneveOptions(options), payload))
    }

    /// Writes the header with its options and returns the rest of the buffer. The length field is computed from
    /// `options`.
    pub fn emit<'a>(
        &self,
        options: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        if options.len() > OPTIONS_LEN_MAX || !options.len().is_multiple_of(4) {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let version_length = self.version_length & !LENGTH_MASK | (options.len() / 4) as u8;
        layout::emit(NAME, &Self { version_length, ..*self }, options, buffer)
    }

    /// Sets the 24-bit network identifier.
    pub fn set_vni(&mut self, vni: u32) -> Result<(), Malformed> {
        let [0, a, b, c] = vni.to_be_bytes() else {
            return Err(Malformed::new(NAME, Reason::Value));
        };
        self.vni = [a, b, c];
        Ok(())
    }

    /// Returns the version, which is 0.
    pub fn version(&self) -> u8 {
        self.version_length >> 6
    }

    /// Returns the length of the header and its options in bytes, from the length field.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + 4 * usize::from(self.version_length & LENGTH_MASK)
    }

    /// Returns the 24-bit network identifier.
    pub fn vni(&self) -> u32 {
        let [a, b, c] = self.vni;
        u32::from_be_bytes([0, a, b, c])
    }

    /// Returns whether this is a control packet, which must not be forwarded.
    pub fn is_control(&self) -> bool {
        self.flags & CONTROL != 0
    }

    /// Returns whether an option is critical.
    pub fn has_critical(&self) -> bool {
        self.flags & CRITICAL != 0
    }
}

/// Formats the header like `geneve vni 42 0x6558 len 16`, with ` control` and ` critical` if applicable.
impl fmt::Display for GeneveHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = if self.is_control() { " control" } else { "" };
        let critical = if self.has_critical() { " critical" } else { "" };
        let (vni, len) = (self.vni(), self.header_len());
        write!(f, "{NAME} vni {vni} {:#06x} len {len}{control}{critical}", self.protocol)
    }
}

/// Geneve option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// Namespace of the type, assigned to the organization that defined the option.
    pub class: u16,
    /// Option type, including [`OPTION_CRITICAL`].
    pub kind: u8,
    /// Data in whole 4-byte words, at most 31 of them.
    pub data: &'a [u8],
}

impl GeneveOption<'_> {
    /// Writes the option and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        let words = self.data.len() / 4;
        if !self.data.len().is_multiple_of(4) || words > usize::from(OPTION_LENGTH_MASK) {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let [high, low] = self.class.to_be_bytes();
        layout::emit(NAME, &[high, low, self.kind, words as u8], self.data, buffer)
    }

    /// Returns whether a receiver that does not support the option must drop the packet.
    pub fn is_critical(&self) -> bool {
        self.kind & OPTION_CRITICAL != 0
    }
}

/// Iterator over the options in order. After an error for a truncated option, it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOptions<'a>(&'a [u8]);

impl<'a> GeneveOptions<'a> {
    /// Creates an iterator over the encoded options.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the remaining options.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for GeneveOptions<'a> {
    type Item = Result<GeneveOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        let split = || {
            let (&[high, low, kind, len], rest) = bytes.split_first_chunk()?;
            let (data, rest) = rest.split_at_checked(4 * usize::from(len & OPTION_LENGTH_MASK))?;
            Some((GeneveOption { class: u16::from_be_bytes([high, low]), kind, data }, rest))
        };
        let option = split().map(|(option, rest)| {
            self.0 = rest;
            option
        });
        Some(option.ok_or_else(|| Malformed::new(NAME, Reason::Options)))
    }
}

const NAME: &str = SPEC.name;

const LENGTH_MASK: u8 = 0x3f;
const OPTION_LENGTH_MASK: u8 = 0x1f;

/// Registry entry for Geneve. The network identifier is part of the flow (rule T6).
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "geneve",
    class: Class::Tunnel,
    announced: Announced {
        port: Some(AnnouncedByPort { assigned: PORT, title: "Geneve", code: 3, read }),
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("version and length", field::VERSION_LENGTH, Role::Tunnel),
        Field::equal("flags", field::FLAGS, Role::Tunnel),
        Field::equal("protocol", field::PROTOCOL, Role::Tunnel).shown(Notation::Hexadecimal),
        Field::key("network", field::VNI, Role::Network),
        Field::equal("reserved byte", field::RESERVED, Role::Tunnel),
    ])),
    tail: Tail { name: "options", role: Role::Tunnel },
    structure: Structure::Bits(&[(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff)]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: Some(receive),
};

/// Checks rules W40 and W41: control messages carry no packet to forward, and the options must fill their space
/// exactly.
fn receive(header: &[u8]) -> Result<Received, Refused> {
    let flags = header.get(field::FLAGS.start).copied().unwrap_or(0);
    if flags & CONTROL != 0 {
        return Err(Refused::Control);
    }
    let mut has_critical = flags & CRITICAL != 0;
    for option in GeneveOptions::new(header.get(HEADER_LEN..).unwrap_or_default()) {
        has_critical |= option.map_err(|_| Refused::Options)?.is_critical();
    }
    Ok(Received { has_critical, ..Received::default() })
}

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    if header[0] >> 6 != 0 {
        return Err(Stop::Malformed);
    }
    walk.push(Kind::Geneve, HEADER_LEN + (header[0] & LENGTH_MASK) as usize * 4)?;
    match u16_at(header, 2) {
        ethernet::ETHERTYPE_BRIDGING => Ok(Next::Header(Kind::Ethernet)),
        ethernet::ETHERTYPE_IPV4 => Ok(Next::Header(Kind::Ipv4)),
        ethernet::ETHERTYPE_IPV6 => Ok(Next::Header(Kind::Ipv6)),
        _ => Err(Stop::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    const BYTES: [u8; 20] = [
        0x03, 0x40, 0x65, 0x58, 0x12, 0x34, 0x56, 0, 0x01, 0x02, 0x83, 1, 1, 2, 3, 4, 0x01, 0x00,
        5, 0,
    ];

    const OPTIONS: [GeneveOption<'static>; 2] = [
        GeneveOption { class: 0x0102, kind: 0x83, data: &[1, 2, 3, 4] },
        GeneveOption { class: 0x0100, kind: 5, data: &[] },
    ];

    fn header() -> GeneveHeader {
        let mut header =
            GeneveHeader { flags: CRITICAL, protocol: 0x6558.into(), ..GeneveHeader::default() };
        header.set_vni(0x12_3456).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (parsed, options, payload) = GeneveHeader::parse(&bytes).unwrap();
        assert_eq!(*parsed, GeneveHeader { version_length: 3, ..header() });
        assert_eq!((parsed.version(), parsed.header_len(), parsed.vni()), (0, 20, 0x12_3456));
        assert!(parsed.has_critical() && !parsed.is_control());
        assert!(options.eq(OPTIONS.map(Ok)));
        assert!(OPTIONS[0].is_critical() && !OPTIONS[1].is_critical());
        assert_eq!(payload, b"payload");
        assert_refuses_prefixes(&BYTES, |bytes| GeneveHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(&BYTES[8..], buffer));
        let mut buffer = [0; 300];
        assert!(header().emit(&[0; 252], &mut buffer).is_ok());
        assert!(header().emit(&[0; 256], &mut buffer).is_err());
        assert!(header().emit(&[0; 2], &mut buffer).is_err());
    }

    #[test]
    fn emit_options() {
        assert_emits(&BYTES[8..16], |buffer| OPTIONS[0].emit(buffer));
        assert_emits(&BYTES[16..], |buffer| OPTIONS[1].emit(buffer));
        let mut buffer = [0; 300];
        assert!(GeneveOption { data: &[0; 124], ..OPTIONS[0] }.emit(&mut buffer).is_ok());
        assert!(GeneveOption { data: &[0; 128], ..OPTIONS[0] }.emit(&mut buffer).is_err());
        assert!(GeneveOption { data: &[0; 3], ..OPTIONS[0] }.emit(&mut buffer).is_err());
    }

    #[test]
    fn other_versions_are_refused() {
        let bytes = [&[0x43], &BYTES[1..]].concat();
        assert_eq!(GeneveHeader::parse(&bytes), Err(Malformed::new("geneve", Reason::Version)));
    }

    #[test]
    fn options_end_with_an_error_when_cut() {
        let list = |bytes| GeneveOptions::new(bytes).collect::<Vec<_>>();
        let cut = Malformed::new("geneve", Reason::Options);
        assert_eq!(list(&BYTES[8..15]), [Err(cut)]);
        assert_eq!(list(&BYTES[8..19]), [Ok(OPTIONS[0]), Err(cut)]);
        // The three bits above the length are reserved.
        assert_eq!(list(&[1, 0, 5, 0xe0]), [Ok(OPTIONS[1])]);
    }

    #[test]
    fn display() {
        let (header, ..) = GeneveHeader::parse(&BYTES).unwrap();
        assert_eq!(header.to_string(), "geneve vni 1193046 0x6558 len 20 critical");
    }
}
