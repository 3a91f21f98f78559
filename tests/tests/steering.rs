//! Tests queue selection with the hash that devices use: both directions of a flow get the same queue, and many flows
//! are distributed evenly.

use grosso::{
    Meta,
    steering::{QUEUES_MAX, Steering, symmetric_hash},
};
use grosso_rig::engine::PORTS;
use grosso_testkit::{Packet, Traffic};
use grosso_wire::{LinkType, dissect};
use proptest::prelude::*;

/// Computes the Toeplitz hash by its definition: the exclusive or of one 32-bit part of the key for each bit that is
/// set in the input. Each part starts at the same position in the key as the bit in the input.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes[at / 8 % bytes.len()] >> (7 - at % 8) & 1;
    let window =
        |at| (0..32).fold(0_u32, |window, next| window << 1 | u32::from(bit(key, at + next)));
    let set = (0..input.len() * 8).filter(|&at| bit(input, at) == 1);
    set.fold(0, |hash, at| hash ^ window(at))
}

fn hash(packet: &[u8]) -> u32 {
    symmetric_hash(packet, &dissect(packet, LinkType::Ethernet, &PORTS))
}

fn link() -> Packet {
    Packet::new().ethernet(|e| e)
}

/// Tests the definition against the verification suite that Microsoft publishes for receive side scaling.
#[test]
fn the_definition_is_the_one_that_devices_are_verified_with() {
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    for (source, destination, ports, addresses_alone, with_ports) in [
        ([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766], 0x323e_8fc2, 0x51cc_c178),
        ([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739], 0xd718_262a, 0xc626_b0ea),
        ([24, 19, 198, 95], [12, 22, 207, 184], [12898, 38024], 0xd2d0_a5de, 0x5c2b_394a),
    ] {
        let addresses: Vec<u8> = [source, destination].concat();
        assert_eq!(toeplitz(&KEY, &addresses), addresses_alone);
        let ports = ports.map(u16::to_be_bytes).concat();
        assert_eq!(toeplitz(&KEY, &[addresses, ports].concat()), with_ports);
    }
}

proptest! {
    #[test]
    fn the_hash_is_that_of_a_device_whose_key_repeats(
        from: [u8; 4], to: [u8; 4], from6: [u8; 16], to6: [u8; 16], ports: [u16; 2]
    ) {
        let key = [0x6d, 0x5a];
        let said = |addresses: &[u8]| toeplitz(&key, &[addresses, &ports.map(u16::to_be_bytes).concat()].concat());
        let ip4 = link().ipv4(|ip| ip.source(from).destination(to));
        let udp = ip4.udp(|udp| udp.source_port(ports[0]).destination_port(ports[1])).build();
        // If the port belongs to a tunnel, the hash is computed from the inner packet, if there is one.
        prop_assume!(dissect(&udp, LinkType::Ethernet, &PORTS).layers().len() == 3);
        prop_assert_eq!(hash(&udp), said(&[from, to].concat()));
        let ip6 = link().ipv6(|ip| ip.source(from6).destination(to6));
        let tcp = ip6.tcp(|tcp| tcp.source_port(ports[0]).destination_port(ports[1])).build();
        prop_assert_eq!(hash(&tcp), said(&[from6, to6].concat()));
        let back = link().ipv6(|ip| ip.source(to6).destination(from6));
        let back = back.tcp(|tcp| tcp.source_port(ports[1]).destination_port(ports[0])).build();
        prop_assert_eq!(hash(&back), hash(&tcp));
    }

    #[test]
    fn any_bytes_have_a_queue(seed: u64, queues in 0..300_usize, cut in 0..200_usize) {
        let steering = Steering::new(queues);
        for packet in Traffic::new(seed).take(4) {
            let packet = &packet[..packet.len().min(cut)];
            let stack = dissect(packet, LinkType::Ethernet, &PORTS);
            let queue = steering.queue(packet, &stack, &Meta::default());
            prop_assert!(queue < queues.clamp(1, QUEUES_MAX));
        }
    }
}

#[test]
fn what_is_inside_a_tunnel_counts_whatever_port_is_around_it() {
    let inner =
        |outer: Packet| outer.ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp.source_port(7)).build();
    let around = |port| link().ipv4(|ip| ip).udp(|udp| udp.source_port(port)).vxlan(|v| v);
    assert_eq!(hash(&inner(around(1000))), hash(&inner(around(2000))));
    assert_eq!(hash(&inner(around(1000))), hash(&inner(link().ipv4(|ip| ip).gre(|gre| gre))));
}

#[test]
fn all_fragments_of_a_datagram_have_one_queue() {
    let fragment = |field: u16| {
        let mut packet = link().ipv4(|ip| ip).udp(|udp| udp).payload_len(64).build();
        packet[20..22].copy_from_slice(&field.to_be_bytes());
        hash(&packet)
    };
    let addresses = hash(&link().ipv4(|ip| ip.protocol(200)).payload_len(9).build());
    for field in [0x2000, 0x2001, 0x0001] {
        assert_eq!(fragment(field), addresses, "{field:#x}");
    }
    assert_ne!(fragment(0), addresses);
}

#[test]
fn the_device_s_hash_takes_precedence() {
    let packet = link().ipv4(|ip| ip).tcp(|tcp| tcp).build();
    let stack = dissect(&packet, LinkType::Ethernet, &PORTS);
    for (hash, queue) in [(0, 0), (5, 2), (127, 1), (128 + 5, 2)] {
        let meta = Meta { hash: Some(hash), ..Meta::default() };
        assert_eq!(Steering::new(3).queue(&packet, &stack, &meta), queue);
    }
}

#[test]
fn connections_spread_over_queues() {
    for queues in [2, 4, 8, 16] {
        let mut counts = vec![0_usize; queues];
        for port in 0..4096 {
            let packet = link().ipv4(|ip| ip).tcp(|tcp| tcp.source_port(32768 + port)).build();
            let stack = dissect(&packet, LinkType::Ethernet, &PORTS);
            counts[Steering::new(queues).queue(&packet, &stack, &Meta::default())] += 1;
        }
        let fair = 4096 / queues;
        assert!(counts.iter().all(|&count| count > fair / 2 && count < fair * 2), "{counts:?}");
    }
}
