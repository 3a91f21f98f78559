//! Last-flow cache. A packet that belongs to the same flow as the previous one need not be hashed.

use crate::{
    coalesce::{rx::shapes::Shapes, slots::shape_id::ShapeId},
    flow::FlowHash,
};

/// Headers of the previous packet, and the hash of its flow.
#[derive(Debug)]
pub(crate) struct LastFlow {
    known: ShapeId,
    flow: FlowHash,
    /// Length of the headers; zero if the cache is empty.
    header_len: u16,
    header: [u8; HEADER_BYTES_MAX],
}

impl LastFlow {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        let (known, flow) = (ShapeId::default(), FlowHash::NONE);
        Self { known, flow, header_len: 0, header: [0; HEADER_BYTES_MAX] }
    }

    /// Clears the cache.
    pub(crate) fn clear(&mut self) {
        self.header_len = 0;
    }

    /// Returns the flow of a packet if it is the cached one.
    #[inline(always)]
    pub(crate) fn flow_of(&self, packet: &[u8], shapes: &Shapes) -> Option<FlowHash> {
        if self.header_len == 0 || packet.len() < self.header_len.into() {
            return None;
        }
        let known = shapes.get(self.known)?;
        known.identity.agrees(&self.header, packet).then_some(self.flow)
    }

    /// Stores the flow of a packet whose headers are known.
    #[inline]
    pub(crate) fn note(&mut self, packet: &[u8], known: ShapeId, flow: FlowHash, shapes: &Shapes) {
        let header_len = shapes[known].shape.header_len;
        self.header_len = 0;
        if let Some(header) = packet.get(..header_len)
            && let Some(place) = self.header.get_mut(..header_len)
        {
            place.copy_from_slice(header);
            (self.known, self.flow, self.header_len) = (known, flow, header_len as u16);
        }
    }
}

/// Maximum length of cached headers in bytes. Packets with longer headers are always hashed.
const HEADER_BYTES_MAX: usize = 160;
