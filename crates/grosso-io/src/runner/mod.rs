//! A data path on a thread: two ports, a direction each way, and nothing else.
//!
//! The thread sleeps until a port has frames or room, a held train must leave, or somebody asks. Nothing is shared with
//! other threads but the requests of [`Handle`], which cost the thread one load a turn.
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
mod sleeper;

use std::{
    io,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use grosso::{acknowledge::Expander, coalesce::RoundTrips, stats::CoalesceStats};
use grosso_sys::wait::{Event, monotonic, wait_exactly};

pub use self::group::{Group, QUEUES_MAX};
use self::sleeper::{Sleeper, Wants};
use crate::{
    path::{Direction, DirectionStats, PathOptions},
    port::{Port, PortCounter, PortError},
};

/// How a data path runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunOptions {
    /// From the left port to the right one.
    pub left_to_right: PathOptions,
    /// From the right port to the left one.
    pub right_to_left: PathOptions,
    /// How long to look for frames without sleeping, after the last one: a wake-up costs time too.
    pub busy_poll: Duration,
    /// How long to wait at the end for room for what is held; what has none by then is lost.
    pub drain: Duration,
}

impl RunOptions {
    /// Both directions as [`PathOptions::new`] has them, no busy polling, a second for the end.
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

/// What a data path did so far.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// From the left port to the right one.
    pub left_to_right: DirectionStats,
    /// From the right port to the left one.
    pub right_to_left: DirectionStats,
    /// What was coalesced towards the right port; `None` when it takes no superframes.
    pub coalesced_to_right: Option<CoalesceStats>,
    /// What was coalesced towards the left port; `None` when it takes no superframes.
    pub coalesced_to_left: Option<CoalesceStats>,
    /// What the left port counted of itself.
    pub left: Vec<(PortCounter, u64)>,
    /// What the right port counted of itself.
    pub right: Vec<(PortCounter, u64)>,
    /// How long ago a frame came from the left port last, in nanoseconds; `None` before the first.
    pub left_idle_ns: Option<u64>,
    /// How long ago a frame came from the right port last, in nanoseconds; `None` before the first.
    pub right_idle_ns: Option<u64>,
    /// How often the thread slept.
    pub sleeps: u64,
}

/// How a data path ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct End<L, R> {
    /// Nothing when it was stopped or a port was finished, else why a port is broken.
    pub result: Result<(), PortError>,
    /// The left port.
    pub left: L,
    /// The right port.
    pub right: R,
    /// What the path did.
    pub snapshot: Snapshot,
}

/// The way to talk to a data path from other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// What a data path and whoever talks to it have in common. Aligned so that no other thread writes to the cache lines
/// that its thread looks at in every turn.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    /// Something was asked: the thread looks at the rest only then.
    asked: AtomicBool,
    stopped: AtomicBool,
    /// Wakes the thread.
    event: Event,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    waiting: Vec<mpsc::Sender<Snapshot>>,
    /// What the path did in the end.
    last: Option<Snapshot>,
    /// Nobody will answer any more.
    is_over: bool,
}

/// The path's side of the requests. Who waits for an answer is not left waiting when the path is dropped without having
/// run, or its thread panics.
#[derive(Debug)]
struct Answering(Arc<Shared>);

impl Deref for Answering {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut requests = self.requests();
        requests.is_over = true;
        requests.waiting.clear();
    }
}

impl Handle {
    /// Lets the path deliver what it holds and end.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.wake();
    }

    /// What the path did so far, as its thread says itself; in the end what it did. `None` when the path is gone
    /// without having come to its end.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::channel();
        {
            let mut requests = self.shared.requests();
            if let Some(last) = &requests.last {
                return Some(last.clone());
            }
            if requests.is_over {
                return None;
            }
            requests.waiting.push(sender);
        }
        self.shared.wake();
        receiver.recv().ok()
    }
}

impl Shared {
    fn wake(&self) {
        self.asked.store(true, Ordering::Release);
        // It can only fail for want of the descriptor, which lives as long as this.
        let _ = self.event.raise();
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two ports and the directions between them.
#[derive(Debug)]
pub struct DataPath<L: Port, R: Port> {
    left: L,
    right: R,
    to_right: Direction<L::Buffer>,
    to_left: Direction<R::Buffer>,
    /// When a frame came last, from the left port and from the right one.
    received_ns: [Option<u64>; 2],
    sleeper: Sleeper,
    options: RunOptions,
    shared: Answering,
}

impl<L: Port, R: Port> DataPath<L, R> {
    /// Joins two ports.
    ///
    /// # Errors
    /// When their frames do not start with the same kind of header, or the kernel has no descriptors left to wait with.
    pub fn new(left: L, right: R, options: RunOptions) -> io::Result<Self> {
        if left.link() != right.link() {
            let why = format!("{} and {} frames do not mix", left.link(), right.link());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let event = Event::new()?;
        let shared = Shared {
            asked: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            event,
            requests: Mutex::default(),
        };
        let [there, back] = [&options.left_to_right, &options.right_to_left];
        let mut to_right = Direction::new(there.clone(), left.link(), right.device());
        let to_left = Direction::new(back.clone(), right.link(), left.device());
        if to_right.wants_round_trips() || to_left.wants_round_trips() {
            to_right.put_round_trips(Some(Box::new(RoundTrips::new(there.seed))));
        }
        if to_right.wants_expander() || to_left.wants_expander() {
            let expander = Expander::new(left.link(), there.ports, there.seed);
            to_right.put_expander(Some(Box::new(expander)));
        }
        Ok(Self {
            to_right,
            to_left,
            left,
            right,
            received_ns: [None; 2],
            sleeper: Sleeper::default(),
            options,
            shared: Answering(Arc::new(shared)),
        })
    }

    /// The way to stop and to ask the path once it runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared.0) }
    }

    /// Moves frames until it is stopped or a port is finished or broken; then delivers what is held, as far as there is
    /// room.
    pub fn run(mut self) -> End<L, R> {
        // Without it, a train is held a little longer.
        let _ = wait_exactly();
        let mut result = self.work();
        let drained = self.finish();
        result = result.and(drained);
        let snapshot = self.snapshot();
        let mut requests = self.shared.requests();
        for sender in requests.waiting.drain(..) {
            // Who asked may have gone.
            let _ = sender.send(snapshot.clone());
        }
        requests.last = Some(snapshot.clone());
        drop(requests);
        let Self { left, right, .. } = self;
        End { result, left, right, snapshot }
    }

    fn work(&mut self) -> Result<(), PortError> {
        let mut busy_until = 0;
        loop {
            if self.shared.asked.load(Ordering::Relaxed) && self.answer() {
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

    /// Moves a batch each way and delivers what was held for long enough, and says how many frames came.
    fn turn(&mut self, now_ns: u64) -> Result<usize, PortError> {
        let Self { left, right, to_right, to_left, .. } = self;
        let there = to_right.poll(left, right, now_ns)?;
        to_left.put_round_trips(to_right.take_round_trips());
        to_left.put_expander(to_right.take_expander());
        let back = to_left.poll(right, left, now_ns)?;
        to_right.put_round_trips(to_left.take_round_trips());
        to_right.put_expander(to_left.take_expander());
        for (received_ns, count) in self.received_ns.iter_mut().zip([there, back]) {
            if count > 0 {
                *received_ns = Some(now_ns);
            }
        }
        Ok(there + back)
    }

    /// The next point in time at which something is to be done.
    fn deadline(&self) -> Option<u64> {
        let directions = [self.to_right.deadline(), self.to_left.deadline()];
        // A port that is not asked meanwhile, because the other has no room, would never be done with it.
        let left = self.left.deadline().filter(|_| !self.to_right.is_stalled());
        let right = self.right.deadline().filter(|_| !self.to_left.is_stalled());
        let ports = [left, right];
        directions.into_iter().chain(ports).flatten().min()
    }

    /// Sleeps until there is something to do.
    ///
    /// While a train is held, nothing wakes the thread for each frame that comes from its port, as a NIC that moderates
    /// its interrupts does not: they wait together in the kernel until the train's time is over. Frames that could not
    /// be sent on anyway wait there too.
    fn sleep(&mut self, deadline: Option<u64>) -> Result<(), PortError> {
        let to_right = (self.to_right.deadline().is_some(), self.to_right.is_waiting());
        let to_left = (self.to_left.deadline().is_some(), self.to_left.is_waiting());
        let wants = |(holds, waits): (bool, bool), room| Wants { frames: !holds && !waits, room };
        let again = (to_right.0 || to_left.0).then(|| now_ns().saturating_add(MODERATION_NS_MAX));
        let deadline = deadline.into_iter().chain(again).min();
        let Self { left, right, sleeper, shared, .. } = self;
        let left = (&*left, wants(to_right, to_left.1));
        let right = (&*right, wants(to_left, to_right.1));
        sleeper.sleep(left, right, &shared.0.event, deadline).map_err(|source| PortError::Device {
            name: "the data path".to_owned(),
            action: "wait",
            source,
        })
    }

    /// Answers who asked, and says whether the path was stopped.
    fn answer(&mut self) -> bool {
        self.shared.asked.store(false, Ordering::Release);
        let waiting = core::mem::take(&mut self.shared.requests().waiting);
        if !waiting.is_empty() {
            let snapshot = self.snapshot();
            for sender in waiting {
                // Who asked may have gone.
                let _ = sender.send(snapshot.clone());
            }
        }
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// Delivers everything that is held, and waits for room for it.
    fn finish(&mut self) -> Result<(), PortError> {
        let end_ns = now_ns().saturating_add(nanoseconds(self.options.drain));
        let Self { left, right, to_right, to_left, .. } = self;
        // One side may be broken: the other still gets what is for it.
        let there = to_right.finish(left, right);
        let back = to_left.finish(right, left);
        let mut result = there.and(back);
        while result.is_ok() && (self.to_right.is_waiting() || self.to_left.is_waiting()) {
            if now_ns() >= end_ns {
                break;
            }
            let soon = now_ns().saturating_add(ROOM_AGAIN_NS).min(end_ns);
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
        let [left_idle_ns, right_idle_ns] = self.received_ns.map(|at| at.map(idle_ns));
        Snapshot {
            left_to_right: *self.to_right.stats(),
            right_to_left: *self.to_left.stats(),
            coalesced_to_right: self.to_right.coalesce_stats().cloned(),
            coalesced_to_left: self.to_left.coalesce_stats().cloned(),
            left: counters(&mut self.left),
            right: counters(&mut self.right),
            left_idle_ns,
            right_idle_ns,
            sleeps: self.sleeper.sleeps,
        }
    }
}

fn counters(port: &mut impl Port) -> Vec<(PortCounter, u64)> {
    let mut counters = Vec::new();
    port.counters(&mut |counter, value| counters.push((counter, value)));
    counters
}

fn now_ns() -> u64 {
    nanoseconds(monotonic())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How long frames wait at most while a train is held that may be held for longer: at 10 Gb/s 86 packets of 1500 bytes,
/// for which a ring of 256 slots has room.
const MODERATION_NS_MAX: u64 = 100_000;
/// How long to leave a port alone that has nothing to wait for.
const ROOM_AGAIN_NS: u64 = 1_000_000;
