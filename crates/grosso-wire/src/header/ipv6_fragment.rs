//! The IPv6 fragment header (RFC 8200 section 4.5).
//!
//! ```text
//!  0        1          2                4                        8
//! +--------+----------+----------------+------------------------+
//! |  next  | reserved | offset |res| M |     identification     |
//! +--------+----------+----------------+------------------------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;

/// Bit of the offset word: more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x0001;
/// Bits of the offset word: offset in bytes, a multiple of 8.
pub const OFFSET_MASK: u16 = 0xfff8;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Next header.
    pub const NEXT_HEADER: Range<usize> = 0..1;
    /// Reserved.
    pub const RESERVED: Range<usize> = 1..2;
    /// Offset, two reserved bits, and the M bit.
    pub const FRAGMENT: Range<usize> = 2..4;
    /// Identification.
    pub const IDENTIFICATION: Range<usize> = 4..8;
}

layout::assert_layout! {
    Ipv6FragmentHeader, HEADER_LEN;
    NEXT_HEADER = next_header,
    RESERVED = reserved,
    FRAGMENT = fragment,
    IDENTIFICATION = identification,
}

/// IPv6 fragment header.
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
pub struct Ipv6FragmentHeader {
    /// Protocol number of the first header of the fragmentable part.
    pub next_header: u8,
    /// Reserved, 0.
    pub reserved: u8,
    /// Offset, two reserved bits, and the M bit.
    pub fragment: U16,
    /// Identification, which is the same in all fragments of a datagram.
    pub identification: U32,
}

impl Ipv6FragmentHeader {
    /// Parses the header and returns it with its payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the fragment offset in bytes, which must be a multiple of 8, and the M bit.
    pub fn set_fragment(&mut self, offset: usize, more: bool) -> Result<(), Malformed> {
        let word = u16::try_from(offset).ok().filter(|word| word & !OFFSET_MASK == 0);
        let word = word.ok_or_else(|| Malformed::new(NAME, Reason::Value))?;
        let reserved = self.fragment.get() & !(OFFSET_MASK | MORE_FRAGMENTS);
        self.fragment.set(word | reserved | u16::from(more));
        Ok(())
    }

    /// Returns the offset of the payload in its datagram, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.fragment.get() & OFFSET_MASK)
    }

    /// Returns whether more fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Returns whether the payload is a whole datagram (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.fragment.get() & (OFFSET_MASK | MORE_FRAGMENTS) == 0
    }
}

/// Formats the header like `frag6 next 17 id 0x00000007 offset 1448+`.
impl fmt::Display for Ipv6FragmentHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (next, id, offset) = (self.next_header, self.identification, self.fragment_offset());
        let more = if self.more_fragments() { "+" } else { "" };
        write!(f, "{NAME} next {next} id {id:#010x} offset {offset}{more}")
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for the fragment header. Only IPv6 announces it, and packets with it never merge.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "frag6",
    class: Class::Extension,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Extension },
    structure: Structure::Bits(&[]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::Ipv6Fragment, HEADER_LEN)?;
    // An atomic fragment is a whole packet (RFC 6946). Two bits are reserved.
    let atomic = u16_at(header, 2) & (OFFSET_MASK | MORE_FRAGMENTS) == 0;
    if atomic { Ok(Next::AfterIpv6(header[0])) } else { Err(Stop::Fragment) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 8] = [17, 0, 0x05, 0xa9, 0x12, 0x34, 0x56, 0x78];

    fn header() -> Ipv6FragmentHeader {
        let mut header = Ipv6FragmentHeader {
            next_header: 17,
            identification: 0x1234_5678.into(),
            ..Ipv6FragmentHeader::default()
        };
        header.set_fragment(1448, true).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        assert_eq!(Ipv6FragmentHeader::parse(&bytes), Ok((&header(), &b"payload"[..])));
        assert_eq!((header().fragment_offset(), header().more_fragments()), (1448, true));
        assert_refuses_prefixes(&BYTES, |bytes| Ipv6FragmentHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn atomic_whatever_the_reserved_bits_are() {
        for (word, atomic) in [(0, true), (6, true), (1, false), (8, false), (9, false)] {
            let header =
                Ipv6FragmentHeader { fragment: U16::new(word), ..Ipv6FragmentHeader::default() };
            assert_eq!(header.is_atomic(), atomic, "{word:#x}");
        }
    }

    #[test]
    fn places_that_do_not_fit_are_refused() {
        let mut header = Ipv6FragmentHeader { fragment: 6.into(), ..Ipv6FragmentHeader::default() };
        assert!(header.set_fragment(4, false).is_err());
        assert!(header.set_fragment(65536, false).is_err());
        assert!(header.set_fragment(65528, false).is_ok());
        assert_eq!(header.fragment.get(), 0xfffe);
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "frag6 next 17 id 0x12345678 offset 1448+");
    }
}
