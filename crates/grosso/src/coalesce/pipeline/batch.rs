//! The packets of a poll, sorted by flow.
//!
//! If packets of many flows alternate, consecutive packets belong to different trains, and a small flow table evicts
//! each train before its next packet arrives. This stage therefore collects the packets of a poll and processes them
//! flow by flow, in the order in which the flows first appeared. Sorting by hash, as FreeBSD does, would delay flows
//! with a large hash (P20). Packets of the first flow are processed first anyway, so they are not collected.

use alloc::{vec, vec::Vec};

use crate::{
    coalesce::{profile::Batch, rx::rx_packet::RxPacket},
    flow::FlowHash,
    frame::Frame,
};

/// Stage that collects packets in chains, one for each flow.
#[derive(Debug)]
pub(crate) struct Batcher<B> {
    packets: Vec<Collect<B>>,
    packets_max: usize,
    /// First flow of the batch.
    leader: FlowHash,
    /// Number of packets of the first flow that skipped the batch.
    led: usize,
    /// Flows, in the order in which their first packets arrived.
    chains: Vec<Chain>,
    /// Hash table from flows to chains. A slot from an earlier round counts as empty.
    slots: Vec<ChainSlot>,
    round: u32,
    /// Arrival time of the first packet. All packets of the batch are treated as if they had arrived at that time, so
    /// that no train is held too long and trains are ordered by age.
    since_ns: u64,
}

#[derive(Debug)]
struct Collect<B> {
    /// The packet, or `None` once it has been taken.
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
struct ChainSlot {
    round: u32,
    chain: u16,
}

impl<B> Batcher<B> {
    pub(crate) fn new(packets: u16) -> Self {
        let packets_max = usize::from(packets.clamp(1, Batch::PACKETS_CEILING));
        Self {
            packets: Vec::with_capacity(packets_max),
            packets_max,
            leader: FlowHash::NONE,
            led: 0,
            chains: Vec::with_capacity(packets_max),
            // The table is at most half full, so a lookup probes few slots.
            slots: vec![ChainSlot::default(); (2 * packets_max).next_power_of_two()],
            round: 1,
            since_ns: 0,
        }
    }

    /// Returns the arrival time assumed for all packets of the batch, or `None` if the batch is empty.
    pub(crate) fn since_ns(&self) -> Option<u64> {
        (self.led > 0).then_some(self.since_ns)
    }

    /// Returns whether the batch is full.
    pub(crate) fn is_full(&self) -> bool {
        self.led + self.packets.len() >= self.packets_max
    }

    /// Returns whether one more packet fills the batch.
    pub(crate) fn is_almost_full(&self) -> bool {
        self.led + self.packets.len() + 1 >= self.packets_max
    }

    /// Counts a packet of the first flow, which skips the batch. Returns the arrival time assumed for it, or `None` for
    /// a packet of any other flow.
    #[inline(always)]
    pub(crate) fn lead(&mut self, flow: FlowHash, now_ns: u64) -> Option<u64> {
        if self.led == 0 {
            (self.leader, self.since_ns) = (flow, now_ns);
        }
        let leads = self.leader == flow;
        self.led += usize::from(leads);
        leads.then_some(self.since_ns)
    }

    /// Returns whether all packets so far belong to the first flow.
    pub(crate) fn is_leading(&self) -> bool {
        self.packets.is_empty()
    }

    /// Appends a packet to the chain of its flow. Flows with the same hash share a chain, but each keeps the order of
    /// its packets.
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: RxPacket<'_, B>, flow: FlowHash) {
        let index = self.packets.len() as u16;
        let RxPacket { buffer, meta, .. } = packet;
        self.packets.push(Collect { frame: Some(Frame { buffer, meta: *meta }), next: END });
        // Consecutive packets often belong to the same flow.
        if let Some(chain) = self.chains.last_mut().filter(|chain| chain.flow == flow) {
            self.packets[usize::from(chain.last)].next = index;
            chain.last = index;
            return;
        }
        self.push_to_chain(flow, index);
    }

    /// Appends packet `index` to the chain of its flow.
    #[inline(never)]
    fn push_to_chain(&mut self, flow: FlowHash, index: u16) {
        let mask = self.slots.len() - 1;
        let mut at = u64::from(flow) as usize & mask;
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.round != self.round {
                *slot = ChainSlot { round: self.round, chain: self.chains.len() as u16 };
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

    /// Passes all packets to `each`, flow by flow.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Frame<B>)) {
        for chain in self.chains.drain(..) {
            let mut at = chain.first;
            while let Some(packet) = self.packets.get_mut(usize::from(at)) {
                packet.frame.take().into_iter().for_each(&mut each);
                at = packet.next;
            }
        }
        self.packets.clear();
        self.led = 0;
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.slots.fill(ChainSlot::default());
            self.round = 1;
        }
    }
}

/// End of a chain: an index that no batch reaches.
const END: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::Batcher;
    use crate::{coalesce::rx::rx_packet::RxPacket, flow::FlowHash, meta::Meta};

    #[test]
    fn packets_leave_flow_by_flow_and_each_flow_in_its_order() {
        let mut batch = Batcher::new(8);
        // A batch of eight packets has sixteen slots. The third and the fourth flow share one of them.
        let flows = [1, 3, 5, 3, 21, 5, 1, 21].map(FlowHash::new);
        for round in 0..2 {
            assert_eq!(batch.since_ns(), None);
            for (index, flow) in flows.into_iter().enumerate() {
                assert!(!batch.is_full());
                match batch.lead(flow, round) {
                    Some(since_ns) => assert_eq!((flow, since_ns), (flows[0], round)),
                    None => {
                        let (buffer, now_ns) = ((flow, index), round);
                        batch.push(RxPacket { buffer, meta: &Meta::default(), now_ns }, flow);
                    }
                }
            }
            assert!(batch.is_full());
            assert_eq!(batch.since_ns(), Some(round));
            let mut left = Vec::new();
            batch.drain(|frame| left.push(frame.buffer.1));
            assert_eq!(left, [1, 3, 2, 5, 4, 7]);
        }
    }
}
