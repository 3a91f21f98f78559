//! Compares every backend with the loop printed in RFC 1071.

use grosso_checksum::Sum;

use crate::common::{noise, rfc_1071};

for_every_backend! {
    every_length_at_every_alignment
    every_power_of_two_and_its_neighbours
    one_byte_anywhere_counts
    ones_never_fold_to_positive_zero
    zeros_always_fold_to_positive_zero
    beyond_the_range_of_32_bit_accumulators
    carries_out_of_64_bits
}

fn every_length_at_every_alignment(of: fn(&[u8]) -> Sum) {
    let bytes = noise(700, 1);
    for len in 0..600 {
        for offset in 0..64 {
            let block = &bytes[offset..offset + len];
            assert_eq!(of(block).checksum(), rfc_1071(block), "{len} bytes at {offset}");
        }
    }
}

fn every_power_of_two_and_its_neighbours(of: fn(&[u8]) -> Sum) {
    let bytes = noise((1 << 20) + 66, 2);
    for power in 9..=20 {
        for len in (1 << power) - 65..=(1 << power) + 65 {
            let block = &bytes[len % 2..len];
            assert_eq!(of(block).checksum(), rfc_1071(block), "{len} bytes");
        }
    }
}

fn one_byte_anywhere_counts(of: fn(&[u8]) -> Sum) {
    for len in [1, 63, 64, 65, 255, 256, 257, 1447, 1448] {
        let mut bytes = vec![0; len];
        for offset in 0..len {
            bytes[offset] = 0x5a;
            let expected = if offset % 2 == 0 { 0x5a00 } else { 0x005a };
            assert_eq!(of(&bytes).fold(), expected, "byte {offset} of {len}");
            bytes[offset] = 0;
        }
    }
}

fn ones_never_fold_to_positive_zero(of: fn(&[u8]) -> Sum) {
    let ones = vec![0xff; (1 << 20) + 1];
    for len in (1..2000).chain([65535, 65536, (128 << 10) + 1, 1 << 20, (1 << 20) + 1]) {
        let expected = if len % 2 == 0 { 0xffff } else { 0xff00 };
        assert_eq!(of(&ones[..len]).fold(), expected, "{len} bytes");
    }
}

fn zeros_always_fold_to_positive_zero(of: fn(&[u8]) -> Sum) {
    let zeros = vec![0; 1 << 20];
    for len in (0..2000).chain([65535, 65536, (128 << 10) + 1, 1 << 20]) {
        assert_eq!(of(&zeros[..len]).fold(), 0, "{len} bytes");
        assert!(!of(&zeros[..len]).is_valid());
    }
}

fn beyond_the_range_of_32_bit_accumulators(of: fn(&[u8]) -> Sum) {
    let bytes = noise(5 << 20, 3);
    for len in [(128 << 10) + 1, (256 << 10) - 1, 1 << 20, (5 << 20) - 1, 5 << 20] {
        assert_eq!(of(&bytes[..len]).checksum(), rfc_1071(&bytes[..len]), "{len} bytes");
    }
    let mut bytes = vec![0xff; 5 << 20];
    bytes[(5 << 20) - 2] = 0x12;
    assert_eq!(of(&bytes).checksum(), rfc_1071(&bytes));
}

/// Sums words so large that any two of them overflow 64 bits, and one word that makes a lost carry visible.
fn carries_out_of_64_bits(of: fn(&[u8]) -> Sum) {
    for word in [u64::MAX, u64::MAX - 1, 1 << 63, 0xffff_ffff, 0xffff_ffff << 32] {
        for count in 1..200 {
            let bytes: Vec<u8> = (0..count).flat_map(|_| word.to_be_bytes()).collect();
            assert_eq!(of(&bytes).checksum(), rfc_1071(&bytes), "{count} times {word:x}");
        }
    }
}

/// Checks the oracle itself against published checksums.
#[test]
fn published_values() {
    // RFC 1071 section 3.
    let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(rfc_1071(&example), !0xddf2);
    assert_eq!(Sum::of(&example).fold(), 0xddf2);
}
