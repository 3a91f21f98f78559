//! Figures that the experiment measures. Their structure is that of the JSON report.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CostSetting, Offloads, Wire,
    trial::{Calls, CostRun, PartName, Parts, PathRun},
};
use crate::{experiment::Series, statistics::Spread};

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CostFindings {
    /// Results, one for each setting.
    pub rows: Vec<CostRow>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CostRow {
    /// Transport at the ends of the wire.
    pub wire: Wire,
    /// Enabled offloads.
    pub offloads: Offloads,
    /// Throughput in Gb/s, including the overhead of reading clocks.
    pub gigabits_a_second: Spread,
    /// Costs of path a, which runs from its host to the wire, and of path b, which runs from the wire to its host.
    pub paths: [PathCost; 2],
    /// Number of segments retransmitted in all runs.
    pub retransmits: u64,
    /// Number of segments with a wrong checksum in all runs.
    pub checksum_errors: u64,
    /// The measurements.
    pub runs: Vec<CostRun>,
}

/// CPU time of a data path's thread, in nanoseconds per wire packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PathCost {
    /// The sum of all parts.
    pub total_ns: Spread,
    /// The median of each part.
    pub parts: Parts,
    /// Packets per frame at the host. This and all following figures are medians.
    pub packets_a_frame: f64,
    /// Nanoseconds per frame at the host.
    pub frame_ns: f64,
    /// Receive system calls per wire packet.
    pub receive_calls_a_packet: f64,
    /// Packets per receive call; zero if no call was needed.
    pub packets_a_receive_call: f64,
    /// Bytes per receive call, with frames in the port's own format; zero if no call was needed.
    pub bytes_a_receive_call: f64,
    /// Send system calls per wire packet.
    pub send_calls_a_packet: f64,
    /// Packets per send call; zero if no call was needed.
    pub packets_a_send_call: f64,
    /// Bytes per send call, with frames in the port's own format; zero if no call was needed.
    pub bytes_a_send_call: f64,
    /// The most expensive part.
    pub dominant: PartName,
    /// Advice on how to reduce the most expensive part.
    pub advice: &'static str,
}

impl CostRow {
    pub(super) fn new(series: Series<CostSetting, CostRun>) -> Self {
        let Series { setting, runs, .. } = series;
        let path = |side: usize| {
            PathCost::new(side, &runs.iter().map(|run| run.paths[side]).collect::<Vec<_>>())
        };
        Self {
            wire: setting.wire,
            offloads: setting.offloads,
            gigabits_a_second: Spread::of(runs.iter().map(CostRun::gigabits_a_second)),
            paths: [path(0), path(1)],
            retransmits: runs.iter().map(|run| run.retransmits).sum(),
            checksum_errors: runs.iter().map(|run| run.checksum_errors).sum(),
            runs,
        }
    }

    /// Returns the name of the row.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.wire, self.offloads)
    }
}

impl PathCost {
    fn new(side: usize, runs: &[PathRun]) -> Self {
        let median = |value: &dyn Fn(&PathRun) -> f64| Spread::of(runs.iter().map(value)).median;
        let a_packet = |value: f64, run: &PathRun| value / run.packets.max(1) as f64;
        let calls = |of: fn(&PathRun) -> Calls| {
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

    /// Returns a part's percentage of the total.
    pub(super) fn percent(&self, part: PartName) -> f64 {
        self.parts.get(part) / self.parts.total().max(f64::MIN_POSITIVE) * 100.0
    }
}

fn a_call(value: u64, calls: Calls) -> f64 {
    if calls.calls == 0 { 0.0 } else { value as f64 / calls.calls as f64 }
}

/// Returns advice on how to reduce a part; `side` is 0 for path a and 1 for path b.
pub(super) const fn advice(side: usize, part: PartName) -> &'static str {
    match (part, side) {
        (PartName::ReceiveCalls, 0) => {
            "The kernel copies frames in receive calls. Use larger superframes."
        }
        (PartName::ReceiveCalls, _) => {
            "The kernel copies packets in receive calls. Use a packet socket's ring."
        }
        (PartName::Receive, _) => {
            "The receive port parses and copies frames. Use a port that lends its slots."
        }
        (PartName::Engine, 0) => {
            "The engine writes headers per packet. Use a port that accepts superframes."
        }
        (PartName::Engine, _) => {
            "The engine compares the headers of each packet. Use longer packets."
        }
        (PartName::Checksums, _) => {
            "The engine reads the payload for checksums. Use hardware checksums, or RCO."
        }
        (PartName::SendCalls, 0) => {
            "Send calls carry each packet across the veth wire. Use longer packets."
        }
        (PartName::SendCalls, _) => {
            "Send calls run the host's TCP. Hold packets longer for larger superframes."
        }
        (PartName::Send, _) => {
            "The port copies packets into slots. Use a port with scatter-gather."
        }
        (PartName::Acknowledgments, _) => {
            "Use larger superframes, which need fewer acknowledgments."
        }
        (PartName::Wait, _) => "The thread sleeps and wakes up. Use busy polling (busy_poll).",
        (PartName::Loop | PartName::Unexplained, _) => {
            "Process more frames per poll, so that the loop runs less often."
        }
    }
}
