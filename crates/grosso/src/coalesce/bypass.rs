//! Flows that are not worth the work: where checksums are verified in software and packets are seldom joined, joining
//! costs more than it saves (P48).

use crate::{
    checksum::Checksum,
    coalesce::{Bypass, Verdict, memory::FlowMemory},
    flow::FlowHash,
    meta::Meta,
};

/// The flows that are tried, and those that are not.
#[derive(Debug)]
pub(super) struct Bypasser {
    bypass: Bypass,
    flows: FlowMemory<FlowHash, Trial>,
}

/// What became of a flow's packets lately.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// They are tried.
    Tried { bytes: u32, joined: u32 },
    /// They pass, so many bytes of them yet.
    Passing { bytes: u32 },
}

impl Bypasser {
    pub(super) fn new(bypass: Bypass) -> Self {
        Self { bypass, flows: FlowMemory::new() }
    }

    /// Whether a packet of this flow and length passes.
    pub(super) fn passes(&mut self, flow: FlowHash, len: usize) -> bool {
        let Some(trial) = self.flows.get_mut(flow) else { return false };
        let Trial::Passing { bytes } = *trial else { return false };
        let left = bytes.saturating_sub(u32::try_from(len).unwrap_or(u32::MAX));
        *trial = if left == 0 {
            Trial::Tried { bytes: 0, joined: 0 }
        } else {
            Trial::Passing { bytes: left }
        };
        true
    }

    /// Learns what became of a packet that was tried.
    pub(super) fn learn(
        &mut self,
        flow: FlowHash,
        meta: &Meta,
        len: usize,
        verdict: Verdict,
        now_ns: u64,
    ) {
        let fresh = || Trial::Tried { bytes: 0, joined: 0 };
        let trial = self.flows.entry(flow, now_ns, fresh);
        let Trial::Tried { bytes, joined } = *trial else { return };
        let read = if meta.checksum == Checksum::None { len } else { 0 };
        let bytes = bytes.saturating_add(u32::try_from(read).unwrap_or(u32::MAX));
        let joined = joined.saturating_add(u32::from(verdict == Verdict::Joined));
        *trial = if bytes < self.bypass.probe_bytes {
            Trial::Tried { bytes, joined }
        } else if joined < self.bypass.joined_min {
            Trial::Passing { bytes: self.bypass.skip_bytes }
        } else {
            Trial::Tried { bytes: 0, joined: 0 }
        };
    }
}
