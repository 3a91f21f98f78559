//! Figures that the experiment measures. Their structure is that of the JSON report.

use schemars::JsonSchema;
use serde::Serialize;

use super::{FragmentRun, FragmentSetting, Receiver};
use crate::{
    experiment::Series,
    statistics::{Spread, ratio},
};

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FragmentFindings {
    /// The results: without loss, with loss, and with more load than the receiver can process.
    pub groups: Vec<FragmentGroup>,
}

/// Results with the same loss rate and load.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FragmentGroup {
    /// Fraction of fragments lost on the wire.
    pub loss: f64,
    /// Whether the sender offered more than the receiver can process.
    pub is_overload: bool,
    /// Results, one for each setting.
    pub rows: Vec<FragmentRow>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FragmentRow {
    /// The receiver's treatment of fragments.
    pub receiver: Receiver,
    /// Number of receive buffers in the receiver's NIC; `None` for no limit.
    pub buffers: Option<usize>,
    /// Offered rate in Gb/s.
    pub offered_gbps: Spread,
    /// Rate of datagrams that arrived complete and correct, in Gb/s.
    pub goodput_gbps: Spread,
    /// Goodput divided by that of the coalescing receiver with unlimited buffers in the same group.
    pub share_of_unbounded: Option<f64>,
    /// Frames per second for which the NIC had no free buffer.
    pub no_buffer_a_second: Spread,
    /// Datagrams per second that timed out while they were incomplete.
    pub died_a_second: Spread,
    /// Maximum number of NIC buffers in use at the same time, over all runs.
    pub buffers_max: usize,
    /// Maximum amount of memory that incomplete datagrams occupied in any run, in bytes. Whole buffers count.
    pub held_bytes_max: u64,
    /// Longest time without a datagram, in milliseconds, which is the time that the receiver needed to recover.
    pub silence_ms: Spread,
    /// The measurements.
    pub runs: Vec<FragmentRun>,
}

impl FragmentFindings {
    /// Returns the rows of all groups.
    #[cfg(test)]
    pub(super) fn rows(&self) -> impl Iterator<Item = &FragmentRow> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// Returns the rate at which the sender offered data without overload, in Gb/s.
    pub(super) fn offered_gbps(&self) -> Spread {
        let groups = self.groups.iter().filter(|group| !group.is_overload);
        Spread::of(groups.flat_map(|group| &group.rows).map(|row| row.offered_gbps.median))
    }

    /// Returns whether the machine is too slow for the rate: the coalescing receiver with unlimited buffers lost
    /// datagrams although the wire lost no fragment, the sender did not reach the rate, or frames were lost before they
    /// reached the NIC. The overload group is not considered.
    pub(super) fn is_short_of_processor(&self, rate_gbps: f64) -> bool {
        let groups = || self.groups.iter().filter(|group| !group.is_overload);
        let rows = || groups().flat_map(|group| &group.rows);
        let unhindered = groups().filter(|group| group.loss <= 0.0);
        let unhindered = unhindered.filter_map(|group| group.row(Receiver::Coalesces, None));
        let mut unhindered =
            unhindered.map(|row| row.goodput_gbps.median / row.offered_gbps.median);
        unhindered.any(|share| share < CARRIED)
            || rows().any(|row| row.offered_gbps.median < rate_gbps * CARRIED)
            || rows().flat_map(|row| &row.runs).any(|run| run.wire_full > 0)
    }
}

impl FragmentGroup {
    pub(super) fn new(
        loss: f64,
        is_overload: bool,
        group: Vec<Series<FragmentSetting, FragmentRun>>,
    ) -> Self {
        let rows = group.into_iter().map(FragmentRow::new).collect();
        let mut result = Self { loss, is_overload, rows };
        let unbounded = result.row(Receiver::Coalesces, None).map(|row| row.goodput_gbps.median);
        for row in &mut result.rows {
            row.share_of_unbounded =
                unbounded.and_then(|unbounded| ratio(row.goodput_gbps.median, unbounded));
        }
        result
    }

    /// Returns the row for a receiver with this number of buffers.
    #[must_use]
    pub fn row(&self, receiver: Receiver, buffers: Option<usize>) -> Option<&FragmentRow> {
        self.rows.iter().find(|row| row.receiver == receiver && row.buffers == buffers)
    }
}

impl FragmentRow {
    fn new(Series { setting, runs, .. }: Series<FragmentSetting, FragmentRun>) -> Self {
        let over = |value: &dyn Fn(&FragmentRun) -> f64| Spread::of(runs.iter().map(value));
        Self {
            receiver: setting.receiver,
            buffers: setting.buffers,
            offered_gbps: over(&FragmentRun::offered_gbps),
            goodput_gbps: over(&FragmentRun::goodput_gbps),
            share_of_unbounded: None,
            no_buffer_a_second: over(&|run| run.no_buffer as f64 / run.seconds),
            died_a_second: over(&|run| run.died as f64 / run.seconds),
            buffers_max: runs.iter().map(|run| run.buffers_max).max().unwrap_or(0),
            held_bytes_max: runs.iter().map(|run| run.held_bytes_max).max().unwrap_or(0),
            silence_ms: over(&|run| run.silence_seconds * 1e3),
            runs,
        }
    }
}

/// Fraction of the offered datagrams that a sufficiently fast machine delivers.
const CARRIED: f64 = 0.95;
