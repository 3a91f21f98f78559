//! Iteration over the polls of a trace.

use grosso_testkit::workloads::{POLL, Workload};

/// The polls of a trace, in order. After the last poll, the first one follows again.
#[derive(Debug)]
pub(crate) struct Polls<'a> {
    frames: &'a [Vec<u8>],
    next: usize,
}

impl<'a> Polls<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        Self { frames: &workload.frames, next: 0 }
    }

    pub(crate) fn upcoming(&self) -> &'a [Vec<u8>] {
        &self.frames[self.next..self.frames.len().min(self.next + POLL)]
    }

    pub(crate) fn take(&mut self) -> &'a [Vec<u8>] {
        let poll = self.upcoming();
        self.next = (self.next + POLL) % self.frames.len().next_multiple_of(POLL);
        poll
    }
}
