//! Tests how a data path sleeps, wakes up, and stops.

use std::time::Instant;

use grosso_io::{
    Port, PortBuffer, PortError,
    impair::Impair,
    live::{LiveEvent, PacketOptions, PacketPort, TapOptions},
    runner::{DataPath, RunOptions},
};
use grosso_sys::{
    interface::Control,
    netlink::Netlink,
    packet::{PacketSocket, RingLayout},
};
use grosso_testkit::Packet;

use super::{
    sockets::exchange,
    world::{A, B, World, name, start, until},
};

fn segment(i: u32) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
    packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000).build()
}

#[test]
fn what_is_held_is_delivered_when_the_path_is_stopped() {
    let Some(world) = World::new() else { return };
    let mut options = RunOptions::new(1);
    options.left_to_right.profile.limits.hold_ns = 3_600_000_000_000;
    let wire = world.packet_port(&PacketOptions::default());
    let tap = world.tap_port(&TapOptions::default());
    let open = || PacketPort::open("b0", &PacketOptions::default());
    let mut observer = world.b.run(open).unwrap().unwrap();
    let path = start(wire, tap, options);
    let sender = world.a.run(|| PacketSocket::builder().bind(&name("a0"))).unwrap().unwrap();
    for i in 0..3 {
        sender.send(&segment(i)).unwrap();
    }
    until(|| path.handle.snapshot().unwrap().coalesced_to_right.unwrap().packets_in >= 3);
    let mut joined = |segments: u16| {
        let mut seen = false;
        let each = &mut |frame: grosso::Frame<_>| {
            seen |= frame.meta.gso.is_some_and(|gso| gso.segments == segments);
        };
        observer.receive(0, 100, each).unwrap();
        seen
    };
    assert!(!joined(3), "the packets are held");
    let handle = path.handle.clone();
    let end = path.stop();
    until(|| joined(3));
    assert_eq!(handle.snapshot(), Some(end.snapshot), "a later request gets the final counters");
}

#[test]
fn frames_that_come_while_a_train_is_held_do_not_each_wake_the_path() {
    let Some(world) = World::new() else { return };
    let mut options = RunOptions::new(1);
    options.left_to_right.profile.limits.hold_ns = 3_600_000_000_000;
    let mut wire_options = PacketOptions::default();
    wire_options.slot_bytes = Some(RingLayout::PACKETS.slot_bytes);
    let wire = world.packet_port(&wire_options);
    let path = start(wire, world.tap_port(&TapOptions::default()), options);
    let sender = world.a.run(|| PacketSocket::builder().bind(&name("a0"))).unwrap().unwrap();
    let received = || path.handle.snapshot().unwrap().coalesced_to_right.unwrap().packets_in;
    sender.send(&segment(0)).unwrap();
    until(|| received() >= 1);
    let (before, started) = (path.handle.snapshot().unwrap().sleeps, Instant::now());
    for i in 1..2000 {
        sender.send(&segment(i)).unwrap();
    }
    let after = path.handle.snapshot().unwrap().sleeps;
    let most = started.elapsed().as_micros() / 100;
    // A query also wakes the path. Both the query and a frame may arrive when the path is about to sleep.
    assert!(u128::from(after - before) <= most + 3, "{} of at most {most}", after - before);
    until(|| received() >= 2000);
    path.stop();
}

#[test]
fn a_wire_that_is_removed_ends_the_path_with_its_name() {
    let Some(world) = World::new() else { return };
    let wire = world.packet_port(&PacketOptions::default());
    let path = start(wire, world.tap_port(&TapOptions::default()), RunOptions::new(1));
    until(|| path.handle.snapshot().unwrap().sleeps > 0);
    let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name("e0"))?);
    world.engine.run(remove).unwrap().unwrap();
    let result = path.wait().result;
    assert!(matches!(&result, Err(PortError::Gone { name }) if name == "e0"), "{result:?}");
    assert_eq!(result.unwrap_err().to_string(), "e0: the device was removed");
}

#[test]
fn a_wire_that_went_down_before_it_was_removed_is_found_gone_by_looking_again() {
    let Some(world) = World::new() else { return };
    let mut wire = world.packet_port(&PacketOptions::default());
    let mut now_ns = 0;
    let mut is_gone = || {
        now_ns += 1_000_000_000;
        match wire.receive(now_ns, 100, &mut |_| ()) {
            Ok(_) => (false, wire.deadline()),
            Err(error) => (matches!(error, PortError::Gone { .. }), None),
        }
    };
    world.engine.run(|| Control::new()?.set_up(&name("e0"), false)).unwrap().unwrap();
    until(|| matches!(is_gone(), (false, Some(_))));
    let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name("e0"))?);
    world.engine.run(remove).unwrap().unwrap();
    assert!(is_gone().0, "the socket itself reports it only once");
}

#[test]
fn a_tap_that_is_removed_ends_the_path_with_its_name() {
    let Some(world) = World::new() else { return };
    let wire = world.packet_port(&PacketOptions::default());
    let path = start(wire, world.tap_port(&TapOptions::default()), RunOptions::new(1));
    until(|| path.handle.snapshot().unwrap().sleeps > 0);
    let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name("b0"))?);
    world.b.run(remove).unwrap().unwrap();
    let result = path.wait().result;
    assert!(matches!(&result, Err(PortError::Gone { name }) if name == "b0"), "{result:?}");
}

#[test]
fn an_interface_that_goes_down_and_comes_up_again_goes_on() {
    let Some(world) = World::new() else { return };
    let wire = world.packet_port(&PacketOptions::default());
    let path = start(wire, world.tap_port(&TapOptions::default()), RunOptions::new(1));
    exchange((&world.a, A[0]), (&world.b, B[0]), 1 << 20);
    for up in [false, true] {
        world.engine.run(|| Control::new()?.set_up(&name("e0"), up)).unwrap().unwrap();
    }
    exchange((&world.a, A[0]), (&world.b, B[0]), 1 << 20);
    path.stop();
}

#[test]
fn a_consumer_that_stalls_leaves_drops_with_a_name_and_no_more_memory() {
    let Some(world) = World::new() else { return };
    let mut options = PacketOptions::default();
    (options.slots, options.slot_bytes) = (Some(64), Some(2048));
    options.fair = false;
    let mut port = world.packet_port(&options);
    let sender = world.a.run(|| PacketSocket::builder().bind(&name("a0"))).unwrap().unwrap();
    for i in 0..200 {
        sender.send(&segment(i)).unwrap();
    }
    let mut dropped = || port.stats().unwrap().events(LiveEvent::ReceiveRingFull);
    until(|| dropped() >= 200 - 64);
    let mut ours = 0;
    let mut each = |frame: grosso::Frame<PortBuffer>| {
        ours += u64::from(frame.buffer.as_ref().len() == 1054);
    };
    assert_eq!(port.receive(0, 1000, &mut each).unwrap(), 64);
    // The host's own packets may also have used a slot, or may have been dropped.
    let dropped = port.stats().unwrap().events(LiveEvent::ReceiveRingFull);
    assert!(ours > 32 && ours + dropped >= 200, "{ours} {dropped}");
}

/// Fills a ring of 64 slots with frames of two greedy flows and four frames of a quiet flow, receives 16 frames, and
/// sends 20 more greedy frames and six quiet ones. Returns the numbers of quiet and greedy frames received, and the
/// number of frames dropped because their flow had used up its share.
fn beside_greedy_flows(world: &World, fair: bool) -> ([u32; 2], u64) {
    let mut options = PacketOptions::default();
    (options.slots, options.slot_bytes) = (Some(64), Some(2048));
    options.fair = fair;
    let mut port = world.packet_port(&options);
    let sender = world.a.run(|| PacketSocket::builder().bind(&name("a0"))).unwrap().unwrap();
    let from = |source, payload_len| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.udp(|u| u.source_port(source).destination_port(9)).payload_len(payload_len).build()
    };
    let (greedy, quiet, last) = ([from(1, 900), from(2, 900)], from(3, 900), from(4, 10));
    let full = |port: &mut PacketPort| port.stats().unwrap().events(LiveEvent::ReceiveRingFull);
    let (mut received, mut is_past) = ([0; 2], false);
    let mut take = |port: &mut PacketPort, max| {
        let mut each = |frame: grosso::Frame<PortBuffer>| {
            let bytes = frame.buffer.as_ref();
            received[0] += u32::from(bytes == quiet);
            received[1] += u32::from(greedy.iter().any(|greedy| bytes == greedy));
            is_past |= bytes == last;
        };
        port.receive(1, max, &mut each).unwrap();
        is_past
    };
    for at in 0..60 {
        sender.send(if at % 15 == 7 { &quiet } else { &greedy[at % 2] }).unwrap();
    }
    until(|| {
        sender.send(&greedy[0]).unwrap();
        full(&mut port) > 0
    });
    take(&mut port, 16);
    let before = full(&mut port);
    (0..20).for_each(|at| assert!(sender.send(&greedy[at % 2]).is_ok()));
    (0..6).for_each(|_| assert!(sender.send(&quiet).is_ok()));
    until(|| fair || full(&mut port) >= before + 10);
    until(|| {
        sender.send(&last).unwrap();
        take(&mut port, 64)
    });
    (received, port.stats().unwrap().events(LiveEvent::ReceiveRingShare))
}

#[test]
fn a_quiet_flow_finds_room_in_a_ring_that_greedy_ones_filled() {
    let Some(world) = World::new() else { return };
    let ([quiet, greedy], shed) = beside_greedy_flows(&world, false);
    assert!(quiet < 10 && greedy >= 48 && shed == 0, "{quiet} {greedy} {shed}");
    let ([quiet, greedy], shed) = beside_greedy_flows(&world, true);
    assert!(quiet == 10 && greedy >= 12 && shed >= 30, "{quiet} {greedy} {shed}");
}

#[test]
fn the_default_ring_holds_a_burst_of_two_milliseconds_at_ten_gigabits() {
    let Some(world) = World::new() else { return };
    let mut port = world.packet_port(&PacketOptions::default());
    let sender = world.a.run(|| PacketSocket::builder().bind(&name("a0"))).unwrap().unwrap();
    // At 10 Gb/s, 1500 bytes and their framing on the wire take 1.23 us.
    let burst = 1626;
    for i in 0..burst {
        sender.send(&segment(i)).unwrap();
    }
    let (mut ours, mut dropped, mut is_past) = (0, 0, false);
    until(|| {
        // The shorter segment marks the end of the burst. The kernel may lose some segments in transit.
        sender.send(&segment(0)[..54]).unwrap();
        let mut each = |frame: grosso::Frame<PortBuffer>| {
            ours += u64::from(frame.buffer.as_ref().len() == 1054);
            is_past |= frame.buffer.as_ref().len() == 54;
        };
        port.receive(0, 4000, &mut each).unwrap();
        dropped = port.stats().unwrap().events(LiveEvent::ReceiveRingFull);
        is_past && ours + dropped > 256
    });
    assert_eq!(dropped, 0, "{ours} came");
}

#[test]
fn streams_survive_a_bad_wire() {
    let Some(world) = World::new() else { return };
    world.set_offloads(false);
    let mut packet = PacketOptions::default();
    packet.slot_bytes = Some(RingLayout::PACKETS.slot_bytes);
    packet.transmit = grosso::features::Features::NONE;
    let bad = "delay 100us jitter 50us loss 0.2% reorder 1% duplicate 1% corrupt 0.2% seed 7";
    let wire = Impair::new(world.packet_port(&packet), bad.parse().unwrap());
    let path = start(wire, world.tap_port(&TapOptions::default()), RunOptions::new(1));
    exchange((&world.a, A[0]), (&world.b, B[0]), 4 << 20);
    let end = path.stop();
    let stats = end.left.stats();
    assert!(stats.lost + stats.corrupted > 0 && stats.duplicated > 0, "{stats:?}");
}

#[test]
fn ports_whose_frames_start_differently_are_not_joined() {
    let Some(world) = World::new() else { return };
    let wire = world.packet_port(&PacketOptions::default());
    let [tun, _] = world.tun_ports(&TapOptions::default());
    let refused = DataPath::new(wire, tun, RunOptions::new(1)).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "cannot connect a port with Ethernet frames to a port with RAW frames"
    );
}
