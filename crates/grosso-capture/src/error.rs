//! Errors of captures, each with its own name and sentence.

use std::io;

use super::format::{INTERFACES_MAX, RECORD_BYTES_MAX};

/// Reason that a capture could not be read or written.
///
/// Only the variants for errors of the environment name the file in their text. The caller prefixes
/// the others with the name that the user typed, as in `send.pcap: ends inside packet 56 (...)`.
/// See [`CaptureError::names_file`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The first bytes are those of no capture format.
    #[error("not a capture ({}); expected pcap, pcapng, or these compressed", starts(starts_with))]
    NotACapture {
        /// The first bytes, escaped; empty when the file is empty.
        starts_with: String,
    },
    /// A relative of the known formats, recognised and not supported.
    #[error("{what} is not supported; {remedy}")]
    UnsupportedFormat {
        /// The name of the format.
        what: String,
        /// The way to a file that is supported.
        remedy: &'static str,
    },
    /// The file ends inside a record. Every record before it has been handed out.
    #[error("ends inside {place} (needs {needs} bytes, has {there}, offset {offset})")]
    Truncated {
        /// The part of the file that is incomplete.
        place: FilePart,
        /// Full length of that part, in bytes.
        needs: u64,
        /// Bytes of that part in the file.
        there: u64,
        /// Offset of the record, in bytes of the uncompressed file.
        offset: u64,
    },
    /// Compressed data ends early, but between two records. Every record has been handed out.
    #[error("the {compression} data ends early (offset {offset} when decompressed)")]
    CompressedTruncated {
        /// The name of the compression.
        compression: &'static str,
        /// Bytes decompressed before the end.
        offset: u64,
    },
    /// Compressed data cannot be decompressed any further.
    #[error("the {compression} data is damaged: {detail} (offset {offset} when decompressed)")]
    CompressedDamaged {
        /// The name of the compression.
        compression: &'static str,
        /// Message of the decompressor.
        detail: String,
        /// Bytes decompressed before the damage.
        offset: u64,
    },
    /// The captures that are read at once have too long windows. Every record before the frame with the
    /// window has been handed out.
    #[error("{0}")]
    WindowMemory(#[from] NoWindowMemory),
    /// A record contradicts itself. Every record before it has been handed out.
    #[error("damaged: {what} (offset {offset})")]
    Damaged {
        /// The contradiction.
        what: Damage,
        /// Offset of the record, in bytes of the uncompressed file.
        offset: u64,
    },
    /// An entry does not fit into the output format.
    #[error("cannot be written: {what}")]
    Unwritable {
        /// The limit of the output format.
        what: Misfit,
    },
    /// The operating system refused to open or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The operating system refused to write.
    #[error("{path}: {source} (after packet {packets})")]
    Write {
        /// The file.
        path: String,
        /// Packets that are whole in the file.
        packets: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// The reader of the output pipe has gone. Not worth a message.
    #[error("{path}: the reader closed the pipe")]
    BrokenPipe {
        /// The file.
        path: String,
    },
}

/// A window of compressed data that there is no memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "needs a window of {needs} bytes, but other captures use {used} of {WINDOWS_BYTES_MAX} bytes"
)]
pub struct NoWindowMemory {
    /// Bytes of the window.
    pub needs: u64,
    /// Bytes of the windows of other captures.
    pub used: u64,
}

/// Most bytes of the windows of all Zstandard data that the process decompresses at a time: enough for 512 files with
/// the window of `zstd -3`, 2 MiB, or for 8 with the longest window, 128 MiB.
pub const WINDOWS_BYTES_MAX: u64 = 1 << 30;

impl CaptureError {
    pub(crate) fn not_a_capture(bytes: &[u8]) -> Self {
        let shown = bytes.get(..STARTS_WITH_BYTES).unwrap_or(bytes);
        // The message shows the beginning as text would be quoted; the first line is enough.
        let line = shown.iter().position(|&byte| byte == b'\n').map_or(shown, |at| &shown[..=at]);
        Self::NotACapture { starts_with: line.escape_ascii().to_string() }
    }

    /// Whether the text already begins with the name of the file.
    #[must_use]
    pub const fn names_file(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Write { .. } | Self::BrokenPipe { .. })
    }

    /// Whether the error lies in the input (damaged or not supported) and not in the environment.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        !self.names_file() && !matches!(self, Self::Unwritable { .. })
    }

    /// Whether the input ends too early, while everything before the end is sound.
    #[must_use]
    pub const fn is_truncation(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::CompressedTruncated { .. })
    }

    /// Whether the reader of the output has gone, which ends a pipeline without a message.
    #[must_use]
    pub const fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::BrokenPipe { .. })
    }
}

/// The remedy for what Wireshark reads.
pub(crate) const CONVERT: &str = "convert it with editcap -F pcapng";

/// Part of a file that is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilePart {
    /// The header of a pcap file.
    #[error("the file header")]
    FileHeader,
    /// The header of a packet; packets are counted from 1.
    #[error("the header of packet {0}")]
    PacketHeader(u64),
    /// A packet; packets are counted from 1. In pcapng its sizes are those of the whole block.
    #[error("packet {0}")]
    Packet(u64),
    /// The header of a pcapng block.
    #[error("the header of a block")]
    BlockHeader,
    /// A pcapng block of this type that is no packet.
    #[error("a block of type {0:#x}")]
    Block(u32),
}

/// Contradiction within a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A record longer than [`RECORD_BYTES_MAX`].
    #[error("a record of {bytes} bytes, more than {RECORD_BYTES_MAX}")]
    RecordTooLong {
        /// Its length field.
        bytes: u64,
    },
    /// A block shorter than its own fixed fields.
    #[error("a block of type {kind:#x} with a length of {bytes} bytes")]
    BlockTooShort {
        /// The block type.
        kind: u32,
        /// Its length field.
        bytes: u32,
    },
    /// A block whose length is no multiple of four.
    #[error("a block length of {bytes} bytes, which is not a multiple of 4")]
    BlockUnaligned {
        /// Its length field.
        bytes: u32,
    },
    /// A block whose two length fields differ.
    #[error("a block of {leading} bytes whose trailing length is {trailing}")]
    BlockLengthsDiffer {
        /// The length field before the body.
        leading: u32,
        /// The length field after the body.
        trailing: u32,
    },
    /// A packet whose captured length exceeds the block that holds it.
    #[error("a packet of {captured} bytes in a block with {room} bytes left")]
    PacketPastBlock {
        /// The captured length.
        captured: u32,
        /// Bytes of the block that remain for the packet.
        room: u32,
    },
    /// A packet of an interface that the section has not declared.
    #[error("a packet of interface {interface}; the section declares {declared}")]
    UnknownInterface {
        /// The interface the packet names.
        interface: u32,
        /// Number of interfaces declared.
        declared: u32,
    },
    /// A section that declares more than [`INTERFACES_MAX`] interfaces.
    #[error("more than {INTERFACES_MAX} interfaces in one section")]
    TooManyInterfaces,
    /// A section header without the byte-order magic.
    #[error("a section header with the byte order {magic:#010x}")]
    SectionMagic {
        /// The four bytes in its place, as a big-endian number.
        magic: u32,
    },
    /// A section or file of a version that this code does not know.
    #[error("format version {major}.{minor} is not supported")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// An option whose length exceeds the block that holds it. The packet stays usable.
    #[error("option {code} of {length} bytes, but the block has {room} bytes left")]
    OptionPastBlock {
        /// The option's code.
        code: u16,
        /// Its length field.
        length: u16,
        /// Bytes of the block that remain.
        room: usize,
    },
    /// Bytes after the last option that are too few for another option.
    #[error("{bytes} stray bytes after the options")]
    OptionStray {
        /// Number of stray bytes.
        bytes: usize,
    },
}

/// Limit of the output format that an entry exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// Classic pcap has one link type for all packets.
    #[error("pcap holds one link type, {first}, but this packet has {other}; use pcapng")]
    SecondLinkType {
        /// The link type of the file.
        first: u32,
        /// The link type of the packet.
        other: u32,
    },
    /// Classic pcap has 32 bits of seconds.
    #[error(
        "pcap timestamps end in 2106, but this packet is {seconds} seconds after 1970; use \
             pcapng"
    )]
    TimestampTooLate {
        /// The packet's time, in seconds since the epoch.
        seconds: u64,
    },
    /// A packet longer than readers accept.
    #[error("a packet of {bytes} bytes, more than {RECORD_BYTES_MAX}")]
    PacketTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A packet of an interface that was not declared to the writer.
    #[error("a packet of interface {interface}; the section declares {declared}")]
    UnknownInterface {
        /// The interface the packet names.
        interface: u32,
        /// Number of interfaces declared.
        declared: u32,
    },
    /// More interfaces than readers accept.
    #[error("more than {INTERFACES_MAX} interfaces in one section")]
    TooManyInterfaces,
    /// A link type that needs more than 16 bits.
    #[error("link type {link_type} needs more than 16 bits")]
    LinkType {
        /// The link type.
        link_type: u32,
    },
    /// More metadata than fits into one option of 65,535 bytes.
    #[error("offload metadata of {bytes} bytes does not fit into one option")]
    OptionTooLong {
        /// Length of the option in bytes.
        bytes: usize,
    },
}

fn starts(starts_with: &str) -> String {
    if starts_with.is_empty() { "empty".into() } else { format!("starts \"{starts_with}\"") }
}

/// Bytes shown of a file that is not a capture.
const STARTS_WITH_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_manual() {
        let truncated = CaptureError::Truncated {
            place: FilePart::Packet(56),
            needs: 65226,
            there: 5758,
            offset: 594_242,
        };
        assert_eq!(
            truncated.to_string(),
            "ends inside packet 56 (needs 65226 bytes, has 5758, offset 594242)"
        );
        assert_eq!(
            CaptureError::not_a_capture(b"{\n  \"start\": 1").to_string(),
            "not a capture (starts \"{\\n\"); expected pcap, pcapng, or these compressed"
        );
        assert_eq!(
            CaptureError::not_a_capture(b"").to_string(),
            "not a capture (empty); expected pcap, pcapng, or these compressed"
        );
    }
}
