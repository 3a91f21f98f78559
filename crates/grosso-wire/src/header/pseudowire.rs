//! Ethernet over MPLS (RFC 4448), with and without the control word.
//!
//! ```text
//!  0    4                         16                        32
//! +----+-------------------------+-------------------------+
//! | 0  |  reserved, zero          |     sequence number     |   bits
//! +----+-------------------------+-------------------------+
//! ```
//!
//! A label stack does not state the type of its content; both endpoints have agreed on the type. Like Wireshark, the
//! dissector infers it from the first four bits (RFC 4385): 4 and 6 are IP, 0 is a control word, 1 is an associated
//! channel, and anything else is the destination address of a frame without a control word. Many vendors' addresses
//! start with zeros too, so the 12 reserved bits of a control word must also be zero.

use super::{
    Announced, Class, Field, HeaderSpec, Layout, Layouts, Notation, Received, Role, Segmentation,
    Structure, Tail,
};
use crate::kind::Kind;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Length of the control word in bytes.
pub const HEADER_LEN: usize = 4;

/// Byte ranges inside the control word.
pub mod field {
    use core::ops::Range;

    /// Zero.
    pub const RESERVED: Range<usize> = 0..2;
    /// Sequence number; zero if the endpoints do not number frames.
    pub const SEQUENCE: Range<usize> = 2..4;
}

/// Registry entry for the control word. Numbered frames never merge, because segmentation cannot restore the numbers.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "pseudowire",
    class: Class::Tunnel,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("reserved", field::RESERVED, Role::Tunnel).shown(Notation::Hexadecimal),
        Field::equal("sequence", field::SEQUENCE, Role::Tunnel),
    ])),
    tail: Tail { name: "content", role: Role::Tunnel },
    structure: Structure::Bits(&[(0, 0xff), (1, 0xff)]),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: Some(|_| Ok(Received::default())),
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    walk.push(Kind::Pseudowire, HEADER_LEN)?;
    Ok(Next::Header(Kind::Ethernet))
}

/// Returns the header after a label stack whose content is not an IP packet.
pub(super) fn read_content(walk: &Walk<'_, '_>) -> Step {
    match walk.rest {
        [0, 0, ..] => Ok(Next::Header(Kind::Pseudowire)),
        [first, ..] if first >> 4 == CHANNEL => Err(Stop::Unknown),
        [_, _, ..] => Ok(Next::Header(Kind::Ethernet)),
        _ => Err(Stop::Truncated),
    }
}

/// Returns the bits that determine the header after a label stack. They are in the first two bytes after the stack.
pub(super) fn deciding(content: &[u8]) -> u16 {
    match content {
        [] => 0,
        [0, ..] => 0xffff,
        [first, ..] if *first < 16 => 0xff00,
        // The first four bits suffice: an IP version, an associated channel, or the start of a destination address.
        _ => 0xf000,
    }
}

/// First four bits of an associated channel (RFC 4385 section 5).
const CHANNEL: u8 = 1;

#[cfg(test)]
mod tests {
    use super::deciding;

    #[test]
    fn the_traffic_class_of_a_labeled_ipv6_packet_does_not_decide_what_it_is() {
        assert_eq!(deciding(&[0x60, 0]), 0xf000);
        assert_eq!(deciding(&[0x45, 0]), 0xf000);
        assert_eq!(deciding(&[0x0c, 1]), 0xff00);
        assert_eq!(deciding(&[0, 1]), 0xffff);
        assert_eq!(deciding(&[]), 0);
    }
}
