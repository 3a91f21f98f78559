//! The packets of a poll, flow by flow.
//!
//! Where many flows take turns, each packet finds its train far from the one before it, and a small
//! flow table throws out each train before its next packet comes. So the packets of a poll are
//! collected first and then taken flow by flow, the flows in the order of their first packets.
//! Sorting by hash, as FreeBSD does, would let those of great hash wait behind all others (P20).

use alloc::{vec, vec::Vec};

use grosso_wire::dissect_into;

use crate::{
    coalesce::{
        Batch, Coalescer, Sink, Verdict,
        barrier::{Barrier, barrier},
        policy::{Laws, Profiled},
    },
    flow::{FlowHash, Keys},
    frame::Frame,
    meta::Meta,
};

/// Packets that were collected, each behind the one of its flow before it.
#[derive(Debug)]
pub(crate) struct Collected<B> {
    packets: Vec<Collect<B>>,
    packets_max: usize,
    /// The flows in the order of their first packets.
    chains: Vec<Chain>,
    /// Where a flow's chain is found by its hash; what is of another round is empty.
    slots: Vec<Slot>,
    round: u32,
    /// When the first packet was collected. All are taken to have come then, so that none is held
    /// longer than it may be, and trains grow old in the order in which they start.
    since_ns: u64,
}

#[derive(Debug)]
struct Collect<B> {
    /// None once it was taken.
    frame: Option<Frame<B>>,
    next: u16,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    flow: FlowHash,
    first: u16,
    last: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    round: u32,
    chain: u16,
}

impl<B> Collected<B> {
    pub(crate) fn new(packets: u16) -> Self {
        let packets_max = usize::from(packets.clamp(1, Batch::PACKETS_CEILING));
        Self {
            packets: Vec::with_capacity(packets_max),
            packets_max,
            chains: Vec::with_capacity(packets_max),
            // At most half full, so that few are looked at.
            slots: vec![Slot::default(); (2 * packets_max).next_power_of_two()],
            round: 1,
            since_ns: 0,
        }
    }

    /// When its packets are taken to have come; none where there are none.
    pub(crate) fn since_ns(&self) -> Option<u64> {
        (!self.packets.is_empty()).then_some(self.since_ns)
    }

    fn is_full(&self) -> bool {
        self.packets.len() >= self.packets_max
    }

    /// Puts a packet behind the others of its flow; two flows of one hash share a chain, in which
    /// each keeps its order.
    fn push(&mut self, frame: Frame<B>, flow: FlowHash, now_ns: u64) {
        if self.packets.is_empty() {
            self.since_ns = now_ns;
        }
        let index = self.packets.len() as u16;
        self.packets.push(Collect { frame: Some(frame), next: END });
        let mask = self.slots.len() - 1;
        let mut at = u64::from(flow) as usize & mask;
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.round != self.round {
                *slot = Slot { round: self.round, chain: self.chains.len() as u16 };
                self.chains.push(Chain { flow, first: index, last: index });
                return;
            }
            let chain = &mut self.chains[usize::from(slot.chain)];
            if chain.flow == flow {
                self.packets[usize::from(chain.last)].next = index;
                chain.last = index;
                return;
            }
            at += 1;
        }
    }

    /// Gives all packets, flow by flow.
    fn drain(&mut self, mut each: impl FnMut(Frame<B>)) {
        for chain in self.chains.drain(..) {
            let mut at = chain.first;
            while let Some(packet) = self.packets.get_mut(usize::from(at)) {
                packet.frame.take().into_iter().for_each(&mut each);
                at = packet.next;
            }
        }
        self.packets.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.slots.fill(Slot::default());
            self.round = 1;
        }
    }
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Takes one packet by a profile other than the default, perhaps later.
    #[inline(never)]
    pub(super) fn push_profiled(
        &mut self,
        buffer: B,
        meta: &Meta,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match self.collected {
            Some(_) => self.collect(Frame { buffer, meta: *meta }, now_ns, sink),
            None => self.push_now::<Profiled>(buffer, meta, now_ns, sink),
        }
    }

    /// Takes one packet into the batch.
    fn collect(
        &mut self,
        frame: Frame<B>,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let packet = frame.buffer.as_ref();
        let flow = match self.shapes.find(packet).and_then(|place| self.shapes.get(place)) {
            Some(known) => Some(self.hasher.flow(packet, &known.keys)),
            None => {
                dissect_into(packet, self.link, &self.ports, &mut self.stack);
                match barrier(&self.stack, packet) {
                    Barrier::None => return self.push_one(frame, now_ns, sink),
                    Barrier::Flow => {
                        let keys = Keys::of(self.stack.layers(), packet);
                        Some(self.hasher.flow(packet, &keys))
                    }
                    Barrier::Pair => None,
                }
            }
        };
        match (flow, &mut self.collected) {
            (Some(flow), Some(collected)) => {
                collected.push(frame, flow, now_ns);
                if collected.is_full() {
                    self.push_collected(sink);
                }
                Verdict::Waits
            }
            _ => {
                self.push_collected(sink);
                self.push_one(frame, now_ns, sink)
            }
        }
    }

    /// Takes the packets that were collected.
    pub(super) fn push_collected(&mut self, sink: &mut (impl Sink<B> + ?Sized)) {
        if let Some(mut collected) = self.collected.take() {
            let since_ns = collected.since_ns;
            collected.drain(|frame| _ = self.push_one(frame, since_ns, sink));
            self.collected = Some(collected);
        }
    }

    /// Takes one packet of the batch.
    #[inline(never)]
    fn push_one(
        &mut self,
        frame: Frame<B>,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Frame { buffer, meta } = frame;
        match self.is_staged {
            true => self.push_now::<Profiled>(buffer, &meta, now_ns, sink),
            false => self.push_now::<Laws>(buffer, &meta, now_ns, sink),
        }
    }
}

/// Behind the last packet of a chain: more than a batch can hold.
const END: u16 = u16::MAX;
