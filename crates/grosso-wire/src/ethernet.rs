//! Ethernet II (RFC 894).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 14;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Destination address.
    pub const DESTINATION: Range<usize> = 0..6;
    /// Source address.
    pub const SOURCE: Range<usize> = 6..12;
    /// EtherType.
    pub const ETHERTYPE: Range<usize> = 12..14;
}
