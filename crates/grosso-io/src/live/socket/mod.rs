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
/// Bytes of a packet that every path of IPv6 carries (RFC 8200 section 5).
const CARRIED_IPV6: usize = grosso_wire::ipv6::MTU_MIN as usize;
/// Bytes of a packet that probes take any path of IPv4 to carry: those that every host accepts (RFC 791 section 3.1).
const CARRIED_IPV4: usize = 576;
