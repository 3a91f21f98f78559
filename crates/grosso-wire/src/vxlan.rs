//! VXLAN (RFC 7348).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 8;

/// Remote checksum offload.
pub const FLAG_REMOTE_CHECKSUM: u32 = 0x0020_0000;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Flags.
    pub const FLAGS: Range<usize> = 0..4;
    /// Network identifier.
    pub const VNI: Range<usize> = 4..7;
}
