//! The stage that tells controlled holds what comes.

use crate::coalesce::{
    Hold, Profile, Verdict,
    merge::Merger,
    prediction_id::PredictionId,
    stage::{Next, Packet, Stage},
};

/// Counts the packets of each flow that may be in a train, before anything can delay them: the pace of a flow decides
/// how long its trains are held.
#[derive(Debug)]
pub(super) struct Pacer(());

impl Pacer {
    /// The stage, if a profile asks for it.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let is_controlled = profile.hold == Hold::Controlled && profile.limits.hold_ns > 0;
        is_controlled.then_some(Self(()))
    }
}

impl<B: AsRef<[u8]>> Stage<B> for Pacer {
    #[inline(always)]
    fn push(&mut self, packet: Packet<'_, B>, next: &mut impl Next<B>) -> Verdict {
        count(&packet, next.trains().0);
        next.push(packet)
    }

    #[inline(always)]
    fn push_predicted(
        &mut self,
        predicted: PredictionId,
        packet: Packet<'_, B>,
        next: &mut impl Next<B>,
    ) -> Verdict {
        count(&packet, next.trains().0);
        next.push_predicted(predicted, packet)
    }
}

fn count<B: AsRef<[u8]>>(packet: &Packet<'_, B>, merger: &mut Merger<B>) {
    let known = &merger.shapes[packet.located.known];
    if known.refusal.is_none() {
        let payload_len = packet.incoming.bytes().len() - known.shape.header_len;
        let located = &packet.located;
        merger.retention.count(located.flow, payload_len, located.found, packet.incoming.now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, Pacer, Profile, Stage};
    use crate::coalesce::stage::probe::Probe;

    #[test]
    fn every_packet_is_counted_and_handed_on() {
        let mut profile = Profile::linux();
        assert!(Pacer::of(&profile).is_none());
        (profile.hold, profile.limits.hold_ns) = (Hold::Controlled, 100_000);
        let mut stage = Pacer::of(&profile).expect("holds are controlled");
        let mut probe = Probe::new(&profile);
        // Nobody said how long a round trip takes of a flow that was seen to send in a burst.
        for (index, blind) in [(0, 0), (1, 1), (2, 1)] {
            let packet = probe.packet(index, u64::from(index) * 1000);
            stage.push(packet, &mut probe);
            assert_eq!(probe.merger.retention.blind(), blind);
        }
        assert_eq!(probe.pushed, 3);
    }
}
