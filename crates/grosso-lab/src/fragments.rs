//! Table R2: a host sends ESP packets in many fragments to a NIC with few receive buffers.
//!
//! ```text
//!  a (kernel)    data path of a                  data path of b    b (kernel)
//!  socket - s0 - encrypt, split - e0 --- wire --- e0 - NIC - merge, decrypt - r0 - socket
//! ```
//!
//! A receiver that queues fragments in their receive buffers occupies one of its NIC's buffers per fragment. When no
//! buffer is left, frames are dropped. A single lost fragment makes its datagram incomplete, and incomplete datagrams
//! keep their buffers until they time out. A receiver that copies each fragment into place returns the buffer
//! immediately.

use core::fmt;
use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, brief, three_processors},
    netns::{Device, Family},
    report::FailedRow,
    trial::TrialError,
    verdict::Verdict,
};

mod findings;
mod table;
mod trial;
mod verdict;

pub use findings::{FragmentFindings, FragmentGroup, FragmentRow};
pub use trial::{FragmentRun, KEY_AND_SALT, SPI, datagram, measure};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(into = "WrittenParameters")]
pub struct FragmentParameters {
    /// Rate at which the sender offers data, in bits per second: less than what a receiver with unlimited buffers can
    /// process.
    pub rate_bits: u64,
    /// Fraction of fragments lost on the wire, in settings with loss.
    pub loss: f64,
    /// Time after which an incomplete datagram is dropped.
    pub timeout: Duration,
    /// Number of payload bytes in each datagram.
    pub datagram_bytes: usize,
    /// IP version.
    pub family: Family,
}

impl Default for FragmentParameters {
    /// Returns the defaults: 1.5 Gb/s in 64000-byte datagrams over IPv6 for half a second, with one fragment in 1000
    /// lost.
    fn default() -> Self {
        Self {
            rate_bits: 1_500_000_000,
            loss: 0.001,
            timeout: Duration::from_millis(500),
            datagram_bytes: DATAGRAM_BYTES,
            family: Family::V6,
        }
    }
}

impl FragmentParameters {
    /// Returns the number of fragments per datagram on the wire, whose MTU is 1500. The ESP and UDP headers and
    /// trailers count as part of the datagram.
    fn fragments(&self) -> usize {
        (self.datagram_bytes + ADDED_BYTES).div_ceil(match self.family {
            Family::V4 => 1480,
            Family::V6 => 1448,
        })
    }

    /// Scales a number of receive buffers that is meant for the longest datagram to the configured datagram length.
    fn buffers(&self, of_the_longest: usize) -> usize {
        (of_the_longest * self.fragments() / FRAGMENTS).max(1)
    }
}

/// The parameters as they appear in reports.
#[derive(Serialize, JsonSchema)]
struct WrittenParameters {
    /// Number of bytes in each datagram.
    datagram_bytes: usize,
    /// IP version.
    family: Family,
    /// Rate at which the sender offers data, in Gb/s.
    rate_gbps: f64,
    /// Time after which an incomplete datagram is dropped, in milliseconds.
    timeout_ms: f64,
}

impl From<FragmentParameters> for WrittenParameters {
    fn from(parameters: FragmentParameters) -> Self {
        Self {
            datagram_bytes: parameters.datagram_bytes,
            family: parameters.family,
            rate_gbps: parameters.rate_bits as f64 * 1e-9,
            timeout_ms: parameters.timeout.as_secs_f64() * 1e3,
        }
    }
}

/// The receiver's treatment of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Receiver {
    /// Copies each fragment to its position in the datagram, and returns the fragment's buffer.
    Coalesces,
    /// Keeps the buffer of each fragment until the datagram is complete or times out, as Linux did until 2019.
    Queues,
    /// Keeps the buffer of each fragment, but at most half of the NIC's buffers. When it needs more, it evicts the
    /// datagram that has waited longest for its next fragment.
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
pub struct FragmentSetting {
    /// The receiver's treatment of fragments.
    pub receiver: Receiver,
    /// Number of receive buffers in the receiver's NIC; `None` for no limit.
    pub buffers: Option<usize>,
    /// Fraction of fragments lost on the wire.
    pub loss: f64,
    /// Rate at which the sender offers data, in bits per second.
    pub rate_bits: u64,
    /// Time after which an incomplete datagram is dropped.
    pub timeout: Duration,
    /// Number of payload bytes in each datagram.
    pub datagram_bytes: usize,
    /// IP version.
    pub family: Family,
    /// Duration of the measurement.
    pub measured: Duration,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The CPUs of the sender and its data path, of the receiver's data path, and of the receiver.
    pub processors: [usize; 3],
    /// Path of a pcapng file to which the wire traffic is recorded.
    pub recording: Option<PathBuf>,
}

impl FragmentSetting {
    /// Returns whether the sender offers more than the receiver can process.
    fn is_overload(&self) -> bool {
        self.rate_bits >= OVERLOAD_BITS
    }
}

/// The experiment behind table R2.
#[derive(Clone, Debug)]
pub struct Fragments {
    plan: Plan<FragmentParameters>,
    /// Groups of settings: without loss, with loss, and with more load than the receiver can process.
    groups: Vec<Vec<FragmentSetting>>,
}

impl Fragments {
    /// Creates an experiment with few and with many buffers, each without loss, with loss, and with an offered rate of
    /// [`OVERLOAD_BITS`].
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn new(plan: Plan<FragmentParameters>) -> std::io::Result<Self> {
        let processors = three_processors(plan.processors)?;
        let setting = FragmentSetting {
            receiver: Receiver::Coalesces,
            buffers: None,
            loss: 0.0,
            rate_bits: plan.parameters.rate_bits,
            timeout: plan.parameters.timeout,
            datagram_bytes: plan.parameters.datagram_bytes,
            family: plan.parameters.family,
            measured: plan.measured,
            device: plan.device,
            processors,
            recording: None,
        };
        let parameters = &plan.parameters;
        let group = |loss, rate_bits, buffers: &[Option<usize>]| {
            let buffers = buffers.iter().map(|buffers| buffers.map(|n| parameters.buffers(n)));
            let pairs = buffers.flat_map(|buffers| RECEIVERS.map(|receiver| (buffers, receiver)));
            let fragments = parameters.fragments();
            let told = pairs
                .filter(|&(buffers, receiver)| is_informative(receiver, buffers, loss, fragments));
            let setting = |(buffers, receiver)| FragmentSetting {
                receiver,
                buffers,
                loss,
                rate_bits,
                ..setting.clone()
            };
            told.map(setting).collect::<Vec<_>>()
        };
        let FragmentParameters { rate_bits, loss, .. } = *parameters;
        let mut groups = vec![group(0.0, rate_bits, &BUFFERS_WITHOUT_LOSS)];
        if loss > 0.0 {
            groups.push(group(loss, rate_bits, &BUFFERS));
        }
        groups.push(group(0.0, rate_bits.max(OVERLOAD_BITS), &BUFFERS_OF_OVERLOAD));
        Ok(Self { plan, groups })
    }
}

impl Experiment for Fragments {
    type Parameters = FragmentParameters;
    type Setting = FragmentSetting;
    type Run = FragmentRun;
    type Findings = FragmentFindings;

    fn name(&self) -> &'static str {
        "fragments"
    }

    fn plan(&self) -> &Plan<FragmentParameters> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[FragmentSetting]> {
        self.groups.iter().map(Vec::as_slice).collect()
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        bench.each(measure, group)
    }

    fn label(&self, setting: &FragmentSetting) -> String {
        let FragmentSetting { receiver, buffers, loss, rate_bits, .. } = setting;
        let rate = rate_bits / 1_000_000;
        let buffers = buffers.map_or_else(|| "unlimited".into(), |count| count.to_string());
        format!("{receiver}, {buffers} buffers, {} % loss, {rate} Mb/s", loss * 100.0)
    }

    fn brief(&self, runs: &[FragmentRun]) -> String {
        brief(runs, FragmentRun::goodput_gbps, "Gb/s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> FragmentFindings {
        let last = groups.len().saturating_sub(1);
        let groups = self.groups.iter().zip(groups).enumerate();
        let group = |(i, (settings, rows)): (usize, (&Vec<FragmentSetting>, _))| {
            let loss = settings.first().map_or(0.0, |setting| setting.loss);
            FragmentGroup::new(loss, i == last, rows)
        };
        FragmentFindings { groups: groups.map(group).collect() }
    }

    fn judge(&self, findings: &FragmentFindings) -> Vec<Verdict> {
        verdict::judge(&findings.groups, self.plan.parameters.timeout)
    }

    fn notes(&self, _: &FragmentFindings, _failed: &[FailedRow]) -> Vec<String> {
        let parameters = &self.plan.parameters;
        let FragmentParameters { timeout, datagram_bytes, family, .. } = *parameters;
        let times = TIMEOUT_S / timeout.as_secs_f64();
        let by = if family == Family::V6 { "RFC 8200" } else { "RFC 1122" };
        vec![
            format!(
                "Each datagram of {datagram_bytes} bytes is sent in {} fragments. The reassembly\n\
                 timeout of the receiver is {} ms. {by} specifies 60 s; with that timeout, a\n\
                 receiver is silent {times:.0} times longer.",
                parameters.fragments(),
                timeout.as_millis(),
            ),
            NOTE.into(),
        ]
    }
}

/// Returns whether a setting can give a different result from the others. Eviction happens only if fragments are lost,
/// and half of the buffers must be enough for one complete datagram and one that is still incomplete.
fn is_informative(receiver: Receiver, buffers: Option<usize>, loss: f64, fragments: usize) -> bool {
    let has_room = buffers.is_some_and(|buffers| buffers / 2 > fragments * 2);
    receiver != Receiver::Evicts || (loss > 0.0 && has_room)
}

/// All receivers, in the order of the table.
const RECEIVERS: [Receiver; 3] = [Receiver::Coalesces, Receiver::Queues, Receiver::Evicts];
/// Numbers of receive buffers in the settings without loss: fewer than a datagram has fragments, slightly more, many,
/// and no limit.
const BUFFERS_WITHOUT_LOSS: [Option<usize>; 4] = [Some(32), Some(64), Some(256), None];
/// Rate at which the sender offers data in the last group, in bits per second: more than the receiver can process.
pub const OVERLOAD_BITS: u64 = 8_000_000_000;
/// Numbers of receive buffers in the settings with [`OVERLOAD_BITS`]: slightly more than one datagram needs, and no
/// limit.
const BUFFERS_OF_OVERLOAD: [Option<usize>; 2] = [Some(64), None];
/// Numbers of receive buffers in the settings with loss: enough for one datagram, for several and for many, and no
/// limit.
const BUFFERS: [Option<usize>; 4] = [Some(64), Some(256), Some(1024), None];
/// Default number of payload bytes in each datagram.
pub const DATAGRAM_BYTES: usize = 64_000;
/// Number of fragments in a datagram of [`DATAGRAM_BYTES`] over IPv6. The numbers of buffers are based on it.
const FRAGMENTS: usize = 45;
/// Total size of the UDP header, the ESP header and the ESP trailer without padding, in bytes.
const ADDED_BYTES: usize = 8 + 16 + 2 + 12;
/// Reassembly timeout in seconds, from RFC 8200 section 4.5 (RFC 1122 section 3.3.2 says 60 to 120).
const TIMEOUT_S: f64 = 60.0;
const NOTE: &str = "\
coalesces: the receiver copies each fragment to its position in the datagram and\n\
returns the receive buffer at once.\n\
queues: each fragment keeps its receive buffer until the datagram is complete,\n\
as in Linux until 2019.\n\
queues, evicts: fragments may keep at most half of the receive buffers. Beyond\n\
that, the receiver evicts the datagram that has waited longest.\n\
% of max: goodput relative to coalescing with unlimited buffers.\n\
no buf: frames dropped because no receive buffer was free. timed out: datagrams\n\
that were incomplete at the timeout. held: maximum memory of incomplete\n\
datagrams. silent: longest time without a complete datagram.\n\
Without overload, the wire has a long queue, so frames are dropped only if no\n\
receive buffer is free. Under overload, the queue of the wire holds about as\n\
many frames as the NIC has buffers. Frames that do not fit into the queue also\n\
count as \"no buf\".\n\
Published (R2, 2019, few buffers): coalescing 6.6 Gb/s, queueing 9 Mb/s.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::{Series, assert_failures_are_rows},
        report::Report,
    };

    /// Returns a run with this number of datagrams per second and this longest silence.
    fn run(arrived: u64, silence_seconds: f64) -> FragmentRun {
        let mut run = FragmentRun::of(Duration::from_secs(1), 2930, arrived);
        run.silence_seconds = silence_seconds;
        run.died = 2930 - arrived;
        (run.no_buffer, run.held_bytes_max) =
            if arrived < 10 { (130_000, 128 << 10) } else { (0, 68 << 10) };
        run
    }

    /// Returns made-up results in which the coalescing receiver gets datagrams and the queuing receiver gets none.
    pub(super) fn report() -> Report<FragmentFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (Fragments, Vec<Vec<RunsOf<Fragments>>>) {
        let experiment = Fragments::new(Plan::default()).unwrap();
        let series = |setting: &FragmentSetting| {
            let runs = match (setting.receiver, setting.buffers) {
                (Receiver::Queues, Some(_)) => [(0, 0.5), (0, 0.5), (1, 0.5), (2, 0.6), (2, 0.6)]
                    .map(|(n, s)| run(n, s))
                    .to_vec(),
                (_, Some(32 | 64)) => {
                    [(2900, 0.001), (2905, 0.002), (2910, 0.002), (2915, 0.002), (2920, 0.003)]
                        .map(|(n, s)| run(n, s))
                        .to_vec()
                }
                _ => vec![run(2930, 0.002); 5],
            };
            Series::new(setting.clone(), runs)
        };
        let groups = experiment.groups.iter().map(|group| group.iter().map(series).collect());
        let groups = groups.collect();
        (experiment, groups)
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }
}
