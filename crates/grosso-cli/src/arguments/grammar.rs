//! Common arguments of every command that reads captures: `FILE... [-w OUT] [-f EXPRESSION]`, or `-r FILE EXPRESSION`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use grosso_capture::Format;
use grosso_sys::path;

use super::own::{Naming, Reading};
use crate::{error::Failure, input::Session, sources::Sources, talk::Talk};

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
    /// Finds the captures for a command, and prints a note on skipped files of directories.
    ///
    /// # Errors
    /// Fails if there is no capture, or a capture cannot be read.
    pub(crate) fn sources(&self, command: &str, talk: &mut Talk) -> Result<Sources, Failure> {
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
                let message = format!("two filters: -f, and '{}' after -r", text(words).join(" "));
                return usage(
                    &message,
                    "use either -r FILE EXPRESSION or FILE... -f EXPRESSION, not both".into(),
                );
            }
            (Some(read), words) => (vec![read.clone()], Some(text(words).join(" "))),
        };
        Sources::find(&paths, filter.filter(|text| !text.trim().is_empty()), command, talk)
    }

    /// Splits the arguments at the first `word`: the captures before it, and the rest, which belongs to the command.
    pub(crate) fn split_at(&self, word: &str) -> (Self, Vec<String>) {
        let at = self.words.iter().position(|one| one == word).unwrap_or(self.words.len());
        let (words, others) = self.words.split_at(at);
        (Self { words: words.to_vec(), ..self.clone() }, text(others))
    }

    /// Splits off the last argument if it is a number and not a file.
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

/// Converts arguments to text. File names need not be UTF-8; all other arguments are.
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
    /// Set the output format [default: by file name, else by input]
    #[arg(short = 'F', long, value_name = "FORMAT", requires = "write")]
    format: Option<OutputFormat>,
    #[command(flatten)]
    pub(super) naming: Naming,
}

impl Files {
    /// Returns the format of the output: from the option, from the name of the file, or `default`.
    pub(crate) fn format(&self, default: Format) -> Format {
        let name = self.write.as_deref().map(|path| match compressor(path) {
            Some(_) => path.with_extension(""),
            None => path.to_path_buf(),
        });
        let by_name = || match name?.extension()?.to_str()? {
            "pcap" => Some(OutputFormat::Pcap),
            "pcapng" => Some(OutputFormat::Pcapng),
            _ => None,
        };
        self.format.or_else(by_name).map_or(default, Into::into)
    }

    /// Returns whether the hash of the input is used: in pcapng output, or in a report that requests it.
    pub(crate) fn keeps_hash(&self, session: &Session) -> bool {
        let is_kept = self.write.is_some() && self.format(Format::Pcapng) != Format::Pcap;
        session.names_hash || is_kept
    }
}

/// Returns the program that creates files with the extension of `path`, if it is the extension of a compressed format.
pub(crate) fn compressor(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "gz" => Some("gzip"),
        "zst" => Some("zstd"),
        _ => None,
    }
}

/// Formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    Pcapng,
}

impl From<OutputFormat> for Format {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Pcap => Self::Pcap,
            OutputFormat::Pcapng => Self::Pcapng,
        }
    }
}
