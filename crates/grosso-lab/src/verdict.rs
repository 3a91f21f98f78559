//! Claims of a source, and the verdict on each.

use core::fmt;
use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::statistics::{Spread, digits};

/// A claim that an experiment tests, and the answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Verdict {
    /// The claim.
    pub claim: Cow<'static, str>,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
    /// Figure that decided the verdict, and the figures that it was computed from.
    pub measured: String,
    /// The published figure, if the publication has one for this claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<BesidePublished>,
    /// Whether the claim is about every row of its kind.
    #[serde(skip)]
    pub(crate) needs_every_row: bool,
    /// Evidence and its unit; `None` without figures.
    #[serde(skip)]
    judged: Option<(Evidence, Unit)>,
}

/// An answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Answer {
    /// The figures support the claim, and noise does not explain them.
    Reproduced,
    /// The figures contradict the claim, and noise does not explain them.
    NotReproduced {
        /// The cause, if it is known.
        cause: &'static str,
    },
    /// The noise does not allow an answer: if everything were measured again, the answer might differ.
    Undecided {
        /// Means that might decide the claim.
        needed: &'static str,
    },
    /// This machine cannot show whether the claim holds.
    CannotBeShownHere {
        /// Means that would show it.
        needed: &'static str,
    },
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced { .. } => "not reproduced",
            Self::Undecided { .. } => "undecided",
            Self::CannotBeShownHere { .. } => "cannot be shown here",
        })
    }
}

/// A published result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Published {
    /// The ratio.
    pub ratio: f64,
    /// Year and equipment.
    pub source: &'static str,
}

impl Published {
    pub(crate) const fn new(ratio: f64, source: &'static str) -> Self {
        Self { ratio, source }
    }
}

/// A published figure next to the figure that was measured here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BesidePublished {
    /// The published figure.
    #[serde(flatten)]
    pub published: Published,
    /// Figure that was measured here.
    pub here: f64,
    /// Effect measured here, compared with the published one; `None` if the claim was not reproduced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// An effect, compared with the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Weaker than published.
    WeakerThan,
    /// Same as published, within 20 %.
    As,
    /// Stronger than published.
    StrongerThan,
}

impl Effect {
    /// Compares a figure with the published one; `bound` is the figure without an effect.
    fn of(here: f64, published: f64, bound: Bound) -> Self {
        let times = match bound {
            Bound::AtLeast(_) | Bound::Within(_) => here / published,
            Bound::Under(_) => published / here,
        };
        match times {
            _ if times > SAME => Self::StrongerThan,
            _ if times < 1.0 / SAME => Self::WeakerThan,
            _ => Self::As,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::WeakerThan => "weaker than",
            Self::As => "as",
            Self::StrongerThan => "stronger than",
        })
    }
}

/// A bound on a figure or on a ratio of two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// At least this value.
    AtLeast(f64),
    /// Less than this value.
    Under(f64),
    /// Equal: a ratio that is at least this value in either direction.
    Within(f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::Under(bound) => figure < bound,
            Self::Within(bound) => figure >= bound && figure <= 1.0 / bound,
        }
    }

    /// Returns how far a figure is on the right side of the bound: the smaller the margin, the worse for the claim.
    fn margin(self, figure: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => figure / bound,
            Self::Under(bound) => bound / figure,
            Self::Within(bound) => figure.min(1.0 / figure) / bound,
        }
    }
}

/// Unit of a judged figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A ratio, in times.
    Times,
    /// A ratio, in percent.
    Percent,
    /// The difference of a ratio from one, in percent.
    Change,
    /// A figure in the given unit.
    Of(&'static str),
}

impl Unit {
    fn format(self, figure: f64) -> String {
        let percent = figure * 100.0;
        match self {
            _ if figure.is_nan() => "-".into(),
            Self::Times if figure < 9.995 => format!("{figure:.2} times"),
            Self::Times => format!("{figure:.1} times"),
            Self::Percent if percent < 0.995 => format!("{percent:.2} %"),
            Self::Percent if percent < 9.95 => format!("{percent:.1} %"),
            Self::Percent => format!("{percent:.0} %"),
            Self::Change => format!("{:+.1} %", percent - 100.0),
            Self::Of(unit) => {
                let figure = if figure < 9.95 { digits(figure) } else { format!("{figure:.0}") };
                format!("{figure} {unit}").trim_end().to_owned()
            }
        }
    }
}

/// The evidence for a claim in the figures. A verdict shows the figure that decided it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    figure: f64,
    bound: Bound,
    /// Whether no test distinguishes the difference from noise.
    within_noise: bool,
    /// Whether there are figures at all.
    is_known: bool,
}

impl Evidence {
    /// Creates the evidence of a count that does not vary, because nothing in it depends on time.
    pub(crate) const fn exact(figure: f64, bound: Bound) -> Self {
        Self { figure, bound, within_noise: false, is_known: true }
    }

    /// Creates the evidence of repeated measurements on the ratio of two medians, compared by the Mann-Whitney test
    /// after the second series is multiplied by the bound.
    pub(crate) fn ratio(over: &Spread, under: &Spread, bound: Bound) -> Self {
        let figure = over.median / under.median;
        let scaled =
            |by: f64| -> Vec<f64> { under.values().iter().map(|value| value * by).collect() };
        let above = |by| chance_of_above(over.values(), &scaled(by));
        let below = |by| chance_of_above(&scaled(by), over.values());
        let chance = match (bound, bound.holds(figure)) {
            (Bound::AtLeast(value), true) | (Bound::Under(value), false) => above(value),
            (Bound::AtLeast(value), false) | (Bound::Under(value), true) => below(value),
            (Bound::Within(value), true) => above(value).max(below(1.0 / value)),
            (Bound::Within(value), false) if figure < 1.0 => below(value),
            (Bound::Within(value), false) => above(1.0 / value),
        };
        let is_known = !over.values().is_empty() && !under.values().is_empty();
        Self { figure, bound, within_noise: chance > CHANCE_MAX || figure.is_nan(), is_known }
    }

    /// Creates the evidence of the maximum of repeated measurements. A pause of the machine may lengthen any of them,
    /// so the maximum is noise unless the others agree, by the sign test.
    pub(crate) fn greatest(figure: &Spread, bound: Bound) -> Self {
        Self::of_signs(figure, figure.max, bound)
    }

    /// Creates the evidence of repeated measurements on one median, by the sign test.
    pub(crate) fn median(figure: &Spread, bound: Bound) -> Self {
        Self::of_signs(figure, figure.median, bound)
    }

    fn of_signs(spread: &Spread, figure: f64, bound: Bound) -> Self {
        let (values, holds) = (spread.values(), bound.holds(figure));
        let agree = values.iter().filter(|value| bound.holds(**value) == holds).count();
        let within_noise = chance_of_agreeing(agree, values.len()) > CHANCE_MAX;
        Self { figure, bound, within_noise, is_known: !values.is_empty() }
    }

    /// Returns the same evidence, except that a contradiction is noise unless the figure is greater than a reference
    /// that shows only the noise.
    pub(crate) fn unless_as_great(self, figure: &Spread, reference: &Spread) -> Self {
        let is_contradiction = !self.bound.holds(self.figure);
        let is_as_great = chance_of_above(figure.values(), reference.values()) > CHANCE_MAX;
        Self { within_noise: self.within_noise || is_contradiction && is_as_great, ..self }
    }

    /// Returns whether noise explains the difference.
    pub(crate) const fn is_noise(&self) -> bool {
        self.within_noise
    }

    /// Combines the evidence of several measurements, all of which must hold: noise must not decide. The figure is the
    /// one that supports the claim least. Returns `None` without measurements.
    pub(crate) fn all(each: impl IntoIterator<Item = Self>) -> Option<Self> {
        Self::all_of(each.into_iter().map(|one| (one, ()))).map(|(one, ())| one)
    }

    /// Combines evidence like [`Self::all`], and returns the name of the figure that decides.
    pub(crate) fn all_of<T>(each: impl IntoIterator<Item = (Self, T)>) -> Option<(Self, T)> {
        let (mut worst, mut is_known, mut doubtful) = (None::<(Self, T)>, true, false);
        for (one, name) in each {
            is_known &= one.is_known;
            doubtful |= one.within_noise;
            let is_worse = worst.as_ref().is_none_or(|(other, _)| one.rank() < other.rank());
            if is_worse {
                worst = Some((one, name));
            }
        }
        worst.map(|(one, name)| {
            let within_noise =
                if one.bound.holds(one.figure) { doubtful } else { one.within_noise };
            (Self { within_noise, is_known, ..one }, name)
        })
    }

    /// Returns the rank of the evidence by how much it contradicts the claim: a certain contradiction is first.
    fn rank(&self) -> (bool, f64) {
        let is_contradiction = !self.bound.holds(self.figure) && !self.within_noise;
        (!is_contradiction, self.bound.margin(self.figure))
    }

    /// Returns the verdict on a claim; `cause` is the explanation if the claim is contradicted.
    pub(crate) fn verdict(
        self,
        claim: impl Into<Cow<'static, str>>,
        unit: Unit,
        cause: &'static str,
    ) -> Verdict {
        let answer = match self {
            Self { is_known: false, .. } => Answer::CannotBeShownHere { needed: FIGURES },
            Self { within_noise: true, .. } => Answer::Undecided { needed: QUIET },
            _ if self.bound.holds(self.figure) => Answer::Reproduced,
            _ => Answer::NotReproduced { cause },
        };
        Verdict {
            claim: claim.into(),
            answer,
            measured: if self.is_known { unit.format(self.figure) } else { String::new() },
            published: None,
            needs_every_row: false,
            judged: self.is_known.then_some((self, unit)),
        }
    }
}

impl Verdict {
    /// Returns the verdict that this machine cannot show a claim, with the means that would show it.
    pub(crate) const fn not_here(claim: &'static str, needed: &'static str) -> Self {
        let answer = Answer::CannotBeShownHere { needed };
        let claim = Cow::Borrowed(claim);
        let measured = String::new();
        Self { claim, answer, measured, published: None, needs_every_row: false, judged: None }
    }

    /// Returns the same verdict for a claim about every row, which the remaining rows cannot support after a failed
    /// trial.
    pub(crate) fn for_every_row(self) -> Self {
        Self { needs_every_row: true, ..self }
    }

    /// Returns the same verdict without a decision, because the figures lack the condition of the claim.
    pub(crate) fn undecided(self, needed: &'static str) -> Self {
        match self.holds() || self.is_contradicted() {
            true => Self { answer: Answer::Undecided { needed }, ..self },
            false => self,
        }
    }

    /// Adds the figures from which the judged figure was computed, or its setting.
    pub(crate) fn with(mut self, detail: impl fmt::Display) -> Self {
        if self.judged.is_some() {
            self.measured = format!("{} ({detail})", self.measured);
        }
        self
    }

    /// Adds the published figure of the same kind.
    pub(crate) fn beside(mut self, published: impl Into<Option<Published>>) -> Self {
        self.published = published.into().zip(self.judged).map(|(published, (evidence, _))| {
            let Evidence { figure: here, bound, .. } = evidence;
            let effect = self.holds().then(|| Effect::of(here, published.ratio, bound));
            BesidePublished { published, here, effect }
        });
        self
    }

    /// Returns the verdict after a trial failed in every attempt.
    pub(crate) fn without_a_row(self) -> Self {
        match (self.needs_every_row, &self.answer) {
            (false, _) | (_, Answer::CannotBeShownHere { .. }) => self,
            _ => {
                let answer = Answer::CannotBeShownHere { needed: EVERY_ROW };
                Self { answer, measured: String::new(), published: None, judged: None, ..self }
            }
        }
    }

    /// Returns whether the figures support the claim, and noise does not explain them.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.answer == Answer::Reproduced
    }

    /// Returns whether the figures contradict the claim, and noise does not explain them.
    #[must_use]
    pub const fn is_contradicted(&self) -> bool {
        matches!(self.answer, Answer::NotReproduced { .. })
    }

    /// Returns the published figure and the one here in the unit of the claim, and whether they are ratios.
    pub(crate) fn comparison(&self) -> Option<([String; 2], bool)> {
        let (beside, (_, unit)) = self.published.zip(self.judged)?;
        let figures = [beside.published.ratio, beside.here].map(|figure| unit.format(figure));
        Some((figures, !matches!(unit, Unit::Of(_))))
    }

    /// Returns the figures, the published figure next to them, and the reason for the answer.
    pub(crate) fn reasons(&self) -> String {
        let mut reasons = vec![self.measured.clone()];
        if let (Some(beside), Some((_, unit))) = (self.published, self.judged) {
            let Published { ratio, source } = beside.published;
            let effect =
                beside.effect.map_or_else(String::new, |effect| format!(": {effect} published"));
            reasons.push(format!("published {} ({source}){effect}", unit.format(ratio)));
        }
        if let Answer::NotReproduced { cause: why }
        | Answer::Undecided { needed: why }
        | Answer::CannotBeShownHere { needed: why } = self.answer
        {
            reasons.push(why.to_owned());
        }
        reasons.retain(|reason| !reason.is_empty());
        reasons.join("; ")
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

/// Means that would decide a claim about every row.
const EVERY_ROW: &str = "the figures of every setting: a trial failed";
/// Evidence that a claim lacks when no trial produced a figure.
const FIGURES: &str = "figures for each of its settings: no trial produced one";
/// Means that may decide a claim in spite of the noise.
const QUIET: &str = "more or longer runs, or a quieter machine: noise explains the difference";
/// Greatest ratio of two effects that count as equal.
const SAME: f64 = 1.2;
/// Maximum probability of a chance difference at which the difference counts as real; three runs against three can
/// reach it. The margin allows for rounding in the sum.
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

    fn ratio(over: &[f64], under: &[f64], bound: Bound) -> Answer {
        answer(Evidence::ratio(&spread(over), &spread(under), bound))
    }

    fn answer(evidence: Evidence) -> Answer {
        evidence.verdict("a claim", Unit::Times, CAUSE).answer
    }

    const CAUSE: &str = "a cause";
    const YES: Answer = Answer::Reproduced;
    const NO: Answer = Answer::NotReproduced { cause: CAUSE };
    const OPEN: Answer = Answer::Undecided { needed: QUIET };

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
    fn a_ratio_that_noise_explains_is_undecided() {
        let bound = Bound::AtLeast(1.44);
        let off = [1.0, 1.02, 0.98];
        assert_eq!(ratio(&[1.5, 1.52, 1.55], &off, bound), YES);
        assert_eq!(ratio(&[1.5, 1.52, 1.43], &off, bound), OPEN);
        assert_eq!(ratio(&[1.40, 1.39, 1.45], &off, bound), OPEN);
        assert_eq!(ratio(&[0.88, 0.9, 0.87], &off, bound), NO);
        // One run against one proves nothing.
        assert_eq!(ratio(&[9.0], &[1.0], bound), OPEN);
        // Equal figures have no difference, and 0 / 0 is not a figure.
        assert_eq!(ratio(&[1.0; 5], &[1.0; 5], Bound::AtLeast(1.0)), OPEN);
        assert_eq!(ratio(&[0.0; 5], &[0.0; 5], Bound::Under(1.0)), OPEN);
        assert_eq!(ratio(&[0.4, 0.5, 0.45], &off, Bound::Under(0.85)), YES);
        assert_eq!(ratio(&[1.0, 0.99, 1.01], &off, Bound::Under(0.85)), NO);
    }

    #[test]
    fn equal_figures_are_within_the_bound_on_both_sides() {
        let (off, bound) = ([1.0, 1.001, 0.999], Bound::Within(0.97));
        assert_eq!(ratio(&[1.001, 1.0, 0.999], &off, bound), YES);
        assert_eq!(ratio(&[1.06, 1.05, 1.04], &off, bound), NO);
        assert_eq!(ratio(&[0.96, 0.95, 0.94], &off, bound), NO);
        assert_eq!(ratio(&[0.98, 0.96, 1.0], &off, bound), OPEN);
    }

    #[test]
    fn a_median_is_judged_by_how_many_agree() {
        let median = |values: &[f64]| answer(Evidence::median(&spread(values), Bound::Under(0.5)));
        assert_eq!(median(&[0.1, 0.2, 0.3, 0.1, 0.2]), YES);
        assert_eq!(median(&[0.1, 0.2, 0.3]), OPEN, "one of eight agrees by chance");
        assert_eq!(median(&[0.1, 0.2, 0.3, 0.1, 0.9]), OPEN);
    }

    #[test]
    fn one_pause_of_the_machine_is_noise() {
        let greatest =
            |values: &[f64]| answer(Evidence::greatest(&spread(values), Bound::Under(0.5)));
        assert_eq!(greatest(&[0.1, 0.2, 0.3, 0.1, 0.2]), YES);
        assert_eq!(greatest(&[0.1, 0.2, 0.3, 0.1, 0.9]), OPEN);
        assert_eq!(greatest(&[0.9, 0.7, 0.8, 0.6, 0.7]), NO);
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
            Evidence::all([Evidence::exact(0.0, bound), Evidence::median(&none, bound)]).unwrap(),
        ] {
            let verdict = evidence.verdict("a claim", Unit::Times, CAUSE);
            let verdict = verdict.with("a detail").beside(Published::new(2.0, "R1"));
            assert_eq!(verdict.answer, Answer::CannotBeShownHere { needed: FIGURES });
            assert_eq!((verdict.reasons().as_str(), verdict.published), (FIGURES, None));
        }
        assert_eq!(Evidence::all([]), None);
    }

    #[test]
    fn of_several_the_one_that_says_most_against_the_claim_is_judged_and_shown() {
        let one = |figure, within_noise| Evidence {
            within_noise,
            ..Evidence::exact(figure, Bound::AtLeast(1.0))
        };
        let all = |each: &[Evidence]| {
            let verdict = Evidence::all(each.iter().copied()).unwrap();
            let verdict = verdict.verdict("a claim", Unit::Times, CAUSE);
            (verdict.answer, verdict.measured)
        };
        assert_eq!(all(&[one(3.0, false), one(2.0, false)]), (YES, "2.00 times".into()));
        // Noise must not decide that a claim holds, and does not hide a certain contradiction.
        assert_eq!(all(&[one(3.0, true), one(2.0, false)]), (OPEN, "2.00 times".into()));
        assert_eq!(all(&[one(0.2, true), one(0.5, false)]), (NO, "0.50 times".into()));
        assert_eq!(all(&[one(0.9, true), one(1.5, false)]), (OPEN, "0.90 times".into()));
        let named = Evidence::all_of([(one(3.0, false), "a"), (one(2.0, false), "b")]);
        assert_eq!(named.map(|(_, name)| name), Some("b"));
    }

    #[test]
    fn the_figure_that_is_shown_is_the_one_that_is_judged() {
        // The median of the pairs is 2.0; the ratio of the medians is 1.5.
        let (over, under) = (spread(&[2.0, 3.0, 8.0]), spread(&[1.0, 2.0, 4.0]));
        for (bound, holds) in [(1.4, true), (1.6, false)] {
            let evidence = Evidence::ratio(&over, &under, Bound::AtLeast(bound));
            assert_eq!(evidence.bound.holds(evidence.figure), holds);
            let verdict = evidence.verdict("a claim", Unit::Times, CAUSE);
            assert_eq!(verdict.measured, "1.50 times");
        }
        let formats = [
            (Unit::Times, 12.34, "12.3 times"),
            (Unit::Percent, 0.0014, "0.14 %"),
            (Unit::Percent, 0.051, "5.1 %"),
            (Unit::Percent, 0.87, "87 %"),
            (Unit::Change, 0.95, "-5.0 %"),
            (Unit::Of("ms"), 823.4, "823 ms"),
        ];
        for (unit, figure, expected) in formats {
            assert_eq!(unit.format(figure), expected);
        }
    }

    #[test]
    fn an_effect_is_beside_the_published_one_with_a_word() {
        let beside = |figure, bound, published| {
            let verdict = Evidence::exact(figure, bound).verdict("a claim", Unit::Times, CAUSE);
            verdict.beside(Published::new(published, "R1"))
        };
        let (more, less) = (Bound::AtLeast(1.0), Bound::Under(1.0));
        for (figure, bound, published, effect) in [
            (2.2, more, 2.74, Effect::WeakerThan),
            (2.3, more, 2.74, Effect::As),
            (3.2, more, 2.74, Effect::As),
            (3.3, more, 2.74, Effect::StrongerThan),
            (0.66, less, 0.5, Effect::WeakerThan),
            (0.42, less, 0.5, Effect::As),
            (0.40, less, 0.5, Effect::StrongerThan),
        ] {
            let found = beside(figure, bound, published).published.unwrap();
            assert_eq!((found.here, found.effect), (figure, Some(effect)), "{figure} {published}");
        }
        let weaker = beside(2.0, more, 2.74);
        assert_eq!(
            weaker.reasons(),
            "2.00 times; published 2.74 times (R1): weaker than published"
        );
        let json = serde_json::to_value(&weaker).unwrap();
        assert_eq!(json["published"]["effect"], "weaker_than");
        assert_eq!(
            (&json["published"]["ratio"], &json["published"]["here"]),
            (&2.74.into(), &2.0.into())
        );
        // A contradiction has no strength.
        let contrary = beside(0.9, more, 2.74);
        assert_eq!(contrary.reasons(), "0.90 times; published 2.74 times (R1); a cause");
        assert_eq!(contrary.published.unwrap().effect, None);
    }

    #[test]
    fn a_loss_is_never_called_yes_and_no_line_is_too_long() {
        let cause = "packets of the longest MTU are few, and cutting them is one more pass over all of their bytes";
        let evidence = Evidence::exact(0.88, Bound::AtLeast(1.0));
        let verdict = evidence.verdict("the longest MTU leaves less to gain", Unit::Times, cause);
        let text = verdict.to_string();
        assert!(
            text.starts_with("not reproduced        the longest MTU leaves less to gain\n"),
            "{text}"
        );
        assert!(text.contains("\n                      0.88 times; packets"), "{text}");
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 80), "{text}");
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!((&json["verdict"], &json["cause"]), (&"not_reproduced".into(), &cause.into()));
        let open = Evidence { within_noise: true, ..evidence };
        let open = open.verdict("a claim", Unit::Times, cause);
        let json = serde_json::to_value(&open).unwrap();
        assert_eq!((&json["verdict"], &json["needed"]), (&"undecided".into(), &QUIET.into()));
        assert!(open.to_string().starts_with("undecided             a claim\n"), "{open}");
        let here = Verdict::not_here("three CPUs", "a machine of three processors");
        assert_eq!(
            here.to_string(),
            "cannot be shown here  three CPUs\n                      a machine of three processors"
        );
    }
}
