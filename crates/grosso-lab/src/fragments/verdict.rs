//! Verdicts on whether the figures support the experiment's claims.

use std::time::Duration;

use super::{FragmentGroup, Receiver};
use crate::{
    statistics::Spread,
    verdict::{Bound, Evidence, Published, Unit, Verdict},
};

/// Judges the figures. `timeout` is the time after which an incomplete datagram is dropped.
pub(super) fn judge(groups: &[FragmentGroup], timeout: Duration) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    // A receiver that loses nothing and has unlimited buffers is silent only while the machine pauses.
    let lossless = groups.iter().find(|group| group.loss == 0.0 && !group.is_overload);
    let unlimited = lossless.and_then(|group| group.row(Receiver::Coalesces, None));
    let pauses = unlimited.map(|row| row.silence_ms);
    for group in groups {
        let claims = match group {
            FragmentGroup { is_overload: true, .. } => OVERLOAD,
            FragmentGroup { loss, .. } if *loss > 0.0 => LOSS,
            _ => NO_LOSS,
        };
        verdicts.extend(collapse(group, claims));
        verdicts.extend(cure(group, claims));
        if group.loss > 0.0 {
            verdicts.extend(silence(group, timeout, pauses.as_ref()));
        }
    }
    verdicts
}

/// Judges the claim that with the fewest buffers, a queuing receiver delivers almost none of the datagrams that a
/// coalescing receiver delivers.
fn collapse(group: &FragmentGroup, claims: Claims) -> Option<Verdict> {
    let buffers = group.rows.iter().filter_map(|row| row.buffers).min()?;
    let row = |receiver| group.row(receiver, Some(buffers));
    let queued = row(Receiver::Queues)?.goodput_gbps;
    let coalesced = row(Receiver::Coalesces)?.goodput_gbps;
    let verdict = Evidence::ratio(&queued, &coalesced, Bound::Under(1.0)).verdict(
        claims.collapse,
        Unit::Percent,
        "this machine is too slow for the offered rate, so the receiver can empty its buffers between datagrams",
    );
    let speeds = format!("{buffers} buffers");
    Some(verdict.with(speeds).beside(claims.published))
}

/// Judges the claim that coalescing needs few buffers: the goodput is the same as with unlimited buffers.
fn cure(group: &FragmentGroup, claims: Claims) -> Option<Verdict> {
    let unbounded = group.row(Receiver::Coalesces, None)?.goodput_gbps;
    let rows = group.rows.iter().filter(|row| row.receiver == Receiver::Coalesces);
    let few = rows.filter_map(|row| {
        let bound = Bound::AtLeast(CURED);
        Some((Evidence::ratio(&row.goodput_gbps, &unbounded, bound), row.buffers?))
    });
    let (evidence, buffers) = Evidence::all_of(few)?;
    Some(
        evidence
            .verdict(claims.cure, Unit::Percent, claims.not_cured)
            .with(format!("{buffers} buffers"))
            .for_every_row(),
    )
}

/// Judges the claim that a receiver that has lost a fragment is silent until the datagram times out. `pauses` are
/// silences caused by the machine itself; a silence must be longer to count.
fn silence(group: &FragmentGroup, timeout: Duration, pauses: Option<&Spread>) -> Vec<Verdict> {
    let timeout_ms = timeout.as_secs_f64() * 1e3;
    let rows = |receiver, few: bool| {
        let rows = group.rows.iter().filter(move |row| row.receiver == receiver);
        let fewest = rows.clone().filter_map(|row| row.buffers).min();
        rows.filter(move |row| !few || row.buffers == fewest).map(|row| row.silence_ms)
    };
    // The verdict is about the longest silence in any run, not about an average.
    let verdict = |claim, silences: Vec<Spread>, bound| {
        let evidence = |silence| {
            let evidence = Evidence::greatest(silence, bound);
            pauses.map_or(evidence, |pauses| evidence.unless_as_great(silence, pauses))
        };
        let evidence = Evidence::all(silences.iter().map(evidence))?;
        Some(evidence.verdict(claim, Unit::Of("ms"), PAUSED).for_every_row())
    };
    let short = Bound::Under(timeout_ms * SHORT);
    let judged = [
        verdict(
            "after a loss, coalescing never stalls for long",
            rows(Receiver::Coalesces, false).collect(),
            short,
        ),
        verdict(
            "after a loss, evicting never stalls for long",
            rows(Receiver::Evicts, false).collect(),
            short,
        ),
        verdict(
            "after a loss, queueing stalls until the timeout",
            rows(Receiver::Queues, true).collect(),
            Bound::AtLeast(timeout_ms * ABOUT),
        ),
    ];
    judged.into_iter().flatten().collect()
}

/// The claims about a group, and the cause to report if coalescing does not prevent the collapse.
#[derive(Clone, Copy)]
struct Claims {
    collapse: &'static str,
    cure: &'static str,
    not_cured: &'static str,
    /// The published ratio, if this group repeats the setting of the publication.
    published: Option<Published>,
}

const NO_LOSS: Claims = Claims {
    collapse: "without loss, queueing delivers less than coalescing",
    cure: "without loss, coalescing keeps 90 % of the goodput",
    not_cured: "this machine is too slow for the offered rate",
    published: None,
};
const LOSS: Claims = Claims {
    collapse: "with loss, queueing delivers less than coalescing",
    cure: "with loss, coalescing keeps 90 % of the goodput",
    ..NO_LOSS
};
const OVERLOAD: Claims = Claims {
    collapse: "overload: queueing delivers less than coalescing",
    cure: "overload: coalescing keeps 90 % of the goodput",
    not_cured: "while the receiver is busy, a NIC with few buffers drops frames of every datagram, but a NIC \
                with many buffers drops whole datagrams at the end of its queue",
    // In the publication, no fragment was lost on the wire.
    published: Some(Published::new(9.0 / 6600.0, "R2, in 2019")),
};
/// Cause to report if the timeout does not explain a silence.
const PAUSED: &str =
    "the receiver's thread was interrupted, or the buffers were never all in use at once";
/// Minimum fraction of the best goodput at which few buffers do no harm.
const CURED: f64 = 0.9;
/// Fraction of the timeout from which a silence counts as waiting for the timeout. The silences of a receiver that
/// never waits are far shorter.
const SHORT: f64 = 0.25;
const ABOUT: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::super::{FragmentFindings, FragmentRow, tests::report};
    use super::*;
    use crate::verdict::Answer;

    const HALF: Duration = Duration::from_millis(500);

    /// Returns whether a claim holds according to its verdict, and the verdict's figures.
    fn said(report: &FragmentFindings, claim: &str) -> (bool, String) {
        let verdicts = judge(&report.groups, HALF);
        let verdict = verdicts.iter().find(|verdict| verdict.claim.starts_with(claim)).unwrap();
        (verdict.holds(), verdict.measured.clone())
    }

    /// Returns the made-up results with one row changed.
    fn changed(
        receiver: Receiver,
        buffers: Option<usize>,
        change: impl Fn(&mut FragmentRow),
    ) -> FragmentFindings {
        let mut report = report().findings;
        let rows = report.groups.iter_mut().flat_map(|group| &mut group.rows);
        rows.filter(|row| row.receiver == receiver && row.buffers == buffers).for_each(change);
        report
    }

    #[test]
    fn every_claim_holds_of_a_collapse_and_its_cure() {
        let verdicts = judge(&report().findings.groups, HALF);
        assert_eq!(verdicts.len(), 9);
        assert!(verdicts.iter().all(|verdict| verdict.holds()), "{verdicts:?}");
        // A claim and its figures must fit on a line of 80 columns.
        assert!(verdicts.iter().all(|verdict| verdict.claim.len() <= 52), "{verdicts:?}");
    }

    #[test]
    fn queueing_that_gets_as_much_through_has_not_collapsed() {
        let at = |gbps: f64| {
            let report = changed(Receiver::Queues, Some(32), |row| {
                row.goodput_gbps = Spread::of([gbps; 5]);
            });
            said(&report, "without loss, queueing delivers")
        };
        let coalesced = report().findings.groups[0].rows[0].goodput_gbps.median;
        assert_eq!(at(coalesced * 1.01), (false, "101 % (32 buffers)".into()));
        assert_eq!(at(coalesced * 0.049), (true, "4.9 % (32 buffers)".into()));
        // Different results with more buffers change no verdict.
        let report =
            changed(Receiver::Queues, Some(256), |row| row.goodput_gbps = Spread::of([1.4; 5]));
        assert!(said(&report, "with loss, queueing delivers").0);
    }

    #[test]
    fn any_number_of_buffers_that_slows_coalescing_is_a_harm() {
        let unbounded =
            report().findings.groups[1].row(Receiver::Coalesces, None).unwrap().goodput_gbps.median;
        for (share, expected) in
            [(0.89, (false, "89 % (1024 buffers)")), (0.91, (true, "91 % (1024 buffers)"))]
        {
            let change =
                |row: &mut FragmentRow| row.goodput_gbps = Spread::of([unbounded * share; 5]);
            let report = changed(Receiver::Coalesces, Some(1024), change);
            let (holds, measured) = said(&report, "with loss, coalescing keeps");
            assert_eq!((holds, measured.as_str()), expected);
        }
    }

    #[test]
    fn the_longest_silence_of_any_run_decides() {
        let silent =
            |receiver, buffers, ms: f64| changed(receiver, buffers, |row| row.silence_ms.max = ms);
        let coalesced = |ms| {
            said(&silent(Receiver::Coalesces, Some(256), ms), "after a loss, coalescing never")
        };
        assert_eq!(coalesced(130.0), (false, "130 ms".into()));
        assert!(coalesced(120.0).0);
        assert!(!said(&silent(Receiver::Evicts, Some(1024), 130.0), "after a loss, evicting").0);
        // With few buffers, a receiver that queues fragments waits for the timeout; with more buffers it may not have
        // to.
        let queued = |buffers, ms| {
            said(&silent(Receiver::Queues, buffers, ms), "after a loss, queueing stalls").0
        };
        assert!(!queued(Some(64), 390.0) && queued(Some(64), 410.0) && queued(Some(1024), 10.0));
    }

    #[test]
    fn a_silence_that_the_machine_also_causes_without_loss_decides_nothing() {
        let answer = |pauses: [f64; 5]| {
            let mut report = changed(Receiver::Coalesces, Some(256), |row| {
                row.silence_ms = Spread::of([140.0, 150.0, 160.0, 170.0, 180.0]);
            });
            let mut unlimited = report.groups[0].rows.iter_mut();
            let is_unlimited =
                |row: &&mut FragmentRow| (row.receiver, row.buffers) == (Receiver::Coalesces, None);
            unlimited.find(is_unlimited).unwrap().silence_ms = Spread::of(pauses);
            let verdicts = judge(&report.groups, HALF);
            let mut lines = verdicts.into_iter();
            lines
                .find(|verdict| verdict.claim == "after a loss, coalescing never stalls for long")
                .unwrap()
        };
        assert!(answer([10.0, 12.0, 14.0, 16.0, 18.0]).is_contradicted());
        let open = answer([130.0, 155.0, 165.0, 175.0, 185.0]);
        assert!(matches!(open.answer, Answer::Undecided { .. }), "{open}");
    }

    #[test]
    fn without_a_row_there_is_no_verdict() {
        let mut report = report().findings;
        report.groups[1].rows.retain(|row| row.receiver == Receiver::Evicts);
        let claims: Vec<_> =
            judge(&report.groups[1..2], HALF).iter().map(|v| v.claim.clone()).collect();
        assert_eq!(claims, ["after a loss, evicting never stalls for long"]);
    }
}
