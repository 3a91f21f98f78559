//! Configuration files of `grosso run`: an accepted file is a valid configuration, and every error message has a
//! position.

use grosso_cli::fuzzing;

use crate::text;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    fuzzing::configuration(text(data));
}
