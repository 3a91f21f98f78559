//! Result of a check, as shown to the user.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    arguments::Use,
    report::{COLUMNS, wrap_at},
    style::Style,
};

/// State of the feature that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingState {
    /// The feature works.
    Ok,
    /// The feature works only partially, or it does not work but no requested use needs it.
    Warn,
    /// The feature does not work, but a requested use needs it.
    Fail,
}

/// Result of a check.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Finding {
    pub(super) state: FindingState,
    name: String,
    what: String,
    /// Command or action that fixes the problem.
    fix: Option<String>,
    /// Capabilities that the feature needs but the process lacks.
    #[serde(skip)]
    pub(super) lacks: &'static [&'static str],
}

impl Finding {
    pub(super) fn ok(name: impl Into<String>, what: impl Into<String>) -> Self {
        let state = FindingState::Ok;
        Self { state, name: name.into(), what: what.into(), fix: None, lacks: &[] }
    }

    pub(super) fn warn(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { state: FindingState::Warn, ..Self::ok(name, what) }
    }

    pub(super) fn fail(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { state: FindingState::Fail, ..Self::ok(name, what) }
    }

    /// Returns the finding, with a failure reduced to a warning if none of these uses needs the feature.
    pub(super) fn asked_by(self, uses: &[Use]) -> Self {
        let is_taken = uses.iter().any(|one| one.takes(&self.name));
        let state = match self.state {
            FindingState::Fail if !is_taken => FindingState::Warn,
            state => state,
        };
        Self { state, ..self }
    }

    /// Adds a fix to the finding.
    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// Adds the capabilities that would fix the problem to the finding.
    pub(super) fn needs(self, lacks: &'static [&'static str]) -> Self {
        Self { lacks, ..self }
    }

    pub(super) fn text(&self, style: Style) -> String {
        let word = match self.state {
            FindingState::Ok => style.good("ok    "),
            FindingState::Warn => style.notice("warn  "),
            FindingState::Fail => style.bad("fail  "),
        };
        let lines = wrap_at(&self.what, COLUMNS - INDENT);
        let mut text = String::new();
        let mut column = INDENT;
        for (index, line) in lines.lines().enumerate() {
            let name = if index == 0 { self.name.as_str() } else { "" };
            let word = if index == 0 { word.as_str() } else { "      " };
            text += if index == 0 { "" } else { "\n" };
            let _ = write!(text, "{word}{name:<NAME_COLUMNS$} {line}");
            column = INDENT.max(WORD_COLUMNS + name.len() + 1) + line.len();
        }
        // A command is kept on one line, so that it can be copied.
        if let Some(fix) = &self.fix {
            let beside = format!("    fix: {fix}");
            let is_short = column + beside.len() <= COLUMNS;
            text += &if is_short { beside } else { format!("\n{:INDENT$}fix: {fix}", "") };
        }
        text + "\n"
    }
}

/// Widths of the columns for the state and the name. The text follows in the next column.
const WORD_COLUMNS: usize = 6;
const NAME_COLUMNS: usize = 14;
const INDENT: usize = WORD_COLUMNS + NAME_COLUMNS + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_is_printed_beside_its_finding_or_whole_below_it() {
        let style = Style { color: false };
        let short = Finding::warn("eth0", "rx-gro-hw on").fix("ethtool -K eth0 rx-gro-hw off");
        assert_eq!(
            short.text(style),
            "warn  eth0           rx-gro-hw on    fix: ethtool -K eth0 rx-gro-hw off\n"
        );
        let long = Finding::fail("capture", "needs ".repeat(20)).fix("x".repeat(90));
        let text = long.text(style);
        let (what, fix) = text.trim_end().rsplit_once('\n').unwrap();
        assert!(what.lines().all(|line| line.len() <= COLUMNS), "{what}");
        assert!(what.lines().skip(1).all(|line| line.starts_with("                     needs")));
        assert_eq!(fix.trim_start(), format!("fix: {}", "x".repeat(90)));
    }
}
