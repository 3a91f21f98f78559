//! TCP (RFC 9293 section 3.1).
//!
//! ```text
//!  0                 2                 4
//! +-----------------+-----------------+
//! |   source port   |destination port |
//! +-----------------+-----------------+ 4
//! |          sequence number          |
//! +-----------------------------------+ 8
//! |       acknowledgment number       |
//! +------+----+-----+-----------------+ 12
//! |offset|res.|flags|     window      |
//! +------+----+-----+-----------------+ 16
//! |    checksum     | urgent pointer  |
//! +-----------------+-----------------+ 20
//! |       options, 0 to 40 bytes      |
//! +- - - - - - - - - - - - - - - - - -+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Cover, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail, ipv4,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Step, Walk};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of the options in bytes.
pub const OPTIONS_LEN_MAX: usize = 40;

/// FIN: no more data.
pub const FIN: u16 = 0x001;
/// SYN: synchronize sequence numbers.
pub const SYN: u16 = 0x002;
/// RST: reset the connection.
pub const RST: u16 = 0x004;
/// PSH: deliver the data promptly.
pub const PSH: u16 = 0x008;
/// ACK: the acknowledgment number is valid.
pub const ACK: u16 = 0x010;
/// URG: the urgent pointer is valid.
pub const URG: u16 = 0x020;
/// ECE: the receiver observed congestion marks.
pub const ECE: u16 = 0x040;
/// CWR: the congestion window was reduced.
pub const CWR: u16 = 0x080;
/// Accurate ECN (RFC 9768).
pub const AE: u16 = 0x100;

/// Option kind: end of the list.
pub const OPTION_END: u8 = 0;
/// Option kind: one byte of padding.
pub const OPTION_NOP: u8 = 1;
/// Option kind: maximum segment size.
pub const OPTION_MSS: u8 = 2;
/// Option kind: window scale.
pub const OPTION_WINDOW_SCALE: u8 = 3;
/// Option kind: selective acknowledgment is permitted.
pub const OPTION_SACK_PERMITTED: u8 = 4;
/// Option kind: selective acknowledgment.
pub const OPTION_SACK: u8 = 5;
/// Option kind: timestamps.
pub const OPTION_TIMESTAMPS: u8 = 8;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Source port.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Sequence number.
    pub const SEQUENCE: Range<usize> = 4..8;
    /// Acknowledgment number.
    pub const ACKNOWLEDGMENT: Range<usize> = 8..12;
    /// Data offset, reserved bits and flags.
    pub const OFFSET_FLAGS: Range<usize> = 12..14;
    /// Window.
    pub const WINDOW: Range<usize> = 14..16;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 16..18;
    /// Urgent pointer.
    pub const URGENT: Range<usize> = 18..20;
}

layout::assert_layout! {
    TcpHeader, HEADER_LEN;
    SOURCE_PORT = source_port,
    DESTINATION_PORT = destination_port,
    SEQUENCE = sequence,
    ACKNOWLEDGMENT = acknowledgment,
    OFFSET_FLAGS = offset_flags,
    WINDOW = window,
    CHECKSUM = checksum,
    URGENT = urgent,
}

/// Fixed part of the TCP header.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
pub struct TcpHeader {
    /// Source port.
    pub source_port: U16,
    /// Destination port.
    pub destination_port: U16,
    /// Sequence number of the first payload byte or of SYN.
    pub sequence: U32,
    /// Next expected sequence number, if [`ACK`] is set.
    pub acknowledgment: U32,
    /// Data offset, reserved bits and flags.
    pub offset_flags: U16,
    /// Receive window in bytes, before scaling.
    pub window: U16,
    /// Checksum over the pseudo-header, header, options and payload.
    pub checksum: U16,
    /// End of the urgent data, if [`URG`] is set.
    pub urgent: U16,
}

impl TcpHeader {
    /// Parses the header and returns it with its options and payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, TcpOptions<'_>, &[u8]), Malformed> {
        let (header, rest): (&Self, _) = layout::split(NAME, bytes)?;
        let options_len = header.header_len().checked_sub(HEADER_LEN);
        let options_len = options_len.ok_or_else(|| Malformed::new(NAME, Reason::Length))?;
        let (options, payload) = layout::split_at(NAME, rest, options_len)?;
        Ok((header, TcpOptions(options), payload))
    }

    /// Writes the header with its options and returns the rest of the buffer. The data offset is derived from
    /// `options`; the checksum is written unchanged.
    pub fn emit<'a>(
        &self,
        options: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        if options.len() > OPTIONS_LEN_MAX || !options.len().is_multiple_of(4) {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        let words = ((HEADER_LEN + options.len()) / 4) as u16;
        let offset_flags = U16::new(self.offset_flags.get() & 0x0fff | words << 12);
        layout::emit(NAME, &Self { offset_flags, ..*self }, options, buffer)
    }

    /// Sets the nine flags, leaving the reserved bits unchanged.
    pub fn set_flags(&mut self, flags: u16) {
        self.offset_flags.set(self.offset_flags.get() & !FLAGS_MASK | flags & FLAGS_MASK);
    }

    /// Returns the nine flags, from [`FIN`] to [`AE`].
    pub fn flags(&self) -> u16 {
        self.offset_flags.get() & FLAGS_MASK
    }

    /// Returns whether all of these flags are set.
    pub fn has(&self, flags: u16) -> bool {
        self.offset_flags.get() & flags == flags
    }

    /// Returns the three reserved bits, which are 0 unless a later standard uses them.
    pub fn reserved(&self) -> u8 {
        (self.offset_flags.get() >> 9) as u8 & 7
    }

    /// Returns the length of the header and its options in bytes, from the data offset.
    pub fn header_len(&self) -> usize {
        usize::from(self.offset_flags.get() >> 12) * 4
    }
}

/// Returns a header without options, with all other fields zero.
impl Default for TcpHeader {
    fn default() -> Self {
        Self {
            source_port: U16::ZERO,
            destination_port: U16::ZERO,
            sequence: U32::ZERO,
            acknowledgment: U32::ZERO,
            offset_flags: U16::new(0x5000),
            window: U16::ZERO,
            checksum: U16::ZERO,
            urgent: U16::ZERO,
        }
    }
}

/// Formats the header like `tcp 1500 > 8000 [PSH ACK] seq 100 ack 7 win 8192`.
impl fmt::Display for TcpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} {} > {} [", self.source_port, self.destination_port)?;
        let set = FLAG_NAMES.iter().filter(|(flag, _)| self.has(*flag));
        for (i, (_, name)) in set.enumerate() {
            let space = if i > 0 { " " } else { "" };
            write!(f, "{space}{name}")?;
        }
        write!(f, "] seq {} ack {} win {}", self.sequence, self.acknowledgment, self.window)
    }
}

/// TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption<'a> {
    /// End of the list: only padding follows, and the iterator ends.
    EndOfList,
    /// One byte of padding.
    NoOperation,
    /// Maximum segment size that the sender wants to receive, in payload bytes.
    MaximumSegmentSize(u16),
    /// Shift count for the sender's window.
    WindowScale(u8),
    /// The sender supports selective acknowledgment.
    SackPermitted,
    /// Ranges received after a gap.
    Sack(&'a [SackBlock]),
    /// Timestamps (RFC 7323).
    Timestamps {
        /// Sender's clock.
        value: u32,
        /// Echoed value.
        echo: u32,
    },
    /// Any other option, or a known option with an unexpected length.
    Unknown {
        /// Option kind.
        kind: u8,
        /// Data after the length byte.
        data: &'a [u8],
    },
}

/// Range of received sequence numbers.
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
pub struct SackBlock {
    /// First sequence number of the range.
    pub left: U32,
    /// Sequence number after the range.
    pub right: U32,
}

impl TcpOption<'_> {
    /// Writes the option and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        let write = |kind, data: &[u8], buffer| {
            let len = u8::try_from(2 + data.len());
            let len = len.map_err(|_| Malformed::new(NAME, Reason::Value))?;
            layout::emit(NAME, &[kind, len], data, buffer)
        };
        match *self {
            Self::EndOfList => layout::emit(NAME, &[OPTION_END], &[], buffer),
            Self::NoOperation => layout::emit(NAME, &[OPTION_NOP], &[], buffer),
            Self::MaximumSegmentSize(bytes) => write(OPTION_MSS, &bytes.to_be_bytes(), buffer),
            Self::WindowScale(bits) => write(OPTION_WINDOW_SCALE, &[bits], buffer),
            Self::SackPermitted => write(OPTION_SACK_PERMITTED, &[], buffer),
            Self::Sack(blocks) => write(OPTION_SACK, blocks.as_bytes(), buffer),
            Self::Timestamps { value, echo } => {
                let data = [U32::new(value), U32::new(echo)];
                write(OPTION_TIMESTAMPS, data.as_bytes(), buffer)
            }
            Self::Unknown { kind, data } => write(kind, data, buffer),
        }
    }
}

/// Iterator over the options in order. After an error for a truncated option, it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions<'a>(&'a [u8]);

impl<'a> TcpOptions<'a> {
    /// Creates an iterator over the encoded options.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the remaining options.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        match *bytes.first()? {
            OPTION_END => Some(Ok(TcpOption::EndOfList)),
            OPTION_NOP => {
                self.0 = &bytes[1..];
                Some(Ok(TcpOption::NoOperation))
            }
            _ => Some(layout::split_option(NAME, bytes, 2).map(|(kind, data, rest)| {
                self.0 = rest;
                known(kind, data).unwrap_or(TcpOption::Unknown { kind, data })
            })),
        }
    }
}

/// Decodes the option of this kind if it is known and has the right length.
fn known(kind: u8, data: &[u8]) -> Option<TcpOption<'_>> {
    match (kind, data) {
        (OPTION_MSS, &[a, b]) => Some(TcpOption::MaximumSegmentSize(u16::from_be_bytes([a, b]))),
        (OPTION_WINDOW_SCALE, &[bits]) => Some(TcpOption::WindowScale(bits)),
        (OPTION_SACK_PERMITTED, []) => Some(TcpOption::SackPermitted),
        (OPTION_SACK, _) => <[SackBlock]>::ref_from_bytes(data).ok().map(TcpOption::Sack),
        (OPTION_TIMESTAMPS, _) => {
            let [value, echo] = <[U32; 2]>::read_from_bytes(data).ok()?;
            Some(TcpOption::Timestamps { value: value.get(), echo: echo.get() })
        }
        _ => None,
    }
}

const NAME: &str = SPEC.name;

const FLAGS_MASK: u16 = 0x01ff;

const FLAG_NAMES: [(u16, &str); 9] = [
    (FIN, "FIN"),
    (SYN, "SYN"),
    (RST, "RST"),
    (PSH, "PSH"),
    (ACK, "ACK"),
    (URG, "URG"),
    (ECE, "ECE"),
    (CWR, "CWR"),
    (AE, "AE"),
];

/// Registry entry for TCP (RFC 9293, rules G31 to G35). Unlike in Linux, the urgent pointer is compared even if URG is
/// clear (rule G33), because segmentation could not restore it.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "tcp",
    class: Class::Transport,
    announced: Announced { protocols: &[ipv4::PROTOCOL_TCP], ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::key("source port", field::SOURCE_PORT, Role::Port).shown(Notation::Number),
        Field::key("destination port", field::DESTINATION_PORT, Role::Port).shown(Notation::Number),
        Field::new("sequence", field::SEQUENCE, Role::Sequence, Law::Sequence)
            .shown(Notation::Number),
        Field::equal("ack", field::ACKNOWLEDGMENT, Role::Acknowledgment).shown(Notation::Number),
        Field::new("flags", field::OFFSET_FLAGS, Role::Flags, Law::Flags).shown(Notation::Flags),
        Field::equal("window", field::WINDOW, Role::Window).shown(Notation::Number),
        Field::new("checksum", field::CHECKSUM, Role::Checksum, Law::Checksum(COVER))
            .shown(Notation::Number),
        Field::equal("urgent pointer", field::URGENT, Role::UrgentPointer).shown(Notation::Number),
    ])),
    tail: Tail { name: "options", role: Role::Options },
    structure: Structure::Bits(&[(12, 0xf0)]),
    segmentation: Segmentation::Tcp,
    remote_checksum: None,
    receive: None,
};

const COVER: Cover = Cover::Transport { protocol: ipv4::PROTOCOL_TCP };

#[inline(always)]
pub(super) fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    let header_len = (header[12] >> 4) as usize * 4;
    if header_len < HEADER_LEN {
        return Err(Stop::Malformed);
    }
    walk.push(Kind::Tcp, header_len)?;
    Err(Stop::Payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    /// A SYN that offers Accurate ECN, with the options that Linux sends.
    const BYTES: [u8; 40] = [
        0x05, 0xdc, 0x1f, 0x40, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xa1, 0xc2, 0x20,
        0x01, 0xab, 0xcd, 0x00, 0x07, 2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8, 1, 3,
        3, 7,
    ];

    const OPTIONS: [TcpOption<'static>; 5] = [
        TcpOption::MaximumSegmentSize(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 9, echo: 8 },
        TcpOption::NoOperation,
        TcpOption::WindowScale(7),
    ];

    fn header() -> TcpHeader {
        let mut header = TcpHeader {
            source_port: 1500.into(),
            destination_port: 8000.into(),
            sequence: 0x0102_0304.into(),
            acknowledgment: 0x0506_0708.into(),
            window: 0x2001.into(),
            checksum: 0xabcd.into(),
            urgent: 7.into(),
            ..TcpHeader::default()
        };
        header.set_flags(SYN | ECE | CWR | AE);
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (parsed, options, payload) = TcpHeader::parse(&bytes).unwrap();
        let offset_flags = U16::new(0xa1c2);
        assert_eq!(*parsed, TcpHeader { offset_flags, ..header() });
        assert_eq!((parsed.header_len(), parsed.flags()), (40, SYN | ECE | CWR | AE));
        assert!(parsed.has(SYN | AE) && !parsed.has(SYN | ACK));
        assert!(options.eq(OPTIONS.map(Ok)));
        assert_eq!(payload, b"payload");
        assert_refuses_prefixes(&BYTES, |bytes| TcpHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(&BYTES[20..], buffer));
        let refusal = |options: &[u8]| header().emit(options, &mut [0; 80]).map(|_| ());
        assert_eq!(refusal(&[1; 3]), Err(Malformed::new("tcp", Reason::Value)));
        assert_eq!(refusal(&[1; 44]), Err(Malformed::new("tcp", Reason::Value)));
        assert_eq!(refusal(&[1; 40]), Ok(()));
    }

    #[test]
    fn emit_options() {
        assert_emits(&BYTES[20..], |mut buffer| {
            let len = buffer.len();
            if len < 20 {
                return Err(Malformed::new(NAME, Reason::Short));
            }
            for option in OPTIONS {
                buffer = option.emit(buffer)?;
            }
            Ok(buffer)
        });
        for option in OPTIONS {
            let mut buffer = [0xa5; 12];
            let len = 12 - option.emit(&mut buffer).unwrap().len();
            assert_emits(&buffer[..len], |buffer| option.emit(buffer));
        }
        let long = TcpOption::Unknown { kind: 9, data: &[0; 254] };
        assert!(long.emit(&mut [0; 300]).is_err());
    }

    #[test]
    fn offset_below_five_words_is_refused() {
        let bytes = [&BYTES[..12], &[0x41], &BYTES[13..]].concat();
        assert_eq!(TcpHeader::parse(&bytes), Err(Malformed::new("tcp", Reason::Length)));
    }

    #[test]
    fn sack_blocks() {
        let bytes = [5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 5];
        let blocks = [(1, 2), (3, 4)];
        let blocks =
            blocks.map(|(left, right)| SackBlock { left: left.into(), right: right.into() });
        let expected = [Ok(TcpOption::Sack(&blocks)), Ok(TcpOption::EndOfList)];
        assert!(TcpOptions::new(&bytes).eq(expected));
        assert_emits(&bytes[..18], |buffer| TcpOption::Sack(&blocks).emit(buffer));
    }

    #[test]
    fn options_end_with_the_list_or_with_an_error() {
        let list = |bytes| TcpOptions::new(bytes).collect::<Vec<_>>();
        let cut = Malformed::new("tcp", Reason::Options);
        let unknown = |kind, data| Ok(TcpOption::Unknown { kind, data });
        assert_eq!(list(&[2, 3, 9, 254, 2]), [unknown(2, &[9]), unknown(254, &[])]);
        assert_eq!(list(&[5, 3, 9]), [unknown(5, &[9])]);
        assert_eq!(list(&[8, 10, 0]), [Err(cut)]);
        assert_eq!(list(&[8]), [Err(cut)]);
        assert_eq!(list(&[1, 8, 1, 1]), [Ok(TcpOption::NoOperation), Err(cut)]);
        assert_eq!(list(&[8, 0, 1]), [Err(cut)]);
    }

    #[test]
    fn flags_and_reserved_bits_do_not_touch() {
        let mut header = TcpHeader { offset_flags: 0x5e00.into(), ..TcpHeader::default() };
        assert_eq!((header.reserved(), header.flags()), (7, 0));
        header.set_flags(u16::MAX);
        assert_eq!(header.offset_flags.get(), 0x5fff);
        header.set_flags(0);
        assert_eq!(header.offset_flags.get(), 0x5e00);
    }

    #[test]
    fn display() {
        let expected = "tcp 1500 > 8000 [SYN ECE CWR AE] seq 16909060 ack 84281096 win 8193";
        assert_eq!(header().to_string(), expected);
    }
}
