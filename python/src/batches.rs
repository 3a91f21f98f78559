//! Rows of tables in, record batches of bounded size out.

use std::sync::mpsc::SyncSender;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use grosso_cli::library::{Error, Visit};

use crate::columns::{Columns, Take};

/// The news of a reading.
pub(crate) enum News {
    /// The captures are open, and the words are right.
    Open,
    /// Rows.
    Batch(RecordBatch),
    /// The reading ended with a failure.
    Failed(Error),
    /// The rows could not be made into a batch.
    Broken(ArrowError),
}

/// Gathers rows, and sends them on in batches. The reading ends when nobody takes them any more.
pub(crate) struct Batches<C> {
    columns: C,
    rows: usize,
    bytes: usize,
    to: SyncSender<News>,
}

impl<C: Columns> Batches<C> {
    pub(crate) fn new(columns: C, to: SyncSender<News>) -> Self {
        Self { columns, rows: 0, bytes: 0, to }
    }

    /// Sends the rows that are left, and the failure that the reading ended with.
    pub(crate) fn finish(mut self, ended: Result<(), Error>) {
        let goes_on = self.rows == 0 || self.send();
        if let (true, Err(error)) = (goes_on, ended) {
            // Whoever does not listen does not want to know.
            let _ = self.to.send(News::Failed(error));
        }
    }

    fn send(&mut self) -> bool {
        (self.rows, self.bytes) = (0, 0);
        match self.columns.finish() {
            Ok(batch) => self.to.send(News::Batch(batch)).is_ok(),
            Err(error) => {
                let _ = self.to.send(News::Broken(error));
                false
            }
        }
    }
}

impl<Row, C: Columns + Take<Row>> Visit<Row> for Batches<C> {
    fn open(&mut self) -> bool {
        self.to.send(News::Open).is_ok()
    }

    fn row(&mut self, row: Row) -> bool {
        self.bytes += self.columns.take(row);
        self.rows += 1;
        let is_full = self.rows >= BATCH_ROWS_MAX || self.bytes >= BATCH_BYTES_MAX;
        !is_full || self.send()
    }
}

/// Most rows of a batch.
const BATCH_ROWS_MAX: usize = 16_384;
/// Bytes of captured packets, or of their numbers, with which a batch is full.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Batches that wait to be taken.
pub(crate) const BATCHES_WAITING_MAX: usize = 2;
