//! Incremental updates of a checksum field (RFC 1624).

/// Returns the checksum after a word of the data has changed from `old` to `new`, according to RFC 1624 equation 3:
/// `HC' = ~(~HC + ~m + m')`.
///
/// The word must be at an even offset. The result equals a newly computed checksum, with one exception: if all data
/// (including the pseudo-header) becomes or remains zero, the result is `0x0000` instead of `0xffff`. IP headers and
/// segments with a pseudo-header are never all zeros.
///
/// A UDP checksum field of zero means that there is no checksum, and must not be updated. Pass any other UDP result
/// through [`nonzero`] (rule C10).
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u32 + !old as u32 + new as u32)
}

/// Returns the checksum after a word other than `0xffff` has been incremented by one, for example the IPv4
/// identification of consecutive packets. (The step from `0xffff` to zero does not change a checksum.)
#[must_use]
pub const fn incremented(checksum: u16) -> u16 {
    // The sum grows by one, so its complement shrinks by one. The value before 0x0000 is 0xfffe, because 0xffff is the
    // other zero.
    if checksum == 0 { 0xfffe } else { checksum - 1 }
}

/// Returns the checksum after a 32-bit field has changed, for example a sequence number or an IPv4 address; see
/// [`update`].
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let removed = (!old >> 16) + (!old & 0xffff);
    let added = (new >> 16) + (new & 0xffff);
    !fold(!checksum as u32 + removed + added)
}

/// Returns the value for the UDP checksum field: `checksum`, or `0xffff` instead of zero, which would mean that there
/// is no checksum (RFC 768, RFC 8200 section 8.1).
#[must_use]
pub const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Folds a sum of at most 65537 words. The first addition leaves at most 0x1fffe, so the second one has no carry.
const fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + (once & 0xffff)) as u16
}
