//! A thread that closes descriptors received from other programs, because closing may block.
//!
//! `close(2)` can block as long as another program likes: for a TCP socket with `SO_LINGER` whose peer does not
//! acknowledge data, or for a file on a FUSE file system. Threads that move packets therefore hand such descriptors to
//! one thread that only closes them. The same applies to a Unix socket with unread passed descriptors, because the
//! kernel closes them with it.
//!
//! Descriptors are handed over as numbers in a pipe. Unlike an in-memory queue, a pipe has no lock that a stopped
//! thread could hold.

use std::{
    io::{self, Read},
    mem::ManuallyDrop,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{io::ioctl_fionbio, net::sockopt::set_socket_linger};

/// Write end of the pipe, through which threads hand over descriptors.
static QUEUE: OnceLock<io::PipeWriter> = OnceLock::new();
/// Number of descriptors waiting to be closed, including the one being closed.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A descriptor received from another program, or a socket that may contain passed descriptors. On drop it is closed by
/// the closing thread, or directly if that thread has not been started.
#[derive(Debug)]
pub struct PassedFile(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for PassedFile {
    fn from(file: OwnedFd) -> Self {
        Self(ManuallyDrop::new(file))
    }
}

impl AsFd for PassedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for PassedFile {
    fn drop(&mut self) {
        let number = self.0.as_raw_fd();
        if !hand_over(number) {
            // SAFETY: the field is dropped here only, once.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}

/// Passes a descriptor to the closing thread. Returns false if there is no such thread.
fn hand_over(number: RawFd) -> bool {
    let Some(queue) = QUEUE.get() else { return false };
    WAITING.fetch_add(1, Ordering::Relaxed);
    // The pipe has room for many times the number of descriptors that may wait. If it is full or the thread is gone,
    // the descriptor stays open: that only occupies an entry in the descriptor table, while waiting would block the
    // path.
    let _ = rustix::io::write(queue, &number.to_ne_bytes());
    true
}

/// Starts the closing thread, unless this process has already started it. `spawn` must start a thread that runs the
/// closure passed to it.
///
/// # Errors
/// Returns any error from `pipe(2)` or `spawn`.
pub fn start(spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>) -> io::Result<()> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let (queue, sender) = io::pipe()?;
    ioctl_fionbio(&sender, true)?;
    spawn(Box::new(move || close_all(queue)))?;
    // If two callers get here, the pipe of the second caller is closed, which ends the thread that this caller started.
    let _ = QUEUE.set(sender);
    Ok(())
}

/// Returns whether [`WAITING_MAX`] descriptors are queued; if so, do not accept another program that could pass
/// descriptors.
#[must_use]
pub fn is_full() -> bool {
    WAITING.load(Ordering::Relaxed) >= WAITING_MAX
}

fn close_all(mut queue: io::PipeReader) {
    let mut number = [0; size_of::<RawFd>()];
    while queue.read_exact(&mut number).is_ok() {
        // SAFETY: `PassedFile` wrote the number of a descriptor that it owned, and gave up its ownership.
        let file = unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)) };
        // Most descriptors that could block this thread are lingering sockets, so lingering is turned off.
        let _ = set_socket_linger(&file, None);
        drop(file);
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Maximum number of descriptors queued for closing before further programs are refused.
pub const WAITING_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream,
        sync::{Arc, Barrier, atomic::AtomicBool},
        thread,
    };

    use super::*;

    #[test]
    fn a_descriptor_is_closed_by_the_thread_and_not_by_the_one_that_drops_it() {
        let gate = Arc::new(Barrier::new(2));
        let is_open = Arc::new(AtomicBool::new(false));
        let at_gate = Arc::clone(&gate);
        let opened = Arc::clone(&is_open);
        start(move |work| {
            thread::spawn(move || {
                at_gate.wait();
                opened.store(true, Ordering::Release);
                work();
            });
            Ok(())
        })
        .unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        drop(PassedFile::from(OwnedFd::from(near)));
        let end = |far: &mut UnixStream| far.read(&mut [0]);
        assert_eq!(
            end(&mut far).unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "the file is still open"
        );
        assert!(!is_open.load(Ordering::Acquire));
        assert!(WAITING.load(Ordering::Relaxed) >= 1);
        gate.wait();
        far.set_nonblocking(false).unwrap();
        assert_eq!(end(&mut far).unwrap(), 0, "the thread has closed the file");
        assert!(is_open.load(Ordering::Acquire));
    }
}
