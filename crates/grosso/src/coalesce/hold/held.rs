//! Description of a held train, for callers.

/// Description of a held train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Number of wire packets in the train.
    pub packets: u32,
    /// Total payload of the packets, in bytes.
    pub payload_bytes: usize,
    /// Payload length in bytes of every packet except the last, which may be shorter.
    pub size: u16,
    /// Time at which the first packet was pushed, in nanoseconds on the caller's clock.
    pub since_ns: u64,
}
