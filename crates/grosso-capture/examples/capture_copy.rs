//! A skeleton for commands that process captures: it reads entries, writes them to the output, and reports damage.
//!
//! `cargo run --release -p grosso-capture --example capture_copy IN OUT`, where `-` stands for standard input or
//! output.

#![allow(clippy::disallowed_methods, reason = "an example for other programs")]

use std::path::Path;
use std::process::ExitCode;

use grosso_capture::{CaptureError, CaptureReader, CaptureWriter, WriterOptions, same_file};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [input, output] = &arguments[..] else {
        eprintln!("usage: capture_copy IN OUT");
        return ExitCode::from(2);
    };
    if same_file(input, output).unwrap_or(false) {
        eprintln!("capture_copy: input and output are the same file");
        return ExitCode::from(2);
    }
    match copy(input.as_ref(), output.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::from(141),
        Err(error) if error.names_file() => {
            eprintln!("capture_copy: {error}");
            ExitCode::from(4)
        }
        Err(error) => {
            eprintln!("capture_copy: {}: {error}", input.display());
            ExitCode::from(3)
        }
    }
}

/// Writes every entry before the damaged one, then returns the error.
fn copy(input: &Path, output: &Path) -> Result<(), CaptureError> {
    let mut reader = CaptureReader::open(input)?;
    let mut writer = CaptureWriter::create(output, WriterOptions::like(&reader))?;
    let read = loop {
        match reader.next() {
            Ok(Some(entry)) => writer.copy(&entry)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    writer.finish()?;
    read
}
