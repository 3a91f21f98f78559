//! Hold times: the time that a train may wait for more packets of its flow.
//!
//! A single hold time would be too long for flows that will not send again soon and too short for others, so the
//! controller decides per flow. It holds a train across the end of a poll only if the flow's next packet is due before
//! the train must be delivered. It never holds a train for longer than a superframe takes to fill up, or for longer
//! than a sixteenth of the round-trip time. On long paths it also limits the length of trains, so that the receiver
//! sends enough acknowledgments per round trip.

use alloc::vec::Vec;

use crate::{
    coalesce::{
        hold::{
            deadlines::Deadlines,
            pace::{Common, Pace},
            train::{Train, Trains},
        },
        profile::{Hold, Profile},
        slots::{slot_map::SlotMap, train_id::TrainId},
    },
    flow::{FlowHash, Found},
    flow_memory::FlowMemory,
};

/// Method by which a profile chooses hold times.
#[derive(Debug)]
pub(crate) enum Retention {
    /// Every train is held for this many nanoseconds.
    Fixed(u64),
    /// Hold times depend on the flow.
    Controlled(Controller),
}

impl Retention {
    pub(crate) fn of(profile: &Profile) -> Self {
        match Controller::of(profile) {
            Some(controller) => Self::Controlled(controller),
            None => Self::Fixed(profile.limits.hold_ns),
        }
    }

    /// Returns the hold time in nanoseconds, if it is the same for all trains.
    pub(crate) fn fixed_ns(&self) -> Option<u64> {
        match self {
            Self::Fixed(hold_ns) => Some(*hold_ns),
            Self::Controlled(_) => None,
        }
    }

    /// Counts a mergeable packet. `found` is the result of its flow lookup.
    pub(crate) fn count(
        &mut self,
        flow: FlowHash,
        payload_len: usize,
        found: Found<TrainId>,
        now_ns: u64,
    ) {
        if payload_len > 0
            && let Self::Controlled(controller) = self
        {
            controller.count(flow, payload_len, now_ns);
            if let Found::Slot(slot) = found {
                controller.touch(slot);
            }
        }
    }

    /// Counts packets that were merged at the same time as the one counted last.
    pub(crate) fn count_more(&mut self, flow: FlowHash, payload_bytes: usize, now_ns: u64) {
        if let Self::Controlled(controller) = self {
            controller
                .flows
                .entry(flow, now_ns, || Pace::starting(now_ns))
                .arrive_more(payload_bytes);
        }
    }

    /// Determines how long a new train may be held and how many packets it may have.
    pub(crate) fn start<B>(&mut self, slot: TrainId, train: &Train<B>, is_tcp: bool) {
        if let Self::Controlled(controller) = self {
            controller.hold(slot, train, is_tcp);
        }
    }

    /// Returns whether a train has reached its maximum number of packets, which ensures that the sender gets enough
    /// acknowledgments.
    pub(crate) fn is_full(&self, slot: TrainId, packets: u16) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Controlled(controller) => {
                controller.segments_max.get(slot).is_some_and(|most| packets >= *most)
            }
        }
    }

    /// Stops tracking a delivered train.
    #[inline]
    pub(crate) fn end(&mut self, slot: TrainId) {
        if let Self::Controlled(controller) = self {
            controller.deadlines.remove(slot);
        }
    }

    /// Returns the next train whose hold time has elapsed. The caller must then close it.
    pub(crate) fn next_over<B: AsRef<[u8]>>(
        &mut self,
        now_ns: u64,
        trains: &Trains<B>,
    ) -> Option<TrainId> {
        match self {
            Self::Fixed(hold_ns) => {
                let is_over = |(_, created_ns): &_| now_ns.saturating_sub(*created_ns) >= *hold_ns;
                trains.oldest().filter(is_over).map(|(slot, _)| slot)
            }
            Self::Controlled(controller) => controller.deadlines.pop(now_ns),
        }
    }

    /// Returns the trains that received a packet in this poll and whose next packet is due too late to wait for, oldest
    /// first (P24). The caller must return the list with [`Self::give_back`].
    pub(crate) fn take_idle<B: AsRef<[u8]>>(&mut self, trains: &Trains<B>) -> Vec<TrainId> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Controlled(controller) => controller.take_idle(trains),
        }
    }

    /// Takes back an emptied list to reuse its memory.
    pub(crate) fn give_back(&mut self, idle: Vec<TrainId>) {
        if let Self::Controlled(controller) = self {
            controller.touched = idle;
        }
    }

    /// Returns the time at which the next train must be delivered.
    pub(crate) fn deadline<B: AsRef<[u8]>>(&self, trains: &Trains<B>) -> Option<u64> {
        match self {
            Self::Fixed(hold_ns) => {
                trains.oldest().map(|(_, created_ns)| created_ns.saturating_add(*hold_ns))
            }
            Self::Controlled(controller) => controller.deadlines.first().map(|(at_ns, _)| at_ns),
        }
    }

    /// Records a measured round-trip time of a flow.
    pub(crate) fn learn_round_trip(&mut self, flow: FlowHash, round_trip_ns: u64, now_ns: u64) {
        if let Self::Controlled(controller) = self {
            let pace = controller.flows.entry(flow, now_ns, || Pace::starting(now_ns));
            pace.learn_round_trip(round_trip_ns);
        }
    }

    /// Returns the number of bursty flows whose round-trip time is unknown.
    pub(crate) fn blind(&self) -> usize {
        match self {
            Self::Fixed(_) => 0,
            Self::Controlled(controller) => {
                let common = &controller.common;
                controller.flows.values().filter(|pace| pace.is_blind(common)).count()
            }
        }
    }
}

/// State of flows and held trains.
#[derive(Debug)]
pub(crate) struct Controller {
    flows: FlowMemory<FlowHash, Pace>,
    deadlines: Deadlines,
    /// Slots of the trains that received a packet in this poll.
    touched: Vec<TrainId>,
    /// Whether a slot is in `touched`.
    is_touched: SlotMap<TrainId, bool>,
    /// Packet limit of each slot's train. It is computed once per train, because it is read for every packet.
    segments_max: SlotMap<TrainId, u16>,
    common: Common,
}

impl Controller {
    /// Creates the controller for a profile, if the profile needs one.
    fn of(profile: &Profile) -> Option<Self> {
        let hold_ns_max = profile.limits.hold_ns;
        let told_ns = profile.reorder.round_trip_ns;
        let common = Common { hold_ns_max, round_trip_ns: (told_ns > 0).then_some(told_ns) };
        (profile.hold == Hold::Controlled && hold_ns_max > 0).then(|| Self {
            flows: FlowMemory::new(),
            deadlines: Deadlines::default(),
            touched: Vec::new(),
            is_touched: SlotMap::default(),
            segments_max: SlotMap::default(),
            common,
        })
    }

    /// Counts a mergeable packet with `payload_len` payload bytes.
    #[inline(never)]
    fn count(&mut self, flow: FlowHash, payload_len: usize, now_ns: u64) {
        let pace = self.flows.entry(flow, now_ns, || Pace::starting(now_ns));
        pace.arrive(now_ns, payload_len, &self.common);
    }

    /// Records that a train received a packet.
    fn touch(&mut self, slot: TrainId) {
        let is_touched = self.is_touched.get_or_grow(slot, || false);
        if !core::mem::replace(is_touched, true) {
            // Memory is reserved for all slots: all of them may be touched in one poll, and touching a slot must not
            // allocate.
            let slots = self.is_touched.len();
            self.touched.reserve(slots - self.touched.len());
            self.touched.push(slot);
        }
    }

    /// Sets the deadline of a new train and, for TCP, the maximum number of packets that leaves the sender enough
    /// acknowledgments.
    fn hold<B>(&mut self, slot: TrainId, train: &Train<B>, is_tcp: bool) {
        let pace = self.flows.get(train.flow);
        let hold_ns = pace.map_or(self.common.hold_ns_max, |pace| pace.hold_ns(&self.common));
        let most = pace.filter(|_| is_tcp).map(|pace| pace.segments_max(train.size, &self.common));
        *self.segments_max.get_or_grow(slot, || u16::MAX) = most.unwrap_or(u16::MAX);
        self.deadlines.insert(slot, train.created_ns.saturating_add(hold_ns));
        self.touch(slot);
    }

    /// Returns whether a train's next packet is due before the train must be delivered.
    fn is_worth_waiting<B>(&self, slot: TrainId, train: &Train<B>) -> bool {
        let next_ns = self.flows.get(train.flow).and_then(Pace::next_ns);
        let deadline = self.deadlines.of(slot);
        next_ns.zip(deadline).is_some_and(|(next_ns, deadline)| next_ns <= deadline)
    }

    /// Returns the slots of the trains that received a packet in this poll and whose next packet is due too late to
    /// wait for, oldest first (P24).
    fn take_idle<B: AsRef<[u8]>>(&mut self, trains: &Trains<B>) -> Vec<TrainId> {
        let mut touched = core::mem::take(&mut self.touched);
        for &slot in &touched {
            self.is_touched[slot] = false;
        }
        touched.retain(|&slot| {
            trains.train(slot).is_some_and(|train| !self.is_worth_waiting(slot, train))
        });
        sort_by_number(&mut touched, &|slot| trains.train(slot).map(Train::number));
        touched
    }
}

/// Sorts slots by the numbers of their trains. The function is compiled once for all buffer types.
#[inline(never)]
fn sort_by_number(slots: &mut [TrainId], number: &dyn Fn(TrainId) -> Option<u64>) {
    slots.sort_unstable_by_key(|&slot| number(slot));
}
