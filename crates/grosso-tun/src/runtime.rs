//! Adapters for using a TUN or TAP device, or a UDP socket, with tokio.

use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{Interest, unix::AsyncFd};

mod tun;
mod udp;

pub use tun::{AsyncTun, AsyncTunReceiver, AsyncTunSender};
pub use udp::{AsyncUdp, AsyncUdpReceiver, AsyncUdpSender};

/// Interest in readability and errors. epoll reports a removed device as an error.
const READ: Interest = Interest::READABLE.add(Interest::ERROR);
/// Interest in writability and errors.
const WRITE: Interest = Interest::WRITABLE.add(Interest::ERROR);

/// Descriptor registered with the current tokio runtime, and the pending wait of one half of a device or socket.
struct Readiness {
    file: Arc<AsyncFd<OwnedFd>>,
    interest: Interest,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl Readiness {
    /// Registers a duplicate of the descriptor for both directions.
    #[allow(deprecated, reason = "its successor is unsafe, for types whose descriptor may change")]
    fn register(file: impl AsFd) -> io::Result<[Self; 2]> {
        let file = file.as_fd().try_clone_to_owned()?;
        let file = Arc::new(AsyncFd::with_interest(file, READ.add(WRITE))?);
        let [reads, writes] = [Arc::clone(&file), file];
        let waiting = || None;
        Ok([
            Self { file: reads, interest: READ, waiting: waiting() },
            Self { file: writes, interest: WRITE, waiting: waiting() },
        ])
    }

    /// Calls `attempt` until it returns a result. Whenever it returns `NotReady`, waits until the descriptor is ready.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut() -> io::Result<Attempt<T>>,
    ) -> Poll<io::Result<T>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let result = ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
                result?;
            }
            // When the task is woken, this future is ready immediately, because only an attempt clears the readiness.
            if let Poll::Ready(guard) = pin!(self.file.ready(self.interest)).poll(cx) {
                let mut guard = guard?;
                match attempt()? {
                    Attempt::Done(result) => return Poll::Ready(Ok(result)),
                    Attempt::Drained(result) => {
                        // If an event arrived since the guard was created, the readiness stays set.
                        guard.clear_ready();
                        return Poll::Ready(Ok(result));
                    }
                    Attempt::NotReady => {
                        guard.clear_ready();
                        continue;
                    }
                }
            }
            let (file, interest) = (Arc::clone(&self.file), self.interest);
            self.waiting = Some(Box::pin(async move { file.ready(interest).await.map(drop) }));
        }
    }

    /// Awaits the result of [`Readiness::poll`].
    async fn wait<T>(
        &mut self,
        mut attempt: impl FnMut() -> io::Result<Attempt<T>>,
    ) -> io::Result<T> {
        poll_fn(|cx| self.poll(cx, &mut attempt)).await
    }
}

/// Result of a non-blocking attempt.
#[derive(Debug)]
enum Attempt<T> {
    /// The descriptor was not ready.
    NotReady,
    /// The call succeeded, and the next call may also succeed.
    Done(T),
    /// The call succeeded and emptied the descriptor's queue, so another call would find no data.
    Drained(T),
}

impl Attempt<usize> {
    /// Classifies the result of a receive call that returned `received` frames. If that is fewer than `limit`, the
    /// queue is now empty.
    fn received(received: usize, limit: usize) -> Self {
        match received {
            0 => Self::NotReady,
            _ if received < limit => Self::Drained(received),
            _ => Self::Done(received),
        }
    }
}

impl<T> From<Option<T>> for Attempt<T> {
    fn from(result: Option<T>) -> Self {
        result.map_or(Self::NotReady, Self::Done)
    }
}

impl core::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let is_waiting = self.waiting.is_some();
        f.debug_struct("Readiness")
            .field("file", &self.file)
            .field("is_waiting", &is_waiting)
            .finish()
    }
}

#[cfg(test)]
mod tests;
