//! Closing of descriptors that another program passed, by a thread that may wait for it.
//!
//! `close(2)` can wait as long as another program likes: for a TCP socket with `SO_LINGER` whose peer acknowledges
//! nothing, or for a file system that this program serves. A thread that moves packets therefore hands such descriptors
//! to one thread that does nothing but close them. The same goes for a Unix socket in which passed descriptors wait,
//! because the kernel closes them with it.
//!
//! The descriptors are handed over as numbers in a pipe: unlike a queue in memory, no thread can hold its lock while it
//! is stopped.

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

/// The end of the pipe for threads that hand over descriptors.
static QUEUE: OnceLock<io::PipeWriter> = OnceLock::new();
/// Descriptors that wait to be closed, with the one that is being closed.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that another program passed, or a socket that may hold some. When dropped it is closed by the closing
/// thread, or at once in a program that has none.
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

/// Hands a descriptor to the closing thread; returns false if there is no such thread.
fn hand_over(number: RawFd) -> bool {
    let Some(queue) = QUEUE.get() else { return false };
    WAITING.fetch_add(1, Ordering::Relaxed);
    // The pipe has room for many times the descriptors that may wait. Should it be full, or the thread gone, the
    // descriptor stays open: that costs a place in a table, and waiting would cost the path.
    let _ = rustix::io::write(queue, &number.to_ne_bytes());
    true
}

/// Starts the closing thread, once in a process: `spawn` starts a thread that does the work that it is given.
///
/// # Errors
/// Errors from `pipe(2)`, and those of `spawn`.
pub fn start(spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>) -> io::Result<()> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let (queue, sender) = io::pipe()?;
    ioctl_fionbio(&sender, true)?;
    spawn(Box::new(move || close_all(queue)))?;
    // A second caller's thread ends with its pipe.
    let _ = QUEUE.set(sender);
    Ok(())
}

/// Whether [`WAITING_MAX`] descriptors wait: no program that could pass more should be accepted until then.
#[must_use]
pub fn is_full() -> bool {
    WAITING.load(Ordering::Relaxed) >= WAITING_MAX
}

fn close_all(mut queue: io::PipeReader) {
    let mut number = [0; size_of::<RawFd>()];
    while queue.read_exact(&mut number).is_ok() {
        // SAFETY: `PassedFile` wrote the number of a descriptor that it owned, and gave up with that.
        let file = unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)) };
        // Most descriptors that could make this thread wait are sockets that linger.
        let _ = set_socket_linger(&file, None);
        drop(file);
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Descriptors that wait to be closed, beyond which no other program is accepted that could pass more.
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
            "it is open still"
        );
        assert!(!is_open.load(Ordering::Acquire));
        assert!(WAITING.load(Ordering::Relaxed) >= 1);
        gate.wait();
        far.set_nonblocking(false).unwrap();
        assert_eq!(end(&mut far).unwrap(), 0, "the thread has closed it");
        assert!(is_open.load(Ordering::Acquire));
    }
}
