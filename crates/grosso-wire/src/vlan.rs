//! 802.1Q and 802.1ad tags: tag control information and the next EtherType.

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 4;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Tag control information.
    pub const TCI: Range<usize> = 0..2;
    /// EtherType of what follows.
    pub const ETHERTYPE: Range<usize> = 2..4;
}
