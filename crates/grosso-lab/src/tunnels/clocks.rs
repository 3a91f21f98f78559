//! What a data path's thread spends on checksums and on its tunnel, by the clock.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use grosso::{Frame, Meta};
use grosso_io::{Port, PortError, delegate_port, port::Transmitted};
use grosso_sys::datagram::observe_calls;

/// What the clock showed of one thread, which alone adds to it. Without what looking at the clock takes.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// What the clock shows of nothing, in nanoseconds.
    look_ns: u64,
    /// What is done around that for somebody to see it, in nanoseconds.
    around_ns: u64,
    /// In checksums of blocks of more than 64 bytes.
    checksums_ns: AtomicU64,
    /// In a tunnel and its sockets, beside checksums and system calls.
    tunnel_ns: AtomicU64,
    /// In checksums and in system calls of sockets, with the looks.
    called_ns: AtomicU64,
}

/// What a thread spent until now, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) checksums: f64,
    pub(super) tunnel: f64,
}

impl Clocks {
    pub(super) fn new() -> Self {
        let look_ns = middle(|| nanoseconds(Instant::now()));
        let whole_ns = middle(|| {
            let nothing = Self::default();
            let started = Instant::now();
            (0..LOOKS_AT_ONCE).for_each(|_| nothing.look(&mut || {}, Self::summed));
            nanoseconds(started) / LOOKS_AT_ONCE
        });
        Self { look_ns, around_ns: whole_ns.saturating_sub(look_ns), ..Self::default() }
    }

    /// Makes it that of the calling thread, until the thread ends.
    pub(super) fn enter(self: Arc<Self>) {
        OWN.with_borrow_mut(|own| *own = Some(self));
        observe_calls(Some(see_call));
    }

    pub(super) fn spent(&self) -> Spent {
        let seconds = |clock: &AtomicU64| clock.load(Ordering::Relaxed) as f64 * 1e-9;
        Spent { checksums: seconds(&self.checksums_ns), tunnel: seconds(&self.tunnel_ns) }
    }

    /// Does what a tunnel does.
    fn time<Done>(&self, work: impl FnOnce() -> Done) -> Done {
        let called_ns = self.called_ns.load(Ordering::Relaxed);
        let started = Instant::now();
        let done = work();
        self.worked(nanoseconds(started), called_ns);
        done
    }

    /// The tunnel had the word for so long, since when so much was called in all.
    fn worked(&self, took_ns: u64, called_ns: u64) {
        let called_ns = self.called_ns.load(Ordering::Relaxed) - called_ns;
        let own_ns = took_ns.saturating_sub(called_ns + self.look_ns);
        add(&self.tunnel_ns, unless_preempted(own_ns));
    }

    /// A checksum took so long.
    fn summed(&self, took_ns: u64) {
        add(&self.checksums_ns, unless_preempted(took_ns.saturating_sub(self.look_ns)));
        self.called(took_ns);
    }

    /// What is not the tunnel's own work took so long.
    fn called(&self, took_ns: u64) {
        add(&self.called_ns, took_ns + self.around_ns);
    }

    /// Does something before the clock, and tells that how long it took.
    fn look(&self, work: &mut dyn FnMut(), took: fn(&Self, u64)) {
        let started = Instant::now();
        work();
        took(self, nanoseconds(started));
    }
}

/// Only the thread itself adds, so that nobody has to be locked out.
fn add(clock: &AtomicU64, took_ns: u64) {
    clock.store(clock.load(Ordering::Relaxed) + took_ns, Ordering::Relaxed);
}

/// Nothing for a piece of work during which the thread was kept from the processor: it is one of many.
fn unless_preempted(took_ns: u64) -> u64 {
    if took_ns < PREEMPTED_NS { took_ns } else { 0 }
}

fn nanoseconds(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What is usual of many.
fn middle(mut look: impl FnMut() -> u64) -> u64 {
    let mut looks: Vec<u64> = (0..LOOKS).map(|_| look()).collect();
    looks.sort_unstable();
    looks[LOOKS / 2]
}

thread_local! {
    static OWN: RefCell<Option<Arc<Clocks>>> = const { RefCell::new(None) };
}

/// While it lives, checksums are seen by the clocks of the threads that do them.
#[derive(Debug)]
pub(super) struct Observing;

impl Observing {
    pub(super) fn start() -> Self {
        grosso_checksum::observe(Some(see));
        Self
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        grosso_checksum::observe(None);
    }
}

fn see(_bytes: usize, work: &mut dyn FnMut()) {
    before_own(work, Clocks::summed);
}

fn see_call(call: &mut dyn FnMut()) {
    before_own(call, Clocks::called);
}

/// Does something before the clock of the thread, if it has one.
fn before_own(work: &mut dyn FnMut(), took: fn(&Clocks, u64)) {
    OWN.with_borrow(|own| match own {
        Some(clocks) => clocks.look(work, took),
        None => work(),
    });
}

/// A tunnel with a clock around it, where there is one.
#[derive(Debug)]
pub(super) struct Timed<P> {
    port: P,
    clocks: Option<Arc<Clocks>>,
}

impl<P> Timed<P> {
    pub(super) fn new(port: P, clocks: Option<Arc<Clocks>>) -> Self {
        Self { port, clocks }
    }
}

/// Does something before the clock.
macro_rules! timed {
    ($timed:expr, $act:expr) => {
        match &$timed.clocks {
            Some(clocks) => clocks.time(|| $act),
            None => $act,
        }
    };
}

impl<P: Port> Port for Timed<P> {
    type Buffer = P::Buffer;

    delegate_port!(port: link, device, recycle, deadline, descriptors, path_mtu, counters);
    delegate_port!(port: is_finished);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<P::Buffer>),
    ) -> Result<usize, PortError> {
        timed!(self, self.port.receive(now_ns, max, each))
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        timed!(self, self.port.transmit(slices, meta))
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        timed!(self, self.port.flush())
    }
}

/// No piece of work takes so long by itself: the checksum of a superframe is some microseconds.
const PREEMPTED_NS: u64 = 100_000;
/// Looks at the clock of which the middle one tells what one takes.
const LOOKS: usize = 1000;
/// Looks of which the mean tells what is done around them.
const LOOKS_AT_ONCE: u64 = 16;

#[cfg(test)]
mod tests {
    use grosso_sys::datagram::{DatagramSocketBuilder, Protocol};

    use super::*;

    fn clocks() -> Clocks {
        Clocks { look_ns: 10, around_ns: 20, ..Clocks::default() }
    }

    fn nanoseconds_spent(clocks: &Clocks) -> [u64; 2] {
        let spent = clocks.spent();
        [spent.checksums, spent.tunnel].map(|seconds| (seconds * 1e9).round() as u64)
    }

    #[test]
    fn a_tunnel_s_own_time_is_without_its_checksums_and_system_calls() {
        let clocks = clocks();
        clocks.summed(110);
        clocks.called(490);
        clocks.worked(1000, 0);
        assert_eq!(nanoseconds_spent(&clocks), [100, 1000 - 130 - 510 - 10]);
        // What was called before is another turn's.
        clocks.worked(30, clocks.called_ns.load(Ordering::Relaxed));
        assert_eq!(nanoseconds_spent(&clocks), [100, 370]);
    }

    #[test]
    fn a_thread_kept_from_the_processor_is_not_at_work() {
        let clocks = clocks();
        clocks.summed(PREEMPTED_NS + 10);
        clocks.worked(5_000_000, clocks.called_ns.load(Ordering::Relaxed));
        assert_eq!(nanoseconds_spent(&clocks), [0, 0]);
        clocks.summed(PREEMPTED_NS + 9);
        assert_eq!(nanoseconds_spent(&clocks), [PREEMPTED_NS - 1, 0]);
    }

    #[test]
    fn what_a_socket_calls_is_not_the_tunnel_s() {
        let clocks = Arc::new(Clocks::new());
        let mut socket = DatagramSocketBuilder::new(Protocol::Udp, "127.0.0.1:0".parse().unwrap())
            .open()
            .unwrap();
        let mut receive = || socket.receive_batch(&mut [&mut []], &mut Vec::new()).unwrap();
        receive();
        let called_ns = || clocks.called_ns.load(Ordering::Relaxed);
        assert_eq!(called_ns(), 0, "the thread has no clocks");
        Arc::clone(&clocks).enter();
        receive();
        assert!(called_ns() > 0);
        assert_eq!(clocks.spent().checksums, 0.0);
    }

    #[test]
    fn checksums_are_those_of_the_thread_that_is_watched() {
        let clocks = Arc::new(Clocks::default());
        let observing = Observing::start();
        let block = vec![0x5a; 64 << 10];
        let sum = || std::hint::black_box(grosso_checksum::Sum::of(std::hint::black_box(&block)));
        sum();
        assert_eq!(clocks.spent().checksums, 0.0, "the thread has no clocks");
        Arc::clone(&clocks).enter();
        (0..100).for_each(|_| _ = sum());
        let spent = clocks.spent().checksums;
        assert!(spent > 0.0);
        drop(observing);
        (0..100).for_each(|_| _ = sum());
        assert_eq!(clocks.spent().checksums, spent, "nobody observes");
    }
}
