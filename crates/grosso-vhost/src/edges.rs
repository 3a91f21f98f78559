//! Eventfds of another program, heard without a read.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::{
    closer::PassedFile,
    wait::{Interest, Ready, Waiter},
};

/// Rings of some eventfds, each seen once: of a counter that stays above zero nothing is seen until it is told again.
#[derive(Debug)]
pub(crate) struct Edges {
    waiter: Waiter,
    seen: Vec<Ready>,
    files: Vec<Option<PassedFile>>,
}

impl Edges {
    /// Hears nothing yet, and so many eventfds at most.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let files = (0..count).map(|_| None).collect();
        Ok(Self { waiter: Waiter::new()?, seen: Vec::new(), files })
    }

    /// Sees the rings of this eventfd, also those before, in the place of the one that had this number.
    pub(crate) fn begin(&mut self, number: usize, file: Option<PassedFile>) -> io::Result<()> {
        self.end(number);
        if let Some(file) = &file {
            self.waiter.add(file, 0, Interest::READ.edge_triggered())?;
        }
        self.files[number] = file;
        Ok(())
    }

    /// Sees the eventfd of this number no more.
    pub(crate) fn end(&mut self, number: usize) {
        if let Some(file) = self.files[number].take() {
            // The other program has it too, so closing it alone would not do.
            let _ = self.waiter.remove(&file);
        }
    }

    /// Sees nothing any more.
    pub(crate) fn end_all(&mut self) {
        (0..self.files.len()).for_each(|number| self.end(number));
    }

    /// Takes note of the rings so far.
    pub(crate) fn take(&mut self) {
        // The other program's entries say what is there.
        let _ = self.waiter.wait(&mut self.seen, Some(Duration::ZERO));
    }

    /// Descriptor that becomes readable when an eventfd rings; `None` without one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let is_some = self.files.iter().any(Option::is_some);
        is_some.then(|| self.waiter.as_fd())
    }
}
