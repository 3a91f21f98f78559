//! GUE variant 0.

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 4;

/// Private flags follow.
pub const FLAG_PRIVATE: u16 = 0x0001;
/// Remote checksum offload.
pub const PRIVATE_FLAG_REMOTE_CHECKSUM: u32 = 0x8000_0000;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Flags.
    pub const FLAGS: Range<usize> = 2..4;
}
