//! Events on the path of a packet, as the sequence numbers of its frame show them.

/// A property of a frame with TCP data that is not the next data of its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceEvent {
    /// The capture had already shown the data: a retransmission.
    Retransmitted,
    /// The data fills a gap, and its first copy was lost before the capture point.
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
