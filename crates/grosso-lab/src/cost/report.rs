//! Results of the experiment, as the JSON has them.

use std::io;

use serde::Serialize;

use super::{
    Calls, Measured, Offloads, PartName, Parts, PathMeasured, Plan, Setting, Wire, verdict,
};
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
    /// One for each setting.
    pub rows: Vec<RowResult>,
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
    /// Transport at the ends of the wire.
    pub wire: Wire,
    /// Offloads in use.
    pub offloads: Offloads,
    /// Gigabits a second, with the overhead of reading clocks.
    pub gigabits_a_second: Spread,
    /// Path a, from its host to the wire, and path b, from the wire to its host.
    pub paths: [Path; 2],
    /// Segments retransmitted, in all runs.
    pub retransmits: u64,
    /// Segments with a wrong checksum, in all runs.
    pub checksum_errors: u64,
    /// The measurements.
    pub runs: Vec<Measured>,
}

/// Time of a data path, in nanoseconds of its thread for each packet on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Path {
    /// The sum of all parts.
    pub total_ns: Spread,
    /// Medians by part.
    pub parts: Parts,
    /// Packets for each frame at the host: a median, as all fields below.
    pub packets_a_frame: f64,
    /// Nanoseconds for each frame at the host.
    pub frame_ns: f64,
    /// Receive system calls for each packet on the wire.
    pub receive_calls_a_packet: f64,
    /// Packets for each receive call; zero if no call was needed.
    pub packets_a_receive_call: f64,
    /// Bytes for each receive call, of frames in the port's own form; zero if no call was needed.
    pub bytes_a_receive_call: f64,
    /// Send system calls for each packet on the wire.
    pub send_calls_a_packet: f64,
    /// Packets for each send call; zero if no call was needed.
    pub packets_a_send_call: f64,
    /// Bytes for each send call, of frames in the port's own form; zero if no call was needed.
    pub bytes_a_send_call: f64,
    /// The most expensive part.
    pub dominant: PartName,
    /// Advice on how to lower it.
    pub advice: &'static str,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        settings: &[Setting],
        runs: Vec<Vec<Measured>>,
    ) -> io::Result<Self> {
        let rows = settings.iter().zip(runs).map(|(setting, runs)| RowResult::new(setting, runs));
        let rows: Vec<RowResult> = rows.collect();
        let mut notes = vec![NOTE.into()];
        if !rows.iter().any(|row| row.wire == Wire::Xdp) {
            notes.push("AF_XDP wants root, and a kernel that has it: it is left out.".into());
        }
        Ok(Self {
            experiment: "cost",
            environment: Environment {
                conditions: Conditions::of(plan.runs, plan.measured, plan.device)?,
                congestion: plan.congestion.clone(),
            },
            verdicts: verdict::judge(&rows),
            rows,
            notes,
        })
    }
}

impl RowResult {
    fn new(setting: &Setting, runs: Vec<Measured>) -> Self {
        let path = |side: usize| {
            Path::new(side, &runs.iter().map(|run| run.paths[side]).collect::<Vec<_>>())
        };
        Self {
            wire: setting.wire,
            offloads: setting.offloads,
            gigabits_a_second: Spread::of(runs.iter().map(Measured::gigabits_a_second)),
            paths: [path(0), path(1)],
            retransmits: runs.iter().map(|run| run.retransmits).sum(),
            checksum_errors: runs.iter().map(|run| run.checksum_errors).sum(),
            runs,
        }
    }

    /// Name of the row.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.wire, self.offloads)
    }
}

impl Path {
    fn new(side: usize, runs: &[PathMeasured]) -> Self {
        let median =
            |value: &dyn Fn(&PathMeasured) -> f64| Spread::of(runs.iter().map(value)).median;
        let a_packet = |value: f64, run: &PathMeasured| value / run.packets.max(1) as f64;
        let calls = |of: fn(&PathMeasured) -> Calls| {
            [
                median(&|run| a_packet(of(run).calls as f64, run)),
                median(&|run| a_call(of(run).packets, of(run))),
                median(&|run| a_call(of(run).bytes, of(run))),
            ]
        };
        let (receive, send) = (calls(|run| run.receive), calls(|run| run.send));
        let parts = Parts::each(|part| median(&|run| a_packet(run.parts.get(part), run)));
        let dominant = PartName::ALL.into_iter();
        let dominant = dominant.max_by(|one, other| parts.get(*one).total_cmp(&parts.get(*other)));
        let dominant = dominant.unwrap_or(PartName::Unexplained);
        Self {
            total_ns: Spread::of(runs.iter().map(|run| a_packet(run.total_ns, run))),
            parts,
            packets_a_frame: median(&|run| run.packets as f64 / run.frames.max(1) as f64),
            frame_ns: median(&|run| run.total_ns / run.frames.max(1) as f64),
            receive_calls_a_packet: receive[0],
            packets_a_receive_call: receive[1],
            bytes_a_receive_call: receive[2],
            send_calls_a_packet: send[0],
            packets_a_send_call: send[1],
            bytes_a_send_call: send[2],
            dominant,
            advice: advice(side, dominant),
        }
    }

    /// Share of a part in the whole, in percent.
    pub(super) fn percent(&self, part: PartName) -> f64 {
        self.parts.get(part) / self.parts.total().max(f64::MIN_POSITIVE) * 100.0
    }
}

fn a_call(value: u64, calls: Calls) -> f64 {
    if calls.calls == 0 { 0.0 } else { value as f64 / calls.calls as f64 }
}

/// Advice on how to lower a part; `side` is 0 for path a, and otherwise path b.
pub(super) const fn advice(side: usize, part: PartName) -> &'static str {
    match (part, side) {
        (PartName::ReceiveCalls, 0) => {
            "The host's kernel copies frames in them: larger superframes make fewer."
        }
        (PartName::ReceiveCalls, _) => {
            "The kernel copies packets in them: the ring of a packet socket needs none."
        }
        (PartName::Receive, _) => "Frames are described and copied: a ring hands its slots out.",
        (PartName::Engine, 0) => {
            "Headers are made for each packet: a port that takes superframes needs none."
        }
        (PartName::Engine, _) => "Headers of each packet are compared: longer packets are fewer.",
        (PartName::Checksums, _) => {
            "Payload is read: a port with checksums in hardware, or RCO, spares that."
        }
        (PartName::SendCalls, 0) => {
            "The kernel takes each packet over the wire in them: longer packets are fewer."
        }
        (PartName::SendCalls, _) => {
            "The host's TCP runs in them: larger superframes, held for longer, are fewer."
        }
        (PartName::Send, _) => "Packets are written into slots: a port that takes parts spares it.",
        (PartName::Acknowledgments, _) => "Larger superframes are acknowledged less often.",
        (PartName::Wait, _) => "The thread sleeps and wakes: busy polling (busy_poll) spares it.",
        (PartName::Loop | PartName::Unexplained, _) => "More frames a poll make fewer turns.",
    }
}

const NOTE: &str = "\
Path a: from its host, cut, to the wire. Path b: from the wire, joined, to its
host. call: in the kernel; port: the port's own work; engine: all between the
ports, with tunnels; sums: checksums of more than 64 bytes; ACKs: whatever goes
the other way; loop: around all that; ?: what no part explains. On: superframes,
coalescing, 64 frames a poll. By 1: one frame a poll. Off: packets everywhere.
The kernel runs the receiver's TCP, and the way over a veth wire, in the calls.
UDP: in a tunnel, whose sockets cut and join (UDP_SEGMENT, UDP_GRO) if it is on.
Looking at the clocks takes time, which is left out; throughput suffers from it.";
