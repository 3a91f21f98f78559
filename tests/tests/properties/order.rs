//! Tests the order within a flow: no packet overtakes another with the same addresses and ports, for any two kinds of
//! packets (rule G75).

use grosso::{Meta, Profile};
use grosso_rig::session::Session;
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Ipv6, Tcp, Udp},
    oracle::{Lengths, Link, parse},
};
use grosso_wire::LinkType;

/// A function that builds the headers before the innermost IP header.
type Outer = fn(u16) -> Packet;

/// The outer headers that all tests use. The argument is the number of the packet.
const OUTERS: &[(&str, Outer)] = &[
    ("nothing", |_| link()),
    ("vlan", |_| link().vlan(|v| v.id(7))),
    ("pppoe", |_| link().pppoe(|p| p)),
    ("mpls", |_| link().mpls(|m| m.label(100))),
    ("ip in ip", |n| outer(n)),
    ("ip in ip6", |_| link().ipv6(|ip| ip)),
    ("gre", |n| outer(n).gre(|g| g)),
    ("gre with checksum and key", |n| outer(n).gre(|g| g.checksum().key(9))),
    ("gre with ethernet", |n| outer(n).gre(|g| g).ethernet(|e| e)),
    ("vxlan", |n| outer(n).udp(|u| u.checksum_zero()).vxlan(|v| v.vni(42)).ethernet(|e| e)),
    ("vxlan with checksum", |n| outer(n).udp(|u| u).vxlan(|v| v).ethernet(|e| e).vlan(|v| v.id(9))),
    ("vxlan-gpe", |n| outer(n).udp(|u| u).vxlan(|v| v.gpe())),
    ("geneve", |n| outer(n).udp(|u| u).geneve(|g| g.option(0x102, 3, &[1; 4])).ethernet(|e| e)),
    ("gue", |n| outer(n).udp(|u| u.checksum_zero()).gue(|g| g)),
    ("vxlan in gre", |n| outer(n).gre(|g| g).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e)),
    ("geneve in ip6 in ip", |n| outer(n).ipv6(|ip| ip).udp(|u| u).geneve(|g| g).ethernet(|e| e)),
];

/// The position of a packet in its flow.
#[derive(Clone, Copy)]
struct Turn {
    number: u16,
    sequence: u32,
    v6: bool,
}

/// Function that builds a packet that follows these outer headers and cannot belong to the train.
type Odd = fn(Packet, Turn) -> Packet;

/// TCP packets, over both IP versions, that cannot belong to the train.
const TCP_ODDS: &[(&str, Odd)] = &[
    ("wrong checksum", |p, t| tcp(ip(p, t), t, |h| h.checksum_xor(1)).payload_len(LEN)),
    ("other checksum form", |p, t| tcp(ip(p, t), t, |h| h.checksum_raw(0xffff)).payload_len(LEN)),
    ("no checksum", |p, t| tcp(ip(p, t), t, |h| h.checksum_zero()).payload_len(LEN)),
    ("data offset 0", |p, t| tcp(ip(p, t), t, |h| h.data_offset_raw(0)).payload_len(LEN)),
    ("data offset 4", |p, t| tcp(ip(p, t), t, |h| h.data_offset_raw(4)).payload_len(LEN)),
    ("data offset beyond", |p, t| tcp(ip(p, t), t, |h| h.data_offset_raw(15)).payload_len(8)),
    ("more options", |p, t| tcp(ip(p, t), t, |h| h.options(&[1; 8])).payload_len(LEN)),
    ("pure acknowledgment", |p, t| tcp(ip(p, t), t, |h| h.ack(999))),
    ("SYN", |p, t| tcp(ip(p, t), t, Tcp::syn).payload_len(LEN)),
    ("RST", |p, t| tcp(ip(p, t), t, Tcp::rst)),
    ("URG", |p, t| tcp(ip(p, t), t, Tcp::urg).payload_len(LEN)),
    ("FIN", |p, t| tcp(ip(p, t), t, Tcp::fin).payload_len(LEN)),
    ("FIN without payload", |p, t| tcp(ip(p, t), t, Tcp::fin)),
    ("PSH", |p, t| tcp(ip(p, t), t, Tcp::psh).payload_len(LEN)),
    ("ECE", |p, t| tcp(ip(p, t), t, Tcp::ece).payload_len(LEN)),
    ("CWR", |p, t| tcp(ip(p, t), t, Tcp::cwr).payload_len(LEN)),
    ("no ACK flag", |p, t| tcp(ip(p, t), t, Tcp::no_ack).payload_len(LEN)),
    ("reserved bit", |p, t| tcp(ip(p, t), t, |h| h.reserved(1)).payload_len(LEN)),
    ("other window", |p, t| tcp(ip(p, t), t, |h| h.window(7)).payload_len(LEN)),
    ("other acknowledgment", |p, t| tcp(ip(p, t), t, |h| h.ack(999)).payload_len(LEN)),
    ("other timestamp", |p, t| tcp(ip(p, t), t, |h| h.timestamps(9, 9)).payload_len(LEN)),
    ("urgent pointer", |p, t| tcp(ip(p, t), t, |h| h.urgent_pointer(3)).payload_len(LEN)),
    ("retransmission", |p, t| tcp(ip(p, t), t, |h| h.sequence(1)).payload_len(LEN)),
    ("gap", |p, t| tcp(ip(p, t), t, |h| h.sequence(t.sequence + 7)).payload_len(LEN)),
    ("longer", |p, t| tcp(ip(p, t), t, |h| h).payload_len(LEN + 60)),
    ("shorter", |p, t| tcp(ip(p, t), t, |h| h).payload_len(LEN - 1)),
    ("padding", |p, t| tcp(ip(p, t), t, |h| h).payload_len(LEN).trailer(&[0; 6])),
    ("other TTL", |p, t| {
        tcp(ip_with(p, t, |ip| ip.ttl(3), |ip| ip.hop_limit(3)), t, |h| h).payload_len(LEN)
    }),
    ("other type of service", |p, t| {
        tcp(ip_with(p, t, |ip| ip.tos(2), |ip| ip.traffic_class(2)), t, |h| h).payload_len(LEN)
    }),
    ("length beyond the frame", |p, t| {
        let lying = ip_with(p, t, |ip| ip.total_len_raw(900), |ip| ip.payload_len_raw(900));
        tcp(lying, t, |h| h).payload_len(LEN)
    }),
    ("length before the end", |p, t| {
        let lying = ip_with(p, t, |ip| ip.total_len_raw(60), |ip| ip.payload_len_raw(40));
        tcp(lying, t, |h| h).payload_len(LEN)
    }),
    ("length zero", |p, t| {
        let lying = ip_with(p, t, |ip| ip.total_len_raw(0), |ip| ip.payload_len_raw(0));
        tcp(lying, t, |h| h).payload_len(LEN)
    }),
    ("authentication header", |p, t| {
        let inside = Packet::new().tcp(|h| h.sequence(t.sequence)).payload_len(LEN).build();
        // Fields of the authentication header: next header TCP, 4 + 2 words, reserved, SPI, sequence number, and a
        // 12-byte ICV.
        let header = [&[6, 4, 0, 0][..], &[0, 0, 0, 7], &[0, 0, 0, 9], &[0xee; 12]].concat();
        ip_with(p, t, |ip| ip.protocol(51), |ip| ip.next_header(51))
            .payload(&[header, inside].concat())
    }),
];

/// Packets that cannot belong to the train and exist only in IPv4.
const IPV4_ODDS: &[(&str, Odd)] = &[
    ("options", |p, t| v4(p, t, |ip| ip.options(&[7, 7, 4, 0, 0, 0, 0, 0]))),
    ("no-operation options", |p, t| v4(p, t, |ip| ip.options(&[1, 1, 1, 1]))),
    ("first fragment", |p, t| v4(p, t, |ip| ip.df(false).more_fragments(true))),
    ("middle fragment", |p, t| v4(p, t, |ip| ip.df(false).more_fragments(true).fragment_offset(9))),
    ("last fragment", |p, t| v4(p, t, |ip| ip.df(false).fragment_offset(20))),
    ("reserved bit of IP", |p, t| v4(p, t, |ip| ip.reserved_bit(true))),
    ("wrong header checksum", |p, t| v4(p, t, |ip| ip.checksum_xor(0x100))),
    ("other DF", |p, t| v4(p, t, |ip| ip.df(false))),
    ("other identification", |p, t| v4(p, t, |ip| ip.id(t.number + 99))),
];

/// Packets that cannot belong to the train and exist only in IPv6.
const IPV6_ODDS: &[(&str, Odd)] = &[
    ("atomic fragment", |p, t| tcp(ip(p, t).fragment(|f| f), t, |h| h).payload_len(LEN)),
    ("first fragment", |p, t| tcp(ip(p, t).fragment(|f| f.more(true)), t, |h| h).payload_len(LEN)),
    ("middle fragment", |p, t| {
        ip(p, t).fragment(|f| f.more(true).offset(9).next_header(6)).payload(&[7; LEN])
    }),
    ("last fragment", |p, t| ip(p, t).fragment(|f| f.offset(20).next_header(6)).payload(&[7; LEN])),
    ("destination options", |p, t| {
        tcp(ip(p, t).destination_options(|d| d), t, |h| h).payload_len(LEN)
    }),
    ("hop-by-hop and routing", |p, t| {
        tcp(ip(p, t).hop_by_hop(|h| h).routing(|r| r), t, |h| h).payload_len(LEN)
    }),
    ("extension header beyond the frame", |p, t| {
        tcp(ip(p, t).destination_options(|d| d.len_raw(200)), t, |h| h).payload_len(LEN)
    }),
    ("unknown extension header", |p, t| {
        let inside = tcp(Packet::new(), t, |h| h).payload_len(LEN).build();
        // The mobility header (RFC 6275) has the next header TCP and 8 bytes in total.
        let header = [6, 0, 5, 0, 0, 0, 0, 0];
        ip_with(p, t, |ip| ip, |ip| ip.next_header(135)).payload(&[&header[..], &inside].concat())
    }),
    ("other flow label", |p, t| {
        tcp(ip_with(p, t, |ip| ip, |ip| ip.flow_label(77)), t, |h| h).payload_len(LEN)
    }),
];

/// Datagrams that cannot belong to the train.
const UDP_ODDS: &[(&str, Odd)] = &[
    ("empty datagram", |p, t| udp(ip(p, t), |h| h)),
    ("no checksum", |p, t| udp(ip(p, t), Udp::checksum_zero).payload_len(LEN)),
    ("wrong checksum", |p, t| udp(ip(p, t), |h| h.checksum_xor(1)).payload_len(LEN)),
    ("length beyond the frame", |p, t| udp(ip(p, t), |h| h.len_raw(900)).payload_len(LEN)),
    ("length before the end", |p, t| udp(ip(p, t), |h| h.len_raw(20)).payload_len(LEN)),
    ("length below the header", |p, t| udp(ip(p, t), |h| h.len_raw(3)).payload_len(LEN)),
    ("padding", |p, t| udp(ip(p, t), |h| h).payload_len(LEN).trailer(&[0; 6])),
    ("longer", |p, t| udp(ip(p, t), |h| h).payload_len(LEN + 60)),
    ("shorter", |p, t| udp(ip(p, t), |h| h).payload_len(LEN - 60)),
];

/// Packets that have the outer addresses of a tunnel and cannot belong to the train, although their inner flow may be
/// the same.
const TUNNEL_ODDS: &[(&str, Odd)] = &[
    ("cut at the inner IP header", |p, _| p.payload(&[0x45])),
    ("nothing inside", |p, _| p),
    ("garbage inside", |p, _| p.payload(&[0xff; LEN])),
    ("an unknown protocol inside", |p, t| {
        ip_with(p, t, |ip| ip.protocol(200), |ip| ip.next_header(200)).payload(&[9; LEN])
    }),
    ("another version inside", |p, t| v4(p, t, |ip| ip.version_ihl_raw(0x55))),
    ("a header too short inside", |p, t| v4(p, t, |ip| ip.version_ihl_raw(0x44))),
    ("ESP inside", |p, t| ip(p, t).esp(|e| e).payload(&[9; LEN])),
];

#[test]
fn no_odd_tcp_packet_overtakes_or_is_overtaken() {
    for v6 in [false, true] {
        let train = |packet, turn| tcp(ip(packet, turn), turn, |h| h).payload_len(LEN);
        let versions = if v6 { IPV6_ODDS } else { IPV4_ODDS };
        for (name, odd) in TCP_ODDS.iter().chain(versions) {
            assert_in_order(name, *odd, train, v6, OUTERS);
        }
        for (name, odd) in TUNNEL_ODDS {
            // Without a tunnel header, these packets identify no flow, or are not IP.
            assert_in_order(name, *odd, train, v6, &OUTERS[TUNNELS_FROM..]);
        }
    }
}

#[test]
fn no_odd_udp_packet_overtakes_or_is_overtaken() {
    for v6 in [false, true] {
        let train = |packet, turn| udp(ip(packet, turn), |h| h).payload(&[turn.number as u8; LEN]);
        for (name, odd) in UDP_ODDS {
            assert_in_order(name, *odd, train, v6, OUTERS);
        }
    }
}

/// Tests a packet of the train's flow whose tunnel header differs from the train's.
#[test]
fn no_odd_tunnel_header_overtakes_or_is_overtaken() {
    let inside = |packet, t: Turn| tcp(ip(packet, t), t, |h| h).payload_len(LEN);
    type Pair = (&'static str, Outer, fn(Packet) -> Packet);
    let tunnels: &[Pair] = &[
        ("gre sequence", |n| outer(n).gre(|g| g), |p| p.gre(|g| g.sequence(3))),
        ("gre other version", |n| outer(n).gre(|g| g), |p| p.gre(|g| g.extra_flags(1))),
        ("gre routing", |n| outer(n).gre(|g| g), |p| p.gre(|g| g.extra_flags(0x4000))),
        ("gre reserved", |n| outer(n).gre(|g| g), |p| p.gre(|g| g.extra_flags(0x10))),
        ("gre checksum", |n| outer(n).gre(|g| g), |p| p.gre(|g| g.checksum())),
        ("vxlan flags", vxlan, |p| p.udp(|u| u).vxlan(|v| v.flags(0xff00_0000)).ethernet(|e| e)),
        ("vxlan no flags", vxlan, |p| p.udp(|u| u).vxlan(|v| v.flags(0)).ethernet(|e| e)),
        ("vxlan policy", vxlan, |p| p.udp(|u| u).vxlan(|v| v.gbp(5)).ethernet(|e| e)),
        ("vxlan remote", vxlan, |p| p.udp(|u| u).vxlan(|v| v.remote_checksum()).ethernet(|e| e)),
        ("vxlan unverified", vxlan, |p| p.udp(|u| u.checksum_zero()).vxlan(|v| v).ethernet(|e| e)),
        ("vxlan wrong", vxlan, |p| p.udp(|u| u.checksum_xor(1)).vxlan(|v| v).ethernet(|e| e)),
        ("vxlan length", vxlan, |p| p.udp(|u| u.len_raw(30)).vxlan(|v| v).ethernet(|e| e)),
        ("geneve control", geneve, |p| p.udp(|u| u).geneve(|g| g.control(true)).ethernet(|e| e)),
        ("geneve critical", geneve, |p| p.udp(|u| u).geneve(|g| g.critical(true)).ethernet(|e| e)),
        ("geneve version", geneve, |p| p.udp(|u| u).geneve(|g| g.version(1)).ethernet(|e| e)),
        ("geneve options", geneve, |p| {
            p.udp(|u| u).geneve(|g| g.option(1, 1, &[0; 4])).ethernet(|e| e)
        }),
        ("gue control", gue, |p| p.udp(|u| u).gue(|g| g.control(true))),
        ("gue flags", gue, |p| p.udp(|u| u).gue(|g| g.flags(0x8000))),
        ("gue remote", gue, |p| p.udp(|u| u).gue(|g| g.remote_checksum())),
    ];
    for (name, outer_of, odd_tunnel) in tunnels {
        for v6 in [false, true] {
            for position in 0..=TRAIN {
                let frames = sequence(position, |number, is_odd, sequence| {
                    let turn = Turn { number, sequence, v6 };
                    let packet = if is_odd { odd_tunnel(outer(number)) } else { outer_of(number) };
                    inside(packet, turn).build()
                });
                assert_kept(&frames, &format!("{name}, v6 {v6}, position {position}"));
            }
        }
    }
}

/// Tests a fragment of the outer packet, and other packets whose contents cannot be read.
#[test]
fn no_odd_outer_header_overtakes_or_is_overtaken() {
    type Change = fn(Ipv4) -> Ipv4;
    let changes: &[(&str, Change)] = &[
        ("first fragment", |ip| ip.df(false).more_fragments(true)),
        ("middle fragment", |ip| ip.df(false).more_fragments(true).fragment_offset(9)),
        ("last fragment", |ip| ip.df(false).fragment_offset(20)),
        ("options", |ip| ip.options(&[1, 1, 1, 1])),
        ("wrong checksum", |ip| ip.checksum_xor(1)),
        ("reserved bit", |ip| ip.reserved_bit(true)),
        ("short length", |ip| ip.total_len_raw(40)),
        ("long length", |ip| ip.total_len_raw(1400)),
        ("encrypted", |ip| ip.protocol(50)),
    ];
    for (name, change) in changes {
        for position in 0..=TRAIN {
            let frames = sequence(position, |number, is_odd, sequence| {
                let turn = Turn { number, sequence, v6: false };
                let ipv4 = |h: Ipv4| if is_odd { change(h.id(number)) } else { h.id(number) };
                let packet = link().ipv4(ipv4).udp(|u| u).vxlan(|v| v).ethernet(|e| e);
                tcp(ip(packet, turn), turn, |h| h).payload_len(LEN).build()
            });
            assert_kept(&frames, &format!("{name}, position {position}"));
        }
    }
}

/// Tests a frame of the flow that is truncated at each offset after the addresses.
#[test]
fn no_cut_frame_overtakes_or_is_overtaken() {
    for (name, outer_of) in OUTERS {
        for v6 in [false, true] {
            let turn = Turn { number: 9, sequence: 9, v6 };
            let whole = tcp(ip(outer_of(9), turn), turn, |h| h).payload_len(LEN).build();
            let parsed = parse(&whole, Link::Ethernet, Lengths::Declared);
            let outermost = parsed.layers.iter().find(|layer| layer.is_ip()).expect("IP");
            for len in outermost.inside()..whole.len() {
                let frames = sequence(2, |number, is_odd, sequence| {
                    let turn = Turn { number, sequence, v6 };
                    let packet = tcp(ip(outer_of(number), turn), turn, |h| h).payload_len(LEN);
                    if is_odd { packet.truncate(len).build() } else { packet.build() }
                });
                assert_kept(&frames, &format!("{name}, v6 {v6}, cut to {len} bytes"));
            }
        }
    }
}

/// Tests a packet that cannot belong to the train, at every position and after each of the outer headers.
fn assert_in_order(
    name: &str,
    odd: Odd,
    train: impl Fn(Packet, Turn) -> Packet,
    v6: bool,
    outers: &[(&str, Outer)],
) {
    for (around, outer_of) in outers {
        for position in 0..=TRAIN {
            let frames = sequence(position, |number, is_odd, sequence| {
                let turn = Turn { number, sequence, v6 };
                let packet = outer_of(number);
                if is_odd { odd(packet, turn).build() } else { train(packet, turn).build() }
            });
            assert_kept(&frames, &format!("{name} in {around}, v6 {v6}, position {position}"));
        }
    }
}

/// Returns a train with one packet that cannot belong to it. The sequence numbers continue as if this packet were a
/// segment of the train.
fn sequence(position: u16, mut packet: impl FnMut(u16, bool, u32) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..=TRAIN)
        .map(|number| packet(number, number == position, 100 + u32::from(number) * LEN as u32))
        .collect()
}

/// Asserts that all packets are delivered in the order in which they arrived.
fn assert_kept(frames: &[Vec<u8>], name: &str) {
    let mut profile = Profile::linux();
    profile.tunnels_max = 2;
    let mut session = Session::new(profile, LinkType::Ethernet, 1);
    for frame in frames {
        session.push(frame, Meta::default());
    }
    session.finish();
    session.assert_settled();
    let numbers: Vec<usize> =
        session.left.iter().flat_map(|left| left.numbers.iter().copied()).collect();
    let closed: Vec<_> = session.left.iter().map(|left| left.closed).collect();
    assert!(numbers.is_sorted(), "{name}: packets left as {numbers:?}, closed by {closed:?}");
    let packets: Vec<Vec<u8>> = session.packets().into_iter().map(|(bytes, _)| bytes).collect();
    assert!(packets == frames, "{name}: other bytes");
    assert!(session.left.len() <= frames.len(), "{name}");
}

fn link() -> Packet {
    Packet::new().ethernet(|e| e)
}

fn outer(number: u16) -> Packet {
    link().ipv4(|ip| ip.id(number))
}

fn vxlan(number: u16) -> Packet {
    outer(number).udp(|u| u).vxlan(|v| v).ethernet(|e| e)
}

fn geneve(number: u16) -> Packet {
    outer(number).udp(|u| u).geneve(|g| g).ethernet(|e| e)
}

fn gue(number: u16) -> Packet {
    outer(number).udp(|u| u).gue(|g| g)
}

fn ip(packet: Packet, turn: Turn) -> Packet {
    ip_with(packet, turn, |ip| ip, |ip| ip)
}

fn ip_with(
    packet: Packet,
    turn: Turn,
    ipv4: impl FnOnce(Ipv4) -> Ipv4,
    ipv6: impl FnOnce(Ipv6) -> Ipv6,
) -> Packet {
    if turn.v6 { packet.ipv6(ipv6) } else { packet.ipv4(|ip| ipv4(ip.id(turn.number).df(true))) }
}

/// Returns a TCP segment over IPv4, modified by `change`.
fn v4(packet: Packet, turn: Turn, change: impl FnOnce(Ipv4) -> Ipv4) -> Packet {
    tcp(ip_with(packet, turn, change, |ip| ip), turn, |h| h).payload_len(LEN)
}

fn tcp(packet: Packet, turn: Turn, change: impl FnOnce(Tcp) -> Tcp) -> Packet {
    packet.tcp(|tcp| change(tcp.sequence(turn.sequence)))
}

fn udp(packet: Packet, change: impl FnOnce(Udp) -> Udp) -> Packet {
    packet.udp(change)
}

/// Number of payload bytes in each packet in a train.
const LEN: usize = 100;
/// Number of packets in a train.
const TRAIN: u16 = 4;
/// The first of [`OUTERS`] that has a tunnel header.
const TUNNELS_FROM: usize = 6;
