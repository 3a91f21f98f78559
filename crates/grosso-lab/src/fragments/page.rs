//! The results as a page.

use super::{GroupResult, Measured, Receiver, Report, RowResult, table::megabits};
use crate::page::{Bar, Chart, Column, Page};

impl Report {
    /// The results as an HTML page. `command` is the command that repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let charts: String = self.groups.iter().map(|group| group.chart().draw()).collect();
        Page {
            experiment: "fragments",
            headline: &self.headline(),
            legend: LEGEND,
            verdicts: &self.verdicts,
            charts: &charts,
            table: &self.table(),
            processor: &self.environment.conditions.processor,
            command,
        }
        .html()
    }

    /// The result of the first rows, in a sentence.
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
    fn chart(&self) -> Chart {
        let columns = [
            Column::new("goodput, Mb/s", self.rows.iter().map(|row| row.goodput_gbps.max)),
            Column::new("longest silence, ms", self.rows.iter().map(|row| row.silence_ms.max)),
        ];
        let name = |row: &RowResult| format!("{}: {}", row.buffers(), row.receiver);
        let rows = self.rows.iter().map(|row| (name(row), row.bars())).collect();
        Chart { title: self.title(), names: 190, columns, rows }
    }
}

impl RowResult {
    fn bars(&self) -> [Bar; 2] {
        let (goodput, silence) = (self.goodput_gbps, self.silence_ms);
        let goodputs = self.runs.iter().map(Measured::goodput_gbps);
        let silences = self.runs.iter().map(|run| run.silence_seconds * 1e3);
        [
            Bar::middle("path", goodput, goodputs, megabits(goodput.median)),
            Bar::middle("receiver", silence, silences, format!("{:.0}", silence.median)),
        ]
    }
}

const LEGEND: &str = "\
Datagrams of many fragments, inside ESP, between two network namespaces of this machine. A bar is \
the median, a dot a run: <b class=\"path\">what arrived whole</b>, and \
<b class=\"receiver\">the longest time without a datagram</b>.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::page::is_self_contained;

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab fragments --html \"a&b.html\"");
        let headline =
            "With 32 receive buffers, 1490 Mb/s of fragments coalesced and 0.5 queued</h1>";
        assert!(page.contains(headline), "{page}");
        let runs: usize = report.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs * 2);
        assert!(is_self_contained(&page), "{page}");
        assert!(page.contains("a&amp;b.html"));
    }
}
