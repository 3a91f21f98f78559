//! What holds of the engine whatever comes: laws, order, conservation, bounds of memory and time.
//!
//! Every case is made from a seed that a failure prints; how many frames it has is what shrinks.

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

/// So many cases; times `GROSSO_CASES_FACTOR` where that is set, for whoever has more time.
fn cases(count: u32) -> Config {
    let factor = std::env::var("GROSSO_CASES_FACTOR").ok().and_then(|factor| factor.parse().ok());
    Config::with_cases(count * factor.unwrap_or(1))
}
