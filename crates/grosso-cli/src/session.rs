//! State shared by all commands. While captures are read, the console shows notes and progress.

use core::time::Duration;
use std::{rc::Rc, time::Instant};

use grosso_analysis::capture::{self, Observer, ReadingProgress};

use crate::{progress::Progress, talk::Talk};

/// State that every command needs in addition to its own options.
pub(crate) struct Session {
    pub(crate) talk: Talk,
    /// Settings for reading captures. Notes and progress are printed through `talk`.
    pub(crate) reading: capture::Session,
}

impl Session {
    /// Creates the session for a command that starts now.
    pub(crate) fn new(talk: Talk, reading: capture::Session) -> Self {
        let console = Console { talk: talk.clone(), started: Instant::now() };
        Self { talk, reading: capture::Session { observer: Rc::new(console), ..reading } }
    }
}

/// Console that shows notes and progress while captures are read.
struct Console {
    talk: Talk,
    started: Instant,
}

impl Observer for Console {
    fn note(&self, text: String) {
        self.talk.note(text);
    }

    fn hint(&self, text: &str) {
        self.talk.hint(text);
    }

    fn begin(&self, bytes: Option<u64>) -> Box<dyn ReadingProgress> {
        Box::new(Bar(Progress::new(bytes, !self.talk.quiet)))
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Progress bar for reading captures.
struct Bar(Progress);

impl ReadingProgress for Bar {
    fn name(&self, pass: &str) {
        self.0.name(pass);
    }

    fn at(&self, bytes: u64) {
        self.0.at(bytes);
    }

    fn finish(&self) {
        self.0.finish();
    }
}
