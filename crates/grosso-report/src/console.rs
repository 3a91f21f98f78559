//! Prints notes, hints and failures to standard error.

use std::{
    cell::RefCell,
    io::{IsTerminal, Write},
    rc::Rc,
};

use crate::{
    error::{Failure, without_numbers},
    name::harmless_lines,
    style::{Style, When, harmless_painted},
};

/// Settings for output to the user.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Whether a program reads the output: notes go into the report, and failures are JSON.
    pub json: bool,
    /// Whether to print only failures.
    pub quiet: bool,
    /// Whether to print details.
    pub verbose: bool,
    /// Conditions under which output is colored.
    pub when: When,
    /// Notes that the report will contain. All clones of this value add to the same list.
    warnings: Rc<RefCell<Vec<String>>>,
}

impl Talk {
    /// Creates the settings of a command that has printed nothing yet.
    pub fn new(json: bool, quiet: bool, verbose: bool, when: When) -> Self {
        Self { json, quiet, verbose, when, warnings: Rc::default() }
    }

    /// Prints a note about a fact that the user must know in order to interpret the result.
    pub fn note(&self, text: impl Into<String>) {
        let text = without_numbers(text.into());
        self.print_message("note", &text);
        self.warnings.borrow_mut().push(text);
    }

    /// Returns the notes so far, and clears them.
    pub fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Prints a hint that says how to solve the problem in the previous note.
    pub fn hint(&self, text: &str) {
        self.print_message("hint", text);
    }

    /// Prints a line about the run itself, such as its rate.
    pub fn remark(&self, text: &str) {
        if !self.quiet && !self.json {
            eprint(&format!("grosso: {}", self.style().faint(text)));
        }
    }

    /// Prints requested lines while the command runs, even with `quiet`.
    pub fn block(&self, text: &str) {
        eprint(&harmless_painted(text.trim_end()));
    }

    /// Prints the failure of a command.
    pub fn fail(&self, failure: &Failure) {
        if self.json {
            let line = serde_json::to_string(failure).unwrap_or_else(|_| failure.message.clone());
            eprint(&line);
            return;
        }
        eprint(&format!("grosso: {}", harmless_lines(&failure.message)));
        if let Some(hint) = &failure.hint {
            eprint(&format!("{}: {}", self.style().notice("hint"), harmless_lines(hint)));
        }
    }

    /// Returns the style of standard error.
    pub fn style(&self) -> Style {
        Style { color: self.when.decide(std::io::stderr().is_terminal()) }
    }

    fn print_message(&self, kind: &str, text: &str) {
        if !self.quiet && !self.json {
            let text = harmless_lines(text);
            eprint(&format!("grosso: {}: {text}", self.style().notice(kind)));
        }
    }
}

/// Writes a line to standard error. A write error is ignored.
fn eprint(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
