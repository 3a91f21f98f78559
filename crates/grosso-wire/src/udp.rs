//! UDP (RFC 768).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 8;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Source port.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Length.
    pub const LENGTH: Range<usize> = 4..6;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 6..8;
}
