//! Tunnels: endpoints, encapsulation and decapsulation, ESP, and positions of remote checksum offload.

mod admission;
pub(crate) mod congestion;
pub mod decapsulate;
pub mod encapsulate;
mod endpoint;
pub mod esp;
mod kind;
mod link;
mod outer;
pub mod path_mtu;

pub use admission::{Expected, NotAdmitted};
pub use congestion::{Congestion, CongestionMode};
pub use endpoint::{
    Carrier, Contradiction, DontFragment, Dscp, Endpoint, Header, RemoteChecksumUse, TimeToLive,
    Udp,
};
pub use kind::Tunnel;
