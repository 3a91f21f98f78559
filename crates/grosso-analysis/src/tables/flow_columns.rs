//! Columns of the flow table, which has one row for each TCP or UDP direction that carries data.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, RecordBatch,
    builder::{
        ArrayBuilder, BooleanBuilder, Float64Builder, StringBuilder, UInt16Builder, UInt32Builder,
        UInt64Builder,
    },
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::columns::{Columns, Take};
use crate::{
    evidence::Evidence,
    slowdown::{Cause, FlowRow},
};

/// Columns of the flow table.
#[derive(Debug)]
pub struct FlowColumns {
    schema: SchemaRef,
    protocol: StringBuilder,
    source: StringBuilder,
    destination: StringBuilder,
    source_port: UInt16Builder,
    destination_port: UInt16Builder,
    bytes: UInt64Builder,
    packets: UInt64Builder,
    superframes: UInt64Builder,
    packets_per_train: Float64Builder,
    segment_size: UInt32Builder,
    evidence: StringBuilder,
    guess: BooleanBuilder,
    round_trip_ns: UInt64Builder,
    retransmissions: UInt64Builder,
    lost_before: UInt64Builder,
    lost_after: UInt64Builder,
    cause: StringBuilder,
    merged_trains: UInt64Builder,
    merged_packets_per_train: Float64Builder,
    ended: StringBuilder,
    ended_trains: UInt64Builder,
    held_p50_ns: UInt64Builder,
    held_p99_ns: UInt64Builder,
}

impl FlowColumns {
    /// Creates columns without rows.
    #[must_use]
    pub fn new() -> Self {
        Self {
            schema: Self::schema(),
            protocol: StringBuilder::new(),
            source: StringBuilder::new(),
            destination: StringBuilder::new(),
            source_port: UInt16Builder::new(),
            destination_port: UInt16Builder::new(),
            bytes: UInt64Builder::new(),
            packets: UInt64Builder::new(),
            superframes: UInt64Builder::new(),
            packets_per_train: Float64Builder::new(),
            segment_size: UInt32Builder::new(),
            evidence: StringBuilder::new(),
            guess: BooleanBuilder::new(),
            round_trip_ns: UInt64Builder::new(),
            retransmissions: UInt64Builder::new(),
            lost_before: UInt64Builder::new(),
            lost_after: UInt64Builder::new(),
            cause: StringBuilder::new(),
            merged_trains: UInt64Builder::new(),
            merged_packets_per_train: Float64Builder::new(),
            ended: StringBuilder::new(),
            ended_trains: UInt64Builder::new(),
            held_p50_ns: UInt64Builder::new(),
            held_p99_ns: UInt64Builder::new(),
        }
    }

    /// Returns the names and types of the columns.
    #[must_use]
    pub fn schema() -> SchemaRef {
        let required = |name, kind| Field::new(name, kind, false);
        let optional = |name, kind| Field::new(name, kind, true);
        Arc::new(Schema::new(vec![
            required("protocol", DataType::Utf8),
            required("source", DataType::Utf8),
            required("destination", DataType::Utf8),
            required("source_port", DataType::UInt16),
            required("destination_port", DataType::UInt16),
            required("bytes", DataType::UInt64),
            required("packets", DataType::UInt64),
            required("superframes", DataType::UInt64),
            required("packets_per_train", DataType::Float64),
            required("segment_size", DataType::UInt32),
            optional("evidence", DataType::Utf8),
            required("guess", DataType::Boolean),
            optional("round_trip_ns", DataType::UInt64),
            optional("retransmissions", DataType::UInt64),
            optional("lost_before", DataType::UInt64),
            optional("lost_after", DataType::UInt64),
            optional("cause", DataType::Utf8),
            optional("merged_trains", DataType::UInt64),
            optional("merged_packets_per_train", DataType::Float64),
            optional("ended", DataType::Utf8),
            optional("ended_trains", DataType::UInt64),
            optional("held_p50_ns", DataType::UInt64),
            optional("held_p99_ns", DataType::UInt64),
        ]))
    }
}

impl Default for FlowColumns {
    fn default() -> Self {
        Self::new()
    }
}

impl Take<&FlowRow> for FlowColumns {
    fn take(&mut self, row: &FlowRow) -> usize {
        let (source, destination) = row.endpoints.addresses();
        let (source_port, destination_port) = row.endpoints.ports();
        self.protocol.append_value(row.protocol);
        self.source.append_value(source.to_string());
        self.destination.append_value(destination.to_string());
        self.source_port.append_value(source_port);
        self.destination_port.append_value(destination_port);
        self.bytes.append_value(row.bytes);
        self.packets.append_value(row.packets);
        self.superframes.append_value(row.superframes);
        self.packets_per_train.append_value(row.packets_per_train);
        self.segment_size.append_value(row.segment_bytes);
        self.evidence.append_option(row.segment_source.map(Evidence::code));
        self.guess.append_value(row.segment_guess);
        self.round_trip_ns.append_option(row.round_trip_ns);
        self.retransmissions.append_option(row.retransmissions);
        self.lost_before.append_option(row.lost_before);
        self.lost_after.append_option(row.lost_after);
        self.cause.append_option(row.cause.map(Cause::code));
        let merging = row.merging.as_ref();
        let ended =
            merging.and_then(|merging| merging.ended.iter().max_by_key(|(_, count)| **count));
        let held = merging.and_then(|merging| merging.held_ns);
        self.merged_trains.append_option(merging.map(|merging| merging.trains));
        let per_train = merging.map(|merging| merging.packets_per_train);
        self.merged_packets_per_train.append_option(per_train);
        self.ended.append_option(ended.map(|(reason, _)| reason));
        self.ended_trains.append_option(ended.map(|(_, count)| *count));
        self.held_p50_ns.append_option(held.map(|held| held.p50));
        self.held_p99_ns.append_option(held.map(|held| held.p99));
        row.flow.len()
    }
}

impl Columns for FlowColumns {
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            ArrayBuilder::finish(&mut self.protocol),
            ArrayBuilder::finish(&mut self.source),
            ArrayBuilder::finish(&mut self.destination),
            ArrayBuilder::finish(&mut self.source_port),
            ArrayBuilder::finish(&mut self.destination_port),
            ArrayBuilder::finish(&mut self.bytes),
            ArrayBuilder::finish(&mut self.packets),
            ArrayBuilder::finish(&mut self.superframes),
            ArrayBuilder::finish(&mut self.packets_per_train),
            ArrayBuilder::finish(&mut self.segment_size),
            ArrayBuilder::finish(&mut self.evidence),
            ArrayBuilder::finish(&mut self.guess),
            ArrayBuilder::finish(&mut self.round_trip_ns),
            ArrayBuilder::finish(&mut self.retransmissions),
            ArrayBuilder::finish(&mut self.lost_before),
            ArrayBuilder::finish(&mut self.lost_after),
            ArrayBuilder::finish(&mut self.cause),
            ArrayBuilder::finish(&mut self.merged_trains),
            ArrayBuilder::finish(&mut self.merged_packets_per_train),
            ArrayBuilder::finish(&mut self.ended),
            ArrayBuilder::finish(&mut self.ended_trains),
            ArrayBuilder::finish(&mut self.held_p50_ns),
            ArrayBuilder::finish(&mut self.held_p99_ns),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}
