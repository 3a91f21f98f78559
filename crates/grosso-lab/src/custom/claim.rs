//! Claims of the user's own: a figure of one setting beside that of another, or beside a number.

use super::{CustomFindings, CustomRow};
use crate::{
    statistics::{Spread, digits, ratio},
    verdict::{Bound, Evidence, Verdict},
};

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Gigabits a second.
    Gbps,
    /// Seconds of all processors for each gigabyte.
    CpuSecondsPerGb,
    /// Segments sent again, a second.
    Retransmits,
    /// Packets too long to be forwarded, a second.
    TooLong,
    /// Packets in a frame.
    Segments,
}

/// A bound of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Than {
    /// As much, or more.
    AtLeast(f64),
    /// Less.
    Under(f64),
}

/// A claim about the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomClaim {
    /// The claim, in words.
    pub text: String,
    /// The setting that it is about.
    pub setting: String,
    /// The setting that it is compared with; `None` to compare the figure itself.
    pub beside: Option<String>,
    /// The figure.
    pub figure: Figure,
    /// The bound of the figure, or of the ratio of two.
    pub bound: Than,
}

impl Figure {
    /// All figures, with the names that they have in files and in the JSON.
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
    /// The verdict; `None` if a setting is not among the findings.
    pub(super) fn judge(&self, findings: &CustomFindings) -> Option<Verdict> {
        let figure = self.figure.of(findings.row(&self.setting)?);
        let bound = match self.bound {
            Than::AtLeast(value) => Bound::AtLeast(value),
            Than::Under(value) => Bound::Under(value),
        };
        let name = self.figure.name();
        let (evidence, measured) = match &self.beside {
            None => (Evidence::median(figure, bound), format!("{name} {}", digits(figure.median))),
            Some(beside) => {
                let other = self.figure.of(findings.row(beside)?);
                let times = ratio(figure.median, other.median).map_or_else(|| "-".into(), digits);
                let (one, two) = (digits(figure.median), digits(other.median));
                let measured = format!("{name} {one} beside {two}: {times} times");
                (Evidence::ratio(figure, other, bound), measured)
            }
        };
        Some(evidence.verdict(self.text.clone(), measured, CAUSE))
    }
}

/// The lab cannot know why a claim of someone else does not hold.
const CAUSE: &str = "the figures say otherwise";

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
        assert_eq!(verdict.measured, "gbps 0.08 beside 8.00: 0.01 times");
    }

    #[test]
    fn nothing_arrived_is_less_and_never_no_number() {
        let mut findings = findings();
        findings.rows[1].gbps = Spread::of([0.0; 3]);
        let verdict =
            claim(Some("whole"), Figure::Gbps, Than::Under(0.5)).judge(&findings).unwrap();
        assert!(verdict.holds() && verdict.measured.ends_with("0.00 times"), "{verdict:?}");
        // No run had a cost for each gigabyte.
        findings.rows[1].cpu_s_per_gb = Spread::of([f64::INFINITY; 3]);
        let cost = claim(Some("loses"), Figure::CpuSecondsPerGb, Than::Under(2.0));
        let verdict = cost.judge(&findings).unwrap();
        assert!(matches!(verdict.answer, Answer::CannotBeShownHere { .. }), "{verdict:?}");
    }
}
