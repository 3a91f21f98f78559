//! Determines which bytes a transport checksum covers: the pseudo-header, and the payload up to its declared end.

use grosso_checksum::Sum;
use grosso_wire::{Ends, Layer};

use crate::headers::u16_at;

/// Returns the pseudo-header sum for a transport header of type `protocol` in the IP header `ip`.
pub(super) fn pseudo(packet: &[u8], ip: &Layer, protocol: u8, len: usize) -> Sum {
    Ends::of(packet, ip).pseudo(packet, protocol, len)
}

/// Returns the offset at which a header and its payload end according to the length field, or `None` if the field is
/// zero. The header begins at `start`; its first `before` bytes are not included in the length.
pub(super) fn declared_end(
    packet: &[u8],
    start: usize,
    field: usize,
    before: usize,
) -> Option<usize> {
    let len = u16_at(packet, start + field) as usize;
    (len != 0).then_some(start + before + len)
}
