//! The results as a page.

use super::{Offloads, PartName, Path, Report};
use crate::page::{Bar, Chart, Column, Page};

impl Report {
    /// The results as an HTML page. `command` is the command that repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let column = |heading, side: usize| {
            Column::new(heading, self.rows.iter().map(|row| row.paths[side].total_ns.max))
        };
        let rows = self.rows.iter().map(|row| (row.name(), row.paths.map(|path| path.bar())));
        let chart = Chart {
            title: "Nanoseconds of a thread for a packet".into(),
            names: 110,
            columns: [column("path a, host to wire", 0), column("path b, wire to host", 1)],
            rows: rows.collect(),
        };
        Page {
            experiment: "cost",
            headline: &self.headline(),
            legend: LEGEND,
            verdicts: &self.verdicts,
            charts: &chart.draw(),
            table: &self.table(),
            processor: &self.environment.conditions.processor,
            command,
        }
        .html()
    }

    /// The result of the first wire, in a sentence.
    fn headline(&self) -> String {
        let both = |offloads| {
            let row = self.rows.iter().find(|row| row.offloads == offloads)?;
            Some(row.paths.map(|path| path.total_ns.median))
        };
        match (both(Offloads::On), both(Offloads::Off)) {
            (Some([on_a, on_b]), Some([off_a, off_b])) => format!(
                "A packet costs {on_a:.0} + {on_b:.0} ns with offloads, {off_a:.0} + {off_b:.0} without"
            ),
            _ => "Nothing was measured".into(),
        }
    }
}

impl Path {
    fn bar(self) -> Bar {
        let parts = PartName::ALL.map(|part| {
            let (class, name) = drawn(part);
            (class, name, self.parts.get(part))
        });
        Bar::parts(&parts, format!("{:.0}", self.total_ns.median))
    }
}

/// The CSS class and the label of a part.
const fn drawn(part: PartName) -> (&'static str, &'static str) {
    match part {
        PartName::ReceiveCalls => ("sender", "receive calls"),
        PartName::Receive => ("sender", "port that receives"),
        PartName::Engine => ("path", "engine"),
        PartName::Checksums => ("far", "checksums"),
        PartName::SendCalls => ("receiver", "send calls"),
        PartName::Send => ("pale", "port that sends"),
        PartName::Acknowledgments => ("acks", "acknowledgments"),
        PartName::Wait => ("rest", "wait"),
        PartName::Loop => ("rest", "loop"),
        PartName::Unexplained => ("rest", "unexplained"),
    }
}

const LEGEND: &str = "\
Real TCP between two network namespaces of this machine, through two data paths. A bar is made of \
medians: <b class=\"sender\">receiving</b>, <b class=\"path\">the engine</b>, checksums (paler), \
<b class=\"receiver\">calls that send</b>, the port that sends (paler), \
<b class=\"acks\">acknowledgments</b>, <b class=\"rest\">everything else</b>.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::page::is_self_contained;

    #[test]
    fn page_is_self_contained_and_shows_every_part() {
        let page = report().page("grosso lab cost --html \"a&b.html\"");
        let headline = "A packet costs 110 + 55 ns with offloads, 550 + 275 without</h1>";
        assert!(page.contains(headline), "{page}");
        assert_eq!(page.matches("<rect ").count(), 7 * 2 * 10);
        assert!(is_self_contained(&page), "{page}");
        assert!(page.contains("a&amp;b.html"));
    }
}
