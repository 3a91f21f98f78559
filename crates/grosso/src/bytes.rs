//! Access to big-endian words at an offset in a packet.
//!
//! Reads beyond the end of the packet return zero, and writes beyond it have no effect. Callers check the length
//! themselves; this is a second line of defense, so that a malformed packet cannot cause a panic.

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8).and_then(|word| word.first_chunk::<8>()) {
        Some(word) => u64::from_be_bytes(*word),
        None => 0,
    }
}

#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(word) = bytes.get_mut(at..at + 2) {
        word.copy_from_slice(&value.to_be_bytes());
    }
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(word) = bytes.get_mut(at..at + 4) {
        word.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns the byte at an offset, or zero if the offset is beyond the end.
#[inline]
pub(crate) fn byte_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}
