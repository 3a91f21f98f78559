//! Table R3: what becomes of a sender whose acknowledgments are merged, passed or kept, and of a receiver's reads.
//!
//! Two halves with the kernel's own TCP: Grosso is the NIC of who sends the bytes, where acknowledgments come in, or of
//! who receives them. Beside them what can be said exactly: a [model] of the sender, and who overtakes whom.

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

/// How to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// How long each is.
    pub measured: Duration,
    /// The congestion control of TCP.
    pub congestion: String,
    /// What the data path hands packets to a host through.
    pub device: Device,
}

impl Default for Plan {
    /// Two runs of 300 milliseconds with cubic, and the device that may be used everywhere.
    fn default() -> Self {
        Self {
            runs: 2,
            measured: Duration::from_millis(300),
            congestion: "cubic".into(),
            device: Device::Veth,
        }
    }
}

/// Whose NIC Grosso is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Of who sends the bytes: acknowledgments come in.
    Sender,
    /// Of who receives them: data comes in.
    Receiver,
}

/// What Grosso does with what comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handling {
    /// Nothing.
    Off,
    /// Merges acknowledgments into one, as FreeBSD's software of 2011: profile `freebsd`.
    #[serde(rename = "freebsd")]
    Merged,
    /// Merges data alone, which acknowledgments end: profile `linux`.
    #[serde(rename = "linux")]
    Passed,
    /// As `linux`, and acknowledgments leave together and whole.
    Vector,
    /// As the 82599's hardware, which leaves acknowledgments alone: profile `rsc-82599`.
    #[serde(rename = "rsc-82599")]
    Hardware,
    /// As `linux`, and each acknowledgment of a train becomes those of its packets.
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

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    side: Side,
    handling: Handling,
    /// How long trains are held; zero to the end of the poll.
    hold: Duration,
    /// Most bytes of a socket's buffers; `None` for what the lab's streams have otherwise.
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
                // Who sends the bytes gets acknowledgments and no trains.
                if side == Side::Receiver {
                    cases.push(case(Handling::Expanded, MITIGATION));
                }
            }
        }
        Ok(Self { plan, cases, processors })
    }

    /// How many trials it is.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.cases.len() * self.plan.runs
    }

    /// Measures every setting in turn, and all of them again, so that what changes on the machine meanwhile befalls all
    /// alike. `done` is told how many trials are done.
    ///
    /// # Errors
    /// When a trial fails, or `interrupted` is set.
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
        // Room for superframes that say nothing of how they could be cut.
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

/// What the table compares with nothing, on either side.
const HANDLINGS: [Handling; 4] =
    [Handling::Merged, Handling::Passed, Handling::Vector, Handling::Hardware];
/// To the end of the poll, and as long as the 82599's default mitigation.
const HOLDS: [Duration; 2] = [Duration::ZERO, MITIGATION];
const MITIGATION: Duration = Duration::from_micros(16);
/// Around the window that was best in 2011, and what the lab's streams have otherwise.
const SENDER_WINDOWS: [Option<usize>; 4] = [Some(64 << 10), Some(100 << 10), Some(256 << 10), None];
const RECEIVER_WINDOWS: [Option<usize>; 2] = [Some(100 << 10), None];
/// What the receiver lets wait, in bytes, so that it acknowledges every second segment as that of 2011 did: a quarter
/// of the least window.
const READ_BYTES_MIN: u16 = 16 << 10;
/// The MTU of the wire, in bytes.
const WIRE_MTU: u16 = 1500;
/// The greatest MTU of a TAP, in bytes.
const DEVICE_MTU: u16 = 65521;
const WARM_UP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Results that were never measured: in `Gb/s`, merging costs a third and nothing else anything.
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
