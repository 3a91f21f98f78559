//! Command failures, and the exit code for each kind.

use core::{
    fmt,
    num::{NonZeroI32, NonZeroU32, NonZeroU64},
};
use std::{io, process::ExitCode};

use grosso_capture::{CaptureError, FilePart};
use schemars::JsonSchema;
use serde::Serialize;

#[cfg(target_os = "linux")]
use crate::needs::Needs;
use crate::{name::harmless, schema::ReportForm};

/// Exit code of a command. The numbers never change. `grosso help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded, and the answer is yes.
    Yes = 0,
    /// The command succeeded, and the answer is no: for example, a checksum is bad, or `--strict` is not satisfied.
    No = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The input is damaged or not supported. Whatever could be processed was written.
    Input = 3,
    /// The system refused a request, for example because a permission or a file is missing, or the disk is full.
    Environment = 4,
    /// A bug in Grosso.
    Internal = 5,
    /// A data path thread did not end in time and was abandoned.
    Stuck = 6,
    /// Ctrl-C was pressed, or SIGTERM arrived while captures were being read: 128 plus the number of SIGINT.
    Interrupted = 130,
    /// The program reading the output closed the pipe: 128 plus the number of SIGPIPE.
    BrokenPipe = 141,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Failure of a command: the error, its position, and the remedy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Failure {
    schema: &'static str,
    /// Code that identifies the failure for programs.
    pub code: &'static str,
    pub message: String,
    /// Number of the packet that caused the error, starting at 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<NonZeroU64>,
    /// Offset of the error in the input, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Position of the error, if the input is text.
    #[serde(flatten)]
    place: Option<TextPlace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<str>>,
    #[serde(skip)]
    pub exit: Exit,
    /// Missing capabilities that caused the failure.
    #[serde(skip)]
    #[cfg(target_os = "linux")]
    pub missing: Needs,
    /// Error number and path, if the system denied access to a file.
    #[serde(skip)]
    pub refusal: Option<Box<SystemRefusal>>,
}

/// File that the system refused to open, read or write.
#[derive(Clone, Debug)]
pub struct SystemRefusal {
    /// Error number from the system.
    pub errno: NonZeroI32,
    /// Path of the file.
    pub path: String,
}

/// Removes the error numbers that the standard library appends to system messages.
pub fn without_numbers(mut message: String) -> String {
    while let Some(start) = message.find(OS_ERROR)
        && let Some(len) = message[start..].find(')')
    {
        message.replace_range(start..=start + len, "");
    }
    message
}

/// Text before the error number that the standard library appends to a message.
const OS_ERROR: &str = " (os error ";

/// Position in text input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TextPlace {
    /// Line number, starting at 1.
    pub line: NonZeroU32,
    /// Character position in the line, starting at 1.
    pub column: NonZeroU32,
}

impl Failure {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Self>("grosso.error/1");

    fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            schema: Self::FORM.name,
            code,
            message: without_numbers(message.into()),
            packet: None,
            offset: None,
            place: None,
            hint: None,
            exit,
            #[cfg(target_os = "linux")]
            missing: Needs::NONE,
            refusal: None,
        }
    }

    /// Creates the failure for an invalid command line.
    pub fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// Creates the failure for input that is damaged or not supported.
    pub fn input(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Exit::Input, code, message)
    }

    /// Creates the failure for a request that the system refused.
    pub fn environment(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Exit::Environment, code, message)
    }

    /// Creates the failure for a bug in Grosso.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, "internal", message)
    }

    /// Creates the failure for a data path thread that could not be stopped in time.
    pub fn stuck(message: impl Into<String>) -> Self {
        Self::new(Exit::Stuck, "environment.stuck", message)
    }

    /// Creates the failure for a command that Ctrl-C interrupted before it had a result.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Exit::Interrupted, "interrupted", message)
    }

    /// Creates the failure for the capture `name`, which could not be read or written.
    pub fn capture(name: &str, error: &CaptureError) -> Self {
        let message =
            if error.names_file() { error.to_string() } else { format!("{name}: {error}") };
        let message = harmless(&message).into_owned();
        let mut failure = match error {
            CaptureError::NotACapture { .. } => Self::input("input.not_a_capture", message),
            CaptureError::UnsupportedFormat { .. } => {
                Self::input("input.unsupported_format", message)
            }
            CaptureError::Truncated { .. } | CaptureError::CompressedTruncated { .. } => {
                Self::input("input.truncated", message)
            }
            CaptureError::WindowMemory(_) => {
                let hint = "read fewer captures at once, or decompress some first: zstd -d \
                            FILE...";
                Self::input("input.window_memory", message).hint(hint)
            }
            CaptureError::Unwritable { .. } => Self::input("output.unwritable", message),
            CaptureError::BrokenPipe { .. } => {
                Self::new(Exit::BrokenPipe, "output.broken_pipe", message)
            }
            CaptureError::Io { .. } => Self::environment("environment.read", message),
            CaptureError::Write { .. } => Self::environment("environment.write", message),
            _ => Self::input("input.damaged", message),
        };
        failure.locate(error);
        match error {
            CaptureError::Io { path, source } | CaptureError::Write { path, source, .. } => {
                failure.of_system(path, source)
            }
            _ => failure,
        }
    }

    /// Adds a hint with a remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }

    /// Adds the missing capabilities that caused the failure.
    #[cfg(target_os = "linux")]
    pub fn missing(self, missing: Needs) -> Self {
        Self { missing, ..self }
    }

    /// Adds the error number that the system reported for the file at `path`.
    pub fn of_system(self, path: &str, error: &io::Error) -> Self {
        let errno = error.raw_os_error().and_then(NonZeroI32::new);
        let refusal = errno.map(|errno| Box::new(SystemRefusal { errno, path: path.to_owned() }));
        Self { refusal, ..self }
    }

    /// Adds the position of the error in text input.
    pub fn at(self, place: TextPlace) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Returns the failure in the form that the command prints with `--json`, plus the exit code as `exit` and, if
    /// known, the system's error number as `errno` and the file as `filename`.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct WithExit<'a> {
            #[serde(flatten)]
            failure: &'a Failure,
            exit: u8,
            #[serde(skip_serializing_if = "Option::is_none")]
            errno: Option<NonZeroI32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            filename: Option<&'a str>,
        }
        let refusal = self.refusal.as_ref();
        let with_exit = WithExit {
            failure: self,
            exit: self.exit as u8,
            errno: refusal.map(|refusal| refusal.errno),
            filename: refusal.map(|refusal| &*refusal.path),
        };
        serde_json::to_string(&with_exit).unwrap_or_else(|_| self.message.clone())
    }

    fn locate(&mut self, error: &CaptureError) {
        match error {
            CaptureError::Truncated { place, offset, .. } => {
                self.offset = Some(*offset);
                if let FilePart::Packet(number) | FilePart::PacketHeader(number) = place {
                    self.packet = NonZeroU64::new(*number);
                }
            }
            CaptureError::CompressedTruncated { offset, .. }
            | CaptureError::CompressedDamaged { offset, .. }
            | CaptureError::Damaged { offset, .. } => self.offset = Some(*offset),
            _ => {}
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_is_an_input_error_with_a_position() {
        let error = CaptureError::Truncated {
            place: FilePart::Packet(56),
            needs: 65226,
            there: 5758,
            offset: 594_242,
        };
        let failure = Failure::capture("send.pcap", &error);
        assert_eq!(failure.exit, Exit::Input);
        assert_eq!((failure.packet, failure.offset), (NonZeroU64::new(56), Some(594_242)));
        assert!(failure.message.starts_with("send.pcap: ends inside packet 56 ("));
    }
}
