//! 512-bit vectors.

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
    _mm512_reduce_add_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_sub_epi64,
};

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (vectors, rest) = bytes.as_chunks::<64>();
    let (blocks, vectors) = vectors.as_chunks::<4>();
    let mut lanes = [Lanes::zero(); 4];
    for block in blocks {
        for (lanes, vector) in lanes.iter_mut().zip(block) {
            lanes.add(load(vector));
        }
    }
    for (lanes, vector) in lanes.iter_mut().zip(vectors) {
        lanes.add(load(vector));
    }
    let [a, b, c, mut d] = lanes;
    d.add(load_partial(rest));
    a.join(b).join(c.join(d)).total()
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    let (vectors, rest) = source.as_chunks::<64>();
    let (targets, _) = destination.as_chunks_mut::<64>();
    let mut lanes = [Lanes::zero(); 4];
    let (blocks, vectors) = vectors.as_chunks::<4>();
    let (target_blocks, targets) = targets.as_chunks_mut::<4>();
    for (block, target) in blocks.iter().zip(target_blocks) {
        for ((lanes, vector), target) in lanes.iter_mut().zip(block).zip(target) {
            let v = load(vector);
            store(target, v);
            lanes.add(v);
        }
    }
    for ((lanes, vector), target) in lanes.iter_mut().zip(vectors).zip(targets) {
        let v = load(vector);
        store(target, v);
        lanes.add(v);
    }
    let [a, b, c, mut d] = lanes;
    d.add(load_partial(rest));
    if let (Some(last), Some(target)) = (source.last_chunk::<64>(), destination.last_chunk_mut()) {
        store(target, load(last));
    } else {
        destination.copy_from_slice(source);
    }
    a.join(b).join(c.join(d)).total()
}

#[derive(Clone, Copy)]
struct Lanes {
    whole: __m512i,
    upper: __m512i,
}

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> Self {
        Self { whole: _mm512_setzero_si512(), upper: _mm512_setzero_si512() }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(&mut self, words: __m512i) {
        self.whole = _mm512_add_epi64(self.whole, words);
        self.upper = _mm512_add_epi64(self.upper, _mm512_srli_epi64::<32>(words));
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn join(self, other: Self) -> Self {
        Self {
            whole: _mm512_add_epi64(self.whole, other.whole),
            upper: _mm512_add_epi64(self.upper, other.upper),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn total(self) -> u64 {
        let lower = _mm512_sub_epi64(self.whole, _mm512_slli_epi64::<32>(self.upper));
        _mm512_reduce_add_epi64(_mm512_add_epi64(lower, self.upper)) as u64
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference is valid for reading 64 bytes, and this load wants no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_partial(bytes: &[u8]) -> __m512i {
    debug_assert!(bytes.len() < 64);
    let mask = (1 << (bytes.len() & 63)) - 1;
    // SAFETY: masked.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(target: &mut [u8; 64], words: __m512i) {
    // SAFETY: the reference is valid for writing 64 bytes.
    unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), words) }
}
