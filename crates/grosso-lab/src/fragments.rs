//! Table R2: datagrams of many fragments inside ESP, to a NIC with few receive buffers.
//!
//! ```text
//!  a (kernel)    data path of a                  data path of b    b (kernel)
//!  socket - s0 - encrypt, cut - e0 ---- wire ---- e0 - NIC - join, decrypt - r0 - socket
//! ```
//!
//! A receiver that queues fragments in their receive buffers keeps a buffer of its NIC for each. When none is left,
//! frames are dropped; one lost fragment makes its datagram incomplete, and incomplete datagrams keep their buffers
//! until they time out. A receiver that copies each fragment to its place returns the buffer at once.

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

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub measured: Duration,
    /// Bits a second that the sender offers: fewer than a receiver with unlimited buffers can take.
    pub rate_bits: u64,
    /// The share of fragments lost on the wire, in settings with loss.
    pub loss: f64,
    /// Time after which an incomplete datagram is dropped.
    pub timeout: Duration,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
}

impl Default for Plan {
    /// Three runs of a second, 1.5 Gb/s, one fragment in 1000 lost, half a second, and the device that works
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

/// The receiver's treatment of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Receiver {
    /// Copies each to its place in the datagram and returns its buffer.
    Coalesces,
    /// Keeps its buffer until the datagram is complete or times out, as Linux did before 2021.
    Queues,
    /// Keeps its buffer, but no more than half of the NIC's: beyond that, it evicts the datagram that has waited
    /// longest for a fragment.
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

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The receiver's treatment of fragments.
    pub receiver: Receiver,
    /// Receive buffers of its NIC; `None` for no limit.
    pub buffers: Option<usize>,
    /// The share of fragments lost on the wire.
    pub loss: f64,
    /// Bits a second that the sender offers.
    pub rate_bits: u64,
    /// Time after which an incomplete datagram is dropped.
    pub timeout: Duration,
    /// Duration of the measurement.
    pub measured: Duration,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The processor of the sender and its data path, and that of the receiver and its data path.
    pub processors: [usize; 2],
    /// Path of the pcapng file that records the wire.
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
    /// An experiment with few buffers and many, without loss and with it.
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

    /// Number of trials.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.groups.iter().map(|group| group.settings.len()).sum::<usize>() * self.plan.runs
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

/// Whether the setting differs from others in its result: eviction happens only if fragments are lost, and half of the
/// buffers must hold one complete datagram and one in progress.
fn says_something(receiver: Receiver, buffers: Option<usize>, loss: f64) -> bool {
    let has_room = buffers.is_some_and(|buffers| buffers / 2 > FRAGMENTS * 2);
    receiver != Receiver::Evicts || (loss > 0.0 && has_room)
}

/// All receivers, in the order of the table.
const RECEIVERS: [Receiver; 3] = [Receiver::Coalesces, Receiver::Queues, Receiver::Evicts];
/// Numbers of receive buffers without loss: fewer than a datagram's fragments, hardly more, many, and no limit.
const BUFFERS_WITHOUT_LOSS: [Option<usize>; 4] = [Some(32), Some(64), Some(256), None];
/// Numbers of receive buffers with loss: for a datagram, for several, for many, and no limit.
const BUFFERS: [Option<usize>; 4] = [Some(64), Some(256), Some(1024), None];
/// Bytes of each datagram, without headers.
pub(crate) const DATAGRAM_BYTES: usize = 64_000;
/// The fragments of a datagram on the wire, whose MTU is 1500: each takes 1448 bytes of it, and ESP and UDP add some.
pub(crate) const FRAGMENTS: usize = 45;

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with this number of datagrams a second.
    fn run(arrived: u64, silence_seconds: f64) -> Measured {
        let mut run = Measured::of(Duration::from_secs(1), 2930, arrived);
        run.silence_seconds = silence_seconds;
        run.died = 2930 - arrived;
        (run.no_buffer, run.held_bytes_max) =
            if arrived < 10 { (130_000, 128 << 10) } else { (0, 68 << 10) };
        run
    }

    /// Results that were never measured: the receiver that coalesces gets datagrams, the one that queues does not.
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
