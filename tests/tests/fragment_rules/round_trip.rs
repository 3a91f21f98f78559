//! Tests round trips: fragments are reassembled into the original packet, and a reassembled packet is split into the
//! original fragments.

use grosso::{
    Meta,
    checksum::Checksum,
    reassemble::{ReassemblyMode, ReassemblyRules},
    segment::{FragmentOptions, Fragments},
};
use grosso_rig::fragments::Rig;
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
    random::Random,
    stack::{Place, Stack, Transport},
};
use grosso_wire::LinkType;

/// Returns the fragments of a packet; empty if it cannot be fragmented.
fn fragments(frame: &[u8], meta: &Meta, options: &FragmentOptions) -> Vec<Vec<u8>> {
    let slices = [frame];
    let Ok(mut plan) = Fragments::of_packet(&slices, meta, LinkType::Ethernet, options) else {
        return Vec::new();
    };
    let mut buffer = vec![0; plan.packet_len_max()];
    let mut fragments = Vec::new();
    while let Some(fragment) = plan.write_next(&mut buffer).expect("a buffer that is long enough") {
        fragments.push(buffer[..fragment.len()].to_vec());
    }
    fragments
}

/// Tests packets with every kind of header: their fragments, in any order, are reassembled to the original packet.
#[test]
fn joining_the_fragments_of_a_packet_gives_the_packet() {
    let mut joined = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let stack = Stack::random(&mut random, Link::Ethernet);
        let place = Place { ids: vec![7, 8, 9, 10, 11], ..Place::default() };
        let len = random.within(1500, 9000);
        let packet = stack.packet(&place).payload_len(len).build();
        let mut options = FragmentOptions::new(random.within(1280, 1500) as u16, seed as u32);
        options.ignore_dont_fragment = true;
        let mut pieces = fragments(&packet, &Meta::default(), &options);
        if pieces.len() < 2 {
            continue;
        }
        joined += 1;
        random.shuffle(&mut pieces);
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            let mut rig = Rig::new(ReassemblyRules::new(mode));
            pieces.iter().for_each(|piece| _ = rig.push(piece));
            assert_eq!(rig.take_whole(), std::slice::from_ref(&packet), "seed {seed} {stack:?}");
            rig.finish();
        }
    }
    assert!(joined > 1500, "only {joined} had fragments");
}

/// Tests the smallest MTU of IPv4 and values near it, with every length of options, so that fragments are as short and
/// as numerous as possible. Every packet that can be fragmented is reassembled.
#[test]
fn whatever_mtu_fragments_were_made_for_they_are_joined() {
    let (mut joined, mut refused) = (0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let ip = Packet::new().ethernet(|e| e);
        let is_v6 = random.one_in(3);
        let packet = if is_v6 {
            let packet = ip.ipv6(|ip| ip);
            let packet = if random.one_in(2) { packet.destination_options(|d| d) } else { packet };
            // In one case out of four, the next header is an authentication header, which the engine does not parse.
            if random.one_in(4) {
                packet.destination_options(|d| d.next_header(51))
            } else {
                packet
            }
        } else {
            let options = vec![1; 4 * random.within(0, 10)];
            ip.ipv4(|ip| ip.df(false).id(seed as u16).options(&options))
        };
        let packet = match random.below(3) {
            0 => packet.tcp(|t| t.options(&[1; 12])),
            1 => packet.udp(|u| u),
            _ => packet.payload(&[17, 4, 0, 0, 0, 0, 0, 1]),
        };
        let headers = packet.header_len() - 14;
        let most = if random.one_in(8) { 65_515 } else { 3000 };
        let len = random.within(100, most - headers);
        let packet = packet.payload_len(len).build();
        let mtu = if random.one_in(2) { 68 } else { random.within(68, 200) };
        let options = FragmentOptions::new(mtu as u16, seed as u32);
        let mut pieces = fragments(&packet, &Meta::default(), &options);
        if pieces.len() < 2 {
            refused += 1;
            continue;
        }
        joined += 1;
        if random.one_in(2) {
            pieces.reverse();
        }
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            let mut rules = ReassemblyRules::new(mode);
            // The number of fragments is limited only by memory: every 8 bytes have their own buffer.
            (rules.limits.memory_bytes, rules.limits.source_bytes) = (16 << 20, 16 << 20);
            let mut rig = Rig::new(rules);
            pieces.iter().for_each(|piece| _ = rig.push(piece));
            let context = format!("seed {seed}, MTU {mtu}, {} fragments", pieces.len());
            assert_eq!(rig.take_whole(), std::slice::from_ref(&packet), "{context}");
            rig.finish();
        }
    }
    assert!(joined > 300 && refused > 10, "{joined} joined, {refused} not cut");
}

/// Tests that knowing the identification and the largest fragment's length suffices to recreate the same fragments
/// (P38).
#[test]
fn a_forwarded_datagram_is_cut_again_as_it_came() {
    let mut cut = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let stack = Stack::random(&mut random, Link::Ethernet);
        let packet = stack.packet(&Place::default()).payload_len(5000).build();
        let mut options =
            FragmentOptions::new(random.within(1280, 1500) as u16, random.bits() as u32);
        options.ignore_dont_fragment = true;
        let pieces = fragments(&packet, &Meta::default(), &options);
        if pieces.len() < 2 {
            continue;
        }
        cut += 1;
        let mut rig = Rig::new(ReassemblyRules::new(ReassemblyMode::KeepGeometry));
        pieces.iter().for_each(|piece| _ = rig.push(piece));
        let whole = rig.whole.pop().expect("a datagram");
        let meta = Meta { fragmented: whole.fragmented, ..whole.meta };
        let again = FragmentOptions::new(9000, 0);
        assert_eq!(fragments(&whole.bytes, &meta, &again), pieces, "seed {seed} {stack:?}");
    }
    assert!(cut > 200, "only {cut} had fragments");
}

/// Tests IPv4 with options, and IPv6 with extension headers in every order, before or after the fragment header.
#[test]
fn options_and_extension_headers_in_every_order_come_back() {
    let mut packets = vec![];
    for options in [&[0x94, 4, 0, 0][..], &[7, 7, 4, 0, 0, 0, 0, 1], &[1; 40]] {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.options(options).df(false).id(9));
        packets.push(packet.udp(|u| u).payload_len(4000).build());
    }
    // Up to three extension headers, each kind any number of times.
    for code in 0..4_usize.pow(3) {
        let mut packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip);
        for place in 0..3 {
            packet = match code / 4_usize.pow(place) % 4 {
                1 => packet.hop_by_hop(|h| h.data(&[1, 12, 0])),
                2 => packet.destination_options(|o| o),
                3 => packet.routing(|r| r),
                _ => packet,
            };
        }
        packets.push(packet.tcp(|t| t).payload_len(4000).build());
    }
    let mut joined = 0;
    for packet in packets {
        let mut pieces = fragments(&packet, &Meta::default(), &FragmentOptions::new(1280, 7));
        joined += usize::from(pieces.len() > 1);
        pieces.reverse();
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            let mut rig = Rig::new(ReassemblyRules::new(mode));
            pieces.iter().for_each(|piece| _ = rig.push(piece));
            let expected = if pieces.is_empty() { vec![] } else { vec![packet.clone()] };
            assert_eq!(rig.take_whole(), expected, "{mode:?} {:02x?}", &packet[..80]);
            rig.finish();
        }
    }
    // A packet is malformed unless its hop-by-hop options come first. All other packets are fragmented.
    assert!(joined > 40, "only {joined} had fragments");
}

/// Tests that partial checksums are completed before fragmentation, that the sums of fragments are added up, and that a
/// datagram counts as verified if a device has verified each of its fragments.
#[test]
fn checksum_states_survive_both_ways() {
    let mut joined = 0;
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let stack = Stack::random(&mut random, Link::Ethernet);
        let is_known =
            matches!(stack.transport, Transport::Tcp | Transport::TcpTimestamps | Transport::Udp);
        if !stack.tunnels.is_empty() || !is_known {
            continue;
        }
        let packet = stack.packet(&Place::default()).payload_len(random.within(1500, 5000));
        let (seeded, start, offset) = packet.clone().build_superframe();
        let whole = packet.build();
        let partial = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let mut options = FragmentOptions::new(random.within(1280, 1500) as u16, seed as u32);
        options.ignore_dont_fragment = true;
        let meta = Meta { checksum: partial, ..Meta::default() };
        let mut pieces = fragments(&seeded, &meta, &options);
        if pieces.len() < 2 || whole[12..14] != [8, 0] && whole[12..14] != [0x86, 0xdd] {
            continue;
        }
        joined += 1;
        random.shuffle(&mut pieces);
        let sum = |frame: &[u8]| Checksum::Complete { sum: oracle::sum(&frame[14..]) };
        let verified = Checksum::Unnecessary { levels: 0 };
        for (told, expected) in [
            (None, Checksum::None),
            (Some(verified), verified),
            (Some(Checksum::Complete { sum: 0 }), sum(&whole)),
        ] {
            let mut rig = Rig::new(ReassemblyRules::new(
                *random.choose(&[ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry]),
            ));
            for piece in &pieces {
                let checksum = match told {
                    Some(Checksum::Complete { .. }) => sum(piece),
                    told => told.unwrap_or_default(),
                };
                rig.push_frame(piece, Meta { checksum, ..Meta::default() });
            }
            let joined = rig.whole.pop().expect("a datagram");
            assert_eq!(
                (joined.bytes, joined.meta.checksum),
                (whole.clone(), expected),
                "seed {seed} {stack:?}"
            );
            rig.finish();
        }
    }
    assert!(joined > 40, "only {joined} had fragments");
}
