//! Description of a held train for callers.

/// Description of a held train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Number of wire packets in the train.
    pub packets: u32,
    /// Payload of all packets in bytes.
    pub payload_bytes: usize,
    /// Payload bytes of every packet but the last.
    pub size: u16,
    /// Time at which the first packet was pushed, in the caller's nanoseconds.
    pub since_ns: u64,
}
