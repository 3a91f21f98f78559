//! Safe loops, compiled for the base instruction set of the target.

/// Maximum number of bytes summed inline, without selecting a backend. This suffices for the longest IPv4 or TCP
/// header, and is one step of the widest loop.
pub(crate) const SHORT_BYTES: usize = 64;

/// Adds two numbers modulo 2^64 - 1. The result is zero only if both operands are zero.
#[inline]
pub(crate) const fn end_around_add(left: u64, right: u64) -> u64 {
    let (total, carry) = left.overflowing_add(right);
    // After a carry, the total is at most 2^64 - 2, so this addition cannot overflow.
    total + carry as u64
}

/// Sums at most [`SHORT_BYTES`] bytes without a call or a loop, in one step per bit of the length.
#[inline(always)]
pub(crate) fn short(bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    let mut total = 0;
    take::<64>(&mut rest, &mut total);
    take::<32>(&mut rest, &mut total);
    take::<16>(&mut rest, &mut total);
    take::<8>(&mut rest, &mut total);
    if !rest.is_empty() {
        total += u128::from(last_word(bytes, rest));
    }
    // The upper half contains the carries. There are too few words for it to overflow.
    end_around_add(total as u64, (total >> 64) as u64)
}

/// Sums [`SHORT_BYTES`] bytes in one carry chain, without checking any length.
#[inline(always)]
pub(crate) fn short_block(block: &[u8; SHORT_BYTES]) -> u64 {
    let add = |(total, carry): (u64, bool), word: &[u8; 8]| {
        total.carrying_add(u64::from_le_bytes(*word), carry)
    };
    let (total, carry) = block.as_chunks().0.iter().fold((0, false), add);
    // After a carry, the total is at most 2^64 - 2, so this addition cannot overflow.
    total + u64::from(carry)
}

/// Adds the words of the next `SIZE` bytes if `rest` has that many.
#[inline(always)]
fn take<const SIZE: usize>(rest: &mut &[u8], total: &mut u128) {
    if let Some((block, behind)) = rest.split_first_chunk::<SIZE>() {
        *rest = behind;
        for word in block.as_chunks().0 {
            *total += u128::from(u64::from_le_bytes(*word));
        }
    }
}

/// Copies and sums at most [`SHORT_BYTES`] bytes. The caller must have checked that the lengths are equal.
#[inline(always)]
pub(crate) fn short_copy(source: &[u8], destination: &mut [u8]) -> u64 {
    // Overlapping stores of fixed sizes are used, because `copy_from_slice` would compile to a function call.
    match source.len() {
        33..=SHORT_BYTES => copy_both_ends::<32>(source, destination),
        17..=32 => copy_both_ends::<16>(source, destination),
        8..=16 => copy_both_ends::<8>(source, destination),
        4..=7 => copy_both_ends::<4>(source, destination),
        _ => destination.copy_from_slice(source),
    }
    short(source)
}

/// Copies between `SIZE` and twice `SIZE` bytes.
#[inline(always)]
fn copy_both_ends<const SIZE: usize>(source: &[u8], destination: &mut [u8]) {
    if let (Some(head), Some(target)) = (source.first_chunk(), destination.first_chunk_mut()) {
        let target: &mut [u8; SIZE] = target;
        *target = *head;
    }
    if let (Some(tail), Some(target)) = (source.last_chunk(), destination.last_chunk_mut()) {
        let target: &mut [u8; SIZE] = target;
        *target = *tail;
    }
}

#[inline(never)]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    sum_body(bytes)
}

#[inline(never)]
pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    copy_body(source, destination)
}

/// Sums many bytes. The compiler vectorizes the loop to the width of the function that it is inlined into, with several
/// chains of additions.
///
/// Each whole 64-bit word is added to `whole`, which wraps, and the upper half of the word is added to `upper`, which
/// does not wrap. The sum of the lower halves is derived at the end. This takes one shift and two additions per word,
/// without separating the halves.
#[inline(always)]
pub(super) fn sum_body(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut whole = 0_u64;
    let mut upper = 0_u64;
    for word in words {
        let word = u64::from_le_bytes(*word);
        whole = whole.wrapping_add(word);
        upper += word >> 32;
    }
    let lower = whole.wrapping_sub(upper << 32);
    end_around_add(lower + upper, short(rest))
}

/// Copies and sums piece by piece, so that each piece is summed from the L1 cache. A single loop would not be faster,
/// because LLVM turns its stores into a call to `memcpy`. The caller must have checked that the lengths are equal.
#[inline(always)]
pub(super) fn copy_body(source: &[u8], destination: &mut [u8]) -> u64 {
    let mut total = 0;
    for (piece, target) in source.chunks(PIECE_BYTES).zip(destination.chunks_mut(PIECE_BYTES)) {
        target.copy_from_slice(piece);
        total = end_around_add(total, sum_body(piece));
    }
    total
}

/// Returns the sum of `rest`, which contains the last zero to seven bytes of `bytes`.
#[inline(always)]
fn last_word(bytes: &[u8], rest: &[u8]) -> u64 {
    if let Some(last) = bytes.last_chunk() {
        // This loads the last eight bytes and shifts out those that have already been summed. Two shifts are needed,
        // because `rest` may be empty and a shift by 64 is not defined.
        return u64::from_le_bytes(*last) >> 1 >> (63 - 8 * rest.len());
    }
    let mut rest = rest;
    let mut total = 0;
    if let Some((four, more)) = rest.split_first_chunk() {
        total += u64::from(u32::from_le_bytes(*four));
        rest = more;
    }
    if let Some((two, more)) = rest.split_first_chunk() {
        total += u64::from(u16::from_le_bytes(*two));
        rest = more;
    }
    total + rest.first().map_or(0, |&byte| u64::from(byte))
}

/// Number of bytes to copy before summing them. It is even, so that no sum starts at an odd offset, and small enough
/// that the source and the copy fit into the smallest L1 caches in use (32 KiB).
const PIECE_BYTES: usize = 8 << 10;
