//! IPv6 extension headers with a common layout: hop-by-hop options, routing, destination options (RFC 8200 sections
//! 4.3, 4.4, 4.6).
//!
//! ```text
//!  0        1        2
//! +--------+--------+- - - - - - - - - - - - - - - -+
//! |  next  | length |  options, or routing data     |
//! +--------+--------+- - - - - - - - - - - - - - - -+
//! ```
//!
//! The length counts 8-byte units after the first one. The fragment header has [its own module](crate::ipv6_fragment).

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Length of the common part in bytes. A whole header is at least 8 bytes long.
pub const HEADER_LEN: usize = 2;
/// Maximum header length in bytes: 256 units.
pub const LEN_MAX: usize = 2048;

/// Option type: one byte of padding.
pub const OPTION_PAD1: u8 = 0;
/// Option type: several bytes of padding.
pub const OPTION_PADN: u8 = 1;
/// Option type: tunnel encapsulation limit (RFC 2473 section 4.1.1).
pub const OPTION_ENCAPSULATION_LIMIT: u8 = 4;
/// Option type: jumbo payload length (RFC 2675 section 2).
pub const OPTION_JUMBO: u8 = 0xc2;
/// Option type: home address (RFC 6275 section 6.3).
pub const OPTION_HOME_ADDRESS: u8 = 0xc9;
/// Length of a home address in bytes, without option type and length.
pub const HOME_ADDRESS_LEN: usize = 16;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Next header.
    pub const NEXT_HEADER: Range<usize> = 0..1;
    /// Length in 8-byte units, minus one.
    pub const LENGTH: Range<usize> = 1..2;
}

layout::assert_layout! {
    Ipv6ExtensionHeader, HEADER_LEN;
    NEXT_HEADER = next_header,
    LENGTH = length,
}

/// Next header and length: the fields common to IPv6 extension headers.
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
pub struct Ipv6ExtensionHeader {
    /// Protocol number of the next header.
    pub next_header: u8,
    /// Length in 8-byte units, minus one.
    pub length: u8,
}

impl Ipv6ExtensionHeader {
    /// Parses the header and returns it with its body and the bytes after it. Pass the body of a routing header to
    /// [`Routing::parse`], and the body of any other header to [`Ipv6Options::new`].
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8], &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        let (body, payload) = layout::split_at(NAME, rest, header.header_len() - HEADER_LEN)?;
        Ok((header, body, payload))
    }

    /// Writes the header with its body and returns the rest of the buffer. The length field is derived from `body`,
    /// which must fill whole 8-byte units.
    pub fn emit<'a>(&self, body: &[u8], buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        let len = HEADER_LEN + body.len();
        if !len.is_multiple_of(8) || len > LEN_MAX {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let header = Self { length: (len / 8 - 1) as u8, ..*self };
        layout::emit(NAME, &header, body, buffer)
    }

    /// Returns the length of the header and its body in bytes.
    pub fn header_len(&self) -> usize {
        (usize::from(self.length) + 1) * 8
    }
}

/// Formats the header like `ext6 next 6 len 8`.
impl fmt::Display for Ipv6ExtensionHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} next {} len {}", self.next_header, self.header_len())
    }
}

/// Body of a routing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing<'a> {
    /// Routing type: 2 mobile, 3 RPL, 4 segment routing.
    pub kind: u8,
    /// Number of listed nodes that are yet to be visited.
    pub segments_left: u8,
    /// Type-specific data.
    pub data: &'a [u8],
}

impl<'a> Routing<'a> {
    /// Parses the body of a routing header.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        match *body {
            [kind, segments_left, ref data @ ..] => Ok(Self { kind, segments_left, data }),
            _ => Err(Malformed::new(NAME, Reason::Short)),
        }
    }
}

/// IPv6 option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ipv6Option<'a> {
    /// Padding option with this many bytes, including type and length.
    Padding(usize),
    /// Length of a jumbogram's payload in bytes.
    JumboPayload(u32),
    /// Number of further tunnels that the packet may enter.
    EncapsulationLimit(u8),
    /// Any other option, or a known option with an unexpected length.
    Unknown {
        /// Option type: how nodes that do not support the option must react, change bit, and number.
        kind: u8,
        /// Data after the length byte.
        data: &'a [u8],
    },
}

/// Iterator over the options in order. After an error for a truncated option, it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Options<'a>(&'a [u8]);

impl<'a> Ipv6Options<'a> {
    /// Creates an iterator over the options in the body of a header.
    pub const fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// Returns the bytes of the remaining options.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Ipv6Options<'a> {
    type Item = Result<Ipv6Option<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        if *bytes.first()? == OPTION_PAD1 {
            self.0 = &bytes[1..];
            return Some(Ok(Ipv6Option::Padding(1)));
        }
        let option = layout::split_option(NAME, bytes, 0).map(|(kind, data, rest)| {
            self.0 = rest;
            match (kind, data) {
                (OPTION_PADN, _) => Ipv6Option::Padding(2 + data.len()),
                (OPTION_JUMBO, &[a, b, c, d]) => {
                    Ipv6Option::JumboPayload(u32::from_be_bytes([a, b, c, d]))
                }
                (OPTION_ENCAPSULATION_LIMIT, &[limit]) => Ipv6Option::EncapsulationLimit(limit),
                _ => Ipv6Option::Unknown { kind, data },
            }
        });
        Some(option)
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for extension headers. Only IPv6 announces them.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "ext6",
    class: Class::Extension,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Extension },
    structure: Structure::Bits(&[(0, 0xff), (1, 0xff)]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    read_options(walk, false)
}

/// Reads hop-by-hop options, which may declare the length of a jumbogram.
pub(crate) fn read_hop_by_hop(walk: &mut Walk<'_, '_>) -> Step {
    read_options(walk, true)
}

fn read_options(walk: &mut Walk<'_, '_>, is_hop_by_hop: bool) -> Step {
    let header = walk.peek::<8>()?;
    let header_len = (header[1] as usize + 1) * 8;
    let options = walk.rest.get(HEADER_LEN..header_len).ok_or(Stop::Truncated)?;
    let mut declared = None;
    if is_hop_by_hop && walk.jumbo && walk.last() == Some(Kind::Ipv6) {
        declared = jumbo_payload_len(options);
        // RFC 2675 section 3: the option is for payloads whose length the fixed header cannot express.
        if declared.is_some_and(|payload_len| payload_len <= 0xffff) {
            return Err(Stop::Malformed);
        }
    }
    walk.push(Kind::Ipv6Extension, header_len)?;
    if let Some(payload_len) = declared {
        walk.declare(payload_len as usize - header_len);
    }
    Ok(Next::AfterIpv6(header[0]))
}

/// Returns the value of the jumbo payload option (RFC 2675 section 2) among hop-by-hop options.
fn jumbo_payload_len(options: &[u8]) -> Option<u32> {
    Ipv6Options::new(options).find_map(|option| match option {
        Ok(Ipv6Option::JumboPayload(payload_len)) => Some(payload_len),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    /// Destination options as written by Linux tunnels (rule W61).
    const BYTES: [u8; 8] = [41, 0, 4, 1, 4, 1, 1, 0];

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (header, body, payload) = Ipv6ExtensionHeader::parse(&bytes).unwrap();
        assert_eq!((header.next_header, header.header_len()), (41, 8));
        let options: Vec<_> = Ipv6Options::new(body).collect();
        assert_eq!(options, [Ok(Ipv6Option::EncapsulationLimit(4)), Ok(Ipv6Option::Padding(3))]);
        assert_eq!(payload, b"payload");
        assert_refuses_prefixes(&BYTES, |bytes| Ipv6ExtensionHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        let header = Ipv6ExtensionHeader { next_header: 41, length: 99 };
        assert_emits(&BYTES, |buffer| header.emit(&BYTES[2..], buffer));
        let mut buffer = [0; 4096];
        assert!(header.emit(&[0; 7], &mut buffer).is_err());
        assert!(header.emit(&[0; 2046], &mut buffer).is_ok());
        assert_eq!(buffer[1], 255);
        assert!(header.emit(&[0; 2054], &mut buffer).is_err());
    }

    #[test]
    fn routing() {
        let bytes = [6, 2, 4, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let (_, body, payload) = Ipv6ExtensionHeader::parse(&bytes).unwrap();
        let routing = Routing::parse(body).unwrap();
        assert_eq!((routing.kind, routing.segments_left), (4, 1));
        assert_eq!((routing.data, payload), (&bytes[4..], &[][..]));
        assert!(Routing::parse(&[4]).is_err());
    }

    #[test]
    fn options_end_with_the_body_or_with_an_error() {
        let list = |body| Ipv6Options::new(body).collect::<Vec<_>>();
        let cut = Malformed::new("ext6", Reason::Options);
        assert_eq!(list(&[0xc2, 4, 0, 1, 0, 0]), [Ok(Ipv6Option::JumboPayload(0x10000))]);
        assert_eq!(
            list(&[0, 0xc2, 1, 7, 1, 0]),
            [
                Ok(Ipv6Option::Padding(1)),
                Ok(Ipv6Option::Unknown { kind: 0xc2, data: &[7] }),
                Ok(Ipv6Option::Padding(2)),
            ]
        );
        assert_eq!(list(&[5, 2, 0]), [Err(cut)]);
        assert_eq!(list(&[5]), [Err(cut)]);
    }

    #[test]
    fn display() {
        let (header, ..) = Ipv6ExtensionHeader::parse(&BYTES).unwrap();
        assert_eq!(header.to_string(), "ext6 next 41 len 8");
    }
}
