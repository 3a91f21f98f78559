//! The threads that generate the traffic, and all counters at the start and the end of the measurement.

use std::{
    io,
    net::{TcpStream, UdpSocket},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use grosso_io::{
    path::DirectionStats,
    runner::{Handle, Snapshot},
};
use rustix::process::Pid;

use super::{Extent, Measured, SEED, Setting, TrialError, settle};
use crate::{
    cpu_time::{CpuMeter, CpuSeconds, TcpCounters, Threads},
    netns::{Family, Hosts},
    traffic::{
        Content, Progress, Traffic, answer, answer_datagrams, answer_many, ask, ask_datagrams,
        ask_many, receive_datagrams, receive_streams, send_datagrams, send_file, send_streams,
    },
};

/// A running data path.
#[derive(Clone, Copy)]
pub(super) struct ObservedPath<'a> {
    pub(super) handle: &'a Handle,
    pub(super) thread: Pid,
}

/// All counters at one point in time.
pub(super) struct Reading {
    pub(super) time: Instant,
    bytes: u64,
    units: u64,
    lost: u64,
    cpu: CpuSeconds,
    pub(super) tcp: [TcpCounters; 2],
    path: Option<Snapshot>,
}

/// Results of the traffic threads: the bytes sent and received, if both are known, and the latencies of requests.
struct Ended {
    sent: Option<u64>,
    received: u64,
    latencies: Vec<Duration>,
}

/// Measures traffic between the hosts that the lab's own threads generate, through a data path or only through the
/// kernel. Calls `gauge` at the start and the end of the measurement.
pub(super) fn observe_beside<Gauged>(
    setting: &Setting,
    hosts: &Hosts,
    path: Option<ObservedPath<'_>>,
    interrupted: &AtomicBool,
    gauge: impl Fn() -> io::Result<Gauged>,
) -> Result<(Measured, [Gauged; 2]), TrialError> {
    let progress = Progress::default();
    let content = Content::new(SEED)?;
    let sides = Sides::connect(setting, hosts).map_err(TrialError::call("hosts", "connect"))?;
    thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        let also_announce = announce.clone();
        let [near, _, far] = setting.processors;
        let (sides, progress, content) = (&sides, &progress, &content);
        let receiver = scope.spawn(move || {
            announce.send((Role::Receiver, settle(c"receiver", far))).ok();
            sides.receive(setting.compare.then_some(content), progress)
        });
        let sender = scope.spawn(move || {
            also_announce.send((Role::Sender, settle(c"sender", near))).ok();
            sides.send(content, progress)
        });
        let over = || sender.is_finished() || receiver.is_finished();
        let watched = threads(&announced, path.map(|path| path.thread)).and_then(|threads| {
            let meter = CpuMeter::new(threads, &setting.processors, hosts.poller())?;
            let read = || Ok((Reading::take(progress, &meter, hosts, path)?, gauge()?));
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
        let [send, receive] = sides.calls();
        let sent = sent.map_err(TrialError::call("sender", send))?;
        let ended = sent.with(received.map_err(TrialError::call("receiver", receive))?);
        let [(before, gauged_before), (after, gauged_after)] = watched?;
        if let Some(sent) = ended.sent.filter(|sent| *sent != ended.received) {
            return Err(TrialError::Lost { sent, received: ended.received });
        }
        let [sender_tcp, receiver_tcp] = hosts.tcp_counters()?;
        let measured = Measured {
            retransmits: sender_tcp.retransmitted + receiver_tcp.retransmitted,
            checksum_errors: sender_tcp.checksum_errors + receiver_tcp.checksum_errors,
            timeouts: sender_tcp.timeouts + receiver_tcp.timeouts,
            latencies: ended.latencies,
            ..after.since(&before, setting.traffic == Traffic::TcpMaerts)
        };
        Ok((measured, [gauged_before, gauged_after]))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Sender,
    Receiver,
}

/// Waits until both traffic threads have reported their thread IDs.
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

/// Reads the counters at the start and the end of the measurement. `is_over` returns whether the traffic has already
/// ended by itself.
pub(super) fn watch<Read>(
    extent: Extent,
    progress: &Progress,
    read: impl Fn() -> io::Result<Read>,
    is_over: impl Fn() -> Result<bool, TrialError>,
) -> Result<[Read; 2], TrialError> {
    let look_again = match extent {
        Extent::Time { .. } => LOOK_AGAIN,
        Extent::Bytes(_) => LOOK_SOON,
    };
    let wait = |is_enough: &dyn Fn() -> bool| -> Result<(), TrialError> {
        while !is_over()? && !is_enough() {
            thread::sleep(look_again);
        }
        Ok(())
    };
    match extent {
        Extent::Time { warm_up, measured } => {
            let started = Instant::now();
            // On a busy machine, a round trip includes the wait for the CPU, and TCP needs several round trips to reach
            // its full speed.
            let has_started = || {
                progress.bytes.load(Ordering::Relaxed) >= STARTED_BYTES
                    || progress.units.load(Ordering::Relaxed) >= STARTED_UNITS
            };
            wait(&|| {
                let elapsed = started.elapsed();
                elapsed >= warm_up && (has_started() || elapsed >= warm_up * WARM_UPS_MAX)
            })?;
            let (before, started) = (read()?, Instant::now());
            wait(&|| started.elapsed() >= measured)?;
            Ok([before, read()?])
        }
        Extent::Bytes(bytes) => {
            let before = read()?;
            let end = progress.bytes.load(Ordering::Relaxed).saturating_add(bytes);
            wait(&|| progress.bytes.load(Ordering::Relaxed) >= end)?;
            Ok([before, read()?])
        }
    }
}

impl Reading {
    pub(super) fn take(
        progress: &Progress,
        meter: &CpuMeter,
        hosts: &Hosts,
        path: Option<ObservedPath<'_>>,
    ) -> io::Result<Self> {
        let (bytes, units) = progress.arrivals();
        Ok(Self {
            time: Instant::now(),
            bytes,
            units,
            lost: progress.lost.load(Ordering::Relaxed),
            cpu: meter.read()?,
            tcp: hosts.tcp_counters()?,
            path: path.and_then(|path| path.handle.snapshot()),
        })
    }

    /// Returns the measurement since an earlier reading. If `is_reverse` is set, the receiver is the host that sends
    /// the data.
    pub(super) fn since(&self, before: &Self, is_reverse: bool) -> Measured {
        let directions = |snapshot: &Snapshot| match is_reverse {
            true => [snapshot.right_to_left, snapshot.left_to_right],
            false => [snapshot.left_to_right, snapshot.right_to_left],
        };
        let paths = self.path.as_ref().zip(before.path.as_ref());
        let answering = usize::from(!is_reverse);
        Measured {
            seconds: (self.time - before.time).as_secs_f64(),
            bytes: self.bytes - before.bytes,
            units: self.units - before.units,
            lost: self.lost - before.lost,
            cpu_seconds: self.cpu.since(&before.cpu),
            segments_per_train: paths.and_then(|(after, before)| {
                segments(&directions(after)[0], &directions(before)[0])
            }),
            acknowledgements_passed: paths.map(|(after, before)| {
                directions(after)[1].tx_frames - directions(before)[1].tx_frames
            }),
            acknowledgements: self.tcp[answering].sent - before.tcp[answering].sent,
            ..Measured::default()
        }
    }
}

/// Returns the number of packets per frame on the side of the path with larger frames.
pub(super) fn segments(after: &DirectionStats, before: &DirectionStats) -> Option<f64> {
    let taken = after.rx_frames - before.rx_frames;
    let given = after.tx_frames - before.tx_frames;
    let (most, least) = (taken.max(given), taken.min(given));
    (least > 0).then(|| most as f64 / least as f64)
}

/// The sockets of a trial; the sending ones come first.
enum Sides {
    Streams([Vec<TcpStream>; 2]),
    File([Vec<TcpStream>; 2]),
    Requests([Vec<TcpStream>; 2]),
    DatagramRequests([UdpSocket; 2]),
    Datagrams { sockets: [UdpSocket; 2], bytes: usize, segments: bool },
}

impl Sides {
    fn connect(setting: &Setting, hosts: &Hosts) -> io::Result<Self> {
        let streams = || hosts.connect(setting.connections, &setting.congestion);
        let datagrams = |segments| {
            let headers = IP_UDP_BYTES[usize::from(setting.layout.family == Family::V6)];
            let bytes = usize::from(setting.layout.mtu.sender).saturating_sub(headers);
            io::Result::Ok(Self::Datagrams { sockets: hosts.datagram_sockets()?, bytes, segments })
        };
        Ok(match setting.traffic {
            Traffic::TcpStream => Self::Streams(streams()?),
            Traffic::TcpSendfile => Self::File(streams()?),
            Traffic::TcpMaerts => {
                let [near, far] = streams()?;
                Self::Streams([far, near])
            }
            Traffic::TcpRequests => Self::Requests(streams()?),
            Traffic::UdpRequests => Self::DatagramRequests(hosts.datagram_sockets()?),
            Traffic::UdpStream => datagrams(false)?,
            Traffic::UdpSegments => datagrams(true)?,
        })
    }

    /// Returns the names of the system calls that the sender and the receiver use.
    const fn calls(&self) -> [&'static str; 2] {
        match self {
            Self::Streams(_) => ["write", "read"],
            Self::File(_) => ["sendfile", "read"],
            Self::Requests(_) => ["write or read", "read or write"],
            Self::DatagramRequests(_) => ["send or recv", "recv or send"],
            Self::Datagrams { .. } => ["sendmsg", "recvmsg"],
        }
    }

    fn send(&self, content: &Content, progress: &Progress) -> io::Result<Ended> {
        let (sent, latencies) = match self {
            Self::Streams([near, _]) => (Some(send_streams(near, content, progress)?), Vec::new()),
            Self::File([near, _]) => (Some(send_file(near, content, progress)?), Vec::new()),
            Self::Requests([near, _]) => {
                let took = match &near[..] {
                    [one] => ask(one, progress)?,
                    many => ask_many(many, progress)?,
                };
                (Some(took.len() as u64), took)
            }
            Self::DatagramRequests([near, _]) => (None, ask_datagrams(near, progress)?),
            Self::Datagrams { sockets: [near, _], bytes, segments } => {
                send_datagrams(near, *bytes, *segments, progress)?;
                (None, Vec::new())
            }
        };
        Ok(Ended { sent, received: 0, latencies })
    }

    fn receive(&self, expected: Option<&Content>, progress: &Progress) -> io::Result<u64> {
        match self {
            Self::Streams([_, far]) | Self::File([_, far]) => {
                receive_streams(far, expected, progress)
            }
            Self::Requests([_, far]) => match &far[..] {
                [one] => answer(one, progress),
                many => answer_many(many, progress),
            },
            Self::DatagramRequests([_, far]) => answer_datagrams(far, progress),
            Self::Datagrams { sockets: [_, far], .. } => receive_datagrams(far, progress),
        }
    }
}

impl Ended {
    fn with(self, received: u64) -> Self {
        Self { received, ..self }
    }
}

pub(crate) fn gone() -> io::Error {
    io::Error::other("a traffic thread ended before the traffic started")
}

/// Interval at which a thread checks whether the measurement has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Interval for the same checks if the time of the end is part of the result.
const LOOK_SOON: Duration = Duration::from_millis(1);
/// Number of bytes after which a connection counts as running at full speed.
const STARTED_BYTES: u64 = 4 << 20;
/// Number of requests or datagrams after which a connection counts as running at full speed.
const STARTED_UNITS: u64 = 1000;
/// Multiple of the warm-up time after which the measurement starts in any case, even if the connection has not reached
/// its full speed.
const WARM_UPS_MAX: u32 = 4;
/// Total length of the IP and UDP headers in bytes, for IPv4 and IPv6.
const IP_UDP_BYTES: [usize; 2] = [28, 48];
