//! Inner checksums that are still partial, because the sender left them for a device and no device completed them.

use grosso_checksum::Sum;
use grosso_wire::{Ends, Layer};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    template::{render::pseudo_of, shape::Covering},
};

/// Returns the partial checksum of an inner packet that ends at `end`. A checksum is partial if its field contains the
/// pseudo-header sum and this value is not also a valid complete checksum. Such packets come over a virtual link
/// from the same machine, for example from a container: a socket does not report that their checksum is partial.
pub(super) fn left_open(frame: &[u8], inside: &[Layer], end: usize) -> Option<Checksum> {
    let (transport, before) = inside.split_last()?;
    let ip = before.iter().rfind(|layer| layer.kind.is_ip())?;
    let start = usize::from(transport.offset);
    let segment = frame.get(start..end)?;
    let (at, cover) = transport.kind.spec().checksum(segment.get(..transport.end() - start)?)?;
    let (offset, protocol) = (u16::try_from(at).ok()?, cover.protocol());
    if protocol == 0 {
        return None;
    }
    let covering = Covering {
        start: transport.offset,
        at: transport.offset + offset,
        ends: Ends::of(frame, ip),
        protocol,
        zero_means_none: false,
    };
    let pseudo = pseudo_of(&covering, frame, segment.len());
    let is_open = u16_at(segment, at) == pseudo.fold() && !(pseudo + Sum::of(segment)).is_valid();
    is_open.then_some(Checksum::Partial { start: transport.offset, offset })
}
