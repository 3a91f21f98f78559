//! Marks on frames. With its mark, a coalescer later reports the train of a frame to the flow.

use super::event::SequenceEvent;

/// Slot of a flow in the table, and one of its two directions: 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotSide {
    pub(super) slot: u32,
    pub(super) side: u8,
}

/// Mark on a frame: the flow direction to which the frame belongs, and the number of wire packets in the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMark {
    pub(super) place: SlotSide,
    /// Number of the flow, which distinguishes it from later flows in its slot.
    pub(super) serial: u32,
    pub(super) is_tcp: bool,
    pub(crate) event: Option<SequenceEvent>,
    /// Number of packets on the wire.
    pub(crate) packets: u32,
}

/// A train that a coalescer delivered, with the flow direction to which it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedTrain {
    pub(crate) first: FlowMark,
    /// Number of packets on the wire.
    pub(crate) packets: u64,
    /// Reason for the end of the train.
    pub(crate) ended: &'static str,
}

impl FlowMark {
    pub(super) const fn new(place: SlotSide, serial: u32, is_tcp: bool, packets: u32) -> Self {
        Self { place, serial, is_tcp, event: None, packets }
    }
}
