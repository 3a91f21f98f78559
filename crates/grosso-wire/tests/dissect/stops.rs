//! Tests the reasons why dissection ends, rule by rule.

use grosso_testkit::Packet;
use grosso_testkit::oracle::{ESP_PORT, FOU_PORT, GENEVE_PORT, GUE_PORT, VXLAN_PORT};
use grosso_wire::{CookieLen, Extent, LAYERS_MAX, LinkType, Ports, Pseudowire, Stop};

use crate::common::{L2TP, check};

/// Dissects an Ethernet frame with the assigned ports, and asserts its headers and the reason why dissection ends.
#[track_caller]
fn holds(packet: Packet, words: &str, stop: Stop) {
    let stack = check(&packet.build(), LinkType::Ethernet, &Ports::ASSIGNED);
    assert_eq!((stack.to_string().as_str(), stack.stop), (words, stop));
}

fn ethernet() -> Packet {
    Packet::new().ethernet(|e| e)
}

fn udp(port: u16) -> Packet {
    ethernet().ipv4(|ip| ip).udp(move |u| u.destination_port(port))
}

#[test]
fn link_headers() {
    holds(ethernet().vlan(|v| v.ethertype_raw(0x0806)), "eth vlan", Stop::Unknown);
    holds(ethernet().pppoe(|p| p.version_type(0x21)).ipv4(|ip| ip), "eth", Stop::Malformed);
    holds(ethernet().pppoe(|p| p.len_raw(1)).ipv4(|ip| ip), "eth", Stop::Malformed);
    holds(ethernet().pppoe(|p| p.code(9)).ipv4(|ip| ip), "eth", Stop::Unknown);
    holds(ethernet().pppoe(|p| p.protocol_raw(0xc021)), "eth pppoe", Stop::Unknown);
    holds(ethernet().mpls(|m| m).payload(&[0x10, 0]), "eth mpls", Stop::Unknown);
    holds(ethernet().mpls(|m| m).payload(&[0x01]), "eth mpls", Stop::Truncated);
    holds(ethernet().mpls(|m| m), "eth mpls", Stop::Truncated);
}

#[test]
fn ipv4() {
    let ip = |byte| ethernet().ipv4(move |ip| ip.version_ihl_raw(byte)).tcp(|t| t);
    holds(ip(0x65), "eth", Stop::Malformed);
    holds(ip(0x44), "eth", Stop::Malformed);
    // The IPv4 and TCP headers are 40 bytes long, and so is the total length.
    holds(ip(0x4a), "eth ip4", Stop::Truncated);
    holds(ip(0x4b), "eth", Stop::Malformed);
    let length = |len| ethernet().ipv4(move |ip| ip.total_len_raw(len)).tcp(|t| t);
    holds(length(19), "eth", Stop::Malformed);
    holds(length(20), "eth ip4", Stop::Truncated);
    holds(length(39), "eth ip4", Stop::Truncated);
    holds(length(40), "eth ip4 tcp", Stop::Payload);
    let options = ethernet().ipv4(|ip| ip.options(&[1, 1, 1, 0])).tcp(|t| t);
    holds(options, "eth ip4 tcp", Stop::Payload);
    for protocol in [0, 43, 44, 51, 59, 60] {
        holds(
            ethernet().ipv4(move |ip| ip.protocol(protocol)).payload_len(64),
            "eth ip4",
            Stop::Unknown,
        );
    }
    for (protocol, stack) in [(132, "eth ip4 sctp"), (136, "eth ip4 udplite")] {
        let packet = ethernet().ipv4(move |ip| ip.protocol(protocol)).payload_len(64);
        holds(packet, stack, Stop::Payload);
    }
}

#[test]
fn ipv4_fragments() {
    let more = ethernet().ipv4(|ip| ip.more_fragments(true)).tcp(|t| t);
    holds(more, "eth ip4", Stop::Fragment);
    let last = ethernet().ipv4(|ip| ip.fragment_offset(1)).tcp(|t| t);
    holds(last, "eth ip4", Stop::Fragment);
    let whole = ethernet().ipv4(|ip| ip.df(true).reserved_bit(true)).tcp(|t| t);
    holds(whole, "eth ip4 tcp", Stop::Payload);
}

#[test]
fn g21_ipv6_extensions() {
    let ip = || ethernet().ipv6(|ip| ip);
    let all = ip().hop_by_hop(|h| h).destination_options(|d| d).routing(|r| r).tcp(|t| t);
    holds(all, "eth ip6 ext6 ext6 ext6 tcp", Stop::Payload);
    holds(ethernet().ipv6(|ip| ip.version(4)).tcp(|t| t), "eth", Stop::Malformed);
    // Authentication header, no next header, mobility header.
    for next in [51, 59, 135] {
        let packet = ethernet().ipv6(move |ip| ip.next_header(next)).payload_len(64);
        holds(packet, "eth ip6", Stop::Unknown);
    }
    let long = ip().hop_by_hop(|h| h.len_raw(200)).tcp(|t| t);
    holds(long, "eth ip6", Stop::Truncated);
    let longest = ip().destination_options(|d| d.data(&[0; 2046])).tcp(|t| t);
    holds(longest, "eth ip6 ext6 tcp", Stop::Payload);
}

#[test]
fn ipv6_fragments() {
    let ip = || ethernet().ipv6(|ip| ip);
    holds(ip().fragment(|f| f).tcp(|t| t), "eth ip6 frag6 tcp", Stop::Payload);
    holds(ip().fragment(|f| f.more(true)).tcp(|t| t), "eth ip6 frag6", Stop::Fragment);
    holds(ip().fragment(|f| f.offset(1)).tcp(|t| t), "eth ip6 frag6", Stop::Fragment);
    let behind = ip().destination_options(|d| d).fragment(|f| f).routing(|r| r).udp(|u| u);
    holds(behind, "eth ip6 ext6 frag6 ext6 udp", Stop::Payload);
}

#[test]
fn transport() {
    let offset = |words| ethernet().ipv4(|ip| ip).tcp(move |t| t.data_offset_raw(words));
    holds(offset(4), "eth ip4", Stop::Malformed);
    holds(offset(6), "eth ip4", Stop::Truncated);
    holds(offset(6).payload_len(4), "eth ip4 tcp", Stop::Payload);
    let length = |len| ethernet().ipv4(|ip| ip).udp(move |u| u.len_raw(len));
    for len in 0..8 {
        holds(length(len), "eth ip4 udp", Stop::Malformed);
    }
    holds(length(8), "eth ip4 udp", Stop::Payload);
    holds(udp(0).payload_len(64), "eth ip4 udp", Stop::Payload);
}

#[test]
fn ip_in_ip_and_mpls_in_ip() {
    let wrong = ethernet().ipv4(|ip| ip.protocol(41)).ipv4(|ip| ip).tcp(|t| t);
    holds(wrong, "eth ip4", Stop::Malformed);
    let wrong = ethernet().ipv6(|ip| ip.next_header(4)).ipv6(|ip| ip).tcp(|t| t);
    holds(wrong, "eth ip6", Stop::Malformed);
    let mpls = ethernet().ipv4(|ip| ip.protocol(137)).mpls(|m| m).mpls(|m| m).ipv6(|ip| ip);
    holds(mpls.tcp(|t| t), "eth ip4 mpls mpls ip6 tcp", Stop::Payload);
    let mpls = ethernet().ipv6(|ip| ip.next_header(137)).mpls(|m| m).ipv4(|ip| ip).udp(|u| u);
    holds(mpls, "eth ip6 mpls ip4 udp", Stop::Payload);
}

#[test]
fn w50_gre() {
    let gre = |flags| {
        let gre = ethernet().ipv4(|ip| ip).gre(move |g| g.key(1).extra_flags(flags));
        gre.ipv4(|ip| ip).tcp(|t| t)
    };
    holds(gre(0), "eth ip4 gre ip4 tcp", Stop::Payload);
    // GRE flags without a meaning are tolerated; a routing flag or another version is not.
    holds(gre(0x0ff8), "eth ip4 gre ip4 tcp", Stop::Payload);
    holds(gre(0x4000), "eth ip4 gre", Stop::Unknown);
    for version in 1..8 {
        holds(gre(version), "eth ip4 gre", Stop::Unknown);
    }
    let all = ethernet().ipv4(|ip| ip).gre(|g| g.checksum().key(1).sequence(2)).ipv6(|ip| ip);
    let stack = check(&all.tcp(|t| t).build(), LinkType::Ethernet, &Ports::ASSIGNED);
    assert_eq!(stack.to_string(), "eth ip4 gre ip6 tcp");
    assert_eq!(stack.layers()[2].len, 16);
    let mpls = ethernet().ipv4(|ip| ip).gre(|g| g).mpls(|m| m).ipv4(|ip| ip).tcp(|t| t);
    holds(mpls, "eth ip4 gre mpls ip4 tcp", Stop::Payload);
    let other = ethernet().ipv4(|ip| ip).gre(|g| g.protocol_raw(0x883e)).ipv4(|ip| ip);
    holds(other, "eth ip4 gre", Stop::Unknown);
}

#[test]
fn t5_vxlan_gpe() {
    let gpe = |flags: u32| {
        let mut header = flags.to_be_bytes().to_vec();
        header.extend([0, 0, 1, 0]);
        header
    };
    let inner = |flags, packet: Packet| udp(4790).payload(&[gpe(flags), packet.build()].concat());
    let ip4 = || Packet::new().ipv4(|ip| ip).tcp(|t| t);
    let ip6 = || Packet::new().ipv6(|ip| ip).tcp(|t| t);
    holds(inner(0x0c00_0001, ip4()), "eth ip4 udp gpe ip4 tcp", Stop::Payload);
    holds(inner(0x0c00_0002, ip6()), "eth ip4 udp gpe ip6 tcp", Stop::Payload);
    let frame = ethernet().ipv4(|ip| ip).tcp(|t| t);
    holds(inner(0x0c00_0003, frame), "eth ip4 udp gpe eth ip4 tcp", Stop::Payload);
    let mpls = Packet::new().mpls(|m| m).ipv4(|ip| ip).tcp(|t| t);
    holds(inner(0x0c00_0005, mpls), "eth ip4 udp gpe mpls ip4 tcp", Stop::Payload);
    let nsh = Packet::new().nsh(|n| n).ipv4(|ip| ip).tcp(|t| t);
    holds(inner(0x0c00_0004, nsh), "eth ip4 udp gpe nsh ip4 tcp", Stop::Payload);
    holds(inner(0x0c00_0004, ip4()), "eth ip4 udp gpe", Stop::Malformed);
    // An unknown protocol; the P flag clear; the O flag set; another version.
    for flags in [0x0c00_0006, 0x0800_0001, 0x0d00_0001, 0x1c00_0001, 0x2c00_0001] {
        holds(inner(flags, ip4()), "eth ip4 udp gpe", Stop::Unknown);
    }
    holds(udp(4790).payload(&[0x0c, 0, 0, 1, 0, 0, 1]), "eth ip4 udp", Stop::Truncated);
    holds(udp(VXLAN_PORT).payload(&[8, 0, 0, 0, 0, 0, 1]), "eth ip4 udp", Stop::Truncated);
}

#[test]
fn t6_geneve() {
    let geneve = |bytes: &[u8]| udp(GENEVE_PORT).payload(bytes);
    holds(geneve(&[0x40, 0, 0x08, 0, 0, 0, 1, 0]), "eth ip4 udp", Stop::Malformed);
    holds(geneve(&[0x01, 0, 0x08, 0, 0, 0, 1, 0, 0, 0, 0]), "eth ip4 udp", Stop::Truncated);
    holds(geneve(&[0x00, 0, 0x08, 6, 0, 0, 1, 0]), "eth ip4 udp geneve", Stop::Unknown);
    let ip4 = Packet::new().ipv4(|ip| ip).tcp(|t| t).build();
    let plain = [&[0, 0, 0x08, 0, 0, 0, 1, 0], &ip4[..]].concat();
    holds(geneve(&plain), "eth ip4 udp geneve ip4 tcp", Stop::Payload);
    let ip6 = Packet::new().ipv6(|ip| ip).tcp(|t| t).build();
    let options = [&[0x3f, 0xff, 0x86, 0xdd, 0, 0, 1, 0][..], &[0; 252], &ip6].concat();
    holds(geneve(&options), "eth ip4 udp geneve ip6 tcp", Stop::Payload);
}

#[test]
fn w21_gue() {
    let gue = |bytes: &[u8]| {
        let ip4 = Packet::new().ipv4(|ip| ip).tcp(|t| t).build();
        udp(GUE_PORT).payload(&[bytes, &ip4].concat())
    };
    let (found, ends) = ("eth ip4 udp gue ip4 tcp", "eth ip4 udp gue");
    holds(gue(&[0x00, 4, 0, 0]), found, Stop::Payload);
    // The header is longer than its fields need; private flags have no field; remote checksum offload.
    holds(gue(&[0x01, 4, 0, 0, 9, 9, 9, 9]), found, Stop::Payload);
    holds(gue(&[0x01, 4, 0, 1, 0, 0, 0, 0]), found, Stop::Payload);
    holds(gue(&[0x02, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, 36]), found, Stop::Payload);
    // Control; unknown flag; unknown private flag; protocol 0.
    holds(gue(&[0x20, 4, 0, 0]), ends, Stop::Unknown);
    holds(gue(&[0x00, 4, 0, 2]), ends, Stop::Unknown);
    holds(gue(&[0x01, 4, 0, 1, 0x40, 0, 0, 0]), ends, Stop::Unknown);
    holds(gue(&[0x00, 0, 0, 0]), ends, Stop::Unknown);
    // The fields are longer than the header; variants 2 and 3.
    holds(gue(&[0x00, 4, 0, 1]), "eth ip4 udp", Stop::Malformed);
    holds(gue(&[0x01, 4, 0, 1, 0x80, 0, 0, 0]), "eth ip4 udp", Stop::Malformed);
    holds(gue(&[0x80, 4, 0, 0]), "eth ip4 udp", Stop::Malformed);
    holds(gue(&[0xc0, 4, 0, 0]), "eth ip4 udp", Stop::Malformed);
    holds(udp(GUE_PORT).payload(&[0x1f, 4, 0, 0]), "eth ip4 udp", Stop::Truncated);
    holds(udp(GUE_PORT), "eth ip4 udp", Stop::Truncated);
}

#[test]
fn w22_gue_variant_1() {
    let direct = |packet: Packet| packet.udp(|u| u.destination_port(GUE_PORT));
    let ip4 = direct(ethernet().ipv4(|ip| ip)).ipv4(|ip| ip).tcp(|t| t);
    holds(ip4, "eth ip4 udp ip4 tcp", Stop::Payload);
    let ip6 = direct(ethernet().ipv6(|ip| ip)).ipv6(|ip| ip).tcp(|t| t);
    holds(ip6, "eth ip6 udp ip6 tcp", Stop::Payload);
    holds(udp(GUE_PORT).payload(&[0x55; 40]), "eth ip4 udp", Stop::Unknown);
}

#[test]
fn w10_fou() {
    let fou = |protocol, packet: Packet| {
        let frame = udp(FOU_PORT).payload(&packet.build()).build();
        let ports = Ports::NONE.with_fou(FOU_PORT, protocol);
        let stack = check(&frame, LinkType::Ethernet, &ports);
        (stack.to_string(), stack.stop)
    };
    let ip4 = || Packet::new().ipv4(|ip| ip).tcp(|t| t);
    assert_eq!(fou(4, ip4()), ("eth ip4 udp ip4 tcp".into(), Stop::Payload));
    // The first bits of the payload determine the IP version.
    assert_eq!(fou(41, ip4()), ("eth ip4 udp ip4 tcp".into(), Stop::Payload));
    let ip6 = Packet::new().ipv6(|ip| ip).tcp(|t| t);
    assert_eq!(fou(4, ip6), ("eth ip4 udp ip6 tcp".into(), Stop::Payload));
    let neither = Packet::new().payload(&[0x55; 40]);
    assert_eq!(fou(4, neither), ("eth ip4 udp".into(), Stop::Unknown));
    let gre = Packet::new().gre(|g| g).ipv4(|ip| ip).tcp(|t| t);
    assert_eq!(fou(47, gre), ("eth ip4 udp gre ip4 tcp".into(), Stop::Payload));
    assert_eq!(fou(0, ip4()), ("eth ip4 udp".into(), Stop::Unknown));
}

#[test]
fn t23_l2tp_sessions_are_read_in_the_configured_format() {
    let session = || ethernet().ipv4(|ip| ip).l2tp(|l| l.cookie(&[7; 8]));
    let inner = |packet: Packet| packet.ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t);
    let found = |packet: Packet, l2tp| {
        let ports = Ports::NONE.with_l2tp(l2tp);
        let stack = check(&packet.build(), LinkType::Ethernet, &ports);
        (stack.to_string(), stack.stop)
    };
    let long = Some(Pseudowire { cookie: CookieLen::Eight, has_sublayer: true });
    let whole = ("eth ip4 l2tp eth ip6 tcp".into(), Stop::Payload);
    assert_eq!(found(inner(session()), long), whole);
    let bare = || ethernet().ipv4(|ip| ip).l2tp(|l| l.cookie(&[]).without_sublayer());
    let short = Some(Pseudowire { cookie: CookieLen::None, has_sublayer: false });
    assert_eq!(found(inner(bare()), short), whole);
    // Without a configuration, the dissector does not guess the session format.
    assert_eq!(found(inner(bare()), None), ("eth ip4".into(), Stop::Unknown));
    assert_eq!(found(bare(), long), ("eth ip4".into(), Stop::Truncated));
}

#[test]
fn t23_l2tp_control_messages_and_sequence_numbers_end_the_walk() {
    let found = |packet: Packet| {
        let ports = Ports::NONE.with_l2tp(Some(L2TP));
        let stack = check(&packet.build(), LinkType::Ethernet, &ports);
        (stack.to_string(), stack.stop, stack.header_len())
    };
    let inner = |packet: Packet| packet.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t);
    let numbered = inner(ethernet().ipv4(|ip| ip).l2tp(|l| l.sequence(0)));
    assert_eq!(found(numbered), ("eth ip4 l2tp".into(), Stop::Unknown, 46));
    let control = inner(ethernet().ipv6(|ip| ip).l2tp(|l| l.session(0)));
    assert_eq!(found(control), ("eth ip6 l2tp".into(), Stop::Unknown, 58));
}

#[test]
fn w70_esp_in_udp() {
    let esp = |bytes: &[u8]| udp(ESP_PORT).payload(bytes);
    holds(esp(&[0, 0, 16, 0, 0, 0, 0, 1, 9]), "eth ip4 udp esp", Stop::Encrypted);
    holds(esp(&[0xff]), "eth ip4 udp", Stop::Payload);
    // A keepalive in a padded frame: its length is known from the UDP header.
    holds(esp(&[0xff]).pad_to(60), "eth ip4 udp", Stop::Payload);
    holds(esp(&[0, 0, 0, 0, 1, 2, 3, 4]), "eth ip4 udp", Stop::Payload);
    holds(esp(&[0, 0, 16, 0, 0, 0, 0]), "eth ip4 udp", Stop::Truncated);
    holds(ethernet().ipv6(|ip| ip).esp(|e| e).payload_len(9), "eth ip6 esp", Stop::Encrypted);
}

/// A header must lie within the lengths that outer headers declare, not merely within the frame.
#[test]
fn headers_beyond_a_declared_end_are_cut() {
    let tcp = |len| ethernet().ipv4(move |ip| ip.total_len_raw(len)).tcp(|t| t).payload_len(99);
    holds(tcp(39), "eth ip4", Stop::Truncated);
    let inner = |len| {
        let outer =
            ethernet().ipv4(|ip| ip).udp(move |u| u.destination_port(VXLAN_PORT).len_raw(len));
        outer.vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t)
    };
    for (len, words) in [
        (8 + 7, "eth ip4 udp"),
        (8 + 8, "eth ip4 udp vxlan"),
        (8 + 8 + 13, "eth ip4 udp vxlan"),
        (8 + 8 + 14 + 19, "eth ip4 udp vxlan eth"),
        (8 + 8 + 14 + 20 + 19, "eth ip4 udp vxlan eth ip4"),
    ] {
        holds(inner(len), words, Stop::Truncated);
    }
    let pppoe = ethernet().pppoe(|p| p.len_raw(2 + 20 + 19)).ipv4(|ip| ip).tcp(|t| t);
    holds(pppoe, "eth pppoe ip4", Stop::Truncated);
    let ip6 = ethernet().ipv6(|ip| ip.payload_len_raw(7)).hop_by_hop(|h| h).tcp(|t| t);
    holds(ip6, "eth ip6", Stop::Truncated);
}

/// One header beyond the limit changes neither the headers before it nor the extent.
#[test]
fn too_deep() {
    let nest = |count: usize| {
        let packet = (1..count).fold(ethernet(), |packet, _| packet.ipv4(|ip| ip));
        check(&packet.build(), LinkType::Ethernet, &Ports::ASSIGNED)
    };
    assert_eq!((nest(16).layers().len(), nest(16).stop), (16, Stop::Unknown));
    let stack = nest(17);
    assert_eq!((stack.layers().len(), stack.stop), (LAYERS_MAX, Stop::TooDeep));
    let lying = (0..15).fold(ethernet(), |packet, _| packet.ipv4(|ip| ip));
    let lying = lying.ipv4(|ip| ip.total_len_raw(9999)).build();
    let stack = check(&lying, LinkType::Ethernet, &Ports::ASSIGNED);
    assert_eq!((stack.stop, stack.extent), (Stop::TooDeep, Extent::Exact));
}

/// Frames whose headers are nested without end stop at the limit.
#[test]
fn nesting_bombs() {
    let link = [2; 12];
    let bombs: [(&str, Vec<u8>); 5] = [
        ("vlan", [&link[..], &[0x81, 0, 0, 1].repeat(100)].concat()),
        ("mpls", [&link[..], &[0x88, 0x47], &[0, 0, 0x10, 64].repeat(100)].concat()),
        ("ip4", (0..100).fold(ethernet(), |packet, _| packet.ipv4(|ip| ip)).build()),
        ("ext6", {
            let packet = ethernet().ipv6(|ip| ip.next_header(60));
            packet.payload(&[60, 0, 1, 4, 0, 0, 0, 0].repeat(1000)).build()
        }),
        ("frag6", {
            let packet = ethernet().ipv6(|ip| ip.next_header(44));
            packet.payload(&[44, 0, 0, 0, 0, 0, 0, 0].repeat(1000)).build()
        }),
    ];
    for (name, frame) in bombs {
        let stack = check(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
        assert_eq!((stack.stop, stack.layers().len()), (Stop::TooDeep, LAYERS_MAX), "{name}");
        assert_eq!(stack.last().map(|layer| layer.kind.name()), Some(name));
    }
    // These headers are as long as possible, and their offsets must still fit into 16 bits.
    let longest = [vec![60, 255], vec![0; 2046]].concat().repeat(31);
    let frame = ethernet().ipv6(|ip| ip.next_header(60)).payload(&longest).build();
    let stack = check(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
    assert_eq!(stack.layers().len(), LAYERS_MAX);
    assert_eq!(stack.header_len(), 14 + 40 + 14 * 2048);
}
