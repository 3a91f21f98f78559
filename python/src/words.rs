//! Converts arguments from the package's Python code to library calls.

use std::sync::{Arc, atomic::AtomicBool};

use grosso_analysis::keywords::Call;

/// Returns the call for a command line: the command, its options as `--name` or `--name=value`, and its files.
pub(crate) fn call(words: &[String], interrupted: &Arc<AtomicBool>) -> Call {
    let mut call = Call { interrupted: Arc::clone(interrupted), ..Call::default() };
    call.command_line = quoted(words);
    let mut words = words.iter();
    call.command = words.next().cloned().unwrap_or_default();
    if call.command == "csum" {
        call.command.extend(words.next().map(|which| format!(" {which}")));
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" => call.files.extend(words.by_ref().map(Into::into)),
            "-r" => call.files.extend(words.next().map(Into::into)),
            "-w" => call.options.push(("write".into(), words.next().cloned())),
            _ => match word.strip_prefix("--") {
                Some(option) => call.options.push(match option.split_once('=') {
                    Some((name, value)) => (name.into(), Some(value.into())),
                    None => (option.into(), None),
                }),
                None => call.files.push(word.into()),
            },
        }
    }
    call
}

/// Returns the command line that would produce the same output.
fn quoted(words: &[String]) -> String {
    let words = words.iter().map(|word| grosso_report::name::quoted(word));
    core::iter::once("grosso".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
