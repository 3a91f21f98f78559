//! Checksums in progress.

use core::{fmt, ops};

use crate::backend::{self, Backend, SHORT_BYTES, end_around_add};

/// One's complement sum of 16-bit words that has not been folded yet: a checksum in progress.
///
/// # The two zeros
///
/// One's complement has two zeros. `+0` folds to `0x0000` and is the sum of nothing but zero words. `-0` folds to
/// `0xffff` and is the sum of words that add up to a nonzero multiple of 65535. Adding, appending and byte-swapping
/// give `+0` only if every operand is `+0`. [Subtracting](Sum::subtract) never gives `+0`. Two sums are equal if they
/// fold to the same value, so `+0` and `-0` differ, as they do in a checksum field.
///
/// # Representation
///
/// A sum is a 64-bit accumulator with end-around carry. Words are loaded as little-endian on every CPU, so that the
/// common CPUs need not swap them. According to RFC 1071 section 2(B), swapping the bytes of all words only swaps the
/// bytes of the result, which [`Sum::fold`] swaps back.
#[derive(Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// Sum of no bytes.
    pub const ZERO: Self = Self(0);

    /// Returns the sum of `bytes` as big-endian words. If the length is odd, the last byte is padded with a zero on the
    /// right (RFC 1071 section 4.1, rule C10). Any length is allowed.
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        // A header is summed inline, because selecting a loop would cost more than the sum.
        match <&[u8; SHORT_BYTES]>::try_from(bytes) {
            Ok(block) => Self(backend::short_block(block)),
            Err(_) if bytes.len() < SHORT_BYTES => Self(backend::short(bytes)),
            Err(_) => Self(backend::sum(bytes)),
        }
    }

    /// Returns the sum of the concatenated `parts`, which may have any lengths.
    #[inline]
    #[must_use]
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut total = Self::ZERO;
        let mut is_odd = false;
        for part in parts {
            total = total.append(usize::from(is_odd), Self::of(part));
            is_odd ^= part.len() % 2 == 1;
        }
        total
    }

    /// Returns the sum of a single word in host byte order, for example a length, a port or a protocol.
    #[must_use]
    pub const fn from_word(word: u16) -> Self {
        Self(word.swap_bytes() as u64)
    }

    /// Returns the sum of the two words of a 32-bit number, for example a sequence number or an address.
    #[must_use]
    pub const fn from_u32(value: u32) -> Self {
        // A 32-bit word counts as its two halves because 65536 is 1 modulo 65535.
        Self(value.swap_bytes() as u64)
    }

    pub(crate) const fn from_little_endian(accumulator: u64) -> Self {
        Self(accumulator)
    }

    /// Adds two sums, for example those of two adjacent blocks, the first of which must have an even length, or of a
    /// block and a pseudo-header. [`Sum::append`] supports blocks of any length.
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        Self(end_around_add(self.0, other.0))
    }

    /// Returns the sum that the same block would have at an odd offset, which is the byte-swapped sum (RFC 1071 section
    /// 2(B), rule C10).
    #[must_use]
    pub const fn at_odd_offset(self) -> Self {
        // The byte swap multiplies the 16-bit sum by 256 modulo 65535. The rotation multiplies the accumulator by 256
        // modulo 2^64 - 1, which is a multiple of 65535.
        Self(self.0.rotate_left(8))
    }

    /// Returns the sum of two adjacent blocks: `self`, which is `len` bytes long, followed by the block with the sum
    /// `other`.
    #[must_use]
    pub const fn append(self, len: usize, other: Self) -> Self {
        if len % 2 == 1 { self.add(other.at_odd_offset()) } else { self.add(other) }
    }

    /// Returns the sum without the words of `other`, for example a packet's sum after removing a header (rule C22). The
    /// header must start at an even offset; otherwise convert `other` with [`at_odd_offset`](Sum::at_odd_offset).
    ///
    /// The result is never `+0`: a difference of zero is `-0`, even if the remaining words are zeros.
    #[must_use]
    pub const fn subtract(self, other: Self) -> Self {
        let difference = end_around_add(self.0, !other.0);
        // The difference is zero only for zero minus an accumulator of all ones. The result must not depend on which
        // accumulator that folds to -0 was subtracted.
        Self(if difference == 0 { u64::MAX } else { difference })
    }

    /// Returns the folded 16-bit sum, which is not complemented. It is `0x0000` only if every word was zero, and never
    /// after [`Sum::subtract`].
    #[must_use]
    pub const fn fold(self) -> u16 {
        // Adding the number to itself with swapped halves leaves both halves and their carry in the upper half. Adding
        // that carry cannot cause another one.
        let half = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        ((half.wrapping_add(half.rotate_left(16)) >> 16) as u16).swap_bytes()
    }

    /// Returns the value for a checksum field: the complement of the folded sum. For UDP, pass it through
    /// [`nonzero`](crate::nonzero).
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Returns whether the data is intact according to this sum, which must include the checksum field. This is the
    /// case if the sum folds to `0xffff`.
    ///
    /// All-zero data is not valid, because the checksum of zeros would be `0xffff`. It cannot occur with a
    /// pseudo-header, because the protocol is not zero.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.fold() == other.fold()
    }
}

impl Eq for Sum {}

impl fmt::Debug for Sum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Sum({:#06x})", self.fold())
    }
}

impl ops::Add for Sum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::add(self, other)
    }
}

impl ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        *self = Self::add(*self, other);
    }
}

impl ops::Sub for Sum {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.subtract(other)
    }
}

/// Works like [`Sum::of`], but uses `backend` for every length. Intended for tests and benchmarks. If the CPU does not
/// support `backend`, the portable backend is used.
#[doc(hidden)]
#[must_use]
pub fn of_with(backend: Backend, bytes: &[u8]) -> Sum {
    Sum(backend.sum(bytes))
}
