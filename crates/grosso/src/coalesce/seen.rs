//! Packets as stages see them that do not take them.

use crate::{
    coalesce::train_id::TrainId,
    flow::{FlowHash, Found},
    meta::Meta,
};

/// A packet as stages see it that learn what becomes of it.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) flow: FlowHash,
    /// Bytes of the packet.
    pub(super) len: usize,
    pub(super) meta: &'a Meta,
    /// Time at which it was pushed.
    pub(super) now_ns: u64,
    /// Whether packets with its headers are in no train, whatever else they hold.
    pub(super) is_refused: bool,
}

/// A packet that is the next one of its train, or that resembles those before it.
///
/// It is not moved from stage to stage: each looks at it where it lies, and it goes into its train from there.
#[derive(Debug)]
pub(super) struct Predicted<'a> {
    pub(super) seen: Seen<'a>,
    /// The train of its flow.
    pub(super) found: Found<TrainId>,
    /// Its sequence number; UDP has none.
    pub(super) sequence: Option<u32>,
    /// Bytes of its payload, which has one at least.
    pub(super) payload_len: usize,
}
