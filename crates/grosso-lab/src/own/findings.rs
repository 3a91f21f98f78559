//! Figures of the experiment, as the JSON has them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{OwnRun, OwnSetting};
use crate::{
    experiment::Series,
    statistics::{Spread, ratio},
};

/// Figures of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OwnFindings {
    /// One for each setting, in the order of the file.
    pub rows: Vec<OwnRow>,
}

/// The result of one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OwnRow {
    /// The name of the setting.
    pub setting: String,
    /// Received throughput in Gb/s.
    pub gbps: Spread,
    /// The ratio of the median throughput to that of the first setting.
    pub share_of_first: Option<f64>,
    /// CPU-seconds of all CPUs per gigabyte, of runs in which data arrived.
    pub cpu_s_per_gb: Spread,
    /// Retransmitted segments per second.
    pub retransmits_a_second: Spread,
    /// Packets per second too long to be forwarded.
    pub too_long_a_second: Spread,
    /// Packets per frame sent by the path with the longest trains.
    pub segments_per_train: Spread,
    /// The measurements.
    pub runs: Vec<OwnRun>,
}

impl OwnFindings {
    pub(super) fn new(series: Vec<Series<OwnSetting, OwnRun>>) -> Self {
        let mut rows: Vec<OwnRow> = series.into_iter().map(OwnRow::new).collect();
        let first = rows.first().map_or(f64::NAN, |row| row.gbps.median);
        for row in &mut rows {
            row.share_of_first = ratio(row.gbps.median, first);
        }
        Self { rows }
    }

    /// Returns a note for each setting and path whose ports lost frames.
    pub(super) fn losses(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for OwnRow { setting, runs, .. } in &self.rows {
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

    /// Returns the row of a setting.
    #[must_use]
    pub fn row(&self, setting: &str) -> Option<&OwnRow> {
        self.rows.iter().find(|row| row.setting == setting)
    }
}

impl OwnRow {
    fn new(Series { setting, runs, .. }: Series<OwnSetting, OwnRun>) -> Self {
        let over = |value: &dyn Fn(&OwnRun) -> f64| Spread::of(runs.iter().map(value));
        Self {
            setting: setting.name,
            gbps: over(&OwnRun::gbps),
            share_of_first: None,
            cpu_s_per_gb: over(&OwnRun::cpu_s_per_gb),
            retransmits_a_second: over(&|run| run.retransmits as f64 / run.seconds),
            too_long_a_second: over(&|run| run.too_long as f64 / run.seconds),
            segments_per_train: over(&OwnRun::segments),
            runs,
        }
    }
}
