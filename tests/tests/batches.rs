//! Tests batches, which process the packets of a poll flow by flow: `receive-profiles` section 2.1.

use std::collections::BTreeSet;

use grosso::{Profile, Verdict, coalesce::Batch};
use grosso_rig::engine::{Engine, Out, PORTS, coalesce_with};
use grosso_testkit::{Packet, Traffic, headers::Tcp, random::Random};
use grosso_wire::LinkType;
use proptest::prelude::*;

/// Returns the default profile with a table for `flows` flows, and with batches of `packets` packets.
fn by_flow(flows: usize, packets: u16) -> Profile {
    let mut profile = Profile::linux();
    profile.limits.flows = flows;
    profile.batch = Batch::ByFlow { packets };
    profile
}

/// Returns packet number `index` of a flow, with 100 bytes of payload.
fn packet(flow: u16, index: u16) -> Vec<u8> {
    edited(flow, index, |tcp| tcp)
}

fn edited(flow: u16, index: u16, edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
    let sequence = 1 + u32::from(index) * 100;
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index));
    packet.tcp(|tcp| edit(tcp.source_port(1000 + flow).sequence(sequence))).payload_len(100).build()
}

/// Returns the interleaved packets of `flows` flows, `packets` packets for each flow.
fn interleaved(flows: u16, packets: u16) -> Vec<Vec<u8>> {
    (0..packets).flat_map(|index| (0..flows).map(move |flow| packet(flow, index))).collect()
}

fn trains(delivered: &[Out]) -> Vec<u32> {
    delivered.iter().map(|out| out.packets).collect()
}

#[test]
fn flows_that_take_turns_are_as_long_in_a_table_of_one_as_alone() {
    let frames = interleaved(40, 20);
    let alone = trains(&coalesce_with(by_flow(1, 1024), &frames));
    assert_eq!(alone, [20; 40]);
    let mut as_it_came = by_flow(1, 1024);
    as_it_came.batch = Batch::AsItCame;
    assert_eq!(trains(&coalesce_with(as_it_came, &frames)).len(), frames.len());
}

#[test]
fn p20_flows_of_a_batch_leave_in_the_order_of_their_first_packets() {
    let mut random = Random::new(20);
    let mut flows: Vec<u16> = (0..500).map(|_| random.within(0, 60_000) as u16).collect();
    let mut seen = BTreeSet::new();
    flows.retain(|&flow| seen.insert(flow));
    let frames: Vec<_> =
        (0..2).flat_map(|index| flows.iter().map(move |&flow| packet(flow, index))).collect();
    let delivered = coalesce_with(by_flow(1, 1024), &frames);
    let port = |out: &Out| u16::from_be_bytes([out.bytes[34], out.bytes[35]]) - 1000;
    assert_eq!(delivered.iter().map(port).collect::<Vec<_>>(), flows);
    // Some of these flows share a slot of the table, but each flow has its own chain.
    assert!(trains(&delivered).iter().all(|&packets| packets == 2));
}

#[test]
fn a_full_batch_is_joined_at_once() {
    let frames = interleaved(4, 4);
    for (flows, expected) in [(1, &[2; 8][..]), (4, &[4; 4])] {
        let mut engine = Engine::new(by_flow(flows, 8));
        for (index, frame) in frames.iter().enumerate() {
            // Packets of the first flow are processed immediately, before the batch is full.
            let leads = index % 4 == 0;
            assert_eq!(engine.push(frame) == Verdict::Waits, !leads);
        }
        // Trains are held until the end of the poll, no matter how many batches the poll has.
        assert_eq!(engine.delivered.len(), if flows == 1 { 7 } else { 0 });
        engine.poll_end(0);
        assert_eq!(trains(&engine.checked(&frames)), expected);
    }
}

#[test]
fn a_pure_acknowledgment_stays_in_its_flow_s_place() {
    let acknowledgment = Packet::new()
        .ethernet(|e| e)
        .ipv4(|ip| ip.id(9))
        .tcp(|tcp| tcp.source_port(1000).sequence(201))
        .build();
    let mut frames = interleaved(2, 2);
    frames.push(acknowledgment);
    frames.extend([packet(0, 2), packet(1, 2), packet(0, 3), packet(1, 3)]);
    assert_eq!(trains(&coalesce_with(by_flow(4096, 64), &frames)), [2, 1, 2, 4]);
}

#[test]
fn a_packet_whose_flow_cannot_be_read_waits_for_all_before_it() {
    let fragment = Packet::new()
        .ethernet(|e| e)
        .ipv4(|ip| ip.id(77).more_fragments(true))
        .payload_len(64)
        .build();
    let mut frames = interleaved(3, 2);
    frames.push(fragment.clone());
    frames.extend(interleaved(3, 2));
    let delivered = coalesce_with(by_flow(4096, 64), &frames);
    assert_eq!(delivered[3].bytes, fragment);
    assert_eq!(trains(&delivered), [2, 2, 2, 1, 2, 2, 2]);
}

#[test]
fn what_has_no_flow_is_not_held_up() {
    let arp = Packet::new().ethernet(|e| e.ethertype_raw(0x0806)).payload_len(28).build();
    let mut engine = Engine::new(by_flow(1, 64));
    let frames = [packet(0, 0), packet(1, 0), arp.clone(), packet(0, 1), packet(1, 1)];
    frames.iter().for_each(|frame| _ = engine.push(frame));
    assert_eq!(engine.delivered.iter().map(|out| &out.bytes).collect::<Vec<_>>(), [&arp]);
    engine.poll_end(0);
    assert_eq!(trains(&engine.checked(&frames)), [1, 2, 2]);
}

#[test]
fn the_wait_for_a_batch_is_part_of_the_hold() {
    let mut profile = by_flow(4096, 64);
    profile.limits.hold_ns = 1000;
    let mut engine = Engine::new(profile);
    engine.push_frame(grosso::Frame::new(packet(0, 0)), 50);
    engine.push_frame(grosso::Frame::new(packet(1, 0)), 900);
    assert_eq!(engine.deadline(), Some(50), "the batch must end");
    engine.poll_end(900);
    assert_eq!(engine.deadline(), Some(1050));
    engine.expire(1049);
    assert_eq!(engine.delivered.len(), 0);
    engine.expire(1050);
    assert_eq!(trains(&engine.checked(&[packet(0, 0), packet(1, 0)])), [1, 1]);
}

#[test]
fn what_leaves_by_another_way_overtakes_nothing_that_waits() {
    let mut engine = Engine::new(by_flow(4096, 64));
    let frames = [packet(0, 0), packet(0, 1), packet(0, 2)];
    engine.push(&frames[0]);
    engine.push(&frames[1]);
    engine.push_excluded(&frames[2]);
    assert_eq!(trains(&engine.checked(&frames)), [2, 1]);
}

#[test]
fn a_batch_of_many_rounds_forgets_the_flows_of_those_before() {
    let mut engine = Engine::new(by_flow(4096, 16));
    let mut frames = Vec::new();
    for index in 0..300 {
        for flow in [0, 1] {
            frames.push(packet(flow, index));
            engine.push(&frames[frames.len() - 1]);
        }
        engine.poll_end(0);
    }
    let delivered = engine.checked(&frames);
    assert_eq!(trains(&delivered), [1; 600]);
}

proptest! {
    /// Asserts for any input that each packet is delivered once, in order within its flow. There are never more trains
    /// than with processing in order of arrival and a table that evicts no flow.
    #[test]
    fn nothing_is_lost_and_no_flow_is_reordered(
        seed in any::<u64>(),
        count in 1_usize..200,
        packets in 1_u16..80,
        flows in 1_usize..8,
    ) {
        let frames: Vec<_> =
            Traffic::new(seed).filter(|frame| frame.len() >= 14).take(count).collect();
        let mut engine =
            Engine::with(by_flow(flows, packets), LinkType::Ethernet, PORTS, seed);
        for (index, frame) in frames.iter().enumerate() {
            engine.push(frame);
            if index % 37 == 36 {
                engine.poll_end(0);
            }
        }
        engine.poll_end(0);
        drop(engine.checked(&frames));
    }
}
