//! A reading in a thread of its own, as a stream of record batches.

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
use grosso_cli::library::{self, Error};
use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyCapsule};

use crate::{
    batches::{BATCHES_WAITING_MAX, Batches, News},
    columns::{PacketColumns, TrainColumns},
    exception, wait,
};

/// A table that is read anew each time that somebody asks for its rows.
#[pyclass(frozen, module = "grosso")]
pub(crate) struct Rows {
    table: Table,
    words: Vec<String>,
    /// The capture, whose temporary file is there until this is gone.
    #[pyo3(get)]
    capture: Py<PyAny>,
}

/// The tables that there are.
#[derive(Clone, Copy)]
enum Table {
    Packets { has_data: bool },
    Trains,
}

#[pymethods]
impl Rows {
    /// The packets that the words of `grosso inspect` name, with their bytes or without.
    #[staticmethod]
    fn packets(words: Vec<String>, data: bool, capture: Py<PyAny>) -> Self {
        Self { table: Table::Packets { has_data: data }, words, capture }
    }

    /// The trains that the words of `grosso coalesce` make.
    #[staticmethod]
    fn trains(words: Vec<String>, capture: Py<PyAny>) -> Self {
        Self { table: Table::Trains, words, capture }
    }

    /// The rows as an Arrow C stream. A schema that is asked for is not obeyed, which the protocol allows.
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

    /// The columns as an Arrow C schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.table.schema());
        let schema = schema.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

impl Table {
    fn schema(self) -> SchemaRef {
        match self {
            Self::Packets { has_data } => PacketColumns::schema(has_data),
            Self::Trains => TrainColumns::schema(),
        }
    }

    /// Reads all rows.
    fn read(self, words: &[String], interrupted: &Arc<AtomicBool>, to: SyncSender<News>) {
        match self {
            Self::Packets { has_data } => {
                let mut batches = Batches::new(PacketColumns::new(has_data), to);
                let ended = library::packets(words, interrupted, &mut batches);
                batches.finish(ended);
            }
            Self::Trains => {
                let mut batches = Batches::new(TrainColumns::new(), to);
                let ended = library::trains(words, interrupted, &mut batches);
                batches.finish(ended);
            }
        }
    }
}

/// A reading under way. Its thread ends when this is dropped.
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
    /// If that fails, the failure.
    fn begin(py: Python<'_>, table: Table, words: Vec<String>) -> PyResult<Self> {
        let interrupted = Arc::<AtomicBool>::default();
        let (to, news) = mpsc::sync_channel(BATCHES_WAITING_MAX);
        let flag = Arc::clone(&interrupted);
        thread::spawn(move || table.read(&words, &flag, to));
        let (news, first) = wait(py, news, &interrupted)?;
        match first {
            News::Open => Ok(Self { schema: table.schema(), news, interrupted }),
            News::Failed(error) => Err(exception(py, &error)),
            News::Batch(_) | News::Broken(_) => {
                Err(PyRuntimeError::new_err("a table of grosso began with its rows"))
            }
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

fn external(error: Error) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}
