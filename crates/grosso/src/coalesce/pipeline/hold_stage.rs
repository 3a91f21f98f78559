//! Stage that reports arriving packets to the hold-time controller.

use crate::coalesce::{
    emit::reason::Pass,
    flows::{
        merge::Merger,
        observed::{Observed, Predicted},
    },
    pipeline::{
        burst_bypass::BurstBypass,
        stage::{Packet, Stage},
    },
    profile::{Hold, Profile},
};

/// Stage that counts the mergeable packets of each flow. It comes before the stages that delay packets, because it
/// measures how fast packets of a flow arrive, to determine hold times.
#[derive(Debug)]
pub(crate) struct HoldStage(());

impl HoldStage {
    /// Creates the stage if the profile needs it.
    pub(crate) fn of(profile: &Profile) -> Option<Self> {
        let is_controlled = profile.hold == Hold::Controlled && profile.limits.hold_ns > 0;
        is_controlled.then_some(Self(()))
    }
}

impl<B: AsRef<[u8]>> Stage<B> for HoldStage {
    #[inline(always)]
    fn look(&mut self, packet: &Packet<'_, B>, trains: &mut Merger<B>) -> Option<Pass> {
        let Packet { incoming, flow_match } = packet;
        let known = &trains.shapes[flow_match.known];
        if known.refusal.is_none() {
            let payload_len = incoming.bytes().len() - known.shape.header_len;
            trains.retention.count(flow_match.flow, payload_len, flow_match.found, incoming.now_ns);
        }
        None
    }

    #[inline(always)]
    fn may_bypass(&mut self, predicted: &Predicted<'_>, trains: &mut Merger<B>) -> bool {
        let &Predicted { observed: Observed { flow, now_ns, .. }, found, payload_len, .. } =
            predicted;
        trains.retention.count(flow, payload_len, found, now_ns);
        true
    }

    fn learn_run(&mut self, run: &BurstBypass, trains: &mut Merger<B>) {
        trains.retention.count_more(run.flow, run.payload_bytes(), run.now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, HoldStage, Profile};
    use crate::coalesce::pipeline::stage::probe::Probe;

    #[test]
    fn every_packet_is_counted_and_handed_on() {
        let mut profile = Profile::linux();
        assert!(HoldStage::of(&profile).is_none());
        (profile.hold, profile.limits.hold_ns) = (Hold::Controlled, 100_000);
        let mut stage = HoldStage::of(&profile).expect("holds are controlled");
        let mut probe = Probe::new(&profile);
        // A flow is counted once it has sent a burst, because its round-trip time is unknown.
        for (index, blind) in [(0, 0), (1, 1), (2, 1)] {
            let packet = probe.packet(index, u64::from(index) * 1000);
            probe.show(&mut stage, packet);
            assert_eq!(probe.merger.retention.blind(), blind);
        }
        assert_eq!(probe.pushed, 3);
    }
}
