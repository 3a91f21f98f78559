//! Entries that a reader hands out: packets, and the blocks between them. Both borrow the reader's
//! buffer.

use super::error::Damage;
use super::format::{Format, Interface};
use super::metadata::{Offload, PacketMeta};
use super::offload_option;
use super::options::{Options, code};
use super::order::ByteOrder;
use super::pcapng;

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
    /// The bytes captured, from the link layer on, without a frame check sequence of known length.
    pub data: &'a [u8],
    /// Length of the packet on its link, in bytes, without a frame check sequence of known length.
    /// Larger than `data` when the snapshot length cut
    /// the packet; smaller only in files with wrong lengths.
    pub original_len: u32,
    /// Nanoseconds since the epoch, rounded down; `None` where the format holds no time.
    pub timestamp_ns: Option<u64>,
    /// The number of the packet's interface within its section.
    pub interface: u32,
    /// The number of the first interface of the same device: `interface`, unless who reads several
    /// captures as one knows better ([`Outcome::device`](super::Outcome::device)).
    pub device: u32,
    /// The description of that interface.
    pub description: &'a Interface,
    /// Position of the packet in the file, counted from 1.
    pub number: u64,
    /// The file that it comes from, and its place there.
    pub origin: Origin,
    pub(crate) options: Options<'a>,
    pub(crate) raw: &'a [u8],
    pub(crate) format: Format,
    /// Whether `raw` has a frame check sequence that `data` has not.
    pub(crate) is_stripped: bool,
}

/// The place of a packet in the file that it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The index of the file among those that are read as one; 0 unless who reads them knows better
    /// ([`Outcome::next_origin`](super::Outcome::next_origin)).
    pub file: u32,
    /// Position in that file, counted from 1. Packets that were not wanted count.
    pub number: u64,
    /// Offset of its record or block, in bytes of the uncompressed file.
    pub offset: u64,
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
        let mut meta = PacketMeta {
            timestamp_ns: self.timestamp_ns,
            interface: self.interface,
            original_len: self.original_len,
            flags: None,
            offload: None,
        };
        let order = self.order();
        for option in self.options.iter().flatten() {
            match option.code {
                code::PACKET_FLAGS => {
                    meta.flags = option.value.first_chunk().map(|bytes| order.u32_from(*bytes));
                }
                code::CUSTOM_BINARY if meta.offload.is_none() => {
                    meta.offload = offload_option::decode(order, option.value);
                }
                _ => {}
            }
        }
        // The option is more precise than the flags, so it takes precedence.
        if meta.offload.is_none() {
            meta.offload = meta.flags.and_then(Offload::from_flags);
        }
        meta
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
        pcapng::block_options(self.kind, self.order, self.raw)
    }

    /// Whether this block begins a section.
    #[must_use]
    pub const fn is_section_header(&self) -> bool {
        self.kind == pcapng::SECTION_HEADER
    }

    /// Whether a tool that changes packets may copy this block.
    ///
    /// Only custom blocks that are marked as not copyable may not (draft-ietf-opsawg-pcapng section
    /// 4.8).
    #[must_use]
    pub const fn is_copyable(&self) -> bool {
        self.kind != pcapng::CUSTOM_BLOCK_NO_COPY
    }
}
