//! One measurement: hosts of its own, threads on chosen processors, counters read before and after.

use std::{
    io,
    sync::{atomic::AtomicBool, mpsc},
    thread,
    time::Duration,
};

use grosso::Profile;
use grosso_io::{
    Port, PortError,
    impair::{Impair, Impairment},
    live::{LiveEvent, PacketPort},
    runner::{DataPath, Handle, RunOptions},
};
use grosso_sys::scheduling::{own_thread, pin};
use rustix::process::Pid;

pub(crate) use self::observe::gone;
use self::observe::{Path, observe, observe_beside};
use crate::{
    account::CpuSeconds,
    hosts::{Device, DevicePort, Hosts, Layout},
    nic::Nic,
    traffic::Traffic,
};

mod iperf3;
mod observe;

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// What the hosts send each other.
    pub traffic: Traffic,
    /// Over how many connections at once; one for everything but [`Traffic::TcpStream`] and [`Traffic::TcpRequests`].
    pub connections: usize,
    /// Who makes the traffic.
    pub tool: Tool,
    /// The hosts and the wire.
    pub layout: Layout,
    /// What carries them.
    pub carrier: Carrier,
    /// What the wire does to packets on their way to a receiver whose NIC is Grosso; they are
    /// copied out of their receive buffers first, of which a long wire would want too many.
    pub impairment: Option<Impairment>,
    /// What the data path hands them to a host through.
    pub device: Device,
    /// Where the sender's thread runs, and where the others do.
    pub processors: [usize; 2],
    /// The congestion control of TCP.
    pub congestion: String,
    /// How much of it.
    pub extent: Extent,
    /// Whether every byte received is compared with what was sent: it costs the receiver time.
    pub compare: bool,
}

/// Who makes the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The lab's own threads.
    #[default]
    BuiltIn,
    /// `iperf3`, a process on each host.
    Iperf3,
}

/// What carries the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Grosso's data path, where the receiver's NIC and its driver would be.
    Grosso {
        /// By what packets are merged on their way to the receiver; none to merge nothing.
        profile: Option<Box<Profile>>,
        /// Whether each packet is copied out of its receive buffer first.
        copy: bool,
        /// Whether what the receiver acknowledges of a train becomes the acknowledgments of its packets.
        expand: bool,
    },
    /// Grosso's data path, where the sender's NIC and its driver would be.
    GrossoSends {
        /// Whether the sender's kernel hands out superframes, which the data path cuts.
        superframes: bool,
    },
    /// The kernel's own wire.
    Kernel {
        /// Whether the receiver's kernel coalesces.
        gro: bool,
    },
}

impl Carrier {
    /// Grosso's data path with the default profile, holding trains for a time; none to merge
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
    /// How long a train may be held; `None` where Grosso merges nothing.
    #[must_use]
    pub fn hold(&self) -> Option<Duration> {
        match &self.carrier {
            Carrier::Grosso { profile: Some(profile), .. } => {
                Some(Duration::from_nanos(profile.limits.hold_ns))
            }
            Carrier::Grosso { .. } | Carrier::GrossoSends { .. } | Carrier::Kernel { .. } => None,
        }
    }
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// After a time, and a start that is not measured.
    Time {
        /// Before it.
        warm_up: Duration,
        /// Of it.
        measured: Duration,
    },
    /// When so many bytes arrived.
    Bytes(u64),
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// How long it took.
    pub seconds: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Calls that read a stream, datagrams that arrived, or requests that were answered.
    pub units: u64,
    /// Processor time.
    pub cpu_seconds: CpuSeconds,
    /// Packets of the wire for each frame that the receiver was given or, where the data path is
    /// the sender's, that the sender's kernel handed out; on average.
    pub segments_per_train: Option<f64>,
    /// Segments that came back to who sends the bytes: acknowledgements, in a stream.
    pub acknowledgements: u64,
    /// Frames that the data path handed on the other way than the bytes go: what of those reached who sends the bytes.
    pub acknowledgements_passed: Option<u64>,
    /// Segments that the sender sent again, from the connection's first to its last.
    pub retransmits: u64,
    /// Segments whose checksum was wrong.
    pub checksum_errors: u64,
    /// Datagrams or requests that were lost.
    pub lost: u64,
    /// Packets for which the data path's ring had no room.
    pub ring_drops: u64,
    /// On two processors: whether the sender's one did what acknowledgements ask for, which wants root. Where it did
    /// not, the sender's packets leave from both, overtake each other and are sent again for nothing.
    pub acknowledgements_steered: Option<bool>,
    /// Where the data path is the sender's: whether the receiver's kernel coalesced what came over
    /// the wire, for which it must get it in batches, which wants root.
    pub receiver_coalesced: Option<bool>,
    /// How long each request took.
    #[serde(skip)]
    pub latencies: Vec<Duration>,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The hosts or their sockets.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The data path.
    #[error("the data path: {0}")]
    Path(#[from] PortError),
    /// iperf3 is not there, or not content.
    #[error("iperf3: {0}")]
    Iperf3(String),
    /// A stream did not arrive whole.
    #[error("{sent} bytes were sent and {received} arrived")]
    Lost {
        /// Bytes sent.
        sent: u64,
        /// Bytes received.
        received: u64,
    },
    /// It was told to end.
    #[error("interrupted")]
    Interrupted,
}

impl Measured {
    /// Gigabits a second.
    #[must_use]
    pub fn gigabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }

    /// Gigabits for each second of a processor, whoever used it.
    #[must_use]
    pub fn gigabits_a_cpu_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu_seconds.total()
    }
}

/// Measures once, with hosts of its own, which are gone afterwards.
///
/// # Errors
/// When the hosts cannot be made, the traffic stalls or is damaged, or it is interrupted.
pub fn measure(setting: &Setting, interrupted: &AtomicBool) -> Result<Measured, TrialError> {
    match &setting.carrier {
        Carrier::Kernel { gro } => {
            let hosts = Hosts::joined(&setting.layout, *gro)?;
            observe(setting, &hosts, None, interrupted)
        }
        Carrier::Grosso { profile, copy, expand } => {
            let (hosts, ends) = Hosts::receiving(&setting.layout, setting.device, true)?;
            let mut options = RunOptions::new(SEED);
            options.left_to_right.coalesce = profile.is_some();
            options.right_to_left.expand_acknowledgments = *expand;
            if let Some(profile) = profile {
                options.left_to_right.profile = Profile::clone(profile);
            }
            let trial = Trial { setting, hosts: &hosts, interrupted };
            match ends.device {
                DevicePort::Tap(device) => trial.received(ends.wire, device, options, *copy),
                DevicePort::Veth(device) => trial.received(ends.wire, device, options, *copy),
            }
        }
        Carrier::GrossoSends { superframes } => {
            let (mut hosts, ends) = Hosts::sending(&setting.layout, setting.device, *superframes)?;
            let coalesced = match setting.layout.mtu.sender {
                ..=COALESCED_MTU_MAX => Some(hosts.receive_in_batches(setting.processors[1])?),
                _ => None,
            };
            let options = RunOptions::new(SEED);
            let trial = Trial { setting, hosts: &hosts, interrupted };
            let measured = match ends.device {
                DevicePort::Tap(device) => trial.through(device, ends.wire, options, |_| Ok(0)),
                DevicePort::Veth(device) => trial.through(device, ends.wire, options, drops),
            }?;
            Ok(Measured { receiver_coalesced: coalesced, ..measured })
        }
    }
}

/// Packets for which the ring of a wire had no room.
fn drops(port: &mut PacketPort) -> io::Result<u64> {
    Ok(port.stats()?.events(LiveEvent::ReceiveRingFull))
}

/// A setting, and where it is measured.
struct Trial<'a> {
    setting: &'a Setting,
    hosts: &'a Hosts,
    interrupted: &'a AtomicBool,
}

/// Measures what passes through a data path that runs already, on a thread of this number.
pub(crate) fn observe_path(
    setting: &Setting,
    hosts: &Hosts,
    handle: &Handle,
    thread: Pid,
    interrupted: &AtomicBool,
) -> Result<Measured, TrialError> {
    observe(setting, hosts, Some(Path { handle, thread }), interrupted)
}

/// Measures what passes between hosts by way of whatever carries it, with what `gauge` reads of that at the start and
/// at the end.
pub(crate) fn observe_gauged<Gauged>(
    setting: &Setting,
    hosts: &Hosts,
    interrupted: &AtomicBool,
    gauge: impl Fn() -> io::Result<Gauged>,
) -> Result<(Measured, [Gauged; 2]), TrialError> {
    observe_beside(setting, hosts, None, interrupted, gauge)
}

impl Trial<'_> {
    /// Measures what a receiver is given from the wire: out of the buffers in which it was received, copied out of
    /// them, or late.
    fn received<R: Port<Buffer: Send> + Send>(
        &self,
        wire: PacketPort,
        device: R,
        options: RunOptions,
        copy: bool,
    ) -> Result<Measured, TrialError> {
        match &self.setting.impairment {
            Some(impairment) => {
                let wire = Impair::new(Nic::new(wire, None), impairment.clone());
                self.through(wire, device, options, |wire| drops(wire.inner_mut().inner()))
            }
            None if copy => {
                let wire = Nic::new(wire, None);
                self.through(wire, device, options, |wire| drops(wire.inner()))
            }
            None => self.through(wire, device, options, drops),
        }
    }

    /// Measures what a data path carries from its left port to its right one; `drops` says what the left one lost.
    fn through<L, R>(
        &self,
        left: L,
        right: R,
        options: RunOptions,
        drops: impl FnOnce(&mut L) -> io::Result<u64>,
    ) -> Result<Measured, TrialError>
    where
        L: Port<Buffer: Send> + Send,
        R: Port<Buffer: Send> + Send,
    {
        let path = DataPath::new(left, right, options)?;
        let handle = path.handle();
        let [sender, receiver] = self.setting.processors;
        let steered = match sender == receiver {
            true => None,
            false => Some(self.hosts.steer_acknowledgements(sender)?),
        };
        thread::scope(|scope| {
            let (announce, announced) = mpsc::channel();
            let running = scope.spawn(move || {
                announce.send(pin(None, receiver).map(|()| own_thread())).ok();
                path.run()
            });
            let thread = announced.recv().map_err(|_| gone())?;
            let observed = thread.map_err(TrialError::from).and_then(|thread| {
                let path = Some(Path { handle: &handle, thread });
                observe(self.setting, self.hosts, path, self.interrupted)
            });
            handle.stop();
            let mut end = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            core::mem::replace(&mut end.result, Ok(()))?;
            let ring_drops = drops(&mut end.left)?;
            Ok(Measured { acknowledgements_steered: steered, ring_drops, ..observed? })
        })
    }
}

/// The longest MTU, in bytes, whose packets a receiver can coalesce into something longer.
const COALESCED_MTU_MAX: u16 = 9000;
/// The seed of what is sent and of the flow table: every trial is alike.
const SEED: u64 = 0x6772_6f73_736f;
