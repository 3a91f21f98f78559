//! A profiler that measures how a data path's thread divides its time among the parts of its work.
//!
//! The thread is always in exactly one [`Part`] of its work, so the parts add up to everything it does. At each
//! transition between parts, the thread reads a fast clock, which also runs while the thread is off the CPU. Once per
//! iteration of the data path's loop, the thread reads its CPU clock, which stops while the thread is off the CPU. If
//! the parts add up to more time than the CPU clock shows, the excess is subtracted from the parts in which the thread
//! was most likely off the CPU: first from the waiting time, then from the longest pieces of work. The time for reading
//! the clocks is subtracted as well.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use grosso::{Frame, Meta};
use grosso_io::{Port, PortBuffer, PortError, delegate_port, port::Transmitted};
use grosso_sys::{calls, scheduling::own_cpu_time};

/// A part of the work of a data path's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Part {
    /// The loop that runs the other parts.
    Loop,
    /// Waiting for frames.
    Wait,
    /// The engine's work on frames from the wire: verification and coalescing.
    FromWire,
    /// The engine's work on frames from the host: segmentation.
    FromHost,
    /// Checksums over more than 64 bytes, no matter which part computes them.
    Checksums,
    /// Receive work in the wire's port, excluding system calls.
    WireReceive,
    /// Send work in the wire's port, excluding system calls.
    WireSend,
    /// Receive work in the host's port, excluding system calls.
    HostReceive,
    /// Send work in the host's port, excluding system calls.
    HostSend,
    /// Receive system calls made by the wire's port.
    WireReceiveCall,
    /// Send system calls made by the wire's port.
    WireSendCall,
    /// Receive system calls made by the host's port.
    HostReceiveCall,
    /// Send system calls made by the host's port.
    HostSendCall,
}

/// Number of parts.
const PARTS: usize = Part::HostSendCall as usize + 1;

impl Part {
    /// Returns the part to which a system call during `self` belongs.
    const fn call(self) -> Self {
        match self {
            Self::Loop => Self::Wait,
            Self::WireReceive => Self::WireReceiveCall,
            Self::WireSend => Self::WireSendCall,
            Self::HostReceive => Self::HostReceiveCall,
            Self::HostSend => Self::HostSendCall,
            other => other,
        }
    }
}

/// Side of the data path where a port is located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The wire, or a port that takes its place. An iteration of the path's loop begins when the path polls this port.
    Wire,
    /// The host.
    Host,
}

impl Side {
    const fn receive(self) -> Part {
        if matches!(self, Self::Wire) { Part::WireReceive } else { Part::HostReceive }
    }

    const fn send(self) -> Part {
        if matches!(self, Self::Wire) { Part::WireSend } else { Part::HostSend }
    }

    /// Returns the part for the engine's work on frames received from this side.
    const fn engine(self) -> Part {
        if matches!(self, Self::Wire) { Part::FromWire } else { Part::FromHost }
    }
}

/// Clocks of a thread. Only the thread itself advances them, but other threads can read them.
#[derive(Debug, Default)]
pub(crate) struct Profiler {
    parts_ns: [AtomicU64; PARTS],
    begun: [AtomicU64; PARTS],
    total_ns: AtomicU64,
}

/// Time that a thread has spent in each part of its work, and how often each part began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    parts_ns: [u64; PARTS],
    begun: [u64; PARTS],
    total_ns: u64,
}

impl Profiler {
    /// Installs these clocks in the calling thread until the thread ends.
    pub(crate) fn enter(self: Arc<Self>) {
        let watch = Watch::new(self);
        WATCH.with_borrow_mut(|own| *own = Some(watch));
        calls::observe(Some(|call| within(Part::call, call)));
    }

    /// Returns the time spent up to the end of the last completed iteration.
    pub(crate) fn spent(&self) -> Spent {
        let read = |clocks: &[AtomicU64; PARTS]| {
            core::array::from_fn(|part| clocks[part].load(Ordering::Relaxed))
        };
        Spent {
            parts_ns: read(&self.parts_ns),
            begun: read(&self.begun),
            total_ns: self.total_ns.load(Ordering::Relaxed),
        }
    }
}

impl Spent {
    /// Returns the time spent since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let added = |new: &[u64; PARTS], old: &[u64; PARTS]| {
            core::array::from_fn(|part| new[part].saturating_sub(old[part]))
        };
        Self {
            parts_ns: added(&self.parts_ns, &earlier.parts_ns),
            begun: added(&self.begun, &earlier.begun),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
        }
    }

    /// Returns the time spent in a part, in nanoseconds.
    pub(crate) fn part_ns(&self, part: Part) -> u64 {
        self.parts_ns[part as usize]
    }

    /// Returns the total time spent in several parts, in seconds.
    pub(crate) fn seconds(&self, parts: &[Part]) -> f64 {
        parts.iter().map(|part| self.part_ns(*part)).sum::<u64>() as f64 * 1e-9
    }

    /// Returns how often a part began; for system calls, this is the number of calls.
    pub(crate) fn begun(&self, part: Part) -> u64 {
        self.begun[part as usize]
    }

    /// Returns the time that the thread spent on a CPU, in nanoseconds, not counting the time for reading clocks. The
    /// parts never add up to more.
    pub(crate) fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Returns the time on a CPU that is not attributed to any part, in nanoseconds.
    pub(crate) fn unexplained_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.parts_ns.iter().sum())
    }
}

/// State of the clocks in their thread.
#[derive(Debug)]
struct Watch {
    profiler: Arc<Profiler>,
    /// Time for reading the fast clock in nanoseconds, which is part of the measured time of the preceding work.
    look_ns: u64,
    /// Time for reading the thread's CPU clock in nanoseconds.
    own_look_ns: u64,
    part: Part,
    since: Instant,
    turn: Iteration,
    /// Reading of the thread's CPU clock when the iteration began; `None` before the first iteration.
    own_ns: Option<u64>,
}

/// Work done since the iteration began.
#[derive(Debug, Default)]
struct Iteration {
    parts_ns: [u64; PARTS],
    begun: [u64; PARTS],
    looks: u64,
}

impl Watch {
    fn new(profiler: Arc<Profiler>) -> Self {
        let mut watch = Self {
            profiler,
            look_ns: 0,
            own_look_ns: 0,
            part: Part::Loop,
            since: Instant::now(),
            turn: Iteration::default(),
            own_ns: None,
        };
        watch.look_ns = middle(|| {
            let before = watch.turn.parts_ns[Part::Wait as usize];
            watch.switch(Part::Wait);
            watch.switch(Part::Loop);
            watch.turn.parts_ns[Part::Wait as usize] - before
        });
        let mut before_ns = thread_cpu_ns();
        watch.own_look_ns = middle(|| {
            let now_ns = thread_cpu_ns();
            now_ns - core::mem::replace(&mut before_ns, now_ns)
        });
        watch.turn = Iteration::default();
        watch
    }

    /// Switches to another part, and returns the part that ends.
    fn switch(&mut self, to: Part) -> Part {
        let now = Instant::now();
        let took_ns = u64::try_from((now - self.since).as_nanos()).unwrap_or(u64::MAX);
        let from = core::mem::replace(&mut self.part, to);
        self.turn.parts_ns[from as usize] += took_ns.saturating_sub(self.look_ns);
        self.turn.begun[to as usize] += 1;
        self.turn.looks += 1;
        self.since = now;
        from
    }

    /// Ends an iteration of the path's loop, and begins the next one.
    fn next_iteration(&mut self) {
        self.switch(Part::Loop);
        let now_ns = thread_cpu_ns();
        let turn = core::mem::take(&mut self.turn);
        if let Some(before_ns) = self.own_ns.replace(now_ns) {
            let looking_ns = self.own_look_ns + turn.looks * self.look_ns;
            turn.publish(&self.profiler, (now_ns - before_ns).saturating_sub(looking_ns));
        }
        self.since = Instant::now();
    }
}

impl Iteration {
    /// Adds the iteration, in which the thread spent `total_ns` on a CPU, to the clocks.
    fn publish(mut self, profiler: &Profiler, total_ns: u64) {
        self.give_up_beyond(total_ns);
        let each = profiler.parts_ns.iter().zip(self.parts_ns);
        each.chain(profiler.begun.iter().zip(self.begun)).for_each(|(clock, new)| add(clock, new));
        add(&profiler.total_ns, total_ns);
    }

    /// Subtracts the excess of the parts over `total_ns`, because the thread was off the CPU for that time.
    fn give_up_beyond(&mut self, total_ns: u64) {
        let mut beyond_ns = self.parts_ns.iter().sum::<u64>().saturating_sub(total_ns);
        let wait = &mut self.parts_ns[Part::Wait as usize];
        let given_up_ns = beyond_ns.min(*wait);
        *wait -= given_up_ns;
        beyond_ns -= given_up_ns;
        while beyond_ns > 0
            && let Some(longest) = self.parts_ns.iter_mut().max()
            && *longest > 0
        {
            let given_up_ns = beyond_ns.min(*longest);
            *longest -= given_up_ns;
            beyond_ns -= given_up_ns;
        }
    }
}

/// Adds without a lock, because only the thread itself writes.
fn add(clock: &AtomicU64, new: u64) {
    clock.store(clock.load(Ordering::Relaxed) + new, Ordering::Relaxed);
}

fn thread_cpu_ns() -> u64 {
    u64::try_from(own_cpu_time().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the median of many readings.
fn middle(look: impl FnMut() -> u64) -> u64 {
    let mut looks: Vec<u64> = core::iter::repeat_with(look).take(LOOKS).collect();
    looks.sort_unstable();
    looks[LOOKS / 2]
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Calls `change` with the clocks of the calling thread, if it has any.
fn with_watch<T>(change: impl FnOnce(&mut Watch) -> T) -> Option<T> {
    WATCH.with_borrow_mut(|own| own.as_mut().map(change))
}

/// Runs `work` as a different part, and then returns to the previous part.
fn within(part: impl FnOnce(Part) -> Part, work: &mut dyn FnMut()) {
    let before = with_watch(|watch| watch.switch(part(watch.part)));
    work();
    before.map(|before| with_watch(|watch| watch.switch(before)));
}

/// Guard that makes the threads' clocks also measure the time for checksums while it exists.
#[derive(Debug)]
pub(crate) struct Observing;

impl Observing {
    pub(crate) fn start() -> Self {
        grosso_checksum::observe(Some(|_, work| within(|_| Part::Checksums, work)));
        Self
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        grosso_checksum::observe(None);
    }
}

/// A port wrapper that reads the path thread's clocks when the port starts and finishes its work.
#[derive(Debug)]
pub(crate) struct Timed<P: Port> {
    port: P,
    side: Side,
    /// Frames that have been received for the engine but not passed to it yet.
    received: Vec<Frame<PortBuffer>>,
}

impl<P: Port> Timed<P> {
    pub(crate) fn new(port: P, side: Side) -> Self {
        Self { port, side, received: Vec::new() }
    }
}

impl<P: Port> Port for Timed<P> {
    delegate_port!(port: link, device, recycle, deadline, descriptors, path_mtu, counters);
    delegate_port!(port: is_finished);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { port, side, received } = self;
        let is_watched = with_watch(|watch| {
            if *side == Side::Wire {
                watch.next_iteration();
            }
            watch.switch(side.receive());
        });
        if is_watched.is_none() {
            return port.receive(now_ns, max, each);
        }
        let result = port.receive(now_ns, max, &mut |frame| received.push(frame));
        with_watch(|watch| watch.switch(side.engine()));
        received.drain(..).for_each(each);
        result
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let before = with_watch(|watch| watch.switch(self.side.send()));
        let transmitted = self.port.transmit(slices, meta);
        before.map(|before| with_watch(|watch| watch.switch(before)));
        transmitted
    }

    /// Flushes the port, and then switches to the loop, because flushing is the last step in this direction.
    fn flush(&mut self) -> Result<Transmitted, PortError> {
        with_watch(|watch| watch.switch(self.side.send()));
        let flushed = self.port.flush();
        with_watch(|watch| watch.switch(Part::Loop));
        flushed
    }
}

/// Number of readings whose median is taken as the time of one reading.
const LOOKS: usize = 1000;

#[cfg(test)]
mod tests {
    use core::hint::black_box;
    use std::time::Duration;

    use grosso::features::{Device, Features};
    use grosso_io::memory::wire;
    use grosso_sys::wait::{Event, Interest, wait_for};
    use grosso_wire::LinkType;

    use super::*;

    fn turn(parts: &[(Part, u64)]) -> Iteration {
        let mut turn = Iteration::default();
        parts.iter().for_each(|(part, ns)| turn.parts_ns[*part as usize] += ns);
        turn
    }

    #[test]
    fn parts_never_exceed_the_total_and_waiting_gives_up_first() {
        let profiler = Profiler::default();
        let long = [(Part::Wait, 500), (Part::HostSendCall, 900), (Part::Loop, 50)];
        turn(&long).publish(&profiler, 1000);
        let spent = profiler.spent();
        assert_eq!([spent.part_ns(Part::Wait), spent.part_ns(Part::HostSendCall)], [50, 900]);
        assert_eq!((spent.total_ns(), spent.unexplained_ns()), (1000, 0));
        // The thread was off the CPU for longer than it waited, so the excess is subtracted from the longest piece of
        // work.
        turn(&long).publish(&profiler, 500);
        let more = profiler.spent().since(&spent);
        assert_eq!([more.part_ns(Part::Wait), more.part_ns(Part::HostSendCall)], [0, 450]);
        assert_eq!((more.total_ns(), more.unexplained_ns()), (500, 0));
        // Unexplained time is reported separately and does not count toward any part.
        let before = profiler.spent();
        turn(&[(Part::Loop, 10)]).publish(&profiler, 100);
        assert_eq!(profiler.spent().since(&before).unexplained_ns(), 90);
        turn(&long).publish(&profiler, 0);
        assert_eq!(profiler.spent().unexplained_ns(), 90);
    }

    /// Sums a block, which takes a few microseconds.
    fn sum(block: &[u8]) {
        black_box(grosso_checksum::Sum::of(black_box(block)));
    }

    #[test]
    fn each_part_has_what_was_done_in_it_and_all_together_what_the_thread_did() {
        let block = vec![0x5a; 8 << 20];
        let (near, mut far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 1000);
        let (mut port, profiler) = (Timed::new(near, Side::Wire), Arc::new(Profiler::default()));
        let event = Event::new().unwrap();
        let mut turns = |port: &mut Timed<_>| {
            for _ in 0..20 {
                let _ = far.transmit(&[&[1; 60]], &Meta::default()).unwrap();
                let received = port.receive(0, 64, &mut |_| sum(&block)).unwrap();
                assert_eq!(received, 1);
                let _ = port.transmit(&[&[2; 60]], &Meta::default()).unwrap();
                let _ = port.flush().unwrap();
                let sources = [(std::os::fd::AsFd::as_fd(&event), Interest::READ)];
                let at_most = Some(Duration::from_millis(1));
                assert_eq!(wait_for(&sources, at_most).unwrap(), None);
            }
        };
        turns(&mut port);
        assert_eq!(profiler.spent(), Spent::default(), "the thread has no clocks");
        Arc::clone(&profiler).enter();
        turns(&mut port);
        let spent = profiler.spent();
        let engine_ns = spent.part_ns(Part::FromWire);
        assert!(engine_ns * 2 > spent.total_ns(), "{spent:?}");
        assert_eq!(spent.part_ns(Part::Checksums), 0, "checksums are not observed");
        assert_eq!(spent.begun(Part::Wait), 19, "the last turn is not over");
        assert!(spent.part_ns(Part::Wait) < 19_000_000, "sleeping counts as work: {spent:?}");
        assert_eq!([spent.begun(Part::WireSendCall), spent.begun(Part::HostSend)], [0, 0]);
        let parts: u64 = spent.parts_ns.iter().sum();
        assert_eq!(parts + spent.unexplained_ns(), spent.total_ns());

        let observing = Observing::start();
        turns(&mut port);
        drop(observing);
        let more = profiler.spent().since(&spent);
        assert!(more.part_ns(Part::Checksums) * 2 > more.total_ns(), "{more:?}");
        assert!(more.part_ns(Part::FromWire) * 4 < more.total_ns(), "{more:?}");
        let before = profiler.spent();
        turns(&mut port);
        let late = profiler.spent().since(&before).begun(Part::Checksums);
        assert_eq!(late, 1, "only the call of the previous turn is observed");
    }
}
