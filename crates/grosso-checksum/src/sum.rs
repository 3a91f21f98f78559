//! A checksum under construction.

use core::{fmt, ops};

use crate::backend::{self, Backend, SHORT_BYTES, end_around_add};

/// A ones' complement sum of 16-bit words, not yet folded: a checksum under construction.
///
/// # The two zeros
///
/// One's complement has two zeros. Here `+0` (folds to `0x0000`) is the sum of nothing but zero
/// words, and `-0` (folds to `0xffff`) is every other sum that is a multiple of 65535. Adding,
/// appending and byte-swapping give `+0` only when every operand is `+0`.
/// [Subtracting](Sum::subtract) never gives `+0`. Two sums are equal when they fold to the same
/// value, so `+0` and `-0` differ, as they do in a checksum field.
///
/// # Representation
///
/// An end-around-carry accumulator of 64 bits. The words are little-endian on every machine: RFC
/// 1071 section 2(B) shows that byte order only swaps the result, and so the common machines load
/// words without a swap. [`Sum::fold`] swaps once.
#[derive(Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes` as big-endian words; an odd last byte is padded with a zero on its right
    /// (RFC 1071 section 4.1, rule C10). Any length.
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        // A header is summed inline: selecting a loop would cost more than the sum.
        match <&[u8; SHORT_BYTES]>::try_from(bytes) {
            Ok(block) => Self(backend::short_block(block)),
            Err(_) if bytes.len() < SHORT_BYTES => Self(backend::short(bytes)),
            Err(_) => Self(backend::sum(bytes)),
        }
    }

    /// The sum of the concatenation of `parts`, whatever their lengths.
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

    /// The sum of one word, given as a number in host order: a length, a port, a protocol.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u16) -> Self {
        Self(word.swap_bytes() as u64)
    }

    /// The sum of the two words of a 32-bit number: a sequence number, an address.
    #[inline]
    #[must_use]
    pub const fn from_u32(value: u32) -> Self {
        // A 32-bit word counts as its two halves because 65536 is 1 modulo 65535.
        Self(value.swap_bytes() as u64)
    }

    pub(crate) const fn from_little_endian(accumulator: u64) -> Self {
        Self(accumulator)
    }

    /// The sum of both operands: of two blocks, the first of even length, or of a block and a
    /// pseudo-header. See [`Sum::append`] for blocks of any length.
    #[inline]
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        Self(end_around_add(self.0, other.0))
    }

    /// This sum for a block that starts at an odd offset: byte-swapped (RFC 1071 section 2(B), rule
    /// C10).
    #[inline]
    #[must_use]
    pub const fn at_odd_offset(self) -> Self {
        // Both are multiplications by 256: of the 16-bit sum modulo 65535, and of the accumulator
        // modulo 2^64 - 1, which 65535 divides.
        Self(self.0.rotate_left(8))
    }

    /// The sum of two adjacent blocks: this one, of `len` bytes, and the one after it, with the sum
    /// `other`.
    #[inline]
    #[must_use]
    pub const fn append(self, len: usize, other: Self) -> Self {
        if len % 2 == 1 { self.add(other.at_odd_offset()) } else { self.add(other) }
    }

    /// This sum without the words of `other`: the rest of a verified sum when a header is removed
    /// (rule C22). The header must start at an even offset; otherwise pass `other` [at an odd
    /// one](Sum::at_odd_offset).
    ///
    /// The result is never `+0`: a difference of zero is `-0`, even if the words left are zeros.
    #[inline]
    #[must_use]
    pub const fn subtract(self, other: Self) -> Self {
        let difference = end_around_add(self.0, !other.0);
        // It can be zero only for zero minus an accumulator of all ones. The result must not depend
        // on which of the accumulators that fold to -0 was subtracted.
        Self(if difference == 0 { u64::MAX } else { difference })
    }

    /// The folded 16-bit sum as a number, not complemented. `0x0000` only if every word was zero,
    /// and never after [`Sum::subtract`].
    #[inline]
    #[must_use]
    pub const fn fold(self) -> u16 {
        // Adding the number to itself with its halves exchanged leaves in the upper half both
        // halves and the carry out of them. That carry cannot make another.
        let half = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        ((half.wrapping_add(half.rotate_left(16)) >> 16) as u16).swap_bytes()
    }

    /// The value of a checksum field: the complement of the folded sum. For UDP pass it through
    /// [`nonzero`](crate::nonzero).
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether this sum over data and its checksum field verifies the data: it folds to `0xffff`.
    ///
    /// All-zero data are not valid, because the checksum of zeros would be `0xffff`. With a
    /// pseudo-header this cannot occur, because its protocol is not zero.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

impl PartialEq for Sum {
    #[inline]
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

    #[inline]
    fn add(self, other: Self) -> Self {
        Self::add(self, other)
    }
}

impl ops::AddAssign for Sum {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = Self::add(*self, other);
    }
}

impl ops::Sub for Sum {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        self.subtract(other)
    }
}

/// [`Sum::of`] with the loop of one backend at every length, for tests and benches. A backend that
/// this machine lacks is replaced by the portable one.
#[doc(hidden)]
#[must_use]
pub fn of_with(backend: Backend, bytes: &[u8]) -> Sum {
    Sum(backend.sum(bytes))
}
