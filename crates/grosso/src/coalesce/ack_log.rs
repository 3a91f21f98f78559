//! Acknowledgments of held trains: records of those that wait as they are, summaries of those that were merged.

use crate::{
    acknowledge::{AckFilter, Record, Records, Stamp, Summary},
    coalesce::{
        Acknowledgments, by_id::ById, examine::traffic_class, shapes::Known, train::Train,
        train_id::TrainId,
    },
    meta::Meta,
    template::shape::Shape,
};

/// Records and summaries of acknowledgments, by the slot of the train that they are in.
#[derive(Debug, Default)]
pub(super) struct AckLog {
    gathers: bool,
    pub(super) records: ById<TrainId, Records>,
    summaries: ById<TrainId, Summarized>,
    pub(super) filter: AckFilter,
}

/// Summary of a train, but for packets that said again what the one before them said. Trains of one packet have none,
/// so the first packet is not looked at before it must be.
#[derive(Clone, Debug, Default)]
struct Summarized {
    summary: Summary,
    /// The last packet that said something else, as of the last one's arrival; none while the first was not looked at.
    last: Option<Record>,
    /// Packets since, and the arrival of the last of them.
    repeats: u32,
    repeated_ns: u64,
}

impl Summarized {
    /// Counts the first packet of the train in, and the repeats.
    #[inline]
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

/// The first packet of a train: what its record is made of.
#[derive(Debug)]
pub(super) struct First<'a> {
    packet: &'a [u8],
    known: &'a Known,
    arrived_ns: u64,
    stamp: Stamp,
}

impl<'a> First<'a> {
    /// That of this train with known headers.
    #[inline(always)]
    pub(super) fn of<B: AsRef<[u8]>>(train: &'a Train<B>, known: &'a Known) -> Self {
        let packet = train.first.buffer.as_ref();
        let (arrived_ns, stamp) = arrival_of(&train.meta, train.created_ns);
        Self { packet, known, arrived_ns, stamp }
    }

    /// Its record.
    fn record(&self) -> Record {
        let Self { packet, known: Known { shape, .. }, arrived_ns, stamp } = *self;
        let tcp = packet.get(shape.transport..).unwrap_or_default();
        Record::of(tcp, traffic_class(packet, shape), arrived_ns, stamp)
    }
}

impl AckLog {
    pub(super) fn new(acknowledgments: Acknowledgments) -> Self {
        let filter = acknowledgments.filtering().map(AckFilter::new).unwrap_or_default();
        Self { gathers: acknowledgments.are_gathered(), filter, ..Self::default() }
    }

    /// Whether a train is of acknowledgments that wait as they are: no other has no payload.
    pub(super) fn is_vector<B: AsRef<[u8]>>(&self, train: &Train<B>) -> bool {
        self.gathers && train.is_empty()
    }

    /// Summary of what the packets of a lossy train acknowledged.
    #[inline(never)]
    pub(super) fn summary(&mut self, slot: TrainId, first: First<'_>) -> Option<&Summary> {
        self.summaries.get_mut(slot).map(|summarized| &*summarized.settle(&first))
    }

    /// Begins the summary of a train with its first packet.
    #[inline]
    pub(super) fn begin(&mut self, slot: TrainId) {
        let summarized = self.summaries.get_or_grow(slot, Summarized::default);
        (summarized.last, summarized.repeats) = (None, 0);
    }

    /// Counts a packet into the summary of its train, of which it is not the first.
    pub(super) fn summarize(
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

    /// Counts a packet with payload that says what the one before it said.
    #[inline]
    pub(super) fn repeat(&mut self, slot: TrainId, meta: &Meta, now_ns: u64) {
        if let Some(summarized) = self.summaries.get_mut(slot) {
            summarized.repeats += 1;
            (summarized.repeated_ns, _) = arrival_of(meta, now_ns);
        }
    }

    /// Begins the records of a train with its first packet.
    #[inline(never)]
    pub(super) fn start(&mut self, slot: TrainId, first: First<'_>) {
        self.records.get_or_grow(slot, Records::new).clear();
        self.push(slot, first.record());
    }

    /// There is room: a vector is not longer than its records may be.
    pub(super) fn push(&mut self, slot: TrainId, record: Record) {
        if let Some(records) = self.records.get_mut(slot) {
            let _ = records.push(record);
        }
    }
}

/// Record of what a packet says to the sender, whatever else it holds.
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
