//! Order in which the packets of a poll are merged.

/// Order in which the packets of a poll are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Batch {
    /// Packets are merged in order of arrival.
    #[default]
    AsItCame,
    /// Packets are sorted by flow. They keep their order within a flow, but not between flows. Packets of the first
    /// flow in a batch are merged without delay.
    ByFlow {
        /// Maximum number of packets per batch, at most [`Batch::PACKETS_CEILING`]. A batch ends early at the end of a
        /// poll, or at a packet whose flow cannot be read.
        packets: u16,
    },
}

impl Batch {
    /// Upper bound of `packets`.
    pub const PACKETS_CEILING: u16 = 1 << 14;
}
