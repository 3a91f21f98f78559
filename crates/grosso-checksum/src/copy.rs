//! Copy and sum in one pass.

use crate::backend::{self, Backend, SHORT_BYTES};
use crate::sum::Sum;

/// Copy `source` to `destination` and return the sum of the bytes, reading them once.
///
/// # Panics
///
/// Panics if the lengths differ, before anything is written.
#[inline]
pub fn copy(source: &[u8], destination: &mut [u8]) -> Sum {
    check_lengths(source, destination);
    Sum::from_little_endian(if source.len() <= SHORT_BYTES {
        backend::short_copy(source, destination)
    } else {
        backend::copy(source, destination)
    })
}

/// [`copy`] with the loop of one backend at every length, for tests and benches. A backend that
/// this machine lacks is replaced by the portable one.
///
/// # Panics
///
/// Panics if the lengths differ.
#[doc(hidden)]
pub fn copy_with(backend: Backend, source: &[u8], destination: &mut [u8]) -> Sum {
    check_lengths(source, destination);
    Sum::from_little_endian(backend.copy(source, destination))
}

#[inline]
fn check_lengths(source: &[u8], destination: &[u8]) {
    assert_eq!(source.len(), destination.len(), "source and destination differ in length");
}
