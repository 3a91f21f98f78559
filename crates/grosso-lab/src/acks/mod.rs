//! Table R3: throughput of a sender whose acknowledgments are merged, passed or kept, and the reads of a receiver.
//!
//! Two halves use the kernel's own TCP: Grosso is the NIC of the sender, where acknowledgments arrive, or of the
//! receiver. Two exact results stand beside them: a [model] of the sender, and a count of packets that are overtaken.

use core::fmt;
use std::{io, sync::atomic::AtomicBool, time::Duration};

use grosso::{Profile, coalesce::Acknowledgments};
use serde::Serialize;

use crate::{
    conditions::two_processors,
    hosts::{Device, Layout, Mtu},
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure},
};

mod growth;
pub mod model;
mod overtake;
mod report;
mod table;
mod verdict;

pub use growth::Growth;
pub use overtake::Overtaken;
pub use report::{Environment, Report, RowResult};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub measured: Duration,
    /// The congestion control of TCP.
    pub congestion: String,
    /// Device through which the data path hands packets to a host.
    pub device: Device,
}

impl Default for Plan {
    /// Two runs of 300 milliseconds with cubic, and the device that works everywhere.
    fn default() -> Self {
        Self {
            runs: 2,
            measured: Duration::from_millis(300),
            congestion: "cubic".into(),
            device: Device::Veth,
        }
    }
}

/// The host whose NIC Grosso is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The sender of the bytes: acknowledgments arrive.
    Sender,
    /// The receiver of the bytes: data arrive.
    Receiver,
}

/// Grosso's treatment of arriving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handling {
    /// Nothing.
    Off,
    /// Merges acknowledgments into one, as FreeBSD's software LRO of 2011 did: profile `freebsd`.
    #[serde(rename = "freebsd")]
    Merged,
    /// Merges data alone; an acknowledgment ends a train: profile `linux`.
    #[serde(rename = "linux")]
    Passed,
    /// As `linux`, but acknowledgments leave in batches, each unchanged.
    Vector,
    /// As the hardware of the 82599, which does not merge acknowledgments: profile `rsc-82599`.
    #[serde(rename = "rsc-82599")]
    Hardware,
    /// As `linux`, and the acknowledgment of a train is expanded to those of its packets.
    Expanded,
}

impl fmt::Display for Handling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Off => "off",
            Self::Merged => "freebsd",
            Self::Passed => "linux",
            Self::Vector => "vector",
            Self::Hardware => "rsc-82599",
            Self::Expanded => "expanded",
        })
    }
}

impl Handling {
    fn profile(self, hold: Duration) -> Option<Profile> {
        let mut profile = match self {
            Self::Off => return None,
            Self::Merged => Profile::freebsd(),
            Self::Passed | Self::Expanded => Profile::linux(),
            Self::Vector => {
                let mut profile = Profile::linux();
                profile.rules.acknowledgments = Acknowledgments::Vector;
                profile
            }
            Self::Hardware => Profile::rsc_82599(4096),
        };
        profile.limits.hold_ns = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
        Some(profile)
    }
}

/// One setting to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    side: Side,
    handling: Handling,
    /// Time for which trains are held; zero for the end of the poll.
    hold: Duration,
    /// Greatest size of a socket's buffers in bytes; `None` for the lab's default.
    window_bytes: Option<usize>,
}

/// The settings of table R3.
#[derive(Clone, Debug)]
pub struct Experiment {
    plan: Plan,
    cases: Vec<Case>,
    processors: [usize; 2],
}

impl Experiment {
    /// Both sides, by window, handling and hold.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let processors = two_processors()?;
        let mut cases = Vec::new();
        for (side, windows) in
            [(Side::Sender, &SENDER_WINDOWS[..]), (Side::Receiver, &RECEIVER_WINDOWS)]
        {
            for &window_bytes in windows {
                let case = |handling, hold| Case { side, handling, hold, window_bytes };
                cases.push(case(Handling::Off, Duration::ZERO));
                for handling in HANDLINGS {
                    cases.extend(HOLDS.map(|hold| case(handling, hold)));
                }
                // The sender of the bytes receives acknowledgments and no trains.
                if side == Side::Receiver {
                    cases.push(case(Handling::Expanded, MITIGATION));
                }
            }
        }
        Ok(Self { plan, cases, processors })
    }

    /// Number of trials.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.cases.len() * self.plan.runs
    }

    /// Measures every setting in turn and repeats that, so that changes on the machine affect all settings alike.
    /// `done` is called with the number of trials done.
    ///
    /// # Errors
    /// Fails if a trial fails or `interrupted` is set.
    pub fn run(
        &self,
        interrupted: &AtomicBool,
        mut done: impl FnMut(usize),
    ) -> Result<Report, TrialError> {
        let mut runs: Vec<Vec<Measured>> = vec![Vec::new(); self.cases.len()];
        let mut trials = 0;
        for _ in 0..self.plan.runs {
            for (case, kept) in self.cases.iter().zip(&mut runs) {
                kept.push(measure(&self.setting(case), interrupted)?);
                trials += 1;
                done(trials);
            }
        }
        Report::new(&self.plan, &self.cases, runs).map_err(TrialError::from)
    }

    fn setting(&self, case: &Case) -> Setting {
        let usual = Layout::default();
        // Room for superframes whose metadata does not say how to cut them.
        let receiver = if case.side == Side::Receiver { DEVICE_MTU } else { WIRE_MTU };
        let buffers = case.window_bytes.unwrap_or(usual.tcp_buffer_bytes);
        Setting {
            traffic: match case.side {
                Side::Sender => Traffic::TcpMaerts,
                Side::Receiver => Traffic::TcpStream,
            },
            connections: 1,
            tool: Tool::BuiltIn,
            layout: Layout {
                mtu: Mtu { sender: WIRE_MTU, receiver },
                tcp_buffer_bytes: buffers,
                read_bytes_min: if case.side == Side::Sender { READ_BYTES_MIN } else { 0 },
                ..usual
            },
            carrier: Carrier::Grosso {
                profile: case.handling.profile(case.hold).map(Box::new),
                copy: false,
                expand: case.handling == Handling::Expanded,
            },
            impairment: None,
            device: self.plan.device,
            processors: self.processors,
            congestion: self.plan.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: self.plan.measured },
            compare: false,
        }
    }
}

/// Treatments that the table compares with none, on either side.
const HANDLINGS: [Handling; 4] =
    [Handling::Merged, Handling::Passed, Handling::Vector, Handling::Hardware];
/// The end of the poll, and the 82599's default mitigation time.
const HOLDS: [Duration; 2] = [Duration::ZERO, MITIGATION];
const MITIGATION: Duration = Duration::from_micros(16);
/// Sizes around the window that was best in 2011, and the lab's default.
const SENDER_WINDOWS: [Option<usize>; 4] = [Some(64 << 10), Some(100 << 10), Some(256 << 10), None];
const RECEIVER_WINDOWS: [Option<usize>; 2] = [Some(100 << 10), None];
/// Least number of bytes that the receiver reads at once, so that it acknowledges every second segment as that of 2011
/// did: a quarter of the least window.
const READ_BYTES_MIN: u16 = 16 << 10;
/// The MTU of the wire, in bytes.
const WIRE_MTU: u16 = 1500;
/// The greatest MTU of a TAP, in bytes.
const DEVICE_MTU: u16 = 65521;
const WARM_UP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Results that were never measured: in `Gb/s`, merging costs a third and nothing else costs anything.
    pub(super) fn report() -> Report {
        let experiment = Experiment::new(Plan::default()).unwrap();
        let run = |case: &Case| {
            let costs = case.side == Side::Sender && case.handling == Handling::Merged;
            let merges = case.side == Side::Receiver && case.handling != Handling::Off;
            let acknowledgements = if merges { 20_000 } else { 340_000 };
            let passed = match case.handling {
                Handling::Merged if costs => acknowledgements / 8,
                Handling::Expanded => acknowledgements * 8,
                _ => acknowledgements,
            };
            let run = Measured {
                seconds: 1.0,
                bytes: if costs { 500_000_000 } else { 1_000_000_000 },
                units: if merges { 12_000 } else { 60_000 },
                acknowledgements,
                acknowledgements_passed: Some(passed),
                segments_per_train: Some(if merges { 16.0 } else { 1.0 }),
                ..Measured::default()
            };
            vec![run; 2]
        };
        let runs = experiment.cases.iter().map(run).collect();
        Report::new(&experiment.plan, &experiment.cases, runs).unwrap()
    }

    #[test]
    fn handlings_have_one_name_in_the_table_and_in_json() {
        for handling in HANDLINGS.into_iter().chain([Handling::Off, Handling::Expanded]) {
            assert_eq!(serde_json::to_value(handling).unwrap(), handling.to_string());
        }
    }

    #[test]
    fn every_setting_is_measured_once_a_run() {
        let experiment = Experiment::new(Plan::default()).unwrap();
        assert_eq!(experiment.trials(), 2 * ((4 + 2) * (1 + 4 * 2) + 2));
        let settings = experiment.cases.iter().map(|case| experiment.setting(case));
        let carriers: Vec<_> = settings.map(|setting| setting.carrier).collect();
        let off = |carrier: &&Carrier| matches!(carrier, Carrier::Grosso { profile: None, .. });
        assert_eq!(carriers.iter().filter(off).count(), 6);
        let expands = |carrier: &&Carrier| matches!(carrier, Carrier::Grosso { expand: true, .. });
        assert_eq!(carriers.iter().filter(expands).count(), 2);
        let held = carriers.iter().filter(expands).map(|carrier| match carrier {
            Carrier::Grosso { profile: Some(profile), .. } => profile.limits.hold_ns,
            _ => 0,
        });
        assert_eq!(held.collect::<Vec<_>>(), [16_000; 2]);
    }
}
