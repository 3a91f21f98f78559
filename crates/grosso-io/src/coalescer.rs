//! The coalescer for packets in the buffers of ports.

use grosso::{CoalesceOptions, Coalescer, Frame, Profile, Sink, Verdict, stats::CoalesceStats};

use crate::buffer::PortBuffer;

/// A [`Coalescer`] for packets in the buffers of ports. It delivers to a `dyn Sink`.
///
/// The merge path is compiled once here, for all data paths and all other users of [`PortBuffer`]. A user with its own
/// buffer or sink type compiles its own copy.
#[derive(Debug)]
pub struct PortCoalescer(Coalescer<PortBuffer>);

impl PortCoalescer {
    /// Creates a coalescer that holds no packets.
    #[must_use]
    pub fn new(options: CoalesceOptions) -> Self {
        Self(Coalescer::new(options))
    }

    /// Pushes one packet and delivers the trains that it completes; see [`Coalescer::push`].
    pub fn push(
        &mut self,
        frame: Frame<PortBuffer>,
        now_ns: u64,
        sink: &mut dyn Sink<PortBuffer>,
    ) -> Verdict {
        self.0.push(frame, now_ns, sink)
    }

    /// Delivers the held trains that `packet` must not overtake; see [`Coalescer::flush_before`].
    pub fn flush_before(
        &mut self,
        packet: &[u8],
        device_hash: Option<u32>,
        sink: &mut dyn Sink<PortBuffer>,
    ) {
        self.0.flush_before(packet, device_hash, sink);
    }

    /// Ends a poll; see [`Coalescer::poll_end`].
    pub fn poll_end(&mut self, now_ns: u64, sink: &mut dyn Sink<PortBuffer>) {
        self.0.poll_end(now_ns, sink);
    }

    /// Ends a poll that used its whole budget; see [`Coalescer::poll_end_full`].
    pub fn poll_end_full(&mut self, now_ns: u64, sink: &mut dyn Sink<PortBuffer>) {
        self.0.poll_end_full(now_ns, sink);
    }

    /// Delivers the trains whose hold time has expired; see [`Coalescer::expire`].
    pub fn expire(&mut self, now_ns: u64, sink: &mut dyn Sink<PortBuffer>) {
        self.0.expire(now_ns, sink);
    }

    /// Delivers all held trains, oldest first.
    pub fn finish(&mut self, sink: &mut dyn Sink<PortBuffer>) {
        self.0.finish(sink);
    }

    /// Reports a measured round-trip time of the packet's flow in nanoseconds; see [`Coalescer::learn_round_trip`].
    pub fn learn_round_trip(&mut self, packet: &[u8], round_trip_ns: u64, now_ns: u64) {
        self.0.learn_round_trip(packet, round_trip_ns, now_ns);
    }

    /// Returns the number of tracked flows without a round-trip time; see [`Coalescer::flows_without_round_trip`].
    #[must_use]
    pub fn flows_without_round_trip(&self) -> usize {
        self.0.flows_without_round_trip()
    }

    /// Returns the time at which [`Self::expire`] must be called next, in the caller's nanoseconds, or `None` if
    /// nothing is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.0.deadline()
    }

    /// Returns the number of held trains; see [`Coalescer::trains_held`].
    #[must_use]
    pub fn trains_held(&self) -> usize {
        self.0.trains_held()
    }

    /// Returns the counters since creation.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        self.0.stats()
    }

    /// Returns the profile with the rules and limits in use.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }
}
