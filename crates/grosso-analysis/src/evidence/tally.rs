//! Counts guesses and contradictions.

use std::collections::BTreeMap;

use grosso_report::units;

use super::{
    Evidence,
    judgment::{Contradiction, Judgment},
};

/// Counts of uncertain judgments.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of frames that could only be classified by a guess.
    pub guessed: u64,
    contradicted: BTreeMap<(Evidence, Contradiction), u64>,
}

impl Tally {
    /// Counts a judgment that a command acts on.
    pub fn count(&mut self, judgment: &Judgment) {
        self.guessed += u64::from(judgment.is_guess);
        let (Some(by), Some(against)) = (judgment.by, judgment.against) else { return };
        let key = (by, against);
        let is_known = self.contradicted.contains_key(&key) || self.contradicted.len() < PAIRS_MAX;
        let kept = (by, Contradiction { bytes: None, ..against });
        *self.contradicted.entry(if is_known { key } else { kept }).or_default() += 1;
    }

    /// Returns the number of frames with contradicting evidence.
    pub fn contradictions(&self) -> u64 {
        self.contradicted.values().sum()
    }

    /// Returns sentences about contradicting evidence. In each case, the stronger evidence prevailed.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.contradicted.iter().map(|((by, against), &count)| {
            let packets = units::count(count, "packet");
            let bytes = against.bytes.map(|bytes| format!(" ({bytes} B)")).unwrap_or_default();
            format!(
                "{packets}: {} contradicts {}{bytes}; the former is used",
                by.noun(),
                against.by.noun(),
            )
        })
    }
}

/// Maximum number of contradictions that are broken down by size.
const PAIRS_MAX: usize = 16;
