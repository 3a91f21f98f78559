use grosso_testkit::Packet;
use std::{collections::VecDeque, vec::Vec};

use super::*;

/// Returns a packet of flow `flow`.
fn packet(flow: u16) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    packet.udp(|udp| udp.source_port(1000 + flow).destination_port(9)).build()
}

fn share() -> FairShare {
    FairShare::new(LinkType::Ethernet, Ports::ASSIGNED, 7)
}

/// Returns, for each frame of these flows, whether it is dropped when at most `keep` frames may remain.
fn shed(flows: &[u16], keep: usize) -> Vec<bool> {
    let mut fair = share();
    flows.iter().for_each(|flow| fair.join(&packet(*flow)));
    fair.shed(keep, 0);
    flows.iter().map(|_| fair.leave()).collect()
}

#[test]
fn flows_below_an_equal_share_keep_all_and_the_rest_is_divided() {
    let flows = [1, 1, 2, 1, 2, 3, 1, 1, 2, 1];
    let kept = |keep| {
        let shed = shed(&flows, keep);
        let count =
            |flow| flows.iter().zip(&shed).filter(|(f, shed)| **f == flow && !**shed).count();
        (count(1), count(2), count(3))
    };
    assert_eq!(kept(10), (6, 3, 1));
    assert_eq!(kept(8), (4, 3, 1));
    assert_eq!(kept(5), (2, 2, 1));
    assert_eq!(kept(3), (1, 1, 1));
    assert_eq!(kept(1), (1, 1, 1), "every flow keeps one frame");
}

#[test]
fn the_oldest_frames_of_a_flow_are_dropped() {
    assert_eq!(shed(&[1, 1, 2, 1, 1], 3), [true, true, false, false, false]);
}

#[test]
fn a_flow_that_is_alone_loses_nothing_until_another_was_seen() {
    assert_eq!(shed(&[1; 20], 5), [false; 20]);
    let mut fair = share();
    let dropped_of_twenty = |fair: &mut FairShare, now_ns| {
        (0..20).for_each(|_| fair.join(&packet(1)));
        fair.shed(5, now_ns);
        (0..fair.len()).filter(|_| fair.leave()).count()
    };
    assert_eq!(dropped_of_twenty(&mut fair, 0), 0);
    (0..20).for_each(|at| fair.join(&packet(at % 2)));
    fair.shed(5, 0);
    while !fair.is_empty() {
        fair.leave();
    }
    assert_eq!(dropped_of_twenty(&mut fair, SHARED_NS - 1), 15, "the second flow may send again");
    assert_eq!(dropped_of_twenty(&mut fair, SHARED_NS), 0);
}

#[test]
fn frames_that_leave_and_join_again_are_counted_once() {
    let mut fair = share();
    // Miri is several hundred times slower.
    for round in 0..if cfg!(miri) { 50 } else { 1000_u16 } {
        for flow in 0..4 {
            fair.join(&packet(flow));
        }
        fair.shed(8, 0);
        if round % 3 > 0 {
            (0..fair.len().min(7)).for_each(|_| _ = fair.leave());
        }
    }
    while !fair.is_empty() {
        fair.leave();
    }
    assert_eq!(fair.kept, 0);
    assert!(fair.waiting.iter().all(|waiting| *waiting == 0));
}

/// Simulates a ring that the kernel fills and that drops frames while it is full. Two greedy flows send at three times
/// the service rate, and one packet in 300 belongs to a quiet flow. Returns the loss of the quiet flow and the higher
/// loss of the two greedy flows, in percent.
fn lost(is_fair: bool) -> (f64, f64) {
    const SLOTS: usize = 256;
    let mut fair = share();
    let packets = [0, 1, 2].map(packet);
    let mut ring: VecDeque<(u16, u16)> = VecDeque::new();
    let (mut sent, mut received, mut last) = ([0_u32; 3], [0_u32; 3], [0_u16; 3]);
    for turn in 0..if cfg!(miri) { 30 } else { 3000 } {
        for at in 0..192_u32 {
            let flow = if (turn * 192 + at) % 300 == 150 { 2 } else { (at % 2) as u16 };
            sent[flow as usize] += 1;
            if ring.len() < SLOTS {
                ring.push_back((flow, sent[flow as usize] as u16));
            }
        }
        if is_fair && ring.len() > SLOTS / 2 {
            for (flow, _) in ring.range(fair.len()..) {
                fair.join(&packets[usize::from(*flow)]);
            }
            fair.shed(SLOTS / 4, 0);
        }
        let mut served = 0;
        while served < 64 {
            let Some((flow, sequence)) = ring.pop_front() else { break };
            if fair.leave() {
                continue;
            }
            served += 1;
            let flow = flow as usize;
            assert!(sequence.wrapping_sub(last[flow]) < 1 << 15, "frames of a flow were reordered");
            (received[flow], last[flow]) = (received[flow] + 1, sequence);
        }
    }
    let lost = |flow: usize| 100.0 * (1.0 - f64::from(received[flow]) / f64::from(sent[flow]));
    (lost(2), lost(0).max(lost(1)))
}

#[test]
fn a_quiet_flow_beside_two_greedy_ones_loses_nothing_of_a_ring_that_runs_full() {
    let (quiet, greedy) = lost(false);
    assert!(
        quiet > 20.0 && greedy > 60.0,
        "the ring is not overloaded: {quiet} % and {greedy} % lost"
    );
    let (quiet, greedy) = lost(true);
    assert!(quiet <= 2.0, "{quiet} % lost");
    assert!(greedy < 70.0, "more than the unavoidable two thirds were lost: {greedy} %");
}
