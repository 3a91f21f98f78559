//! Tests frames that are longer than a slot in the receive ring and wait in the socket's queue.

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    meta::{Gso, VlanTag},
};
use grosso_io::{
    Port,
    live::{LiveEvent, PacketOptions, PacketPort, TapOptions, TapPort},
};
use grosso_testkit::Packet;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::world::{World, until};

/// Returns a superframe with sequence number `number` in the flow from `port`.
fn superframe(port: u16, number: u32, bytes: usize) -> (Vec<u8>, Meta) {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    let packet = packet.tcp(move |t| t.source_port(port).sequence(number)).payload_len(bytes);
    let (frame, start, offset) = packet.build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    (frame, Meta { checksum, gso: Gso::every(1200), ..Meta::default() })
}

fn datagram(number: u16) -> (Vec<u8>, Meta) {
    let packet =
        Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(number)).udp(|u| u.source_port(7));
    (packet.payload_len(200).build(), Meta::default())
}

/// Sends frames through a device to its interface.
fn send<'a>(tap: &mut TapPort, frames: impl IntoIterator<Item = &'a (Vec<u8>, Meta)>) {
    for (frame, meta) in frames {
        let (head, rest) = frame.split_at(frame.len().min(120));
        let _ = tap.transmit(&[head, rest], meta).unwrap();
    }
    let _ = tap.flush().unwrap();
}

/// Receives until `count` frames with the test's addresses have arrived.
fn receive(port: &mut PacketPort, count: usize) -> Vec<(Vec<u8>, Option<VlanTag>, bool)> {
    let ours = datagram(0).0;
    let (mut frames, mut buffers) = (Vec::new(), Vec::new());
    until(|| {
        let mut each = |frame: Frame<grosso_io::PortBuffer>| {
            let bytes = frame.buffer.as_ref();
            if bytes[..12] == ours[..12] {
                frames.push((bytes.to_vec(), frame.meta.vlan, frame.meta.gso.is_some()));
            }
            buffers.push(frame.buffer);
        };
        port.receive(0, 64, &mut each).unwrap();
        port.recycle_all(&mut buffers);
        frames.len() >= count
    });
    frames
}

fn losses(port: &mut PacketPort) -> u64 {
    let stats = port.stats().unwrap();
    [LiveEvent::ReceiveTruncated, LiveEvent::ReceiveRingFull]
        .map(|event| stats.events(event))
        .iter()
        .sum()
}

#[test]
fn long_frames_come_whole_in_their_places_with_their_tags() {
    let Some(world) = World::new() else { return };
    let mut tap = world.tap_port(&TapOptions::default());
    let open = || PacketPort::open("b0", &PacketOptions::default());
    let mut port = world.b.run(open).unwrap().unwrap();
    let tag = VlanTag { protocol: 0x8100, tci: 0x2005 };
    let mut frames = Vec::new();
    for number in 0..12 {
        let (frame, mut meta) = superframe(1, number, 40_000 + number as usize);
        meta.vlan = number.is_multiple_of(3).then_some(tag);
        frames.extend([(frame, meta), datagram(number as u16)]);
    }
    send(&mut tap, &frames);
    let expected: Vec<_> =
        frames.iter().map(|(bytes, meta)| (bytes.clone(), meta.vlan, meta.gso.is_some())).collect();
    assert_eq!(receive(&mut port, frames.len()), expected);
    assert_eq!(losses(&mut port), 0);
}

#[test]
fn a_long_frame_that_is_dropped_for_its_flow_s_share_leaves_those_behind_it_whole() {
    let Some(world) = World::new() else { return };
    let mut tap = world.tap_port(&TapOptions::default());
    let mut options = PacketOptions::default();
    options.slots = Some(64);
    options.slot_bytes = Some(2048);
    let mut port = world.b.run(|| PacketPort::open("b0", &options)).unwrap().unwrap();
    // The greedy flow has 48 of the 56 frames, and another flow has eight. All of them are long.
    let frames: Vec<_> = (0..56)
        .map(|number| superframe(1 + u16::from(number % 7 == 6), number, 3000 + number as usize))
        .collect();
    send(&mut tap, &frames);
    let last = datagram(1);
    send(&mut tap, [&last]);
    let mut came = Vec::new();
    while came.last() != Some(&last.0) {
        came.extend(receive(&mut port, 1).into_iter().map(|(bytes, ..)| bytes));
    }
    let shed = port.stats().unwrap().events(LiveEvent::ReceiveRingShare);
    assert!(shed > 8 && came.len() + shed as usize == frames.len() + 1, "{shed} {}", came.len());
    let quiet = |bytes: &&Vec<u8>| bytes[34..36] == 2_u16.to_be_bytes();
    let sent = frames.iter().map(|(bytes, _)| bytes);
    assert!(
        came.iter().filter(quiet).eq(sent.filter(quiet)),
        "the frames of the other flow are unchanged"
    );
}

#[test]
fn where_superframes_may_not_wait_beside_the_ring_its_slots_are_for_them() {
    let Some(world) = World::new() else { return };
    let mut tap = world.tap_port(&TapOptions::default());
    let open = || {
        let before = capabilities(None)?;
        let mut without = before;
        without.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, without)?;
        let port = PacketPort::open("b0", &PacketOptions::default());
        set_capabilities(None, before)?;
        port
    };
    let mut port = world.b.run(open).unwrap().unwrap();
    // Even the longest queue that the system permits cannot hold all of these frames.
    let frames: Vec<_> = (0..400).map(|number| superframe(1, number, 60_000)).collect();
    send(&mut tap, &frames);
    let came = receive(&mut port, frames.len());
    assert!(came.iter().map(|(bytes, ..)| bytes).eq(frames.iter().map(|(bytes, _)| bytes)));
    assert_eq!(losses(&mut port), 0);
}
