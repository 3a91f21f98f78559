//! Measures the effect of one setting on packets: how many are delivered together, and how long they wait.

use std::sync::Arc;

use grosso::{Delivery, Sink};
use grosso_io::PortBuffer;
use grosso_wire::dissect;

use crate::{
    distribution::Distribution,
    headers::Transport,
    replay::{Arrived, Receiver, Seen},
};

/// Copy of a packet that does not depend on the capture's buffer. All replays share it.
#[derive(Debug)]
pub(super) struct Kept {
    /// Bytes of the packet, preceded by its timestamp if it has a TCP or UDP payload.
    memory: Arc<Vec<u8>>,
    /// Offset of the packet's bytes.
    start: usize,
    /// The packet's other properties; `data` is empty.
    properties: Arrived<'static>,
}

impl Kept {
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        let data = &*seen.data;
        let payload = seen.link.and_then(|link| {
            let stack = dissect(data, link, &seen.ports);
            Some(Transport::of(&stack, data.len())?.payload)
        });
        let is_data = payload.is_some_and(|bytes| bytes > 0);
        let time = seen.time.unwrap_or(0).to_ne_bytes();
        let before = if is_data { &time[..] } else { &[] };
        let memory = Arc::new([before, data].concat());
        let properties = Arrived { data: &[], ..seen.arrived() };
        Self { memory, start: before.len(), properties }
    }

    pub(super) fn arrived(&self) -> Arrived<'_> {
        Arrived { data: &self.memory[self.start..], ..self.properties }
    }

    /// Returns a buffer that shares the packet's memory.
    pub(super) fn buffer(&self) -> PortBuffer {
        PortBuffer::shared(Arc::clone(&self.memory), self.start..self.memory.len())
    }

    /// Returns the memory used by the packet, in bytes.
    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns whether the packet has a TCP or UDP payload.
    fn is_data(&self) -> bool {
        self.start > 0
    }
}

/// Returns the timestamp stored in front of a packet that has a payload.
fn time_of_data(packet: &PortBuffer) -> Option<u64> {
    packet.before().first_chunk().copied().map(u64::from_ne_bytes)
}

/// Receiver that measures deliveries.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Packets per train, for trains with a TCP or UDP payload. A singleton counts as a train of one packet even if it
    /// could not have merged, so that differences between profiles are due only to merging.
    pub(super) segments: Distribution,
    /// Waiting times of packets with a payload, in nanoseconds.
    pub(super) held: Distribution,
    now_ns: u64,
}

impl Meter {
    /// Counts a packet that bypassed the engine.
    pub(super) fn count_aside(&mut self, kept: &Kept) {
        if kept.is_data() {
            self.segments.add(1, 1);
            self.held.add(0, 1);
        }
    }
}

impl Sink<PortBuffer> for Meter {
    fn deliver(&mut self, delivery: Delivery<'_, PortBuffer>) {
        let mut times = delivery.parts().filter_map(|part| time_of_data(&part.buffer)).peekable();
        if times.peek().is_some() {
            self.segments.add(delivery.packets.into(), 1);
        }
        for time_ns in times {
            self.held.add(self.now_ns.saturating_sub(time_ns), 1);
        }
    }
}

impl Receiver for Meter {
    fn keep(&mut self, seen: &Seen<'_>) -> PortBuffer {
        Kept::of(seen).buffer()
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}
