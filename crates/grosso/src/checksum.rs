//! Checksum states. A packet carries the state of its checksums with it, so that no byte has to be summed twice.

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{Class, Ends, Extent, Kind, Layer, Role, Segmentation, Stack, Stop, tcp, udp};

use crate::bytes::put_u16;

/// State of the checksums of a packet (rules C1, C2), equivalent to Linux's `ip_summed`.
///
/// ```
/// use grosso::checksum::{Checksum, complete};
///
/// let mut packet = [0x12, 0x34, 0x00, 0x00]; // a checksum field at offset 2 that covers all four bytes
/// complete(&mut packet, 0, 2)?;
/// assert_eq!(packet[2..], (!0x1234u16).to_be_bytes());
/// assert_eq!(Checksum::default(), Checksum::None);
/// # Ok::<(), grosso::checksum::OutsidePacket>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Not verified. A receiver that relies on the checksums must verify them (`CHECKSUM_NONE`).
    #[default]
    None,
    /// The outermost `levels` + 1 transport and tunnel checksums are verified (`CHECKSUM_UNNECESSARY`).
    Unnecessary {
        /// Number of verified checksums in addition to the outermost checksum.
        levels: u8,
    },
    /// The one's-complement sum of the packet, starting at its first network header (`CHECKSUM_COMPLETE`).
    Complete {
        /// The sum, folded and not complemented.
        sum: u16,
    },
    /// One checksum field holds only the pseudo-header sum (`CHECKSUM_PARTIAL`). The transmitter sums the packet,
    /// starting at `start`, and stores the complement at `start + offset`. This checksum and the checksums of outer
    /// headers count as valid; the state of inner checksums is unknown.
    Partial {
        /// Start of the sum, in bytes from the start of the frame.
        start: u16,
        /// Offset of the checksum field, in bytes from `start`.
        offset: u16,
    },
}

impl Checksum {
    /// Returns the partial checksum of the innermost TCP or UDP header, as Linux sets it in every superframe. Returns
    /// [`Checksum::None`] if the innermost header is neither TCP nor UDP.
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

/// Error: a partial checksum lies outside its packet (rules C3, B32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePacket {
    /// Requested start of the sum, in bytes.
    pub start: u16,
    /// Requested offset of the checksum field, in bytes from `start`.
    pub offset: u16,
    /// Length of the packet in bytes.
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
/// A result of zero is stored as 0xffff for every protocol, as in Linux. Both values denote the same sum; only UDP
/// distinguishes them. Never complete the checksum of a superframe: complete those of its segments instead.
///
/// # Errors
/// Returns [`OutsidePacket`] if the checksum field lies outside the packet, which is then unchanged.
pub fn complete(packet: &mut [u8], start: u16, offset: u16) -> Result<(), OutsidePacket> {
    let at = usize::from(start) + usize::from(offset);
    if at + 2 > packet.len() {
        return Err(OutsidePacket { start, offset, len: packet.len() });
    }
    let sum = Sum::of(&packet[usize::from(start)..]);
    put_u16(packet, at, nonzero(sum.checksum()));
    Ok(())
}

/// Replaces the checksum of the innermost TCP or UDP header with the pseudo-header sum and returns the partial state
/// for the packet's metadata (rule C3). Use this function in a network stack that offloads checksums to the device.
///
/// `packet` must be complete, and may be a superframe. `stack` is the result of dissecting it. Returns
/// [`Checksum::None`] and leaves the packet unchanged if the pseudo-header sum is not defined: the innermost header is
/// neither TCP nor UDP, the packet is a fragment or has IPv6 extension headers, or bytes follow the end of the IP
/// packet.
#[must_use]
pub fn make_partial(packet: &mut [u8], stack: &Stack) -> Checksum {
    let Some((transport, sum)) = opened(packet, stack) else { return Checksum::None };
    let (offset, field) = checksum_field(&transport);
    if field + 2 > packet.len() {
        return Checksum::None;
    }
    put_u16(packet, field, sum);
    Checksum::Partial { start: transport.offset, offset }
}

/// Returns the innermost TCP or UDP header, and the pseudo-header sum that belongs in its checksum field if the
/// checksum is partial. Returns `None` for a frame with padding, because the sum would include the padding, and for a
/// packet with IPv6 extension headers.
pub(crate) fn opened(packet: &[u8], stack: &Stack) -> Option<(Layer, u16)> {
    let is_extension = |layer: &Layer| layer.kind.class() == Class::Extension;
    if stack.extent != Extent::Exact || stack.layers().iter().any(is_extension) {
        return None;
    }
    let transport = transport(stack)?;
    Some((transport, pseudo_sum(packet, stack, &transport)?))
}

/// Returns the pseudo-header sum of the innermost transport header, whose payload ends with the frame.
pub(crate) fn pseudo_sum(frame: &[u8], stack: &Stack, transport: &Layer) -> Option<u16> {
    let ip = ip_layers(stack).last()?;
    let protocol = if transport.kind == Kind::Tcp { 6 } else { 17 };
    let length = stack.end.checked_sub(u32::from(transport.offset))?;
    Some(Ends::of(frame, ip).pseudo(frame, protocol, length as usize).fold())
}

/// Returns the TCP or UDP header whose payload ends with the frame.
pub(crate) fn transport(stack: &Stack) -> Option<Layer> {
    let last = stack.last().filter(|layer| layer.kind.is_transport())?;
    (stack.stop == Stop::Payload).then_some(last)
}

/// Returns the offset of a transport header's checksum field, relative to the header and relative to the frame.
pub(crate) fn checksum_field(transport: &Layer) -> (u16, usize) {
    let field = match transport.kind {
        Kind::Tcp => tcp::field::CHECKSUM,
        _ => udp::field::CHECKSUM,
    };
    (field.start as u16, usize::from(transport.offset) + field.start)
}

/// Returns the IP headers, outermost first.
pub(crate) fn ip_layers(stack: &Stack) -> impl Iterator<Item = &Layer> {
    stack.layers().iter().filter(|layer| layer.kind.is_ip())
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports, dissect};

    use super::{Checksum, OutsidePacket, complete, make_partial};

    #[test]
    fn c03_a_checksum_made_partial_and_completed_is_the_one_that_was_there() {
        let tcp = |packet: Packet| packet.tcp(|t| t.sequence(7)).payload_len(333).build();
        let udp = |packet: Packet| packet.udp(|u| u).payload_len(77).build();
        let v4 = || Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        let v6 = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
        for whole in [tcp(v4()), tcp(v6()), udp(v4()), udp(v6())] {
            let stack = dissect(&whole, LinkType::Ethernet, &Ports::ASSIGNED);
            let mut packet = whole.clone();
            let made = make_partial(&mut packet, &stack);
            let Checksum::Partial { start, offset } = made else { panic!("{made:?}") };
            assert_eq!(made, Checksum::of_transport(&stack));
            assert_ne!(packet, whole);
            complete(&mut packet, start, offset).unwrap();
            assert_eq!(packet, whole);
        }
    }

    #[test]
    fn c03_nothing_is_made_partial_where_the_sum_is_not_determined() {
        let packet = || Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(9);
        let mut padded = packet().build();
        padded.extend([0x5a; 20]);
        let short: Vec<u8> = packet().build()[..40].to_vec();
        for whole in [padded, short, [0x45; 3].to_vec(), Vec::new()] {
            let stack = dissect(&whole, LinkType::Ethernet, &Ports::ASSIGNED);
            let mut packet = whole.clone();
            assert_eq!(make_partial(&mut packet, &stack), Checksum::None);
            assert_eq!(packet, whole);
        }
    }

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
