//! Packets as observed by stages that do not own them.

use crate::{
    coalesce::slots::train_id::TrainId,
    flow::{FlowHash, Found},
    meta::Meta,
};

/// A packet as observed by stages that record its result.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) flow: FlowHash,
    /// Bytes of the packet.
    pub(crate) len: usize,
    pub(crate) meta: &'a Meta,
    /// Time of the push.
    pub(crate) now_ns: u64,
    /// Whether packets with these headers can never be merged.
    pub(crate) is_refused: bool,
}

/// A packet that continues its train, or that resembles earlier packets.
///
/// Each stage reads the packet in place. The packet is moved only once, to its train.
#[derive(Debug)]
pub(crate) struct Predicted<'a> {
    pub(crate) observed: Observed<'a>,
    /// Train of the flow.
    pub(crate) found: Found<TrainId>,
    /// Sequence number; UDP has none.
    pub(crate) sequence: Option<u32>,
    /// Payload in bytes, at least one.
    pub(crate) payload_len: usize,
}
