//! The queues of a data path, each on its own thread. The threads work independently, but end together.
//!
//! The kernel selects the queue of a frame: a packet socket's fanout and a NIC's receive side scaling use the hash of
//! the flow. A TUN or TAP device delivers the frames of a flow to the queue that last wrote a frame of this flow. Once
//! a queue has written the first frame of a flow, both directions of the flow therefore use that queue.

use std::{
    any::Any,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use grosso_sys::scheduling::{allowed_processors, pin};

use super::{DataPath, Handle, Snapshot};
use crate::port::{Port, PortError};

/// Maximum number of queues of a data path, which is the size of the AF_XDP program's socket map.
pub const QUEUES_MAX: usize = 64;

/// Options for the threads of a group.
#[derive(Clone, Debug, Default)]
pub struct ThreadOptions {
    /// CPUs for the paths: path `n` is pinned to CPU `processors[n % processors.len()]`. If the list is empty, the
    /// threads are not pinned.
    pub processors: Vec<usize>,
    /// Function that each thread calls after pinning and before its path runs, for example to drop privileges. If it
    /// fails in one thread, no path runs.
    pub prepare: Option<fn() -> io::Result<()>>,
}

/// Reason why a group of paths ended without being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A port of a path failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The thread of a path panicked. The path's ports are closed, and the packets that it held are lost.
    #[error("thread {thread} panicked: {message}")]
    Defect {
        /// Name of the thread.
        thread: String,
        /// Message of the panic.
        message: String,
    },
    /// A thread did not end when requested, because it is stuck in a system call or stopped. It was abandoned with its
    /// ports, and the packets that it holds are lost.
    #[error("thread {thread} is stuck: it did not stop when requested, and was abandoned")]
    Stuck {
        /// Name of the thread.
        thread: String,
    },
}

/// Data paths that run in parallel, each on its own thread. If one ends, all end.
#[derive(Debug)]
pub struct Group {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
}

/// State shared by the threads of a group, which access it only when they end.
#[derive(Debug)]
struct Common {
    handles: Vec<Handle>,
    /// Error of the first path that broke.
    broken: Mutex<Option<Broken>>,
}

impl Group {
    /// Starts a thread for each path. The thread name is the first 11 characters of `name` and the queue number,
    /// because the kernel limits the length of names. The function returns after all threads are pinned and prepared.
    /// `ended` is called once all paths have ended, on their own or because of [`Group::stop`].
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if there are no paths or more than [`QUEUES_MAX`], or if the caller may
    /// not use one of the CPUs. Also returns any error from starting or pinning a thread, and the error of
    /// [`ThreadOptions::prepare`].
    pub fn start<L, R>(
        name: &str,
        paths: Vec<DataPath<L, R>>,
        options: &ThreadOptions,
        ended: impl FnOnce() + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        L: Port + Send + 'static,
        R: Port + Send + 'static,
    {
        let ThreadOptions { processors, prepare } = options;
        check(paths.len(), processors)?;
        let handles = paths.iter().map(DataPath::handle).collect();
        let common = Arc::new(Common { handles, broken: Mutex::default() });
        let ended = Arc::new(AtEnd(Some(ended)));
        let mut group = Self { common, threads: Vec::new() };
        let (prepared, all_prepared) = mpsc::channel();
        for (queue, path) in paths.into_iter().enumerate() {
            let setup = Setup {
                processor: (!processors.is_empty()).then(|| processors[queue % processors.len()]),
                prepare: *prepare,
                prepared: prepared.clone(),
            };
            let (common, ended) = (Arc::clone(&group.common), Arc::clone(&ended));
            let work = move || {
                let _ended = ended;
                Queue { common }.run(path, setup);
            };
            match thread::Builder::new().name(format!("{name:.11}/{queue}")).spawn(work) {
                Ok(thread) => group.threads.push(thread),
                Err(error) => return Err(group.give_up(error)),
            }
        }
        drop(prepared);
        // The channel closes once every thread has reported its result.
        match all_prepared.iter().find_map(Result::err) {
            None => Ok(group),
            Some(error) => Err(group.give_up(error)),
        }
    }

    fn give_up(mut self, error: io::Error) -> io::Error {
        self.stop();
        self.wait();
        error
    }

    /// Requests that the paths deliver their held packets and end.
    pub fn stop(&self) {
        self.common.stop();
    }

    /// Returns the handles of the paths, in the order of their queues.
    #[must_use]
    pub fn handles(&self) -> &[Handle] {
        &self.common.handles
    }

    /// Waits without a time limit until all paths have ended. Returns the error of the first path that failed, and a
    /// snapshot of each path that did not panic.
    pub fn join(mut self) -> (Result<(), Broken>, Vec<Snapshot>) {
        self.wait();
        self.result()
    }

    /// Stops the paths and waits for them until `until`. A thread that has not ended by then is abandoned and reported
    /// as [`Broken::Stuck`]; its last snapshot is returned.
    pub fn stop_and_join(mut self, until: Instant) -> (Result<(), Broken>, Vec<Snapshot>) {
        self.stop();
        while !self.threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            thread::sleep(END_PAUSE);
        }
        let stuck = self.threads.extract_if(.., |thread| !thread.is_finished());
        for thread in stuck {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            self.common.breaks(Broken::Stuck { thread: name });
        }
        self.wait();
        self.result()
    }

    fn result(self) -> (Result<(), Broken>, Vec<Snapshot>) {
        let broken = self.common.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let readings =
            self.common.handles.iter().filter_map(|handle| handle.request().wait(Duration::ZERO));
        let snapshots = readings.map(|reading| Arc::unwrap_or_clone(reading.snapshot)).collect();
        (broken.map_or(Ok(()), Err), snapshots)
    }

    fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if let Err(panic) = thread.join() {
                self.common.breaks(Broken::Defect { thread: name, message: message(&*panic) });
            }
        }
    }
}

/// Interval at which to check whether all threads have ended.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Returns the panic message.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

impl Common {
    fn stop(&self) {
        self.handles.iter().for_each(Handle::stop);
    }

    /// Stores the reason why the paths ended, unless a reason is already stored.
    fn breaks(&self, broken: Broken) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(broken);
    }
}

/// Pins the calling thread to a CPU.
fn bind(processor: usize) -> io::Result<()> {
    let context = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot pin a thread to CPU {processor}: {error}"))
    };
    pin(None, processor).map_err(context)
}

/// Work that a thread does before its path runs.
struct Setup {
    processor: Option<usize>,
    prepare: Option<fn() -> io::Result<()>>,
    /// Channel for the result of the setup. A thread that panics drops it without sending a result.
    prepared: Sender<io::Result<()>>,
}

impl Setup {
    /// Prepares the thread, and returns whether that succeeded.
    fn succeeds(self) -> bool {
        let pinned = self.processor.map_or(Ok(()), bind);
        let result = pinned.and_then(|()| self.prepare.map_or(Ok(()), |prepare| prepare()));
        let succeeds = result.is_ok();
        // The send cannot fail, because the caller waits for the result.
        let _ = self.prepared.send(result);
        succeeds
    }
}

/// One thread of a group. When the thread ends, even because of a panic, it stops the other threads.
struct Queue {
    common: Arc<Common>,
}

impl Queue {
    fn run<L: Port, R: Port>(&self, path: DataPath<L, R>, setup: Setup) {
        if !setup.succeeds() {
            return;
        }
        if let Err(error) = path.run().result {
            self.common.breaks(error.into());
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.common.stop();
    }
}

/// Guard that calls a function when it is dropped. In a shared value, this happens when the last owner is gone.
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
        return invalid(format!("invalid number of queues: {paths}; expected 1 to {QUEUES_MAX}"));
    }
    if processors.is_empty() {
        return Ok(());
    }
    let allowed = allowed_processors()?;
    match processors.iter().find(|processor| !allowed.contains(processor)) {
        Some(processor) => {
            let list: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            invalid(format!(
                "CPU {processor} does not exist; the number of CPUs is {}",
                list.join(", ")
            ))
        }
        None => Ok(()),
    }
}
