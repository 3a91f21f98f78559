//! Tests the fields of the outer IP and UDP headers.

use std::collections::BTreeMap;

use grosso::{
    Meta,
    meta::VlanTag,
    tunnel::{
        Carrier, CongestionMode, DontFragment, Dscp, Endpoint, Header, TimeToLive,
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;

use super::{
    formats::{Around, Carried, V4, V6, VXLAN, expected, geneve, gre, udp, without_checksum},
    putting::{Known, put},
};

fn send(endpoint: &Endpoint, packet: &Packet, link: LinkType) -> Result<Vec<u8>, Refusal> {
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
    put(&mut encapsulator, &Known::new(packet.build()), link).map(|sent| sent.bytes)
}

fn class(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 }
}

fn hop_limit(packet: &[u8]) -> u8 {
    packet[if packet[0] >> 4 == 4 { 8 } else { 7 }]
}

/// Returns packets of each IP version with a traffic class and a TTL, with and without a link header.
fn inner(class: u8, ttl: u8) -> Vec<(LinkType, Packet)> {
    let with_ip = |start: Packet| {
        let v4 = start.clone().ipv4(|ip| ip.tos(class).ttl(ttl));
        let v6 = start.ipv6(|ip| ip.traffic_class(class).hop_limit(ttl));
        [v4, v6].map(|packet| packet.udp(|u| u).payload_len(20))
    };
    let mut packets: Vec<_> = with_ip(Packet::new()).map(|p| (LinkType::Raw, p)).into();
    let tagged = Packet::new().ethernet(|e| e).vlan(|v| v);
    packets.extend(with_ip(tagged).map(|p| (LinkType::Ethernet, p)));
    packets
}

fn ends(link: LinkType) -> Vec<Endpoint> {
    let (header, carrier) = match link {
        LinkType::Raw => (Header::Ip, Carrier::Ip),
        _ => (VXLAN, Carrier::Udp(udp(4789))),
    };
    [V4, V6]
        .map(|[local, remote]| Endpoint::new(local, remote, header.clone(), carrier.clone()))
        .into()
}

/// Tests the ECN field of the outer header (RFC 6040 figure 3).
#[test]
fn w01_p35_every_ecn_field_around_every_packet() {
    for (mode, table) in [
        (CongestionMode::Normal, [0b00, 0b01, 0b10, 0b11]),
        (CongestionMode::Compatibility, [0b00; 4]),
    ] {
        for ecn in 0..4_u8 {
            for (link, packet) in inner(0xb8 | ecn, 9) {
                for mut endpoint in ends(link) {
                    endpoint.congestion = mode;
                    let sent = send(&endpoint, &packet, link).unwrap();
                    assert_eq!(class(&sent), 0xb8 | table[usize::from(ecn)], "{mode:?}");
                    endpoint.dscp = Dscp::Fixed(0x2a);
                    let sent = send(&endpoint, &packet, link).unwrap();
                    assert_eq!(class(&sent), 0x2a << 2 | table[usize::from(ecn)], "{mode:?}");
                }
            }
        }
    }
}

#[test]
fn w03_ttl_is_configured_or_inherited() {
    for (link, packet) in inner(0, 33) {
        for mut endpoint in ends(link) {
            endpoint.ttl = TimeToLive::Fixed(7);
            assert_eq!(hop_limit(&send(&endpoint, &packet, link).unwrap()), 7);
            endpoint.ttl = TimeToLive::Inherit;
            assert_eq!(hop_limit(&send(&endpoint, &packet, link).unwrap()), 33);
            // A frame without IP has no TTL and no traffic class to inherit.
            let other = Packet::new().ethernet(|e| e.ethertype_raw(0x0806)).payload(&[0; 46]);
            if link == LinkType::Ethernet {
                let sent = send(&endpoint, &other, link).unwrap();
                assert_eq!((hop_limit(&sent), class(&sent)), (64, 0));
            }
        }
    }
}

#[test]
fn w03_dont_fragment_is_configured_or_inherited() {
    let [local, remote] = V4;
    let v4 = |df| Packet::new().ipv4(move |ip| ip.df(df)).udp(|u| u);
    let v6 = Packet::new().ipv6(|ip| ip).udp(|u| u);
    for (dont_fragment, packet, expected) in [
        (DontFragment::Set, v4(false), true),
        (DontFragment::Unset, v4(true), false),
        (DontFragment::Ignored, v4(true), false),
        (DontFragment::Inherit, v4(true), true),
        (DontFragment::Inherit, v4(false), false),
        (DontFragment::Inherit, v6, false),
    ] {
        let mut endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
        endpoint.dont_fragment = dont_fragment;
        let sent = send(&endpoint, &packet, LinkType::Raw).unwrap();
        assert_eq!(sent[6], if expected { 0x40 } else { 0 });
    }
}

/// Tests RFC 6864 section 4.1: packets that may be fragmented have unique identifications; those of other packets may
/// repeat.
#[test]
fn w03_identifications_count_where_they_mean_something() {
    let [local, remote] = V4;
    let packet = Known::new(Packet::new().ipv4(|ip| ip).udp(|u| u).build());
    let mut endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let ids = |endpoint: &Endpoint| -> Vec<u16> {
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 0xfffe << 48).unwrap();
        let mut id = || {
            let sent = put(&mut encapsulator, &packet, LinkType::Raw).unwrap().bytes;
            u16::from_be_bytes([sent[4], sent[5]])
        };
        (0..4).map(|_| id()).collect()
    };
    assert_eq!(ids(&endpoint), [0; 4]);
    endpoint.dont_fragment = DontFragment::Unset;
    assert_eq!(ids(&endpoint), [0xfffe, 0xffff, 0, 1]);
}

fn datagram(flow: usize) -> Packet {
    let ip = Packet::new().ipv4(|ip| ip.source([10, 0, (flow >> 8) as u8, flow as u8]));
    ip.udp(|u| u.source_port(1000)).payload_len(flow % 7)
}

/// Tests rule W3: all packets of a flow have the same source port, and the flows' ports are spread over the whole
/// range.
#[test]
fn w03_source_ports_are_a_flows_own_and_spread_over_the_range() {
    let [local, remote] = V4;
    let mut gue = udp(6080);
    gue.source = 1000..=1015;
    let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Gue(gue));
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 5).unwrap();
    let mut port = |packet: &Packet| {
        let sent = put(&mut encapsulator, &Known::new(packet.build()), LinkType::Raw).unwrap();
        u16::from_be_bytes([sent.bytes[20], sent.bytes[21]])
    };
    let mut flows = BTreeMap::<u16, usize>::new();
    let ports: Vec<_> = (0..1600).map(|flow| port(&datagram(flow))).collect();
    for (flow, &first) in ports.iter().enumerate() {
        *flows.entry(first).or_default() += 1;
        assert_eq!(port(&datagram(flow).payload_len(900)), first);
    }
    assert_eq!(flows.keys().copied().collect::<Vec<_>>(), (1000..=1015).collect::<Vec<_>>());
    assert!(flows.values().all(|&count| (50..200).contains(&count)), "{flows:?}");
    // The ports cannot be predicted without the seed.
    let mut other = Encapsulator::new(endpoint, 6).unwrap();
    let differs = |(flow, first): (usize, &u16)| {
        let frame = Known::new(datagram(flow).build());
        let sent = put(&mut other, &frame, LinkType::Raw).unwrap();
        sent.bytes[20..22] != first.to_be_bytes()
    };
    let differ = ports.iter().enumerate().map(differs).filter(|differs| *differs).count();
    assert!(differ > 1300, "{differ}");
}

#[test]
fn one_port_and_all_ports_are_ranges_too() {
    let [local, remote] = V4;
    for source in [4789..=4789, 1..=65535] {
        let mut header = udp(6080);
        header.source = source.clone();
        let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::DirectGue(header));
        for flow in 0..50 {
            let sent = send(&endpoint, &datagram(flow), LinkType::Raw).unwrap();
            assert!(source.contains(&u16::from_be_bytes([sent[20], sent[21]])));
        }
    }
}

/// Tests RFC 6438 section 3: each flow has its own flow label, unless a label is configured.
#[test]
fn flow_labels_are_a_flows_own_or_configured() {
    let [local, remote] = V6;
    let mut endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let label = |endpoint: &Endpoint, flow| {
        let sent = send(endpoint, &datagram(flow), LinkType::Raw).unwrap();
        u32::from_be_bytes([0, sent[1] & 0x0f, sent[2], sent[3]])
    };
    let labels: Vec<_> = (0..20).map(|flow| label(&endpoint, flow)).collect();
    assert_eq!(labels, (0..20).map(|flow| label(&endpoint, flow)).collect::<Vec<_>>());
    assert!((1..20).all(|flow| labels[flow] != labels[0]));
    endpoint.flow_label = Some(0);
    assert_eq!(label(&endpoint, 3), 0);
}

/// Tests RFC 2473 section 4.1.1: the tunnel encapsulation limit restricts how many tunnels a packet may enter.
#[test]
fn w61_the_encapsulation_limit_counts_down() {
    let [local, remote] = V6;
    let mut endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    endpoint.encapsulation_limit = Some(2);
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
    let mut packet = Known::new(Packet::new().ipv6(|ip| ip).udp(|u| u).build());
    for limit in [2, 1, 0] {
        packet = put(&mut encapsulator, &packet, LinkType::Raw).unwrap();
        assert_eq!(packet.bytes[40..48], [41, 0, 4, 1, limit, 1, 1, 0]);
    }
    let refusal = put(&mut encapsulator, &packet, LinkType::Raw).unwrap_err();
    assert_eq!(refusal, Refusal::EncapsulationLimit);
    // A tunnel without this option also obeys the limit, but a tunnel over IPv4 does not.
    endpoint.encapsulation_limit = None;
    let mut without = Encapsulator::new(endpoint, 1).unwrap();
    let refusal = put(&mut without, &packet, LinkType::Raw).unwrap_err();
    assert_eq!(refusal, Refusal::EncapsulationLimit);
    let [local, remote] = V4;
    let over_ipv4 = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let mut over_ipv4 = Encapsulator::new(over_ipv4, 1).unwrap();
    assert!(put(&mut over_ipv4, &packet, LinkType::Raw).is_ok());
}

/// Tests that a sixth IP header is refused, because segmentation supports at most five.
#[test]
fn s04_b10_a_sixth_ip_header_is_refused() {
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
    let mut packet = Known::new(Packet::new().ipv4(|ip| ip).udp(|u| u).build());
    for _ in 0..4 {
        packet = put(&mut encapsulator, &packet, LinkType::Raw).unwrap();
    }
    assert_eq!(put(&mut encapsulator, &packet, LinkType::Raw), Err(Refusal::TooDeep));
}

/// Tests that a VLAN tag in the metadata is written into the frame if the tunnel carries frames.
#[test]
fn a_tag_beside_the_frame_is_written_into_it() {
    let plain = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(99);
    let tagged = Packet::new().ethernet(|e| e).vlan(|v| v.id(0x123).priority(5));
    let tagged = tagged.ipv4(|ip| ip).tcp(|t| t).payload_len(99);
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, VXLAN, Carrier::Udp(without_checksum(4789)));
    let (bytes, start, offset) = plain.build_partial();
    let meta = Meta {
        checksum: super::putting::partial(start, offset),
        vlan: Some(VlanTag { protocol: 0x8100, tci: 0xa123 }),
        hash: Some(1),
        timestamp_ns: Some(2),
        ..Meta::default()
    };
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
    let sent = put(&mut encapsulator, &Known { bytes, meta }, LinkType::Ethernet).unwrap();
    assert_eq!((sent.meta.vlan, sent.meta.hash, sent.meta.timestamp_ns), (None, None, Some(2)));
    let source_port = u16::from_be_bytes([sent.bytes[20], sent.bytes[21]]);
    let around = Around { source_port, ..Around::default() };
    let expected = expected(&endpoint, Carried::Ethernet, &tagged.build(), around).build();
    assert_eq!(sent.completed(), expected);
    // A tunnel for IP packets has no room for the VLAN tag.
    let gre = Endpoint::new(local, remote, gre(None, false, false, false), Carrier::Ip);
    let mut encapsulator = Encapsulator::new(gre.clone(), 1).unwrap();
    let frame = Known { bytes: plain.build(), meta };
    let refusal = put(&mut encapsulator, &frame, LinkType::Ethernet).unwrap_err();
    assert_eq!(refusal, Refusal::VlanTag);
    assert_eq!(send(&gre, &tagged, LinkType::Ethernet), Err(Refusal::VlanTag));
}

/// Tests that a tunnel for IP packets carries neither link headers nor padding.
#[test]
fn tunnels_of_ip_leave_link_headers_and_padding_behind() {
    let [local, remote] = V4;
    let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(3).pad_to(60);
    let sent = send(&endpoint, &packet, LinkType::Ethernet).unwrap();
    assert_eq!(sent[20..], packet.build()[14..45]);
    // A tunnel for Ethernet frames carries link headers and padding unchanged.
    let bridge = Endpoint::new(local, remote, VXLAN, Carrier::Udp(udp(4789)));
    let sent = send(&bridge, &packet, LinkType::Ethernet).unwrap();
    assert_eq!(sent[36..], packet.build());
}

#[test]
fn what_a_tunnel_cannot_carry_is_refused_by_name() {
    let [local, remote] = V4;
    let ip = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
    let bridge = Endpoint::new(local, remote, VXLAN, Carrier::Udp(udp(4789)));
    let ethernet = || Packet::new().ethernet(|e| e);
    let datagram = |packet: Packet| packet.udp(|u| u).payload_len(30);
    let raw = datagram(Packet::new().ipv4(|ip| ip));
    for (endpoint, packet, link, refusal) in [
        (&bridge, raw.clone(), LinkType::Raw, Refusal::NotEthernet),
        (&bridge, raw.clone().truncate(13), LinkType::Ethernet, Refusal::Truncated),
        (&ip, ethernet().payload(&[0; 46]), LinkType::Ethernet, Refusal::NotIp),
        (&ip, datagram(ethernet().pppoe(|p| p).ipv4(|ip| ip)), LinkType::Ethernet, Refusal::NotIp),
        (&ip, datagram(ethernet().mpls(|m| m).ipv4(|ip| ip)), LinkType::Ethernet, Refusal::NotIp),
        (&ip, raw.clone().truncate(19), LinkType::Raw, Refusal::Truncated),
        (&ip, raw.clone().truncate(0), LinkType::Raw, Refusal::Truncated),
        (&ip, raw.truncate(57), LinkType::Raw, Refusal::Short),
        (
            &ip,
            datagram(Packet::new().ipv4(|ip| ip.version_ihl_raw(0x41))),
            LinkType::Raw,
            Refusal::Malformed,
        ),
        (
            &ip,
            datagram(Packet::new().ipv4(|ip| ip.total_len_raw(0))),
            LinkType::Raw,
            Refusal::LengthZero,
        ),
        (
            &ip,
            datagram(Packet::new().ipv6(|ip| ip.payload_len_raw(0))),
            LinkType::Raw,
            Refusal::LengthZero,
        ),
    ] {
        assert_eq!(send(endpoint, &packet, link), Err(refusal));
    }
}

/// Tests RFC 8926 section 3.4: the header has a flag that says whether one of its options must not be ignored.
#[test]
fn w40_a_critical_option_sets_the_bit() {
    let [local, remote] = V4;
    for (kind, flags) in [(0x03, 0), (0x83, 0x40)] {
        let Header::Geneve { identifier, mut options, inherit_protocol } = geneve(true) else {
            unreachable!()
        };
        options[2] = kind;
        let header = Header::Geneve { identifier, options: options.clone(), inherit_protocol };
        let endpoint = Endpoint::new(local, remote, header, Carrier::Udp(udp(6081)));
        let sent = send(&endpoint, &datagram(1), LinkType::Raw).unwrap();
        assert_eq!(sent[28..36], [2, flags, 0x08, 0x00, 0, 0, 42, 0]);
        assert_eq!(sent[36..44], options);
    }
}
