//! Converts table rows to record batches of bounded size.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::columns::{Columns, Take};

/// Collector that passes rows on in batches.
#[derive(Debug)]
pub struct Batches<C, F> {
    columns: C,
    rows: usize,
    bytes: usize,
    pass_on: F,
}

impl<C: Columns, F: FnMut(Result<RecordBatch, ArrowError>) -> bool> Batches<C, F> {
    /// Creates a collector for `columns`. `pass_on` receives each batch, or the error that prevented it, and returns
    /// whether it wants more batches.
    pub fn new(columns: C, pass_on: F) -> Self {
        Self { columns, rows: 0, bytes: 0, pass_on }
    }

    /// Adds a row; returns `false` if no more rows are accepted.
    pub fn take<Row>(&mut self, row: Row) -> bool
    where
        C: Take<Row>,
    {
        self.bytes += self.columns.take(row);
        self.rows += 1;
        let is_full = self.rows >= BATCH_ROWS_MAX || self.bytes >= BATCH_BYTES_MAX;
        !is_full || self.pass_on()
    }

    /// Passes on the remaining rows; returns `false` if no more rows are accepted.
    pub fn finish(&mut self) -> bool {
        self.rows == 0 || self.pass_on()
    }

    fn pass_on(&mut self) -> bool {
        (self.rows, self.bytes) = (0, 0);
        let batch = self.columns.finish();
        let is_sound = batch.is_ok();
        (self.pass_on)(batch) && is_sound
    }
}

/// Maximum number of rows in a batch.
const BATCH_ROWS_MAX: usize = 16_384;
/// Number of bytes, in captured packets or packet numbers, at which a batch is full.
const BATCH_BYTES_MAX: usize = 4 << 20;
