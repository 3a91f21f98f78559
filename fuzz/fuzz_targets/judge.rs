//! The classifier of captures: its verdict depends only on the frames, and does not contradict itself.

use grosso_cli::fuzzing;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Some((given, capture)) = data.split_first_chunk::<4>() else { return };
    let [kind, high, low, _] = *given;
    let bytes = u16::from_be_bytes([high, low]);
    let known = |bit: u8| Some(bytes).filter(|bytes| kind & bit != 0 && *bytes > 0);
    fuzzing::judge(capture, known(1), known(2));
}
