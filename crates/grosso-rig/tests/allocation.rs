//! Tests of memory use: a warm engine does not allocate memory for packets, and a flood of flows needs no more memory
//! than a few flows.

use std::net::{Ipv4Addr, Ipv6Addr};

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink,
    checksum::Checksum,
    coalesce::{Acknowledgments, Batch, Bypass, Hold},
    segment::{HEADER_BYTES_MAX, Outgoing, Segments},
    tunnel::{
        Carrier, Endpoint, Header, RemoteChecksumUse, Udp,
        decapsulate::Decapsulation,
        encapsulate::Encapsulator,
        esp::{Decryptor, Encryptor, EspMode, KeyMaterial, Outer, SecurityAssociation},
    },
};
use grosso_rig::{
    allocator::{self, live_bytes},
    engine::PORTS,
    superframe::Superframe,
};
use grosso_testkit::{
    Packet, Traffic,
    stack::{Front, Network, Place, Stack, Transport, Tunnel},
};
use grosso_wire::{LinkType, dissect, dissect_into};

/// Returns the number of allocations that `work` makes on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = allocator::allocations();
    work();
    allocator::allocations() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))), 1);
    assert_eq!(allocations(|| drop(std::hint::black_box(Vec::<u8>::new()))), 0);
    let before = live_bytes();
    let held = std::hint::black_box(vec![0_u8; 5000]);
    assert_eq!(live_bytes() - before, 5000);
    drop(held);
    assert_eq!(live_bytes(), before);
}

#[test]
fn no_acknowledgment_is_allocated_for_once_the_coalescer_is_warm() {
    let acknowledgment = |place: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.tcp(|t| t.source_port(place as u16 % 20).ack(place)).build()
    };
    let frames: Vec<_> = (0..2000).map(acknowledgment).collect();
    for acknowledgments in [Acknowledgments::Vector, Acknowledgments::FilterAggressive] {
        let mut profile = Profile::linux();
        profile.rules.acknowledgments = acknowledgments;
        let mut coalescer = Coalescer::new(
            CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(PORTS),
        );
        let mut packets = 0;
        let mut poll = || {
            let sink: &mut dyn Sink<_> =
                &mut |delivery: Delivery<'_, _>| packets += delivery.packets;
            for frame in &frames {
                coalescer.push(Frame::new(&frame[..]), 0, sink);
            }
            coalescer.poll_end(0, sink);
        };
        poll();
        assert_eq!(allocations(&mut poll), 0, "{acknowledgments:?}");
        assert!(packets > 0);
    }
}

/// Tests polls with every kind of input: trains, unusual packets, fragments, garbage and tunnels.
#[test]
fn no_packet_is_allocated_for_once_the_coalescer_is_warm() {
    let by_flow = Batch::ByFlow { packets: 100 };
    for (hold, hold_ns, batch) in [
        (Hold::Fixed, 0, Batch::AsItCame),
        (Hold::Fixed, 50_000, Batch::AsItCame),
        (Hold::Fixed, 0, by_flow),
        (Hold::Controlled, 50_000, Batch::AsItCame),
        (Hold::Controlled, 50_000, by_flow),
    ] {
        let frames = mixed_traffic();
        let mut profile = Profile::linux();
        profile.tunnels_max = 2;
        profile.limits.hold_ns = hold_ns;
        profile.batch = batch;
        profile.hold = hold;
        let mut coalescer = Coalescer::new(
            CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(PORTS),
        );
        let mut delivered = Delivered::default();
        for _ in 0..2 {
            polls(&mut coalescer, &frames, &mut delivered);
        }
        let warm = delivered;
        // There are enough rounds that a slot lost only occasionally would also cause an allocation.
        let rounds = 6;
        let count = allocations(|| {
            for _ in 0..rounds {
                polls(&mut coalescer, &frames, &mut delivered);
            }
        });
        assert_eq!(count, 0, "allocations in {rounds} x {} packets", frames.len());
        assert_eq!(delivered.packets - warm.packets, rounds * frames.len() as u64);
        assert!(delivered.joined > warm.joined, "trains were among them");
    }
}

/// Tests segmentation with copied payload and complete checksums, and segmentation that writes only the headers.
#[test]
fn no_packet_is_allocated_for_when_cutting() {
    let stacks = [
        Stack::plain(Front::Ethernet, Network::Ipv4, Transport::TcpTimestamps),
        Stack::plain(Front::DoubleVlan, Network::Ipv6, Transport::Udp),
        tunnelled(Network::Ipv4, Tunnel::Vxlan, Network::Ipv6),
        tunnelled(Network::Ipv6, Tunnel::GreChecksum, Network::Ipv4),
    ];
    let mut buffer = vec![0; 9000];
    for stack in stacks {
        let packet = stack.packet(&Place::default()).payload_len(60_000);
        let superframe = Superframe::new(&packet, 1400);
        let slices = [&superframe.bytes[..]];
        for outgoing in [Outgoing::default(), Outgoing::PARTIAL_CHECKSUMS] {
            let mut packets = 0;
            let count = allocations(|| {
                let plan = || {
                    Segments::new(&slices, &superframe.meta, LinkType::Ethernet, &PORTS, outgoing)
                };
                let Ok(mut segments) = plan() else { return };
                while let Ok(Some(_)) = segments.write_next(&mut buffer) {
                    packets += 1;
                }
                let Ok(mut segments) = plan() else { return };
                let mut header = [0; HEADER_BYTES_MAX];
                while let Ok(Some(_)) = segments.scatter_next(&mut header, |_| ()) {
                    packets += 1;
                }
            });
            assert_eq!((count, packets), (0, 2 * 43), "{stack:?}");
        }
    }
}

/// Tests ESP in both directions with single packets, superframes and refused packets.
#[test]
fn no_packet_is_allocated_for_when_encrypting_and_decrypting() {
    let association = |mode| {
        let key = KeyMaterial::aes_gcm(&[1; 36]).expect("a key");
        SecurityAssociation::new(0x1000, mode, key)
    };
    let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    for mode in [EspMode::Transport, EspMode::Tunnel(Outer::V6 { source, destination })] {
        let mut encryptor = Encryptor::new(association(mode), 0).expect("an association");
        let mut decryptor = Decryptor::new(association(mode)).expect("an association");
        let stack = Stack::plain(Front::Ethernet, Network::Ipv4, Transport::Tcp);
        let packet = stack.packet(&Place::default()).payload_len(60_000);
        let (superframe, single) = (Superframe::new(&packet, 1400), packet.build());
        let slices = [&superframe.bytes[..]];
        let mut buffer = vec![0; 65_000];
        let link = LinkType::Ethernet;
        let mut packets = 0;
        let count = allocations(|| {
            let mut receive = |wire: &mut [u8]| {
                packets += u32::from(decryptor.decrypt(wire, link).is_ok());
                assert!(decryptor.decrypt(wire, link).is_err(), "once only");
            };
            let outgoing = Outgoing::default();
            let Ok(sent) = encryptor.encrypt(&single, &Meta::default(), link, &mut buffer) else {
                return;
            };
            receive(&mut buffer[..sent.len]);
            let plan = Segments::new(&slices, &superframe.meta, link, &PORTS, outgoing);
            let Ok(segments) = plan else { return };
            let Ok(mut segments) = encryptor.encrypt_segments(segments, link) else { return };
            while let Ok(Some(sent)) = segments.write_next(&mut buffer) {
                receive(&mut buffer[..sent.len]);
            }
        });
        assert_eq!((count, packets), (0, 1 + 43), "{mode:?}");
    }
}

/// Tests encapsulation and decapsulation with single packets, packets with partial checksums, superframes and refused
/// packets.
#[test]
fn no_packet_is_allocated_for_when_putting_into_tunnels_and_taking_out() {
    for (endpoint, inside) in tunnels_of_every_kind() {
        let link = if endpoint.carries_ethernet() { LinkType::Ethernet } else { LinkType::Raw };
        let front = if endpoint.carries_ethernet() { Front::Ethernet } else { Front::Bare };
        let packet = Stack::plain(front, inside, Transport::Tcp).packet(&Place::default());
        let (bytes, start, offset) = packet.clone().payload_len(900).build_partial();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let partial = (bytes, Meta { checksum, ..Meta::default() });
        let superframe = Superframe::new(&packet.clone().payload_len(60_000), 1400);
        let single = (packet.payload_len(900).build(), Meta::default());
        let frames = [single, partial, (superframe.bytes, superframe.meta)];
        let rules = endpoint.rules();
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).expect("an endpoint");
        let mut stack = dissect(&[], link, &rules.ports);
        let mut buffer = Vec::with_capacity(66_000);
        let (mut put_in, mut taken_out) = (0, 0);
        let count = allocations(|| {
            for (bytes, meta) in &frames {
                let Ok(sent) = encapsulator.encapsulate(&[bytes], meta, link) else { continue };
                put_in += 1;
                buffer.clear();
                buffer.extend_from_slice(sent.header);
                buffer.extend_from_slice(&bytes[sent.replaced..]);
                dissect_into(&buffer, LinkType::Raw, &rules.ports, &mut stack);
                let plan = Decapsulation::plan(&buffer, &stack, &sent.meta, link, &rules);
                taken_out +=
                    plan.map_or(0, |plan| usize::from(!plan.apply(&mut buffer).is_empty()));
            }
            let refused = encapsulator.encapsulate(&[&[]], &Meta::default(), link);
            assert!(refused.is_err());
        });
        assert_eq!((count, put_in, taken_out), (0, 3, 3), "{endpoint:?}");
    }
}

/// Returns four kinds of tunnels: with the longest header, with remote checksum offload, with every GRE option that a
/// superframe allows, and with only an IP header.
fn tunnels_of_every_kind() -> Vec<(Endpoint, Network)> {
    let [v4, v6] = [[Ipv4Addr::LOCALHOST.into(); 2], [Ipv6Addr::LOCALHOST.into(); 2]];
    let offload = RemoteChecksumUse { transmit: true, receive: true, complete: false };
    let udp = |destination, remote_checksum| Udp {
        source: 49152..=65535,
        destination,
        checksum: true,
        ipv6_without_checksum: false,
        remote_checksum,
    };
    let options = [[1, 2, 3, 20].as_slice(), &[0; 80]].concat();
    let geneve = Header::Geneve { identifier: 1, options, inherit_protocol: false };
    let gre = Header::Gre { key: Some(1), checksum: true, sequence: false, ethernet: false };
    [
        (v6, geneve, Carrier::Udp(udp(6081, RemoteChecksumUse::default()))),
        (v4, Header::Ip, Carrier::Gue(udp(6080, offload))),
        (v4, gre, Carrier::Ip),
        (v6, Header::Ip, Carrier::Ip),
    ]
    .into_iter()
    .map(|([local, remote], header, carrier)| Endpoint::new(local, remote, header, carrier))
    .flat_map(|endpoint| [(endpoint.clone(), Network::Ipv4), (endpoint, Network::Ipv6)])
    .collect()
}

/// Tests that a million flows of one packet each stay within the memory limits (P50).
#[test]
fn p50_a_flood_of_flows_keeps_memory_constant() {
    let (fixed, controlled) = (Hold::Fixed, Hold::Controlled);
    let floods = [
        (fixed, 4096, 0, 1_000_000),
        (fixed, 1, u64::MAX, 100_000),
        (fixed, 100_000, u64::MAX, 200_000),
        (controlled, 4096, u64::MAX, 1_000_000),
    ];
    for (hold, flows_max, hold_ns, flood) in floods {
        let mut profile = Profile::linux();
        profile.hold = hold;
        profile.bypass = (hold == controlled).then(Bypass::default);
        profile.limits.hold_ns = hold_ns;
        profile.limits.flows = flows_max;
        let mut coalescer = Coalescer::new(
            CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(PORTS),
        );
        let templates = flood_templates();
        let mut delivered = Delivered::default();
        let mut push = |numbers: std::ops::Range<u32>, delivered: &mut Delivered| {
            for number in numbers {
                let buffer = flood_packet(&templates, number);
                let checksum = Checksum::Unnecessary { levels: 3 };
                let frame = Frame { buffer, meta: Meta { checksum, ..Meta::default() } };
                coalescer.push(frame, number.into(), &mut |delivery: Delivery<'_, Inline>| {
                    delivered.count(&delivery);
                });
            }
            coalescer.stats().packets_held()
        };
        push(0..flood / 4, &mut delivered);
        let before = (allocator::allocations(), live_bytes());
        let held = push(flood / 4..flood, &mut delivered);
        assert_eq!((allocator::allocations(), live_bytes()), before);
        assert!(held > 0 && held <= flows_max as u64, "{held} held");
        assert_eq!((delivered.joined, delivered.packets + held), (0, flood.into()));
    }
}

/// Tests that the memory for new header stacks is limited as well.
#[test]
fn a_flood_of_header_stacks_keeps_memory_constant() {
    let frames: Vec<Vec<u8>> =
        (0..3000).flat_map(|seed| Traffic::new(seed).take(20).collect::<Vec<_>>()).collect();
    let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1).ports(PORTS));
    let mut delivered = Delivered::default();
    let (warm, flood) = frames.split_at(frames.len() / 2);
    polls(&mut coalescer, warm, &mut delivered);
    let before = live_bytes();
    polls(&mut coalescer, flood, &mut delivered);
    let grown = live_bytes() - before;
    assert!(grown < 65_536, "grown by {grown} bytes");
    assert_eq!(delivered.packets, frames.len() as u64);
}

/// A sink that counts deliveries instead of keeping them.
#[derive(Clone, Copy, Default)]
struct Delivered {
    packets: u64,
    joined: u64,
}

impl Delivered {
    fn count<B: AsRef<[u8]>>(&mut self, delivery: &Delivery<'_, B>) {
        self.packets += u64::from(delivery.packets);
        self.joined += u64::from(delivery.is_joined());
    }
}

/// A buffer that contains its bytes, so it needs no allocation.
struct Inline {
    bytes: [u8; 160],
    len: usize,
}

impl AsRef<[u8]> for Inline {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns template frames, each with the offset of its transport header.
fn flood_templates() -> Vec<(Vec<u8>, usize)> {
    let link = || Packet::new().ethernet(|e| e);
    let tunnel = link().ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip);
    let packets = [link().ipv4(|ip| ip), link().vlan(|v| v).ipv6(|ip| ip), tunnel];
    packets
        .into_iter()
        .map(|packet| (packet.clone().tcp(|t| t).payload_len(20).build(), packet.header_len()))
        .collect()
}

/// Returns the packet of flow `number`; its ports encode the number.
fn flood_packet(templates: &[(Vec<u8>, usize)], number: u32) -> Inline {
    let (frame, transport) = &templates[number as usize % templates.len()];
    let mut inline = Inline { bytes: [0; 160], len: frame.len() };
    inline.bytes[..frame.len()].copy_from_slice(frame);
    inline.bytes[*transport..transport + 4].copy_from_slice(&number.to_be_bytes());
    inline
}

/// Returns traffic with deviations over a few stacks, which warms up every path in the engine.
fn mixed_traffic() -> Vec<Vec<u8>> {
    let stacks = [
        Stack::plain(Front::Ethernet, Network::Ipv4, Transport::TcpTimestamps),
        Stack::plain(Front::Vlan, Network::Ipv6, Transport::TcpTimestamps),
        Stack::plain(Front::Pppoe, Network::Ipv4, Transport::Udp),
        Stack::plain(Front::Mpls, Network::Ipv6Options, Transport::Tcp),
        tunnelled(Network::Ipv4, Tunnel::Vxlan, Network::Ipv4),
        tunnelled(Network::Ipv6, Tunnel::GreChecksum, Network::Ipv4),
        tunnelled(Network::Ipv4, Tunnel::Geneve, Network::Ipv6),
    ];
    Traffic::of(&stacks, 1).take(3000).collect()
}

fn tunnelled(outer: Network, tunnel: Tunnel, inner: Network) -> Stack {
    let mut stack = Stack::plain(Front::Ethernet, inner, Transport::TcpTimestamps);
    stack.tunnels.push((outer, tunnel));
    stack
}

/// Pushes all frames in polls of 64, and then delivers all held packets.
fn polls<'a>(
    coalescer: &mut Coalescer<&'a [u8]>,
    frames: &'a [Vec<u8>],
    delivered: &mut Delivered,
) {
    let sink: &mut dyn Sink<_> = &mut |delivery: Delivery<'_, _>| delivered.count(&delivery);
    for (number, frame) in frames.iter().enumerate() {
        coalescer.push(Frame::new(&frame[..]), number as u64 * 1000, sink);
        if number % 64 == 63 {
            coalescer.poll_end(number as u64 * 1000, sink);
        }
    }
    coalescer.finish(sink);
}
