//! Thresholds for bypassing a flow.

/// Thresholds for bypassing a flow. Packets of a bypassed flow are delivered unverified, after the held train of the
/// flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// Number of bytes of a flow to verify before deciding whether to bypass it. Bytes that the device has verified do
    /// not count, because they cost no CPU time.
    pub probe_bytes: u32,
    /// Minimum number of packets that must merge within [`Self::probe_bytes`]; otherwise the flow is bypassed.
    pub joined_min: u32,
    /// Number of bytes to deliver unmerged before giving the flow another try.
    pub skip_bytes: u32,
}

impl Default for Bypass {
    /// Returns the default: a flow is bypassed for the next 700 packets if fewer than 4 of about 45 full-sized packets
    /// merge.
    fn default() -> Self {
        Self { probe_bytes: 64 << 10, joined_min: 4, skip_bytes: 1 << 20 }
    }
}
