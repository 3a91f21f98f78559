//! Sends superframes, up to the longest IP packet, into this host's network stack.

use grosso::{
    Meta,
    features::{Device, Features},
};
use grosso_io::{
    Port, Transmitted,
    live::TapOptions,
    memory::wire,
    path::{Direction, PathOptions},
};
use grosso_sys::packet::PacketSocket;
use grosso_testkit::Packet;
use grosso_wire::{
    LinkType,
    virtio::{Form, GSO_TCP_IPV4, GSO_TCP_IPV6, Order, VirtioHeader},
};

use super::world::{World, name, until};

/// Length of the IP and TCP headers in bytes.
const HEADERS: [usize; 2] = [20 + 20, 40 + 20];
/// The most common segment size of TCP over Ethernet, which divides many lengths near 64 KB.
const MSS_ELSE: usize = 1364;

/// Returns the packet of a connection whose payload starts at `index`.
fn packet(is_ipv6: bool, index: usize, mss: usize) -> Packet {
    let link = Packet::new().ethernet(|e| e);
    let packet = match is_ipv6 {
        true => link.ipv6(|ip| ip),
        false => link.ipv4(|ip| ip.id(index as u16)),
    };
    packet.tcp(|tcp| tcp.sequence((index * mss) as u32))
}

/// Returns a common segment size that divides the payload evenly, if there is one.
fn dividing(payload: usize) -> usize {
    (536..=9000).rev().find(|&mss| payload.is_multiple_of(mss)).unwrap_or(MSS_ELSE)
}

/// Tests every length from 65500 (`large_max` of the kernel selftest) to the longest IP packet. For each length, the
/// stack receives one frame that equals the superframe of these packets.
#[test]
fn s02_superframes_of_every_length_up_to_the_longest_reach_the_stack_whole() {
    let Some(world) = World::new() else { return };
    let mut tap = world.tap_port(&TapOptions::default());
    let bind = || {
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        socket.receive_buffer_bytes(16 << 20).bind(&name("b0"))
    };
    let socket = world.b.run(bind).unwrap().unwrap();
    let (mut source, mut outside) = wire(LinkType::Ethernet, Device::new(Features::NONE), 1000);
    let mut options = PathOptions::new(1);
    options.budget_frames = 1000;
    let mut direction = Direction::new(options, LinkType::Ethernet, tap.device());
    let mut buffer = vec![0; 70_000];
    for (total, is_ipv6) in (65_500..=65_535).flat_map(|total| [(total, false), (total, true)]) {
        let payload = total - HEADERS[usize::from(is_ipv6)];
        // The segment size for the selftest's MTU of 4096. With this size, the last packet is shorter.
        let selftest = 4096 - HEADERS[usize::from(is_ipv6)];
        for mss in [dividing(payload), selftest] {
            let context = format!("{total} bytes, MSS {mss}, IPv6 {is_ipv6}");
            for index in 0..payload.div_ceil(mss) {
                let len = mss.min(payload - index * mss);
                let frame = packet(is_ipv6, index, mss).payload_len(len).build();
                assert_eq!(
                    source.transmit(&[&frame], &Meta::default()).unwrap(),
                    Transmitted::Taken
                );
            }
            let cut_before = direction.stats().cut;
            direction.poll(&mut outside, &mut tap, 0).unwrap();
            let (expected, start, _) =
                packet(is_ipv6, 0, mss).payload_len(payload).build_superframe();
            let mut arrived = Vec::new();
            until(|| {
                while let Some(received) = socket.receive(&mut buffer).unwrap() {
                    let bytes = &buffer[..received.length];
                    let (header, frame) =
                        VirtioHeader::parse(bytes, Form::Short, Order::NATIVE).unwrap();
                    // The kernel's own packets have other addresses.
                    if frame.get(..12) == expected.get(..12) {
                        arrived.push((header, frame.to_vec()));
                    }
                }
                !arrived.is_empty()
            });
            let lengths: Vec<usize> = arrived.iter().map(|(_, frame)| frame.len()).collect();
            assert_eq!(lengths, [14 + total], "{context}");
            let (header, frame) = &arrived[0];
            assert!(*frame == expected, "{context}: other bytes");
            let gso_type = if is_ipv6 { GSO_TCP_IPV6 } else { GSO_TCP_IPV4 };
            let said = (header.gso_type, usize::from(header.gso_size), header.checksum_start);
            assert_eq!(said, (gso_type, mss, start as u16), "{context}");
            assert_eq!(direction.stats().cut, cut_before, "{context}");
        }
    }
}
