//! The trait for commands that read captures, and the result of such a command.

use grosso_capture::Format;

use super::{
    Session, Target,
    open::Captures,
    read::{Ending, Input, Unparsed},
    write::Output,
};
use crate::{
    error::{Exit, Failure},
    report::{Place, Report},
};

/// Command that reads captures. The type that implements this trait holds the options, and `run` returns a report.
pub trait CaptureCommand {
    /// Report of the command.
    type Report: Report;

    /// Reads the captures, and writes the output if the command has one.
    ///
    /// # Errors
    /// Fails if a capture cannot be opened or the output cannot be written. A damaged capture is reported by
    /// [`End::conclude`] instead, because the report still covers everything before the damage.
    fn run(self, files: Files, session: &Session) -> Result<Outcome<Self::Report>, Failure>;
}

/// Captures to read, and the capture to write.
pub struct Files {
    /// Captures that are read as one.
    pub captures: Captures,
    /// Path and format of the output.
    pub target: Target,
}

impl Files {
    /// Opens the input and the output. The output format defaults to that of the input.
    pub(crate) fn open(&self, session: &Session) -> Result<(Input, Output), Failure> {
        let input = self.input(session)?;
        let output = self.output(input.reader.format(), &input, session)?;
        Ok((input, output))
    }

    /// Opens the input, and hashes it if the output or the report needs the hash.
    pub(crate) fn input(&self, session: &Session) -> Result<Input, Failure> {
        self.captures.input(self.target.keeps_hash(session), session)
    }

    /// Creates the output for an open input. The format is `default` unless the user or the file name selects another
    /// one.
    pub(crate) fn output(
        &self,
        default: Format,
        input: &Input,
        session: &Session,
    ) -> Result<Output, Failure> {
        let format = self.target.format(default);
        Output::create(self.target.path.as_deref(), format, input, session)
    }

    /// Creates an output whose packets may be longer than those in the input. The format defaults to that of the input.
    pub(crate) fn output_for_longer(
        &self,
        input: &Input,
        session: &Session,
    ) -> Result<Output, Failure> {
        let format = self.target.format(input.reader.format());
        Output::create_for_longer(self.target.path.as_deref(), format, input, session)
    }
}

/// Result of a command that reads captures.
pub struct Outcome<R> {
    /// Report on everything that was read.
    pub report: R,
    /// Stream to which the report is written: standard error if the capture is written to standard output.
    pub place: Place,
    /// Reason why reading ended.
    pub end: End,
}

/// Reason why reading ended, and the resulting failure if there is one.
pub struct End {
    ending: Ending,
    unparsed: Unparsed,
    input: Input,
    /// Total length of all packets in bytes, if the processing rate is to be reported.
    bytes: Option<u64>,
    words: EndWording,
    is_no: bool,
    failure: Option<Failure>,
}

/// Wording of a command's messages about damage and unparsable packets.
#[derive(Clone, Copy)]
pub(crate) struct EndWording {
    /// Participle that says what was done with the packets before the damage.
    done: &'static str,
    /// Sentence about packets that could not be parsed, with a trailing space; may be empty.
    unparsed: &'static str,
}

impl EndWording {
    /// Wording for a command that writes a capture.
    pub(crate) const WRITTEN: Self = Self {
        done: "processed and written",
        unparsed: "Packets of this type pass through unchanged; ",
    };
    /// Wording for a command that only reports.
    pub(crate) const PROCESSED: Self = Self { done: "processed", unparsed: "" };
    /// Wording for a command that writes tables.
    #[cfg(feature = "tables")]
    pub(crate) const TABLES: Self = Self {
        done: "processed and written",
        unparsed: "Packets of this type become rows without headers.\x20",
    };
}

impl End {
    /// Creates the result of a command that read `input`. `ending` says why reading stopped.
    pub(crate) fn new(ending: Ending, unparsed: Unparsed, input: Input, words: EndWording) -> Self {
        Self { ending, unparsed, input, bytes: None, words, is_no: false, failure: None }
    }

    /// Sets the total length of all packets in bytes.
    pub(crate) fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Sets the exit status to [`Exit::No`] if `is_no` is set and reading did not fail.
    pub(crate) fn no_if(self, is_no: bool) -> Self {
        Self { is_no, ..self }
    }

    /// Adds the failure of an additional output, which [`Self::conclude`] returns if reading succeeded.
    pub(crate) fn failure(self, failure: Option<Failure>) -> Self {
        Self { failure, ..self }
    }

    /// Returns the number and total length of all packets, if the processing rate is to be reported.
    pub fn work(&self) -> Option<(u64, u64)> {
        Some((self.input.reader.packets(), self.bytes?))
    }

    /// Returns the exit status: [`Exit::No`] if a result is uncertain or negative. Call this after showing the report.
    ///
    /// # Errors
    /// Fails if the input is damaged or contains packets with an unsupported link type.
    pub fn conclude(self, session: &Session) -> Result<Exit, Failure> {
        let exit = self.ending.conclude(&self.input, session, self.words.done)?;
        self.unparsed.conclude(&self.input, self.words.unparsed)?;
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        Ok(if exit == Exit::Yes && self.is_no { Exit::No } else { exit })
    }
}
