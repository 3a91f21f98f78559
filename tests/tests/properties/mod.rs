//! Tests invariants of the engine for any input: superframes can be segmented again, flows keep their order, no packet
//! is lost, and memory and time are bounded.
//!
//! Every case is generated from a seed, which is printed on failure. Only the number of frames shrinks.

mod bits;
mod checksum_forms;
mod collisions;
mod holding;
mod oracle;
mod order;
mod round_trip;
mod segmentation;
mod trains;

use proptest::test_runner::Config;

/// Returns a configuration for `count` cases, multiplied by `GROSSO_CASES_FACTOR` if it is set.
fn cases(count: u32) -> Config {
    let factor = std::env::var("GROSSO_CASES_FACTOR").ok().and_then(|factor| factor.parse().ok());
    Config::with_cases(count * factor.unwrap_or(1))
}
