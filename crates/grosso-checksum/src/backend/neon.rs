//! 128-bit vectors on AArch64.
//!
//! Every AArch64 target with vector registers has NEON, so no detection is needed. The portable loop compiled for these
//! targets is the NEON loop.

pub(super) use super::portable::{copy, sum};
