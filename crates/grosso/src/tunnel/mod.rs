//! Tunnels: their ends, packets put in and taken out, ESP, and where remote checksum offload points.

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

use grosso_wire::{Kind, Layer, gue, tcp, udp, vxlan};

use crate::bytes::{u16_at, u32_at};

/// The checksum that the receiver of a tunnelled packet completes, in bytes from the start of the
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteChecksum {
    /// From where to sum.
    pub(crate) start: usize,
    /// Where the checksum lies.
    pub(crate) at: usize,
}

impl RemoteChecksum {
    /// A place that no transport header has.
    pub(crate) const NOWHERE: Self = Self { start: usize::MAX, at: usize::MAX };
}

/// What a tunnel header says of remote checksum offload; `None` when it does not use it.
#[inline]
pub(crate) fn remote_checksum(layer: &Layer, frame: &[u8]) -> Option<RemoteChecksum> {
    match layer.kind {
        Kind::Vxlan => in_vxlan(layer, frame),
        Kind::Gue => in_gue(layer, frame),
        _ => None,
    }
}

/// Rule C50: the start counts in units of two bytes from the byte behind the VXLAN header.
fn in_vxlan(layer: &Layer, frame: &[u8]) -> Option<RemoteChecksum> {
    let header = layer.offset as usize;
    if u32_at(frame, header + vxlan::field::FLAGS.start) & vxlan::FLAG_REMOTE_CHECKSUM == 0 {
        return None;
    }
    let word = u32_at(frame, header + vxlan::field::VNI.start);
    let start = layer.end() + (word & 0x7f) as usize * 2;
    let offset = if word & 0x80 != 0 { udp::field::CHECKSUM } else { tcp::field::CHECKSUM };
    Some(RemoteChecksum { start, at: start + offset.start })
}

/// Rule C51: both offsets count from the byte behind the whole GUE header. Options that reach
/// beyond the header point nowhere (rule C55), which no transport header can agree with.
fn in_gue(layer: &Layer, frame: &[u8]) -> Option<RemoteChecksum> {
    let header = layer.offset as usize;
    let has_private_flags =
        u16_at(frame, header + gue::field::FLAGS.start) & gue::FLAG_PRIVATE != 0;
    let private_flags = header + GUE_PRIVATE_FLAGS;
    if !has_private_flags || u32_at(frame, private_flags) & gue::PRIVATE_FLAG_REMOTE_CHECKSUM == 0 {
        return None;
    }
    if (layer.len as usize) < GUE_WITH_REMOTE_CHECKSUM {
        return Some(RemoteChecksum::NOWHERE);
    }
    let start = layer.end() + u16_at(frame, private_flags + 4) as usize;
    let at = layer.end() + u16_at(frame, private_flags + 6) as usize;
    Some(RemoteChecksum { start, at })
}

/// Where GUE's private flags lie: behind the base word, as the last of the standard fields (rule
/// W20).
const GUE_PRIVATE_FLAGS: usize = 4;
/// Base word, private flags, start and offset.
const GUE_WITH_REMOTE_CHECKSUM: usize = 12;
