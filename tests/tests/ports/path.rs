//! Tests a data path between ports in memory: it does exactly the work that the ports' features require, and loses no
//! packet.

use grosso::{
    Frame, Meta,
    checksum::{self, Checksum},
    coalesce::{Acknowledgments, Reorder, reason::Release},
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, Transmitted, delegate_port,
    memory::{MemoryPort, wire},
    path::{Direction, PathOptions, Protocol, RxCsum},
};
use grosso_testkit::{Packet, oracle};
use grosso_wire::LinkType;

/// A path from `outside` to `inside`, with the far endpoints of both links.
struct Bench {
    source: MemoryPort,
    outside: MemoryPort,
    inside: MemoryPort,
    target: MemoryPort,
    direction: Direction,
    received: Vec<(Vec<u8>, Meta)>,
}

impl Bench {
    fn new(features: Features, frames_max: usize) -> Self {
        let plain = Device::new(Features::NONE);
        let (source, outside) = wire(LinkType::Ethernet, plain, 100_000);
        let (inside, target) = wire(LinkType::Ethernet, Device::new(features), frames_max);
        let direction = Direction::new(PathOptions::new(1), LinkType::Ethernet, inside.device());
        Self { source, outside, inside, target, direction, received: Vec::new() }
    }

    fn offer(&mut self, frame: &[u8], meta: Meta) {
        assert_eq!(self.source.transmit(&[frame], &meta).unwrap(), Transmitted::Taken);
    }

    fn poll(&mut self) -> usize {
        self.direction.poll(&mut self.outside, &mut self.inside, 0).unwrap()
    }

    fn take(&mut self) {
        let received = &mut self.received;
        let mut each = |frame: Frame<PortBuffer>| {
            received.push((frame.buffer.into_own().unwrap(), frame.meta));
        };
        self.target.receive(0, usize::MAX, &mut each).unwrap();
    }

    /// Polls until no more frames move.
    fn run(&mut self) {
        while self.poll() > 0 || self.direction.is_waiting() {
            self.take();
        }
        self.take();
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        self.received.iter().map(|(frame, _)| frame.clone()).collect()
    }
}

fn segment(i: u32) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
    packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000).build()
}

fn tcp_offloads() -> Features {
    Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::TCP6_SEGMENTATION
        | Features::TCP_MANGLEID_SEGMENTATION
}

#[test]
fn packets_are_coalesced_towards_a_port_that_takes_superframes() {
    let mut bench = Bench::new(tcp_offloads(), 1000);
    (0..64).for_each(|i| bench.offer(&segment(i), Meta::default()));
    bench.run();
    let packets: Vec<_> =
        bench.received.iter().map(|(_, m)| m.gso.map_or(1, |g| g.segments)).collect();
    assert_eq!(packets, [64]);
    assert_eq!(bench.direction.stats().tx_frames, 1);
}

#[test]
fn trains_go_on_behind_a_poll_that_took_all_it_may_and_leave_with_one_that_found_no_more() {
    let mut bench = Bench::new(tcp_offloads(), 1000);
    let mut options = PathOptions::new(1);
    options.budget_frames = 3;
    bench.direction = Direction::new(options, LinkType::Ethernet, bench.inside.device());
    (0..9).for_each(|i| bench.offer(&segment(i), Meta::default()));
    for (received, left) in [(3, 0), (3, 0), (3, 0), (0, 1)] {
        assert_eq!(bench.poll(), received);
        bench.take();
        assert_eq!(bench.received.len(), left);
    }
    assert_eq!(bench.received[0].1.gso.map(|gso| gso.segments), Some(9));
}

#[test]
fn superframes_are_cut_towards_a_port_that_takes_none() {
    let mut bench = Bench::new(tcp_offloads(), 1000);
    let packets: Vec<_> = (0..40).map(segment).collect();
    packets.iter().for_each(|packet| bench.offer(packet, Meta::default()));
    bench.run();
    let (superframe, meta) = bench.received.remove(0);

    let mut back = Bench::new(Features::NONE, 1000);
    back.offer(&superframe, meta);
    back.run();
    assert_eq!(back.frames(), packets);
    assert_eq!(back.direction.stats().cut, 1);
}

#[test]
fn superframes_count_as_the_packets_of_the_wire_on_every_way() {
    let packets: Vec<_> = (0..40).map(segment).collect();
    let bytes: usize = packets.iter().map(Vec::len).sum();
    let wire = |packets: usize, bytes: usize| (packets as u64, bytes as u64);
    let size = |size: grosso_io::path::WireSize| (size.packets, size.bytes);

    let mut joining = Bench::new(tcp_offloads(), 1000);
    packets.iter().for_each(|packet| joining.offer(packet, Meta::default()));
    joining.run();
    let stats = *joining.direction.stats();
    let (superframe, meta) = joining.received.remove(0);
    assert_eq!((size(stats.rx_wire), size(stats.tx_wire)), (wire(40, bytes), wire(40, bytes)));
    let joined = stats.joined[Protocol::Tcp4 as usize];
    assert_eq!((joined.frames, joined.bytes), wire(1, superframe.len()));
    assert_eq!(size(joined.wire), wire(40, bytes));
    assert_eq!(stats.joined.iter().map(|made| made.frames).sum::<u64>(), 1);
    assert_eq!((stats.rx_checksums[RxCsum::None as usize], stats.tx_partial), (40, 1));

    // The superframe is segmented for a plain wire that has room for only a few packets, and forwarded unsplit to a
    // port that accepts it.
    for (features, frames_max, sent) in [(Features::NONE, 3, 40), (tcp_offloads(), 1000, 1)] {
        let mut path = Bench::new(features, frames_max);
        path.offer(&superframe, meta);
        path.run();
        let stats = *path.direction.stats();
        assert_eq!((stats.rx_frames, stats.tx_frames), (1, sent));
        assert_eq!((size(stats.rx_wire), size(stats.tx_wire)), (wire(40, bytes), wire(40, bytes)));
        let cut = stats.cut as usize;
        assert_eq!((cut, stats.cut_bytes as usize), (cut, cut * superframe.len()));
        assert_eq!(size(stats.cut_wire), wire(cut * 40, cut * bytes));
        assert_eq!((cut == 1, stats.tx_partial), (sent == 40, 1));
        assert_eq!(stats.rx_checksums[RxCsum::Unnecessary as usize], 1, "it never left the host");
    }
}

#[test]
fn superframes_that_both_ports_take_pass_untouched() {
    let mut bench = Bench::new(tcp_offloads(), 1000);
    (0..40).for_each(|i| bench.offer(&segment(i), Meta::default()));
    bench.run();
    let (superframe, meta) = bench.received.remove(0);

    let mut through = Bench::new(tcp_offloads(), 1000);
    through.offer(&superframe, meta);
    through.run();
    assert_eq!(through.frames(), [superframe]);
    assert_eq!(through.received[0].1, meta);
    assert_eq!(through.direction.stats().cut, 0);
}

#[test]
fn partial_checksums_are_completed_only_where_the_port_does_not() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(99);
    let (partial, start, at) = packet.build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: at as u16 };
    for (features, expected) in
        [(Features::NONE, packet.build()), (Features::CHECKSUM_GENERIC, partial.clone())]
    {
        let mut bench = Bench::new(features, 10);
        bench.offer(&partial, Meta { checksum, ..Meta::default() });
        bench.run();
        assert_eq!(bench.frames(), [expected]);
    }
}

#[test]
fn a_consumer_without_room_holds_the_sender_back_and_nothing_is_lost_or_doubled() {
    for frames_max in [1, 2, 7] {
        let mut bench = Bench::new(Features::NONE, frames_max);
        let packets: Vec<_> = (0..500).map(segment).collect();
        packets.iter().for_each(|packet| bench.offer(packet, Meta::default()));
        let mut longest = 0;
        while bench.poll() > 0 || bench.direction.is_waiting() {
            // While the consumer is stalled, another poll receives no frames.
            assert!(!bench.direction.is_waiting() || bench.poll() == 0);
            bench.take();
            longest = longest.max(bench.received.len());
        }
        bench.take();
        assert_eq!(bench.frames(), packets);
        assert!(bench.direction.stats().no_room > 0);
    }
}

#[test]
fn buffers_of_dropped_acknowledgments_go_back_to_their_port() {
    let mut options = PathOptions::new(1);
    options.profile.rules.acknowledgments = Acknowledgments::FilterAggressive;
    let (mut source, outside) = wire(LinkType::Ethernet, Device::new(Features::NONE), 100);
    let (mut inside, mut target) = wire(LinkType::Ethernet, Device::new(Features::ALL), 100);
    let mut direction = Direction::new(options, LinkType::Ethernet, inside.device());
    let mut outside = Recycling { port: outside, recycled: 0 };
    let acknowledgment = |number: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number as u16));
        packet.tcp(|tcp| tcp.sequence(1).ack(number * 2896)).build()
    };
    for number in 1..=20 {
        let frame = acknowledgment(number);
        assert_eq!(source.transmit(&[&frame], &Meta::default()).unwrap(), Transmitted::Taken);
    }
    direction.poll(&mut outside, &mut inside, 0).unwrap();
    let mut delivered = Vec::new();
    target.receive(0, usize::MAX, &mut |frame| delivered.extend(frame.buffer.into_own())).unwrap();
    assert_eq!(delivered, [acknowledgment(20)]);
    assert_eq!(outside.recycled, 20);
}

/// A port that counts the buffers returned to it.
struct Recycling {
    port: MemoryPort,
    recycled: usize,
}

impl Port for Recycling {
    delegate_port!(port: link, device, receive, transmit, flush, is_finished);

    fn recycle(&mut self, buffer: PortBuffer) {
        self.recycled += 1;
        self.port.recycle(buffer);
    }
}

#[test]
fn held_trains_leave_when_the_path_is_finished() {
    let mut options = PathOptions::new(1);
    options.profile.limits.hold_ns = 1_000;
    let mut bench = Bench::new(tcp_offloads(), 10);
    bench.direction = Direction::new(options, LinkType::Ethernet, bench.inside.device());
    bench.offer(&segment(0), Meta::default());
    assert_eq!(bench.poll(), 1);
    bench.take();
    assert_eq!((bench.received.len(), bench.direction.deadline()), (0, Some(1_000)));
    bench.direction.expire(&mut bench.outside, &mut bench.inside, 999).unwrap();
    bench.take();
    assert!(bench.received.is_empty());
    bench.direction.finish(&mut bench.outside, &mut bench.inside).unwrap();
    bench.take();
    assert_eq!(bench.frames(), [segment(0)]);
}

#[test]
fn what_comes_out_of_a_cut_is_right_by_the_literal_oracle() {
    let mut bench = Bench::new(tcp_offloads(), 1000);
    (0..30).for_each(|i| bench.offer(&segment(i), Meta::default()));
    bench.run();
    let (superframe, meta) = bench.received.remove(0);
    let scattered = Features::SCATTER_GATHER | Features::CHECKSUM_GENERIC;
    for (features, sums_itself) in [(Features::NONE, false), (scattered, true)] {
        let mut back = Bench::new(features, 3);
        back.offer(&superframe, meta);
        back.run();
        assert_eq!(back.received.len(), 30);
        for (i, (frame, meta)) in (0..).zip(&mut back.received) {
            let partial = matches!(meta.checksum, Checksum::Partial { .. });
            assert_eq!(partial, sums_itself, "{features:?}");
            if let Checksum::Partial { start, offset } = meta.checksum {
                assert!(!oracle::is_right(frame, oracle::Link::Ethernet), "left to the device");
                checksum::complete(frame, start, offset).unwrap();
            }
            assert!(oracle::is_right(frame, oracle::Link::Ethernet));
            assert_eq!(*frame, segment(i));
        }
    }
}

#[test]
fn what_fills_a_hole_may_lie_behind_as_many_packets_as_a_poll_takes() {
    let mut bench = Bench::new(tcp_offloads(), 100);
    let mut options = PathOptions::new(1);
    options.profile.limits.hold_ns = 20_000;
    options.profile.reorder = Reorder::holes(100_000);
    options.budget_frames = 2;
    bench.direction = Direction::new(options, LinkType::Ethernet, bench.inside.device());
    let packet = |place: u32| {
        let ip = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        ip.tcp(|tcp| tcp.sequence(place * 100)).payload_len(100).build()
    };
    let mut poll = |places: &[u32], now_ns| {
        places.iter().for_each(|&place| bench.offer(&packet(place), Meta::default()));
        bench.direction.poll(&mut bench.outside, &mut bench.inside, now_ns).unwrap()
    };
    assert_eq!(poll(&[0], 0), 1);
    assert_eq!(poll(&[], 20_000), 0);
    assert_eq!(poll(&[2], 30_000), 1);
    // The path's thread slept until long after the hole's deadline.
    assert_eq!(poll(&[3, 4, 1], 900_000), 2);
    assert_eq!(poll(&[], 900_000), 1);
    let stats = bench.direction.coalesce_stats().unwrap().reorder;
    assert_eq!(stats.released[Release::HoleTime.index()], 0);
    assert_eq!(stats.released[Release::Filled.index()], 3);
}
