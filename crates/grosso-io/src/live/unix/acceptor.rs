//! Connects a port to its peer through a Unix socket: accepts a connection, or connects to a listening peer.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::{
    closer,
    errno::ErrorClass,
    unix_socket::{UnixAddress, UnixKind, UnixSocket},
};

use super::{TRY_AGAIN_NS, UnixRole};

/// Connector of a stream port: it either accepts a connection from the peer, or connects to the peer. A stream has one
/// peer at a time.
#[derive(Debug)]
pub(in crate::live) struct Acceptor {
    origin: Origin,
    /// A socket that is never ready. It takes the place of the peer's socket while no peer is connected.
    nobody: UnixSocket,
    /// Whether the peer may pass descriptors.
    passing: bool,
    /// Earliest time of the next attempt to accept or connect, or `None` if an attempt may be made at once.
    again_ns: Option<u64>,
}

#[derive(Debug)]
enum Origin {
    /// The peer connects to this socket.
    Listening(UnixSocket),
    /// The peer listens at this address.
    Connecting(UnixAddress),
}

impl Acceptor {
    /// Opens the socket, without waiting for the peer or connecting to it. If `passing` is set, the peer may pass
    /// descriptors.
    pub(in crate::live) fn open(
        address: UnixAddress,
        role: &UnixRole,
        passing: bool,
    ) -> io::Result<Self> {
        let origin = match role {
            UnixRole::Listen { mode } => {
                Origin::Listening(stream(passing)?.placed_at(&address, *mode)?)
            }
            UnixRole::Connect { .. } => Origin::Connecting(address),
        };
        let again_ns = matches!(origin, Origin::Connecting(_)).then_some(0);
        Ok(Self { origin, nobody: UnixSocket::new(UnixKind::Datagram)?, passing, again_ns })
    }

    /// Returns a connection to the peer, if an attempt is due and succeeds.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] before the time of the next attempt, or any error from `accept(2)`,
    /// `socket(2)` or `connect(2)`.
    pub(in crate::live) fn connect(&mut self, now_ns: u64) -> io::Result<UnixSocket> {
        if self.again_ns.is_some_and(|again_ns| now_ns < again_ns) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let again_ns = Some(now_ns.saturating_add(TRY_AGAIN_NS));
        if self.passing && closer::is_full() {
            // Closing the current descriptors may take any amount of time, and another peer could pass even more.
            self.again_ns = again_ns;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match &self.origin {
            Origin::Listening(listener) => {
                let accepted = listener.accept();
                // A peer that could not be accepted is still waiting, and the listener reports it again immediately.
                let has_failed = accepted
                    .as_ref()
                    .is_err_and(|error| ErrorClass::of(error) != ErrorClass::Later);
                self.again_ns = again_ns.filter(|_| has_failed);
                accepted
            }
            Origin::Connecting(address) => {
                self.again_ns = again_ns;
                let socket = stream(self.passing)?;
                socket.connect(address)?;
                Ok(socket)
            }
        }
    }

    /// Returns the descriptor that becomes readable when a peer connects. The descriptor is never ready if this side
    /// connects, or while the next attempt to accept is not due.
    pub(in crate::live) fn descriptor(&self) -> BorrowedFd<'_> {
        match (&self.origin, self.again_ns) {
            (Origin::Listening(listener), None) => listener.as_fd(),
            _ => self.idle_descriptor(),
        }
    }

    /// Returns a descriptor that is never ready.
    pub(in crate::live) fn idle_descriptor(&self) -> BorrowedFd<'_> {
        self.nobody.as_fd()
    }

    /// Returns the time of the next attempt to connect. Returns `None` if a descriptor becomes readable when a peer
    /// connects.
    pub(in crate::live) fn deadline(&self) -> Option<u64> {
        self.again_ns
    }
}

/// Creates a stream socket without an address.
fn stream(passing: bool) -> io::Result<UnixSocket> {
    match passing {
        true => UnixSocket::passing(UnixKind::Stream),
        false => UnixSocket::new(UnixKind::Stream),
    }
}

/// Returns whether connecting failed because this system ran out of descriptors or memory.
pub(in crate::live) fn is_own_failure(error: &io::Error) -> bool {
    ErrorClass::of(error) == ErrorClass::Exhausted
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::net::UnixStream};

    use super::*;
    use crate::live::unix::MODE;

    fn listening(folder: &tempfile::TempDir) -> Acceptor {
        let address = UnixAddress::new(&folder.path().join("s")).unwrap();
        Acceptor::open(address, &UnixRole::Listen { mode: MODE }, false).unwrap()
    }

    #[test]
    fn a_client_that_was_not_accepted_is_retried_later_without_wakeups() {
        let folder = tempfile::tempdir().unwrap();
        let mut acceptor = listening(&folder);
        let listener = acceptor.descriptor().as_raw_fd();
        assert_eq!(acceptor.connect(7).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!((acceptor.descriptor().as_raw_fd(), acceptor.deadline()), (listener, None));
        // Accepting on a socket that is not listening takes the same error path as running out of file descriptors.
        let deaf = Origin::Listening(UnixSocket::new(UnixKind::Stream).unwrap());
        let hears = core::mem::replace(&mut acceptor.origin, deaf);
        assert_ne!(acceptor.connect(7).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let later = 7 + TRY_AGAIN_NS;
        let asleep = |acceptor: &Acceptor| (acceptor.descriptor().as_raw_fd(), acceptor.deadline());
        let nobody = acceptor.nobody.as_fd().as_raw_fd();
        assert_eq!(asleep(&acceptor), (nobody, Some(later)));
        acceptor.origin = hears;
        let _waits = UnixStream::connect(folder.path().join("s")).unwrap();
        assert_eq!(acceptor.connect(later - 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(
            asleep(&acceptor),
            (nobody, Some(later)),
            "the listener is not polled before that time"
        );
        acceptor.connect(later).unwrap();
        assert_eq!(asleep(&acceptor), (listener, None), "the listener is polled again");
    }
}
