//! Experiments: the trials that answer a question, and their results.

use std::{sync::atomic::AtomicBool, time::Duration};

use crate::{
    hosts::Device,
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure},
};

mod catalogue;
mod consumer;
mod latency;
mod page;
mod plot;
mod reorder;
mod report;
mod rtt;
mod spread;
mod table;

pub use consumer::Consumer;
pub use latency::Latency;
pub use report::{Compared, Environment, GroupResult, Published, Report, RowResult, Verdict};
pub use spread::Spread;

pub(crate) use table::{digits, thousands};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub measured: Duration,
    /// The congestion control of TCP. One that paces, as bbr does, hides the effect of offloads.
    pub congestion: String,
    /// Time for which a train may be held.
    pub hold: Duration,
    /// Whether the sender sends from a file, without a copy of its own.
    pub sendfile: bool,
    /// Device through which the data path hands packets to a host.
    pub device: Device,
    /// Whether packets cross the wire with complete checksums, for the receiver to verify.
    pub full_checksums: bool,
    /// Generator of the traffic.
    pub tool: Tool,
    /// Bits a second of the wire, in experiments whose wire is slower than the machine.
    pub wire_bits: u64,
}

impl Default for Plan {
    /// Three runs of a second, cubic, 100 microseconds, a gigabit, and the device that works everywhere.
    fn default() -> Self {
        Self {
            runs: 3,
            measured: Duration::from_secs(1),
            congestion: "cubic".into(),
            hold: Duration::from_micros(100),
            sendfile: false,
            device: Device::Veth,
            full_checksums: false,
            tool: Tool::BuiltIn,
            wire_bits: 1_000_000_000,
        }
    }
}

/// Trials that belong together.
#[derive(Clone, Debug)]
pub struct Experiment {
    name: &'static str,
    /// The host whose NIC Grosso is.
    nic_of: &'static str,
    plan: Plan,
    groups: Vec<Group>,
    /// Payload size of the packets for a consumer in memory, if that is measured too.
    consumer: Option<u16>,
    judge: Judge,
    notes: &'static [&'static str],
}

/// Judges the results: which claims hold.
type Judge = fn(&[GroupResult], Option<&Consumer>) -> Vec<Verdict>;

/// Settings that are compared with each other.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    title: String,
    rows: Vec<Row>,
    comparisons: Vec<Comparison>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    setting: Setting,
}

/// Two rows to compare, by their names.
#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    name: &'static str,
    over: &'static str,
    under: &'static str,
    published: Option<Published>,
}

impl Row {
    fn new(name: &str, setting: &Setting, carrier: Carrier) -> Self {
        Self { name: name.into(), setting: Setting { carrier, ..setting.clone() } }
    }
}

impl Comparison {
    const fn new(name: &'static str, over: &'static str, under: &'static str) -> Self {
        Self { name, over, under, published: None }
    }
}

impl Experiment {
    /// Number of trials.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum::<usize>() * self.plan.runs
    }

    /// Measures every setting in turn and repeats that, so that changes on the machine affect all settings alike.
    /// `done` is called with the number of trials done.
    ///
    /// Before that, every setting carries a stream of which every byte is compared with the one sent.
    ///
    /// # Errors
    /// Fails if a trial fails or `interrupted` is set.
    pub fn run(
        &self,
        interrupted: &AtomicBool,
        mut done: impl FnMut(usize),
    ) -> Result<Report, TrialError> {
        let mut verified = Vec::new();
        for group in &self.groups {
            let each = group.rows.iter().map(|row| verify(&row.setting, interrupted));
            verified.push(each.collect::<Result<Vec<_>, _>>()?);
        }
        let mut runs: Vec<Vec<Vec<Measured>>> =
            self.groups.iter().map(|group| vec![Vec::new(); group.rows.len()]).collect();
        let mut trials = 0;
        for _ in 0..self.plan.runs {
            for (group, kept) in self.groups.iter().zip(&mut runs) {
                for (row, kept) in group.rows.iter().zip(kept) {
                    kept.push(measure(&row.setting, interrupted)?);
                    trials += 1;
                    done(trials);
                }
            }
        }
        let consumer = self.consumer.map(|bytes| Consumer::measure(bytes, self.plan.runs));
        let groups = self.groups.iter().zip(runs).zip(&verified);
        let groups: Vec<GroupResult> = groups
            .map(|((group, runs), verified)| GroupResult::new(group, runs, verified))
            .collect();
        Ok(Report {
            experiment: self.name,
            nic_of: self.nic_of,
            environment: Environment::of(&self.plan)?,
            verdicts: (self.judge)(&groups, consumer.as_ref()),
            groups,
            consumer,
            notes: self.notes,
        })
    }
}

/// Compares every byte of a stream with the one sent. Returns the number of bytes, or `None` if the traffic has no
/// content to compare.
fn verify(setting: &Setting, interrupted: &AtomicBool) -> Result<Option<u64>, TrialError> {
    let has_content =
        matches!(setting.traffic, Traffic::TcpStream | Traffic::TcpSendfile | Traffic::TcpMaerts);
    if !has_content || setting.tool != Tool::BuiltIn {
        return Ok(None);
    }
    let extent = Extent::Bytes(VERIFIED_BYTES);
    let setting = Setting { extent, compare: true, ..setting.clone() };
    measure(&setting, interrupted).map(|measured| Some(measured.bytes))
}

/// Bytes that are compared one by one: some hundred trains.
const VERIFIED_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{account::CpuSeconds, conditions::Conditions};

    /// Results that were never measured: ten gigabits with coalescing, less without.
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
        let experiment = Experiment::headline(Plan::default()).unwrap();
        let mut group = experiment.groups[0].clone();
        group.title = "TCP_STREAM at MTU 1500 to 9000, one CPU for everything".into();
        let runs = vec![
            vec![run(1_250_000_000, 44.9); 3],
            vec![run(312_500_000, 1.0), run(375_000_000, 1.0)],
        ];
        Report {
            experiment: "lro",
            nic_of: "receiver",
            environment: Environment {
                conditions: Conditions {
                    kernel: "6.18.44-a-distribution-s-own".into(),
                    processor: "A processor".into(),
                    processors: 2,
                    runs: 3,
                    seconds: 1.5,
                    device: Device::Veth,
                },
                congestion: "cubic".into(),
                hold_us: 100.0,
                full_checksums: false,
                tool: Tool::BuiltIn,
            },
            groups: vec![GroupResult::new(&group, runs, &[Some(1), Some(1)])],
            consumer: None,
            verdicts: Vec::new(),
            notes: &[],
        }
    }
}
