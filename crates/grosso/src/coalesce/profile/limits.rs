//! Limits on memory, size and time.

/// Limits on memory, size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of held trains.
    pub flows: usize,
    /// Maximum number of buffers held in all trains combined.
    pub parts: usize,
    /// Limit on the length of a superframe in bytes, counted from the first IP header. A superframe must be shorter
    /// than this, so 65536 allows 65535 bytes (rule G60).
    pub size_bytes: u32,
    /// Maximum payload of a TCP train in bytes, in addition to [`Self::size_bytes`].
    pub payload_bytes: u32,
    /// Maximum number of packets per TCP train.
    pub tcp_segments: u16,
    /// Maximum number of packets per UDP train (rule U13).
    pub udp_segments: u16,
    /// Maximum time for which a train is held across polls, in nanoseconds from its first packet (rule G74). If this is
    /// 0, no train outlasts its poll. After polls that used their whole budget, [`Self::full_poll_ns`] applies if it is
    /// longer.
    pub hold_ns: u64,
    /// Maximum age of a train to be kept when a poll ends because its budget is used up, in nanoseconds from the first
    /// packet (rule G72). At the end of such a poll, the next packets have already arrived, so keeping the train adds
    /// no delay. The limit applies only if all trains have the same hold time and it is longer than [`Self::hold_ns`];
    /// 0 disables it.
    pub full_poll_ns: u64,
}

impl Limits {
    /// Largest size limit that Linux accepts: 8 x 65535 bytes (rule G60).
    pub const SIZE_BYTES_CEILING: u32 = 524_280;
}
