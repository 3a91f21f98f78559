//! Verdicts on the claims of a publication, based on measured figures.

use core::fmt;
use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::statistics::{Spread, digits};

/// A claim that an experiment tests, and the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Verdict {
    /// The claim.
    pub claim: Cow<'static, str>,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
    /// The figure that decided the answer, and the figures from which it was computed.
    pub measured: String,
    /// The published figure, if there is one for this claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<BesidePublished>,
    /// Whether the claim is about every row of its kind.
    #[serde(skip)]
    pub(crate) needs_every_row: bool,
    /// The evidence and its unit; `None` if there are no figures.
    #[serde(skip)]
    judged: Option<(Evidence, Unit)>,
}

/// Answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Answer {
    /// The figures support the claim, by a margin too large to be noise.
    Reproduced,
    /// The figures contradict the claim, by a margin too large to be noise.
    NotReproduced {
        /// The cause, if it is known.
        cause: &'static str,
    },
    /// The noise is too large for an answer: another set of measurements might contradict this one.
    Undecided {
        /// Steps that might decide the claim.
        needed: &'static str,
    },
    /// This machine cannot show whether the claim holds.
    CannotBeShownHere {
        /// Steps that would show whether the claim holds.
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
    /// Publication and year, and the equipment if it matters; for example `R4, in 2014`.
    pub source: &'static str,
}

impl Published {
    pub(crate) const fn new(ratio: f64, source: &'static str) -> Self {
        Self { ratio, source }
    }
}

/// A published figure, and the figure measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BesidePublished {
    /// The published figure.
    #[serde(flatten)]
    pub published: Published,
    /// The figure measured on this machine.
    pub here: f64,
    /// Strength of the effect on this machine, relative to the published effect; `None` if the claim was not
    /// reproduced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// Strength of an effect relative to the published effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Weaker than published.
    WeakerThan,
    /// As strong as published, to within 20 %.
    As,
    /// Stronger than published.
    StrongerThan,
}

impl Effect {
    /// Compares a figure with the published one. `bound` tells whether higher or lower values mean a stronger effect.
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

/// A bound on a figure or on the ratio of two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// At least this value.
    AtLeast(f64),
    /// Less than this value.
    Under(f64),
    /// Equal within a tolerance: the ratio, in either direction, is at least this value.
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

    /// Returns the margin by which a figure satisfies the bound. A smaller margin means weaker support for the claim.
    fn margin(self, figure: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => figure / bound,
            Self::Under(bound) => bound / figure,
            Self::Within(bound) => figure.min(1.0 / figure) / bound,
        }
    }
}

/// Unit of the figure in a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A ratio, shown as a multiple: `2.00 times`.
    Times,
    /// A ratio, shown in percent.
    Percent,
    /// The difference between a ratio and one, shown in percent.
    Change,
    /// A figure in this unit.
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

/// Evidence for or against a claim. A verdict shows the figure that decided it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    figure: f64,
    bound: Bound,
    /// Whether no test can distinguish the difference from noise.
    within_noise: bool,
    /// Whether there are any figures.
    is_known: bool,
    /// The smallest and the largest ratio between a run of one setting and a run of the other. NaN if there are no
    /// ratios, or too few for a rank test to exclude values outside this range.
    range: [f64; 2],
}

impl Evidence {
    /// Creates evidence from an exact count, which does not depend on time and therefore never varies.
    pub(crate) const fn exact(figure: f64, bound: Bound) -> Self {
        Self { figure, bound, within_noise: false, is_known: true, range: NO_RANGE }
    }

    /// Creates evidence on the ratio of two medians of repeated measurements. The Mann-Whitney test compares the first
    /// series with the second one multiplied by the bound.
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
        let range = match over.values().len().min(under.values().len()) {
            0..SEPARABLE => NO_RANGE,
            _ => [over.min / under.max, over.max / under.min],
        };
        let within_noise = chance > CHANCE_MAX || figure.is_nan();
        Self { figure, bound, within_noise, is_known, range }
    }

    /// Creates evidence on the maximum of repeated measurements. A pause of the machine may lengthen any measurement,
    /// so the maximum counts as noise unless enough of the measurements agree with it (sign test).
    pub(crate) fn greatest(figure: &Spread, bound: Bound) -> Self {
        Self::of_signs(figure, figure.max, bound)
    }

    /// Creates evidence on the median of repeated measurements, using the sign test.
    pub(crate) fn median(figure: &Spread, bound: Bound) -> Self {
        Self::of_signs(figure, figure.median, bound)
    }

    fn of_signs(spread: &Spread, figure: f64, bound: Bound) -> Self {
        let (values, holds) = (spread.values(), bound.holds(figure));
        let agree = values.iter().filter(|value| bound.holds(**value) == holds).count();
        let within_noise = chance_of_agreeing(agree, values.len()) > CHANCE_MAX;
        Self { figure, bound, within_noise, is_known: !values.is_empty(), range: NO_RANGE }
    }

    /// Returns the same evidence, except that a contradiction counts as noise unless the figure exceeds a reference
    /// that is nothing but noise.
    pub(crate) fn unless_as_great(self, figure: &Spread, reference: &Spread) -> Self {
        let is_contradiction = !self.bound.holds(self.figure);
        let is_as_great = chance_of_above(figure.values(), reference.values()) > CHANCE_MAX;
        Self { within_noise: self.within_noise || is_contradiction && is_as_great, ..self }
    }

    /// Returns whether noise can explain the difference.
    pub(crate) const fn is_noise(&self) -> bool {
        self.within_noise
    }

    /// Returns whether the effect was weaker than this ratio in every pair of runs.
    fn excludes(&self, ratio: f64) -> bool {
        match self.bound {
            Bound::AtLeast(_) => ratio > self.range[1],
            Bound::Under(_) => ratio < self.range[0],
            Bound::Within(_) => false,
        }
    }

    /// Combines the evidence from several measurements. All of them must support the claim, because noise must not
    /// decide it. The resulting figure is the one that supports the claim least. Returns `None` if there are no
    /// measurements.
    pub(crate) fn all(each: impl IntoIterator<Item = Self>) -> Option<Self> {
        Self::all_of(each.into_iter().map(|one| (one, ()))).map(|(one, ())| one)
    }

    /// Combines evidence like [`Self::all`], and also returns the name of the deciding figure.
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

    /// Returns a key that sorts evidence by how strongly it contradicts the claim. Contradictions that are not noise
    /// come first.
    fn rank(&self) -> (bool, f64) {
        let is_contradiction = !self.bound.holds(self.figure) && !self.within_noise;
        (!is_contradiction, self.bound.margin(self.figure))
    }

    /// Returns the verdict on a claim. `cause` is the explanation to show if the figures contradict the claim.
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
    /// Returns the verdict that this machine cannot test a claim. `needed` says what such a test would need.
    pub(crate) fn not_here(claim: impl Into<Cow<'static, str>>, needed: &'static str) -> Self {
        let answer = Answer::CannotBeShownHere { needed };
        let claim = claim.into();
        let measured = String::new();
        Self { claim, answer, measured, published: None, needs_every_row: false, judged: None }
    }

    /// Returns the verdict, marked as one on a claim about every row. If a trial fails, the remaining rows cannot
    /// support such a claim.
    pub(crate) fn for_every_row(self) -> Self {
        Self { needs_every_row: true, ..self }
    }

    /// Returns the verdict as undecided, because the figures do not satisfy a precondition of the claim. `needed`
    /// describes that condition.
    pub(crate) fn undecided(self, needed: &'static str) -> Self {
        match self.holds() || self.is_contradicted() {
            true => Self { answer: Answer::Undecided { needed }, ..self },
            false => self,
        }
    }

    /// Adds details: the figures from which the verdict's figure was computed, or the setting.
    pub(crate) fn with(mut self, detail: impl fmt::Display) -> Self {
        if self.judged.is_some() {
            self.measured = format!("{} ({detail})", self.measured);
        }
        self
    }

    /// Adds the published figure that corresponds to the verdict's figure. An undecided verdict then says whether noise
    /// is too small to hide an effect of that size.
    pub(crate) fn beside(mut self, published: impl Into<Option<Published>>) -> Self {
        self.published = published.into().zip(self.judged).map(|(published, (evidence, _))| {
            let Evidence { figure: here, bound, .. } = evidence;
            if self.answer == (Answer::Undecided { needed: QUIET })
                && evidence.excludes(published.ratio)
            {
                self.answer = Answer::Undecided { needed: NOT_AS_STRONG };
            }
            let effect = self.holds().then(|| Effect::of(here, published.ratio, bound));
            BesidePublished { published, here, effect }
        });
        self
    }

    /// Returns the verdict to give if every attempt at a trial failed.
    pub(crate) fn without_a_row(self) -> Self {
        match (self.needs_every_row, &self.answer) {
            (false, _) | (_, Answer::CannotBeShownHere { .. }) => self,
            _ => {
                let answer = Answer::CannotBeShownHere { needed: EVERY_ROW };
                Self { answer, measured: String::new(), published: None, judged: None, ..self }
            }
        }
    }

    /// Returns whether the figures support the claim by a margin too large to be noise.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.answer == Answer::Reproduced
    }

    /// Returns whether the figures contradict the claim by a margin too large to be noise.
    #[must_use]
    pub const fn is_contradicted(&self) -> bool {
        matches!(self.answer, Answer::NotReproduced { .. })
    }

    /// Returns the published figure and the one from this machine in the unit of the claim, and whether they are
    /// ratios.
    pub(crate) fn comparison(&self) -> Option<([String; 2], bool)> {
        let (beside, (_, unit)) = self.published.zip(self.judged)?;
        let figures = [beside.published.ratio, beside.here].map(|figure| unit.format(figure));
        Some((figures, !matches!(unit, Unit::Of(_))))
    }

    /// Returns the figures, the corresponding published figure, and the reason for the answer.
    pub(crate) fn reasons(&self) -> String {
        let mut reasons = vec![self.measured.clone()];
        if let (Some(beside), Some((_, unit))) = (self.published, self.judged) {
            let Published { ratio, source } = beside.published;
            let effect =
                beside.effect.map_or_else(String::new, |effect| format!("; {effect} published"));
            reasons.push(format!("published {} ({source}){effect}", unit.format(ratio)));
        }
        match self.answer {
            Answer::NotReproduced { cause } => reasons.push(format!("possible cause: {cause}")),
            Answer::Undecided { needed } | Answer::CannotBeShownHere { needed } => {
                reasons.push(format!("needed: {needed}"));
            }
            Answer::Reproduced => {}
        }
        reasons.retain(|reason| !reason.is_empty());
        reasons.join("; ")
    }
}

/// Formats a line for the claim, followed by the reasons in lines of at most 80 columns.
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

/// Returns the probability that two series that do not really differ have ranks at least as far apart as those of
/// `above` and `below` (exact one-sided Mann-Whitney test). A tie counts as half a win, rounded against the claim.
fn chance_of_above(above: &[f64], below: &[f64]) -> f64 {
    let (n, m) = (above.len(), below.len());
    let wins = above.iter().map(|one| {
        let won = below.iter().filter(|other| one > other).count();
        let tied = below.iter().filter(|other| one.total_cmp(other).is_eq()).count();
        won as f64 + tied as f64 / 2.0
    });
    let wins = wins.sum::<f64>().floor() as usize;
    // ways[i][u] is the number of orders of i elements from the first series and j from the second with u wins. There
    // is one row per j.
    let mut ways = vec![vec![0.0; n * m + 1]; n + 1];
    for row in &mut ways {
        row[0] = 1.0;
    }
    for j in 1..=m {
        for i in 1..=n {
            // The greatest value is either from the first series, and exceeds all j values from the second, or it is
            // from the second series.
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

/// Returns the probability that at least `agree` out of `of` coin tosses show the same side.
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

/// Data that would decide a claim about every row.
const EVERY_ROW: &str = "figures for every setting; a trial of at least one setting failed";
/// Data that is missing if no trial produced a figure.
const FIGURES: &str = "figures for the settings of this claim; all of their trials failed";
/// Steps that may decide a claim despite the noise.
const QUIET: &str = "\
more or longer runs (--runs, --time), or a less busy machine, because noise may explain the difference";
/// Requirement for a decision if noise may explain the difference, but would not hide an effect as strong as published.
const NOT_AS_STRONG: &str = "\
more or longer runs (--runs, --time) to show a weaker effect; one as strong as published does not occur here";
/// Range of evidence without ratios.
const NO_RANGE: [f64; 2] = [f64::NAN; 2];
/// Number of runs of each setting from which a rank test at 5 % can separate two settings.
const SEPARABLE: usize = 3;
/// Maximum ratio for two effects to count as equally strong.
const SAME: f64 = 1.2;
/// Maximum probability that a difference is due to chance, for the difference to count as real. With three runs on each
/// side, this probability can be reached. The margin is for rounding errors in the sum.
const CHANCE_MAX: f64 = 0.05 + 1e-9;
/// Width of an answer in columns.
const ANSWER: usize = 22;
/// Width of a line in columns.
const LINE: usize = 80;

#[cfg(test)]
mod tests;
