//! Waits for descriptors, for a point in time, or for another thread.
//!
//! A data path sleeps in [`wait_for`] until a port is ready, a held packet is due, or another thread raises its
//! [`Event`]. Use a [`Waiter`] for many descriptors.

use core::mem::MaybeUninit;
use core::num::NonZeroU64;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

use crate::calls::seen;

/// Maximum number of events returned by one [`Waiter::wait`]; the next call returns further events.
const EVENTS_MAX: usize = 64;

/// Maximum number of descriptors per [`wait_for`] call.
pub const SOURCES_MAX: usize = 16;

/// Kind of readiness that a caller waits for on a descriptor.
///
/// ```
/// use grosso_sys::wait::Interest;
///
/// let either = Interest::BOTH;
/// # assert!(either != Interest::READ && either != Interest::WRITE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(epoll::EventFlags);

impl Interest {
    /// The descriptor is readable.
    pub const READ: Self = Self(epoll::EventFlags::IN);
    /// The descriptor is writable.
    pub const WRITE: Self = Self(epoll::EventFlags::OUT);
    /// The descriptor is readable or writable.
    pub const BOTH: Self = Self(epoll::EventFlags::IN.union(epoll::EventFlags::OUT));

    /// Reports each arrival once, instead of reporting readiness as long as it lasts. Use it for a
    /// [`crate::packet::ReceiveRing`] whose frames are held.
    pub const fn edge_triggered(self) -> Self {
        Self(self.0.union(epoll::EventFlags::ET))
    }
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Token that was passed when the descriptor was added.
    pub token: u64,
    /// Whether reading will not block.
    pub readable: bool,
    /// Whether writing will not block.
    pub writable: bool,
    /// Whether the descriptor has an error, or its peer has closed the connection: the next call on the descriptor
    /// returns the error.
    pub failed: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Waiter {
    file: OwnedFd,
}

impl Waiter {
    /// Creates an empty set.
    ///
    /// # Errors
    ///
    /// Returns any error from `epoll_create1(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a descriptor with the token that [`Ready`] reports for it. Closing the descriptor removes it from the set.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the descriptor is already in the set, or `EPERM` for a file that is always ready.
    pub fn add(&self, source: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.file, source, epoll::EventData::new_u64(token), interest.0)?)
    }

    /// Changes the kind of readiness that the set waits for on a descriptor.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` if the descriptor is not in the set.
    pub fn modify(&self, source: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.file, source, epoll::EventData::new_u64(token), interest.0)?)
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` if the descriptor is not in the set.
    pub fn remove(&self, source: &impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.file, source)?)
    }

    /// Waits until a descriptor is ready, and replaces the content of `ready` with the ready descriptors. If `at_most`
    /// is `None`, the wait has no limit. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns any error from `epoll_wait(2)`, except `EINTR`.
    pub fn wait(&self, ready: &mut Vec<Ready>, at_most: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let timeout = limit(at_most);
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let told = match epoll::wait(&self.file, &mut events[..], timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(()),
            result => result?.0,
        };
        ready.extend(told.iter().map(|event| {
            // The fields are copied, because the structure is packed.
            let (flags, data) = (event.flags, event.data);
            Ready {
                token: data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                failed: flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP),
            }
        }));
        Ok(())
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Waits until one of at most [`SOURCES_MAX`] descriptors is ready, and returns the index of the first that is ready,
/// or `None` after `at_most`. If `at_most` is `None`, the wait has no limit. A signal ends the wait early.
///
/// The descriptors are registered with the kernel only while the thread waits, so packets that arrive while it works
/// cause no wake-up. With a [`Waiter`], each packet causes a wake-up.
///
/// # Errors
///
/// Returns any error from `poll(2)`, except `EINTR`. `EINVAL` means that there are too many descriptors.
///
/// ```
/// use std::os::fd::AsFd;
/// use grosso_sys::wait::{Interest, wait_for};
///
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// assert_eq!(wait_for(&[(socket.as_fd(), Interest::WRITE)], None)?, Some(0));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_for<'a>(
    sources: &[(BorrowedFd<'a>, Interest)],
    at_most: Option<Duration>,
) -> io::Result<Option<usize>> {
    if sources.len() > SOURCES_MAX {
        return Err(Errno::INVAL.into());
    }
    let timeout = limit(at_most);
    let polled = |&(file, Interest(flags)): &(BorrowedFd<'a>, Interest)| {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, flags.contains(epoll::EventFlags::IN));
        wanted.set(PollFlags::OUT, flags.contains(epoll::EventFlags::OUT));
        PollFd::from_borrowed_fd(file, wanted)
    };
    let mut sources: ArrayVec<PollFd<'_>, SOURCES_MAX> = sources.iter().map(polled).collect();
    match seen(|| poll(&mut sources, timeout.as_ref())) {
        Ok(_) => Ok(sources.iter().position(|source| !source.revents().is_empty())),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Converts the maximum wait to the kernel's format. A wait whose seconds do not fit in this format, for example
/// [`Duration::MAX`], means no limit.
pub(crate) fn limit(at_most: Option<Duration>) -> Option<Timespec> {
    at_most.and_then(|at_most| Timespec::try_from(at_most).ok())
}

/// Makes every later wait by the calling thread end on time. By default the kernel delays the end by up to 50 us to
/// save wake-ups.
///
/// # Errors
///
/// Returns any error from `prctl(2)`, although none is documented for this operation.
pub fn wait_exactly() -> io::Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
}

/// An event between threads, with a descriptor that is readable from the time one thread raises the event until another
/// thread takes it.
#[derive(Debug)]
pub struct Event {
    file: OwnedFd,
}

impl Event {
    /// Creates an event that is not raised.
    ///
    /// # Errors
    ///
    /// Returns any error from `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Raises the event; raising it again has no effect. Safe in a signal handler.
    ///
    /// # Errors
    ///
    /// Returns any error from `write(2)`.
    pub fn raise(&self) -> io::Result<()> {
        match rustix::io::write(&self.file, &1_u64.to_ne_bytes()) {
            // The counter is at its limit, so the event is raised.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the event was raised since the last call, and clears it.
    ///
    /// # Errors
    ///
    /// Returns any error from `read(2)`.
    pub fn take(&self) -> io::Result<bool> {
        take(&self.file)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the time of the monotonic clock, which starts at an arbitrary point.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// Reads and clears the counter of an event.
fn take(file: &OwnedFd) -> io::Result<bool> {
    match rustix::io::read(file, &mut [0; 8]) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_raised_until_it_is_taken() {
        let event = Event::new().unwrap();
        assert!(!event.take().unwrap());
        event.raise().unwrap();
        event.raise().unwrap();
        assert!(event.take().unwrap());
        assert!(!event.take().unwrap());
    }

    #[test]
    fn a_wait_accepts_its_stated_number_of_sources() {
        let event = Event::new().unwrap();
        let sources = [(event.as_fd(), Interest::READ); SOURCES_MAX + 1];
        assert_eq!(wait_for(&sources[1..], Some(Duration::ZERO)).unwrap(), None);
        let error = wait_for(&sources, Some(Duration::ZERO)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_wait_ends_when_a_source_is_ready_or_the_time_is_over() {
        let (raised, other) = (Event::new().unwrap(), Event::new().unwrap());
        let sources = [&raised, &other].map(|event| (event.as_fd(), Interest::READ));
        wait_exactly().unwrap();
        for at_most in [Duration::ZERO, Duration::from_micros(500)] {
            let start = monotonic();
            assert_eq!(wait_for(&sources, Some(at_most)).unwrap(), None);
            assert!(monotonic() - start >= at_most);
        }
        other.raise().unwrap();
        assert_eq!(wait_for(&sources, None).unwrap(), Some(1));
        assert_eq!(wait_for(&sources, Some(Duration::MAX)).unwrap(), Some(1));
        raised.raise().unwrap();
        assert_eq!(wait_for(&sources, None).unwrap(), Some(0));
        raised.take().unwrap();
        assert_eq!(wait_for(&sources[..1], Some(Duration::ZERO)).unwrap(), None);
        assert_eq!(wait_for(&[(raised.as_fd(), Interest::WRITE)], None).unwrap(), Some(0));
    }

    #[test]
    fn an_edge_is_reported_once_and_a_level_until_it_falls() {
        let event = Event::new().unwrap();
        let waiter = Waiter::new().unwrap();
        waiter.add(&event, 1, Interest::READ.edge_triggered()).unwrap();
        let mut ready = Vec::new();
        let mut count = || {
            waiter.wait(&mut ready, Some(Duration::ZERO)).unwrap();
            ready.len()
        };
        event.raise().unwrap();
        assert_eq!([count(), count()], [1, 0]);
        event.raise().unwrap();
        assert_eq!([count(), count()], [1, 0]);
        waiter.modify(&event, 1, Interest::READ).unwrap();
        assert_eq!([count(), count()], [1, 1]);
        waiter.modify(&event, 1, Interest::WRITE).unwrap();
        assert_eq!(count(), 1);
        waiter.remove(&event).unwrap();
        assert_eq!(count(), 0);
        assert!(waiter.remove(&event).is_err());
    }
}
