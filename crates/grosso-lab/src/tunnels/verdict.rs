//! Whether the experiment showed what it was to show.

use super::{Carrier, GroupResult, RowResult, Tunnel};
use crate::experiment::Verdict;

/// What the figures say.
pub(super) fn judge(groups: &[GroupResult]) -> Vec<Verdict> {
    let rows: Vec<&RowResult> = groups.iter().flat_map(|group| &group.rows).collect();
    [saving(&rows), throughput(&rows), offloads(&rows)].into_iter().flatten().collect()
}

/// Each tunnel with remote checksum offload, and without.
fn pairs<'a>(rows: &[&'a RowResult]) -> Vec<[&'a RowResult; 2]> {
    let row = |tunnel, remote_checksum| {
        let mut rows = rows.iter().filter(|row| row.carrier == Carrier::Grosso);
        rows.find(|row| row.tunnel == tunnel && row.remote_checksum == Some(remote_checksum))
    };
    let pairs = Tunnel::ALL.into_iter();
    pairs.filter_map(|tunnel| Some([*row(tunnel, true)?, *row(tunnel, false)?])).collect()
}

/// What remote checksum offload saves of checksums and encapsulation together, where it saves least.
fn saving(rows: &[&RowResult]) -> Option<Verdict> {
    let savings = pairs(rows).into_iter().filter_map(|[on, off]| {
        let costs = [on.costs?, off.costs?].map(|[path_a, _]| path_a.together_s_per_gb());
        Some((1.0 - costs[0] / costs[1], on.tunnel))
    });
    let (least, tunnel) = savings.min_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(Verdict {
        claim: "RCO saves 15 % of TX checksums and encapsulation",
        holds: least >= SAVED,
        measured: format!("{:.0} % ({tunnel})", least * 100.0),
    })
}

/// Whether it costs no throughput: no more than one percent, or the runs without it are as slow.
fn throughput(rows: &[&RowResult]) -> Option<Verdict> {
    let ratios = pairs(rows).into_iter().map(|[on, off]| {
        let (on, off) = (on.megabits_a_second, off.megabits_a_second);
        let ratio = on.median / off.median;
        (ratio, ratio >= EQUAL || on.max >= off.min)
    });
    let ratios: Vec<(f64, bool)> = ratios.collect();
    let least = ratios.iter().map(|(ratio, _)| *ratio).reduce(f64::min)?;
    Some(Verdict {
        claim: "RCO is no slower, by 1 % or the spread",
        holds: ratios.iter().all(|(_, holds)| *holds),
        measured: format!("{least:.2} times"),
    })
}

/// What offloads are worth to a tunnel.
fn offloads(rows: &[&RowResult]) -> Option<Verdict> {
    let median = |carrier| {
        let mut rows = rows.iter().filter(|row| row.tunnel == Tunnel::Vxlan);
        let row = rows.find(|row| row.carrier == carrier && row.remote_checksum == Some(false))?;
        Some(row.megabits_a_second.median)
    };
    let ratio = median(Carrier::Grosso)? / median(Carrier::Plain)?;
    Some(Verdict {
        claim: "VXLAN with offloads is 3 times as fast as without",
        holds: ratio >= WORTH,
        measured: format!("{ratio:.1} times"),
    })
}

/// The least share that remote checksum offload saves.
const SAVED: f64 = 0.15;
/// What is as fast.
const EQUAL: f64 = 0.99;
/// How much faster a tunnel is with offloads.
const WORTH: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::super::{Report, tests::report};
    use super::*;

    fn said(report: &Report, claim: &str) -> (bool, String) {
        let verdicts = judge(&report.groups);
        let verdict = verdicts.iter().find(|verdict| verdict.claim.starts_with(claim)).unwrap();
        (verdict.holds, verdict.measured.clone())
    }

    /// The same results, but for one row.
    fn changed(tunnel: Tunnel, remote_checksum: bool, change: impl Fn(&mut RowResult)) -> Report {
        let mut report = report();
        let rows = report.groups[0].rows.iter_mut();
        rows.filter(|row| {
            row.tunnel == tunnel && row.remote_checksum.unwrap_or(false) == remote_checksum
        })
        .for_each(change);
        report
    }

    #[test]
    fn every_claim_holds_of_what_is_saved_everywhere() {
        let verdicts = judge(&report().groups);
        assert_eq!(verdicts.len(), 3);
        assert!(verdicts.iter().all(|verdict| verdict.holds), "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.claim.len() <= 52), "{verdicts:?}");
    }

    #[test]
    fn the_tunnel_that_saves_least_decides() {
        let at = |cost: f64| {
            let change = |row: &mut RowResult| {
                let costs = row.costs.as_mut().unwrap();
                (costs[0].checksums_s_per_gb, costs[0].tunnel_s_per_gb) = (0.0, cost);
            };
            said(&changed(Tunnel::SitGue, true, change), "RCO saves")
        };
        // Without it the two are 40 ms a GB.
        assert_eq!(at(0.0344), (false, "14 % (SIT/GUE)".into()));
        assert_eq!(at(0.0336), (true, "16 % (SIT/GUE)".into()));
        // What path b spends is no saving of path a's.
        let far = changed(Tunnel::SitGue, true, |row| {
            row.costs.as_mut().unwrap()[1].tunnel_s_per_gb = 9.0;
        });
        assert!(said(&far, "RCO saves").0);
    }

    #[test]
    fn slower_by_a_percent_or_within_the_spread_is_as_fast() {
        let at = |median: f64, max: f64| {
            let change = |row: &mut RowResult| {
                (row.megabits_a_second.median, row.megabits_a_second.max) = (median, max);
            };
            said(&changed(Tunnel::Vxlan, true, change), "RCO is no slower")
        };
        // Without it, it is 10000, and 9800 at the least.
        assert_eq!(at(9890.0, 9799.0), (false, "0.99 times".into()));
        assert!(at(9910.0, 9799.0).0);
        assert_eq!(at(9500.0, 9801.0), (true, "0.95 times".into()));
    }

    #[test]
    fn a_tunnel_without_offloads_is_three_times_as_slow() {
        let at = |megabits: f64| {
            let change = |row: &mut RowResult| row.megabits_a_second.median = megabits;
            said(&changed(Tunnel::Vxlan, false, change), "VXLAN with offloads")
        };
        // Without them it is 2000.
        assert_eq!(at(5900.0), (false, "3.0 times".into()));
        assert_eq!(at(6050.0), (true, "3.0 times".into()));
    }

    #[test]
    fn without_a_row_there_is_no_verdict() {
        let mut report = report();
        report.groups[0].rows.retain(|row| row.tunnel == Tunnel::Geneve);
        assert_eq!(judge(&report.groups), []);
    }
}
