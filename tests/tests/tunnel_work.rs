//! The work of taking tunnels off and putting them on, in instructions as valgrind counts them: what nobody can make it
//! do.
//!
//! However many tunnels are stacked in a packet, no more of its headers are looked at than a dissection holds.

use std::hint::black_box;

use grosso::{
    Meta,
    tunnel::{
        Carrier, Endpoint, Header,
        decapsulate::{Decapsulation, Presented, Rules},
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_testkit::Packet;
use grosso_tests::{instructions, kernel::skip};
use grosso_wire::{LinkType, Ports, Stack, Stop, dissect, dissect_into};

/// Adds a tunnel to a packet.
type Level = fn(Packet) -> Packet;

/// IP in IP, and VXLAN, without checksums over the payload: those cost a loop over its bytes.
const LEVELS: [Level; 2] = [
    |packet| packet.ipv4(|ip| ip.protocol(4)),
    |packet| {
        let packet = packet.ipv4(|ip| ip).udp(|u| u.checksum_zero()).vxlan(|v| v);
        packet.ethernet(|e| e.ethertype_raw(0x0800))
    },
];

/// How many tunnels are stacked in the packets of each case: as many as are looked at, more, and very many. The last
/// ones are the longest that a packet of 64 KB can hold.
const CASES: &[(usize, usize)] = &[(0, 20), (0, 100), (0, 3000), (1, 20), (1, 100), (1, 1000)];

/// Packets whose work counts in each case.
const COUNT: u64 = 200;

#[test]
fn p45_a_bomb_of_tunnels_costs_what_the_headers_looked_at_cost() {
    if let Some(case) = instructions::case() {
        return measured(&bomb(CASES[case]));
    }
    let count = |case| -> Result<f64, String> {
        let test = "p45_a_bomb_of_tunnels_costs_what_the_headers_looked_at_cost";
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

/// What callgrind counts: a tunnel is taken off, and another put on.
#[inline(never)]
fn measured(frame: &[u8]) {
    let mut stack = Stack::new(0);
    let address = [192, 0, 2, 1].into();
    let endpoint = Endpoint::new(address, address, Header::Ip, Carrier::Ip);
    let mut encapsulator = Encapsulator::new(endpoint, 1).expect("an endpoint");
    let meta = Meta::default();
    let mut rules = Rules::default();
    rules.presented = Presented::Alone;
    for _ in 0..COUNT {
        dissect_into(frame, LinkType::Raw, &Ports::ASSIGNED, &mut stack);
        let plan = Decapsulation::plan(frame, &stack, &meta, LinkType::Raw, &rules);
        assert!(black_box(plan).is_ok());
        let put_in = encapsulator.encapsulate(&[frame], &meta, LinkType::Raw);
        black_box(put_in.is_ok());
    }
    // Not the last thing, so that the call above returns to here.
    black_box(encapsulator.stats());
}

fn bomb((kind, tunnels): (usize, usize)) -> Vec<u8> {
    let inside = Packet::new().ipv4(|ip| ip).udp(|u| u).payload_len(20).build();
    (0..tunnels).fold(inside, |inside, _| LEVELS[kind](Packet::new()).payload(&inside).build())
}

/// The outermost tunnel comes off, and the next one, and nothing is put around so many headers.
#[test]
fn p45_a_bomb_comes_apart_one_tunnel_at_a_time_and_takes_no_other() {
    for case in [(0, 20), (0, 3000), (1, 20), (1, 1000)] {
        let mut frame = bomb(case);
        let mut rules = Rules::default();
        rules.presented = Presented::Alone;
        let address = [192, 0, 2, 1].into();
        let endpoint = Endpoint::new(address, address, Header::Ip, Carrier::Ip);
        let mut encapsulator = Encapsulator::new(endpoint, 1).unwrap();
        let mut link = LinkType::Raw;
        for taken in 0..case.1 {
            let stack = dissect(&frame, link, &rules.ports);
            let put_in = encapsulator.encapsulate(&[&frame], &Meta::default(), link);
            // Five IP headers are as many as can be cut.
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
