//! Header shape of consecutive packets that are delivered unmerged. They are typically small packets with PSH, and may
//! belong to several flows.

use crate::{
    coalesce::{
        emit::reason::Pass,
        rx::shapes::{CachedStack, Shapes},
        slots::shape_id::ShapeId,
    },
    meta::Meta,
    template::compare::TUNNEL_BYTES,
};

/// Example of a packet that was delivered unmerged because of its flags. Another packet with the same shape and length
/// is delivered unmerged for the same reason, once its checksums are verified.
#[derive(Debug)]
pub(crate) struct Passthrough {
    /// Length of the example; zero if there is none.
    len: usize,
    known: ShapeId,
    reason: Pass,
    /// Length of the last packet that was delivered unmerged.
    latest_len: usize,
    header: [u8; TUNNEL_BYTES],
}

impl Passthrough {
    pub(crate) fn new() -> Self {
        let (known, reason) = (ShapeId::default(), Pass::TcpPush);
        Self { len: 0, known, reason, latest_len: 0, header: [0; TUNNEL_BYTES] }
    }

    /// Removes the example.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the headers and the pass reason of a packet if it has the shape of the example.
    #[inline(always)]
    pub(crate) fn of<'a>(
        &self,
        packet: &[u8],
        meta: &Meta,
        shapes: &'a Shapes,
    ) -> Option<(&'a CachedStack, Pass)> {
        if self.len != packet.len() || meta.gso.is_some() {
            return None;
        }
        let known = shapes.get(self.known)?;
        known.form.agrees(&self.header, packet).then_some((known, self.reason))
    }

    /// Makes an unmerged packet the example if it has the same length as the one before it.
    #[inline(always)]
    pub(crate) fn learn(&mut self, packet: &[u8], header_len: usize, known: ShapeId, reason: Pass) {
        let latest_len = core::mem::replace(&mut self.latest_len, packet.len());
        if latest_len == packet.len() && header_len <= TUNNEL_BYTES {
            self.header[..header_len].copy_from_slice(&packet[..header_len]);
            (self.len, self.known, self.reason) = (packet.len(), known, reason);
        }
    }
}
