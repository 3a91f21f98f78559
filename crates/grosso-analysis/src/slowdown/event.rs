//! Events on the path of a packet that its sequence number shows.

/// An event that explains why the data in a TCP frame does not directly follow the earlier data of its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceEvent {
    /// The capture had already shown the data: a retransmission.
    Retransmitted,
    /// The data fills a gap: it was lost before the capture point, and retransmitted.
    LostBefore,
    /// The data arrived after later data.
    Late,
    /// The network made a copy of an earlier packet.
    Duplicated,
}

impl SequenceEvent {
    /// Returns the name of the event in exported tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retransmitted => "retransmitted",
            Self::LostBefore => "lost_before",
            Self::Late => "late",
            Self::Duplicated => "duplicated",
        }
    }
}
