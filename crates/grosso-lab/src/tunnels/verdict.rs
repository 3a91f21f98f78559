//! Verdicts on whether the figures support the experiment's claims.

use super::{Paired, TunnelCarrier, TunnelGroup, TunnelRow};
use crate::{
    statistics::{Spread, digits},
    tunnel::Tunnel,
    verdict::{Bound, Evidence, Published, Unit, Verdict},
};

/// Returns the verdicts on the figures.
pub(super) fn judge(groups: &[TunnelGroup], paired: &[Paired]) -> Vec<Verdict> {
    let rows: Vec<&TunnelRow> = groups.iter().flat_map(|group| &group.rows).collect();
    let verdicts = [saving(paired), receiving(&rows), throughput(paired), offloads(&rows)];
    verdicts.into_iter().flatten().collect()
}

/// Judges the claim that remote checksum offload reduces the time for checksums and encapsulation, using the tunnel
/// with the smallest reduction.
fn saving(paired: &[Paired]) -> Option<Verdict> {
    let costs = paired.iter().filter_map(|paired| {
        Some((Evidence::median(&paired.tx_cost?, Bound::Under(1.0)), paired.tunnel))
    });
    let (evidence, tunnel) = Evidence::all_of(costs)?;
    let verdict = evidence.verdict(
        "RCO saves TX checksum and encapsulation time",
        Unit::Times,
        "in short trials, reading the clock costs as much per packet as its checksum",
    );
    Some(verdict.with(tunnel).for_every_row())
}

/// Judges the claim that remote checksum offload increases the time that a receiver spends on checksums, if it
/// completes them.
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
    let verdict = Evidence::ratio(&summed, &without, Bound::AtLeast(1.0)).verdict(
        "RCO with completed checksums raises RX checksum time",
        Unit::Times,
        "the receiver also computes checksums without RCO, because no NIC verifies the packets",
    );
    let costs = format!(
        "{} ms/GB, {} without RCO, {} with partial checksums",
        ms(summed),
        ms(without),
        ms(left)
    );
    Some(verdict.with(costs).beside(Published::new(1.81 / 0.51, "R4, in 2014")))
}

/// Judges the claim that remote checksum offload does not reduce the throughput, using the tunnel with the greatest
/// reduction.
fn throughput(paired: &[Paired]) -> Option<Verdict> {
    let evidences = paired
        .iter()
        .map(|paired| (Evidence::median(&paired.throughput, Bound::AtLeast(EQUAL)), paired.tunnel));
    let (evidence, tunnel) = Evidence::all_of(evidences)?;
    let verdict = evidence.verdict(
        "RCO is at most 1 % slower",
        Unit::Times,
        "the work for the RCO header fields, or other load on the machine",
    );
    let published = Published::new(36380.0 / 36591.0, "R4, in 2014");
    Some(verdict.with(tunnel).beside(published).for_every_row())
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
        Unit::Times,
        "waking a thread costs more on this machine than processing its packets",
    ))
}

/// Minimum ratio for two throughputs to count as equal.
const EQUAL: f64 = 0.99;
/// Minimum ratio of a tunnel's throughput with offloads to its throughput without them.
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
        let claim = "RCO with completed checksums";
        let mut report = report().findings;
        let figures =
            "4.00 times (48.0 ms/GB, 12.0 without RCO, 1.00 with partial checksums)".to_owned();
        assert_eq!(said(&report, claim), (true, figures));
        let rows = report.groups.iter_mut().flat_map(|group| &mut group.rows);
        let mut summed = rows.filter(|row| row.carrier == TunnelCarrier::Completes);
        for watched in summed.next().unwrap().runs.iter_mut().flat_map(|run| &mut run.watched) {
            watched.paths[1].checksums_seconds = 0.01 * watched.gigabytes;
        }
        assert!(!said(&report, claim).0);
    }

    /// Returns the results with `change` applied to the pairs of one tunnel.
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
                paired.tx_cost = Some(Spread::of([median; 5]));
            };
            said(&changed(Tunnel::SitGue, change), "RCO saves")
        };
        assert_eq!(at(1.02), (false, "1.02 times (SIT/GUE)".into()));
        assert_eq!(at(0.98), (true, "0.98 times (SIT/GUE)".into()));
    }

    #[test]
    fn the_tunnel_that_loses_most_decides() {
        let at = |median: f64| {
            let change = |paired: &mut Paired| paired.throughput = Spread::of([median; 5]);
            said(&changed(Tunnel::Vxlan, change), "RCO is at most 1 %")
        };
        assert_eq!(at(0.989), (false, "0.99 times (VXLAN)".into()));
        assert_eq!(at(0.991), (true, "0.99 times (VXLAN)".into()));
    }

    #[test]
    fn a_tunnel_without_offloads_is_three_times_as_slow() {
        let at = |megabits: f64| {
            let mut report = report().findings;
            let rows = report.groups.iter_mut().flat_map(|group| &mut group.rows);
            let ours = |row: &&mut TunnelRow| {
                row.carrier == TunnelCarrier::Grosso && row.remote_checksum == Some(false)
            };
            rows.filter(ours).for_each(|row| row.megabits_a_second = Spread::of([megabits; 5]));
            said(&report, "offloads make VXLAN")
        };
        // Without offloads, the throughput is 2000 Mb/s.
        assert_eq!(at(5900.0), (false, "2.95 times".into()));
        assert_eq!(at(6200.0), (true, "3.10 times".into()));
    }

    #[test]
    fn without_a_row_there_is_no_verdict() {
        let mut report = report().findings;
        report.groups[0].rows.retain(|row| row.tunnel == Tunnel::Geneve);
        assert_eq!(judge(&report.groups, &Paired::all(&report.groups)), []);
    }
}
