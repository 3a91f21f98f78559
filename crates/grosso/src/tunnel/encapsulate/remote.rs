//! Inner checksum that remote checksum offload leaves to the receiver.

use grosso_wire::{Stack, Stop};

use super::inside::Inside;
use crate::{checksum::Checksum, meta::Meta, remote_checksum::remote_checksum};

/// Checksum that is left to the receiver, in bytes from the start of the inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// Start of the sum.
    pub(super) start: u16,
    /// Position of the checksum field in bytes from `start`.
    pub(super) offset: u16,
}

impl Remote {
    /// Returns a packet's partial checksum, to be left to the receiver (rule C52). Returns `None` if another inner
    /// checksum covers it, because that one would have to be valid both before and after this one is completed.
    pub(super) fn of(inside: &Inside, head: &[u8], stack: &Stack, meta: &Meta) -> Option<Self> {
        let Checksum::Partial { start, offset } = meta.checksum else { return None };
        let (last, around) = stack.layers().split_last()?;
        let is_transport = stack.stop == Stop::Payload && last.offset == start;
        let has_checksum = around.iter().any(|layer| {
            let header = head.get(layer.offset.into()..layer.end()).unwrap_or_default();
            let own = layer.kind.spec().checksum(header);
            own.is_some() || remote_checksum(layer, head).is_some()
        });
        // The receiver counts from the start of the packet, including the tag that is inserted into it.
        let start = usize::from(start) - inside.start + inside.tagged_len();
        let is_even = start.is_multiple_of(2) && offset.is_multiple_of(2);
        let start = u16::try_from(start).ok()?;
        (is_transport && !has_checksum && is_even).then_some(Self { start, offset })
    }
}
