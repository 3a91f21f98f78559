//! IPv4 (RFC 791).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 20;

/// TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version and header length.
    pub const VERSION_IHL: Range<usize> = 0..1;
    /// Type of service: DSCP and ECN.
    pub const TOS: Range<usize> = 1..2;
    /// Total length.
    pub const TOTAL_LENGTH: Range<usize> = 2..4;
    /// Identification.
    pub const IDENTIFICATION: Range<usize> = 4..6;
    /// Reserved bit, DF, MF and fragment offset.
    pub const FRAGMENT: Range<usize> = 6..8;
    /// Time to live.
    pub const TTL: Range<usize> = 8..9;
    /// Protocol.
    pub const PROTOCOL: Range<usize> = 9..10;
    /// Header checksum.
    pub const CHECKSUM: Range<usize> = 10..12;
    /// Source address.
    pub const SOURCE: Range<usize> = 12..16;
    /// Destination address.
    pub const DESTINATION: Range<usize> = 16..20;
}
