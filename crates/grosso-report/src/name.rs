//! Makes untrusted text, such as file names, safe to print on a terminal.

use std::{borrow::Cow, fmt::Write, path::Path};

use schemars::JsonSchema;
use serde::Serialize;

/// File name, which is unchanged in JSON but escaped when displayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Name(String);

impl Name {
    /// Returns the name of the file at `path`.
    pub fn of(path: &Path) -> Self {
        Self(path.display().to_string())
    }

    /// Creates a name that stands for several files.
    pub const fn from(name: String) -> Self {
        Self(name)
    }

    /// Returns the name unescaped, for output that is not displayed as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&harmless(&self.0))
    }
}

/// Quotes a word for the shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns a path in the form used in messages.
pub fn shown(path: &Path) -> String {
    Name::of(path).to_string()
}

/// Returns text as a single line. Characters that control the terminal or the writing direction are escaped, for
/// example as `\x1b`.
pub fn harmless(text: &str) -> Cow<'_, str> {
    escape(text, |_| 0)
}

/// Escapes text like [`harmless`], but keeps line breaks and tabs.
pub fn harmless_lines(text: &str) -> Cow<'_, str> {
    escape(text, |rest| usize::from(rest.starts_with(['\n', '\t'])))
}

/// Escapes characters that control the terminal, break lines or change the writing direction, except those that `kept`
/// keeps. At each of them, `kept` returns how many bytes of the remaining text to leave unchanged.
pub fn escape(text: &str, kept: impl Fn(&str) -> usize) -> Cow<'_, str> {
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_odd) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        let kept = kept(rest);
        if kept > 0 {
            safe.push_str(&rest[..kept]);
            rest = &rest[kept..];
        } else if let Some(odd) = rest.chars().next() {
            let code = u32::from(odd);
            // Writing to a string never fails.
            let _ = match code {
                0..=0xff => write!(safe, "\\x{code:02x}"),
                _ => write!(safe, "\\u{{{code:x}}}"),
            };
            rest = &rest[odd.len_utf8()..];
        }
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// Returns whether a character controls the terminal, breaks lines or changes the writing direction.
fn is_odd(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_is_shown() {
        assert_eq!(harmless("plain \u{e9}\u{4e2d} 'x'.pcap"), "plain \u{e9}\u{4e2d} 'x'.pcap");
        assert_eq!(
            harmless("\u{1b}[2J\r\n\u{7f}\u{9b}m\u{202e}"),
            r"\x1b[2J\x0d\x0a\x7f\x9bm\u{202e}"
        );
        assert_eq!(harmless_lines("a\n\tb\u{1b}c"), "a\n\tb\\x1bc");
    }
}
