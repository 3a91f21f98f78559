//! Data types that describe a kind of header.
//!
//! Each header's file has a [`HeaderSpec`], and a registry entry turns it into a [`Kind`]. Everything that depends on
//! the kind of a header (dissection, flow keys, masks, shapes, features, names in reports) is derived from this
//! description, so a new header takes one file and one entry.

mod key;

use core::ops::Range;

pub use self::key::KeyWord;
use self::key::{KEY_WORDS_MAX, Key, Number};
use crate::kind::Kind;
use crate::walk::{Step, Walk};

/// Description of one kind of header for generic code.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeaderSpec {
    /// Short name, used by [`Stack`](crate::Stack)'s `Display` and in reports.
    pub name: &'static str,
    /// Role of the header in a packet.
    pub class: Class,
    /// Numbers in other headers that announce this header.
    pub announced: Announced,
    /// Function that reads the header at the start of the remaining bytes and determines its length and the next
    /// header.
    pub(crate) read: Read,
    /// Fields of the fixed part.
    pub layouts: Layouts,
    /// Bytes after the fixed part: options, or data that the header's specification does not divide into fields.
    pub tail: Tail,
    /// Bits that determine which headers follow. Payload lengths are not included.
    pub structure: Structure,
    /// Segmentation feature that a device needs for superframes with this header.
    pub segmentation: Segmentation,
    /// Reader of a remote checksum request, if the header can carry one.
    pub remote_checksum: Option<ReadRemote>,
    /// Check to make before removing a tunnel header, or `None` if the header is never removed.
    pub receive: Option<Receive>,
}

/// Function with which a receiver checks a tunnel header before removing it.
pub type Receive = fn(&[u8]) -> Result<Received, Refused>;

/// Result of checking a tunnel header that may be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Whether any bits are set that the standard reserves and receivers ignore.
    pub has_reserved: bool,
    /// Whether the header has an option that tunnel endpoints must understand.
    pub has_critical: bool,
}

/// Reason why a receiver refuses a tunnel header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Flags are set that change the layout, or a required flag is clear.
    Flags,
    /// The version is not supported, or the packet is an operations packet.
    Version,
    /// The header belongs to a control message, which carries no packet.
    Control,
    /// The options do not fill their space exactly.
    Options,
}

/// Reader of a remote checksum request in a header.
pub type ReadRemote = fn(&[u8]) -> Option<Remote>;

/// One step of the dissector over a header.
pub(crate) type Read = for<'a, 's, 'w> fn(&'w mut Walk<'a, 's>) -> Step;

/// Role of a header in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Link layer, or a header between it and IP.
    Link,
    /// IP.
    Network,
    /// IPv6 extension header.
    Extension,
    /// TCP or UDP, whose payload can be merged.
    Transport,
    /// Control message, for example ICMP, or a transport protocol that cannot be merged.
    Control,
    /// Header of encrypted content.
    Security,
    /// Tunnel header, inside IP or a link layer.
    Tunnel,
}

/// Numbers in other headers that announce this one, at most [`NUMBERS_MAX`] of each type.
#[derive(Debug)]
#[non_exhaustive]
pub struct Announced {
    /// EtherTypes in a link-layer header.
    pub ethertypes: &'static [u16],
    /// EtherTypes in a tunnel header, for example GRE.
    pub tunnel_ethertypes: &'static [u16],
    /// IP protocols.
    pub protocols: &'static [u8],
    /// Next-protocol numbers, which VXLAN-GPE and the network service header share (RFC 8300 section 11.2.5).
    pub next_protocols: &'static [u8],
    /// UDP port.
    pub port: Option<AnnouncedByPort>,
}

/// UDP port that announces a header.
#[derive(Debug)]
#[non_exhaustive]
pub struct AnnouncedByPort {
    /// Port assigned by IANA.
    pub assigned: u16,
    /// Name of the tunnel in messages. Options use it in lower case.
    pub title: &'static str,
    /// Number of the tunnel in the port list of captures, starting from 1. Every number is unique.
    pub code: u8,
    /// Reader for the payload of a datagram to this port.
    pub(crate) read: Read,
}

/// Maximum number of values of each type, for example UDP ports, that announce one header.
pub const NUMBERS_MAX: usize = 4;

impl Announced {
    /// No numbers: fields of another header announce this one.
    pub const NEVER: Self = Self {
        ethertypes: &[],
        tunnel_ethertypes: &[],
        protocols: &[],
        next_protocols: &[],
        port: None,
    };
}

/// Fields of a header's fixed part.
#[derive(Debug)]
pub enum Layouts {
    /// The same fields in every header of this kind.
    One(Layout),
    /// Fields chosen by the first bytes of the header. Missing bytes count as zero.
    Chosen(fn(&[u8]) -> &'static Layout),
}

/// Fields of a header's fixed part, ordered by position, with the bits that identify a flow. Every byte belongs to
/// exactly one field.
#[derive(Debug)]
pub struct Layout {
    /// Fields, ordered by position.
    pub fields: &'static [Field],
    key: Key,
    number: Option<Number>,
}

impl Layout {
    /// No fields: all bytes of the header are equal in all packets of a train.
    pub const NONE: Self = Self::new(&[]);

    /// Creates a layout from its fields.
    #[must_use]
    pub const fn new(fields: &'static [Field]) -> Self {
        Self { fields, key: Key::of(fields), number: Number::of(fields) }
    }

    /// Returns the bits that identify a flow.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[KeyWord] {
        &self.key.words[..self.key.count.min(KEY_WORDS_MAX)]
    }

    /// Returns the length of the fixed part in bytes.
    #[must_use]
    pub const fn end(&self) -> usize {
        match self.fields.last() {
            Some(last) => last.bytes.end,
            None => 0,
        }
    }
}

/// Field of a header.
#[derive(Clone, Debug)]
pub struct Field {
    /// Field name in reports.
    pub name: &'static str,
    /// Byte range in the header.
    pub bytes: Range<usize>,
    /// Meaning of the field.
    pub role: Role,
    /// Law that describes how the field varies within a train.
    pub law: Law,
    /// Bits that must be equal under every profile. The highest bit is that of the first byte.
    pub pinned: u64,
    /// Notation in reports.
    pub notation: Notation,
}

impl Field {
    /// Creates a field that varies by this law.
    #[must_use]
    pub const fn new(name: &'static str, bytes: Range<usize>, role: Role, law: Law) -> Self {
        let notation =
            if bytes.end - bytes.start == 1 { Notation::Number } else { Notation::Bytes };
        Self { name, bytes, role, law, pinned: 0, notation }
    }

    /// Creates a field that has the same value in all packets of a train.
    #[must_use]
    pub const fn equal(name: &'static str, bytes: Range<usize>, role: Role) -> Self {
        Self::new(name, bytes, role, Law::Equal)
    }

    /// Creates a field in which all bits identify a flow.
    #[must_use]
    pub const fn key(name: &'static str, bytes: Range<usize>, role: Role) -> Self {
        Self::new(name, bytes, role, Law::Key { bits: u64::MAX })
    }

    /// Returns the field with these bits pinned: they must be equal under every profile.
    #[must_use]
    pub const fn pinning(mut self, bits: u64) -> Self {
        self.pinned = bits;
        self
    }

    /// Returns the field with another notation in reports.
    #[must_use]
    pub const fn shown(mut self, notation: Notation) -> Self {
        self.notation = notation;
        self
    }
}

/// Meaning of a field. Fields with the same meaning have the same role in all headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Field of the link layer.
    Link,
    /// Link-layer tag whose number is the same in both directions of a connection.
    Tag,
    /// Version or header length.
    Form,
    /// Type of service, or traffic class without flow label.
    TypeOfService,
    /// Traffic class and flow label in one word.
    ClassAndLabel,
    /// DF, MF and fragment offset.
    Fragmentation,
    /// TTL or hop limit.
    TimeToLive,
    /// Identification of the datagram to which a fragment belongs.
    Identification,
    /// An address.
    Address,
    /// A port.
    Port,
    /// Protocol number after an IP header.
    Protocol,
    /// Virtual network identifier, the same in both directions of a connection.
    Network,
    /// Tunnel identifier, which may differ between the directions of a connection.
    Channel,
    /// Any other field of a tunnel header.
    Tunnel,
    /// An IPv6 extension header.
    Extension,
    /// Sequence number of the payload in a stream.
    Sequence,
    /// Next sequence number expected from the peer.
    Acknowledgment,
    /// TCP flags and header length.
    Flags,
    /// The receive window.
    Window,
    /// The urgent pointer.
    UrgentPointer,
    /// TCP options.
    Options,
    /// Length of the following bytes.
    Length,
    /// A checksum.
    Checksum,
}

/// Law that describes how a field varies within a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// The field is equal in all packets of a flow. The highest bit of `bits` is that of the first byte.
    Key {
        /// Identifying bits among the first 64 bits of the field. All later bits identify the flow too.
        bits: u64,
    },
    /// The field is equal in all packets of a train; a different value ends the train.
    Equal,
    /// The field is the number of bytes from `skip` bytes after the start of the header to the end of the packet. A
    /// length that does not fit into the field is written as zero (rules G50, G63), which only IP allows.
    Length {
        /// Number of bytes at the start of the header that do not count towards the length.
        skip: usize,
    },
    /// The field increases by one per packet or stays fixed, which is decided per IP level (rule G14, RFC 6864).
    Identification,
    /// The field advances by the number of preceding payload bytes (rule S10).
    Sequence,
    /// TCP flags: FIN and PSH are set only in the last packet, CWR in the first or in all; the others are equal (rules
    /// G35, S11).
    Flags,
    /// One's complement checksum over the bytes that [`Cover`] describes.
    Checksum(Cover),
}

/// Bytes covered by a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The header itself (IPv4).
    Header,
    /// The header and everything after it (GRE).
    Packet,
    /// A pseudo-header from the enclosing IP header, this header, and everything after it (TCP).
    Transport {
        /// Protocol in the pseudo-header.
        protocol: u8,
    },
    /// Like [`Cover::Transport`], but zero means that there is no checksum, and stays zero (UDP, RFC 768).
    Datagram {
        /// Protocol in the pseudo-header.
        protocol: u8,
    },
}

impl Cover {
    /// Returns whether a zero field means that there is no checksum.
    #[must_use]
    pub const fn zero_means_none(self) -> bool {
        matches!(self, Self::Datagram { .. })
    }

    /// Returns the protocol in the pseudo-header, or zero if there is no pseudo-header.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Header | Self::Packet => 0,
            Self::Transport { protocol } | Self::Datagram { protocol } => protocol,
        }
    }
}

/// Notation for a field in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// A decimal number.
    Number,
    /// A hexadecimal number.
    Hexadecimal,
    /// The nine TCP flags, in hexadecimal.
    Flags,
    /// Bytes, in hexadecimal.
    Bytes,
}

/// Bytes after the fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Name in reports.
    pub name: &'static str,
    /// Meaning of the bytes.
    pub role: Role,
}

/// Bits of a header that determine which headers follow: packets that agree in these bits in all headers have the same
/// header stack.
#[derive(Clone, Copy, Debug)]
pub enum Structure {
    /// Byte offsets, each with a mask of the significant bits.
    Bits(&'static [(usize, u8)]),
    /// Every bit of the header.
    Whole,
    /// The whole header except the bytes from `start` to `end`, which vary within a train.
    WholeExcept {
        /// Offset of the first of these bytes.
        start: usize,
        /// Offset after the last of these bytes.
        end: usize,
    },
    /// Computed from the header, as bits of its first 16 bytes. The highest bit is that of the first byte.
    Chosen(fn(&[u8]) -> u128),
    /// Like [`Structure::Chosen`], for a header that does not give the type of its content: computed from the header
    /// and the bytes after it.
    Ahead(fn(&[u8]) -> u128),
}

impl Structure {
    /// Returns byte offsets from the start of a header, each with a mask of the significant bits. `bytes` starts with
    /// the header, which is `len` bytes long.
    pub fn bits(self, bytes: &[u8], len: usize) -> impl Iterator<Item = (usize, u8)> {
        let header = bytes.get(..len).unwrap_or(bytes);
        let all = header.len();
        let (bits, whole, behind, chosen) = match self {
            Self::Bits(bits) => (bits, 0..0, 0..0, 0),
            Self::Whole => (&[][..], 0..all, 0..0, 0),
            Self::WholeExcept { start, end } => (&[][..], 0..start.min(all), end..all, 0),
            Self::Chosen(choose) => (&[][..], 0..0, 0..0, choose(header)),
            Self::Ahead(choose) => (&[][..], 0..0, 0..0, choose(bytes)),
        };
        let chosen = chosen.to_be_bytes().into_iter().enumerate();
        let whole = whole.chain(behind).map(|at| (at, 0xff));
        bits.iter().copied().chain(whole).chain(chosen.filter(|(_, bits)| *bits != 0))
    }
}

/// Segmentation feature that a header requires of a device, as in Linux's `gso_type` (rule S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// No feature is needed: the header is repeated unchanged.
    Nothing,
    /// IP, including IP directly inside IP.
    Ip,
    /// TCP.
    Tcp,
    /// UDP, either as the transport or around a tunnel.
    Udp,
    /// GRE.
    Gre,
    /// Not supported by any feature.
    Never,
}

/// Remote checksum request, with offsets in bytes from the end of the requesting header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Start of the sum.
    pub start: usize,
    /// Offset of the checksum field.
    pub at: usize,
}

impl Remote {
    /// Offsets that match no transport header.
    pub const NOWHERE: Self = Self { start: usize::MAX, at: usize::MAX };
}

impl HeaderSpec {
    /// Returns the fields of this header.
    #[inline]
    #[must_use]
    pub fn layout(&self, header: &[u8]) -> &Layout {
        match &self.layouts {
            Layouts::One(layout) => layout,
            Layouts::Chosen(choose) => choose(header),
        }
    }

    /// Returns the offset and coverage of the checksum that covers more than the header, if there is one. An optional
    /// checksum of zero counts as absent.
    #[must_use]
    pub fn checksum(&self, header: &[u8]) -> Option<(usize, Cover)> {
        self.layout(header).fields.iter().find_map(|field| match field.law {
            Law::Checksum(Cover::Header) => None,
            Law::Checksum(cover) => {
                let bytes = header.get(field.bytes.clone())?;
                let is_absent = cover.zero_means_none() && bytes == [0, 0];
                (!is_absent).then_some((field.bytes.start, cover))
            }
            _ => None,
        })
    }

    /// Returns the network or tunnel identifier and its role: [`Role::Tag`], [`Role::Network`] or [`Role::Channel`].
    #[inline]
    #[must_use]
    pub fn identifier(&self, header: &[u8]) -> Option<(Role, u32)> {
        let Number { role, at, shift, mask } = self.layout(header).number.as_ref()?;
        let word = header.get(*at..)?.first_chunk::<4>()?;
        Some((*role, u32::from_be_bytes(*word) >> shift & mask))
    }
}

/// Returns whether a number is in a short list. Without a loop, the compiler turns a constant list into plain
/// comparisons.
#[inline(always)]
pub(crate) const fn is_one_of(number: u16, numbers: &[u16]) -> bool {
    assert!(numbers.len() <= NUMBERS_MAX);
    let count = numbers.len();
    count > 0 && numbers[0] == number
        || count > 1 && numbers[1] == number
        || count > 2 && numbers[2] == number
        || count > 3 && numbers[3] == number
}

/// Returns whether a one-byte number is in a short list.
#[inline(always)]
pub(crate) const fn is_one_of_bytes(number: u8, numbers: &[u8]) -> bool {
    assert!(numbers.len() <= NUMBERS_MAX);
    let count = numbers.len();
    count > 0 && numbers[0] == number
        || count > 1 && numbers[1] == number
        || count > 2 && numbers[2] == number
        || count > 3 && numbers[3] == number
}

impl Kind {
    /// Returns the short name used by [`Stack`](crate::Stack)'s `Display`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns whether the header is IPv4 or IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ip(self) -> bool {
        matches!(self.class(), Class::Network)
    }

    /// Returns whether the header is TCP or UDP.
    #[inline]
    #[must_use]
    pub const fn is_transport(self) -> bool {
        matches!(self.class(), Class::Transport)
    }
}
