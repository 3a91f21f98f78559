//! ERSPAN, used by switches to send copies of frames in GRE (draft-foschiano-erspan).
//!
//! ```text
//!  0                4                8               12
//! +---+-----+------+----------------+
//! |ver| VLAN|C E T |   index        |                    type II: version 1
//! +---+-----+------+----------------+----------------+
//! |ver| VLAN|C B T |   timestamp    | group | frame,O|   type III: version 2; O: 8 more bytes
//! +---+-----+------+----------------+----------------+
//! ```
//!
//! Type I has no header: the frame follows a GRE header without optional fields.

use super::{
    Announced, Class, Field, HeaderSpec, Layout, Layouts, Notation, Received, Role, Segmentation,
    Structure, Tail, gre,
};
use crate::kind::Kind;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of a type II header in bytes.
pub const HEADER_LEN: usize = 8;
/// Length of a type III header in bytes, without the platform-specific subheader.
pub const HEADER_LEN_III: usize = 12;

/// EtherType of types I and II in GRE.
pub const ETHERTYPE: u16 = 0x88be;
/// EtherType of type III in GRE.
pub const ETHERTYPE_III: u16 = 0x22eb;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and VLAN of the frame.
    pub const VERSION_VLAN: Range<usize> = 0..2;
    /// Class of service, encapsulation, truncation bit, and session.
    pub const SESSION: Range<usize> = 2..4;
    /// Port index, or the timestamp of type III.
    pub const INDEX: Range<usize> = 4..8;
    /// Type III: security group, and frame type.
    pub const FRAME_TYPE: Range<usize> = 8..12;
}

/// Registry entry for ERSPAN. Packets with ERSPAN never merge, because their GRE sequence numbers differ.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "erspan",
    class: Class::Tunnel,
    announced: Announced { tunnel_ethertypes: &[ETHERTYPE, ETHERTYPE_III], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("version and VLAN", field::VERSION_VLAN, Role::Tunnel)
            .shown(Notation::Hexadecimal),
        Field::equal("session", field::SESSION, Role::Tunnel).shown(Notation::Hexadecimal),
        Field::equal("index", field::INDEX, Role::Tunnel).shown(Notation::Hexadecimal),
    ])),
    tail: Tail { name: "frame type", role: Role::Tunnel },
    structure: Structure::Chosen(structure_of),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: Some(|_| Ok(Received::default())),
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    // After a GRE header without a sequence number, the type is I: there is no ERSPAN header, and the frame follows.
    let around = walk.count.checked_sub(1).and_then(|last| walk.layers.get(last));
    if around.is_some_and(|layer| usize::from(layer.len) == gre::HEADER_LEN) {
        return Ok(Next::Header(Kind::Ethernet));
    }
    match walk.peek::<HEADER_LEN>()?[0] >> 4 {
        1 => {
            walk.push(Kind::Erspan, HEADER_LEN)?;
            Ok(Next::Header(Kind::Ethernet))
        }
        2 => {
            let frame = u16_at(walk.peek::<HEADER_LEN_III>()?, 10);
            let subheader = if frame & 1 != 0 { SUBHEADER_LEN } else { 0 };
            walk.push(Kind::Erspan, HEADER_LEN_III + subheader)?;
            match frame >> 10 & 0x1f {
                FRAME_ETHERNET => Ok(Next::Header(Kind::Ethernet)),
                FRAME_IP => Ok(Next::Ip),
                _ => Err(Stop::Unknown),
            }
        }
        _ => Err(Stop::Unknown),
    }
}

/// Returns the version bits and, for type III, the bits for the payload type and for the presence of the subheader.
fn structure_of(header: &[u8]) -> u128 {
    let of_frame = 0x7c << (8 * (15 - 10)) | 0x01 << (8 * (15 - 11));
    0xf0 << (8 * 15) | if header.first().is_some_and(|byte| byte >> 4 == 2) { of_frame } else { 0 }
}

/// Length of the platform-specific subheader in bytes.
const SUBHEADER_LEN: usize = 8;
/// Type III: the payload is an Ethernet frame.
const FRAME_ETHERNET: u16 = 0;
/// Type III: the payload is an IP packet.
const FRAME_IP: u16 = 2;
