//! Streams of record batches for tables. A separate thread reads the captures.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use arrow_array::{RecordBatch, RecordBatchReader, ffi_stream::FFI_ArrowArrayStream};
use arrow_schema::{ArrowError, SchemaRef, ffi::FFI_ArrowSchema};
use grosso_analysis::tables::{
    Batches, Columns, PacketColumns, PacketTable, Take, TrainColumns, Visit,
};
use grosso_report::error::Failure;
use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyCapsule};

use crate::{exception, wait, words};

/// Table that is read again each time its rows are requested.
#[pyclass(frozen, module = "grosso")]
pub(crate) struct Rows {
    table: Table,
    words: Vec<String>,
    /// Capture object. This reference keeps its temporary file from being deleted.
    #[pyo3(get)]
    capture: Py<PyAny>,
}

/// The available tables.
#[derive(Clone, Copy)]
enum Table {
    Packets(PacketTable),
    Trains,
}

#[pymethods]
impl Rows {
    /// Returns the table of packets selected by the arguments of `grosso inspect`, with or without their bytes.
    #[staticmethod]
    fn packets(words: Vec<String>, data: bool, capture: Py<PyAny>) -> Self {
        let table = if data { PacketTable::FramesWithData } else { PacketTable::Frames };
        Self { table: Table::Packets(table), words, capture }
    }

    /// Returns the table of trains produced by the arguments of `grosso coalesce`.
    #[staticmethod]
    fn trains(words: Vec<String>, capture: Py<PyAny>) -> Self {
        Self { table: Table::Trains, words, capture }
    }

    /// Returns the rows as an Arrow C stream. A requested schema is ignored, as the protocol permits.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let reading = Reading::begin(py, self.table, self.words.clone())?;
        let stream = FFI_ArrowArrayStream::new(Box::new(reading));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Returns the columns as an Arrow C schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.table.schema());
        let schema = schema.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

impl Table {
    fn schema(self) -> SchemaRef {
        match self {
            Self::Packets(table) => PacketColumns::schema(table),
            Self::Trains => TrainColumns::schema(),
        }
    }

    /// Reads all rows.
    fn read(self, words: &[String], interrupted: &Arc<AtomicBool>, to: SyncSender<News>) {
        match self {
            Self::Packets(table) => {
                let mut teller = Teller::new(PacketColumns::new(table), to);
                let ended = words::call(words, interrupted).packets(&mut teller);
                teller.finish(ended);
            }
            Self::Trains => {
                let mut teller = Teller::new(TrainColumns::new(), to);
                let ended = words::call(words, interrupted).trains(&mut teller);
                teller.finish(ended);
            }
        }
    }
}

/// Message from the thread that reads a table.
enum News {
    /// The captures are open, and the arguments are valid.
    Open,
    /// A batch of rows.
    Batch(RecordBatch),
    /// Reading failed.
    Failed(Failure),
    /// The rows could not be converted to a batch.
    Broken(ArrowError),
}

/// Function that takes a batch, or an error in its place, and returns whether it wants more.
type Hand = Box<dyn FnMut(Result<RecordBatch, ArrowError>) -> bool>;

/// Sender of messages from the thread that reads a table. The thread ends once there is no receiver.
struct Teller<C> {
    batches: Batches<C, Hand>,
    to: SyncSender<News>,
}

impl<C: Columns> Teller<C> {
    fn new(columns: C, to: SyncSender<News>) -> Self {
        let rows = to.clone();
        let tell = move |batch: Result<RecordBatch, ArrowError>| {
            rows.send(batch.map_or_else(News::Broken, News::Batch)).is_ok()
        };
        Self { batches: Batches::new(columns, Box::new(tell)), to }
    }

    /// Sends the remaining rows, and the error if reading failed.
    fn finish(mut self, ended: Result<(), Failure>) {
        if let (true, Err(error)) = (self.batches.finish(), ended) {
            // If the receiver is gone, nobody needs the failure.
            let _ = self.to.send(News::Failed(error));
        }
    }
}

impl<Row, C: Columns + Take<Row>> Visit<Row> for Teller<C> {
    fn open(&mut self) -> bool {
        self.to.send(News::Open).is_ok()
    }

    fn row(&mut self, row: Row) -> bool {
        self.batches.take(row)
    }
}

/// Maximum number of batches waiting for the consumer.
const BATCHES_WAITING_MAX: usize = 2;

/// Table that a thread is reading. Dropping this value ends the thread.
struct Reading {
    schema: SchemaRef,
    news: Receiver<News>,
    interrupted: Arc<AtomicBool>,
}

impl Reading {
    /// Opens the captures.
    ///
    /// # Errors
    ///
    /// Fails if a capture cannot be opened, or if an argument is invalid.
    fn begin(py: Python<'_>, table: Table, words: Vec<String>) -> PyResult<Self> {
        let interrupted = Arc::<AtomicBool>::default();
        let (to, news) = mpsc::sync_channel(BATCHES_WAITING_MAX);
        let flag = Arc::clone(&interrupted);
        thread::spawn(move || table.read(&words, &flag, to));
        let (news, first) = wait(py, news, &interrupted)?;
        match first {
            News::Open => Ok(Self { schema: table.schema(), news, interrupted }),
            News::Failed(error) => Err(exception(py, &error)),
            News::Batch(_) | News::Broken(_) => Err(PyRuntimeError::new_err(
                "internal error: a Grosso table began with rows instead of its schema",
            )),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.news.recv().ok()? {
            News::Open => self.next(),
            News::Batch(batch) => Some(Ok(batch)),
            News::Broken(error) => Some(Err(error)),
            News::Failed(error) => Some(Err(external(error))),
        }
    }
}

impl RecordBatchReader for Reading {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn external(error: Failure) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}
