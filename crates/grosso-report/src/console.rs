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
    /// Whether a program reads the output. If so, notes go into the report, and failures are printed as JSON.
    pub json: bool,
    /// Whether to print only failures.
    pub quiet: bool,
    /// Whether to print details.
    pub verbose: bool,
    /// Conditions under which output is colored.
    pub when: When,
    /// Notes to be included in the report. All clones of this value share the list.
    warnings: Rc<RefCell<Vec<String>>>,
}

impl Talk {
    /// Creates the settings for a command that has not printed anything yet.
    pub fn new(json: bool, quiet: bool, verbose: bool, when: When) -> Self {
        Self { json, quiet, verbose, when, warnings: Rc::default() }
    }

    /// Prints a note: a fact that the user needs to interpret the result.
    pub fn note(&self, text: impl Into<String>) {
        let text = without_numbers(text.into());
        self.print_message("note", &text);
        self.warnings.borrow_mut().push(text);
    }

    /// Returns the notes collected so far, and clears them.
    pub fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Prints a hint: a remedy for the problem in the previous note.
    pub fn hint(&self, text: &str) {
        self.print_message("hint", text);
    }

    /// Prints a line about the run itself, such as its speed.
    pub fn remark(&self, text: &str) {
        if !self.quiet && !self.json {
            eprint(&format!("grosso: {}", self.style().faint(text)));
        }
    }

    /// Prints lines that the user requested while the command is running, even with `quiet`.
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

    /// Returns the style for standard error.
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

/// Writes a line to standard error. Write errors are ignored.
fn eprint(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
