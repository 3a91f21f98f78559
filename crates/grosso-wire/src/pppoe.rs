//! PPPoE session headers with their PPP protocol (RFC 2516).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 8;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and type.
    pub const VERSION_TYPE: Range<usize> = 0..1;
    /// Code.
    pub const CODE: Range<usize> = 1..2;
    /// Session identifier.
    pub const SESSION: Range<usize> = 2..4;
    /// Length from the PPP protocol on.
    pub const LENGTH: Range<usize> = 4..6;
    /// PPP protocol.
    pub const PROTOCOL: Range<usize> = 6..8;
}
