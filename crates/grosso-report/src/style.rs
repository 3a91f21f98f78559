//! Colors text on a terminal, if the user wants colors.

use core::fmt::Display;
use std::borrow::Cow;

use crate::name::{escape, harmless_lines};

/// Conditions under which output is colored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    /// Returns whether to color a stream. The option overrides the environment, and `NO_COLOR` overrides
    /// `CLICOLOR_FORCE` (no-color.org, bixense.com/clicolors).
    pub fn decide(self, is_terminal: bool) -> bool {
        let is_set =
            |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != *"0");
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => {
                false
            }
            Self::Auto => is_set("CLICOLOR_FORCE") || is_terminal,
        }
    }
}

/// Style of an output stream.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether to use colors.
    pub color: bool,
}

impl Style {
    /// Makes text stand out.
    pub fn strong(self, text: &(impl Display + ?Sized)) -> String {
        self.paint(STRONG, text)
    }

    /// Makes text less prominent, because readers may skip it.
    pub fn faint(self, text: &(impl Display + ?Sized)) -> String {
        self.paint(FAINT, text)
    }

    /// Formats text that reports an error.
    pub fn bad(self, text: &(impl Display + ?Sized)) -> String {
        self.paint(BAD, text)
    }

    /// Formats text that reports something noteworthy.
    pub fn notice(self, text: &(impl Display + ?Sized)) -> String {
        self.paint(NOTICE, text)
    }

    /// Formats text that reports something valid.
    pub fn good(self, text: &(impl Display + ?Sized)) -> String {
        self.paint(GOOD, text)
    }

    fn paint(self, code: &str, text: &(impl Display + ?Sized)) -> String {
        let text = text.to_string();
        let text = harmless_lines(&text);
        if self.color { format!("\x1b[{code}m{text}\x1b[{PLAIN}m") } else { text.into_owned() }
    }
}

/// Escapes text like [`harmless_lines`], but keeps the color codes of [`Style`].
pub fn harmless_painted(text: &str) -> Cow<'_, str> {
    let kept = |rest: &str| match painted_len(rest) {
        0 => usize::from(rest.starts_with(['\n', '\t'])),
        painted => painted,
    };
    escape(text, kept)
}

/// Returns the length in bytes of one of our color codes at the start of a string; 0 if there is none.
fn painted_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let code = [STRONG, FAINT, BAD, NOTICE, GOOD, PLAIN]
        .into_iter()
        .find(|code| rest.strip_prefix(code).is_some_and(|rest| rest.starts_with('m')));
    code.map_or(0, |code| "\x1b[m".len() + code.len())
}

/// Terminal codes between `ESC [` and `m` (ECMA-48 section 8.3.117).
const STRONG: &str = "1";
const FAINT: &str = "2";
const BAD: &str = "1;31";
const NOTICE: &str = "33";
const GOOD: &str = "32";
const PLAIN: &str = "0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_stay() {
        let painted = format!("{}: {}\n", Style { color: true }.strong("a\u{1b}[5m"), "\u{1b}[2J");
        assert_eq!(harmless_painted(&painted), "\u{1b}[1ma\\x1b[5m\u{1b}[0m: \\x1b[2J\n");
    }
}
