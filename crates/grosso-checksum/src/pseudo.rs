//! Pseudo-header sums of TCP and UDP.

use crate::Sum;

/// The sum of the IPv4 pseudo-header (RFC 768, RFC 9293 section 3.1): addresses, protocol and the
/// length in bytes of the transport header and payload.
///
/// The field has 16 bits in the standard. A longer superframe counts with its real length, because
/// only its segments carry a checksum that a receiver sees.
#[inline]
#[must_use]
pub const fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, len: u32) -> Sum {
    Sum::from_u32(u32::from_be_bytes(source))
        .add(Sum::from_u32(u32::from_be_bytes(destination)))
        .add(Sum::from_word(protocol as u16))
        .add(Sum::from_u32(len))
}

/// The sum of the IPv6 pseudo-header (RFC 8200 section 8.1): addresses, the length in bytes of the
/// upper-layer header and payload, and the upper-layer protocol.
///
/// With a routing header, `destination` is the final one, and extension headers are not part of
/// `len`.
#[inline]
#[must_use]
pub fn pseudo_v6(source: &[u8; 16], destination: &[u8; 16], protocol: u8, len: u32) -> Sum {
    Sum::of(source)
        .add(Sum::of(destination))
        .add(Sum::from_word(u16::from(protocol)))
        .add(Sum::from_u32(len))
}
