//! Flows that are not worth the work: where checksums are verified in software and packets are seldom joined, joining
//! costs more than it saves (P48).

use crate::{
    checksum::Checksum,
    coalesce::{
        Bypass, Verdict,
        incoming::Incoming,
        prediction_id::PredictionId,
        reason::Pass,
        stage::{Next, Packet, Stage},
    },
    flow::FlowHash,
    flow_memory::FlowMemory,
    meta::Meta,
};

/// The flows that are tried, and those that are not.
#[derive(Debug)]
pub(super) struct Bypasser {
    bypass: Bypass,
    flows: FlowMemory<FlowHash, Trial>,
    /// Number of flows whose packets pass.
    passing: usize,
}

/// State of a flow: whether its packets are tried.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// They are tried.
    Tried { bytes: u32, joined: u32 },
    /// They pass, so many bytes of them yet.
    Passing { bytes: u32 },
}

impl Bypasser {
    pub(super) fn new(bypass: Bypass) -> Self {
        Self { bypass, flows: FlowMemory::new(), passing: 0 }
    }

    /// Whether a packet of this flow and length passes.
    fn passes(&mut self, flow: FlowHash, len: usize) -> bool {
        let Some(trial) = self.flows.get_mut(flow) else { return false };
        let Trial::Passing { bytes } = *trial else { return false };
        let left = bytes.saturating_sub(u32::try_from(len).unwrap_or(u32::MAX));
        *trial = Trial::Passing { bytes: left };
        if left == 0 {
            *trial = Trial::Tried { bytes: 0, joined: 0 };
            self.passing -= 1;
        }
        true
    }

    /// Learns what became of a packet that was tried.
    fn learn(&mut self, flow: FlowHash, meta: &Meta, len: usize, verdict: Verdict, now_ns: u64) {
        let fresh = || Trial::Tried { bytes: 0, joined: 0 };
        if self.passing > 0
            && let Some(Trial::Passing { .. }) = self.flows.victim(flow)
        {
            self.passing -= 1;
        }
        let trial = self.flows.entry(flow, now_ns, fresh);
        let Trial::Tried { bytes, joined } = *trial else { return };
        let read = if meta.checksum == Checksum::None { len } else { 0 };
        let bytes = bytes.saturating_add(u32::try_from(read).unwrap_or(u32::MAX));
        let joined = joined.saturating_add(u32::from(verdict == Verdict::Joined));
        *trial = if bytes < self.bypass.probe_bytes {
            Trial::Tried { bytes, joined }
        } else if joined < self.bypass.joined_min {
            self.passing += 1;
            Trial::Passing { bytes: self.bypass.skip_bytes }
        } else {
            Trial::Tried { bytes: 0, joined: 0 }
        };
    }
}

impl<B: AsRef<[u8]>> Stage<B> for Bypasser {
    fn push(&mut self, packet: Packet<'_, B>, next: &mut impl Next<B>) -> Verdict {
        let (merger, _) = next.trains();
        if merger.shapes[packet.located.known].refusal.is_some() {
            return next.push(packet);
        }
        let (flow, len) = (packet.located.flow, packet.incoming.bytes().len());
        if self.passes(flow, len) {
            return next.pass(packet, Pass::Bypass);
        }
        let Incoming { meta, now_ns, .. } = packet.incoming;
        let verdict = next.push(packet);
        if verdict != Verdict::Waits {
            self.learn(flow, meta, len, verdict, now_ns);
        }
        verdict
    }

    #[inline(always)]
    fn push_predicted(
        &mut self,
        predicted: PredictionId,
        packet: Packet<'_, B>,
        next: &mut impl Next<B>,
    ) -> Verdict {
        let (flow, len) = (packet.located.flow, packet.incoming.bytes().len());
        let Incoming { meta, now_ns, .. } = packet.incoming;
        let verdict = next.push_predicted(predicted, packet);
        if verdict != Verdict::Waits {
            self.learn(flow, meta, len, verdict, now_ns);
        }
        verdict
    }

    /// Packets that pass are not verified.
    fn lets_predict(&self) -> bool {
        self.passing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Bypass, Bypasser, Stage};
    use crate::coalesce::{Profile, stage::probe::Probe};

    #[test]
    fn packets_that_are_never_joined_pass_for_a_while() {
        let mut probe = Probe::new(&Profile::linux());
        // Two packets of 154 bytes each.
        let bypass = Bypass { probe_bytes: 300, joined_min: 1, skip_bytes: 300 };
        let mut stage = Bypasser::new(bypass);
        for (index, expected) in
            [(1, 0), (2, 0), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3)].into_iter().enumerate()
        {
            let packet = probe.packet(index as u32, 0);
            stage.push(packet, &mut probe);
            assert_eq!((probe.pushed, probe.passed.len()), expected, "packet {index}");
        }
    }
}
