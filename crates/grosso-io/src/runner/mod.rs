//! A data path on its own thread, which consists of two ports and both directions between them.
//!
//! The thread sleeps until a port has frames or room, a held train is due, or a request arrives. The only state that it
//! shares with other threads is the requests of [`Handle`]; checking for them costs one load per loop iteration. A
//! caller that makes a request never has to wait for the thread (see [`Request`]).
//!
//! ```no_run
//! use grosso_io::{
//!     live::{PacketOptions, PacketPort, TapOptions, TapPort},
//!     runner::{DataPath, RunOptions},
//! };
//! use grosso_sys::tun::Layer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wire = PacketPort::open("eth1", &PacketOptions::default())?;
//! let host = TapPort::open("grosso0", Layer::Ethernet, &TapOptions::default())?;
//! let path = DataPath::new(wire, host, RunOptions::new(0x5eed))?;
//! let handle = path.handle();
//! std::thread::spawn(move || {
//!     std::thread::sleep(std::time::Duration::from_secs(10));
//!     handle.stop();
//! });
//! let end = path.run();
//! println!("{:?}", end.snapshot.left_to_right);
//! # Ok(end.result?)
//! # }
//! ```

mod group;
mod requests;
mod sleeper;

use std::{io, time::Duration};

use grosso::stats::CoalesceStats;
use grosso_sys::wait::{monotonic, wait_exactly};

pub use self::{
    group::{Broken, Group, QUEUES_MAX, ThreadOptions},
    requests::{Handle, Reading, Request},
};
use self::{
    requests::Answering,
    sleeper::{Sleeper, Wants},
};
use crate::{
    path::{Direction, DirectionStats, PathOptions, Shared},
    port::{Port, PortCounter, PortError},
};

/// Options of a running data path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunOptions {
    /// Direction from the left port to the right port.
    pub left_to_right: PathOptions,
    /// Direction from the right port to the left port.
    pub right_to_left: PathOptions,
    /// Time to busy-poll after the last frame before the thread sleeps. Busy-polling can be cheaper than a wake-up.
    pub busy_poll: Duration,
    /// Maximum time to wait on shutdown for the transmit port to have room for held packets. Packets that it still has
    /// no room for are dropped.
    pub drain: Duration,
}

impl RunOptions {
    /// Creates options with [`PathOptions::new`] for both directions, no busy polling, and a limit of one second for
    /// [`Self::drain`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            left_to_right: PathOptions::new(seed),
            right_to_left: PathOptions::new(seed),
            busy_poll: Duration::ZERO,
            drain: Duration::from_secs(1),
        }
    }
}

/// Counters of a data path at one point in time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Direction from the left port to the right port.
    pub left_to_right: DirectionStats,
    /// Direction from the right port to the left port.
    pub right_to_left: DirectionStats,
    /// Coalescing counters of the direction to the right port, or `None` if that port does not accept superframes.
    pub coalesced_to_right: Option<CoalesceStats>,
    /// Coalescing counters of the direction to the left port, or `None` if that port does not accept superframes.
    pub coalesced_to_left: Option<CoalesceStats>,
    /// Number of trains that are held for the right port, and for the left port. `None` for a port that does not accept
    /// superframes.
    pub trains_held: [Option<u64>; 2],
    /// Counters of the left port itself.
    pub left: Vec<(PortCounter, u64)>,
    /// Counters of the right port itself.
    pub right: Vec<(PortCounter, u64)>,
    /// Nanoseconds since the last frame from the left port, or `None` before the first frame.
    pub left_idle_ns: Option<u64>,
    /// Nanoseconds since the last frame from the right port, or `None` before the first frame.
    pub right_idle_ns: Option<u64>,
    /// Number of times that the thread slept.
    pub sleeps: u64,
}

/// Result of a data path that ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct End<L, R> {
    /// `Ok` if the path was stopped or a port finished, otherwise the error from the port that failed.
    pub result: Result<(), PortError>,
    /// The left port.
    pub left: L,
    /// The right port.
    pub right: R,
    /// Final counters of the path.
    pub snapshot: Snapshot,
}

/// Two ports and the directions between them. The [module documentation](self) has an example.
#[derive(Debug)]
pub struct DataPath<L: Port, R: Port> {
    left: L,
    right: R,
    to_right: Direction,
    to_left: Direction,
    /// State that both directions use.
    learned: Shared,
    /// Time of the last frame from the left port and from the right port, in nanoseconds.
    received_ns: [Option<u64>; 2],
    sleeper: Sleeper,
    options: RunOptions,
    shared: Answering,
}

impl<L: Port, R: Port> DataPath<L, R> {
    /// Connects two ports.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if the link types of the ports differ, or any error from `eventfd(2)`.
    pub fn new(left: L, right: R, options: RunOptions) -> io::Result<Self> {
        if left.link() != right.link() {
            let why = format!(
                "cannot connect a port with {} frames to a port with {} frames",
                left.link(),
                right.link()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let shared = Answering::new()?;
        let [there, back] = [&options.left_to_right, &options.right_to_left];
        let to_right = Direction::new(there.clone(), left.link(), right.device());
        let to_left = Direction::new(back.clone(), right.link(), left.device());
        let learned = Shared::of([&to_right, &to_left], there.seed);
        Ok(Self {
            to_right,
            to_left,
            learned,
            left,
            right,
            received_ns: [None; 2],
            sleeper: Sleeper::default(),
            options,
            shared,
        })
    }

    /// Returns a handle to query and stop the path while it runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.shared.handle()
    }

    /// Moves frames until the path is stopped, or a port finishes or fails. Then delivers the held packets that there
    /// is room for.
    pub fn run(mut self) -> End<L, R> {
        // If this fails, timers are coarser and trains are held a little longer.
        let _ = wait_exactly();
        // This snapshot can be reported even if the thread gets stuck before the first request.
        let first = self.snapshot();
        self.shared.publish(first);
        let mut result = self.work();
        let drained = self.finish();
        result = result.and(drained);
        let snapshot = self.snapshot();
        self.shared.conclude(snapshot.clone());
        let Self { left, right, .. } = self;
        End { result, left, right, snapshot }
    }

    fn work(&mut self) -> Result<(), PortError> {
        let mut busy_until = 0;
        loop {
            if self.shared.is_asked() && self.answer() {
                return Ok(());
            }
            let now_ns = now_ns();
            if self.turn(now_ns)? > 0 {
                busy_until = now_ns.saturating_add(nanoseconds(self.options.busy_poll));
                continue;
            }
            if self.left.is_finished() || self.right.is_finished() {
                return Ok(());
            }
            if now_ns < busy_until {
                core::hint::spin_loop();
                continue;
            }
            let deadline = self.deadline();
            if deadline.is_none_or(|deadline| now_ns < deadline) {
                self.sleep(deadline)?;
            }
        }
    }

    /// Moves a batch in each direction, delivers trains whose hold time has expired, and returns the number of frames
    /// received.
    fn turn(&mut self, now_ns: u64) -> Result<usize, PortError> {
        let Self { left, right, to_right, to_left, learned, .. } = self;
        let there = to_right.poll_shared(left, right, now_ns, learned)?;
        let back = to_left.poll_shared(right, left, now_ns, learned)?;
        for (received_ns, count) in self.received_ns.iter_mut().zip([there, back]) {
            if count > 0 {
                *received_ns = Some(now_ns);
            }
        }
        Ok(there + back)
    }

    /// Returns the time at which the next work is due, in nanoseconds.
    fn deadline(&self) -> Option<u64> {
        let directions = [self.to_right.deadline(), self.to_left.deadline()];
        // A stalled direction does not poll its source, so that port's deadline would stay due and
        // keep the thread awake.
        let left = self.left.deadline().filter(|_| !self.to_right.is_stalled());
        let right = self.right.deadline().filter(|_| !self.to_left.is_stalled());
        let ports = [left, right];
        directions.into_iter().chain(ports).flatten().min()
    }

    /// Sleeps until there is work.
    ///
    /// While a train is held, frames from its port do not wake the thread: as behind a NIC with interrupt moderation,
    /// they wait in the kernel until the hold time expires. The same applies to frames that could not be sent anyway,
    /// because the other port has no room.
    fn sleep(&mut self, deadline: Option<u64>) -> Result<(), PortError> {
        let to_right = (self.to_right.deadline().is_some(), self.to_right.is_waiting());
        let to_left = (self.to_left.deadline().is_some(), self.to_left.is_waiting());
        let wants = |(holds, waits): (bool, bool), room| Wants { frames: !holds && !waits, room };
        let again = (to_right.0 || to_left.0).then(|| now_ns().saturating_add(MODERATION_NS_MAX));
        let deadline = deadline.into_iter().chain(again).min();
        let Self { left, right, sleeper, shared, .. } = self;
        let left = (&*left, wants(to_right, to_left.1));
        let right = (&*right, wants(to_left, to_right.1));
        sleeper.sleep(left, right, shared.event(), deadline).map_err(|source| PortError::Device {
            name: "the data path".to_owned(),
            action: "wait",
            source,
        })
    }

    /// Answers requests, and returns whether the path was stopped.
    fn answer(&mut self) -> bool {
        if self.shared.take_requests() {
            let snapshot = self.snapshot();
            self.shared.publish(snapshot);
        }
        self.shared.is_stopped()
    }

    /// Delivers all held packets, waiting for room in the ports.
    fn finish(&mut self) -> Result<(), PortError> {
        let end_ns = now_ns().saturating_add(nanoseconds(self.options.drain));
        let Self { left, right, to_right, to_left, .. } = self;
        // If one port has failed, the other still receives its packets.
        let there = to_right.finish(left, right);
        let back = to_left.finish(right, left);
        let mut result = there.and(back);
        while result.is_ok() && (self.to_right.is_waiting() || self.to_left.is_waiting()) {
            if now_ns() >= end_ns {
                break;
            }
            let soon = now_ns().saturating_add(FULL_PORT_RETRY_NS).min(end_ns);
            result = self.sleep(Some(soon)).and_then(|()| self.drain());
        }
        result
    }

    fn drain(&mut self) -> Result<(), PortError> {
        let Self { left, right, to_right, to_left, .. } = self;
        to_right.drain(left, right)?;
        to_left.drain(right, left)
    }

    fn snapshot(&mut self) -> Snapshot {
        let now_ns = now_ns();
        let idle_ns = |received_ns: u64| now_ns.saturating_sub(received_ns);
        let directions = [
            (self.to_right.stats(), self.to_right.coalesce_stats()),
            (self.to_left.stats(), self.to_left.coalesce_stats()),
        ];
        let ports = [counters(&mut self.left), counters(&mut self.right)];
        let idle_ns = self.received_ns.map(|at| at.map(idle_ns));
        let trains_held = [&self.to_right, &self.to_left]
            .map(|direction| direction.trains_held().map(|trains| trains as u64));
        let mut snapshot = Snapshot::new(directions, ports, idle_ns, self.sleeper.sleeps);
        snapshot.trains_held = trains_held;
        snapshot
    }
}

impl Snapshot {
    /// Creates a snapshot from the counters of both directions, both ports, and the thread.
    #[inline(never)]
    fn new(
        [there, back]: [(&DirectionStats, Option<&CoalesceStats>); 2],
        [left, right]: [Vec<(PortCounter, u64)>; 2],
        [left_idle_ns, right_idle_ns]: [Option<u64>; 2],
        sleeps: u64,
    ) -> Self {
        Self {
            left_to_right: *there.0,
            right_to_left: *back.0,
            coalesced_to_right: there.1.cloned(),
            coalesced_to_left: back.1.cloned(),
            trains_held: [None; 2],
            left,
            right,
            left_idle_ns,
            right_idle_ns,
            sleeps,
        }
    }
}

/// Returns the counters of a port. The function is compiled once for each type of port, rather than for each pair of
/// types.
#[inline(never)]
fn counters(port: &mut impl Port) -> Vec<(PortCounter, u64)> {
    let mut counters = Vec::new();
    port.counters(&mut |counter, value| add(&mut counters, counter, value));
    counters
}

/// Adds one counter to a list. The function is not inlined, because each port has dozens of counters.
#[inline(never)]
fn add(counters: &mut Vec<(PortCounter, u64)>, counter: PortCounter, value: u64) {
    counters.push((counter, value));
}

fn now_ns() -> u64 {
    nanoseconds(monotonic())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Maximum time in nanoseconds that arriving frames wait, even if a train is held for longer. At 10 Gb/s, about 80
/// packets of 1500 bytes arrive in this time, far fewer than a ring of 2048 slots can hold.
const MODERATION_NS_MAX: u64 = 100_000;
/// Interval in nanoseconds for polling a port that has no descriptor to wait on.
const FULL_PORT_RETRY_NS: u64 = 1_000_000;
