//! The commands on captures for programs that link this crate, for example the Python package: a report as JSON, and
//! tables of packets and of trains, row by row.
//!
//! The arguments are the same as on the command line, without the program's name, and every option has the same
//! meaning. Nothing is printed, and no signal is handled: the caller sets the flag that ends reading early.

use core::{fmt, num::NonZeroI32};
use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use grosso_analysis::tables::{visit_packets, visit_trains};
use serde::Serialize;

use crate::{
    arguments::{Arguments, Command},
    commands,
    error::{Exit, Failure},
    session::Session,
};
#[cfg(feature = "parquet")]
pub use grosso_analysis::tables::{
    Batches, Columns, PacketColumns, PacketTable, Take, TrainColumns,
};
pub use grosso_analysis::tables::{FrameFinding, FrameOrigin, Headers, Packet, TrainRow, Visit};

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

/// Visits the packets of captures; takes the arguments of `grosso inspect`.
///
/// # Errors
///
/// Fails if the arguments are wrong, or if a capture is missing or damaged.
pub fn packets(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<Packet<'a>>,
) -> Result<(), Error> {
    let mut read = || {
        let (arguments, session) = begin(words, interrupted)?;
        let Command::Inspect(options) = &arguments.command else {
            return Err(no_table(&arguments.command, "packets"));
        };
        let given = options.known.given()?;
        let files = options.captures.files("inspect", &session)?;
        visit_packets(&files.captures, given, &session.reading, visit)
    };
    read().map_err(|failure| unless_interrupted(failure, interrupted))
}

/// Visits the trains of captures; takes the arguments of `grosso coalesce`.
///
/// # Errors
///
/// Fails if the arguments are wrong, or if a capture is missing or damaged.
pub fn trains(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<TrainRow<'a>>,
) -> Result<(), Error> {
    let mut read = || {
        let (arguments, session) = begin(words, interrupted)?;
        let Command::Coalesce(options) = &arguments.command else {
            return Err(no_table(&arguments.command, "trains"));
        };
        let files = options.files.captures.files("coalesce", &session)?;
        let (given, rules) = (options.known.given()?, options.rules.rules());
        visit_trains(&files.captures, given, &rules, &session.reading, visit)
    };
    read().map_err(|failure| unless_interrupted(failure, interrupted))
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
        self.0.fmt(f)
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

/// Returns the failure, or an interruption if there was one, because an interrupted capture may seem to end anywhere.
fn unless_interrupted(failure: Failure, interrupted: &AtomicBool) -> Error {
    Error(if interrupted.load(Ordering::Relaxed) { interruption() } else { failure })
}

fn interruption() -> Failure {
    Failure::interrupted("interrupted before the end")
}

#[cfg(test)]
mod tests;
