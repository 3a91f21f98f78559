//! Fast path: predicted packets of a burst bypass the stages.

use crate::{
    checksum::Checksum,
    coalesce::{
        prediction_id::PredictionId,
        seen::{Predicted, Seen},
    },
    flow::FlowHash,
    meta::Meta,
};

/// Packets of one prediction that come in one instant, as those of a poll do. The one before them is shown to every
/// stage, each of which says how many it lets by behind it; the stages learn of these in one piece, before anything
/// else happens to them.
#[derive(Debug)]
pub(super) struct Lease {
    prediction: PredictionId,
    /// Packets that may still bypass the stages.
    left: u32,
    /// Packets that may bypass the stages until the lease ends; afterwards those that did.
    pub(super) packets: u32,
    /// Those that went by and did not join.
    unjoined: u32,
    /// Whether the checksums of the packets are not known yet.
    pub(super) is_unverified: bool,
    pub(super) now_ns: u64,
    pub(super) flow: FlowHash,
    /// Bytes of each packet, and of its payload.
    pub(super) len: usize,
    pub(super) payload_len: usize,
}

impl Lease {
    /// For no packet.
    pub(super) const NONE: Self = Self {
        prediction: PredictionId::NONE,
        left: 0,
        packets: 0,
        unjoined: 0,
        is_unverified: false,
        now_ns: 0,
        flow: FlowHash::NONE,
        len: 0,
        payload_len: 0,
    };

    /// For this many packets, starting with this one.
    #[inline]
    pub(super) fn of(next: &Predicted<'_>, prediction: PredictionId, left: u32) -> Self {
        let Predicted { seen: Seen { flow, len, meta, now_ns, .. }, payload_len, .. } = *next;
        let (packets, unjoined) = (left, 0);
        let is_unverified = is_unverified(meta);
        Self { prediction, left, packets, unjoined, is_unverified, now_ns, flow, len, payload_len }
    }

    /// Returns whether a packet of this prediction may bypass the stages.
    #[inline(always)]
    pub(super) fn covers(&self, prediction: PredictionId, meta: &Meta, now_ns: u64) -> bool {
        let is_alike = prediction == self.prediction && now_ns == self.now_ns;
        is_alike && self.left > 0 && is_unverified(meta) == self.is_unverified
    }

    /// Counts a packet that bypasses the stages.
    #[inline(always)]
    pub(super) fn count(&mut self) {
        self.left -= 1;
    }

    /// Takes note that a packet which went by did not join.
    pub(super) fn note_unjoined(&mut self) {
        self.unjoined += 1;
    }

    /// Ends it, and gives the number of packets that went by.
    #[inline(always)]
    pub(super) fn end(&mut self) -> u32 {
        self.packets -= self.left;
        self.left = 0;
        self.packets
    }

    /// Number of packets that went by and joined their train.
    pub(super) fn joined(&self) -> u32 {
        self.packets - self.unjoined
    }

    /// Payload bytes that went by.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_len * self.packets as usize
    }
}

/// Whether the checksums of a packet are not known.
#[inline(always)]
pub(super) fn is_unverified(meta: &Meta) -> bool {
    matches!(meta.checksum, Checksum::None)
}
