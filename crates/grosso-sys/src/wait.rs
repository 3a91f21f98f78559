//! Waiting for descriptors, for a point in time, and for another thread.
//!
//! A data path sleeps in one [`Waiter`] until a port is ready, its [`Timer`] says that what is held
//! must leave, or another thread raises its [`Event`].

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// The most events one [`Waiter::wait`] tells; others are told by the next.
const EVENTS_MAX: usize = 64;

/// What of a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(epoll::EventFlags);

impl Interest {
    /// That it can be read.
    pub const READ: Self = Self(epoll::EventFlags::IN);
    /// That it can be written.
    pub const WRITE: Self = Self(epoll::EventFlags::OUT);
    /// Both.
    pub const BOTH: Self = Self(epoll::EventFlags::IN.union(epoll::EventFlags::OUT));

    /// Tells only that something new came, once, and not that something is still there. For a
    /// [`crate::packet::ReceiveRing`] of which frames are held.
    pub const fn edge_triggered(self) -> Self {
        Self(self.0.union(epoll::EventFlags::ET))
    }
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What it was added with.
    pub token: u64,
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// It has an error, or its other end is gone: use it and see.
    pub failed: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Waiter {
    file: OwnedFd,
}

impl Waiter {
    /// An empty set.
    ///
    /// # Errors
    ///
    /// Those of `epoll_create1(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a descriptor, with the number by which [`Ready`] calls it. It leaves the set when it is
    /// closed.
    ///
    /// # Errors
    ///
    /// `EEXIST` if it is in the set, `EPERM` for a file that is always ready.
    pub fn add(&self, source: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.file, source, epoll::EventData::new_u64(token), interest.0)?)
    }

    /// Changes what of a descriptor is waited for.
    ///
    /// # Errors
    ///
    /// Not found if it is not in the set.
    pub fn modify(&self, source: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.file, source, epoll::EventData::new_u64(token), interest.0)?)
    }

    /// Takes a descriptor out of the set.
    ///
    /// # Errors
    ///
    /// Not found if it is not in the set.
    pub fn remove(&self, source: &impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.file, source)?)
    }

    /// Waits until a descriptor is ready, and tells which are, in place of what was in `ready`. No
    /// time means for ever. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Those of `epoll_wait(2)`, without `EINTR`.
    pub fn wait(&self, ready: &mut Vec<Ready>, at_most: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let timeout = at_most.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let told = match epoll::wait(&self.file, &mut events[..], timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(()),
            result => result?.0,
        };
        ready.extend(told.iter().map(|event| {
            // Copied out, because the structure is packed.
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

/// A descriptor that becomes readable at a point in time, to the nanosecond the hardware has.
#[derive(Debug)]
pub struct Timer {
    file: OwnedFd,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    ///
    /// Those of `timerfd_create(2)`.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { file: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Sets the timer to a point in time of [`monotonic`], which may be past, in place of what it
    /// was set to. It fires once.
    ///
    /// # Errors
    ///
    /// Those of `timerfd_settime(2)`.
    pub fn set(&self, at: Duration) -> io::Result<()> {
        // Zero would disarm the timer.
        self.program(at.max(Duration::from_nanos(1)))
    }

    /// Makes the timer not fire.
    ///
    /// # Errors
    ///
    /// Those of `timerfd_settime(2)`.
    pub fn clear(&self) -> io::Result<()> {
        self.program(Duration::ZERO)
    }

    /// Whether the timer has fired since it was last set or asked.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`.
    pub fn take(&self) -> io::Result<bool> {
        take(&self.file)
    }

    fn program(&self, at: Duration) -> io::Result<()> {
        let at = Timespec::try_from(at).map_err(io::Error::other)?;
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: at };
        timerfd_settime(&self.file, TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A descriptor that is readable from when a thread raises it until another takes it.
#[derive(Debug)]
pub struct Event {
    file: OwnedFd,
}

impl Event {
    /// An event that is not raised.
    ///
    /// # Errors
    ///
    /// Those of `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Raises the event; more than once is as good as once. A signal handler may do it.
    ///
    /// # Errors
    ///
    /// Those of `write(2)`.
    pub fn raise(&self) -> io::Result<()> {
        match rustix::io::write(&self.file, &1_u64.to_ne_bytes()) {
            // The counter is at its limit: it is raised.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the event was raised since it was last taken.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`.
    pub fn take(&self) -> io::Result<bool> {
        take(&self.file)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The time by the clock of [`Timer`], which nobody sets; it starts at some point before the
/// machine did.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// Reads and clears the counter of a timer or an event.
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
    fn a_timer_fires_once_when_its_time_has_come() {
        let timer = Timer::new().unwrap();
        let waiter = Waiter::new().unwrap();
        waiter.add(&timer, 3, Interest::READ).unwrap();
        let mut ready = Vec::new();
        for at in [Duration::ZERO, monotonic(), monotonic() + Duration::from_micros(500)] {
            timer.set(at).unwrap();
            waiter.wait(&mut ready, None).unwrap();
            assert_eq!((ready.len(), ready[0].token, ready[0].readable), (1, 3, true));
            assert!(monotonic() >= at);
            assert!(timer.take().unwrap());
            assert!(!timer.take().unwrap());
        }
        timer.set(Duration::ZERO).unwrap();
        timer.clear().unwrap();
        assert!(!timer.take().unwrap());
        timer.set(monotonic() + Duration::from_secs(1000)).unwrap();
        assert!(!timer.take().unwrap());
    }

    #[test]
    fn an_edge_is_told_once_and_a_level_until_it_falls() {
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
