//! The coverage of a transport checksum: its pseudo-header, and the end of the bytes that it covers.

use grosso_checksum::Sum;
use grosso_wire::{Ends, Layer};

use crate::headers::u16_at;

/// The sum of the pseudo-header of a transport header of `protocol` inside the IP header `ip`.
pub(super) fn pseudo(packet: &[u8], ip: &Layer, protocol: u8, len: usize) -> Sum {
    Ends::of(packet, ip).pseudo(packet, protocol, len)
}

/// The end that a length field declares for a header at `start`, whose first `before` bytes it does not count; `None`
/// if it is zero.
pub(super) fn declared_end(
    packet: &[u8],
    start: usize,
    field: usize,
    before: usize,
) -> Option<usize> {
    let len = u16_at(packet, start + field) as usize;
    (len != 0).then_some(start + before + len)
}
