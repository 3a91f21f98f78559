//! TCP (RFC 9293).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 20;

/// No more data.
pub const FIN: u16 = 0x001;
/// Synchronise.
pub const SYN: u16 = 0x002;
/// Reset.
pub const RST: u16 = 0x004;
/// Push.
pub const PSH: u16 = 0x008;
/// The acknowledgment number counts.
pub const ACK: u16 = 0x010;
/// The urgent pointer counts.
pub const URG: u16 = 0x020;
/// Congestion was seen.
pub const ECE: u16 = 0x040;
/// The congestion window was reduced.
pub const CWR: u16 = 0x080;
/// Accurate ECN (RFC 9768).
pub const AE: u16 = 0x100;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Source port.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Sequence number.
    pub const SEQUENCE: Range<usize> = 4..8;
    /// Acknowledgment number.
    pub const ACKNOWLEDGMENT: Range<usize> = 8..12;
    /// Data offset, reserved bits and flags.
    pub const OFFSET_FLAGS: Range<usize> = 12..14;
    /// Window.
    pub const WINDOW: Range<usize> = 14..16;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 16..18;
    /// Urgent pointer.
    pub const URGENT: Range<usize> = 18..20;
}
