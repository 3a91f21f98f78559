//! Position of the dissector in a frame, which each header's reader advances.

use crate::kind::Kind;
use crate::ports::Ports;
use crate::stack::{Extent, LAYERS_MAX, Layer, Stop};

/// The header that the walk meets next.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Header(Kind),
    /// The header that an EtherType of a link layer announces.
    EtherType(u16),
    /// The header that an EtherType of a tunnel header announces.
    Tunnelled(u16),
    /// The header that a next protocol of VXLAN-GPE announces.
    Numbered(u8),
    /// IPv4 or IPv6: the version nibble decides.
    Ip,
    /// An IP protocol where IPv6 extension headers have no place.
    Protocol(u8),
    /// The header that an IPv6 next-header field announces.
    AfterIpv6(u8),
    /// The payload of a UDP datagram to this port.
    UdpPayload(u16),
}

/// A step of the walk: the next header, or the reason to stop.
pub(crate) type Step = Result<Next, Stop>;

/// Position of the dissector in a frame.
pub(crate) struct Walk<'a, 's> {
    pub(crate) ports: &'s Ports,
    pub(crate) layers: &'s mut [Layer; LAYERS_MAX],
    /// Number of headers found: here and not in the stack, so that it stays in a register.
    pub(crate) count: usize,
    /// The bytes from the next header to the nearest end: the frame's or a declared one.
    pub(crate) rest: &'a [u8],
    /// Start of `rest` in the frame.
    pub(crate) offset: usize,
    /// End of the innermost declared payload; beyond the frame when the frame was cut short.
    pub(crate) end: usize,
    pub(crate) extent: Extent,
    /// The innermost IP header declares no length.
    pub(crate) jumbo: bool,
}

impl<'a> Walk<'a, '_> {
    /// The kind of the header that was appended last.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<Kind> {
        let last = self.count.checked_sub(1).and_then(|last| self.layers.get(last));
        last.map(|layer| layer.kind)
    }

    /// Appends a header of `len` bytes and steps over it, unless it is cut.
    #[inline(always)]
    pub(crate) fn push(&mut self, kind: Kind, len: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(len..).ok_or(Stop::Truncated)?;
        // The longest header has 2048 bytes and LAYERS_MAX of them come before this one at most, so
        // both numbers fit in 16 bits.
        let layer = Layer { kind, offset: self.offset as u16, len: len as u16 };
        *self.layers.get_mut(self.count).ok_or(Stop::TooDeep)? = layer;
        self.count += 1;
        self.offset += len;
        Ok(())
    }

    /// Takes the payload length that an IP header declares, unless it declares none.
    #[inline(always)]
    pub(crate) fn declare_ip(&mut self, len: usize) {
        if self.jumbo {
            self.extent = self.extent.combine(Extent::Jumbo);
        } else {
            self.declare(len);
        }
    }

    /// Takes a declared length, counted from the end of the header that declares it.
    #[inline(always)]
    pub(crate) fn declare(&mut self, len: usize) {
        let end = self.offset.saturating_add(len);
        if end == self.end {
            return;
        }
        let extent = if end > self.end { Extent::Short } else { Extent::Padded };
        self.extent = self.extent.combine(extent);
        self.end = end;
        self.rest = self.rest.get(..len).unwrap_or(self.rest);
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub(crate) fn peek<const N: usize>(&self) -> Result<&'a [u8; N], Stop> {
        self.rest.first_chunk().ok_or(Stop::Truncated)
    }
}

#[inline]
pub(crate) fn u16_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}
