//! Parts shared by ports on the sockets of a tunnel, whether in UDP or directly in IP.

mod outer;
mod path;
mod port;
mod recent;
mod sending;
mod stats;

pub use self::stats::{SocketEvent, SocketStats};
pub(super) use self::{
    outer::{Arrived, BuiltHeaders, Outer},
    path::Paths,
    port::{DatagramPort, Sockets},
    sending::SocketSender,
};

/// Number of messages queued for a socket before they are sent, which one call sends.
pub(super) const QUEUE_MAX: usize = grosso_sys::datagram::BATCH_MAX;
/// Packet length in bytes that every IPv6 path carries (RFC 8200 section 5).
const CARRIED_IPV6: usize = grosso_wire::ipv6::MTU_MIN as usize;
/// Packet length in bytes that probing assumes every IPv4 path carries: the length that every host accepts (RFC 791
/// section 3.1).
const CARRIED_IPV4: usize = 576;
