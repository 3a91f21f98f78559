//! Bounds at which a flow is left alone for a while.

/// Bounds at which the packets of a flow are no longer tried. They then pass unverified, behind what is held of their
/// flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// Bytes of a flow that are verified before it is judged. Those that a device verified cost nothing and do not
    /// count.
    pub probe_bytes: u32,
    /// Fewest of those packets that join another, for the flow to be tried further.
    pub joined_min: u32,
    /// Bytes that pass before the flow is tried again.
    pub skip_bytes: u32,
}

impl Default for Bypass {
    /// Of some 45 full packets fewer than 4 joined: the next 700 pass.
    fn default() -> Self {
        Self { probe_bytes: 64 << 10, joined_min: 4, skip_bytes: 1 << 20 }
    }
}
