//! The merge engine. It stores the known headers and the held trains, and finds the train that a packet extends, starts
//! or must not overtake. Packets go through all stages of the profile before they reach the merge engine.

mod admit;
mod gathered;
mod lookup;
mod predicted;

use core::{iter, num::NonZeroU16};

use grosso_checksum::Sum;
use grosso_wire::{Extent, LinkType, Ports, Stack, dissect, dissect_into, tcp};

pub(crate) use self::lookup::{ExpectedFlow, Guess, Lookup};
use crate::{
    bytes::put_u16,
    checksum::Checksum,
    coalesce::{
        emit::{
            delivery::{Closing, Delivery, Sink},
            reason::{Close, Pass},
            stats::CoalesceStats,
        },
        flows::{
            flush_scope::{FlushScope, ScopeKind, scope_kind},
            last_flow::LastFlow,
        },
        hold::{
            ack_log::{AckLog, First},
            held::Held,
            retention::Retention,
            train::{Train, Trains},
        },
        predict::{passthrough::Passthrough, predictions::Predictions},
        profile::{Profile, Rules, TrainChecksum},
        rx::{
            bounds::Bounds,
            examine::{ends_in_transport, lengths_agree, refusal_of_headers, refusal_of_stack},
            policy::Tiers,
            shapes::{CachedStack, Shapes},
        },
        slots::{
            pool::{List, Part, Pool},
            shape_id::ShapeId,
            train_id::TrainId,
        },
    },
    flow::{FlowHash, FlowHasher, Found, Keys, Table},
    meta::{Cwr, Gso, GsoSize, IpLevels, Meta},
    template::{
        self, HEADER_BYTES_MAX,
        render::{Checksums, Template, pseudo_of, sum_of},
        shape::Shape,
    },
};

/// Known headers and held trains.
#[derive(Debug)]
pub(crate) struct Merger<B> {
    pub(crate) profile: Profile,
    /// Enabled fast paths.
    tiers: Tiers,
    /// Whether acknowledgments or individual hold times are stored for each train. The exact rules need neither.
    is_watched: bool,
    /// Whether trains have deadlines or unmerged acknowledgments, which must be cleaned up when a train ends.
    is_noted: bool,
    /// Method for choosing hold times.
    pub(crate) retention: Retention,
    link: LinkType,
    ports: Ports,
    hasher: FlowHasher,
    pub(crate) shapes: Shapes,
    table: Table<FlowHash, TrainId>,
    pub(crate) trains: Trains<B>,
    predictions: Predictions,
    passthrough: Passthrough,
    /// Flow of the last packet that was looked up.
    last_flow: LastFlow,
    pool: Pool<B>,
    pub(crate) stats: CoalesceStats,
    /// Records and summaries of acknowledgments, by train slot.
    acknowledgments: AckLog,
    /// Result of the latest dissection. It is reused to avoid clearing it for each packet.
    stack: Stack,
    header: [u8; HEADER_BYTES_MAX],
}

/// Reason why a packet's headers are not in the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unknown {
    /// Packets with these headers cannot be merged, for this reason.
    Passes(Pass),
    /// The cache of header stacks is full.
    OneTooMany,
}

impl<B: AsRef<[u8]>> Merger<B> {
    pub(crate) fn new(
        profile: Profile,
        tiers: Tiers,
        link: LinkType,
        ports: Ports,
        seed: u64,
    ) -> Self {
        let retention = Retention::of(&profile);
        let Rules { acknowledgments, .. } = profile.rules;
        let is_noted = acknowledgments.are_gathered() || retention.fixed_ns().is_none();
        Self {
            tiers,
            is_watched: is_noted || !profile.rules.is_invertible(),
            is_noted,
            retention,
            link,
            ports,
            hasher: FlowHasher::new(seed),
            shapes: Shapes::default(),
            table: Table::new(profile.table),
            trains: Trains::new(profile.limits.flows),
            predictions: Predictions::default(),
            passthrough: Passthrough::new(),
            last_flow: LastFlow::new(),
            pool: Pool::new(profile.limits.parts),
            stats: CoalesceStats::default(),
            acknowledgments: AckLog::new(profile.rules.acknowledgments),
            stack: Stack::new(0),
            header: [0; HEADER_BYTES_MAX],
            profile,
        }
    }

    /// Makes all flows hash to the same value, for tests (P21).
    #[cfg(test)]
    pub(crate) fn collide(&mut self) {
        self.hasher = FlowHasher::colliding();
    }

    /// Returns the held train of a packet's flow.
    pub(crate) fn held(&self, packet: &[u8], device_hash: Option<u32>) -> Option<Held> {
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

    /// Looks up the train of a flow.
    pub(crate) fn find(&self, flow: FlowHash, device_hash: Option<u32>) -> Found<TrainId> {
        self.table.find(flow, device_hash)
    }

    /// Returns a hash of the addresses of a packet with these headers, for ordering flushes.
    pub(crate) fn address_pair(&self, packet: &[u8], known: ShapeId) -> u32 {
        self.hasher.address_pair(packet, &self.shapes[known].keys)
    }

    /// Dissects a packet and returns its flow.
    pub(crate) fn flow(&mut self, packet: &[u8]) -> FlowHash {
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        self.hasher.flow(packet, &Keys::of(self.stack.layers(), packet))
    }

    /// Returns the flow of a packet if its headers are known. Otherwise, returns all flows that the packet might belong
    /// to, or `None` if the packet cannot belong to a train.
    #[inline(always)]
    pub(crate) fn might_be_of(&mut self, packet: &[u8], meta: &Meta) -> Option<FlushScope> {
        if meta.gso.is_some() {
            return self.must_not_overtake(packet, meta);
        }
        match self.last_flow.flow_of(packet, &self.shapes) {
            Some(flow) => Some(FlushScope::Flow(flow)),
            None => self.might_be_of_another(packet, meta),
        }
    }

    /// Works like [`Self::might_be_of`], but assumes that the flow of the packet differs from the flow of the previous
    /// packet.
    #[inline(never)]
    fn might_be_of_another(&mut self, packet: &[u8], meta: &Meta) -> Option<FlushScope> {
        let Some(known) = self.shapes.find(packet) else {
            return self.must_not_overtake(packet, meta);
        };
        let flow = self.hasher.flow(packet, &self.shapes[known].keys);
        if self.tiers.masks {
            self.last_flow.note(packet, known, flow, &self.shapes);
        }
        Some(FlushScope::Flow(flow))
    }

    /// Works like [`Self::might_be_of`], but does not use the cache of headers.
    #[inline(never)]
    pub(crate) fn must_not_overtake(&mut self, packet: &[u8], meta: &Meta) -> Option<FlushScope> {
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        self.dissected_might_be_of(packet, meta)
    }

    /// Works like [`Self::might_be_of`], for the packet that was just dissected.
    pub(crate) fn dissected_might_be_of(&self, packet: &[u8], meta: &Meta) -> Option<FlushScope> {
        if meta.cuts_around(&self.stack) {
            // Each datagram of the superframe may belong to a different inner flow.
            return Some(FlushScope::All);
        }
        let keys = Keys::of(self.stack.layers(), packet);
        match scope_kind(&self.stack, packet) {
            ScopeKind::None => None,
            ScopeKind::Flow => Some(FlushScope::Flow(self.hasher.flow(packet, &keys))),
            ScopeKind::AddressPair => {
                Some(FlushScope::AddressPair(self.hasher.address_pair(packet, &keys)))
            }
        }
    }

    /// Closes the trains of some flows before a packet that must not overtake them (rule G75).
    pub(crate) fn close_of(
        &mut self,
        scope: FlushScope,
        device_hash: Option<u32>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        match scope {
            FlushScope::Flow(flow) => {
                if let Found::Slot(slot) = self.table.find(flow, device_hash) {
                    self.close(slot, Close::Barrier, sink);
                }
            }
            FlushScope::AddressPair(address_pair) => {
                while let Some(slot) = self.between(address_pair) {
                    self.close(slot, Close::Barrier, sink);
                }
            }
            FlushScope::All => self.flush(Close::Barrier, sink),
        }
    }

    /// Returns a held train between these addresses.
    fn between(&mut self, address_pair: u32) -> Option<TrainId> {
        let Self { trains, hasher, shapes, .. } = self;
        trains.between(address_pair, |train| {
            hasher.address_pair(train.first.buffer.as_ref(), &shapes[train.known].keys)
        })
    }

    /// Closes the train of a flow, if it has one.
    pub(crate) fn close_flow(
        &mut self,
        flow: FlowHash,
        reason: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        if let Found::Slot(slot) = self.table.find(flow, None) {
            self.close(slot, reason, sink);
        }
    }

    /// Closes all trains and clears the cache of header stacks because it overflowed. No queued packet may refer to a
    /// cached stack.
    #[cold]
    pub(crate) fn forget_shapes(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        self.flush(Close::HeaderStacksFull, sink);
        self.shapes.clear();
        self.predictions.clear();
        self.passthrough.clear();
        self.last_flow.clear();
    }

    /// Closes the trains whose hold time has elapsed.
    pub(crate) fn expire(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        while let Some(slot) = self.retention.next_over(now_ns, &self.trains) {
            self.close(slot, Close::HoldTime, sink);
        }
    }

    /// Closes the trains whose next packet is not expected before the hold time ends.
    pub(crate) fn close_idle(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        let mut idle = self.retention.take_idle(&self.trains);
        for slot in idle.drain(..) {
            self.close(slot, Close::PollEnd, sink);
        }
        self.retention.give_back(idle);
    }

    /// Closes the trains of at least this age, oldest first.
    pub(crate) fn close_older(
        &mut self,
        now_ns: u64,
        age_ns: u64,
        reason: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        while let Some((slot, created_ns)) = self.trains.oldest()
            && now_ns.saturating_sub(created_ns) >= age_ns
        {
            self.close(slot, reason, sink);
        }
    }

    /// Closes all trains, oldest first.
    pub(crate) fn flush(&mut self, reason: Close, sink: &mut (impl Sink<B> + ?Sized)) {
        while let Some((slot, _)) = self.trains.oldest() {
            self.close(slot, reason, sink);
        }
    }

    /// Returns the headers of a packet if they are known.
    #[inline(always)]
    fn known(&mut self, packet: &[u8], meta: &Meta) -> Option<ShapeId> {
        let known = self.shapes.find(packet)?;
        lengths_agree(packet, &self.shapes[known].shape, meta).then_some(known)
    }

    /// Dissects a packet and returns its headers, unless the cache is full.
    #[inline(never)]
    fn dissect(&mut self, packet: &[u8], meta: &Meta) -> Result<ShapeId, Unknown> {
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        let stack = &self.stack;
        let lengths_agree = match stack.extent {
            Extent::Exact => true,
            Extent::Jumbo => meta.gso.is_some(),
            Extent::Padded | Extent::Short => false,
        };
        if !ends_in_transport(stack) || !lengths_agree {
            return Err(Unknown::Passes(refusal_of_stack(stack)));
        }
        if stack.header_len() > HEADER_BYTES_MAX {
            return Err(Unknown::Passes(Pass::HeaderTooLong));
        }
        if let Some(place) = self.shapes.search(packet) {
            debug_assert!(
                self.shapes[place].is_of(stack, packet),
                "the structure determines the headers"
            );
            return Ok(place);
        }
        if self.shapes.is_full() {
            return Err(Unknown::OneTooMany);
        }
        let shape = Shape::new(stack, packet);
        let refusal = refusal_of_headers(packet, stack, &shape, &self.ports, &self.profile);
        let rules = &self.profile.rules;
        let bounds = Bounds::of(&shape, &self.profile.limits, rules);
        Ok(self.shapes.remember(stack, shape, packet, rules, bounds, refusal))
    }

    /// Delivers a train: a single packet is delivered unchanged, several packets as a superframe.
    #[inline]
    pub(crate) fn close(
        &mut self,
        slot: TrainId,
        reason: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Some(train) = self.trains.remove(slot) else { return };
        self.table.remove(train.place);
        self.predictions.end(train.prediction, slot);
        self.stats.closed[reason.index()] += 1;
        if self.is_noted && self.forget(slot, &train) {
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

    /// Delivers a train as a superframe, whose headers are the train's template with its laws applied to all packets
    /// (rules G50 to G52).
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
        if self.is_watched
            && let Some(last) = self.pool.last(&train.rest)
        {
            known.last_packet.put(last.buffer.as_ref(), header);
        }
        let mut cwr = Cwr::First;
        if let Some(flags) = shape.flags.and_then(|at| header.get_mut(at as usize)) {
            if *flags & tcp::CWR as u8 != 0 {
                cwr = Cwr::Every;
            }
            *flags |= train.ending_flags;
        }
        let fixed_ids = train.fixed_ids;
        // `header` already has the identifications of the packet that the rules select.
        let template = Template {
            shape,
            header: template_header,
            fixed_ids: IpLevels::ALL,
            cwr,
            checksum_wanted: true,
        };
        let place = template::render::Portion {
            index: 0,
            before: 0,
            payload: train.payload_len,
            last: true,
        };
        template.render(place, Checksums::PseudoHeader, header);
        let transport = shape.covers.last().map_or((0, 0), |cover| (cover.start, cover.at));
        let mut meta = Meta {
            checksum: Checksum::Partial { start: transport.0, offset: transport.1 - transport.0 },
            gso: NonZeroU16::new(train.size).filter(|_| known.is_invertible).map(|size| Gso {
                size: GsoSize::Every(size),
                segments: train.packets,
                fixed_ids,
                cwr,
                partial_members: train.partial,
                untrusted: false,
            }),
            ..train.meta
        };
        let len = shape.header_len + train.payload_len;
        let is_summed = self.is_watched && !known.is_invertible;
        let summary = match is_summed {
            true => {
                if complete_checksum(known, &train, &self.pool, header) {
                    meta.checksum = Checksum::Unnecessary { levels: 0 };
                }
                self.acknowledgments.summary(slot, First::of(&train, known))
            }
            false => None,
        };
        let packets = u32::from(train.packets);
        self.stats.count_out(len, packets, true);
        let payload = shape.header_len..train.first.range().end;
        let first = Part::new(train.first.buffer, payload);
        let closing = Closing { summary, meta, packets, len, closed };
        sink.deliver(Delivery::train(header, first, train.rest, &mut self.pool, closing));
    }
}

/// Replaces the pseudo-header sum in a superframe's header with a complete checksum, if the rules require this, the
/// packets of the train have complete checksums, and there is no tunnel. The payload is not read, because its sum
/// follows from the checksums of the packets.
#[inline(never)]
fn complete_checksum<B: AsRef<[u8]>>(
    known: &CachedStack,
    train: &Train<B>,
    pool: &Pool<B>,
    header: &mut [u8],
) -> bool {
    let CachedStack { shape, rules, .. } = known;
    let [covering] = &shape.covers[..] else { return false };
    let is_left = train.partial || shape.remote_checksum.is_some();
    if rules.checksum == TrainChecksum::Partial || is_left {
        return false;
    }
    let start = usize::from(covering.start);
    let (mut payload, mut len) = (Sum::ZERO, 0);
    for part in iter::once(&train.first).chain(pool.iter(train.rest)) {
        let packet = part.buffer.as_ref();
        let payload_len = part.range().end - shape.header_len;
        let before = sum_of(packet, start, shape.header_len);
        let pseudo = pseudo_of(covering, packet, shape.header_len + payload_len - start);
        payload = payload.append(len, Sum::ZERO.subtract(before + pseudo));
        len += payload_len;
    }
    let sum = sum_of(header, start, header.len()) + payload;
    put_u16(header, covering.at.into(), sum.checksum());
    true
}

/// Returns the number of wire packets in a frame.
#[inline]
pub(crate) fn packets_of(meta: &Meta) -> u32 {
    meta.gso.map_or(1, |gso| u32::from(gso.segments.max(1)))
}

/// Marks the checksums of a packet as verified (rule G53).
#[inline]
fn verified(shape: &Shape, partial: bool, meta: Meta) -> Meta {
    if partial || meta.gso.is_some() {
        return meta;
    }
    let levels =
        shape.covers.len().saturating_sub(1 + usize::from(shape.remote_checksum.is_some()));
    Meta { checksum: Checksum::Unnecessary { levels: levels as u8 }, ..meta }
}
