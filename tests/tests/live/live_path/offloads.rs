//! Sends real streams through every pair of ports, with the hosts' offloads on and off.

use grosso::features::Features;
use grosso_io::{
    live::{LiveStats, PacketOptions, TapOptions, XdpPortOptions},
    runner::{RunOptions, Snapshot},
};
use grosso_sys::packet::RingLayout;
use grosso_wire::virtio::Form;

use super::{
    sockets::{datagrams, exchange},
    world::{A, B, World, next_network, skip, start},
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

/// Returns options for a link whose hosts have their offloads off: no frame exceeds the MTU, and the engine segments
/// the frames that it sends.
fn plain_wire() -> PacketOptions {
    let mut options = PacketOptions::default();
    options.slot_bytes = Some(RingLayout::PACKETS.slot_bytes);
    options.transmit = Features::NONE;
    options
}

/// Runs both streams over a packet port and a TAP.
fn over_packets(offloads: bool, packet: PacketOptions, tap: TapOptions) -> Option<Snapshot> {
    let world = World::new()?;
    world.set_offloads(offloads);
    let path = start(world.packet_port(&packet), world.tap_port(&tap), RunOptions::new(7));
    streams(&world);
    let asked = path.handle.snapshot().unwrap();
    let mut end = path.stop();
    assert!(asked.left_to_right.rx_bytes > 2 * BYTES as u64);
    assert_clean(&end.right.stats());
    assert_clean(&end.left.stats().unwrap());
    Some(end.snapshot)
}

#[test]
fn superframes_pass_untouched_where_both_ports_take_them() {
    for form in [Form::Short, Form::Buffers, Form::Tunnel] {
        let mut tap = TapOptions::default();
        tap.header = form;
        let Some(snapshot) = over_packets(true, PacketOptions::default(), tap) else { return };
        let (there, back) = (snapshot.left_to_right, snapshot.right_to_left);
        assert_eq!((there.cut, back.cut, there.completed, back.completed), (0, 0, 0, 0));
        assert!(there.rx_bytes / there.rx_frames > 1514, "the host sent superframes");
    }
}

#[test]
fn packets_are_coalesced_towards_the_stack_and_superframes_cut_towards_the_wire() {
    for form in [Form::Short, Form::Buffers, Form::Tunnel] {
        let mut tap = TapOptions::default();
        tap.header = form;
        let Some(snapshot) = over_packets(false, plain_wire(), tap) else { return };
        let (there, back) = (snapshot.left_to_right, snapshot.right_to_left);
        assert!(there.tx_frames < there.rx_frames, "packets were coalesced: {there:?}");
        assert!(
            back.cut > 0 && back.tx_frames > back.rx_frames,
            "superframes were segmented: {back:?}"
        );
        assert!(snapshot.coalesced_to_right.is_some() && snapshot.coalesced_to_left.is_none());
    }
}

/// Returns the number of TCP segments that the kernel dropped because of a bad checksum, in the thread's network
/// namespace.
fn checksum_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    columns.find(|(name, _)| *name == "InCsumErrors").unwrap().1.parse().unwrap()
}

#[test]
fn stretch_acknowledgments_of_a_kernel_are_expanded_and_a_kernel_takes_them_all() {
    // The host's partial checksums are completed by the path or by the port.
    for transmit in [Features::NONE, Features::CHECKSUM_GENERIC] {
        let Some(world) = World::new() else { return };
        world.set_offloads(false);
        let mut options = RunOptions::new(1);
        options.left_to_right.profile.limits.hold_ns = 100_000;
        options.right_to_left.expand_acknowledgments = true;
        let mut packet = plain_wire();
        packet.transmit = transmit;
        let tap = world.tap_port(&TapOptions::default());
        let path = start(world.packet_port(&packet), tap, options);
        streams(&world);
        let back = path.stop().snapshot.right_to_left;
        let (one, several) = (back.acknowledgments_expanded, back.acknowledgments_expanded_into);
        assert!(one > 0 && several >= 2 * one && several <= 32 * one, "{back:?}");
        assert!(back.tx_frames >= back.rx_frames + several - one);
        assert_eq!(world.a.run(checksum_errors).unwrap(), 0);
    }
}

#[test]
fn a_stack_that_hands_out_no_superframes_gets_them_all_the_same() {
    let mut tap = TapOptions::default();
    tap.receive = Features::NONE;
    let Some(snapshot) = over_packets(false, plain_wire(), tap) else { return };
    let back = snapshot.right_to_left;
    assert_eq!((back.cut, back.completed), (0, 0), "the stack segmented by itself");
}

#[test]
fn without_coalescing_and_without_headers_streams_pass_as_they_are() {
    let Some(world) = World::new() else { return };
    world.set_offloads(false);
    let mut packet = plain_wire();
    packet.virtio_header = false;
    let mut options = RunOptions::new(1);
    options.left_to_right.coalesce = false;
    options.right_to_left.coalesce = false;
    let tap = TapOptions::default();
    let path = start(world.packet_port(&packet), world.tap_port(&tap), options);
    streams(&world);
    let there = path.stop().snapshot.left_to_right;
    assert_eq!((there.rx_frames, there.rx_bytes), (there.tx_frames, there.tx_bytes));
}

#[test]
fn the_ring_reports_partial_checksums_without_a_virtio_header() {
    let Some(world) = World::new() else { return };
    // Checksums are partial, but the kernel builds no superframes, because a superframe would lose its segment size.
    world.set_offloads(true);
    world.set_offload("tx-tcp-segmentation", false);
    world.set_offload("tx-tcp6-segmentation", false);
    let mut packet = plain_wire();
    packet.virtio_header = false;
    let tap = TapOptions::default();
    let path = start(world.packet_port(&packet), world.tap_port(&tap), RunOptions::new(1));
    streams(&world);
    path.stop();
}

#[test]
fn held_trains_leave_by_the_timer() {
    let Some(world) = World::new() else { return };
    world.set_offloads(false);
    let mut options = RunOptions::new(1);
    options.left_to_right.profile.limits.hold_ns = 200_000;
    options.busy_poll = std::time::Duration::from_micros(20);
    let tap = TapOptions::default();
    let path = start(world.packet_port(&plain_wire()), world.tap_port(&tap), options);
    streams(&world);
    let there = path.stop().snapshot.left_to_right;
    assert!(there.tx_frames < there.rx_frames, "{there:?}");
}

#[test]
fn streams_pass_between_tun_devices() {
    let Some(world) = World::new() else { return };
    let [a, b] = world.tun_ports(&TapOptions::default());
    let path = start(a, b, RunOptions::new(7));
    for (a, b) in A.into_iter().zip(B) {
        exchange((&world.a, next_network(a)), (&world.b, next_network(b)), BYTES);
    }
    let end = path.stop();
    assert_clean(&end.left.stats());
    assert_clean(&end.right.stats());
    let there = end.snapshot.left_to_right;
    assert!(there.cut == 0 && there.rx_bytes / there.rx_frames > 1500, "{there:?}");
}

#[test]
fn streams_pass_over_af_xdp_with_the_hosts_checksums_on_and_off() {
    for checksums in [true, false] {
        let Some(world) = World::new() else { return };
        world.set_offloads(checksums);
        let mut options = XdpPortOptions::default();
        options.assume_partial = checksums;
        let xdp = match world.xdp_port(&options) {
            Ok(port) => port,
            Err(error) => return skip(&format!("no program for AF_XDP: {error}")),
        };
        let path = start(xdp, world.tap_port(&TapOptions::default()), RunOptions::new(7));
        streams(&world);
        let end = path.stop();
        assert_clean(end.left.stats());
        assert_clean(&end.right.stats());
        let (there, back) = (end.snapshot.left_to_right, end.snapshot.right_to_left);
        assert!(there.tx_frames < there.rx_frames, "{there:?}");
        assert!(back.cut > 0, "{back:?}");
    }
}

#[test]
fn datagrams_of_gso_sockets_arrive_one_by_one_and_whole() {
    for offloads in [true, false] {
        let Some(world) = World::new() else { return };
        world.set_offloads(offloads);
        world.set_offload("tx-udp-segmentation", offloads);
        let packet = if offloads { PacketOptions::default() } else { plain_wire() };
        let port = world.packet_port(&packet);
        let path = start(port, world.tap_port(&TapOptions::default()), RunOptions::new(7));
        for (a, b) in A.into_iter().zip(B) {
            if !datagrams((&world.a, a), (&world.b, b)) || !datagrams((&world.b, b), (&world.a, a))
            {
                return;
            }
        }
        let mut end = path.stop();
        assert_clean(&end.right.stats());
        assert_clean(&end.left.stats().unwrap());
        let (there, back) = (end.snapshot.left_to_right, end.snapshot.right_to_left);
        if offloads {
            assert_eq!((there.cut, back.cut), (0, 0));
        } else {
            assert!(back.cut > 0, "{back:?}");
        }
    }
}

#[test]
fn datagrams_of_gso_sockets_pass_af_xdp_with_the_hosts_checksums_on_and_off() {
    for checksums in [true, false] {
        let Some(world) = World::new() else { return };
        world.set_offloads(checksums);
        world.set_offload("tx-udp-segmentation", false);
        let mut options = XdpPortOptions::default();
        options.assume_partial = checksums;
        let xdp = match world.xdp_port(&options) {
            Ok(port) => port,
            Err(error) => return skip(&format!("no program for AF_XDP: {error}")),
        };
        let path = start(xdp, world.tap_port(&TapOptions::default()), RunOptions::new(7));
        for (a, b) in A.into_iter().zip(B) {
            if !datagrams((&world.a, a), (&world.b, b)) || !datagrams((&world.b, b), (&world.a, a))
            {
                return;
            }
        }
        let end = path.stop();
        assert_clean(end.left.stats());
        assert_clean(&end.right.stats());
        assert!(end.snapshot.right_to_left.cut > 0, "{:?}", end.snapshot);
    }
}
