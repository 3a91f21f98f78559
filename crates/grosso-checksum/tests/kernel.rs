//! Repeats the Linux kernel's tests of its checksum functions (`checksum_kunit.c`, rules K100 to K104), and checks
//! published headers. The expected values for K100 come from the loop in RFC 1071.

use grosso_checksum::{Sum, pseudo_v4, pseudo_v6};

use crate::common::{noise, rfc_1071};

for_every_backend! {
    k100_every_offset_and_length
    k101_all_ones_with_start_value_of_ones
    k102_all_ones_without_start_value
    k103_largest_start_value_without_carry
    k104_header_of_5_to_14_words
}

const OFFSETS: usize = 576;
const LENGTHS: usize = 512;

/// Returns what the kernel's `csum_fold(csum_partial(bytes, start))` returns on a little-endian CPU: the start value is
/// four bytes in memory order, and the result is a word loaded without a byte swap.
fn kernel_fold(sum: Sum, start: u32) -> u16 {
    (Sum::from_u32(start.swap_bytes()) + sum).checksum().swap_bytes()
}

// Rules: K100
fn k100_every_offset_and_length(of: fn(&[u8]) -> Sum) {
    let start: u32 = 0x2847_aab5;
    let bytes = noise(OFFSETS + LENGTHS, 100);
    for offset in 0..OFFSETS {
        for len in 0..LENGTHS {
            let block = &bytes[offset..offset + len];
            let mut with_start = start.to_le_bytes().to_vec();
            with_start.extend(block);
            assert_eq!(
                kernel_fold(of(block), start),
                rfc_1071(&with_start).swap_bytes(),
                "{len} bytes at {offset}"
            );
        }
    }
}

// Rules: K101
fn k101_all_ones_with_start_value_of_ones(of: fn(&[u8]) -> Sum) {
    let bytes = [0xff; OFFSETS + LENGTHS];
    for offset in 0..OFFSETS {
        for len in 0..LENGTHS {
            let expected = if len % 2 == 0 { 0 } else { 0xff00 };
            let result = kernel_fold(of(&bytes[offset..offset + len]), 0xffff_ffff);
            assert_eq!(result, expected, "{len} bytes at {offset}");
        }
    }
}

// Rules: K102
fn k102_all_ones_without_start_value(of: fn(&[u8]) -> Sum) {
    let bytes = [0xff; OFFSETS + LENGTHS];
    for offset in 0..OFFSETS {
        for len in 0..LENGTHS {
            let expected = match len {
                0 => 0xffff,
                _ if len % 2 == 0 => 0,
                _ => 0xff00,
            };
            let result = kernel_fold(of(&bytes[offset..offset + len]), 0);
            assert_eq!(result, expected, "{len} bytes at {offset}");
        }
    }
}

// Rules: K103
fn k103_largest_start_value_without_carry(of: fn(&[u8]) -> Sum) {
    let bytes = [0x04; OFFSETS + LENGTHS];
    for len in 0..LENGTHS {
        let words = len as u32 / 2;
        let start = u32::MAX - words * 0x0404 - (len as u32 % 2) * 0x04;
        for offset in 0..OFFSETS {
            let sum = of(&bytes[offset..offset + len]);
            assert_eq!(kernel_fold(sum, start), 0, "{len} bytes at {offset}");
            let expected = if len == 0 { 0xffff } else { 0xfffe };
            let result = kernel_fold(sum, start.wrapping_add(1));
            assert_eq!(result, expected, "{len} bytes at {offset}");
        }
    }
}

// Rules: K104
fn k104_header_of_5_to_14_words(of: fn(&[u8]) -> Sum) {
    for words in 5..=14 {
        for seed in 0..200 {
            let mut header = noise(4 * words, seed);
            header[0] = 0x40 | words as u8;
            header[10..12].fill(0);
            let checksum = of(&header).checksum();
            assert_eq!(checksum, rfc_1071(&header), "{words} words, seed {seed}");
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            assert!(of(&header).is_valid());
        }
    }
}

/// The header from Wikipedia's worked example ("Internet checksum").
#[test]
fn k104_published_ipv4_header() {
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];
    assert_eq!(Sum::of(&header).checksum(), 0xb861);
    assert_eq!(rfc_1071(&header), 0xb861);
}

/// The expected sum adds the pseudo-header's bytes in the order shown in RFC 9293 section 3.1.
#[test]
fn k104_pseudo_header_of_ipv4() {
    for seed in 0..500 {
        let fields = noise(11, seed);
        let source = fields[..4].try_into().unwrap();
        let destination = fields[4..8].try_into().unwrap();
        let protocol = fields[8];
        let len = [fields[9], fields[10]];
        let mut bytes = fields[..8].to_vec();
        bytes.extend([0, protocol, len[0], len[1]]);
        let sum = pseudo_v4(source, destination, protocol, u32::from(u16::from_be_bytes(len)));
        assert_eq!(sum.checksum(), rfc_1071(&bytes), "seed {seed}");
    }
}

/// The expected sum adds the pseudo-header's bytes in the order shown in RFC 8200 section 8.1.
#[test]
fn k104_pseudo_header_of_ipv6() {
    for seed in 0..500 {
        let fields = noise(37, seed);
        let source = fields[..16].try_into().unwrap();
        let destination = fields[16..32].try_into().unwrap();
        let protocol = fields[36];
        let mut bytes = fields[..36].to_vec();
        bytes.extend([0, 0, 0, protocol]);
        let len = u32::from_be_bytes(fields[32..36].try_into().unwrap());
        let sum = pseudo_v6(source, destination, protocol, len);
        assert_eq!(sum.checksum(), rfc_1071(&bytes), "seed {seed}");
    }
}

/// A length of more than 16 bits is added as two words.
#[test]
fn k104_pseudo_header_of_a_superframe() {
    let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let bytes = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0x00, 0x02, 0x34, 0x56];
    assert_eq!(pseudo_v4(source, destination, 6, 0x2_3456).checksum(), rfc_1071(&bytes));
    let mut long = [0; 16];
    long[15] = 1;
    let mut bytes = [long, long].concat();
    bytes.extend([0x00, 0x02, 0x34, 0x56, 0, 0, 0, 6]);
    assert_eq!(pseudo_v6(&long, &long, 6, 0x2_3456).checksum(), rfc_1071(&bytes));
}
