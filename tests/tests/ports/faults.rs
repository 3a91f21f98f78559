//! Tests an impaired wire in memory: damaged packets are never merged with undamaged ones, and never marked as
//! verified.

use std::collections::HashSet;

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    coalesce::reason::Pass,
    features::{Device, Features},
    segment::{Outgoing, Segments},
};
use grosso_io::{
    Port, PortBuffer, Transmitted,
    impair::Impair,
    memory::wire,
    path::{Direction, PathOptions},
};
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
};
use grosso_wire::{LinkType, Ports};

/// Returns six flows in turn: TCP and UDP over IPv4 and IPv6, plain and in a tunnel.
fn packets(count: u32) -> Vec<Vec<u8>> {
    let ethernet = || Packet::new().ethernet(|e| e);
    let vxlan = || ethernet().ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    let packet = |i: u32| {
        // Each flow sends bursts of eight packets.
        let (flow, number) = (i / 8 % 6, i / 48 * 8 + i % 8);
        let (port, id) = (2000 + flow as u16, number as u16);
        let network = match flow {
            0 | 1 => ethernet().ipv4(|ip| ip.id(id)),
            2 | 3 => ethernet().ipv6(|ip| ip),
            4 => vxlan().ipv4(|ip| ip.id(id)),
            _ => vxlan().ipv6(|ip| ip),
        };
        let transport = match flow {
            1 | 3 => network.udp(|u| u.source_port(port)),
            _ => network.tcp(|t| t.source_port(port).sequence(number * 300)),
        };
        transport.payload_len(300).build()
    };
    (0..count).map(packet).collect()
}

/// Frames delivered by a data path behind an impaired wire, and the number of received packets with a wrong checksum.
struct Outcome {
    frames: Vec<(Vec<u8>, Meta)>,
    damaged: usize,
    stats: grosso::stats::CoalesceStats,
}

fn through(impairment: &str, packets: &[Vec<u8>]) -> Outcome {
    let (mut source, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 64);
    let mut near = Impair::new(near, impairment.parse().unwrap());
    // A second wire, between the impaired one and the path, records the received packets.
    let (mut shown, mut outside) = wire(LinkType::Ethernet, Device::new(Features::NONE), 10_000);
    let (mut inside, mut target) = wire(LinkType::Ethernet, Device::new(Features::ALL), 10_000);
    let mut options = PathOptions::new(1);
    options.profile.limits.hold_ns = 20_000;
    let mut direction = Direction::new(options, LinkType::Ethernet, inside.device());
    let (mut frames, mut damaged, mut now_ns) = (Vec::new(), 0, 0);
    let mut rest = packets.chunks(32);
    loop {
        let chunk = rest.next().unwrap_or_default();
        if chunk.is_empty() && near.deadline().is_none() {
            break;
        }
        for packet in chunk {
            assert_eq!(source.transmit(&[packet], &Meta::default()).unwrap(), Transmitted::Taken);
        }
        now_ns += 10_000;
        let mut each = |frame: Frame<PortBuffer>| {
            let bytes = frame.buffer.as_ref();
            damaged += usize::from(!oracle::is_right(bytes, Link::Ethernet));
            assert_eq!(shown.transmit(&[bytes], &frame.meta).unwrap(), Transmitted::Taken);
        };
        near.receive(now_ns, 1000, &mut each).unwrap();
        direction.poll(&mut outside, &mut inside, now_ns).unwrap();
        let mut take = |frame: Frame<PortBuffer>| {
            frames.push((frame.buffer.into_own().unwrap(), frame.meta));
        };
        target.receive(now_ns, 1000, &mut take).unwrap();
    }
    while direction.poll(&mut outside, &mut inside, now_ns).unwrap() > 0 {}
    direction.finish(&mut outside, &mut inside).unwrap();
    let mut take = |frame: Frame<PortBuffer>| {
        frames.push((frame.buffer.into_own().unwrap(), frame.meta));
    };
    target.receive(now_ns, usize::MAX, &mut take).unwrap();
    Outcome { frames, damaged, stats: *direction.coalesce_stats().unwrap() }
}

/// Segments a superframe into packets with complete checksums.
fn cut(frame: &[u8], meta: &Meta) -> Vec<Vec<u8>> {
    let (slices, ports) = ([frame], Ports::ASSIGNED);
    let mut segments =
        Segments::new(&slices, meta, LinkType::Ethernet, &ports, Outgoing::default()).unwrap();
    let mut buffer = vec![0; segments.packet_len_max()];
    let mut packets = Vec::new();
    while let Some(segment) = segments.write_next(&mut buffer).unwrap() {
        packets.push(buffer[..segment.len()].to_vec());
    }
    packets
}

const FAULTS: [&str; 5] = [
    "loss 1% seed 3",
    "delay 30us reorder 5% seed 4",
    "duplicate 5% seed 5",
    "corrupt 10% seed 6",
    "delay 30us jitter 4us loss 1% reorder 5% duplicate 5% corrupt 10% seed 7",
];

#[test]
fn damaged_packets_never_merge_and_are_never_marked_verified() {
    let sent = packets(30_000);
    let known: HashSet<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    for fault in FAULTS {
        let outcome = through(fault, &sent);
        let (mut joined, mut damaged) = (0, 0);
        for (frame, meta) in &outcome.frames {
            if meta.gso.is_some() {
                let packets = cut(frame, meta);
                joined += packets.len();
                let is_known = |packet: &Vec<u8>| known.contains(packet.as_slice());
                assert!(packets.iter().all(is_known), "{fault}: a damaged packet was joined");
                continue;
            }
            if !oracle::is_right(frame, Link::Ethernet) {
                damaged += 1;
                assert_eq!(meta.checksum, Checksum::None, "{fault}: damaged, and said to be good");
            }
        }
        assert_eq!(damaged, outcome.damaged, "{fault}: each arrives, alone");
        assert!(joined > sent.len() / 4, "{fault}: {joined} joined, {:?}", outcome.stats);
        let passed = |reason: Pass| outcome.stats.passed[reason as usize];
        let told = passed(Pass::Checksum) + passed(Pass::Ipv4Checksum);
        assert_eq!(damaged > 0, fault.contains("corrupt"));
        // The other damaged packets are invalid for another reason: a wrong length, version or option.
        assert!(told as usize >= damaged * 4 / 5, "{fault}: {told} of {damaged} by their sums");
    }
}

#[test]
fn a_wire_that_only_loses_reorders_and_doubles_gives_nothing_that_was_not_sent() {
    let sent = packets(30_000);
    let known: HashSet<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    for fault in FAULTS.into_iter().filter(|fault| !fault.contains("corrupt")) {
        let outcome = through(fault, &sent);
        let packets = outcome.frames.iter().flat_map(|(frame, meta)| match meta.gso {
            Some(_) => cut(frame, meta),
            None => vec![frame.clone()],
        });
        let packets: Vec<_> = packets.collect();
        assert!(packets.iter().all(|packet| known.contains(packet.as_slice())), "{fault}");
        assert_eq!(packets.len() as u64, outcome.stats.packets_in, "{fault}");
    }
}
