//! Settings for reading captures, and a trait for objects that receive notes and progress.

use core::time::Duration;
use std::{
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
};

use grosso_wire::LinkType;

/// Receiver of notes and progress. The default methods do nothing.
pub trait Observer {
    /// Receives a note: a fact that the user needs to interpret the result.
    fn note(&self, _text: String) {}

    /// Receives a hint: a remedy for the problem described in the last note.
    fn hint(&self, _text: &str) {}

    /// Starts the progress display for an input of `bytes` bytes (`None` if the length is unknown).
    fn begin(&self, _bytes: Option<u64>) -> Box<dyn ReadingProgress> {
        Box::new(Unobserved)
    }

    /// Returns the time since the command started, for the report.
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// Progress display for one input.
pub trait ReadingProgress {
    /// Shows the name of the current pass.
    fn name(&self, _pass: &str) {}

    /// Shows that `bytes` bytes have been read.
    fn at(&self, _bytes: u64) {}

    /// Ends the display.
    fn finish(&self) {}
}

/// Observer that ignores notes and progress.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}

impl ReadingProgress for Unobserved {}

/// Settings that apply whenever captures are read.
#[derive(Clone)]
pub struct Session {
    /// Link type that overrides the type in the captures.
    pub forced_link: Option<LinkType>,
    /// Whether a capture that ends in the middle of a packet is accepted.
    pub allow_truncated: bool,
    /// Whether reports contain the SHA-256 of the captures.
    pub names_hash: bool,
    /// Whether guesses are disabled. A command then answers "no" (exit code 1) if it leaves a packet unchanged.
    pub strict: bool,
    /// Cancellation flag: once it is set, reading stops early.
    pub interrupted: Arc<AtomicBool>,
    /// Command line to be recorded as the origin of an output capture.
    pub command_line: String,
    /// Receiver of notes and progress.
    pub observer: Rc<dyn Observer>,
}

impl Session {
    /// Returns the time since the command started, in seconds.
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
    /// Returns settings with no observer and no forced link type.
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
