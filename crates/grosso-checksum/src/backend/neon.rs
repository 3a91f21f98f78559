//! 128-bit vectors of AArch64.
//!
//! Every AArch64 target with vector registers has NEON, so that nothing need be detected: compiled
//! for one, the portable loop is the NEON loop. Its name here says so.

pub(super) use super::portable::{copy, sum};
