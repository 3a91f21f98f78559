//! The commands on captures for programs that link this crate, for example the Python package: a report as JSON, and
//! tables of packets and of trains, row by row.
//!
//! The arguments are those of the command line without the program's name, and every option has the same meaning.
//! Nothing is printed, and no signal is handled: the caller sets the flag that ends reading early.

mod packets;
mod trains;

use core::{fmt, num::NonZeroI32};
use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Serialize;

pub use self::{packets::packets, trains::trains};
pub use crate::commands::tables::{
    FrameOrigin, Headers,
    packets::{FrameFinding, Packet},
    trains::TrainRow,
};
#[cfg(feature = "parquet")]
pub use crate::commands::tables::{
    batches::Batches,
    columns::{Columns, PacketColumns, PacketTable, Take, TrainColumns},
};
use crate::{
    arguments::{Arguments, Command},
    commands,
    error::{Exit, Failure},
    input::{Ending, Input, Session},
};

/// Runs a command, and returns its report as JSON; empty if the command has none.
///
/// # Errors
///
/// Returns the errors of the command. A negative answer (exit code 1) is not an error.
pub fn report(words: &[String], interrupted: &Arc<AtomicBool>) -> Result<String, Error> {
    let (arguments, mut session) = begin(words, interrupted)?;
    session.talk.kept = Some(String::new());
    match commands::guarded(&arguments.command, &mut session) {
        Ok(Exit::Yes | Exit::No) => Ok(session.talk.kept.unwrap_or_default()),
        Ok(_) => Err(interruption().into()),
        Err(failure) => Err(unless_interrupted(failure, interrupted)),
    }
}

/// Decides whether reading continues. It is called once before the first row, when the captures are open and the
/// arguments are valid, and then with each row.
pub trait Visit<Row> {
    /// Reports that the captures are open; `false` stops reading.
    fn open(&mut self) -> bool;

    /// Processes a row; `false` stops reading.
    fn row(&mut self, row: Row) -> bool;
}

/// A failure of a command.
#[derive(Clone, Debug)]
pub struct Error(Failure);

impl Error {
    /// Returns the failure as the command prints it with `--json`, plus its exit code as `exit` and, if known, the
    /// system's error number as `errno` and the file as `filename`.
    #[must_use]
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
        let Failure { exit, refusal, .. } = &self.0;
        let with_exit = WithExit {
            failure: &self.0,
            exit: *exit as u8,
            errno: refusal.as_ref().map(|refusal| refusal.errno),
            filename: refusal.as_ref().map(|refusal| &*refusal.path),
        };
        serde_json::to_string(&with_exit).unwrap_or_else(|_| self.0.message.clone())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, "; hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Error {}

/// Creates the session of a table, which prints nothing.
fn begin(words: &[String], interrupted: &Arc<AtomicBool>) -> Result<(Arguments, Session), Failure> {
    let words: Vec<OsString> = core::iter::once("grosso")
        .chain(words.iter().map(String::as_str))
        .map(Into::into)
        .collect();
    let mut arguments = commands::parse(&words).map_err(|error| {
        let said = crate::usage::message(&error).unwrap_or_else(|| error.to_string());
        Failure::usage("usage", said.trim_end())
    })?;
    arguments.common.json = true;
    arguments.common.quiet = true;
    let session = commands::session(&arguments, &words, Arc::clone(interrupted));
    Ok((arguments, session))
}

/// Returns the failure for a command that has no such table.
fn no_table(command: &Command, table: &str) -> Failure {
    Failure::internal(format!("{command:?} does not produce the table {table}"))
}

/// Converts the end of reading into the result of the table.
fn conclude(ending: Ending, input: &Input, session: &mut Session) -> Result<(), Failure> {
    match ending.conclude(input, session, "in the table")? {
        Exit::Interrupted => Err(interruption()),
        _ => Ok(()),
    }
}

/// Returns the failure, or an interruption if there was one, because an interrupted capture may seem to end anywhere.
fn unless_interrupted(failure: Failure, interrupted: &AtomicBool) -> Error {
    Error(if interrupted.load(Ordering::Relaxed) { interruption() } else { failure })
}

fn interruption() -> Failure {
    Failure::interrupted("interrupted before the end")
}

#[cfg(test)]
mod tests;
