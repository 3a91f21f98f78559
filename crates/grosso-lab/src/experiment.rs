//! Which trials answer a question, and what came of them.

use std::{fs, io, sync::atomic::AtomicBool, time::Duration};

use grosso_sys::scheduling::allowed_processors;
use serde::Serialize;

use crate::{
    hosts::{Device, Mtu},
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, TrialError, measure},
};

mod latency;
mod page;
mod spread;
mod table;

pub use latency::Latency;
pub use spread::Spread;

/// How to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// How long each is.
    pub measured: Duration,
    /// The congestion control of TCP. One that paces, as bbr does, hides what offload does.
    pub congestion: String,
    /// How long a train may be held.
    pub hold: Duration,
    /// Whether the sender sends from a file, without a copy of its own.
    pub sendfile: bool,
    /// What the data path hands packets to a host through.
    pub device: Device,
}

impl Default for Plan {
    /// Three runs of a second, cubic, 100 microseconds, and the device that may be used everywhere.
    fn default() -> Self {
        Self {
            runs: 3,
            measured: Duration::from_secs(1),
            congestion: "cubic".into(),
            hold: Duration::from_micros(100),
            sendfile: false,
            device: Device::Veth,
        }
    }
}

impl Plan {
    fn traffic(&self) -> Traffic {
        if self.sendfile { Traffic::TcpSendfile } else { Traffic::TcpStream }
    }
}

/// Trials that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    name: &'static str,
    traffic: Traffic,
    plan: Plan,
    groups: Vec<Group>,
}

/// Settings that differ in what carries the packets alone; the second is compared with the first.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    mtu: Mtu,
    processors: [usize; 2],
    rows: Vec<(&'static str, Carrier)>,
    published: Option<Published>,
}

impl Experiment {
    /// What coalescing is worth at an MTU of 1500: on one processor, then on two where there are
    /// two.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn headline(plan: Plan) -> io::Result<Self> {
        let groups = processor_pairs()?.into_iter().map(|processors| Group {
            mtu: MTU_PAIRS[0].0,
            processors,
            rows: coalescing(&plan).to_vec(),
            published: (processors[0] == processors[1]).then_some(MTU_PAIRS[0].1),
        });
        Ok(Self { name: "lro", traffic: plan.traffic(), groups: groups.collect(), plan })
    }

    /// Table R1: three pairs of MTUs, with the kernel's own wire beside.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn lro(plan: Plan) -> io::Result<Self> {
        let mut groups = Vec::new();
        for processors in processor_pairs()? {
            let is_one = processors[0] == processors[1];
            groups.extend(MTU_PAIRS.map(|(mtu, published)| Group {
                mtu,
                processors,
                rows: coalescing(&plan).into_iter().chain(KERNEL).collect(),
                published: is_one.then_some(published),
            }));
        }
        Ok(Self { name: "lro", traffic: plan.traffic(), plan, groups })
    }

    /// Table R5: what it is worth that the sender's kernel hands out superframes, which Grosso
    /// cuts.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn gso(plan: Plan) -> io::Result<Self> {
        let groups = processor_pairs()?.into_iter().take(1).flat_map(|processors| {
            SENDER_MTUS.map(|(bytes, published)| Group {
                mtu: Mtu { sender: bytes, receiver: bytes },
                processors,
                rows: SUPERFRAMES.to_vec(),
                published: Some(published),
            })
        });
        Ok(Self { name: "gso", traffic: plan.traffic(), groups: groups.collect(), plan })
    }

    /// What coalescing costs one who waits for answers: a byte there and one back, on one
    /// processor. On two, a virtual machine's wake-ups would be most of it.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn requests(plan: Plan) -> io::Result<Self> {
        let groups = processor_pairs()?.into_iter().take(1).map(|processors| Group {
            mtu: MTU_PAIRS[0].0,
            processors,
            rows: coalescing(&plan).into_iter().chain(KERNEL).collect(),
            published: None,
        });
        let traffic = Traffic::TcpRequests;
        Ok(Self { name: "rr", traffic, groups: groups.collect(), plan })
    }

    /// How many trials it is.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum::<usize>() * self.plan.runs
    }

    /// Measures every setting in turn, and all of them again, so that what changes on the machine
    /// meanwhile befalls all alike. `done` is told how many trials are done.
    ///
    /// # Errors
    /// When a trial fails, or `interrupted` is set.
    pub fn run(
        &self,
        interrupted: &AtomicBool,
        mut done: impl FnMut(usize),
    ) -> Result<Report, TrialError> {
        let mut runs: Vec<Vec<Vec<Measured>>> =
            self.groups.iter().map(|group| vec![Vec::new(); group.rows.len()]).collect();
        for i in 0..self.plan.runs {
            for (group, kept) in self.groups.iter().zip(&mut runs) {
                for ((_, carrier), kept) in group.rows.iter().zip(kept) {
                    kept.push(measure(&self.setting(group, *carrier), interrupted)?);
                }
            }
            done((i + 1) * self.trials() / self.plan.runs);
        }
        let groups = self.groups.iter().zip(runs).map(|(group, runs)| group.result(runs));
        Ok(Report {
            experiment: self.name,
            environment: Environment::of(&self.plan, self.traffic)?,
            groups: groups.collect(),
        })
    }

    fn setting(&self, group: &Group, carrier: Carrier) -> Setting {
        Setting {
            traffic: self.traffic,
            mtu: group.mtu,
            carrier,
            device: self.plan.device,
            processors: group.processors,
            congestion: self.plan.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: self.plan.measured },
            compare: false,
        }
    }
}

impl Group {
    fn result(&self, runs: Vec<Vec<Measured>>) -> GroupResult {
        let rows = self.rows.iter().zip(runs);
        let rows: Vec<RowResult> =
            rows.map(|((name, _), runs)| RowResult::new(name, runs)).collect();
        let ratio = match &rows[..] {
            [on, off, ..] => on.gigabits_a_cpu_second.median / off.gigabits_a_cpu_second.median,
            _ => f64::NAN,
        };
        let processors = if self.processors[0] == self.processors[1] { 1 } else { 2 };
        GroupResult { mtu: self.mtu, processors, rows, ratio, published: self.published }
    }
}

/// What came of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What must be known to compare the figures with others.
    pub environment: Environment,
    /// The results.
    pub groups: Vec<GroupResult>,
}

/// What must be known to compare figures with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// The kernel's release.
    pub kernel: String,
    /// The processors that the lab may use.
    pub processors: usize,
    /// The congestion control of TCP.
    pub congestion: String,
    /// Measurements of each setting.
    pub runs: usize,
    /// How long each was.
    pub seconds: f64,
    /// How long a train was held at most, in microseconds.
    pub hold_us: f64,
    /// How the sender sent.
    pub traffic: Traffic,
    /// What the data path handed packets to a host through.
    pub device: Device,
}

/// Results that are compared with each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupResult {
    /// How long the packets were.
    pub mtu: Mtu,
    /// The processors that everything together ran on.
    pub processors: usize,
    /// One for each carrier.
    pub rows: Vec<RowResult>,
    /// The first row's gigabits for each processor second, divided by the second's.
    pub ratio: f64,
    /// The same in the publication that the experiment repeats.
    pub published: Option<Published>,
}

/// What others measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Published {
    /// The ratio.
    pub ratio: f64,
    /// When and on what.
    pub source: &'static str,
}

/// The result of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RowResult {
    /// What carried the packets.
    pub name: &'static str,
    /// Gigabits for each second of a processor, whoever used it.
    pub gigabits_a_cpu_second: Spread,
    /// Gigabits a second.
    pub gigabits_a_second: Spread,
    /// Processor seconds a gigabyte of the sender.
    pub sender_cpu_s_per_gb: Spread,
    /// Processor seconds a gigabyte of the data path, and of the kernel's threads for packets.
    pub path_cpu_s_per_gb: Spread,
    /// Processor seconds a gigabyte of the receiver.
    pub receiver_cpu_s_per_gb: Spread,
    /// Packets for each frame that the receiver was given; none where the kernel carried them.
    pub segments_per_train: Option<Spread>,
    /// Acknowledgements a second.
    pub acknowledgements_a_second: Spread,
    /// Requests answered a second, where there were any.
    pub requests_a_second: Option<Spread>,
    /// How long these took, in all runs.
    pub latency: Option<Latency>,
    /// Segments sent again, in all runs.
    pub retransmits: u64,
    /// The measurements.
    pub runs: Vec<Measured>,
}

impl RowResult {
    fn new(name: &'static str, runs: Vec<Measured>) -> Self {
        let over = |value: &dyn Fn(&Measured) -> f64| Spread::of(runs.iter().map(value));
        let a_gigabyte = |cpu: f64, run: &Measured| cpu / (run.bytes as f64 * 1e-9);
        let segments = runs.iter().filter_map(|run| run.segments_per_train);
        let latency = Latency::of(runs.iter().flat_map(|run| &run.latencies).copied());
        Self {
            name,
            gigabits_a_cpu_second: over(&Measured::gigabits_a_cpu_second),
            gigabits_a_second: over(&Measured::gigabits_a_second),
            sender_cpu_s_per_gb: over(&|run| a_gigabyte(run.cpu_seconds.sender, run)),
            path_cpu_s_per_gb: over(&|run| {
                a_gigabyte(run.cpu_seconds.path + run.cpu_seconds.kernel, run)
            }),
            receiver_cpu_s_per_gb: over(&|run| a_gigabyte(run.cpu_seconds.receiver, run)),
            segments_per_train: (segments.clone().count() > 0).then(|| Spread::of(segments)),
            acknowledgements_a_second: over(&|run| run.acknowledgements as f64 / run.seconds),
            requests_a_second: latency.map(|_| over(&|run| run.units as f64 / run.seconds)),
            latency,
            retransmits: runs.iter().map(|run| run.retransmits).sum(),
            runs,
        }
    }
}

impl Environment {
    fn of(plan: &Plan, traffic: Traffic) -> io::Result<Self> {
        Ok(Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processors: allowed_processors()?.len(),
            congestion: plan.congestion.clone(),
            runs: plan.runs,
            seconds: plan.measured.as_secs_f64(),
            hold_us: plan.hold.as_secs_f64() * 1e6,
            traffic,
            device: plan.device,
        })
    }
}

/// One processor for everything; then, where there are two, one for the sender and one for the
/// rest. The last ones, since the first often has the interrupts.
fn processor_pairs() -> io::Result<Vec<[usize; 2]>> {
    Ok(match allowed_processors()?[..] {
        [.., one, other] => vec![[other, other], [one, other]],
        [one] => vec![[one, one]],
        [] => Vec::new(),
    })
}

fn coalescing(plan: &Plan) -> [(&'static str, Carrier); 2] {
    [
        ("coalescing on", Carrier::Grosso { coalesce: Some(plan.hold) }),
        ("coalescing off", Carrier::Grosso { coalesce: None }),
    ]
}

/// The kernel's own wire, which has no data path between the hosts.
const KERNEL: [(&str, Carrier); 2] = [
    ("kernel GRO on", Carrier::Kernel { gro: true }),
    ("kernel GRO off", Carrier::Kernel { gro: false }),
];

/// Whether the sender's kernel hands out superframes.
const SUPERFRAMES: [(&str, Carrier); 2] = [
    ("superframes on", Carrier::GrossoSends { superframes: true }),
    ("superframes off", Carrier::GrossoSends { superframes: false }),
];

/// The pairs of table R1, each with the ratio of its gigabits a second and percent of a processor:
/// with the driver's own coalescing in 4-KiB pages, and without.
const MTU_PAIRS: [(Mtu, Published); 3] = [
    (Mtu { sender: 1500, receiver: 1500 }, nic((8.9 / 78.0) / (3.7 / 89.0))),
    (Mtu { sender: 1500, receiver: 9000 }, nic((8.9 / 78.0) / (3.7 / 89.0))),
    (Mtu { sender: 9000, receiver: 9000 }, nic((9.9 / 63.0) / (8.3 / 71.0))),
];

const fn nic(ratio: f64) -> Published {
    Published { ratio, source: "in 2007 on a 10 Gb/s NIC" }
}

/// The MTUs of table R5, the longest of which a TAP has not: 65535 less an Ethernet header.
const SENDER_MTUS: [(u16, Published); 2] = [
    (1500, Published { ratio: 26864.51 / 18626.44, source: "in 2014 on loopback" }),
    (65521, Published { ratio: 1.1, source: "in 2014 on loopback" }),
];

/// How long TCP gets to find its speed.
const WARM_UP: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::CpuSeconds;

    /// Results that were never measured: ten gigabits with, less without.
    pub(super) fn report() -> Report {
        let run = |bytes, segments| {
            let cpu_seconds = CpuSeconds { sender: 0.25, path: 0.5, receiver: 0.25, kernel: 0.0 };
            let segments_per_train = Some(segments);
            let acknowledgements = 123_456;
            let seconds = 1.0;
            let mut run = Measured { seconds, bytes, cpu_seconds, ..Measured::default() };
            (run.segments_per_train, run.acknowledgements) = (segments_per_train, acknowledgements);
            run
        };
        let rows = vec![
            RowResult::new("coalescing on", vec![run(1_250_000_000, 44.9); 3]),
            RowResult::new("coalescing off", vec![run(312_500_000, 1.0), run(375_000_000, 1.0)]),
        ];
        Report {
            experiment: "lro",
            environment: Environment {
                kernel: "6.18.44-a-distribution-s-own".into(),
                processors: 2,
                congestion: "cubic".into(),
                runs: 3,
                seconds: 1.5,
                hold_us: 100.0,
                traffic: Traffic::TcpStream,
                device: Device::Veth,
            },
            groups: vec![GroupResult {
                mtu: Mtu { sender: 1500, receiver: 9000 },
                processors: 1,
                rows,
                ratio: 3.64,
                published: Some(Published { ratio: 2.74, source: "in 2007 on a 10 Gb/s NIC" }),
            }],
        }
    }

    #[test]
    fn experiments_compare_on_with_off() {
        let lro = Experiment::lro(Plan::default()).unwrap();
        let (pairs, rows) = (processor_pairs().unwrap().len(), 4);
        assert_eq!(lro.trials(), pairs * MTU_PAIRS.len() * rows * Plan::default().runs);
        let requests = Experiment::requests(Plan::default()).unwrap();
        assert_eq!((requests.groups.len(), requests.trials()), (1, 4 * Plan::default().runs));
        let group = &lro.groups[0];
        assert_eq!(group.processors[0], group.processors[1]);
        let seconds = [2.0, 4.0, 1.0, 1.0];
        let runs = seconds.map(|sender| {
            let cpu_seconds = CpuSeconds { sender, ..CpuSeconds::default() };
            vec![Measured { seconds: 1.0, bytes: 1 << 30, cpu_seconds, ..Measured::default() }]
        });
        let result = group.result(runs.to_vec());
        assert_eq!((result.ratio, result.processors), (2.0, 1));
        assert!((result.published.unwrap().ratio - 2.74).abs() < 0.01);
    }
}
