//! GTP-U, which carries the packets of mobile users (3GPP TS 29.281).
//!
//! ```text
//!  0        1        2                 4                8                12
//! +--------+--------+-----------------+----------------+----------------+
//! |ver,E,S,|message | length after    |    tunnel      | sequence, N-PDU|  if E, S or PN
//! |PN      |type    | the first 8     |    endpoint    | next extension |
//! +--------+--------+-----------------+----------------+----------------+
//! ```
//!
//! An extension header contains its length in words, its content, and the type of the next extension header; type 0
//! ends the chain.

use super::{
    Announced, AnnouncedByPort, Class, Field, HeaderSpec, Law, Layout, Layouts, Notation, Received,
    Role, Segmentation, Structure, Tail,
};
use crate::kind::Kind;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the header without optional fields, in bytes.
pub const HEADER_LEN: usize = 8;
/// Maximum header length in bytes, including extension headers. Longer headers are not parsed.
pub const HEADER_BYTES_MAX: usize = 1024;

/// UDP port assigned by IANA.
pub const PORT: u16 = 2152;

/// Version 1 and protocol type GTP in the first byte.
pub const VERSION_1: u8 = 0x30;
/// Bits of version and protocol type.
pub const VERSION_MASK: u8 = 0xf0;
/// Extension headers follow.
pub const FLAG_EXTENSION: u8 = 0x04;
/// The sequence number is valid.
pub const FLAG_SEQUENCE: u8 = 0x02;
/// The N-PDU number is valid.
pub const FLAG_NUMBER: u8 = 0x01;
/// Type of messages that carry a user's packet.
pub const MESSAGE_PACKET: u8 = 255;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and flags.
    pub const FLAGS: Range<usize> = 0..1;
    /// Message type.
    pub const MESSAGE: Range<usize> = 1..2;
    /// Length after the first eight bytes.
    pub const LENGTH: Range<usize> = 2..4;
    /// Tunnel endpoint identifier.
    pub const ENDPOINT: Range<usize> = 4..8;
}

/// Registry entry for GTP-U. The endpoint identifier is part of the flow.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "gtp-u",
    class: Class::Tunnel,
    announced: Announced {
        port: Some(AnnouncedByPort { assigned: PORT, title: "GTP-U", code: 7, read }),
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("flags", field::FLAGS, Role::Tunnel).shown(Notation::Hexadecimal),
        Field::equal("message", field::MESSAGE, Role::Tunnel),
        Field::new("length", field::LENGTH, Role::Length, Law::Length { skip: HEADER_LEN }),
        Field::key("endpoint", field::ENDPOINT, Role::Channel),
    ])),
    tail: Tail { name: "extensions", role: Role::Tunnel },
    structure: Structure::WholeExcept { start: field::LENGTH.start, end: field::LENGTH.end },
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: Some(|_| Ok(Received::default())),
};

/// Reads a message that carries a packet. Other messages are exchanged between the tunnel endpoints and treated as
/// plain payload.
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    if header[0] & VERSION_MASK != VERSION_1 || header[1] != MESSAGE_PACKET {
        return Err(Stop::Payload);
    }
    let len = usize::from(u16_at(header, 2));
    let header_len = header_len(walk.rest)?;
    let inside = (HEADER_LEN + len).checked_sub(header_len).ok_or(Stop::Malformed)?;
    walk.push(Kind::GtpU, header_len)?;
    walk.declare(inside);
    Ok(Next::Ip)
}

/// Returns the length in bytes of the header with its optional fields and extension headers.
fn header_len(bytes: &[u8]) -> Result<usize, Stop> {
    let flags = bytes.first().copied().ok_or(Stop::Truncated)?;
    if flags & (FLAG_EXTENSION | FLAG_SEQUENCE | FLAG_NUMBER) == 0 {
        return Ok(HEADER_LEN);
    }
    let mut end = HEADER_LEN + 4;
    let has_extensions = flags & FLAG_EXTENSION != 0;
    // The last byte of the optional fields, and of each extension header, is the type of the next one.
    while has_extensions && *bytes.get(end - 1).ok_or(Stop::Truncated)? != 0 {
        let words = usize::from(*bytes.get(end).ok_or(Stop::Truncated)?);
        end += 4 * words;
        if words == 0 || end > HEADER_BYTES_MAX {
            return Err(Stop::Malformed);
        }
    }
    Ok(end)
}
