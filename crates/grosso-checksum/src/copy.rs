//! Copying and summing of bytes in one pass.

use crate::backend::{self, Backend, SHORT_BYTES};
use crate::sum::Sum;

/// Copies `source` to `destination` and returns the sum of the bytes, reading each byte once.
///
/// # Panics
///
/// Panics if the lengths differ. In this case, nothing is written.
///
/// ```
/// use grosso_checksum::{Sum, copy};
///
/// let mut buffer = [0; 4];
/// assert_eq!(copy(b"data", &mut buffer), Sum::of(b"data"));
/// assert_eq!(&buffer, b"data");
/// ```
#[inline]
pub fn copy(source: &[u8], destination: &mut [u8]) -> Sum {
    check_lengths(source, destination);
    Sum::from_little_endian(if source.len() <= SHORT_BYTES {
        backend::short_copy(source, destination)
    } else {
        backend::copy(source, destination)
    })
}

/// Works like [`copy`], but uses `backend` for every length. Intended for tests and benchmarks. If the CPU does not
/// support `backend`, the portable backend is used.
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
