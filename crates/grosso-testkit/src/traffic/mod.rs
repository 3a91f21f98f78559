//! Seeded traffic: interleaved flows over any header stacks, with a configurable percentage of deviations.

mod deviate;

use std::collections::VecDeque;

use crate::Packet;
use crate::oracle::Link;
use crate::random::Random;
use crate::stack::{Place, Stack, Transport};

pub use deviate::Deviation;

/// An endless sequence of frames from several flows.
///
/// ```
/// use grosso_testkit::Traffic;
///
/// let frames: Vec<Vec<u8>> = Traffic::new(7).take(100).collect();
/// assert_eq!(frames, Traffic::new(7).take(100).collect::<Vec<_>>());
/// ```
#[derive(Clone, Debug)]
pub struct Traffic {
    random: Random,
    flows: Vec<Sender>,
    queue: VecDeque<Vec<u8>>,
    deviations_percent: usize,
    burst_mean: usize,
}

impl Traffic {
    /// Creates one to six flows over Ethernet. About one packet in eight differs from the packet that its train
    /// expects.
    pub fn new(seed: u64) -> Self {
        Self::over(Link::Ethernet, seed)
    }

    /// Creates one to six flows over the given link. About one packet in eight differs from the packet that its train
    /// expects.
    pub fn over(link: Link, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = random.within(1, 6);
        let mut flows: Vec<Sender> = Vec::new();
        for flow in 0..count {
            // Half of the flows have the same header stack as the previous one, and differ from it only in host and
            // port.
            let shared = flows.last().map(|sender| sender.stack.clone());
            let stack = match shared {
                Some(stack) if random.percent(50) => stack,
                _ => Stack::random(&mut random, link),
            };
            flows.push(Sender::new(stack, flow as u16, &mut random));
        }
        Self { random, flows, queue: VecDeque::new(), deviations_percent: 12, burst_mean: 6 }
    }

    /// Creates one to six flows in which no packet differs from the packet that its train expects.
    pub fn benign(seed: u64) -> Self {
        Self::new(seed).deviations_percent(0)
    }

    /// Creates traffic with one flow over each of these stacks.
    pub fn of(stacks: &[Stack], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let flows = stacks.iter().enumerate();
        let flows = flows
            .map(|(flow, stack)| Sender::new(stack.clone(), flow as u16, &mut random))
            .collect();
        Self { random, flows, queue: VecDeque::new(), deviations_percent: 12, burst_mean: 6 }
    }

    /// Sets the percentage of packets that differ from the packet that their train expects.
    pub fn deviations_percent(mut self, percent: usize) -> Self {
        self.deviations_percent = percent;
        self
    }

    /// Sets the mean number of consecutive packets from the same flow.
    pub fn burst_mean(mut self, packets: usize) -> Self {
        self.burst_mean = packets;
        self
    }

    /// Returns each flow's header stack.
    pub fn stacks(&self) -> impl Iterator<Item = &Stack> {
        self.flows.iter().map(|sender| &sender.stack)
    }

    /// Queues a burst of packets from one flow.
    fn burst(&mut self) {
        let Self { random, flows, queue, .. } = self;
        let index = random.below(flows.len());
        let sender = &mut flows[index];
        // One burst in twelve is long enough to reach the limits on size and packet count.
        let mean = if random.one_in(12) { 12 * self.burst_mean } else { self.burst_mean };
        for _ in 0..random.geometric(mean) {
            if random.percent(self.deviations_percent) {
                let deviation = *random.choose(Deviation::ALL);
                queue.extend(deviate::frames(deviation, sender, random));
            } else {
                queue.push_back(sender.next(random).build());
            }
        }
        // A flow that has sent all its data sets PSH, or its last segment is shorter.
        if random.percent(30) {
            queue.push_back(sender.last(random).build());
        }
        sender.tick(random);
    }
}

impl Iterator for Traffic {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        while self.queue.is_empty() {
            // A burst can be empty, because some deviations send nothing.
            self.burst();
        }
        self.queue.pop_front()
    }
}

/// The sender of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    stack: Stack,
    place: Place,
    pub(crate) segment: usize,
    /// Whether the identification is fixed, for each IP level.
    fixed: Vec<bool>,
    last: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(stack: Stack, flow: u16, random: &mut Random) -> Self {
        let levels = stack.tunnels.len() + 1;
        // In one flow out of four, sequence numbers and identifications soon wrap around.
        let sequence = if random.one_in(4) { u32::MAX - 3000 } else { random.bits() as u32 };
        let id = |random: &mut Random| if random.one_in(4) { 65530 } else { random.bits() as u16 };
        let ids = (0..levels).map(|_| id(random)).collect();
        let fixed = (0..levels).map(|_| random.percent(40)).collect();
        let place = Place { flow, sequence, ids, ..Place::default() };
        let segment = *random.choose(&[1, 2, 7, 100, 536, 1000, 1398, 8948]);
        Self { stack, place, segment, fixed, last: Vec::new() }
    }

    /// Returns the next packet of the flow, with a payload of `len` bytes, and advances the flow.
    pub(crate) fn send(&mut self, len: usize) -> Packet {
        let packet = self.stack.packet(&self.place).payload_len(len);
        self.place.sequence = self.place.sequence.wrapping_add(len as u32);
        for (id, fixed) in self.place.ids.iter_mut().zip(&self.fixed) {
            *id = id.wrapping_add(u16::from(!fixed));
        }
        packet
    }

    /// Returns the next full segment.
    pub(crate) fn next(&mut self, random: &mut Random) -> Packet {
        // A retransmission repeats a recent packet.
        let packet = self.send(self.segment);
        if self.last.is_empty() || random.one_in(3) {
            self.last = packet.build();
        }
        packet
    }

    /// Returns the last segment of a burst, which is shorter or has PSH.
    pub(crate) fn last(&mut self, random: &mut Random) -> Packet {
        let len = random.within(1, self.segment);
        let mut packet = self.send(len);
        if let Some(tcp) = packet.tcp_mut() {
            tcp.flags |= crate::headers::Tcp::PSH;
        }
        packet
    }

    /// Occasionally advances the timestamp clock and the acknowledgment number.
    fn tick(&mut self, random: &mut Random) {
        if random.one_in(4) {
            self.place.timestamp = self.place.timestamp.wrapping_add(1);
        }
        if random.one_in(8) {
            self.place.ack = self.place.ack.wrapping_add(1448);
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.stack.transport, Transport::Tcp | Transport::TcpTimestamps)
    }
}
