//! The coalescer of packets in ports' buffers.

use grosso::{CoalesceOptions, Coalescer, Frame, Profile, Sink, Verdict, stats::CoalesceStats};

use crate::buffer::PortBuffer;

/// A [`Coalescer`] of packets in ports' buffers, which gives what it delivers to a `dyn Sink`.
///
/// The merge path is compiled here, once, for every data path and for all who join such packets without one: whoever
/// names buffers or sinks of its own compiles it anew.
#[derive(Debug)]
pub struct PortCoalescer(Coalescer<PortBuffer>);

impl PortCoalescer {
    /// A coalescer that holds nothing yet.
    #[must_use]
    pub fn new(options: CoalesceOptions) -> Self {
        Self(Coalescer::new(options))
    }

    /// Takes one packet, and delivers what it completes: [`Coalescer::push`].
    pub fn push(
        &mut self,
        frame: Frame<PortBuffer>,
        now_ns: u64,
        sink: &mut dyn Sink<PortBuffer>,
    ) -> Verdict {
        self.0.push(frame, now_ns, sink)
    }

    /// Delivers every held train that a packet must not overtake which leaves by another way:
    /// [`Coalescer::flush_before`].
    pub fn flush_before(
        &mut self,
        packet: &[u8],
        device_hash: Option<u32>,
        sink: &mut dyn Sink<PortBuffer>,
    ) {
        self.0.flush_before(packet, device_hash, sink);
    }

    /// Ends a poll: [`Coalescer::poll_end`].
    pub fn poll_end(&mut self, now_ns: u64, sink: &mut dyn Sink<PortBuffer>) {
        self.0.poll_end(now_ns, sink);
    }

    /// Ends a poll that took as many packets as it may: [`Coalescer::poll_end_full`].
    pub fn poll_end_full(&mut self, now_ns: u64, sink: &mut dyn Sink<PortBuffer>) {
        self.0.poll_end_full(now_ns, sink);
    }

    /// Ends a batch, and delivers the trains whose time is over: [`Coalescer::expire`].
    pub fn expire(&mut self, now_ns: u64, sink: &mut dyn Sink<PortBuffer>) {
        self.0.expire(now_ns, sink);
    }

    /// Delivers everything held, oldest train first.
    pub fn finish(&mut self, sink: &mut dyn Sink<PortBuffer>) {
        self.0.finish(sink);
    }

    /// Tells how long a round trip takes between the ends of this packet's flow, in nanoseconds:
    /// [`Coalescer::learn_round_trip`].
    pub fn learn_round_trip(&mut self, packet: &[u8], round_trip_ns: u64, now_ns: u64) {
        self.0.learn_round_trip(packet, round_trip_ns, now_ns);
    }

    /// Number of remembered flows whose round trips nobody has told: [`Coalescer::flows_without_round_trip`].
    #[must_use]
    pub fn flows_without_round_trip(&self) -> usize {
        self.0.flows_without_round_trip()
    }

    /// Time at which [`Self::expire`] has something to do next, in the caller's nanoseconds; `None` when nothing is
    /// held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.0.deadline()
    }

    /// Number of trains that are held now: [`Coalescer::trains_held`].
    #[must_use]
    pub fn trains_held(&self) -> usize {
        self.0.trains_held()
    }

    /// Counters of what it did so far.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        self.0.stats()
    }

    /// Its rules and limits.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }
}
