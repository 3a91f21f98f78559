//! Arguments common to all commands that read captures: `FILE... [-w OUT] [-f EXPRESSION]`, or `-r FILE EXPRESSION`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use grosso_analysis::capture::{self, Target};
use grosso_capture::Format;
use grosso_sys::path;

use super::{
    own::{Naming, Reading},
    values::{FORMATS, one_of},
};
use crate::{error::Failure, session::Session};

/// Captures that a command reads, and the filter for their packets.
#[derive(Args, Clone, Debug)]
pub(crate) struct Captures {
    /// Captures, or directories of captures, read in time order; - is standard input
    #[arg(value_name = "FILE")]
    words: Vec<OsString>,
    /// Read this capture; remaining arguments are a filter expression
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Read only packets that match this tcpdump filter
    #[arg(short, long, value_name = "EXPRESSION")]
    filter: Option<String>,
    #[command(flatten)]
    pub(super) reading: Reading,
}

impl Captures {
    /// Finds the captures for a command, and prints a note about skipped files in directories.
    ///
    /// # Errors
    /// Fails if there is no capture, or a capture cannot be read.
    pub(crate) fn files(
        &self,
        command: &str,
        session: &Session,
    ) -> Result<capture::Files, Failure> {
        let usage = |message: &str, hint: String| {
            Err(Failure::usage("usage.input", format!("{command}: {message}")).hint(hint))
        };
        let (paths, filter): (Vec<PathBuf>, _) = match (&self.read, &self.words[..]) {
            (None, []) => {
                let hint =
                    format!("pass a capture, or - for standard input: grosso {command} FILE");
                return usage("no input file", hint);
            }
            (None, files) => (files.iter().map(PathBuf::from).collect(), self.filter.clone()),
            (Some(read), []) => (vec![read.clone()], self.filter.clone()),
            (Some(_), words) if self.filter.is_some() => {
                let message = format!(
                    "two filters: -f and the arguments '{}' after -r",
                    text(words).join(" ")
                );
                return usage(
                    &message,
                    "use either -r FILE EXPRESSION or FILE... -f EXPRESSION, not both".into(),
                );
            }
            (Some(read), words) => (vec![read.clone()], Some(text(words).join(" "))),
        };
        let filter = filter.filter(|text| !text.trim().is_empty());
        let captures = capture::Captures::find(&paths, filter, command, &session.reading)?;
        Ok(capture::Files { captures, target: Target::default() })
    }

    /// Splits the arguments at the first `word`, into the captures before it and the rest, which belongs to the
    /// command.
    pub(crate) fn split_at(&self, word: &str) -> (Self, Vec<String>) {
        let at = self.words.iter().position(|one| one == word).unwrap_or(self.words.len());
        let (words, others) = self.words.split_at(at);
        (Self { words: words.to_vec(), ..self.clone() }, text(others))
    }

    /// Returns the first argument that is a number and not the name of a file.
    pub(super) fn stray_number(&self) -> Option<u64> {
        let is_there = |word: &OsString| self.read.is_none() && path::input::is_there(word);
        self.words.iter().filter(|word| !is_there(word)).find_map(number_of)
    }

    /// Splits off the last argument if it is a number and not the name of a file.
    pub(crate) fn split_number(&self) -> (Self, Option<u64>) {
        let number = match &self.words[..] {
            [word] if self.read.is_some() => number_of(word),
            [_, .., word] if self.read.is_none() && !path::input::is_there(word) => number_of(word),
            _ => None,
        };
        let words = self.words.len() - usize::from(number.is_some());
        (Self { words: self.words[..words].to_vec(), ..self.clone() }, number)
    }
}

/// Converts arguments to strings. File names need not be UTF-8, but all other arguments are.
fn text(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn number_of(argument: &OsString) -> Option<u64> {
    argument.to_str()?.parse().ok()
}

/// Input captures, and an optional output capture.
#[derive(Args, Clone, Debug)]
pub(crate) struct Files {
    #[command(flatten)]
    pub(crate) captures: Captures,
    /// Write the result to this capture; - is standard output [default: print only the report]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Set the output format [default: from file name or input]
    #[arg(short = 'F', long, value_name = "FORMAT", requires = "write", value_parser = one_of(FORMATS))]
    format: Option<Format>,
    #[command(flatten)]
    pub(super) naming: Naming,
}

impl Files {
    /// Returns the captures for a command, and the output file.
    ///
    /// # Errors
    /// Fails if there is no capture, or a capture cannot be read.
    pub(crate) fn files(
        &self,
        command: &str,
        session: &Session,
    ) -> Result<capture::Files, Failure> {
        Ok(capture::Files { target: self.target(), ..self.captures.files(command, session)? })
    }

    /// Returns the output file and its format.
    pub(crate) fn target(&self) -> Target {
        Target { path: self.write.clone(), format: self.format }
    }
}
