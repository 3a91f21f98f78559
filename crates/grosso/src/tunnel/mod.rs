//! Tunnels: endpoints, encapsulation, decapsulation and ESP.
//!
//! | module | job |
//! |---|---|
//! | `endpoint`, `admission` | configuration of a tunnel endpoint, and the check that a packet belongs to it |
//! | `encapsulate` | outer headers for a packet, without copying the packet |
//! | `decapsulate` | removal of outer headers, planned first and then applied in place |
//! | `loop_guard` | detection of a tunnel's own outer packets that return to it |
//! | `path_mtu` | ICMP messages to the senders of packets that are too long |
//! | `probing` | path MTU discovery by probes (RFC 8899) |
//! | `congestion` | ECN between inner and outer headers (RFC 6040) |
//! | `esp` | security associations, encryption per packet, decryption in place (feature `esp`) |

mod admission;
pub(crate) mod congestion;
pub mod decapsulate;
pub mod encapsulate;
mod endpoint;
#[cfg(feature = "esp")]
pub mod esp;
mod kind;
mod link;
mod loop_guard;
mod outer;
pub mod path_mtu;
pub mod probing;

pub use admission::{Expected, NotAdmitted};
pub use congestion::{Congestion, CongestionMode};
pub use endpoint::{
    Carrier, Contradiction, DontFragment, Dscp, Endpoint, Header, IpVersion, RemoteChecksumUse,
    TimeToLive, Udp,
};
pub use kind::Tunnel;
pub use loop_guard::{FRAGMENT_AGE_NS, FRAGMENTS_MAX, LoopGuard};
