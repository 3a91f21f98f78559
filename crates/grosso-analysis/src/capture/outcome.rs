//! Commands on captures, and their results.

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

/// A command on captures: its options, which `run` turns into a report.
pub trait CaptureCommand {
    /// Report of the command.
    type Report: Report;

    /// Reads the captures, and writes the target if the command has one.
    ///
    /// # Errors
    /// If a capture cannot be opened or the target cannot be written. Damage of a capture is an error of [`End`],
    /// because everything before the damage is in the report.
    fn run(self, files: Files, session: &Session) -> Result<Outcome<Self::Report>, Failure>;
}

/// Captures to read, and the capture to write.
pub struct Files {
    /// Captures that are read as one.
    pub captures: Captures,
    /// Place and format of the output.
    pub target: Target,
}

impl Files {
    /// Opens the input and the output, whose format is that of the input by default.
    pub(crate) fn open(&self, session: &Session) -> Result<(Input, Output), Failure> {
        let input = self.input(session)?;
        let output = self.output(input.reader.format(), &input, session)?;
        Ok((input, output))
    }

    /// Opens the input, with its hash if the output or the report names it.
    pub(crate) fn input(&self, session: &Session) -> Result<Input, Failure> {
        self.captures.input(self.target.keeps_hash(session), session)
    }

    /// Creates the output of an open input. `default` is the format if neither the user nor the file name decides.
    pub(crate) fn output(
        &self,
        default: Format,
        input: &Input,
        session: &Session,
    ) -> Result<Output, Failure> {
        let format = self.target.format(default);
        Output::create(self.target.path.as_deref(), format, input, session)
    }

    /// Creates an output whose packets may be longer than those of the input, in the format of the input by default.
    pub(crate) fn output_for_longer(
        &self,
        input: &Input,
        session: &Session,
    ) -> Result<Output, Failure> {
        let format = self.target.format(input.reader.format());
        Output::create_for_longer(self.target.path.as_deref(), format, input, session)
    }
}

/// Result of a command on captures.
pub struct Outcome<R> {
    /// Report of everything that was read.
    pub report: R,
    /// Place of the report, which may not stand in a capture on standard output.
    pub place: Place,
    /// End of the reading.
    pub end: End,
}

/// End of a reading: complete, damaged or cancelled.
pub struct End {
    ending: Ending,
    unparsed: Unparsed,
    input: Input,
    /// Bytes of all packets, if the rate of the work is of interest.
    bytes: Option<u64>,
    words: EndWords,
    is_no: bool,
    failure: Option<Failure>,
}

/// Phrases for the end of a reading.
#[derive(Clone, Copy)]
pub(crate) struct EndWords {
    /// Work that was done on the packets before damage.
    done: &'static str,
    /// Sentence about the packets that cannot be parsed, followed by a space; may be empty.
    unparsed: &'static str,
}

impl EndWords {
    /// Phrases of a command that writes a capture.
    pub(crate) const WRITTEN: Self =
        Self { done: "processed and written", unparsed: "Packets pass through unchanged; " };
    /// Phrases of a command that only reports.
    pub(crate) const PROCESSED: Self = Self { done: "processed", unparsed: "" };
    /// Phrases of a command that writes tables.
    #[cfg(feature = "tables")]
    pub(crate) const TABLES: Self =
        Self { done: "processed and written", unparsed: "Packets have rows without headers.\x20" };
}

impl End {
    /// Creates the end of reading `input`.
    pub(crate) fn new(ending: Ending, unparsed: Unparsed, input: Input, words: EndWords) -> Self {
        Self { ending, unparsed, input, bytes: None, words, is_no: false, failure: None }
    }

    /// Sets the bytes of all packets.
    pub(crate) fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Makes the answer no if `is_no`, unless the reading failed.
    pub(crate) fn no_if(self, is_no: bool) -> Self {
        Self { is_no, ..self }
    }

    /// Adds the failure of a side output, which counts if the reading itself did not fail.
    pub(crate) fn failure(self, failure: Option<Failure>) -> Self {
        Self { failure, ..self }
    }

    /// Returns the number of packets and their bytes, if the rate of the work is of interest.
    pub fn work(&self) -> Option<(u64, u64)> {
        Some((self.input.reader.packets(), self.bytes?))
    }

    /// Returns the answer, which is no if something stayed uncertain or wrong. Call this after the report is shown.
    ///
    /// # Errors
    /// If the input is damaged, or has packets of a link type that is not supported.
    pub fn conclude(self, session: &Session) -> Result<Exit, Failure> {
        let exit = self.ending.conclude(&self.input, session, self.words.done)?;
        self.unparsed.conclude(&self.input, self.words.unparsed)?;
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        Ok(if exit == Exit::Yes && self.is_no { Exit::No } else { exit })
    }
}
