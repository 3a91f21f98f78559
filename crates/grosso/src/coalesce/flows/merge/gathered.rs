//! Acknowledgments in trains: pure acknowledgments that wait together unmerged, and the acknowledgments in merged
//! packets.

use core::iter;

use grosso_wire::tcp;

use super::{Merger, verified};
use crate::{
    acknowledge::{Fate, Ineligible, RECORDS_MAX, Record, Records, Stamp},
    coalesce::{
        emit::{
            delivery::{Delivery, Sink, Vector},
            reason::{Close, NoMerge, Pass},
        },
        hold::{
            ack_log::{First, record_of},
            train::{Examined, Train},
        },
        rx::{
            examine::{Candidate, examine_alone, traffic_class},
            shapes::CachedStack,
        },
        slots::{shape_id::ShapeId, train_id::TrainId},
    },
    meta::Meta,
};

impl<B: AsRef<[u8]>> Merger<B> {
    /// Starts tracking the acknowledgments and hold time of a new train with these headers.
    #[inline(always)]
    pub(super) fn watch(&mut self, slot: TrainId, known: ShapeId) {
        if self.is_noted {
            self.note_started(slot);
        } else if !self.shapes[known].is_invertible {
            self.acknowledgments.begin(slot);
        }
    }

    /// Records the hold time of a new train, and the acknowledgment of its first packet.
    #[cold]
    fn note_started(&mut self, slot: TrainId) {
        let Some(train) = self.trains.held(slot) else { return };
        let known = &self.shapes[train.known];
        self.retention.start(slot, train, known.shape.is_tcp);
        if self.acknowledgments.is_vector(train) {
            self.acknowledgments.start(slot, First::of(train, known));
        } else if !known.is_invertible {
            self.acknowledgments.begin(slot);
        }
    }

    /// Records that a packet was appended to a train. Returns the reason if the train is now full.
    #[inline]
    pub(super) fn note_joined(&mut self, slot: TrainId, meta: &Meta, now_ns: u64) -> Option<Close> {
        let train = self.trains.held(slot)?;
        let known = &self.shapes[train.known];
        let part = self.pool.last(&train.rest)?;
        let record = || record_of(part.buffer.as_ref(), &known.shape, meta, now_ns);
        if self.acknowledgments.is_vector(train) {
            self.acknowledgments.push(slot, record());
            return None;
        }
        if !known.is_invertible {
            let (first, has_payload) = (First::of(train, known), !part.range().is_empty());
            self.acknowledgments.summarize(slot, &first, record(), has_payload);
        }
        self.retention.is_full(slot, train.packets).then_some(Close::AcknowledgmentClock)
    }

    /// Stops tracking a train and returns whether it held unmerged acknowledgments.
    #[cold]
    pub(super) fn forget(&mut self, slot: TrainId, train: &Train<B>) -> bool {
        self.retention.end(slot);
        self.acknowledgments.is_vector(train)
    }

    /// Delivers the unmerged acknowledgments of a train: all of them, or only those that no later acknowledgment makes
    /// redundant.
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
        let Self { pool, acknowledgments, stats, .. } = self;
        let records = acknowledgments.records.get(slot).map_or(&[][..], Records::as_slice);
        if self.profile.rules.acknowledgments.filtering().is_none() {
            for part in iter::once(&train.first).chain(pool.iter(train.rest)) {
                stats.count_out(part.range().len(), 1, false);
            }
            stats.vectors += 1;
            stats.vector_packets += records.len() as u64;
            let vector = Vector::new(train.first, train.rest, pool, records, meta, closed);
            return sink.deliver_vector(vector);
        }
        for part in iter::once(&train.first).chain(pool.iter(train.rest)) {
            // This cannot fail: the filter has the same capacity as the list of records.
            let _ = acknowledgments.filter.push(part.bytes().get(transport..).unwrap_or_default());
        }
        let mut next = Some(train.first);
        for (fate, record) in acknowledgments.filter.take().zip(records) {
            let Some(part) = next.take().or_else(|| pool.pop(&mut train.rest)) else { break };
            match fate {
                Fate::Dropped => {
                    stats.filtered += 1;
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
    /// Checks whether a packet may be appended to a train, where the packet is a pure acknowledgment or the train
    /// contains only pure acknowledgments. `known` describes the train's headers, and `own` the packet's.
    pub(super) fn gathers(
        &self,
        examined: &Examined<B>,
        known: &CachedStack,
        own: &CachedStack,
    ) -> Result<(), NoMerge> {
        let Examined { frame, candidate, .. } = examined;
        let (first, packet) = (self.first.buffer.as_ref(), frame.buffer.as_ref());
        let is_full =
            usize::from(self.packets) >= RECORDS_MAX || self.packets >= known.bounds.packets_max;
        // TCP options may differ. The headers before TCP must have the same length, because the offset of the TCP
        // header is stored once for all packets.
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

/// Examines an acknowledgment that will wait unmerged. It may have any options if acknowledgments are filtered.
pub(super) fn examine_acknowledgment(
    packet: &[u8],
    known: &CachedStack,
    meta: &Meta,
) -> Result<Candidate, Pass> {
    if let Some(reason) = known.refusal {
        return Err(reason);
    }
    let candidate = examine_alone(packet, &known.shape, meta, true)?;
    if candidate.flags & tcp::FIN as u8 != 0 || candidate.flags & tcp::ACK as u8 == 0 {
        return Err(Pass::TcpFlags);
    }
    if known.rules.acknowledgments.filtering().is_some() {
        return Ok(candidate);
    }
    let class = traffic_class(packet, &known.shape);
    match Record::read(packet, known.shape.transport, class, 0, Stamp::Pushed) {
        Ok(_) => Ok(candidate),
        Err(Ineligible::Options) => Err(Pass::TcpOptions),
        Err(Ineligible::Flags) => Err(Pass::TcpFlags),
        Err(Ineligible::Truncated | Ineligible::Payload) => Err(Pass::Malformed),
    }
}
