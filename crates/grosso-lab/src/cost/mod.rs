//! Cost of a packet: the time of two data paths, by part, while kernel TCP passes through them.
//!
//! ```text
//!  a (kernel)    data path of a                data path of b    b (kernel)
//!  socket - s0 - TUN, cut, send ---- wire ---- receive, join, TUN - r0 - socket
//! ```
//!
//! The ends of the wire are packet sockets with rings, AF_XDP sockets, or UDP sockets with a tunnel over them. Each is
//! measured with offloads and without, and the first also with one frame a poll.

use core::fmt;
use std::{io, sync::atomic::AtomicBool, time::Duration};

use serde::Serialize;

use crate::{
    conditions::two_processors,
    hosts::Device,
    trial::{Extent, TrialError},
};

mod page;
mod report;
mod table;
mod trial;
mod verdict;

pub use report::{Environment, Path, Report, RowResult};
pub use trial::{Calls, Measured, PartName, Parts, PathMeasured, measure};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub measured: Duration,
    /// The congestion control of TCP.
    pub congestion: String,
    /// Device through which the data paths hand packets to a host.
    pub device: Device,
}

impl Default for Plan {
    /// Three runs of a second, cubic, and the device that works everywhere.
    fn default() -> Self {
        Self {
            runs: 3,
            measured: Duration::from_secs(1),
            congestion: "cubic".into(),
            device: Device::Veth,
        }
    }
}

/// Transport at the ends of the wire, under the data paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// Offloads in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Offloads {
    /// All: superframes at the host, coalescing, `UDP_SEGMENT` and `UDP_GRO`, 64 frames a poll.
    On,
    /// The same, but one frame a poll, so that nothing is batched.
    OneByOne,
    /// None: packets of the MTU everywhere.
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
pub struct Setting {
    /// Transport at the ends of the wire.
    pub wire: Wire,
    /// Offloads in use.
    pub offloads: Offloads,
    /// Device through which the data paths hand packets to a host.
    pub device: Device,
    /// The processor of the sender and its data path, and that of the receiver and its data path.
    pub processors: [usize; 2],
    /// The congestion control of TCP.
    pub congestion: String,
    /// Duration or size of the measurement.
    pub extent: Extent,
    /// Whether every byte received is compared with the one sent.
    pub compare: bool,
}

/// The settings of the experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    plan: Plan,
    settings: Vec<Setting>,
}

impl Experiment {
    /// An experiment with every wire, with offloads and without.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let processors = two_processors()?;
        let setting = |(wire, offloads)| Setting {
            wire,
            offloads,
            device: plan.device,
            processors,
            congestion: plan.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: plan.measured },
            compare: false,
        };
        let settings = SETTINGS.into_iter().map(setting).collect();
        Ok(Self { plan, settings })
    }

    /// Number of trials.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.settings.len() * self.plan.runs
    }

    /// Measures every setting in turn and repeats that, so that changes on the machine affect all settings alike.
    /// `done` is called with the number of trials done.
    ///
    /// Before that, every setting carries a stream of which every byte is compared with the one sent. AF_XDP is left
    /// out if it is not permitted or not available.
    ///
    /// # Errors
    /// Fails if a trial fails or `interrupted` is set.
    pub fn run(
        &self,
        interrupted: &AtomicBool,
        mut done: impl FnMut(usize),
    ) -> Result<Report, TrialError> {
        let settings = self.verify(interrupted)?;
        let mut runs = vec![Vec::new(); settings.len()];
        let mut trials = 0;
        for _ in 0..self.plan.runs {
            for (setting, runs) in settings.iter().zip(&mut runs) {
                runs.push(measure(setting, interrupted)?);
                trials += 1;
                done(trials);
            }
        }
        Report::new(&self.plan, &settings, runs).map_err(TrialError::from)
    }

    fn verify(&self, interrupted: &AtomicBool) -> Result<Vec<Setting>, TrialError> {
        let mut settings = self.settings.clone();
        for setting in core::mem::take(&mut settings) {
            let extent = Extent::Bytes(VERIFIED_BYTES);
            match measure(&Setting { extent, compare: true, ..setting.clone() }, interrupted) {
                Err(TrialError::Io(error)) if setting.wire == Wire::Xdp && is_refused(&error) => {}
                measured => {
                    measured?;
                    settings.push(setting);
                }
            }
        }
        Ok(settings)
    }
}

/// Whether the kernel lacks this kind of socket, or refuses it to this user.
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
/// Time before the measurement, in which the connection finds its speed.
const WARM_UP: Duration = Duration::from_millis(200);
/// Bytes that are compared one by one for every setting: some hundred superframes.
const VERIFIED_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a second that was never measured: 100000 packets, with one frame at the host for `packets_a_frame` of
    /// them. Path b has twice as many packets in the same time.
    fn run(packets_a_frame: u64, part_ns: f64) -> Measured {
        let (packets, frames) = (100_000, 100_000 / packets_a_frame);
        let parts = Parts::each(|part| part_ns * f64::from(part as u8 + 1) * packets as f64);
        let bytes = packets * 1500;
        let path = PathMeasured {
            packets,
            frames,
            total_ns: parts.total(),
            parts,
            receive: Calls { calls: frames * 2, packets, bytes },
            send: Calls { calls: 0, packets, bytes },
        };
        Measured {
            seconds: 1.0,
            bytes: 125_000_000,
            paths: [path, PathMeasured { packets: packets * 2, ..path }],
            retransmits: 0,
            checksum_errors: 0,
        }
    }

    /// Results that were never measured: with one frame a poll, and without offloads, a packet costs five times as
    /// much.
    pub(super) fn report() -> Report {
        let plan = Plan { device: Device::Tap, ..Plan::default() };
        let settings = Experiment::new(plan.clone()).unwrap().settings;
        let runs = settings.iter().map(|setting| match setting.offloads {
            Offloads::On => [1.9, 2.0, 2.2].map(|ns| run(40, ns)).to_vec(),
            Offloads::OneByOne | Offloads::Off => vec![run(1, 10.0); 3],
        });
        Report::new(&plan, &settings, runs.collect()).unwrap()
    }

    #[test]
    fn every_wire_is_measured_with_offloads_and_without() {
        let experiment = Experiment::new(Plan { runs: 2, ..Plan::default() }).unwrap();
        assert_eq!(experiment.trials(), 14);
        for wire in [Wire::Ring, Wire::Xdp, Wire::Udp] {
            for offloads in [Offloads::On, Offloads::Off] {
                let is_it = |one: &&Setting| (one.wire, one.offloads) == (wire, offloads);
                assert_eq!(experiment.settings.iter().filter(is_it).count(), 1);
            }
        }
    }

    #[test]
    fn figures_are_the_middle_of_all_runs() {
        let report = report();
        let path = &report.rows[0].paths[0];
        assert_eq!((path.total_ns.min.round(), path.total_ns.max.round()), (105.0, 121.0));
        assert_eq!(path.parts.get(PartName::Unexplained), 20.0);
        assert_eq!(path.packets_a_frame, 40.0);
        assert_eq!((path.receive_calls_a_packet, path.send_calls_a_packet), (0.05, 0.0));
        assert_eq!((path.packets_a_receive_call, path.bytes_a_receive_call), (20.0, 30_000.0));
        assert_eq!(report.rows[2].paths[0].total_ns.median, 550.0);
        assert_eq!(report.rows[2].paths[1].total_ns.median, 275.0);
    }
}
