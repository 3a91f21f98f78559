//! Tests that decapsulation and encapsulation never exceed a fixed number of instructions per packet, whatever the
//! input. Valgrind counts the instructions.
//!
//! Regardless of its number of tunnels, a packet never costs more than a packet with the maximum number of headers that
//! a dissection parses. Remote checksum offload does not make any other header more expensive.

use std::hint::black_box;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    segment::{HEADER_BYTES_MAX, Outgoing, Segments},
    tunnel::{
        Carrier, Endpoint, Header, RemoteChecksumUse, Udp,
        decapsulate::{Decapsulation, DecapsulationRules, Presented},
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_rig::{instructions, kernel::skip};
use grosso_testkit::Packet;
use grosso_wire::{LinkType, Ports, Stack, Stop, dissect, dissect_into};

/// A function that adds a tunnel to a packet.
type Level = fn(Packet) -> Packet;

/// Kinds of tunnels: IP in IP and VXLAN. Neither has a checksum over the payload, which would require a loop over all
/// bytes.
const LEVELS: [Level; 2] = [
    |packet| packet.ipv4(|ip| ip.protocol(4)),
    |packet| {
        let packet = packet.ipv4(|ip| ip).udp(|u| u.checksum_zero()).vxlan(|v| v);
        packet.ethernet(|e| e.ethertype_raw(0x0800))
    },
];

/// The kind of tunnel and the number of levels in each case: as many as are parsed, more, and a very large number. The
/// last case of each kind is the longest that fits into a 64 KB packet.
const CASES: &[(usize, usize)] = &[(0, 20), (0, 100), (0, 3000), (1, 20), (1, 100), (1, 1000)];

/// Number of packets counted in each case.
const COUNT: u64 = 200;

#[test]
fn p45_a_bomb_of_tunnels_costs_what_the_headers_looked_at_cost() {
    if let Some(case) = instructions::case() {
        return measured(&bomb(CASES[case]));
    }
    let count = |case| -> Result<f64, String> {
        let test = "tunnel_work::p45_a_bomb_of_tunnels_costs_what_the_headers_looked_at_cost";
        let counted = instructions::count(test, case)? / COUNT as f64;
        println!("{:>5} tunnels {counted:>8.0} instructions a packet", CASES[case].1);
        Ok(counted)
    };
    let counts: Result<Vec<f64>, String> = (0..CASES.len()).map(count).collect();
    let counts = match counts {
        Ok(counts) => counts,
        Err(why) => return skip(&why),
    };
    for (case, (counted, first)) in counts.iter().zip([0, 0, 0, 3, 3, 3]).enumerate() {
        let times = counted / counts[first];
        assert!(times < 1.1, "{} tunnels: {times:.2} times {}", CASES[case].1, CASES[first].1);
    }
}

/// Removes one tunnel and adds another. Callgrind counts the instructions in this function.
#[inline(never)]
fn measured(frame: &[u8]) {
    let mut stack = Stack::new(0);
    let address = [192, 0, 2, 1].into();
    let endpoint = Endpoint::new(address, address, Header::Ip, Carrier::Ip);
    let mut encapsulator = Encapsulator::new(endpoint, 1).expect("an endpoint");
    let meta = Meta::default();
    let mut rules = DecapsulationRules::default();
    rules.presented = Presented::Alone;
    for _ in 0..COUNT {
        dissect_into(frame, LinkType::Raw, &Ports::ASSIGNED, &mut stack);
        let plan = Decapsulation::plan(frame, &stack, &meta, LinkType::Raw, &rules);
        assert!(black_box(plan).is_ok());
        let put_in = encapsulator.encapsulate(&[frame], &meta, LinkType::Raw);
        black_box(put_in.is_ok());
    }
    // Prevents a tail call, so that the call above returns to this function.
    black_box(encapsulator.stats());
}

/// Tunnels whose headers support remote checksum offload.
const REMOTE: [&str; 2] = ["IPIP/GUE", "VXLAN"];

/// Number of packets in a superframe.
const PACKETS: usize = 45;
/// Number of payload bytes in each packet: so few that summing them costs almost nothing.
const PACKET_BYTES: u16 = 8;

#[test]
fn c52_a_checksum_that_is_left_to_the_receiver_makes_no_other_header_dearer() {
    if let Some(case) = instructions::case() {
        let (superframe, meta) = superframe(case / 2);
        return measured_superframe(encapsulator(case / 2, case % 2 == 1), &superframe, &meta);
    }
    let count = |case| -> Result<f64, String> {
        let test =
            "tunnel_work::c52_a_checksum_that_is_left_to_the_receiver_makes_no_other_header_dearer";
        Ok(instructions::count(test, case)? / (COUNT * PACKETS as u64) as f64)
    };
    for (tunnel, name) in REMOTE.into_iter().enumerate() {
        let [made, left] = [count(tunnel * 2), count(tunnel * 2 + 1)];
        let (made, left) = match made.and_then(|made| Ok((made, left?))) {
            Ok(counts) => counts,
            Err(why) => return skip(&why),
        };
        println!("{name:<9}{made:>6.0} instructions a packet, {left:>6.0} with it");
        assert!(left <= made, "{name}: {left:.0} instructions a packet, {made:.0} without");
    }
}

/// Encapsulates a superframe and writes its packets' headers, except for the outer UDP checksum, which is left to the
/// socket. Callgrind counts the instructions in this function.
#[inline(never)]
fn measured_superframe(mut encapsulator: Encapsulator, superframe: &[u8], meta: &Meta) {
    let (mut frame, mut header, mut packets) = (Vec::new(), [0; HEADER_BYTES_MAX], 0);
    let is_ethernet = encapsulator.endpoint().carries_ethernet();
    let link = if is_ethernet { LinkType::Ethernet } else { LinkType::Raw };
    for _ in 0..COUNT {
        let put_in = encapsulator
            .encapsulate(&[superframe], meta, link)
            .expect("the packet may be encapsulated");
        frame.clear();
        frame.extend_from_slice(put_in.header);
        frame.extend_from_slice(&superframe[put_in.replaced..]);
        frame[26..28].fill(0);
        let slices = [&frame[..]];
        let (ports, outgoing) = (Ports::ASSIGNED, Outgoing::COMPLETE);
        let cut = Segments::new(&slices, &put_in.meta, LinkType::Raw, &ports, outgoing);
        let mut cut = cut.expect("the packet is a tunnel packet");
        while let Ok(Some(_)) = cut.scatter_next(&mut header, |slice| _ = black_box(slice)) {
            packets += 1;
        }
    }
    assert_eq!(packets, COUNT * PACKETS as u64);
}

/// Returns a superframe for the tunnel with this number.
fn superframe(tunnel: usize) -> (Vec<u8>, Meta) {
    let packet = if tunnel == 0 { Packet::new() } else { Packet::new().ethernet(|e| e) };
    let packet = packet.ipv4(|ip| ip).tcp(|tcp| tcp);
    let (frame, start, offset) =
        packet.payload_len(PACKETS * usize::from(PACKET_BYTES)).build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    (frame, Meta { checksum, gso: Gso::every(PACKET_BYTES), ..Meta::default() })
}

fn encapsulator(tunnel: usize, remote_checksum: bool) -> Encapsulator {
    let address = [192, 0, 2, 1].into();
    let (transmit, receive) = (remote_checksum, remote_checksum);
    let udp = Udp {
        source: 49152..=65535,
        destination: if tunnel == 0 { 6080 } else { 4789 },
        checksum: true,
        ipv6_without_checksum: false,
        remote_checksum: RemoteChecksumUse { transmit, receive, complete: false },
    };
    let vxlan = Header::Vxlan { identifier: 42, policy: None, generic_protocol: false };
    let endpoint = match tunnel {
        0 => Endpoint::new(address, address, Header::Ip, Carrier::Gue(udp)),
        _ => Endpoint::new(address, address, vxlan, Carrier::Udp(udp)),
    };
    Encapsulator::new(endpoint, 1).expect("an endpoint")
}

fn bomb((kind, tunnels): (usize, usize)) -> Vec<u8> {
    let inside = Packet::new().ipv4(|ip| ip).udp(|u| u).payload_len(20).build();
    (0..tunnels).fold(inside, |inside, _| LEVELS[kind](Packet::new()).payload(&inside).build())
}

/// Tests that the tunnels are removed one by one from the outside, and that no tunnel can be added while too many
/// remain.
#[test]
fn p45_a_bomb_comes_apart_one_tunnel_at_a_time_and_takes_no_other() {
    for case in [(0, 20), (0, 3000), (1, 20), (1, 1000)] {
        let mut frame = bomb(case);
        let mut rules = DecapsulationRules::default();
        rules.presented = Presented::Alone;
        let address = [192, 0, 2, 1].into();
        let endpoint = Endpoint::new(address, address, Header::Ip, Carrier::Ip);
        let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
        let mut link = LinkType::Raw;
        for taken in 0..case.1 {
            let stack = dissect(&frame, link, &rules.ports);
            let put_in = encapsulator.encapsulate(&[&frame], &Meta::default(), link);
            // Segmentation supports at most five IP headers.
            let left = case.1 - taken;
            let refusal = put_in.err();
            assert_eq!(refusal, (left >= 4).then_some(Refusal::TooDeep), "{left} left");
            let plan = Decapsulation::plan(&frame, &stack, &Meta::default(), link, &rules);
            frame = frame[plan.unwrap().inner()].to_vec();
            link = if case.0 == 0 { LinkType::Raw } else { LinkType::Ethernet };
        }
        assert_eq!(dissect(&frame, link, &rules.ports).stop, Stop::Payload);
    }
}
