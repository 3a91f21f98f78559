//! Headers of the datagram completed last. The next datagram usually has the same kinds of headers, so they need not be
//! dissected again.

use grosso_wire::{LinkType, Ports, Stack, dissect, dissect_into};

use crate::template::{HEADER_BYTES_MAX, compare::Mask, shape::Shape};

/// Headers of the datagram completed last, and their laws.
#[derive(Debug)]
pub(super) struct LatestHeaders {
    stack: Stack,
    shape: Shape,
    /// Bits that determine the headers.
    structure: Mask,
    example: [u8; HEADER_BYTES_MAX],
    /// Length of the headers in bytes; zero if there are none.
    len: usize,
}

impl LatestHeaders {
    pub(super) fn new() -> Self {
        let stack = Stack::new(0);
        Self {
            stack,
            shape: Shape::new(&stack, &[]),
            structure: Mask::nothing(0),
            example: [0; HEADER_BYTES_MAX],
            len: 0,
        }
    }

    /// Clears the headers. This is necessary when the same bytes may take on another meaning.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the laws for the headers of a complete datagram, which are the first `len` bytes.
    pub(super) fn shape(
        &mut self,
        headers: &[u8; HEADER_BYTES_MAX],
        len: usize,
        link: LinkType,
        ports: &Ports,
    ) -> &Shape {
        let header = headers.get(..len).unwrap_or_default();
        if self.len == len && self.structure.agrees(&self.example, headers) {
            debug_assert!(
                self.stack.layers() == dissect(header, link, ports).layers(),
                "the structure determines the headers"
            );
            return &self.shape;
        }
        dissect_into(header, link, ports, &mut self.stack);
        self.shape = Shape::new(&self.stack, header);
        // The offload refers to an offset in one packet and does not apply to the whole datagram.
        self.shape.remote_checksum = None;
        self.structure = Mask::structure(&self.stack, header);
        self.example = *headers;
        self.len = len;
        &self.shape
    }
}
