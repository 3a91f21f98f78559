//! Figures that the experiment measures. Their structure is that of the JSON report.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Case, Growth, Handling, NicOf, Overtaken, SenderKind, TransferRow};
use crate::{experiment::Series, statistics::Spread, trial::Measured};

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AckFindings {
    /// The results for streams: first with Grosso at the sender, then with Grosso at the receiver.
    pub rows: Vec<AckRow>,
    /// The TCP implementation that sent the transfers.
    pub senders: SenderKind,
    /// Timed transfers over a wire with a delay, from senders that count acknowledgments differently.
    pub transfers: Vec<TransferRow>,
    /// Numbers of packets that are overtaken if acknowledgments bypass the coalescer.
    pub overtaken: Overtaken,
    /// Results from a model of how a sender's window grows.
    pub growth: Vec<Growth>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AckRow {
    /// Host for which Grosso acted as the NIC.
    pub side: NicOf,
    /// Grosso's treatment of arriving packets.
    pub handling: Handling,
    /// Hold time of trains, in microseconds; zero if trains end with the poll.
    pub hold_us: f64,
    /// Maximum size of a socket buffer in bytes; `None` for the lab's default.
    pub window_bytes: Option<usize>,
    /// Throughput in Gb/s.
    pub gigabits_a_second: Spread,
    /// Acknowledgments per second that the receiver sent.
    pub acknowledgments_sent: Spread,
    /// Acknowledgments per second that reached the sender.
    pub acknowledgments_reached: Spread,
    /// Read calls by the receiver per second.
    pub reads_a_second: Spread,
    /// Read calls by the receiver per gigabyte.
    pub reads_a_gigabyte: Spread,
    /// Number of data packets per frame that the data path exchanges with its host.
    pub segments_a_unit: Spread,
    /// The measurements.
    pub runs: Vec<Measured>,
}

impl AckRow {
    pub(super) fn new(Series { setting: case, runs, .. }: Series<Case, Measured>) -> Self {
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
