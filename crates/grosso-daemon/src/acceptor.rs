//! Accepts clients of listeners, within limits that clients cannot change.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::talk::Talk;

/// Acceptor of clients that wait at nonblocking listeners. It pauses while no descriptors are left.
#[derive(Debug, Default)]
pub struct Acceptor {
    /// Time until which no client is accepted, because no descriptors were left.
    closed_until: Option<Instant>,
}

impl Acceptor {
    /// Returns the time until which no client can be accepted, or `None` if one can be accepted now.
    pub fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.closed_until.filter(|until| now < *until)
    }

    /// Accepts at most [`CLIENTS_MAX`] clients; further clients wait for the next round.
    pub fn accept<T>(&mut self, now: Instant, mut accept: impl FnMut() -> io::Result<T>) -> Vec<T> {
        let mut accepted = Vec::new();
        while accepted.len() < CLIENTS_MAX {
            match accept() {
                Ok(client) => accepted.push(client),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.closed_until = Some(now + CLOSED);
                    break;
                }
            }
        }
        accepted
    }
}

/// Returns whether the error means that the operation should be repeated once the stream is ready.
pub fn is_soon(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Prints a note if other hosts can reach `address`, where the program serves `what`. `option` is the option that sets
/// the address.
pub fn note_reach(talk: &mut Talk, what: &str, address: SocketAddr, option: &str) {
    if !address.ip().is_loopback() {
        talk.note(format!("{what} on {address} can be reached from other hosts"));
        talk.hint(&format!("to serve this host only: {option} 127.0.0.1:PORT"));
    }
}

/// Maximum number of clients that a listener serves at a time.
pub const CLIENTS_MAX: usize = 32;
/// Pause in accepting clients after running out of descriptors.
const CLOSED: Duration = Duration::from_millis(100);
