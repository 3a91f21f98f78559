//! The columns of each table.

use core::{fmt::Write, net::IpAddr};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, RecordBatch,
    builder::{
        ArrayBuilder, BinaryBuilder, ListBuilder, StringBuilder, TimestampNanosecondBuilder,
        UInt16Builder, UInt32Builder, UInt64Builder,
    },
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use grosso_cli::library::{Headers, Packet, Train};

/// Columns of a table under construction.
pub(crate) trait Columns {
    /// The rows since the last batch, as a batch.
    fn finish(&mut self) -> Result<RecordBatch, ArrowError>;
}

/// Columns that take rows of a kind.
pub(crate) trait Take<Row> {
    /// Appends a row, and returns its bytes of variable length.
    fn take(&mut self, row: Row) -> usize;
}

/// The columns about the headers of a packet.
#[derive(Default)]
struct HeaderColumns {
    protocol: StringBuilder,
    source: StringBuilder,
    destination: StringBuilder,
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
        append_address(&mut self.source, addresses.map(|(source, _)| source));
        append_address(&mut self.destination, addresses.map(|(_, destination)| destination));
        self.source_port.append_option(headers.ports.map(|(source, _)| source));
        self.destination_port.append_option(headers.ports.map(|(_, destination)| destination));
        self.payload.append_option(headers.payload);
    }

    fn finish(&mut self) -> [ArrayRef; 6] {
        [
            ArrayBuilder::finish(&mut self.protocol),
            ArrayBuilder::finish(&mut self.source),
            ArrayBuilder::finish(&mut self.destination),
            ArrayBuilder::finish(&mut self.source_port),
            ArrayBuilder::finish(&mut self.destination_port),
            ArrayBuilder::finish(&mut self.payload),
        ]
    }
}

/// The columns of packets.
pub(crate) struct PacketColumns {
    schema: SchemaRef,
    number: UInt64Builder,
    time: TimestampNanosecondBuilder,
    interface: UInt32Builder,
    length: UInt32Builder,
    headers: HeaderColumns,
    packets: UInt32Builder,
    segment_size: UInt16Builder,
    /// The bytes captured, if they are wanted.
    data: Option<BinaryBuilder>,
}

impl PacketColumns {
    pub(crate) fn new(has_data: bool) -> Self {
        Self {
            schema: Self::schema(has_data),
            number: UInt64Builder::new(),
            time: times(),
            interface: UInt32Builder::new(),
            length: UInt32Builder::new(),
            headers: HeaderColumns::default(),
            packets: UInt32Builder::new(),
            segment_size: UInt16Builder::new(),
            data: has_data.then(BinaryBuilder::new),
        }
    }

    pub(crate) fn schema(has_data: bool) -> SchemaRef {
        let mut fields = vec![
            Field::new("number", DataType::UInt64, false),
            Field::new("time", time_type(), true),
            Field::new("interface", DataType::UInt32, false),
            Field::new("length", DataType::UInt32, false),
        ];
        fields.extend(HeaderColumns::fields());
        fields.push(Field::new("packets", DataType::UInt32, true));
        fields.push(Field::new("segment_size", DataType::UInt16, true));
        fields.extend(has_data.then(|| Field::new("data", DataType::Binary, false)));
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
        columns.extend(self.data.as_mut().map(ArrayBuilder::finish));
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

/// The columns of trains.
pub(crate) struct TrainColumns {
    schema: SchemaRef,
    numbers: ListBuilder<UInt64Builder>,
    time: TimestampNanosecondBuilder,
    end: TimestampNanosecondBuilder,
    interface: UInt32Builder,
    packets: UInt32Builder,
    length: UInt64Builder,
    segment_size: UInt16Builder,
    headers: HeaderColumns,
    closed: StringBuilder,
}

impl TrainColumns {
    pub(crate) fn new() -> Self {
        Self {
            schema: Self::schema(),
            numbers: ListBuilder::new(UInt64Builder::new()).with_field(number_item()),
            time: times(),
            end: times(),
            interface: UInt32Builder::new(),
            packets: UInt32Builder::new(),
            length: UInt64Builder::new(),
            segment_size: UInt16Builder::new(),
            headers: HeaderColumns::default(),
            closed: StringBuilder::new(),
        }
    }

    pub(crate) fn schema() -> SchemaRef {
        let mut fields = vec![
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
        Arc::new(Schema::new(fields))
    }
}

impl Take<Train<'_>> for TrainColumns {
    fn take(&mut self, row: Train<'_>) -> usize {
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
        size_of_val(row.numbers)
    }
}

impl Columns for TrainColumns {
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns = vec![
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

/// A time as Arrow has it; none beyond the year 2262.
fn signed(time_ns: Option<u64>) -> Option<i64> {
    i64::try_from(time_ns?).ok()
}

fn append_address(column: &mut StringBuilder, address: Option<IpAddr>) {
    match address {
        // Text into a builder cannot fail.
        Some(address) => match write!(column, "{address}") {
            Ok(()) => column.append_value(""),
            Err(_) => column.append_null(),
        },
        None => column.append_null(),
    }
}

/// The zone of capture times.
const UTC: &str = "UTC";
