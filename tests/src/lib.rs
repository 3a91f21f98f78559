//! What the tests that cross crates share.
//!
//! | module | what it gives |
//! |---|---|
//! | `kernel` (Linux) | the running kernel as an oracle for coalescing and segmentation |

#[cfg(target_os = "linux")]
pub mod kernel;
