//! UDP-Lite (RFC 3828): UDP with a checksum that covers only the first bytes.
//!
//! ```text
//!  0               2               4               6               8
//! +---------------+---------------+---------------+---------------+
//! |  source port  |   dest. port  |   coverage    |   checksum    |
//! +---------------+---------------+---------------+---------------+
//! ```

use super::{
    Announced, Class, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail,
};
use crate::kind::Kind;
use crate::stack::Stop;
use crate::walk::{Step, Walk};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;

/// IP protocol of the header.
pub const PROTOCOL: u8 = 136;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Source port.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Number of bytes from the start of the header that the checksum covers; 0 means all.
    pub const COVERAGE: Range<usize> = 4..6;
    /// Checksum, which is always present.
    pub const CHECKSUM: Range<usize> = 6..8;
}

/// Registry entry for UDP-Lite. Packets with UDP-Lite never merge.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "udplite",
    class: Class::Control,
    announced: Announced { protocols: &[PROTOCOL], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("source port", field::SOURCE_PORT, Role::Port).shown(Notation::Number),
        Field::equal("destination port", field::DESTINATION_PORT, Role::Port)
            .shown(Notation::Number),
        Field::equal("coverage", field::COVERAGE, Role::Length).shown(Notation::Number),
        Field::new("checksum", field::CHECKSUM, Role::Checksum, Law::Equal),
    ])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[]),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    walk.push(Kind::UdpLite, HEADER_LEN)?;
    Err(Stop::Payload)
}
