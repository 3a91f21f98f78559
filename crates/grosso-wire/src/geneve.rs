//! Geneve (RFC 8926).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 8;

/// Control packet: the O bit of the second byte.
pub const CONTROL: u8 = 0x80;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Network identifier.
    pub const VNI: Range<usize> = 4..7;
}
