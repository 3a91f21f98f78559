//! The seed and the frames with which a failed vector can be reproduced.

use std::env;
use std::fmt::Write;

/// Environment variable that replaces the fixed seed in every random test of the kernel.
const SEED: &str = "GROSSO_SEED";

/// Returns the seed for a random test: the value of `GROSSO_SEED` if it is set, otherwise `fixed`. Prints the seed, so
/// that it appears with `--nocapture` and when the test fails.
///
/// # Panics
///
/// Panics if `GROSSO_SEED` is not a number.
#[must_use]
pub fn seed(fixed: u64) -> u64 {
    let wanted = env::var(SEED).ok();
    let seed = wanted.map_or(fixed, |text| text.parse().expect("GROSSO_SEED is a number"));
    println!("{SEED}={seed}");
    seed
}

/// Formats frames as a hex dump that `text2pcap` turns into a capture.
#[must_use]
pub fn dump(frames: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for frame in frames {
        for (line, bytes) in frame.chunks(16).enumerate() {
            let _ = write!(text, "{:06x}", line * 16);
            bytes.iter().for_each(|byte| _ = write!(text, " {byte:02x}"));
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_starts_at_offset_zero() {
        let frames = [(0..18).collect(), vec![0xff]];
        let first = "000000 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n000010 10 11\n\n";
        assert_eq!(dump(&frames), format!("{first}000000 ff\n\n"));
    }
}
