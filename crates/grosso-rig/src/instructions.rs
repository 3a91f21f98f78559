//! Instruction counts for tests, measured with valgrind. Other programs on the same host do not affect them.
//!
//! For each case, a test starts itself under valgrind, and the new process runs only that case ([`case`]). Only the
//! instructions of its function named `measured` are counted.

use std::{env, process::Command};

/// Returns the number of the case if this process was started to count instructions.
#[must_use]
pub fn case() -> Option<usize> {
    env::var(CASE).ok().map(|case| case.parse().expect("a number"))
}

/// Returns how many instructions a case of the calling test executes; `test` is the test's name including its module.
///
/// # Errors
/// Fails if valgrind is not installed.
///
/// # Panics
/// Panics if the case panics, or if no instruction was counted.
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
    assert!(count > 0.0, "valgrind counted no instruction");
    Ok(count)
}

/// Environment variable with the number of the case.
const CASE: &str = "GROSSO_COUNTED_CASE";
