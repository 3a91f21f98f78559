//! 128-bit vectors on AArch64.
//!
//! Every AArch64 target with vector registers has NEON, so nothing has to be detected: the portable loop compiled for
//! such a target is the NEON loop.

pub(super) use super::portable::{copy, sum};
