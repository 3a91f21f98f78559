//! Foo over UDP (rules W10, W24): an IP protocol directly after a UDP header.
//!
//! FOU has no header. The UDP port identifies the payload, and both endpoints must be configured with the same
//! assignment. [`Ports::fou`](crate::Ports::fou) holds this configuration for the dissector. IANA has assigned no port.

/// Length of the header in bytes: FOU has none.
pub const HEADER_LEN: usize = 0;

/// Protocol number that cannot be configured for a port, because it also means "not configured" (rule W24).
pub const PROTOCOL_NONE: u8 = 0;
