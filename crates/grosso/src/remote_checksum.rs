//! Remote checksum offload: a tunnel header asks the receiver to complete a checksum in the inner packet.

use grosso_wire::Layer;

/// Location of the checksum that the receiver of a tunneled packet completes, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteChecksum {
    /// Start of the sum.
    pub(crate) start: usize,
    /// Offset of the checksum field.
    pub(crate) at: usize,
}

impl RemoteChecksum {
    /// Location that differs from that of every checksum in a frame.
    pub(crate) const NOWHERE: Self = Self { start: usize::MAX, at: usize::MAX };
}

/// Returns the remote checksum offload that a header requests (rules C50, C51), if any.
pub(crate) fn remote_checksum(layer: &Layer, frame: &[u8]) -> Option<RemoteChecksum> {
    let read = layer.kind.spec().remote_checksum?;
    let remote = read(frame.get(layer.offset.into()..layer.end())?)?;
    let place = |from_end: usize| layer.end().saturating_add(from_end);
    Some(RemoteChecksum { start: place(remote.start), at: place(remote.at) })
}
