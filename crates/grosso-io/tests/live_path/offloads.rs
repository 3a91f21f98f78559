//! Real streams through every pair of ports, with the hosts' offloads on and off.

use grosso::features::Features;
use grosso_io::{
    live::{LiveEvent, LiveStats, PacketOptions, TapOptions, XdpPortOptions},
    runner::{RunOptions, Snapshot},
};
use grosso_sys::packet::RingLayout;
use grosso_wire::virtio::Form;

use crate::{
    sockets::exchange,
    world::{A, B, World, skip, start},
};

const BYTES: usize = 8 << 20;

fn assert_clean(stats: &LiveStats) {
    let counted: Vec<_> = stats.named().filter(|(_, count)| *count > 0).collect();
    assert!(counted.is_empty(), "{counted:?}");
}

fn streams(world: &World) {
    for (a, b) in A.into_iter().zip(B) {
        exchange((&world.a, a), (&world.b, b), BYTES);
    }
}

/// Runs both streams over a packet port and a TAP.
fn over_packets(offloads: bool, packet: PacketOptions, tap: TapOptions) -> Option<Snapshot> {
    let world = World::new()?;
    world.set_offloads(offloads);
    let path = start(world.packet_port(&packet), world.tap_port(&tap), RunOptions::new(7));
    streams(&world);
    let asked = path.handle.snapshot().unwrap();
    let mut end = path.stop();
    println!("{:?}\n{:?}", end.snapshot.left_to_right, end.snapshot.right_to_left);
    println!("sleeps {}", end.snapshot.sleeps);
    assert!(asked.left_to_right.rx_bytes > 2 * BYTES as u64);
    assert_clean(end.right.stats());
    assert_clean(&end.left.stats().unwrap());
    Some(end.snapshot)
}

#[test]
fn streams_pass_with_the_hosts_offloads_on() {
    let Some(snapshot) = over_packets(true, PacketOptions::default(), TapOptions::default()) else {
        return;
    };
    // Superframes pass untouched where both ports can.
    assert_eq!((snapshot.left_to_right.cut, snapshot.right_to_left.cut), (0, 0));
    assert!(snapshot.left_to_right.rx_bytes / snapshot.left_to_right.rx_frames > 1514);
}

#[test]
fn streams_pass_with_the_hosts_offloads_off() {
    let mut packet = PacketOptions::default();
    packet.layout = RingLayout::PACKETS;
    packet.transmit = Features::NONE;
    let Some(snapshot) = over_packets(false, packet, TapOptions::default()) else { return };
    let (there, back) = (snapshot.left_to_right, snapshot.right_to_left);
    assert!(there.tx_frames < there.rx_frames / 2, "packets were coalesced");
    assert!(back.cut > 0 && back.tx_frames > back.rx_frames, "superframes were cut");
}
