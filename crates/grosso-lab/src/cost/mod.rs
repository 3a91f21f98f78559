//! Cost of a packet: the time that two data paths spend on each part of their work while they forward traffic between
//! two kernel TCP endpoints.
//!
//! ```text
//!  a (kernel)    data path of a                data path of b    b (kernel)
//!  socket - s0 - TUN, split, send --- wire --- receive, merge, TUN - r0 - socket
//! ```
//!
//! The transports at the ends of the wire are packet sockets with rings, AF_XDP sockets, or UDP sockets with a tunnel
//! over them. Each transport is measured with and without offloads, and packet sockets also with one frame per poll.

use core::fmt;
use std::{io, sync::atomic::AtomicBool, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    experiment::{
        Bench, Experiment, Plan, RunsOf, TcpParameters, VERIFIED_BYTES, brief, three_processors,
    },
    netns::Device,
    report::FailedRow,
    trial::{Extent, TrialError},
    verdict::Verdict,
};

mod findings;
mod table;
mod trial;
mod verdict;

pub use findings::{CostFindings, CostRow, PathCost};
pub use trial::{Calls, CostRun, PartName, Parts, PathRun, measure};

/// Transport that a data path uses at its end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Packet sockets with mapped rings.
    Ring,
    /// AF_XDP sockets.
    Xdp,
    /// UDP sockets, and a tunnel over them.
    Udp,
}

impl fmt::Display for Wire {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ring => "ring",
            Self::Xdp => "AF_XDP",
            Self::Udp => "UDP",
        })
    }
}

/// Enabled offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Offloads {
    /// All offloads: superframes at the host, coalescing, `UDP_SEGMENT` and `UDP_GRO`, and 64 frames per poll.
    On,
    /// All offloads, but only one frame per poll, so that nothing is batched.
    OneByOne,
    /// No offloads: all packets fit into the MTU.
    Off,
}

impl fmt::Display for Offloads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::On => "on",
            Self::OneByOne => "by 1",
            Self::Off => "off",
        })
    }
}

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct CostSetting {
    /// Transport at the ends of the wire.
    pub wire: Wire,
    /// Enabled offloads.
    pub offloads: Offloads,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The CPUs of the sender and its data path, of the receiver's data path, and of the receiver.
    pub processors: [usize; 3],
    /// TCP congestion control.
    pub congestion: String,
    /// Duration or amount of data of the measurement.
    pub extent: Extent,
    /// Whether every received byte is compared with the byte that was sent.
    pub compare: bool,
}

/// The experiment that measures the cost of a packet.
#[derive(Clone, Debug)]
pub struct Cost {
    plan: Plan<TcpParameters>,
    settings: Vec<CostSetting>,
}

impl Cost {
    /// Creates an experiment with every wire, with and without offloads.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn new(plan: Plan<TcpParameters>) -> io::Result<Self> {
        let processors = three_processors(plan.processors)?;
        let setting = |(wire, offloads)| CostSetting {
            wire,
            offloads,
            device: plan.device,
            processors,
            congestion: plan.parameters.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: plan.measured },
            compare: false,
        };
        let settings = SETTINGS.into_iter().map(setting).collect();
        Ok(Self { plan, settings })
    }
}

impl Experiment for Cost {
    type Parameters = TcpParameters;
    type Setting = CostSetting;
    type Run = CostRun;
    type Findings = CostFindings;

    fn name(&self) -> &'static str {
        "cost"
    }

    fn plan(&self) -> &Plan<TcpParameters> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[CostSetting]> {
        vec![&self.settings]
    }

    fn verify(
        &self,
        setting: &CostSetting,
        interrupted: &AtomicBool,
    ) -> Result<Option<u64>, TrialError> {
        let extent = Extent::Bytes(VERIFIED_BYTES);
        let setting = CostSetting { extent, compare: true, ..setting.clone() };
        measure(&setting, interrupted).map(|run| Some(run.bytes))
    }

    /// Returns whether this error means that the setting can be skipped: AF_XDP may be forbidden or unavailable.
    fn is_optional(&self, setting: &CostSetting, error: &io::Error) -> bool {
        setting.wire == Wire::Xdp && is_refused(error)
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        bench.each(measure, group)
    }

    fn label(&self, setting: &CostSetting) -> String {
        format!("{}, offloads {}", setting.wire, setting.offloads)
    }

    fn brief(&self, runs: &[CostRun]) -> String {
        brief(runs, CostRun::gigabits_a_second, "Gb/s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> CostFindings {
        CostFindings { rows: groups.into_iter().flatten().map(CostRow::new).collect() }
    }

    fn judge(&self, findings: &CostFindings) -> Vec<Verdict> {
        verdict::judge(&findings.rows)
    }

    fn notes(&self, findings: &CostFindings, failed: &[FailedRow]) -> Vec<String> {
        let rows = &findings.rows;
        let mut notes = vec![NOTE.into()];
        let name = Wire::Xdp.to_string();
        let failed = failed.iter().any(|row| row.setting.starts_with(&name));
        if !failed && !rows.iter().any(|row| row.wire == Wire::Xdp) {
            notes.push(
                "AF_XDP was not measured: it needs root and a kernel that supports it.".into(),
            );
        }
        let again: u64 = rows.iter().map(|row| row.retransmits).sum();
        let wrong: u64 = rows.iter().map(|row| row.checksum_errors).sum();
        notes.push(format!(
            "Across all runs: {again} segments retransmitted, {wrong} with a wrong checksum."
        ));
        notes
    }
}

/// Returns whether the kernel does not support this kind of socket, or does not let this user open it.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

/// All settings, in the order of the table.
const SETTINGS: [(Wire, Offloads); 7] = [
    (Wire::Ring, Offloads::On),
    (Wire::Ring, Offloads::OneByOne),
    (Wire::Ring, Offloads::Off),
    (Wire::Xdp, Offloads::On),
    (Wire::Xdp, Offloads::Off),
    (Wire::Udp, Offloads::On),
    (Wire::Udp, Offloads::Off),
];
/// Warm-up time, in which the connection reaches its full speed.
const WARM_UP: Duration = Duration::from_millis(200);
const NOTE: &str = "\
Path a segments packets from its host for the wire. Path b merges packets from
the wire for its host. call: time in the kernel. port: other time in the port.
engine: all work between the ports, including tunnels. sums: checksums of more
than 64 bytes. ACKs: packets in the opposite direction. loop: the loop that
calls the ports and the engine. ?: time not in any other column.
on: superframes, coalescing, and 64 frames per poll. by 1: one frame per poll.
off: no superframes on either path.
During a call, the kernel also runs the receiver's TCP and carries packets over
the veth wire. UDP: the wire is a tunnel. With offloads, its sockets segment and
merge packets (UDP_SEGMENT, UDP_GRO).
The cost excludes the time for reading the clocks, but the throughput includes
it.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::{Series, assert_failures_are_rows},
        report::Report,
    };

    /// Returns a one-second run of 100,000 packets, in which the host gets one frame for every `packets_a_frame`
    /// packets. Path b carries twice as many packets in that time.
    fn run(packets_a_frame: u64, part_ns: f64) -> CostRun {
        let (packets, frames) = (100_000, 100_000 / packets_a_frame);
        let parts = Parts::each(|part| part_ns * f64::from(part as u8 + 1) * packets as f64);
        let bytes = packets * 1500;
        let path = PathRun {
            packets,
            frames,
            total_ns: parts.total(),
            parts,
            receive: Calls { calls: frames * 2, packets, bytes },
            send: Calls { calls: 0, packets, bytes },
        };
        CostRun {
            seconds: 1.0,
            bytes: 125_000_000,
            paths: [path, PathRun { packets: packets * 2, ..path }],
            retransmits: 0,
            checksum_errors: 0,
        }
    }

    /// Returns made-up results in which a packet costs five times as much with one frame per poll, or without offloads.
    pub(super) fn report() -> Report<CostFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (Cost, Vec<Vec<RunsOf<Cost>>>) {
        let experiment = Cost::new(Plan { device: Device::Tap, ..Plan::default() }).unwrap();
        let series = experiment.settings.iter().map(|setting| {
            let runs = match setting.offloads {
                Offloads::On => [1.9, 2.0, 2.2].map(|ns| run(40, ns)).to_vec(),
                Offloads::OneByOne | Offloads::Off => vec![run(1, 10.0); 3],
            };
            Series::new(setting.clone(), runs)
        });
        let series = series.collect();
        (experiment, vec![series])
    }

    #[test]
    fn every_wire_is_measured_with_offloads_and_without() {
        let experiment = Cost::new(Plan { runs: 2, ..Plan::default() }).unwrap();
        assert_eq!(experiment.trials(), 14);
        for wire in [Wire::Ring, Wire::Xdp, Wire::Udp] {
            for offloads in [Offloads::On, Offloads::Off] {
                let is_it = |one: &&CostSetting| (one.wire, one.offloads) == (wire, offloads);
                assert_eq!(experiment.settings.iter().filter(is_it).count(), 1);
            }
        }
    }

    #[test]
    fn figures_are_the_middle_of_all_runs() {
        let report = report().findings;
        let path = &report.rows[0].paths[0];
        assert_eq!((path.total_ns.min.round(), path.total_ns.max.round()), (105.0, 121.0));
        assert_eq!(path.parts.get(PartName::Unexplained), 20.0);
        assert_eq!(path.packets_a_frame, 40.0);
        assert_eq!((path.receive_calls_a_packet, path.send_calls_a_packet), (0.05, 0.0));
        assert_eq!((path.packets_a_receive_call, path.bytes_a_receive_call), (20.0, 30_000.0));
        assert_eq!(report.rows[2].paths[0].total_ns.median, 550.0);
        assert_eq!(report.rows[2].paths[1].total_ns.median, 275.0);
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }
}
