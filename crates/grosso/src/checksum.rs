//! Checksum states: knowledge about a checksum travels beside the packet, so that nothing is summed twice.

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{Role, Segmentation, Stack};

use crate::bytes::put_u16;

/// Knowledge about the checksums of a packet (rules C1, C2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// None: a receiver that depends on them has to verify them.
    #[default]
    None,
    /// The first `levels` + 1 transport or tunnel checksums, from the outermost on, are verified.
    Unnecessary {
        /// Verified checksums beyond the first.
        levels: u8,
    },
    /// The one's-complement sum of everything from the first network header on.
    Complete {
        /// That sum, folded and not complemented.
        sum: u16,
    },
    /// One checksum field holds only the pseudo-header sum: the sender of the packet sums everything from `start` on
    /// and stores the complement at `start + offset`. The checksum counts as right, and so do those around it; those
    /// inside it are unknown.
    Partial {
        /// Start of the sum, in bytes from the start of the frame.
        start: u16,
        /// Position of the checksum field, in bytes from `start`.
        offset: u16,
    },
}

impl Checksum {
    /// The partial checksum of the innermost TCP or UDP header, as in every superframe of Linux; [`Checksum::None`] if
    /// the innermost header is another.
    #[must_use]
    pub fn of_transport(stack: &Stack) -> Self {
        let Some(layer) = stack.last() else { return Self::None };
        let spec = layer.kind.spec();
        if !matches!(spec.segmentation, Segmentation::Tcp | Segmentation::Udp) {
            return Self::None;
        }
        let field = spec.layout(&[]).fields.iter().find(|field| field.role == Role::Checksum);
        field.map_or(Self::None, |field| Self::Partial {
            start: layer.offset,
            offset: field.bytes.start as u16,
        })
    }
}

/// A partial checksum that does not lie inside its packet (rule C3, B32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePacket {
    /// Requested start of the sum.
    pub start: u16,
    /// Requested position of the checksum field, from `start` on.
    pub offset: u16,
    /// The length of the packet in bytes.
    pub len: usize,
}

impl core::fmt::Display for OutsidePacket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { start, offset, len } = self;
        write!(f, "checksum at {start} + {offset} lies outside the packet of {len} bytes")
    }
}

impl core::error::Error for OutsidePacket {}

/// Completes a partial checksum in software (rule C3).
///
/// A result of zero is stored as 0xffff whatever the protocol, as Linux does; both denote the same sum, and only UDP
/// distinguishes them. A superframe is never completed, only its segments are.
///
/// # Errors
/// An error if the checksum does not lie inside the packet, which then stays unchanged.
pub fn complete(packet: &mut [u8], start: u16, offset: u16) -> Result<(), OutsidePacket> {
    let at = usize::from(start) + usize::from(offset);
    if at + 2 > packet.len() {
        return Err(OutsidePacket { start, offset, len: packet.len() });
    }
    let sum = Sum::of(&packet[usize::from(start)..]);
    put_u16(packet, at, nonzero(sum.checksum()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{OutsidePacket, complete};

    #[test]
    fn c03_partial_outside_the_packet_is_refused_and_nothing_is_written() {
        let mut packet = [0x11_u8; 40];
        for (start, offset) in [(40, 0), (34, 6), (0, 39), (41, 0), (u16::MAX, u16::MAX), (39, 0)] {
            let error = complete(&mut packet, start, offset).unwrap_err();
            assert_eq!(error, OutsidePacket { start, offset, len: 40 });
        }
        assert_eq!(packet, [0x11; 40]);
    }

    #[test]
    fn c03_zero_is_stored_as_all_ones() {
        let mut packet = [0xff, 0xff, 0, 0];
        complete(&mut packet, 0, 2).unwrap();
        assert_eq!(packet, [0xff, 0xff, 0xff, 0xff]);
    }
}
