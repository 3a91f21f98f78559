//! Foo over UDP (rules W10, W24): an IP protocol directly after a UDP header.
//!
//! FOU has no header. The UDP port identifies the payload, by configuration that both endpoints share;
//! [`Ports::fou`](crate::Ports::fou) holds it for the dissector. IANA assigned no port.

/// Length of the header in bytes: FOU has none.
pub const HEADER_LEN: usize = 0;

/// Protocol number that no port may be configured with, because it also means "not configured" (rule W24).
pub const PROTOCOL_NONE: u8 = 0;
