//! Acknowledgments without data that wait for each other as they are, and what those of lossy trains said.

use alloc::vec::Vec;
use core::iter;

use grosso_wire::tcp;

use crate::{
    acknowledge::{Fate, Ineligible, RECORDS_MAX, Record, Records, Stamp, Summary, Thinner},
    coalesce::{
        Acknowledgments, Coalescer, Delivery, Sink, Vector,
        examine::{Candidate, examine_alone, traffic_class},
        reason::{Close, NoMerge, Pass},
        shapes::Known,
        train::{Arrival, Train},
        train_id::TrainId,
        verified,
    },
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
    /// Notes a train that just started: how long it may be held, and what its first packet acknowledged.
    #[cold]
    pub(super) fn note_started(&mut self, slot: TrainId, now_ns: u64) {
        self.control(slot);
        let Some(train) = self.trains.held(slot) else { return };
        let known = &self.shapes[train.known];
        let record = || record_of(train.first.buffer.as_ref(), &known.shape, &train.meta, now_ns);
        if self.noted.is_vector(train) {
            self.noted.start(slot);
            self.noted.push(slot, record());
        } else if !known.is_invertible {
            self.noted.summarize(slot, &record(), !train.is_empty(), true);
        }
    }

    /// Notes that a packet joined a train as its last part; gives the reason why nothing may follow it.
    #[inline]
    pub(super) fn note_joined(&mut self, slot: TrainId, meta: &Meta, now_ns: u64) -> Option<Close> {
        let train = self.trains.held(slot)?;
        let known = &self.shapes[train.known];
        let part = self.pool.last(&train.rest)?;
        let record = || record_of(part.buffer.as_ref(), &known.shape, meta, now_ns);
        if self.noted.is_vector(train) {
            self.noted.push(slot, record());
            return None;
        }
        if !known.is_invertible {
            self.noted.summarize(slot, &record(), !part.range().is_empty(), false);
        }
        let controller = self.controller.as_ref().filter(|_| known.shape.is_tcp)?;
        controller.is_full(train).then_some(Close::AcknowledgmentClock)
    }

    /// Lets the controller forget a train that leaves; whether it is of acknowledgments that waited.
    #[cold]
    pub(super) fn forget(&mut self, slot: TrainId, train: &Train<B>) -> bool {
        if let Some(controller) = &mut self.controller {
            controller.left(slot);
        }
        self.noted.is_vector(train)
    }

    /// Delivers acknowledgments that waited: all of them, or those that say something which no later one does.
    #[cold]
    pub(super) fn deliver_gathered(
        &mut self,
        slot: TrainId,
        mut train: Train<B>,
        closed: Close,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let known = &self.shapes[train.known];
        let meta = verified(&known.shape, train.partial, train.meta);
        let transport = known.shape.transport;
        let Self { pool, noted, stats, .. } = self;
        let records = noted.records.get(slot.slot()).map_or(&[][..], Records::as_slice);
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

impl<B: AsRef<[u8]>> Train<B> {
    /// Whether an acknowledgment without data waits with those of this train, or anything with a train of them. The
    /// headers of the train are known, and those of the packet.
    pub(super) fn gathers(
        &self,
        arrival: &Arrival<B>,
        known: &Known,
        own: &Known,
    ) -> Result<(), NoMerge> {
        let Arrival { frame, candidate, .. } = arrival;
        let (first, packet) = (self.first.buffer.as_ref(), frame.buffer.as_ref());
        let is_full =
            usize::from(self.packets) >= RECORDS_MAX || self.packets >= known.bounds.packets_max;
        // Options may differ, and what is in front of TCP may not: one place says where it is.
        let stacks_agree = known.shape.transport == own.shape.transport
            && known.shape.covers.len() == own.shape.covers.len();
        let are_empty = self.is_empty() && candidate.payload_len == 0;
        let checks = [
            (are_empty, NoMerge::TcpAcknowledgmentAlone),
            (stacks_agree, NoMerge::HeaderStack),
            (known.keys.are_alike(first, &own.keys, packet), NoMerge::OtherFlow),
            (self.meta.vlan == frame.meta.vlan, NoMerge::VlanTag),
            (self.partial == candidate.partial, NoMerge::ChecksumState),
            (!is_full, NoMerge::SegmentLimit),
        ];
        checks.iter().find(|(holds, _)| !holds).map_or(Ok(()), |&(_, refusal)| Err(refusal))
    }
}

impl Noted {
    pub(super) fn new(acknowledgments: Acknowledgments) -> Self {
        let thinner = acknowledgments.thinning().map(Thinner::new).unwrap_or_default();
        Self { gathers: acknowledgments.are_gathered(), thinner, ..Self::default() }
    }

    /// Whether a train is of acknowledgments that wait as they are: no other has no payload.
    pub(super) fn is_vector<B: AsRef<[u8]>>(&self, train: &Train<B>) -> bool {
        self.gathers && train.is_empty()
    }

    /// What the packets of a lossy train acknowledged.
    #[inline]
    pub(super) fn summary(&self, slot: TrainId) -> Option<&Summary> {
        self.summaries.get(slot.slot())
    }

    /// Counts a packet into the summary of its train, which it may be the first of.
    fn summarize(&mut self, slot: TrainId, record: &Record, has_payload: bool, starts: bool) {
        let place = slot.slot();
        if self.summaries.len() <= place {
            self.summaries.resize(place + 1, Summary::default());
        }
        let summary = &mut self.summaries[place];
        if starts {
            *summary = Summary::default();
        }
        summary.add(record, has_payload);
    }

    /// Forgets the records of the train that was in a slot.
    fn start(&mut self, slot: TrainId) {
        let place = slot.slot();
        if self.records.len() <= place {
            self.records.resize_with(place + 1, Records::new);
        }
        self.records[place].clear();
    }

    /// There is room: a vector is not longer than its records may be.
    fn push(&mut self, slot: TrainId, record: Record) {
        if let Some(records) = self.records.get_mut(slot.slot()) {
            let _ = records.push(record);
        }
    }
}

/// Examines a packet without payload that is to wait for others as it is. One that is to be thinned may have any
/// options.
pub(super) fn examine_acknowledgment(
    packet: &[u8],
    known: &Known,
    meta: &Meta,
) -> Result<Candidate, Pass> {
    if let Some(reason) = known.refusal {
        return Err(reason);
    }
    let candidate = examine_alone(packet, &known.shape, meta, true)?;
    if candidate.flags & tcp::FIN as u8 != 0 || candidate.flags & tcp::ACK as u8 == 0 {
        return Err(Pass::TcpFlags);
    }
    if known.rules.acknowledgments.thinning().is_some() {
        return Ok(candidate);
    }
    let class = traffic_class(packet, &known.shape);
    match Record::read(packet, known.shape.transport, class, 0, Stamp::Pushed) {
        Ok(_) => Ok(candidate),
        Err(Ineligible::Options) => Err(Pass::TcpOptions),
        Err(Ineligible::Flags) => Err(Pass::TcpFlags),
        Err(Ineligible::Cut | Ineligible::Payload) => Err(Pass::Malformed),
    }
}

/// What a packet says to the sender, whatever else it holds.
fn record_of(packet: &[u8], shape: &Shape, meta: &Meta, now_ns: u64) -> Record {
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
