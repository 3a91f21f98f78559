//! Position of the dissector in a frame, which the reader of each header advances.

use crate::kind::Kind;
use crate::ports::Ports;
use crate::stack::{Extent, LAYERS_MAX, Layer, Stop};

/// The next header.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Header(Kind),
    /// A header announced by an EtherType in a link-layer header.
    EtherType(u16),
    /// A header announced by an EtherType in a tunnel header.
    Tunnelled(u16),
    /// A header announced by a VXLAN-GPE next protocol.
    Numbered(u8),
    /// IPv4 or IPv6, depending on the version field.
    Ip,
    /// A header announced by an IP protocol where IPv6 extension headers are not allowed.
    Protocol(u8),
    /// A header announced by an IPv6 next-header field.
    AfterIpv6(u8),
    /// The payload of a UDP datagram to this port.
    UdpPayload(u16),
}

/// Result of one step: the next header, or the reason to stop.
pub(crate) type Step = Result<Next, Stop>;

/// Position of the dissector in a frame.
pub(crate) struct Walk<'a, 's> {
    pub(crate) ports: &'s Ports,
    pub(crate) layers: &'s mut [Layer; LAYERS_MAX],
    /// Number of headers found. It is kept outside the stack, so that it stays in a register.
    pub(crate) count: usize,
    /// Bytes from the next header to the end of the frame or to an earlier declared end.
    pub(crate) rest: &'a [u8],
    /// Offset of `rest` in the frame.
    pub(crate) offset: usize,
    /// End of the innermost declared payload. It lies beyond the frame if the frame is truncated.
    pub(crate) end: usize,
    pub(crate) extent: Extent,
    /// Whether the innermost IP header declares no length.
    pub(crate) jumbo: bool,
}

impl<'a> Walk<'a, '_> {
    /// Returns the kind of the last appended header.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<Kind> {
        let last = self.count.checked_sub(1).and_then(|last| self.layers.get(last));
        last.map(|layer| layer.kind)
    }

    /// Appends a header of `len` bytes and advances past it, unless it is truncated.
    #[inline(always)]
    pub(crate) fn push(&mut self, kind: Kind, len: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(len..).ok_or(Stop::Truncated)?;
        // The longest header is 2048 bytes long, and fewer than LAYERS_MAX headers precede this one, so both numbers
        // fit into 16 bits.
        let layer = Layer { kind, offset: self.offset as u16, len: len as u16 };
        *self.layers.get_mut(self.count).ok_or(Stop::TooDeep)? = layer;
        self.count += 1;
        self.offset += len;
        Ok(())
    }

    /// Applies the payload length that an IP header declares, if it declares one.
    #[inline(always)]
    pub(crate) fn declare_ip(&mut self, len: usize) {
        if self.jumbo {
            self.extent = self.extent.combine(Extent::Jumbo);
        } else {
            self.declare(len);
        }
    }

    /// Applies a declared length, counted from the end of the declaring header.
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

    /// Returns the next `N` bytes.
    pub(crate) fn peek<const N: usize>(&self) -> Result<&'a [u8; N], Stop> {
        self.rest.first_chunk().ok_or(Stop::Truncated)
    }
}

pub(crate) fn u16_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}
