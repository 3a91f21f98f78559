//! Tests that checksums of parts combine to the checksum of the whole.

use grosso_checksum::{Sum, incremented, nonzero, update, update_u32};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::{noise, rfc_1071};

/// Words around the values at which a carry or sign bug would show.
const EDGES: [u16; 9] = [0x0000, 0x0001, 0x00ff, 0x5555, 0x7fff, 0x8000, 0xff00, 0xfffe, 0xffff];

#[test]
fn append_is_concatenation_at_every_split() {
    for len in [0, 1, 2, 7, 8, 63, 64, 65, 130, 301] {
        let bytes = noise(len, 4);
        for first in 0..=len {
            for second in first..=len {
                let (a, b, c) = (&bytes[..first], &bytes[first..second], &bytes[second..]);
                let left = Sum::of(a).append(a.len(), Sum::of(b)).append(second, Sum::of(c));
                let right = Sum::of(a).append(a.len(), Sum::of(b).append(b.len(), Sum::of(c)));
                assert_eq!(left.checksum(), rfc_1071(&bytes), "{len}: {first}, {second}");
                assert_eq!(right.checksum(), rfc_1071(&bytes), "{len}: {first}, {second}");
                assert_eq!(Sum::of_parts([a, b, c]), Sum::of(&bytes), "{len}: {first}, {second}");
            }
        }
    }
}

#[test]
fn zeros_keep_their_sign() {
    let (positive, negative) = (Sum::ZERO, Sum::from_word(0xffff));
    assert_ne!(positive, negative);
    assert_eq!(negative, Sum::of(&[0xff; 8]));
    assert_eq!((positive + positive).fold(), 0);
    for (left, right) in [(positive, negative), (negative, positive), (negative, negative)] {
        assert_eq!((left + right).fold(), 0xffff);
    }
    assert_eq!(positive.at_odd_offset().fold(), 0);
    assert_eq!(negative.at_odd_offset().fold(), 0xffff);
    for left in [positive, negative, Sum::of(&[0xff; 8])] {
        for right in [positive, negative, Sum::of(&[0xff; 8]), Sum::of(&[0xff; 80])] {
            assert_eq!((left - right).fold(), 0xffff);
        }
    }
}

#[test]
fn validity_is_minus_zero() {
    assert!(Sum::from_word(0xffff).is_valid());
    assert!(!Sum::ZERO.is_valid());
    assert!(!Sum::from_word(0xfffe).is_valid());
    assert!(!Sum::from_word(1).is_valid());
}

#[test]
fn a_sum_prints_as_its_fold() {
    assert_eq!(format!("{:?}", Sum::from_u32(0xffff_0001)), "Sum(0x0001)");
}

/// The example in RFC 1624 section 4, for which equation 2 and RFC 1141 give 0xffff.
#[test]
fn rfc_1624_example_gives_zero() {
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn update_is_summing_again_at_every_position() {
    for offset in (0..60).step_by(2) {
        for checksum in EDGES {
            for old in EDGES {
                // Choose another word so that the data has this checksum.
                let mut before = noise(60, 5);
                before[offset..offset + 2].copy_from_slice(&old.to_be_bytes());
                let balance = (offset + 2) % 60;
                before[balance..balance + 2].fill(0);
                let word = u32::from(!checksum) + 0xffff - u32::from(!rfc_1071(&before));
                let word = (word % 0xffff) as u16;
                before[balance..balance + 2].copy_from_slice(&word.to_be_bytes());
                // Only all-zero data has a checksum of 0xffff.
                let checksum = if checksum == 0xffff { 0 } else { checksum };
                assert_eq!(rfc_1071(&before), checksum);
                for new in EDGES {
                    let mut after = before.clone();
                    after[offset..offset + 2].copy_from_slice(&new.to_be_bytes());
                    assert_eq!(update(checksum, old, new), rfc_1071(&after));
                }
            }
        }
    }
}

#[test]
fn one_more_is_an_update_by_one_for_every_checksum() {
    for checksum in 0..=u16::MAX {
        for old in [0, 1, 0x00ff, 0x1234, 0xfffe] {
            assert_eq!(
                incremented(checksum),
                update(checksum, old, old + 1),
                "{checksum:#x} {old:#x}"
            );
        }
        // The ID in an IPv4 header wraps from 0xffff to 0.
        assert_eq!(update(checksum, 0xffff, 0), checksum);
    }
}

#[test]
fn update_of_32_bits_is_summing_again_at_the_edges() {
    for high in EDGES {
        for low in EDGES {
            let old = u32::from(high) << 16 | u32::from(low);
            for new in EDGES.iter().flat_map(|&a| EDGES.map(|b| u32::from(a) << 16 | u32::from(b)))
            {
                for rest in EDGES.into_iter().filter(|&rest| rest != 0) {
                    let packet =
                        |word: u32| [&rest.to_be_bytes()[..], &word.to_be_bytes()].concat();
                    let updated = update_u32(rfc_1071(&packet(old)), old, new);
                    assert_eq!(updated, rfc_1071(&packet(new)), "{rest:x}: {old:x} to {new:x}");
                }
            }
        }
    }
}

#[test]
fn update_to_nothing_but_zeros_keeps_minus_zero() {
    assert_eq!(update(!0x1234, 0x1234, 0), 0x0000);
    assert_eq!(rfc_1071(&[0, 0]), 0xffff);
}

#[test]
fn nonzero_changes_only_zero() {
    assert_eq!(nonzero(0), 0xffff);
    for checksum in 1..=0xffff {
        assert_eq!(nonzero(checksum), checksum);
    }
}

proptest! {
    #[test]
    fn words_count_as_their_bytes(word: u16, value: u32) {
        prop_assert_eq!(Sum::from_word(word).checksum(), rfc_1071(&word.to_be_bytes()));
        prop_assert_eq!(Sum::from_u32(value).checksum(), rfc_1071(&value.to_be_bytes()));
    }

    #[test]
    fn any_parts_are_their_concatenation(parts in vec(vec(any::<u8>(), 0..200), 0..12)) {
        let sum = Sum::of_parts(parts.iter().map(Vec::as_slice));
        prop_assert_eq!(sum.checksum(), rfc_1071(&parts.concat()));
    }

    #[test]
    fn what_was_appended_can_be_taken_off(
        head in vec(any::<u8>(), 0..100),
        tail in vec(1_u8.., 1..2000),
    ) {
        let whole = Sum::of_parts([&head[..], &tail]);
        let without_head = whole - Sum::of(&head);
        let expected = Sum::of(&tail);
        prop_assert_eq!(
            if head.len() % 2 == 1 { without_head.at_odd_offset() } else { without_head },
            expected
        );
        let tail_in_place = if head.len() % 2 == 1 { expected.at_odd_offset() } else { expected };
        let mut head_again = whole.subtract(tail_in_place);
        // A difference of zero is -0, but an empty or all-zero head sums to +0.
        if Sum::of(&head) == Sum::ZERO {
            prop_assert!(head_again.is_valid());
            head_again = Sum::ZERO;
        }
        prop_assert_eq!(head_again, Sum::of(&head));
    }

    #[test]
    fn a_checksum_in_its_place_makes_the_sum_valid(mut bytes in vec(any::<u8>(), 2..3000)) {
        prop_assume!(bytes[2..].iter().any(|&byte| byte != 0));
        bytes[..2].fill(0);
        let checksum = Sum::of(&bytes).checksum();
        bytes[..2].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(Sum::of(&bytes).is_valid());
        let wrong = checksum ^ 0x0100;
        bytes[..2].copy_from_slice(&wrong.to_be_bytes());
        prop_assert!(!Sum::of(&bytes).is_valid());
    }

    #[test]
    fn update_of_two_words_is_two_updates_of_one(
        packet in vec(any::<u8>(), 40),
        position in 0_usize..18,
        new: u32,
    ) {
        let offset = 2 * position;
        prop_assume!(packet[..offset].iter().any(|&byte| byte != 0));
        let old = u32::from_be_bytes(packet[offset..offset + 4].try_into().unwrap());
        let mut after = packet.clone();
        after[offset..offset + 4].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(update_u32(rfc_1071(&packet), old, new), rfc_1071(&after));
    }
}
