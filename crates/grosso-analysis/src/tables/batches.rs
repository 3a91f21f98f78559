//! Rows of tables in, record batches of bounded size out.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::columns::{Columns, Take};

/// Gathers rows, and passes them on in batches.
#[derive(Debug)]
pub struct Batches<C, F> {
    columns: C,
    rows: usize,
    bytes: usize,
    pass_on: F,
}

impl<C: Columns, F: FnMut(Result<RecordBatch, ArrowError>) -> bool> Batches<C, F> {
    /// Batches of these columns. `pass_on` takes a batch, or the failure to make one, and says whether more are wanted.
    pub fn new(columns: C, pass_on: F) -> Self {
        Self { columns, rows: 0, bytes: 0, pass_on }
    }

    /// Takes a row; `false` if no more are wanted.
    pub fn take<Row>(&mut self, row: Row) -> bool
    where
        C: Take<Row>,
    {
        self.bytes += self.columns.take(row);
        self.rows += 1;
        let is_full = self.rows >= BATCH_ROWS_MAX || self.bytes >= BATCH_BYTES_MAX;
        !is_full || self.pass_on()
    }

    /// Passes on the rows that are left; `false` if no more are wanted.
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

/// Most rows of a batch.
const BATCH_ROWS_MAX: usize = 16_384;
/// Bytes of captured packets, or of their numbers, with which a batch is full.
const BATCH_BYTES_MAX: usize = 4 << 20;
