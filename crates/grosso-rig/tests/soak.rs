//! A soak test: memory does not grow, and every packet is delivered.
//!
//! Traffic from many flows, over all header stacks, passes through an impaired link, is coalesced, held and segmented
//! again. The test compares the result byte for byte with the packets that left the link. Both consumers stall
//! occasionally. `GROSSO_SOAK_PACKETS` sets the number of packets; a run of an hour needs the release profile:
//!
//! ```text
//! GROSSO_SOAK_PACKETS=1000000000 cargo test --release -p grosso-rig --test bounds soak:: -- --nocapture
//! ```

use std::env;

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted, delegate_port,
    impair::{Impair, Impairment},
    memory::{MemoryPort, wire},
    path::{Direction, PathOptions},
};
use grosso_rig::{
    allocator::{allocations, live_bytes},
    engine::PORTS,
};
use grosso_testkit::{
    Traffic,
    oracle::{Lengths, Link, parse},
};
use grosso_wire::LinkType;

/// Default number of packets.
const PACKETS: u64 = 4_000_000;
/// Number of packets that are generated in advance and then sent repeatedly with different ports.
const TEMPLATES: usize = 10_000;
/// Maximum number of frames on each wire.
const WIRE_FRAMES: usize = 32;
/// Interval between two packets, in nanoseconds.
const INTERVAL_NS: u64 = 700;
/// Growth in memory use that is tolerated after the warm-up: the size of eight superframe buffers. Each buffer grows to
/// the length of the longest frame that it has held, and longer frames still occur after a billion packets. The warm-up
/// takes several million packets.
const SLACK_BYTES: i64 = 512 << 10;

#[test]
fn memory_does_not_grow_and_every_packet_comes_out() {
    let packets = env::var("GROSSO_SOAK_PACKETS").map_or(PACKETS, |text| text.parse().unwrap());
    let mut soak = Soak::new();
    let tenth = packets / 10;
    let mut peaks = Vec::new();
    for _ in 0..10 {
        peaks.push(soak.run(tenth));
    }
    soak.drain();
    println!("soak: {} packets, live bytes at most by tenths: {peaks:?}", soak.offered);
    println!("soak: {:?} {:?}", soak.wire.port.stats(), soak.there.stats());

    let impaired = soak.wire.port.stats();
    let arrived = soak.offered - impaired.lost - impaired.overflowed + impaired.duplicated;
    assert_eq!(soak.wire.sum.packets, arrived, "the counters of the wire add up");
    assert_eq!(soak.came_out, soak.wire.sum, "all bytes from the wire were delivered");
    let stats = soak.there.coalesce_stats().expect("the far side accepts superframes");
    assert_eq!((stats.packets_in, stats.packets_held()), (arrived, 0));
    assert!(stats.superframe_packets > arrived / 4, "trains were among them: {stats:?}");
    assert!(soak.back.stats().cut > 0 && soak.back.stats().uncut == 0);
    assert!(soak.there.stats().no_room > 0 && soak.back.stats().no_room > 0, "there were stalls");

    let (warm, after) = peaks.split_at(peaks.len() / 2);
    let grown = after.iter().max().unwrap() - warm.iter().max().unwrap();
    assert!(grown <= SLACK_BYTES, "grown by {grown} bytes: {peaks:?}");
}

#[test]
fn a_consumer_that_never_looks_holds_the_source_back_and_costs_no_memory() {
    let mut soak = Soak::new();
    soak.run(100_000);
    let poll = |soak: &mut Soak| {
        soak.offer(64);
        soak.there.poll(&mut soak.wire, &mut soak.superframes.0, soak.now_ns).unwrap();
        // Advances the clock, so that held packets are delivered as soon as there is space.
        soak.now_ns += 64 * INTERVAL_NS;
    };
    (0..1000).for_each(|_| poll(&mut soak));
    let (offered, no_room) = (soak.offered, soak.there.stats().no_room);
    let before = (live_bytes(), allocations());
    (0..100_000).for_each(|_| poll(&mut soak));
    assert_eq!((live_bytes(), allocations()), before, "no more memory is allocated");
    assert_eq!(soak.offered, offered, "the source is held back");
    assert!(soak.there.stats().no_room >= no_room + 100_000, "the reason is counted");
    soak.drain();
    let stats = soak.wire.port.stats();
    let arrived = soak.offered - stats.lost - stats.overflowed + stats.duplicated;
    assert_eq!(
        (soak.came_out, soak.came_out.packets),
        (soak.wire.sum, arrived),
        "everything arrives"
    );
}

/// The test setup: a source, an impaired link, a coalescing direction, a segmenting direction, and a sink.
struct Soak {
    templates: Vec<Template>,
    frame: Vec<u8>,
    offered: u64,
    now_ns: u64,
    turns: u64,
    source: MemoryPort,
    wire: Observed<Impair<MemoryPort>>,
    there: Direction,
    superframes: (MemoryPort, MemoryPort),
    back: Direction,
    plain: (MemoryPort, MemoryPort),
    came_out: Sum,
}

impl Soak {
    fn new() -> Self {
        let none = Device::new(Features::NONE);
        let (source, near) = wire(LinkType::Ethernet, none, WIRE_FRAMES);
        let bad = "delay 20us loss 0.1% reorder 0.5% duplicate 0.5% corrupt 0.1% seed 7";
        let impairment: Impairment = bad.parse().unwrap();
        let wire_port = Observed { port: Impair::new(near, impairment), sum: Sum::default() };
        let superframes = wire(LinkType::Ethernet, Device::new(Features::ALL), WIRE_FRAMES);
        let plain = wire(LinkType::Ethernet, none, WIRE_FRAMES);
        let mut options = PathOptions::new(1);
        options.ports = PORTS;
        options.profile.tunnels_max = 2;
        options.profile.limits.hold_ns = 30_000;
        let there = Direction::new(options.clone(), LinkType::Ethernet, superframes.0.device());
        let back = Direction::new(options, LinkType::Ethernet, plain.0.device());
        Self {
            templates: templates(),
            frame: Vec::new(),
            offered: 0,
            now_ns: 0,
            turns: 0,
            source,
            wire: wire_port,
            there,
            superframes,
            back,
            plain,
            came_out: Sum::default(),
        }
    }

    /// Sends `packets` packets, and returns the maximum number of bytes in use.
    fn run(&mut self, packets: u64) -> i64 {
        let end = self.offered + packets;
        let mut peak = live_bytes();
        while self.offered < end {
            self.offer((end - self.offered).min(64));
            self.turn();
            peak = peak.max(live_bytes());
        }
        peak
    }

    /// Sends the next packets as long as there is space.
    fn offer(&mut self, packets: u64) {
        for _ in 0..packets {
            let number = self.offered as usize;
            let template = &self.templates[number % self.templates.len()];
            template.write(&mut self.frame, (number / self.templates.len()) as u16);
            if self.source.transmit(&[&self.frame], &Meta::default()).unwrap()
                == Transmitted::NoRoom
            {
                return;
            }
            self.offered += 1;
            self.now_ns += INTERVAL_NS;
        }
    }

    /// Moves all frames that can be moved. The second consumer polls only every third time, and the first one pauses
    /// occasionally.
    fn turn(&mut self) {
        self.turns += 1;
        self.there.poll(&mut self.wire, &mut self.superframes.0, self.now_ns).unwrap();
        if self.turns % 100 < 90 {
            self.back.poll(&mut self.superframes.1, &mut self.plain.0, self.now_ns).unwrap();
        }
        if self.turns.is_multiple_of(3) {
            self.take();
        }
    }

    fn take(&mut self) {
        let (sink, sum) = (&mut self.plain.1, &mut self.came_out);
        let mut taken = Vec::new();
        sink.receive(self.now_ns, usize::MAX, &mut |frame| {
            sum.add(frame.buffer.as_ref());
            taken.push(frame.buffer);
        })
        .unwrap();
        taken.into_iter().for_each(|buffer| sink.recycle(buffer));
    }

    /// Delivers all packets in flight.
    fn drain(&mut self) {
        while self.wire.deadline().is_some() || self.there.is_waiting() {
            self.now_ns += 64 * INTERVAL_NS;
            self.turn();
        }
        self.there.finish(&mut self.wire, &mut self.superframes.0).unwrap();
        loop {
            let moved = self.back.poll(&mut self.superframes.1, &mut self.plain.0, self.now_ns);
            let moved = moved.unwrap();
            self.take();
            self.there.drain(&mut self.wire, &mut self.superframes.0).unwrap();
            if moved == 0 && !self.back.is_waiting() && !self.there.is_waiting() {
                return self.take();
            }
        }
    }
}

/// Number of packets, and a sum of their hashes that does not depend on the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    packets: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, frame: &[u8]) {
        self.packets += 1;
        self.hashes = self.hashes.wrapping_add(hash(frame));
    }
}

/// Returns a hash that depends on every bit and its position.
fn hash(frame: &[u8]) -> u64 {
    let step =
        |state: u64, word: u64| (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = frame.as_chunks::<8>();
    let state = words.iter().fold(frame.len() as u64, |s, word| step(s, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let state = step(state, u64::from_le_bytes(last));
    state ^ state >> 32
}

/// A port that counts and hashes the packets that it receives.
struct Observed<P> {
    port: P,
    sum: Sum,
}

impl<P: Port> Port for Observed<P> {
    delegate_port!(port: link, device, recycle, transmit, flush, deadline);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { port, sum } = self;
        port.receive(now_ns, max, &mut |frame| {
            sum.add(frame.buffer.as_ref());
            each(frame);
        })
    }
}

/// A template for packets of many flows.
struct Template {
    frame: Vec<u8>,
    /// Offset of the innermost ports; `None` if the last header that can be parsed is neither TCP nor UDP.
    ports: Option<usize>,
}

impl Template {
    /// Writes a packet of flow `flow`. One port is increased by as much as the other is decreased, so every checksum
    /// stays the same (RFC 1071), and a wrong one stays wrong.
    fn write(&self, frame: &mut Vec<u8>, flow: u16) {
        frame.clear();
        frame.extend_from_slice(&self.frame);
        let Some(place) = self.ports else { return };
        for (at, change) in [(place, flow), (place + 2, !flow)] {
            let word = u16::from_be_bytes([frame[at], frame[at + 1]]);
            let (sum, carry) = word.overflowing_add(change);
            frame[at..at + 2].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
    }
}

/// Returns packets over all header stacks of the test kit; about one in eight deviates from what its train expects.
fn templates() -> Vec<Template> {
    let frames = (0_u64..).flat_map(|seed| Traffic::new(seed).take(250));
    let template = |frame: Vec<u8>| {
        let parsed = parse(&frame, Link::Ethernet, Lengths::Declared);
        let transport = parsed.layers.last().filter(|layer| matches!(layer.name, "tcp" | "udp"));
        Template { ports: transport.map(|layer| layer.offset), frame }
    };
    frames.take(TEMPLATES).map(template).collect()
}

#[test]
fn the_hash_sees_every_bit_and_place() {
    let frame: Vec<u8> = (0..77).collect();
    for bit in 0..77 * 8 {
        let mut other = frame.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(hash(&frame), hash(&other));
    }
    assert_ne!(hash(&frame), hash(&frame[..76]));
    assert_ne!(hash(&[0; 8]), hash(&[0; 9]));
}
