//! Configuration files of `grosso run`: an accepted file can run, and an error has a position.

use grosso_cli::fuzzing;

use crate::text;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    fuzzing::configuration(text(data));
}
