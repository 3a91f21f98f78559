//! The commands on captures for programs that link this crate, such as the Python package: a report as JSON, and
//! tables of packets and of trains, row by row.
//!
//! The words are those of the command line without the program's name, so every option means what it means there.
//! Nothing is printed, and no signal is handled: whoever calls sets the flag that ends a reading early.

mod packets;
mod trains;

use core::fmt;
use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Serialize;

pub use self::{
    packets::{Packet, packets},
    trains::{Train, trains},
};
use crate::{
    arguments::{Arguments, Command},
    commands,
    error::{Exit, Failure},
    headers::{Transport, addresses, ports, protocol},
    input::{Ending, Input, Session},
};
use core::net::IpAddr;
use grosso_wire::Stack;

/// Runs a command, and returns its report as JSON; empty if the command has none.
///
/// # Errors
///
/// Those of the command. An answer of no (exit code 1) is none of them.
pub fn report(words: &[String], interrupted: &Arc<AtomicBool>) -> Result<String, Error> {
    let (arguments, mut session) = begin(words, interrupted)?;
    session.talk.kept = Some(String::new());
    match commands::guarded(&arguments.command, &mut session) {
        Ok(Exit::Yes | Exit::No) => Ok(session.talk.kept.unwrap_or_default()),
        Ok(_) => Err(interruption().into()),
        Err(failure) => Err(unless_interrupted(failure, interrupted)),
    }
}

/// Decides whether a reading goes on; it is told once before the first row, when the captures are open and the words
/// are right, and with each row.
pub trait Visit<Row> {
    /// Takes note that the captures are open; `false` ends the reading.
    fn open(&mut self) -> bool;

    /// Takes a row; `false` ends the reading.
    fn row(&mut self, row: Row) -> bool;
}

/// A failure of a command.
#[derive(Clone, Debug)]
pub struct Error(Failure);

impl Error {
    /// The failure as the command prints it with `--json`, with its exit code as `exit`.
    #[must_use]
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct WithExit<'a> {
            #[serde(flatten)]
            failure: &'a Failure,
            exit: u8,
        }
        let with_exit = WithExit { failure: &self.0, exit: self.0.exit as u8 };
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

/// The headers of a packet, as far as tables show them: innermost addresses, ports and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The stack in the words of reports, such as `tcp4` or `udp4/vxlan/tcp4`; `None` if the link type has no view.
    pub protocol: Option<&'a str>,
    /// Source and destination.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Source and destination port of TCP or UDP.
    pub ports: Option<(u16, u16)>,
    /// Bytes behind the TCP or UDP header, as the headers declare them.
    pub payload: Option<u32>,
}

/// The words for header stacks, each made once.
#[derive(Default)]
struct Words {
    known: Vec<(Vec<grosso_wire::Kind>, String)>,
    last: usize,
}

impl Words {
    fn headers(&mut self, data: &[u8], len: usize, stack: &Stack) -> Headers<'_> {
        let transport = Transport::of(stack, len);
        Headers {
            addresses: addresses(data, stack),
            ports: transport.map(|transport| ports(data, &transport)),
            payload: transport.map(|transport| transport.payload as u32),
            protocol: Some(self.of(stack)),
        }
    }

    fn of(&mut self, stack: &Stack) -> &str {
        let is_it = |kinds: &[grosso_wire::Kind]| {
            kinds.iter().copied().eq(stack.layers().iter().map(|layer| layer.kind))
        };
        if !self.known.get(self.last).is_some_and(|(kinds, _)| is_it(kinds)) {
            let found = self.known.iter().position(|(kinds, _)| is_it(kinds));
            self.last = found.unwrap_or_else(|| self.learn(stack));
        }
        &self.known[self.last].1
    }

    fn learn(&mut self, stack: &Stack) -> usize {
        if self.known.len() >= STACKS_MAX {
            self.known.clear();
        }
        let kinds = stack.layers().iter().map(|layer| layer.kind).collect();
        self.known.push((kinds, protocol(stack)));
        self.known.len() - 1
    }
}

/// Header stacks whose words are remembered; one more forgets all of them.
const STACKS_MAX: usize = 64;

/// The session of a table: nothing is printed.
fn begin(words: &[String], interrupted: &Arc<AtomicBool>) -> Result<(Arguments, Session), Failure> {
    let words: Vec<OsString> = core::iter::once("grosso")
        .chain(words.iter().map(String::as_str))
        .map(Into::into)
        .collect();
    let mut arguments = commands::parse(&words)
        .map_err(|error| Failure::usage("usage", error.to_string().trim_end()))?;
    arguments.common.json = true;
    arguments.common.quiet = true;
    let session = commands::session(&arguments, &words, Arc::clone(interrupted));
    Ok((arguments, session))
}

/// The failure to make a table of a command that has none.
fn no_table(command: &Command, table: &str) -> Failure {
    Failure::internal(format!("{command:?} makes no table of {table}"))
}

/// Turns the end of a reading into that of a table.
fn conclude(ending: Ending, input: &Input, session: &mut Session) -> Result<(), Failure> {
    match ending.conclude(input, session, "in the table")? {
        Exit::Interrupted => Err(interruption()),
        _ => Ok(()),
    }
}

/// The failure, or that of an interruption, after which a capture seems to end anywhere.
fn unless_interrupted(failure: Failure, interrupted: &AtomicBool) -> Error {
    Error(if interrupted.load(Ordering::Relaxed) { interruption() } else { failure })
}

fn interruption() -> Failure {
    Failure::interrupted("interrupted before the end")
}

#[cfg(test)]
mod tests;
