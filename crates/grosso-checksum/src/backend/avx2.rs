//! The safe loop in 256-bit vectors.

use super::portable::{copy_in_lanes, sum_in_lanes};

#[target_feature(enable = "avx2")]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    sum_in_lanes::<LANES>(bytes)
}

#[target_feature(enable = "avx2")]
pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    copy_in_lanes::<LANES>(source, destination)
}

const LANES: usize = 16;
