//! Safe loops, compiled for whatever every machine of the target has.

use crate::sum::end_around_add;

/// How many bytes are summed where they stand, without choosing a backend: the longest IPv4 or TCP
/// header, and what one step of the widest loop takes.
pub(crate) const SHORT_BYTES: usize = 64;

/// Sum at most [`SHORT_BYTES`]: no call and no loop, but a step for each bit of the length.
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
    // Nothing as short has carries that fill more than the upper half.
    end_around_add(total as u64, (total >> 64) as u64)
}

/// Adds the words of the next `SIZE` bytes, if there are so many.
#[inline(always)]
fn take<const SIZE: usize>(rest: &mut &[u8], total: &mut u128) {
    if let Some((block, behind)) = rest.split_first_chunk::<SIZE>() {
        *rest = behind;
        for word in block.as_chunks().0 {
            *total += u128::from(u64::from_le_bytes(*word));
        }
    }
}

/// Copy and sum a few bytes. The caller has compared the lengths.
#[inline(always)]
pub(crate) fn short_copy(source: &[u8], destination: &mut [u8]) -> u64 {
    // Overlapping stores of fixed sizes, where `copy_from_slice` would be a call.
    match source.len() {
        33..=SHORT_BYTES => copy_both_ends::<32>(source, destination),
        17..=32 => copy_both_ends::<16>(source, destination),
        8..=16 => copy_both_ends::<8>(source, destination),
        4..=7 => copy_both_ends::<4>(source, destination),
        _ => destination.copy_from_slice(source),
    }
    short(source)
}

/// Copy between `SIZE` and twice `SIZE` bytes.
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

/// Sum many bytes. The compiler makes vectors of the loop, as wide as those of the function that
/// this is inlined into, and several chains of additions.
///
/// Each 64-bit word goes whole into `whole`, which wraps, and its upper half into `upper`, which
/// does not. The sum of the lower halves follows at the end: one shift and two additions a word,
/// without separating its halves.
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

/// Copy and sum, a piece at a time: the sum finds the piece in the nearest cache. One loop for both
/// would come to the same, as LLVM makes a call of `memcpy` of its stores. The caller has compared
/// the lengths.
#[inline(always)]
pub(super) fn copy_body(source: &[u8], destination: &mut [u8]) -> u64 {
    let mut total = 0;
    for (piece, target) in source.chunks(PIECE_BYTES).zip(destination.chunks_mut(PIECE_BYTES)) {
        target.copy_from_slice(piece);
        total = end_around_add(total, sum_body(piece));
    }
    total
}

/// The bytes of `rest`, which are the last ones of `bytes` and fewer than eight, as one word or a
/// sum of words.
#[inline(always)]
fn last_word(bytes: &[u8], rest: &[u8]) -> u64 {
    if let Some(last) = bytes.last_chunk() {
        // Load the last eight bytes and shift out those that were counted already. In two steps,
        // since a shift by 64, for nothing left, does not exist.
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

/// How much is copied before it is summed: even, so that no sum starts at an odd offset, and with
/// its copy a fraction of the 32 KiB that the smallest of today's first caches hold.
const PIECE_BYTES: usize = 8 << 10;
