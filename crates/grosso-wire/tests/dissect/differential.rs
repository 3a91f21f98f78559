//! Compares the dissector with etherparse, an independent implementation. Both must find the same headers at the same
//! offsets.

use etherparse::{
    Ipv6ExtensionSlice, LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice,
};
use grosso_testkit::Packet;
use grosso_testkit::random::Random;
use grosso_wire::{Kind, Layer, LinkType, Ports, Stack, Stop};

use crate::common::{check, configuration, frame, stacks};

/// Returns a layer with the offset of its header in the frame.
fn layer(kind: Kind, frame: &[u8], header: &[u8]) -> Layer {
    let offset = header.as_ptr() as usize - frame.as_ptr() as usize;
    Layer { kind, offset: offset as u16, len: header.len() as u16 }
}

/// Returns the headers that etherparse finds, or `None` if it also finds a header that only one of the two parsers
/// supports.
fn theirs(frame: &[u8], packet: &SlicedPacket<'_>) -> Option<Vec<Layer>> {
    let mut layers = Vec::new();
    if let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link {
        layers.push(layer(Kind::Ethernet, frame, &ethernet.slice()[..14]));
    }
    for tag in &packet.link_exts {
        let LinkExtSlice::Vlan(vlan) = tag else { return None };
        layers.push(layer(Kind::Vlan, frame, &vlan.slice()[..4]));
    }
    match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            layers.push(layer(Kind::Ipv4, frame, ip.header().slice()));
            if !ip.extensions().is_empty() {
                return None;
            }
        }
        Some(NetSlice::Ipv6(ip)) => {
            layers.push(layer(Kind::Ipv6, frame, ip.header().slice()));
            for extension in ip.extensions().clone() {
                layers.push(match &extension {
                    Ipv6ExtensionSlice::HopByHop(raw)
                    | Ipv6ExtensionSlice::Routing(raw)
                    | Ipv6ExtensionSlice::DestinationOptions(raw) => {
                        layer(Kind::Ipv6Extension, frame, raw.slice())
                    }
                    Ipv6ExtensionSlice::Fragment(fragment) => {
                        layer(Kind::Ipv6Fragment, frame, fragment.slice())
                    }
                    _ => return None,
                });
            }
        }
        _ => {}
    }
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => layers.push(layer(Kind::Tcp, frame, tcp.header_slice())),
        Some(TransportSlice::Udp(udp)) => layers.push(layer(Kind::Udp, frame, udp.header_slice())),
        Some(TransportSlice::Icmpv4(icmp)) => {
            layers.push(layer(Kind::Icmp, frame, &icmp.slice()[..8]));
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            layers.push(layer(Kind::Icmp, frame, &icmp.slice()[..8]));
        }
        _ => {}
    }
    Some(layers)
}

/// Returns the headers on which both parsers must agree: those that the dissector finds before the first one that
/// etherparse does not parse.
fn ours(stack: &Stack) -> Vec<Layer> {
    let transport = |kind| matches!(kind, Kind::Tcp | Kind::Udp | Kind::Icmp);
    let mut layers = Vec::new();
    let mut network = false;
    for layer in stack.layers() {
        let another_network = network && matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6);
        let is_parsed = transport(layer.kind)
            || matches!(
                layer.kind,
                Kind::Ethernet
                    | Kind::Vlan
                    | Kind::Ipv4
                    | Kind::Ipv6
                    | Kind::Ipv6Extension
                    | Kind::Ipv6Fragment
            );
        if another_network || !is_parsed {
            break;
        }
        network |= matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6);
        layers.push(*layer);
        if transport(layer.kind) {
            break;
        }
    }
    layers
}

/// Compares the two parsers on a frame. Returns whether the frame could be compared.
#[track_caller]
fn compare(frame: &[u8]) -> bool {
    let stack = check(frame, LinkType::Ethernet, &Ports::NONE);
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return false };
    let Some(mut theirs) = theirs(frame, &packet) else { return false };
    let ours = ours(&stack);
    if stack.stop == Stop::Fragment {
        // After a fragment header, etherparse continues with extension headers, but the payload there is the middle of
        // a datagram.
        theirs.truncate(ours.len());
    }
    assert_eq!(ours, theirs, "{stack}, {:?}: {frame:02x?}", stack.stop);
    true
}

/// Returns a random packet with headers that both parsers support.
fn packet(random: &mut Random) -> Packet {
    let mut packet = Packet::new().ethernet(|e| e);
    for _ in 0..random.bits() % 3 {
        packet = packet.vlan(|v| v.id(7));
    }
    if random.percent(50) {
        let options = vec![1; random.bits() as usize % 11 * 4];
        let fragment = random.percent(10);
        packet = packet.ipv4(|ip| ip.options(&options).more_fragments(fragment));
    } else {
        packet = packet.ipv6(|ip| ip);
        // The order of RFC 8200 section 4.1, which etherparse requires.
        if random.percent(40) {
            let data = vec![0; 6 + random.bits() as usize % 4 * 8];
            packet = packet.hop_by_hop(|h| h.data(&data));
        }
        if random.percent(40) {
            packet = packet.destination_options(|d| d);
        }
        if random.percent(40) {
            packet = packet.routing(|r| r);
        }
        if random.percent(30) {
            let more = random.percent(50);
            packet = packet.fragment(|f| f.more(more));
        }
    }
    packet = match random.bits() % 4 {
        0 => packet.udp(|u| u),
        1 => packet.icmp(|i| i),
        2 => packet.tcp(|t| t.timestamps(1, 2)),
        _ => packet.tcp(|t| t),
    };
    packet.payload_len(random.bits() as usize % 40)
}

#[test]
fn same_headers_in_right_frames() {
    let mut random = Random::new(1);
    let mut compared = 0;
    for _ in 0..5000 {
        compared += usize::from(compare(&packet(&mut random).build()));
    }
    assert!(compared > 4900, "{compared}");
}

#[test]
fn same_headers_in_wrong_frames() {
    let mut random = Random::new(2);
    let mut compared = 0;
    for _ in 0..50_000 {
        let mut frame = packet(&mut random).build();
        let headers = check(&frame, LinkType::Ethernet, &Ports::NONE).header_len();
        let place = random.bits() as usize % headers;
        frame[place] = random.bits() as u8;
        compared += usize::from(compare(&frame));
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn same_headers_in_frames_of_the_kit() {
    let mut compared = 0;
    for made in stacks() {
        let (link, _) = configuration(&made);
        if link == LinkType::Ethernet {
            compared += usize::from(compare(&frame(&made)));
        }
    }
    assert!(compared > 1500, "{compared}");
}

/// Checks that the dissector stops at a fragment where etherparse stops.
#[test]
fn fragments_end_both() {
    for fragment in [
        Packet::new().ethernet(|e| e).ipv4(|ip| ip.more_fragments(true)).tcp(|t| t),
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).fragment(|f| f.offset(9)).tcp(|t| t),
    ] {
        let frame = fragment.build();
        assert!(compare(&frame));
        let stack = check(&frame, LinkType::Ethernet, &Ports::NONE);
        assert_eq!(stack.stop, Stop::Fragment);
    }
}
