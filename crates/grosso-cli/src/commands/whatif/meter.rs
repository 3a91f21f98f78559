//! The effect of one setting on packets: the number that leave together, and the time that they waited.

use std::rc::Rc;

use grosso::{Delivery, Sink};
use grosso_wire::dissect;

use crate::{
    commands::replay::{Receiver, Seen},
    distribution::Distribution,
    headers::Transport,
};

/// A packet that is shared by all settings.
#[derive(Clone, Debug)]
pub(super) struct Shared(pub(super) Rc<Kept>);

/// The bytes of a packet, and the time when it came.
#[derive(Debug)]
pub(super) struct Kept {
    data: Box<[u8]>,
    time_ns: u64,
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
        Self { data: data.into(), time_ns: seen.time.unwrap_or(0), is_data }
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
    /// The packet that is being pushed.
    pub(super) current: Option<Shared>,
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
            self.held.add(self.now_ns.saturating_sub(part.buffer.0.time_ns), 1);
        }
    }
}

impl Receiver<Shared> for Meter {
    fn keep(&mut self, seen: &Seen<'_>) -> Shared {
        self.current.take().unwrap_or_else(|| Shared(Rc::new(Kept::of(seen))))
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}
