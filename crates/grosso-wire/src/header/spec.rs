//! Specification of a kind of header, as data.
//!
//! Each header's file has a [`HeaderSpec`], and one line of the registry makes it a [`Kind`]. All that depends on the
//! kind of a header (dissection, flow keys, masks, shapes, features, names in reports) is a function of the
//! specification, so a new header is a file and a line.

use core::ops::Range;

use crate::kind::Kind;
use crate::walk::{Step, Walk};

/// One kind of header.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeaderSpec {
    /// The short word that [`Stack`](crate::Stack)'s `Display` and reports use.
    pub name: &'static str,
    /// The part that it plays in a packet.
    pub class: Class,
    /// The numbers by which other headers say that this one follows.
    pub announced: Announced,
    /// Reads the header at the front of the remaining bytes: its length, and the next header.
    pub(crate) read: Read,
    /// Its fields.
    pub layouts: Layouts,
    /// Bytes behind the fields: options, and contents without fields of their own.
    pub tail: Tail,
    /// The bits that decide which headers follow, except lengths of payload.
    pub structure: Structure,
    /// Segmentation support that a device must have for superframes with this header.
    pub segmentation: Segmentation,
    /// Reader of the checksum that the header leaves to the receiver of the inner packet, if it can announce one.
    pub remote_checksum: Option<ReadRemote>,
    /// Check of a receiver that removes the header of a tunnel; `None` if the header is not one to remove.
    pub receive: Option<Receive>,
}

/// Check of a tunnel header by a receiver that removes it.
pub type Receive = fn(&[u8]) -> Result<Received, Refused>;

/// Findings about a tunnel header that a receiver may remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Whether bits are set that the standard reserves and that a receiver ignores.
    pub has_reserved: bool,
    /// Whether an option must be understood by the end of the tunnel.
    pub has_critical: bool,
}

/// Reason why a receiver refuses a tunnel header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Flags that change the layout, or a required flag that is clear.
    Flags,
    /// Another version, or an operations packet.
    Version,
    /// A control message, which carries no packet.
    Control,
    /// Options that do not fill their space exactly.
    Options,
}

/// Reader of the checksum that a header leaves to the receiver of the inner packet, if any.
pub type ReadRemote = fn(&[u8]) -> Option<Remote>;

/// A step of the dissector over one header.
pub(crate) type Read = for<'a, 's, 'w> fn(&'w mut Walk<'a, 's>) -> Step;

/// Role of a header in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The link layer, and what is between it and IP.
    Link,
    /// IP.
    Network,
    /// An extension header of IPv6.
    Extension,
    /// TCP and UDP, which end in a payload that trains can be made of.
    Transport,
    /// ICMP, and transport protocols of which no train can be made.
    Control,
    /// A header in front of something encrypted.
    Security,
    /// A header around a packet, inside IP or a link layer.
    Tunnel,
}

/// Numbers by which other headers announce one, at most [`NUMBERS_MAX`] of each.
#[derive(Debug)]
#[non_exhaustive]
pub struct Announced {
    /// EtherTypes of a link layer.
    pub ethertypes: &'static [u16],
    /// EtherTypes of a tunnel header such as GRE.
    pub tunnel_ethertypes: &'static [u16],
    /// IP protocols.
    pub protocols: &'static [u8],
    /// Numbers of the registry that VXLAN-GPE and the network service header share (RFC 8300 section 11.2.5).
    pub next_protocols: &'static [u8],
    /// UDP port that announces it.
    pub port: Option<AnnouncedByPort>,
}

/// Announcement of a header by a UDP port.
#[derive(Debug)]
#[non_exhaustive]
pub struct AnnouncedByPort {
    /// The port that IANA assigned.
    pub assigned: u16,
    /// Name of the tunnel in messages; in lower case it is its name in options.
    pub title: &'static str,
    /// Number of the tunnel in the list of ports that captures record, from 1; each number is used once.
    pub code: u8,
    /// Reads the payload of a datagram to this port.
    pub(crate) read: Read,
}

/// Most numbers of one kind that announce a header.
pub const NUMBERS_MAX: usize = 4;

impl Announced {
    /// No number: another header's own fields announce this one.
    pub const NEVER: Self = Self {
        ethertypes: &[],
        tunnel_ethertypes: &[],
        protocols: &[],
        next_protocols: &[],
        port: None,
    };
}

/// The fields of a header's fixed part.
#[derive(Debug)]
pub enum Layouts {
    /// The same in every such header.
    One(Layout),
    /// Chosen by the first bytes of the header. Missing bytes count as zero.
    Chosen(fn(&[u8]) -> &'static Layout),
}

/// Fields of a header's fixed part in order of position, and their bits that identify a flow. Every byte belongs to
/// exactly one field.
#[derive(Debug)]
pub struct Layout {
    /// The fields.
    pub fields: &'static [Field],
    key: Key,
    number: Option<Number>,
}

impl Layout {
    /// No field: all bytes of the header are equal along a train.
    pub const NONE: Self = Self::new(&[]);

    /// A header of these fields.
    #[must_use]
    pub const fn new(fields: &'static [Field]) -> Self {
        Self { fields, key: Key::of(fields), number: Number::of(fields) }
    }

    /// The bits that identify a flow.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[KeyWord] {
        &self.key.words[..self.key.count.min(KEY_WORDS_MAX)]
    }

    /// End of the fixed part, in bytes from the start of the header.
    #[must_use]
    pub const fn end(&self) -> usize {
        match self.fields.last() {
            Some(last) => last.bytes.end,
            None => 0,
        }
    }
}

/// One field of a header.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name of the field in reports.
    pub name: &'static str,
    /// Position, in bytes from the start of its header.
    pub bytes: Range<usize>,
    /// Meaning.
    pub role: Role,
    /// Law of its variation along a train.
    pub law: Law,
    /// The bits, the first byte's highest first, that no profile lets vary.
    pub pinned: u64,
    /// Notation in reports.
    pub notation: Notation,
}

impl Field {
    /// A field that varies by a law of its own.
    #[must_use]
    pub const fn new(name: &'static str, bytes: Range<usize>, role: Role, law: Law) -> Self {
        let notation =
            if bytes.end - bytes.start == 1 { Notation::Number } else { Notation::Bytes };
        Self { name, bytes, role, law, pinned: 0, notation }
    }

    /// A field that is equal along a train.
    #[must_use]
    pub const fn equal(name: &'static str, bytes: Range<usize>, role: Role) -> Self {
        Self::new(name, bytes, role, Law::Equal)
    }

    /// A field of which every bit identifies a flow.
    #[must_use]
    pub const fn key(name: &'static str, bytes: Range<usize>, role: Role) -> Self {
        Self::new(name, bytes, role, Law::Key { bits: u64::MAX })
    }

    /// The same with bits that no profile lets vary.
    #[must_use]
    pub const fn pinning(mut self, bits: u64) -> Self {
        self.pinned = bits;
        self
    }

    /// The same in another notation.
    #[must_use]
    pub const fn shown(mut self, notation: Notation) -> Self {
        self.notation = notation;
        self
    }
}

/// Meaning of a field, the same in every header that has such a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A field of the link layer.
    Link,
    /// A tag of the link layer whose number both directions of a connection have.
    Tag,
    /// Version or header length.
    Form,
    /// Type of service or traffic class alone.
    TypeOfService,
    /// Traffic class and flow label in one word.
    ClassAndLabel,
    /// Whether the packet may be fragmented, and whether it was.
    Fragmentation,
    /// TTL or hop limit.
    TimeToLive,
    /// Identification of the datagram that a fragment belongs to.
    Identification,
    /// An address.
    Address,
    /// A port.
    Port,
    /// Protocol number behind an IP header.
    Protocol,
    /// The number of a virtual network, which both directions of a connection have.
    Network,
    /// The number of a tunnel, which may differ between the directions of a connection.
    Channel,
    /// Another field of a tunnel header.
    Tunnel,
    /// An IPv6 extension header.
    Extension,
    /// The place of the payload in a stream.
    Sequence,
    /// Next sequence number expected from the other side.
    Acknowledgment,
    /// TCP flags and header length.
    Flags,
    /// The receive window.
    Window,
    /// The urgent pointer.
    UrgentPointer,
    /// TCP options.
    Options,
    /// A length of what follows.
    Length,
    /// A checksum.
    Checksum,
}

/// Law by which a field varies along a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Equal; another value of these bits, the first byte's highest first, is another flow.
    Key {
        /// Identifying bits of the first 64; all further bits of the field identify as well.
        bits: u64,
    },
    /// Equal; a different value ends the train.
    Equal,
    /// The bytes from `skip` bytes after the header's start to the end of the packet. A length that
    /// does not fit is written as zero (rules G50, G63), which only IP allows.
    Length {
        /// Bytes at the start of the header that the length does not count.
        skip: usize,
    },
    /// Steps by one a packet, or stays fixed: one mode an IP level (rule G14, RFC 6864).
    Identification,
    /// Advances by the payload so far (rule S10).
    Sequence,
    /// TCP flags: FIN and PSH are on the last packet only, CWR on the first or on all; the rest is
    /// equal (rules G35, S11).
    Flags,
    /// The one's-complement sum over the coverage given by [`Cover`].
    Checksum(Cover),
}

/// Coverage of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The header itself (IPv4).
    Header,
    /// The header and everything after it (GRE).
    Packet,
    /// A pseudo-header of the enclosing IP header, this header and everything after it (TCP).
    Transport {
        /// The protocol in the pseudo-header.
        protocol: u8,
    },
    /// As [`Cover::Transport`], but zero says that there is none, and stays zero (UDP, RFC 768).
    Datagram {
        /// The protocol in the pseudo-header.
        protocol: u8,
    },
}

impl Cover {
    /// Whether a field of zero says that there is no checksum.
    #[must_use]
    pub const fn zero_means_none(self) -> bool {
        matches!(self, Self::Datagram { .. })
    }

    /// The protocol in the pseudo-header; zero when there is none.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Header | Self::Packet => 0,
            Self::Transport { protocol } | Self::Datagram { protocol } => protocol,
        }
    }
}

/// Notation of a field in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// A decimal number.
    Number,
    /// A hexadecimal number.
    Hexadecimal,
    /// The nine flags of TCP in hexadecimal.
    Flags,
    /// Bytes in hexadecimal.
    Bytes,
}

/// Bytes behind the fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Name in reports.
    pub name: &'static str,
    /// Meaning.
    pub role: Role,
}

/// The bits of a header that decide which headers there are: a packet that agrees in those of all its headers has the
/// same headers.
#[derive(Clone, Copy, Debug)]
pub enum Structure {
    /// Bytes, each with the bits that count.
    Bits(&'static [(usize, u8)]),
    /// Every bit.
    Whole,
    /// Every bit but those of the bytes from `start` to `end`, which vary along a train.
    WholeExcept {
        /// The first of these bytes.
        start: usize,
        /// The end of these bytes.
        end: usize,
    },
    /// As the header says: bits of its first 16 bytes, the first byte's highest first.
    Chosen(fn(&[u8]) -> u128),
}

impl Structure {
    /// The bytes of a header, each with the bits that count.
    pub fn bits(self, header: &[u8]) -> impl Iterator<Item = (usize, u8)> {
        let all = header.len();
        let (bits, whole, behind, chosen) = match self {
            Self::Bits(bits) => (bits, 0..0, 0..0, 0),
            Self::Whole => (&[][..], 0..all, 0..0, 0),
            Self::WholeExcept { start, end } => (&[][..], 0..start.min(all), end..all, 0),
            Self::Chosen(choose) => (&[][..], 0..0, 0..0, choose(header)),
        };
        let chosen = chosen.to_be_bytes().into_iter().enumerate();
        let whole = whole.chain(behind).map(|at| (at, 0xff));
        bits.iter().copied().chain(whole).chain(chosen.filter(|(_, bits)| *bits != 0))
    }
}

/// Segmentation support that a header requires of a device: the bits of Linux's `gso_type` (rule S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// None: the header is repeated unchanged.
    Nothing,
    /// IP, also directly inside IP.
    Ip,
    /// TCP.
    Tcp,
    /// UDP as a transport, or around a tunnel.
    Udp,
    /// GRE.
    Gre,
    /// More than any feature offers.
    Never,
}

/// Checksum that the receiver of a tunnelled packet completes, in bytes from the end of the announcing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Start of the sum.
    pub start: usize,
    /// Position of the checksum.
    pub at: usize,
}

impl Remote {
    /// A place that no transport header has.
    pub const NOWHERE: Self = Self { start: usize::MAX, at: usize::MAX };
}

impl HeaderSpec {
    /// The fields of this header.
    #[inline]
    #[must_use]
    pub fn layout(&self, header: &[u8]) -> &Layout {
        match &self.layouts {
            Layouts::One(layout) => layout,
            Layouts::Chosen(choose) => choose(header),
        }
    }

    /// Position and coverage of the checksum that covers more than the header, where there is one. An optional checksum
    /// is absent where it is zero.
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

    /// The number by which the header distinguishes networks or tunnels, and its role: [`Role::Tag`], [`Role::Network`]
    /// or [`Role::Channel`].
    #[inline]
    #[must_use]
    pub fn identifier(&self, header: &[u8]) -> Option<(Role, u32)> {
        let Number { role, at, shift, mask } = self.layout(header).number.as_ref()?;
        let word = header.get(*at..)?.first_chunk::<4>()?;
        Some((*role, u32::from_be_bytes(*word) >> shift & mask))
    }
}

/// Number by which a header distinguishes networks or tunnels: bits of a four-byte word that lies inside every such
/// header.
#[derive(Clone, Copy, Debug)]
struct Number {
    role: Role,
    at: usize,
    shift: u32,
    mask: u32,
}

impl Number {
    /// The number of the first field with such a role.
    const fn of(fields: &[Field]) -> Option<Self> {
        let mut i = 0;
        while i < fields.len() {
            let Field { bytes, role, law, .. } = &fields[i];
            if let Law::Key { bits } = *law
                && matches!(role, Role::Tag | Role::Network | Role::Channel)
            {
                let shift = 32 - 8 * (bytes.end - bytes.start) as u32;
                let mask = (bits >> 32) as u32 >> shift;
                return Some(Self { role: *role, at: bytes.start, shift, mask });
            }
            i += 1;
        }
        None
    }
}

/// Up to eight bytes of a header, and which of their bits identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWord {
    /// Start, in bytes from the start of the header.
    pub at: u16,
    /// The bits, the first byte's highest first.
    pub mask: u64,
}

/// The bits of a header that identify a flow, in as few words as there can be.
#[derive(Clone, Copy, Debug)]
struct Key {
    words: [KeyWord; KEY_WORDS_MAX],
    count: usize,
}

/// Most words of a header: two IPv6 addresses.
const KEY_WORDS_MAX: usize = 4;
/// Greatest end of an identifying field, in bytes from the start of its header.
const KEY_BYTES_MAX: usize = 40;

impl Key {
    /// Compiles the fields that identify into words.
    const fn of(fields: &[Field]) -> Self {
        let bytes = key_bytes(fields);
        let mut key = Self { words: [KeyWord { at: 0, mask: 0 }; KEY_WORDS_MAX], count: 0 };
        let mut at = 0;
        while at < KEY_BYTES_MAX {
            if bytes[at] == 0 {
                at += 1;
                continue;
            }
            let mut mask = 0;
            let mut byte = 0;
            while byte < 8 {
                mask =
                    mask << 8 | if at + byte < KEY_BYTES_MAX { bytes[at + byte] as u64 } else { 0 };
                byte += 1;
            }
            key.words[key.count] = KeyWord { at: at as u16, mask };
            key.count += 1;
            at += 8;
        }
        key
    }
}

/// The bits that identify, of each byte of a header.
const fn key_bytes(fields: &[Field]) -> [u8; KEY_BYTES_MAX] {
    let mut bytes = [0; KEY_BYTES_MAX];
    let mut i = 0;
    while i < fields.len() {
        if let Law::Key { bits } = fields[i].law {
            let start = fields[i].bytes.start;
            let mut byte = 0;
            while start + byte < fields[i].bytes.end {
                bytes[start + byte] = if byte < 8 { (bits >> (56 - 8 * byte)) as u8 } else { 0xff };
                byte += 1;
            }
        }
        i += 1;
    }
    bytes
}

/// Whether a number is in a short list. Written out, so that a list known to the compiler becomes plain comparisons.
#[inline(always)]
pub(crate) const fn is_one_of(number: u16, numbers: &[u16]) -> bool {
    assert!(numbers.len() <= NUMBERS_MAX);
    let count = numbers.len();
    count > 0 && numbers[0] == number
        || count > 1 && numbers[1] == number
        || count > 2 && numbers[2] == number
        || count > 3 && numbers[3] == number
}

/// The same for numbers of one byte.
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
    /// The short word that [`Stack`](crate::Stack)'s `Display` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether it is IP.
    #[inline]
    #[must_use]
    pub const fn is_ip(self) -> bool {
        matches!(self.class(), Class::Network)
    }

    /// Whether it is TCP or UDP.
    #[inline]
    #[must_use]
    pub const fn is_transport(self) -> bool {
        matches!(self.class(), Class::Transport)
    }
}
