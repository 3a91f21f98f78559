//! Signals another program's eventfd without blocking.
//!
//! The other owner of an eventfd may clear `O_NONBLOCK` at any time, fill its counter, and thereby make a writer block
//! forever. Completions of kernel asynchronous I/O never block: a request that reads no bytes completes when it is
//! submitted, and the kernel signals its eventfd.

use core::ffi::{c_long, c_ulong};
use std::{
    io::{self, PipeReader},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// An asynchronous I/O context whose empty requests signal eventfds.
#[derive(Debug)]
pub struct EventfdSignal {
    context: c_ulong,
    /// File that the requests refer to, without reading any bytes from it.
    nothing: PipeReader,
    /// Number of requests whose completion events have not been fetched yet.
    untaken: usize,
}

/// A request in the kernel's format (`struct iocb` of `linux/aio_abi.h`).
#[repr(C)]
#[derive(Debug)]
struct Submission {
    data: u64,
    /// The kernel's key and the read flags, in an order that depends on the machine's byte order.
    key_and_flags: u64,
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// The completion of a request (`struct io_event` of `linux/aio_abi.h`).
type End = [u64; 4];

impl EventfdSignal {
    /// Creates a context.
    ///
    /// # Errors
    /// Returns any error from `io_setup(2)`, for example `EAGAIN` if the limit `fs.aio-max-nr` is reached, or `ENOSYS`
    /// for a kernel without asynchronous I/O. Also returns any error from `pipe(2)`.
    pub fn new() -> io::Result<Self> {
        let (nothing, _) = io::pipe()?;
        let mut context: c_ulong = 0;
        // SAFETY: the kernel writes one word, which outlives the call.
        let made =
            unsafe { libc::syscall(libc::SYS_io_setup, UNTAKEN_MAX as c_long, &raw mut context) };
        if made == 0 {
            return Ok(Self { context, nothing, untaken: 0 });
        }
        let error = io::Error::last_os_error();
        let why = format!(
            "cannot create a context for asynchronous I/O (io_setup; the limit is fs.aio-max-nr): \
             {error}"
        );
        Err(io::Error::new(error.kind(), why))
    }

    /// Adds one to the counter of an eventfd, unless the counter is at its maximum. Never blocks.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if the file is not an eventfd, or any error from `io_submit(2)`.
    pub fn notify(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        if self.untaken >= UNTAKEN_MAX {
            self.take();
        }
        self.submit(READ, eventfd)?;
        self.untaken += 1;
        Ok(())
    }

    /// Returns whether a file is an eventfd, without signaling it.
    #[must_use]
    pub fn accepts(&self, file: BorrowedFd<'_>) -> bool {
        // The kernel checks the eventfd to signal before it detects that the file to write is read-only.
        let asked = self.submit(WRITE, file);
        asked.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
    }

    fn submit(&self, operation: u16, signalled: BorrowedFd<'_>) -> io::Result<()> {
        let number = |file: BorrowedFd<'_>| file.as_raw_fd().cast_unsigned();
        let request = Submission {
            data: 0,
            key_and_flags: 0,
            operation,
            priority: 0,
            file: number(self.nothing.as_fd()),
            buffer: 0,
            bytes: 0,
            offset: 0,
            reserved: 0,
            flags: SIGNALS,
            signalled: number(signalled),
        };
        let mut list = [&raw const request];
        // SAFETY: the list has one request, and both outlive the call; the request reads no bytes, so it needs no
        // buffer.
        let made =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
        if made == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Fetches the completions of requests, which contain no information.
    fn take(&mut self) {
        let mut ends = [End::default(); UNTAKEN_MAX];
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most as many completions as the buffer holds, and reads the timeout.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                UNTAKEN_MAX as c_long,
                ends.as_mut_ptr(),
                &raw const never,
            )
        };
        self.untaken = 0;
    }
}

impl Drop for EventfdSignal {
    fn drop(&mut self) {
        // SAFETY: the context belongs to this value alone, and no request is in progress: each completes when it is
        // submitted.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// `IOCB_CMD_PREAD` and `IOCB_CMD_PWRITE`.
const READ: u16 = 0;
const WRITE: u16 = 1;
/// `IOCB_FLAG_RESFD`: signal an eventfd on completion.
const SIGNALS: u32 = 1;
/// Number of requests after which one call fetches all their completions.
const UNTAKEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use rustix::{
        event::{EventfdFlags, eventfd},
        fs::{MemfdFlags, memfd_create},
    };

    use super::*;

    fn counted(file: &impl AsFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(file, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn a_counter_counts_every_ring() {
        let (mut signal, file) =
            (EventfdSignal::new().unwrap(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        for _ in 0..3 * UNTAKEN_MAX + 5 {
            signal.notify(file.as_fd()).unwrap();
        }
        assert_eq!(counted(&file), 3 * UNTAKEN_MAX as u64 + 5);
        assert_eq!(counted(&file), 0);
    }

    #[test]
    fn a_full_counter_of_a_blocking_eventfd_is_signaled_without_blocking() {
        let (mut signal, file) =
            (EventfdSignal::new().unwrap(), eventfd(0, EventfdFlags::empty()).unwrap());
        rustix::io::write(&file, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..3 {
            signal.notify(file.as_fd()).unwrap();
        }
        assert_eq!(counted(&file), u64::MAX);
    }

    #[test]
    fn other_files_are_refused_and_no_question_rings() {
        let (mut signal, file) =
            (EventfdSignal::new().unwrap(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        assert!(signal.accepts(file.as_fd()));
        assert_eq!(counted(&file), 0);
        let (reader, writer) = io::pipe().unwrap();
        let memory = memfd_create("none", MemfdFlags::empty()).unwrap();
        for other in [reader.as_fd(), writer.as_fd(), memory.as_fd()] {
            assert!(!signal.accepts(other));
            assert_eq!(signal.notify(other).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
