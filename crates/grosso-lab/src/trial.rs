//! One measurement: hosts of its own, threads on chosen processors, counters read before and after.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use grosso_io::{
    Port, PortError,
    live::{LiveEvent, PacketPort},
    path::DirectionStats,
    runner::{DataPath, Handle, RunOptions},
};
use grosso_sys::scheduling::{own_thread, pin};
use rustix::process::Pid;

use crate::{
    account::{Accountant, CpuSeconds, TcpCounters, Threads},
    hosts::{Device, DevicePort, Hosts, Mtu},
    traffic::{
        Content, Progress, Traffic, answer, ask, receive_datagrams, receive_stream, send_datagrams,
        send_file, send_stream,
    },
};

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// What the hosts send each other.
    pub traffic: Traffic,
    /// How long their packets are.
    pub mtu: Mtu,
    /// What carries them.
    pub carrier: Carrier,
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

/// What carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Grosso's data path, where the receiver's NIC and its driver would be.
    Grosso {
        /// How long a train may be held; none to merge nothing.
        coalesce: Option<Duration>,
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
    /// Segments that the receiver sent: acknowledgements, in a stream.
    pub acknowledgements: u64,
    /// Segments that the sender sent again, from the connection's first to its last.
    pub retransmits: u64,
    /// Segments whose checksum was wrong.
    pub checksum_errors: u64,
    /// Packets for which the data path's ring had no room.
    pub ring_drops: u64,
    /// On two processors: whether the sender's one did what acknowledgements ask for, which wants root. Where it did
    /// not, the sender's packets leave from both, overtake each other and are sent again for nothing.
    pub acknowledgements_steered: Option<bool>,
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
    match setting.carrier {
        Carrier::Kernel { gro } => {
            let hosts = Hosts::joined(setting.mtu, gro)?;
            observe(setting, &hosts, None, interrupted)
        }
        Carrier::Grosso { coalesce } => {
            let (hosts, ends) = Hosts::receiving(setting.mtu, setting.device)?;
            let mut options = RunOptions::new(SEED);
            options.left_to_right.coalesce = coalesce.is_some();
            options.left_to_right.profile.limits.hold_ns =
                coalesce.map_or(0, |hold| u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX));
            let trial = Trial { setting, hosts: &hosts, interrupted };
            match ends.device {
                DevicePort::Tap(device) => trial.through(ends.wire, device, options, drops),
                DevicePort::Veth(device) => trial.through(ends.wire, device, options, drops),
            }
        }
        Carrier::GrossoSends { superframes } => {
            let (hosts, ends) = Hosts::sending(setting.mtu, setting.device, superframes)?;
            let options = RunOptions::new(SEED);
            let trial = Trial { setting, hosts: &hosts, interrupted };
            match ends.device {
                DevicePort::Tap(device) => trial.through(device, ends.wire, options, |_| Ok(0)),
                DevicePort::Veth(device) => trial.through(device, ends.wire, options, drops),
            }
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

impl Trial<'_> {
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

/// A data path that runs.
#[derive(Clone, Copy)]
struct Path<'a> {
    handle: &'a Handle,
    thread: Pid,
}

/// All counters at one moment.
struct Reading {
    time: Instant,
    bytes: u64,
    units: u64,
    cpu: CpuSeconds,
    tcp: [TcpCounters; 2],
    path: Option<DirectionStats>,
}

/// How the threads of the traffic ended: bytes sent and received, if both are known, and how long
/// requests took.
struct Ended {
    sent: Option<u64>,
    received: u64,
    latencies: Vec<Duration>,
}

fn observe(
    setting: &Setting,
    hosts: &Hosts,
    path: Option<Path<'_>>,
    interrupted: &AtomicBool,
) -> Result<Measured, TrialError> {
    let progress = Progress::default();
    let content = Content::new(SEED)?;
    let sides = Sides::connect(setting, hosts)?;
    thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        let also_announce = announce.clone();
        let [near, far] = setting.processors;
        let (sides, progress, content) = (&sides, &progress, &content);
        let receiver = scope.spawn(move || {
            announce.send((Role::Receiver, pin(None, far).map(|()| own_thread()))).ok();
            sides.receive(setting.compare.then_some(content), progress)
        });
        let sender = scope.spawn(move || {
            also_announce.send((Role::Sender, pin(None, near).map(|()| own_thread()))).ok();
            sides.send(content, progress)
        });
        let over = || sender.is_finished() || receiver.is_finished();
        let watched = threads(&announced, path.map(|path| path.thread)).and_then(|threads| {
            let accountant = Accountant::new(threads, &setting.processors)?;
            let read = || Reading::take(progress, &accountant, hosts, path);
            watch(setting.extent, progress, read, || {
                if interrupted.load(Ordering::Relaxed) {
                    return Err(TrialError::Interrupted);
                }
                Ok(over())
            })
        });
        progress.stop.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended = sent?.with(received?);
        let [before, after] = watched?;
        if let Some(sent) = ended.sent.filter(|sent| *sent != ended.received) {
            return Err(TrialError::Lost { sent, received: ended.received });
        }
        let [sender_tcp, receiver_tcp] = hosts.tcp_counters()?;
        Ok(Measured {
            retransmits: sender_tcp.retransmitted,
            checksum_errors: sender_tcp.checksum_errors + receiver_tcp.checksum_errors,
            latencies: ended.latencies,
            ..after.since(&before)
        })
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Sender,
    Receiver,
}

/// Waits until both threads of the traffic have said who they are.
fn threads(
    announced: &mpsc::Receiver<(Role, io::Result<Pid>)>,
    path: Option<Pid>,
) -> Result<Threads, TrialError> {
    let (role, one) = announced.recv().map_err(|_| gone())?;
    let (_, other) = announced.recv().map_err(|_| gone())?;
    let (one, other) = (one?, other?);
    let (sender, receiver) = if role == Role::Sender { (one, other) } else { (other, one) };
    Ok(Threads { sender, path, receiver })
}

/// Reads the counters at the start and at the end of what is measured. `is_over` says whether the
/// traffic ended of itself.
fn watch(
    extent: Extent,
    progress: &Progress,
    read: impl Fn() -> io::Result<Reading>,
    is_over: impl Fn() -> Result<bool, TrialError>,
) -> Result<[Reading; 2], TrialError> {
    let wait = |is_enough: &dyn Fn() -> bool| -> Result<(), TrialError> {
        while !is_over()? && !is_enough() {
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    };
    match extent {
        Extent::Time { warm_up, measured } => {
            let started = Instant::now();
            wait(&|| started.elapsed() >= warm_up)?;
            let before = read()?;
            wait(&|| before.time.elapsed() >= measured)?;
            Ok([before, read()?])
        }
        Extent::Bytes(bytes) => {
            let before = read()?;
            let end = before.bytes.saturating_add(bytes);
            wait(&|| progress.bytes.load(Ordering::Relaxed) >= end)?;
            Ok([before, read()?])
        }
    }
}

impl Reading {
    fn take(
        progress: &Progress,
        accountant: &Accountant,
        hosts: &Hosts,
        path: Option<Path<'_>>,
    ) -> io::Result<Self> {
        Ok(Self {
            time: Instant::now(),
            bytes: progress.bytes.load(Ordering::Relaxed),
            units: progress.units.load(Ordering::Relaxed),
            cpu: accountant.read()?,
            tcp: hosts.tcp_counters()?,
            path: path.and_then(|path| path.handle.snapshot()).map(|seen| seen.left_to_right),
        })
    }

    fn since(&self, before: &Self) -> Measured {
        let trains = |after: &DirectionStats, before: &DirectionStats| {
            let taken = after.rx_frames - before.rx_frames;
            let given = after.tx_frames - before.tx_frames;
            let (most, least) = (taken.max(given), taken.min(given));
            (least > 0).then(|| most as f64 / least as f64)
        };
        Measured {
            seconds: (self.time - before.time).as_secs_f64(),
            bytes: self.bytes - before.bytes,
            units: self.units - before.units,
            cpu_seconds: self.cpu.since(&before.cpu),
            segments_per_train: self
                .path
                .as_ref()
                .zip(before.path.as_ref())
                .and_then(|(after, before)| trains(after, before)),
            acknowledgements: self.tcp[1].sent - before.tcp[1].sent,
            ..Measured::default()
        }
    }
}

/// The sockets of a trial, the sender's first.
enum Sides {
    Stream([std::net::TcpStream; 2]),
    File([std::net::TcpStream; 2]),
    Requests([std::net::TcpStream; 2]),
    Datagrams([std::net::UdpSocket; 2], usize),
}

impl Sides {
    fn connect(setting: &Setting, hosts: &Hosts) -> io::Result<Self> {
        Ok(match setting.traffic {
            Traffic::TcpStream => Self::Stream(hosts.connect(&setting.congestion)?),
            Traffic::TcpSendfile => Self::File(hosts.connect(&setting.congestion)?),
            Traffic::TcpRequests => Self::Requests(hosts.connect(&setting.congestion)?),
            Traffic::UdpStream => {
                let payload = usize::from(setting.mtu.sender).saturating_sub(HEADERS_BYTES);
                Self::Datagrams(hosts.datagram_sockets()?, payload)
            }
        })
    }

    fn send(&self, content: &Content, progress: &Progress) -> io::Result<Ended> {
        let (sent, latencies) = match self {
            Self::Stream([near, _]) => (Some(send_stream(near, content, progress)?), Vec::new()),
            Self::File([near, _]) => (Some(send_file(near, content, progress)?), Vec::new()),
            Self::Requests([near, _]) => {
                let took = ask(near, progress)?;
                (Some(took.len() as u64), took)
            }
            Self::Datagrams([near, _], bytes) => {
                send_datagrams(near, *bytes, progress)?;
                (None, Vec::new())
            }
        };
        Ok(Ended { sent, received: 0, latencies })
    }

    fn receive(&self, expected: Option<&Content>, progress: &Progress) -> io::Result<u64> {
        match self {
            Self::Stream([_, far]) | Self::File([_, far]) => {
                receive_stream(far, expected, progress)
            }
            Self::Requests([_, far]) => answer(far, progress),
            Self::Datagrams([_, far], _) => receive_datagrams(far, progress),
        }
    }
}

impl Ended {
    fn with(self, received: u64) -> Self {
        Self { received, ..self }
    }
}

fn gone() -> io::Error {
    io::Error::other("a thread ended before it began")
}

/// The seed of what is sent and of the flow table: every trial is alike.
const SEED: u64 = 0x6772_6f73_736f;
/// How often to see whether it is enough.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The IPv4 and UDP headers of a datagram.
const HEADERS_BYTES: usize = 28;
