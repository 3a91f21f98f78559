//! What a reader hands out: packets, and the blocks between them. Both borrow the reader's buffer.

use core::ops::Range;

use super::error::Damage;
use super::format::{Format, Interface};
use super::metadata::PacketMeta;
use super::options::Options;
use super::order::ByteOrder;

/// The next thing in a capture.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A packet.
    Packet(Packet<'a>),
    /// A pcapng block that holds no packet. A faithful copy passes it on.
    Block(Block<'a>),
}

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The bytes captured, from the link layer on.
    pub data: &'a [u8],
    /// Length of the packet on its link. Larger than `data` when the capture cut it; may be
    /// smaller in files that lie.
    pub original_len: u32,
    /// Nanoseconds since the epoch, rounded down; `None` where the format holds no time.
    pub timestamp_ns: Option<u64>,
    /// The number of its interface within its section.
    pub interface: u32,
    /// That interface.
    pub description: &'a Interface,
    /// Its place in the file; the first packet is 1.
    pub number: u64,
    pub(crate) options: Options<'a>,
    pub(crate) raw: &'a [u8],
    pub(crate) format: Format,
}

impl<'a> Packet<'a> {
    /// Its pcapng options; none in classic pcap.
    #[must_use]
    pub const fn options(&self) -> Options<'a> {
        self.options
    }

    /// What the capture says about the packet beside its bytes.
    ///
    /// Damaged options and unknown versions of the offload option count as absent.
    #[must_use]
    pub fn meta(&self) -> PacketMeta {
        PacketMeta::of_packet(self)
    }

    /// What is wrong with the packet, which is usable nevertheless.
    #[must_use]
    pub fn warning(&self) -> Option<Damage> {
        self.options.damage()
    }

    /// Whether bytes are missing that were on the link.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.original_len as usize > self.data.len()
    }

    /// The whole record as it stands in the file.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The byte order of its file or section.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        self.options.order()
    }
}

/// One pcapng block that holds no packet: section header, interface, names, statistics, secrets,
/// or anything that this code does not know.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The block type.
    pub kind: u32,
    /// The whole block as it stands in the file.
    pub raw: &'a [u8],
    /// The byte order of its section.
    pub order: ByteOrder,
    /// What an interface description block says.
    pub interface: Option<Interface>,
}

impl<'a> Block<'a> {
    /// The options of a section header, an interface description, interface statistics, names or
    /// secrets: names, comments, counters. Other blocks have none that could be found.
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        super::pcapng::block_options(self.kind, self.order, self.raw)
    }

    /// Whether this block begins a section.
    #[must_use]
    pub const fn is_section_header(&self) -> bool {
        self.kind == super::pcapng::SECTION_HEADER
    }

    /// Whether a tool that changes packets may copy this block.
    ///
    /// Only custom blocks marked so may not (draft-ietf-opsawg-pcapng section 4.8).
    #[must_use]
    pub const fn is_copyable(&self) -> bool {
        self.kind != super::pcapng::CUSTOM_BLOCK_NO_COPY
    }
}

/// What a decoder found at the front of the bytes that it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The record is not complete: it needs so many bytes.
    Need(Need),
    /// A complete record of so many bytes.
    Record { bytes: usize, layout: Layout },
}

/// What is missing of an incomplete record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// How many bytes the decoder wants to see, counted from the start of the record.
    pub(crate) bytes: usize,
    /// How many of them precede what `part` names.
    pub(crate) before: usize,
    pub(crate) part: Part,
}

/// The part of a record that is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    PacketHeader,
    Packet,
    BlockHeader,
    Block(u32),
}

/// Where the parts of a complete record lie, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Packet(PacketLayout),
    Block { kind: u32, interface: Option<Interface> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketLayout {
    pub(crate) interface: u32,
    pub(crate) timestamp_ns: Option<u64>,
    pub(crate) original_len: u32,
    pub(crate) data: Span,
    pub(crate) options: Span,
}

/// A range that is `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}
