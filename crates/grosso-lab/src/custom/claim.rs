//! Claims that the user defines. A claim compares a figure in one setting with the same figure in another setting, or
//! with a number.

use super::{CustomFindings, CustomRow};
use crate::{
    statistics::{Spread, digits},
    verdict::{Bound, Evidence, Unit, Verdict},
};

/// A figure that a row of the results contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Throughput in Gb/s.
    Gbps,
    /// CPU-seconds on all CPUs per gigabyte.
    CpuSecondsPerGb,
    /// Retransmitted segments per second.
    Retransmits,
    /// Packets per second that were dropped because they were too long to forward.
    TooLong,
    /// Packets per frame.
    Segments,
}

/// The bound that a claim sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Than {
    /// At least this value.
    AtLeast(f64),
    /// Less than this value.
    Under(f64),
}

/// A claim about a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomClaim {
    /// The wording of the claim.
    pub text: String,
    /// Name of the setting that the claim is about.
    pub setting: String,
    /// Name of the setting to compare with. If `None`, the figure itself is compared with the bound.
    pub beside: Option<String>,
    /// The figure that the claim is about.
    pub figure: Figure,
    /// Bound on the figure or, with two settings, on the ratio of the figures.
    pub bound: Than,
}

impl Figure {
    /// All figures, with their names in files and in JSON.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Gbps, "gbps"),
        (Self::CpuSecondsPerGb, "cpu_s_per_gb"),
        (Self::Retransmits, "retransmits_a_second"),
        (Self::TooLong, "too_long_a_second"),
        (Self::Segments, "segments_per_train"),
    ];

    const fn of(self, row: &CustomRow) -> &Spread {
        match self {
            Self::Gbps => &row.gbps,
            Self::CpuSecondsPerGb => &row.cpu_s_per_gb,
            Self::Retransmits => &row.retransmits_a_second,
            Self::TooLong => &row.too_long_a_second,
            Self::Segments => &row.segments_per_train,
        }
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(figure, _)| *figure == self).map_or("", |(_, name)| name)
    }
}

impl CustomClaim {
    /// Returns the verdict; `None` if the findings do not contain a setting that the claim names.
    pub(super) fn judge(&self, findings: &CustomFindings) -> Option<Verdict> {
        let figure = self.figure.of(findings.row(&self.setting)?);
        let bound = match self.bound {
            Than::AtLeast(value) => Bound::AtLeast(value),
            Than::Under(value) => Bound::Under(value),
        };
        let name = self.figure.name();
        let text = self.text.clone();
        let Some(beside) = &self.beside else {
            return Some(Evidence::median(figure, bound).verdict(text, Unit::Of(name), CAUSE));
        };
        let other = self.figure.of(findings.row(beside)?);
        let (one, two) = (digits(figure.median), digits(other.median));
        let verdict = Evidence::ratio(figure, other, bound).verdict(text, Unit::Times, CAUSE);
        Some(verdict.with(format!("{name} {one} and {two}")))
    }
}

/// Cause to report: the lab cannot know why a user's claim does not hold.
const CAUSE: &str = "unknown, because the claim is custom";

#[cfg(test)]
mod tests {
    use super::{super::tests::findings, *};
    use crate::verdict::Answer;

    fn claim(beside: Option<&str>, figure: Figure, bound: Than) -> CustomClaim {
        let (text, setting) = ("a claim".to_owned(), "loses".to_owned());
        CustomClaim { text, setting, beside: beside.map(Into::into), figure, bound }
    }

    #[test]
    fn a_claim_is_judged_by_its_figure_and_its_bound() {
        let findings = findings();
        let judged = |beside, figure, bound| {
            claim(beside, figure, bound).judge(&findings).map(|verdict| verdict.holds())
        };
        assert_eq!(judged(Some("whole"), Figure::Gbps, Than::Under(0.5)), Some(true));
        assert_eq!(judged(Some("whole"), Figure::Gbps, Than::AtLeast(0.5)), Some(false));
        assert_eq!(judged(None, Figure::TooLong, Than::AtLeast(1.0)), Some(true));
        assert_eq!(judged(None, Figure::Retransmits, Than::AtLeast(100.0)), Some(false));
        assert_eq!(judged(Some("nobody"), Figure::Gbps, Than::Under(0.5)), None);
        let verdict =
            claim(Some("whole"), Figure::Gbps, Than::Under(0.5)).judge(&findings).unwrap();
        assert_eq!(verdict.measured, "0.01 times (gbps 0.08 and 8.00)");
    }

    #[test]
    fn nothing_arrived_is_less_and_never_no_number() {
        let mut findings = findings();
        findings.rows[1].gbps = Spread::of([0.0; 3]);
        let verdict =
            claim(Some("whole"), Figure::Gbps, Than::Under(0.5)).judge(&findings).unwrap();
        assert!(verdict.holds() && verdict.measured.starts_with("0.00 times"), "{verdict:?}");
        // No data arrived in any run, so the cost per gigabyte is infinite.
        findings.rows[1].cpu_s_per_gb = Spread::of([f64::INFINITY; 3]);
        let cost = claim(Some("loses"), Figure::CpuSecondsPerGb, Than::Under(2.0));
        let verdict = cost.judge(&findings).unwrap();
        assert!(matches!(verdict.answer, Answer::CannotBeShownHere { .. }), "{verdict:?}");
    }
}
