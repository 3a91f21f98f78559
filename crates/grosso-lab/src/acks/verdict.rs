//! Verdicts on whether the figures support the experiment's claims.

use super::{
    AckFindings, AckRow, BEST_2011, Growth, Handling, NicOf, Overtaken, WINDOWS, transfer,
};
use crate::{
    model::Counting,
    statistics::{Spread, digits, thousands},
    trial::Measured,
    verdict::{Bound, Evidence, Published, Unit, Verdict},
};

/// Returns the verdicts on the figures.
pub(super) fn judge(findings: &AckFindings) -> Vec<Verdict> {
    let AckFindings { rows, senders, transfers, overtaken, growth } = findings;
    let mut verdicts = transfer::judge(transfers, *senders);
    verdicts.extend(share(
        "sender: passing ACKs through costs no throughput",
        rows,
        Handling::Passed,
    ));
    verdicts.extend(share("sender: ACK vectors cost no throughput", rows, Handling::Vector));
    verdicts.extend(share(
        "sender: profile rsc-82599 costs no throughput",
        rows,
        Handling::Hardware,
    ));
    verdicts.extend(starved(rows));
    verdicts.extend(reads(rows));
    verdicts.extend(fewer(rows));
    verdicts.extend(expanded(rows));
    verdicts.extend(best_window(rows));
    verdicts.extend(overtaking(*overtaken));
    verdicts.extend(limited(growth));
    verdicts.extend(counted(growth));
    verdicts
}

/// Judges a sender's throughput relative to a sender with the same window whose arriving packets are not merged.
fn share(claim: &'static str, rows: &[AckRow], handling: Handling) -> Option<Verdict> {
    let evidence = Evidence::median(&shares(rows, handling)?, Bound::AtLeast(COSTS));
    Some(evidence.verdict(claim, Unit::Percent, HELD))
}

/// Returns the ratio of the throughput to that without merging, for each run with any window and hold time; `None` if
/// there are no runs.
fn shares(rows: &[AckRow], handling: Handling) -> Option<Spread> {
    let senders = || rows.iter().filter(|row| row.side == NicOf::Sender);
    let off = |row: &AckRow| {
        let mut off = senders().filter(|off| off.handling == Handling::Off);
        off.find(|off| off.window_bytes == row.window_bytes)
    };
    let rows = senders().filter(|row| row.handling == handling);
    let shares = rows.filter_map(|row| Some((row, off(row)?))).flat_map(|(row, off)| {
        let runs = row.runs.iter().zip(&off.runs);
        runs.map(|(run, off)| run.gigabits_a_second() / off.gigabits_a_second())
    });
    some(Spread::of(shares))
}

fn some(spread: Spread) -> Option<Spread> {
    (!spread.values().is_empty()).then_some(spread)
}

/// Returns the ratio of acknowledgments that reached the sender to acknowledgments that the receiver sent, for each
/// run.
fn reached<'a>(rows: impl Iterator<Item = &'a AckRow>) -> Option<Spread> {
    let runs = rows.flat_map(|row| &row.runs);
    let passed = |run: &Measured| run.acknowledgements_passed.unwrap_or(0) as f64;
    some(Spread::of(runs.map(|run| passed(run) / run.acknowledgements as f64)))
}

/// Judges the claim that merging reduces the number of acknowledgments that reach the sender.
fn starved(rows: &[AckRow]) -> Option<Verdict> {
    let merged =
        rows.iter().filter(|row| row.side == NicOf::Sender && row.handling == Handling::Merged);
    Some(Evidence::median(&reached(merged)?, Bound::Under(0.5)).verdict(
        "sender: fewer than half of the ACKs arrive if merged",
        Unit::Percent,
        "most polls returned only one acknowledgment",
    ))
}

/// Judges a receiver's reads per gigabyte relative to a receiver whose arriving packets are not merged.
fn reads(rows: &[AckRow]) -> Option<Verdict> {
    let receivers = || rows.iter().filter(|row| row.side == NicOf::Receiver);
    let reads = |handling| {
        let rows = receivers().filter(|row| row.handling == handling);
        Spread::of(rows.map(|row| row.reads_a_gigabyte.median))
    };
    let (passed, off) = (reads(Handling::Passed), reads(Handling::Off));
    let merging = receivers().filter(|row| row.handling != Handling::Off);
    let segments = some(Spread::of(merging.map(|row| row.segments_a_unit.median)))?;
    let verdict = Evidence::ratio(&passed, &off, Bound::Under(1.0)).verdict(
        "receiver: merging reduces reads",
        Unit::Percent,
        "if packets arrive faster than the receiver reads them, one read returns several packets even \
         without merging",
    );
    let segments = format!("{:.1} segments per frame", segments.median);
    Some(verdict.with(segments).beside(Published::new(1.0 / 3.0, "R3, in 2011")))
}

/// Judges the claim that a merging receiver sends fewer acknowledgments for the same bytes.
fn fewer(rows: &[AckRow]) -> Option<Verdict> {
    let sent = |handling| {
        let rows = rows.iter().filter(|row| row.side == NicOf::Receiver);
        let runs = rows.filter(|row| row.handling == handling).flat_map(|row| &row.runs);
        some(Spread::of(runs.map(|run| run.acknowledgements as f64 / (run.bytes as f64 * 1e-9))))
    };
    let (merged, off) = (sent(Handling::Passed)?, sent(Handling::Off)?);
    let verdict = Evidence::ratio(&merged, &off, Bound::Under(1.0)).verdict(
        "receiver: merging reduces ACKs",
        Unit::Percent,
        "the receiver reads so rarely that each read acknowledges many packets, even without merging",
    );
    let [merged, off] = [merged, off].map(|acks| thousands(acks.median));
    Some(verdict.with(format!("{merged} per GB, {off} without merging")))
}

/// Judges the claim that a window of 100 KB is best.
fn best_window(rows: &[AckRow]) -> Option<Verdict> {
    let row = |window| {
        rows.iter().find(|row| {
            row.side == NicOf::Receiver
                && row.handling == Handling::Passed
                && row.hold_us > 0.0
                && row.window_bytes == window
        })
    };
    let speed = |window| row(window).map(|row| row.gigabits_a_second);
    let best = speed(Some(BEST_2011))?;
    let others = WINDOWS.into_iter().filter(|window| *window != Some(BEST_2011));
    let others = others.filter_map(|window| Some((speed(window)?, window)));
    let evidences = others.map(|(other, window)| {
        (Evidence::ratio(&best, &other, Bound::AtLeast(1.0)), (other.median, window))
    });
    let (evidence, (other, window)) = Evidence::all_of(evidences)?;
    let window =
        window.map_or_else(|| "the usual window".into(), |bytes| format!("{} KB", bytes / 1000));
    let verdict = evidence.verdict(
        "receiver: a window of 100 KB is best",
        Unit::Times,
        "on this machine, a larger window is better; in 2011, a window of 100 KB may have fitted into a CPU cache",
    );
    let speeds = format!("{} Gb/s; with {window}, {} Gb/s", digits(best.median), digits(other));
    Some(verdict.with(speeds).for_every_row())
}

/// Judges the claim that, with expansion, the sender gets more acknowledgments than the receiver sends.
fn expanded(rows: &[AckRow]) -> Option<Verdict> {
    let expanded = rows.iter().filter(|row| row.handling == Handling::Expanded);
    Some(Evidence::median(&reached(expanded)?, Bound::AtLeast(1.0)).verdict(
        "expansion delivers more ACKs than the receiver sends",
        Unit::Times,
        "most trains contain only one packet",
    ))
}

/// Tests the claim that acknowledgments overtake data if they bypass the coalescer, but not if they pass through it.
fn overtaking(Overtaken { past_it, through_it, .. }: Overtaken) -> Option<Verdict> {
    let past = Evidence::exact(past_it as f64, Bound::AtLeast(1.0));
    let through = Evidence::exact(through_it as f64, Bound::Under(1.0));
    let verdict = Evidence::all([past, through])?.verdict(
        "ACKs overtake data only if they bypass the coalescer",
        Unit::Of("packets overtaken"),
        DEFECT,
    );
    Some(verdict.with(format!("{past_it} with the bypass, {through_it} without")))
}

/// Judges the claim that the limit L from RFC 3465 slows down a sender that counts bytes.
fn limited(growth: &[Growth]) -> Option<Verdict> {
    let alone = round_trips(growth, |merged, _| merged == 1)?;
    let merged = round_trips(growth, |merged, counted| merged > 2 && !counted)?;
    let evidence = Evidence::exact(f64::from(merged) / f64::from(alone), Bound::AtLeast(2.0));
    let verdict =
        evidence.verdict("model, L = 2: merged ACKs slow down slow start", Unit::Times, DEFECT);
    Some(verdict.with(format!("{merged} round trips instead of {alone}")))
}

/// Judges the claim that the sender needs only the number of merged acknowledgments.
fn counted(growth: &[Growth]) -> Option<Verdict> {
    let alone = round_trips(growth, |merged, _| merged == 1)?;
    let counted = round_trips(growth, |merged, counted| merged > 2 && counted)?;
    let evidence = Evidence::exact(f64::from(alone) / f64::from(counted), Bound::AtLeast(1.0));
    let verdict =
        evidence.verdict("model, L = 2: merged ACKs are harmless if counted", Unit::Times, DEFECT);
    Some(verdict.with(format!("{counted} round trips, {alone} without merging")))
}

fn round_trips(growth: &[Growth], wanted: impl Fn(usize, bool) -> bool) -> Option<u32> {
    let of = |growth: &&Growth| {
        growth.counting == Counting::Bytes { limit: 2 } && wanted(growth.merged, growth.is_counted)
    };
    growth.iter().find(of).map(|growth| growth.slow_start_round_trips)
}

/// Cause to report if measured figures contradict a claim.
const HELD: &str =
    "acknowledgments are held, and on a path without delay, this time limits the sender";
/// Cause to report if exact figures contradict a claim.
const DEFECT: &str = "a bug in Grosso, because the figures are exact counts";
/// Minimum fraction of the throughput without merging at which a treatment counts as free. Repeated measurements of the
/// same setting differ by less.
const COSTS: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::super::{SenderKind, TransferRow, Worth, tests::report};
    use super::*;
    use crate::verdict::Answer;

    /// Returns the made-up results, with kernel senders.
    fn kernel() -> AckFindings {
        AckFindings { senders: SenderKind::Kernel, ..report().findings }
    }

    fn said(findings: &AckFindings, claim: &str) -> bool {
        let verdicts = judge(findings);
        verdicts.iter().find(|verdict| verdict.claim.contains(claim)).unwrap().holds()
    }

    /// Returns the results from `kernel` with `change` applied to the rows for one side and one handling.
    fn changed(side: NicOf, handling: Handling, change: impl Fn(&mut AckRow)) -> AckFindings {
        let mut findings = report().findings;
        let rows = findings.rows.iter_mut();
        rows.filter(|row| row.side == side && row.handling == handling).for_each(change);
        findings
    }

    #[test]
    fn every_claim_holds_of_what_was_published() {
        let verdicts = judge(&kernel());
        assert_eq!(verdicts.len(), 13 + 6 + 11);
        assert!(verdicts.iter().all(|verdict| verdict.holds()), "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.claim.len() <= 52), "{verdicts:?}");
    }

    #[test]
    fn verdicts_distinguish_costly_handling_from_free_handling() {
        let at = |handling, gbps| {
            changed(NicOf::Sender, handling, |row| {
                row.runs.iter_mut().for_each(|run| run.bytes = (gbps * 125e6) as u64);
            })
        };
        assert!(!said(&at(Handling::Passed, 6.0), "passing ACKs through"));
        assert!(!said(&at(Handling::Vector, 6.0), "ACK vectors"));
        assert!(!said(&at(Handling::Hardware, 6.0), "rsc-82599"));
    }

    #[test]
    fn what_does_no_harm_cannot_be_cured() {
        // In these results, neither merging nor the cure for it slows down a transfer.
        let mut findings = kernel();
        let off = |row: &TransferRow| (row.side, row.worth, row.round_trip_ms.to_bits());
        let others: Vec<TransferRow> = findings
            .transfers
            .iter()
            .filter(|row| row.handling == Handling::Off)
            .cloned()
            .collect();
        for row in &mut findings.transfers {
            if let Some(same) = others.iter().find(|other| off(other) == off(row)) {
                row.milliseconds = same.milliseconds;
            }
        }
        let verdicts = judge(&findings);
        let answer = |claim: &str| {
            verdicts.iter().find(|verdict| verdict.claim == claim).expect(claim).answer
        };
        assert!(matches!(
            answer("L = 2: merged ACKs halve the speed"),
            Answer::NotReproduced { .. }
        ));
        for cure in [
            "L = 2: unmerged pure ACKs restore the speed",
            "L = 2: expanded ACKs restore the speed",
            "ACK counting: expanded ACKs do not restore the speed",
        ] {
            assert!(matches!(answer(cure), Answer::Undecided { .. }), "{cure}");
        }
    }

    #[test]
    fn reads_and_acknowledgments_are_counted() {
        let more =
            changed(NicOf::Receiver, Handling::Passed, |row| row.reads_a_gigabyte.median = 7e4);
        assert!(!said(&more, "merging reduces reads"));
        let all = changed(NicOf::Sender, Handling::Merged, |row| {
            let runs = row.runs.iter_mut();
            runs.for_each(|run| run.acknowledgements_passed = Some(run.acknowledgements));
        });
        assert!(!said(&all, "fewer than half"));
        let none = changed(NicOf::Receiver, Handling::Expanded, |row| {
            let runs = row.runs.iter_mut();
            runs.for_each(|run| run.acknowledgements_passed = Some(run.acknowledgements / 2));
        });
        assert!(!said(&none, "expansion delivers more"));
    }

    #[test]
    fn little_harm_does_not_show_what_expansion_leaves() {
        let answer = |harm: f64| {
            let mut findings = kernel();
            let slowed = |handling| match handling {
                Handling::Passed => harm,
                Handling::Expanded => 1.05,
                _ => 1.0,
            };
            let rows = findings.transfers.iter_mut();
            for row in rows.filter(|row| row.side == NicOf::Receiver && row.worth == Worth::One) {
                let times = [300.0, 301.0, 302.0].map(|time| time * slowed(row.handling));
                row.milliseconds = Spread::of(times);
            }
            let claim = "ACK counting: expanded ACKs do not restore the speed";
            judge(&findings).into_iter().find(|verdict| verdict.claim == claim).unwrap().answer
        };
        assert!(matches!(answer(1.4), Answer::Undecided { .. }));
        assert!(matches!(answer(2.0), Answer::NotReproduced { .. }));
    }

    #[test]
    fn the_model_is_asked_too() {
        // Modeled senders: one that merging barely slows down, and one that is slow although it knows the number of
        // merged acknowledgments.
        let slow = |is_counted, round_trips| {
            let mut findings = report().findings;
            let growth = findings.growth.iter_mut();
            growth
                .filter(|growth| growth.merged > 2 && growth.is_counted == is_counted)
                .for_each(|growth| growth.slow_start_round_trips = round_trips);
            findings
        };
        assert!(!said(&slow(false, 13), "merged ACKs slow down"));
        assert!(said(&slow(false, 15), "merged ACKs slow down"));
        assert!(!said(&slow(true, 8), "harmless if counted"));
        let mut past = report().findings;
        past.overtaken.through_it = 1;
        assert!(!said(&past, "bypass the coalescer"));
        // Without results for expansion, there is no verdict on expansion.
        let mut findings = kernel();
        findings.rows.retain(|row| row.handling != Handling::Expanded);
        assert_eq!(judge(&findings).len(), 13 + 6 + 10);
        // Without rows, there is no verdict on streams.
        findings.rows.clear();
        assert_eq!(judge(&findings).len(), 13 + 6 + 3);
    }

    #[test]
    fn a_verdict_states_that_its_sender_was_in_userspace() {
        let verdicts = report().verdicts;
        let told = verdicts.iter().filter(|verdict| verdict.measured.ends_with(", in userspace)"));
        assert_eq!(told.count(), 13 + 6);
        let elsewhere = verdicts.iter().filter(|verdict| verdict.to_string().starts_with("cannot"));
        assert_eq!(elsewhere.count(), 1, "the behaviour of the kernel's sender is unknown");
        assert!(judge(&kernel()).iter().all(|verdict| !verdict.to_string().contains("userspace")));
    }
}
