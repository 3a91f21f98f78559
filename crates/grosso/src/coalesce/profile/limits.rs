//! Bounds of memory, size and time.

/// Bounds of memory, size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of held trains.
    pub flows: usize,
    /// Maximum number of held buffers of all trains.
    pub parts: usize,
    /// Limit of the superframe length in bytes, counted from the first IP header; a superframe must be shorter, so
    /// 65536 allows 65535 bytes (rule G60).
    pub size_bytes: u32,
    /// Maximum payload of a TCP train in bytes, in addition to [`Self::size_bytes`].
    pub payload_bytes: u32,
    /// Maximum number of packets per TCP train.
    pub tcp_segments: u16,
    /// Maximum number of packets per UDP train (rule U13).
    pub udp_segments: u16,
    /// Maximum time that a train is held across polls, in nanoseconds from its first packet (rule G74); 0 ends every
    /// train with its poll. After polls that used their whole budget, [`Self::full_poll_ns`] may be longer.
    pub hold_ns: u64,
    /// Maximum age of a train that is kept after a poll that used its whole budget, in nanoseconds from the first
    /// packet (rule G72). Applies only if all trains have the same hold time. When such a poll ends, the next packets
    /// have already arrived, so the train adds no delay. Effective only if longer than [`Self::hold_ns`]; 0 disables
    /// it.
    pub full_poll_ns: u64,
}

impl Limits {
    /// Largest size limit that Linux accepts: 8 x 65535 bytes (rule G60).
    pub const SIZE_BYTES_CEILING: u32 = 524_280;
}
