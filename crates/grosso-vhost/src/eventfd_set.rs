//! Observes another program's eventfds without reading them.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::{
    closer::PassedFile,
    wait::{Interest, Ready, Waiter},
};

/// A set of eventfds that are observed edge-triggered: a counter that stays above zero is reported again only when the
/// eventfd is signaled again.
#[derive(Debug)]
pub(crate) struct Edges {
    waiter: Waiter,
    seen: Vec<Ready>,
    files: Vec<Option<PassedFile>>,
}

impl Edges {
    /// Creates an empty set for at most `count` eventfds.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let files = (0..count).map(|_| None).collect();
        Ok(Self { waiter: Waiter::new()?, seen: Vec::new(), files })
    }

    /// Starts observing an eventfd in place of the previous one with this number. Earlier signals are reported too.
    pub(crate) fn begin(&mut self, number: usize, file: Option<PassedFile>) -> io::Result<()> {
        self.end(number);
        if let Some(file) = &file {
            self.waiter.add(file, 0, Interest::READ.edge_triggered())?;
        }
        self.files[number] = file;
        Ok(())
    }

    /// Stops observing the eventfd with this number.
    pub(crate) fn end(&mut self, number: usize) {
        if let Some(file) = self.files[number].take() {
            // The other program also has the file open, so closing it here would not remove it from the set.
            let _ = self.waiter.remove(&file);
        }
    }

    /// Stops observing all eventfds.
    pub(crate) fn end_all(&mut self) {
        (0..self.files.len()).for_each(|number| self.end(number));
    }

    /// Clears the signals that have been received.
    pub(crate) fn take(&mut self) {
        // The entries in the ring show what is available, so errors are harmless.
        let _ = self.waiter.wait(&mut self.seen, Some(Duration::ZERO));
    }

    /// Returns a descriptor that becomes readable when an eventfd is signaled, or `None` if there is no eventfd.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let is_some = self.files.iter().any(Option::is_some);
        is_some.then(|| self.waiter.as_fd())
    }
}
