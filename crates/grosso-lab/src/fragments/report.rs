//! Results of the experiment, as the JSON has them.

use std::io;

use serde::Serialize;

use super::{Group, Measured, Plan, Receiver, Setting, verdict::judge};
use crate::{
    conditions::Conditions,
    experiment::{Spread, Verdict},
};

/// Results of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Conditions of the measurement, needed to compare the figures with others.
    pub environment: Environment,
    /// The results: without loss, then with it.
    pub groups: Vec<GroupResult>,
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
    /// Bytes of each datagram, without headers.
    pub datagram_bytes: usize,
    /// Gigabits a second that the sender tried to offer.
    pub rate_gbps: f64,
    /// Time after which an incomplete datagram was dropped, in milliseconds.
    pub timeout_ms: f64,
}

/// Results with the same loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupResult {
    /// The share of fragments lost on the wire.
    pub loss: f64,
    /// One for each setting.
    pub rows: Vec<RowResult>,
}

/// The result of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RowResult {
    /// The receiver's treatment of fragments.
    pub receiver: Receiver,
    /// Receive buffers of its NIC; `None` for no limit.
    pub buffers: Option<usize>,
    /// Gigabits a second that were offered.
    pub offered_gbps: Spread,
    /// Gigabits a second of complete and correct datagrams.
    pub goodput_gbps: Spread,
    /// Ratio of the goodput to that of the receiver of the same group that coalesces with unlimited buffers.
    pub share_of_unbounded: f64,
    /// Frames a second for which the NIC had no buffer.
    pub no_buffer_a_second: Spread,
    /// Datagrams a second that timed out incomplete.
    pub died_a_second: Spread,
    /// Greatest number of the NIC's buffers in use at once, in all runs.
    pub buffers_max: usize,
    /// Greatest memory of incomplete datagrams, whole buffers included, in bytes, in all runs.
    pub held_bytes_max: u64,
    /// The longest time without a datagram, in milliseconds, which is the time that recovery takes.
    pub silence_ms: Spread,
    /// The measurements.
    pub runs: Vec<Measured>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        groups: &[Group],
        runs: Vec<Vec<Vec<Measured>>>,
    ) -> io::Result<Self> {
        let groups = groups.iter().zip(runs).map(|(group, runs)| GroupResult::new(group, runs));
        let groups: Vec<GroupResult> = groups.collect();
        Ok(Self {
            experiment: "fragments",
            environment: Environment {
                conditions: Conditions::of(plan.runs, plan.measured, plan.device)?,
                datagram_bytes: super::DATAGRAM_BYTES,
                rate_gbps: plan.rate_bits as f64 * 1e-9,
                timeout_ms: plan.timeout.as_secs_f64() * 1e3,
            },
            verdicts: judge(&groups, plan.timeout),
            notes: notes(plan),
            groups,
        })
    }

    /// Whether the machine is too slow for the rate: even the receiver that coalesces with unlimited buffers lost
    /// datagrams none of whose fragments was lost, or frames were lost before they reached the NIC.
    #[must_use]
    pub fn is_short_of_processor(&self) -> bool {
        let unhindered = self.groups.iter().filter(|group| group.loss <= 0.0);
        let unhindered = unhindered.filter_map(|group| group.row(Receiver::Coalesces, None));
        let mut unhindered =
            unhindered.map(|row| row.goodput_gbps.median / row.offered_gbps.median);
        let rate = self.environment.rate_gbps;
        unhindered.any(|share| share < CARRIED)
            || self.rows().any(|row| row.offered_gbps.median < rate * CARRIED)
            || self.rows().flat_map(|row| &row.runs).any(|run| run.wire_full > 0)
    }

    /// The rows of all groups.
    pub(super) fn rows(&self) -> impl Iterator<Item = &RowResult> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

impl GroupResult {
    fn new(group: &Group, runs: Vec<Vec<Measured>>) -> Self {
        let rows = group.settings.iter().zip(runs);
        let rows = rows.map(|(setting, runs)| RowResult::new(setting, runs)).collect();
        let mut result = Self { loss: group.loss, rows };
        let unbounded = result.row(Receiver::Coalesces, None).map(|row| row.goodput_gbps.median);
        for row in &mut result.rows {
            row.share_of_unbounded = row.goodput_gbps.median / unbounded.unwrap_or(f64::NAN);
        }
        result
    }
}

impl RowResult {
    fn new(setting: &Setting, runs: Vec<Measured>) -> Self {
        let over = |value: &dyn Fn(&Measured) -> f64| Spread::of(runs.iter().map(value));
        Self {
            receiver: setting.receiver,
            buffers: setting.buffers,
            offered_gbps: over(&Measured::offered_gbps),
            goodput_gbps: over(&Measured::goodput_gbps),
            share_of_unbounded: f64::NAN,
            no_buffer_a_second: over(&|run| run.no_buffer as f64 / run.seconds),
            died_a_second: over(&|run| run.died as f64 / run.seconds),
            buffers_max: runs.iter().map(|run| run.buffers_max).max().unwrap_or(0),
            held_bytes_max: runs.iter().map(|run| run.held_bytes_max).max().unwrap_or(0),
            silence_ms: over(&|run| run.silence_seconds * 1e3),
            runs,
        }
    }
}

/// Notes on reading the figures.
fn notes(plan: &Plan) -> Vec<String> {
    let times = IPV6_TIMEOUT_S / plan.timeout.as_secs_f64();
    vec![
        format!(
            "A datagram of {} bytes is {} fragments. It may be incomplete for {} ms here;\n\
             by RFC 8200 for 60 s, and who waits for that is silent {times:.0} times as long.",
            super::DATAGRAM_BYTES,
            super::FRAGMENTS,
            plan.timeout.as_millis(),
        ),
        NOTE.into(),
    ]
}

/// Share of the offered datagrams that a fast enough machine carries.
const CARRIED: f64 = 0.95;
/// The reassembly timeout of IPv6 in seconds (RFC 8200 section 4.5).
const IPV6_TIMEOUT_S: f64 = 60.0;
const NOTE: &str = "\
Coalesces: each fragment is copied to its place, and its buffer given back.\n\
Queues: it waits in its buffer, as in Linux before 2021. Evicts: so too, but in\n\
half of the buffers; the datagram goes that waited longest for a fragment.\n\
The wire's queue is long: frames are dropped for want of buffers alone.\n\
Published (2021, few buffers): 6.6 Gb/s coalesced, 9 Mb/s queued.";
