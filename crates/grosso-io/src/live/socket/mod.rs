//! Parts shared by ports on the sockets of a tunnel, whether in UDP or directly in IP.

mod outer;
mod path;
mod recent;
mod sending;
mod stats;

pub use self::stats::{SocketEvent, SocketStats};
pub(super) use self::{
    outer::{Arrived, BuiltHeaders, Outer},
    path::Paths,
    sending::SocketSender,
};

/// Messages queued for a socket before they are sent: the number that one call sends.
pub(super) const QUEUE_MAX: usize = grosso_sys::datagram::BATCH_MAX;
