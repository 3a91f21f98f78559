//! Bypass of flows for which merging does not pay: if checksums are verified in software and packets seldom merge,
//! merging costs more than it saves (P48).

use crate::{
    coalesce::{
        emit::{reason::Pass, verdict::Verdict},
        flows::{
            flow_match::FlowMatch,
            merge::Merger,
            observed::{Observed, Predicted},
        },
        pipeline::{
            burst_bypass::{BurstBypass, is_unverified},
            stage::{Packet, Stage},
        },
        profile::Bypass,
    },
    flow::FlowHash,
    flow_memory::FlowMemory,
};

/// State of flows that are on trial or bypassed.
#[derive(Debug)]
pub(crate) struct Bypasser {
    bypass: Bypass,
    flows: FlowMemory<FlowHash, Trial>,
    /// Number of bypassed flows.
    bypassed: usize,
}

/// Trial state of a flow.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// The flow is on trial.
    Tried { bytes: u32, joined: u32 },
    /// The flow is bypassed for this many more bytes.
    Bypassed { bytes: u32 },
}

impl Bypasser {
    pub(crate) fn new(bypass: Bypass) -> Self {
        Self { bypass, flows: FlowMemory::new(), bypassed: 0 }
    }

    /// Returns whether a packet of this flow and length bypasses merging.
    fn is_bypassed(&mut self, flow: FlowHash, len: usize) -> bool {
        let Some(trial) = self.flows.get_mut(flow) else { return false };
        let Trial::Bypassed { bytes } = *trial else { return false };
        let left = bytes.saturating_sub(bytes_of(len));
        *trial = Trial::Bypassed { bytes: left };
        if left == 0 {
            *trial = Trial::Tried { bytes: 0, joined: 0 };
            self.bypassed -= 1;
        }
        true
    }

    /// Records the verdict on a packet whose payload was read for verification.
    fn try_out(&mut self, flow: FlowHash, len: usize, verdict: Verdict, now_ns: u64) {
        let fresh = || Trial::Tried { bytes: 0, joined: 0 };
        if self.bypassed > 0
            && let Some(Trial::Bypassed { .. }) = self.flows.victim(flow)
        {
            self.bypassed -= 1;
        }
        let trial = self.flows.entry(flow, now_ns, fresh);
        let Trial::Tried { bytes, joined } = *trial else { return };
        let bytes = bytes.saturating_add(bytes_of(len));
        let joined = joined.saturating_add(u32::from(verdict == Verdict::Joined));
        *trial = if bytes < self.bypass.probe_bytes {
            Trial::Tried { bytes, joined }
        } else if joined < self.bypass.joined_min {
            self.bypassed += 1;
            Trial::Bypassed { bytes: self.bypass.skip_bytes }
        } else {
            Trial::Tried { bytes: 0, joined: 0 }
        };
    }
}

/// Converts the length of a packet to `u32`, the type of the byte counts. A longer length becomes `u32::MAX`.
fn bytes_of(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl<B: AsRef<[u8]>> Stage<B> for Bypasser {
    #[inline(always)]
    fn look(&mut self, packet: &Packet<'_, B>, trains: &mut Merger<B>) -> Option<Pass> {
        let FlowMatch { known, flow, .. } = packet.flow_match;
        // Usually no flow is bypassed.
        let is_bypassed = self.bypassed > 0
            && trains.shapes[known].refusal.is_none()
            && self.is_bypassed(flow, packet.incoming.bytes().len());
        is_bypassed.then_some(Pass::Bypass)
    }

    /// Ignores packets whose payload was not read, because verifying them costs nothing.
    #[inline(always)]
    fn learn(&mut self, observed: &Observed<'_>, verdict: Verdict) {
        if verdict != Verdict::Waits && !observed.is_refused && is_unverified(observed.meta) {
            self.try_out(observed.flow, observed.len, verdict, observed.now_ns);
        }
    }

    /// Returns the number of packets that may skip the stage without ending the trial.
    #[inline(always)]
    fn bypass_max(&self, next: &Predicted<'_>) -> u32 {
        if !is_unverified(next.observed.meta) {
            return u32::MAX;
        }
        let Some(&Trial::Tried { bytes, .. }) = self.flows.get(next.observed.flow) else {
            return 0;
        };
        let left = self.bypass.probe_bytes.saturating_sub(bytes);
        left.saturating_sub(1) / bytes_of(next.observed.len).max(1)
    }

    fn learn_run(&mut self, run: &BurstBypass, _: &mut Merger<B>) {
        if run.is_unverified
            && let Some(Trial::Tried { bytes, joined }) = self.flows.get_mut(run.flow)
        {
            *bytes += bytes_of(run.len) * run.packets;
            *joined = joined.saturating_add(run.joined());
            debug_assert!(*bytes < self.bypass.probe_bytes, "bypassed bytes are below the limit");
        }
    }

    /// Returns false while any flow is bypassed, because prediction would verify its packets.
    fn allows_prediction(&self) -> bool {
        self.bypassed == 0
    }
}

#[cfg(test)]
mod tests {
    use std::{format, vec::Vec};

    use super::{BurstBypass, Bypass, Bypasser, Observed, Predicted, Stage, Verdict};
    use crate::{
        checksum::Checksum,
        coalesce::{
            pipeline::stage::probe::Probe, profile::Profile, slots::prediction_id::PredictionId,
        },
        flow::{FlowHash, Found},
        meta::Meta,
    };

    #[test]
    fn packets_that_are_never_joined_pass_for_a_while() {
        let mut probe = Probe::new(&Profile::linux());
        // Each limit is reached after two packets of 154 bytes.
        let bypass = Bypass { probe_bytes: 300, joined_min: 1, skip_bytes: 300 };
        let mut stage = Bypasser::new(bypass);
        for (index, expected) in
            [(1, 0), (2, 0), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3)].into_iter().enumerate()
        {
            let packet = probe.packet(index as u32, 0);
            probe.show(&mut stage, packet);
            assert_eq!((probe.pushed, probe.passed.len()), expected, "packet {index}");
        }
    }

    /// Checks that packets skip the stage only if they cannot end the trial, and that the trial counts them as if the
    /// stage had examined each of them.
    #[test]
    fn a_run_counts_as_its_packets_do() {
        let meta = Meta::default();
        let observed = Observed {
            flow: FlowHash::new(1),
            len: 100,
            meta: &meta,
            now_ns: 0,
            is_refused: false,
        };
        let found = Found::Full(0);
        let predicted = Predicted { observed, found, sequence: Some(0), payload_len: 50 };
        let bypass = Bypass { probe_bytes: 500, joined_min: 3, skip_bytes: 300 };
        let mut all = Bypasser::new(bypass);
        let learn = |stage: &mut Bypasser, verdict| {
            Stage::<Vec<u8>>::learn(stage, &predicted.observed, verdict);
        };
        let mut some = Bypasser::new(bypass);
        for stage in [&mut all, &mut some] {
            learn(stage, Verdict::Held);
        }
        let more = Stage::<Vec<u8>>::bypass_max(&some, &predicted);
        assert_eq!(more, 3, "five packets have 500 bytes");
        let prediction = PredictionId::of(predicted.observed.flow);
        let mut burst = BurstBypass::of(&predicted, prediction, more);
        for verdict in [Verdict::Joined, Verdict::Held, Verdict::Joined] {
            assert!(burst.covers(prediction, &meta, 0));
            burst.count();
            if verdict != Verdict::Joined {
                burst.note_unmerged();
            }
            learn(&mut all, verdict);
        }
        assert!(!burst.covers(prediction, &meta, 0));
        assert_eq!((burst.end(), burst.end(), burst.joined()), (3, 3, 2));
        let mut probe = Probe::new(&Profile::linux());
        some.learn_run(&burst, &mut probe.merger);
        let state = |stage: &Bypasser| format!("{:?}", stage.flows.get(predicted.observed.flow));
        assert_eq!(state(&some), state(&all));
        assert_eq!(Stage::<Vec<u8>>::bypass_max(&some, &predicted), 0);
        // Checksums that the device has already verified cost no time.
        let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..meta };
        let trusted =
            Predicted { observed: Observed { meta: &meta, ..predicted.observed }, ..predicted };
        assert_eq!(Stage::<Vec<u8>>::bypass_max(&some, &trusted), u32::MAX);
        let mut burst = BurstBypass::of(&trusted, prediction, 9);
        burst.count();
        burst.end();
        some.learn_run(&burst, &mut probe.merger);
        assert_eq!(state(&some), state(&all));
    }
}
