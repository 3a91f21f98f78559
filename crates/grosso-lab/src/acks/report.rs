//! Results of the experiment, as the JSON has them.

use std::io;

use serde::Serialize;

use super::{Case, Growth, Handling, Overtaken, Plan, Side, verdict::judge};
use crate::{
    conditions::Conditions,
    experiment::{Spread, Verdict},
    trial::Measured,
};

/// Results of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Conditions of the measurement, needed to compare the figures with others.
    pub environment: Environment,
    /// The results: Grosso at the sender, then at the receiver.
    pub rows: Vec<RowResult>,
    /// Packets overtaken if acknowledgments bypass the coalescer.
    pub overtaken: Overtaken,
    /// Results of the sender's model.
    pub growth: Vec<Growth>,
    /// Claims to be shown, and whether they hold.
    pub verdicts: Vec<Verdict>,
    /// Notes on reading the figures.
    pub notes: Vec<String>,
}

/// Conditions of the measurement, needed to compare figures with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// Conditions that every experiment reports.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The congestion control of TCP.
    pub congestion: String,
}

/// The result of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RowResult {
    /// The host whose NIC Grosso was.
    pub side: Side,
    /// Its treatment of arriving packets.
    pub handling: Handling,
    /// Time for which it held trains, in microseconds; zero for the end of the poll.
    pub hold_us: f64,
    /// Greatest size of a socket's buffers in bytes; `None` for the lab's default.
    pub window_bytes: Option<usize>,
    /// Gigabits a second.
    pub gigabits_a_second: Spread,
    /// Acknowledgments a second that the receiver sent.
    pub acknowledgments_sent: Spread,
    /// Acknowledgments a second that reached the sender.
    pub acknowledgments_reached: Spread,
    /// Read calls of the receiver a second.
    pub reads_a_second: Spread,
    /// Read calls of the receiver for a gigabyte.
    pub reads_a_gigabyte: Spread,
    /// Data packets for each frame on the other side of the data path.
    pub segments_a_unit: Spread,
    /// The measurements.
    pub runs: Vec<Measured>,
}

impl Report {
    pub(super) fn new(plan: &Plan, cases: &[Case], runs: Vec<Vec<Measured>>) -> io::Result<Self> {
        let rows = cases.iter().zip(runs).map(|(case, runs)| RowResult::new(case, runs));
        let rows: Vec<RowResult> = rows.collect();
        let (overtaken, growth) = (Overtaken::count(), Growth::all());
        Ok(Self {
            experiment: "acks",
            environment: Environment {
                conditions: Conditions::of(plan.runs, plan.measured, plan.device)?,
                congestion: plan.congestion.clone(),
            },
            verdicts: judge(&rows, &overtaken, &growth),
            notes: notes(&rows),
            rows,
            overtaken,
            growth,
        })
    }
}

impl RowResult {
    fn new(case: &Case, runs: Vec<Measured>) -> Self {
        let over = |value: &dyn Fn(&Measured) -> f64| Spread::of(runs.iter().map(value));
        let passed = |run: &Measured| run.acknowledgements_passed.unwrap_or(0) as f64;
        Self {
            side: case.side,
            handling: case.handling,
            hold_us: case.hold.as_secs_f64() * 1e6,
            window_bytes: case.window_bytes,
            gigabits_a_second: over(&Measured::gigabits_a_second),
            acknowledgments_sent: over(&|run| run.acknowledgements as f64 / run.seconds),
            acknowledgments_reached: over(&|run| passed(run) / run.seconds),
            reads_a_second: over(&|run| run.units as f64 / run.seconds),
            reads_a_gigabyte: over(&|run| run.units as f64 / (run.bytes as f64 * 1e-9)),
            segments_a_unit: over(&|run| run.segments_per_train.unwrap_or(1.0)),
            runs,
        }
    }
}

fn notes(rows: &[RowResult]) -> Vec<String> {
    let mut notes: Vec<String> = NOTES.lines().map(String::from).collect();
    let again: u64 = rows.iter().flat_map(|row| &row.runs).map(|run| run.retransmits).sum();
    if again > 0 {
        notes.push(format!("{again} segments were sent again in all."));
    }
    notes
}

const NOTES: &str = "\
sent: acknowledgments a second of the receiver; reached: those the sender got.
segm.: packets of data for each frame that the host was given, or gave.
Published (82599, 2011): sender with merged acknowledgments 4-5 Gb/s, else 8.0;
receiver: reads fall to a third, 4-5 segments a unit; window 100 KB best.
Linux counts bytes without a limit (L is none): a merged acknowledgment grows
its window by all that it acknowledges. What is left of the harm is waiting, so
\"merged acknowledgments cost throughput\" may well be no on this kernel.
Grosso at the sender: the receiver's kernel wakes its reader once 16 KB are
there (SO_RCVLOWAT) and acknowledges every second segment until then, so that
its reads are batched. Grosso at the receiver: what there is is read.
expanded: linux, and one acknowledgment for two packets of what was joined, back
to back, 32 at most for one; reached counts them.";
