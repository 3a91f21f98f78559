//! Sends the same fragments to the running kernel and to the engine. A socket must read the same datagrams from both,
//! and both must report the same errors.

#![cfg(target_os = "linux")]

use std::net::IpAddr;

use grosso::reassemble::{IcmpError, Overlap, ReassemblyMode, ReassemblyRules};
use grosso_rig::{
    fragments::{Piece, Rig, Version, random_pieces},
    kernel::{Host, VirtioHeader, release, skip},
};
use grosso_testkit::{Packet, oracle, random::Random};
use grosso_wire::LinkType;

/// Port of the host's socket.
const PORT: u16 = 8000;
/// Number of datagrams to test.
const SETS: u64 = 3000;

// Rules: F15
#[test]
fn a_socket_reads_what_the_engine_joins() {
    let mut host = match Host::with_ipv6() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    let (mut delivered, mut known) = (0, 0);
    for seed in 0..SETS {
        let mut random = Random::new(seed);
        let version = *random.choose(&Version::ALL);
        let longest = if random.one_in(8) { 9000 } else { 400 };
        let len = random.within(17, longest);
        let data = datagram(version, &random.bytes(len - 8), random.one_in(2));
        let pieces = random_pieces(&mut random, version, &data);
        // For a first IPv6 fragment without data, the kernel reports missing headers, and the engine reports missing
        // data.
        let pieces: Vec<_> =
            pieces.into_iter().filter(|piece| piece.offset > 0 || !piece.data.is_empty()).collect();
        let (kernel, engine) = both(&mut host, version, seed as u32 + 1, &pieces);
        delivered += engine.len();
        if kernel == engine {
            continue;
        }
        // Rules F10 and F13: up to 6.x, the kernel drops only a malformed fragment; later releases also drop the
        // datagram.
        let without: Vec<_> =
            pieces.iter().filter(|piece| !is_malformed(version, piece)).cloned().collect();
        assert_ne!(without, pieces, "seed {seed} {version:?}: {pieces:?}");
        assert!(release() < (7, 2), "seed {seed} {version:?}: {pieces:?}");
        let (kernel, engine) = both(&mut host, version, 0x8000_0000 | seed as u32, &without);
        assert_eq!(kernel, engine, "seed {seed} {version:?}: {without:?}");
        known += 1;
    }
    println!("{SETS} sets, {delivered} datagrams, {known} known differences");
    assert!(delivered > SETS as usize / 3);
}

// Rules: F31
#[test]
fn the_kernel_reports_the_same_errors() {
    let mut host = match Host::with_ipv6() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    let ip = || Packet::new().ipv6(|ip| ip.source(Host::PEER_IPV6).destination(Host::ADDRESS_IPV6));
    let fragment = |packet: Packet, offset: u16, more: bool, next: u8, len: usize| {
        let packet = packet.fragment(|f| f.id(7).offset(offset).more(more).next_header(next));
        packet.payload(&vec![0; len]).build()
    };
    let frames = [
        // Fragments that are misaligned, are oversized, have incomplete headers, or have two fragment headers.
        fragment(ip(), 1, true, 17, 21),
        fragment(ip(), 65_528 / 8, false, 17, 16),
        fragment(ip().destination_options(|o| o), 65_528 / 8, false, 17, 16),
        fragment(ip(), 0, true, 6, 16),
        fragment(ip().fragment(|f| f), 0, true, 17, 16),
    ];
    for frame in frames {
        host.sent();
        host.datagrams_at(
            address(Version::V6),
            PORT,
            vec![(VirtioHeader::default(), frame.clone())],
        )
        .expect("the TUN device accepts the packet");
        let mut rig = Rig::on(ReassemblyRules::new(ReassemblyMode::Coalesce), LinkType::Raw);
        rig.push(&frame);
        let engine: Vec<_> =
            rig.problems.iter().map(|(error, quote)| message(*error, quote)).collect();
        let kernel: Vec<_> = host
            .sent()
            .iter()
            // ICMPv6 errors, without their checksums.
            .filter(|packet| packet[6] == 58 && packet[40] < 128)
            .map(|packet| [&packet[40..42], &packet[44..]].concat())
            .collect();
        assert_eq!(engine, kernel, "{frame:02x?}");
        assert_eq!(engine.len(), 1);
    }
}

/// Tests that the kernel reassembles a SYN in fragments of eight bytes and answers it. The answer is a reset, because
/// no program listens on the port.
// Rules: P29
#[test]
fn the_kernel_answers_a_synchronization_in_tiny_fragments() {
    let mut host = match Host::new() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    let whole = Packet::new().ipv4(|ip| ip.source(Host::PEER).destination(Host::ADDRESS));
    let whole = whole.tcp(|tcp| tcp.flags(0).syn().destination_port(9)).build();
    let pieces = whole[20..].chunks(8).enumerate().map(|(index, data)| {
        let is_last = (index + 1) * 8 >= whole.len() - 20;
        let packet = Packet::new().ipv4(|ip| {
            let ip = ip.source(Host::PEER).destination(Host::ADDRESS).id(3).df(false).protocol(6);
            ip.fragment_offset(index as u16).more_fragments(!is_last)
        });
        packet.payload(data).build()
    });
    let frames: Vec<Vec<u8>> = pieces.collect();
    assert!(frames.len() >= 3, "{}", frames.len());
    host.sent();
    let packets = frames.iter().map(|frame| (VirtioHeader::default(), frame.clone())).collect();
    host.datagrams_at(address(Version::V4), PORT, packets)
        .expect("the TUN device accepts the packets");
    let answers: Vec<_> = host.sent().into_iter().filter(|packet| packet[9] == 6).collect();
    assert_eq!(answers.len(), 1, "{answers:02x?}");
    assert_ne!(answers[0][33] & 4, 0, "a reset: {answers:02x?}");
    for (overlap, joined) in [(Overlap::Linux, 1), (Overlap::Drop, 0)] {
        let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
        rules.overlap = overlap;
        let mut rig = Rig::on(rules, LinkType::Raw);
        frames.iter().for_each(|frame| _ = rig.push(frame));
        let tcp = rig.take_whole();
        rig.finish();
        assert_eq!(tcp.len(), joined, "{overlap:?}");
        assert!(tcp.iter().all(|packet| packet[20..] == whole[20..]), "{overlap:?}");
    }
}

/// Encodes an ICMPv6 error with its type, code, pointer and quoted packet.
fn message(error: IcmpError, quote: &[u8]) -> Vec<u8> {
    let (kind, code) = error.type_and_code(true);
    let pointer = match error {
        IcmpError::ParameterProblem { pointer, .. } => pointer,
        IcmpError::TimeExceeded => 0,
    };
    [&[kind, code][..], &pointer.to_be_bytes(), quote].concat()
}

/// Returns the datagrams that a kernel socket reads, and those that it would read from the engine's output.
fn both(
    host: &mut Host,
    version: Version,
    id: u32,
    pieces: &[Piece],
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let frames: Vec<_> = pieces.iter().map(|piece| to_host(version, id, piece)).collect();
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = Overlap::Linux;
    let mut rig = Rig::on(rules, LinkType::Raw);
    frames.iter().for_each(|frame| _ = rig.push(frame));
    let whole = rig.take_whole();
    rig.finish();
    let engine = whole.iter().filter_map(|packet| payload(version, packet)).collect();
    let packets = frames.into_iter().map(|frame| (VirtioHeader::default(), frame)).collect();
    let kernel = host
        .datagrams_at(address(version), PORT, packets)
        .expect("the TUN device accepts the packets");
    (kernel, engine)
}

fn is_malformed(version: Version, piece: &Piece) -> bool {
    version == Version::V6 && piece.more && !piece.data.len().is_multiple_of(8)
}

fn address(version: Version) -> IpAddr {
    match version {
        Version::V4 => IpAddr::from(Host::ADDRESS),
        Version::V6 => IpAddr::from(Host::ADDRESS_IPV6),
    }
}

/// Returns a UDP datagram to the host's socket, after its IP header.
fn datagram(version: Version, payload: &[u8], without_checksum: bool) -> Vec<u8> {
    let without_checksum = without_checksum && version == Version::V4;
    let packet = match version {
        Version::V4 => Packet::new().ipv4(|ip| ip.source(Host::PEER).destination(Host::ADDRESS)),
        Version::V6 => {
            Packet::new().ipv6(|ip| ip.source(Host::PEER_IPV6).destination(Host::ADDRESS_IPV6))
        }
    };
    let packet = packet.udp(|udp| {
        let udp = udp.destination_port(PORT);
        if without_checksum { udp.checksum_zero() } else { udp }
    });
    packet.payload(payload).build().split_off(if version == Version::V4 { 20 } else { 40 })
}

fn to_host(version: Version, id: u32, piece: &Piece) -> Vec<u8> {
    let Piece { offset, more, ref data } = *piece;
    let units = (offset / 8) as u16;
    let packet = match version {
        Version::V4 => Packet::new().ipv4(|ip| {
            let ip = ip.source(Host::PEER).destination(Host::ADDRESS).id(id as u16);
            ip.df(false).protocol(17).fragment_offset(units).more_fragments(more)
        }),
        Version::V6 => Packet::new()
            .ipv6(|ip| ip.source(Host::PEER_IPV6).destination(Host::ADDRESS_IPV6))
            .fragment(|f| f.id(id).offset(units).more(more).next_header(17)),
    };
    packet.payload(data).build()
}

/// Returns the payload that a socket reads from a packet, computed literally. The UDP length may be shorter than the
/// packet, and the checksum must be correct.
fn payload(version: Version, packet: &[u8]) -> Option<Vec<u8>> {
    let (header, source, destination) = match version {
        Version::V4 => (20, 12..16, 16..20),
        Version::V6 => (40, 8..24, 24..40),
    };
    let udp = &packet[header..];
    let len = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    let udp = udp.get(..len).filter(|udp| udp.len() >= 8)?;
    let mut bytes = oracle::pseudo_header(&packet[source], &packet[destination], 17, len);
    bytes.extend(udp);
    let absent = version == Version::V4 && udp[6..8] == [0, 0];
    (absent || oracle::checksum(&bytes) == 0).then(|| udp[8..].to_vec())
}
