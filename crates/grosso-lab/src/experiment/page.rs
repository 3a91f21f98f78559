//! The results as a page.

use super::{GroupResult, Latency, Report, RowResult, Spread, table::digits};
use crate::page::{Bar, Chart, Column, Page};

impl Report {
    /// The results as an HTML page. `command` is the command that repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let charts: String = match self.is_sweep() {
            true => self.curves(),
            false => self.groups.iter().map(|group| group.chart().draw()).collect(),
        };
        Page {
            experiment: self.experiment,
            headline: &self.verdict(),
            legend: LEGEND,
            verdicts: &self.verdicts,
            charts: &charts,
            table: &self.table(),
            processor: &self.environment.conditions.processor,
            command,
        }
        .html()
    }

    /// Whether the rows differ in the number of connections.
    fn is_sweep(&self) -> bool {
        self.rows().any(|row| row.connections > 1)
    }

    /// The result of the first group, in a sentence.
    fn verdict(&self) -> String {
        let Some(group) = self.groups.first() else { return "Nothing was measured".into() };
        let ratio = group.ratio;
        match &group.rows[..] {
            [few, .., many] if self.is_sweep() => format!(
                "{} make trains of {}, {} of {} packets",
                few.name,
                few.segments_per_train.map_or_else(|| "-".into(), |s| digits(s.median)),
                many.name,
                many.segments_per_train.map_or_else(|| "-".into(), |s| digits(s.median)),
            )
            .replace("1 flow make", "1 flow makes"),
            [on, ..] if on.latency.is_some() => {
                format!("With {} a CPU answers {ratio:.2} times the requests", feature(&on.name))
            }
            [on, ..] => format!(
                "With {} a CPU moves {ratio:.2} times the data: {:.1} Gb/s instead of {:.1}",
                feature(&on.name),
                on.gigabits_a_cpu_second.median,
                on.gigabits_a_cpu_second.median / ratio,
            ),
            [] => "Nothing was measured".into(),
        }
    }
}

impl GroupResult {
    /// Throughput and cost of each row, side by side.
    fn chart(&self) -> Chart {
        let [speed, cost] = match self.rows.iter().any(|row| row.latency.is_some()) {
            true => ["requests a second", "microseconds: 50, 90, 99 % of requests"],
            false => ["Gb/s per CPU", "CPU seconds a GB"],
        };
        let columns = [
            Column::new(speed, self.rows.iter().map(|row| row.speed().max)),
            Column::new(cost, self.rows.iter().map(|row| row.costs().iter().sum())),
        ];
        let rows = self.rows.iter().map(|row| (row.name.clone(), row.bars())).collect();
        Chart { title: self.title.clone(), names: 130, columns, rows }
    }
}

impl RowResult {
    fn bars(&self) -> [Bar; 2] {
        let runs = self.runs.iter().map(|run| match self.latency {
            Some(_) => run.units as f64 / run.seconds,
            None => run.gigabits_a_cpu_second(),
        });
        let (speed, costs) = (self.speed(), self.costs());
        let parts = [0, 1, 2].map(|i| (ROLES[i], ROLES[i], costs[i]));
        [
            Bar::middle("speed", speed, runs, digits(speed.median)),
            Bar::parts(&parts, digits(costs.iter().sum())),
        ]
    }

    /// The figure in the first column.
    fn speed(&self) -> Spread {
        self.requests_a_second.unwrap_or(self.gigabits_a_cpu_second)
    }

    /// Processor seconds a gigabyte in the order of [`ROLES`]; for requests, the increments between percentiles of
    /// latency.
    fn costs(&self) -> [f64; 3] {
        if let Some(Latency { p50_us, p90_us, p99_us, .. }) = self.latency {
            return [p50_us, p90_us - p50_us, p99_us - p90_us];
        }
        let costs = [self.sender_cpu_s_per_gb, self.path_cpu_s_per_gb, self.receiver_cpu_s_per_gb];
        costs.map(|cost| cost.median)
    }
}

/// The feature that is on in a row.
fn feature(name: &str) -> &str {
    if name.starts_with("parts") { "coalescing" } else { name.trim_end_matches(" on") }
}

/// Users of the processor; also the CSS classes of the page's parts.
const ROLES: [&str; 3] = ["sender", "path", "receiver"];
const LEGEND: &str = "\
Real TCP between two network namespaces of this machine. A bar is the median, a dot a run. \
Cost by role: <b class=\"sender\">sender</b>, <b class=\"path\">data path</b> with the receiver's \
kernel in it, <b class=\"receiver\">receiver</b>.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::page::is_self_contained;

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let mut report = report();
        report.environment.congestion = "<script>".into();
        let page = report.page("grosso lab --html \"a&b.html\"");
        assert!(page.contains("a CPU moves 3.64 times the data: 10.0 Gb/s instead of 2.8</h1>"));
        let runs: usize =
            report.groups.iter().flat_map(|group| &group.rows).map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs);
        assert!(is_self_contained(&page), "{page}");
        assert!(page.contains("a&amp;b.html") && page.contains("is &lt;script&gt;"));
        // The longest bar has the greatest length allowed.
        assert!(page.contains("width=\"260.0\""));
    }
}
