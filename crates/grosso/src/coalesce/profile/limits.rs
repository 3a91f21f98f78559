//! Bounds of memory, size and time.

/// Bounds of memory, size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Trains held at once.
    pub flows: usize,
    /// Buffers held at once, over all trains.
    pub parts: usize,
    /// Bytes of a superframe from its first IP header on: 65536 means at most 65535 (rule G60).
    pub size_bytes: u32,
    /// Packets in one TCP train.
    pub tcp_segments: u16,
    /// Packets in one UDP train (rule U13).
    pub udp_segments: u16,
    /// Time for which a train may be held across polls at most, in nanoseconds from its first packet (rule
    /// G74); 0 ends every train with its poll. Behind full polls it may be [longer](Self::full_poll_ns).
    pub hold_ns: u64,
    /// Time for which a train may be held across polls that took as many packets as they may, in nanoseconds from its
    /// first packet, where every train is held equally long (rule G72): more packets are there already, so that nothing
    /// is waited for. It counts where it is longer than [`Self::hold_ns`]; 0 leaves all to that.
    pub full_poll_ns: u64,
}

impl Limits {
    /// The largest size limit that Linux allows to be set: 8 x 65535 (rule G60).
    pub const SIZE_BYTES_CEILING: u32 = 524_280;
}
