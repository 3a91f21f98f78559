//! Two hosts on which users run their own commands, with Grosso between them and a wire that may be impaired.

use std::{
    io,
    process::{Child, Command},
    sync::{atomic::AtomicBool, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use grosso_io::{
    PortError,
    impair::{Impair, ImpairStats, Impairment},
    live::LivePort,
    runner::{DataPath, End, Handle, RunOptions, Snapshot},
};
use grosso_sys::{path::kernel, process::die_with_parent, scheduling::own_thread};
use rustix::process::Pid;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    experiment::three_processors,
    netns::{Device, Family, Hosts, Layout, Mtu, RECEIVER_ADDRESSES, SENDER_ADDRESSES},
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, observe_path, settle},
};

/// Configuration of the network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkOptions {
    /// The MTU in bytes, from the IP header on.
    pub mtu: u16,
    /// Impairment of the wire in both directions, each with its own random numbers.
    pub impairment: Option<Impairment>,
    /// Maximum hold time of trains to b; `None` if nothing is merged.
    pub coalesce: Option<Duration>,
    /// Device through which Grosso exchanges packets with b.
    pub device: Device,
    /// The CPUs of the built-in sender, the data path and the receiver, if the user chose them.
    pub processors: Option<[usize; 3]>,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The host from which Grosso receives packets over a wire.
    A,
    /// Host for which Grosso acts as the NIC.
    B,
}

/// A running network.
#[derive(Debug)]
pub struct Network {
    hosts: Hosts,
    options: NetworkOptions,
    layout: Layout,
    handle: Handle,
    path: Pid,
    running: JoinHandle<(Result<(), PortError>, Summary)>,
}

/// Counters of a network in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Summary {
    /// From a to b.
    pub a_to_b: Passed,
    /// From b to a.
    pub b_to_a: Passed,
}

/// Counters for the frames in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Passed {
    /// Number of frames received from the wire, or from b's stack.
    pub rx_frames: u64,
    /// Total length of the received frames in bytes.
    pub rx_bytes: u64,
    /// Number of forwarded frames; each frame to b contains a train of packets.
    pub tx_frames: u64,
    /// Number of packets lost at random.
    pub lost: u64,
    /// Number of packets lost because the wire's queue was full.
    pub overflowed: u64,
    /// Number of packets that overtook others.
    pub reordered: u64,
    /// Number of packets that were delivered twice.
    pub duplicated: u64,
    /// Number of packets in which a bit was flipped.
    pub corrupted: u64,
}

impl Network {
    /// Creates the hosts and starts the data path between them.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`].
    pub fn start(options: NetworkOptions) -> io::Result<Self> {
        let layout = Layout {
            mtu: Mtu { sender: options.mtu, receiver: options.mtu },
            family: Family::V6,
            tcp_buffer_bytes: TCP_BUFFER_BYTES,
            under_way_bytes: UNDER_WAY_BYTES,
            // Without a complete checksum, a flipped bit would go unnoticed.
            full_checksums: options.impairment.is_some(),
            patient: false,
            ..Layout::default()
        };
        // The impairment must apply to individual packets, not to superframes.
        let superframes = options.impairment.is_none();
        let (hosts, ends) = Hosts::receiving(&layout, options.device, superframes)?;
        let there = options.impairment.clone().unwrap_or_default();
        let mut back = there.clone();
        back.seed = back.seed.wrapping_add(1);
        let wire = Impair::new(ends.wire, there);
        let device = Impair::new(ends.device, back);
        let (handle, running, announced) = spawn(wire, device, &options)?;
        let path =
            announced.recv().map_err(|_| io::Error::other("the data path did not start"))??;
        Ok(Self { hosts, options, layout, handle, path, running })
    }

    /// Starts a command on a host. The command is killed when the calling thread ends. Its environment contains the
    /// addresses of both hosts as `GROSSO_A` and `GROSSO_B` (with the suffix `6` for IPv6), and the name of its host as
    /// `GROSSO_HOST`.
    ///
    /// # Errors
    /// Fails if the program does not exist.
    pub fn spawn(&self, host: Host, command: &mut Command) -> io::Result<Child> {
        let names = [["GROSSO_A", "GROSSO_A6"], ["GROSSO_B", "GROSSO_B6"]];
        for (names, addresses) in names.iter().zip([SENDER_ADDRESSES, RECEIVER_ADDRESSES]) {
            for (name, address) in names.iter().zip(addresses) {
                command.env(name, address.to_string());
            }
        }
        command.env("GROSSO_HOST", if host == Host::A { "a" } else { "b" });
        let [a, b] = self.hosts.networks();
        let network = if host == Host::A { a } else { b };
        network.host(die_with_parent(command))?.spawn()
    }

    /// Waits until a newly started server on a host is listening. Gives up if the server ends or takes too long to
    /// start.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted.
    pub fn await_listener(&self, host: Host, server: &mut Child) -> io::Result<()> {
        let [a, b] = self.hosts.networks();
        let network = if host == Host::A { a } else { b };
        let started = Instant::now();
        while started.elapsed() < LISTENS && server.try_wait()?.is_none() {
            if network.run(has_listener)?? {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Sends as much data as possible over one connection from a to b, for a given time.
    ///
    /// # Errors
    /// Fails for the same reasons as [`crate::trial::measure`].
    pub fn stream(
        &self,
        measured: Duration,
        congestion: &str,
        interrupted: &AtomicBool,
    ) -> Result<Measured, TrialError> {
        let setting = Setting {
            traffic: Traffic::TcpStream,
            connections: 1,
            tool: Tool::BuiltIn,
            layout: self.layout,
            carrier: Carrier::grosso(self.options.coalesce, false),
            impairment: None,
            back: None,
            device: self.options.device,
            processors: three_processors(self.options.processors)?,
            congestion: congestion.into(),
            extent: Extent::Time { warm_up: Duration::ZERO, measured },
            compare: true,
        };
        observe_path(&setting, &self.hosts, &self.handle, self.path, interrupted)
    }

    /// Stops the data path and returns its counters.
    ///
    /// # Errors
    /// Fails if one of the data path's ports failed.
    pub fn stop(self) -> Result<Summary, PortError> {
        self.handle.stop();
        let (result, summary) =
            self.running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.map(|()| summary)
    }
}

type Running = JoinHandle<(Result<(), PortError>, Summary)>;

/// Runs a data path on a new thread, which reports its thread ID.
fn spawn(
    left: Impair<LivePort>,
    right: Impair<LivePort>,
    options: &NetworkOptions,
) -> io::Result<(Handle, Running, mpsc::Receiver<io::Result<Pid>>)> {
    let mut run = RunOptions::new(SEED);
    run.left_to_right.coalesce = options.coalesce.is_some();
    let hold = options.coalesce.unwrap_or_default();
    run.left_to_right.profile.limits.hold_ns = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
    let path = DataPath::new(left, right, run)?;
    let handle = path.handle();
    let processor = options.processors.map(|[_, processor, _]| processor);
    let (announce, announced) = mpsc::channel();
    let running = thread::Builder::new().name("path".into()).spawn(move || {
        let settled = processor.map_or_else(|| Ok(own_thread()), |one| settle(c"path", one));
        announce.send(settled).ok();
        let End { result, left, right, snapshot, .. } = path.run();
        (result, Summary::new(&snapshot, left.stats(), right.stats()))
    })?;
    Ok((handle, running, announced))
}

impl Summary {
    fn new(snapshot: &Snapshot, there: &ImpairStats, back: &ImpairStats) -> Self {
        let passed = |direction: &grosso_io::path::DirectionStats, wire: &ImpairStats| Passed {
            rx_frames: direction.rx_frames,
            rx_bytes: direction.rx_bytes,
            tx_frames: direction.tx_frames,
            lost: wire.lost,
            overflowed: wire.overflowed,
            reordered: wire.reordered,
            duplicated: wire.duplicated,
            corrupted: wire.corrupted,
        };
        Self {
            a_to_b: passed(&snapshot.left_to_right, there),
            b_to_a: passed(&snapshot.right_to_left, back),
        }
    }
}

/// Returns whether the calling thread's namespace has a listening TCP socket or a waiting UDP socket.
fn has_listener() -> io::Result<bool> {
    // The fourth column is the state: 0A is a listening TCP socket, and 07 an unconnected UDP socket.
    let tables = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];
    for (table, state) in tables {
        let text = match kernel::read(format!("/proc/thread-self/net/{table}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text?,
        };
        if text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some(state)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Seed of the flow table.
const SEED: u64 = 0x6772_6f73_736f;
/// Size of TCP buffers in bytes: enough for a delay of several milliseconds.
const TCP_BUFFER_BYTES: usize = 4 << 20;
/// Maximum number of bytes in flight: more than a wire with a delay holds by default (10,000 packets).
const UNDER_WAY_BYTES: usize = 16 << 20;
/// Maximum time that a server may take to start.
const LISTENS: Duration = Duration::from_secs(2);
/// Interval between checks for a listening server.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
