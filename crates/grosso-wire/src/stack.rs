//! The result of dissection: the headers of a packet, their positions, and the reason why the walk ended.

use core::fmt;

use crate::kind::Kind;

/// Most headers that one packet is dissected into; the walk stops with [`Stop::TooDeep`] beyond it.
///
/// Linux enters 15 protocol layers (rule G7); one more makes room for the link layer itself.
pub const LAYERS_MAX: usize = 16;

/// One header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Layer {
    /// Kind of the header.
    pub kind: Kind,
    /// Start of the header, in bytes from the start of the frame.
    pub offset: u16,
    /// Length in bytes, options included.
    pub len: u16,
}

impl Layer {
    /// End of the header, in bytes from the start of the frame.
    #[inline]
    pub const fn end(&self) -> usize {
        self.offset as usize + self.len as usize
    }
}

/// Reason why the walk over the headers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// A transport header (TCP, UDP without a known tunnel inside, ICMP) was found; its payload
    /// follows.
    Payload,
    /// The payload of an IP fragment follows; it has no header of its own, or only the first part
    /// of one.
    Fragment,
    /// ESP or another header that hides what follows.
    Encrypted,
    /// An EtherType, IP protocol or tunnel payload type that has no view here.
    Unknown,
    /// The frame ends inside the header that should come next.
    Truncated,
    /// The next header contradicts itself: a wrong version, a length below its minimum.
    Malformed,
    /// [`LAYERS_MAX`] headers were found and another one follows.
    TooDeep,
}

/// Comparison of the lengths that the headers declare with the bytes present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every declared length (IP, UDP, PPPoE) ends exactly where the frame ends.
    Exact,
    /// A declared length ends before the frame does: Ethernet padding, or a trailer.
    Padded,
    /// A declared length ends beyond the frame: the header is wrong, or the capture was cut short.
    Short,
    /// An IP length of zero, as BIG TCP superframes have: the packet ends with the frame (rule
    /// G62).
    Jumbo,
}

impl Extent {
    /// Combines the extents of two levels of a packet: missing bytes outweigh padding, which outweighs an undeclared
    /// length, which outweighs an exact one.
    #[inline]
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
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    layers: [Layer; LAYERS_MAX],
    count: u8,
    /// Reason why the walk ended.
    pub stop: Stop,
    /// Comparison of the declared lengths with the frame.
    pub extent: Extent,
    /// End of the innermost declared payload, in bytes from the start of the frame. It may lie beyond the frame or
    /// beyond an outer declared length with [`Extent::Short`], and before the end of the frame with [`Extent::Padded`].
    pub end: u32,
}

impl Stack {
    /// A stack without layers for a frame of `end` bytes.
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

    /// Forgets the headers.
    #[inline]
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Appends a header; `false` when there is no room for it.
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

    /// The room for headers, for a walk that counts them itself.
    #[inline]
    pub(crate) const fn slots(&mut self) -> &mut [Layer; LAYERS_MAX] {
        &mut self.layers
    }

    /// Sets the number of slots that were filled.
    #[inline]
    pub(crate) const fn set_count(&mut self, count: usize) {
        self.count = count as u8;
    }

    /// The headers, outermost first.
    #[inline]
    pub fn layers(&self) -> &[Layer] {
        &self.layers[..(self.count as usize).min(LAYERS_MAX)]
    }

    /// The innermost header.
    #[inline]
    pub fn last(&self) -> Option<Layer> {
        self.layers().last().copied()
    }

    /// End of the innermost header and start of its payload, in bytes from the start of the frame.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.last().map_or(0, |layer| layer.end())
    }
}

/// Equality of what was found; the slots behind the last header do not count.
impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        let facts = |stack: &Self| (stack.stop, stack.extent, stack.end);
        facts(self) == facts(other) && self.layers() == other.layers()
    }
}

impl Eq for Stack {}

/// The words of [`Kind::name`], outermost first: `eth vlan ip4 udp vxlan eth ip4 tcp`.
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
