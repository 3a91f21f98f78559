//! Claims of an experiment, and whether the figures support them.

use core::fmt;

use serde::Serialize;

/// A claim that an experiment was to show.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The claim.
    pub claim: &'static str,
    /// Whether the figures support it.
    pub holds: bool,
    /// The figures.
    pub measured: String,
}

impl Verdict {
    /// The answer in one word.
    pub(crate) const fn answer(&self) -> &'static str {
        if self.holds { "yes" } else { "no" }
    }
}

/// A line of a table.
impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:<4}{:<52} {}", self.answer(), self.claim, self.measured)
    }
}
