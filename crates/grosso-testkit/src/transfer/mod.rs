//! TCP transfers over a path with one known fault, captured at both endpoints.
//!
//! A sender with SACK, timestamps, fast retransmit and a retransmission timer sends to a receiver that delays
//! acknowledgments and reports DSACK. The path between them delays packets in order and then applies a [`Fault`]. The
//! seed selects the round-trip time, the rate, the length and the positions of the fault. [`transfers`] runs several
//! transfers at the same time.

mod frames;
mod receiver;
mod sender;

use std::{cmp::Reverse, collections::BinaryHeap};

use self::{frames::Writer, receiver::Reader, sender::Source};
use crate::random::Random;

/// The one fault in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    Healthy,
    /// The path loses this many data packets per 1000.
    Loss(usize),
    /// The path delays this many data packets per 1000, so that a few later ones overtake them.
    Reordering(usize),
    /// The path delivers this many data packets per 1000 immediately, ahead of all packets in transit. Uses IPv6.
    Overtaking(usize),
    /// The path delivers this many data packets per 1000 twice.
    Duplication(usize),
    /// The path loses this many acknowledgments per 100.
    AckLoss(usize),
    /// The receiver sends one acknowledgment for this many packets.
    StretchedAcks(u32),
    /// The receive window is this many segments.
    SmallWindow(u32),
    /// The receiver's application reads more slowly than data arrives.
    SlowReader,
    /// The sender's application writes small amounts of data, with pauses of 30 ms plus 1.25 round trips in between.
    PausingWriter,
    /// The congestion window never exceeds this many packets.
    SmallCongestionWindow(usize),
    /// The path silently drops packets with more than 1000 bytes of payload.
    BlackHole,
    /// The path silently drops packets with more than 1000 bytes of payload, and the sender never tries smaller
    /// packets.
    BlackHoleForEver,
    /// A router answers packets larger than 1400 bytes with an ICMP message, which the sender obeys.
    PathMtu,
    /// A router answers packets larger than 1400 bytes with an ICMP message, which the sender ignores until its third
    /// timeout.
    PathMtuIgnored,
    /// A router occasionally merges two packets and sends an ICMP message about the result.
    MergingRouter,
    /// Every packet has PSH.
    PushOnEveryPacket,
    /// Segments are 100 bytes long.
    TinySegments,
    /// The timestamp clock advances with every packet.
    FastTimestamps,
    /// The path corrupts this many data packets per 1000.
    Corruption(usize),
    /// This many healthy transfers share the path, and a packet of each passes in turn.
    Alternating(u16),
}

/// Frames with their timestamps in nanoseconds.
pub type Capture = Vec<(u64, Vec<u8>)>;

/// The two captures of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Capture at the sender, before the path.
    pub at_sender: Capture,
    /// Capture at the receiver, after the path.
    pub at_receiver: Capture,
}

/// One TCP packet in transit.
#[derive(Clone, Debug, Default)]
struct Item {
    from_sender: bool,
    sequence: u32,
    len: u32,
    ack: u32,
    is_syn: bool,
    is_push: bool,
    window: u32,
    timestamps: (u32, u32),
    blocks: Vec<(u32, u32)>,
    identification: u16,
    is_damaged: bool,
}

/// A scheduled event.
#[derive(Debug)]
enum Event {
    Arrival(Item),
    /// An ICMP message about the path MTU reaches the sender.
    TooBig,
    Timer(u32),
    DelayedAck(u32),
    Write,
    Read,
}

/// Events, ordered by time and then by creation.
#[derive(Debug, Default)]
struct Agenda {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
}

impl Agenda {
    fn add(&mut self, time_ns: u64, event: Event) {
        self.heap.push(Reverse((time_ns, self.events.len())));
        self.events.push(Some(event));
    }

    fn next(&mut self) -> Option<(u64, Event)> {
        let Reverse((time_ns, place)) = self.heap.pop()?;
        Some((time_ns, self.events[place].take()?))
    }
}

/// Properties of the hosts and the path, which the seed selects.
#[derive(Clone, Copy, Debug)]
struct Setting {
    fault: Fault,
    /// Port of the sender, and time of its first packet.
    port: u16,
    start_ns: u64,
    is_ipv6: bool,
    one_way_ns: u64,
    ns_per_byte: u64,
    segments: u32,
}

/// Simulates the transfer that the seed selects.
pub fn transfer(fault: Fault, seed: u64) -> Captured {
    let mut random = Random::new(seed);
    let setting = Setting::choose(fault, &mut random);
    let Fault::Alternating(flows) = fault else { return setting.run(random) };
    // Each transfer has its share of the rate, and starts when the packet before its first one has passed.
    let full_ns = u64::from(SEGMENT_BYTES + HEADER_BYTES) * setting.ns_per_byte;
    let share = |flow: u16| Setting {
        port: PORT + flow,
        start_ns: START_NS + u64::from(flow) * full_ns,
        ns_per_byte: u64::from(flows) * setting.ns_per_byte,
        ..setting
    };
    Captured::join((0..flows).map(|flow| share(flow).run(random.clone())))
}

/// Runs one transfer per fault at the same time, each over its own path. The sender's ports are consecutive, from
/// [`PORT`] on.
pub fn transfers(faults: &[Fault], seed: u64) -> Captured {
    let run = |(port, (seed, fault)): (u16, (u64, &Fault))| {
        let mut random = Random::new(seed);
        Setting { port, ..Setting::choose(*fault, &mut random) }.run(random)
    };
    Captured::join((PORT..).zip((seed..).zip(faults)).map(run))
}

impl Captured {
    /// Joins the captures of several transfers, and sorts the frames by time.
    fn join(transfers: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for captured in transfers {
            all.at_sender.extend(captured.at_sender);
            all.at_receiver.extend(captured.at_receiver);
        }
        all.at_sender.sort_by_key(|(time, _)| *time);
        all.at_receiver.sort_by_key(|(time, _)| *time);
        all
    }
}

impl Setting {
    fn choose(fault: Fault, random: &mut Random) -> Self {
        // Without identifications, the order of the sender's packets can only be estimated.
        let needs_ipv4 = matches!(fault, Fault::AckLoss(_) | Fault::Duplication(_));
        let is_alternating = matches!(fault, Fault::Alternating(_));
        let is_dense =
            matches!(fault, Fault::PushOnEveryPacket | Fault::TinySegments | Fault::FastTimestamps);
        // The faults need suitable delays: a small window limits a transfer only over a long path, and receive offload
        // merges packets only if they arrive close together.
        let one_ways: &[u64] = match fault {
            Fault::SmallWindow(_) | Fault::SmallCongestionWindow(_) => &[5_000_000, 20_000_000],
            _ if is_dense || is_alternating => &[200_000, 1_000_000],
            _ => &[200_000, 1_000_000, 5_000_000, 20_000_000],
        };
        let rates: &[u64] = match fault {
            // Packets of different flows follow each other within a poll.
            Fault::Alternating(_) => &[1, 2],
            _ if is_dense => &[8, 16],
            _ => &[8, 16, 80],
        };
        let is_ipv6 = !needs_ipv4 && random.one_in(4) || matches!(fault, Fault::Overtaking(_));
        let (one_way_ns, ns_per_byte) = (*random.choose(one_ways), *random.choose(rates));
        let segments = random.within(600, 1200) as u32;
        // Many flows are captured, so each is short.
        let segments = if is_alternating { segments / 2 } else { segments };
        Self { fault, port: PORT, start_ns: START_NS, is_ipv6, one_way_ns, ns_per_byte, segments }
    }

    fn run(self, random: Random) -> Captured {
        let mut path = Passage {
            setting: self,
            random,
            agenda: Agenda::default(),
            writer: Writer::new(self.is_ipv6, self.port),
            captured: Captured::default(),
            free_ns: [0; 2],
            arrival_ns: [0; 2],
        };
        let mut source = Source::new(self);
        let mut reader = Reader::new(self);
        source.connect(self.start_ns, &mut path);
        while let Some((now_ns, event)) = path.agenda.next() {
            match event {
                Event::Arrival(item) if item.from_sender => {
                    reader.receive(now_ns, &item, &mut path);
                }
                Event::Arrival(item) => source.receive(now_ns, &item, &mut path),
                Event::TooBig => source.shrink(now_ns, &mut path),
                Event::Timer(number) => source.time_out(now_ns, number, &mut path),
                Event::DelayedAck(number) => reader.time_out(now_ns, number, &mut path),
                Event::Write => source.write(now_ns, &mut path),
                Event::Read => reader.read(now_ns, &mut path),
            }
        }
        Captured::join([path.captured].into_iter())
    }
}

/// The path between the hosts, and the captures at both ends.
struct Passage {
    setting: Setting,
    random: Random,
    agenda: Agenda,
    writer: Writer,
    captured: Captured,
    /// Time at which each link becomes free.
    free_ns: [u64; 2],
    /// Time of the last arrival in each direction.
    arrival_ns: [u64; 2],
}

impl Passage {
    /// Sends a packet from one host to the other.
    fn send(&mut self, now_ns: u64, mut item: Item) {
        let side = usize::from(item.from_sender);
        let wire_ns = u64::from(item.len + HEADER_BYTES) * self.setting.ns_per_byte;
        let departure_ns = now_ns.max(self.free_ns[side]);
        self.free_ns[side] = departure_ns + wire_ns;
        let frame = self.writer.frame(&item);
        let near = if item.from_sender { 0 } else { 1 };
        self.capture(near, departure_ns, frame);
        let arrival_ns = departure_ns + wire_ns + self.setting.one_way_ns;
        let arrival_ns = arrival_ns.max(self.arrival_ns[side] + 1);
        if !item.from_sender {
            let is_lost = match self.setting.fault {
                Fault::AckLoss(percent) if !item.is_syn => self.random.percent(percent),
                _ => false,
            };
            if !is_lost {
                self.deliver(arrival_ns, side, item);
            }
            return;
        }
        let mut strikes = |per_mille: usize| item.len > 0 && self.random.below(1000) < per_mille;
        match self.setting.fault {
            Fault::Loss(share) if strikes(share) => {}
            Fault::Reordering(share) if strikes(share) => {
                let packets = self.random.within(2, 6) as u64;
                let full_ns = u64::from(SEGMENT_BYTES + HEADER_BYTES) * self.setting.ns_per_byte;
                self.record_arrival(arrival_ns + packets * full_ns, item);
            }
            Fault::Overtaking(share) if strikes(share) => {
                self.record_arrival(departure_ns + wire_ns, item);
            }
            Fault::Duplication(share) if strikes(share) => {
                self.deliver(arrival_ns, side, item.clone());
                self.deliver(arrival_ns + 1000, side, item);
            }
            Fault::Corruption(share) if strikes(share) => {
                item.is_damaged = true;
                self.deliver(arrival_ns, side, item);
            }
            Fault::BlackHole | Fault::BlackHoleForEver if item.len > 1000 => {}
            Fault::PathMtu | Fault::PathMtuIgnored if item.len > ICMP_SEGMENT_BYTES => {
                self.object(arrival_ns, &item, 1400, 0);
            }
            Fault::MergingRouter if item.len == SEGMENT_BYTES && strikes(20) => {
                // The MTU has space for full packets; IPv6 needs 20 bytes more because its header is longer.
                let mtu = if self.setting.is_ipv6 { 1520 } else { 1500 };
                self.object(arrival_ns, &item, mtu, SEGMENT_BYTES as u16);
            }
            _ => self.deliver(arrival_ns, side, item),
        }
    }

    /// Drops a packet at a router, which reports the drop to the sender with an ICMP message.
    fn object(&mut self, now_ns: u64, item: &Item, mtu: u16, more_bytes: u16) {
        let frame = self.writer.too_big(item, mtu, more_bytes);
        let time_ns = now_ns + self.setting.one_way_ns / 2;
        self.capture(0, time_ns, frame);
        self.agenda.add(time_ns, Event::TooBig);
    }

    /// Delivers a packet after the previous packets in its direction.
    fn deliver(&mut self, time_ns: u64, side: usize, item: Item) {
        self.arrival_ns[side] = time_ns;
        self.record_arrival(time_ns, item);
    }

    fn record_arrival(&mut self, time_ns: u64, item: Item) {
        let frame = self.writer.frame(&item);
        self.capture(usize::from(item.from_sender), time_ns, frame);
        if !item.is_damaged {
            self.agenda.add(time_ns, Event::Arrival(item));
        }
    }

    fn capture(&mut self, place: usize, time_ns: u64, frame: Vec<u8>) {
        let captured = &mut self.captured;
        let frames = if place == 0 { &mut captured.at_sender } else { &mut captured.at_receiver };
        frames.push((time_ns, frame));
    }
}

/// Port of the first sender.
pub const PORT: u16 = 40_000;
/// Time of the first packet in nanoseconds since the epoch.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Payload of a full packet in bytes.
const SEGMENT_BYTES: u32 = 1448;
/// Number of payload bytes that fit into the MTU of [`Fault::PathMtu`], also over IPv6.
const ICMP_SEGMENT_BYTES: u32 = 1328;
/// Length of a packet's headers, including the link header, in bytes.
const HEADER_BYTES: u32 = 66;
