//! Runs the cases of the kernel's own tests for tunnels and BIG TCP: `linux-offloads` section 9.8.

use std::net::IpAddr;

use grosso::{
    Frame, Meta, Profile,
    checksum::Checksum,
    features::{Device, Features, Work},
    segment::Outgoing,
    tunnel::{
        Carrier, Dscp, Endpoint, Header, TimeToLive,
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_rig::engine::Engine;
use grosso_testkit::{Packet, random::Random};
use grosso_wire::{LinkType, Ports, dissect};

use super::{
    formats::{V4, V6, VXLAN, geneve, gre, udp, without_checksum},
    putting::{Known, link_of, put, take},
    superframes::{behind_link, cut, superframe, union},
};

fn end([local, remote]: [IpAddr; 2], header: Header, carrier: Carrier) -> Endpoint {
    Endpoint::new(local, remote, header, carrier)
}

fn encapsulator(endpoint: &Endpoint) -> Encapsulator {
    Encapsulator::new(endpoint.clone(), 7).unwrap()
}

/// Returns a packet of a TCP connection over each IP version, as it appears inside this tunnel.
fn connections(endpoint: &Endpoint) -> [Packet; 2] {
    let start = || match link_of(endpoint) {
        LinkType::Ethernet => Packet::new().ethernet(|e| e),
        _ => Packet::new(),
    };
    [start().ipv4(|ip| ip), start().ipv6(|ip| ip)].map(|packet| packet.tcp(|t| t.timestamps(1, 2)))
}

fn bytes(frames: &[Known]) -> Vec<Vec<u8>> {
    frames.iter().map(Known::completed).collect()
}

/// Tests the cases of tso.py: superframes that the device can segment after a tunnel header are sent unsplit. If the
/// device only repeats headers, all packets except the last one are sent as one superframe. The packets on the wire are
/// the same in each case.
#[test]
fn k130_large_sends_leave_whole_where_the_device_cuts_tunnels() {
    let key = || gre(None, false, false, false);
    let repeats = Features::TCP_SEGMENTATION
        | Features::TCP6_SEGMENTATION
        | Features::TCP_MANGLEID_SEGMENTATION
        | Features::CHECKSUM_GENERIC
        | Features::GSO_PARTIAL;
    for endpoint in [
        end(V4, VXLAN, Carrier::Udp(udp(4789))),
        end(V4, VXLAN, Carrier::Udp(without_checksum(4789))),
        end(V4, key(), Carrier::Ip),
        end(V6, key(), Carrier::Ip),
    ] {
        let ports = endpoint.ports();
        for packet in connections(&endpoint) {
            let whole = superframe(&packet.payload_len(60_000), 1400);
            let sent = put(&mut encapsulator(&endpoint), &whole, link_of(&endpoint)).unwrap();
            let stack = dissect(&sent.bytes, LinkType::Raw, &ports);
            let work = |features| {
                Device::new(features).work(&sent.bytes, sent.bytes.len(), &stack, &sent.meta)
            };
            assert_eq!(work(Features::ALL), Work::Nothing);
            assert_eq!(work(repeats), Work::Segment(Outgoing::GSO_PARTIAL));
            assert!(matches!(work(Features::NONE), Work::Segment(_)));
            let cut = |frame: &Known, outgoing| cut(frame, LinkType::Raw, &ports, outgoing);
            let large = cut(&sent, Outgoing::GSO_PARTIAL);
            let [first, last] = &large[..] else { panic!("{} frames", large.len()) };
            assert!(first.bytes.len() * 10 > sent.bytes.len() * 9, "{endpoint:?}");
            let mut by_device = bytes(&cut(first, Outgoing::default()));
            by_device.push(last.completed());
            assert_eq!(by_device, bytes(&cut(&sent, Outgoing::default())), "{endpoint:?}");
        }
    }
}

/// Tests the case of gre_gso.sh: a file is sent through GRE over IPv6 in large sends, which are segmented by the device
/// or in software.
#[test]
fn k131_a_stream_through_ip6gre_is_intact_whole_or_cut() {
    let endpoint = end(V6, gre(None, false, false, false), Carrier::Ip);
    let ports = endpoint.ports();
    let file = Random::new(131).bytes(200_000);
    for packet in [Packet::new().ipv4(|ip| ip), Packet::new().ipv6(|ip| ip)] {
        for is_cut in [false, true] {
            let mut encapsulator = encapsulator(&endpoint);
            let mut receiver = Engine::with(Profile::linux(), LinkType::Raw, ports, 1);
            let mut frames = 0;
            for (index, part) in file.chunks(50_000).enumerate() {
                let packet = packet.clone().tcp(|t| t.sequence(index as u32 * 50_000));
                let whole = superframe(&packet.payload(part), 1400);
                let sent = put(&mut encapsulator, &whole, LinkType::Raw).unwrap();
                let sent = match is_cut {
                    true => cut(&sent, LinkType::Raw, &ports, Outgoing::default()),
                    false => vec![sent],
                };
                for Known { bytes, meta } in sent {
                    frames += 1;
                    receiver.push_frame(Frame { buffer: bytes, meta }, 0);
                }
                receiver.poll_end(0);
            }
            assert_eq!(frames, if is_cut { 4 * 36 } else { 4 });
            assert_eq!(receiver.delivered.len(), 4, "large sends are received as large frames");
            let mut received = Vec::new();
            for out in receiver.delivered {
                let taken = take(&endpoint, &Known { bytes: out.bytes, meta: out.meta });
                let stack = dissect(&taken.bytes, LinkType::Raw, &Ports::NONE);
                received.extend_from_slice(&taken.bytes[stack.header_len()..]);
            }
            assert!(received == file, "cut: {is_cut}");
        }
    }
}

/// Tests the cases of big_tcp.sh. Segmentation offload is on or off at the sender and the router, and merging is on or
/// off at the router and the receiver. The stream arrives intact in each case, with frames longer than 64 KB if the
/// receiver merges or if no device segments.
#[test]
fn k132_big_tcp_through_a_router_is_intact_and_big_where_nothing_cuts() {
    let (on, off) = (true, false);
    for [sender_sends, router_joins, router_sends, receiver_joins] in [
        [on, on, on, on],
        [on, off, on, off],
        [off, on, on, on],
        [on, on, off, on],
        [off, on, off, on],
        [off, off, off, off],
    ] {
        for start in [Packet::new().ipv4(|ip| ip), Packet::new().ipv6(|ip| ip)] {
            let whole = superframe(&start.tcp(|t| t).payload_len(150_000), 1400);
            let packets = bytes(&cut_all(std::slice::from_ref(&whole)));
            let sent = if sender_sends { vec![whole] } else { cut_all(&[whole]) };
            let routed = if router_joins { join(sent) } else { sent };
            let routed = if router_sends { routed } else { cut_all(&routed) };
            let received = if receiver_joins { join(routed) } else { routed };
            let longest = received.iter().map(|frame| frame.bytes.len()).max();
            assert_eq!(longest > Some(65_535), receiver_joins || router_sends);
            assert!(bytes(&cut_all(&received)) == packets);
        }
    }
}

/// Segments the frames that a device must not send unsegmented.
fn cut_all(frames: &[Known]) -> Vec<Known> {
    let cut_one = |frame: &Known| match frame.meta.gso {
        Some(_) => cut(frame, LinkType::Raw, &Ports::NONE, Outgoing::default()),
        None => vec![frame.clone()],
    };
    frames.iter().flat_map(cut_one).collect()
}

/// Merges frames as a receiver with superframes of up to 185 KB does.
fn join(frames: Vec<Known>) -> Vec<Known> {
    let mut profile = Profile::linux();
    profile.limits.size_bytes = 185_000;
    profile.limits.tcp_segments = 1000;
    let mut engine = Engine::with(profile, LinkType::Raw, Ports::NONE, 1);
    for Known { bytes, meta } in frames {
        engine.push_frame(Frame { buffer: bytes, meta }, 0);
    }
    engine.finish();
    engine.delivered.into_iter().map(|out| Known { bytes: out.bytes, meta: out.meta }).collect()
}

/// Tests the cases of big_tcp_tunnels. The UDP length field cannot exceed 64 KB (B1), so a longer superframe is refused
/// for this reason, and its packets are encapsulated one by one. The stream arrives intact, and the peer merges the
/// packets again, up to the limit of the length fields.
#[test]
fn k133_big_superframes_go_through_udp_tunnels_as_their_packets() {
    for header in [VXLAN, geneve(false)] {
        let port = if header == VXLAN { 4789 } else { 6081 };
        for ends in [V4, V6] {
            for udp in [udp(port), without_checksum(port)] {
                let endpoint = end(ends, header.clone(), Carrier::Udp(udp));
                for packet in connections(&endpoint) {
                    goes_through(&endpoint, &superframe(&packet.payload_len(150_000), 1400));
                }
            }
        }
    }
}

fn goes_through(endpoint: &Endpoint, whole: &Known) {
    let (link, ports) = (link_of(endpoint), endpoint.ports());
    let mut encapsulator = encapsulator(endpoint);
    assert_eq!(put(&mut encapsulator, whole, link), Err(Refusal::TooLong));
    let mut receiver = Engine::with(Profile::linux(), LinkType::Raw, ports, 1);
    for packet in cut(whole, link, &ports, Outgoing::PARTIAL_CHECKSUMS) {
        let sent = put(&mut encapsulator, &packet, link).unwrap();
        receiver.push(&sent.completed());
    }
    receiver.finish();
    assert_eq!(
        receiver.delivered.len(),
        3,
        "108 packets in the fewest frames that the lengths allow"
    );
    let mut received = Vec::new();
    for out in receiver.delivered {
        let taken = take(endpoint, &Known { bytes: out.bytes, meta: out.meta });
        received.extend(cut(&taken, link, &ports, Outgoing::default()));
    }
    assert!(bytes(&received) == bytes(&cut(whole, link, &ports, Outgoing::default())));
}

/// Tests the cases of double_udp_encap.sh: one large send becomes four packets on the wire, and a receiver that accepts
/// two tunnels merges them into one. Linux does so only with a hint from the sender, and not if the outer checksum is
/// absent. Grosso needs no hint, because it verifies every checksum.
#[test]
fn k134_k135_packets_in_two_tunnels_are_joined_where_two_are_allowed() {
    let outside =
        [udp(6081), without_checksum(6081)].map(|udp| end(V4, geneve(false), Carrier::Udp(udp)));
    let inside = [udp(4789), without_checksum(4789)].map(|udp| end(V4, VXLAN, Carrier::Udp(udp)));
    let inherited = end(V6, geneve(true), Carrier::Udp(udp(6081)));
    let mut seen = 0;
    for outside in &outside {
        for inside in inside.iter().chain([&inherited]) {
            let ports = union(inside.ports(), outside.ports()).unwrap();
            for packet in connections(inside) {
                // All lengths are equal, except for a shorter last one.
                for len in [4000, 3900] {
                    let whole = superframe(&packet.clone().payload_len(len), 1000);
                    let once = put(&mut encapsulator(inside), &whole, link_of(inside)).unwrap();
                    let framed = behind_link(once, outside);
                    let sent =
                        put(&mut encapsulator(outside), &framed, LinkType::Ethernet).unwrap();
                    let wire = cut(&sent, LinkType::Raw, &ports, Outgoing::default());
                    let joined =
                        |tunnels_max, verified| received(&wire, ports, tunnels_max, verified);
                    assert_eq!([wire.len(), joined(1, false), joined(2, false)], [4, 4, 1]);
                    assert_eq!(joined(2, true), 1);
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 2 * 3 * 2 * 2);
}

/// Returns the number of frames into which a receiver merges these packets. Its device has verified all checksums or
/// none.
fn received(wire: &[Known], ports: Ports, tunnels_max: u8, is_verified: bool) -> usize {
    let mut profile = Profile::linux();
    profile.tunnels_max = tunnels_max;
    let mut receiver = Engine::with(profile, LinkType::Raw, ports, 1);
    let checksum = if is_verified { Checksum::Unnecessary { levels: 3 } } else { Checksum::None };
    for packet in wire {
        let meta = Meta { checksum, ..Meta::default() };
        receiver.push_frame(Frame { buffer: packet.bytes.clone(), meta }, 0);
    }
    receiver.finish();
    receiver.delivered.len()
}

/// Tests the cases of l2_tos_ttl_inherit.sh: the fields that GRE, VXLAN and Geneve inherit from frames with and without
/// a VLAN tag.
#[test]
fn k136_class_and_ttl_are_inherited_or_fixed_around_tagged_frames_too() {
    let formats = [
        (gre(None, false, false, true), Carrier::Ip),
        (VXLAN, Carrier::Udp(udp(4789))),
        (geneve(false), Carrier::Udp(udp(6081))),
    ];
    let mut seen = 0;
    for (header, carrier) in formats {
        for ends in [V4, V6] {
            for (is_class_inherited, is_ttl_inherited) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let mut endpoint = end(ends, header.clone(), carrier.clone());
                endpoint.dscp = if is_class_inherited { Dscp::Inherit } else { Dscp::Fixed(0x11) };
                endpoint.ttl =
                    if is_ttl_inherited { TimeToLive::Inherit } else { TimeToLive::Fixed(99) };
                let expected = [
                    if is_class_inherited { 0x2a << 2 } else { 0x11 << 2 },
                    if is_ttl_inherited { 33 } else { 99 },
                ];
                for packet in frames_with_class_and_ttl() {
                    let frame = Known::new(packet.build());
                    let sent =
                        put(&mut encapsulator(&endpoint), &frame, LinkType::Ethernet).unwrap();
                    assert_eq!(class_and_ttl(&sent.bytes), expected, "{endpoint:?}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 3 * 2 * 4 * 6);
}

/// Returns frames of both IP versions with zero, one and two VLAN tags.
fn frames_with_class_and_ttl() -> Vec<Packet> {
    let tagged = |tags: usize| {
        (0..tags).fold(Packet::new().ethernet(|e| e), |packet, _| packet.vlan(|v| v.id(5)))
    };
    let both = |start: Packet| {
        let v4 = start.clone().ipv4(|ip| ip.tos(0x2a << 2).ttl(33));
        let v6 = start.ipv6(|ip| ip.traffic_class(0x2a << 2).hop_limit(33));
        [v4, v6].map(|packet| packet.icmp(|i| i).payload_len(20))
    };
    (0..3).flat_map(|tags| both(tagged(tags))).collect()
}

fn class_and_ttl(packet: &[u8]) -> [u8; 2] {
    match packet[0] >> 4 {
        4 => [packet[1], packet[8]],
        _ => [packet[0] << 4 | packet[1] >> 4, packet[7]],
    }
}
