//! Common header of SCTP (RFC 9260 section 3.1).
//!
//! ```text
//!  0               2               4                8                12
//! +---------------+---------------+----------------+----------------+
//! |  source port  |   dest. port  | verification   |   checksum     |
//! +---------------+---------------+----------------+----------------+
//! ```
//!
//! The checksum is a CRC32c over the header and its chunks, without a pseudo-header, so devices that compute
//! one's-complement sums cannot complete it.

use super::{
    Announced, Class, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail,
};
use crate::kind::Kind;
use crate::stack::Stop;
use crate::walk::{Step, Walk};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 12;

/// IP protocol of the header.
pub const PROTOCOL: u8 = 132;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Source port.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Verification tag of the association.
    pub const TAG: Range<usize> = 4..8;
    /// CRC32c, least significant byte first.
    pub const CHECKSUM: Range<usize> = 8..12;
}

/// Registry entry for SCTP. Packets with SCTP never merge.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "sctp",
    class: Class::Control,
    announced: Announced { protocols: &[PROTOCOL], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("source port", field::SOURCE_PORT, Role::Port).shown(Notation::Number),
        Field::equal("destination port", field::DESTINATION_PORT, Role::Port)
            .shown(Notation::Number),
        Field::equal("verification tag", field::TAG, Role::Channel).shown(Notation::Hexadecimal),
        Field::new("checksum", field::CHECKSUM, Role::Checksum, Law::Equal),
    ])),
    tail: Tail { name: "chunks", role: Role::Link },
    structure: Structure::Bits(&[]),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    walk.push(Kind::Sctp, HEADER_LEN)?;
    Err(Stop::Payload)
}
