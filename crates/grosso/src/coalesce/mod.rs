//! Receive coalescing: packets join the train of their flow, and leave as one superframe.
//!
//! A packet is examined alone first: what it is, whether its checksums hold, whether it
//! can be in a train at all. If so, the train of its flow is looked up and asked whether the packet
//! obeys its laws. If it does not, the train leaves, named by a [`reason`], and the packet starts
//! the next. Within a flow nothing ever overtakes.

mod barrier;
mod batch;
mod bounds;
mod bypass;
mod delivery;
mod examine;
mod gather;
mod hold;
pub(crate) mod memory;
mod merge;
mod policy;
mod pool;
mod prediction;
pub mod profile;
pub mod reason;
mod reorder;
mod shape_id;
mod shapes;
mod train;
mod train_id;

use alloc::boxed::Box;
use core::num::NonZeroU16;

use grosso_checksum::prefetch;
use grosso_wire::{Extent, LinkType, Ports, Stack, dissect, dissect_into, tcp};

pub use delivery::{Delivery, Sink, Vector};
pub use examine::HEADER_BYTES_MAX;
pub use hold::{HOLD_NS_MIN, LONG_PATH_NS, RoundTrips, SEGMENTS_MAX, SEGMENTS_MIN};
pub use memory::FLOWS_MAX as REMEMBERED_FLOWS_MAX;
pub use pool::Part;
pub use profile::{
    Acknowledgments, Batch, BucketChoice, Bypass, FixedIdentification, Hold, Level, Limits,
    Options, Profile, Push, Refused, Reorder, Rules, Sizes, TableShape, Vary,
};

use crate::{
    checksum::Checksum,
    coalesce::{
        batch::Collected,
        bounds::Bounds,
        bypass::Bypasser,
        delivery::Closing,
        examine::{ends_in_transport, lengths_agree, refusal_of_headers, refusal_of_stack},
        gather::Noted,
        hold::Controller,
        policy::{Laws, Tiers},
        pool::{List, Pool},
        prediction::Predictions,
        reason::{Close, NoMerge, Pass, Release},
        reorder::{Resequencer, Whose},
        shape_id::ShapeId,
        shapes::Shapes,
        train::{Train, Trains},
        train_id::TrainId,
    },
    flow::{FlowHash, FlowHasher, Found, Keys, Table},
    frame::Frame,
    meta::{Cut, Cwr, Gso, Meta},
    stats::CoalesceStats,
    template::{
        self,
        compare::USUAL_BYTES,
        render::{Checksums, Template},
        shape::Shape,
    },
};

/// What became of a pushed packet.
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
    /// It waits for the end of its batch ([`Batch`]), or for its turn in the sequence of its flow
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
    /// When its first packet was pushed, in the caller's nanoseconds.
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
    profile: Profile,
    /// Whether the packets are those of the default: by the exact laws, and as they come.
    is_default: bool,
    /// Whether they are taken by the policy [`Profiled`].
    is_staged: bool,
    /// The tiers that may answer.
    tiers: Tiers,
    /// What decides how long trains are held, if the profile has no fixed time.
    controller: Option<Controller>,
    bypasser: Option<Bypasser>,
    link: LinkType,
    ports: Ports,
    hasher: FlowHasher,
    shapes: Shapes,
    table: Table<FlowHash, TrainId>,
    trains: Trains<B>,
    predictions: Predictions,
    pool: Pool<B>,
    /// What waits for the end of its batch.
    collected: Option<Box<Collected<B>>>,
    /// What waits ahead of its flow, where reordering is repaired.
    resequencer: Option<Box<Resequencer<B>>>,
    stats: CoalesceStats,
    /// What acknowledgments said, by the slot of their train.
    noted: Noted,
    /// The train of the packet before this one, when that packet was of the same flow as the one
    /// before it.
    recent: Option<TrainId>,
    /// The train of the packet before this one.
    previous: Option<TrainId>,
    /// When a poll ended last.
    polled_ns: u64,
    /// Where packets are dissected into, so that nothing is cleared for each.
    stack: Stack,
    header: [u8; HEADER_BYTES_MAX],
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// A coalescer for frames of one link type. `seed` keys the flow hash and should be random, so
    /// that nobody can choose packets that share a bucket (P50).
    #[must_use]
    pub fn new(profile: Profile, link: LinkType, ports: Ports, seed: u64) -> Self {
        let tiers = Tiers::of(&profile);
        Self::with_tiers(profile, tiers, link, ports, seed)
    }

    /// As [`Self::new`], but every packet is dissected and asked law by law, by the rules as a value: what tests hold
    /// the usual path against.
    #[doc(hidden)]
    #[must_use]
    pub fn without_tiers(profile: Profile, link: LinkType, ports: Ports, seed: u64) -> Self {
        Self::with_tiers(profile, Tiers::NONE, link, ports, seed)
    }

    fn with_tiers(profile: Profile, tiers: Tiers, link: LinkType, ports: Ports, seed: u64) -> Self {
        let is_staged = profile.is_more_than_laws() || tiers != Tiers::ALL;
        let collected = match profile.batch {
            Batch::AsItCame => None,
            Batch::ByFlow { packets } => Some(Box::new(Collected::new(packets))),
        };
        Self {
            is_default: !is_staged && collected.is_none(),
            is_staged,
            tiers,
            collected,
            controller: Controller::of(&profile),
            bypasser: profile.bypass.map(Bypasser::new),
            resequencer: (profile.reorder.level != Level::Off)
                .then(|| Box::new(Resequencer::new(profile.reorder, &profile.limits))),
            link,
            ports,
            hasher: FlowHasher::new(seed),
            shapes: Shapes::default(),
            table: Table::new(profile.table),
            trains: Trains::new(profile.limits.flows),
            predictions: Predictions::default(),
            pool: Pool::new(profile.limits.parts),
            stats: CoalesceStats::default(),
            noted: Noted::new(profile.rules.acknowledgments),
            recent: None,
            previous: None,
            polled_ns: 0,
            stack: Stack::new(0),
            header: [0; HEADER_BYTES_MAX],
            profile,
        }
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
        self.stats.count_in(buffer.as_ref().len(), packets_of(meta));
        if self.is_default {
            return self.push_now::<Laws>(buffer, meta, now_ns, sink);
        }
        self.push_profiled(buffer, meta, now_ns, sink)
    }

    /// Takes one packet that must be joined with nothing, such as one of a flow that opted out, and
    /// delivers it as it came, behind every held train that it must not overtake.
    pub fn push_apart(&mut self, frame: Frame<B>, sink: &mut (impl Sink<B> + ?Sized)) -> Verdict {
        self.push_collected(sink);
        let packet = frame.buffer.as_ref();
        self.stats.count_in(packet.len(), packets_of(&frame.meta));
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        self.pass_unknown(frame, Pass::Apart, sink)
    }

    /// Delivers every held train that a packet must not overtake which leaves by another way.
    pub fn make_way(
        &mut self,
        packet: &[u8],
        device_hash: Option<u32>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        self.push_collected(sink);
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        self.close_behind(packet, device_hash, sink);
    }

    /// The held train of a packet's flow, which the packet would be offered to if it were pushed
    /// now.
    #[must_use]
    pub fn held(&self, packet: &[u8], device_hash: Option<u32>) -> Option<Held> {
        let stack = dissect(packet, self.link, &self.ports);
        let flow = self.hasher.flow(packet, &Keys::of(stack.layers(), packet));
        let Found::Slot(slot) = self.table.find(flow, device_hash) else { return None };
        self.trains.held(slot).map(|train| Held {
            packets: u32::from(train.packets),
            payload_bytes: train.payload_len,
            size: train.size,
            since_ns: train.created_ns,
        })
    }

    /// Ends a poll: delivers every train, or those held long enough when the profile holds across
    /// polls; with [`Hold::Controlled`] those too whose next packet is not due in time.
    pub fn poll_end(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.end_poll(now_ns, now_ns, sink);
    }

    /// Ends a poll that took as many packets as it may, so that more are there already: as [`Self::poll_end`], but no
    /// hole is given up that was still waited for at the end of the poll before. What fills it may have come in time.
    pub fn poll_end_full(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.end_poll(now_ns, self.polled_ns, sink);
    }

    /// Ends a batch, and delivers the trains whose time is over, in the order in which it was over.
    pub fn expire(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.let_go_expired(now_ns, now_ns, sink);
    }

    /// Delivers everything held, oldest train first.
    pub fn finish(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        self.push_collected(sink);
        self.let_go_of(Whose::All, Release::Finish, sink);
        self.flush(Close::PollEnd, sink);
    }

    /// When [`Self::expire`] has something to do next, in the caller's nanoseconds; `None` when
    /// nothing is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if let Some(since_ns) = self.collected.as_ref().and_then(|collected| collected.since_ns()) {
            return Some(since_ns);
        }
        let train = match &self.controller {
            Some(controller) => controller.deadline(),
            None => {
                let hold_ns = self.profile.limits.hold_ns;
                self.trains.oldest().map(|(_, created_ns)| created_ns.saturating_add(hold_ns))
            }
        };
        let waiting = self.resequencer.as_ref().and_then(|resequencer| resequencer.deadline());
        train.into_iter().chain(waiting).min()
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        &self.stats
    }

    /// Its rules and limits.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The headers of a packet, if they are known.
    #[inline(always)]
    fn known(&mut self, packet: &[u8], meta: &Meta) -> Option<ShapeId> {
        let known = self.shapes.find(packet)?;
        lengths_agree(packet, &self.shapes[known].shape, meta).then_some(known)
    }

    /// The same by dissecting it. Where that makes too many known headers, all trains leave and all headers are
    /// forgotten.
    #[inline(never)]
    fn dissect(
        &mut self,
        packet: &[u8],
        meta: &Meta,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Result<ShapeId, Pass> {
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        let stack = &self.stack;
        let lengths_agree = match stack.extent {
            Extent::Exact => true,
            Extent::Jumbo => meta.gso.is_some(),
            Extent::Padded | Extent::Short => false,
        };
        if !ends_in_transport(stack) || !lengths_agree {
            return Err(refusal_of_stack(stack));
        }
        if stack.header_len() > HEADER_BYTES_MAX {
            return Err(Pass::HeaderTooLong);
        }
        if let Some(place) = self.shapes.search(packet) {
            debug_assert!(self.shapes[place].is_of(stack, packet), "structure tells headers");
            return Ok(place);
        }
        if self.shapes.is_full() {
            self.let_go_of(Whose::All, Release::Finish, sink);
            self.flush(Close::HeaderStacksFull, sink);
            self.shapes.clear();
        }
        let stack = &self.stack;
        let shape = Shape::new(stack, packet);
        let refusal = refusal_of_headers(packet, stack, &shape, &self.ports, &self.profile);
        let bounds = Bounds::of(&shape, &self.profile.limits);
        let rules = &self.profile.rules;
        Ok(self.shapes.remember(stack, shape, packet, rules, bounds, refusal))
    }

    /// Ends a poll after which all that came until `seen_ns` has been seen.
    fn end_poll(&mut self, now_ns: u64, seen_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.polled_ns = now_ns;
        if self.profile.limits.hold_ns == 0 {
            self.push_collected(sink);
            self.let_go_due(now_ns, seen_ns, sink);
            self.flush(Close::PollEnd, sink);
        } else {
            self.let_go_expired(now_ns, seen_ns, sink);
            self.close_idle(sink);
        }
    }

    /// Delivers what was held long enough, where all that came until `seen_ns` has been seen.
    fn let_go_expired(&mut self, now_ns: u64, seen_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        self.push_collected(sink);
        self.let_go_due(now_ns, seen_ns, sink);
        if self.controller.is_some() {
            return self.expire_controlled(now_ns, sink);
        }
        while let Some((slot, created_ns)) = self.trains.oldest() {
            if now_ns.saturating_sub(created_ns) < self.profile.limits.hold_ns {
                return;
            }
            self.close(slot, Close::HoldTime, sink);
        }
    }

    fn flush(&mut self, reason: Close, sink: &mut (impl Sink<B> + ?Sized)) {
        while let Some((slot, _)) = self.trains.oldest() {
            self.close(slot, reason, sink);
        }
    }

    /// Delivers a train: a packet alone as it came, several as a superframe.
    #[inline]
    fn close(&mut self, slot: TrainId, reason: Close, sink: &mut (impl Sink<B> + ?Sized)) {
        let Some(train) = self.trains.remove(slot) else { return };
        self.table.remove(train.place);
        self.predictions.forget(slot);
        self.stats.closed[reason.index()] += 1;
        if self.is_staged && self.forget(slot, &train) {
            return self.deliver_gathered(slot, train, reason, sink);
        }
        if train.rest == List::EMPTY {
            let meta = verified(&self.shapes[train.known].shape, train.partial, train.meta);
            let packets = u32::from(train.packets);
            self.deliver_single(train.first.buffer, meta, packets, reason, sink);
        } else {
            self.deliver_train(slot, train, reason, sink);
        }
    }

    #[inline]
    fn deliver_single(
        &mut self,
        buffer: B,
        meta: Meta,
        packets: u32,
        closed: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let len = buffer.as_ref().len();
        self.stats.count_out(len, packets, false);
        let part = Part::new(buffer, 0..len);
        sink.deliver(Delivery::single(part, meta, packets, closed, &mut self.pool));
    }

    /// Writes the headers of a superframe: the template with its laws applied to the train as a
    /// whole (rules G50 to G52).
    fn deliver_train(
        &mut self,
        slot: TrainId,
        train: Train<B>,
        closed: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let known = &self.shapes[train.known];
        let shape = &known.shape;
        let first = train.first.buffer.as_ref();
        let template_header = first.get(..shape.header_len).unwrap_or_default();
        let header = &mut self.header[..template_header.len()];
        header.copy_from_slice(template_header);
        if self.is_staged
            && let Some(last) = self.pool.last(&train.rest)
        {
            known.take_latest(last.buffer.as_ref(), header);
        }
        let mut cwr = Cwr::First;
        if let Some(flags) = shape.flags.and_then(|at| header.get_mut(at as usize)) {
            if *flags & tcp::CWR as u8 != 0 {
                cwr = Cwr::Every;
            }
            *flags |= train.ending_flags;
        }
        let fixed_ids = train.fixed_ids;
        let template =
            Template { shape, header: template_header, fixed_ids, cwr, checksum_wanted: true };
        let place =
            template::render::Place { index: 0, before: 0, payload: train.payload_len, last: true };
        template.render(place, Checksums::Seeds, header);
        let transport = shape.covers.last().map_or((0, 0), |cover| (cover.start, cover.at));
        let meta = Meta {
            checksum: Checksum::Partial { start: transport.0, offset: transport.1 - transport.0 },
            gso: NonZeroU16::new(train.size).filter(|_| known.is_invertible).map(|size| Gso {
                cut: Cut::Every(size),
                segments: train.packets,
                fixed_ids,
                cwr,
                partial_members: train.partial,
                untrusted: false,
            }),
            ..train.meta
        };
        let len = shape.header_len + train.payload_len;
        let is_summed = self.is_staged && !known.is_invertible;
        let summary = if is_summed { self.noted.summary(slot) } else { None };
        let packets = u32::from(train.packets);
        self.stats.count_out(len, packets, true);
        let payload = shape.header_len..train.first.range().end;
        let first = Part::new(train.first.buffer, payload);
        let closing = Closing { summary, meta, packets, len, closed };
        sink.deliver(Delivery::train(header, first, train.rest, &mut self.pool, closing));
    }
}

/// Wire packets that a frame stands for.
#[inline]
fn packets_of(meta: &Meta) -> u32 {
    meta.gso.map_or(1, |gso| u32::from(gso.segments.max(1)))
}

/// A packet whose checksums were verified here says so (rule G53).
#[inline]
fn verified(shape: &Shape, partial: bool, meta: Meta) -> Meta {
    if partial || meta.gso.is_some() {
        return meta;
    }
    let levels =
        shape.covers.len().saturating_sub(1 + usize::from(shape.remote_checksum.is_some()));
    Meta { checksum: Checksum::Unnecessary { levels: levels as u8 }, ..meta }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports};

    use super::{
        Acknowledgments, Coalescer, Delivery, Profile, Sink, Vector, Verdict, reason::NoMerge,
    };
    use crate::{flow::FlowHasher, frame::Frame};

    fn frame(port: u16, index: u32) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|t| t.source_port(port).sequence(index * 100)).payload_len(100).build()
    }

    #[test]
    fn p21_flows_that_collide_are_never_merged() {
        let mut coalescer = Coalescer::new(Profile::linux(), LinkType::Ethernet, Ports::NONE, 1);
        coalescer.hasher = FlowHasher::colliding();
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
        let mut coalescer = Coalescer::new(profile, LinkType::Ethernet, Ports::NONE, 1);
        coalescer.hasher = FlowHasher::colliding();
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
