//! Tests how the dissector compares declared lengths with the number of bytes present.

use grosso_testkit::Packet;
use grosso_wire::{Extent, LinkType, Ports, Stack, Stop};

use crate::common::check;

fn dissected(packet: Packet) -> Stack {
    check(&packet.build(), LinkType::Ethernet, &Ports::ASSIGNED)
}

fn ethernet() -> Packet {
    Packet::new().ethernet(|e| e)
}

/// The Ethernet, IPv4 and TCP headers are 54 bytes long in total.
#[test]
fn one_level() {
    let packet = || ethernet().ipv4(|ip| ip).tcp(|t| t);
    let length = |len| ethernet().ipv4(move |ip| ip.total_len_raw(len)).tcp(|t| t).payload_len(10);
    let cases = [
        (packet(), Extent::Exact, 54),
        (packet().payload_len(10), Extent::Exact, 64),
        (packet().pad_to(60), Extent::Padded, 54),
        (packet().payload_len(10).trailer(&[1; 4]), Extent::Padded, 64),
        (packet().payload_len(10).truncate(60), Extent::Short, 64),
        (length(49), Extent::Padded, 63),
        (length(51), Extent::Short, 65),
        (length(65535), Extent::Short, 14 + 65535),
        (length(0), Extent::Jumbo, 64),
    ];
    for (packet, extent, end) in cases {
        let stack = dissected(packet.clone());
        assert_eq!((stack.extent, stack.end), (extent, end), "{packet:?}");
        assert_eq!(stack.to_string(), "eth ip4 tcp");
    }
}

/// Compares the outer total length, the UDP length and the inner total length with the true length, one after the
/// other. The frame has 14 + 20 + 8 + 8 + 14 + 20 + 20 + 10 bytes.
#[test]
fn levels_combine_to_the_worst() {
    let packet = |outer: u16, udp: u16, inner: u16| {
        let packet = ethernet().ipv4(move |ip| ip.total_len_raw(outer));
        let packet = packet.udp(move |u| u.destination_port(4789).len_raw(udp)).vxlan(|v| v);
        let packet = packet.ethernet(|e| e).ipv4(move |ip| ip.total_len_raw(inner));
        packet.tcp(|t| t).payload_len(10)
    };
    let cases = [
        ((100, 80, 50), Extent::Exact, 114),
        ((100, 80, 49), Extent::Padded, 113),
        ((100, 79, 49), Extent::Padded, 113),
        ((100, 79, 50), Extent::Short, 114),
        ((99, 79, 49), Extent::Padded, 113),
        ((99, 80, 50), Extent::Short, 114),
        ((101, 81, 51), Extent::Short, 115),
        ((101, 80, 50), Extent::Short, 114),
        ((100, 80, 51), Extent::Short, 115),
        ((0, 80, 50), Extent::Jumbo, 114),
        ((100, 80, 0), Extent::Jumbo, 114),
        ((0, 0, 0), Extent::Jumbo, 114),
        ((0, 79, 0), Extent::Padded, 113),
        ((0, 80, 49), Extent::Padded, 113),
        ((0, 81, 50), Extent::Short, 114),
    ];
    for ((outer, udp, inner), extent, end) in cases {
        let stack = dissected(packet(outer, udp, inner));
        assert_eq!((stack.extent, stack.end), (extent, end), "{outer} {udp} {inner}");
        assert_eq!(stack.to_string(), "eth ip4 udp vxlan eth ip4 tcp");
        assert_eq!(stack.stop, Stop::Payload);
    }
}

#[test]
fn combining_is_a_choice_of_the_worse() {
    let order = [Extent::Exact, Extent::Jumbo, Extent::Padded, Extent::Short];
    for (i, a) in order.into_iter().enumerate() {
        for (j, b) in order.into_iter().enumerate() {
            assert_eq!(a.combine(b), order[i.max(j)]);
        }
    }
}

#[test]
fn pppoe_and_ipv6() {
    let pppoe = |len| ethernet().pppoe(move |p| p.len_raw(len)).ipv6(|ip| ip).udp(|u| u);
    assert_eq!(dissected(pppoe(50)).extent, Extent::Exact);
    assert_eq!(dissected(pppoe(51)).extent, Extent::Short);
    // The IPv6 packet extends past the end of the PPPoE payload.
    assert_eq!(dissected(pppoe(49)).extent, Extent::Short);
    let ip6 = |len| ethernet().ipv6(move |ip| ip.payload_len_raw(len)).udp(|u| u.len_raw(8));
    assert_eq!(dissected(ip6(8)).extent, Extent::Exact);
    assert_eq!(dissected(ip6(9)).extent, Extent::Short);
    assert_eq!(dissected(ip6(0)).extent, Extent::Jumbo);
    assert_eq!(dissected(ip6(8).trailer(&[0])).extent, Extent::Padded);
}

#[test]
fn ipv6_without_next_header_has_no_payload() {
    let packet = |next| ethernet().ipv6(move |ip| ip.next_header(next)).pad_to(60);
    let stack = dissected(packet(59));
    assert_eq!((stack.extent, stack.end, stack.stop), (Extent::Padded, 54, Stop::Unknown));
    let stack = dissected(packet(135));
    assert_eq!((stack.extent, stack.end, stack.stop), (Extent::Jumbo, 60, Stop::Unknown));
}

/// A jumbogram (RFC 2675): option type 0xc2, length 4, and the number of bytes after the fixed header.
#[test]
fn jumbo_payload_option() {
    let payload = 70_000_u32;
    let true_len = 8 + 20 + payload;
    let packet = |len: u32| {
        let [a, b, c, d] = len.to_be_bytes();
        let packet = ethernet().ipv6(|ip| ip.payload_len_raw(0));
        packet.hop_by_hop(move |h| h.data(&[0xc2, 4, a, b, c, d])).tcp(|t| t)
    };
    let jumbo = |len| dissected(packet(len).payload_len(payload as usize));
    let frame_len = 14 + 40 + true_len;
    let stack = jumbo(true_len);
    assert_eq!(stack.to_string(), "eth ip6 ext6 tcp");
    assert_eq!((stack.extent, stack.end), (Extent::Jumbo, frame_len));
    assert_eq!(
        (jumbo(true_len - 1).extent, jumbo(true_len - 1).end),
        (Extent::Padded, frame_len - 1)
    );
    assert_eq!(
        (jumbo(true_len + 1).extent, jumbo(true_len + 1).end),
        (Extent::Short, frame_len + 1)
    );
    // With the largest declared length, the end does not fit into 32 bits. It must not wrap.
    assert_eq!((jumbo(u32::MAX).extent, jumbo(u32::MAX).end), (Extent::Short, u32::MAX));
    for small in [0, 28, 65535] {
        let stack = jumbo(small);
        assert_eq!((stack.to_string().as_str(), stack.stop), ("eth ip6", Stop::Malformed));
    }
}

/// The option counts only where RFC 2675 allows it: in hop-by-hop options directly after an IPv6 header whose length is
/// zero.
#[test]
fn jumbo_payload_option_elsewhere_is_ignored() {
    let option = [0xc2, 4, 0, 2, 0, 0];
    let with_length = ethernet().ipv6(|ip| ip).hop_by_hop(|h| h.data(&option)).tcp(|t| t);
    assert_eq!(dissected(with_length).extent, Extent::Exact);
    let destination = ethernet().ipv6(|ip| ip.payload_len_raw(0));
    let destination = destination.destination_options(|d| d.data(&option)).tcp(|t| t);
    assert_eq!(dissected(destination).extent, Extent::Jumbo);
    let second = ethernet().ipv6(|ip| ip.payload_len_raw(0));
    let second = second.destination_options(|d| d).hop_by_hop(|h| h.data(&option)).tcp(|t| t);
    assert_eq!(dissected(second).extent, Extent::Jumbo);
}

/// RFC 2675 section 4: UDP in a jumbogram may have length 0.
#[test]
fn udp_length_zero_in_a_jumbogram() {
    let packet = ethernet().ipv6(|ip| ip.payload_len_raw(0)).udp(|u| u.len_raw(0)).payload_len(9);
    let stack = dissected(packet);
    assert_eq!((stack.to_string().as_str(), stack.stop), ("eth ip6 udp", Stop::Payload));
    assert_eq!(stack.extent, Extent::Jumbo);
}
