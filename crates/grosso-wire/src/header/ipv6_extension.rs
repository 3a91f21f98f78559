//! IPv6 extension headers of one shape: hop-by-hop options, routing, destination options (RFC 8200
//! sections 4.3, 4.4, 4.6).
//!
//! ```text
//!  0        1        2
//! +--------+--------+- - - - - - - - - - - - - - - -+
//! |  next  | length |  options, or routing data     |
//! +--------+--------+- - - - - - - - - - - - - - - -+
//! ```
//!
//! The length counts 8-byte units behind the first one. The fragment header has
//! [a file of its own](crate::ipv6_fragment).

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Bytes of the fixed header: the two that all have; none has fewer than 8 in all.
pub const HEADER_LEN: usize = 2;
/// Most bytes of a header: 256 units.
pub const LEN_MAX: usize = 2048;

/// Option type of one byte of padding.
pub const OPTION_PAD1: u8 = 0;
/// Option type of longer padding.
pub const OPTION_PADN: u8 = 1;
/// Option type of the tunnel encapsulation limit (RFC 2473 section 4.1.1).
pub const OPTION_ENCAPSULATION_LIMIT: u8 = 4;
/// Option type of the jumbo payload length (RFC 2675 section 2).
pub const OPTION_JUMBO: u8 = 0xc2;
/// Option type of the home address (RFC 6275 section 6.3).
pub const OPTION_HOME_ADDRESS: u8 = 0xc9;
/// Bytes of a home address option behind its type and length.
pub const HOME_ADDRESS_LEN: usize = 16;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Next header.
    pub const NEXT_HEADER: Range<usize> = 0..1;
    /// Length in 8-byte units, less one.
    pub const LENGTH: Range<usize> = 1..2;
}

layout::assert_layout! {
    Ipv6ExtensionHeader, HEADER_LEN;
    NEXT_HEADER = next_header,
    LENGTH = length,
}

/// The two bytes that all these headers start with.
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
    /// Length in 8-byte units, less one.
    pub length: u8,
}

impl Ipv6ExtensionHeader {
    /// The header, its body, and what follows. The body of a routing header is for
    /// [`Routing::parse`], that of the others for [`Ipv6Options::new`].
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8], &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        let (body, payload) = layout::split_at(NAME, rest, header.header_len() - HEADER_LEN)?;
        Ok((header, body, payload))
    }

    /// Writes the header and its body, and returns the buffer behind them. The length written is
    /// that of this body, whatever the field says; it must fill whole 8-byte units.
    pub fn emit<'a>(&self, body: &[u8], buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        let len = HEADER_LEN + body.len();
        if !len.is_multiple_of(8) || len > LEN_MAX {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let header = Self { length: (len / 8 - 1) as u8, ..*self };
        layout::emit(NAME, &header, body, buffer)
    }

    /// Bytes of the header with its body.
    pub fn header_len(&self) -> usize {
        (usize::from(self.length) + 1) * 8
    }
}

/// `ext6 next 6 len 8`.
impl fmt::Display for Ipv6ExtensionHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} next {} len {}", self.next_header, self.header_len())
    }
}

/// The body of a routing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing<'a> {
    /// Routing type: 2 mobile, 3 RPL, 4 segment routing.
    pub kind: u8,
    /// Number of listed nodes that are still to be visited.
    pub segments_left: u8,
    /// Data that depend on the type.
    pub data: &'a [u8],
}

impl<'a> Routing<'a> {
    /// The routing data in the body of a header.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        match *body {
            [kind, segments_left, ref data @ ..] => Ok(Self { kind, segments_left, data }),
            _ => Err(Malformed::new(NAME, Reason::Short)),
        }
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Option<'a> {
    /// Padding of this many bytes, its type and length included.
    Padding(usize),
    /// Bytes behind the fixed header of a jumbogram.
    JumboPayload(u32),
    /// Number of further tunnels that the packet may enter.
    EncapsulationLimit(u8),
    /// Any other option, or one of the above with another length than its own.
    Unknown {
        /// Action for nodes that do not know the option, change bit and number.
        kind: u8,
        /// The data behind the length byte.
        data: &'a [u8],
    },
}

/// The options of a header, in order. A cut option is the last item, and an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Options<'a>(&'a [u8]);

impl<'a> Ipv6Options<'a> {
    /// The options in the body of a header.
    pub const fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The bytes that are not yet iterated over.
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

/// Extension headers in the registry. IPv6 alone announces them.
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

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    read_options(walk, false)
}

/// Reads hop-by-hop options, which may declare the length of a jumbogram.
#[inline(always)]
pub(crate) fn read_hop_by_hop(walk: &mut Walk<'_, '_>) -> Step {
    read_options(walk, true)
}

#[inline(always)]
fn read_options(walk: &mut Walk<'_, '_>, is_hop_by_hop: bool) -> Step {
    let header = walk.peek::<8>()?;
    let header_len = (header[1] as usize + 1) * 8;
    let options = walk.rest.get(HEADER_LEN..header_len).ok_or(Stop::Truncated)?;
    let mut declared = None;
    if is_hop_by_hop && walk.jumbo && walk.last() == Some(Kind::Ipv6) {
        declared = jumbo_payload_len(options);
        // RFC 2675 section 3: the option is for payloads that the fixed header cannot express.
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

/// The value of the jumbo payload option (RFC 2675 section 2) among hop-by-hop options.
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

    /// Destination options as Linux tunnels write them (rule W61).
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
