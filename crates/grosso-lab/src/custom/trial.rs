//! One run: TCP connections between two hosts, across data paths that the caller has started.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{IpAddr, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use grosso_io::runner::{Handle, Snapshot};
use grosso_sys::{
    path::kernel,
    scheduling::{cpu_time, threads},
    wait::{Interest, Waiter},
};
use rustix::{
    net::sockopt::set_tcp_congestion,
    process::{Pid, getpid},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::LaidNetwork;
use crate::{
    cpu_time::{CpuMeter, CpuSeconds, TcpCounters, Threads},
    experiment::two_processors,
    netns::STALLED,
    traffic::{Content, Progress},
    trial::{TrialError, gone, settle},
};

/// The traffic that an experiment generates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomTraffic {
    /// The indexes of the sending host and the receiving host.
    pub hosts: [usize; 2],
    /// Destination address of the connections.
    pub to: IpAddr,
    /// The number of connections.
    pub connections: usize,
    /// Congestion control of the connections.
    pub congestion: String,
    /// The CPUs of the sender and the receiver, if the user chose them.
    pub processors: Option<[usize; 2]>,
}

/// A running data path.
#[derive(Clone, Debug)]
pub struct CustomPath {
    /// Name of the path. The names of its threads start with it.
    pub name: String,
    /// Control handles for querying the path's queues.
    pub handles: Vec<Handle>,
}

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CustomRun {
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of bytes that arrived, each compared with the byte that was sent.
    pub bytes: u64,
    /// CPU time; `path` is the total for all data paths.
    pub cpu_seconds: CpuSeconds,
    /// Number of segments retransmitted.
    pub retransmits: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Number of packets that a forwarding host dropped because they exceeded the MTU of the next device.
    pub too_long: u64,
    /// Numbers of frames that each data path forwarded.
    pub paths: Vec<CustomFrames>,
}

/// Numbers of frames that a data path forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CustomFrames {
    /// The name of the path.
    pub path: String,
    /// Numbers of frames received on the left and sent on the right.
    pub left_to_right: [u64; 2],
    /// Numbers of frames in the opposite direction: received on the right and sent on the left.
    pub right_to_left: [u64; 2],
    /// Numbers of frames that the path's ports lost, by counter name.
    pub lost: BTreeMap<&'static str, u64>,
}

impl CustomRun {
    /// Returns the throughput in Gb/s.
    pub(super) fn gbps(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }

    /// Returns the CPU-seconds per gigabyte; infinite if nothing arrived.
    pub(super) fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_seconds.total() / (self.bytes as f64 * 1e-9)
    }

    /// Returns the mean number of packets per frame, for the path and the direction where trains are longest.
    pub(super) fn segments(&self) -> f64 {
        let joined = |[taken, given]: [u64; 2]| (given > 0).then(|| taken as f64 / given as f64);
        let frames = self.paths.iter().flat_map(|path| [path.left_to_right, path.right_to_left]);
        frames.filter_map(joined).fold(1.0, f64::max)
    }
}

/// Counters at one point in time.
struct Moment {
    time: Instant,
    bytes: u64,
    cpu: CpuSeconds,
    tcp: [TcpCounters; 2],
    too_long: u64,
    frames: Vec<CustomFrames>,
}

/// Measures the traffic for a given time after a warm-up. If a stream stalls, that also counts as a result.
pub(super) fn measure(
    laid: &LaidNetwork,
    traffic: &CustomTraffic,
    paths: &[CustomPath],
    (warm_up, measured): (Duration, Duration),
    interrupted: &AtomicBool,
) -> Result<CustomRun, TrialError> {
    let (progress, content) = (Progress::default(), Content::new(SEED)?);
    let [sends, receives] = traffic.processors.map_or_else(two_processors, Ok)?;
    // Both sides stay open until both threads have ended.
    let [near, far] = connect(laid, traffic).map_err(TrialError::call("hosts", "connect"))?;
    thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        let (progress, content, near, far) = (&progress, &content, &near, &far);
        let also_announce = announce.clone();
        let receiver = scope.spawn(move || {
            announce.send((false, settle(c"receiver", receives))).ok();
            receive(far, content, progress)
        });
        let sender = scope.spawn(move || {
            also_announce.send((true, settle(c"sender", sends))).ok();
            send(near, content, progress)
        });
        let watched = both(&announced).and_then(|[sender, receiver]| {
            let observed = Threads { sender, path: None, receiver };
            let meter = CpuMeter::new(observed, &[sends, receives], None)?;
            let workers = workers(paths)?;
            let read = || Moment::take(laid, traffic, paths, progress, (&meter, &workers));
            let wait = |time: Duration| {
                let started = Instant::now();
                while started.elapsed() < time {
                    if interrupted.load(Ordering::Relaxed) {
                        return Err(TrialError::Interrupted);
                    }
                    thread::sleep(LOOK_AGAIN.min(time));
                }
                Ok(())
            };
            wait(warm_up)?;
            let before = read()?;
            wait(measured)?;
            Ok(read()?.since(before))
        });
        progress.stop.store(true, Ordering::Relaxed);
        for (thread, host, call) in [(sender, "sender", "write"), (receiver, "receiver", "read")] {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map_err(TrialError::call(host, call))?;
        }
        watched
    })
}

/// Opens connections from one host to the other, and returns the sender's sockets first.
fn connect(laid: &LaidNetwork, traffic: &CustomTraffic) -> io::Result<[Vec<TcpStream>; 2]> {
    let [from, to] = traffic.hosts.map(|host| laid.of_host(host));
    let listener = to.run(|| TcpListener::bind((traffic.to, 0)))??;
    let target = listener.local_addr()?;
    let mut sides = [Vec::new(), Vec::new()];
    for _ in 0..traffic.connections {
        let near = from.run(|| TcpStream::connect_timeout(&target, STALLED))?;
        let near = near.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot connect to {}: {error}", traffic.to))
        })?;
        let (far, _) = listener.accept()?;
        for (side, kept) in [near, far].into_iter().zip(&mut sides) {
            set_tcp_congestion(&side, &traffic.congestion).map_err(|error| {
                let text = format!("cannot use congestion control {}: {error}", traffic.congestion);
                io::Error::new(error.kind(), text)
            })?;
            side.set_nonblocking(true)?;
            kept.push(side);
        }
    }
    Ok(sides)
}

/// Sends on all connections until the traffic is stopped. Slow connections do not delay the others.
fn send(sockets: &[TcpStream], content: &Content, progress: &Progress) -> io::Result<()> {
    let mut sent = vec![0; sockets.len()];
    serve_ready_sockets(sockets, Interest::WRITE, progress, |i, mut socket| {
        sent[i] += socket.write(content.from(sent[i]))? as u64;
        Ok(())
    })
}

/// Receives on all connections until the traffic is stopped, and compares every byte.
fn receive(sockets: &[TcpStream], content: &Content, progress: &Progress) -> io::Result<()> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut received = vec![0; sockets.len()];
    serve_ready_sockets(sockets, Interest::READ, progress, |i, mut socket| {
        let len = socket.read(&mut buffer)?;
        if !content.is_at(received[i], &buffer[..len]) {
            let what = format!(
                "received data differs from sent data after byte {} of stream {i}",
                received[i]
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        received[i] += len as u64;
        progress.bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    })
}

/// Calls `with` for every socket that is ready, until the traffic is stopped.
fn serve_ready_sockets(
    sockets: &[TcpStream],
    interest: Interest,
    progress: &Progress,
    mut with: impl FnMut(usize, &TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    let waiter = Waiter::new()?;
    for (i, socket) in sockets.iter().enumerate() {
        waiter.add(socket, i as u64, interest)?;
    }
    let mut ready = Vec::new();
    while !progress.stop.load(Ordering::Relaxed) {
        waiter.wait(&mut ready, Some(LOOK_AGAIN))?;
        for one in &ready {
            let i = one.token as usize;
            match with(i, &sockets[i]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Waits until both traffic threads have reported their thread IDs; returns the sender's first.
fn both(announced: &mpsc::Receiver<(bool, io::Result<Pid>)>) -> Result<[Pid; 2], TrialError> {
    let (is_sender, one) = announced.recv().map_err(|_| gone())?;
    let (_, other) = announced.recv().map_err(|_| gone())?;
    let (one, other) = (one?, other?);
    Ok(if is_sender { [one, other] } else { [other, one] })
}

/// Finds the threads of the paths by name.
fn workers(paths: &[CustomPath]) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in threads(getpid())? {
        let file = format!("/proc/self/task/{}/comm", thread.as_raw_nonzero());
        let name = kernel::read(file).unwrap_or_default();
        let is_of = |path: &CustomPath| {
            name.trim_end().rsplit_once('/').is_some_and(|(start, _)| path.name.starts_with(start))
        };
        if paths.iter().any(is_of) {
            found.push(thread);
        }
    }
    Ok(found)
}

impl Moment {
    fn take(
        laid: &LaidNetwork,
        traffic: &CustomTraffic,
        paths: &[CustomPath],
        progress: &Progress,
        (meter, workers): (&CpuMeter, &[Pid]),
    ) -> io::Result<Self> {
        let mut cpu = meter.read()?;
        for worker in workers {
            cpu.path += cpu_time(*worker)?.running.as_secs_f64();
        }
        let [from, to] = traffic.hosts.map(|host| laid.of_host(host));
        let mut too_long = 0;
        for host in laid.hosts() {
            too_long += host.run(too_long_to_forward)?;
        }
        Ok(Self {
            time: Instant::now(),
            bytes: progress.bytes.load(Ordering::Relaxed),
            cpu,
            tcp: [from.run(TcpCounters::read)??, to.run(TcpCounters::read)??],
            too_long,
            frames: paths.iter().map(CustomFrames::of).collect(),
        })
    }

    fn since(self, before: Self) -> CustomRun {
        let added = |of: &dyn Fn(&TcpCounters) -> u64| {
            let both = self.tcp.iter().zip(&before.tcp);
            both.map(|(after, before)| of(after) - of(before)).sum()
        };
        CustomRun {
            seconds: (self.time - before.time).as_secs_f64(),
            bytes: self.bytes - before.bytes,
            cpu_seconds: self.cpu.since(&before.cpu),
            retransmits: added(&|tcp| tcp.retransmitted),
            timeouts: added(&|tcp| tcp.timeouts),
            too_long: self.too_long - before.too_long,
            paths: self.frames.into_iter().zip(before.frames).map(CustomFrames::since).collect(),
        }
    }
}

impl CustomFrames {
    /// Returns the frames that a path has forwarded so far; zero for a path that has ended.
    fn of(path: &CustomPath) -> Self {
        let mut frames = Self {
            path: path.name.clone(),
            left_to_right: [0; 2],
            right_to_left: [0; 2],
            lost: BTreeMap::new(),
        };
        for Snapshot { left_to_right, right_to_left, left, right, .. } in
            path.handles.iter().filter_map(Handle::snapshot)
        {
            for (counter, count) in left.iter().chain(&right).filter(|(one, _)| one.is_loss) {
                *frames.lost.entry(counter.name).or_default() += count;
            }
            for (kept, direction) in [
                (&mut frames.left_to_right, left_to_right),
                (&mut frames.right_to_left, right_to_left),
            ] {
                kept[0] += direction.rx_frames;
                kept[1] += direction.tx_frames;
            }
        }
        frames
    }

    fn since((after, before): (Self, Self)) -> Self {
        let less = |after: [u64; 2], before: [u64; 2]| {
            [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])]
        };
        Self {
            left_to_right: less(after.left_to_right, before.left_to_right),
            right_to_left: less(after.right_to_left, before.right_to_left),
            path: after.path,
            lost: {
                let earlier = |name| before.lost.get(name).copied().unwrap_or(0);
                let lost = after.lost.into_iter();
                let lost = lost.map(|(name, count)| (name, count.saturating_sub(earlier(name))));
                lost.filter(|(_, count)| *count > 0).collect()
            },
        }
    }
}

/// Returns the number of packets that were too long for the calling thread's host to forward. With IPv4, these are
/// packets that must not or could not be fragmented.
fn too_long_to_forward() -> u64 {
    let tables = ["snmp", "snmp6"]
        .map(|table| kernel::read(format!("/proc/thread-self/net/{table}")).unwrap_or_default());
    let [four, six] = &tables;
    let mut lines = four.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let four = lines.next().zip(lines.next()).and_then(|(names, values)| {
        let mut both = names.split(' ').zip(values.split(' '));
        both.find(|(name, _)| *name == "FragFails")?.1.parse::<u64>().ok()
    });
    let six = six.lines().find_map(|line| line.strip_prefix("Ip6InTooBigErrors"));
    four.unwrap_or(0) + six.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
}

/// Seed of the content that the sender sends.
const SEED: u64 = 0x6772_6f73_736f;
/// Buffer size of one receive call in bytes.
const RECEIVE_BYTES: usize = 256 << 10;
/// Interval at which a thread checks whether the traffic has been stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
