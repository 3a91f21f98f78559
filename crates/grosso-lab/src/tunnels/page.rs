//! The results as a page.

use super::{Carrier, GroupResult, Measured, Report, Roles, RowResult, table::on_or_off};
use crate::page::{Bar, Chart, Column, Page};

impl Report {
    /// The results as an HTML page. `command` is the command that repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let columns = [
            Column::new("TCP_STREAM, Mb/s", self.rows().map(|row| row.megabits_a_second.max)),
            Column::new("CPU seconds a GB", self.rows().map(|row| row.roles_s_per_gb.total())),
        ];
        let charts = self.groups.iter().map(|group| group.chart(columns).draw());
        let charts: String = charts.collect();
        Page {
            experiment: "tunnels",
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

    /// The result of the comparison with the kernel, in a sentence.
    fn headline(&self) -> String {
        let kernel = self
            .comparisons
            .iter()
            .find(|compared| compared.with == Carrier::Kernel && !compared.remote_checksum);
        kernel.map_or_else(
            || "Tunnels that end in userspace".into(),
            |kernel| {
                format!(
                    "VXLAN in userspace: {:.2} times the kernel's throughput, {:.2} times its CPU a GB",
                    kernel.throughput, kernel.cpu_a_gigabyte
                )
            },
        )
    }
}

impl GroupResult {
    /// Throughput and cost of each row, side by side.
    fn chart(&self, columns: [Column; 2]) -> Chart {
        let name = |row: &RowResult| match row.remote_checksum {
            Some(_) => format!("{}, RCO {}", row.name(), on_or_off(row.remote_checksum)),
            None => row.name(),
        };
        let rows = self.rows.iter().map(|row| (name(row), row.bars())).collect();
        Chart { title: self.title.into(), names: 150, columns, rows }
    }
}

impl RowResult {
    fn bars(&self) -> [Bar; 2] {
        let speed = self.megabits_a_second;
        let runs = self.runs.iter().flat_map(|run| &run.streams).map(Measured::megabits_a_second);
        let Roles { sender, path_a, path_b, receiver, kernel } = self.roles_s_per_gb;
        let costs = [
            ("sender", "sender", sender),
            ("path", "path a", path_a),
            ("far", "path b", path_b),
            ("receiver", "receiver", receiver),
            ("sender", "kernel threads", kernel),
        ];
        [
            Bar::middle("speed", speed, runs, format!("{:.0}", speed.median)),
            Bar::parts(&costs, format!("{:.2}", self.roles_s_per_gb.total())),
        ]
    }
}

const LEGEND: &str = "\
Real TCP between two network namespaces of this machine, through a tunnel. A bar is the median, a \
dot a run. Cost by role: <b class=\"sender\">sender</b>, <b class=\"path\">path a</b> which puts \
packets in, path b which takes them out (paler), <b class=\"receiver\">receiver</b>.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::page::is_self_contained;

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab tunnels --html \"a&b.html\"");
        assert!(page.contains("VXLAN in userspace: 0.50 times the kernel's"), "{page}");
        let runs: usize = report.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs);
        assert!(is_self_contained(&page), "{page}");
        assert!(page.contains("a&amp;b.html"));
        // The longest bar has the greatest length allowed: the kernel carries twice what Grosso does.
        assert!(page.contains("width=\"245.1\""), "{page}");
    }
}
