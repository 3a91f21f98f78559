//! The effect of one setting on packets: the number that leave together, and the time that they waited.

use std::rc::Rc;

use grosso::{Delivery, Sink};
use grosso_wire::dissect;

use crate::{
    commands::replay::{Arrived, Receiver, Seen},
    distribution::Distribution,
    headers::Transport,
};

/// A packet that is shared by all settings of a thread.
#[derive(Clone, Debug)]
pub(super) struct Shared(pub(super) Rc<Kept>);

/// A packet that no longer needs its capture.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    data: Box<[u8]>,
    /// Its other properties, with no bytes.
    properties: Arrived<'static>,
    /// Whether it has a payload of TCP or UDP.
    pub(super) is_data: bool,
}

impl Kept {
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        let data = &*seen.data;
        let payload = seen.link.and_then(|link| {
            let stack = dissect(data, link, &seen.ports);
            Some(Transport::of(&stack, data.len())?.payload)
        });
        let is_data = payload.is_some_and(|bytes| bytes > 0);
        let properties = Arrived { data: &[], ..seen.arrived() };
        Self { data: data.into(), properties, is_data }
    }

    pub(super) fn arrived(&self) -> Arrived<'_> {
        Arrived { data: &self.data, ..self.properties }
    }

    /// The bytes that it takes.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    fn time_ns(&self) -> u64 {
        self.properties.time.unwrap_or(0)
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.data
    }
}

/// Measures deliveries.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Wire packets of each train, counting those with a payload of TCP or UDP. A packet that leaves alone is a train
    /// of one, whether it could have merged or not, so that profiles differ only in merging.
    pub(super) segments: Distribution,
    /// The waiting times of such packets, in nanoseconds.
    pub(super) held: Distribution,
    now_ns: u64,
}

impl Meter {
    /// Counts a packet that stayed outside of the engine.
    pub(super) fn count_aside(&mut self, kept: &Kept) {
        if kept.is_data {
            self.segments.add(1, 1);
            self.held.add(0, 1);
        }
    }
}

impl Sink<Shared> for Meter {
    fn deliver(&mut self, delivery: Delivery<'_, Shared>) {
        if !delivery.parts().any(|part| part.buffer.0.is_data) {
            return;
        }
        self.segments.add(delivery.packets.into(), 1);
        for part in delivery.parts().filter(|part| part.buffer.0.is_data) {
            self.held.add(self.now_ns.saturating_sub(part.buffer.0.time_ns()), 1);
        }
    }
}

impl Receiver<Shared> for Meter {
    fn keep(&mut self, seen: &Seen<'_>) -> Shared {
        Shared(Rc::new(Kept::of(seen)))
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}
