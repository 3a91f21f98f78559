//! Tests transmission against a fake kernel, because a real kernel accepts nearly every frame (B31).

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Gso, VlanTag},
};
use grosso_testkit::Packet;
use grosso_wire::virtio::{GSO_NONE, GSO_TCP_IPV4, HEADER_LEN, VirtioHeader};

use super::*;

/// A kernel that rejects chosen frames and accepts only a limited number of frames at once.
#[derive(Default)]
struct Fake {
    taken: Vec<Vec<u8>>,
    room: usize,
    refuses: Option<Refusal>,
}

/// A predicate for headers to reject, and the error code to return.
type Refusal = (fn(&VirtioHeader) -> bool, i32);

impl Fake {
    fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        self.taken.iter().map(|packet| packet[HEADER_LEN..].to_vec()).collect()
    }

    fn headers(&self) -> Vec<VirtioHeader> {
        let parse =
            |packet: &Vec<u8>| VirtioHeader::parse(packet, Form::Short, Order::NATIVE).unwrap().0;
        self.taken.iter().map(parse).collect()
    }
}

impl Wire for Fake {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let packet: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let (header, _) = VirtioHeader::parse(&packet, Form::Short, Order::NATIVE).unwrap();
        if let Some((refuses, code)) = self.refuses
            && refuses(&header)
        {
            return Err(io::Error::from_raw_os_error(code));
        }
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.room -= 1;
        self.taken.push(packet);
        Ok(())
    }
}

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EPERM: i32 = 1;
const EIO: i32 = 5;
const ENETDOWN: i32 = 100;
const EMSGSIZE: i32 = 90;
const ENODEV: i32 = 19;

fn is_superframe(header: &VirtioHeader) -> bool {
    header.gso_type != GSO_NONE
}

fn tx_offload() -> TxOffload {
    let features = Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::UDP_SEGMENTATION;
    TxOffload::new(LinkType::Ethernet, Ports::ASSIGNED, Some(Form::Short), features)
}

fn segment(i: u32) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
    packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000)
}

/// Returns a superframe of five packets, and the packets themselves with partial checksums.
fn superframe() -> (Vec<u8>, Meta, Vec<Vec<u8>>) {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(0)).tcp(|t| t.sequence(0));
    let (frame, start, offset) = packet.payload_len(5000).build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { checksum, gso: Gso::every(1000), ..Meta::default() };
    (frame, meta, (0..5).map(|i| segment(i).build_partial().0).collect())
}

#[test]
fn b31_a_refused_superframe_is_sent_as_its_packets_and_its_kind_is_given_up() {
    for code in [EINVAL, EIO] {
        let (frame, meta, packets) = superframe();
        let mut fake = Fake { refuses: Some((is_superframe, code)), ..Fake::with_room(100) };
        let mut tx_offload = tx_offload();
        let sent = tx_offload.transmit(&[&frame[..54], &frame[54..]], &meta, &mut fake).unwrap();
        assert_eq!(sent, Transmitted::Taken);
        assert_eq!(fake.frames(), packets);
        assert!(!tx_offload.features().contains(Features::TCP_SEGMENTATION));
        assert!(tx_offload.features().contains(Features::UDP_SEGMENTATION));
        assert_eq!(tx_offload.stats.events(LiveEvent::TransmitCutAgain), 1);
        assert_eq!(tx_offload.stats.events(LiveEvent::TransmitNarrowed), 1);
        assert_eq!(tx_offload.stats.events(LiveEvent::TransmitRefused), 0);
    }
}

#[test]
fn an_error_that_passes_disables_no_feature() {
    for code in [ENOMEM, EPERM, ENETDOWN] {
        let (frame, meta, packets) = superframe();
        let mut fake = Fake { refuses: Some((is_superframe, code)), ..Fake::with_room(100) };
        let mut tx_offload = tx_offload();
        let before = tx_offload.features();
        assert_eq!(tx_offload.transmit(&[&frame], &meta, &mut fake).unwrap(), Transmitted::Taken);
        assert_eq!(fake.frames(), packets);
        assert_eq!(tx_offload.features(), before, "error {code}");
        assert_eq!(tx_offload.stats.events(LiveEvent::TransmitNarrowed), 0);
        fake.refuses = None;
        assert_eq!(tx_offload.transmit(&[&frame], &meta, &mut fake).unwrap(), Transmitted::Taken);
        assert!(is_superframe(fake.headers().last().unwrap()), "error {code}");
    }
}

#[test]
fn nothing_is_given_up_where_the_packets_are_refused_too() {
    let (frame, meta, _) = superframe();
    let mut fake = Fake { refuses: Some((|_| true, EIO)), ..Fake::with_room(100) };
    let mut tx_offload = tx_offload();
    let before = tx_offload.features();
    assert_eq!(tx_offload.transmit(&[&frame], &meta, &mut fake).unwrap(), Transmitted::Taken);
    assert_eq!((tx_offload.features(), tx_offload.waiting()), (before, 0));
    assert_eq!(tx_offload.stats.events(LiveEvent::TransmitDown), 5);
    assert_eq!(tx_offload.stats.events(LiveEvent::TransmitNarrowed), 0);
}

#[test]
fn b31_the_packets_of_a_refused_superframe_keep_their_place_in_the_queue() {
    let (frame, meta, packets) = superframe();
    let mut fake = Fake { refuses: Some((is_superframe, EINVAL)), ..Fake::with_room(0) };
    let mut tx_offload = tx_offload();
    let before = segment(100).build();
    let behind = segment(200).build();
    tx_offload.enqueue(&[&before], &Meta::default());
    tx_offload.enqueue(&[&frame], &meta);
    tx_offload.enqueue(&[&behind], &Meta::default());
    let expected = [&[before][..], &packets, &[behind]].concat();
    // The kernel accepts one frame at a time, so only some of the segments are sent immediately.
    for sent in 1..=expected.len() {
        fake.room = 1;
        let flushed = tx_offload.flush(&mut fake).unwrap();
        assert_eq!(fake.frames(), expected[..sent]);
        assert_eq!(flushed == Transmitted::Taken, sent == expected.len());
    }
}

#[test]
fn a_full_kernel_takes_nothing_twice_and_loses_nothing() {
    let mut fake = Fake::with_room(0);
    let mut tx_offload = tx_offload();
    let frame = segment(0).build();
    let mut send =
        |fake: &mut Fake| tx_offload.transmit(&[&frame], &Meta::default(), fake).unwrap();
    assert_eq!(send(&mut fake), Transmitted::NoRoom);
    assert!(fake.taken.is_empty());
    fake.room = 1;
    assert_eq!(send(&mut fake), Transmitted::Taken);
    assert_eq!(send(&mut fake), Transmitted::NoRoom);
    assert_eq!(fake.frames(), [frame]);
}

#[test]
fn a_frame_that_is_refused_for_what_it_is_does_not_stop_those_behind() {
    fn is_partial(header: &VirtioHeader) -> bool {
        header.flags != 0
    }
    for (code, event) in
        [(EINVAL, LiveEvent::TransmitRefused), (EMSGSIZE, LiveEvent::TransmitTooLong)]
    {
        let mut fake = Fake { refuses: Some((is_partial, code)), ..Fake::with_room(100) };
        let mut tx_offload = tx_offload();
        let (bad, start, offset) = segment(1).build_partial();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        tx_offload.enqueue(&[&bad], &Meta { checksum, ..Meta::default() });
        tx_offload.enqueue(&[&segment(2).build()], &Meta::default());
        assert_eq!(tx_offload.flush(&mut fake).unwrap(), Transmitted::Taken);
        assert_eq!(fake.frames(), [segment(2).build()]);
        assert_eq!(tx_offload.stats.events(event), 1);
    }
}

#[test]
fn a_device_that_is_gone_is_an_error_and_the_frame_stays() {
    let mut fake = Fake { refuses: Some((|_| true, ENODEV)), ..Fake::with_room(100) };
    let mut tx_offload = tx_offload();
    tx_offload.enqueue(&[&segment(1).build()], &Meta::default());
    assert!(tx_offload.flush(&mut fake).is_err());
    assert_eq!(tx_offload.waiting(), 1);
}

#[test]
fn a_frame_that_a_failed_device_rejects_is_not_kept() {
    const EFAULT: i32 = 14;
    for code in [ENODEV, EFAULT] {
        let mut fake = Fake { refuses: Some((|_| true, code)), ..Fake::with_room(100) };
        let mut tx_offload = tx_offload();
        let frame = segment(1).build();
        assert!(tx_offload.transmit(&[&frame], &Meta::default(), &mut fake).is_err());
        assert_eq!(tx_offload.waiting(), 0, "the caller still has it");
        fake.refuses = None;
        assert_eq!(tx_offload.flush(&mut fake).unwrap(), Transmitted::Taken);
        assert!(fake.taken.is_empty(), "error {code}: sent although it was rejected");
    }
}

#[test]
fn a_tag_beside_the_frame_goes_into_it_and_moves_the_checksum() {
    let (frame, mut meta, _) = superframe();
    meta.vlan = Some(VlanTag { protocol: 0x88a8, tci: 0x2007 });
    let mut fake = Fake::with_room(2);
    let mut tx_offload = tx_offload();
    assert_eq!(tx_offload.transmit(&[&frame], &meta, &mut fake).unwrap(), Transmitted::Taken);
    let plain = Meta { vlan: meta.vlan, ..Meta::default() };
    assert_eq!(
        tx_offload.transmit(&[&frame[..60]], &plain, &mut fake).unwrap(),
        Transmitted::Taken
    );
    let tagged = [&frame[..12], &[0x88, 0xa8, 0x20, 0x07], &frame[12..]].concat();
    assert_eq!(fake.frames(), [&tagged[..], &tagged[..64]]);
    let header = fake.headers()[0];
    assert_eq!((header.checksum_start, header.gso_type), (38, GSO_TCP_IPV4));
}

#[test]
fn b31_a_tagged_superframe_is_cut_with_its_tag() {
    let (frame, mut meta, packets) = superframe();
    meta.vlan = Some(VlanTag { protocol: 0x8100, tci: 5 });
    let mut fake = Fake { refuses: Some((is_superframe, EINVAL)), ..Fake::with_room(100) };
    assert_eq!(tx_offload().transmit(&[&frame], &meta, &mut fake).unwrap(), Transmitted::Taken);
    let tagged = |packet: &Vec<u8>| [&packet[..12], &[0x81, 0, 0, 5], &packet[12..]].concat();
    assert_eq!(fake.frames(), packets.iter().map(tagged).collect::<Vec<_>>());
    assert!(fake.headers().iter().all(|header| header.checksum_start == 38));
}

#[test]
fn a_superframe_that_no_virtio_header_describes_is_segmented() {
    // The frame contains more datagrams than the kernel accepts at once (rule V4).
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(200 * 10);
    let (frame, start, offset) = packet.build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { checksum, gso: Gso::every(10), ..Meta::default() };
    let mut fake = Fake::with_room(1000);
    assert_eq!(tx_offload().transmit(&[&frame], &meta, &mut fake).unwrap(), Transmitted::Taken);
    assert_eq!(fake.taken.len(), 200);
}

#[test]
fn a_frame_of_more_slices_than_one_write_takes_arrives_whole() {
    let frame = segment(0).build();
    let slices: Vec<&[u8]> = frame.iter().map(core::slice::from_ref).collect();
    let mut fake = Fake::with_room(1);
    let sent = tx_offload().transmit(&slices, &Meta::default(), &mut fake).unwrap();
    assert_eq!((sent, fake.frames()), (Transmitted::Taken, vec![frame]));
}

#[test]
fn a_frame_of_few_slices_and_of_some_more_arrives_whole() {
    let frame = segment(0).build();
    for slices in 1..4 * REST_FEW {
        let (first, rest) = frame.split_at(frame.len() - slices + 1);
        let slices: Vec<&[u8]> = [first].into_iter().chain(rest.chunks(1)).collect();
        let (mut tx_offload, mut fake) = (tx_offload(), Fake::with_room(2));
        for _ in 0..2 {
            let sent = tx_offload.transmit(&slices, &Meta::default(), &mut fake).unwrap();
            assert_eq!(sent, Transmitted::Taken);
        }
        assert_eq!(fake.frames(), [&frame[..]; 2], "{}", slices.len());
    }
}

#[test]
fn the_list_of_parts_keeps_its_memory() {
    let frame = [0; 60];
    let parts = vec![IoSlice::new(&frame); 46];
    let (place, capacity) = (parts.as_ptr().addr(), parts.capacity());
    let again: Vec<IoSlice<'static>> = reused(parts);
    assert_eq!((again.as_ptr().addr(), again.capacity(), again.len()), (place, capacity, 0));
}
