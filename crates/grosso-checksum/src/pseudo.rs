//! Pseudo-header sums for TCP and UDP.

use crate::Sum;

/// Returns the sum of the IPv4 pseudo-header (RFC 768, RFC 9293 section 3.1): addresses, protocol and `len`, the length
/// of the transport header and the payload in bytes.
///
/// The length field in the standard has 16 bits. For a longer superframe, the full length is added, because receivers
/// see only the checksums of the segments.
#[inline]
#[must_use]
pub const fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, len: u32) -> Sum {
    Sum::from_u32(u32::from_be_bytes(source))
        .add(Sum::from_u32(u32::from_be_bytes(destination)))
        .add(Sum::from_word(protocol as u16))
        .add(Sum::from_u32(len))
}

/// Returns the sum of the IPv6 pseudo-header (RFC 8200 section 8.1): addresses, protocol and `len`, the length of the
/// transport header and the payload in bytes, without extension headers.
///
/// With a routing header, `destination` must be the final destination.
#[inline]
#[must_use]
pub fn pseudo_v6(source: &[u8; 16], destination: &[u8; 16], protocol: u8, len: u32) -> Sum {
    Sum::of(source)
        .add(Sum::of(destination))
        .add(Sum::from_word(u16::from(protocol)))
        .add(Sum::from_u32(len))
}
