//! A data path that runs on a scoped thread.

use std::{
    io,
    sync::mpsc,
    thread::{Scope, ScopedJoinHandle},
};

use grosso_io::{
    Port, PortError,
    runner::{DataPath, End, Handle, RunOptions},
};
use grosso_sys::scheduling::own_thread;
use rustix::process::Pid;

use crate::trial::{TrialError, gone};

/// A data path that runs on a thread. Dropping this value stops the path, because otherwise its scope would wait for
/// the thread forever after an error.
pub(crate) struct Running<'scope, T> {
    handle: Handle,
    number: Pid,
    thread: Option<ScopedJoinHandle<'scope, Result<T, PortError>>>,
}

impl<'scope, T: Send + 'scope> Running<'scope, T> {
    /// Starts a data path between two ports. The path's thread calls `first` before the path runs and `last`, with the
    /// left port, afterward.
    ///
    /// # Errors
    /// Fails for the same reasons as [`DataPath::new`], or if `first` fails.
    pub(crate) fn start<L, R>(
        scope: &'scope Scope<'scope, '_>,
        (left, right): (L, R),
        options: RunOptions,
        first: impl FnOnce() -> io::Result<()> + Send + 'scope,
        last: impl FnOnce(L) -> Result<T, PortError> + Send + 'scope,
    ) -> io::Result<Self>
    where
        L: Port + Send + 'scope,
        R: Port + Send + 'scope,
    {
        let path = DataPath::new(left, right, options)?;
        let handle = path.handle();
        let (announce, announced) = mpsc::channel();
        let thread = scope.spawn(move || {
            announce.send(first().map(|()| own_thread())).ok();
            let End { result, left, .. } = path.run();
            let said = last(left);
            result.and(said)
        });
        let number = announced.recv().map_err(|_| gone()).and_then(|number| number);
        let stop = |_: &io::Error| handle.stop();
        Ok(Self { number: number.inspect_err(stop)?, handle, thread: Some(thread) })
    }
}

impl<T> Running<'_, T> {
    /// Stops the path and returns the result of `last`.
    pub(crate) fn end(mut self) -> Result<T, TrialError> {
        self.handle.stop();
        let thread = self.thread.take().ok_or_else(gone)?;
        let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map_err(TrialError::Path)
    }

    /// Returns a handle for querying and stopping the path.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the ID of the path's thread.
    pub(crate) fn thread(&self) -> Pid {
        self.number
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.handle.stop();
    }
}
