//! Requests to the thread of a data path, and the answers of that thread.
//!
//! A thread can be stuck in a system call, or stopped by a debugger. A caller that makes a request therefore waits only
//! for a limited time, and then gets the last counters. Neither side ever waits for the other to release a lock,
//! because a thread can be stopped while it holds one.

use std::{
    io,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use grosso_sys::wait::Event;

use super::{Snapshot, nanoseconds, now_ns};

/// Handle for other threads to stop a data path and read its counters.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Exchange>,
}

/// A request for the counters of a data path.
#[derive(Debug)]
#[must_use]
pub struct Request {
    shared: Arc<Exchange>,
    number: u64,
}

/// Counters of a data path. They are either current or the last ones that the path's thread reported.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// The counters.
    pub snapshot: Arc<Snapshot>,
    /// Age of the counters if the thread did not answer in time. `None` if the counters are current, or are the final
    /// counters of a path that has ended.
    pub stale: Option<Duration>,
}

/// State shared by a data path and its handles. The type is aligned so that no other data shares the cache lines that
/// the path's thread reads in every iteration of its loop.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Exchange {
    /// Whether there is a request. The thread reads the other fields only if this is set.
    asked: AtomicBool,
    stopped: AtomicBool,
    /// Event that wakes the thread.
    event: Event,
    /// Number of the last request.
    last_request: AtomicU64,
    /// Time of the oldest request without an answer, in nanoseconds, or 0 if there is none.
    asked_ns: AtomicU64,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    /// The last counters, and the time at which the thread reported them.
    last: Option<(Arc<Snapshot>, u64)>,
    /// Number of the last request that was answered with these counters.
    answered: u64,
    /// Whether the path has ended, so that no further answers follow.
    is_over: bool,
}

impl Handle {
    /// Requests that the path deliver its held packets and end.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.wake();
    }

    /// Requests the current counters without waiting for them.
    pub fn request(&self) -> Request {
        let number = self.shared.last_request.fetch_add(1, Ordering::AcqRel) + 1;
        let now_ns = now_ns().max(1);
        // If an older request is unanswered, it remains the oldest one.
        let _ =
            self.shared.asked_ns.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire);
        self.shared.wake();
        Request { shared: Arc::clone(&self.shared), number }
    }

    /// Returns current counters, taken by the path's own thread, or the final counters after the path has ended.
    /// Returns `None` if the path was dropped before it ended. Waits for the thread without a time limit; use
    /// [`Handle::request`] to wait with a limit.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let reading = self.request().wait(Duration::MAX)?;
        Some(Arc::unwrap_or_clone(reading.snapshot))
    }
}

impl Request {
    /// Waits for the answer, and returns the last counters and their age if there is no answer in time. The time limit
    /// `at_most` starts at the oldest unanswered request, so that only the first caller waits if a thread is stuck.
    /// Returns `None` if the path was dropped before it ended.
    #[must_use]
    pub fn wait(self, at_most: Duration) -> Option<Reading> {
        let asked_ns = self.shared.asked_ns.load(Ordering::Acquire);
        let end_ns = asked_ns.saturating_add(nanoseconds(at_most));
        let mut pause = PAUSE_MIN;
        loop {
            if let Some(answer) = self.answer() {
                return answer;
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            if left.is_zero() {
                return Some(self.shared.last());
            }
            thread::sleep(pause.min(left));
            if pause == PAUSE_MAX {
                // The thread postpones a request while another thread holds the lock.
                self.shared.wake();
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the answer to this request or to a later one, if there is an answer yet. The inner value is `None` if
    /// there will never be an answer.
    fn answer(&self) -> Option<Option<Reading>> {
        let answers = self.shared.try_lock()?;
        let is_answered = answers.is_over || answers.answered >= self.number;
        is_answered.then(|| {
            let (snapshot, _) = answers.last.as_ref().filter(|_| answers.has_counters())?;
            Some(Reading { snapshot: Arc::clone(snapshot), stale: None })
        })
    }
}

impl Answers {
    /// Returns whether there are current or final counters. The counters of a dropped path are meaningless.
    fn has_counters(&self) -> bool {
        !self.is_over || self.answered == u64::MAX
    }
}

impl Exchange {
    fn wake(&self) {
        self.asked.store(true, Ordering::Release);
        // Raising the event would fail only if its descriptor were closed, but the descriptor lives as long as `self`.
        let _ = self.event.raise();
    }

    /// Returns the last counters that the thread reported.
    fn last(&self) -> Reading {
        let last = self.try_lock().and_then(|answers| answers.last.clone());
        // If there is no report, the thread was stopped before its first iteration or while it was reporting.
        let (snapshot, at_ns) = last.unwrap_or_default();
        let age = Duration::from_nanos(now_ns().saturating_sub(at_ns));
        Reading { snapshot, stale: Some(age) }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Answers>> {
        match self.answers.try_lock() {
            Ok(answers) => Some(answers),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The path's side of the exchange with its handles. Dropping it releases callers that wait for an answer, even if the
/// path never ran or its thread panics.
#[derive(Debug)]
pub(super) struct Answering(Arc<Exchange>);

impl Answering {
    /// Creates the path's side of the exchange. There are no requests yet.
    ///
    /// # Errors
    ///
    /// Returns any error from `eventfd(2)`.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Exchange {
            asked: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            event: Event::new()?,
            last_request: AtomicU64::new(0),
            asked_ns: AtomicU64::new(0),
            answers: Mutex::default(),
        })))
    }

    pub(super) fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.0) }
    }

    /// Returns the event that wakes the thread for a request.
    pub(super) fn event(&self) -> &Event {
        &self.0.event
    }

    /// Returns whether there may be a request. This costs one load.
    pub(super) fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Marks all previous requests as taken, and returns whether one of them asks for counters.
    pub(super) fn take_requests(&self) -> bool {
        self.0.asked.store(false, Ordering::Release);
        self.0.asked_ns.load(Ordering::Acquire) != 0
    }

    /// Answers all previous requests. A request that arrives during the call may also get this answer, but is regarded
    /// as answered only by the next one.
    pub(super) fn publish(&self, snapshot: Snapshot) {
        let answered = self.0.last_request.load(Ordering::Acquire);
        // If another thread holds the lock, the answer to the next request also answers this one.
        let Some(mut answers) = self.0.try_lock() else { return };
        answers.last = Some((Arc::new(snapshot), now_ns()));
        answers.answered = answered;
        self.0.asked_ns.store(0, Ordering::Release);
    }

    /// Answers the pending requests and all later ones with the final counters.
    pub(super) fn conclude(&self, last: Snapshot) {
        let mut answers = self.0.answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        answers.last = Some((Arc::new(last), now_ns()));
        (answers.answered, answers.is_over) = (u64::MAX, true);
    }
}

impl Deref for Answering {
    type Target = Exchange;

    fn deref(&self) -> &Exchange {
        &self.0
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let answers = self.answers.lock();
        answers.unwrap_or_else(std::sync::PoisonError::into_inner).is_over = true;
    }
}

/// Minimum and maximum pause between checks for an answer.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);
