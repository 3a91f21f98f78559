//! Table R3: how the treatment of arriving acknowledgments affects a sender's throughput, and how often a receiver
//! reads.
//!
//! Streams use the kernel's own TCP. Grosso acts as the NIC either of the sender, where acknowledgments arrive, or of
//! the receiver. Two more results are not measured but exact: how the sender's window grows, computed with a
//! [model](crate::model), and how many packets acknowledgments overtake.

use core::fmt;
use std::{io, time::Duration};

use grosso::{
    Profile,
    coalesce::{Acknowledgments, Hold},
};
use schemars::JsonSchema;
use serde::Serialize;

use self::transfer::Transfer;
use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, brief, three_processors},
    netns::{Layout, Mtu},
    report::FailedRow,
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure, stalls},
    verdict::Verdict,
};

mod findings;
mod growth;
mod overtake;
mod senders;
mod table;
mod transfer;
mod verdict;

pub use findings::{AckFindings, AckRow};
pub use growth::Growth;
pub use overtake::Overtaken;
pub use senders::{SenderKind, Senders, SendersMissing, Worth};
pub use transfer::TransferRow;

/// Host for which Grosso acts as the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NicOf {
    /// The host that sends the data and receives the acknowledgments.
    Sender,
    /// The host that receives the data.
    Receiver,
}

/// Grosso's treatment of arriving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Handling {
    /// Merges nothing.
    Off,
    /// Merges acknowledgments into one, as FreeBSD's software LRO of 2011 did (profile `freebsd-2011`).
    #[serde(rename = "freebsd")]
    Merged,
    /// Merges only data; an acknowledgment ends a train (profile `linux`).
    #[serde(rename = "linux")]
    Passed,
    /// Merges like `linux`, but delivers acknowledgments in batches, each unchanged.
    Vector,
    /// Merges like the 82599's hardware, which does not merge acknowledgments (profile `rsc-82599`).
    #[serde(rename = "rsc-82599")]
    Hardware,
    /// Merges like `linux`, but expands a train's acknowledgment to one acknowledgment for each packet in the train.
    Expanded,
    /// Merges like `linux`, but drops acknowledgments that a later one implies.
    #[serde(rename = "filter")]
    Filtered,
    /// Merges like `linux`, but holds trains as long as this saves work.
    Controlled,
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
            Self::Filtered => "filter",
            Self::Controlled => "controlled",
        })
    }
}

impl Handling {
    fn profile(self, hold: Duration) -> Option<Profile> {
        let mut profile = match self {
            Self::Off => return None,
            Self::Merged => Profile::freebsd_2011(),
            Self::Passed | Self::Expanded => Profile::linux(),
            Self::Vector | Self::Filtered => {
                let mut profile = Profile::linux();
                profile.rules.acknowledgments = match self {
                    Self::Vector => Acknowledgments::Vector,
                    _ => Acknowledgments::Filter,
                };
                profile
            }
            Self::Controlled => {
                let mut profile = Profile::linux();
                profile.hold = Hold::Controlled;
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
    /// Hold time of trains; zero to flush them at the end of the poll.
    hold: Duration,
    /// Maximum size of a socket buffer in bytes; `None` for the lab's default.
    window_bytes: Option<usize>,
    /// The timed transfer; `None` for a stream over a wire without a delay.
    transfer: Option<Transfer>,
}

/// Parameters of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AckParameters {
    /// TCP congestion control for the streams. Transfers have their own senders.
    pub congestion: String,
    /// Round-trip times of the transfers. Only the first one is used with every treatment.
    #[serde(skip)]
    pub round_trips: Vec<Duration>,
    /// Number of bytes in a transfer.
    pub transfer_bytes: u64,
}

impl Default for AckParameters {
    /// Returns the defaults: CUBIC, and transfers of 4 MB with round-trip times of 20, 1 and 100 ms.
    fn default() -> Self {
        Self {
            congestion: "cubic".into(),
            round_trips: [20, 1, 100].map(Duration::from_millis).to_vec(),
            transfer_bytes: 4 << 20,
        }
    }
}

/// The experiment behind table R3.
#[derive(Debug)]
pub struct Acks {
    plan: Plan<AckParameters>,
    cases: Vec<Case>,
    transfers: Vec<Case>,
    processors: [usize; 3],
    /// Senders in the kernel, which must outlive the transfers; `None` if TCP in userspace sends them.
    senders: Option<Senders>,
}

impl Acks {
    /// Creates an experiment that measures both sides with every window, handling and hold time. `senders` send the
    /// transfers; if it is `None`, TCP in userspace does.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn new(plan: Plan<AckParameters>, senders: Option<Senders>) -> io::Result<Self> {
        let processors = three_processors(plan.processors)?;
        let mut cases = Vec::new();
        for side in [NicOf::Sender, NicOf::Receiver] {
            for window_bytes in WINDOWS {
                let case = |handling, hold| {
                    let transfer = None;
                    Case { side, handling, hold, window_bytes, transfer }
                };
                cases.push(case(Handling::Off, Duration::ZERO));
                for handling in HANDLINGS {
                    cases.extend(HOLDS.map(|hold| case(handling, hold)));
                }
                // Acknowledgments are expanded only at the receiver, because trains arrive only there.
                if side == NicOf::Receiver {
                    cases.push(case(Handling::Expanded, MITIGATION));
                }
            }
        }
        let transfers = transfer::cases(&plan.parameters.round_trips);
        Ok(Self { plan, cases, transfers, processors, senders })
    }

    fn sender_kind(&self) -> SenderKind {
        if self.senders.is_some() { SenderKind::Kernel } else { SenderKind::Userspace }
    }

    fn setting(&self, case: &Case) -> Setting {
        let usual = Layout::default();
        let plan = &self.plan;
        // `DEVICE_MTU` leaves room for superframes without segmentation metadata.
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
            back: None,
            device: plan.device,
            processors: self.processors,
            congestion: plan.parameters.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: plan.measured },
            compare: false,
        }
    }

    /// Returns the setting for a transfer that is timed from its first byte.
    fn timed(&self, case: &Case, transfer: &Transfer) -> Setting {
        let mut setting = self.setting(case);
        let [mut there, back] = transfer.wire();
        if self.sender_kind() == SenderKind::Userspace {
            there.rate_bits = (case.side == NicOf::Receiver).then_some(USERSPACE_RATE_BITS);
            setting.carrier = Carrier::Userspace {
                profile: case.handling.profile(case.hold).map(Box::new),
                expand: case.handling == Handling::Expanded,
                counting: transfer.worth.counting(),
            };
        }
        // As after an interrupt from a NIC, a whole burst of acknowledgments has arrived by the time the path polls
        // again.
        let [_, processor, _] = self.processors;
        Setting {
            layout: Layout {
                tcp_buffer_bytes: case.window_bytes.unwrap_or(TRANSFER_BUFFER_BYTES),
                under_way_bytes: UNDER_WAY_BYTES,
                read_bytes_min: READ_BYTES_MIN,
                // When packets are lost, the sender must detect the loss as early as an ordinary host would.
                patient: transfer.loss <= 0.0,
                ..setting.layout
            },
            impairment: Some(there),
            back: Some(back),
            processors: [processor; 3],
            congestion: transfer.worth.congestion().into(),
            // On the LAN, most of the transfer must come after slow start.
            extent: Extent::Bytes(match case.window_bytes {
                Some(_) => self.plan.parameters.transfer_bytes.saturating_mul(LAN_TRANSFERS),
                None => self.plan.parameters.transfer_bytes,
            }),
            ..setting
        }
    }
}

impl Experiment for Acks {
    type Parameters = AckParameters;
    type Setting = Case;
    type Run = Measured;
    type Findings = AckFindings;

    fn name(&self) -> &'static str {
        "acks"
    }

    fn plan(&self) -> &Plan<AckParameters> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[Case]> {
        vec![&self.cases, &self.transfers]
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        let setting = |case: &Case| match &case.transfer {
            Some(transfer) => self.timed(case, transfer),
            None => self.setting(case),
        };
        bench.each(|case, interrupted| measure(&setting(case), interrupted), group)
    }

    fn label(&self, case: &Case) -> String {
        let side = match case.side {
            NicOf::Sender => "sender",
            NicOf::Receiver => "receiver",
        };
        let window = case.window_bytes.map(|bytes| format!(", window {bytes} bytes"));
        let transfer = case.transfer.map(|transfer| {
            let Transfer { worth, round_trip, loss } = transfer;
            format!(", transfer ({worth}, {round_trip:?}, {} % loss)", loss * 100.0)
        });
        let [window, transfer] = [window, transfer].map(Option::unwrap_or_default);
        format!("{side}, {}, hold {:?}{window}{transfer}", case.handling, case.hold)
    }

    fn brief(&self, runs: &[Measured]) -> String {
        brief(runs, Measured::gigabits_a_second, "Gb/s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> AckFindings {
        let series: Vec<RunsOf<Self>> = groups.into_iter().flatten().collect();
        AckFindings {
            senders: self.sender_kind(),
            transfers: series.iter().filter_map(TransferRow::new).collect(),
            rows: series
                .into_iter()
                .filter(|series| series.setting.transfer.is_none())
                .map(AckRow::new)
                .collect(),
            overtaken: Overtaken::count(),
            growth: Growth::all(),
        }
    }

    fn judge(&self, findings: &AckFindings) -> Vec<Verdict> {
        verdict::judge(findings)
    }

    fn notes(&self, findings: &AckFindings, _failed: &[FailedRow]) -> Vec<String> {
        let mut notes: Vec<String> = NOTES.lines().map(String::from).collect();
        if findings.senders == SenderKind::Userspace {
            notes.extend(IN_USERSPACE.lines().map(String::from));
        }
        let transfers = findings.transfers.iter().flat_map(|row| &row.runs);
        let runs = findings.rows.iter().flat_map(|row| &row.runs).chain(transfers);
        let repeated = runs.clone().map(|run| run.repeated).sum();
        notes.extend(stalls(repeated, runs.clone().count()));
        let again: u64 = runs.map(|run| run.retransmits).sum();
        if again > 0 {
            notes.push(format!("Across all runs, {again} segments were retransmitted."));
        }
        notes
    }
}

/// Treatments that the table compares with no merging, both at the sender and at the receiver.
const HANDLINGS: [Handling; 4] =
    [Handling::Merged, Handling::Passed, Handling::Vector, Handling::Hardware];
/// Hold times: zero, so that trains end with the poll, and the 82599's default mitigation time.
const HOLDS: [Duration; 2] = [Duration::ZERO, MITIGATION];
/// TCP buffer size in bytes: large enough for a delay of several milliseconds.
const TRANSFER_BUFFER_BYTES: usize = 4 << 20;
/// Capacity of the wire in bytes: large enough for the same delay.
const UNDER_WAY_BYTES: usize = 16 << 20;
/// Size of a transfer on the LAN, as a multiple of the transfers with longer round-trip times.
const LAN_TRANSFERS: u64 = 8;
/// Default mitigation time of the 82599, also used as the hold time of trains at the receiver of a transfer.
const MITIGATION: Duration = Duration::from_micros(16);
/// Rate of the wire from a sender in userspace to the NIC of its receiver, in bits per second. Without this limit, the
/// sender would send all segments that a batch of acknowledgments allows at the same time, whereas a kernel needs about
/// 6 us per segment.
const USERSPACE_RATE_BITS: u64 = 2_000_000_000;
/// TCP buffer sizes: three around the window that was best in the measurements of 2011, and the lab's default.
const WINDOWS: [Option<usize>; 4] = [Some(64 << 10), Some(BEST_2011), Some(256 << 10), None];
/// The window size with the best throughput in the measurements of 2011, in bytes.
const BEST_2011: usize = 100 << 10;
/// Minimum number of bytes per read: a quarter of the smallest window, so that the receiver acknowledges every second
/// segment, as the one in 2011 did.
const READ_BYTES_MIN: u16 = 16 << 10;
/// The MTU of the wire, in bytes.
const WIRE_MTU: u16 = 1500;
/// Maximum MTU of a TAP, in bytes.
const DEVICE_MTU: u16 = 65521;
const WARM_UP: Duration = Duration::from_millis(50);
const NOTES: &str = "\
ACKs/s sent: acknowledgments per second that the receiver sent. ACKs/s reached:
acknowledgments per second that reached the sender. segm./unit: data packets per
frame between Grosso and the host whose NIC it replaces.
Published (82599 NIC, 2011): the sender reached 4-5 Gb/s with merged
acknowledgments, and 8.0 Gb/s without merging. With 4-5 segments per unit, the
receiver needed a third of the reads. A window of 100 KB was best.
Streams are sent by the unmodified kernel over a path without delay. The kernel
counts acknowledged bytes without a limit: a merged acknowledgment increases the
window by all bytes that it acknowledges.
Each transfer is timed from its first byte. Its sender uses Reno and counts an
acknowledgment in one of three ways: as all its bytes (as in Linux), as at most
two segments (L = 2, RFC 3465, as in FreeBSD), or as one segment. Each ratio
compares a time with the time in the row \"off\".
In transfers, and in streams with Grosso at the sender, the receiver's kernel
wakes the reading thread when 16 KB have arrived (SO_RCVLOWAT). Until then, the
kernel acknowledges every second segment. In other streams, the receiver reads
the data as it arrives.
By default, Grosso at the sender ends the trains of a transfer after each poll.
Grosso at the receiver holds them for 16 us.
LAN: the round trip is 0.1 ms, so a window of 100 KB allows 8 Gb/s. Transfers on
the LAN are eight times larger. Acknowledgments reach the sender in groups every
16 us, either merged or as a vector, in which they stay separate.
expanded: Grosso uses the profile linux. It expands an acknowledgment of merged
packets to one acknowledgment per two packets, at most 32, and sends them back
to back. All of them count as ACKs/s reached.";
const IN_USERSPACE: &str = "\
Userspace TCP sent the transfers, with one connection per port. It does not
support selective acknowledgments, tail loss probes or TCP small queues. Its
retransmission timeout is at least one second. It runs on the CPU of the data
path. It sends a whole window at once, so the wire to the receiver's NIC is
limited to 2 Gb/s.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::{Series, assert_failures_are_rows},
        report::Report,
    };

    /// Returns made-up results in which merging reduces throughput by a third, and nothing else has an effect.
    pub(super) fn report() -> Report<AckFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (Acks, Vec<Vec<RunsOf<Acks>>>) {
        let experiment = Acks::new(Plan::default(), None).unwrap();
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
                bytes: match case.side {
                    _ if costs => 500_000_000,
                    NicOf::Receiver if case.window_bytes == Some(BEST_2011) => 1_100_000_000,
                    _ => 1_000_000_000,
                },
                units: if merges { 12_000 } else { 60_000 },
                acknowledgements,
                acknowledgements_passed: Some(passed),
                segments_per_train: Some(if merges { 16.0 } else { 1.0 }),
                ..Measured::default()
            };
            Series::new(*case, vec![run; 3])
        };
        let timed = |case: &Case| {
            let run = Measured { seconds: seconds(case), bytes: 4 << 20, ..Measured::default() };
            Series::new(*case, vec![run; 3])
        };
        let streams = experiment.cases.iter().map(run).collect();
        let transfers = experiment.transfers.iter().map(timed).collect();
        (experiment, vec![streams, transfers])
    }

    /// Returns how long a transfer takes with senders that behave as in 2011.
    fn seconds(case: &Case) -> f64 {
        let Some(Transfer { worth, .. }) = case.transfer else { return 0.0 };
        let alone = if worth == Worth::One { 0.53 } else { 0.266 };
        let starves = matches!(case.handling, Handling::Merged | Handling::Filtered);
        alone
            * match (case.side, case.handling) {
                _ if worth == Worth::Bytes => 1.0,
                (NicOf::Sender, _) if starves => 3.0,
                (NicOf::Receiver, Handling::Passed) => 1.6,
                (NicOf::Receiver, Handling::Expanded) if worth == Worth::One => 1.4,
                _ => 1.0,
            }
    }

    #[test]
    fn transfers_have_a_wire_in_both_directions_and_their_sender() {
        let round_trips = vec![Duration::from_millis(20)];
        let parameters = AckParameters { round_trips, ..AckParameters::default() };
        let plan = Plan { parameters, ..Plan::default() };
        let experiment = Acks::new(plan, None).unwrap();
        for case in &experiment.transfers {
            let transfer = case.transfer.unwrap();
            let setting = experiment.timed(case, &transfer);
            assert_eq!(setting.hold(), (case.handling != Handling::Off).then_some(case.hold));
            let [there, back] = [setting.impairment, setting.back].map(Option::unwrap);
            let is_lan = case.window_bytes.is_some();
            let delay = Duration::from_micros(if is_lan { 50 } else { 10_000 });
            assert_eq!([there.delay, back.delay], [delay; 2]);
            let buffer_bytes = if is_lan { 100 << 10 } else { 4 << 20 };
            assert_eq!(setting.layout.tcp_buffer_bytes, buffer_bytes);
            assert_ne!(there.seed, back.seed);
            assert_eq!(setting.layout.patient, there.loss <= 0.0);
            assert!(setting.congestion.starts_with("grosso_"), "{}", setting.congestion);
            let Carrier::Userspace { expand, counting, .. } = setting.carrier else {
                panic!("no senders are loaded: {:?}", setting.carrier)
            };
            assert_eq!(expand, case.handling == Handling::Expanded);
            assert_eq!(counting, transfer.worth.counting());
            assert_eq!(setting.extent, Extent::Bytes(if is_lan { 32 << 20 } else { 4 << 20 }));
            // A kernel sender spends time on each packet, which spaces its packets out. With a userspace sender, the
            // wire to the receiver's NIC does the spacing.
            assert_eq!(there.rate_bits.is_some(), case.side == NicOf::Receiver);
            assert_eq!(back.rate_bits, None);
            let is_usual = case.side == NicOf::Sender || case.hold == MITIGATION;
            assert!(is_usual, "{:?}", case.hold);
        }
    }

    #[test]
    fn handlings_have_one_name_in_the_table_and_in_json() {
        let others = [Handling::Off, Handling::Expanded, Handling::Filtered, Handling::Controlled];
        for handling in HANDLINGS.into_iter().chain(others) {
            assert_eq!(serde_json::to_value(handling).unwrap(), handling.to_string());
        }
    }

    #[test]
    fn every_setting_is_measured_once_a_run() {
        let experiment = Acks::new(Plan::default(), None).unwrap();
        assert_eq!(experiment.trials(), 3 * ((4 + 4) * (1 + 4 * 2) + 4 + 61 + 6));
        let settings = experiment.cases.iter().map(|case| experiment.setting(case));
        let carriers: Vec<_> = settings.map(|setting| setting.carrier).collect();
        let off = |carrier: &&Carrier| matches!(carrier, Carrier::Grosso { profile: None, .. });
        assert_eq!(carriers.iter().filter(off).count(), 8);
        let expands = |carrier: &&Carrier| matches!(carrier, Carrier::Grosso { expand: true, .. });
        assert_eq!(carriers.iter().filter(expands).count(), 4);
        let held = carriers.iter().filter(expands).map(|carrier| match carrier {
            Carrier::Grosso { profile: Some(profile), .. } => profile.limits.hold_ns,
            _ => 0,
        });
        assert_eq!(held.collect::<Vec<_>>(), [16_000; 4]);
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }
}
