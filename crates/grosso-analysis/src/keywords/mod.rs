//! Runs commands by name, with keyword options. Front ends without a command line, such as Python, use this module.
//!
//! | module | job |
//! |---|---|
//! | `options` | the options of a call; an option that the command does not take is a failure |
//! | `groups` | options that several commands share |
//! | `request` | takes the options of a call, and runs its command |
//!
//! Options have the same names and values as on the command line: `("max-size", Some("9000"))` is `--max-size 9000`,
//! and `("strict", None)` is `--strict`.
//!
//! ```
//! use grosso_analysis::keywords::Call;
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/host.pcap");
//! let call = Call {
//!     command: "wire".into(),
//!     files: vec![path.into()],
//!     options: vec![("mtu".into(), Some("1500".into()))],
//!     ..Call::default()
//! };
//! assert!(call.report()?.starts_with("{\"schema\":\"grosso.wire/"));
//!
//! let call = Call { options: vec![("mtus".into(), None)], ..call };
//! assert_eq!(call.report().unwrap_err().message, "wire: no option --mtus");
//! # Ok::<(), grosso_report::error::Failure>(())
//! ```

mod groups;
mod options;
mod request;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use self::{options::Options, request::Request};
use crate::{
    error::Failure,
    tables::{Packet, TrainRow, Visit, visit_packets, visit_trains},
};

/// A command with its captures and options.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Name of the command, such as `wire` or `csum fix`.
    pub command: String,
    /// Captures and directories of captures, which are read as one. For `explain`, the last entry may be the packet
    /// number. For `merge`, the entries are reports.
    pub files: Vec<PathBuf>,
    /// Option names without dashes, and their values. An option without a value is a flag.
    pub options: Vec<(String, Option<String>)>,
    /// Command line to be recorded as the origin of an output capture.
    pub command_line: String,
    /// Cancellation flag: once it is set, reading stops early.
    pub interrupted: Arc<AtomicBool>,
}

impl Call {
    /// Runs the command, and returns its report as JSON.
    ///
    /// # Errors
    /// Fails if the command or an option does not exist, if the command fails, or if the call is canceled.
    pub fn report(&self) -> Result<String, Failure> {
        self.unless_interrupted(Request::of(self).report())
    }

    /// Visits the packets in the captures. The options are those of `inspect`.
    ///
    /// # Errors
    /// Fails if an option does not exist, if a capture is missing or damaged, or if the call is canceled.
    pub fn packets(&self, visit: &mut dyn for<'a> Visit<Packet<'a>>) -> Result<(), Failure> {
        let mut read = || {
            self.only("inspect")?;
            let mut request = Request::of(self);
            let given = request.inspect()?.given;
            let capture = request.open()?;
            visit_packets(&capture.files.captures, given, &capture.session, visit)
        };
        self.unless_interrupted(read())
    }

    /// Visits the trains that a receiving host would form from the captures. The options are those of `coalesce`.
    ///
    /// # Errors
    /// Fails if an option does not exist, if a capture is missing or damaged, or if the call is canceled.
    pub fn trains(&self, visit: &mut dyn for<'a> Visit<TrainRow<'a>>) -> Result<(), Failure> {
        let mut read = || {
            self.only("coalesce")?;
            let mut request = Request::of(self);
            let command = request.coalesce()?;
            let capture = request.open()?;
            let captures = &capture.files.captures;
            visit_trains(captures, command.given, &command.rules, &capture.session, visit)
        };
        self.unless_interrupted(read())
    }

    /// Checks that this call is for `command`.
    fn only(&self, command: &str) -> Result<(), Failure> {
        if self.command == command {
            return Ok(());
        }
        Err(Failure::internal(format!(
            "internal error: command {} asked for the results of {command}",
            self.command
        )))
    }

    /// Returns the result, unless the call was interrupted: an interrupted capture may appear to end anywhere.
    fn unless_interrupted<T>(&self, ended: Result<T, Failure>) -> Result<T, Failure> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::interrupted("interrupted before the end"));
        }
        ended
    }
}

#[cfg(test)]
mod tests;
