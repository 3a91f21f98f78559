//! MPLS label stack entries (RFC 3032).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 4;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Label, traffic class, bottom of stack, time to live.
    pub const ENTRY: Range<usize> = 0..4;
}
