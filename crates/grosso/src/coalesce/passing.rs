//! The form of packets that pass alone, one behind the other: small ones that are pushed, of whatever flows.

use crate::{
    coalesce::{
        reason::Pass,
        shape_id::ShapeId,
        shapes::{Known, Shapes},
    },
    meta::Meta,
    template::compare::TUNNEL_BYTES,
};

/// A packet that passed by its flags. Another one of the same form and length passes for the same reason, once its
/// checksums were looked at.
#[derive(Debug)]
pub(super) struct Passing {
    /// Length of the example; zero where there is none.
    len: usize,
    known: ShapeId,
    reason: Pass,
    /// Length of the packet that passed last.
    latest_len: usize,
    header: [u8; TUNNEL_BYTES],
}

impl Passing {
    pub(super) fn new() -> Self {
        let (known, reason) = (ShapeId::default(), Pass::TcpPush);
        Self { len: 0, known, reason, latest_len: 0, header: [0; TUNNEL_BYTES] }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The headers of a packet that is of the form of the example, and the reason for which it passes.
    #[inline(always)]
    pub(super) fn of<'a>(
        &self,
        packet: &[u8],
        meta: &Meta,
        shapes: &'a Shapes,
    ) -> Option<(&'a Known, Pass)> {
        if self.len != packet.len() || meta.gso.is_some() {
            return None;
        }
        let known = shapes.get(self.known)?;
        known.form.agrees(&self.header, packet).then_some((known, self.reason))
    }

    /// Takes a packet that passed as the example, where lengths repeat.
    #[inline(always)]
    pub(super) fn learn(&mut self, packet: &[u8], header_len: usize, known: ShapeId, reason: Pass) {
        let latest_len = core::mem::replace(&mut self.latest_len, packet.len());
        if latest_len == packet.len() && header_len <= TUNNEL_BYTES {
            self.header[..header_len].copy_from_slice(&packet[..header_len]);
            (self.len, self.known, self.reason) = (packet.len(), known, reason);
        }
    }
}
