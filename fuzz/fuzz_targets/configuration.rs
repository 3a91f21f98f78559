//! Configuration files of `grosso run`: what is read can be run, and what is wrong is said with its place.

use grosso_cli::fuzzing;

use crate::text;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    fuzzing::configuration(text(data));
}
