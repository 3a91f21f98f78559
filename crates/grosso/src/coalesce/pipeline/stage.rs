//! Stages of a profile's pipeline, which process packets before they reach the trains.

use crate::{
    coalesce::{
        emit::{
            delivery::Sink,
            reason::{Pass, Release},
            verdict::Verdict,
        },
        flows::{
            flow_match::FlowMatch,
            flush_scope::FlushScope,
            merge::Merger,
            observed::{Observed, Predicted},
        },
        hold::train::Examined,
        pipeline::burst_bypass::BurstBypass,
        rx::rx_packet::RxPacket,
    },
    flow::FlowHash,
};

/// A packet whose headers and flow are known.
#[derive(Debug)]
pub(crate) struct Packet<'a, B> {
    pub(crate) incoming: RxPacket<'a, B>,
    pub(crate) flow_match: FlowMatch,
}

impl<'a, B: AsRef<[u8]>> Packet<'a, B> {
    /// Returns the description of the packet that stages receive along with its verdict.
    #[inline(always)]
    pub(crate) fn observed(&self, is_refused: bool) -> Observed<'a> {
        let RxPacket { meta, now_ns, .. } = self.incoming;
        let (flow, len) = (self.flow_match.flow, self.incoming.bytes().len());
        Observed { flow, len, meta, now_ns, is_refused }
    }
}

/// A stage before the trains.
///
/// A pipeline contains only the stages that its profile needs. The headers and trains, which stages share, are passed
/// to every call.
pub(crate) trait Stage<B: AsRef<[u8]>> {
    /// Examines a packet that was not predicted. If a reason is returned, the packet is not merged, and no other stage
    /// examines it.
    fn look(&mut self, _packet: &Packet<'_, B>, _trains: &mut Merger<B>) -> Option<Pass> {
        None
    }

    /// Takes a mergeable packet, and releases it immediately, later, or after other packets. Returns the packet if the
    /// stage has no use for it.
    fn take(
        &mut self,
        examined: Examined<B>,
        _located: &FlowMatch,
        _next: &mut impl Downstream<B>,
    ) -> Result<Verdict, Examined<B>> {
        Err(examined)
    }

    /// Releases queued packets of a flow before an unmergeable packet of that flow. Returns whether there were such
    /// packets.
    fn flush_flow(&mut self, _packet: &Packet<'_, B>, _next: &mut impl Downstream<B>) -> bool {
        false
    }

    /// Returns whether a predicted packet may bypass this stage on the way to its train; otherwise the stage takes the
    /// packet. A later stage may still take a packet that bypasses this one.
    fn may_bypass(&mut self, _predicted: &Predicted<'_>, _trains: &mut Merger<B>) -> bool {
        true
    }

    /// Records the verdict on a packet that this stage passed on.
    fn learn(&mut self, _seen: &Observed<'_>, _verdict: Verdict) {}

    /// Returns how many packets may bypass the stage after the packet that was observed last. All of them are predicted
    /// like `next`, arrive at the same time and have the same metadata.
    fn bypass_max(&self, _next: &Predicted<'_>) -> u32 {
        u32::MAX
    }

    /// Records the packets that bypassed the stage.
    fn learn_run(&mut self, _run: &BurstBypass, _trains: &mut Merger<B>) {}

    /// Returns whether packets may be predicted. Prediction verifies their checksums before any stage sees them.
    fn allows_prediction(&self) -> bool {
        true
    }

    /// Releases the queued packets of some flows.
    fn flush(&mut self, _whose: FlushScope, _why: Release, _next: &mut impl Downstream<B>) {}

    /// Releases the packets that have waited long enough. All packets that arrived before `seen_ns` have been pushed.
    fn expire(&mut self, _now_ns: u64, _seen_ns: u64, _next: &mut impl Downstream<B>) {}

    /// Records a measured round-trip time of a flow.
    fn learn_round_trip(&mut self, _flow: FlowHash, _round_trip_ns: u64) {}

    /// Returns the earliest deadline of a queued packet.
    fn deadline(&self) -> Option<u64> {
        None
    }
}

/// Receiver of the packets that a stage passes on: the trains, and the receiver of their deliveries.
pub(crate) trait Downstream<B: AsRef<[u8]>> {
    /// Receiver of deliveries.
    type Receiver: Sink<B> + ?Sized;

    /// Returns the shared headers and trains, and the receiver.
    fn trains(&mut self) -> (&mut Merger<B>, &mut Self::Receiver);
}

/// Downstream that records its input, for testing a single stage.
#[cfg(test)]
pub(crate) mod probe {
    use std::vec::Vec;

    use grosso_testkit::Packet as Builder;
    use grosso_wire::{LinkType, Ports};

    use super::{
        Downstream, Examined, FlowMatch, Merger, Packet, Pass, RxPacket, Sink, Stage, Verdict,
    };
    use crate::{
        checksum::Checksum,
        coalesce::{
            emit::{delivery::Delivery, reason::Close},
            profile::Profile,
            rx::policy::{ByProfile, Tiers},
        },
        meta::Meta,
    };

    pub(crate) struct Probe {
        pub(crate) merger: Merger<Vec<u8>>,
        pub(crate) delivered: Delivered,
        /// Number of packets that the stage released or passed on.
        pub(crate) pushed: usize,
        pub(crate) passed: Vec<Pass>,
    }

    /// Number of packets in each delivery.
    #[derive(Default)]
    pub(crate) struct Delivered(pub(crate) Vec<u32>);

    impl Sink<Vec<u8>> for Delivered {
        fn deliver(&mut self, delivery: Delivery<'_, Vec<u8>>) {
            self.0.push(delivery.packets);
        }
    }

    /// Empty metadata.
    const META: Meta = Meta {
        checksum: Checksum::None,
        gso: None,
        vlan: None,
        timestamp_ns: None,
        hash: None,
        fragmented: None,
    };

    impl Probe {
        pub(crate) fn new(profile: &Profile) -> Self {
            let (link, ports) = (LinkType::Ethernet, Ports::NONE);
            let merger = Merger::new(profile.clone(), Tiers::ALL, link, ports, 1);
            Self { merger, delivered: Delivered::default(), pushed: 0, passed: Vec::new() }
        }

        /// Returns packet `index` of a flow. Each packet has 100 bytes of payload.
        pub(crate) fn packet(&mut self, index: u32, now_ns: u64) -> Packet<'static, Vec<u8>> {
            let packet = Builder::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
            let buffer = packet.tcp(|t| t.sequence(index * 100)).payload_len(100).build();
            let Err(guess) = self.merger.look_up_unpredicted::<ByProfile>(&buffer, &META) else {
                panic!("no train is held");
            };
            let known = self.merger.headers::<ByProfile>(&buffer, &META).expect("TCP in IPv4");
            let flow_match = self.merger.locate(&buffer, &META, known, &guess);
            Packet { incoming: RxPacket { buffer, meta: &META, now_ns }, flow_match }
        }

        /// Pushes a packet to a stage, and counts it if the stage passes it on to the trains.
        pub(crate) fn show(
            &mut self,
            stage: &mut impl Stage<Vec<u8>>,
            packet: Packet<'_, Vec<u8>>,
        ) -> Verdict {
            if let Some(reason) = stage.look(&packet, &mut self.merger) {
                self.passed.push(reason);
                return Verdict::Passed(reason);
            }
            let (observed, Packet { incoming, flow_match }) = (packet.observed(false), packet);
            let FlowMatch { known, flow, .. } = flow_match;
            let candidate = self.merger.examine::<ByProfile>(&incoming, &flow_match);
            let candidate = candidate.expect("the packet is mergeable");
            let (now_ns, frame) = (incoming.now_ns, incoming.into_frame());
            let examined = Examined { frame, candidate, known, flow, now_ns, resembles: false };
            if let Ok(verdict) = stage.take(examined, &flow_match, self) {
                return verdict;
            }
            self.pushed += 1;
            stage.learn(&observed, Verdict::Held);
            Verdict::Held
        }

        /// Closes all trains and returns the number of packets in each delivery so far.
        pub(crate) fn finish(mut self) -> Vec<u32> {
            self.merger.flush(Close::PollEnd, &mut self.delivered);
            self.delivered.0
        }
    }

    impl Downstream<Vec<u8>> for Probe {
        type Receiver = Delivered;

        fn trains(&mut self) -> (&mut Merger<Vec<u8>>, &mut Delivered) {
            (&mut self.merger, &mut self.delivered)
        }
    }
}
