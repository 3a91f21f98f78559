//! Errors from reading and writing captures.

use std::io;

use super::format::{INTERFACES_MAX, RECORD_BYTES_MAX};

/// Reason why a capture could not be read or written.
///
/// Only `Io`, `Write` and `BrokenPipe` include the file name in their message. Prefix other errors with the name that
/// the user typed, for example `send.pcap: ends inside packet 56 (...)`. [`CaptureError::names_file`] returns whether
/// the message includes the name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The first bytes do not match any capture format.
    #[error(
        "not a capture ({}); expected pcap or pcapng, optionally compressed",
        starts(starts_with)
    )]
    NotACapture {
        /// First bytes of the file, escaped. Empty if the file is empty.
        starts_with: String,
    },
    /// The file has a related format that is recognized but not supported.
    #[error("{what} is not supported; {remedy}")]
    UnsupportedFormat {
        /// Name of the format.
        what: String,
        /// Instructions for converting the file to a supported format.
        remedy: &'static str,
    },
    /// The file ends inside a record. Every record before this one was returned.
    #[error("ends inside {place} (needs {needs} bytes, has {there}, offset {offset})")]
    Truncated {
        /// Part of the file that is incomplete.
        place: FilePart,
        /// Full length of the incomplete part in bytes.
        needs: u64,
        /// Number of bytes that the file contains of the incomplete part.
        there: u64,
        /// Offset of the record in the uncompressed file, in bytes.
        offset: u64,
    },
    /// The compressed data ends early, but between two records. Every record was returned.
    #[error("the {compression} data ends early (offset {offset} in the decompressed data)")]
    CompressedTruncated {
        /// Name of the compression.
        compression: &'static str,
        /// Number of decompressed bytes before the end.
        offset: u64,
    },
    /// The compressed data cannot be decompressed further.
    #[error(
        "the {compression} data is damaged: {detail} (offset {offset} in the decompressed data)"
    )]
    CompressedDamaged {
        /// Name of the compression.
        compression: &'static str,
        /// Error message of the decompressor.
        detail: String,
        /// Number of decompressed bytes before the damage.
        offset: u64,
    },
    /// The decompression windows of all open captures would need too much memory. Every record before the frame that
    /// needs the new window was returned.
    #[error("{0}")]
    WindowMemory(#[from] NoWindowMemory),
    /// A record contradicts itself. Every record before this one was returned.
    #[error("damaged: {what} (offset {offset})")]
    Damaged {
        /// Description of the contradiction.
        what: Damage,
        /// Offset of the record in the uncompressed file, in bytes.
        offset: u64,
    },
    /// The output format cannot hold an entry.
    #[error("cannot be written: {what}")]
    Unwritable {
        /// Limit of the output format that the entry exceeds.
        what: Misfit,
    },
    /// The operating system failed to open or read the file.
    #[error("{path}: {source}")]
    Io {
        /// File name.
        path: String,
        /// Operating system error.
        source: io::Error,
    },
    /// The operating system failed to write the file.
    #[error("{path}: {source} (after packet {packets})")]
    Write {
        /// File name.
        path: String,
        /// Number of complete packets in the file.
        packets: u64,
        /// Operating system error.
        source: io::Error,
    },
    /// The reader of the output pipe has closed it. The program should exit without a message.
    #[error("{path}: the reader closed the pipe")]
    BrokenPipe {
        /// File name.
        path: String,
    },
}

/// Error: a decompression window would exceed the memory that the process may use for windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "needs a decompression window of {needs} bytes, but other captures already use {used} of the {WINDOWS_BYTES_MAX} \
     bytes allowed"
)]
pub struct NoWindowMemory {
    /// Size of the window in bytes.
    pub needs: u64,
    /// Total size of the windows of other captures in bytes.
    pub used: u64,
}

/// Maximum total size of all Zstandard windows in the process, in bytes: enough for 512 files with the 2 MiB window of
/// `zstd -3`, or for 8 files with the longest window (128 MiB).
pub const WINDOWS_BYTES_MAX: u64 = 1 << 30;

impl CaptureError {
    pub(crate) fn not_a_capture(bytes: &[u8]) -> Self {
        let shown = bytes.get(..STARTS_WITH_BYTES).unwrap_or(bytes);
        // The message quotes only the first line.
        let line = shown.iter().position(|&byte| byte == b'\n').map_or(shown, |at| &shown[..=at]);
        Self::NotACapture { starts_with: line.escape_ascii().to_string() }
    }

    /// Returns whether the message already begins with the file name.
    #[must_use]
    pub const fn names_file(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Write { .. } | Self::BrokenPipe { .. })
    }

    /// Returns whether the error is caused by damaged or unsupported input rather than by the environment.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        !self.names_file() && !matches!(self, Self::Unwritable { .. })
    }

    /// Returns whether the input ends too early but is otherwise undamaged.
    #[must_use]
    pub const fn is_truncation(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::CompressedTruncated { .. })
    }

    /// Returns whether the reader of the output pipe has closed it. If so, the program should exit without a message.
    #[must_use]
    pub const fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::BrokenPipe { .. })
    }
}

/// Advice for formats that Wireshark can read.
pub(crate) const CONVERT: &str = "convert it with editcap -F pcapng";

/// Part of a file that may be incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilePart {
    /// Header of a pcap file.
    #[error("the file header")]
    FileHeader,
    /// Header of the packet with this number, counted from 1.
    #[error("the header of packet {0}")]
    PacketHeader(u64),
    /// Packet with this number, counted from 1. In pcapng, the lengths in the error are those of the whole block.
    #[error("packet {0}")]
    Packet(u64),
    /// Header of a pcapng block.
    #[error("a block header")]
    BlockHeader,
    /// pcapng block of this type, which does not contain a packet.
    #[error("a block of type {0:#x}")]
    Block(u32),
}

/// Contradiction that makes a record invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The record is longer than [`RECORD_BYTES_MAX`].
    #[error("record length {bytes} exceeds the maximum of {RECORD_BYTES_MAX} bytes")]
    RecordTooLong {
        /// Value of the length field.
        bytes: u64,
    },
    /// The block is shorter than its fixed fields.
    #[error("a block of type {kind:#x} cannot have a length of {bytes} bytes")]
    BlockTooShort {
        /// Block type.
        kind: u32,
        /// Value of the length field.
        bytes: u32,
    },
    /// The block length is not a multiple of four.
    #[error("block length {bytes} is not a multiple of 4")]
    BlockUnaligned {
        /// Value of the length field.
        bytes: u32,
    },
    /// The two length fields of the block differ.
    #[error("the length fields of a block differ: {leading} at its start, {trailing} at its end")]
    BlockLengthsDiffer {
        /// Length field before the body.
        leading: u32,
        /// Length field after the body.
        trailing: u32,
    },
    /// The packet's captured length exceeds its block.
    #[error("a packet of {captured} bytes exceeds the {room} bytes left in its block")]
    PacketPastBlock {
        /// Captured length.
        captured: u32,
        /// Number of bytes in the block that remain for the packet.
        room: u32,
    },
    /// The packet refers to an interface that the section has not declared.
    #[error("a packet has interface number {interface}, but its section declares only {declared}")]
    UnknownInterface {
        /// Interface of the packet.
        interface: u32,
        /// Number of interfaces declared.
        declared: u32,
    },
    /// The section declares more than [`INTERFACES_MAX`] interfaces.
    #[error("more than {INTERFACES_MAX} interfaces in one section")]
    TooManyInterfaces,
    /// The section header lacks the byte-order magic.
    #[error("a section header has the invalid byte-order magic {magic:#010x}")]
    SectionMagic {
        /// Bytes found in place of the magic number, as a big-endian number.
        magic: u32,
    },
    /// The section or file has an unknown version.
    #[error("format version {major}.{minor} is not supported")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// An option is longer than the rest of the block. The packet is still usable.
    #[error("option {code} has {length} bytes, but only {room} bytes are left in the block")]
    OptionPastBlock {
        /// Option code.
        code: u16,
        /// Value of the length field.
        length: u16,
        /// Number of bytes in the block that remain for the option.
        room: usize,
    },
    /// Too few bytes for another option follow the last one.
    #[error("unexpected data after the options: {bytes} bytes")]
    OptionStray {
        /// Number of stray bytes.
        bytes: usize,
    },
}

/// Limit of the output format that an entry exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The packet's link type differs from the file's. Classic pcap supports only one per file.
    #[error(
        "a pcap file has only one link type (here {first}), but this packet has link type {other}; \
         use pcapng"
    )]
    SecondLinkType {
        /// Link type of the file.
        first: u32,
        /// Link type of the packet.
        other: u32,
    },
    /// The timestamp needs more than the 32 bits for seconds in classic pcap.
    #[error(
        "pcap cannot store the timestamp {seconds} (seconds since 1970), because its range ends in \
         2106; use pcapng"
    )]
    TimestampTooLate {
        /// Timestamp of the packet in seconds since the epoch.
        seconds: u64,
    },
    /// The packet is longer than readers accept.
    #[error("packet length {bytes} exceeds the maximum of {RECORD_BYTES_MAX} bytes")]
    PacketTooLong {
        /// Length of the packet in bytes.
        bytes: usize,
    },
    /// The packet refers to an interface that was not declared to the writer.
    #[error("a packet has interface number {interface}, but its section declares only {declared}")]
    UnknownInterface {
        /// Interface of the packet.
        interface: u32,
        /// Number of interfaces declared.
        declared: u32,
    },
    /// The capture has more interfaces than readers accept.
    #[error("more than {INTERFACES_MAX} interfaces in one section")]
    TooManyInterfaces,
    /// The link type needs more than 16 bits.
    #[error("link type {link_type} needs more than 16 bits")]
    LinkType {
        /// Link type.
        link_type: u32,
    },
    /// The metadata does not fit into one option of 65,535 bytes.
    #[error("offload metadata of {bytes} bytes does not fit into one option")]
    OptionTooLong {
        /// Length of the option in bytes.
        bytes: usize,
    },
}

fn starts(starts_with: &str) -> String {
    if starts_with.is_empty() { "empty".into() } else { format!("starts with \"{starts_with}\"") }
}

/// Number of leading bytes that the message quotes from a file that is not a capture.
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
            "not a capture (starts with \"{\\n\"); expected pcap or pcapng, optionally compressed"
        );
        assert_eq!(
            CaptureError::not_a_capture(b"").to_string(),
            "not a capture (empty); expected pcap or pcapng, optionally compressed"
        );
    }
}
