//! Order in which the packets of a poll are joined.

/// Order in which the packets of a poll are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Batch {
    /// As they came.
    #[default]
    AsItCame,
    /// Flow by flow, each in the order of its arrival. The packets of one flow stay in their order,
    /// those of several may leave in another one than they came in. Those of the first flow of a batch need not wait.
    ByFlow {
        /// Most packets collected, at most [`Batch::PACKETS_CEILING`]; the end of a poll comes
        /// first, or a packet whose flow cannot be read.
        packets: u16,
    },
}

impl Batch {
    /// The most packets that any batch collects.
    pub const PACKETS_CEILING: u16 = 1 << 14;
}
