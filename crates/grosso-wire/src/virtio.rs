//! The header that TUN, TAP, packet sockets and virtio devices put in front of a frame (`virtio_net_hdr`; virtio 1.3
//! section 5.1.6).
//!
//! ```text
//!  0       1        2         4          6               8                 10
//! +-------+--------+---------+----------+---------------+-----------------+
//! | flags |gso type| hdr len | gso size |checksum start | checksum offset |
//! +-------+--------+---------+----------+---------------+-----------------+ 10
//! |   buffers      |  from 12 bytes on
//! +----------------+------------------+-----------------+-----------------+ 12
//! |             hash value            |   hash report   |     padding     |  from 20 bytes on
//! +-----------------------------------+-----------------+-----------------+ 20
//! | outer transport| inner network    |  24 bytes
//! +----------------+------------------+ 24
//! ```
//!
//! The first 12 bytes have a negotiated byte order; the others are always little-endian. Fields that a format lacks are
//! parsed as 0 and not written.

use core::fmt;

use zerocopy::byteorder::little_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Malformed, Reason};
use crate::layout;

/// Length of the shortest format in bytes.
pub const HEADER_LEN: usize = 10;
/// Length of the longest format in bytes.
pub const LEN_MAX: usize = 24;

/// The checksum must still be computed, starting at `checksum_start`.
pub const FLAG_NEEDS_CHECKSUM: u8 = 1;
/// The checksum has been verified.
pub const FLAG_DATA_VALID: u8 = 2;
/// The checksum fields contain the counts of coalesced segments and duplicate acknowledgments.
pub const FLAG_RSC_INFO: u8 = 4;
/// The outer UDP header of a tunnel has a checksum, which must be computed for each segment.
pub const FLAG_UDP_TUNNEL_CHECKSUM: u8 = 8;

/// No segmentation.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4.
pub const GSO_TCP_IPV4: u8 = 1;
/// One UDP datagram to be split into IP fragments (UFO).
pub const GSO_UDP: u8 = 3;
/// TCP over IPv6.
pub const GSO_TCP_IPV6: u8 = 4;
/// Many UDP datagrams (USO).
pub const GSO_UDP_SEGMENTS: u8 = 5;
/// Bit: inside a UDP tunnel over IPv4.
pub const GSO_TUNNEL_IPV4: u8 = 0x20;
/// Bit: inside a UDP tunnel over IPv6.
pub const GSO_TUNNEL_IPV6: u8 = 0x40;
/// Bit for TCP: only the first segment has CWR.
pub const GSO_ECN: u8 = 0x80;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Flags.
    pub const FLAGS: Range<usize> = 0..1;
    /// Type of segmentation.
    pub const GSO_TYPE: Range<usize> = 1..2;
    /// Length of all headers.
    pub const HEADER_LENGTH: Range<usize> = 2..4;
    /// Number of payload bytes per segment.
    pub const GSO_SIZE: Range<usize> = 4..6;
    /// Offset at which the sum starts.
    pub const CHECKSUM_START: Range<usize> = 6..8;
    /// Offset of the checksum field, counted from the first byte that the checksum covers.
    pub const CHECKSUM_OFFSET: Range<usize> = 8..10;
    /// Number of receive buffers used for the frame.
    pub const BUFFERS: Range<usize> = 10..12;
    /// Flow hash.
    pub const HASH_VALUE: Range<usize> = 12..16;
    /// Type of the hash.
    pub const HASH_REPORT: Range<usize> = 16..18;
    /// Zero.
    pub const PADDING: Range<usize> = 18..20;
    /// Offset of a tunnel's outer UDP header.
    pub const OUTER_TRANSPORT: Range<usize> = 20..22;
    /// Offset of a tunnel's inner IP header.
    pub const INNER_NETWORK: Range<usize> = 22..24;
}

/// Format of the header, which is determined by the number of fields. Both sides agree on it in advance
/// (`TUNSETVNETHDRSZ`); the header itself does not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// 10 bytes: the default for TUN, TAP and packet sockets.
    Short,
    /// 12 bytes: includes the number of buffers, as in virtio 1.
    Buffers,
    /// 20 bytes: includes the flow hash.
    Hash,
    /// 24 bytes: includes the offsets of the headers of a UDP tunnel (Linux 6.17).
    Tunnel,
}

/// Byte order of the first 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Little-endian: virtio 1, or `TUNSETVNETLE`.
    Little,
    /// Big-endian: legacy virtio on a big-endian host, or `TUNSETVNETBE`.
    Big,
}

/// Virtio header, with all fields in this host's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtioHeader {
    /// `FLAG_` bits.
    pub flags: u8,
    /// One of the `GSO_` types, with additional bits.
    pub gso_type: u8,
    /// Length of all headers of the frame in bytes. Only a hint; may be 0.
    pub header_length: u16,
    /// Number of payload bytes per segment.
    pub gso_size: u16,
    /// Start of the sum, in bytes from the start of the frame.
    pub checksum_start: u16,
    /// Offset of the checksum field in bytes from `checksum_start`.
    pub checksum_offset: u16,
    /// Number of receive buffers used for the frame.
    pub buffers: u16,
    /// Flow hash.
    pub hash_value: u32,
    /// Type of the hash, or 0 if there is no hash.
    pub hash_report: u16,
    /// Offset of a tunnel's outer UDP header in bytes from the start of the frame.
    pub outer_transport: u16,
    /// Offset of a tunnel's inner IP header in bytes from the start of the frame.
    pub inner_network: u16,
}

impl Form {
    /// All formats, shortest first.
    pub const ALL: [Self; 4] = [Self::Short, Self::Buffers, Self::Hash, Self::Tunnel];

    /// Returns the format with this length in bytes.
    ///
    /// # Errors
    /// Returns [`Malformed`] if no format has this length.
    pub fn from_len(len: usize) -> Result<Self, Malformed> {
        let form = Self::ALL.into_iter().find(|form| form.len() == len);
        form.ok_or_else(|| Malformed::new(NAME, Reason::Length))
    }

    /// Returns the length of the format in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no form is empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Short => HEADER_LEN,
            Self::Buffers => 12,
            Self::Hash => 20,
            Self::Tunnel => LEN_MAX,
        }
    }
}

impl Order {
    /// Byte order of this host, which is the default for legacy virtio and TUN.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// Converts a number between little-endian and this byte order.
    const fn swap(self, number: little_endian::U16) -> little_endian::U16 {
        match self {
            Self::Little => number,
            Self::Big => {
                let [low, high] = number.to_bytes();
                little_endian::U16::from_bytes([high, low])
            }
        }
    }
}

impl VirtioHeader {
    /// Parses the header in this format and byte order and returns it with the frame after it.
    pub fn parse(bytes: &[u8], form: Form, order: Order) -> Result<(Self, &[u8]), Malformed> {
        let (header, frame) = layout::split_at(NAME, bytes, form.len())?;
        let mut whole = [0; LEN_MAX];
        // The shortest format, which is the most common one for packets, is copied without a function call.
        let (short, rest) = layout::split_at(NAME, header, HEADER_LEN)?;
        whole[..HEADER_LEN].copy_from_slice(short);
        if !rest.is_empty() {
            whole[HEADER_LEN..][..rest.len()].copy_from_slice(rest);
        }
        let wire: Wire = zerocopy::transmute!(whole);
        let ordered = |number| order.swap(number).get();
        let parsed = Self {
            flags: wire.flags,
            gso_type: wire.gso_type,
            header_length: ordered(wire.header_length),
            gso_size: ordered(wire.gso_size),
            checksum_start: ordered(wire.checksum_start),
            checksum_offset: ordered(wire.checksum_offset),
            buffers: ordered(wire.buffers),
            hash_value: wire.hash_value.get(),
            hash_report: wire.hash_report.get(),
            outer_transport: wire.outer_transport.get(),
            inner_network: wire.inner_network.get(),
        };
        Ok((parsed, frame))
    }

    /// Writes the header in this format and byte order, including padding bytes (rule B38), and returns the rest of the
    /// buffer.
    pub fn emit<'a>(
        &self,
        form: Form,
        order: Order,
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], Malformed> {
        let ordered = |number| order.swap(little_endian::U16::new(number));
        let wire = Wire {
            flags: self.flags,
            gso_type: self.gso_type,
            header_length: ordered(self.header_length),
            gso_size: ordered(self.gso_size),
            checksum_start: ordered(self.checksum_start),
            checksum_offset: ordered(self.checksum_offset),
            buffers: ordered(self.buffers),
            hash_value: self.hash_value.into(),
            hash_report: self.hash_report.into(),
            padding: [0; 2],
            outer_transport: self.outer_transport.into(),
            inner_network: self.inner_network.into(),
        };
        layout::emit(NAME, &(), &wire.as_bytes()[..form.len()], buffer)
    }

    /// Returns whether all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the segmentation type without additional bits.
    pub fn segmentation(&self) -> u8 {
        self.gso_type & !(GSO_TUNNEL_IPV4 | GSO_TUNNEL_IPV6 | GSO_ECN)
    }

    /// Returns the tunnel bits of the type; both are set only in an invalid header (rule V8).
    pub fn tunnel(&self) -> u8 {
        self.gso_type & (GSO_TUNNEL_IPV4 | GSO_TUNNEL_IPV6)
    }

    /// Returns whether only the first segment has CWR.
    pub fn has_ecn(&self) -> bool {
        self.gso_type & GSO_ECN != 0
    }
}

/// Formats the header like `virtio flags 0x1 gso 0x1 size 1448 headers 66 checksum 34+16`, with ` tunnel 34/64` if
/// applicable.
impl fmt::Display for VirtioHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} flags {:#x} gso {:#x}", self.flags, self.gso_type)?;
        write!(f, " size {} headers {}", self.gso_size, self.header_length)?;
        if self.has(FLAG_NEEDS_CHECKSUM) {
            write!(f, " checksum {}+{}", self.checksum_start, self.checksum_offset)?;
        }
        if self.tunnel() != 0 {
            write!(f, " tunnel {}/{}", self.outer_transport, self.inner_network)?;
        }
        Ok(())
    }
}

/// Bytes of the longest format. The shorter formats are prefixes of it.
#[repr(C)]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct Wire {
    flags: u8,
    gso_type: u8,
    header_length: little_endian::U16,
    gso_size: little_endian::U16,
    checksum_start: little_endian::U16,
    checksum_offset: little_endian::U16,
    buffers: little_endian::U16,
    hash_value: little_endian::U32,
    hash_report: little_endian::U16,
    padding: [u8; 2],
    outer_transport: little_endian::U16,
    inner_network: little_endian::U16,
}

layout::assert_layout! {
    Wire, LEN_MAX;
    FLAGS = flags,
    GSO_TYPE = gso_type,
    HEADER_LENGTH = header_length,
    GSO_SIZE = gso_size,
    CHECKSUM_START = checksum_start,
    CHECKSUM_OFFSET = checksum_offset,
    BUFFERS = buffers,
    HASH_VALUE = hash_value,
    HASH_REPORT = hash_report,
    PADDING = padding,
    OUTER_TRANSPORT = outer_transport,
    INNER_NETWORK = inner_network,
}

const NAME: &str = "virtio";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const LITTLE: [u8; 24] = [
        0x09, 0x21, 0x42, 0, 0xa8, 0x05, 0x54, 0, 0x10, 0, 1, 0, 0x78, 0x56, 0x34, 0x12, 2, 0, 0,
        0, 34, 0, 64, 0,
    ];

    const BIG: [u8; 24] = [
        0x09, 0x21, 0, 0x42, 0x05, 0xa8, 0, 0x54, 0, 0x10, 0, 1, 0x78, 0x56, 0x34, 0x12, 2, 0, 0,
        0, 34, 0, 64, 0,
    ];

    const HEADER: VirtioHeader = VirtioHeader {
        flags: FLAG_NEEDS_CHECKSUM | FLAG_UDP_TUNNEL_CHECKSUM,
        gso_type: GSO_TCP_IPV4 | GSO_TUNNEL_IPV4,
        header_length: 66,
        gso_size: 1448,
        checksum_start: 84,
        checksum_offset: 16,
        buffers: 1,
        hash_value: 0x1234_5678,
        hash_report: 2,
        outer_transport: 34,
        inner_network: 64,
    };

    /// Returns the header with the fields that a shorter form does not contain set to zero.
    fn cut(form: Form) -> VirtioHeader {
        let mut header = HEADER;
        if form < Form::Tunnel {
            (header.outer_transport, header.inner_network) = (0, 0);
        }
        if form < Form::Hash {
            (header.hash_value, header.hash_report) = (0, 0);
        }
        if form < Form::Buffers {
            header.buffers = 0;
        }
        header
    }

    #[test]
    fn parse() {
        for (form, len) in Form::ALL.into_iter().zip([10, 12, 20, 24]) {
            assert_eq!((form.len(), Form::from_len(len)), (len, Ok(form)));
            for (order, bytes) in [(Order::Little, LITTLE), (Order::Big, BIG)] {
                let bytes = [&bytes[..len], b"frame"].concat();
                let parsed = VirtioHeader::parse(&bytes, form, order);
                assert_eq!(parsed, Ok((cut(form), &b"frame"[..])));
                assert_refuses_prefixes(&bytes[..len], |bytes| {
                    VirtioHeader::parse(bytes, form, order).map(|_| ())
                });
            }
        }
        assert!(Form::from_len(11).is_err());
    }

    #[test]
    fn b38_emit_defines_every_byte_of_every_form() {
        for form in Form::ALL {
            for (order, bytes) in [(Order::Little, LITTLE), (Order::Big, BIG)] {
                assert_emits(&bytes[..form.len()], |buffer| HEADER.emit(form, order, buffer));
            }
        }
    }

    #[test]
    fn padding_is_not_read() {
        let mut bytes = LITTLE;
        bytes[field::PADDING].fill(0xff);
        let parsed = VirtioHeader::parse(&bytes, Form::Tunnel, Order::Little);
        assert_eq!(parsed, Ok((HEADER, &[][..])));
    }

    #[test]
    fn native_order_is_that_of_numbers() {
        let mut buffer = [0; 10];
        HEADER.emit(Form::Short, Order::NATIVE, &mut buffer).unwrap();
        assert_eq!(buffer[field::GSO_SIZE], 1448_u16.to_ne_bytes());
    }

    #[test]
    fn type_and_the_bits_added_to_it() {
        let header = VirtioHeader { gso_type: GSO_TCP_IPV6 | GSO_TUNNEL_IPV6 | GSO_ECN, ..HEADER };
        assert_eq!((header.segmentation(), header.tunnel()), (GSO_TCP_IPV6, GSO_TUNNEL_IPV6));
        assert!(header.has_ecn() && !HEADER.has_ecn());
        assert!(header.has(FLAG_NEEDS_CHECKSUM) && !header.has(FLAG_DATA_VALID));
    }

    #[test]
    fn display() {
        let expected = "virtio flags 0x9 gso 0x21 size 1448 headers 66 checksum 84+16 tunnel 34/64";
        assert_eq!(HEADER.to_string(), expected);
    }
}
