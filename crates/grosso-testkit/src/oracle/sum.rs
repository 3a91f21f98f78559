//! The Internet checksum, computed as in RFC 1071 section 4.1: one 16-bit word at a time.

/// Returns the folded, uncomplemented one's-complement sum of `bytes`; an odd last byte is the high half of its word.
///
/// ```
/// // The example of RFC 1071 section 3.
/// let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
/// assert_eq!(grosso_testkit::oracle::sum(&bytes), 0xddf2);
/// ```
pub fn sum(bytes: &[u8]) -> u16 {
    let mut total: u32 = 0;
    for pair in bytes.chunks(2) {
        let low = if pair.len() == 2 { pair[1] } else { 0 };
        total += u32::from(u16::from_be_bytes([pair[0], low]));
        // Folding after every word keeps the accumulator far from overflow at any length.
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns the checksum of `bytes`: the complement of their [`sum`].
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Returns the one's-complement sum of two folded sums.
pub fn add(left: u16, right: u16) -> u16 {
    let total = u32::from(left) + u32::from(right);
    ((total & 0xffff) + (total >> 16)) as u16
}

/// Returns the bytes of the pseudo-header of RFC 793 (4-byte addresses) or RFC 8200 section 8.1 (16-byte addresses).
pub fn pseudo_header(source: &[u8], destination: &[u8], protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = [source, destination].concat();
    if source.len() == 4 {
        bytes.extend([0, protocol]);
        // Only a superframe can be longer than 65535 bytes; the sum also covers the upper 16 bits of its length.
        bytes.extend(((len >> 16) as u16).to_be_bytes());
        bytes.extend((len as u16).to_be_bytes());
    } else {
        bytes.extend((len as u32).to_be_bytes());
        bytes.extend([0, 0, 0, protocol]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ipv4_header_has_the_published_checksum() {
        // The usual textbook example of an IPv4 header, whose checksum is b861.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }

    #[test]
    fn an_odd_last_byte_is_the_high_half() {
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
        assert_eq!(sum(&[0xff]), 0xff00);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn sums_of_ones_do_not_overflow() {
        assert_eq!(sum(&[0xff; 70000]), 0xffff);
    }

    #[test]
    fn adding_carries_around() {
        assert_eq!(add(0xffff, 1), 1);
        assert_eq!(add(0x8000, 0x8001), 2);
    }
}
