//! Tests those of the kernel's own cases K110 to K119 (`psock_snd`, `tun.c`) that concern ports.

use std::io;

use grosso::vnet::VnetError;
use grosso_rig::{
    engine,
    kernel::{TunnelOffsets, VirtioHeader, release},
};
use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName, write_attribute},
    netlink::Netlink,
    packet::PacketSocket,
    tun::{Offloads, Tun, TunBuilder},
};
use grosso_wire::LinkType;

use super::{Case, ethernet, isolated, packet_socket, read_all, tap, udp4, vxlan};

/// Creates a TAP with the short header. The reader of the TAP does not accept superframes.
fn plain_tap(control: &Control) -> io::Result<Tun> {
    let tap = tap(control, "tap0")?;
    tap.set_header_bytes(VirtioHeader::BYTES as u8)?;
    Ok(tap)
}

/// Reads the frames that leave a TAP, without their short headers.
fn frames(tap: &Tun) -> io::Result<Vec<Vec<u8>>> {
    let packets = read_all(tap)?;
    Ok(packets.into_iter().map(|packet| packet[VirtioHeader::BYTES..].to_vec()).collect())
}

fn with_header(header: VirtioHeader, frame: &[u8]) -> Vec<u8> {
    [&header.to_bytes()[..VirtioHeader::BYTES], frame].concat()
}

/// Returns a datagram in a frame with `len` bytes after its link-layer header.
fn datagram(len: usize) -> Vec<u8> {
    udp4().payload_len(len - 28).build()
}

#[test]
fn k110_what_a_packet_socket_sends_is_delivered() {
    isolated(|control| {
        let tap = plain_tap(control)?;
        let tagged = ethernet().vlan(|v| v.id(7)).ipv4(|ip| ip).udp(|u| u).payload_len(100);
        for socket in [PacketSocket::builder(), PacketSocket::builder().qdisc_bypass(true)] {
            let socket = socket.bind(tap.name())?;
            for frame in [datagram(128), tagged.build()] {
                socket.send(&frame)?;
                assert_eq!(frames(&tap)?, [frame]);
            }
        }
        for bypass in [false, true] {
            let socket = packet_socket().qdisc_bypass(bypass).bind(tap.name())?;
            socket.send(&with_header(VirtioHeader::default(), &datagram(128)))?;
            assert_eq!(frames(&tap)?, [datagram(128)]);
            let packet = udp4().payload_len(100);
            let (partial, start, offset) = packet.build_partial();
            let header = VirtioHeader {
                flags: VirtioHeader::NEEDS_CHECKSUM,
                checksum_start: start as u16,
                checksum_offset: offset as u16,
                ..VirtioHeader::default()
            };
            socket.send(&with_header(header, &partial))?;
            assert_eq!(frames(&tap)?, [packet.build()]);
        }
        Ok(())
    });
}

#[test]
fn k111_a_checksum_beyond_the_packet_is_not_sent() {
    isolated(|control| {
        let tap = plain_tap(control)?;
        let socket = packet_socket().bind(tap.name())?;
        let case = Case::superframe(udp4().payload_len(30), 1000);
        let case = case.with(|h| (h.gso_type, h.gso_size) = (0, 0));
        socket.send(&with_header(case.header, &case.frame))?;
        for offset in [case.frame.len() as u16, u16::MAX] {
            let case = case.with(|h| h.checksum_offset = offset);
            let refused = socket.send(&with_header(case.header, &case.frame)).unwrap_err();
            assert_eq!(ErrorClass::of(&refused), ErrorClass::Malformed);
            assert_eq!(case.understood(), Err(VnetError::ChecksumOutside));
        }
        assert_eq!(read_all(&tap)?.len(), 1);
        Ok(())
    });
}

#[test]
fn k112_no_payload_and_the_mtu_are_sent_and_one_byte_more_is_too_long() {
    isolated(|control| {
        let tap = plain_tap(control)?;
        let tagged = |len: usize| {
            let packet = ethernet().vlan(|v| v).ipv4(|ip| ip).udp(|u| u);
            packet.payload_len(len - 28).build()
        };
        let plain = PacketSocket::builder().bind(tap.name())?;
        for frame in [datagram(28), datagram(1500), tagged(28), tagged(1500)] {
            plain.send(&frame)?;
            assert_eq!(frames(&tap)?, [frame]);
        }
        for frame in [datagram(1501), tagged(1501)] {
            assert_eq!(ErrorClass::of(&plain.send(&frame).unwrap_err()), ErrorClass::TooLong);
        }
        let socket = packet_socket().bind(tap.name())?;
        let none = VirtioHeader::default();
        socket.send(&with_header(none, &datagram(1500)))?;
        let refused = socket.send(&with_header(none, &datagram(1501))).unwrap_err();
        assert_eq!(ErrorClass::of(&refused), ErrorClass::TooLong);
        Ok(())
    });
}

#[test]
fn k113_a_frame_is_a_link_layer_header_at_least() {
    isolated(|control| {
        let tap = plain_tap(control)?;
        let socket = PacketSocket::builder().bind(tap.name())?;
        socket.send(&datagram(128)[..14])?;
        let refused = socket.send(&datagram(128)[..13]).unwrap_err();
        assert_eq!(ErrorClass::of(&refused), ErrorClass::Malformed);
        Ok(())
    });
}

#[test]
fn k114_superframes_of_one_byte_more_than_a_segment_up_to_the_ip_length_limit() {
    isolated(|control| {
        let tap = plain_tap(control)?;
        let socket = packet_socket().bind(tap.name())?;
        for (payload_len, packets) in [(1473, 2), (65_507, 45)] {
            let case = Case::superframe(udp4().payload_len(payload_len), 1472);
            socket.send(&with_header(case.header, &case.frame))?;
            let read = frames(&tap)?;
            assert_eq!(read, cut(&case));
            assert_eq!(read.len(), packets);
        }
        Ok(())
    });
}

/// Returns the packets into which Grosso segments a superframe.
fn cut(case: &Case) -> Vec<Vec<u8>> {
    let meta = case.understood().unwrap();
    let outgoing = grosso::segment::Outgoing::default();
    let packets = engine::cut(&[&case.frame], &meta, LinkType::Ethernet, outgoing).unwrap();
    packets.into_iter().map(|(frame, _)| frame).collect()
}

#[test]
fn k115_queues_are_attached_detached_closed_and_deleted_in_every_order() {
    /// Operations on a device with two queues.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Detach,
        Attach,
        Delete,
        Close,
    }
    let acts = [Act::Detach, Act::Attach, Act::Delete, Act::Close];
    let numbers = (0..256).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6]);
    let all = numbers.filter(|order| (0..4).all(|act| order.contains(&act)));
    let orders = all.map(|order| order.map(|act| acts[act]));
    isolated(|control| {
        for order in orders {
            let name = InterfaceName::new("many0")?;
            let builder = TunBuilder::tap(name).multi_queue(true).virtio_header(true);
            let builder = builder.nonblocking(true);
            let mut queues = vec![builder.clone().open()?, builder.open()?];
            control.set_up(&name, true)?;
            let mut is_there = true;
            for act in order {
                match (act, queues.last()) {
                    // Repeating an operation is refused, and so is any operation on a deleted device.
                    (Act::Detach, Some(queue)) => drop(queue.set_attached(false)),
                    (Act::Attach, Some(queue)) => drop(queue.set_attached(true)),
                    (Act::Close, _) => drop(queues.pop()),
                    (Act::Delete, _) if is_there && !queues.is_empty() => {
                        Netlink::new()?.delete_link(control.index(&name)?)?;
                        is_there = false;
                    }
                    _ => {}
                }
                let frame = with_header(VirtioHeader::default(), &datagram(128));
                for queue in &queues {
                    let class = queue.write(&frame).map_err(|error| ErrorClass::of(&error));
                    assert_eq!(class.is_ok(), is_there, "{order:?}: {class:?}");
                    assert!(is_there || class == Err(ErrorClass::Gone), "{order:?}: {class:?}");
                }
            }
            drop(queues);
            assert!(control.index(&name).is_err(), "{order:?}: it went with its last queue");
        }
        Ok(())
    });
}

/// Creates two TAPs that are connected by a bridge. Their readers accept all superframes. Returns `None` if the
/// kernel's virtio header does not support tunnels.
fn bridged(control: &Control) -> io::Result<Option<[Tun; 2]>> {
    if release() < (6, 17) {
        println!("skipped: tunnel superframes wants Linux 6.17");
        return Ok(None);
    }
    let taps = [tap(control, "tap0")?, tap(control, "tap1")?];
    let bridge = InterfaceName::new("bridge0")?;
    control.add_bridge(&bridge)?;
    for tap in &taps {
        control.add_bridge_port(&bridge, tap.name())?;
        let tcp = Offloads::TCP_IPV4 | Offloads::TCP_IPV6 | Offloads::UDP;
        let tunnels = Offloads::UDP_TUNNEL | Offloads::UDP_TUNNEL_CHECKSUM;
        tap.set_offloads(Offloads::CHECKSUM | tcp | tunnels)?;
    }
    // Otherwise, the bridge would learn the frames' source address, and would not send frames for this address back.
    write_attribute(taps[0].name(), "brport/learning", "0")?;
    // Otherwise, the bridge would announce its multicast groups on all ports.
    write_attribute(&bridge, "bridge/multicast_snooping", "0")?;
    control.set_up(&bridge, true)?;
    Ok(Some(taps))
}

const NESTINGS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Reads the packets that arrive at the other TAP: the header with its fields for tunnels, and the frame.
fn arrived(tap: &Tun) -> io::Result<Vec<Case>> {
    let parse = |packet: Vec<u8>| {
        let (header, frame) = packet.split_at(VirtioHeader::TUNNEL_BYTES);
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let tunnel = TunnelOffsets { outer_transport: word(20), inner_network: word(22) };
        let short = VirtioHeader::parse(header.first_chunk().unwrap());
        Case { header: VirtioHeader { tunnel, ..short }, frame: frame.to_vec() }
    };
    Ok(read_all(tap)?.into_iter().map(parse).collect())
}

#[test]
fn k116_one_packet_in_a_tunnel_arrives_as_one() {
    isolated(|control| {
        let Some([from, to]) = bridged(control)? else { return Ok(()) };
        for (outer, inner) in NESTINGS {
            for payload_len in [1, 999, 1000] {
                let case = vxlan(outer, inner, payload_len, 1000);
                let case = case.with(|h| {
                    (h.flags, h.gso_type, h.gso_size) = (VirtioHeader::NEEDS_CHECKSUM, 0, 0);
                    h.tunnel = TunnelOffsets::default();
                });
                from.write(&case.bytes())?;
                let [arrived] = arrived(&to)?.try_into().unwrap();
                assert_eq!(arrived.frame, case.frame);
                let meta = arrived.understood().unwrap();
                assert_eq!(meta, case.understood().unwrap(), "{:?}", arrived.header);
            }
        }
        Ok(())
    });
}

#[test]
fn k117_superframes_in_a_tunnel_arrive_whole_and_stand_for_as_many_packets() {
    isolated(|control| {
        let Some([from, to]) = bridged(control)? else { return Ok(()) };
        for (outer, inner) in NESTINGS {
            for (payload_len, size, packets) in
                [(1001, 1000, 2), (2000, 1000, 2), (5, 2, 3), (128, 1, 128)]
            {
                let case = vxlan(outer, inner, payload_len, size);
                assert_eq!(cut(&case).len(), packets);
                // A reader that accepts superframes gets the frame unchanged, with the same meaning.
                from.write(&case.bytes())?;
                let [there] = arrived(&to)?.try_into().unwrap();
                assert_eq!(there.frame, case.frame);
                assert_eq!(there.understood().unwrap(), case.understood().unwrap());
                assert_eq!(there.header.tunnel, case.header.tunnel);
                // A reader that accepts no superframes gets the same packets that Grosso creates by segmenting the
                // frame.
                to.set_offloads(Offloads::NONE)?;
                from.write(&case.bytes())?;
                let there: Vec<_> = arrived(&to)?.into_iter().map(|case| case.frame).collect();
                let tcp = Offloads::CHECKSUM | Offloads::TCP_IPV4 | Offloads::UDP;
                to.set_offloads(tcp | Offloads::UDP_TUNNEL | Offloads::UDP_TUNNEL_CHECKSUM)?;
                assert_eq!(there.len(), packets);
                assert!(there == cut(&case), "{outer} {inner} {size}");
            }
        }
        Ok(())
    });
}

#[test]
fn k118_the_greatest_superframe_in_a_tunnel_passes_and_a_greater_one_does_not() {
    isolated(|control| {
        let Some([from, to]) = bridged(control)? else { return Ok(()) };
        to.set_offloads(Offloads::NONE)?;
        for (outer, inner) in NESTINGS {
            // This is the maximum length in the outermost header. An IPv6 length does not include the IPv6 header
            // itself.
            let headers = vxlan(outer, inner, 2000, 1000).frame.len() - 2000;
            let room = 65_535 + 14 - headers + if outer { 40 } else { 0 };
            let case = vxlan(outer, inner, room, 1400);
            from.write(&case.bytes())?;
            let there = arrived(&to)?.into_iter();
            let there: Vec<_> = there.map(|case| case.frame).collect();
            assert!(there == cut(&case), "{outer} {inner}: {} packets", there.len());
            // The kernel accepts one more byte, but the packet never arrives.
            let more = vxlan(outer, inner, room + 1, 1400);
            from.write(&more.bytes())?;
            assert!(arrived(&to)?.is_empty(), "{outer} {inner}");
        }
        Ok(())
    });
}

#[test]
fn k119_without_a_segment_size_nothing_is_longer_than_the_mtu() {
    isolated(|control| {
        let Some([from, to]) = bridged(control)? else { return Ok(()) };
        for (outer, inner) in NESTINGS {
            let headers = vxlan(outer, inner, 2000, 1000).frame.len() - 2000;
            let most = 1500 + 14 - headers;
            for (payload_len, arrives) in [(1, 1), (most, 1), (most + 100, 0)] {
                let case = vxlan(outer, inner, payload_len, 1000);
                let case = case.with(|h| {
                    (h.flags, h.gso_type, h.gso_size) = (VirtioHeader::NEEDS_CHECKSUM, 0, 0);
                    h.tunnel = TunnelOffsets::default();
                });
                from.write(&case.bytes())?;
                assert_eq!(arrived(&to)?.len(), arrives, "{outer} {inner} {payload_len}");
            }
        }
        Ok(())
    });
}
