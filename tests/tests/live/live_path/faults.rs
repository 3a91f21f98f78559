//! Tests kernel TCP over impaired links, and the kernel's counters for damaged packets.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, UdpSocket},
};

use grosso::{coalesce::reason::Pass, features::Features, stats::CoalesceStats};
use grosso_io::{
    Port, PortError,
    impair::{Impair, ImpairStats},
    live::{PacketOptions, TapOptions, XdpPortOptions},
    runner::RunOptions,
};
use grosso_sys::{
    interface::Control, namespace::NetworkNamespace, netlink::Netlink, packet::RingLayout,
};

use super::{
    sockets::exchange,
    world::{A, B, World, name, skip, start, until},
};

const BYTES: usize = 2 << 20;

/// Returns a network namespace's kernel counters from this file (`snmp` or `netstat`), keyed by line and column name.
fn counters(namespace: &NetworkNamespace, file: &str) -> BTreeMap<String, u64> {
    let path = format!("/proc/thread-self/net/{file}");
    let text = namespace.run(|| fs::read_to_string(path)).unwrap().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks(2).filter_map(|pair| pair[0].split_once(':').zip(pair.get(1)));
    let columns = pairs.flat_map(|((kind, names), values)| {
        let values = values.split_whitespace().skip(1);
        names
            .split_whitespace()
            .zip(values)
            .map(move |(name, value)| (format!("{kind}{name}"), value.parse().unwrap_or_default()))
    });
    columns.collect()
}

/// Sends streams over IPv4 and IPv6 through a link that impairs packets to the second host. `offloads` turns the hosts'
/// offloads on or off.
fn streams_over(fault: &str, offloads: bool) -> Option<(ImpairStats, CoalesceStats, World)> {
    let world = World::new()?;
    world.set_offloads(offloads);
    let mut packet = PacketOptions::default();
    if !offloads {
        packet.slot_bytes = Some(RingLayout::PACKETS.slot_bytes);
        packet.transmit = Features::NONE;
    }
    let wire = Impair::new(world.packet_port(&packet), fault.parse().unwrap());
    // The opposite direction is impaired, too, with another seed, so superframes from the second host are damaged.
    let back = format!("{fault} seed 99").parse().unwrap();
    let tap = Impair::new(world.tap_port(&TapOptions::default()), back);
    let path = start(wire, tap, RunOptions::new(1));
    for (a, b) in A.into_iter().zip(B) {
        exchange((&world.a, a), (&world.b, b), BYTES);
    }
    let end = path.stop();
    let coalesced = end.snapshot.coalesced_to_right.unwrap();
    Some((*end.left.stats(), coalesced, world))
}

#[test]
fn streams_are_whole_over_every_fault_alone_and_over_all_together() {
    type Seen = fn(&ImpairStats) -> bool;
    let faults: [(&str, Seen); 5] = [
        ("loss 1%", |stats| stats.lost > 0),
        ("delay 100us reorder 5%", |stats| stats.reordered > 0),
        ("duplicate 5%", |stats| stats.duplicated > 0),
        ("corrupt 1%", |stats| stats.corrupted > 0),
        ("delay 100us jitter 20us loss 0.5% reorder 5% duplicate 2% corrupt 0.5%", |stats| {
            stats.lost > 0 && stats.reordered > 0 && stats.duplicated > 0 && stats.corrupted > 0
        }),
    ];
    for (fault, seen) in faults {
        for offloads in [false, true] {
            let Some((stats, ..)) = streams_over(fault, offloads) else { return };
            // If offloads are on, a host sends few frames, so some faults may not occur.
            assert!(offloads || seen(&stats), "{fault}: {stats:?}");
        }
    }
}

#[test]
fn damaged_packets_arrive_damaged_and_the_receiver_counts_them() {
    let Some((stats, coalesced, world)) = streams_over("corrupt 3%", false) else { return };
    let counted = counters(&world.b, "snmp");
    let passed = |reason: Pass| coalesced.passed[reason as usize];
    let errors = counted["TcpInCsumErrors"];
    let (damaged, told) = (stats.corrupted, passed(Pass::Checksum));
    // A packet with a damaged address is refused before its sum is checked, and the engine does not verify checksums of
    // pure acknowledgments.
    assert!(errors <= damaged && told <= damaged, "{errors} counted, {told} told, {damaged}");
    assert!(
        errors >= damaged / 2 && told > 0,
        "{errors} counted, {told} reported, {damaged} damaged"
    );
    assert!(coalesced.superframe_packets > 0, "undamaged packets were merged: {coalesced:?}");
}

#[test]
fn a_host_whose_tap_nobody_reads_loses_by_its_own_count_and_the_rest_is_read_later() {
    let Some(world) = World::new() else { return };
    let mut tap = world.tap_port(&TapOptions::default());
    let dropped = || {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        let text = world.b.run(read).unwrap().unwrap();
        let line = text.lines().find(|line| line.trim_start().starts_with("b0:")).unwrap();
        // Eight columns for received packets are followed by bytes, packets, errors and drops of transmitted ones.
        line.split_whitespace().nth(12).unwrap().parse::<u64>().unwrap()
    };
    let sender = world.b.run(|| UdpSocket::bind((B[0], 0))).unwrap().unwrap();
    // No host resolves this address, so the neighbor entry is set explicitly.
    let target = SocketAddr::new(A[0], 9);
    let answer = || {
        let netlink = Netlink::new()?;
        let index = Control::new()?.index(&name("b0"))?;
        netlink.set_neighbour(index, A[0], [2, 0, 0, 0, 0, 9])
    };
    world.b.run(answer).unwrap().unwrap();
    let mut sent = 0_u64;
    while dropped() < 1000 {
        assert!(sent < 100_000, "the queue of the device is unbounded");
        for _ in 0..100 {
            sent += u64::from(sender.send_to(&[7; 1000], target).is_ok());
        }
    }
    let mut read = 0;
    let mut each = |frame: grosso::Frame<grosso_io::PortBuffer>| {
        read += u64::from(frame.buffer.as_ref().len() == 1042);
    };
    while tap.receive(0, 64, &mut each).unwrap() > 0 {}
    assert!(read >= 100 && read + dropped() >= sent, "{read} + {} of {sent}", dropped());
}

#[test]
fn a_wire_under_af_xdp_that_is_removed_ends_the_path_with_its_name() {
    let Some(world) = World::new() else { return };
    let xdp = match world.xdp_port(&XdpPortOptions::default()) {
        Ok(port) => port,
        Err(error) => return skip(&format!("no program for AF_XDP: {error}")),
    };
    let path = start(xdp, world.tap_port(&TapOptions::default()), RunOptions::new(1));
    until(|| path.handle.snapshot().unwrap().sleeps > 0);
    let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name("e0"))?);
    world.engine.run(remove).unwrap().unwrap();
    let result = path.wait().result;
    assert!(matches!(&result, Err(PortError::Gone { name }) if name == "e0"), "{result:?}");
}
