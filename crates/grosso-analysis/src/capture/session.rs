//! Settings for reading captures, and a trait for receiving notes and progress.

use core::time::Duration;
use std::{
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
};

use grosso_wire::LinkType;

/// Receiver of notes and progress. Every method may do nothing.
pub trait Observer {
    /// Receives a note: a fact that the user needs to interpret the result.
    fn note(&self, _text: String) {}

    /// Receives a hint: a remedy for the problem in the last note.
    fn hint(&self, _text: &str) {}

    /// Starts the progress display for an input of `bytes` bytes, or of unknown length if `None`.
    fn begin(&self, _bytes: Option<u64>) -> Box<dyn ReadingProgress> {
        Box::new(Unobserved)
    }

    /// Returns the time since the command began, for its report.
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// Progress display for one input.
pub trait ReadingProgress {
    /// Shows the name of the pass.
    fn name(&self, _pass: &str) {}

    /// Shows that `bytes` bytes were read.
    fn at(&self, _bytes: u64) {}

    /// Ends the display.
    fn finish(&self) {}
}

/// An observer that ignores notes and progress.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}

impl ReadingProgress for Unobserved {}

/// Settings that apply whenever captures are read.
#[derive(Clone)]
pub struct Session {
    /// Link type that overrides the type in the captures.
    pub forced_link: Option<LinkType>,
    /// Whether a capture that ends inside a packet is read without a failure.
    pub allow_truncated: bool,
    /// Whether reports contain the SHA-256 of the captures.
    pub names_hash: bool,
    /// Whether guesses are disabled. If so, a command that leaves a packet unchanged answers "no" (exit code 1).
    pub strict: bool,
    /// Cancellation flag: reading ends early once it is set.
    pub interrupted: Arc<AtomicBool>,
    /// Command line that an output capture records as its origin.
    pub command_line: String,
    /// Receiver of notes and progress.
    pub observer: Rc<dyn Observer>,
}

impl Session {
    /// Returns the time since the command began, in seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.observer.elapsed().as_secs_f64()
    }

    /// Passes a note to the observer.
    pub fn note(&self, text: impl Into<String>) {
        self.observer.note(text.into());
    }

    /// Passes a hint to the observer.
    pub fn hint(&self, text: &str) {
        self.observer.hint(text);
    }
}

impl Default for Session {
    /// Creates settings without an observer and without a forced link type.
    fn default() -> Self {
        Self {
            forced_link: None,
            allow_truncated: false,
            names_hash: false,
            strict: false,
            interrupted: Arc::default(),
            command_line: String::new(),
            observer: Rc::new(Unobserved),
        }
    }
}
