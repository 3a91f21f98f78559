//! Counts of guesses and of contradictions.

use std::collections::BTreeMap;

use super::{
    Evidence,
    judgment::{Contradiction, Judgment},
};
use crate::{talk::Talk, units};

/// Counts of judgments that are less than certain.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Frames whose nature is a guess.
    pub(crate) guessed: u64,
    contradicted: BTreeMap<(Evidence, Contradiction), u64>,
}

impl Tally {
    /// Counts a judgment that is acted on.
    pub(crate) fn count(&mut self, judgment: &Judgment) {
        self.guessed += u64::from(judgment.is_guess);
        let (Some(by), Some(against)) = (judgment.by, judgment.against) else { return };
        let key = (by, against);
        let is_known = self.contradicted.contains_key(&key) || self.contradicted.len() < PAIRS_MAX;
        let kept = (by, Contradiction { bytes: None, ..against });
        *self.contradicted.entry(if is_known { key } else { kept }).or_default() += 1;
    }

    /// Frames about which evidence disagreed.
    pub(crate) fn contradictions(&self) -> u64 {
        self.contradicted.values().sum()
    }

    /// Notes which evidence contradicts which; the stronger counts.
    pub(crate) fn note(&self, talk: &mut Talk) {
        for ((by, against), &count) in &self.contradicted {
            let packets = units::count(count, "packet");
            let bytes = against.bytes.map(|bytes| format!(" ({bytes} B)")).unwrap_or_default();
            talk.note(format!(
                "{packets}: {} contradicts {}{bytes}; the first is used",
                by.noun(),
                against.by.noun(),
            ));
        }
    }
}

/// Most contradictions that are told apart by their sizes.
const PAIRS_MAX: usize = 16;
