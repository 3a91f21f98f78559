//! Table R2: datagrams of many fragments inside ESP, to a NIC with few receive buffers.
//!
//! ```text
//!  a (kernel)    data path of a                  data path of b    b (kernel)
//!  socket - s0 - encrypt, cut - e0 ---- wire ---- e0 - NIC - join, decrypt - r0 - socket
//! ```
//!
//! A receiver that queues fragments as they came keeps a buffer of its NIC for each. When none is left, frames are
//! dropped; one lost fragment kills its datagram, and the dead ones keep their buffers until their time is over. A
//! receiver that copies each fragment to its place gives the buffer back at once.

use core::fmt;
use std::{path::PathBuf, sync::atomic::AtomicBool, time::Duration};

use serde::Serialize;

use crate::{conditions::two_processors, hosts::Device, trial::TrialError};

mod page;
mod report;
mod table;
mod trial;
mod verdict;

pub use report::{Environment, GroupResult, Report, RowResult};
pub use trial::{KEY_AND_SALT, Measured, SPI, datagram, measure};

/// How to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// How long each is.
    pub measured: Duration,
    /// Bits a second that the sender offers: fewer than a receiver with all the buffers it wants can take.
    pub rate_bits: u64,
    /// The share of fragments lost on the wire, where some are lost.
    pub loss: f64,
    /// How long a datagram may be incomplete.
    pub timeout: Duration,
    /// What the data paths hand packets to a host through, and take them from.
    pub device: Device,
}

impl Default for Plan {
    /// Three runs of a second, 1.5 Gb/s, one fragment of 1000 lost, half a second, and the device that may be used
    /// everywhere.
    fn default() -> Self {
        Self {
            runs: 3,
            measured: Duration::from_secs(1),
            rate_bits: 1_500_000_000,
            loss: 0.001,
            timeout: Duration::from_millis(500),
            device: Device::Veth,
        }
    }
}

/// What a receiver does with a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Receiver {
    /// Copies it to its place in the datagram and gives its buffer back.
    Coalesces,
    /// Keeps its buffer until the datagram is whole or its time is over, as Linux did before 2021.
    Queues,
    /// Keeps its buffer, but of no more than half of the NIC's: for a further one the datagram goes that waited longest
    /// for a fragment.
    Evicts,
}

impl fmt::Display for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Coalesces => "coalesces",
            Self::Queues => "queues",
            Self::Evicts => "queues, evicts",
        })
    }
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// What the receiver does with fragments.
    pub receiver: Receiver,
    /// Receive buffers of its NIC; `None` for as many as it takes.
    pub buffers: Option<usize>,
    /// The share of fragments lost on the wire.
    pub loss: f64,
    /// Bits a second that the sender offers.
    pub rate_bits: u64,
    /// How long a datagram may be incomplete.
    pub timeout: Duration,
    /// How long to measure.
    pub measured: Duration,
    /// What the data paths hand packets to a host through.
    pub device: Device,
    /// The processor of the sender and its data path, and that of the receiver's.
    pub processors: [usize; 2],
    /// Where to write what passes the wire, as pcapng.
    pub recording: Option<PathBuf>,
}

/// The settings of table R2.
#[derive(Clone, Debug)]
pub struct Experiment {
    plan: Plan,
    groups: Vec<Group>,
}

/// Settings with the same loss.
#[derive(Clone, Debug)]
struct Group {
    loss: f64,
    settings: Vec<Setting>,
}

impl Experiment {
    /// Few buffers and many, without loss and with it.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn new(plan: Plan) -> std::io::Result<Self> {
        let processors = two_processors()?;
        let setting = Setting {
            receiver: Receiver::Coalesces,
            buffers: None,
            loss: 0.0,
            rate_bits: plan.rate_bits,
            timeout: plan.timeout,
            measured: plan.measured,
            device: plan.device,
            processors,
            recording: None,
        };
        let group = |loss, buffers: &[Option<usize>]| {
            let pairs = buffers.iter().flat_map(|&buffers| RECEIVERS.map(|r| (buffers, r)));
            let told = pairs.filter(|&(buffers, receiver)| says_something(receiver, buffers, loss));
            let setting =
                |(buffers, receiver)| Setting { receiver, buffers, loss, ..setting.clone() };
            Group { loss, settings: told.map(setting).collect() }
        };
        let mut groups = vec![group(0.0, &BUFFERS_WITHOUT_LOSS)];
        if plan.loss > 0.0 {
            groups.push(group(plan.loss, &BUFFERS));
        }
        Ok(Self { plan, groups })
    }

    /// How many trials it is.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.groups.iter().map(|group| group.settings.len()).sum::<usize>() * self.plan.runs
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
        let mut runs: Vec<Vec<Vec<Measured>>> =
            self.groups.iter().map(|group| vec![Vec::new(); group.settings.len()]).collect();
        let mut trials = 0;
        for _ in 0..self.plan.runs {
            for (group, kept) in self.groups.iter().zip(&mut runs) {
                for (setting, kept) in group.settings.iter().zip(kept) {
                    kept.push(measure(setting, interrupted)?);
                    trials += 1;
                    done(trials);
                }
            }
        }
        Report::new(&self.plan, &self.groups, runs).map_err(TrialError::from)
    }
}

/// Whether a receiver with so many buffers shows anything that others do not: who evicts has something to evict only
/// where fragments are lost, and needs room for a datagram and for what is about to be one in half of the buffers.
fn says_something(receiver: Receiver, buffers: Option<usize>, loss: f64) -> bool {
    let has_room = buffers.is_some_and(|buffers| buffers / 2 > FRAGMENTS * 2);
    receiver != Receiver::Evicts || (loss > 0.0 && has_room)
}

/// In the order of the table.
const RECEIVERS: [Receiver; 3] = [Receiver::Coalesces, Receiver::Queues, Receiver::Evicts];
/// Receive buffers where no fragment is lost: fewer than a datagram's fragments, hardly more, many, and no limit.
const BUFFERS_WITHOUT_LOSS: [Option<usize>; 4] = [Some(32), Some(64), Some(256), None];
/// Receive buffers where some are lost: for a datagram, for several, for many, and no limit.
const BUFFERS: [Option<usize>; 4] = [Some(64), Some(256), Some(1024), None];
/// Bytes of each datagram, without headers.
pub(crate) const DATAGRAM_BYTES: usize = 64_000;
/// The fragments that it is on the wire, which has an MTU of 1500: each takes 1448 bytes of it, and ESP and UDP add
/// some.
pub(crate) const FRAGMENTS: usize = 45;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run would say of so many datagrams a second.
    fn run(arrived: u64, silence_seconds: f64) -> Measured {
        let mut run = Measured::of(Duration::from_secs(1), 2930, arrived);
        run.silence_seconds = silence_seconds;
        run.died = 2930 - arrived;
        (run.no_buffer, run.held_bytes_max) =
            if arrived < 10 { (130_000, 128 << 10) } else { (0, 68 << 10) };
        run
    }

    /// Results that were never measured: what is coalesced gets through, what is queued does not.
    pub(super) fn report() -> Report {
        let experiment = Experiment::new(Plan::default()).unwrap();
        let runs = experiment.groups.iter().map(|group| {
            let settings = group.settings.iter();
            let runs = settings.map(|setting| match (setting.receiver, setting.buffers) {
                (Receiver::Queues, Some(_)) => vec![run(0, 0.5), run(1, 0.5), run(2, 0.6)],
                (_, Some(32 | 64)) => vec![run(2900, 0.001), run(2910, 0.002), run(2920, 0.003)],
                _ => vec![run(2930, 0.002); 3],
            });
            runs.collect()
        });
        Report::new(&experiment.plan, &experiment.groups, runs.collect()).unwrap()
    }
}
