//! How long a train may wait for more of its flow.
//!
//! A hold that is the same for all is too long for a flow that is not going to send, and too short for none. The
//! controller looks at each flow instead: it holds across the end of a poll only if the flow's next packet is due
//! before the train must leave, and never longer than a superframe takes to fill or a sixteenth of the round trip. On
//! long paths trains stay so short that as many acknowledgments are sent a round trip as the sender's clock needs.

mod deadlines;
mod pace;
mod round_trips;

use alloc::vec::Vec;

use grosso_wire::dissect_into;

use self::{
    deadlines::Deadlines,
    pace::{Common, Pace},
};
use crate::{
    coalesce::{
        Coalescer, Hold, Profile, Sink,
        memory::FlowMemory,
        reason::Close,
        train::{Train, Trains},
        train_id::TrainId,
    },
    flow::{FlowHash, Found, Keys},
};

pub use self::{
    pace::{HOLD_NS_MIN, LONG_PATH_NS, SEGMENTS_MAX, SEGMENTS_MIN},
    round_trips::RoundTrips,
};

/// What the controller knows of flows and of the trains that are held.
#[derive(Debug)]
pub(super) struct Controller {
    flows: FlowMemory<FlowHash, Pace>,
    deadlines: Deadlines,
    /// The slots of trains that got a packet in this poll.
    touched: Vec<TrainId>,
    /// Whether a slot is among them.
    is_touched: Vec<bool>,
    common: Common,
}

impl Controller {
    /// The controller that a profile asks for.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let hold_ns_max = profile.limits.hold_ns;
        let told_ns = profile.reorder.round_trip_ns;
        let common = Common { hold_ns_max, round_trip_ns: (told_ns > 0).then_some(told_ns) };
        (profile.hold == Hold::Controlled && hold_ns_max > 0).then(|| Self {
            flows: FlowMemory::new(),
            deadlines: Deadlines::default(),
            touched: Vec::new(),
            is_touched: Vec::new(),
            common,
        })
    }

    /// Counts a packet in that may be in a train: its flow, and its payload in bytes.
    fn count(&mut self, flow: FlowHash, payload_len: usize, now_ns: u64) {
        let pace = self.flows.entry(flow, now_ns, || Pace::starting(now_ns));
        pace.arrive(now_ns, payload_len, &self.common);
    }

    /// Whether a train that a packet joined is as long as its flow's acknowledgments allow.
    pub(super) fn is_full<B>(&self, train: &Train<B>) -> bool {
        let pace = self.flows.get(train.flow);
        pace.is_some_and(|pace| train.packets >= pace.segments_max(train.size, &self.common))
    }

    /// Notes that a train got a packet.
    fn touch(&mut self, slot: TrainId) {
        let at = slot.slot();
        if at >= self.is_touched.len() {
            self.is_touched.resize(at + 1, false);
            // Every slot may be touched in one poll, and touching one must not allocate.
            self.touched.reserve(self.is_touched.len() - self.touched.len());
        }
        if !core::mem::replace(&mut self.is_touched[at], true) {
            self.touched.push(slot);
        }
    }

    /// Lets a train be held until its time is over.
    fn hold<B>(&mut self, slot: TrainId, train: &Train<B>) {
        let pace = self.flows.get(train.flow);
        let hold_ns = pace.map_or(self.common.hold_ns_max, |pace| pace.hold_ns(&self.common));
        self.deadlines.insert(slot, train.created_ns.saturating_add(hold_ns));
        self.touch(slot);
    }

    /// Whether a train's next packet is due before it must leave.
    fn is_worth_waiting<B>(&self, slot: TrainId, train: &Train<B>) -> bool {
        let next_ns = self.flows.get(train.flow).and_then(Pace::next_ns);
        let deadline = self.deadlines.of(slot);
        next_ns.zip(deadline).is_some_and(|(next_ns, deadline)| next_ns <= deadline)
    }

    /// The slots of the trains that got a packet in this poll and whose next one is not due in time, oldest first
    /// (P24).
    fn take_idle<B: AsRef<[u8]>>(&mut self, trains: &Trains<B>) -> Vec<TrainId> {
        let mut touched = core::mem::take(&mut self.touched);
        for &slot in &touched {
            self.is_touched[slot.slot()] = false;
        }
        touched.retain(|&slot| {
            trains.train(slot).is_some_and(|train| !self.is_worth_waiting(slot, train))
        });
        touched.sort_unstable_by_key(|&slot| trains.train(slot).map(Train::number));
        touched
    }

    /// Forgets a train that leaves.
    #[inline]
    pub(super) fn left(&mut self, slot: TrainId) {
        self.deadlines.remove(slot);
    }

    /// How many flows send in bursts, and nobody knows how long their round trips are.
    fn blind(&self) -> usize {
        self.flows.values().filter(|pace| pace.is_blind(&self.common)).count()
    }

    /// When the first train must leave.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| deadline)
    }
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Tells how long a round trip takes between the ends of this packet's flow, in nanoseconds: who
    /// sees both directions can measure it with [`RoundTrips`]. Only profiles that
    /// [want it](Profile::wants_round_trips) ask for it. To [`Hold::Controlled`] the least counts
    /// that was told of a flow, to an adaptive [`Reorder`](crate::coalesce::Reorder) the latest.
    pub fn learn_round_trip(&mut self, packet: &[u8], round_trip_ns: u64, now_ns: u64) {
        if !self.profile.wants_round_trips() {
            return;
        }
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        let flow = self.hasher.flow(packet, &Keys::of(self.stack.layers(), packet));
        if let Some(controller) = &mut self.controller {
            let pace = controller.flows.entry(flow, now_ns, || Pace::starting(now_ns));
            pace.learn_round_trip(round_trip_ns);
        }
        if let Some(resequencer) = &mut self.resequencer {
            resequencer.learn_round_trip(flow, round_trip_ns);
        }
    }

    /// How many flows of those that are remembered send in bursts, and nobody has said how long their round trips are:
    /// neither [`Self::learn_round_trip`] nor the profile. On such a path trains are held for as long as on a short
    /// one, and no longer than the clock of a long one allows. None unless [`Hold::Controlled`] holds them.
    #[must_use]
    pub fn flows_without_round_trip(&self) -> usize {
        self.controller.as_ref().map_or(0, |controller| controller.blind())
    }

    /// Counts a packet in that may be in a train, with what was found of its flow.
    pub(super) fn pace(
        &mut self,
        flow: FlowHash,
        payload_len: usize,
        found: Found<TrainId>,
        now_ns: u64,
    ) {
        if payload_len > 0
            && let Some(controller) = &mut self.controller
        {
            controller.count(flow, payload_len, now_ns);
            if let Found::Slot(slot) = found {
                controller.touch(slot);
            }
        }
    }

    /// Decides how long a train that just started may be held.
    #[cold]
    pub(super) fn control(&mut self, slot: TrainId) {
        if let Some(controller) = &mut self.controller
            && let Some(train) = self.trains.held(slot)
        {
            controller.hold(slot, train);
        }
    }

    /// Delivers the trains whose time is over.
    pub(super) fn expire_controlled(&mut self, now_ns: u64, sink: &mut (impl Sink<B> + ?Sized)) {
        while let Some(controller) = &mut self.controller
            && let Some(slot) = controller.deadlines.pop(now_ns)
        {
            self.close(slot, Close::HoldTime, sink);
        }
    }

    /// Delivers the trains that it does not pay to hold.
    pub(super) fn close_idle(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        let Some(controller) = &mut self.controller else { return };
        let mut idle = controller.take_idle(&self.trains);
        for slot in idle.drain(..) {
            self.close(slot, Close::PollEnd, sink);
        }
        if let Some(controller) = &mut self.controller {
            controller.touched = idle;
        }
    }
}
