//! The results as one page that needs nothing else: no network, no script, light and dark.

use core::fmt::Write;

use super::{GroupResult, Measured, Receiver, Report, RowResult, table::megabits};
use crate::experiment::{STYLE, Verdict, escape};

impl Report {
    /// The results as an HTML page. `command` is what repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let verdicts: String = self.verdicts.iter().map(Verdict::item).collect();
        let charts: String = self.groups.iter().map(GroupResult::chart).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>grosso lab fragments</title>\n<style>{STYLE}</style>\n\
             <h1>{headline}</h1>\n<p>{LEGEND}</p>\n<ul>{verdicts}</ul>\n{charts}\
             <h2>The figures</h2>\n<pre>{table}</pre>\n\
             <p>Measured on {processor}, by <code>{command}</code></p>\n</html>\n",
            headline = escape(&self.headline()),
            table = escape(&self.table()),
            processor = escape(&self.environment.processor),
            command = escape(command),
        )
    }

    /// What the first rows say, in a sentence.
    fn headline(&self) -> String {
        let nothing = || "Nothing was measured".into();
        let Some(group) = self.groups.first() else { return nothing() };
        let Some(buffers) = group.rows.iter().filter_map(|row| row.buffers).min() else {
            return nothing();
        };
        let goodput = |receiver| {
            let row = group.row(receiver, Some(buffers))?;
            Some(megabits(row.goodput_gbps.median))
        };
        match (goodput(Receiver::Coalesces), goodput(Receiver::Queues)) {
            (Some(coalesced), Some(queued)) => format!(
                "With {buffers} receive buffers, {coalesced} Mb/s of fragments coalesced and {queued} queued"
            ),
            _ => nothing(),
        }
    }
}

impl GroupResult {
    /// Goodput and the longest silence of each row, side by side.
    fn chart(&self) -> String {
        let height = HEAD + ROW * self.rows.len();
        let greatest = |value: &dyn Fn(&RowResult) -> f64| {
            self.rows.iter().map(value).fold(f64::MIN_POSITIVE, f64::max)
        };
        let scales = [greatest(&|row| row.goodput_gbps.max), greatest(&|row| row.silence_ms.max)];
        let rows = self.rows.iter().enumerate();
        let bars: String = rows.map(|(i, row)| row.bars(HEAD + i * ROW, scales)).collect();
        format!(
            "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n\
             <text class=\"head\" x=\"{GOODPUT_AT}\" y=\"16\">goodput, Mb/s</text>\n\
             <text class=\"head\" x=\"{SILENCE_AT}\" y=\"16\">longest silence, ms</text>\n\
             {bars}</svg>\n",
            title = escape(&self.title()),
        )
    }
}

impl RowResult {
    /// The row's bars at `y`, as long as the greatest values of the group allow.
    fn bars(&self, y: usize, [fastest, longest]: [f64; 2]) -> String {
        let middle = y + THICK / 2 + 5;
        let mut text = format!(
            "<text x=\"0\" y=\"{middle}\">{}</text>\n",
            escape(&format!("{}: {}", self.buffers(), self.receiver)),
        );
        let columns = [
            ("path", GOODPUT_AT, self.goodput_gbps, fastest, megabits(self.goodput_gbps.median)),
            (
                "receiver",
                SILENCE_AT,
                self.silence_ms,
                longest,
                format!("{:.0}", self.silence_ms.median),
            ),
        ];
        let values: [fn(&Measured) -> f64; 2] =
            [Measured::goodput_gbps, |run| run.silence_seconds * 1e3];
        for ((class, x, spread, most, label), value) in columns.into_iter().zip(values) {
            let length = BAR * spread.median / most;
            let behind = x as f64 + BAR * spread.max / most + GAP;
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(
                text,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" \
                 height=\"{THICK}\"/>\n<text x=\"{behind:.1}\" y=\"{middle}\">{label}</text>"
            );
            for run in &self.runs {
                let (x, y) = (x as f64 + BAR * value(run) / most, y + THICK / 2);
                let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"3\"/>");
            }
        }
        text
    }
}

/// Units of the drawing: its width, where its two columns begin, the longest bar, and rows.
const WIDTH: usize = 800;
const GOODPUT_AT: usize = 190;
const SILENCE_AT: usize = 510;
const BAR: f64 = 230.0;
const GAP: f64 = 8.0;
const HEAD: usize = 30;
const ROW: usize = 34;
const THICK: usize = 22;

const LEGEND: &str = "\
Datagrams of many fragments, inside ESP, between two network namespaces of this machine. A bar is \
the median, a dot a run: <b class=\"path\">what arrived whole</b>, and \
<b class=\"receiver\">the longest time without a datagram</b>.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab fragments --html \"a&b.html\"");
        let headline =
            "With 32 receive buffers, 1490 Mb/s of fragments coalesced and 0.5 queued</h1>";
        assert!(page.contains(headline), "{page}");
        let runs: usize = report.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs * 2);
        assert!(["http", "url(", "src=", "<script"].iter().all(|word| !page.contains(word)));
        assert!(page.contains("a&amp;b.html"));
        assert_eq!(page.matches('<').count(), page.matches('>').count());
    }
}
