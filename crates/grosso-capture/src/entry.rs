//! Entries returned by a reader: packets and the blocks between them. Both borrow the reader's buffer.

use super::error::Damage;
use super::format::{Format, Interface};
use super::metadata::{Offload, PacketMeta, flag};
use super::offload_option;
use super::options::{Options, code};
use super::order::ByteOrder;
use super::pcapng;

/// One entry of a capture.
///
/// ```no_run
/// use grosso_capture::{CaptureReader, Entry};
///
/// let mut reader = CaptureReader::open("in.pcapng")?;
/// while let Some(entry) = reader.next()? {
///     match entry {
///         Entry::Packet(packet) => println!("packet {}", packet.number),
///         Entry::Block(block) => println!("block type {}", block.kind),
///     }
/// }
/// # Ok::<(), grosso_capture::CaptureError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A packet.
    Packet(Packet<'a>),
    /// A pcapng block without a packet. Copy it to preserve the rest of the capture.
    Block(Block<'a>),
}

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Captured bytes, starting with the link layer. A frame check sequence of known length is removed.
    pub data: &'a [u8],
    /// Length of the packet on its link in bytes, not counting a frame check sequence if its length is known. It is
    /// greater than the length of `data` if the snapshot length truncated the packet, and smaller only if the file is
    /// wrong.
    pub original_len: u32,
    /// Timestamp in nanoseconds since the epoch, rounded down, or `None` if the record has none.
    pub timestamp_ns: Option<u64>,
    /// Index of the packet's interface within its section.
    pub interface: u32,
    /// Index of the first interface of the same device. It equals `interface` unless several captures are merged; see
    /// [`Outcome::device`](super::Outcome::device).
    pub device: u32,
    /// Description of the interface.
    pub description: &'a Interface,
    /// Position of the packet in the file, counted from 1.
    pub number: u64,
    /// File that originally contained the packet, and the packet's position there.
    pub origin: Origin,
    pub(crate) options: Options<'a>,
    pub(crate) raw: &'a [u8],
    pub(crate) format: Format,
    /// Whether `raw` ends with a frame check sequence that was removed from `data`.
    pub(crate) is_stripped: bool,
}

/// Position of a packet in its original file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Index of the file among the merged captures, or 0 if captures are not merged
    /// ([`Outcome::next_origin`](super::Outcome::next_origin)).
    pub file: u32,
    /// Position of the packet in that file, counted from 1, including packets that were filtered out.
    pub number: u64,
    /// Offset of the record or block in the uncompressed file, in bytes.
    pub offset: u64,
}

impl<'a> Packet<'a> {
    /// Returns the packet's pcapng options; there are none in classic pcap.
    #[must_use]
    pub const fn options(&self) -> Options<'a> {
        self.options
    }

    /// Returns the metadata that the capture stores for the packet: timestamp, interface, flags and offload state.
    ///
    /// Damaged options and unknown versions of the offload option are treated as absent.
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
                    let stripped = if self.is_stripped { flag::FCS_BYTES } else { 0 };
                    let flags = option.value.first_chunk().map(|bytes| order.u32_from(*bytes));
                    meta.flags = flags.map(|flags| flags & !stripped);
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

    /// Returns the damage in the packet's options, if any. The packet itself is still usable.
    #[must_use]
    pub fn warning(&self) -> Option<Damage> {
        self.options.damage()
    }

    /// Returns whether the capture contains fewer bytes of the packet than its link carried.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.original_len as usize > self.data.len()
    }

    /// Returns the whole record as stored in the file.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Returns the byte order of the packet's file or section.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        self.options.order()
    }
}

/// pcapng block without a packet: a section header, interface description, names, statistics, secrets, or a block of
/// unknown type.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Block type.
    pub kind: u32,
    /// Whole block as stored in the file.
    pub raw: &'a [u8],
    /// Byte order of the section.
    pub order: ByteOrder,
    /// Interface that this block describes, or `None` if the block is not an interface description.
    pub interface: Option<Interface>,
}

impl<'a> Block<'a> {
    /// Returns the options of the block, for example comments, names and counters. Blocks other than section headers,
    /// interface descriptions, interface statistics, names and secrets have none, because their layout is unknown.
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        pcapng::block_options(self.kind, self.order, self.raw)
    }

    /// Returns whether this block is a section header.
    #[must_use]
    pub const fn is_section_header(&self) -> bool {
        self.kind == pcapng::SECTION_HEADER
    }

    /// Returns whether a tool that changes packets may copy this block.
    ///
    /// Returns false only for custom blocks that are marked as not copyable (draft-ietf-opsawg-pcapng section 4.8).
    #[must_use]
    pub const fn is_copyable(&self) -> bool {
        self.kind != pcapng::CUSTOM_BLOCK_NO_COPY
    }
}
