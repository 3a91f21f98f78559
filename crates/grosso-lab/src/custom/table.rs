//! The results as a table and as a chart.

use core::fmt::Write;

use super::{CustomFindings, CustomParameters, CustomRow, CustomRun};
use crate::{
    page::{Bar, Chart, Column},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, thousands},
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
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "\n{}", HEADING.join("\n"));
        self.rows.iter().for_each(|row| row.write(text));
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
        let columns = [
            Column::new("Gb/s", self.rows.iter().map(|row| row.gbps.max)),
            Column::new("CPU s/GB", self.rows.iter().map(|row| row.cpu_s_per_gb.max)),
        ];
        let rows = self.rows.iter().map(|row| (row.setting.clone(), row.bars())).collect();
        Chart { title: "Throughput and CPU cost".into(), columns, rows }.draw()
    }
}

impl CustomRow {
    fn bars(&self) -> [Bar; 2] {
        let (gbps, cost) = (self.gbps, self.cpu_s_per_gb);
        let costs = self.runs.iter().map(CustomRun::cpu_s_per_gb).filter(|cost| cost.is_finite());
        [
            Bar::middle("path", gbps, self.runs.iter().map(CustomRun::gbps), digits(gbps.median)),
            Bar::middle("receiver", cost, costs, self.cost()),
        ]
    }

    /// Returns the cost of a gigabyte; a dash if none arrived.
    fn cost(&self) -> String {
        if self.cpu_s_per_gb.max > 0.0 { digits(self.cpu_s_per_gb.median) } else { "-".into() }
    }

    fn write(&self, text: &mut String) {
        let Spread { median, min, max, .. } = self.gbps;
        let gbps = format!("{} ({}-{})", digits(median), digits(min), digits(max));
        let share = |share: f64| format!("{:.1}", share * 100.0);
        let _ = writeln!(
            text,
            "{:<25}{gbps:<18}{:>7}{:>7}{:>7}{:>8}{:>8}",
            self.setting,
            self.share_of_first.map_or_else(|| "-".into(), share),
            self.cost(),
            thousands(self.retransmits_a_second.median),
            thousands(self.too_long_a_second.median),
            digits(self.segments_per_train.median),
        );
    }
}

/// Heading of the columns of [`CustomRow::write`].
const HEADING: [&str; 2] = [
    "setting                  Gb/s                 % of    CPU retrans    too packets",
    "                                             first   s/GB      /s long/s a frame",
];
