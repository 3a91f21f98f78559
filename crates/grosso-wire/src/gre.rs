//! GRE (RFC 2784, RFC 2890).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 4;

/// Checksum and reserved word follow.
pub const FLAG_CHECKSUM: u16 = 0x8000;
/// A key follows.
pub const FLAG_KEY: u16 = 0x2000;
/// A sequence number follows.
pub const FLAG_SEQUENCE: u16 = 0x1000;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Flags and version.
    pub const FLAGS: Range<usize> = 0..2;
    /// EtherType of what follows.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Checksum, when the flags say so.
    pub const CHECKSUM: Range<usize> = 4..6;
}
