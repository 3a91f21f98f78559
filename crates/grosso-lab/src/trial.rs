//! One measurement on its own hosts, with threads on chosen CPUs, and with counters that are read before and after it.

use std::{
    ffi::CStr,
    io,
    sync::{atomic::AtomicBool, mpsc},
    thread,
    time::Duration,
};

use grosso::Profile;
use grosso_io::{
    Port, PortError,
    impair::{Impair, Impairment},
    live::{LivePort, PacketOptions},
    runner::{DataPath, Handle, RunOptions},
};
use grosso_sys::scheduling::{own_thread, pin};
use rustix::{process::Pid, thread::set_name};

pub(crate) use self::observe::gone;
use self::observe::{ObservedPath, observe_beside};
use crate::{
    cpu_time::CpuSeconds,
    model::Counting,
    netns::{Device, Hosts, Layout},
    nic::Nic,
    pages::{NicWire, RingCounts, port_counts},
    traffic::Traffic,
};

mod iperf3;
mod observe;
mod userspace;

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Traffic between the hosts.
    pub traffic: Traffic,
    /// Number of concurrent TCP connections. Traffic over UDP ignores it.
    pub connections: usize,
    /// Generator of the traffic.
    pub tool: Tool,
    /// The hosts and the wire.
    pub layout: Layout,
    /// The carrier that forwards the packets between the hosts.
    pub carrier: Carrier,
    /// Impairment of packets to the receiver, if Grosso acts as the receiver's NIC. The packets are first copied out of
    /// their receive buffers, because a wire with a long delay would occupy too many of these buffers.
    pub impairment: Option<Impairment>,
    /// Impairment of packets in the opposite direction, if packets to the receiver are impaired. If it loses packets,
    /// the receiver's kernel sends no superframes, so that single packets are lost.
    pub back: Option<Impairment>,
    /// Device through which the data path exchanges packets with a host.
    pub device: Device,
    /// The CPUs of the sender's thread, the data path and the receiver's thread.
    pub processors: [usize; 3],
    /// TCP congestion control.
    pub congestion: String,
    /// Duration or amount of data of the measurement.
    pub extent: Extent,
    /// Whether every received byte is compared with the byte that was sent, which costs the receiver time.
    pub compare: bool,
}

/// A generator of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The lab's own threads.
    #[default]
    BuiltIn,
    /// `iperf3`, with a process on each host.
    Iperf3,
}

/// A way to forward packets between the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Grosso's data path, in place of the receiver's NIC and its driver.
    Grosso {
        /// Profile for merging packets to the receiver; `None` to merge nothing.
        profile: Option<Box<Profile>>,
        /// Whether each packet is copied out of its receive buffer first.
        copy: bool,
        /// Whether the receiver's acknowledgment of a train is expanded to one acknowledgment for each packet.
        expand: bool,
    },
    /// Grosso's data path, in place of the sender's NIC and its driver.
    GrossoSends {
        /// Whether the sender's kernel sends superframes, which the data path segments.
        superframes: bool,
    },
    /// Grosso's data path between a host and a [sender in userspace](crate::userspace) that replaces the sending
    /// kernel. The data path acts as the receiver's NIC or, with [`Traffic::TcpMaerts`], as the sender's NIC.
    Userspace {
        /// Profile for merging packets, as in [`Carrier::Grosso`].
        profile: Option<Box<Profile>>,
        /// Whether acknowledgments of trains are expanded, as in [`Carrier::Grosso`].
        expand: bool,
        /// The way in which the sender counts acknowledgments.
        counting: Counting,
    },
    /// The kernel alone, with only a wire between the hosts.
    Kernel {
        /// Whether the receiver's kernel coalesces.
        gro: bool,
    },
}

impl Carrier {
    /// Returns Grosso's data path with the default profile, except that trains are held for `hold`; `None` merges
    /// nothing.
    #[must_use]
    pub fn grosso(hold: Option<Duration>, copy: bool) -> Self {
        let profile = hold.map(|hold| {
            let mut profile = Profile::default();
            profile.limits.hold_ns = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
            Box::new(profile)
        });
        Self::Grosso { profile, copy, expand: false }
    }
}

impl Setting {
    /// Returns whether the receiver's kernel sends superframes when Grosso acts as the receiver's NIC.
    fn superframes(&self) -> bool {
        self.back.as_ref().is_none_or(|back| back.loss <= 0.0)
    }

    /// Returns whether a stall distorted the measurement of a stream: the wire loses nothing, but nothing arrived, or
    /// the only connection waited for a retransmission timeout of at least 200 ms. Either the data path's thread was
    /// not scheduled for that long, or a full backlog dropped the last packets in a window, so that no later packet
    /// revealed the loss to the sender.
    #[must_use]
    pub fn stalled(&self, measured: &Measured) -> bool {
        let loses = |wire: &Option<Impairment>| wire.as_ref().is_some_and(|wire| wire.loss > 0.0);
        let is_stream = self.traffic.is_tcp() && !self.traffic.is_requests();
        let is_lossless = !loses(&self.impairment) && !loses(&self.back);
        let waited = measured.timeouts > 0 && self.connections == 1;
        is_stream && is_lossless && (waited || measured.bytes == 0)
    }

    /// Returns the maximum hold time of a train; `None` if Grosso merges nothing.
    #[must_use]
    pub fn hold(&self) -> Option<Duration> {
        match &self.carrier {
            Carrier::Grosso { profile, .. } | Carrier::Userspace { profile, .. } => {
                profile.as_ref().map(|profile| Duration::from_nanos(profile.limits.hold_ns))
            }
            Carrier::GrossoSends { .. } | Carrier::Kernel { .. } => None,
        }
    }
}

/// Condition that ends a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A period that follows a warm-up, which is not measured.
    Time {
        /// Duration of the warm-up.
        warm_up: Duration,
        /// Duration of the measurement.
        measured: Duration,
    },
    /// A number of bytes that must arrive.
    Bytes(u64),
}

/// Results of one measurement.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
#[non_exhaustive]
pub struct Measured {
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of bytes that arrived.
    pub bytes: u64,
    /// Number of calls that read from a stream, datagrams that arrived, or requests that were answered.
    pub units: u64,
    /// CPU time.
    pub cpu_seconds: CpuSeconds,
    /// Mean number of wire packets per frame that the receiver got. If the data path acts as the sender's NIC, it is
    /// the number per frame that the sender's kernel sent.
    pub segments_per_train: Option<f64>,
    /// Number of segments in the direction opposite to the data, which are acknowledgments if the traffic is a stream.
    pub acknowledgements: u64,
    /// Number of frames that the data path delivered in the direction opposite to the data: acknowledgments that
    /// reached the sending host.
    pub acknowledgements_passed: Option<u64>,
    /// Number of segments retransmitted during the whole connection.
    pub retransmits: u64,
    /// Number of segments with a wrong checksum.
    pub checksum_errors: u64,
    /// Number of retransmission timeouts during the whole connection.
    pub timeouts: u64,
    /// Number of round trips of data, as counted by a [sender in userspace](crate::userspace).
    pub round_trips: Option<u64>,
    /// Number of earlier measurements that were repeated because they [stalled](Setting::stalled).
    pub repeated: u64,
    /// Number of datagrams or requests that were lost.
    pub lost: u64,
    /// Number of packets that did not fit into the data path's ring.
    pub ring_drops: u64,
    /// Mean number of packets per receive page since the ring was opened; absent if the data path received each packet
    /// into a separate buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_page: Option<f64>,
    /// Whether the sender's CPU processed acknowledgments, if there are two CPUs. This needs root. Otherwise, the
    /// sender's packets leave from both CPUs, are reordered, and are retransmitted needlessly.
    pub acknowledgements_steered: Option<bool>,
    /// Whether the receiver's kernel coalesced packets from the wire, if the data path acts as the sender's NIC. This
    /// needs root, because the packets must arrive in batches.
    pub receiver_coalesced: Option<bool>,
    /// Latency of each request.
    #[serde(skip)]
    pub latencies: Vec<Duration>,
}

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// Error of the hosts or their sockets.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A call failed.
    #[error("{host}: {call}: {error}")]
    Call {
        /// Name of the call, if known.
        call: &'static str,
        /// Name of the host.
        host: &'static str,
        /// The system error.
        error: io::Error,
    },
    /// No setting has figures, because trials of all settings failed. Contains the first error.
    #[error("all settings failed; first error: {0}")]
    NoFigures(String),
    /// Error of the data path.
    #[error("the data path failed: {0}")]
    Path(#[from] PortError),
    /// iperf3 is missing, or failed.
    #[error("iperf3: {0}")]
    Iperf3(String),
    /// Part of a stream did not arrive.
    #[error("{sent} bytes were sent, but {received} arrived")]
    Lost {
        /// Number of bytes sent.
        sent: u64,
        /// Number of bytes received.
        received: u64,
    },
    /// The measurement was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl TrialError {
    /// Returns a function that creates the error for a call on a host.
    pub(crate) fn call(host: &'static str, call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Call { call, host, error }
    }

    /// Returns the operating system's error, if there is one.
    pub(crate) fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io(error) | Self::Call { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl Measured {
    /// Returns the throughput in Gb/s.
    #[must_use]
    pub fn gigabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }

    /// Returns the percentage of a CPU used by the receiver's host: its thread, the data path that acts as its NIC, and
    /// the kernel threads that process packets.
    #[must_use]
    pub fn receiver_cpu_percent(&self) -> f64 {
        let CpuSeconds { path, receiver, kernel, .. } = self.cpu_seconds;
        (path + receiver + kernel) / self.seconds * 100.0
    }

    /// Returns the gigabits per CPU-second over all threads.
    #[must_use]
    pub fn gigabits_a_cpu_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu_seconds.total()
    }
}

/// Measures on new hosts that are removed afterward. Repeats a stalled measurement a few times.
///
/// # Errors
/// Fails if the hosts cannot be created, if the traffic stops or is damaged, or if the measurement is interrupted.
pub fn measure(setting: &Setting, interrupted: &AtomicBool) -> Result<Measured, TrialError> {
    let once = || measure_once(setting, interrupted);
    let (measured, repeated) = repeat_stalled(once, |measured| setting.stalled(measured))?;
    Ok(Measured { repeated, ..measured })
}

/// Repeats a measurement a few times if it stalls. Returns the last measurement, and the number of measurements that
/// stalled.
pub(crate) fn repeat_stalled<M>(
    mut once: impl FnMut() -> Result<M, TrialError>,
    stalled: impl Fn(&M) -> bool,
) -> Result<(M, u64), TrialError> {
    let mut repeated = 0;
    loop {
        let measured = once()?;
        if !stalled(&measured) || repeated == REPEATS_MAX {
            return Ok((measured, repeated));
        }
        repeated += 1;
    }
}

/// Returns a note if any stalled measurements were repeated; `kept` is the number of measurements that were kept.
pub(crate) fn stalls(repeated: u64, kept: usize) -> Option<String> {
    (repeated > 0).then(|| {
        format!(
            "{repeated} of {} trials stalled and were repeated. In a stalled trial, no data\n\
             arrives, or the sender waits for its retransmission timeout (200 ms or more),\n\
             although the wire is lossless.",
            repeated + kept as u64,
        )
    })
}

fn measure_once(setting: &Setting, interrupted: &AtomicBool) -> Result<Measured, TrialError> {
    match &setting.carrier {
        Carrier::Kernel { gro } => {
            let hosts = Hosts::joined(&setting.layout, *gro)?;
            observe(setting, &hosts, None, interrupted)
        }
        Carrier::Grosso { profile, copy, expand } => {
            let layout = &setting.layout;
            let open = |name: &str, options: &PacketOptions| NicWire::open(name, options, layout);
            let opened = Hosts::receiving_by(layout, setting.device, setting.superframes(), open)?;
            let (hosts, wire, device) = opened;
            let options = path_options(profile.as_deref(), *expand);
            let trial = Trial { setting, hosts: &hosts, interrupted };
            trial.received(wire, device, options, *copy)
        }
        Carrier::Userspace { profile, expand, counting } => {
            let options = path_options(profile.as_deref(), *expand);
            userspace::measure(setting, options, *counting, interrupted)
        }
        Carrier::GrossoSends { superframes } => {
            let (mut hosts, ends) = Hosts::sending(&setting.layout, setting.device, *superframes)?;
            let coalesced = match setting.layout.mtu.sender {
                ..=COALESCED_MTU_MAX => Some(hosts.receive_in_batches(setting.processors[2])?),
                _ => None,
            };
            let options = RunOptions::new(SEED);
            let trial = Trial { setting, hosts: &hosts, interrupted };
            let measured = trial.through(ends.device, ends.wire, options, port_counts)?;
            Ok(Measured { receiver_coalesced: coalesced, ..measured })
        }
    }
}

/// Returns the options for a path that merges packets from its left port with `profile`, if it is set.
fn path_options(profile: Option<&Profile>, expand: bool) -> RunOptions {
    let mut options = RunOptions::new(SEED);
    options.left_to_right.coalesce = profile.is_some();
    options.right_to_left.expand_acknowledgments = expand;
    if let Some(profile) = profile {
        options.left_to_right.profile = profile.clone();
    }
    options
}

/// A setting, and everything that its measurement needs.
struct Trial<'a> {
    setting: &'a Setting,
    hosts: &'a Hosts,
    interrupted: &'a AtomicBool,
}

/// Measures the traffic between the hosts, through a data path or only through the kernel.
fn observe(
    setting: &Setting,
    hosts: &Hosts,
    path: Option<ObservedPath<'_>>,
    interrupted: &AtomicBool,
) -> Result<Measured, TrialError> {
    if setting.tool == Tool::Iperf3 {
        return iperf3::observe(setting, hosts, path, interrupted);
    }
    let observed = observe_beside(setting, hosts, path, interrupted, || Ok(()));
    observed.map(|(measured, _)| measured)
}

/// Measures the traffic through a running data path whose thread ID is `thread`.
pub(crate) fn observe_path(
    setting: &Setting,
    hosts: &Hosts,
    handle: &Handle,
    thread: Pid,
    interrupted: &AtomicBool,
) -> Result<Measured, TrialError> {
    observe(setting, hosts, Some(ObservedPath { handle, thread }), interrupted)
}

/// Measures the traffic between hosts over any carrier. Also returns what `gauge` returned at the start and the end.
pub(crate) fn observe_gauged<Gauged>(
    setting: &Setting,
    hosts: &Hosts,
    interrupted: &AtomicBool,
    gauge: impl Fn() -> io::Result<Gauged>,
) -> Result<(Measured, [Gauged; 2]), TrialError> {
    observe_beside(setting, hosts, None, interrupted, gauge)
}

impl Trial<'_> {
    /// Measures a receiver whose packets stay in their receive buffers, are copied, or cross an impaired wire.
    fn received(
        &self,
        wire: NicWire,
        device: LivePort,
        options: RunOptions,
        copy: bool,
    ) -> Result<Measured, TrialError> {
        match &self.setting.impairment {
            Some(impairment) => {
                let wire = Impair::new(Nic::new(wire, None), impairment.clone());
                let counts = |wire: &mut Impair<Nic<NicWire>>| wire.inner_mut().inner().counts();
                match &self.setting.back {
                    Some(back) => {
                        let device = Impair::new(device, back.clone());
                        self.through(wire, device, options, counts)
                    }
                    None => self.through(wire, device, options, counts),
                }
            }
            None if copy => {
                let wire = Nic::new(wire, None);
                self.through(wire, device, options, |wire| wire.inner().counts())
            }
            None => self.through(wire, device, options, NicWire::counts),
        }
    }

    /// Measures the traffic through a data path from its left to its right port. `counts` returns the counters of the
    /// left port's ring.
    fn through<L: Port + Send, R: Port + Send>(
        &self,
        left: L,
        right: R,
        options: RunOptions,
        counts: impl FnOnce(&mut L) -> io::Result<RingCounts>,
    ) -> Result<Measured, TrialError> {
        let [sender, path_processor, receiver] = self.setting.processors;
        let steered = match sender == path_processor && sender == receiver {
            true => None,
            false => Some(self.hosts.steer_acknowledgements(sender)?),
        };
        let path = DataPath::new(left, right, options)?;
        let observed = |path: ObservedPath<'_>| {
            observe(self.setting, self.hosts, Some(path), self.interrupted)
        };
        let (observed, mut left) = while_running(path, path_processor, observed)?;
        let RingCounts { drops: ring_drops, packets_per_page } = counts(&mut left)?;
        let acknowledgements_steered = steered;
        Ok(Measured { acknowledgements_steered, ring_drops, packets_per_page, ..observed })
    }
}

/// Binds the calling thread to a CPU, and names it after its role in the trial, so that `top -H` shows the role.
/// Returns the thread ID.
pub(crate) fn settle(name: &CStr, processor: usize) -> io::Result<Pid> {
    pin(None, processor)?;
    set_name(name)?;
    Ok(own_thread())
}

/// Runs a data path on a separate thread, bound to a CPU, while it is observed. Also returns the path's left port.
fn while_running<L: Port + Send, R: Port + Send>(
    path: DataPath<L, R>,
    processor: usize,
    observe: impl FnOnce(ObservedPath<'_>) -> Result<Measured, TrialError>,
) -> Result<(Measured, L), TrialError> {
    let handle = path.handle();
    thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        let running = scope.spawn(move || {
            announce.send(settle(c"path", processor)).ok();
            path.run()
        });
        let thread = announced.recv().map_err(|_| gone())?;
        let observed = thread
            .map_err(TrialError::from)
            .and_then(|thread| observe(ObservedPath { handle: &handle, thread }));
        handle.stop();
        let end = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        end.result?;
        Ok((observed?, end.left))
    })
}

/// Names of the threads of the sender's and the receiver's data path, if each host has one.
pub(crate) const PATHS: [&CStr; 2] = [c"path a", c"path b"];
/// Maximum number of times that a stalled measurement is repeated.
const REPEATS_MAX: u64 = 3;
/// Longest MTU in bytes at which a receiver can still merge packets into longer frames.
const COALESCED_MTU_MAX: u16 = 9000;
/// Seed of the content and the flow table, which is the same in all trials.
const SEED: u64 = 0x6772_6f73_736f;

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting {
            traffic: Traffic::TcpStream,
            connections: 1,
            tool: Tool::BuiltIn,
            layout: Layout::default(),
            carrier: Carrier::Kernel { gro: false },
            impairment: None,
            back: None,
            device: Device::Veth,
            processors: [0; 3],
            congestion: "cubic".into(),
            extent: Extent::Bytes(1),
            compare: false,
        }
    }

    /// Runs measurements that have these timeouts, one after the other. Returns the measurement that is kept and the
    /// number of measurements.
    fn kept(setting: &Setting, timeouts: &[u64]) -> (Measured, usize) {
        let mut made = 0;
        let once = || {
            made += 1;
            Ok(Measured { timeouts: timeouts[made - 1], bytes: 1, ..Measured::default() })
        };
        let (measured, repeated) = repeat_stalled(once, |run| setting.stalled(run)).unwrap();
        (Measured { repeated, ..measured }, made)
    }

    #[test]
    fn a_stalled_trial_is_repeated_and_counted() {
        let (measured, made) = kept(&setting(), &[1, 2, 0]);
        assert_eq!((measured.timeouts, measured.repeated, made), (0, 2, 3));
        let (measured, made) = kept(&setting(), &[0]);
        assert_eq!((measured.repeated, made), (0, 1));
        let (measured, made) = kept(&setting(), &[9; 4]);
        assert_eq!(
            (measured.timeouts, measured.repeated, made),
            (9, 3, 4),
            "trials are not repeated for ever"
        );
    }

    #[test]
    fn a_trial_in_which_nothing_arrives_stalled_however_many_connections_it_has() {
        let (one, many) = (setting(), Setting { connections: 100, ..setting() });
        let measured = |bytes| Measured { bytes, ..Measured::default() };
        assert!(one.stalled(&measured(0)) && many.stalled(&measured(0)));
        assert!(!one.stalled(&measured(1)) && !many.stalled(&measured(1)));
    }

    #[test]
    fn a_timeout_on_a_wire_that_loses_is_what_was_to_be_measured() {
        let lossy = Some("loss 1%".parse().unwrap());
        for setting in [
            Setting { impairment: lossy.clone(), ..setting() },
            Setting { back: lossy.clone(), ..setting() },
            Setting { connections: 100, ..setting() },
            Setting { traffic: Traffic::TcpRequests, ..setting() },
        ] {
            assert_eq!(kept(&setting, &[1]).1, 1, "{setting:?}");
        }
    }
}
