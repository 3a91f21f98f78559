//! The packets of a capture pushed through reassemblers as if they arrived now.

use grosso::{
    Frame, Meta,
    reassemble::{Datagram, Discarded, Identity, Outcome, Reassembler, Rules, Sink, Verdict},
};
use grosso_io::capture::{Packet, PacketMeta};
use grosso_wire::{LinkType, Ports};

/// Reassemblers, one for each interface and direction.
pub(super) struct Lanes {
    rules: Rules,
    seed: u64,
    lanes: Vec<Lane>,
    /// The latest time so far, in nanoseconds: that of a capture may go back.
    now_ns: u64,
    /// What a packet is copied to.
    buffer: Vec<u8>,
}

struct Lane {
    interface: u32,
    direction: u32,
    reassembler: Reassembler<Vec<u8>>,
}

/// Learns what becomes of datagrams.
pub(super) trait Visitor {
    /// One is whole.
    fn datagram(&mut self, lane: usize, datagram: &Datagram<'_, Vec<u8>>);
    /// One will not be whole.
    fn discarded(&mut self, _lane: usize, _discarded: &Discarded<'_>) {}
}

/// What became of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// Too many interfaces send at once.
    Aside,
    /// The engine took it.
    Engine {
        lane: usize,
        /// The datagram that it is a fragment of, unless it passed or died alone.
        identity: Option<Identity>,
        verdict: Verdict,
    },
}

impl Lanes {
    pub(super) fn new(rules: Rules, seed: u64) -> Self {
        Self { rules, seed, lanes: Vec::new(), now_ns: 0, buffer: Vec::new() }
    }

    /// Takes the next packet. Datagrams whose time is over leave first.
    pub(super) fn push(
        &mut self,
        packet: &Packet<'_>,
        said: &PacketMeta,
        link: LinkType,
        visitor: &mut impl Visitor,
    ) -> Fate {
        self.now_ns = self.now_ns.max(packet.timestamp_ns.unwrap_or(0));
        let now_ns = self.now_ns;
        for (lane, number) in self.lanes.iter_mut().zip(0..) {
            lane.reassembler.expire(now_ns, &mut Telling::new(visitor, number));
        }
        let direction = said.flags.unwrap_or(0) & DIRECTION;
        let Some(number) = self.lane(packet.interface, direction, link) else {
            return Fate::Aside;
        };
        let offload = said.offload.as_ref();
        let meta = Meta { vlan: offload.and_then(|offload| offload.vlan()), ..Meta::default() };
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(packet.data);
        let frame = Frame { buffer, meta };
        let reassembler = &mut self.lanes[number].reassembler;
        let identity = reassembler.identify(&frame);
        let mut telling = Telling::new(visitor, number);
        let verdict = reassembler.push(frame, now_ns, &mut telling);
        self.buffer = telling.buffer;
        Fate::Engine { lane: number, identity, verdict }
    }

    /// Ends all datagrams, because the capture or its section ends.
    pub(super) fn finish(&mut self, visitor: &mut impl Visitor) {
        for (number, mut lane) in self.lanes.drain(..).enumerate() {
            lane.reassembler.finish(&mut Telling::new(visitor, number));
        }
    }

    /// The lane of an interface and direction; `None` when there are too many.
    fn lane(&mut self, interface: u32, direction: u32, link: LinkType) -> Option<usize> {
        let is_it = |lane: &Lane| lane.interface == interface && lane.direction == direction;
        if let Some(number) = self.lanes.iter().position(is_it) {
            return Some(number);
        }
        if self.lanes.len() >= LANES_MAX {
            return None;
        }
        let rules = self.rules.clone();
        // Buffers are copied together, so overlapping bytes can be mixed.
        let reassembler = Reassembler::new(rules, link, Ports::ASSIGNED, self.seed).ok()?;
        self.lanes.push(Lane { interface, direction, reassembler });
        Some(self.lanes.len() - 1)
    }
}

/// Tells a visitor what a reassembler gives, and keeps the buffer that comes back.
struct Telling<'a, V> {
    visitor: &'a mut V,
    lane: usize,
    buffer: Vec<u8>,
}

impl<'a, V> Telling<'a, V> {
    fn new(visitor: &'a mut V, lane: usize) -> Self {
        Self { visitor, lane, buffer: Vec::new() }
    }
}

impl<V: Visitor> Sink<Vec<u8>> for Telling<'_, V> {
    fn take(&mut self, outcome: Outcome<'_, Vec<u8>>) {
        match outcome {
            Outcome::Datagram(datagram) => self.visitor.datagram(self.lane, &datagram),
            Outcome::Discarded(discarded) => self.visitor.discarded(self.lane, &discarded),
            Outcome::Passed { frame, .. } | Outcome::Returned { frame, .. } => {
                self.buffer = frame.buffer;
            }
            _ => {}
        }
    }
}

/// The bits of `epb_flags` that say whether a packet came or went.
const DIRECTION: u32 = 0b11;
/// Most interfaces and directions at once; each has tables of its own.
const LANES_MAX: usize = 16;
