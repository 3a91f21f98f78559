//! BSD loopback (`LINKTYPE_NULL`): the address family, in the capturing host's byte order.
//!
//! ```text
//!  0                4
//! +----------------+
//! |     family     |
//! +----------------+
//! ```

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use crate::error::Malformed;
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 4;

/// `AF_INET`, on every system.
pub const FAMILY_IPV4: u32 = 2;
/// `AF_INET6` on Linux.
pub const FAMILY_IPV6_LINUX: u32 = 10;
/// `AF_INET6` on NetBSD and OpenBSD.
pub const FAMILY_IPV6_NETBSD: u32 = 24;
/// `AF_INET6` on FreeBSD.
pub const FAMILY_IPV6_FREEBSD: u32 = 28;
/// `AF_INET6` on macOS.
pub const FAMILY_IPV6_MACOS: u32 = 30;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Address family.
    pub const FAMILY: Range<usize> = 0..4;
}

layout::assert_layout! {
    NullHeader, HEADER_LEN;
    FAMILY = family,
}

/// BSD loopback header.
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
pub struct NullHeader {
    /// Bytes of the address family, whose byte order is not recorded.
    pub family: [u8; 4],
}

impl NullHeader {
    /// Creates a header with the address family in this host's byte order.
    pub const fn new(family: u32) -> Self {
        Self { family: family.to_ne_bytes() }
    }

    /// Parses the header and returns it with its payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Returns the address family. All families are below 256, so the smaller of the two possible values is the right
    /// one.
    pub const fn family(&self) -> u32 {
        let (big, little) = (u32::from_be_bytes(self.family), u32::from_le_bytes(self.family));
        if big < little { big } else { little }
    }
}

/// Formats the header like `null family 2`.
impl fmt::Display for NullHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} family {}", self.family())
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for BSD loopback.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "null",
    class: Class::Link,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Whole,
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = NullHeader { family: *walk.peek()? };
    walk.push(Kind::Null, HEADER_LEN)?;
    match header.family() {
        FAMILY_IPV4 => Ok(Next::Header(Kind::Ipv4)),
        FAMILY_IPV6_LINUX | FAMILY_IPV6_NETBSD | FAMILY_IPV6_FREEBSD | FAMILY_IPV6_MACOS => {
            Ok(Next::Header(Kind::Ipv6))
        }
        _ => Err(Stop::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    #[test]
    fn parse() {
        for bytes in [[0, 0, 0, 30, b'a'], [30, 0, 0, 0, b'a']] {
            let (header, payload) = NullHeader::parse(&bytes).unwrap();
            assert_eq!((header.family(), payload), (FAMILY_IPV6_MACOS, &b"a"[..]));
        }
        assert_refuses_prefixes(&[2, 0, 0, 0], |bytes| NullHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        let bytes = if cfg!(target_endian = "little") { [2, 0, 0, 0] } else { [0, 0, 0, 2] };
        assert_emits(&bytes, |buffer| NullHeader::new(FAMILY_IPV4).emit(buffer));
    }

    #[test]
    fn display() {
        assert_eq!(NullHeader { family: [0, 0, 0, 2] }.to_string(), "null family 2");
    }
}
