//! Figures that the experiment measures. Their structure is that of the JSON report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{CustomRun, CustomSetting};
use crate::{
    experiment::Series,
    statistics::{Spread, ratio},
};

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CustomFindings {
    /// Results, one for each setting, in the order in which the file lists them.
    pub rows: Vec<CustomRow>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CustomRow {
    /// The name of the setting.
    pub setting: String,
    /// Received throughput in Gb/s.
    pub gbps: Spread,
    /// Median throughput divided by that of the first setting.
    pub share_of_first: Option<f64>,
    /// CPU-seconds on all CPUs per gigabyte, in the runs in which data arrived.
    pub cpu_s_per_gb: Spread,
    /// Retransmitted segments per second.
    pub retransmits_a_second: Spread,
    /// Packets per second that were dropped because they were too long to forward.
    pub too_long_a_second: Spread,
    /// Packets per sent frame, on the path where trains are longest.
    pub segments_per_train: Spread,
    /// The measurements.
    pub runs: Vec<CustomRun>,
}

impl CustomFindings {
    pub(super) fn new(series: Vec<Series<CustomSetting, CustomRun>>) -> Self {
        let mut rows: Vec<CustomRow> = series.into_iter().map(CustomRow::new).collect();
        let first = rows.first().map_or(f64::NAN, |row| row.gbps.median);
        for row in &mut rows {
            row.share_of_first = ratio(row.gbps.median, first);
        }
        Self { rows }
    }

    /// Returns a note for each path in each setting whose ports lost frames.
    pub(super) fn losses(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for CustomRow { setting, runs, .. } in &self.rows {
            let mut lost = BTreeMap::<_, u64>::new();
            for frames in runs.iter().flat_map(|run| &run.paths) {
                for (counter, count) in &frames.lost {
                    *lost.entry((&frames.path, counter)).or_default() += count;
                }
            }
            let note = |((path, counter), count)| {
                format!("{setting}: path {path} lost {count} frames: {counter}")
            };
            notes.extend(lost.into_iter().map(note));
        }
        notes
    }

    /// Returns the row for a setting.
    #[must_use]
    pub fn row(&self, setting: &str) -> Option<&CustomRow> {
        self.rows.iter().find(|row| row.setting == setting)
    }
}

impl CustomRow {
    fn new(Series { setting, runs, .. }: Series<CustomSetting, CustomRun>) -> Self {
        let over = |value: &dyn Fn(&CustomRun) -> f64| Spread::of(runs.iter().map(value));
        Self {
            setting: setting.name,
            gbps: over(&CustomRun::gbps),
            share_of_first: None,
            cpu_s_per_gb: over(&CustomRun::cpu_s_per_gb),
            retransmits_a_second: over(&|run| run.retransmits as f64 / run.seconds),
            too_long_a_second: over(&|run| run.too_long as f64 / run.seconds),
            segments_per_train: over(&CustomRun::segments),
            runs,
        }
    }
}
