//! Runs the compilers for peers in other languages, and reads their error messages.

use std::process::Command;

/// Reason why a program cannot be built, and a remedy.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) why: String,
    pub(crate) hint: &'static str,
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// Fails if the command cannot be started or fails. The error contains the first line of its message.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let first = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
    Err(format!("{program}: {}", first.trim()))
}
