//! Verdicts: whether the figures support the experiment's claims.

use super::{Paired, Tunnel, TunnelCarrier, TunnelGroup, TunnelRow};
use crate::{
    statistics::{Spread, digits, ratio},
    verdict::{Bound, Evidence, Verdict},
};

/// Returns verdicts on the figures.
pub(super) fn judge(groups: &[TunnelGroup], paired: &[Paired]) -> Vec<Verdict> {
    let rows: Vec<&TunnelRow> = groups.iter().flat_map(|group| &group.rows).collect();
    let verdicts = [saving(paired), receiving(&rows), throughput(paired), offloads(&rows)];
    verdicts.into_iter().flatten().collect()
}

/// Judges the claim that remote checksum offload saves time for checksums and encapsulation, on the tunnel where it
/// saves least.
fn saving(paired: &[Paired]) -> Option<Verdict> {
    let costs = paired.iter().filter_map(|paired| Some((paired.tx_cost?, paired.tunnel)));
    let (most, tunnel) = costs.max_by(|one, other| one.0.median.total_cmp(&other.0.median))?;
    Some(
        Evidence::median(&most, Bound::Under(1.0 - SAVED))
            .verdict(
                "RCO saves 15 % of TX checksum and encap time",
                format!("{:.0} % ({tunnel})", (1.0 - most.median) * 100.0),
                "short trials: a clock that is read for each packet costs as much as its checksum",
            )
            .for_every_row(),
    )
}

/// Judges the claim that the receiver spends more time on checksums with remote checksum offload than without it, if it
/// completes the checksums.
fn receiving(rows: &[&TunnelRow]) -> Option<Verdict> {
    let sums = |carrier, remote_checksum| {
        let mut rows = rows.iter().filter(|row| row.tunnel == Tunnel::Vxlan);
        let is_it = |row: &&&TunnelRow| {
            row.carrier == carrier && row.remote_checksum == Some(remote_checksum)
        };
        rows.find(is_it).map(|row| row.received_checksums())
    };
    let (summed, without) =
        (sums(TunnelCarrier::Completes, true)?, sums(TunnelCarrier::Grosso, false)?);
    let left = sums(TunnelCarrier::Grosso, true)?;
    let ms = |spread: Spread| digits(spread.median * 1e3);
    Some(Evidence::ratio(&summed, &without, Bound::AtLeast(RISES)).verdict(
        "RCO multiplies RX checksum time by 3.5 if summed",
        format!("{} ms/GB, {} without RCO, {} not summed", ms(summed), ms(without), ms(left)),
        "without it the receiver computes sums too, because no NIC has verified the packets",
    ))
}

/// Judges the claim that remote checksum offload costs no throughput: at most one percent, or less than the spread
/// while at least a quarter of the pairs are as fast with it.
fn throughput(paired: &[Paired]) -> Option<Verdict> {
    let least = paired.iter().map(|paired| paired.throughput.median).reduce(f64::min)?;
    let word = |paired: &Paired| match paired.throughput.median {
        EQUAL.. => Evidence::median(&paired.throughput, Bound::AtLeast(EQUAL)),
        _ => Evidence::exact(paired.as_fast >= AS_FAST),
    };
    Some(
        Evidence::all(paired.iter().map(word))
            .verdict(
                "RCO is at most 1 %, or the spread, slower",
                format!("{least:.2} times"),
                "the fields of the option, and other work on the machine",
            )
            .for_every_row(),
    )
}

/// Judges the claim that offloads speed up a tunnel.
fn offloads(rows: &[&TunnelRow]) -> Option<Verdict> {
    let speed = |carrier| {
        let mut rows = rows.iter().filter(|row| row.tunnel == Tunnel::Vxlan);
        let row = rows.find(|row| row.carrier == carrier && row.remote_checksum == Some(false))?;
        Some(row.megabits_a_second)
    };
    let (with, without) = (speed(TunnelCarrier::Grosso)?, speed(TunnelCarrier::Plain)?);
    Some(Evidence::ratio(&with, &without, Bound::AtLeast(WORTH)).verdict(
        "offloads make VXLAN 3 times faster",
        format!("{:.1} times", ratio(with.median, without.median)?),
        "a machine whose wake-ups cost more than its packets",
    ))
}

/// The smallest share that remote checksum offload must save.
const SAVED: f64 = 0.15;
/// Least ratio of the seconds in checksums at the receiver; in the source it was 3.5.
const RISES: f64 = 3.5;
/// Least share of pairs that are as fast, if the spread is greater than the difference.
const AS_FAST: f64 = 0.25;
/// Ratio of throughputs from which two count as equal.
const EQUAL: f64 = 0.99;
/// Least ratio of a tunnel's throughput with offloads to that without.
const WORTH: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::super::{TunnelFindings, tests::report};
    use super::*;

    fn said(report: &TunnelFindings, claim: &str) -> (bool, String) {
        let verdicts = judge(&report.groups, &report.paired);
        let verdict = verdicts.iter().find(|verdict| verdict.claim.starts_with(claim)).unwrap();
        (verdict.holds(), verdict.measured.clone())
    }

    #[test]
    fn a_receiver_that_sums_what_was_left_is_beside_one_without_it() {
        let claim = "RCO multiplies RX checksum time";
        let mut report = report().findings;
        let figures = "48.0 ms/GB, 12.0 without RCO, 1.00 not summed".to_owned();
        assert_eq!(said(&report, claim), (true, figures));
        let rows = report.groups.iter_mut().flat_map(|group| &mut group.rows);
        let mut summed = rows.filter(|row| row.carrier == TunnelCarrier::Completes);
        for watched in summed.next().unwrap().runs.iter_mut().flat_map(|run| &mut run.watched) {
            watched.paths[1].checksums_seconds = 0.02 * watched.gigabytes;
        }
        assert!(!said(&report, claim).0);
    }

    /// Returns the same results with changed pairs of one tunnel.
    fn changed(tunnel: Tunnel, change: impl Fn(&mut Paired)) -> TunnelFindings {
        let mut report = report().findings;
        let pairs = report.paired.iter_mut();
        pairs.filter(|paired| paired.tunnel == tunnel).for_each(change);
        report
    }

    #[test]
    fn every_claim_holds_of_what_is_saved_everywhere() {
        let report = report().findings;
        let verdicts = judge(&report.groups, &report.paired);
        assert_eq!(verdicts.len(), 4);
        assert!(verdicts.iter().all(|verdict| verdict.holds()), "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.claim.len() <= 52), "{verdicts:?}");
    }

    #[test]
    fn the_tunnel_that_saves_least_decides() {
        let at = |median: f64| {
            let change = |paired: &mut Paired| {
                paired.tx_cost = Some(Spread::of([median]));
            };
            said(&changed(Tunnel::SitGue, change), "RCO saves")
        };
        assert_eq!(at(0.86), (false, "14 % (SIT/GUE)".into()));
        assert_eq!(at(0.84), (true, "16 % (SIT/GUE)".into()));
    }

    #[test]
    fn slower_by_a_percent_or_within_the_spread_is_as_fast() {
        let at = |median: f64, as_fast: f64| {
            let change = |paired: &mut Paired| {
                (paired.throughput.median, paired.as_fast) = (median, as_fast);
            };
            said(&changed(Tunnel::Vxlan, change), "RCO is at most 1 %")
        };
        assert_eq!(at(0.989, 0.24), (false, "0.99 times".into()));
        assert!(at(0.991, 0.24).0);
        assert_eq!(at(0.95, 0.26), (true, "0.95 times".into()));
    }

    #[test]
    fn a_tunnel_without_offloads_is_three_times_as_slow() {
        let at = |megabits: f64| {
            let mut report = report().findings;
            let rows = report.groups.iter_mut().flat_map(|group| &mut group.rows);
            let ours = |row: &&mut TunnelRow| {
                row.carrier == TunnelCarrier::Grosso && row.remote_checksum == Some(false)
            };
            rows.filter(ours).for_each(|row| row.megabits_a_second.median = megabits);
            said(&report, "offloads make VXLAN")
        };
        // Without offloads the throughput is 2000.
        assert_eq!(at(5900.0), (false, "3.0 times".into()));
        assert_eq!(at(6050.0), (true, "3.0 times".into()));
    }

    #[test]
    fn without_a_row_there_is_no_verdict() {
        let mut report = report().findings;
        report.groups[0].rows.retain(|row| row.tunnel == Tunnel::Geneve);
        assert_eq!(judge(&report.groups, &Paired::all(&report.groups)), []);
    }
}
