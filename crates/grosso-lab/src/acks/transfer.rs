//! Timed transfers over a wire with a delay. Each is timed from its first byte, so the time includes slow start.

use std::time::Duration;

use grosso_io::impair::Impairment;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    BEST_2011, Case,
    Handling::{self, Controlled, Expanded, Filtered, Hardware, Merged, Off, Passed, Vector},
    MITIGATION,
    NicOf::{self, Receiver, Sender},
    SenderKind,
    Worth::{self, Bytes, Limited, One},
};
use crate::{
    experiment::Series,
    statistics::Spread,
    trial::Measured,
    verdict::{Bound, Evidence, Published, Unit, Verdict},
};

/// The sender and the wire of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Transfer {
    pub(super) worth: Worth,
    pub(super) round_trip: Duration,
    /// Fraction of packets lost in each direction.
    pub(super) loss: f64,
}

impl Transfer {
    /// Returns the impairments of both directions. Each has half of the round-trip time and its own random numbers.
    pub(super) fn wire(&self) -> [Impairment; 2] {
        [1, 2].map(|seed| {
            let mut impairment = Impairment::default();
            impairment.delay = self.round_trip / 2;
            (impairment.loss, impairment.seed) = (self.loss, seed);
            impairment
        })
    }
}

/// Returns the settings to measure: every treatment and a lossy wire at the first round-trip time, and only the most
/// informative settings at the others.
pub(super) fn cases(round_trips: &[Duration]) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |side, handling, hold, transfer| {
        cases.push(Case { side, handling, hold, window_bytes: None, transfer: Some(transfer) });
    };
    // At the sender, trains end with the poll, as in FreeBSD's `tcp_lro`.
    let usual = |side| if side == Sender { Duration::ZERO } else { MITIGATION };
    for (i, &round_trip) in round_trips.iter().enumerate() {
        let detailed = i == 0;
        for worth in Worth::ALL {
            let on = |loss| Transfer { worth, round_trip, loss };
            let sender = if detailed { &AT_THE_SENDER[..] } else { &SHORT };
            sender.iter().for_each(|&handling| add(Sender, handling, usual(Sender), on(0.0)));
            if detailed {
                for handling in AT_THE_RECEIVER {
                    add(Receiver, handling, usual(Receiver), on(0.0));
                }
                SHORT.iter().for_each(|&handling| add(Sender, handling, usual(Sender), on(LOSS)));
            }
        }
        if detailed {
            for worth in [Limited, Bytes] {
                WAITS.iter().for_each(|&hold| {
                    add(Sender, Merged, hold, Transfer { worth, round_trip, loss: 0.0 });
                });
            }
        }
    }
    cases.extend(lan());
    cases
}

/// Returns the settings for a LAN: the window size from the publication, and interrupt mitigation at both NICs. With
/// `Vector`, acknowledgments arrive together but unmerged.
fn lan() -> impl Iterator<Item = Case> {
    let settings = [Limited, One]
        .into_iter()
        .flat_map(|worth| [Off, Vector, Merged].into_iter().map(move |handling| (handling, worth)));
    settings.map(|(handling, worth)| Case {
        side: Sender,
        handling,
        hold: MITIGATION,
        window_bytes: Some(BEST_2011),
        transfer: Some(Transfer { worth, round_trip: LAN_ROUND_TRIP, loss: 0.0 }),
    })
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TransferRow {
    /// Host for which Grosso acted as the NIC.
    pub side: NicOf,
    /// Grosso's treatment of arriving packets.
    pub handling: Handling,
    /// Hold time of trains, in microseconds.
    pub hold_us: f64,
    /// Weight that the sender gives to an acknowledgment.
    pub worth: Worth,
    /// The round-trip time of the wire, in milliseconds.
    pub round_trip_ms: f64,
    /// Fraction of packets lost in each direction.
    pub loss: f64,
    /// Maximum size of a socket buffer in bytes; `None` if the window is never full.
    pub window_bytes: Option<usize>,
    /// Duration of the transfer, in milliseconds.
    pub milliseconds: Spread,
    /// Number of segments retransmitted in all runs.
    pub retransmits: u64,
    /// The measurements.
    pub runs: Vec<Measured>,
}

impl TransferRow {
    /// Returns the row for a series; `None` if the series is not a transfer.
    pub(super) fn new(series: &Series<Case, Measured>) -> Option<Self> {
        let Series { setting: case, runs, .. } = series;
        let Transfer { worth, round_trip, loss } = case.transfer?;
        Some(Self {
            side: case.side,
            handling: case.handling,
            hold_us: case.hold.as_secs_f64() * 1e6,
            worth,
            round_trip_ms: round_trip.as_secs_f64() * 1e3,
            loss,
            window_bytes: case.window_bytes,
            milliseconds: Spread::of(runs.iter().map(|run| run.seconds * 1e3)),
            retransmits: runs.iter().map(|run| run.retransmits).sum(),
            runs: runs.clone(),
        })
    }

    /// Returns whether two rows differ at most in the sender and the treatment.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let wire = |row: &Self| {
            (row.side, row.round_trip_ms.to_bits(), row.loss.to_bits(), row.window_bytes)
        };
        wire(self) == wire(other)
    }
}

/// Returns verdicts on the transfers from these senders.
pub(super) fn judge(rows: &[TransferRow], senders: SenderKind) -> Vec<Verdict> {
    let judged = CLAIMS.iter().filter_map(|claim| claim.judge(rows, senders));
    let judged = judged.chain(judge_other_round_trips(rows, senders));
    let elsewhere = (senders == SenderKind::Userspace).then(|| Verdict::not_here(KERNEL, NEEDED));
    judged.chain(elsewhere).collect()
}

/// Judges what merged acknowledgments cost on the LAN and at every round-trip time except the first.
fn judge_other_round_trips(rows: &[TransferRow], senders: SenderKind) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let first_ms = rows.first().map(|row| row.round_trip_ms);
    for over in rows.iter().filter(|row| row.handling == Merged && row.side == Sender) {
        let is_lan = over.window_bytes.is_some();
        // On the LAN, both settings use interrupt mitigation: the NIC signals several packets at once.
        let handling = if is_lan { Vector } else { Off };
        let is_judged = over.worth != Bytes && Some(over.round_trip_ms) != first_ms;
        let mut others = rows.iter().filter(|row| row.is_beside(over) && row.worth == over.worth);
        let Some(under) = others.find(|row| is_judged && row.handling == handling) else {
            continue;
        };
        let place = if is_lan { "LAN".into() } else { format!("{} ms", over.round_trip_ms) };
        let claim = format!("{place}, {}: merged ACKs slow the sender", over.worth);
        let cause = if is_lan { BUSY } else { DISTURBED };
        let evidence =
            Evidence::ratio(&over.milliseconds, &under.milliseconds, Bound::AtLeast(1.0));
        let verdict = evidence.verdict(claim, Unit::Times, cause);
        let published = Published::new(8.0 / 4.5, "R3, in 2011");
        verdicts.push(verdict.with(times(over, under, senders)).beside(published));
    }
    verdicts
}

/// Describes the times of two transfers. Names the sender if it is not the kernel.
fn times(over: &TransferRow, under: &TransferRow, senders: SenderKind) -> String {
    let [on, off] = [over, under].map(|row| row.milliseconds.median);
    let whose = if senders == SenderKind::Userspace { ", in userspace" } else { "" };
    format!("{on:.0} and {off:.0} ms{whose}")
}

/// A claim about the ratio of two transfer times at the first round-trip time.
struct Claim {
    text: &'static str,
    side: NicOf,
    over: (Handling, Worth),
    under: (Handling, Worth),
    /// Hold time in the first transfer in microseconds, if it differs from the default for this host.
    hold_us: Option<f64>,
    bound: Bound,
    /// For a claim about a cure: the harmful treatment with the same sender, and the bound above which it counts as
    /// harmful. If that treatment turns out to be harmless, the cure cannot be judged.
    cured: Option<(Handling, Bound)>,
    /// The published ratio of times, if there is one.
    published: Option<f64>,
    /// Cause to report if the claim is contradicted.
    cause: &'static str,
}

impl Claim {
    const fn new(
        text: &'static str,
        side: NicOf,
        over: (Handling, Worth),
        under: (Handling, Worth),
        bound: Bound,
    ) -> Self {
        let published = match (bound, over.0) {
            (COSTS, Merged) if matches!(under.0, Off) => Some(8.0 / 4.5),
            (HARMLESS, Hardware | Passed) if matches!(side, Sender) => Some(1.0),
            _ => None,
        };
        let cured = match (side, over) {
            (Sender, (Passed, _)) => Some((Merged, COSTS)),
            // Beside little harm, a busy CPU hides the tenth that remains after expansion.
            (Receiver, (Expanded, One)) => Some((Passed, COSTS)),
            (Receiver, (Expanded, _)) => Some((Passed, HURTS)),
            _ => None,
        };
        Self { text, side, over, under, hold_us: None, bound, cured, published, cause: DISTURBED }
    }

    fn judge(&self, rows: &[TransferRow], senders: SenderKind) -> Option<Verdict> {
        let round_trip_ms = rows.first()?.round_trip_ms;
        let beside = || {
            rows.iter().filter(|row| {
                let wire = (row.side, row.round_trip_ms.to_bits(), row.loss.to_bits());
                wire == (self.side, round_trip_ms.to_bits(), 0.0_f64.to_bits())
            })
        };
        let usual_us = beside().next()?.hold_us;
        let find = |(handling, worth), hold_us: Option<f64>| {
            beside().find(|row| {
                (row.handling, row.worth) == (handling, worth)
                    && row.hold_us.to_bits() == hold_us.unwrap_or(usual_us).to_bits()
            })
        };
        let (over, under) = (find(self.over, self.hold_us)?, find(self.under, None)?);
        let evidence = Evidence::ratio(&over.milliseconds, &under.milliseconds, self.bound);
        let mut verdict = evidence.verdict(self.text, Unit::Times, self.cause);
        if let Some((harm, bound)) = self.cured {
            let harm = find((harm, self.over.1), None);
            let is_harmful = harm.is_some_and(|harm| {
                let evidence = Evidence::ratio(&harm.milliseconds, &under.milliseconds, bound);
                evidence.verdict("", Unit::Times, "").holds()
            });
            if !is_harmful {
                verdict = verdict.undecided(NO_HARM);
            }
        }
        let published = self.published.map(|ratio| Published::new(ratio, "R3, in 2011"));
        Some(verdict.with(times(over, under, senders)).beside(published))
    }
}

/// Claims from a mailing list thread of 2011, for the senders that it discussed. In that thread, merging reduced the
/// throughput from 8.0 Gb/s to 4-5 Gb/s.
const CLAIMS: [Claim; 13] = [
    Claim::new(
        "L = 2: merged ACKs halve the speed",
        Sender,
        (Merged, Limited),
        (Off, Limited),
        COSTS,
    ),
    Claim::new(
        "ACK counting: merged ACKs halve the speed",
        Sender,
        (Merged, One),
        (Off, One),
        COSTS,
    ),
    Claim::new(
        "byte counting: merged ACKs are harmless",
        Sender,
        (Merged, Bytes),
        (Off, Bytes),
        HARMLESS,
    ),
    Claim::new(
        "L = 2: unmerged pure ACKs restore the speed",
        Sender,
        (Passed, Limited),
        (Off, Limited),
        HARMLESS,
    ),
    Claim::new(
        "ACK counting: unmerged pure ACKs restore the speed",
        Sender,
        (Passed, One),
        (Off, One),
        HARMLESS,
    ),
    Claim::new(
        "hardware LRO at the sender is harmless",
        Sender,
        (Hardware, Limited),
        (Off, Limited),
        HARMLESS,
    ),
    Claim::new(
        "several back-to-back ACKs are harmless",
        Sender,
        (Vector, Limited),
        (Off, Limited),
        HARMLESS,
    ),
    Claim::new(
        "merged ACKs: the limit L = 2 halves the speed",
        Sender,
        (Merged, Limited),
        (Merged, Bytes),
        COSTS,
    ),
    // Merging does not harm a sender that counts bytes, so only the hold time matters.
    Claim {
        hold_us: Some(1000.0),
        ..Claim::new(
            "1 ms of added delay does not halve the speed",
            Sender,
            (Merged, Bytes),
            (Merged, Bytes),
            Bound::Under(HALF),
        )
    },
    Claim::new(
        "L = 2: LRO at the receiver slows transfers",
        Receiver,
        (Passed, Limited),
        (Off, Limited),
        HURTS,
    ),
    Claim::new(
        "ACK counting: LRO at the receiver slows transfers",
        Receiver,
        (Passed, One),
        (Off, One),
        HURTS,
    ),
    Claim::new(
        "L = 2: expanded ACKs restore the speed",
        Receiver,
        (Expanded, Limited),
        (Off, Limited),
        HARMLESS,
    ),
    Claim {
        cause: "an expanded acknowledgment covers two packets, like an ordinary one, so a sender that counts \
                acknowledgments counts as many as without merging",
        ..Claim::new(
            "ACK counting: expanded ACKs do not restore the speed",
            Receiver,
            (Expanded, One),
            (Off, One),
            Bound::AtLeast(1.1),
        )
    },
];

/// Minimum ratio of two transfer times for merging to count as costing about half of the speed (5 Gb/s instead of
/// 8 Gb/s).
const HALF: f64 = 1.6;
const COSTS: Bound = Bound::AtLeast(HALF);
/// Minimum ratio of two transfer times for merging to count as harmful.
const HURTS: Bound = Bound::AtLeast(1.3);
/// Ratio of two transfer times below which merging counts as harmless.
const HARMLESS: Bound = Bound::Under(1.25);
const BUSY: &str = "\
the rate depends on the CPU of this machine instead of the round-trip time, and merging saves CPU time at the \
    sender; the window of 100 KB is full before merging can slow the sender";
const DISTURBED: &str =
    "other load on this machine, or a round trip so short that slow start ends almost at once";
const NO_HARM: &str = "a run in which merging slows the sender's transfers";
const KERNEL: &str = "kernel TCP that counts ACKs shows the same effects";
const NEEDED: &str = "root, bpftool and the kernel's type information (BTF) to load congestion controls, and a run \
                      without --senders userspace";
const AT_THE_SENDER: [Handling; 6] = [Off, Passed, Vector, Hardware, Merged, Filtered];
const AT_THE_RECEIVER: [Handling; 4] = [Off, Passed, Expanded, Controlled];
const SHORT: [Handling; 3] = [Off, Passed, Merged];
/// Hold times at the sender in addition to zero: the lab's default, and a long one.
const WAITS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// Round-trip time on the LAN: the time that an 8 Gb/s wire needs to carry the window from the publication.
const LAN_ROUND_TRIP: Duration = Duration::from_micros(100);
/// Fraction of packets lost on the lossy wire.
const LOSS: f64 = 0.0002;
