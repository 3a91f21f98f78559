//! Acknowledgments of held trains: records of those that wait as they are, summaries of those that were merged.

use crate::{
    acknowledge::{AckFilter, Record, Records, Stamp, Summary},
    coalesce::{
        Acknowledgments, by_id::ById, examine::traffic_class, train::Train, train_id::TrainId,
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

/// Summary of a train, but for packets that said again what the one before them said.
#[derive(Clone, Debug, Default)]
struct Summarized {
    summary: Summary,
    /// The last packet that said something else, as of the last one's arrival.
    last: Record,
    /// Packets since.
    repeats: u32,
}

impl Summarized {
    /// Counts the repeats in.
    fn settle(&mut self) -> &mut Summary {
        self.summary.add_data(&self.last, core::mem::take(&mut self.repeats));
        &mut self.summary
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
    #[inline]
    pub(super) fn summary(&mut self, slot: TrainId) -> Option<&Summary> {
        self.summaries.get_mut(slot).map(|summarized| &*summarized.settle())
    }

    /// Counts a packet into the summary of its train, which it may be the first of.
    pub(super) fn summarize(
        &mut self,
        slot: TrainId,
        record: &Record,
        has_payload: bool,
        starts: bool,
    ) {
        let summarized = self.summaries.get_or_grow(slot, Summarized::default);
        if starts {
            *summarized = Summarized::default();
        }
        summarized.settle().add(record, has_payload);
        summarized.last = *record;
    }

    /// Counts a packet with payload that says what the one before it said.
    #[inline]
    pub(super) fn repeat(&mut self, slot: TrainId, meta: &Meta, now_ns: u64) {
        if let Some(summarized) = self.summaries.get_mut(slot) {
            summarized.repeats += 1;
            (summarized.last.arrived_ns, _) = arrival_of(meta, now_ns);
        }
    }

    /// Forgets the records of the train that was in a slot.
    pub(super) fn start(&mut self, slot: TrainId) {
        self.records.get_or_grow(slot, Records::new).clear();
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
