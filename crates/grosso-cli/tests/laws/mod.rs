//! Laws of the commands that read and write captures, tested on every header stack of the testkit.
//!
//! Each case is a capture of several flows, each generated from its own seed. A failing test reduces the capture to the
//! fewest flows that still fail, and prints their seeds, which reproduce it.

mod captures;
mod carried;
mod checksums;
mod cut;
mod flows;
mod payload;
mod wire;

use proptest::test_runner::Config;

/// Returns the number of cases, multiplied by `GROSSO_CASES_FACTOR` if that is set.
fn cases(count: u32) -> Config {
    let factor = std::env::var("GROSSO_CASES_FACTOR").ok().and_then(|factor| factor.parse().ok());
    // A case starts dozens of processes, and only the number of flows is worth shrinking.
    Config { max_shrink_iters: 40, ..Config::with_cases(count * factor.unwrap_or(1)) }
}
