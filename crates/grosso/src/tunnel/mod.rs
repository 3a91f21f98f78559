//! Tunnels: endpoints, encapsulation and decapsulation, ESP, and positions of remote checksum offload.

mod belonging;
pub(crate) mod congestion;
pub mod decapsulate;
pub mod encapsulate;
mod endpoint;
pub mod esp;
mod kind;
mod link;
mod outer;
pub mod path_mtu;

pub use belonging::{Expected, Foreign};
pub use congestion::{Congestion, CongestionMode};
pub use endpoint::{
    Carrier, Contradiction, DontFragment, Dscp, Endpoint, Header, RemoteChecksumUse, TimeToLive,
    Udp,
};
pub use kind::Tunnel;

use grosso_wire::Layer;

/// The checksum that the receiver of a tunnelled packet completes, in bytes from the start of the
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteChecksum {
    /// Start of the sum.
    pub(crate) start: usize,
    /// Position of the checksum field.
    pub(crate) at: usize,
}

impl RemoteChecksum {
    /// A place that no transport header has.
    pub(crate) const NOWHERE: Self = Self { start: usize::MAX, at: usize::MAX };
}

/// Remote checksum offload of a header (rules C50, C51); `None` if it does not use it.
#[inline]
pub(crate) fn remote_checksum(layer: &Layer, frame: &[u8]) -> Option<RemoteChecksum> {
    let read = layer.kind.spec().remote_checksum?;
    let remote = read(frame.get(layer.offset.into()..layer.end())?)?;
    let place = |from_end: usize| layer.end().saturating_add(from_end);
    Some(RemoteChecksum { start: place(remote.start), at: place(remote.at) })
}
