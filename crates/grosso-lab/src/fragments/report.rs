//! What came of the experiment, as JSON has it.

use std::io;

use serde::Serialize;

use super::{Group, Measured, Plan, Receiver, Setting, verdict::judge};
use crate::{
    conditions::Conditions,
    experiment::{Spread, Verdict},
};

/// What came of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What must be known to compare the figures with others.
    pub environment: Environment,
    /// The results: without loss, then with it.
    pub groups: Vec<GroupResult>,
    /// What was to be shown, and whether it was.
    pub verdicts: Vec<Verdict>,
    /// How to read the figures.
    pub notes: Vec<String>,
}

/// What must be known to compare figures with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// What every experiment says.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Bytes of each datagram, without headers.
    pub datagram_bytes: usize,
    /// Gigabits a second that were to be offered.
    pub rate_gbps: f64,
    /// How long a datagram could be incomplete, in milliseconds.
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
    /// What the receiver did with fragments.
    pub receiver: Receiver,
    /// Receive buffers of its NIC; `None` for as many as it took.
    pub buffers: Option<usize>,
    /// Gigabits a second that were offered.
    pub offered_gbps: Spread,
    /// Gigabits a second of whole and right datagrams.
    pub goodput_gbps: Spread,
    /// The goodput as a share of that of the receiver of the same group that coalesces and has all the buffers it
    /// wants.
    pub share_of_unbounded: f64,
    /// Frames a second for which the NIC had no buffer.
    pub no_buffer_a_second: Spread,
    /// Datagrams a second that died incomplete.
    pub died_a_second: Spread,
    /// Most buffers of the NIC in use at once, in all runs.
    pub buffers_max: usize,
    /// Most memory that incomplete datagrams held, whole buffers included, in bytes, in all runs.
    pub held_bytes_max: u64,
    /// The longest time without a datagram, in milliseconds: how long recovery takes.
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

    /// Whether even the receiver that coalesces and has all the buffers it wants lost datagrams of which no fragment
    /// was lost, or frames were lost before they came to the NIC: the machine is too slow for the rate.
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

/// How to read the figures.
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

/// The share of what is offered that a machine carries which is fast enough for it.
const CARRIED: f64 = 0.95;
/// Of IPv6 (RFC 8200 section 4.5), in seconds.
const IPV6_TIMEOUT_S: f64 = 60.0;
const NOTE: &str = "\
Coalesces: each fragment is copied to its place, and its buffer given back.\n\
Queues: it waits in its buffer, as in Linux before 2021. Evicts: so too, but in\n\
half of the buffers; the datagram goes that waited longest for a fragment.\n\
The wire's queue is long: frames are dropped for want of buffers alone.\n\
Published (2021, few buffers): 6.6 Gb/s coalesced, 9 Mb/s queued.";
