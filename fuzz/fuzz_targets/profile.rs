//! Profiles: a profile that is read, written and read again is unchanged.

use grosso_cli::fuzzing;

use crate::text;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    fuzzing::profile(text(data));
}
