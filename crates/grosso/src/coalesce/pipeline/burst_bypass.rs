//! Fast path on which the predicted packets of a burst bypass the stages.

use crate::{
    checksum::Checksum,
    coalesce::{
        flows::observed::{Observed, Predicted},
        slots::prediction_id::PredictionId,
    },
    flow::FlowHash,
    meta::Meta,
};

/// Packets that match one prediction and have the same arrival time, for example the packets of one poll. The packet
/// before them went through every stage, and each stage returned how many packets may bypass it. The stages are
/// notified of the bypassed packets once, before any other event.
#[derive(Debug)]
pub(crate) struct BurstBypass {
    prediction: PredictionId,
    /// Number of packets that may still bypass the stages.
    left: u32,
    /// During the burst, the number of packets that may bypass the stages; afterwards, the number that did.
    pub(crate) packets: u32,
    /// Number of packets on the fast path that did not merge.
    unjoined: u32,
    /// Whether the checksums of the packets have not been verified.
    pub(crate) is_unverified: bool,
    pub(crate) now_ns: u64,
    pub(crate) flow: FlowHash,
    /// Length of each packet in bytes.
    pub(crate) len: usize,
    /// Payload length of each packet in bytes.
    pub(crate) payload_len: usize,
}

impl BurstBypass {
    /// Closed fast path: no packet may use it.
    pub(crate) const NONE: Self = Self {
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

    /// Opens the fast path for `left` packets, the first of which is `next`.
    #[inline]
    pub(crate) fn of(next: &Predicted<'_>, prediction: PredictionId, left: u32) -> Self {
        let Predicted { observed: Observed { flow, len, meta, now_ns, .. }, payload_len, .. } =
            *next;
        let (packets, unjoined) = (left, 0);
        let is_unverified = is_unverified(meta);
        Self { prediction, left, packets, unjoined, is_unverified, now_ns, flow, len, payload_len }
    }

    /// Returns whether a packet that matches this prediction may bypass the stages.
    #[inline(always)]
    pub(crate) fn covers(&self, prediction: PredictionId, meta: &Meta, now_ns: u64) -> bool {
        let is_alike = prediction == self.prediction && now_ns == self.now_ns;
        is_alike && self.left > 0 && is_unverified(meta) == self.is_unverified
    }

    /// Counts a packet that bypasses the stages.
    pub(crate) fn count(&mut self) {
        self.left -= 1;
    }

    /// Records that a packet on the fast path did not merge.
    pub(crate) fn note_unmerged(&mut self) {
        self.unjoined += 1;
    }

    /// Closes the fast path and returns the number of packets that used it.
    #[inline(always)]
    pub(crate) fn end(&mut self) -> u32 {
        self.packets -= self.left;
        self.left = 0;
        self.packets
    }

    /// Returns the number of packets on the fast path that merged.
    pub(crate) fn joined(&self) -> u32 {
        self.packets - self.unjoined
    }

    /// Returns the total payload of the packets on the fast path, in bytes.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_len * self.packets as usize
    }
}

/// Returns whether a packet's checksums have not been verified.
pub(crate) fn is_unverified(meta: &Meta) -> bool {
    matches!(meta.checksum, Checksum::None)
}
