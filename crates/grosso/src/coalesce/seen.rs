//! Packets as observed by stages that do not own them.

use crate::{
    coalesce::train_id::TrainId,
    flow::{FlowHash, Found},
    meta::Meta,
};

/// A packet as observed by stages that learn its result.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) flow: FlowHash,
    /// Bytes of the packet.
    pub(super) len: usize,
    pub(super) meta: &'a Meta,
    /// Time of the push.
    pub(super) now_ns: u64,
    /// Whether packets with its headers can never be merged.
    pub(super) is_refused: bool,
}

/// A packet that continues its train, or that resembles those before it.
///
/// The packet is not moved between stages: each reads it in place, and from there it goes to its train.
#[derive(Debug)]
pub(super) struct Predicted<'a> {
    pub(super) seen: Seen<'a>,
    /// Train of its flow.
    pub(super) found: Found<TrainId>,
    /// Sequence number; UDP has none.
    pub(super) sequence: Option<u32>,
    /// Payload in bytes, at least one.
    pub(super) payload_len: usize,
}
