//! Columns of all tables, for the files that `export` writes and for Python.
//!
//! `docs/export.md` describes the columns.

use core::net::IpAddr;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, RecordBatch,
    builder::{
        ArrayBuilder, BinaryBuilder, BooleanBuilder, ListBuilder, StringBuilder,
        TimestampNanosecondBuilder, UInt16Builder, UInt32Builder, UInt64Builder,
    },
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{
    FrameOrigin, Headers,
    packets::{FrameFinding, Packet},
    trains::TrainRow,
};

/// Columns of a table that is being built.
pub trait Columns {
    /// Returns the rows added since the last batch, as a new batch.
    ///
    /// # Errors
    ///
    /// Fails if the columns do not match each other or the schema, which would be a bug.
    fn finish(&mut self) -> Result<RecordBatch, ArrowError>;
}

/// Columns that accept rows of type `Row`.
pub trait Take<Row> {
    /// Appends a row. Returns how many bytes its variable-length values take.
    fn take(&mut self, row: Row) -> usize;
}

/// Columns for the headers of a packet.
#[derive(Debug, Default)]
struct HeaderColumns {
    protocol: StringBuilder,
    source: AddressColumn,
    destination: AddressColumn,
    source_port: UInt16Builder,
    destination_port: UInt16Builder,
    payload: UInt32Builder,
}

impl HeaderColumns {
    fn fields() -> [Field; 6] {
        [
            Field::new("protocol", DataType::Utf8, true),
            Field::new("source", DataType::Utf8, true),
            Field::new("destination", DataType::Utf8, true),
            Field::new("source_port", DataType::UInt16, true),
            Field::new("destination_port", DataType::UInt16, true),
            Field::new("payload", DataType::UInt32, true),
        ]
    }

    fn take(&mut self, headers: &Headers<'_>) {
        self.protocol.append_option(headers.protocol);
        let addresses = headers.addresses;
        self.source.append(addresses.map(|(source, _)| source));
        self.destination.append(addresses.map(|(_, destination)| destination));
        self.source_port.append_option(headers.ports.map(|(source, _)| source));
        self.destination_port.append_option(headers.ports.map(|(_, destination)| destination));
        self.payload.append_option(headers.payload);
    }

    fn finish(&mut self) -> [ArrayRef; 6] {
        [
            ArrayBuilder::finish(&mut self.protocol),
            ArrayBuilder::finish(&mut self.source.text),
            ArrayBuilder::finish(&mut self.destination.text),
            ArrayBuilder::finish(&mut self.source_port),
            ArrayBuilder::finish(&mut self.destination_port),
            ArrayBuilder::finish(&mut self.payload),
        ]
    }
}

/// Column of addresses in text form. Consecutive packets often belong to the same flow, so the last address is cached.
#[derive(Debug, Default)]
struct AddressColumn {
    text: StringBuilder,
    last: Option<(IpAddr, String)>,
}

impl AddressColumn {
    fn append(&mut self, address: Option<IpAddr>) {
        let Some(address) = address else { return self.text.append_null() };
        match &self.last {
            Some((last, text)) if *last == address => self.text.append_value(text),
            _ => {
                let text = address.to_string();
                self.text.append_value(&text);
                self.last = Some((address, text));
            }
        }
    }
}

/// Columns for a frame's position in its file.
#[derive(Debug, Default)]
struct OriginColumns {
    file: StringBuilder,
    frame: UInt64Builder,
    offset: UInt64Builder,
}

impl OriginColumns {
    fn fields() -> [Field; 3] {
        [
            Field::new("file", DataType::Utf8, false),
            Field::new("frame", DataType::UInt64, false),
            Field::new("offset", DataType::UInt64, false),
        ]
    }

    fn take(&mut self, origin: &FrameOrigin<'_>) {
        self.file.append_value(origin.file);
        self.frame.append_value(origin.frame);
        self.offset.append_value(origin.offset);
    }

    fn finish(&mut self) -> [ArrayRef; 3] {
        [
            ArrayBuilder::finish(&mut self.file),
            ArrayBuilder::finish(&mut self.frame),
            ArrayBuilder::finish(&mut self.offset),
        ]
    }
}

/// Columns for what is known about the frame that contained a wire packet.
#[derive(Debug, Default)]
struct FindingColumns {
    segment: UInt32Builder,
    checksum: StringBuilder,
    evidence: StringBuilder,
    guess: BooleanBuilder,
    left: StringBuilder,
    event: StringBuilder,
}

impl FindingColumns {
    fn fields() -> [Field; 6] {
        [
            Field::new("segment", DataType::UInt32, true),
            Field::new("checksum", DataType::Utf8, true),
            Field::new("evidence", DataType::Utf8, true),
            Field::new("guess", DataType::Boolean, false),
            Field::new("left", DataType::Utf8, true),
            Field::new("event", DataType::Utf8, true),
        ]
    }

    fn take(&mut self, finding: &FrameFinding) {
        self.segment.append_option(finding.segment);
        self.checksum.append_option(finding.checksum);
        self.evidence.append_option(finding.evidence);
        self.guess.append_value(finding.is_guess);
        self.left.append_option(finding.left);
        self.event.append_option(finding.event);
    }

    fn finish(&mut self) -> [ArrayRef; 6] {
        [
            ArrayBuilder::finish(&mut self.segment),
            ArrayBuilder::finish(&mut self.checksum),
            ArrayBuilder::finish(&mut self.evidence),
            ArrayBuilder::finish(&mut self.guess),
            ArrayBuilder::finish(&mut self.left),
            ArrayBuilder::finish(&mut self.event),
        ]
    }
}

/// Columns of a packet table.
#[derive(Debug)]
pub struct PacketColumns {
    schema: SchemaRef,
    number: UInt64Builder,
    time: TimestampNanosecondBuilder,
    interface: UInt32Builder,
    length: UInt32Builder,
    headers: HeaderColumns,
    packets: UInt32Builder,
    segment_size: UInt16Builder,
    origin: OriginColumns,
    /// Findings; only in tables of wire packets.
    finding: Option<FindingColumns>,
    /// Captured bytes, if requested.
    data: Option<BinaryBuilder>,
}

/// Kind of packet table. The kinds differ in some of their columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketTable {
    /// Captured frames, without their bytes.
    Frames,
    /// Captured frames, with their bytes.
    FramesWithData,
    /// Wire packets.
    Wire,
}

impl PacketColumns {
    /// Creates columns without rows.
    #[must_use]
    pub fn new(table: PacketTable) -> Self {
        Self {
            schema: Self::schema(table),
            number: UInt64Builder::new(),
            time: times(),
            interface: UInt32Builder::new(),
            length: UInt32Builder::new(),
            headers: HeaderColumns::default(),
            packets: UInt32Builder::new(),
            segment_size: UInt16Builder::new(),
            origin: OriginColumns::default(),
            finding: (table == PacketTable::Wire).then(FindingColumns::default),
            data: (table == PacketTable::FramesWithData).then(BinaryBuilder::new),
        }
    }

    /// Returns the names and types of the columns.
    #[must_use]
    pub fn schema(table: PacketTable) -> SchemaRef {
        let mut fields = vec![
            Field::new("number", DataType::UInt64, false),
            Field::new("time", time_type(), true),
            Field::new("interface", DataType::UInt32, false),
            Field::new("length", DataType::UInt32, false),
        ];
        fields.extend(HeaderColumns::fields());
        fields.push(Field::new("packets", DataType::UInt32, true));
        fields.push(Field::new("segment_size", DataType::UInt16, true));
        fields.extend(OriginColumns::fields());
        match table {
            PacketTable::Frames => {}
            PacketTable::FramesWithData => fields.push(Field::new("data", DataType::Binary, false)),
            PacketTable::Wire => fields.extend(FindingColumns::fields()),
        }
        Arc::new(Schema::new(fields))
    }
}

impl Take<Packet<'_>> for PacketColumns {
    fn take(&mut self, row: Packet<'_>) -> usize {
        self.number.append_value(row.number);
        self.time.append_option(signed(row.time_ns));
        self.interface.append_value(row.interface);
        self.length.append_value(row.length);
        self.headers.take(&row.headers);
        self.packets.append_option(row.packets);
        self.segment_size.append_option(row.segment_size);
        self.origin.take(&row.origin);
        self.finding.iter_mut().for_each(|columns| columns.take(&row.finding));
        self.data.as_mut().map_or(0, |data| {
            data.append_value(row.data);
            row.data.len()
        })
    }
}

impl Columns for PacketColumns {
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns = vec![
            ArrayBuilder::finish(&mut self.number),
            ArrayBuilder::finish(&mut self.time),
            ArrayBuilder::finish(&mut self.interface),
            ArrayBuilder::finish(&mut self.length),
        ];
        columns.extend(self.headers.finish());
        columns.push(ArrayBuilder::finish(&mut self.packets));
        columns.push(ArrayBuilder::finish(&mut self.segment_size));
        columns.extend(self.origin.finish());
        columns.extend(self.finding.as_mut().into_iter().flat_map(FindingColumns::finish));
        columns.extend(self.data.as_mut().map(ArrayBuilder::finish));
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

/// Columns of a train table.
#[derive(Debug)]
pub struct TrainColumns {
    schema: SchemaRef,
    train: UInt64Builder,
    numbers: ListBuilder<UInt64Builder>,
    time: TimestampNanosecondBuilder,
    end: TimestampNanosecondBuilder,
    interface: UInt32Builder,
    packets: UInt32Builder,
    length: UInt64Builder,
    segment_size: UInt16Builder,
    headers: HeaderColumns,
    closed: StringBuilder,
    why: StringBuilder,
    origin: OriginColumns,
    held_ns: UInt64Builder,
}

impl TrainColumns {
    /// Creates columns without rows.
    #[must_use]
    pub fn new() -> Self {
        Self {
            schema: Self::schema(),
            train: UInt64Builder::new(),
            numbers: ListBuilder::new(UInt64Builder::new()).with_field(number_item()),
            time: times(),
            end: times(),
            interface: UInt32Builder::new(),
            packets: UInt32Builder::new(),
            length: UInt64Builder::new(),
            segment_size: UInt16Builder::new(),
            headers: HeaderColumns::default(),
            closed: StringBuilder::new(),
            why: StringBuilder::new(),
            origin: OriginColumns::default(),
            held_ns: UInt64Builder::new(),
        }
    }

    /// Returns the names and types of the columns.
    #[must_use]
    pub fn schema() -> SchemaRef {
        let mut fields = vec![
            Field::new("train", DataType::UInt64, false),
            Field::new("numbers", DataType::List(Arc::new(number_item())), false),
            Field::new("time", time_type(), true),
            Field::new("end", time_type(), true),
            Field::new("interface", DataType::UInt32, false),
            Field::new("packets", DataType::UInt32, false),
            Field::new("length", DataType::UInt64, false),
            Field::new("segment_size", DataType::UInt16, true),
        ];
        fields.extend(HeaderColumns::fields());
        fields.push(Field::new("closed", DataType::Utf8, false));
        fields.push(Field::new("why", DataType::Utf8, true));
        fields.extend(OriginColumns::fields());
        fields.push(Field::new("held_ns", DataType::UInt64, true));
        Arc::new(Schema::new(fields))
    }
}

impl Default for TrainColumns {
    fn default() -> Self {
        Self::new()
    }
}

impl Take<TrainRow<'_>> for TrainColumns {
    fn take(&mut self, row: TrainRow<'_>) -> usize {
        self.train.append_value(row.train);
        self.numbers.values().append_slice(row.numbers);
        self.numbers.append(true);
        let (first, last) = row.times_ns.unzip();
        self.time.append_option(signed(first));
        self.end.append_option(signed(last));
        self.interface.append_value(row.interface);
        self.packets.append_value(row.packets);
        self.length.append_value(row.length);
        self.segment_size.append_option(row.segment_size);
        self.headers.take(&row.headers);
        self.closed.append_value(row.closed);
        self.why.append_option(row.why);
        self.origin.take(&row.origin);
        self.held_ns.append_option(row.held_ns);
        size_of_val(row.numbers)
    }
}

impl Columns for TrainColumns {
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns = vec![
            ArrayBuilder::finish(&mut self.train),
            ArrayBuilder::finish(&mut self.numbers),
            ArrayBuilder::finish(&mut self.time),
            ArrayBuilder::finish(&mut self.end),
            ArrayBuilder::finish(&mut self.interface),
            ArrayBuilder::finish(&mut self.packets),
            ArrayBuilder::finish(&mut self.length),
            ArrayBuilder::finish(&mut self.segment_size),
        ];
        columns.extend(self.headers.finish());
        columns.push(ArrayBuilder::finish(&mut self.closed));
        columns.push(ArrayBuilder::finish(&mut self.why));
        columns.extend(self.origin.finish());
        columns.push(ArrayBuilder::finish(&mut self.held_ns));
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

fn number_item() -> Field {
    Field::new("item", DataType::UInt64, false)
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
}

fn times() -> TimestampNanosecondBuilder {
    TimestampNanosecondBuilder::new().with_data_type(time_type())
}

/// Converts a time to Arrow's type; `None` if it is beyond the year 2262.
fn signed(time_ns: Option<u64>) -> Option<i64> {
    i64::try_from(time_ns?).ok()
}

/// Time zone of capture times.
const UTC: &str = "UTC";
