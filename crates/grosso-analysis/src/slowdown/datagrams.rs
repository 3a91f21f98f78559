//! UDP flow: the statistics of both directions, for the flow table.

use super::{figures::Figures, slots::Tracked};
use crate::evidence::{Judgment, Sight};

/// UDP flow.
#[derive(Debug, Default)]
pub(super) struct UdpFlow {
    /// Statistics of both directions. Only frames, packets, bytes, sizes and times are counted.
    pub(super) figures: [Figures; 2],
    is_recent: bool,
}

impl Tracked for UdpFlow {
    fn take_recent(&mut self) -> bool {
        std::mem::take(&mut self.is_recent)
    }
}

impl UdpFlow {
    /// Processes a frame in direction `side`, and returns the number of packets in it.
    pub(super) fn observe(&mut self, side: usize, sight: &Sight<'_>, judgment: &Judgment) -> u32 {
        self.is_recent = true;
        let payload = sight.transport.map_or(0, |transport| transport.payload);
        let time_ns = sight.packet.timestamp_ns.unwrap_or(0);
        let segments = judgment.segments(payload);
        self.figures[side].count(time_ns, u32::try_from(payload).unwrap_or(u32::MAX), &segments);
        segments.packets
    }
}
