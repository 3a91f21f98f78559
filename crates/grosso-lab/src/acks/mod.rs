//! Table R3: throughput of a sender whose acknowledgments are merged, passed or kept, and the reads of a receiver.
//!
//! Two halves use the kernel's own TCP: Grosso is the NIC of the sender, where acknowledgments arrive, or of the
//! receiver. Two exact results stand beside them: a [model] of the sender, and a count of packets that are overtaken.

use core::fmt;
use std::{io, time::Duration};

use grosso::{Profile, coalesce::Acknowledgments};
use serde::Serialize;

use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, TcpParameters, two_processors},
    hosts::{Layout, Mtu},
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure},
    verdict::Verdict,
};

mod findings;
mod growth;
pub mod model;
mod overtake;
mod table;
mod verdict;

pub use findings::{AckFindings, AckRow};
pub use growth::Growth;
pub use overtake::Overtaken;

/// The host whose NIC Grosso is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NicOf {
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
pub struct Case {
    side: NicOf,
    handling: Handling,
    /// Time for which trains are held; zero for the end of the poll.
    hold: Duration,
    /// Greatest size of a socket's buffers in bytes; `None` for the lab's default.
    window_bytes: Option<usize>,
}

/// The settings of table R3.
#[derive(Clone, Debug)]
pub struct Acks {
    plan: Plan<TcpParameters>,
    cases: Vec<Case>,
    processors: [usize; 2],
}

impl Acks {
    /// Both sides, by window, handling and hold.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn new(plan: Plan<TcpParameters>) -> io::Result<Self> {
        let processors = two_processors()?;
        let mut cases = Vec::new();
        for (side, windows) in
            [(NicOf::Sender, &SENDER_WINDOWS[..]), (NicOf::Receiver, &RECEIVER_WINDOWS)]
        {
            for &window_bytes in windows {
                let case = |handling, hold| Case { side, handling, hold, window_bytes };
                cases.push(case(Handling::Off, Duration::ZERO));
                for handling in HANDLINGS {
                    cases.extend(HOLDS.map(|hold| case(handling, hold)));
                }
                // The sender of the bytes receives acknowledgments and no trains.
                if side == NicOf::Receiver {
                    cases.push(case(Handling::Expanded, MITIGATION));
                }
            }
        }
        Ok(Self { plan, cases, processors })
    }

    fn setting(&self, case: &Case) -> Setting {
        let usual = Layout::default();
        // Room for superframes whose metadata does not say how to cut them.
        let receiver = if case.side == NicOf::Receiver { DEVICE_MTU } else { WIRE_MTU };
        let buffers = case.window_bytes.unwrap_or(usual.tcp_buffer_bytes);
        Setting {
            traffic: match case.side {
                NicOf::Sender => Traffic::TcpMaerts,
                NicOf::Receiver => Traffic::TcpStream,
            },
            connections: 1,
            tool: Tool::BuiltIn,
            layout: Layout {
                mtu: Mtu { sender: WIRE_MTU, receiver },
                tcp_buffer_bytes: buffers,
                read_bytes_min: if case.side == NicOf::Sender { READ_BYTES_MIN } else { 0 },
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
            congestion: self.plan.parameters.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: self.plan.measured },
            compare: false,
        }
    }
}

impl Experiment for Acks {
    type Parameters = TcpParameters;
    type Setting = Case;
    type Run = Measured;
    type Findings = AckFindings;

    fn name(&self) -> &'static str {
        "acks"
    }

    fn plan(&self) -> &Plan<TcpParameters> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[Case]> {
        vec![&self.cases]
    }

    fn measure(&self, group: &mut [RunsOf<Self>], bench: &mut Bench<'_>) -> Result<(), TrialError> {
        bench.each(|case, interrupted| measure(&self.setting(case), interrupted), group)
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> AckFindings {
        AckFindings {
            rows: groups.into_iter().flatten().map(AckRow::new).collect(),
            overtaken: Overtaken::count(),
            growth: Growth::all(),
        }
    }

    fn judge(&self, findings: &AckFindings) -> Vec<Verdict> {
        verdict::judge(findings)
    }

    fn notes(&self, findings: &AckFindings) -> Vec<String> {
        let mut notes: Vec<String> = NOTES.lines().map(String::from).collect();
        let runs = findings.rows.iter().flat_map(|row| &row.runs);
        let again: u64 = runs.map(|run| run.retransmits).sum();
        if again > 0 {
            notes.push(format!("{again} segments were sent again in all."));
        }
        notes
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiment::Series, report::Report};

    /// Results that were never measured: in `Gb/s`, merging costs a third and nothing else costs anything.
    pub(super) fn report() -> Report<AckFindings> {
        let experiment = Acks::new(Plan::default()).unwrap();
        let run = |case: &Case| {
            let costs = case.side == NicOf::Sender && case.handling == Handling::Merged;
            let merges = case.side == NicOf::Receiver && case.handling != Handling::Off;
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
            Series::new(*case, vec![run; 3])
        };
        experiment.report(vec![experiment.cases.iter().map(run).collect()]).unwrap()
    }

    #[test]
    fn handlings_have_one_name_in_the_table_and_in_json() {
        for handling in HANDLINGS.into_iter().chain([Handling::Off, Handling::Expanded]) {
            assert_eq!(serde_json::to_value(handling).unwrap(), handling.to_string());
        }
    }

    #[test]
    fn every_setting_is_measured_once_a_run() {
        let experiment = Acks::new(Plan::default()).unwrap();
        assert_eq!(experiment.trials(), 3 * ((4 + 2) * (1 + 4 * 2) + 2));
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
