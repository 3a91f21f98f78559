//! Foo over UDP (rules W10, W24): an IP protocol directly behind a UDP header.
//!
//! There is no header to view or to write. What the payload is, the port says, and which port says
//! what is configuration that both ends share: [`Ports::fou`](crate::Ports::fou) holds it for the
//! dissector. IANA assigned no port.

/// Bytes of the header: none.
pub const HEADER_LEN: usize = 0;

/// The protocol that no port may be configured with, because it also means "not configured" (rule
/// W24).
pub const PROTOCOL_NONE: u8 = 0;
