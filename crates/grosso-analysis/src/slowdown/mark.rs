//! Marks on frames. When a coalescer delivers a train, the marks identify the flow to which it belongs.

use super::event::SequenceEvent;

/// Slot of a flow in the table, and one of the flow's two directions: 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotSide {
    pub(super) slot: u32,
    pub(super) side: u8,
}

/// Mark on a frame: its flow direction, and the number of wire packets in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMark {
    pub(super) place: SlotSide,
    /// Serial number of the flow, which distinguishes it from later flows in the same slot.
    pub(super) serial: u32,
    pub(super) is_tcp: bool,
    pub(crate) event: Option<SequenceEvent>,
    /// Number of wire packets.
    pub(crate) packets: u32,
}

/// Train delivered by a coalescer, with the flow direction to which it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedTrain {
    pub(crate) first: FlowMark,
    /// Number of wire packets.
    pub(crate) packets: u64,
    /// Reason why the train ended.
    pub(crate) ended: &'static str,
}

impl FlowMark {
    pub(super) const fn new(place: SlotSide, serial: u32, is_tcp: bool, packets: u32) -> Self {
        Self { place, serial, is_tcp, event: None, packets }
    }
}
