//! Receive coalescing: packets of a flow are appended to a train, which is delivered as one superframe.
//!
//! [`Coalescer::push`] first examines a packet on its own: its headers, its checksums, and whether it may be merged at
//! all. It then looks up the train of the packet's flow and checks whether the packet fits into it. If not, the train
//! is delivered with a [`reason`], and the packet starts the next one. Packets of a flow are never reordered.
//!
//! The code is in eight directories. Each one imports only from those below it in this table; `tests/tests/modules.rs`
//! checks this.
//!
//! | directory | job | modules |
//! |---|---|---|
//! | `pipeline` | the stages that a profile enables, before the trains | `stages` in their order, `stage`, `burst_bypass`, which skips them in a burst; the stages `batch`, `bypass`, `hold_stage`, `reorder` |
//! | `flows` | from a packet to the train of its flow | `merge`: `lookup` with its eight tiers, `admit`, `predicted`, `gathered`; `flow_match`, `last_flow`, `flush_scope`, and `observed` for the stages |
//! | `hold` | held trains, and how long each is held | `train`, `address_pairs`, `ack_log`; `retention` with `pace`, `deadlines` and `round_trips`; `held` for callers |
//! | `predict` | expected headers of the next packet | `prediction`, stored by `predictions`; `passthrough` for consecutive packets that are not merged |
//! | `rx` | a received packet, and whether it may be merged | `rx_packet`, `shapes` (known header stacks), `examine`, `policy`, `bounds`, `last_packet` |
//! | `emit` | results | `delivery`, `verdict`, [`reason`], `stats` |
//! | `slots` | storage | `slot_map`, tables keyed by `shape_id`, `train_id` and `prediction_id`; `pool` of buffers |
//! | [`profile`] | rules and limits of an implementation | [`Profile`], and `coalesce_options` |

mod emit;
mod flows;
mod hold;
mod pipeline;
mod predict;
pub mod profile;
mod rx;
mod slots;

use grosso_checksum::prefetch;

pub use crate::flow::{BucketChoice, TableShape};
pub use crate::flow_memory::FLOWS_MAX as REMEMBERED_FLOWS_MAX;
pub use crate::template::HEADER_BYTES_MAX;
pub(crate) use emit::stats;
pub use emit::{
    delivery::{Delivery, Sink, Vector},
    reason,
    verdict::Verdict,
};
pub use hold::{
    held::Held,
    pace::{HOLD_NS_MIN, LONG_PATH_NS, SEGMENTS_MAX, SEGMENTS_MIN},
    round_trips::RoundTrips,
};
pub use profile::coalesce_options::CoalesceOptions;
pub use profile::{
    Acknowledgments, AtLimit, Batch, Bypass, FixedIdentification, FullTable, Hold, Level, Limits,
    Options, Padding, Profile, Push, Refused, Reorder, Rules, Sizes, TrainChecksum, Vary, ZeroEcho,
};
pub use slots::pool::Part;

use crate::{
    checksum::Checksum,
    coalesce::{
        emit::{
            reason::{Close, Pass, Release},
            stats::CoalesceStats,
        },
        flows::{
            flush_scope::FlushScope,
            merge::{Merger, packets_of},
        },
        pipeline::Pipeline,
        rx::{policy::Tiers, rx_packet::RxPacket},
    },
    frame::Frame,
    meta::Meta,
    template::compare::USUAL_BYTES,
};

/// Coalescer for the packets of one link, which it merges into superframes.
///
/// Time is an argument: nanoseconds of any monotonic clock. See [`Profile`] for the rules and [`Limits`] for the
/// bounds. The crate documentation has a complete example.
///
/// The type is aligned to two cache lines, so that coalescers of different queues can be adjacent in memory without
/// false sharing.
///
/// ```
/// use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, LinkType};
///
/// let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
/// let mut sink = |delivery: Delivery<'_, Vec<u8>>| println!("{} bytes", delivery.len);
/// coalescer.push(Frame::new(vec![0; 60]), 0, &mut sink); // not IP: delivered at once
/// coalescer.poll_end(0, &mut sink);
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct Coalescer<B> {
    /// Pipeline of the stages that the profile enables.
    pipeline: Pipeline<B>,
    /// Held trains, which packets reach after the stages.
    merger: Merger<B>,
    /// Time at which the last poll ended.
    polled_ns: u64,
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Creates an empty coalescer.
    #[must_use]
    pub fn new(options: CoalesceOptions) -> Self {
        Self::with_tiers(options, Tiers::ALL)
    }

    /// Creates a coalescer without fast paths: it dissects every packet and checks each field separately. Tests compare
    /// the fast paths with it.
    #[doc(hidden)]
    #[must_use]
    pub fn without_tiers(options: CoalesceOptions) -> Self {
        Self::with_tiers(options, Tiers::NONE)
    }

    fn with_tiers(options: CoalesceOptions, tiers: Tiers) -> Self {
        let CoalesceOptions { profile, link, ports, seed } = options;
        let pipeline = Pipeline::of(&profile, tiers);
        let merger = Merger::new(profile, tiers, link, ports, seed);
        Self { pipeline, merger, polled_ns: 0 }
    }

    /// Prefetches the cache lines that [`Self::push`] will read from a packet, without waiting for them.
    ///
    /// Prefetching helps with packets that come from memory rather than from cache, for example from a mapped file.
    /// Always prefetching the packet after the next one reduces the processing time of packets with verified checksums
    /// by a quarter.
    #[inline]
    pub fn prefetch(&self, frame: &Frame<B>) {
        let packet = frame.buffer.as_ref();
        let is_read = matches!(frame.meta.checksum, Checksum::None);
        let headers = packet.len().min(USUAL_BYTES);
        prefetch(if is_read { packet } else { &packet[..headers] });
    }

    /// Pushes one packet and delivers the trains that it completes. `now_ns` is the current time in nanoseconds.
    ///
    /// ```
    /// # use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, LinkType, coalesce::Verdict};
    /// # let packet = grosso_testkit::Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(9).build();
    /// # let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
    /// # let mut sink = |_: Delivery<'_, Vec<u8>>| {};
    /// let verdict = coalescer.push(Frame::new(packet), 0, &mut sink);
    /// assert_eq!(verdict, Verdict::Held);
    /// ```
    #[inline]
    pub fn push(
        &mut self,
        frame: Frame<B>,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Frame { buffer, ref meta } = frame;
        if meta.fragmented.is_some() {
            return self.pass_by(buffer, meta, Pass::Fragment, sink);
        }
        self.merger.stats.count_in(buffer.as_ref().len(), packets_of(meta));
        self.pipeline.push(RxPacket { buffer, meta, now_ns }, &mut self.merger, sink)
    }

    /// Pushes a packet that must not be merged, for example because its flow opted out. The packet is delivered
    /// unchanged, after the held trains that it must not overtake.
    pub fn push_excluded(
        &mut self,
        frame: Frame<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.pass_by(frame.buffer, &frame.meta, Pass::Excluded, sink)
    }

    /// Delivers the held trains that `packet` must not overtake. Call this function before sending a packet that does
    /// not pass through the coalescer.
    ///
    /// ```
    /// # use grosso::{CoalesceOptions, Coalescer, Delivery, LinkType};
    /// # let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
    /// # let mut sink = |_: Delivery<'_, Vec<u8>>| {};
    /// # let now_ns = 0;
    /// # let packet = [0; 60];
    /// coalescer.flush_before(&packet, None, &mut sink); // then send `packet` another way
    /// ```
    pub fn flush_before(
        &mut self,
        packet: &[u8],
        device_hash: Option<u32>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Self { pipeline, merger, .. } = self;
        pipeline.flush_batch(merger, sink);
        if let Some(scope) = merger.must_not_overtake(packet, &Meta::default()) {
            pipeline.flush(scope, Release::Barrier, merger, sink);
            merger.close_of(scope, device_hash, sink);
        }
    }

    /// Returns the held train that `packet` would be compared with if it were pushed now.
    #[must_use]
    pub fn held(&self, packet: &[u8], device_hash: Option<u32>) -> Option<Held> {
        self.merger.held(packet, device_hash)
    }

    /// Ends a poll and delivers every train. If the profile holds trains across polls, delivers only the trains whose
    /// hold time has elapsed. With [`Hold::Controlled`], also delivers the trains whose next packet is not expected in
    /// time.
    ///
    /// ```
    /// # use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, LinkType};
    /// # let packet = grosso_testkit::Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(9).build();
    /// # let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
    /// let mut delivered = 0;
    /// let mut sink = |_: Delivery<'_, Vec<u8>>| delivered += 1;
    /// coalescer.push(Frame::new(packet), 0, &mut sink);
    /// coalescer.poll_end(0, &mut sink);
    /// assert_eq!(delivered, 1);
    /// ```
    pub fn poll_end(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.end_poll(now_ns, now_ns, 0, sink);
    }

    /// Ends a poll that used its whole budget. Call this function if you will push more packets immediately. Works like
    /// [`Self::poll_end`], but keeps trains younger than [`Limits::full_poll_ns`] (rule G72), and keeps waiting for
    /// missing packets, because they may already be in the receive queue.
    pub fn poll_end_full(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.end_poll(now_ns, self.polled_ns, self.merger.profile.limits.full_poll_ns, sink);
    }

    /// Delivers the trains whose hold time has elapsed, in the order of their deadlines.
    ///
    /// ```
    /// # use grosso::{CoalesceOptions, Coalescer, Delivery, LinkType};
    /// # let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
    /// # let mut sink = |_: Delivery<'_, Vec<u8>>| {};
    /// # let now_ns = 0;
    /// if coalescer.deadline().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
    ///     coalescer.expire(now_ns, &mut sink);
    /// }
    /// ```
    pub fn expire(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.pipeline.expire(now_ns, now_ns, &mut self.merger, sink);
        self.merger.expire(now_ns, sink);
    }

    /// Delivers all held trains and queued packets. The oldest train is delivered first.
    ///
    /// ```
    /// # use grosso::{CoalesceOptions, Coalescer, Delivery, LinkType};
    /// # let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
    /// let mut sink = |delivery: Delivery<'_, Vec<u8>>| println!("{} bytes", delivery.len);
    /// coalescer.finish(&mut sink); // before shutdown
    /// assert_eq!(coalescer.trains_held(), 0);
    /// ```
    pub fn finish(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        self.pipeline.flush(FlushScope::All, Release::Finish, &mut self.merger, sink);
        self.merger.flush(Close::PollEnd, sink);
    }

    /// Reports a measured round-trip time of this packet's flow, in nanoseconds. A caller that sees both directions can
    /// measure it with [`RoundTrips`]. Only some profiles [use it](Profile::wants_round_trips). [`Hold::Controlled`]
    /// uses the minimum reported for a flow; an adaptive [`Reorder`] uses the latest value.
    pub fn learn_round_trip(&mut self, packet: &[u8], round_trip_ns: u64, now_ns: u64) {
        let Self { pipeline, merger, .. } = self;
        if !merger.profile.wants_round_trips() {
            return;
        }
        let flow = merger.flow(packet);
        if let Some(stages) = pipeline.stages_mut() {
            stages.settle(merger);
            stages.learn_round_trip(flow, round_trip_ns);
        }
        merger.retention.learn_round_trip(flow, round_trip_ns, now_ns);
    }

    /// Returns the number of tracked flows that send in bursts and whose round-trip time is unknown: neither
    /// [`Self::learn_round_trip`] nor the profile supplied it. Trains of these flows are held as on a short path, but
    /// never for longer than is safe on a long path. The number is zero unless [`Hold::Controlled`] is active.
    #[must_use]
    pub fn flows_without_round_trip(&self) -> usize {
        self.merger.retention.blind()
    }

    /// Returns the time at which [`Self::expire`] must be called next, in the caller's nanoseconds, or `None` if
    /// nothing is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if let Some(since_ns) = self.pipeline.batched_since_ns() {
            return Some(since_ns);
        }
        let train = self.merger.retention.deadline(&self.merger.trains);
        train.into_iter().chain(self.pipeline.deadline()).min()
    }

    /// Returns the number of held trains, including trains of one packet. Packets queued to repair reordering are not
    /// included; [`ReorderStats::waiting`](crate::stats::ReorderStats::waiting) counts them.
    #[must_use]
    pub fn trains_held(&self) -> usize {
        self.merger.trains.len()
    }

    /// Returns the counters since creation.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        &self.merger.stats
    }

    /// Returns the profile with the rules and limits in use.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.merger.profile
    }

    /// Delivers a packet without comparing it with any train, after the trains that it must not overtake.
    #[cold]
    fn pass_by(
        &mut self,
        buffer: B,
        meta: &Meta,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let packet = buffer.as_ref();
        self.merger.stats.count_in(packet.len(), packets_of(meta));
        self.flush_before(packet, meta.hash, sink);
        self.merger.pass(Frame { buffer, meta: *meta }, reason, sink)
    }

    /// Ends a poll. All packets that arrived before `seen_ns` have been pushed. Keeps trains younger than `kept_ns`.
    fn end_poll(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        kept_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.polled_ns = now_ns;
        let Self { pipeline, merger, .. } = self;
        pipeline.expire(now_ns, seen_ns, merger, sink);
        match merger.retention.fixed_ns() {
            Some(0) => merger.close_older(now_ns, kept_ns, Close::PollEnd, sink),
            Some(hold_ns) => {
                merger.close_older(now_ns, hold_ns.max(kept_ns), Close::HoldTime, sink);
            }
            None => {
                merger.expire(now_ns, sink);
                merger.close_idle(sink);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports};

    use super::{
        Acknowledgments, CoalesceOptions, Coalescer, Delivery, Profile, Sink, Vector, Verdict,
        reason::NoMerge,
    };
    use crate::{
        checksum::Checksum,
        frame::Frame,
        meta::{Gso, Meta},
    };

    fn frame(port: u16, index: u32) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|t| t.source_port(port).sequence(index * 100)).payload_len(100).build()
    }

    #[test]
    fn p21_flows_that_collide_are_never_merged() {
        let mut coalescer =
            Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1).ports(Ports::NONE));
        coalescer.merger.collide();
        let frames: Vec<_> =
            [(1, 0), (1, 1), (2, 0), (1, 2), (2, 1), (2, 2)].map(|(port, i)| frame(port, i)).into();
        let mut packets = Vec::new();
        let mut verdicts = Vec::new();
        let mut sink = |delivery: Delivery<'_, &[u8]>| packets.push(delivery.packets);
        for frame in &frames {
            verdicts.push(coalescer.push(Frame::new(&frame[..]), 0, &mut sink));
        }
        coalescer.finish(&mut sink);
        assert_eq!(packets, [2, 1, 1, 2]);
        let other = Verdict::Refused(NoMerge::OtherFlow);
        let (held, joined) = (Verdict::Held, Verdict::Joined);
        assert_eq!(verdicts, [held, joined, other, other, other, joined]);
    }

    #[test]
    fn g75_datagrams_that_were_put_together_overtake_none_of_the_flows_inside() {
        let message = |port: u16, index: u32| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
            let packet = packet.ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
            packet.tcp(|t| t.source_port(port).sequence(index * 100)).payload_len(100).build()
        };
        let alone = message(2, 0);
        let together = [message(1, 0), message(2, 1)].map(|frame| frame[42..].to_vec());
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        let outer = outer.udp(|u| u.destination_port(4789)).payload(&together.concat());
        let (superframe, start, offset) = outer.build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let gso = Gso::every(together[0].len() as u16);
        let meta = Meta { checksum, gso, ..Meta::default() };
        let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1));
        let mut left = Vec::new();
        let mut sink = |delivery: Delivery<'_, &[u8]>| left.push(delivery.len);
        coalescer.push(Frame::new(&alone[..]), 0, &mut sink);
        coalescer.push(Frame { buffer: &superframe[..], meta }, 0, &mut sink);
        coalescer.finish(&mut sink);
        assert_eq!(left, [alone.len(), superframe.len()]);
    }

    #[test]
    fn p21_acknowledgments_of_flows_that_collide_are_in_no_vector_together() {
        struct Lengths(Vec<usize>);
        impl<'a> Sink<&'a [u8]> for Lengths {
            fn deliver(&mut self, _: Delivery<'_, &'a [u8]>) {}

            fn deliver_vector(&mut self, vector: Vector<'_, &'a [u8]>) {
                self.0.push(vector.records().len());
            }
        }
        let mut profile = Profile::linux();
        profile.rules.acknowledgments = Acknowledgments::Vector;
        let mut coalescer = Coalescer::new(
            CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(Ports::NONE),
        );
        coalescer.merger.collide();
        let acknowledgment = |port: u16| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
            packet.tcp(|t| t.source_port(port)).build()
        };
        let frames: Vec<_> = [1, 1, 2, 1].map(acknowledgment).into();
        let mut lengths = Lengths(Vec::new());
        for frame in &frames {
            coalescer.push(Frame::new(&frame[..]), 0, &mut lengths);
        }
        coalescer.finish(&mut lengths);
        assert_eq!(lengths.0, [2, 1, 1]);
    }
}
