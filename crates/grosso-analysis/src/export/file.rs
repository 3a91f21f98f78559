//! Parquet file that holds one table. A separate thread compresses and writes it.

use std::{
    fs::File,
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use grosso_sys::path;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
    },
    schema::types::ColumnPath,
};

use crate::{
    capture::{Input, OUTPUT_MODE, refuse_input},
    error::Failure,
    name::{Name, shown},
    reports::export::FileWritten,
    tables::{Batches, Columns, Take},
};

/// Table that is written to a file.
pub(super) struct TableFile<C> {
    batches: Batches<C, PassOn>,
    path: Name,
    /// Name used in messages.
    name: String,
    writer: JoinHandle<Result<u64, ParquetError>>,
    /// Whether the writer still accepts rows.
    goes_on: bool,
}

/// Function that passes batches to the writer.
type PassOn = Box<dyn FnMut(Made) -> bool>;

/// Batch, or the error that prevented it.
type Made = Result<RecordBatch, ArrowError>;

impl<C: Columns> TableFile<C> {
    /// Creates the file for a table. `table` is the name and version of the column set.
    ///
    /// # Errors
    /// Fails if the path is one of the captures, or if the file cannot be created.
    pub(super) fn create(
        path: &Path,
        table: &str,
        columns: C,
        schema: SchemaRef,
        input: &Input,
    ) -> Result<Self, Failure> {
        let name = shown(path);
        if path.as_os_str() == "-" {
            let message = "export: cannot write a table to a pipe, because a Parquet file ends \
                           with an index of offsets";
            return Err(Failure::usage("usage.output", message).hint("pass a file name"));
        }
        refuse_input(input, path, &name)?;
        let failed = |error: &dyn core::fmt::Display| {
            Failure::environment("environment.write", format!("{name}: {error}"))
        };
        let file = path::create(path, OUTPUT_MODE).map_err(|error| failed(&error))?;
        let properties = properties(table);
        let writer = ArrowWriter::try_new(file, schema, Some(properties));
        let writer = writer.map_err(|error| failed(&reason(&error)))?;
        let (to, batches) = sync_channel(BATCHES_WAITING_MAX);
        let thread = thread::Builder::new().name("parquet".into());
        let writer =
            thread.spawn(move || write(writer, batches)).map_err(|error| failed(&error))?;
        let batches = Batches::new(columns, pass_on(to));
        Ok(Self { batches, path: Name::of(path), name, writer, goes_on: true })
    }

    /// Adds a row; returns `false` if the writer accepts no more rows.
    pub(super) fn take<Row>(&mut self, row: Row) -> bool
    where
        C: Take<Row>,
    {
        self.goes_on = self.goes_on && self.batches.take(row);
        self.goes_on
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Fails if the file could not be written.
    pub(super) fn finish(mut self) -> Result<FileWritten, Failure> {
        self.batches.finish();
        drop(self.batches);
        let name = self.name;
        match self.writer.join() {
            Ok(Ok(bytes)) => Ok(FileWritten { path: self.path, bytes }),
            Ok(Err(error)) => {
                let message = format!("{name}: {}", reason(&error));
                Err(Failure::environment("environment.write", message))
            }
            Err(_) => Err(Failure::internal(format!(
                "{name}: the thread that writes the table ended unexpectedly"
            ))),
        }
    }
}

fn pass_on(to: SyncSender<Made>) -> PassOn {
    Box::new(move |batch| to.send(batch).is_ok())
}

fn properties(table: &str) -> WriterProperties {
    let version = KeyValue::new("grosso.table".into(), table.to_owned());
    let mut properties = WriterProperties::builder();
    for column in ASCENDING {
        let column = ColumnPath::from(column.split('.').map(str::to_owned).collect::<Vec<_>>());
        // All values differ, so a dictionary would not help.
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    properties
        .set_compression(Compression::SNAPPY)
        // DuckDB and Polars use statistics to skip row groups, but not pages.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(GROUP_ROWS_MAX))
        .set_created_by(concat!("grosso ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(Some(vec![version]))
        .build()
}

/// Writes batches until the channel closes. Returns the length of the file in bytes.
fn write(mut writer: ArrowWriter<File>, batches: Receiver<Made>) -> Result<u64, ParquetError> {
    for batch in batches {
        writer.write(&batch?)?;
        if writer.in_progress_size() >= GROUP_BYTES_MAX {
            writer.flush()?;
        }
    }
    writer.finish()?;
    Ok(writer.bytes_written() as u64)
}

/// Returns the error message. For an operating system error, this is the system's own message.
fn reason(error: &ParquetError) -> String {
    match error {
        ParquetError::External(source) => source.to_string(),
        other => other.to_string(),
    }
}

/// Columns whose values are nearly ascending, so that rows differ only by small amounts.
const ASCENDING: [&str; 7] =
    ["number", "numbers.list.item", "train", "time", "end", "frame", "offset"];
/// Maximum number of rows in a group. A group is kept in memory, compressed, until it is full.
const GROUP_ROWS_MAX: usize = 1 << 18;
/// Size in bytes at which a group is full.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Maximum number of batches waiting to be written.
const BATCHES_WAITING_MAX: usize = 2;
