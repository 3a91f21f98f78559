//! Tests that the caller's buffers receive the same packets that `recv` would pass to its callback.

use grosso::{features::Features, meta::Gso};
use grosso_testkit::Packet;

use super::*;

const HEAD: usize = 16;
const TAIL: usize = 24;

/// Returns a superframe in the form that the kernel delivers. Each packet has 1000 bytes of payload; the last may have
/// fewer.
fn superframe(payload_len: usize) -> (Vec<u8>, Meta) {
    let mut frame = Packet::new().ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(payload_len).build();
    let stack = grosso_wire::dissect(&frame, LinkType::Raw, &Ports::ASSIGNED);
    let checksum = checksum::make_partial(&mut frame, &stack);
    (frame, Meta { gso: Gso::every(1000), checksum, ..Meta::default() })
}

/// Returns the packets into which the engine segments a frame.
fn packets(frame: &[u8], meta: &Meta) -> Vec<Vec<u8>> {
    let slices = [frame];
    let outgoing = grosso::segment::Outgoing::COMPLETE;
    let segments = Segments::new(&slices, meta, LinkType::Raw, &Ports::ASSIGNED, outgoing);
    let mut segments = segments.unwrap();
    let mut buffer = [0; 1500];
    let mut packets = Vec::new();
    while let Some(segment) = segments.write_next(&mut buffer).unwrap() {
        packets.push(buffer[..segment.len()].to_vec());
    }
    packets
}

fn filled(frame: &[u8], meta: &Meta, room: &Room) -> Vec<Filled<Vec<u8>>> {
    let (takes, mut stack) = (Device::new(Features::NONE), Stack::new(0));
    let mut out = Vec::new();
    let by = (&takes, &mut stack);
    let make = &mut |bytes| vec![0xee; bytes];
    fill(frame, meta, LinkType::Raw, by, room, make, &mut |buffer| out.push(buffer)).unwrap();
    out
}

#[test]
fn packets_of_a_superframe_lie_in_buffers_with_their_room() {
    let (frame, meta) = superframe(10_500);
    let expected = packets(&frame, &meta);
    for (per_buffer, buffers) in [(1, 11), (4, 3), (64, 1)] {
        let room = Room::new(HEAD, TAIL).packets(per_buffer);
        let filled = filled(&frame, &meta, &room);
        assert_eq!(filled.len(), buffers);
        let mut found = Vec::new();
        for buffer in &filled {
            let mut end = 0;
            for range in buffer.packets() {
                assert_eq!(range.start, end + HEAD, "room before the packet");
                end = range.end + TAIL;
                found.push(buffer.buffer[range].to_vec());
            }
            assert_eq!(buffer.bytes(), end, "room after the last packet");
            assert_eq!(buffer.bytes().div_ceil(buffer.stride()), buffer.packets().len());
            assert!(buffer.meta.gso.is_none());
        }
        assert_eq!(found, expected, "{per_buffer} per buffer");
    }
}

#[test]
fn contiguous_packets_fit_into_one_message() {
    let (frame, meta) = superframe(64_500);
    let room = Room::new(HEAD, TAIL).packets(usize::MAX);
    let filled = filled(&frame, &meta, &room);
    assert_eq!(filled.iter().map(|buffer| buffer.packets().len()).sum::<usize>(), 65);
    assert!(filled.iter().all(|buffer| buffer.bytes() <= CONTIGUOUS_BYTES_MAX));
}

#[test]
fn a_plain_packet_is_completed_in_its_buffer() {
    let (frame, meta) = superframe(500);
    let meta = Meta { gso: None, ..meta };
    let [filled] = &filled(&frame, &meta, &Room::new(HEAD, TAIL))[..] else { panic!("one buffer") };
    let whole = Packet::new().ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(500).build();
    assert!(filled.packets().eq(core::iter::once(HEAD..HEAD + whole.len())));
    assert_eq!(filled.buffer[HEAD..HEAD + whole.len()], whole);
    assert_eq!((filled.buffer.len(), filled.bytes()), (HEAD + whole.len() + TAIL, filled.stride()));
}

#[test]
fn a_buffer_that_is_too_short_is_an_error() {
    let (frame, meta) = superframe(3000);
    let (takes, mut stack) = (Device::new(Features::NONE), Stack::new(0));
    let mut calls = 0;
    let make = &mut |bytes| {
        calls += 1;
        vec![0; if calls == 2 { bytes - 1 } else { bytes }]
    };
    let mut out = 0;
    let room = Room::new(HEAD, TAIL);
    let by = (&takes, &mut stack);
    let result = fill(&frame, &meta, LinkType::Raw, by, &room, make, &mut |_| out += 1);
    assert_eq!((result.unwrap_err().kind(), out), (io::ErrorKind::InvalidInput, 1));
}
