//! Descriptions of packets, for stages that look at a packet without owning it.

use crate::{
    coalesce::slots::train_id::TrainId,
    flow::{FlowHash, Found},
    meta::Meta,
};

/// Description of a pushed packet. Each stage receives it together with the result of the push.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) flow: FlowHash,
    /// Length of the packet in bytes.
    pub(crate) len: usize,
    pub(crate) meta: &'a Meta,
    /// Time of the push.
    pub(crate) now_ns: u64,
    /// Whether packets with these headers can never be merged.
    pub(crate) is_refused: bool,
}

/// A packet that continues its train or resembles earlier packets.
///
/// Stages read the packet in place. The packet is moved only once, to its train.
#[derive(Debug)]
pub(crate) struct Predicted<'a> {
    pub(crate) observed: Observed<'a>,
    /// Train of the flow.
    pub(crate) found: Found<TrainId>,
    /// TCP sequence number, or `None` for UDP.
    pub(crate) sequence: Option<u32>,
    /// Length of the payload in bytes, which is at least one.
    pub(crate) payload_len: usize,
}
