//! Verdicts: whether the figures support the experiment's claims.

use super::{AckFindings, AckRow, BEST_2011, Growth, Handling, NicOf, WINDOWS, transfer};
use crate::{
    model::Counting,
    statistics::{Spread, ratio},
    verdict::{Bound, Evidence, Verdict},
};

/// Returns verdicts on the figures.
pub(super) fn judge(findings: &AckFindings) -> Vec<Verdict> {
    let AckFindings { rows, senders, transfers, overtaken, growth } = findings;
    let mut verdicts = transfer::judge(transfers, *senders);
    verdicts.extend(share(
        "sender: merged acknowledgments cost throughput",
        rows,
        Handling::Merged,
    ));
    verdicts.extend(share("sender: ACKs passed on cost no throughput", rows, Handling::Passed));
    verdicts.extend(share("sender: ACKs in vectors cost no throughput", rows, Handling::Vector));
    verdicts.extend(share("sender: rsc-82599 costs no throughput", rows, Handling::Hardware));
    verdicts.extend(starved(rows));
    verdicts.extend(reads(rows));
    verdicts.extend(expanded(rows));
    verdicts.extend(best_window(rows));
    let word = Evidence::exact(overtaken.past_it > 0 && overtaken.through_it == 0);
    verdicts.push(word.verdict(
        "ACKs overtake data only if they bypass the coalescer",
        format!("{}, {}", overtaken.past_it, overtaken.through_it),
        DEFECT,
    ));
    verdicts.extend(limited(growth));
    verdicts.extend(counted(growth));
    verdicts
}

/// Judges the throughput of a sender, relative to one whose arriving packets are not merged, over all windows and
/// holds.
fn share(claim: &'static str, rows: &[AckRow], handling: Handling) -> Option<Verdict> {
    let shares = shares(rows, handling);
    let bound =
        if handling == Handling::Merged { Bound::Under(COSTS) } else { Bound::AtLeast(COSTS) };
    let measured = format!("{:.0} % of off ({:.0})", shares.median * 100.0, shares.min * 100.0);
    let word = Evidence::median(&shares, bound);
    (shares.median > 0.0).then(|| word.verdict(claim, measured, UNLIMITED))
}

/// Returns the shares of the best runs: other load on the machine makes runs slower, never faster.
fn shares(rows: &[AckRow], handling: Handling) -> Spread {
    let senders = || rows.iter().filter(|row| row.side == NicOf::Sender);
    let off = |row: &AckRow| {
        let is_off =
            |off: &&AckRow| off.handling == Handling::Off && off.window_bytes == row.window_bytes;
        senders().find(is_off).map(|off| off.gigabits_a_second.max)
    };
    let rows = senders().filter(|row| row.handling == handling);
    Spread::of(rows.filter_map(|row| Some(row.gigabits_a_second.max / off(row)?)))
}

/// Judges the claim that fewer acknowledgments reach the sender if they are merged.
fn starved(rows: &[AckRow]) -> Option<Verdict> {
    let merged =
        rows.iter().filter(|row| row.side == NicOf::Sender && row.handling == Handling::Merged);
    let reached = merged
        .map(|row| row.acknowledgments_reached.median / row.acknowledgments_sent.median.max(1.0));
    let reached = Spread::of(reached);
    (!reached.values().is_empty()).then(|| {
        Evidence::median(&reached, Bound::Under(0.5)).verdict(
            "sender: under half of the ACKs arrive if merged",
            format!("{:.0} %", reached.median * 100.0),
            "polls that found one acknowledgment each",
        )
    })
}

/// Reads of a receiver for a gigabyte, relative to one whose arriving packets are not merged.
fn reads(rows: &[AckRow]) -> Option<Verdict> {
    let receivers = || rows.iter().filter(|row| row.side == NicOf::Receiver);
    let reads = |handling| {
        let rows = receivers().filter(|row| row.handling == handling);
        Spread::of(rows.map(|row| row.reads_a_gigabyte.median))
    };
    let (passed, off) = (reads(Handling::Passed), reads(Handling::Off));
    let share = ratio(passed.median, off.median)?;
    let merging = receivers().filter(|row| row.handling != Handling::Off);
    let segments = Spread::of(merging.map(|row| row.segments_a_unit.median));
    Some(Evidence::ratio(&passed, &off, Bound::Under(THIRD)).verdict(
        "receiver: reads fall to a third or less",
        format!("{:.0} %; {:.1} segm.", share * 100.0, segments.median),
        "a reader slower than its packets reads several at once even without merging",
    ))
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
    let others: Vec<Spread> = others.filter_map(speed).collect();
    let greatest = others.iter().map(|other| other.median).reduce(f64::max)?;
    let word = |other| Evidence::ratio(&best, other, Bound::AtLeast(1.0));
    Some(Evidence::all(others.iter().map(word)).verdict(
        "receiver: a window of 100 KB is best",
        format!("{:.1} Gb/s, others {greatest:.1} at most", best.median),
        "100 KB fitted into the CPU cache of 2011; on this machine more data in flight is better",
    ).for_every_row())
}

/// Judges the claim that the sender gets more acknowledgments than the receiver sends if they are expanded.
fn expanded(rows: &[AckRow]) -> Option<Verdict> {
    let expanded = rows.iter().filter(|row| row.handling == Handling::Expanded);
    let grown = expanded
        .map(|row| row.acknowledgments_reached.median / row.acknowledgments_sent.median.max(1.0));
    let grown = Spread::of(grown);
    let word = Evidence::exact(grown.median >= GROWN);
    (grown.median > 0.0).then(|| {
        word.verdict(
            "receiver: expansion delivers more ACKs than it sends",
            format!("{:.1} per ACK sent", grown.median),
            "trains of one packet",
        )
    })
}

/// Judges the claim that L limits a sender that counts bytes.
fn limited(growth: &[Growth]) -> Option<Verdict> {
    let alone = round_trips(growth, |merged, _| merged == 1)?;
    let merged = round_trips(growth, |merged, counted| merged > 2 && !counted)?;
    Some(Evidence::exact(merged > 2 * alone).verdict(
        "model, L = 2: merged ACKs slow down slow start",
        format!("{merged} round trips instead of {alone}"),
        DEFECT,
    ))
}

/// Judges the claim that the sender needs only the count of merged acknowledgments.
fn counted(growth: &[Growth]) -> Option<Verdict> {
    let alone = round_trips(growth, |merged, _| merged == 1)?;
    let counted = round_trips(growth, |merged, counted| merged > 2 && counted)?;
    Some(Evidence::exact(counted <= alone).verdict(
        "model, L = 2: counted merged ACKs do not",
        format!("{counted} and {alone} round trips"),
        DEFECT,
    ))
}

fn round_trips(growth: &[Growth], wanted: impl Fn(usize, bool) -> bool) -> Option<u32> {
    let of = |growth: &&Growth| {
        growth.counting == Counting::Bytes { limit: 2 } && wanted(growth.merged, growth.is_counted)
    };
    growth.iter().find(of).map(|growth| growth.slow_start_round_trips)
}

/// Causes of a contradiction: of live figures, and of exact ones.
const UNLIMITED: &str = "\
this kernel's sender counts acknowledged bytes without a limit, so if the path has no delay, merging costs only the \
delay that it adds";
const DEFECT: &str = "a bug in Grosso: these figures are exact";
/// Share of throughput below which a treatment is costly: two measurements of the same setting differ by less.
const COSTS: f64 = 0.85;
/// Least ratio of received to sent acknowledgments that shows expansion; acknowledgments that are not expanded dilute
/// it.
const GROWN: f64 = 1.5;
/// A third, with a margin for the difference between two measurements of the same setting.
const THIRD: f64 = 0.35;

#[cfg(test)]
mod tests {
    use super::super::{SenderKind, tests::report};
    use super::*;

    /// Returns the same results with the kernel's senders.
    fn kernel() -> AckFindings {
        AckFindings { senders: SenderKind::Kernel, ..report().findings }
    }

    fn said(findings: &AckFindings, claim: &str) -> bool {
        let verdicts = judge(findings);
        verdicts.iter().find(|verdict| verdict.claim.contains(claim)).unwrap().holds()
    }

    /// Returns the same results with changed rows of one side and handling.
    fn changed(side: NicOf, handling: Handling, change: impl Fn(&mut AckRow)) -> AckFindings {
        let mut findings = report().findings;
        let rows = findings.rows.iter_mut();
        rows.filter(|row| row.side == side && row.handling == handling).for_each(change);
        findings
    }

    #[test]
    fn every_claim_holds_of_what_was_published() {
        let verdicts = judge(&kernel());
        assert_eq!(verdicts.len(), 13 + 11);
        assert!(verdicts.iter().all(|verdict| verdict.holds()), "{verdicts:?}");
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
        assert!(!said(&none, "expansion delivers more"));
    }

    #[test]
    fn the_model_is_asked_too() {
        // Models of senders: one in which merging does little harm, and one in which the count does not help.
        let slow = |is_counted, round_trips| {
            let mut findings = report().findings;
            let growth = findings.growth.iter_mut();
            growth
                .filter(|growth| growth.merged > 2 && growth.is_counted == is_counted)
                .for_each(|growth| growth.slow_start_round_trips = round_trips);
            findings
        };
        assert!(!said(&slow(false, 14), "merged ACKs slow down"));
        assert!(said(&slow(false, 15), "merged ACKs slow down"));
        assert!(!said(&slow(true, 8), "counted merged ACKs"));
        let mut past = report().findings;
        past.overtaken.through_it = 1;
        assert!(!said(&past, "bypass the coalescer"));
        // Without expansion there is no such claim.
        let mut findings = kernel();
        findings.rows.retain(|row| row.handling != Handling::Expanded);
        assert_eq!(judge(&findings).len(), 13 + 10);
        // Without rows there are no verdicts on streams.
        findings.rows.clear();
        assert_eq!(judge(&findings).len(), 13 + 3);
    }

    #[test]
    fn a_verdict_says_that_its_sender_was_in_userspace() {
        let verdicts = report().verdicts;
        let told = verdicts.iter().filter(|verdict| verdict.measured.ends_with(", in userspace"));
        assert_eq!(told.count(), 13);
        let elsewhere = verdicts.iter().filter(|verdict| verdict.to_string().starts_with("cannot"));
        assert_eq!(elsewhere.count(), 1, "what the kernel's would do is not known");
        assert!(judge(&kernel()).iter().all(|verdict| !verdict.to_string().contains("userspace")));
    }
}
