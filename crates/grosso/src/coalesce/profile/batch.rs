//! Order in which the packets of a poll are merged.

/// Order in which the packets of a poll are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Batch {
    /// In order of arrival.
    #[default]
    AsItCame,
    /// Sorted by flow. Packets of one flow keep their order, while packets of different flows may be reordered. Packets
    /// of the first flow of a batch are merged without delay.
    ByFlow {
        /// Maximum number of packets per batch, at most [`Batch::PACKETS_CEILING`]. The end of a poll or a packet whose
        /// flow cannot be read ends the batch earlier.
        packets: u16,
    },
}

impl Batch {
    /// Upper bound of `packets`.
    pub const PACKETS_CEILING: u16 = 1 << 14;
}
