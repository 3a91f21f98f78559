//! 128-bit vectors on AArch64.
//!
//! Every AArch64 target with vector registers has NEON, so no detection is needed: compiled for these targets, the
//! portable loop is the NEON loop.

pub(super) use super::portable::{copy, sum};
