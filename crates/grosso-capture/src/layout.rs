//! Layout of a record in a buffer, as returned by the decoders.

use core::ops::Range;

use super::format::Interface;

/// Result of decoding the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The record is incomplete; more bytes are needed.
    Need(Need),
    /// A complete record of `bytes` bytes.
    Record { bytes: usize, layout: Layout },
}

/// Bytes missing from an incomplete record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Number of bytes that the decoder needs, counted from the start of the record.
    pub(crate) bytes: usize,
    /// Number of these bytes that come before `part`.
    pub(crate) before: usize,
    pub(crate) part: Part,
}

/// Part of a record in which the missing bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    PacketHeader,
    Packet,
    BlockHeader,
    Block(u32),
}

/// Layout of a complete record. Ranges are relative to its start.
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

/// Byte range that, unlike `Range`, is `Copy`.
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
