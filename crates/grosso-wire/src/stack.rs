//! Result of dissection: the headers of a packet, their offsets, and the reason why dissection ended.

use core::fmt;

use crate::kind::Kind;

/// Maximum number of headers per packet. Dissection stops with [`Stop::TooDeep`] if there are more.
///
/// Linux parses up to 15 protocol layers (rule G7); the link layer itself is one more.
pub const LAYERS_MAX: usize = 16;

/// Header of a dissected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Layer {
    /// Kind of the header.
    pub kind: Kind,
    /// Offset of the header in bytes from the start of the frame.
    pub offset: u16,
    /// Length in bytes, including options.
    pub len: u16,
}

impl Layer {
    /// Returns the end of the header in bytes from the start of the frame.
    pub const fn end(&self) -> usize {
        self.offset as usize + self.len as usize
    }
}

/// Reason why dissection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// A transport header (TCP, ICMP, or UDP without a known tunnel) was found; its payload follows.
    Payload,
    /// The payload of an IP fragment follows. It contains no header, or only part of one.
    Fragment,
    /// ESP or another header that hides everything after it was found.
    Encrypted,
    /// The EtherType, IP protocol or tunnel payload type is not supported.
    Unknown,
    /// The frame ends inside the next header.
    Truncated,
    /// The next header is malformed, for example because of a wrong version or a length below its minimum.
    Malformed,
    /// [`LAYERS_MAX`] headers were found and another one follows.
    TooDeep,
}

/// Comparison of the declared lengths with the actual length of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every declared length (IP, UDP, PPPoE) ends with the frame.
    Exact,
    /// A declared length ends before the frame: Ethernet padding, or a trailer.
    Padded,
    /// A declared length ends after the frame: the header is wrong, or the capture is truncated.
    Short,
    /// The IP length is zero, as in BIG TCP superframes: the packet ends with the frame (rule G62).
    Jumbo,
}

impl Extent {
    /// Combines the extents of two levels of a packet. Missing bytes take precedence over padding, padding over an
    /// undeclared length, and an undeclared length over an exact one.
    pub const fn combine(self, other: Self) -> Self {
        if self.rank() >= other.rank() { self } else { other }
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Exact => 0,
            Self::Jumbo => 1,
            Self::Padded => 2,
            Self::Short => 3,
        }
    }
}

/// The headers of one packet, outermost first.
///
/// ```
/// use grosso_wire::{Kind, LinkType, Ports, dissect};
///
/// let mut frame = [0; 60];
/// frame[..4].copy_from_slice(&[0x45, 0, 0, 60]);
/// frame[9] = 17; // UDP
/// let stack = dissect(&frame, LinkType::Raw, &Ports::ASSIGNED);
/// assert_eq!(stack.layers()[0].kind, Kind::Ipv4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    layers: [Layer; LAYERS_MAX],
    count: u8,
    /// Reason why dissection ended.
    pub stop: Stop,
    /// Comparison of the declared lengths with the actual length of the frame.
    pub extent: Extent,
    /// End of the innermost declared payload, in bytes from the start of the frame. With [`Extent::Short`], it may lie
    /// beyond the end of the frame or of an outer declared length; with [`Extent::Padded`], before the end of the
    /// frame.
    pub end: u32,
}

impl Stack {
    /// Creates a stack without layers for a frame of `end` bytes.
    #[inline]
    pub const fn new(end: u32) -> Self {
        let layer = Layer { kind: Kind::Ethernet, offset: 0, len: 0 };
        Self {
            layers: [layer; LAYERS_MAX],
            count: 0,
            stop: Stop::Unknown,
            extent: Extent::Exact,
            end,
        }
    }

    /// Removes all layers.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Appends a header. Returns false if the stack is full.
    #[inline]
    pub fn push(&mut self, layer: Layer) -> bool {
        match self.layers.get_mut(self.count as usize) {
            Some(slot) => {
                *slot = layer;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Returns all header slots, for a dissector that does its own counting.
    pub(crate) const fn slots(&mut self) -> &mut [Layer; LAYERS_MAX] {
        &mut self.layers
    }

    /// Sets the number of filled slots.
    pub(crate) const fn set_count(&mut self, count: usize) {
        self.count = count as u8;
    }

    /// Returns the headers, outermost first.
    #[inline]
    pub fn layers(&self) -> &[Layer] {
        &self.layers[..(self.count as usize).min(LAYERS_MAX)]
    }

    /// Returns the innermost header.
    #[inline]
    pub fn last(&self) -> Option<Layer> {
        self.layers().last().copied()
    }

    /// Returns the end of the innermost header, which is where its payload starts, in bytes from the start of the
    /// frame.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.last().map_or(0, |layer| layer.end())
    }
}

/// Compares the layers and the result of dissection. Unused slots are ignored.
impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        let facts = |stack: &Self| (stack.stop, stack.extent, stack.end);
        facts(self) == facts(other) && self.layers() == other.layers()
    }
}

impl Eq for Stack {}

/// Formats the header names ([`Kind::name`]), outermost first: `eth vlan ip4 udp vxlan eth ip4 tcp`.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, layer) in self.layers().iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            f.write_str(layer.kind.name())?;
        }
        Ok(())
    }
}
