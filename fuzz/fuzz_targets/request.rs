//! Requests to the counter server, which sends exactly one answer, whatever else it receives.

use grosso_cli::fuzzing;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Some((kind, request)) = data.split_first() else { return };
    fuzzing::request(request, kind & 1 != 0);
}
