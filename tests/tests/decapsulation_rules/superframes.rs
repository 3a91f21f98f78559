//! Tests that decapsulated superframes keep the metadata that describes their segments (rule W4).

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Sink,
    checksum::Checksum,
    meta::{Gso, GsoSize, IpLevels},
    segment::{Outgoing, Segments},
    tunnel::{Tunnel, decapsulate::Refusal},
};
use grosso_testkit::{
    Packet,
    stack::{Front, Network, Place, Stack, Transport, Tunnel as Through},
};
use grosso_wire::{LinkType, Ports};

use super::taking::{rules, take_with};

fn take(frame: &[u8], meta: &Meta) -> Result<super::taking::Taken, Refusal> {
    take_with(frame, meta, LinkType::Ethernet, &rules())
}

/// Returns the packets of one train, and the superframe into which the coalescer merges them.
fn train(stack: &Stack) -> (Vec<Packet>, Vec<u8>, Meta) {
    let packets: Vec<_> = (0..4)
        .map(|i: u16| {
            let sequence = 100 + u32::from(i) * 700;
            let place = Place { sequence, ids: vec![40, 7 + i], ..Place::default() };
            stack.packet(&place).payload_len(if i == 3 { 9 } else { 700 })
        })
        .collect();
    let mut delivered = Vec::new();
    let sink: &mut dyn Sink<_> = &mut |delivery: Delivery<'_, Vec<u8>>| {
        let mut bytes = Vec::new();
        delivery.copy_to(&mut bytes);
        delivered.push((bytes, delivery.meta));
    };
    let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1));
    for packet in &packets {
        coalescer.push(Frame::new(packet.build()), 0, sink);
    }
    coalescer.poll_end(0, sink);
    assert_eq!(delivered.len(), 1, "{stack:?}");
    let (frame, meta) = delivered.remove(0);
    (packets, frame, meta)
}

/// Tests that a superframe's outer checksum does not yield the inner packet's sum: the device verified the checksums of
/// the single packets, but the superframe as a whole has none.
#[test]
fn c30_the_checksum_around_a_superframe_gives_no_sum() {
    let mut stack = Stack::plain(Front::Ethernet, Network::Ipv4, Transport::Tcp);
    stack.tunnels.push((Network::Ipv6, Through::VxlanPolicy));
    let (_, frame, meta) = train(&stack);
    let taken = take(&frame, &Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..meta });
    assert_eq!(taken.unwrap().meta.checksum, Checksum::None);
}

/// Tests that segmenting the decapsulated superframe gives the same packets as decapsulating them one by one.
#[test]
fn w04_a_superframe_is_cut_after_the_tunnel_as_before() {
    for tunnel in [
        Through::Ip,
        Through::GreKey,
        Through::GreChecksum,
        Through::GreEthernet,
        Through::Vxlan,
        Through::VxlanPolicy,
        Through::VxlanRemote,
        Through::Geneve,
        Through::Gue,
        Through::GueRemote,
        Through::GueDirect,
    ] {
        for (front, outer) in [(Front::Ethernet, Network::Ipv4), (Front::Vlan, Network::Ipv6)] {
            let mut stack = Stack::plain(front, Network::Ipv4, Transport::TcpTimestamps);
            stack.tunnels.push((outer, tunnel));
            let (packets, frame, meta) = train(&stack);
            let taken = take(&frame, &meta).unwrap_or_else(|e| panic!("{e}: {stack:?}"));
            let slices = [&taken.packet[..]];
            let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
            let outgoing = Outgoing::default();
            let mut segments = Segments::new(&slices, &taken.meta, link, &ports, outgoing).unwrap();
            let mut buffer = vec![0; segments.packet_len_max()];
            for packet in &packets {
                let segment = segments.write_next(&mut buffer).unwrap().unwrap();
                let expected = packet.out_of_tunnel().unwrap().build();
                assert_eq!(&buffer[..segment.len()], &expected[..], "{stack:?}");
            }
            assert!(segments.write_next(&mut buffer).unwrap().is_none());
        }
    }
}

/// Tests that fixed identifications are numbered by IP level, and decapsulation removes one level.
#[test]
fn w04_b50_levels_of_identification_move_up() {
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g).ipv4(|ip| ip);
    let (frame, start, offset) = outer.tcp(|t| t).payload_len(3000).build_superframe();
    for (before, after) in [(0b00, 0b0), (0b01, 0b0), (0b10, 0b1), (0b11, 0b1)] {
        let gso = Gso::every(1000).map(|gso| Gso { fixed_ids: IpLevels::from_bits(before), ..gso });
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let taken = take(&frame, &Meta { gso, checksum, ..Meta::default() }).unwrap();
        assert_eq!(taken.meta.gso.unwrap().fixed_ids.bits(), after);
        assert_eq!(taken.meta.gso.unwrap().size(), Some(1000));
        assert_eq!(taken.tunnel, Tunnel::Gre);
    }
}

/// Tests a superframe that consists of tunnel datagrams. It contains several inner packets, so it must be segmented
/// before decapsulation.
#[test]
fn b29_a_superframe_of_tunnel_datagrams_is_no_single_packet() {
    let datagram = || {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
        packet.ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(100).build()
    };
    let payload = [datagram()[42..].to_vec(), datagram()[42..].to_vec()].concat();
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.destination_port(4789));
    let (frame, start, offset) = outer.payload(&payload).build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let gso = Gso::every(payload.len() as u16 / 2);
    let refusal = take(&frame, &Meta { gso, checksum, ..Meta::default() }).unwrap_err();
    assert_eq!(refusal, Refusal::Superframe);
}

#[test]
fn superframes_without_a_connection_inside_are_refused() {
    let gso = Gso::every(100);
    let outer = || Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g);
    let frame = outer().ipv4(|ip| ip).sctp(|s| s).payload_len(300).build();
    let refusal = take(&frame, &Meta { gso, ..Meta::default() }).unwrap_err();
    assert_eq!(refusal, Refusal::Superframe);
    let gso = gso.map(|gso| {
        let GsoSize::Every(size) = gso.size else { unreachable!() };
        Gso { size: GsoSize::Fragments(size), ..gso }
    });
    let frame = outer().ipv4(|ip| ip).udp(|u| u).payload_len(300).build();
    let refusal = take(&frame, &Meta { gso, ..Meta::default() }).unwrap_err();
    assert_eq!(refusal, Refusal::Superframe);
}

/// Tests superframes longer than 64 KB, whose length fields are zero if they are too small.
#[test]
fn a_big_superframe_needs_no_lengths() {
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.total_len_raw(0)).gre(|g| g);
    let inner = outer.ipv6(|ip| ip.payload_len_raw(0)).tcp(|t| t).payload_len(100_000);
    let (frame, start, offset) = inner.build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { gso: Gso::every(1400), checksum, ..Meta::default() };
    let taken = take(&frame, &meta).unwrap();
    let (expected, start, offset) = inner.out_of_tunnel().unwrap().build_superframe();
    assert_eq!(taken.packet, expected);
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    assert_eq!(taken.meta.checksum, checksum);
}
