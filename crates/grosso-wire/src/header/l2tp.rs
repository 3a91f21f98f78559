//! L2TPv3 data messages over IP (RFC 3931) that carry Ethernet (RFC 4719).
//!
//! ```text
//!  0                                   4
//! +-----------------------------------+
//! |              session              |
//! +-----------------------------------+ 4
//! |        cookie, 4 or 8 bytes       |  if agreed
//! +-+-+-------------+-----------------+
//! |x|S|      x      | sequence number |  if the default sublayer was agreed
//! +-+-+-------------+-----------------+
//! ```
//!
//! The length of the cookie and the presence of the sublayer are not in the packet: both endpoints agree on them when
//! they set up the session. [`Ports::l2tp`](crate::Ports::l2tp) configures the dissector; without it, sessions are not
//! parsed. Session 0 marks a control message (section 4.1.1.2).

use core::fmt;

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Field, HeaderSpec, Layout, Layouts, Notation, Role, Segmentation, Structure,
    Tail,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::ports::Pseudowire;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Length of the session identifier in bytes, without cookie and sublayer.
pub const HEADER_LEN: usize = 4;
/// Maximum header length in bytes, with an 8-byte cookie and the sublayer.
pub const LEN_MAX: usize = 16;

/// IP protocol of the header.
pub const PROTOCOL: u8 = 115;

/// Bit of the default sublayer: the sequence number is valid.
pub const FLAG_SEQUENCE: u32 = 0x4000_0000;
/// Bits of the default sublayer: sequence number.
pub const SEQUENCE_MASK: u32 = 0x00ff_ffff;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Session identifier.
    pub const SESSION: Range<usize> = 0..4;
}

layout::assert_layout! {
    L2tpHeader, HEADER_LEN;
    SESSION = session,
}

/// Session header without cookie and sublayer.
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
pub struct L2tpHeader {
    /// Session identifier assigned by the receiver; 0 marks a control message.
    pub session: U32,
}

/// Fields after the session identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L2tpFields<'a> {
    /// Cookie of 0, 4 or 8 bytes.
    pub cookie: &'a [u8],
    /// Word of the default sublayer.
    pub sublayer: Option<u32>,
}

impl L2tpFields<'_> {
    /// Returns the sequence number, if it is valid.
    pub fn sequence(&self) -> Option<u32> {
        self.sublayer.filter(|word| word & FLAG_SEQUENCE != 0).map(|word| word & SEQUENCE_MASK)
    }
}

impl L2tpHeader {
    /// Parses the header of a data message of `pseudowire` and returns it with its fields and payload.
    pub fn parse(
        bytes: &[u8],
        pseudowire: Pseudowire,
    ) -> Result<(&Self, L2tpFields<'_>, &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        if header.is_control() {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let (cookie, rest) = layout::split_at(NAME, rest, pseudowire.cookie.bytes())?;
        if !pseudowire.has_sublayer {
            return Ok((header, L2tpFields { cookie, sublayer: None }, rest));
        }
        let (word, payload): (&U32, _) = layout::split(NAME, rest)?;
        Ok((header, L2tpFields { cookie, sublayer: Some(word.get()) }, payload))
    }

    /// Writes the header of a data message with its fields and returns the rest of the buffer.
    pub fn emit<'a>(
        &self,
        fields: &L2tpFields<'_>,
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        if self.is_control() {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        if !matches!(fields.cookie.len(), 0 | 4 | 8) {
            return Err(Malformed::new(NAME, Reason::Length));
        }
        let mut tail = [0; LEN_MAX - HEADER_LEN];
        let (cookie, behind) = tail.split_at_mut(fields.cookie.len());
        cookie.copy_from_slice(fields.cookie);
        let mut len = cookie.len();
        if let (Some(word), Some(place)) = (fields.sublayer, behind.first_chunk_mut()) {
            *place = word.to_be_bytes();
            len += SUBLAYER_LEN;
        }
        layout::emit(NAME, self, &tail[..len], buffer)
    }

    /// Returns whether this is a control message, which carries no packet.
    pub fn is_control(&self) -> bool {
        self.session == U32::ZERO
    }
}

/// Formats the header like `l2tp session 0x00001000`.
impl fmt::Display for L2tpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} session {:#010x}", self.session)
    }
}

impl Pseudowire {
    /// Returns the length of a data message's header in bytes.
    #[must_use]
    pub const fn header_len(self) -> usize {
        HEADER_LEN + self.cookie.bytes() + if self.has_sublayer { SUBLAYER_LEN } else { 0 }
    }
}

const NAME: &str = SPEC.name;

/// Length of the default sublayer in bytes (section 4.6).
const SUBLAYER_LEN: usize = 4;
/// Bit of [`FLAG_SEQUENCE`] in the first byte of the sublayer.
const SEQUENCE_BIT: u8 = (FLAG_SEQUENCE >> 24) as u8;

/// Registry entry for L2TPv3. The session identifies the flow, and differs between the directions of a connection. All
/// other bits are equal in all packets of a train.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "l2tp",
    class: Class::Tunnel,
    announced: Announced { protocols: &[PROTOCOL], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::key("session", field::SESSION, Role::Channel).shown(Notation::Hexadecimal)
    ])),
    tail: Tail { name: "cookie and sublayer", role: Role::Tunnel },
    structure: Structure::Chosen(structure),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: None,
};

/// Returns the bits that determine the following headers: one bit of the session, which is zero in control messages,
/// and the sequence bit of the sublayer, if present.
fn structure(header: &[u8]) -> u128 {
    let session = header.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
    let one = session & session.wrapping_neg();
    let behind = 8 * LEN_MAX.saturating_sub(header.len());
    let sequence = if header.len() > HEADER_LEN { u128::from(FLAG_SEQUENCE) << behind } else { 0 };
    u128::from(one) << (8 * (LEN_MAX - HEADER_LEN)) | sequence
}

/// Reads a data message if the session format is configured. Stops after a sequence number, because it differs in every
/// packet and segmentation could not restore it (section 4.6).
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let pseudowire = walk.ports.l2tp().ok_or(Stop::Unknown)?;
    if *walk.peek::<HEADER_LEN>()? == [0; HEADER_LEN] {
        walk.push(Kind::L2tp, HEADER_LEN)?;
        return Err(Stop::Unknown);
    }
    let len = pseudowire.header_len();
    let sublayer = walk.rest.get(len - SUBLAYER_LEN).filter(|_| pseudowire.has_sublayer);
    let has_sequence = sublayer.is_some_and(|first| first & SEQUENCE_BIT != 0);
    walk.push(Kind::L2tp, len)?;
    if has_sequence { Err(Stop::Unknown) } else { Ok(Next::Header(Kind::Ethernet)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::CookieLen;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    const BYTES: [u8; 16] = [0, 0, 0x10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x40, 0, 0, 9];

    const LONGEST: Pseudowire = Pseudowire { cookie: CookieLen::Eight, has_sublayer: true };

    fn header() -> L2tpHeader {
        L2tpHeader { session: 0x1000.into() }
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (parsed, fields, payload) = L2tpHeader::parse(&bytes, LONGEST).unwrap();
        assert_eq!((*parsed, payload), (header(), &b"payload"[..]));
        assert_eq!((fields.cookie, fields.sequence()), (&BYTES[4..12], Some(9)));
        assert_refuses_prefixes(&BYTES, |bytes| L2tpHeader::parse(bytes, LONGEST).map(|_| ()));
        assert_eq!((LONGEST.header_len(), LEN_MAX), (16, 16));
    }

    #[test]
    fn emit() {
        let fields = L2tpFields { cookie: &BYTES[4..12], sublayer: Some(FLAG_SEQUENCE | 9) };
        assert_emits(&BYTES, |buffer| header().emit(&fields, buffer));
        let three = L2tpFields { cookie: &[0; 3], sublayer: None };
        assert_eq!(header().emit(&three, &mut [0; 16]).unwrap_err().reason, Reason::Length);
    }

    #[test]
    fn what_was_agreed_decides_the_length() {
        let cases = [
            (CookieLen::None, false, 4),
            (CookieLen::None, true, 8),
            (CookieLen::Four, false, 8),
            (CookieLen::Four, true, 12),
            (CookieLen::Eight, false, 12),
        ];
        for (cookie, has_sublayer, len) in cases {
            let pseudowire = Pseudowire { cookie, has_sublayer };
            assert_eq!(pseudowire.header_len(), len);
            let (_, fields, payload) = L2tpHeader::parse(&BYTES, pseudowire).unwrap();
            assert_eq!((fields.cookie.len(), payload), (cookie.bytes(), &BYTES[len..]));
            assert_eq!((fields.sublayer.is_some(), fields.sequence()), (has_sublayer, None));
            assert_emits(&BYTES[..len], |buffer| header().emit(&fields, buffer));
        }
    }

    #[test]
    fn control_messages_are_refused() {
        let error = L2tpHeader::parse(&[0; 16], LONGEST).unwrap_err();
        assert_eq!(error.reason, Reason::Value);
        let refused = L2tpHeader::default().emit(&L2tpFields::default(), &mut [0; 16]).map(|_| ());
        assert_eq!(refused.unwrap_err().reason, Reason::Value);
    }

    /// Checks which bits decide the header stack: one bit that is set in the session, so that no control message has
    /// the header stack of a session, and the sequence bit of the sublayer.
    #[test]
    fn few_bits_decide_the_headers() {
        let bits = |header: &[u8]| SPEC.structure.bits(header, header.len()).collect::<Vec<_>>();
        assert_eq!(bits(&[0, 0x30, 0, 0]), [(1, 0x10)]);
        assert_eq!(bits(&[0x80, 0, 0, 0, 1, 2, 3, 4]), [(0, 0x80), (4, 0x40)]);
        assert_eq!(bits(&BYTES[..12]), [(2, 0x10), (8, 0x40)]);
        assert_eq!(bits(&BYTES), [(2, 0x10), (12, 0x40)]);
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "l2tp session 0x00001000");
    }
}
