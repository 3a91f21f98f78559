//! Loops over long blocks, one for each instruction set, and the choice between them.
//!
//! Every function here returns a 64-bit sum of little-endian words with end-around carry, which is zero only if every
//! byte is zero.
//!
//! Targets without vector registers (x86-64 without SSE2 and AArch64 without NEON, as in kernel code) have only the
//! portable loop.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod observer;
mod portable;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

pub use observer::{Observer, observe};
pub(crate) use portable::{SHORT_BYTES, end_around_add, short, short_block, short_copy};

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

/// Implementation that sums long blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Portable safe code.
    Portable,
    /// 256-bit vectors on x86-64.
    Avx2,
    /// 512-bit vectors on x86-64 (F and BW).
    Avx512,
    /// 128-bit vectors on AArch64.
    Neon,
}

impl Backend {
    /// Returns the backends that this CPU supports, in ascending order of width, from [`Backend::Portable`] to
    /// [`backend()`].
    pub fn available() -> impl Iterator<Item = Self> {
        OF_THIS_TARGET.into_iter().filter(|backend| backend.is_available())
    }

    pub(crate) fn sum(self, bytes: &[u8]) -> u64 {
        // SAFETY: `or_portable` returns only backends that were detected.
        unsafe { self.or_portable().sum_detected(bytes) }
    }

    /// Copies and sums bytes. The caller must have checked that the lengths are equal.
    pub(crate) fn copy(self, source: &[u8], destination: &mut [u8]) -> u64 {
        // SAFETY: `or_portable` returns only backends that were detected.
        unsafe { self.or_portable().copy_detected(source, destination) }
    }

    /// Sums `bytes` with a backend that the CPU supports.
    ///
    /// # Safety
    ///
    /// The CPU must have been detected to support the backend.
    unsafe fn sum_detected(self, bytes: &[u8]) -> u64 {
        if bytes.len() > SPAN_BYTES {
            return in_spans(bytes, SPAN_BYTES, |span| self.sum(span));
        }
        match self {
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            Self::Avx2 => {
                // SAFETY: the caller guarantees that the features were detected.
                unsafe { avx2::sum(bytes) }
            }
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            Self::Avx512 => {
                // SAFETY: the caller guarantees that the features were detected.
                unsafe { avx512::sum(bytes) }
            }
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Self::Neon => neon::sum(bytes),
            _ => portable::sum(bytes),
        }
    }

    /// Copies and sums bytes. The caller must have checked that the lengths are equal.
    ///
    /// # Safety
    ///
    /// The CPU must have been detected to support the backend.
    unsafe fn copy_detected(self, source: &[u8], destination: &mut [u8]) -> u64 {
        if source.len() > SPAN_BYTES {
            let mut targets = destination.chunks_mut(SPAN_BYTES);
            return in_spans(source, SPAN_BYTES, |span| {
                targets.next().map_or(0, |target| self.copy(span, target))
            });
        }
        match self {
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            Self::Avx2 => {
                // SAFETY: the caller guarantees that the features were detected.
                unsafe { avx2::copy(source, destination) }
            }
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            Self::Avx512 => {
                // SAFETY: the caller guarantees that the features were detected.
                unsafe { avx512::copy(source, destination) }
            }
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Self::Neon => neon::copy(source, destination),
            _ => portable::copy(source, destination),
        }
    }

    fn or_portable(self) -> Self {
        if self.is_available() { self } else { Self::Portable }
    }

    /// Returns whether this CPU supports the backend. A CPU that supports one backend also supports all narrower ones
    /// for its target.
    fn is_available(self) -> bool {
        self as u8 <= backend() as u8
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        })
    }
}

/// Returns the backend that [`Sum::of`](crate::Sum::of) and [`copy`](crate::copy()) use for long blocks. It is selected
/// on first use.
#[inline]
#[must_use]
pub fn backend() -> Backend {
    chosen().unwrap_or_else(choose)
}

/// Sums a block of more than [`SHORT_BYTES`] bytes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    match chosen() {
        // SAFETY: only a detected backend is ever selected.
        Some(backend) => unsafe { backend.sum_detected(bytes) },
        None => sum_unchosen(bytes),
    }
}

/// Copies and sums a block of more than [`SHORT_BYTES`] bytes. The caller must have checked that the lengths are equal.
pub(crate) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    match chosen() {
        // SAFETY: only a detected backend is ever selected.
        Some(backend) => unsafe { backend.copy_detected(source, destination) },
        None => copy_unchosen(source, destination),
    }
}

#[cold]
fn sum_unchosen(bytes: &[u8]) -> u64 {
    let (backend, mut sum) = (choose(), 0);
    observer::run_observed(bytes.len(), &mut || sum = backend.sum(bytes));
    sum
}

#[cold]
fn copy_unchosen(source: &[u8], destination: &mut [u8]) -> u64 {
    let (backend, mut sum) = (choose(), 0);
    observer::run_observed(source.len(), &mut || sum = backend.copy(source, destination));
    sum
}

/// Returns the sum of a block, computed span by span. The length of a span must be even.
#[cold]
fn in_spans(bytes: &[u8], span_bytes: usize, sum: impl FnMut(&[u8]) -> u64) -> u64 {
    bytes.chunks(span_bytes).map(sum).fold(0, end_around_add)
}

/// Returns the selected backend, or `None` before the first selection and while an observer is set.
fn chosen() -> Option<Backend> {
    numbered(CHOSEN.load(Ordering::Relaxed))
}

const fn numbered(discriminant: u8) -> Option<Backend> {
    match discriminant {
        0 => Some(Backend::Portable),
        1 => Some(Backend::Avx2),
        2 => Some(Backend::Avx512),
        3 => Some(Backend::Neon),
        _ => None,
    }
}

/// Selects a backend. Concurrent callers store the same values. The detection result is cached, because `cpuid` is
/// expensive in a virtual machine.
#[cold]
fn choose() -> Backend {
    let detected = numbered(DETECTED.load(Ordering::Relaxed)).unwrap_or_else(detect);
    DETECTED.store(detected as u8, Ordering::Relaxed);
    observer::unless_observed(|| CHOSEN.store(detected as u8, Ordering::SeqCst));
    detected
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
fn detect() -> Backend {
    // Miri has no `cpuid`.
    if cfg!(miri) { Backend::Portable } else { x86::detect() }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
fn detect() -> Backend {
    if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
        Backend::Neon
    } else {
        Backend::Portable
    }
}

/// Discriminant of the selected backend, or [`NOT_CHOSEN`].
static CHOSEN: AtomicU8 = AtomicU8::new(NOT_CHOSEN);
/// Discriminant of the detected backend, or [`NOT_CHOSEN`].
static DETECTED: AtomicU8 = AtomicU8::new(NOT_CHOSEN);
const NOT_CHOSEN: u8 = u8::MAX;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
const OF_THIS_TARGET: [Backend; 3] = [Backend::Portable, Backend::Avx2, Backend::Avx512];
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
const OF_THIS_TARGET: [Backend; 2] = [Backend::Portable, Backend::Neon];

/// Maximum number of bytes passed to a loop at once. This is 2^27 words. The two halves of a word add up to less than
/// 2^33, so the sum of all halves stays below 2^60 and cannot overflow.
const SPAN_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_make_up_the_block() {
        let bytes: [u8; 203] = core::array::from_fn(|index| (index * index + 7) as u8);
        for len in 0..bytes.len() {
            let block = &bytes[..len];
            for span_bytes in [2, 8, 10, 64, 202, 204] {
                let sum = in_spans(block, span_bytes, portable::sum);
                // The sums must be equal modulo 65535, and both zero or both nonzero.
                assert_eq!(sum % 0xffff, portable::sum(block) % 0xffff, "{len} in {span_bytes}");
                assert_eq!(sum == 0, portable::sum(block) == 0);
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    #[test]
    fn chosen_is_what_the_standard_library_detects() {
        extern crate std;
        let expected = if std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
        {
            Backend::Avx512
        } else if std::is_x86_feature_detected!("avx2") {
            Backend::Avx2
        } else {
            Backend::Portable
        };
        assert_eq!(backend(), expected);
        assert_eq!(Backend::available().last(), Some(expected));
        assert_eq!(Backend::available().next(), Some(Backend::Portable));
    }
}
