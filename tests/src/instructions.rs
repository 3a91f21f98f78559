//! The work of a test in instructions, as valgrind counts them: a number that no other program on the machine changes.
//!
//! A test starts itself once for each of its cases under valgrind, and runs that case instead when it finds itself
//! there ([`case`]). What counts is what its function of the name `measured` does.

use std::{env, process::Command};

/// The case of which the instructions are being counted, if this is such a run.
#[must_use]
pub fn case() -> Option<usize> {
    env::var(CASE).ok().map(|case| case.parse().expect("a number"))
}

/// The instructions that a case of the calling test takes.
///
/// # Errors
/// Where there is no valgrind.
///
/// # Panics
/// When the case does, or no instruction was counted.
pub fn count(test: &str, case: usize) -> Result<f64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*::measured*"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(program)
        .args(["--exact", test, "--test-threads", "1"])
        .env(CASE, case.to_string())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let collected = talk.lines().find_map(|line| line.split_once("Collected : "));
    let count: f64 = collected.and_then(|(_, n)| n.trim().parse().ok()).expect("a count");
    assert!(count > 0.0, "valgrind saw none of it");
    Ok(count)
}

/// Names the case in the environment.
const CASE: &str = "GROSSO_COUNTED_CASE";
