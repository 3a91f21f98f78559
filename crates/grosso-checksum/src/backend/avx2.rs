//! 256-bit vectors on x86-64.
//!
//! There are no intrinsics here, because LLVM compiles the safe loop to code that is as fast as hand-written code.

use super::portable::{copy_body, sum_body};

#[target_feature(enable = "avx2")]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    sum_body(bytes)
}

/// Copies and sums bytes. The caller must have checked that the lengths are equal.
#[target_feature(enable = "avx2")]
pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    copy_body(source, destination)
}
