//! Sends packets of an IP protocol from host to host through raw sockets.

use std::net::IpAddr;

use grosso::{Frame, Meta, checksum::Checksum, meta::Gso};
use grosso_io::{
    Port, Transmitted,
    live::{IpOptions, IpPort, SocketEvent},
    stage::{Fragmentation, FragmentationOptions},
};
use grosso_sys::namespace::NetworkNamespace;
use grosso_testkit::Packet;
use grosso_wire::ipv4::{PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_IPV6};

use super::world::{A, B, World, until};

/// Opens a port for these protocols on a host, with the addresses of the host and its peer.
fn open(host: &NetworkNamespace, local: IpAddr, remote: IpAddr, protocols: &[u8]) -> IpPort {
    let mut options = IpOptions::new(local, protocols.to_vec());
    options.remotes = vec![remote];
    host.run(|| IpPort::open(&options)).unwrap().unwrap()
}

/// Returns the outer headers of a packet from the first host to the second. For IPv6, every field is set.
fn outer(family: usize) -> Packet {
    match (A[family], B[family]) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Packet::new().ipv4(|ip| {
            let ip = ip.source(source.octets()).destination(destination.octets());
            ip.ttl(33).tos(0xb9).df(true)
        }),
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let packet = Packet::new().ipv6(|ip| {
                let ip = ip.source(source.octets()).destination(destination.octets());
                ip.hop_limit(33).traffic_class(0xb9).flow_label(0xabcde)
            });
            packet.destination_options(|options| options.data(&[4, 1, 4, 1, 1, 0]))
        }
        _ => unreachable!("one family"),
    }
}

fn send(port: &mut impl Port, frame: &[u8], meta: &Meta) {
    assert_eq!(port.transmit(&[frame], meta).unwrap(), Transmitted::Taken);
    assert_eq!(port.flush().unwrap(), Transmitted::Taken);
}

/// Receives all frames that arrive, at least `count`.
fn receive(port: &mut impl Port, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    until(|| {
        let mut each = |frame: Frame<_>| frames.push(AsRef::<[u8]>::as_ref(&frame.buffer).to_vec());
        port.receive(0, 100, &mut each).unwrap();
        frames.len() >= count
    });
    frames
}

/// Returns a packet without the IPv4 header fields that the kernel sets, identification and checksum: they are set to
/// zero.
fn said(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

#[test]
fn packets_arrive_with_the_headers_that_they_were_sent_with() {
    for family in [0, 1] {
        let Some(world) = World::with_addresses() else { return };
        let (a, b) = (A[family], B[family]);
        let protocols = [PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_IPV6];
        let mut near = open(&world.a, a, b, &protocols);
        let mut far = open(&world.engine, b, a, &protocols);
        for packet in [
            outer(family).gre(|gre| gre.key(7).checksum()).ipv4(|ip| ip).udp(|udp| udp),
            outer(family).ipv4(|ip| ip).tcp(|tcp| tcp),
            outer(family).ipv6(|ip| ip).tcp(|tcp| tcp),
        ] {
            let frame = packet.payload_len(700).build();
            send(&mut near, &frame, &Meta::default());
            let received = receive(&mut far, 1);
            assert_eq!(received.len(), 1);
            assert_eq!(said(&received[0]), said(&frame));
        }
        let (near, far) = (*near.stats(), *far.stats());
        assert_eq!(near.events(SocketEvent::TransmitDatagram), 3);
        assert_eq!(far.events(SocketEvent::ReceiveDatagram), 3);
        let lost = near.counters().chain(far.counters()).filter(|(counter, _)| counter.is_loss);
        assert_eq!(lost.map(|(_, value)| value).sum::<u64>(), 0);
    }
}

#[test]
fn a_superframe_leaves_as_its_packets_with_all_checksums_made() {
    for family in [0, 1] {
        let Some(world) = World::with_addresses() else { return };
        let (a, b) = (A[family], B[family]);
        let mut near = open(&world.a, a, b, &[PROTOCOL_GRE]);
        let mut far = open(&world.engine, b, a, &[PROTOCOL_GRE]);
        let packet = |sequence: u32, len: usize| {
            let gre = outer(family).gre(|gre| gre.key(7).checksum()).ipv4(|ip| ip.id(0));
            gre.tcp(|tcp| tcp.sequence(sequence)).payload_len(len)
        };
        let (frame, start, offset) = packet(1, 1000 * 70).build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let mut meta = Meta { checksum, gso: Gso::every(1000), ..Meta::default() };
        if let Some(gso) = &mut meta.gso {
            gso.fixed_ids = grosso::meta::IpLevels::ALL;
        }
        send(&mut near, &frame[..frame.len() - 6000 - 500], &meta);
        let mut received = receive(&mut far, 64).into_iter();
        for i in 0..64 {
            let len = if i == 63 { 500 } else { 1000 };
            let expected = packet(1 + i * 1000, len).build();
            assert_eq!(said(&received.next().unwrap()), said(&expected), "{i}");
        }
        assert_eq!(near.stats().events(SocketEvent::TransmitMessage), 64);
    }
}

#[test]
fn no_protocol_unreachable_is_sent_while_a_port_is_open() {
    for family in [0, 1] {
        let Some(world) = World::with_addresses() else { return };
        let (a, b) = (A[family], B[family]);
        let mut near = open(&world.a, a, b, &[PROTOCOL_GRE]);
        let frame = outer(family).gre(|gre| gre).ipv4(|ip| ip).build();
        let mut far = open(&world.engine, b, a, &[PROTOCOL_GRE]);
        send(&mut near, &frame, &Meta::default());
        receive(&mut far, 1);
        assert_eq!(refusals(&world.engine, family), 0);
        drop(far);
        // The kernel limits the rate of its messages, so it may not reply to a packet.
        until(|| {
            send(&mut near, &frame, &Meta::default());
            refusals(&world.engine, family) > 0
        });
    }
}

/// Returns the number of times that a host reported an unreachable protocol or an unknown next header.
fn refusals(host: &NetworkNamespace, family: usize) -> u64 {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    if family == 1 {
        let text = host.run(|| read("snmp6")).unwrap().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Icmp6OutParmProblems"));
        return number(line.unwrap());
    }
    let text = host.run(|| read("snmp")).unwrap().unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    number(columns.find(|(name, _)| *name == "OutDestUnreachs").unwrap().1)
}

#[test]
fn what_may_be_fragmented_is_and_is_joined_behind_the_port() {
    let Some(world) = World::with_addresses() else { return };
    let mut near = open(&world.a, A[0], B[0], &[PROTOCOL_GRE]);
    let far = open(&world.engine, B[0], A[0], &[PROTOCOL_GRE]);
    let mut far = Fragmentation::new(far, &FragmentationOptions::new(1)).unwrap();
    let frame = outer(0).gre(|gre| gre).ipv4(|ip| ip).udp(|udp| udp).payload_len(4000).build();
    // The first packet exceeds the link MTU and forbids fragmentation, but it must not be lost for that reason.
    let mut allowed = frame.clone();
    allowed[6] = 0;
    for (frame, forbidden) in [(&frame, 1), (&allowed, 1)] {
        send(&mut near, frame, &Meta::default());
        let received = receive(&mut far, 1);
        assert_eq!(said(&received[0]), said(&allowed));
        assert_eq!(near.stats().events(SocketEvent::TransmitFragmented), forbidden);
    }
    assert_eq!(near.stats().events(SocketEvent::TransmitTooLong), 0);
    assert_eq!(far.inner_mut().stats().events(SocketEvent::ReceiveDatagram), 6);
}

#[test]
fn what_no_socket_can_make_is_dropped_by_name() {
    let Some(world) = World::with_addresses() else { return };
    let mut near = open(&world.a, A[0], B[0], &[PROTOCOL_GRE]);
    let fragment = outer(0).gre(|gre| gre).build();
    let fragment: Vec<u8> =
        fragment.iter().enumerate().map(|(i, b)| b | u8::from(i == 7)).collect();
    let other = outer(0).ipv4(|ip| ip).build();
    let six = outer(1).gre(|gre| gre).build();
    for frame in [&fragment[..], &other, &six, &[], &six[..3]] {
        send(&mut near, frame, &Meta::default());
    }
    assert_eq!(near.stats().events(SocketEvent::TransmitInexpressible), 5);
    assert_eq!(near.stats().events(SocketEvent::TransmitDatagram), 0);
}

#[test]
fn several_ports_share_the_flows_and_lose_none() {
    let Some(world) = World::with_addresses() else { return };
    let mut near = open(&world.a, A[0], B[0], &[PROTOCOL_IPV4]);
    let mut options = IpOptions::new(B[0], vec![PROTOCOL_IPV4]);
    options.remotes = vec![A[0]];
    let mut far = world.engine.run(|| IpPort::open_queues(&options, 2)).unwrap().unwrap();
    for port in 0..64 {
        let packet = outer(0).ipv4(|ip| ip).udp(|udp| udp.source_port(1000 + port));
        send(&mut near, &packet.payload(b"x").build(), &Meta::default());
    }
    let mut counts = [0; 2];
    until(|| {
        for (count, port) in counts.iter_mut().zip(&mut far) {
            port.receive(0, 100, &mut |_| *count += 1).unwrap();
        }
        counts.iter().sum::<u64>() >= 64
    });
    assert!(counts.iter().all(|count| *count > 0) && counts[0] + counts[1] == 64, "{counts:?}");
}
