//! Sends single frames with metadata through the kernel, and checks the received frames.

use core::cell::Cell;
use std::{io, process::Command};

use grosso::{
    Frame, Meta, Profile,
    checksum::Checksum,
    meta::{Gso, VlanTag},
};
use grosso_io::{
    Port, Transmitted,
    live::{LiveEvent, PacketOptions, PacketPort, TapOptions, TapPort},
};
use grosso_rig::engine::Engine;
use grosso_sys::{
    interface::{Control, InterfaceName},
    tun::TunBuilder,
};
use grosso_testkit::Packet;
use grosso_wire::virtio::{
    FLAG_NEEDS_CHECKSUM, Form, GSO_ECN, GSO_TCP_IPV6, GSO_TUNNEL_IPV4, GSO_TUNNEL_IPV6, GSO_UDP,
    GSO_UDP_SEGMENTS, Order, VirtioHeader,
};

use super::world::{World, name, skip, until};

/// A UDP port without a listener.
const QUIET: u16 = 53_999;

/// Opens both sides of a TAP device: its descriptor, and a packet socket on its interface.
fn sides(world: &World, form: Form) -> (TapPort, PacketPort) {
    let mut options = TapOptions::default();
    options.header = form;
    let tap = world.tap_port(&options);
    assert_eq!(tap.form(), Some(form));
    let open = || PacketPort::open("b0", &PacketOptions::default());
    let packet = world.b.run(open).unwrap().unwrap();
    (tap, packet)
}

/// Sends a frame into one port, and returns the frames received on the other port that have the same length or source
/// address.
fn pass(
    from: &mut impl Port,
    to: &mut impl Port,
    frame: &[u8],
    meta: &Meta,
) -> Vec<(Vec<u8>, Meta)> {
    // The headers of superframes are a separate slice, as a coalescer delivers them.
    let split = if meta.gso.is_some() { 120 } else { frame.len() };
    let (head, rest) = frame.split_at(split);
    assert_eq!(from.transmit(&[head, rest], meta).unwrap(), Transmitted::Taken);
    assert_eq!(from.flush().unwrap(), Transmitted::Taken);
    let mut frames = Vec::new();
    until(|| {
        // The kernel's own packets have other addresses.
        let mut each = |received: Frame<_>| {
            let bytes = AsRef::<[u8]>::as_ref(&received.buffer).to_vec();
            if bytes.get(..12) == frame.get(..12) {
                frames.push((bytes, received.meta));
            }
        };
        to.receive(0, 100, &mut each).unwrap();
        !frames.is_empty()
    });
    frames
}

fn tcp4() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.timestamps(1, 2))
}

fn tcp6() -> Packet {
    Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t)
}

fn udp4() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.destination_port(QUIET))
}

fn vxlan() -> Packet {
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    outer.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t)
}

fn superframe(packet: Packet) -> (Vec<u8>, Meta) {
    let (frame, start, offset) = packet.payload_len(5000).build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    (frame, Meta { checksum, gso: Gso::every(1200), ..Meta::default() })
}

/// Returns the metadata that a superframe has when it is received from an untrusted source.
fn foreign(meta: Meta, segments: u16) -> Meta {
    let gso = meta.gso.map(|gso| Gso { segments, untrusted: true, ..gso });
    Meta { gso, ..meta }
}

#[test]
fn superframes_keep_their_bytes_and_what_is_known_in_every_form_and_direction() {
    for form in [Form::Short, Form::Buffers, Form::Hash, Form::Tunnel] {
        let Some(world) = World::new() else { return };
        let (mut tap, mut packet) = sides(&world, form);
        for kind in [tcp4(), tcp6(), udp4()] {
            let (frame, meta) = superframe(kind);
            let expected = [(frame.clone(), foreign(meta, 5))];
            assert_eq!(pass(&mut packet, &mut tap, &frame, &meta), expected, "{form:?}");
            assert_eq!(pass(&mut tap, &mut packet, &frame, &meta), expected, "{form:?}");
        }
        assert!(tap.stats().named().all(|(_, count)| count == 0));
    }
}

#[test]
fn a_port_without_the_transmit_ring_that_it_asked_for_counts_it_and_sends() {
    let Some(world) = World::new() else { return };
    let mut tap = world.tap_port(&TapOptions::default());
    let mut options = PacketOptions::default();
    for (slots, events) in [(options.transmit_slots, 0), (1 << 40, 1)] {
        options.transmit_slots = slots;
        let mut packet = world.b.run(|| PacketPort::open("b0", &options)).unwrap().unwrap();
        assert_eq!(packet.stats().unwrap().events(LiveEvent::TransmitNoRing), events);
        let frame = udp4().payload_len(100).build();
        assert_eq!(pass(&mut packet, &mut tap, &frame, &Meta::default()).len(), 1);
    }
}

#[test]
fn packets_superframes_and_refused_frames_leave_in_their_order() {
    for transmit_ring in [true, false] {
        let Some(world) = World::new() else { return };
        let mut tap = world.tap_port(&TapOptions::default());
        let mut options = PacketOptions::default();
        options.transmit_ring = transmit_ring;
        let open = || PacketPort::open("b0", &options);
        let mut packet = world.b.run(open).unwrap().unwrap();
        let plain = |len| (udp4().payload_len(len).build(), Meta::default());
        // There is more than one batch, the superframe is longer than a slot, and a frame of 1800 bytes exceeds the
        // MTU.
        let mut frames: Vec<_> = (0..70).map(plain).collect();
        frames.insert(7, superframe(tcp4()));
        frames.insert(30, plain(1800));
        for (frame, meta) in &frames {
            let (head, rest) = frame.split_at(frame.len().min(120));
            let taken = packet.transmit(&[head, rest], meta).unwrap();
            assert_eq!(taken, Transmitted::Taken);
        }
        assert_eq!(packet.flush().unwrap(), Transmitted::Taken);
        frames.remove(30);
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        until(|| {
            let mut each = |frame: Frame<_>| {
                let bytes: &[u8] = AsRef::as_ref(&frame.buffer);
                // The kernel's own packets have other addresses.
                if bytes.get(..12) == frames[0].0.get(..12) {
                    arrived.push(bytes.to_vec());
                }
            };
            tap.receive(0, 100, &mut each).unwrap();
            arrived.len() >= frames.len()
        });
        assert!(arrived.iter().eq(frames.iter().map(|(frame, _)| frame)), "{transmit_ring}");
        let stats = packet.stats().unwrap();
        assert_eq!(stats.events(LiveEvent::TransmitTooLong), 1);
    }
}

#[test]
fn a_port_sends_nothing_while_the_kernel_has_no_room() {
    for transmit_ring in [true, false] {
        let Some(world) = World::new() else { return };
        let mut tap = world.tap_port(&TapOptions::default());
        let mut options = PacketOptions::default();
        options.transmit_ring = transmit_ring;
        let mut packet = world.b.run(|| PacketPort::open("b0", &options)).unwrap().unwrap();
        // A shaper queues packets, which therefore continue to occupy the send buffer.
        let shaper = |action: &str, rate: &str| {
            let of = format!("qdisc {action} dev b0 root tbf burst 2000 limit 100000000");
            let tc = || Command::new("tc").args(of.split(' ').chain(["rate", rate])).status();
            world.b.run(tc).unwrap().is_ok_and(|tc| tc.success())
        };
        if !shaper("add", "400bit") {
            skip("tc is not installed, or this machine has no sch_tbf");
            return;
        }
        let frame = udp4().payload_len(1000).build();
        let mut taken = 0;
        while packet.transmit(&[&frame], &Meta::default()).unwrap() == Transmitted::Taken {
            taken += 1;
            assert!(taken < 1_000_000, "the send buffer is bounded");
        }
        let (flushed, calls) = calls_of(|| packet.flush().unwrap());
        assert_eq!((flushed, calls), (Transmitted::NoRoom, 0), "transmit ring: {transmit_ring}");
        assert!(shaper("change", "10gbit"));
        let mut arrived = 0;
        until(|| {
            let _ = packet.flush().unwrap();
            let mut each = |received: Frame<_>| {
                let bytes: &[u8] = AsRef::as_ref(&received.buffer);
                arrived += usize::from(bytes == frame);
            };
            tap.receive(0, 100, &mut each).unwrap();
            arrived == taken
        });
    }
}

/// Calls a function. Returns its result, and the number of system calls that it made to send, receive or wait.
fn calls_of<T>(call: impl FnOnce() -> T) -> (T, u32) {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    CALLS.set(0);
    grosso_sys::calls::observe(Some(|call| {
        CALLS.set(CALLS.get() + 1);
        call();
    }));
    let result = call();
    grosso_sys::calls::observe(None);
    (result, CALLS.get())
}

/// Tests frames longer than the MTU: the kernel reserves room in a packet socket for an 802.1Q tag, but not for an
/// 802.1ad tag.
#[test]
fn a_frame_that_is_too_long_by_a_tag_of_802_1ad_is_lost_by_that_name() {
    let Some(world) = World::new() else { return };
    // The interface is the other side of an open device.
    let _tap = world.tap_port(&TapOptions::default());
    for transmit_ring in [true, false] {
        let mut options = PacketOptions::default();
        options.transmit_ring = transmit_ring;
        let mut packet = world.b.run(|| PacketPort::open("b0", &options)).unwrap().unwrap();
        let full = udp4().payload_len(1500 - 28).build();
        let tagged = |tags: &[u16], extra: usize| {
            let tags = tags.iter().flat_map(|protocol| [protocol.to_be_bytes(), [0, 7]]).flatten();
            let mut frame = full.clone();
            frame.splice(12..12, tags);
            frame.resize(frame.len() + extra, 0);
            frame
        };
        let mut send = |frame: &[u8]| {
            assert_eq!(packet.transmit(&[frame], &Meta::default()).unwrap(), Transmitted::Taken);
            assert_eq!(packet.flush().unwrap(), Transmitted::Taken);
            let stats = packet.stats().unwrap();
            [LiveEvent::TransmitServiceTag, LiveEvent::TransmitTooLong]
                .map(|event| stats.events(event))
        };
        assert_eq!(send(&tagged(&[0x8100], 0)), [0, 0]);
        assert_eq!(send(&tagged(&[0x88a8], 0)), [1, 0]);
        assert_eq!(send(&tagged(&[0x88a8, 0x8100], 0)), [2, 0]);
        // These frames would be too long even with room for the tag.
        assert_eq!(send(&tagged(&[0x88a8], 1)), [2, 1]);
        assert_eq!(send(&tagged(&[0x8100], 1)), [2, 2]);
        assert_eq!(send(&tagged(&[], 1)), [2, 3]);
        // A tag in the metadata is written into the frame.
        let vlan = Some(VlanTag { protocol: 0x88a8, tci: 7 });
        let beside = Meta { vlan, ..Meta::default() };
        assert_eq!(packet.transmit(&[&full], &beside).unwrap(), Transmitted::Taken);
        assert_eq!(packet.flush().unwrap(), Transmitted::Taken);
        assert_eq!(packet.stats().unwrap().events(LiveEvent::TransmitServiceTag), 3);
    }
}

#[test]
fn v06_verified_packets_are_partial_for_the_kernel_and_unverified_ones_are_not() {
    let Some(world) = World::new() else { return };
    let (mut tap, mut packet) = sides(&world, Form::Buffers);
    for kind in [tcp4(), tcp6(), udp4()] {
        let kind = kind.payload_len(700);
        let (seeded, start, offset) = kind.build_partial();
        let partial = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let verified = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
        let expected = [(seeded, Meta { checksum: partial, ..Meta::default() })];
        assert_eq!(pass(&mut tap, &mut packet, &kind.build(), &verified), expected);
        let expected = [(kind.build(), Meta::default())];
        assert_eq!(pass(&mut tap, &mut packet, &kind.build(), &Meta::default()), expected);
    }
}

/// Tests a device that verifies the outer checksum of tunnel packets (here, the kernel's GRO). A packet socket reports
/// the verified outer checksum, which proves that the inner one is correct, too. The payload is not read for this, so
/// changing it afterwards has no effect.
#[test]
fn c30_a_packet_socket_reports_a_verified_checksum_that_verifies_the_inner_one() {
    let Some(world) = World::new() else { return };
    let device = || {
        let builder = TunBuilder::tap(name("b0")).virtio_header(true).napi(true);
        let device = builder.nonblocking(true).open()?;
        Control::new()?.set_up(device.name(), true)?;
        let port = PacketPort::open("b0", &PacketOptions::default());
        Ok::<_, io::Error>((device, port.map_err(io::Error::other)?))
    };
    let (device, mut port) = world.b.run(device).unwrap().unwrap();
    let mut engine = Engine::new(Profile::linux());
    for number in 0..3_u16 {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).geneve(|g| g);
        let packet = packet.ethernet(|e| e).ipv4(|ip| ip.id(number));
        let packet = packet.tcp(|t| t.sequence(u32::from(number) * 700)).payload_len(700);
        let sent = packet.build();
        device.write(&[&[0; 10], &sent[..]].concat()).unwrap();
        let mut received = None;
        until(|| {
            let mut each = |frame: Frame<_>| {
                let buffer = AsRef::<[u8]>::as_ref(&frame.buffer).to_vec();
                if buffer == sent {
                    received = Some(Frame { buffer, meta: frame.meta });
                }
            };
            port.receive(0, 100, &mut each).unwrap();
            received.is_some()
        });
        let mut frame = received.unwrap();
        assert_eq!(frame.meta.checksum, Checksum::Unnecessary { levels: 0 });
        *frame.buffer.last_mut().unwrap() ^= 1;
        engine.push_frame(frame, 0);
    }
    engine.poll_end(0);
    assert_eq!(engine.delivered.len(), 1);
    assert_eq!(engine.delivered[0].packets, 3);
}

#[test]
fn v08_superframes_in_tunnels_pass_in_the_longest_form_and_are_cut_where_there_is_none() {
    let Some(world) = World::new() else { return };
    let (mut tap, mut packet) = sides(&world, Form::Tunnel);
    let (frame, meta) = superframe(vxlan());
    // Rule T12: the header of a packet socket cannot describe the tunnel, but it contains the start of the checksum.
    let there = pass(&mut tap, &mut packet, &frame, &meta);
    assert_eq!(there, [(frame.clone(), foreign(meta, 5))]);
    let back = pass(&mut packet, &mut tap, &frame, &meta);
    assert_eq!(back.len(), 5);
    assert!(back.iter().all(|(_, meta)| meta.gso.is_none()));
    assert!(tap.stats().named().all(|(_, count)| count == 0));
}

#[test]
fn k110_a_tag_beside_the_frame_is_beside_it_again() {
    let Some(world) = World::new() else { return };
    let (mut tap, mut packet) = sides(&world, Form::Short);
    let vlan = Some(VlanTag { protocol: 0x8100, tci: 0x2007 });
    let (frame, meta) = superframe(tcp4());
    let tagged = Meta { vlan, ..meta };
    let there = pass(&mut tap, &mut packet, &frame, &tagged);
    assert_eq!(there, [(frame.clone(), foreign(tagged, 5))]);
    // Rule V20: a reader of the TAP finds the tag in the frame, and the start of the checksum after the tag.
    let (bytes, read) = pass(&mut packet, &mut tap, &frame, &tagged).remove(0);
    assert_eq!(bytes, [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat());
    assert_eq!(read.checksum, Checksum::Partial { start: 38, offset: 16 });
}

/// Writes a frame with a changed virtio header, and returns whether the kernel accepts it.
fn kernel_takes(world: &World, case: &(Vec<u8>, Meta), change: fn(&mut VirtioHeader)) -> bool {
    let write = || {
        let name = InterfaceName::new("v%d")?;
        let tap = TunBuilder::tap(name).virtio_header(true).nonblocking(true).open()?;
        Control::new()?.set_up(tap.name(), true)?;
        tap.set_header_bytes(24)?;
        let stack = grosso_wire::dissect(
            &case.0,
            grosso_wire::LinkType::Ethernet,
            &grosso_wire::Ports::ASSIGNED,
        );
        let described =
            grosso::vnet::describe(&case.0, case.0.len(), &stack, &case.1, Form::Tunnel);
        let mut header = described.unwrap().header;
        change(&mut header);
        let mut packet = vec![0; 24];
        header.emit(Form::Tunnel, Order::NATIVE, &mut packet).unwrap();
        packet.extend_from_slice(&case.0);
        tap.write(&packet)
    };
    match world.b.run(write).unwrap() {
        Ok(_) => true,
        Err(error) if error.raw_os_error() == Some(22) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn v01_to_v08_the_kernel_refuses_what_is_refused_here() {
    let Some(world) = World::new() else { return };
    let (tcp, udp, tunnel) = (superframe(tcp4()), superframe(udp4()), superframe(vxlan()));
    let tcp6 = superframe(tcp6());
    let takes = |case, change: fn(&mut VirtioHeader)| kernel_takes(&world, case, change);
    for case in [&tcp, &tcp6, &udp, &tunnel] {
        assert!(takes(case, |_| {}), "a correct description is accepted");
        // Rules V1, V2, V3.
        assert!(!takes(case, |h| h.gso_size = 0));
        assert!(!takes(case, |h| h.gso_size = u16::MAX));
        assert!(!takes(case, |h| h.gso_type |= 0x08));
        assert!(!takes(case, |h| h.checksum_start = 30_000));
        assert!(!takes(case, |h| h.header_length = 6_000));
        // Rule V6: the header length is a hint, and unknown flags are ignored.
        assert!(takes(case, |h| h.header_length = 0));
        assert!(takes(case, |h| h.flags |= 0x80));
    }
    assert!(!takes(&tcp, |h| *h = VirtioHeader { header_length: 13, ..VirtioHeader::default() }));
    assert!(takes(&tcp, |h| *h = VirtioHeader { header_length: 14, ..VirtioHeader::default() }));
    // Rules V3 and V4.
    assert!(!takes(&tcp, |h| h.checksum_start = 14));
    assert!(!takes(&tcp, |h| h.checksum_offset = 6));
    assert!(!takes(&udp, |h| h.checksum_offset = 16));
    assert!(!takes(&udp, |h| h.gso_type = GSO_UDP_SEGMENTS | GSO_ECN));
    assert!(!takes(&udp, |h| h.flags = 0));
    assert!(!takes(&udp, |h| h.gso_size = 39), "128 datagrams have room for less");
    assert!(takes(&udp, |h| h.gso_size = 40));
    assert!(takes(&udp, |h| h.gso_type = GSO_UDP));
    // Rule V8.
    assert!(!takes(&tunnel, |h| h.gso_type |= GSO_TUNNEL_IPV6));
    assert!(!takes(&tunnel, |h| h.gso_type = GSO_TUNNEL_IPV4));
    assert!(!takes(&tunnel, |h| h.gso_type = GSO_TUNNEL_IPV4 | GSO_UDP));
    assert!(!takes(&tunnel, |h| h.flags &= !FLAG_NEEDS_CHECKSUM));
    assert!(!takes(&tunnel, |h| h.outer_transport = 20));
    assert!(!takes(&tunnel, |h| h.inner_network = h.outer_transport + 7));
    assert!(!takes(&tunnel, |h| h.inner_network = h.checksum_start - 10));
    // On a TAP, the 20 and 40 bytes of rule V3 are counted from the start of the Ethernet header.
    assert!(!takes(&tcp, |h| h.checksum_start = 19));
    assert!(!takes(&tcp6, |h| h.checksum_start = 39));
    assert!(!takes(&tcp6, |h| h.gso_type = GSO_TCP_IPV6 | 0x10));
}

#[test]
fn v30_what_a_tap_hands_out_is_what_it_was_asked_for() {
    use grosso::features::Features;
    let Some(world) = World::new() else { return };
    let mut options = TapOptions::default();
    options.header = Form::Tunnel;
    let all = world.tap_port(&options);
    let tunnels = Features::UDP_TUNNEL_SEGMENTATION | Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION;
    assert!(all.receive_features().contains(tunnels | Features::UDP_SEGMENTATION));
    assert!(all.device().features.contains(tunnels | Features::UDP_SEGMENTATION));
    drop(all);
    for (wanted, expected) in [
        (Features::NONE, Features::NONE),
        (Features::TCP_SEGMENTATION, Features::NONE),
        (Features::CHECKSUM_GENERIC, Features::CHECKSUM_GENERIC),
        (Features::ALL.without(Features::CHECKSUM_GENERIC), Features::NONE),
        (Features::CHECKSUM_GENERIC | Features::TCP_ECN_SEGMENTATION, Features::CHECKSUM_GENERIC),
    ] {
        options.receive = wanted;
        options.transmit = wanted;
        let port = world.b.run(|| TapPort::open("t%d", grosso_sys::tun::Layer::Ethernet, &options));
        let port = port.unwrap().unwrap();
        assert_eq!(port.receive_features(), expected, "{wanted:?}");
        assert!(!port.device().features.contains(tunnels));
        // The kernel reports the same features.
        let is_on = |feature: &str| {
            let ask = || {
                let control = Control::new()?;
                grosso_sys::ethtool::feature_is_on(&control, &name(port.name()), feature)
            };
            world.b.run(ask).unwrap().unwrap()
        };
        let checksum = expected.contains(Features::CHECKSUM_GENERIC);
        assert_eq!(is_on("tx-checksum-ip-generic"), checksum, "{wanted:?}");
        assert!(!is_on("tx-tcp-segmentation"), "{wanted:?}");
    }
}
