//! What ports on sockets of a tunnel share: those of UDP, and those of an IP protocol.

mod outer;
mod path;
mod sending;
mod stats;

pub use self::stats::{SocketEvent, SocketStats};
pub(super) use self::{
    outer::{Arrived, Made, Outer},
    path::Paths,
    sending::Sending,
};

/// Messages that wait for a socket before they are sent: as many as one call sends.
pub(super) const QUEUE_MAX: usize = grosso_sys::datagram::BATCH_MAX;
