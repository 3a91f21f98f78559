//! Code shared by the ports for tunnels over UDP and for tunnels directly over IP.

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

/// Maximum number of messages that are queued for a socket before one call sends them all.
pub(super) const QUEUE_MAX: usize = grosso_sys::datagram::BATCH_MAX;
/// Length in bytes of the longest packet that every IPv6 path can carry (RFC 8200 section 5).
const CARRIED_IPV6: usize = grosso_wire::ipv6::MTU_MIN as usize;
/// Length in bytes of the longest packet that, as probes assume, every IPv4 path can carry. Every host accepts packets
/// of this length (RFC 791 section 3.1).
const CARRIED_IPV4: usize = 576;
