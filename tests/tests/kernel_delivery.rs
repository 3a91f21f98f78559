//! Tests that a real host accepts superframes from the engine: its sockets must read the payload of the original
//! packets.

#![cfg(target_os = "linux")]

use std::num::NonZeroU16;

use grosso::checksum::Checksum;
use grosso::meta::{Gso, GsoSize};
use grosso::segment::Fragments;
use grosso::{Meta, Profile};
use grosso_rig::engine::{Engine, Out, PORTS};
use grosso_rig::kernel::{GsoOracle, Host, VirtioHeader, skip};
use grosso_testkit::headers::{Ipv4, Tcp};
use grosso_testkit::oracle::{Lengths, Link, parse};
use grosso_testkit::{Packet, stream};
use grosso_wire::LinkType;

/// Port of the host's sockets.
const PORT: u16 = 8000;

#[test]
fn a_socket_reads_the_datagrams_of_a_superframe() {
    let mut host = match Host::new() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    let payloads: Vec<Vec<u8>> =
        (0..10).map(|index| stream(index * 1000, if index == 9 { 321 } else { 1000 })).collect();
    let frames = payloads.iter().zip(0..).map(|(payload, id)| {
        let packet = Packet::new().ipv4(|ip| to_host(ip, id));
        packet.udp(|udp| udp.destination_port(PORT)).payload(payload).build()
    });
    let superframes = superframes(&frames.collect::<Vec<_>>(), VirtioHeader::UDP_SEGMENTS);
    assert_eq!(superframes.len(), 1);
    assert_eq!(host.datagrams(PORT, superframes).unwrap(), payloads);
}

/// Number of IP payload bytes per fragment.
const FRAGMENT_BYTES: u16 = 1480;

/// Returns a datagram that is to be split into fragments (UFO), and its description for the kernel.
fn datagram_to_fragment(packet: &Packet) -> (VirtioHeader, Vec<u8>) {
    let (frame, start, offset) = packet.build_partial();
    let header = VirtioHeader {
        flags: VirtioHeader::NEEDS_CHECKSUM,
        gso_type: VirtioHeader::UDP_FRAGMENTS,
        gso_size: FRAGMENT_BYTES,
        checksum_start: start as u16,
        checksum_offset: offset as u16,
        ..VirtioHeader::default()
    };
    (header, frame)
}

// Rules: S30
#[test]
fn a_socket_reads_a_datagram_whose_fragments_came_as_one_superframe() {
    let mut host = match Host::new() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    let payload = stream(0, 40_000);
    let packet = Packet::new().ipv4(|ip| to_host(ip, 1));
    let packet = packet.udp(|udp| udp.destination_port(PORT)).payload(&payload);
    let superframe = datagram_to_fragment(&packet);
    assert_eq!(host.datagrams(PORT, vec![superframe]).unwrap(), [payload]);
}

// Rules: S31, S32
#[test]
fn the_kernel_fragments_a_superframe_as_the_engine_does() {
    let mut oracle = match GsoOracle::new() {
        Ok(oracle) => oracle,
        Err(why) => return skip(&why),
    };
    for payload_len in [1473, 2952, 2953, 20_000, 60_000] {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(77).df(false));
        let packet = packet.udp(|udp| udp).payload_len(payload_len);
        let (header, frame) = datagram_to_fragment(&packet);
        let expected = oracle.segment(&header, &frame).unwrap();
        let size = NonZeroU16::new(FRAGMENT_BYTES).map(GsoSize::Fragments);
        let gso = size.zip(Gso::every(1)).map(|(size, gso)| Gso { size, ..gso });
        let meta = Meta { gso, ..Meta::default() };
        let whole = packet.build();
        let slices = [&whole[..]];
        let mut fragments =
            Fragments::of_superframe(&slices, &meta, LinkType::Ethernet, &PORTS, 0).unwrap();
        let mut own = Vec::new();
        let mut buffer = [0; 2000];
        while let Some(fragment) = fragments.write_next(&mut buffer).unwrap() {
            own.push(buffer[..fragment.len()].to_vec());
        }
        assert_eq!(own.len(), (payload_len + 8).div_ceil(FRAGMENT_BYTES.into()));
        assert!(own == expected, "{payload_len}: {own:02x?}, the kernel: {expected:02x?}");
    }
}

#[test]
fn a_connection_reads_the_bytes_of_superframes() {
    let mut host = match Host::new() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    const FIRST: u32 = 0xffff_f000;
    let segment = |id: u16, sequence: u32, edit: &dyn Fn(Tcp) -> Tcp| {
        let packet = Packet::new().ipv4(|ip| to_host(ip, id));
        packet.tcp(|tcp| edit(tcp.destination_port(PORT).sequence(sequence)))
    };
    let synchronize = segment(0, FIRST.wrapping_sub(1), &|tcp| tcp.no_ack().syn()).build();
    let answer = host.handshake(PORT, synchronize).unwrap();
    let answer = parse(&answer, Link::Ip, Lengths::Declared);
    let acknowledgment = (answer.last().unwrap().number("sequence") as u32).wrapping_add(1);

    let acknowledge = |tcp: Tcp| tcp.ack(acknowledgment);
    let mut packets = vec![(VirtioHeader::default(), segment(1, FIRST, &acknowledge).build())];
    let frames: Vec<Vec<u8>> = (0..30)
        .map(|index| {
            let sequence = FIRST.wrapping_add(u32::from(index) * 1000);
            segment(2 + index, sequence, &acknowledge).payload_len(1000).build()
        })
        .collect();
    packets.extend(superframes(&frames, VirtioHeader::TCP_IPV4));
    assert_eq!(packets.len(), 2);
    assert!(host.stream(packets).unwrap() == stream(FIRST, 30_000));
}

fn to_host(ip: Ipv4, id: u16) -> Ipv4 {
    ip.source(Host::PEER).destination(Host::ADDRESS).id(id)
}

/// Returns the engine's deliveries for packets without a link layer, each with its virtio header.
fn superframes(frames: &[Vec<u8>], gso_type: u8) -> Vec<(VirtioHeader, Vec<u8>)> {
    let mut engine = Engine::with(Profile::linux(), LinkType::Raw, PORTS, 1);
    frames.iter().for_each(|frame| _ = engine.push(frame));
    engine.finish();
    let described = |out: Out| {
        let Checksum::Partial { start, offset } = out.meta.checksum else {
            panic!("no superframe: {out:?}");
        };
        let header = VirtioHeader {
            flags: VirtioHeader::NEEDS_CHECKSUM,
            gso_type,
            gso_size: out.meta.gso.and_then(|gso| gso.size()).expect("a segment size"),
            checksum_start: start,
            checksum_offset: offset,
            ..VirtioHeader::default()
        };
        (header, out.bytes)
    };
    engine.delivered.into_iter().map(described).collect()
}
