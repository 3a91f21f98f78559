//! Layout of the flow table.

/// Layout of the flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableShape {
    /// Buckets of eight ways each, a power of two (other values are raised to the next).
    pub buckets: usize,
    /// Choice of a packet's bucket.
    pub choice: BucketChoice,
}

/// Choice of a packet's bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketChoice {
    /// By the engine's own seeded hash of the flow.
    Seeded,
    /// By the low bits of the device's hash, or bucket 0 when there is none, as Linux does (rules
    /// G2, G3). For comparison only: a few flows without a device hash fill the one bucket.
    Device,
}
