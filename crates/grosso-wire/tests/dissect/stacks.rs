//! Tests that the dissector finds the right headers in every header stack of the test kit, and in several handwritten
//! frames.

use grosso_testkit::stack::{Front, Network, Place, Stack as Made, Transport, Tunnel};
use grosso_wire::{Extent, Kind, LAYERS_MAX, Layer, LinkType, Ports, Stop};

use crate::common::{check, configuration, frame, stacks};

/// Returns the names of the headers in a stack, derived from its parts.
fn words(stack: &Made) -> Vec<&'static str> {
    let mut words = vec![match stack.front {
        Front::Bare => "",
        Front::Ethernet => "eth",
        Front::Vlan => "eth vlan",
        Front::DoubleVlan => "eth vlan vlan",
        Front::Pppoe => "eth pppoe",
        Front::Mpls => "eth mpls mpls",
        Front::Nsh => "eth nsh",
    }];
    for (network, tunnel) in &stack.tunnels {
        words.push(network_words(*network));
        words.push(match tunnel {
            Tunnel::Ip => "",
            Tunnel::Gre | Tunnel::GreKey | Tunnel::GreChecksum | Tunnel::GreSequence => "gre",
            Tunnel::GreEthernet => "gre eth",
            Tunnel::Vxlan | Tunnel::VxlanPolicy | Tunnel::VxlanRemote => "udp vxlan eth",
            Tunnel::VxlanVlan => "udp vxlan eth vlan",
            Tunnel::VxlanGpe => "udp gpe",
            Tunnel::VxlanGpeNsh => "udp gpe nsh eth",
            Tunnel::Geneve => "udp geneve eth",
            Tunnel::Gue | Tunnel::GueRemote => "udp gue",
            Tunnel::GueDirect | Tunnel::Fou => "udp",
            Tunnel::L2tp => "l2tp eth",
        });
    }
    words.push(network_words(stack.network));
    words.push(match stack.transport {
        Transport::Tcp | Transport::TcpTimestamps => "tcp",
        Transport::Udp => "udp",
        Transport::Icmp => "icmp",
        Transport::Esp => "esp",
        Transport::Sctp => "sctp",
    });
    words.iter().flat_map(|part| part.split_whitespace()).collect()
}

fn network_words(network: Network) -> &'static str {
    match network {
        Network::Ipv4 => "ip4",
        Network::Ipv6 => "ip6",
        Network::Ipv6Options | Network::Ipv6Routed(_) => "ip6 ext6",
        Network::Ipv6Routing | Network::Ipv6Mobile => "ip6 ext6 ext6",
    }
}

#[test]
fn every_stack_of_the_kit_is_found() {
    let mut two_tunnels = 0;
    for made in stacks() {
        let frame = frame(&made);
        let (link, ports) = configuration(&made);
        let stack = check(&frame, link, &ports);
        let words = words(&made);
        assert!(words.len() <= LAYERS_MAX, "{made:?}");
        assert_eq!(stack.to_string(), words.join(" "), "{made:?}");
        assert_eq!((stack.extent, stack.end as usize), (Extent::Exact, frame.len()), "{made:?}");
        let stop = match made.transport {
            Transport::Esp => Stop::Encrypted,
            _ => Stop::Payload,
        };
        assert_eq!(stack.stop, stop, "{made:?}");
        let header_len = made.packet(&Place::default()).header_len();
        assert_eq!(stack.header_len(), header_len, "{made:?}");
        two_tunnels += usize::from(made.tunnels.len() == 2);
    }
    assert!(two_tunnels > 1500, "{two_tunnels}");
}

/// A prefix of a frame must yield exactly the headers that it contains in full.
#[test]
fn a_prefix_shows_the_headers_that_it_holds() {
    for made in stacks() {
        let frame = frame(&made);
        let (link, ports) = configuration(&made);
        let whole = check(&frame, link, &ports);
        for len in 0..frame.len() {
            let stack = check(&frame[..len], link, &ports);
            let held = whole.layers().iter().filter(|layer| layer.end() <= len).count();
            assert_eq!(stack.layers(), &whole.layers()[..held], "{made:?}, {len} bytes");
            if held < whole.layers().len() {
                assert_eq!(stack.stop, Stop::Truncated, "{made:?}, {len} bytes");
            }
        }
    }
}

/// Tests that without configured ports, dissection ends at a UDP header, or at the IP header before an L2TPv3 session.
#[test]
fn without_ports_every_udp_header_is_the_last() {
    for made in stacks() {
        let (link, ports) = configuration(&made);
        let frame = frame(&made);
        let with = check(&frame, link, &ports);
        let without = check(&frame, link, &Ports::NONE);
        let last = |layer: &Layer| match layer.kind {
            Kind::Udp => Some(1),
            Kind::L2tp => Some(0),
            _ => None,
        };
        let found = with.layers().iter().enumerate();
        let kept = found.filter_map(|(place, layer)| Some(place + last(layer)?)).next();
        let kept = kept.unwrap_or_else(|| with.layers().len());
        assert_eq!(without.layers(), &with.layers()[..kept], "{made:?}");
    }
}

/// Parses a string of hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

#[track_caller]
fn holds(digits: &str, link: LinkType, words: &str, stop: Stop) {
    let frame = hex(digits);
    let stack = check(&frame, link, &Ports::ASSIGNED);
    assert_eq!((stack.to_string().as_str(), stack.stop), (words, stop));
    assert_eq!(stack.extent, Extent::Exact);
}

const IP4_TCP: &str = "45000028 00010000 40060000 c0000201 c0000202
    05dc1f40 00000064 00000064 50102000 00000000";
const IP6_UDP: &str = "60000000 00081140 20010db8000000000000000000000001
    20010db8000000000000000000000002 05dc1f40 00080000";

#[test]
fn link_types_written_by_hand() {
    use LinkType::{Ethernet, LinuxSll, LinuxSll2, Null, Raw};
    let cases = [
        (Ethernet, "020000000001 020000000002 0800", IP4_TCP, "eth ip4 tcp"),
        (Ethernet, "020000000001 020000000002 86dd", IP6_UDP, "eth ip6 udp"),
        (
            Ethernet,
            "020000000001 020000000002 88a8 0064 9100 0007 0800",
            IP4_TCP,
            "eth vlan vlan ip4 tcp",
        ),
        (
            Ethernet,
            "020000000001 020000000002 8864 11000001 002a0021",
            IP4_TCP,
            "eth pppoe ip4 tcp",
        ),
        (
            Ethernet,
            "020000000001 020000000002 8864 11000001 00320057",
            IP6_UDP,
            "eth pppoe ip6 udp",
        ),
        (
            Ethernet,
            "020000000001 020000000002 8847 00064040 000c8140",
            IP6_UDP,
            "eth mpls mpls ip6 udp",
        ),
        (Ethernet, "020000000001 020000000002 8848 000c8140", IP4_TCP, "eth mpls ip4 tcp"),
        (Raw, "", IP4_TCP, "ip4 tcp"),
        (Raw, "", IP6_UDP, "ip6 udp"),
        (Null, "02000000", IP4_TCP, "null ip4 tcp"),
        (Null, "00000002", IP4_TCP, "null ip4 tcp"),
        (Null, "0a000000", IP6_UDP, "null ip6 udp"),
        (Null, "00000018", IP6_UDP, "null ip6 udp"),
        (Null, "1c000000", IP6_UDP, "null ip6 udp"),
        (Null, "1e000000", IP6_UDP, "null ip6 udp"),
        (LinuxSll, "0000 0001 0006 0200000000020000 0800", IP4_TCP, "sll ip4 tcp"),
        (LinuxSll2, "86dd 0000 00000003 0001 00 06 0200000000020000", IP6_UDP, "sll2 ip6 udp"),
    ];
    for (link, front, rest, words) in cases {
        holds(&format!("{front}{rest}"), link, words, Stop::Payload);
    }
    holds("00000007 45", Null, "null", Stop::Unknown);
    holds("020000000001 020000000002 0806 0001", Ethernet, "eth", Stop::Unknown);
    holds("55", Raw, "", Stop::Unknown);
    holds("", Raw, "", Stop::Truncated);
}

/// Frames as sent by a device created with `ip link add type vxlan`: the first has an inner ARP request, the second an
/// inner ICMP echo.
#[test]
fn vxlan_written_by_hand() {
    let outer = |ip_len: &str, udp_len: &str| {
        format!(
            "020000000001 020000000002 0800
            4500{ip_len} 00010000 40110000 0a000001 0a000002
            c00012b5 {udp_len}0000 08000000 00002a00"
        )
    };
    let arp = "ffffffffffff 020000000003 0806 0001080006040001";
    let frame = format!("{}{arp}", outer("003a", "0026"));
    holds(&frame, LinkType::Ethernet, "eth ip4 udp vxlan eth", Stop::Unknown);
    let echo = "020000000004 020000000003 0800
        4500001c 00010000 40010000 0a000001 0a000002 0800f7fd 00010001";
    let frame = format!("{}{echo}", outer("004e", "003a"));
    holds(&frame, LinkType::Ethernet, "eth ip4 udp vxlan eth ip4 icmp", Stop::Payload);
}
