//! Tunnels: endpoints, encapsulation and decapsulation, and ESP.
//!
//! | module | job |
//! |---|---|
//! | `endpoint`, `admission` | one end of a tunnel, and the packets that it admits |
//! | `encapsulate` | a header to put in front; the packet is not copied |
//! | `decapsulate` | packets out of tunnels, planned and then applied in place |
//! | `loop_guard` | a tunnel's own outer packets that come back to it |
//! | `path_mtu` | the message for a sender whose packet is too long |
//! | `probing` | how long packets may be on a path, found out by probes (RFC 8899) |
//! | `congestion` | congestion marks between levels (RFC 6040) |
//! | `esp` | associations, encryption packet by packet, decryption in place (feature `esp`) |

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
