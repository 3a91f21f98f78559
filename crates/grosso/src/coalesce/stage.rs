//! Stages: what a profile asks for between the packets that come and the trains.

use crate::{
    coalesce::{
        Sink, Verdict,
        barrier::Whose,
        incoming::Incoming,
        merge::{Located, Merger},
        prediction_id::PredictionId,
        reason::{Pass, Release},
    },
    flow::FlowHash,
};

/// A packet whose headers and flow are known.
#[derive(Debug)]
pub(super) struct Packet<'a, B> {
    pub(super) incoming: Incoming<'a, B>,
    pub(super) located: Located,
}

/// A stage: it takes packets, and hands them to what is behind it at once, later, or in another order.
///
/// A profile's line has the stages that it asks for and no others. What they share, headers and trains, is an argument
/// of every call.
pub(super) trait Stage<B> {
    /// Takes a packet.
    fn push(&mut self, packet: Packet<'_, B>, next: &mut impl Next<B>) -> Verdict;

    /// Takes a packet that was predicted.
    fn push_predicted(
        &mut self,
        predicted: PredictionId,
        packet: Packet<'_, B>,
        next: &mut impl Next<B>,
    ) -> Verdict {
        next.push_predicted(predicted, packet)
    }

    /// Whether packets may be predicted, for which their checksums are verified before any stage sees them.
    fn lets_predict(&self) -> bool {
        true
    }

    /// Lets a packet through that is in no train, behind everything of its flow.
    fn pass(&mut self, packet: Packet<'_, B>, reason: Pass, next: &mut impl Next<B>) -> Verdict {
        next.pass(packet, reason)
    }

    /// Hands on what waits of some flows.
    fn flush(&mut self, _whose: Whose, _why: Release, _next: &mut impl Next<B>) {}

    /// Hands on what has waited long enough, where all that came until `seen_ns` has been seen.
    fn expire(&mut self, _now_ns: u64, _seen_ns: u64, _next: &mut impl Next<B>) {}

    /// Learns how long a round trip of a flow takes.
    fn learn_round_trip(&mut self, _flow: FlowHash, _round_trip_ns: u64) {}

    /// Time at which something that waits must be handed on next.
    fn deadline(&self) -> Option<u64> {
        None
    }
}

/// The stages behind one, with the trains behind them all.
pub(super) trait Next<B> {
    /// The receiver of deliveries.
    type Receiver: Sink<B> + ?Sized;

    /// As [`Stage::push`].
    fn push(&mut self, packet: Packet<'_, B>) -> Verdict;

    /// As [`Stage::push_predicted`].
    fn push_predicted(&mut self, predicted: PredictionId, packet: Packet<'_, B>) -> Verdict;

    /// As [`Stage::pass`].
    fn pass(&mut self, packet: Packet<'_, B>, reason: Pass) -> Verdict;

    /// The headers and trains that all stages share, and where trains are delivered.
    fn trains(&mut self) -> (&mut Merger<B>, &mut Self::Receiver);
}

/// A probe to stand behind a stage that is tested alone: it keeps what it is handed.
#[cfg(test)]
pub(super) mod probe {
    use std::vec::Vec;

    use grosso_testkit::Packet as Builder;
    use grosso_wire::{LinkType, Ports};

    use super::{Incoming, Merger, Next, Packet, Pass, PredictionId, Sink, Verdict};
    use crate::{
        checksum::Checksum,
        coalesce::{
            Delivery, Profile,
            merge::Sought,
            policy::{Profiled, Tiers},
            reason::Close,
        },
        meta::Meta,
    };

    pub(in crate::coalesce) struct Probe {
        pub(in crate::coalesce) merger: Merger<Vec<u8>>,
        pub(in crate::coalesce) delivered: Delivered,
        /// The numbers of packets handed on, and of those let through.
        pub(in crate::coalesce) pushed: usize,
        pub(in crate::coalesce) passed: Vec<Pass>,
    }

    /// The packets of each delivery.
    #[derive(Default)]
    pub(in crate::coalesce) struct Delivered(pub(in crate::coalesce) Vec<u32>);

    impl Sink<Vec<u8>> for Delivered {
        fn deliver(&mut self, delivery: Delivery<'_, Vec<u8>>) {
            self.0.push(delivery.packets);
        }
    }

    /// Nothing is known about a packet.
    const META: Meta = Meta {
        checksum: Checksum::None,
        gso: None,
        vlan: None,
        timestamp_ns: None,
        hash: None,
        fragmented: None,
    };

    impl Probe {
        pub(in crate::coalesce) fn new(profile: &Profile) -> Self {
            let (link, ports) = (LinkType::Ethernet, Ports::NONE);
            let merger = Merger::new(profile.clone(), Tiers::ALL, true, link, ports, 1);
            Self { merger, delivered: Delivered::default(), pushed: 0, passed: Vec::new() }
        }

        /// The packet of this number of a flow, each with 100 bytes of payload.
        pub(in crate::coalesce) fn packet(
            &mut self,
            index: u32,
            now_ns: u64,
        ) -> Packet<'static, Vec<u8>> {
            let packet = Builder::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
            let buffer = packet.tcp(|t| t.sequence(index * 100)).payload_len(100).build();
            let Sought::Guessed(guess) = self.merger.seek::<Profiled>(&buffer, &META) else {
                panic!("no train is held");
            };
            let known = self.merger.headers::<Profiled>(&buffer, &META).expect("TCP in IPv4");
            let located = self.merger.locate(&buffer, &META, known, &guess);
            Packet { incoming: Incoming { buffer, meta: &META, now_ns }, located }
        }

        /// Closes all trains, and gives the packets of each delivery so far.
        pub(in crate::coalesce) fn finish(mut self) -> Vec<u32> {
            self.merger.flush(Close::PollEnd, &mut self.delivered);
            self.delivered.0
        }
    }

    impl Next<Vec<u8>> for Probe {
        type Receiver = Delivered;

        fn push(&mut self, _: Packet<'_, Vec<u8>>) -> Verdict {
            self.pushed += 1;
            Verdict::Held
        }

        fn push_predicted(&mut self, _: PredictionId, packet: Packet<'_, Vec<u8>>) -> Verdict {
            self.push(packet)
        }

        fn pass(&mut self, _: Packet<'_, Vec<u8>>, reason: Pass) -> Verdict {
            self.passed.push(reason);
            Verdict::Passed(reason)
        }

        fn trains(&mut self) -> (&mut Merger<Vec<u8>>, &mut Delivered) {
            (&mut self.merger, &mut self.delivered)
        }
    }
}
