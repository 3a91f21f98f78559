//! Tests that a superframe gives the same packets whether it is segmented before or after encapsulation.

use std::num::NonZeroU16;

use grosso::{
    Frame, Meta, Profile,
    checksum::Checksum,
    meta::{Gso, GsoSize, IpLevels},
    segment::{Outgoing, Segments},
    tunnel::{
        Carrier, DontFragment, Endpoint, Header,
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_rig::engine::Engine;
use grosso_testkit::Packet;
use grosso_wire::{LinkType, Ports, UdpPayload};

use super::{
    formats::{V4, V6, all, gre, remote},
    putting::{Known, link_of, packets, partial, put, take},
};

/// Returns a superframe that the kit built.
pub(crate) fn superframe(packet: &Packet, size: u16) -> Known {
    let (bytes, start, offset) = packet.build_superframe();
    let checksum = partial(start, offset);
    Known { bytes, meta: Meta { checksum, gso: Gso::every(size), ..Meta::default() } }
}

/// Segments a superframe.
pub(crate) fn cut(frame: &Known, link: LinkType, ports: &Ports, outgoing: Outgoing) -> Vec<Known> {
    let slices = [&frame.bytes[..]];
    let mut segments = Segments::new(&slices, &frame.meta, link, ports, outgoing)
        .unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let mut buffer = vec![0xa5; segments.packet_len_max()];
    let mut packets = Vec::new();
    while let Some(segment) = segments.write_next(&mut buffer).unwrap() {
        packets.push(Known { bytes: buffer[..segment.len()].to_vec(), meta: segment.meta });
    }
    packets
}

fn is_numbered(endpoint: &Endpoint) -> bool {
    matches!(endpoint.header, Header::Gre { sequence: true, .. })
}

/// Returns pairs of identical senders, one for each DF setting.
fn encapsulators(endpoint: &Endpoint) -> Vec<[Encapsulator; 2]> {
    let both = |dont_fragment| {
        let mut endpoint = endpoint.clone();
        endpoint.dont_fragment = dont_fragment;
        [(); 2].map(|()| Encapsulator::new(endpoint.clone(), 0x1234_5678_9abc).unwrap())
    };
    [DontFragment::Set, DontFragment::Unset, DontFragment::Inherit].map(both).into()
}

/// Tests rules S40, S43 to S45, C40: every segment has its own tunnel headers, with incrementing identifications, as if
/// it had been encapsulated separately.
#[test]
fn s40_s44_s45_a_superframe_is_cut_into_what_its_packets_would_be() {
    let mut cuts = 0;
    for endpoint in all().into_iter().chain(remote()) {
        if is_numbered(&endpoint) {
            continue;
        }
        let (link, ports) = (link_of(&endpoint), endpoint.ports());
        for [mut at_once, mut one_by_one] in encapsulators(&endpoint) {
            for (_, packet) in packets(&endpoint) {
                for (len, size) in [(3000, 1000), (2999, 1001), (1402, 1400), (64_000, 1333)] {
                    let whole = superframe(&packet.clone().payload_len(len), size);
                    let put_in = put(&mut at_once, &whole, link).unwrap();
                    let got = cut(&put_in, LinkType::Raw, &ports, Outgoing::default());
                    let segments = cut(&whole, link, &ports, Outgoing::PARTIAL_CHECKSUMS);
                    assert_eq!(got.len(), segments.len());
                    for (got, segment) in got.iter().zip(&segments) {
                        let expected = put(&mut one_by_one, segment, link).unwrap();
                        assert_eq!(got.bytes, expected.completed(), "{endpoint:?}");
                        assert_eq!(got.meta.checksum, Checksum::None);
                        cuts += 1;
                    }
                }
            }
            assert_eq!(at_once.stats().packets, one_by_one.stats().packets);
            assert_eq!(at_once.stats().superframes, 16);
        }
    }
    assert!(cuts > 20_000, "{cuts}");
}

/// Tests two levels of tunnels: the outer tunnel carries the packets of the inner one.
#[test]
fn a_superframe_in_two_tunnels_is_cut_into_what_its_packets_would_be() {
    let mut pairs = 0;
    let formats: Vec<_> = all().into_iter().chain(remote()).filter(|e| !is_numbered(e)).collect();
    for inside in &formats {
        for outside in &formats {
            let Some(ports) = union(inside.ports(), outside.ports()) else { continue };
            pairs += 1;
            let new = |endpoint: &Endpoint| Encapsulator::new(endpoint.clone(), 99).unwrap();
            let mut twice = [[new(inside), new(outside)], [new(inside), new(outside)]];
            let mut put_twice = |way: usize, frame: &Known| {
                let [first, second] = &mut twice[way];
                let once = put(first, frame, link_of(inside)).unwrap();
                put(second, &behind_link(once, outside), link_of(outside)).unwrap()
            };
            for (_, packet) in packets(inside) {
                let whole = superframe(&packet.payload_len(2500), 1001);
                let put_in = put_twice(0, &whole);
                let got = cut(&put_in, LinkType::Raw, &ports, Outgoing::default());
                let segments = cut(&whole, link_of(inside), &ports, Outgoing::PARTIAL_CHECKSUMS);
                assert_eq!(got.len(), 3);
                for (got, segment) in got.iter().zip(&segments) {
                    let expected = put_twice(1, segment).completed();
                    assert_eq!(got.bytes, expected, "{inside:?} in {outside:?}");
                }
            }
        }
    }
    assert!(pairs > 1500, "{pairs}");
}

/// Returns the frame as the outer tunnel carries it: with an Ethernet header if the tunnel carries Ethernet frames.
pub(crate) fn behind_link(mut frame: Known, endpoint: &Endpoint) -> Known {
    if !endpoint.carries_ethernet() {
        return frame;
    }
    let ethertype = if frame.bytes[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    frame.bytes = [&[2; 12][..], &ethertype, &frame.bytes].concat();
    if let Checksum::Partial { start, .. } = &mut frame.meta.checksum {
        *start += 14;
    }
    frame
}

/// Returns the ports of both sets; `None` if one port has different meanings in the two.
pub(crate) fn union(one: Ports, other: Ports) -> Option<Ports> {
    let contradicts = |(payload, port): (UdpPayload, u16)| match payload {
        UdpPayload::Header(kind) => ![0, port].contains(&other.port(kind)),
        UdpPayload::Protocol(_) => other.fou().is_some_and(|fou| Some(fou) != one.fou()),
    };
    if one.iter().any(contradicts) {
        return None;
    }
    Some(one.iter().fold(other, |ports, (payload, port)| match payload {
        UdpPayload::Header(kind) => ports.with(kind, port),
        UdpPayload::Protocol(protocol) => ports.with_fou(port, protocol),
    }))
}

/// Tests packets from one endpoint that are merged in transit, before their tunnel headers are removed.
#[test]
fn packets_joined_in_the_tunnel_come_out_as_they_were_put_in() {
    let (mut joined, mut came) = (0, 0);
    for endpoint in all().into_iter().chain(remote()) {
        if is_numbered(&endpoint) {
            continue;
        }
        let (link, ports) = (link_of(&endpoint), endpoint.ports());
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 3).unwrap();
        for (_, packet) in packets(&endpoint) {
            let whole = superframe(&packet.payload_len(8000), 1000);
            let sent = put(&mut encapsulator, &whole, link).unwrap();
            let mut engine = Engine::with(Profile::linux(), LinkType::Raw, ports, 1);
            for packet in cut(&sent, LinkType::Raw, &ports, Outgoing::default()) {
                engine.push_frame(Frame::new(packet.bytes), 0);
            }
            engine.finish();
            let mut got = Vec::new();
            for out in engine.delivered {
                joined += usize::from(out.joined);
                let taken = take(&endpoint, &Known { bytes: out.bytes, meta: out.meta });
                match taken.meta.gso {
                    Some(_) => got.extend(cut(&taken, link, &ports, Outgoing::default())),
                    None => got.push(taken),
                }
            }
            let expected = cut(&whole, link, &ports, Outgoing::default());
            let bytes =
                |frames: &[Known]| -> Vec<_> { frames.iter().map(Known::completed).collect() };
            assert_eq!(bytes(&got), bytes(&expected), "{endpoint:?}");
            came += 1;
        }
    }
    assert!(joined * 10 > came * 6, "{joined} of {came}");
}

/// Tests that packets arrive unchanged through every pair of tunnels, with or without remote checksum offload in each.
#[test]
fn packets_joined_in_two_tunnels_come_out_as_they_were_put_in() {
    let (mut joined, mut came) = (0, 0);
    let formats: Vec<_> = all().into_iter().chain(remote()).filter(|e| !is_numbered(e)).collect();
    let new = |endpoint: &Endpoint| Encapsulator::new(endpoint.clone(), 3).unwrap();
    for inside in &formats {
        for outside in &formats {
            let Some(ports) = union(inside.ports(), outside.ports()) else { continue };
            let mut profile = Profile::linux();
            profile.tunnels_max = 2;
            let mut engine = Engine::with(profile, LinkType::Raw, ports, 1);
            let (mut first, mut second) = (new(inside), new(outside));
            let mut expected = Vec::new();
            for (_, packet) in packets(inside) {
                let whole = superframe(&packet.payload_len(2500), 1000);
                expected.extend(cut(&whole, link_of(inside), &ports, Outgoing::default()));
                let once = put(&mut first, &whole, link_of(inside)).unwrap();
                let framed = behind_link(once, outside);
                let sent = put(&mut second, &framed, link_of(outside)).unwrap();
                for packet in cut(&sent, LinkType::Raw, &ports, Outgoing::default()) {
                    engine.push_frame(Frame::new(packet.bytes), 0);
                }
                engine.finish();
            }
            let mut got = Vec::new();
            for out in engine.delivered {
                joined += usize::from(out.joined);
                let framed = take(outside, &Known { bytes: out.bytes, meta: out.meta });
                let taken = take(inside, &without_link(framed, outside));
                match taken.meta.gso {
                    Some(_) => {
                        got.extend(cut(&taken, link_of(inside), &ports, Outgoing::default()))
                    }
                    None => got.push(taken),
                }
            }
            let bytes =
                |frames: &[Known]| -> Vec<_> { frames.iter().map(Known::completed).collect() };
            assert!(bytes(&got) == bytes(&expected), "{inside:?} in {outside:?}");
            came += 4;
        }
    }
    assert!(joined * 10 > came * 5, "{joined} of {came}");
}

/// Reverses [`behind_link`].
fn without_link(mut frame: Known, endpoint: &Endpoint) -> Known {
    if endpoint.carries_ethernet() {
        frame.bytes.drain(..14);
        if let Checksum::Partial { start, .. } = &mut frame.meta.checksum {
            *start -= 14;
        }
    }
    frame
}

/// Tests that each packet of a tunnel with sequence numbers has its own number.
#[test]
fn s43_a_numbered_superframe_is_cut_before() {
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, gre(None, false, true, false), Carrier::Ip);
    let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
    let packet = Packet::new().ipv4(|ip| ip).tcp(|t| t).payload_len(3000);
    let whole = superframe(&packet, 1000);
    let refusal = put(&mut encapsulator, &whole, LinkType::Raw).unwrap_err();
    assert_eq!(refusal, Refusal::SuperframeNumbered);
    let numbers: Vec<_> = cut(&whole, LinkType::Raw, &Ports::NONE, Outgoing::default())
        .iter()
        .map(|packet| put(&mut encapsulator, packet, LinkType::Raw).unwrap().bytes[24..28].to_vec())
        .collect();
    assert_eq!(numbers, [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2]]);
    assert_eq!(encapsulator.stats().refused(Refusal::SuperframeNumbered), 1);
}

/// Tests a datagram that is to be split into IP fragments. It must be split before encapsulation, because each fragment
/// needs a tunnel header.
#[test]
fn superframes_of_fragments_are_cut_before() {
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
    let packet = Packet::new().ipv4(|ip| ip).udp(|u| u).payload_len(3000);
    let mut whole = superframe(&packet, 1000);
    let cut = GsoSize::Fragments(NonZeroU16::new(1000).unwrap());
    whole.meta.gso = whole.meta.gso.map(|gso| Gso { size: cut, ..gso });
    assert_eq!(put(&mut encapsulator, &whole, LinkType::Raw), Err(Refusal::Superframe));
}

/// Tests length fields at their limits: a UDP length cannot exceed 64 KB, but an IP length may be zero.
#[test]
fn t13_b01_b57_no_length_wraps() {
    let packet = |len| Packet::new().ipv4(|ip| ip).tcp(|t| t).payload_len(len);
    for ([local, remote], ip) in [(V4, 20), (V6, 0)] {
        let direct = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
        let gue = super::formats::udp(6080);
        let in_udp = Endpoint::new(local, remote, Header::Ip, Carrier::Gue(gue));
        // The outer headers are IP, UDP and GUE; the inner headers are 40 bytes.
        for (endpoint, around) in [(direct, ip), (in_udp, ip + 12)] {
            let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
            let most = 65_535 - 40 - around;
            let superframe = |len| superframe(&packet(len), 1400);
            let fits = put(&mut encapsulator, &superframe(most), LinkType::Raw).unwrap();
            assert_ne!(length(&fits.bytes), 0);
            let longer = superframe(most + 1);
            let put_in = put(&mut encapsulator, &longer, LinkType::Raw);
            if endpoint.udp().is_some() {
                assert_eq!(put_in, Err(Refusal::TooLong));
            } else {
                assert_eq!(length(&put_in.unwrap().bytes), 0);
            }
            if around > 0 {
                let single = Known::new(packet(most + 1).build());
                let refusal = put(&mut encapsulator, &single, LinkType::Raw).unwrap_err();
                assert_eq!(refusal, Refusal::TooLong);
            }
        }
    }
}

fn length(packet: &[u8]) -> u16 {
    let at = if packet[0] >> 4 == 4 { 2 } else { 4 };
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

/// Tests that a superframe beyond 64 KB directly in IP is segmented into the same packets as any other.
#[test]
fn big_superframes_go_where_lengths_may_be_open() {
    for ([local, remote], header) in
        [(V4, Header::Ip), (V6, gre(Some(1), false, false, false)), (V6, Header::Ip)]
    {
        let endpoint = Endpoint::new(local, remote, header, Carrier::Ip);
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
        let inner = Packet::new().ipv6(|ip| ip.payload_len_raw(0)).tcp(|t| t);
        let whole = superframe(&inner.payload_len(100_000), 1400);
        let sent = put(&mut encapsulator, &whole, LinkType::Raw).unwrap();
        let got = cut(&sent, LinkType::Raw, &endpoint.ports(), Outgoing::default());
        assert_eq!(got.len(), 72);
        for (got, expected) in
            got.iter().zip(cut(&whole, LinkType::Raw, &Ports::NONE, Outgoing::default()))
        {
            let expected = put(&mut encapsulator, &expected, LinkType::Raw).unwrap();
            assert_eq!(got.bytes, expected.completed());
        }
    }
}

/// Tests that the IP levels with a fixed identification move inward by one when encapsulation adds a level.
#[test]
fn b50_levels_of_identification_move_down() {
    let packet = Packet::new().ipv4(|ip| ip).tcp(|t| t).payload_len(3000);
    for ([local, remote], dont_fragment, own) in
        [(V4, DontFragment::Set, 1), (V4, DontFragment::Unset, 0), (V6, DontFragment::Set, 0)]
    {
        let mut endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
        endpoint.dont_fragment = dont_fragment;
        let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
        for fixed in 0..4 {
            let mut whole = superframe(&packet, 1000);
            let fixed_ids = IpLevels::from_bits(fixed);
            whole.meta.gso = whole.meta.gso.map(|gso| Gso { fixed_ids, ..gso });
            let sent = put(&mut encapsulator, &whole, LinkType::Raw).unwrap();
            assert_eq!(sent.meta.gso.unwrap().fixed_ids.bits(), fixed << 1 | own);
        }
    }
}
