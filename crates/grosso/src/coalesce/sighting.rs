//! The flow that was sighted last: a packet of the same one need not be hashed.

use crate::{
    coalesce::{shape_id::ShapeId, shapes::Shapes},
    flow::FlowHash,
};

/// Headers of a packet, and the flow that they were hashed to.
#[derive(Debug)]
pub(super) struct Sighting {
    known: ShapeId,
    flow: FlowHash,
    /// Bytes of the headers; zero where nothing was sighted.
    header_len: u16,
    header: [u8; HEADER_BYTES_MAX],
}

impl Sighting {
    /// Of nothing.
    pub(super) fn new() -> Self {
        let (known, flow) = (ShapeId::default(), FlowHash::NONE);
        Self { known, flow, header_len: 0, header: [0; HEADER_BYTES_MAX] }
    }

    /// Forgets it.
    pub(super) fn clear(&mut self) {
        self.header_len = 0;
    }

    /// The flow of a packet, if it is the one that was sighted.
    #[inline(always)]
    pub(super) fn flow_of(&self, packet: &[u8], shapes: &Shapes) -> Option<FlowHash> {
        if self.header_len == 0 || packet.len() < self.header_len.into() {
            return None;
        }
        let known = shapes.get(self.known)?;
        known.identity.agrees(&self.header, packet).then_some(self.flow)
    }

    /// Notes a packet with known headers, and its flow.
    #[inline]
    pub(super) fn note(&mut self, packet: &[u8], known: ShapeId, flow: FlowHash, shapes: &Shapes) {
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

/// Maximum length in bytes of headers that are noted. Longer ones are hashed each time.
const HEADER_BYTES_MAX: usize = 160;
