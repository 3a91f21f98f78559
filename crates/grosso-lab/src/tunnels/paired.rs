//! Comparisons of consecutive trials of the same tunnel: one with and one without remote checksum offload.
//!
//! The load on the machine changes the cost of a trial by more than the offload saves, but two consecutive trials
//! usually run under the same load.

use core::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    TunnelCarrier, TunnelTrial, Watched,
    findings::{TunnelGroup, TunnelRow},
};
use crate::{statistics::Spread, tunnel::Tunnel};

/// Effect of remote checksum offload on a tunnel, from pairs of trials: a figure with the offload divided by the same
/// figure without it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Paired {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Ratio of the sender's time per gigabyte for checksums and encapsulation together; `None` without clock readings.
    pub tx_cost: Option<Spread>,
    /// Ratio of the throughput in trials without clock readings.
    pub throughput: Spread,
}

impl Paired {
    /// Returns a comparison for every tunnel that was measured both with and without remote checksum offload.
    pub(super) fn all(groups: &[TunnelGroup]) -> Vec<Self> {
        let rows = || groups.iter().flat_map(|group| &group.rows);
        let row = |tunnel, remote_checksum| {
            let mut rows = rows().filter(|row| row.carrier == TunnelCarrier::Grosso);
            rows.find(|row| row.tunnel == tunnel && row.remote_checksum == Some(remote_checksum))
        };
        let pairs = Tunnel::ALL.into_iter();
        pairs.filter_map(|tunnel| Some(Self::of(row(tunnel, true)?, row(tunnel, false)?))).collect()
    }

    fn of(with: &TunnelRow, without: &TunnelRow) -> Self {
        let speeds = |row: &TunnelRow| -> Vec<f64> {
            row.runs
                .iter()
                .flat_map(|run| &run.streams)
                .map(TunnelTrial::megabits_a_second)
                .collect()
        };
        let costs = |row: &TunnelRow| -> Vec<f64> {
            row.runs.iter().flat_map(|run| &run.watched).map(tx_cost).collect()
        };
        let cost = ratios(costs(with), costs(without));
        let throughput = ratios(speeds(with), speeds(without));
        Self {
            tunnel: with.tunnel,
            tx_cost: (!cost.is_empty()).then(|| Spread::of(cost)),
            throughput: Spread::of(throughput),
        }
    }

    pub(super) fn write(&self, text: &mut String) {
        let times = |Spread { median, min, max, .. }| format!("{median:.2} ({min:.2}-{max:.2})");
        let cost = self.tx_cost.map_or_else(|| "-".into(), times);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<9}RCO on / off  TX cost {cost}, throughput {}",
            self.tunnel.to_string(),
            times(self.throughput),
        );
    }
}

/// Returns the seconds per gigabyte for checksums and encapsulation.
fn tx_cost(watched: &Watched) -> f64 {
    let [path_a, _] = watched.paths;
    (path_a.checksums_seconds + path_a.tunnel_seconds) / watched.gigabytes
}

/// Returns the ratio of the first to the second figure in each pair.
fn ratios(with: Vec<f64>, without: Vec<f64>) -> Vec<f64> {
    with.into_iter().zip(without).map(|(with, without)| with / without).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    /// Returns the results with `change` applied to the figures in one run of a tunnel.
    fn changed(remote_checksum: bool, change: impl Fn(&mut Watched)) -> Vec<Paired> {
        let mut report = report().findings;
        let row = report.groups[0].rows.iter_mut().find(|row| {
            (row.tunnel, row.remote_checksum) == (Tunnel::Vxlan, Some(remote_checksum))
        });
        row.unwrap().runs[0].watched.iter_mut().for_each(change);
        Paired::all(&report.groups)
    }

    fn vxlan(paired: &[Paired]) -> Spread {
        paired.iter().find(|paired| paired.tunnel == Tunnel::Vxlan).unwrap().tx_cost.unwrap()
    }

    #[test]
    fn what_slows_both_of_a_pair_changes_nothing() {
        let paired = Paired::all(&report().findings.groups);
        assert_eq!(paired.len(), 4, "Geneve has none");
        // In the two pairs, the cost is 2.5 ms and 20 ms with the offload, and 30 ms and 20 ms without it.
        let cost = vxlan(&paired);
        let all = [cost.median, cost.min, cost.max].map(|ratio| (ratio * 1e3).round());
        assert_eq!(all, [450.0; 3], "the same in all runs, whatever the throughput");
        let throughput = paired[0].throughput;
        assert_eq!((throughput.min, throughput.max), (1.0, 1.0), "runs differ, and no pair does");
    }

    #[test]
    fn only_what_path_a_spends_counts_and_one_of_a_pair_alone_widens_the_spread() {
        let far = changed(true, |watched| watched.paths[1].tunnel_seconds = 9.0);
        assert_eq!(vxlan(&far).max, vxlan(&Paired::all(&report().findings.groups)).max);
        let slow = changed(true, |watched| watched.paths[0].tunnel_seconds *= 2.0);
        let spread = vxlan(&slow);
        assert!((spread.median - 0.45).abs() < 1e-9 && (spread.max - 0.85).abs() < 1e-9);
        assert!(
            (vxlan(&changed(false, |watched| {
                watched.paths[0].checksums_seconds = 0.0;
            }))
            .max - 1.125)
                .abs()
                < 1e-9
        );
    }
}
