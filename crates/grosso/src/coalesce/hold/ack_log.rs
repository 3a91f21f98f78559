//! Acknowledgments of held trains: records of unmerged acknowledgments, and summaries of merged ones.

use crate::{
    acknowledge::{AckFilter, Record, Records, Stamp, Summary},
    coalesce::{
        hold::train::Train,
        profile::Acknowledgments,
        rx::{examine::traffic_class, shapes::CachedStack},
        slots::{slot_map::SlotMap, train_id::TrainId},
    },
    meta::Meta,
    template::shape::Shape,
};

/// Records and summaries of acknowledgments, by train slot.
#[derive(Debug, Default)]
pub(crate) struct AckLog {
    gathers: bool,
    pub(crate) records: SlotMap<TrainId, Records>,
    summaries: SlotMap<TrainId, Summarized>,
    pub(crate) filter: AckFilter,
}

/// Summary of a train, except for trailing packets that repeat the acknowledgment before them. A train of one packet
/// has no summary yet: its first packet is read only when needed.
#[derive(Clone, Debug, Default)]
struct Summarized {
    summary: Summary,
    /// Record of the last packet in the summary, with the arrival time of the last counted packet that repeats it.
    /// `None` until the first packet is read.
    last: Option<Record>,
    /// Number of packets since `last` that repeat its acknowledgment.
    repeats: u32,
    /// Arrival time of the last repeating packet.
    repeated_ns: u64,
}

impl Summarized {
    /// Adds the first packet of the train and the trailing repetitions to the summary.
    fn settle(&mut self, first: &First<'_>) -> &mut Summary {
        let Self { summary, last, repeats, repeated_ns } = self;
        let last = last.get_or_insert_with(|| {
            let record = first.record();
            *summary = Summary::default();
            summary.add(&record, !first.known.is_empty(first.packet));
            record
        });
        if *repeats > 0 {
            last.arrived_ns = *repeated_ns;
            summary.add_data(last, core::mem::take(repeats));
        }
        summary
    }
}

/// First packet of a train. Its record is read only when needed.
#[derive(Debug)]
pub(crate) struct First<'a> {
    packet: &'a [u8],
    known: &'a CachedStack,
    arrived_ns: u64,
    stamp: Stamp,
}

impl<'a> First<'a> {
    /// Returns the first packet of a train with known headers.
    #[inline(always)]
    pub(crate) fn of<B: AsRef<[u8]>>(train: &'a Train<B>, known: &'a CachedStack) -> Self {
        let packet = train.first.bytes();
        let (arrived_ns, stamp) = arrival_of(&train.meta, train.created_ns);
        Self { packet, known, arrived_ns, stamp }
    }

    /// Returns the record of the first packet.
    fn record(&self) -> Record {
        let Self { packet, known: CachedStack { shape, .. }, arrived_ns, stamp } = *self;
        let tcp = packet.get(shape.transport..).unwrap_or_default();
        Record::of(tcp, traffic_class(packet, shape), arrived_ns, stamp)
    }
}

impl AckLog {
    pub(crate) fn new(acknowledgments: Acknowledgments) -> Self {
        let filter = acknowledgments.filtering().map(AckFilter::new).unwrap_or_default();
        Self { gathers: acknowledgments.are_gathered(), filter, ..Self::default() }
    }

    /// Returns whether a train holds unmerged acknowledgments, which is the case if and only if it has no payload.
    pub(crate) fn is_vector<B: AsRef<[u8]>>(&self, train: &Train<B>) -> bool {
        self.gathers && train.is_empty()
    }

    /// Returns the summary of the acknowledgments in a lossy train.
    #[inline(never)]
    pub(crate) fn summary(&mut self, slot: TrainId, first: First<'_>) -> Option<&Summary> {
        self.summaries.get_mut(slot).map(|summarized| &*summarized.settle(&first))
    }

    /// Starts the summary of a train with its first packet.
    #[inline]
    pub(crate) fn begin(&mut self, slot: TrainId) {
        let summarized = self.summaries.get_or_grow(slot, Summarized::default);
        (summarized.last, summarized.repeats) = (None, 0);
    }

    /// Adds a packet other than the first to the summary of its train.
    pub(crate) fn summarize(
        &mut self,
        slot: TrainId,
        first: &First<'_>,
        record: Record,
        has_payload: bool,
    ) {
        if let Some(summarized) = self.summaries.get_mut(slot) {
            summarized.settle(first).add(&record, has_payload);
            summarized.last = Some(record);
        }
    }

    /// Counts a packet with payload that repeats the acknowledgment before it.
    pub(crate) fn repeat(&mut self, slot: TrainId, meta: &Meta, now_ns: u64) {
        if let Some(summarized) = self.summaries.get_mut(slot) {
            summarized.repeats += 1;
            (summarized.repeated_ns, _) = arrival_of(meta, now_ns);
        }
    }

    /// Starts the records of a train with its first packet.
    #[inline(never)]
    pub(crate) fn start(&mut self, slot: TrainId, first: First<'_>) {
        self.records.get_or_grow(slot, Records::new).clear();
        self.push(slot, first.record());
    }

    /// Appends a record. The list cannot be full, because a vector has at most as many packets as the list has records.
    pub(crate) fn push(&mut self, slot: TrainId, record: Record) {
        if let Some(records) = self.records.get_mut(slot) {
            let _ = records.push(record);
        }
    }
}

/// Returns the record of a packet's acknowledgment, whatever else the packet contains.
pub(crate) fn record_of(packet: &[u8], shape: &Shape, meta: &Meta, now_ns: u64) -> Record {
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
