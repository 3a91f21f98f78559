//! Eventfds of another program, heard without a read.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use grosso_sys::wait::{Interest, Ready, Waiter};

/// Rings of an eventfd, each seen once: of a counter that stays above zero nothing is seen until it is told again.
#[derive(Debug)]
pub(crate) struct Edges {
    waiter: Waiter,
    seen: Vec<Ready>,
    file: Option<OwnedFd>,
}

impl Edges {
    /// Hears nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { waiter: Waiter::new()?, seen: Vec::new(), file: None })
    }

    /// Sees the rings of this eventfd and no other one, also those before.
    pub(crate) fn begin(&mut self, file: Option<OwnedFd>) -> io::Result<()> {
        self.end();
        if let Some(file) = &file {
            self.waiter.add(file, 0, Interest::READ.edge_triggered())?;
        }
        self.file = file;
        Ok(())
    }

    /// Sees nothing any more.
    pub(crate) fn end(&mut self) {
        if let Some(file) = self.file.take() {
            // The other program has it too, so closing it alone would not do.
            let _ = self.waiter.remove(&file);
        }
    }

    /// Takes note of the rings so far.
    pub(crate) fn take(&mut self) {
        // The other program's entries say what is there.
        let _ = self.waiter.wait(&mut self.seen, Some(Duration::ZERO));
    }

    /// Descriptor that becomes readable when the eventfd rings; `None` without one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|_| self.waiter.as_fd())
    }
}
