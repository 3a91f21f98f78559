//! A table that compares published figures with figures from this machine. In tables R1 to R5, each figure is a ratio
//! of two settings.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    page::escape,
    statistics::is_absent,
    table::{self, Column},
    verdict::Verdict,
};

/// A published ratio of two settings, and the same ratio measured on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BesideRow {
    /// The settings that the ratio compares.
    pub setting: String,
    /// The published ratio.
    pub published: f64,
    /// The ratio measured on this machine.
    #[serde(skip_serializing_if = "is_absent")]
    pub here: f64,
    /// The ratio measured on this machine, divided by the published ratio.
    #[serde(skip_serializing_if = "is_absent")]
    pub ratio: f64,
}

impl BesideRow {
    pub(crate) fn new(setting: impl Into<String>, published: f64, here: f64) -> Self {
        Self { setting: setting.into(), published, here, ratio: here / published }
    }

    /// Returns the row for a verdict; `None` if no figure was published for its claim.
    pub(crate) fn of(verdict: &Verdict) -> Option<Self> {
        let beside = verdict.published?;
        Some(Self::new(verdict.claim.clone(), beside.published.ratio, beside.here))
    }

    /// Returns a row with its number as a line of an HTML table.
    pub(crate) fn html((number, row): (usize, &Self)) -> String {
        let [published, here, ratio] = [row.published, row.here, row.ratio].map(figure);
        format!(
            "<tr><td>{number}</td><td>{}</td><td data-of=\"published\">{published}</td>\
             <td data-of=\"here\">{here}</td><td data-of=\"here / published\">{ratio}</td></tr>\n",
            escape(&row.setting),
        )
    }
}

/// Appends a table of the rows, at most 80 columns wide; appends nothing if there are no rows.
pub(crate) fn write(rows: &[BesideRow], text: &mut String) {
    if rows.is_empty() {
        return;
    }
    text.push('\n');
    table::write(&COLUMNS, rows, text);
}

/// Formats a ratio with at least two significant digits.
fn figure(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "-".into(),
        0.0 => "0".into(),
        ..0.095 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

const COLUMNS: [Column<BesideRow>; 4] = [
    Column::left(&["Ratios of two settings"], 52, |row| row.setting.clone()),
    Column::right(&["published"], 10, |row| figure(row.published)),
    Column::right(&["here"], 9, |row| figure(row.here)),
    Column::right(&["ratio"], 9, |row| figure(row.ratio)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        table::assert_text_kept,
        verdict::{Bound, Evidence, Published, Unit},
    };

    #[test]
    fn a_row_has_both_figures_and_their_ratio() {
        let published = Published::new(1.25, "R5, in 2014");
        let evidence = Evidence::exact(2.0, Bound::AtLeast(1.0));
        let verdict = evidence.verdict("superframes are faster", Unit::Times, "");
        assert_eq!(BesideRow::of(&verdict), None);
        let row = BesideRow::of(&verdict.beside(published)).unwrap();
        assert_eq!(row, BesideRow::new("superframes are faster", 1.25, 2.0));
        let mut text = String::new();
        write(&[row, BesideRow::new("x".repeat(52), 9.0 / 6600.0, f64::NAN)], &mut text);
        assert_text_kept("beside", &text);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][4..], ["published", "here", "ratio"]);
        assert_eq!(lines[1][3..], ["1.25", "2.00", "1.60"]);
        assert_eq!(lines[2][1..], ["0.0014", "-", "-"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn nothing_published_is_no_table() {
        let mut text = String::new();
        write(&[], &mut text);
        assert_eq!(text, "");
    }
}
