//! Claims of a source, and the verdict of the figures on each.

use core::fmt;
use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::statistics::Spread;

/// A claim that an experiment tests, and the answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Verdict {
    /// The claim.
    pub claim: Cow<'static, str>,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
    /// The figures.
    pub measured: String,
    /// Whether the answer might differ if everything were measured again: no test distinguishes the difference from
    /// noise.
    pub within_noise: bool,
    /// Whether the claim is about every row of its kind.
    #[serde(skip)]
    pub(crate) needs_every_row: bool,
}

/// An answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Answer {
    /// The figures support it.
    Reproduced,
    /// The figures contradict it.
    NotReproduced {
        /// The cause, as far as it is known.
        cause: &'static str,
    },
    /// This machine cannot show it.
    CannotBeShownHere {
        /// The means that would show it.
        needed: &'static str,
    },
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced { .. } => "not reproduced",
            Self::CannotBeShownHere { .. } => "cannot be shown here",
        })
    }
}

/// A bound on a figure or on a ratio of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// At least this value.
    AtLeast(f64),
    /// Less than this value.
    Under(f64),
}

impl Bound {
    fn value(self) -> f64 {
        match self {
            Self::AtLeast(value) | Self::Under(value) => value,
        }
    }

    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::Under(bound) => figure < bound,
        }
    }
}

/// The evidence of the figures for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    holds: bool,
    within_noise: bool,
    /// Whether there are figures at all.
    is_known: bool,
}

impl Evidence {
    /// Creates the evidence of a count that does not vary.
    pub(crate) const fn exact(holds: bool) -> Self {
        Self { holds, within_noise: false, is_known: true }
    }

    /// Creates the evidence of repeated measurements on the ratio of two medians, compared by the Mann-Whitney test
    /// after the second is multiplied by the bound.
    pub(crate) fn ratio(over: &Spread, under: &Spread, bound: Bound) -> Self {
        let holds = bound.holds(over.median / under.median);
        let scaled: Vec<f64> = under.values().iter().map(|value| value * bound.value()).collect();
        let is_above = holds == matches!(bound, Bound::AtLeast(_));
        let chance = match is_above {
            true => chance_of_above(over.values(), &scaled),
            false => chance_of_above(&scaled, over.values()),
        };
        let is_known = !over.values().is_empty() && !under.values().is_empty();
        Self { holds, within_noise: chance > CHANCE_MAX, is_known }
    }

    /// Creates the evidence of the greatest of repeated measurements, each of which a pause of the machine may
    /// lengthen: it is noise unless the others agree, by the sign test.
    pub(crate) fn greatest(figure: &Spread, bound: Bound) -> Self {
        let holds = bound.holds(figure.max);
        Self::of_signs(figure, bound, holds)
    }

    /// Creates the evidence of repeated measurements on one median, by the sign test.
    pub(crate) fn median(figure: &Spread, bound: Bound) -> Self {
        let holds = bound.holds(figure.median);
        Self::of_signs(figure, bound, holds)
    }

    fn of_signs(figure: &Spread, bound: Bound, holds: bool) -> Self {
        let (values, agrees) = (figure.values(), |value: &f64| bound.holds(*value) == holds);
        let agree = values.iter().filter(|value| agrees(value)).count();
        let within_noise = chance_of_agreeing(agree, values.len()) > CHANCE_MAX;
        Self { holds, within_noise, is_known: !values.is_empty() }
    }

    /// Combines the evidence of several measurements, each of which has to hold: noise must not decide.
    pub(crate) fn all(each: impl IntoIterator<Item = Self>) -> Self {
        let each: Vec<Self> = each.into_iter().collect();
        let holds = each.iter().all(|one| one.holds);
        let mut deciding = each.iter().filter(|one| one.holds == holds);
        let within_noise = match holds {
            true => deciding.any(|one| one.within_noise),
            false => deciding.all(|one| one.within_noise),
        };
        Self { holds, within_noise, is_known: each.iter().all(|one| one.is_known) }
    }

    /// Returns the verdict on a claim; `cause` is the reason in case it is contradicted.
    pub(crate) fn verdict(
        self,
        claim: impl Into<Cow<'static, str>>,
        measured: String,
        cause: &'static str,
    ) -> Verdict {
        let Self { holds, within_noise, is_known } = self;
        let answer = match is_known {
            false => Answer::CannotBeShownHere { needed: FIGURES },
            true if holds => Answer::Reproduced,
            true => Answer::NotReproduced { cause },
        };
        let within_noise = within_noise && is_known;
        Verdict { claim: claim.into(), answer, measured, within_noise, needs_every_row: false }
    }
}

impl Verdict {
    /// Returns a claim that this machine cannot show, with the means that would show it.
    pub(crate) const fn not_here(claim: &'static str, needed: &'static str) -> Self {
        let answer = Answer::CannotBeShownHere { needed };
        let claim = Cow::Borrowed(claim);
        let measured = String::new();
        Self { claim, answer, measured, within_noise: false, needs_every_row: false }
    }

    /// Returns the same verdict for a claim about every row, which the remaining rows cannot support after a failed
    /// trial.
    pub(crate) fn for_every_row(self) -> Self {
        Self { needs_every_row: true, ..self }
    }

    /// Returns the verdict after a trial failed in every try.
    pub(crate) fn without_a_row(self) -> Self {
        match (self.needs_every_row, &self.answer) {
            (true, Answer::Reproduced | Answer::NotReproduced { .. }) => {
                let answer = Answer::CannotBeShownHere { needed: EVERY_ROW };
                Self { answer, measured: String::new(), within_noise: false, ..self }
            }
            _ => self,
        }
    }

    /// Returns whether the figures support the claim.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.answer == Answer::Reproduced
    }

    /// Returns the figures, the doubts about them, and the reason for the answer.
    pub(crate) fn reasons(&self) -> String {
        let doubts = if self.within_noise { " (within noise)" } else { "" };
        let mut reasons = format!("{}{doubts}", self.measured);
        if let Answer::NotReproduced { cause: why } | Answer::CannotBeShownHere { needed: why } =
            self.answer
        {
            reasons += if reasons.is_empty() { "" } else { "; " };
            reasons += why;
        }
        reasons
    }
}

/// A line for the claim, and lines of at most 80 columns for the reasons.
impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:<ANSWER$}{}", self.answer, self.claim)?;
        let mut column = LINE;
        for word in self.reasons().split_whitespace() {
            if column + 1 + word.chars().count() > LINE {
                write!(formatter, "\n{:ANSWER$}{word}", "")?;
                column = ANSWER;
            } else {
                write!(formatter, " {word}")?;
                column += 1;
            }
            column += word.chars().count();
        }
        Ok(())
    }
}

/// Returns the probability that figures of one kind rank as high as `above` does over `below`, or higher, by the
/// one-sided, exact Mann-Whitney test. A tie counts half, rounded against the claim.
fn chance_of_above(above: &[f64], below: &[f64]) -> f64 {
    let (n, m) = (above.len(), below.len());
    let wins = above.iter().map(|one| {
        let won = below.iter().filter(|other| one > other).count();
        let tied = below.iter().filter(|other| one.total_cmp(other).is_eq()).count();
        won as f64 + tied as f64 / 2.0
    });
    let wins = wins.sum::<f64>().floor() as usize;
    // ways[i][u]: orders of i elements of the first kind and j of the second with u wins; one row per j.
    let mut ways = vec![vec![0.0; n * m + 1]; n + 1];
    for row in &mut ways {
        row[0] = 1.0;
    }
    for j in 1..=m {
        for i in 1..=n {
            // The greatest of all is of the first kind and wins against j others, or it is of the second kind.
            let (fewer, this) = ways.split_at_mut(i);
            for wins in (0..=i * j).rev() {
                let first = wins.checked_sub(j).map_or(0.0, |wins| fewer[i - 1][wins]);
                this[0][wins] += first;
            }
        }
    }
    let all: f64 = ways[n].iter().sum();
    ways[n][wins..].iter().sum::<f64>() / all
}

/// Returns the probability that at least `agree` of `of` coin tosses show the same side.
fn chance_of_agreeing(agree: usize, of: usize) -> f64 {
    // Each binomial coefficient is computed from the previous one.
    let mut coefficient = 0.5_f64.powi(i32::try_from(of).unwrap_or(i32::MAX));
    let mut chance = 0.0;
    for count in 0..=of {
        if count >= agree {
            chance += coefficient;
        }
        coefficient *= (of - count) as f64 / (count + 1) as f64;
    }
    chance
}

/// Means that show a claim about every row.
const EVERY_ROW: &str = "the figures of every setting: a trial failed";
/// Evidence that a claim lacks when no trial produced a figure.
const FIGURES: &str = "figures for each of its settings: no trial produced one";
/// Greatest probability of a difference by chance that counts as none; three against three reach it. The sum of rounded
/// numbers may be slightly larger.
const CHANCE_MAX: f64 = 0.05 + 1e-9;
/// Width of an answer, and of a line.
const ANSWER: usize = 22;
const LINE: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values.iter().copied())
    }

    fn ratio(over: &[f64], under: &[f64], bound: Bound) -> (bool, bool) {
        let Evidence { holds, within_noise, .. } =
            Evidence::ratio(&spread(over), &spread(under), bound);
        (holds, within_noise)
    }

    #[test]
    fn ranks_are_as_likely_as_the_tables_of_mann_and_whitney_say() {
        let chance = |above: &[f64], below: &[f64]| chance_of_above(above, below);
        // One order of 20; of 252; two of 252; and the middle, which has two sides.
        assert!((chance(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]) - 0.05).abs() < 1e-12);
        let low = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert!((chance(&[6.0, 7.0, 8.0, 9.0, 10.0], &low) - 1.0 / 252.0).abs() < 1e-12);
        assert!((chance(&[4.5, 7.0, 8.0, 9.0, 10.0], &low) - 2.0 / 252.0).abs() < 1e-12);
        assert!((chance(&[1.0], &[2.0]) - 1.0).abs() < 1e-12);
        assert!((chance(&[2.0], &[1.0]) - 0.5).abs() < 1e-12);
        // The critical value of five and five is U = 4 of 25.
        let (at, beyond) = ([3.5, 4.5, 6.0, 7.0, 8.0], [2.5, 3.5, 6.0, 7.0, 8.0]);
        assert!(chance(&at, &low) <= 0.05 && chance(&beyond, &low) > 0.05);
    }

    #[test]
    fn a_ratio_that_noise_could_turn_says_so() {
        let bound = Bound::AtLeast(1.44);
        let off = [1.0, 1.02, 0.98];
        assert_eq!(ratio(&[1.5, 1.52, 1.55], &off, bound), (true, false));
        assert_eq!(ratio(&[1.5, 1.52, 1.43], &off, bound), (true, true));
        assert_eq!(ratio(&[1.40, 1.39, 1.45], &off, bound), (false, true));
        assert_eq!(ratio(&[0.88, 0.9, 0.87], &off, bound), (false, false));
        // One run against one proves nothing.
        assert_eq!(ratio(&[9.0], &[1.0], bound), (true, true));
        // Equal figures have no difference.
        assert_eq!(ratio(&[1.0; 5], &[1.0; 5], Bound::AtLeast(1.0)), (true, true));
        assert_eq!(ratio(&[0.4, 0.5, 0.45], &off, Bound::Under(0.85)), (true, false));
        assert_eq!(ratio(&[1.0, 0.99, 1.01], &off, Bound::Under(0.85)), (false, false));
    }

    #[test]
    fn a_median_is_judged_by_how_many_agree() {
        let median = |values: &[f64]| Evidence::median(&spread(values), Bound::Under(0.5));
        assert_eq!(median(&[0.1, 0.2, 0.3, 0.1, 0.2]), Evidence::exact(true));
        assert!(median(&[0.1, 0.2, 0.3]).within_noise, "one of eight agrees by chance");
        let four = median(&[0.1, 0.2, 0.3, 0.1, 0.9]);
        assert!(four.holds && four.within_noise);
    }

    #[test]
    fn one_pause_of_the_machine_decides_and_is_noise() {
        let greatest = |values: &[f64]| Evidence::greatest(&spread(values), Bound::Under(0.5));
        assert_eq!(greatest(&[0.1, 0.2, 0.3, 0.1, 0.2]), Evidence::exact(true));
        let paused = greatest(&[0.1, 0.2, 0.3, 0.1, 0.9]);
        assert!(!paused.holds && paused.within_noise);
        assert_eq!(greatest(&[0.9, 0.7, 0.8, 0.6, 0.7]), Evidence::exact(false));
    }

    #[test]
    fn without_figures_there_is_no_answer() {
        let (none, some) = (spread(&[]), spread(&[1.0; 5]));
        let bound = Bound::Under(1.0);
        for evidence in [
            Evidence::ratio(&none, &some, bound),
            Evidence::ratio(&some, &none, bound),
            Evidence::median(&none, bound),
            Evidence::greatest(&none, bound),
            Evidence::all([Evidence::exact(true), Evidence::median(&none, bound)]),
        ] {
            let verdict = evidence.verdict("a claim", String::new(), "a cause");
            assert_eq!(verdict.answer, Answer::CannotBeShownHere { needed: FIGURES });
            assert!(!verdict.within_noise);
        }
    }

    #[test]
    fn of_several_the_one_that_decides_must_be_certain() {
        let word = |holds, within_noise| Evidence { holds, within_noise, is_known: true };
        let all = |each: &[Evidence]| Evidence::all(each.iter().copied());
        assert_eq!(all(&[word(true, false), word(true, true)]), word(true, true));
        assert_eq!(all(&[word(true, true), word(false, false)]), word(false, false));
        assert_eq!(all(&[word(false, true), word(false, false)]), word(false, false));
        assert_eq!(all(&[word(false, true), word(true, false)]), word(false, true));
    }

    #[test]
    fn a_loss_is_never_called_yes_and_no_line_is_too_long() {
        let measured = "0.88 times".to_owned();
        let cause = "packets of the longest MTU are few, and cutting them is one more pass over all of their bytes";
        let verdict =
            Evidence::exact(false).verdict("the longest MTU leaves less to gain", measured, cause);
        let text = verdict.to_string();
        assert!(
            text.starts_with("not reproduced        the longest MTU leaves less to gain\n"),
            "{text}"
        );
        assert!(text.contains("\n                      0.88 times; packets"), "{text}");
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 80), "{text}");
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!((&json["verdict"], &json["cause"]), (&"not_reproduced".into(), &cause.into()));
        let here = Verdict::not_here("three CPUs", "a machine of three processors");
        assert_eq!(
            here.to_string(),
            "cannot be shown here  three CPUs\n                      a machine of three processors"
        );
    }
}
