//! Tests which tunnel headers a receiver accepts, and which it must refuse.

use grosso::tunnel::{Tunnel, decapsulate::Refusal};
use grosso_testkit::{
    Packet,
    headers::{Geneve, Gre, Gue, Vxlan},
};
use grosso_wire::LinkType;

use super::taking::{rules, rules_with_fou, take, take_with};

fn ipv4() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip)
}

fn ipv6() -> Packet {
    Packet::new().ethernet(|e| e).ipv6(|ip| ip)
}

fn inside(packet: Packet) -> Packet {
    packet.ipv4(|ip| ip.id(7)).tcp(|t| t).payload(b"inside")
}

fn gre(edit: impl FnOnce(Gre) -> Gre) -> Packet {
    inside(ipv4().gre(edit))
}

fn vxlan(edit: impl FnOnce(Vxlan) -> Vxlan) -> Packet {
    inside(ipv4().udp(|u| u).vxlan(edit).ethernet(|e| e))
}

fn gpe(edit: impl FnOnce(Vxlan) -> Vxlan) -> Packet {
    inside(ipv4().udp(|u| u).vxlan(|v| edit(v.gpe())))
}

fn geneve(edit: impl FnOnce(Geneve) -> Geneve) -> Packet {
    inside(ipv4().udp(|u| u).geneve(edit).ethernet(|e| e))
}

fn gue(edit: impl FnOnce(Gue) -> Gue) -> Packet {
    inside(ipv4().udp(|u| u).gue(edit))
}

fn taken(packet: &Packet, tunnel: Tunnel) {
    let taken = take(&packet.build()).unwrap();
    assert_eq!(taken.tunnel, tunnel);
    assert_eq!(taken.packet, packet.out_of_tunnel().unwrap().build());
}

fn refused(packet: &Packet, refusal: Refusal) {
    assert_eq!(take(&packet.build()).unwrap_err(), refusal);
}

// Rules: W60
#[test]
fn tunnels_have_the_names_of_ip_link() {
    taken(&inside(ipv4()), Tunnel::Ipip);
    taken(&inside(ipv6()), Tunnel::Ip4ip6);
    taken(&ipv4().ipv6(|ip| ip).udp(|u| u), Tunnel::Sit);
    taken(&ipv6().ipv6(|ip| ip).udp(|u| u), Tunnel::Ip6ip6);
    taken(&gre(|g| g), Tunnel::Gre);
    taken(&gre(|g| g.key(7).sequence(9).checksum()), Tunnel::Gre);
    taken(&vxlan(|v| v), Tunnel::Vxlan);
    taken(&gpe(|v| v), Tunnel::VxlanGpe);
    taken(&geneve(|g| g), Tunnel::Geneve);
    taken(&gue(|g| g), Tunnel::IpipGue);
    taken(&inside(ipv6().udp(|u| u).gue(|g| g)), Tunnel::Ip4ip6Gue);
    taken(&ipv4().udp(|u| u).gue(|g| g).ipv6(|ip| ip).udp(|u| u), Tunnel::SitGue);
    taken(&inside(ipv4().udp(|u| u).gue(|g| g).gre(|g| g.checksum())), Tunnel::GreGue);
    taken(&inside(ipv4().mpls(|m| m)), Tunnel::Mpls);
    taken(&inside(ipv4().gre(|g| g).mpls(|m| m)), Tunnel::Gre);
}

/// Tests rule W24: the port determines the protocol.
#[test]
fn w10_w24_the_port_selects_the_protocol_in_fou() {
    for (protocol, packet, tunnel) in [
        (4, inside(ipv4().fou(|u| u)), Tunnel::IpipFou),
        (41, ipv4().fou(|u| u).ipv6(|ip| ip).udp(|u| u), Tunnel::SitFou),
        (47, inside(ipv4().fou(|u| u).gre(|g| g)), Tunnel::GreFou),
        (137, inside(ipv4().fou(|u| u).mpls(|m| m)), Tunnel::MplsFou),
    ] {
        let rules = rules_with_fou(protocol);
        let (frame, meta) = (packet.build(), Default::default());
        let taken = take_with(&frame, &meta, LinkType::Ethernet, &rules).unwrap();
        assert_eq!(taken.tunnel, tunnel);
        assert_eq!(taken.packet, packet.out_of_tunnel().unwrap().build());
        // On a port without a protocol, the packet is an ordinary datagram.
        refused(&packet, Refusal::NoTunnel);
    }
    for protocol in [0, 6, 17, 50, 255] {
        let rules = rules_with_fou(protocol);
        let frame = inside(ipv4().fou(|u| u)).build();
        let refusal = take_with(&frame, &Default::default(), LinkType::Ethernet, &rules);
        assert!(refusal.is_err(), "{protocol}");
    }
}

#[test]
fn w20_w21_gue_flags_that_are_not_known_are_refused() {
    for bit in 1..16 {
        refused(&gue(|g| g.flags(1 << bit).options(&[0; 8])), Refusal::GueFlags);
    }
    for bit in 0..31 {
        let private = (1_u32 << bit).to_be_bytes();
        refused(&gue(|g| g.flags(1).options(&private)), Refusal::GueFlags);
    }
    refused(&gue(|g| g.control(true)), Refusal::Control);
    // The header announces private flags, but has no room for them; or remote checksum offload, but has no room for its
    // offsets.
    refused(&gue(|g| g.flags(1)), Refusal::Malformed);
    refused(&gue(|g| g.flags(1).options(&[0x80, 0, 0, 0])), Refusal::Malformed);
    refused(&gue(|g| g.protocol_raw(0)), Refusal::Protocol);
    refused(&gue(|g| g.hlen_raw(31)), Refusal::Truncated);
    // Unused space is skipped.
    taken(&gue(|g| g.options(&[1; 20])), Tunnel::IpipGue);
    taken(&gue(|g| g.flags(1).options(&[0; 12])), Tunnel::IpipGue);
}

#[test]
fn w21_a_transport_header_in_gue_is_no_packet() {
    refused(&ipv4().udp(|u| u).gue(|g| g).tcp(|t| t), Refusal::Protocol);
    refused(&ipv4().udp(|u| u).gue(|g| g).udp(|u| u), Refusal::Protocol);
    refused(&ipv4().udp(|u| u).gue(|g| g).esp(|e| e).payload(&[0; 32]), Refusal::Encrypted);
}

#[test]
fn w22_gue_variant_1_is_the_ip_packet_itself() {
    taken(&inside(ipv4().gue_direct(|u| u)), Tunnel::IpipGue);
    taken(&ipv6().gue_direct(|u| u).ipv6(|ip| ip).udp(|u| u), Tunnel::Ip6ip6Gue);
    for version in [2, 3] {
        refused(&gue(|g| g.version(version)), Refusal::Malformed);
    }
}

#[test]
fn w30_vxlan_flags_that_are_not_known_are_refused() {
    refused(&vxlan(|v| v.flags(0)), Refusal::VxlanFlags);
    for bit in (0..32).filter(|bit| ![21, 27, 31].contains(bit)) {
        refused(&vxlan(|v| v.flags(0x0800_0000 | 1 << bit)), Refusal::VxlanFlags);
    }
    refused(&vxlan(|v| v.reserved(1)), Refusal::VxlanFlags);
}

#[test]
fn w31_group_policy_and_generic_protocol() {
    taken(&vxlan(|v| v.gbp(0xffff)), Tunnel::Vxlan);
    taken(&vxlan(|v| v.flags(0x8848_1234)), Tunnel::Vxlan);
    for (flags, dont_learn) in
        [(0x8848_1234, true), (0x8808_1234, false), (0x8848_0000, true), (0x0800_0000, false)]
    {
        let details = take(&vxlan(|v| v.flags(flags)).build()).unwrap().plan.details;
        assert_eq!(details.dont_learn, dont_learn, "{flags:x}");
    }
    taken(&gpe(|v| v), Tunnel::VxlanGpe);
    taken(&inside(ipv4().udp(|u| u).vxlan(|v| v.gpe()).ethernet(|e| e)), Tunnel::VxlanGpe);
    taken(&inside(ipv4().udp(|u| u).vxlan(|v| v.gpe()).mpls(|m| m)), Tunnel::VxlanGpe);
    refused(&gpe(|v| v.flags(0x0900_0000)), Refusal::VxlanGpeFlags);
    refused(&gpe(|v| v.flags(0x1800_0000)), Refusal::VxlanGpeFlags);
    refused(&gpe(|v| v.flags(0)), Refusal::VxlanFlags);
    refused(&gpe(|v| v.flags(0x0810_0000)), Refusal::VxlanFlags);
    refused(&gpe(|v| v.reserved(9)), Refusal::VxlanFlags);
}

#[test]
fn w40_w41_geneve_options() {
    taken(&geneve(|g| g.option(0x0102, 3, &[1; 8]).option(1, 2, &[])), Tunnel::Geneve);
    taken(&geneve(|g| g.reserved_bits(0x3f).reserved(0xff)), Tunnel::Geneve);
    taken(&inside(ipv4().udp(|u| u).geneve(|g| g)), Tunnel::Geneve);
    refused(&geneve(|g| g.critical(true)), Refusal::GeneveCritical);
    refused(&geneve(|g| g.option(1, 0x80, &[])), Refusal::GeneveCritical);
    refused(&geneve(|g| g.control(true)), Refusal::Control);
    refused(&geneve(|g| g.version(1)), Refusal::Malformed);
    refused(&geneve(|g| g.protocol_raw(0x88b5)), Refusal::Protocol);
    refused(&geneve(|g| g.options_len_raw(63)), Refusal::Truncated);
    // The option has two words, but there is space for only one word.
    let overlong = geneve(|g| g.option(1, 1, &[0; 4]).options_len_raw(1));
    refused(&overlong, Refusal::GeneveOptions);
}

/// Tests that a device that only inspects other hosts' packets reports an unknown critical option instead of refusing
/// the packet, because it is not an endpoint of the tunnel.
#[test]
fn w41_accepted_critical_options_are_reported() {
    let mut rules = rules();
    rules.critical_options = true;
    for (packet, option) in [
        (
            geneve(|g| g.critical(true).option(1, 2, &[]).option(0x0102, 0x83, &[1; 4])),
            Some((0x0102, 0x83)),
        ),
        (geneve(|g| g.critical(true)), None),
        (geneve(|g| g.option(1, 2, &[])), None),
    ] {
        let taken =
            take_with(&packet.build(), &Default::default(), LinkType::Ethernet, &rules).unwrap();
        assert_eq!(taken.packet, packet.out_of_tunnel().unwrap().build());
        assert_eq!(taken.plan.details.critical_option, option);
    }
    let overlong = geneve(|g| g.option(1, 0x81, &[0; 4]).options_len_raw(1)).build();
    let refusal =
        take_with(&overlong, &Default::default(), LinkType::Ethernet, &rules).unwrap_err();
    assert_eq!(refusal, Refusal::GeneveOptions);
}

/// Tests the GRE bits that Linux ignores, although RFC 2784 section 2.3 demands refusal.
#[test]
fn w50_gre_bits() {
    for flags in [0x4000, 0x0800, 0x0400, 1, 2, 4, 7] {
        refused(&gre(|g| g.extra_flags(flags)), Refusal::GreFlags);
    }
    for flags in [0x0200, 0x0100, 0x0080, 0x0008, 0x03f8] {
        taken(&gre(|g| g.extra_flags(flags)), Tunnel::Gre);
    }
    refused(&gre(|g| g.protocol_raw(0x88b5)), Refusal::Protocol);
}

#[test]
fn w51_gre_checksum_covers_everything_behind_it() {
    taken(&gre(|g| g.checksum()), Tunnel::Gre);
    refused(&gre(|g| g.checksum().checksum_xor(1)), Refusal::GreChecksum);
    refused(&gre(|g| g.checksum().checksum_raw(0)), Refusal::GreChecksum);
    let mut frame = gre(|g| g.checksum()).build();
    *frame.last_mut().unwrap() ^= 1;
    assert_eq!(take(&frame).unwrap_err(), Refusal::GreChecksum);
}

/// Tests a web cache's header, which Linux mistakes for IP.
#[test]
fn w52_wccp_is_refused() {
    refused(&gre(|g| g.protocol_raw(0x883e)), Refusal::Protocol);
}

#[test]
fn w61_options_of_ipv6_around_a_packet_go_with_its_header() {
    let limit = ipv6().destination_options(|d| d.data(&[4, 1, 4, 1, 1, 0]));
    taken(&inside(limit), Tunnel::Ip4ip6);
    taken(&ipv6().hop_by_hop(|h| h).routing(|r| r).ipv6(|ip| ip).udp(|u| u), Tunnel::Ip6ip6);
    taken(&inside(ipv6().fragment(|f| f)), Tunnel::Ip4ip6);
}

#[test]
fn fragments_wait_for_the_whole() {
    let first = inside(ipv4()).build();
    let fragment = |offset, more, protocol| {
        let ip = |ip: grosso_testkit::headers::Ipv4| {
            ip.df(false).fragment_offset(offset).more_fragments(more).protocol(protocol)
        };
        Packet::new().ethernet(|e| e).ipv4(ip).payload(&first[34..58])
    };
    for protocol in [4, 17, 41, 47, 50, 137] {
        for (offset, more) in [(0, true), (3, true), (3, false)] {
            refused(&fragment(offset, more, protocol), Refusal::Fragment);
        }
    }
    for protocol in [1, 6, 132] {
        refused(&fragment(3, true, protocol), Refusal::NoTunnel);
    }
    let behind = ipv6().fragment(|f| f.offset(2).next_header(47)).payload(&[0; 16]);
    refused(&behind, Refusal::Fragment);
    // An inner fragment is treated like any other inner packet.
    let inner = ipv4().gre(|g| g).ipv4(|ip| ip.df(false).more_fragments(true)).payload(&[0; 24]);
    taken(&inner, Tunnel::Gre);
}

// Rules: W70
#[test]
fn what_is_no_tunnel_is_called_so() {
    refused(&ipv4().tcp(|t| t), Refusal::NoTunnel);
    refused(&ipv6().icmp(|i| i), Refusal::NoTunnel);
    refused(&ipv4().udp(|u| u).payload(b"anything"), Refusal::NoTunnel);
    refused(&ipv4().udp(|u| u.len_raw(3)), Refusal::NoTunnel);
    refused(
        &Packet::new().ethernet(|e| e.ethertype_raw(0x0806)).payload(&[0; 28]),
        Refusal::NoTunnel,
    );
    refused(&Packet::new().ethernet(|e| e).mpls(|m| m).ipv4(|ip| ip).udp(|u| u), Refusal::NoTunnel);
    // An IKE packet on the ESP port.
    refused(&ipv4().udp(|u| u.destination_port(4500)).payload(&[0; 28]), Refusal::NoTunnel);
    refused(&ipv4().udp(|u| u.destination_port(4500)).payload(&[1; 28]), Refusal::Encrypted);
    refused(&ipv4().esp(|e| e).payload(&[0; 28]), Refusal::Encrypted);
    let frame: [u8; 0] = [];
    let nothing = take_with(&frame, &Default::default(), LinkType::Ethernet, &rules());
    assert_eq!(nothing.unwrap_err(), Refusal::NoTunnel);
}

#[test]
fn lengths_agree_with_each_other() {
    let len = |packet: &Packet| packet.build().len() as u16 - 14;
    let whole = len(&vxlan(|v| v));
    let outer = |total: u16, udp: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.total_len_raw(total));
        let udp = packet.udp(|u| u.len_raw(udp).checksum_zero());
        inside(udp.vxlan(|v| v).ethernet(|e| e))
    };
    assert!(take(&outer(whole, whole - 20).build()).is_ok());
    refused(&outer(whole + 1, whole - 20), Refusal::Short);
    refused(&outer(0, whole - 20), Refusal::LengthZero);
    refused(&outer(whole, whole - 19), Refusal::Malformed);
    refused(&outer(whole, 7), Refusal::Malformed);
    refused(&outer(whole, 0), Refusal::Malformed);
    // The inner packet declares more bytes than the outer UDP header does.
    refused(&outer(whole, whole - 21), Refusal::InnerLength);
    refused(&outer(whole - 1, whole - 21), Refusal::InnerLength);
    let longer = ipv4().gre(|g| g).ipv4(|ip| ip.total_len_raw(29)).udp(|u| u.len_raw(9));
    refused(&longer, Refusal::InnerLength);
    let zero = ipv4().gre(|g| g).ipv4(|ip| ip.total_len_raw(0)).udp(|u| u);
    refused(&zero, Refusal::LengthZero);
}

/// Tests that padding after the tunnel's declared end is removed.
#[test]
fn padding_around_a_tunnel_stays_behind() {
    let small = ipv4().gre(|g| g).ipv4(|ip| ip).udp(|u| u.destination_port(9));
    let padded = small.clone().pad_to(80).trailer(b"check sequence");
    taken(&small, Tunnel::Gre);
    let expected = small.out_of_tunnel().unwrap().build();
    assert_eq!(take(&padded.build()).unwrap().packet, expected);
    // Padding of an inner Ethernet frame belongs to that frame.
    let inside = small.out_of_tunnel().unwrap().pad_to(60).build();
    let frame = ipv4().udp(|u| u).vxlan(|v| v).payload(&inside).build();
    assert_eq!(take(&frame).unwrap().packet, inside);
    // Bytes after the inner packet of IP in IP belong to no header.
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.protocol(4));
    let trailing = packet.payload(&[&expected[14..], b"more"].concat());
    assert_eq!(take(&trailing.build()).unwrap().packet, expected);
}

#[test]
fn cut_headers_are_named() {
    let frame = vxlan(|v| v).build();
    for len in 0..frame.len() {
        let refusal = take(&frame[..len]).unwrap_err();
        let expected = match len {
            0..42 => Refusal::NoTunnel,
            42..64 => Refusal::Truncated,
            _ => Refusal::Short,
        };
        assert_eq!(refusal, expected, "{len}");
    }
    let frame = inside(ipv4()).build();
    for len in 34..54 {
        assert_eq!(take(&frame[..len]).unwrap_err(), Refusal::Truncated, "{len}");
    }
}
