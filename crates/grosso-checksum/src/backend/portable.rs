//! Safe loops, compiled for whatever every machine of the target has.

use crate::sum::end_around_add;

/// How many bytes are summed where they stand, without choosing a backend: the longest IPv4 or TCP
/// header, and what one step of the widest loop takes.
pub(crate) const SHORT_BYTES: usize = 64;

/// Sum a few bytes: no call, no loop over single bytes.
#[inline(always)]
pub(crate) fn short(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut total = u128::from(last_word(bytes, rest));
    for word in words {
        total += u128::from(u64::from_le_bytes(*word));
    }
    // No slice is long enough for the carries to fill more than the upper half.
    end_around_add(total as u64, (total >> 64) as u64)
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

pub(super) fn sum(bytes: &[u8]) -> u64 {
    sum_in_lanes::<LANES>(bytes)
}

pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    copy_in_lanes::<LANES>(source, destination)
}

/// The body of every safe loop: inlined into a function of a backend, it becomes vectors of that
/// backend.
#[inline(always)]
pub(super) fn sum_in_lanes<const LANES: usize>(bytes: &[u8]) -> u64 {
    let (blocks, _) = bytes.as_chunks::<8>().0.as_chunks();
    let mut lanes = Lanes::<LANES>::ZERO;
    for block in blocks {
        lanes.add(block);
    }
    end_around_add(lanes.total(), short(&bytes[8 * LANES * blocks.len()..]))
}

/// Copy and sum, a piece at a time: the sum finds the piece in the nearest cache. In one loop, the
/// compiler would not make vectors of the sum as well. The caller has compared the lengths.
#[inline(always)]
pub(super) fn copy_in_lanes<const LANES: usize>(source: &[u8], destination: &mut [u8]) -> u64 {
    let mut total = 0;
    for (piece, target) in source.chunks(PIECE_BYTES).zip(destination.chunks_mut(PIECE_BYTES)) {
        target.copy_from_slice(piece);
        total = end_around_add(total, sum_in_lanes::<LANES>(piece));
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

/// Accumulators side by side, for the compiler to make vectors of.
///
/// Each 64-bit word goes whole into `whole`, which wraps, and its upper half into `upper`, which
/// does not. The sum of the lower halves follows at the end: one shift and two additions a word,
/// without separating its halves.
struct Lanes<const LANES: usize> {
    whole: [u64; LANES],
    upper: [u64; LANES],
}

impl<const LANES: usize> Lanes<LANES> {
    const ZERO: Self = Self { whole: [0; LANES], upper: [0; LANES] };

    #[inline(always)]
    fn add(&mut self, block: &[[u8; 8]; LANES]) {
        for ((whole, upper), word) in self.whole.iter_mut().zip(&mut self.upper).zip(block) {
            let word = u64::from_le_bytes(*word);
            *whole = whole.wrapping_add(word);
            *upper += word >> 32;
        }
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        let mut total = 0;
        for (&whole, &upper) in self.whole.iter().zip(&self.upper) {
            let lower = whole.wrapping_sub(upper << 32);
            total += lower + upper;
        }
        total
    }
}

const LANES: usize = 8;

/// How much is copied before it is summed: even, so that no sum starts at an odd offset, and with
/// its copy a fraction of the 32 KiB that the smallest of today's first caches hold.
const PIECE_BYTES: usize = 8 << 10;
