//! IPv6 (RFC 8200).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version, traffic class and flow label.
    pub const WORD: Range<usize> = 0..4;
    /// Payload length.
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    /// Next header.
    pub const NEXT_HEADER: Range<usize> = 6..7;
    /// Hop limit.
    pub const HOP_LIMIT: Range<usize> = 7..8;
    /// Source address.
    pub const SOURCE: Range<usize> = 8..24;
    /// Destination address.
    pub const DESTINATION: Range<usize> = 24..40;
}
