//! Acknowledgments without data that wait for each other as they are, and what those of lossy trains said.

use alloc::vec::Vec;
use core::iter;

use grosso_wire::{Kind, tcp};

use crate::{
    acknowledge::{Fate, Ineligible, RECORDS_MAX, Record, Records, Stamp, Summary, Thinner},
    bytes::u16_at,
    coalesce::{
        Acknowledgments, Arrival, Candidate, Close, Coalescer, Delivery, NoMerge, Part, Pass, Sink,
        Vector, Verdict, examine, shapes::Known, train::Train, verified,
    },
    flow::Found,
    frame::Frame,
    meta::Meta,
    template::shape::Shape,
};

/// What acknowledgments said, by the slot of the train that they are in.
#[derive(Debug, Default)]
pub(super) struct Noted {
    gathers: bool,
    records: Vec<Records>,
    summaries: Vec<Summary>,
    thinner: Thinner,
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Takes one packet without payload, in a profile where those of a flow wait for each other.
    pub(super) fn gather(
        &mut self,
        frame: Frame<B>,
        known: usize,
        found: Found,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Some(shape) = self.shapes.get(known) else {
            return self.pass(frame, Pass::Protocol, sink);
        };
        let packet = frame.buffer.as_ref();
        let flow = self.hasher.flow(packet, &shape.keys);
        let takes_all = self.profile.rules.acknowledgments.thinning().is_some();
        let examined = examine_acknowledgment(packet, shape, &frame.meta, now_ns, takes_all);
        let (candidate, record) = match examined {
            Ok(examined) => examined,
            Err(reason) => {
                if let Found::Slot(slot) = found {
                    self.close(slot, Close::Barrier, sink);
                }
                return self.pass(frame, reason, sink);
            }
        };
        let arrival = Arrival { frame, candidate, known, flow, now_ns };
        match found {
            Found::Slot(slot) => self.offer_acknowledgment(slot, arrival, record, sink),
            Found::Free(_) | Found::Full(_) => self.start_vector(arrival, record, sink),
        }
    }

    /// Offers an acknowledgment to the vector of its flow, or starts one behind the train that is there.
    fn offer_acknowledgment(
        &mut self,
        slot: u32,
        arrival: Arrival<B>,
        record: Record,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Err(refusal) = self.joins_vector(slot, &arrival) {
            self.stats.refused[refusal.index()] += 1;
            self.close(slot, Close::NoMerge, sink);
            self.start_vector(arrival, record, sink);
            return Verdict::Refused(refusal);
        }
        let Some(train) = self.trains.train_mut(slot) else {
            return self.pass(arrival.frame, Pass::Protocol, sink);
        };
        let Arrival { frame, .. } = arrival;
        let whole = 0..frame.buffer.as_ref().len();
        if let Err(part) = self.pool.push(&mut train.rest, Part::new(frame.buffer, whole)) {
            let frame = Frame { buffer: part.buffer, ..frame };
            self.close(slot, Close::PartsFull, sink);
            return self.start_vector(Arrival { frame, ..arrival }, record, sink);
        }
        train.packets += 1;
        self.noted.push(slot, record);
        Verdict::Joined
    }

    /// Whether an acknowledgment joins what is held of its flow.
    fn joins_vector(&self, slot: u32, arrival: &Arrival<B>) -> Result<(), NoMerge> {
        let (Some(train), Some(own)) = (self.trains.train(slot), self.shapes.get(arrival.known))
        else {
            return Err(NoMerge::HeaderStack);
        };
        let Some(known) = self.shapes.get(train.known) else { return Err(NoMerge::HeaderStack) };
        let (first, packet) = (train.first.buffer.as_ref(), arrival.frame.buffer.as_ref());
        let is_full =
            usize::from(train.packets) >= RECORDS_MAX || train.packets >= known.bounds.packets_max;
        // Options may differ, and what is in front of TCP may not: one place says where it is.
        let stacks_agree = known.shape.transport == own.shape.transport
            && known.shape.covers.len() == own.shape.covers.len();
        let checks = [
            (self.noted.is_vector(train), NoMerge::TcpAcknowledgmentAlone),
            (stacks_agree, NoMerge::HeaderStack),
            (known.keys.are_alike(first, &own.keys, packet), NoMerge::OtherFlow),
            (train.meta.vlan == arrival.frame.meta.vlan, NoMerge::VlanTag),
            (train.partial == arrival.candidate.partial, NoMerge::ChecksumState),
            (!is_full, NoMerge::SegmentLimit),
        ];
        checks.iter().find(|(holds, _)| !holds).map_or(Ok(()), |&(_, refusal)| Err(refusal))
    }

    fn start_vector(
        &mut self,
        arrival: Arrival<B>,
        record: Record,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let verdict = self.start(arrival, None, sink);
        if verdict == Verdict::Held
            && let Some(slot) = self.previous
        {
            self.noted.start(slot);
            self.noted.push(slot, record);
        }
        verdict
    }

    /// Lets the controller forget a train that leaves; whether it is of acknowledgments that waited.
    #[cold]
    pub(super) fn forget(&mut self, slot: u32, train: &Train<B>) -> bool {
        if let Some(controller) = &mut self.controller {
            controller.left(slot);
        }
        self.noted.is_vector(train)
    }

    /// Delivers acknowledgments that waited: all of them, or those that say something which no later one does.
    #[cold]
    pub(super) fn deliver_gathered(
        &mut self,
        slot: u32,
        mut train: Train<B>,
        closed: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let Some(known) = self.shapes.get(train.known) else { return };
        let meta = verified(&known.shape, train.partial, train.meta);
        let transport = known.shape.transport;
        let Self { pool, noted, stats, .. } = self;
        let records = noted.records.get(slot as usize).map_or(&[][..], Records::as_slice);
        if self.profile.rules.acknowledgments.thinning().is_none() {
            for part in iter::once(&train.first).chain(pool.iter(train.rest)) {
                stats.count_out(part.range().len(), 1, false);
            }
            stats.vectors += 1;
            stats.vector_packets += records.len() as u64;
            let vector = Vector::new(train.first, train.rest, pool, records, meta, closed);
            return sink.deliver_vector(vector);
        }
        for part in iter::once(&train.first).chain(pool.iter(train.rest)) {
            // As many fit into the thinner as into the records.
            let _ = noted.thinner.push(part.bytes().get(transport..).unwrap_or_default());
        }
        let mut next = Some(train.first);
        for (fate, record) in noted.thinner.take().zip(records) {
            let Some(part) = next.take().or_else(|| pool.pop(&mut train.rest)) else { break };
            match fate {
                Fate::Dropped => {
                    stats.thinned += 1;
                    sink.discard(part.buffer);
                }
                Fate::Kept(reason) => {
                    stats.kept[reason.index()] += 1;
                    stats.count_out(part.range().len(), 1, false);
                    let meta = Meta { timestamp_ns: record.device_ns(), ..meta };
                    sink.deliver(Delivery::single(part, meta, 1, closed, pool));
                }
            }
        }
    }
}

impl Noted {
    pub(super) fn new(acknowledgments: Acknowledgments) -> Self {
        let thinner = acknowledgments.thinning().map(Thinner::new).unwrap_or_default();
        Self { gathers: acknowledgments.are_gathered(), thinner, ..Self::default() }
    }

    /// Whether a train is of acknowledgments that wait as they are: no other has no payload.
    pub(super) fn is_vector<B>(&self, train: &Train<B>) -> bool {
        self.gathers && train.payload_len == 0
    }

    /// What the packets of a lossy train acknowledged.
    #[inline]
    pub(super) fn summary(&self, slot: u32) -> Option<&Summary> {
        self.summaries.get(slot as usize)
    }

    /// Counts a packet into the summary of its train, which it may be the first of.
    pub(super) fn summarize(
        &mut self,
        slot: u32,
        record: &Record,
        has_payload: bool,
        starts: bool,
    ) {
        let place = slot as usize;
        if self.summaries.len() <= place {
            self.summaries.resize(place + 1, Summary::default());
        }
        if let Some(summary) = self.summaries.get_mut(place) {
            if starts {
                *summary = Summary::default();
            }
            summary.add(record, has_payload);
        }
    }

    /// Forgets the records of the train that was in a slot.
    fn start(&mut self, slot: u32) {
        let place = slot as usize;
        if self.records.len() <= place {
            self.records.resize_with(place + 1, Records::new);
        }
        self.records[place].clear();
    }

    /// There is room: a vector is not longer than its records may be.
    fn push(&mut self, slot: u32, record: Record) {
        if let Some(records) = self.records.get_mut(slot as usize) {
            let _ = records.push(record);
        }
    }
}

/// A packet without payload alone, and what it says. One that is to be thinned may have any options.
fn examine_acknowledgment(
    packet: &[u8],
    known: &Known,
    meta: &Meta,
    now_ns: u64,
    takes_all: bool,
) -> Result<(Candidate, Record), Pass> {
    if let Some(reason) = known.refusal {
        return Err(reason);
    }
    let candidate = examine(packet, &known.shape, meta, true)?;
    if candidate.flags & tcp::FIN as u8 != 0 || candidate.flags & tcp::ACK as u8 == 0 {
        return Err(Pass::TcpFlags);
    }
    if takes_all {
        return Ok((candidate, record_of(packet, &known.shape, meta, now_ns)));
    }
    let (arrived_ns, stamp) = arrival_of(meta, now_ns);
    let class = traffic_class(packet, &known.shape);
    let record = Record::read(packet, known.shape.transport, class, arrived_ns, stamp);
    let record = record.map_err(|reason| match reason {
        Ineligible::Options => Pass::TcpOptions,
        Ineligible::Flags => Pass::TcpFlags,
        Ineligible::Cut | Ineligible::Payload => Pass::Malformed,
    })?;
    Ok((candidate, record))
}

/// What a packet says to the sender, whatever else it holds.
pub(super) fn record_of(packet: &[u8], shape: &Shape, meta: &Meta, now_ns: u64) -> Record {
    let (arrived_ns, stamp) = arrival_of(meta, now_ns);
    let tcp = packet.get(shape.transport..).unwrap_or_default();
    Record::of(tcp, traffic_class(packet, shape), arrived_ns, stamp)
}

fn arrival_of(meta: &Meta, now_ns: u64) -> (u64, Stamp) {
    match meta.timestamp_ns {
        Some(arrived_ns) => (arrived_ns, Stamp::Device),
        None => (now_ns, Stamp::Pushed),
    }
}

/// TOS or traffic class of the innermost IP header.
pub(super) fn traffic_class(packet: &[u8], shape: &Shape) -> u8 {
    let word = u16_at(packet, shape.ip.offset as usize);
    if shape.ip.kind == Kind::Ipv6 { (word >> 4) as u8 } else { word as u8 }
}
