//! IPv4 (RFC 791 section 3.1).
//!
//! ```text
//!  0        1        2                 4
//! +---+----+--------+-----------------+
//! |ver|IHL |  TOS   |  total length   |
//! +---+----+--------+-----------------+ 4
//! | identification  |R|DF|MF| offset  |
//! +--------+--------+-----------------+ 8
//! |  TTL   |protocol| header checksum |
//! +--------+--------+-----------------+ 12
//! |              source               |
//! +-----------------------------------+ 16
//! |            destination            |
//! +-----------------------------------+ 20
//! |       options, 0 to 40 bytes      |
//! +- - - - - - - - - - - - - - - - - -+
//! ```

use core::fmt;
use core::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Cover, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail, ethernet, vxlan,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of the options in bytes.
pub const OPTIONS_LEN_MAX: usize = 40;
/// Minimum MTU of a link in bytes: longer packets may be fragmented (RFC 791 section 3.2).
pub const MTU_MIN: u16 = 68;

/// ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// IPv4-in-IP.
pub const PROTOCOL_IPV4: u8 = 4;
/// TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// IPv6-in-IP.
pub const PROTOCOL_IPV6: u8 = 41;
/// GRE.
pub const PROTOCOL_GRE: u8 = 47;
/// ESP.
pub const PROTOCOL_ESP: u8 = 50;
/// MPLS-in-IP (RFC 4023).
pub const PROTOCOL_MPLS: u8 = 137;

/// Reserved bit of the fragment word.
pub const RESERVED: u16 = 0x8000;
/// DF bit of the fragment word.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// MF bit of the fragment word.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Fragment offset bits of the fragment word, in units of 8 bytes.
pub const OFFSET_MASK: u16 = 0x1fff;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and header length.
    pub const VERSION_IHL: Range<usize> = 0..1;
    /// Type of service: DSCP and ECN.
    pub const TOS: Range<usize> = 1..2;
    /// Total length.
    pub const TOTAL_LENGTH: Range<usize> = 2..4;
    /// Identification.
    pub const IDENTIFICATION: Range<usize> = 4..6;
    /// Reserved bit, DF, MF and fragment offset.
    pub const FRAGMENT: Range<usize> = 6..8;
    /// Time to live.
    pub const TTL: Range<usize> = 8..9;
    /// Protocol.
    pub const PROTOCOL: Range<usize> = 9..10;
    /// Header checksum.
    pub const CHECKSUM: Range<usize> = 10..12;
    /// Source address.
    pub const SOURCE: Range<usize> = 12..16;
    /// Destination address.
    pub const DESTINATION: Range<usize> = 16..20;
}

layout::assert_layout! {
    Ipv4Header, HEADER_LEN;
    VERSION_IHL = version_ihl,
    TOS = tos,
    TOTAL_LENGTH = total_length,
    IDENTIFICATION = identification,
    FRAGMENT = fragment,
    TTL = ttl,
    PROTOCOL = protocol,
    CHECKSUM = checksum,
    SOURCE = source,
    DESTINATION = destination,
}

/// Fixed part of the IPv4 header.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
pub struct Ipv4Header {
    /// Version in the high half, header length in 4-byte words in the low half.
    pub version_ihl: u8,
    /// DSCP in the high six bits, ECN in the low two.
    pub tos: u8,
    /// Length of the header and the payload in bytes, or 0 if the packet is longer than the field can express (rule
    /// G62).
    pub total_length: U16,
    /// Identification, which is the same in all fragments of a datagram.
    pub identification: U16,
    /// Reserved bit, DF, MF and fragment offset.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Checksum over the header including options.
    pub checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4Header {
    /// Parses the header and returns it with its options and payload. The payload ends at the total length or at the
    /// end of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, Ipv4Options<'_>, &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        let malformed = |reason| Err(Malformed::new(NAME, reason));
        if header.version() != 4 {
            return malformed(Reason::Version);
        }
        let (header_len, total_length) = (header.header_len(), header.total_length.into());
        if header_len < HEADER_LEN || (total_length < header_len && total_length != 0) {
            return malformed(Reason::Length);
        }
        let (options, payload) = layout::split_at(NAME, rest, header_len - HEADER_LEN)?;
        let payload = match total_length {
            0 => payload,
            _ => layout::clip(payload, total_length - header_len),
        };
        Ok((header, Ipv4Options(options), payload))
    }

    /// Writes the header with its options and returns the rest of the buffer. The header length is derived from
    /// `options`; the checksum is written unchanged.
    pub fn emit<'a>(
        &self,
        options: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        if options.len() > OPTIONS_LEN_MAX || !options.len().is_multiple_of(4) {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let words = ((HEADER_LEN + options.len()) / 4) as u8;
        let header = Self { version_ihl: self.version_ihl & 0xf0 | words, ..*self };
        layout::emit(NAME, &header, options, buffer)
    }

    /// Sets the DF bit.
    pub fn set_dont_fragment(&mut self, forbidden: bool) {
        let bit = if forbidden { DONT_FRAGMENT } else { 0 };
        self.fragment.set(self.fragment.get() & !DONT_FRAGMENT | bit);
    }

    /// Sets the fragment offset in bytes, which must be a multiple of 8, and the MF bit.
    pub fn set_fragment(&mut self, offset: usize, more: bool) -> Result<(), Malformed> {
        if !offset.is_multiple_of(8) || offset / 8 > usize::from(OFFSET_MASK) {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let more = if more { MORE_FRAGMENTS } else { 0 };
        let kept = self.fragment.get() & (RESERVED | DONT_FRAGMENT);
        self.fragment.set(kept | more | (offset / 8) as u16);
        Ok(())
    }

    /// Sets the two ECN bits to the low two bits of `ecn`.
    pub fn set_ecn(&mut self, ecn: u8) {
        self.tos = self.tos & !3 | ecn & 3;
    }

    /// Returns the version, which is 4.
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Returns the length of the header and its options in bytes, from the header length field.
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0x0f) * 4
    }

    /// Returns the differentiated services code point (RFC 2474).
    pub fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Returns the two ECN bits (RFC 3168): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Returns the DF bit.
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & DONT_FRAGMENT != 0
    }

    /// Returns the MF bit.
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Returns the offset of the payload in its datagram, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.fragment.get() & OFFSET_MASK) * 8
    }

    /// Returns whether the packet is a fragment.
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }
}

/// Returns a header without options or payload, with TTL 64 and all other fields zero.
impl Default for Ipv4Header {
    fn default() -> Self {
        Self {
            version_ihl: 0x45,
            tos: 0,
            total_length: U16::new(HEADER_LEN as u16),
            identification: U16::ZERO,
            fragment: U16::ZERO,
            ttl: 64,
            protocol: 0,
            checksum: U16::ZERO,
            source: [0; 4],
            destination: [0; 4],
        }
    }
}

/// Formats the header like `ip4 192.0.2.1 > 192.0.2.2 proto 6 id 8 ttl 64 len 1500`, with ` df` and ` frag 0+` if
/// applicable.
impl fmt::Display for Ipv4Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (Ipv4Addr::from(self.source), Ipv4Addr::from(self.destination));
        write!(f, "{NAME} {source} > {destination} proto {}", self.protocol)?;
        write!(f, " id {} ttl {} len {}", self.identification, self.ttl, self.total_length)?;
        if self.dont_fragment() {
            f.write_str(" df")?;
        }
        if self.is_fragment() {
            let more = if self.more_fragments() { "+" } else { "" };
            write!(f, " frag {}{more}", self.fragment_offset())?;
        }
        Ok(())
    }
}

/// IPv4 option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ipv4Option<'a> {
    /// End of the list: only padding follows, and the iterator ends.
    EndOfList,
    /// One byte of padding.
    NoOperation,
    /// Any other option: type and data.
    Unknown {
        /// Copied flag, class and number.
        kind: u8,
        /// Data after the length byte.
        data: &'a [u8],
    },
}

/// Iterator over the options in order. After an error for a truncated option, it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Options<'a>(&'a [u8]);

impl<'a> Ipv4Options<'a> {
    /// Creates an iterator over the encoded options.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the remaining options.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        match *bytes.first()? {
            0 => Some(Ok(Ipv4Option::EndOfList)),
            1 => {
                self.0 = &bytes[1..];
                Some(Ok(Ipv4Option::NoOperation))
            }
            _ => Some(layout::split_option(NAME, bytes, 2).map(|(kind, data, rest)| {
                self.0 = rest;
                Ipv4Option::Unknown { kind, data }
            })),
        }
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for IPv4 without options (RFC 791, rules G12 to G15).
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "ip4",
    class: Class::Network,
    announced: Announced {
        ethertypes: &[ethernet::ETHERTYPE_IPV4],
        tunnel_ethertypes: &[ethernet::ETHERTYPE_IPV4],
        protocols: &[PROTOCOL_IPV4],
        next_protocols: &[vxlan::NEXT_IPV4],
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("version and length", field::VERSION_IHL, Role::Form),
        Field::equal("tos", field::TOS, Role::TypeOfService).pinning(ECN << 56),
        Field::new("total length", field::TOTAL_LENGTH, Role::Length, Law::Length { skip: 0 })
            .shown(Notation::Number),
        Field::new("id", field::IDENTIFICATION, Role::Identification, Law::Identification)
            .shown(Notation::Number),
        Field::equal("fragment word", field::FRAGMENT, Role::Fragmentation)
            .pinning(!(DONT_FRAGMENT as u64) << 48)
            .shown(Notation::Hexadecimal),
        Field::equal("ttl", field::TTL, Role::TimeToLive),
        Field::equal("protocol", field::PROTOCOL, Role::Protocol),
        Field::new("checksum", field::CHECKSUM, Role::Checksum, Law::Checksum(Cover::Header))
            .shown(Notation::Number),
        Field::key("source", field::SOURCE, Role::Address),
        Field::key("destination", field::DESTINATION, Role::Address),
    ])),
    tail: Tail { name: "options", role: Role::Link },
    structure: Structure::Bits(&[(0, 0xff), (6, 0x3f), (7, 0xff), (9, 0xff)]),
    segmentation: Segmentation::Ip,
    remote_checksum: None,
    receive: None,
};

/// ECN bits (RFC 3168 section 5).
const ECN: u64 = 3;

#[inline(always)]
pub(super) fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let header_len = (header[0] & 0x0f) as usize * 4;
    let total_len = u16_at(header, 2) as usize;
    walk.jumbo = total_len == 0;
    let lengths_agree = total_len >= header_len || walk.jumbo;
    if header[0] >> 4 != 4 || header_len < HEADER_LEN || !lengths_agree {
        return Err(Stop::Malformed);
    }
    walk.push(Kind::Ipv4, header_len)?;
    walk.declare_ip(total_len.wrapping_sub(header_len));
    // The reserved bit and DF do not make the packet a fragment.
    if u16_at(header, 6) & (MORE_FRAGMENTS | OFFSET_MASK) != 0 {
        return Err(Stop::Fragment);
    }
    walk.after_ip(header[9], Next::Protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    /// A first fragment with the router alert option.
    const BYTES: [u8; 24] = [
        0x46, 0xba, 0x00, 0x1b, 0x12, 0x34, 0x61, 0x23, 0x3f, 0x11, 0xab, 0xcd, 192, 0, 2, 1, 192,
        0, 2, 2, 0x94, 4, 0, 0,
    ];

    fn header() -> Ipv4Header {
        let mut header = Ipv4Header {
            tos: 0xb8,
            total_length: 27.into(),
            identification: 0x1234.into(),
            ttl: 63,
            protocol: PROTOCOL_UDP,
            checksum: 0xabcd.into(),
            source: [192, 0, 2, 1],
            destination: [192, 0, 2, 2],
            ..Ipv4Header::default()
        };
        header.set_ecn(2);
        header.set_dont_fragment(true);
        header.set_fragment(0x123 * 8, true).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"abcpadding"].concat();
        let (parsed, options, payload) = Ipv4Header::parse(&bytes).unwrap();
        assert_eq!(*parsed, Ipv4Header { version_ihl: 0x46, ..header() });
        assert_eq!((parsed.version(), parsed.header_len()), (4, 24));
        assert_eq!((parsed.dscp(), parsed.ecn()), (46, 2));
        assert!(parsed.dont_fragment() && parsed.more_fragments() && parsed.is_fragment());
        assert_eq!(parsed.fragment_offset(), 2328);
        let options: Vec<_> = options.collect();
        assert_eq!(options, [Ok(Ipv4Option::Unknown { kind: 0x94, data: &[0, 0] })]);
        assert_eq!(payload, b"abc");
        assert_refuses_prefixes(&BYTES, |bytes| Ipv4Header::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(&BYTES[20..], buffer));
        let refusal = |options: &[u8]| header().emit(options, &mut [0; 80]).map(|_| ());
        assert_eq!(refusal(&[1; 3]), Err(Malformed::new("ip4", Reason::Value)));
        assert_eq!(refusal(&[1; 44]), Err(Malformed::new("ip4", Reason::Value)));
        assert_eq!(refusal(&[1; 40]), Ok(()));
    }

    #[test]
    fn contradictions_are_refused() {
        let reason = |version_ihl: u8, total_length: u16| {
            let header = Ipv4Header {
                version_ihl,
                total_length: total_length.into(),
                ..Ipv4Header::default()
            };
            let bytes = [header.as_bytes(), &[1; 44]].concat();
            Ipv4Header::parse(&bytes).map_err(|error| error.reason).err()
        };
        assert_eq!(reason(0x65, 20), Some(Reason::Version));
        assert_eq!(reason(0x44, 20), Some(Reason::Length));
        assert_eq!(reason(0x45, 19), Some(Reason::Length));
        assert_eq!(reason(0x46, 23), Some(Reason::Length));
        assert_eq!(reason(0x4f, 60), None);
        assert_eq!(reason(0x45, 0), None);
    }

    #[test]
    fn g62_length_zero_reaches_to_the_end() {
        let header = Ipv4Header { total_length: 0.into(), ..Ipv4Header::default() };
        let bytes = [header.as_bytes(), b"all of it"].concat();
        assert_eq!(Ipv4Header::parse(&bytes).unwrap().2, b"all of it");
    }

    #[test]
    fn options_end_with_the_list_or_with_an_error() {
        let list = |bytes| Ipv4Options::new(bytes).collect::<Vec<_>>();
        let cut = Malformed::new("ip4", Reason::Options);
        assert_eq!(
            list(&[1, 7, 3, 9, 0, 1]),
            [
                Ok(Ipv4Option::NoOperation),
                Ok(Ipv4Option::Unknown { kind: 7, data: &[9] }),
                Ok(Ipv4Option::EndOfList)
            ]
        );
        assert_eq!(list(&[7, 3]), [Err(cut)]);
        assert_eq!(list(&[7]), [Err(cut)]);
        assert_eq!(list(&[7, 1, 1, 1]), [Err(cut)]);
        assert_eq!(list(&[7, 0]), [Err(cut)]);
    }

    #[test]
    fn fragment_places_that_do_not_fit_are_refused() {
        let mut header = Ipv4Header::default();
        assert!(header.set_fragment(7, false).is_err());
        assert!(header.set_fragment(65536, false).is_err());
        assert!(header.set_fragment(65528, false).is_ok());
        assert_eq!((header.fragment_offset(), header.more_fragments()), (65528, false));
    }

    #[test]
    fn display() {
        let expected = "ip4 192.0.2.1 > 192.0.2.2 proto 17 id 4660 ttl 63 len 27 df frag 2328+";
        assert_eq!(header().to_string(), expected);
    }
}
