//! A table and a chart of the results.

use super::{CustomFindings, CustomParameters, CustomRow, CustomRun};
use crate::{
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{digits, thousands},
    table::{self, Column},
};

impl Findings for CustomFindings {
    type Parameters = CustomParameters;

    const KNOBS: &'static [Knob] = &[];
    const LEGEND: &'static str = "\
TCP between two hosts of a custom experiment; each host is a network namespace on this machine. A bar is the \
median, and each dot is one run. The bars show <b class=\"path\">throughput</b> and \
<b class=\"receiver\">the cost on all CPUs</b>.";

    fn heading(&self, environment: &Environment<CustomParameters>) -> String {
        let CustomParameters { config, hosts: [from, to], connections, congestion, .. } =
            &environment.parameters;
        let streams = match connections {
            1 => "one TCP stream".to_owned(),
            many => format!("{many} TCP streams"),
        };
        format!(
            "{config}\n{streams} ({congestion}) from {from} to {to}; CPUs: {}\n{}",
            environment.processors,
            environment.spread_lines()
        )
    }

    fn write(&self, text: &mut String) {
        text.push('\n');
        table::write(&COLUMNS, &self.rows, text);
    }

    fn headline(&self) -> String {
        match &self.rows[..] {
            [first, .., last] => format!(
                "{} Gb/s with {}, {} with {}",
                digits(last.gbps.median),
                last.setting,
                digits(first.gbps.median),
                first.setting
            ),
            [only] => format!("{} Gb/s", digits(only.gbps.median)),
            [] => "Nothing was measured".into(),
        }
    }

    fn charts(&self) -> String {
        let title = "Throughput and CPU cost".into();
        charts(&BARS, |row| row.setting.clone(), [(title, &self.rows)])
    }
}

impl CustomRow {
    fn gbps_bar(&self) -> Bar {
        let runs = self.runs.iter().map(CustomRun::gbps);
        Bar::middle("path", self.gbps, runs, digits(self.gbps.median))
    }

    fn cost_bar(&self) -> Bar {
        let costs = self.runs.iter().map(CustomRun::cpu_s_per_gb).filter(|cost| cost.is_finite());
        Bar::middle("receiver", self.cpu_s_per_gb, costs, self.cost())
    }

    /// Formats the CPU time per gigabyte, or returns a dash if no data arrived.
    fn cost(&self) -> String {
        if self.cpu_s_per_gb.max > 0.0 { digits(self.cpu_s_per_gb.median) } else { "-".into() }
    }

    fn percent_of_first(&self) -> String {
        self.share_of_first.map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0))
    }
}

const COLUMNS: [Column<CustomRow>; 7] = [
    Column::left(&["setting"], 25, |row| row.setting.clone()),
    Column::left(&["Gb/s"], 18, |row| row.gbps.text(digits)),
    Column::right(&["% of", "first"], 7, CustomRow::percent_of_first),
    Column::right(&["CPU", "s/GB"], 7, CustomRow::cost),
    Column::right(&["retr.", "/s"], 7, |row| thousands(row.retransmits_a_second.median)),
    Column::right(&["too", "long/s"], 8, |row| thousands(row.too_long_a_second.median)),
    Column::right(&["packets", "a frame"], 8, |row| digits(row.segments_per_train.median)),
];

const BARS: [BarColumn<CustomRow>; 2] = [
    BarColumn::new("Gb/s", |row| row.gbps.max, CustomRow::gbps_bar),
    BarColumn::new("CPU s/GB", |row| row.cpu_s_per_gb.max, CustomRow::cost_bar),
];
