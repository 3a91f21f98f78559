//! Entries that a reader hands out: packets, and the blocks between them. Both borrow the reader's
//! buffer.

use core::ops::Range;

use super::error::Damage;
use super::format::{Format, Interface};
use super::metadata::PacketMeta;
use super::options::Options;
use super::order::ByteOrder;

/// One entry of a capture.
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
    /// Length of the packet on its link, in bytes. Larger than `data` when the snapshot length cut
    /// the packet; smaller only in files with wrong lengths.
    pub original_len: u32,
    /// Nanoseconds since the epoch, rounded down; `None` where the format holds no time.
    pub timestamp_ns: Option<u64>,
    /// The number of the packet's interface within its section.
    pub interface: u32,
    /// The description of that interface.
    pub description: &'a Interface,
    /// Position of the packet in the file, counted from 1.
    pub number: u64,
    pub(crate) options: Options<'a>,
    pub(crate) raw: &'a [u8],
    pub(crate) format: Format,
}

impl<'a> Packet<'a> {
    /// The packet's pcapng options; none in classic pcap.
    #[must_use]
    pub const fn options(&self) -> Options<'a> {
        self.options
    }

    /// Metadata that the capture holds for the packet: time, interface, flags and offload state.
    ///
    /// Damaged options and unknown versions of the offload option count as absent.
    #[must_use]
    pub fn meta(&self) -> PacketMeta {
        PacketMeta::of_packet(self)
    }

    /// Damage in the packet's options, which leaves the packet itself usable.
    #[must_use]
    pub fn warning(&self) -> Option<Damage> {
        self.options.damage()
    }

    /// Whether the capture holds fewer bytes than the link carried.
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
    /// The interface that this block describes; `None` unless it is an interface description.
    pub interface: Option<Interface>,
}

impl<'a> Block<'a> {
    /// The options of a section header, an interface description, interface statistics, names or
    /// secrets: names, comments, counters. For other blocks there are none, because their layout is
    /// not known.
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
    /// Only custom blocks that are marked as not copyable may not (draft-ietf-opsawg-pcapng section
    /// 4.8).
    #[must_use]
    pub const fn is_copyable(&self) -> bool {
        self.kind != super::pcapng::CUSTOM_BLOCK_NO_COPY
    }
}

/// Result of decoding the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The record is not complete; more bytes are needed.
    Need(Need),
    /// A complete record of `bytes` bytes.
    Record { bytes: usize, layout: Layout },
}

/// Bytes that an incomplete record still lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Bytes that the decoder needs, counted from the start of the record.
    pub(crate) bytes: usize,
    /// Bytes of these that precede `part`.
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

/// Layout of a complete record; ranges count from its start.
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
