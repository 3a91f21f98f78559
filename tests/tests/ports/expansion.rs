//! Tests acknowledgment expansion on the data path: an acknowledgment of a train is replaced by the acknowledgments
//! that the host would have sent for the train's packets.

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    expand::Unexpanded,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted,
    memory::{MemoryPort, wire},
    path::{Direction, PathOptions, Shared},
    runner::{DataPath, RunOptions},
};
use grosso_testkit::{
    Packet,
    headers::Tcp,
    oracle::{Link, is_right},
};
use grosso_wire::LinkType;

/// Number of payload bytes in a packet.
const LEN: u32 = 1000;

fn packet(from_host: bool, tcp: impl FnOnce(Tcp) -> Tcp, len: u32) -> Vec<u8> {
    let (here, there) = (([10, 0, 0, 1], 5000), ([10, 0, 0, 9], 80));
    let (from, to) = if from_host { (here, there) } else { (there, here) };
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(from.0).destination(to.0));
    let ports = |t: Tcp| t.source_port(from.1).destination_port(to.1);
    packet.tcp(|t| tcp(ports(t))).payload_len(len as usize).build()
}

/// Returns a packet of the train.
fn data(i: u32) -> Vec<u8> {
    packet(false, |t| t.sequence(i * LEN).ack(1), LEN)
}

fn acknowledgment(packets: u32) -> Vec<u8> {
    packet(true, |t| t.sequence(1).ack(packets * LEN), 0)
}

fn send(port: &mut MemoryPort, frame: &[u8], meta: Meta) {
    assert_eq!(port.transmit(&[frame], &meta).unwrap(), Transmitted::Taken);
}

fn take(port: &mut MemoryPort) -> Vec<(Vec<u8>, Meta)> {
    let mut frames = Vec::new();
    let mut each = |frame: Frame<PortBuffer>| {
        frames.push((frame.buffer.into_own().unwrap(), frame.meta));
    };
    port.receive(0, usize::MAX, &mut each).unwrap();
    frames
}

/// Returns the acknowledgment numbers in the frames, counted in packets.
fn acknowledged(frames: &[(Vec<u8>, Meta)]) -> Vec<u32> {
    frames.iter().map(|(frame, _)| number(frame) / LEN).collect()
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

/// A port that ends after its last frame has been received.
struct Ending(MemoryPort);

impl Port for Ending {
    fn link(&self) -> LinkType {
        self.0.link()
    }

    fn device(&self) -> Device {
        self.0.device()
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        self.0.receive(now_ns, max, each)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.0.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        self.0.transmit(slices, meta)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.0.flush()
    }

    fn is_finished(&self) -> bool {
        true
    }
}

/// Both directions of a path between a wire and a host.
struct Bench {
    server: MemoryPort,
    outside: MemoryPort,
    inside: MemoryPort,
    host: MemoryPort,
    to_host: Direction,
    to_wire: Direction,
    shared: Shared,
}

impl Bench {
    fn new(wire_features: Features, frames_max: usize, expands: bool) -> Self {
        let on_wire = Device::new(wire_features);
        let (server, outside) = wire(LinkType::Ethernet, on_wire, frames_max);
        let (inside, host) = wire(LinkType::Ethernet, Device::new(Features::ALL), 1000);
        let mut back = PathOptions::new(1);
        back.expand_acknowledgments = expands;
        let to_host = Direction::new(PathOptions::new(1), LinkType::Ethernet, inside.device());
        let to_wire = Direction::new(back, LinkType::Ethernet, outside.device());
        let shared = Shared::of([&to_host, &to_wire], 1);
        Self { server, outside, inside, host, to_host, to_wire, shared }
    }

    /// Runs one poll in each direction, as a path's thread does.
    fn turn(&mut self) {
        let Self { outside, inside, to_host, to_wire, shared, .. } = self;
        to_host.poll_shared(outside, inside, 0, shared).unwrap();
        to_wire.poll_shared(inside, outside, 0, shared).unwrap();
    }

    /// Sends this many packets, which become one train. The host acknowledges first the packets before the train, and
    /// then all packets.
    fn stretch(&mut self, packets: u32) {
        (0..packets).for_each(|i| send(&mut self.server, &data(i), Meta::default()));
        self.turn();
        assert_eq!(take(&mut self.host).len(), 1);
        send(&mut self.host, &acknowledgment(0), Meta::default());
        send(&mut self.host, &acknowledgment(packets), Meta::default());
    }
}

#[test]
fn a_stretch_acknowledgment_becomes_one_for_two_packets() {
    let mut bench = Bench::new(Features::NONE, 1000, true);
    bench.stretch(9);
    bench.turn();
    let frames = take(&mut bench.server);
    assert_eq!(acknowledged(&frames), [0, 2, 4, 6, 9]);
    assert!(frames.iter().all(|(frame, _)| is_right(frame, Link::Ethernet)));
    assert_eq!(frames[4].0, acknowledgment(9), "the last is the host's own");
    let stats = bench.to_wire.stats();
    let expanded = (stats.acknowledgments_expanded, stats.acknowledgments_expanded_into);
    assert_eq!((expanded, stats.rx_frames, stats.tx_frames), ((1, 4), 2, 5));
    assert_eq!(stats.acknowledgments_unexpanded[Unexpanded::First.index()], 1);
    assert_eq!(stats.acknowledgments_unexpanded.iter().sum::<u64>(), 1);
}

#[test]
fn nothing_is_expanded_unasked() {
    let mut bench = Bench::new(Features::NONE, 1000, false);
    bench.stretch(9);
    bench.turn();
    assert_eq!(acknowledged(&take(&mut bench.server)), [0, 9]);
    let stats = bench.to_wire.stats();
    assert_eq!((stats.acknowledgments_expanded, stats.tx_frames), (0, 2));
}

#[test]
fn frames_without_space_wait_in_order() {
    for room in 1..6 {
        let mut bench = Bench::new(Features::NONE, 1000, true);
        bench.stretch(20);
        let (mut server, outside) = wire(LinkType::Ethernet, Device::new(Features::NONE), room);
        bench.outside = outside;
        send(&mut bench.host, &acknowledgment(21), Meta::default());
        let mut frames = Vec::new();
        for _ in 0..20 {
            bench.turn();
            frames.extend(take(&mut server));
        }
        assert_eq!(acknowledged(&frames), [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 21], "{room}");
        assert!(!bench.to_wire.is_waiting() && bench.to_wire.stats().no_room > 0);
    }
}

#[test]
fn copies_do_not_overtake_what_is_held_of_their_connection() {
    // The wire also accepts superframes, so the host's packets are held until the host's poll ends.
    let mut bench = Bench::new(Features::ALL, 1000, true);
    bench.stretch(8);
    bench.turn();
    take(&mut bench.server);
    (8..16).for_each(|i| send(&mut bench.server, &data(i), Meta::default()));
    bench.turn();
    for i in 0..3 {
        let sent = packet(true, |t| t.sequence(1 + i * LEN).ack(8 * LEN), LEN);
        send(&mut bench.host, &sent, Meta::default());
    }
    let last = packet(true, |t| t.sequence(1 + 3 * LEN).ack(16 * LEN), 0);
    send(&mut bench.host, &last, Meta::default());
    bench.turn();
    let frames = take(&mut bench.server);
    assert_eq!(acknowledged(&frames), [8, 10, 12, 14, 16]);
    assert!(frames[0].1.gso.is_some(), "the train goes first");
}

#[test]
fn checksums_that_the_host_leaves_to_its_device_are_summed_in_each() {
    let seeded = |packets| packet(true, |t| t.sequence(1).ack(packets * LEN).checksum_seed(), 0);
    let checksum = Checksum::Partial { start: 34, offset: 16 };
    let meta = Meta { checksum, ..Meta::default() };
    for features in [Features::NONE, Features::ALL] {
        let mut bench = Bench::new(features, 1000, true);
        bench.stretch(8);
        bench.turn();
        take(&mut bench.server);
        (8..16).for_each(|i| send(&mut bench.server, &data(i), Meta::default()));
        bench.turn();
        send(&mut bench.host, &seeded(16), meta);
        bench.turn();
        let frames = take(&mut bench.server);
        assert_eq!(acknowledged(&frames), [10, 12, 14, 16]);
        for (frame, meta) in &frames {
            let is_partial = meta.checksum == checksum;
            assert_eq!(
                (is_partial, is_right(frame, Link::Ethernet)),
                (features == Features::ALL, features == Features::NONE)
            );
        }
    }
}

#[test]
fn a_path_shares_what_it_delivered_between_its_directions() {
    for expands in [false, true] {
        let (mut server, outside) = wire(LinkType::Ethernet, Device::new(Features::NONE), 1000);
        let (inside, mut host) = wire(LinkType::Ethernet, Device::new(Features::ALL), 1000);
        (0..44).for_each(|i| send(&mut server, &data(i), Meta::default()));
        for packets in [0, 44] {
            send(&mut host, &acknowledgment(packets), Meta::default());
        }
        let mut options = RunOptions::new(1);
        options.right_to_left.expand_acknowledgments = expands;
        let end = DataPath::new(Ending(outside), inside, options).unwrap().run();
        end.result.unwrap();
        let stats = end.snapshot.right_to_left;
        let expected = if expands { (1, 22) } else { (0, 0) };
        let counted = (stats.acknowledgments_expanded, stats.acknowledgments_expanded_into);
        assert_eq!(counted, expected);
        let frames = take(&mut server);
        assert_eq!(frames.len(), if expands { 23 } else { 2 });
        assert!(frames.is_sorted_by_key(|(frame, _)| number(frame)));
    }
}
