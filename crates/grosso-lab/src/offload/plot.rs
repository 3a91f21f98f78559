//! Charts of figures against the number of connections, with one line per hold time.

use core::fmt::Write;

use super::{OffloadFindings, OffloadRow};
use crate::{page::escape, statistics::digits};

impl OffloadFindings {
    /// Returns a chart for each figure that depends on the number of connections.
    pub(super) fn curves(&self) -> String {
        CHARTS.iter().map(|(title, value)| self.chart(title, *value)).collect()
    }

    fn chart(&self, title: &str, value: Value) -> String {
        let highest = self.rows().filter_map(value).fold(f64::MIN_POSITIVE, f64::max);
        let most = self.rows().map(|row| row.connections).max().unwrap_or(1);
        let mut text = format!(
            "<h2>{title}</h2>\n<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title} against connections\">\n\
             <path class=\"axis\" d=\"M{LEFT} {TOP} V{BOTTOM} H{RIGHT}\"/>\n",
            title = escape(title),
        );
        let across = |connections: usize| {
            let share = (connections as f64).log2() / (most as f64).log2().max(1.0);
            LEFT + (RIGHT - LEFT) * share
        };
        let down = |value: f64| BOTTOM - (BOTTOM - TOP) * value / highest;
        // Here and below: writing to a string cannot fail.
        for tick in [highest / 2.0, highest] {
            let (y, label) = (down(tick), digits(tick));
            let _ = writeln!(text, "<text x=\"0\" y=\"{:.1}\">{label}</text>", y + 5.0);
        }
        for row in self.groups.first().map_or(&[][..], |group| &group.rows) {
            let x = across(row.connections) - 5.0;
            let y = BOTTOM + 20.0;
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\">{}</text>", row.connections);
        }
        for (i, group) in self.groups.iter().enumerate() {
            let points: Vec<(f64, f64)> = (group.rows.iter())
                .filter_map(|row| Some((across(row.connections), down(value(row)?))))
                .collect();
            let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let class = format!("h{}", i % COLOURS);
            let _ = writeln!(text, "<path class=\"{class}\" d=\"M{}\"/>", line.join(" L"));
            for (x, y) in &points {
                let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
            }
            let hold = group.rows.first().and_then(|row| row.hold_us).unwrap_or(0.0);
            let (x, y) = (RIGHT + 15.0, TOP + 15.0 + 20.0 * i as f64);
            let _ = writeln!(text, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{hold} us</text>");
        }
        text + "</svg></div>\n"
    }
}

type Value = fn(&OffloadRow) -> Option<f64>;

/// The plotted figures, each in its own chart.
const CHARTS: [(&str, Value); 3] = [
    ("Segments per train", |row| row.segments_per_train.map(|spread| spread.median)),
    ("Gb/s per CPU", |row| Some(row.gigabits_a_cpu_second.median)),
    ("CPU seconds per GB", |row| Some(row.cpu_s_per_gb.median)),
];

/// Dimensions of the drawing in pixels.
const WIDTH: usize = 800;
const HEIGHT: usize = 260;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 15.0;
const BOTTOM: f64 = 225.0;
/// Number of line colors.
const COLOURS: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::page::{STYLE, assert_shown};

    #[test]
    fn more_connections_are_further_right_and_greater_values_higher() {
        let mut report = report().findings;
        let rows = &mut report.groups[0].rows;
        (rows[0].connections, rows[1].connections) = (1, 200);
        let curves = report.curves();
        assert_eq!(curves.matches("<svg ").count(), 3);
        // The line runs from the top left (44.9 segments with one connection) to the bottom right (one segment with 200
        // connections).
        assert!(curves.contains("d=\"M50.0 15.0 L700.0 220.3\""), "{curves}");
        assert_shown(&format!(
            "<!doctype html>\n<html lang=\"en\">\n<title>curves</title>\n<style>{STYLE}</style>\n{curves}</html>\n"
        ));
    }
}
