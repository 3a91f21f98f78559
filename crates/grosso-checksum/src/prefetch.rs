//! Prefetching of bytes that will be summed soon.

/// Prefetches bytes into the L1 cache without waiting for them. Summing packets from memory takes half the time if you
/// prefetch the packet after the next one before each sum. Prefetching four cache lines that are already cached costs
/// about 1 ns. On CPUs other than x86-64, the function does nothing.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse"))]
    for line in bytes.chunks(CACHE_LINE_BYTES) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the target has this instruction, which has no effect visible to a program and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse")))]
    let _ = bytes;
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse"))]
const CACHE_LINE_BYTES: usize = 64;
