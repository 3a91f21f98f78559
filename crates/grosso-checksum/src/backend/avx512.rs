//! 512-bit vectors on x86-64.
//!
//! Intrinsics are used for two things that LLVM does not generate from the safe loop: a masked load of the bytes after
//! the last whole vector (1500 bytes at 190 GB/s instead of 135 GB/s, on Zen 5), and copying and summing in one pass
//! (1448 bytes at 140 GB/s instead of 70 to 95 GB/s).

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
    _mm512_reduce_add_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_sub_epi64,
};

use super::portable::short_copy;

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (vectors, rest) = bytes.as_chunks();
    let (blocks, vectors) = vectors.as_chunks();
    let mut chains = [Lanes::zero(); CHAINS];
    for block in blocks {
        let block: &[_; CHAINS] = block;
        for (lanes, vector) in chains.iter_mut().zip(block) {
            lanes.add(load(vector));
        }
    }
    let [first, second, third, mut last] = chains;
    for vector in vectors {
        last.add(load(vector));
    }
    last.add(load_partial(rest));
    first.join(second).join(third.join(last)).total()
}

/// Copies and sums bytes. The caller must have checked that the lengths are equal.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    let (vectors, rest) = source.as_chunks();
    let (targets, _) = destination.as_chunks_mut();
    let (Some((first, vectors)), Some((last_target, targets))) =
        (vectors.split_first(), targets.split_last_mut())
    else {
        return short_copy(source, destination);
    };
    // Each vector is stored one step after it was loaded. If it were stored in the same step, LLVM would replace the
    // stores with a call to `memcpy` and sum in a second pass. One chain of additions suffices here, because the stores
    // are slower.
    let mut lanes = Lanes::zero();
    let mut held = load(first);
    for (vector, target) in vectors.iter().zip(targets) {
        store(target, held);
        lanes.add(held);
        held = load(vector);
    }
    store(last_target, held);
    lanes.add(held);
    lanes.add(load_partial(rest));
    // The remaining bytes are stored together with the bytes before them, because masked stores are slow on some CPUs.
    if let (Some(last), Some(target)) = (source.last_chunk(), destination.last_chunk_mut()) {
        store(target, load(last));
    }
    lanes.total()
}

/// Accumulators of eight lanes. As in the portable loop, each lane has the wrapping sum of whole words and the sum of
/// their upper halves.
#[derive(Clone, Copy)]
struct Lanes {
    whole: __m512i,
    upper: __m512i,
}

impl Lanes {
    #[target_feature(enable = "avx512f")]
    fn zero() -> Self {
        Self { whole: _mm512_setzero_si512(), upper: _mm512_setzero_si512() }
    }

    #[target_feature(enable = "avx512f")]
    fn add(&mut self, words: __m512i) {
        self.whole = _mm512_add_epi64(self.whole, words);
        self.upper = _mm512_add_epi64(self.upper, _mm512_srli_epi64::<32>(words));
    }

    #[target_feature(enable = "avx512f")]
    fn join(self, other: Self) -> Self {
        Self {
            whole: _mm512_add_epi64(self.whole, other.whole),
            upper: _mm512_add_epi64(self.upper, other.upper),
        }
    }

    #[target_feature(enable = "avx512f")]
    fn total(self) -> u64 {
        let lower = _mm512_sub_epi64(self.whole, _mm512_slli_epi64::<32>(self.upper));
        _mm512_reduce_add_epi64(_mm512_add_epi64(lower, self.upper)) as u64
    }
}

#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; VECTOR_BYTES]) -> __m512i {
    // SAFETY: the reference is valid for reading 64 bytes, and this load requires no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Loads fewer than 64 bytes into a vector, and zeroes the rest of it.
#[target_feature(enable = "avx512f,avx512bw")]
fn load_partial(bytes: &[u8]) -> __m512i {
    // The `%` does not change the value. It only tells the compiler that the shift is less than 64.
    let mask = (1 << (bytes.len() % VECTOR_BYTES)) - 1;
    // SAFETY: the mask has no bit for a byte at or after `bytes.len()`; the CPU neither reads a byte whose bit is
    // clear, nor faults on it, nor requires alignment.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(target: &mut [u8; VECTOR_BYTES], words: __m512i) {
    // SAFETY: the reference is valid for writing 64 bytes, and this store requires no alignment.
    unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), words) }
}

const VECTOR_BYTES: usize = 64;

/// Number of independent chains of additions. At a latency of one cycle per addition, they keep up with two loads per
/// cycle.
const CHAINS: usize = 4;
