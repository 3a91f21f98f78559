//! The queues of a data path: one thread each, which share nothing but the end of the run.
//!
//! The kernel selects the queue of a frame: a packet socket's fanout and a NIC's receive side
//! scaling use the hash of the flow. A TUN or TAP device sends a flow out by the queue on which it
//! was last written to, so both directions of a flow use the same queue once the first frame of it
//! was written.

use std::{
    io, panic,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use grosso_sys::scheduling::{allowed_processors, pin};

use super::{DataPath, Handle, Snapshot};
use crate::port::{Port, PortError};

/// Greatest number of queues of a data path: the size of the AF_XDP program's socket map.
pub const QUEUES_MAX: usize = 64;

/// Data paths that run side by side, one thread each. When one ends, all end.
#[derive(Debug)]
pub struct Group {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
}

/// State shared by the threads of a group; they access it only when they end.
#[derive(Debug)]
struct Common {
    handles: Vec<Handle>,
    /// Error of the first path that broke.
    broken: Mutex<Option<PortError>>,
}

impl Group {
    /// Starts a thread for each path. Its name is the first 11 characters of `name` and the number
    /// of the queue, because the kernel keeps no more. Path `n` is pinned to `processors[n %
    /// processors.len()]`; with no processors, threads are not pinned. `ended` is called once all
    /// paths have ended, by themselves or by [`Group::stop`].
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for no paths or more than [`QUEUES_MAX`], and for a
    /// processor on which the caller may not run; the system's error if a thread cannot be started.
    pub fn start<L, R>(
        name: &str,
        paths: Vec<DataPath<L, R>>,
        processors: &[usize],
        ended: impl FnOnce() + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        L: Port<Buffer: Send> + Send + 'static,
        R: Port<Buffer: Send> + Send + 'static,
    {
        check(paths.len(), processors)?;
        let handles = paths.iter().map(DataPath::handle).collect();
        let common = Arc::new(Common { handles, broken: Mutex::default() });
        let ended = Arc::new(AtEnd(Some(ended)));
        let mut group = Self { common, threads: Vec::new() };
        for (queue, path) in paths.into_iter().enumerate() {
            let processor = (!processors.is_empty()).then(|| processors[queue % processors.len()]);
            let (common, ended) = (Arc::clone(&group.common), Arc::clone(&ended));
            let work = move || {
                let _ended = ended;
                let queue = Queue { common };
                queue.run(path, processor);
            };
            match thread::Builder::new().name(format!("{name:.11}/{queue}")).spawn(work) {
                Ok(thread) => group.threads.push(thread),
                Err(error) => {
                    group.stop();
                    group.wait();
                    return Err(error);
                }
            }
        }
        Ok(group)
    }

    /// Makes the paths deliver their held packets and end.
    pub fn stop(&self) {
        self.common.stop();
    }

    /// Handles of the paths, in the order of their queues.
    #[must_use]
    pub fn handles(&self) -> &[Handle] {
        &self.common.handles
    }

    /// Waits until all paths have ended. Returns the error of the first one that broke, and a
    /// snapshot of each.
    ///
    /// # Panics
    /// Propagates the panic of a path's thread.
    pub fn join(mut self) -> (Result<(), PortError>, Vec<Snapshot>) {
        self.wait();
        let broken = self.common.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let snapshots = self.common.handles.iter().filter_map(Handle::snapshot).collect();
        (broken.map_or(Ok(()), Err), snapshots)
    }

    /// Stops the paths and waits for them: [`Group::stop`], then [`Group::join`].
    ///
    /// # Panics
    /// As [`Group::join`].
    pub fn stop_and_join(self) -> (Result<(), PortError>, Vec<Snapshot>) {
        self.stop();
        self.join()
    }

    fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        }
    }
}

impl Common {
    fn stop(&self) {
        self.handles.iter().for_each(Handle::stop);
    }
}

/// One thread of a group. When it ends, even by a panic, it ends the others.
struct Queue {
    common: Arc<Common>,
}

impl Queue {
    fn run<L: Port, R: Port>(&self, path: DataPath<L, R>, processor: Option<usize>) {
        let pinned = processor.map_or(Ok(()), |processor| pin(None, processor));
        let result = match pinned {
            Ok(()) => path.run().result,
            Err(source) => Err(PortError::Device {
                name: "the data path".to_owned(),
                action: "bind its thread to a processor",
                source,
            }),
        };
        if let Err(error) = result {
            let mut broken = self.common.broken.lock().unwrap_or_else(PoisonError::into_inner);
            broken.get_or_insert(error);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.common.stop();
    }
}

/// Calls a function when dropped, so when the last owner of a shared value is gone.
struct AtEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

fn check(paths: usize, processors: &[usize]) -> io::Result<()> {
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if paths == 0 || paths > QUEUES_MAX {
        return invalid(format!("{paths} queues; there can be 1 to {QUEUES_MAX}"));
    }
    if processors.is_empty() {
        return Ok(());
    }
    let allowed = allowed_processors()?;
    match processors.iter().find(|processor| !allowed.contains(processor)) {
        Some(processor) => {
            let list: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            invalid(format!("no CPU {processor} to run on; there are {}", list.join(", ")))
        }
        None => Ok(()),
    }
}
