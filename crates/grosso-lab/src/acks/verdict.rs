//! Verdicts: whether the figures support the experiment's claims.

use super::{AckFindings, AckRow, Growth, Handling, NicOf, model::Counting};
use crate::{statistics::Spread, verdict::Verdict};

/// Verdicts on the figures.
pub(super) fn judge(findings: &AckFindings) -> Vec<Verdict> {
    let AckFindings { rows, overtaken, growth } = findings;
    let mut verdicts = Vec::new();
    verdicts.extend(share(
        "sender: merged acknowledgments cost throughput",
        rows,
        Handling::Merged,
    ));
    verdicts.extend(share("sender: passed on, they cost none", rows, Handling::Passed));
    verdicts.extend(share("sender: in vectors, they cost none", rows, Handling::Vector));
    verdicts.extend(share("sender: rsc-82599 costs none", rows, Handling::Hardware));
    verdicts.extend(starved(rows));
    verdicts.extend(reads(rows));
    verdicts.extend(expanded(rows));
    verdicts.push(Verdict {
        claim: "past the coalescer they overtake; through it none",
        holds: overtaken.past_it > 0 && overtaken.through_it == 0,
        measured: format!("{}, {}", overtaken.past_it, overtaken.through_it),
    });
    verdicts.extend(limited(growth));
    verdicts.extend(counted(growth));
    verdicts
}

/// Throughput of a sender, relative to one whose arriving packets are not merged, over all windows and holds.
fn share(claim: &'static str, rows: &[AckRow], handling: Handling) -> Option<Verdict> {
    let Spread { median, min, .. } = Spread::of(shares(rows, handling));
    let holds = (median < COSTS) == (handling == Handling::Merged);
    let measured = format!("{:.0} % of off ({:.0})", median * 100.0, min * 100.0);
    (median > 0.0).then_some(Verdict { claim, holds, measured })
}

/// Shares by the best runs: other load on the machine makes runs slower, never faster.
fn shares(rows: &[AckRow], handling: Handling) -> Vec<f64> {
    let senders = || rows.iter().filter(|row| row.side == NicOf::Sender);
    let off = |row: &AckRow| {
        let is_off =
            |off: &&AckRow| off.handling == Handling::Off && off.window_bytes == row.window_bytes;
        senders().find(is_off).map(|off| off.gigabits_a_second.max)
    };
    let rows = senders().filter(|row| row.handling == handling);
    rows.filter_map(|row| Some(row.gigabits_a_second.max / off(row)?)).collect()
}

/// The claim that fewer acknowledgments reach the sender if they are merged.
fn starved(rows: &[AckRow]) -> Option<Verdict> {
    let merged =
        rows.iter().filter(|row| row.side == NicOf::Sender && row.handling == Handling::Merged);
    let reached = merged
        .map(|row| row.acknowledgments_reached.median / row.acknowledgments_sent.median.max(1.0));
    let Spread { median, .. } = Spread::of(reached);
    Some(Verdict {
        claim: "sender: merged, under half of them reach it",
        holds: median < 0.5,
        measured: format!("{:.0} %", median * 100.0),
    })
}

/// Reads of a receiver for a gigabyte, relative to one whose arriving packets are not merged.
fn reads(rows: &[AckRow]) -> Option<Verdict> {
    let receivers = || rows.iter().filter(|row| row.side == NicOf::Receiver);
    let reads = |handling| {
        Spread::of(
            receivers()
                .filter(|row| row.handling == handling)
                .map(|row| row.reads_a_gigabyte.median),
        )
    };
    let share = reads(Handling::Passed).median / reads(Handling::Off).median;
    let merging = receivers().filter(|row| row.handling != Handling::Off);
    let segments = Spread::of(merging.map(|row| row.segments_a_unit.median));
    Some(Verdict {
        claim: "receiver: reads fall to a third or better",
        holds: share <= THIRD,
        measured: format!("{:.0} %; {:.1} segm.", share * 100.0, segments.median),
    })
}

/// The claim that the sender gets more acknowledgments than the receiver sends if they are expanded.
fn expanded(rows: &[AckRow]) -> Option<Verdict> {
    let expanded = rows.iter().filter(|row| row.handling == Handling::Expanded);
    let grown = expanded
        .map(|row| row.acknowledgments_reached.median / row.acknowledgments_sent.median.max(1.0));
    let Spread { median, .. } = Spread::of(grown);
    (median > 0.0).then(|| Verdict {
        claim: "receiver: expanded, more ACKs arrive than it sends",
        holds: median >= GROWN,
        measured: format!("{median:.1} for one"),
    })
}

/// The claim that L limits a sender that counts bytes.
fn limited(growth: &[Growth]) -> Option<Verdict> {
    let alone = round_trips(growth, |merged, _| merged == 1)?;
    let merged = round_trips(growth, |merged, counted| merged > 2 && !counted)?;
    Some(Verdict {
        claim: "model, L = 2: superframes of ACKs slow the start",
        holds: merged > 2 * alone,
        measured: format!("{merged} not {alone} trips"),
    })
}

/// The claim that the sender needs only the count of merged acknowledgments.
fn counted(growth: &[Growth]) -> Option<Verdict> {
    let alone = round_trips(growth, |merged, _| merged == 1)?;
    let counted = round_trips(growth, |merged, counted| merged > 2 && counted)?;
    Some(Verdict {
        claim: "model, L = 2: with their count they do not",
        holds: counted <= alone,
        measured: format!("{counted} and {alone} trips"),
    })
}

fn round_trips(growth: &[Growth], wanted: impl Fn(usize, bool) -> bool) -> Option<u32> {
    let of = |growth: &&Growth| {
        growth.counting == Counting::Bytes { limit: 2 } && wanted(growth.merged, growth.is_counted)
    };
    growth.iter().find(of).map(|growth| growth.slow_start_round_trips)
}

/// Share of throughput below which a treatment is costly: two measurements of the same setting differ by less.
const COSTS: f64 = 0.85;
/// Least ratio of acknowledgments that arrive to those sent that shows expansion: others are not expanded, and dilute
/// it.
const GROWN: f64 = 1.5;
/// A third, with a margin for the difference of two measurements of the same setting.
const THIRD: f64 = 0.35;

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    fn said(findings: &AckFindings, claim: &str) -> bool {
        let verdicts = judge(findings);
        verdicts.iter().find(|verdict| verdict.claim.contains(claim)).unwrap().holds
    }

    /// The same results, but for the rows of one side and handling.
    fn changed(side: NicOf, handling: Handling, change: impl Fn(&mut AckRow)) -> AckFindings {
        let mut findings = report().findings;
        let rows = findings.rows.iter_mut();
        rows.filter(|row| row.side == side && row.handling == handling).for_each(change);
        findings
    }

    #[test]
    fn every_claim_holds_of_what_was_published() {
        let verdicts = report().verdicts;
        assert_eq!(verdicts.len(), 10);
        assert!(verdicts.iter().all(|verdict| verdict.holds), "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.claim.len() <= 52), "{verdicts:?}");
    }

    #[test]
    fn what_costs_nothing_and_what_does_are_told_apart() {
        let at = |handling, gbps| {
            changed(NicOf::Sender, handling, |row| row.gigabits_a_second.max = gbps)
        };
        assert!(!said(&at(Handling::Merged, 7.9), "merged acknowledgments cost"));
        assert!(!said(&at(Handling::Passed, 6.0), "passed on"));
        assert!(!said(&at(Handling::Vector, 6.0), "in vectors"));
        assert!(!said(&at(Handling::Hardware, 6.0), "rsc-82599"));
    }

    #[test]
    fn reads_and_acknowledgments_are_counted() {
        let more =
            changed(NicOf::Receiver, Handling::Passed, |row| row.reads_a_gigabyte.median = 3e4);
        assert!(!said(&more, "reads fall"));
        let all = changed(NicOf::Sender, Handling::Merged, |row| {
            row.acknowledgments_reached = row.acknowledgments_sent;
        });
        assert!(!said(&all, "under half"));
        let none = changed(NicOf::Receiver, Handling::Expanded, |row| {
            row.acknowledgments_reached = row.acknowledgments_sent;
        });
        assert!(!said(&none, "more ACKs arrive"));
    }

    #[test]
    fn the_model_is_asked_too() {
        // A sender's model in which merging does little harm, and one in which the count does not help.
        let slow = |is_counted, round_trips| {
            let mut findings = report().findings;
            let growth = findings.growth.iter_mut();
            growth
                .filter(|growth| growth.merged > 2 && growth.is_counted == is_counted)
                .for_each(|growth| growth.slow_start_round_trips = round_trips);
            findings
        };
        assert!(!said(&slow(false, 14), "superframes of ACKs slow"));
        assert!(said(&slow(false, 15), "superframes of ACKs slow"));
        assert!(!said(&slow(true, 8), "with their count"));
        let mut past = report().findings;
        past.overtaken.through_it = 1;
        assert!(!said(&past, "past the coalescer"));
        // Without expansion, the claim is not made.
        let mut findings = report().findings;
        findings.rows.retain(|row| row.handling != Handling::Expanded);
        assert_eq!(judge(&findings).len(), 9);
    }
}
