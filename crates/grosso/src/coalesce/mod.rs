//! Receive coalescing: packets join the train of their flow, and leave as one superframe.
//!
//! A packet is examined alone first: what it is, whether its checksums hold, whether it
//! can be in a train at all. If so, the train of its flow is looked up and asked whether the packet
//! obeys its laws. If it does not, the train leaves, named by a [`reason`], and the packet starts
//! the next. Within a flow nothing ever overtakes.
//!
//! | module | job |
//! |---|---|
//! | `options`, [`profile`], [`reason`] | the interface: the options of a coalescer, profiles, and the names of all refusals |
//! | `assembly`, `incoming` | the way of a packet through the stages that a profile asks for |
//! | `line`, `stage`, `seen`, `lease` | one stage behind another, with the trains behind them all, and a burst that bypasses them |
//! | `batch`, `bypass`, `pacer`, `reorder` | the stages: a poll flow by flow; flows that are seldom joined; the sight of controlled holds; packets ahead of their flow |
//! | `merge` | headers, trains, and the one path between: `path`, with `predicted` and `gathered` |
//! | `policy` | the exact laws or a profile's rules, for each of which the path is compiled, and the tiers that may answer sooner |
//! | `shapes`, `examine`, `prediction` | header stacks seen before; a packet alone; the headers of a flow's next packet, which `predictions` keeps |
//! | `passing`, `sighting` | the form of packets that pass one behind the other; the flow of the packet before |
//! | `train`, `pool`, `latest`, `delivery` | a held train, the buffers behind its first, what a superframe has from its last packet, and its way out |
//! | `barrier`, `address_pairs` | the trains that a packet must not overtake |
//! | `ack_log` | records of the acknowledgments in trains |
//! | `hold` | the time for which holding a train pays: `pace` of a flow, `deadlines`, `round_trips` |
//! | `by_id` | lists by the names of headers, trains and predictions |
//! | `stats` | counters |

mod ack_log;
mod address_pairs;
mod assembly;
mod barrier;
mod batch;
mod bounds;
mod by_id;
mod bypass;
mod delivery;
mod examine;
mod hold;
mod incoming;
mod latest;
mod lease;
mod line;
mod merge;
mod options;
mod pacer;
mod passing;
mod policy;
mod pool;
mod prediction;
mod prediction_id;
mod predictions;
pub mod profile;
pub mod reason;
mod reorder;
mod seen;
mod shape_id;
mod shapes;
mod sighting;
mod stage;
pub(crate) mod stats;
mod train;
mod train_id;

use grosso_checksum::prefetch;

pub use crate::flow::{BucketChoice, TableShape};
pub use crate::flow_memory::FLOWS_MAX as REMEMBERED_FLOWS_MAX;
pub use crate::template::HEADER_BYTES_MAX;
pub use delivery::{Delivery, Sink, Vector};
pub use hold::{HOLD_NS_MIN, LONG_PATH_NS, RoundTrips, SEGMENTS_MAX, SEGMENTS_MIN};
pub use options::CoalesceOptions;
pub use pool::Part;
pub use profile::{
    Acknowledgments, Batch, Bypass, FixedIdentification, FullTable, Hold, Level, Limits, Options,
    Profile, Push, Refused, Reorder, Rules, Sizes, Vary,
};

use crate::{
    checksum::Checksum,
    coalesce::{
        assembly::Assembly,
        barrier::Whose,
        incoming::Incoming,
        merge::{Merger, packets_of},
        policy::Tiers,
        reason::{Close, NoMerge, Pass, Release},
        stats::CoalesceStats,
    },
    frame::Frame,
    meta::Meta,
    template::compare::USUAL_BYTES,
};

/// Fate of a pushed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It starts a train.
    Held,
    /// It joined the train of its flow, which may have left with it.
    Joined,
    /// It did not join the held train of its flow. The train left; the packet starts the next, or
    /// left behind it.
    Refused(NoMerge),
    /// It can be in no train and left as it came.
    Passed(Pass),
    /// It waits in a batch ([`Batch`]) for the flows before its own, or for its turn in the sequence of its flow
    /// ([`Reorder`]); what became of it is only counted.
    Waits,
}

/// A train as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Wire packets in it.
    pub packets: u32,
    /// Their payload in bytes.
    pub payload_bytes: usize,
    /// Payload bytes of every packet but the last.
    pub size: u16,
    /// Time at which its first packet was pushed, in the caller's nanoseconds.
    pub since_ns: u64,
}

/// Joins packets into superframes, one link at a time.
///
/// Time is an argument: nanoseconds of any clock that does not go back. See [`Profile`] for the
/// rules and [`Limits`] for the bounds.
///
/// Aligned so that two of them share no cache line, nor a pair of lines that a processor fetches together: those of
/// different queues may lie side by side.
#[derive(Debug)]
#[repr(align(128))]
pub struct Coalescer<B> {
    /// The stages that the profile asks for.
    assembly: Assembly<B>,
    /// The trains behind them.
    merger: Merger<B>,
    /// Time at which a poll ended last.
    polled_ns: u64,
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// A coalescer that holds nothing yet.
    #[must_use]
    pub fn new(options: CoalesceOptions) -> Self {
        Self::with_tiers(options, Tiers::ALL)
    }

    /// As [`Self::new`], but every packet is dissected and asked law by law, by the rules as a value: what tests hold
    /// the usual path against.
    #[doc(hidden)]
    #[must_use]
    pub fn without_tiers(options: CoalesceOptions) -> Self {
        Self::with_tiers(options, Tiers::NONE)
    }

    fn with_tiers(options: CoalesceOptions, tiers: Tiers) -> Self {
        let CoalesceOptions { profile, link, ports, seed } = options;
        let assembly = Assembly::of(&profile, tiers);
        let merger = Merger::new(profile, tiers, link, ports, seed);
        Self { assembly, merger, polled_ns: 0 }
    }

    /// Asks the processor to fetch what [`Self::push`] will read of a packet, and does not wait for it.
    ///
    /// Worth its instructions for packets that come from memory rather than from a cache, such as those of a mapped
    /// file: called for the packet after next, it takes a quarter of the time off packets that are verified.
    #[inline]
    pub fn prefetch(&self, frame: &Frame<B>) {
        let packet = frame.buffer.as_ref();
        let is_read = matches!(frame.meta.checksum, Checksum::None);
        let headers = packet.len().min(USUAL_BYTES);
        prefetch(if is_read { packet } else { &packet[..headers] });
    }

    /// Takes one packet, and delivers what it completes.
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
        self.assembly.push(Incoming { buffer, meta, now_ns }, &mut self.merger, sink)
    }

    /// Takes one packet that must be joined with nothing, such as one of a flow that opted out, and
    /// delivers it as it came, behind every held train that it must not overtake.
    pub fn push_excluded(
        &mut self,
        frame: Frame<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.pass_by(frame.buffer, &frame.meta, Pass::Excluded, sink)
    }

    /// Delivers every held train that a packet must not overtake which leaves by another way.
    pub fn flush_before(
        &mut self,
        packet: &[u8],
        device_hash: Option<u32>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Self { assembly, merger, .. } = self;
        assembly.flush_batch(merger, sink);
        if let Some(whose) = merger.must_not_overtake(packet, &Meta::default()) {
            assembly.flush(whose, Release::Barrier, merger, sink);
            merger.close_of(whose, device_hash, sink);
        }
    }

    /// The held train of a packet's flow, which the packet would be offered to if it were pushed
    /// now.
    #[must_use]
    pub fn held(&self, packet: &[u8], device_hash: Option<u32>) -> Option<Held> {
        self.merger.held(packet, device_hash)
    }

    /// Ends a poll: delivers every train, or those held long enough when the profile holds across
    /// polls; with [`Hold::Controlled`] those too whose next packet is not due in time.
    pub fn poll_end(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.end_poll(now_ns, now_ns, 0, sink);
    }

    /// Ends a poll that took as many packets as it may, so that more are there already, which the caller pushes next:
    /// as [`Self::poll_end`], but trains younger than [`Limits::full_poll_ns`] go on (rule G72), and no hole is given
    /// up that was still waited for at the end of the poll before. What fills it may have come in time.
    pub fn poll_end_full(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.end_poll(now_ns, self.polled_ns, self.merger.profile.limits.full_poll_ns, sink);
    }

    /// Ends a batch, and delivers the trains whose time is over, in the order in which it was over.
    pub fn expire(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.assembly.expire(now_ns, now_ns, &mut self.merger, sink);
        self.merger.expire(now_ns, sink);
    }

    /// Delivers everything held, oldest train first.
    pub fn finish(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        self.assembly.flush(Whose::All, Release::Finish, &mut self.merger, sink);
        self.merger.flush(Close::PollEnd, sink);
    }

    /// Tells how long a round trip takes between the ends of this packet's flow, in nanoseconds: who
    /// sees both directions can measure it with [`RoundTrips`]. Only profiles that
    /// [want it](Profile::wants_round_trips) ask for it. To [`Hold::Controlled`] the least counts
    /// that was reported for a flow, to an adaptive [`Reorder`] the latest.
    pub fn learn_round_trip(&mut self, packet: &[u8], round_trip_ns: u64, now_ns: u64) {
        let Self { assembly, merger, .. } = self;
        if !merger.profile.wants_round_trips() {
            return;
        }
        let flow = merger.flow(packet);
        if let Some(line) = assembly.line_mut() {
            line.settle(merger);
            line.learn_round_trip(flow, round_trip_ns);
        }
        merger.retention.learn_round_trip(flow, round_trip_ns, now_ns);
    }

    /// Number of remembered flows that send in bursts and whose round trips nobody has told:
    /// neither [`Self::learn_round_trip`] nor the profile. On such a path trains are held for as long as on a short
    /// one, and no longer than the clock of a long one allows. None unless [`Hold::Controlled`] holds them.
    #[must_use]
    pub fn flows_without_round_trip(&self) -> usize {
        self.merger.retention.blind()
    }

    /// Time at which [`Self::expire`] has something to do next, in the caller's nanoseconds; `None` when
    /// nothing is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if let Some(since_ns) = self.assembly.batched_since_ns() {
            return Some(since_ns);
        }
        let train = self.merger.retention.deadline(&self.merger.trains);
        train.into_iter().chain(self.assembly.deadline()).min()
    }

    /// Number of trains that are held now, those of one packet too; packets that wait for their turn in a sequence are
    /// in none ([`ReorderStats::waiting`](crate::stats::ReorderStats::waiting)).
    #[must_use]
    pub fn trains_held(&self) -> usize {
        self.merger.trains.len()
    }

    /// Counters of what it did so far.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        &self.merger.stats
    }

    /// Its rules and limits.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.merger.profile
    }

    /// Lets a packet through that is offered to no train, behind those that it must not overtake.
    #[cold]
    #[inline(never)]
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

    /// Ends a poll after which all that came until `seen_ns` has been seen, and after which trains younger than
    /// `kept_ns` go on.
    fn end_poll(
        &mut self,
        now_ns: u64,
        seen_ns: u64,
        kept_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.polled_ns = now_ns;
        let Self { assembly, merger, .. } = self;
        assembly.expire(now_ns, seen_ns, merger, sink);
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
