//! The loops over many bytes, one for each kind of machine, and the choice between them.
//!
//! Every function here returns a sum of little-endian words as 64 bits with end-around carry, zero
//! only if every byte is zero.

mod portable;

pub(crate) use portable::{SHORT_BYTES, short, short_copy};

use core::fmt;

/// The loop that sums long blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Safe code, for every machine.
    Portable,
    /// 256-bit vectors of x86-64.
    Avx2,
    /// 512-bit vectors of x86-64 (F and BW).
    Avx512,
    /// 128-bit vectors of AArch64.
    Neon,
}

impl Backend {
    /// The backends that this machine can run, slowest first. [`Backend::Portable`] is always the
    /// first.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Portable].into_iter()
    }

    pub(crate) fn sum(self, bytes: &[u8]) -> u64 {
        portable::sum(bytes)
    }

    pub(crate) fn copy(self, source: &[u8], destination: &mut [u8]) -> u64 {
        portable::copy(source, destination)
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

/// The backend that [`Sum::of`](crate::Sum::of) and [`copy`](crate::copy()) use for long blocks on
/// this machine. It is chosen once.
#[must_use]
pub fn backend() -> Backend {
    Backend::Portable
}

pub(crate) fn sum(bytes: &[u8]) -> u64 {
    backend().sum(bytes)
}

pub(crate) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    backend().copy(source, destination)
}
