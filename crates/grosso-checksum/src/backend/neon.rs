//! The safe loop in 128-bit vectors. Every AArch64 target with vector registers has NEON, so that
//! there is nothing to detect: only more lanes than the portable loop keeps.

use super::portable::{copy_in_lanes, sum_in_lanes};

pub(super) fn sum(bytes: &[u8]) -> u64 {
    sum_in_lanes::<LANES>(bytes)
}

pub(super) fn copy(source: &[u8], destination: &mut [u8]) -> u64 {
    copy_in_lanes::<LANES>(source, destination)
}

/// Eight accumulators of each kind: enough to hide the latency of an addition on four vector units.
const LANES: usize = 16;
