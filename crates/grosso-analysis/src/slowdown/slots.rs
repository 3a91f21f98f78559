//! Table of the currently tracked flows, in bounded memory. Each flow occupies a slot.

use std::collections::HashMap;

use super::{mark::SlotSide, merging::Merging};
use crate::headers::Endpoints;

/// State that a table keeps for a flow, covering both directions.
pub(super) trait Tracked: Default {
    /// Returns whether the flow has had a frame since the last call.
    fn take_recent(&mut self) -> bool;
}

/// Table of flows. Once the limit is reached, a new flow replaces an idle one.
#[derive(Debug)]
pub(super) struct Slots<T> {
    places: HashMap<Endpoints, SlotSide>,
    pub(super) slots: Vec<FlowSlot<T>>,
    /// Result of the last lookup, as a cache: consecutive packets often belong to the same flow.
    last: Option<(Endpoints, SlotSide)>,
    /// Slot at which the next search for an idle flow starts.
    hand: usize,
    /// Number of flows so far.
    flows: u32,
}

/// A flow and its state.
#[derive(Debug)]
pub(super) struct FlowSlot<T> {
    /// Endpoints, in the direction that was seen first.
    pub(super) endpoints: Endpoints,
    /// Serial number of the flow, which distinguishes it from earlier flows in the same slot.
    pub(super) serial: u32,
    pub(super) tracked: T,
    /// Trains in both directions; `None` if no replay reports them.
    pub(super) merging: Option<Box<[Merging; 2]>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        let (places, slots, last, hand, flows) = Default::default();
        Self { places, slots, last, hand, flows }
    }
}

impl<T: Tracked> Slots<T> {
    /// Returns the slot of a direction. If the flow is new and the table was full, also returns the idle flow that was
    /// replaced.
    #[inline]
    pub(super) fn place(&mut self, endpoints: Endpoints) -> (SlotSide, Option<Box<FlowSlot<T>>>) {
        if let Some((last, place)) = self.last {
            if last == endpoints {
                return (place, None);
            }
            // A frame in the opposite direction needs no lookup either.
            if last == endpoints.reversed() {
                return (SlotSide { side: 1 - place.side, ..place }, None);
            }
        }
        let (place, replaced) = match self.places.get(&endpoints) {
            Some(&place) => (place, None),
            None => self.insert(endpoints),
        };
        self.last = Some((endpoints, place));
        (place, replaced)
    }

    fn insert(&mut self, endpoints: Endpoints) -> (SlotSide, Option<Box<FlowSlot<T>>>) {
        self.flows = self.flows.wrapping_add(1);
        let serial = self.flows;
        let new = FlowSlot { endpoints, serial, tracked: T::default(), merging: None };
        let (slot, replaced) = if self.slots.len() < CONNECTIONS_MAX {
            self.slots.push(new);
            (self.slots.len() - 1, None)
        } else {
            let slot = self.idle();
            let before = std::mem::replace(&mut self.slots[slot], new);
            self.places.remove(&before.endpoints);
            self.places.remove(&before.endpoints.reversed());
            (slot, Some(Box::new(before)))
        };
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        // The opposite direction comes first, because a flow from an endpoint to itself is its own reverse.
        self.places.insert(endpoints.reversed(), SlotSide { slot, side: 1 });
        self.places.insert(endpoints, SlotSide { slot, side: 0 });
        (SlotSide { slot, side: 0 }, replaced)
    }

    /// Returns a slot whose flow has had no frame since the previous search checked it.
    fn idle(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % CONNECTIONS_MAX;
            if !self.slots[slot].tracked.take_recent() {
                return slot;
            }
        }
    }

    /// Returns the flow in a slot.
    #[inline]
    pub(super) fn get_mut(&mut self, place: SlotSide) -> Option<&mut FlowSlot<T>> {
        self.slots.get_mut(place.slot as usize)
    }
}

/// Maximum number of connections at once, and of UDP flows in a flow table. They take about 40 MB and 20 MB. Beyond the
/// limit, a new connection replaces an idle one, whose causes are derived first.
pub const CONNECTIONS_MAX: usize = 1 << 15;
