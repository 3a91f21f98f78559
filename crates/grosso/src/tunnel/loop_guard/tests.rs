use core::net::{Ipv4Addr, Ipv6Addr};

use grosso_testkit::Packet;

use super::*;
use crate::{
    Meta,
    tunnel::{RemoteChecksumUse, Udp, encapsulate::Encapsulator},
};

const LOCAL: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
const REMOTE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];
const THIRD: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3)),
];

fn udp(destination: u16) -> Udp {
    Udp {
        source: 49152..=65535,
        destination,
        checksum: true,
        ipv6_without_checksum: false,
        remote_checksum: RemoteChecksumUse::default(),
    }
}

/// Returns an endpoint of every tunnel type over this IP version.
fn endpoints(family: usize) -> Vec<Endpoint> {
    let gre = |ethernet| Header::Gre { key: None, checksum: false, sequence: false, ethernet };
    let vxlan = |generic_protocol| Header::Vxlan { identifier: 7, policy: None, generic_protocol };
    let geneve = Header::Geneve { identifier: 7, options: Vec::new(), inherit_protocol: false };
    let mut all: Vec<_> = [
        (vxlan(false), Carrier::Udp(udp(4789))),
        (vxlan(true), Carrier::Udp(udp(4790))),
        (geneve, Carrier::Udp(udp(6081))),
        (gre(false), Carrier::Ip),
        (gre(true), Carrier::Ip),
        (gre(false), Carrier::Udp(udp(5555))),
        (gre(true), Carrier::Gue(udp(6080))),
        (Header::Ip, Carrier::Ip),
        (Header::Ip, Carrier::Udp(udp(5555))),
        (Header::Ip, Carrier::Gue(udp(6080))),
        (Header::Ip, Carrier::DirectGue(udp(6080))),
    ]
    .into_iter()
    .map(|(header, carrier)| Endpoint::new(LOCAL[family], REMOTE[family], header, carrier))
    .collect();
    if family == 1 {
        let mut limited = Endpoint::new(LOCAL[1], REMOTE[1], Header::Ip, Carrier::Ip);
        limited.encapsulation_limit = Some(4);
        all.push(limited);
    }
    all
}

/// Returns an endpoint's outer packet around an IPv4 or IPv6 datagram. The packet starts with its IP header.
fn outer(endpoint: &Endpoint, is_ipv4: bool) -> Vec<u8> {
    let link = if endpoint.carries_ethernet() { LinkType::Ethernet } else { LinkType::Raw };
    let packet = match link {
        LinkType::Ethernet => Packet::new().ethernet(|e| e),
        _ => Packet::new(),
    };
    let packet = if is_ipv4 { packet.ipv4(|ip| ip) } else { packet.ipv6(|ip| ip) };
    let packet = packet.udp(|udp| udp).payload_len(1300).build();
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
    let put_in = encapsulator.encapsulate(&[&packet], &Meta::default(), link).unwrap();
    [put_in.header, &packet[put_in.replaced..]].concat()
}

/// Splits a packet after `cut` payload bytes and returns its two fragments.
fn fragments(packet: &[u8], identification: u32, cut: usize) -> [Vec<u8>; 2] {
    assert!(cut.is_multiple_of(8));
    if packet[0] >> 4 == 4 {
        let (header, payload) = packet.split_at(20);
        let fragment = |word: u16, part: &[u8]| {
            let mut header = header.to_vec();
            header[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
            header[6..8].copy_from_slice(&word.to_be_bytes());
            [&header[..], part].concat()
        };
        return [
            fragment(ipv4::MORE_FRAGMENTS, &payload[..cut]),
            fragment((cut / 8) as u16, &payload[cut..]),
        ];
    }
    let (header, payload) = packet.split_at(40);
    let fragment = |word: u16, part: &[u8]| {
        let mut header = header.to_vec();
        let protocol = core::mem::replace(&mut header[6], ipv6::NEXT_FRAGMENT);
        let word = word.to_be_bytes();
        let number = identification.to_be_bytes();
        [&header[..], &[protocol, 0], &word, &number, part].concat()
    };
    [fragment(1, &payload[..cut]), fragment(cut as u16, &payload[cut..])]
}

/// Returns a frame that contains the packet after `tags` VLAN tags.
fn framed(packet: &[u8], tags: usize) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&[2; 12][..], &[0x81, 0, 0, 5].repeat(tags), &ethertype, packet].concat()
}

#[test]
fn outer_packets_of_every_type_are_recognised_whole_and_in_fragments() {
    for (family, is_ipv4) in [(0, true), (0, false), (1, true), (1, false)] {
        for endpoint in endpoints(family) {
            let mut guard = LoopGuard::new(&endpoint, [THIRD[family]]);
            let packet = outer(&endpoint, is_ipv4);
            assert!(guard.is_own(&packet, LinkType::Raw, 0), "{endpoint:?}");
            for tags in 0..4 {
                assert!(guard.is_own(&framed(&packet, tags), LinkType::Ethernet, 0), "{tags}");
            }
            let mut to_third = endpoint.clone();
            to_third.remote = THIRD[family];
            assert!(guard.is_own(&outer(&to_third, is_ipv4), LinkType::Raw, 0), "{to_third:?}");

            let [first, later] = fragments(&packet, 0x1234, 800);
            assert!(
                !guard.is_own(&later, LinkType::Raw, 0),
                "the first fragment has not been seen yet"
            );
            assert!(guard.is_own(&first, LinkType::Raw, 0), "{endpoint:?}");
            assert!(guard.is_own(&later, LinkType::Raw, FRAGMENT_AGE_NS), "{endpoint:?}");
            assert!(!guard.is_own(&later, LinkType::Raw, FRAGMENT_AGE_NS + 1), "too late");
            let [_, other] = fragments(&packet, 0x1235, 800);
            assert!(!guard.is_own(&other, LinkType::Raw, 0), "another packet");
        }
    }
}

#[test]
fn packets_of_hosts_with_the_addresses_of_the_endpoints_are_not_own() {
    for family in [0, 1] {
        for endpoint in endpoints(family) {
            let mut guard = LoopGuard::new(&endpoint, []);
            let ip = |local: IpAddr, remote: IpAddr| match (local, remote) {
                (IpAddr::V4(local), IpAddr::V4(remote)) => Packet::new()
                    .ipv4(|ip| ip.df(false).source(local.octets()).destination(remote.octets())),
                (IpAddr::V6(local), IpAddr::V6(remote)) => {
                    Packet::new().ipv6(|ip| ip.source(local.octets()).destination(remote.octets()))
                }
                _ => unreachable!("local and remote address have the same family"),
            };
            let inner = ip(LOCAL[family], REMOTE[family]);
            let stream = inner.clone().tcp(|tcp| tcp).payload_len(900).build();
            let datagram = inner.udp(|udp| udp.destination_port(53)).payload_len(900).build();
            for packet in [&stream, &datagram] {
                assert!(!guard.is_own(packet, LinkType::Raw, 0), "{endpoint:?}");
                assert!(!guard.is_own(&framed(packet, 1), LinkType::Ethernet, 0), "{endpoint:?}");
                for fragment in fragments(packet, 9, 400) {
                    assert!(!guard.is_own(&fragment, LinkType::Raw, 0), "{endpoint:?}");
                }
            }
            // Packets with the same protocol and port, but in the other direction or between other hosts, are not
            // recognized.
            for (local, remote) in [(REMOTE, LOCAL), (LOCAL, THIRD), (THIRD, REMOTE)] {
                let mut other = endpoint.clone();
                (other.local, other.remote) = (local[family], remote[family]);
                assert!(!guard.is_own(&outer(&other, true), LinkType::Raw, 0), "{other:?}");
            }
        }
    }
}

#[test]
fn the_memory_for_first_fragments_is_bounded() {
    let endpoint = endpoints(0).remove(0);
    let mut guard = LoopGuard::new(&endpoint, []);
    let room = guard.fragments.capacity();
    let packet = outer(&endpoint, true);
    let count = FRAGMENTS_MAX as u32 + 10;
    for number in 0..count {
        let [first, _] = fragments(&packet, number, 800);
        assert!(guard.is_own(&first, LinkType::Raw, 0));
    }
    assert_eq!((guard.fragments.len(), guard.fragments.capacity()), (FRAGMENTS_MAX, room));
    for number in 0..count {
        let [_, later] = fragments(&packet, number, 800);
        assert_eq!(guard.is_own(&later, LinkType::Raw, 0), number >= 10, "{number}");
    }
}

#[test]
fn packets_that_are_cut_off_are_not_own_and_do_no_harm() {
    for family in [0, 1] {
        for endpoint in endpoints(family) {
            let mut guard = LoopGuard::new(&endpoint, []);
            let whole = outer(&endpoint, true);
            let [first, later] = fragments(&whole, 1, 800);
            for packet in [&whole, &first, &later] {
                for len in 0..packet.len().min(80) {
                    for frame in [packet[..len].to_vec(), framed(packet, 2)[..len].to_vec()] {
                        for link in [LinkType::Raw, LinkType::Ethernet, LinkType::LinuxSll] {
                            guard.is_own(&frame, link, 0);
                        }
                    }
                }
            }
            assert!(!guard.is_own(&[], LinkType::Raw, 0));
            assert!(!guard.is_own(&[0; 64], LinkType::Ethernet, 0));
        }
    }
}

#[cfg(feature = "esp")]
#[test]
fn encrypted_packets_are_recognised_by_their_spi() {
    use alloc::vec;

    use crate::tunnel::esp::{Encryptor, KeyMaterial, UdpPorts};

    let tunnel = EspMode::Tunnel(Outer::V4 {
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(192, 0, 2, 2),
    });
    let frame = Packet::new().ipv4(|ip| ip).udp(|udp| udp).payload_len(900).build();
    let association = |mode, spi, udp_ports| {
        let key = KeyMaterial::aes_gcm(&[7; 20]).unwrap();
        SecurityAssociation { udp_ports, ..SecurityAssociation::new(spi, mode, key) }
    };
    assert!(LoopGuard::of_esp(&association(EspMode::Transport, 0x1000, None)).is_none());
    for udp_ports in [None, Some(UdpPorts::ASSIGNED)] {
        let encrypted = |spi| {
            let mut out = vec![0; 1400];
            let mut encryptor = Encryptor::new(association(tunnel, spi, udp_ports), 1).unwrap();
            let meta = Meta::default();
            let done = encryptor.encrypt(&frame, &meta, LinkType::Raw, &mut out).unwrap();
            out.truncate(done.len);
            out
        };
        let guard = LoopGuard::of_esp(&association(tunnel, 0x1000, udp_ports));
        let mut guard = guard.unwrap();
        assert!(guard.is_own(&encrypted(0x1000), LinkType::Raw, 0), "{udp_ports:?}");
        assert!(!guard.is_own(&encrypted(0x1001), LinkType::Raw, 0), "{udp_ports:?}");
        assert!(!guard.is_own(&frame, LinkType::Raw, 0));
        for fragment in fragments(&encrypted(0x1000), 77, 400) {
            assert!(guard.is_own(&fragment, LinkType::Raw, 0), "{udp_ports:?}");
        }
    }
}
