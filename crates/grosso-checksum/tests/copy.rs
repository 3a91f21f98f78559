//! Tests that a copy writes exactly the source bytes and returns their sum.

use grosso_checksum::{Backend, Sum, copy, copy_with};
use proptest::prelude::*;

use crate::common::{noise, rfc_1071};

/// Guard bytes on each side of a destination, to detect out-of-bounds writes. The margin is longer than a vector
/// register.
const MARGIN: usize = 96;

/// A function with the same signature as [`copy`], with its name.
type Entry = (String, Box<dyn Fn(&[u8], &mut [u8]) -> Sum>);

/// Returns the public function and every backend that this CPU supports.
fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = vec![("public".into(), Box::new(copy))];
    for backend in Backend::available() {
        entries.push((
            backend.to_string(),
            Box::new(move |source, destination| copy_with(backend, source, destination)),
        ));
    }
    entries
}

fn check(source: &[u8], offset: usize) {
    for (name, copy) in entries() {
        for fill in [0x00, 0xa5] {
            let mut room = vec![fill; offset + source.len() + 2 * MARGIN];
            let start = MARGIN + offset;
            let end = start + source.len();
            let sum = copy(source, &mut room[start..end]);
            let context = format!("{name}: {} bytes to {offset}", source.len());
            assert_eq!(&room[start..end], source, "{context}");
            assert_eq!(sum.checksum(), rfc_1071(source), "{context}");
            assert!(room[..start].iter().all(|&byte| byte == fill), "{context}: before");
            assert!(room[end..].iter().all(|&byte| byte == fill), "{context}: after");
        }
    }
}

#[test]
fn every_length_to_600() {
    let bytes = noise(700, 6);
    for len in 0..=600 {
        check(&bytes[len % 64..len % 64 + len], (7 * len) % 64);
    }
}

#[test]
fn every_alignment_of_source_and_destination() {
    let bytes = noise(64 + 195, 7);
    for from in 0..64 {
        for to in (0..64).step_by(3) {
            check(&bytes[from..from + 195], to);
        }
    }
}

#[test]
fn ones_and_zeros() {
    for len in [1, 2, 63, 64, 65, 128, 1447, 1448, (128 << 10) + 1, 1 << 20] {
        check(&vec![0xff; len], 1);
        check(&vec![0; len], 1);
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn a_shorter_destination_panics() {
    copy(&[0; 100], &mut [0; 99]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn a_longer_destination_panics() {
    copy(&[0; 20], &mut [0; 21]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_longer_block(len in 600_usize..70_000, seed: u64, offset in 0_usize..64) {
        check(&noise(len, seed), offset);
    }
}
