//! Tests the device of a VM that has several queue pairs.

#![cfg(target_os = "linux")]

use std::{collections::BTreeMap, os::fd::BorrowedFd, time::Duration};

use grosso::{Frame, Meta};
use grosso_io::{Port, PortBuffer, Transmitted, live::VhostEvent};
use grosso_sys::wait::{Interest, wait_for};
use grosso_testkit::{
    Packet,
    front_end::{FrontEnd, GUEST, PROTOCOL, SLOTS, Shape, rings},
};

use crate::vhost_port::{ALL, Bench, EVENTS, FORMS, arrived, frame, plain};

/// Ring of the second pair for frames to the guest.
const TO_GUEST: usize = 2;
/// Ring of the second pair for frames from the guest.
const FROM_GUEST: usize = 3;
/// Offset of the source port in a frame with its virtio header.
const SOURCE_PORT: usize = 12 + 34;
/// Offset of the payload in a frame with its virtio header.
const PAYLOAD: usize = 12 + 42;

/// Returns a datagram with a number; the port identifies the flow.
fn datagram(port: u16, number: u8) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    packet.udp(|udp| udp.source_port(port)).payload(&[number; 100]).build()
}

/// Provides buffers to each pair until its ring is full.
fn give_all(front: &mut FrontEnd) {
    for pair in [0, 1] {
        front.pair = pair;
        while front.give(2000, Shape::Direct(1)) {}
    }
}

/// Returns the frame numbers received in the buffers of a queue pair, in order, for each flow.
fn received(front: &mut FrontEnd, pair: usize) -> BTreeMap<u16, Vec<u8>> {
    front.pair = pair;
    let mut flows: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    while let Some(got) = front.received() {
        let port = u16::from_be_bytes([got[SOURCE_PORT], got[SOURCE_PORT + 1]]);
        flows.entry(port).or_default().push(got[PAYLOAD]);
    }
    flows
}

fn is_ready(file: Option<BorrowedFd<'_>>) -> bool {
    wait_for(&[(file.unwrap(), Interest::READ)], Some(Duration::ZERO)).unwrap().is_some()
}

#[test]
fn frames_of_every_pair_arrive_and_a_busy_one_keeps_no_other_waiting() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect_pairs(wanted, 2);
        for (busy, other) in [(0, 1), (1, 0)] {
            front.pair = busy;
            (0..60).for_each(|_| assert!(front.send(&plain(&frame(1)), Shape::Direct(1))));
            let mut lengths = Vec::new();
            let mut take = |bench: &mut Bench| {
                let each =
                    &mut |frame: Frame<PortBuffer>| lengths.push(frame.buffer.as_ref().len());
                assert_eq!(bench.port.receive(0, 16, each).unwrap(), 16);
            };
            take(&mut bench);
            front.pair = other;
            assert!(front.send(&plain(&frame(2)), Shape::Direct(1)));
            take(&mut bench);
            assert!(lengths.contains(&frame(2).len()), "{lengths:?}");
            assert_eq!(lengths.len() + arrived(&mut bench.port).len(), 61);
        }
    }
}

#[test]
fn a_flow_has_one_pair_and_its_order_and_pairs_that_are_not_used_get_nothing() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect_pairs(wanted, 2);
        let mut before = BTreeMap::new();
        for (both, round) in [(true, 0), (false, 1), (true, 2)] {
            front.enable(TO_GUEST, both).unwrap();
            assert!(arrived(&mut bench.port).is_empty());
            give_all(&mut front);
            for number in 0..3 {
                for port in 5000..5020 {
                    let sent = bench.transmit(&datagram(port, number), &Meta::default());
                    assert_eq!(sent, Transmitted::Taken);
                }
            }
            let pairs = [0, 1].map(|pair| received(&mut front, pair));
            assert!(pairs.iter().flat_map(BTreeMap::values).all(|numbers| *numbers == [0, 1, 2]));
            let of_flows: BTreeMap<u16, usize> =
                (0..2).flat_map(|pair| pairs[pair].keys().map(move |port| (*port, pair))).collect();
            assert_eq!(of_flows.len(), 20, "{round}");
            let second = of_flows.values().sum::<usize>();
            assert!(if both { (3..18).contains(&second) } else { second == 0 }, "{second}");
            if round == 0 {
                before = of_flows;
            } else if both {
                assert!(of_flows == before, "each where it was before");
            }
        }
        assert_eq!(bench.event(VhostEvent::TransmitNoPeer), 0);
    }
}

/// Returns the ports of two flows; the second flow uses the second pair.
fn flows(bench: &mut Bench, front: &mut FrontEnd) -> [u16; 2] {
    give_all(front);
    for port in 5000..5020 {
        assert_eq!(bench.transmit(&datagram(port, 0), &Meta::default()), Transmitted::Taken);
    }
    [0, 1].map(|pair| *received(front, pair).keys().next().unwrap())
}

#[test]
fn a_pair_without_buffers_is_waited_for_and_notifies() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect_pairs(wanted, 2);
        let [_, second] = flows(&mut bench, &mut front);
        let sent = datagram(second, 7);
        while bench.transmit(&sent, &Meta::default()) == Transmitted::Taken {}
        let got = received(&mut front, 1);
        assert_eq!(got.keys().collect::<Vec<_>>(), [&second]);
        assert!(!is_ready(bench.port.room_kick()));
        front.pair = 1;
        assert!(front.give(2000, Shape::Direct(1)) && front.is_asked(TO_GUEST));
        front.kick(TO_GUEST).unwrap();
        assert!(is_ready(bench.port.room_kick()));
        assert_eq!(bench.transmit(&sent, &Meta::default()), Transmitted::Taken);
        assert_eq!(received(&mut front, 1), BTreeMap::from([(second, vec![7])]));
    }
}

#[test]
fn a_kick_of_any_pair_wakes_and_each_driver_is_interrupted() {
    for wanted in EVENTS {
        wakes_and_is_interrupted(wanted);
    }
}

fn wakes_and_is_interrupted(wanted: u64) {
    let mut bench = Bench::new();
    let mut front = bench.connect_pairs(wanted, 2);
    assert!(arrived(&mut bench.port).is_empty());
    for pair in [1, 0, 0, 1, 1, 0, 1, 0] {
        assert!(!is_ready(bench.port.frames_kick()));
        let ring = 2 * pair + 1;
        front.pair = pair;
        assert!(front.send(&plain(&frame(1)), Shape::Direct(1)) && front.is_asked(ring));
        front.want_calls(ring);
        let _ = front.calls(ring);
        front.kick(ring).unwrap();
        assert!(is_ready(bench.port.frames_kick()), "{pair}");
        assert_eq!((arrived(&mut bench.port).len(), front.calls(ring)), (1, 1), "{pair}");
    }
}

#[test]
fn a_broken_ring_loses_only_its_frames_and_a_guest_may_reboot() {
    let mut bench = Bench::new();
    let mut front = bench.connect_pairs(ALL, 2);
    let [first, second] = flows(&mut bench, &mut front);
    for ring in [TO_GUEST, FROM_GUEST] {
        front.write(GUEST + rings(ring)[1] + 2, &400_u16.to_le_bytes());
    }
    assert!(arrived(&mut bench.port).is_empty());
    // All known entries are used before the ring is read again.
    let sends = [first].into_iter().chain([second; SLOTS as usize]).chain([first]);
    for port in sends {
        assert_eq!(bench.transmit(&datagram(port, 1), &Meta::default()), Transmitted::Taken);
    }
    assert_eq!(bench.event(VhostEvent::RingOverrun), 2);
    assert!(bench.event(VhostEvent::TransmitNoPeer) > 0);
    assert_eq!(received(&mut front, 0), BTreeMap::from([(first, vec![1, 1])]));
    assert!(front.send(&plain(&frame(1)), Shape::Direct(1)));
    assert_eq!(arrived(&mut bench.port).len(), 1);
    front.reboot(&mut || assert!(arrived(&mut bench.port).is_empty())).unwrap();
    give_all(&mut front);
    for (pair, port) in [first, second].into_iter().enumerate() {
        assert_eq!(bench.transmit(&datagram(port, 2), &Meta::default()), Transmitted::Taken);
        assert_eq!(received(&mut front, pair), BTreeMap::from([(port, vec![2])]));
        assert!(front.send(&plain(&frame(1)), Shape::Direct(1)));
        assert_eq!(arrived(&mut bench.port).len(), 1);
    }
    assert_eq!(bench.event(VhostEvent::PeerCutOff), 0);
}

#[test]
fn a_front_end_without_protocol_features_has_one_pair() {
    let mut bench = Bench::new();
    let front = bench.try_connect(ALL & !PROTOCOL, 2);
    assert!(front.is_err());
    assert_eq!(bench.event(VhostEvent::PeerCutOff), 1);
    let mut front = bench.connect(ALL);
    bench.carries(&mut front);
}
