//! Laws of the commands that read and write captures, tried on every header stack that the kit
//! knows.
//!
//! Each case is a capture of several flows, each of which is made from a seed of its own: what a
//! failure prints makes it again, with as few flows as still fail.

mod captures;
mod carried;
mod checksums;
#[path = "../common/mod.rs"]
mod common;
mod flows;
mod payload;
mod wire;

use proptest::test_runner::Config;

/// So many cases; times `GROSSO_CASES_FACTOR` where that is set, for whoever has more time.
fn cases(count: u32) -> Config {
    let factor = std::env::var("GROSSO_CASES_FACTOR").ok().and_then(|factor| factor.parse().ok());
    // A case starts dozens of processes, and what is to be shrunk is the number of flows.
    Config { max_shrink_iters: 40, ..Config::with_cases(count * factor.unwrap_or(1)) }
}
