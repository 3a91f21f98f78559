//! Checksums of one buffer, repeated.

use std::hint::black_box;

use grosso_benches::touch;
use grosso_testkit::workloads::Workload;

use crate::contender::{About, Boxed, Local, Turns};

/// A step that sums a buffer repeatedly. No sum depends on the previous one.
pub(crate) struct Sums<'a, F> {
    bytes: &'a [u8],
    sum: F,
}

impl<'a, F: Fn(&[u8]) -> u16 + Copy + 'a> Sums<'a, F> {
    /// Creates a contender; `sum` returns the folded sum, not its complement.
    pub(crate) fn boxed(about: About, workload: &'a Workload, sum: F) -> Boxed<'a> {
        let bytes = workload.frames[0].as_slice();
        let output = move || vec![sum(bytes).to_be_bytes().to_vec()];
        Local::boxed(about, Self { bytes, sum }, workload.packets, output)
    }
}

impl<F: Fn(&[u8]) -> u16> Turns for Sums<'_, F> {
    fn prepare(&mut self) {
        touch(self.bytes);
    }

    fn turn(&mut self) -> usize {
        for _ in 0..SUMS_A_TURN {
            black_box((self.sum)(black_box(self.bytes)));
        }
        SUMS_A_TURN
    }
}

const SUMS_A_TURN: usize = 1024;
