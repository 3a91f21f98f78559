//! Figures that the experiment measures, for the JSON report, the table and the page.

use schemars::JsonSchema;
use serde::Serialize;

use super::{NicOffloadParameters, NicOffloadRun, NicOffloadSetting};
use crate::{
    experiment::Series,
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    sink::Direction,
    statistics::{Spread, digits},
    table::{self, Column},
    verdict::{Bound, Evidence, Unit, Verdict},
};

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct NicOffloadFindings {
    /// Results, one for each feature and state.
    pub rows: Vec<NicOffloadRow>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct NicOffloadRow {
    /// Name of the feature.
    pub feature: String,
    /// Direction of the stream.
    pub direction: Direction,
    /// Whether the feature was on in this measurement.
    pub on: bool,
    /// Whether the feature was in this state before the lab started.
    pub as_found: bool,
    /// Throughput in Gb/s.
    pub gigabits_a_second: Spread,
    /// Gigabits per CPU-second, over all CPUs.
    pub gigabits_a_cpu_second: Spread,
    /// Number of bytes that were compared one by one before the measurement.
    pub verified_bytes: Option<u64>,
    /// The measurements.
    pub runs: Vec<NicOffloadRun>,
}

impl NicOffloadRow {
    pub(super) fn new(series: Series<NicOffloadSetting, NicOffloadRun>) -> Self {
        let Series { setting, verified_bytes, runs, .. } = series;
        Self {
            direction: setting.direction,
            on: setting.on,
            as_found: setting.on == setting.was_on,
            feature: setting.feature,
            gigabits_a_second: Spread::of(runs.iter().map(NicOffloadRun::gigabits_a_second)),
            gigabits_a_cpu_second: Spread::of(
                runs.iter().map(NicOffloadRun::gigabits_a_cpu_second),
            ),
            verified_bytes,
            runs,
        }
    }

    fn state(&self) -> String {
        let found = if self.as_found { "*" } else { "" };
        format!("{}{found}", if self.on { "on" } else { "off" })
    }
}

impl NicOffloadFindings {
    /// Returns the two rows of each feature that was measured both off and on.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [&NicOffloadRow; 2]> {
        self.rows.windows(2).filter_map(|rows| match rows {
            [off, on] if off.feature == on.feature => Some([off, on]),
            _ => None,
        })
    }
}

/// Judges whether the device transfers more data per CPU-second with the feature than without it.
pub(super) fn judge(off: &NicOffloadRow, on: &NicOffloadRow) -> Verdict {
    let (off, on, feature) = (off.gigabits_a_cpu_second, on.gigabits_a_cpu_second, &on.feature);
    let speeds = format!(
        "{} Gb per CPU-second with the feature, {} without",
        digits(on.median),
        digits(off.median)
    );
    let cause = "one TCP connection does not need this feature, or the feature costs as much CPU time as it \
                 saves";
    let evidence = Evidence::ratio(&on, &off, Bound::AtLeast(1.0));
    evidence.verdict(claim(feature), Unit::Times, cause).with(speeds)
}

/// Returns the claim about a feature.
pub(super) fn claim(feature: &str) -> String {
    format!("{feature} saves CPU time")
}

/// Returns the feature with its better state, if the difference from the original state exceeds the noise.
pub(super) fn advice<'a>(
    off: &'a NicOffloadRow,
    on: &NicOffloadRow,
) -> Option<(&'a str, &'static str)> {
    let verdict = judge(off, on);
    let is_better_on = verdict.holds();
    let is_worth_it = (is_better_on || verdict.is_contradicted()) && on.as_found != is_better_on;
    is_worth_it.then_some((&off.feature, if is_better_on { "on" } else { "off" }))
}

impl Findings for NicOffloadFindings {
    type Parameters = NicOffloadParameters;

    const KNOBS: &'static [Knob] = &[];
    const LEGEND: &'static str = "\
One TCP connection between this device and a sink on another host, with each device feature on and off. \
A bar is the median, and each dot is one run.";

    fn heading(&self, environment: &Environment<NicOffloadParameters>) -> String {
        let NicOffloadParameters { nic, peer, .. } = &environment.parameters;
        format!(
            "device features of {nic}, measured with one TCP connection\n\
             to the sink at {peer}; CPUs: {}\n{}",
            environment.processors,
            environment.spread_lines()
        )
    }

    fn write(&self, text: &mut String) {
        text.push('\n');
        table::write(&COLUMNS, &self.rows, text);
    }

    fn headline(&self) -> String {
        let saving =
            self.pairs().filter(|[off, on]| judge(off, on).holds()).map(|[_, on]| &*on.feature);
        let saving: Vec<&str> = saving.collect();
        match saving.is_empty() {
            true => "No feature saves a measurable amount of CPU time".into(),
            false => format!("Features that save CPU time: {}", saving.join(", ")),
        }
    }

    fn charts(&self) -> String {
        let title = "Each feature off and on".into();
        charts(&BARS, |row| format!("{} {}", row.feature, row.state()), [(title, &self.rows)])
    }
}

const COLUMNS: [Column<NicOffloadRow>; 4] = [
    Column::left(&["feature"], 35, |row| row.feature.clone()),
    Column::left(&[], 5, NicOffloadRow::state),
    Column::left(&["Gb/s"], 19, |row| row.gigabits_a_second.text(digits)),
    Column::left(&["Gb/CPU-s"], 19, |row| row.gigabits_a_cpu_second.text(digits)),
];

const BARS: [BarColumn<NicOffloadRow>; 2] = [
    BarColumn::new(
        "Gb/s",
        |row| row.gigabits_a_second.max,
        |row| bar(row, row.gigabits_a_second, NicOffloadRun::gigabits_a_second),
    ),
    BarColumn::new(
        "Gb per CPU-second",
        |row| row.gigabits_a_cpu_second.max,
        |row| bar(row, row.gigabits_a_cpu_second, NicOffloadRun::gigabits_a_cpu_second),
    ),
];

fn bar(row: &NicOffloadRow, spread: Spread, value: fn(&NicOffloadRun) -> f64) -> Bar {
    let class = if row.on { "speed" } else { "sender" };
    // A run that used less than one CPU tick has no figure per CPU-second.
    let dots = row.runs.iter().map(value).filter(|value| value.is_finite());
    Bar::middle(class, spread, dots, digits(spread.median))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grosso_sys::interface::InterfaceName;

    use super::*;
    use crate::{
        experiment::{Experiment, Plan, RunsOf, assert_failures_are_rows},
        nic_offloads::NicOffloads,
        page::assert_shown,
        report::Report,
        table::assert_kept,
    };

    /// Returns a report on three made-up features: one that was off would save two thirds of the cost, one that was on
    /// saves no more than the noise, and one cannot be turned off.
    fn report() -> Report<NicOffloadFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (NicOffloads, Vec<Vec<RunsOf<NicOffloads>>>) {
        let parameters = NicOffloadParameters {
            nic: InterfaceName::new("lo").unwrap(),
            peer: "192.0.2.1:5297".parse().unwrap(),
            features: Vec::new(),
        };
        let plan = Plan {
            runs: 3,
            measured: Duration::from_secs(1),
            device: crate::netns::Device::Veth,
            processors: None,
            parameters,
        };
        let row = |feature: &str, on, was_on, cpu: [f64; 3]| {
            let setting = NicOffloadSetting {
                device: plan.parameters.nic,
                peer: plan.parameters.peer,
                feature: feature.into(),
                was_on,
                on,
                direction: Direction::Receive,
                measured: plan.measured,
            };
            let run = |cpu_seconds| NicOffloadRun {
                seconds: 1.0,
                bytes: 1 << 30,
                cpu_seconds,
                repeated: 0,
            };
            Series::new(setting, cpu.map(run).to_vec())
        };
        let groups = vec![
            vec![
                row("rx-gro", false, false, [0.9, 0.91, 0.92]),
                row("rx-gro", true, false, [0.3, 0.31, 0.32]),
            ],
            vec![
                row("tx-udp_tnl-csum-segmentation", false, true, [0.9, 0.93, 0.96]),
                row("tx-udp_tnl-csum-segmentation", true, true, [0.91, 0.92, 0.97]),
            ],
            vec![row("tx-scatter-gather", true, true, [0.0; 3])],
        ];
        let settings = groups.iter().map(|group| {
            let one = &group[0].setting;
            [
                NicOffloadSetting { on: false, ..one.clone() },
                NicOffloadSetting { on: true, ..one.clone() },
            ]
        });
        (
            NicOffloads { settings: settings.collect(), plan: plan.clone(), unused: Vec::new() },
            groups,
        )
    }

    #[test]
    fn table_fits_a_terminal_and_names_the_setting() {
        let report = report();
        let table = assert_kept("nic", &report);
        assert!(table.contains("rx-gro                             off*"), "{table}");
        assert!(table.contains("Better settings:\n  ethtool -K lo rx-gro on\n"), "{table}");
        assert!(
            table.contains("Feature tx-scatter-gather cannot be turned off at the moment."),
            "{table}"
        );
        assert!(!table.contains("NaN") && !table.contains("inf"), "{table}");
        assert_eq!(report.verdicts.len(), 2);
        assert!(report.verdicts[0].holds(), "{table}");
        assert!(table.contains("\nundecided "), "{table}");
    }

    #[test]
    fn json_names_the_device_once_and_no_other() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["environment"]["nic"], "lo");
        assert_eq!(json["environment"].get("device"), None);
        assert_eq!(json["rows"][1]["as_found"], false);
    }

    #[test]
    fn page_is_self_contained_and_shown() {
        let page = report().page("grosso lab nic lo --peer 192.0.2.1", "unknown");
        assert!(page.contains("<h1>Features that save CPU time: rx-gro</h1>"), "{page}");
        assert_shown(&page);
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }
}
