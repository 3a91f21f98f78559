//! What one setting does to packets: how many leave together, and how long they waited for it.

use std::rc::Rc;

use grosso::{
    Delivery, Sink, Verdict,
    coalesce::reason::{Close, Pass},
};

use crate::{
    commands::replay::{Fate, Receiver, Seen},
    distribution::Distribution,
};

/// A packet that all settings hold together.
#[derive(Clone, Debug)]
pub(super) struct Shared(pub(super) Rc<Kept>);

/// Its bytes, and when it came.
#[derive(Debug)]
pub(super) struct Kept {
    data: Box<[u8]>,
    time_ns: u64,
}

impl Kept {
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        Self { data: seen.packet.data.into(), time_ns: seen.time.unwrap_or(0) }
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.data
    }
}

/// Measures what is delivered.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The packet that is pushed.
    pub(super) current: Option<Shared>,
    /// Wire packets a train. A packet that might have merged and did not is a train of one; one that
    /// can be in no train is none.
    pub(super) segments: Distribution,
    /// How long packets in trains waited, in nanoseconds.
    pub(super) held: Distribution,
    now_ns: u64,
    /// Wire packets of what was not held at all, until it is known why.
    alone: Option<u32>,
}

impl Meter {
    /// Takes what became of the packet that was pushed: one that ended a train before there was any,
    /// or was refused by one, left alone.
    pub(super) fn conclude(&mut self, fate: Fate) {
        let alone = self.alone.take();
        let is_train = matches!(
            fate,
            Fate::Engine(Verdict::Refused(_) | Verdict::Passed(Pass::TcpPush | Pass::TcpFinish))
        );
        if let Some(packets) = alone.filter(|_| is_train) {
            self.segments.add(packets.into(), 1);
            self.held.add(0, 1);
        }
    }
}

impl Sink<Shared> for Meter {
    fn deliver(&mut self, delivery: Delivery<'_, Shared>) {
        if delivery.closed == Close::Never {
            self.alone = Some(delivery.packets);
            return;
        }
        self.segments.add(delivery.packets.into(), 1);
        for part in delivery.parts() {
            self.held.add(self.now_ns.saturating_sub(part.buffer.0.time_ns), 1);
        }
    }
}

impl Receiver for Meter {
    type Buffer = Shared;

    fn keep(&mut self, seen: &Seen<'_>) -> Shared {
        self.current.take().unwrap_or_else(|| Shared(Rc::new(Kept::of(seen))))
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}
