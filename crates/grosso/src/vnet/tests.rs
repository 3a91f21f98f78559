//! Tests the virtio header rules, by number, on packets built with the test kit.

use std::{collections::BTreeSet, vec::Vec};

use grosso_testkit::Packet;
use grosso_wire::{LinkType, Ports, Stack, dissect, virtio::*};

use crate::{
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize, Meta, VlanTag},
    segment::{NoSegments, Outgoing, Segments},
};

use super::{Described, VnetError, describe, understand, unflagged_partial};

/// Frame and its metadata.
struct Case {
    frame: Vec<u8>,
    meta: Meta,
}

impl Case {
    fn superframe(packet: Packet, size: u16) -> Self {
        let (frame, start, offset) = packet.build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        Self { frame, meta: Meta { checksum, gso: Gso::every(size), ..Meta::default() } }
    }

    fn describe(&self, form: Form) -> Result<Described, VnetError> {
        let stack = dissect(&self.frame, LinkType::Ethernet, &Ports::ASSIGNED);
        describe(&self.frame, self.frame.len(), &stack, &self.meta, form)
    }

    fn header(&self) -> VirtioHeader {
        self.describe(Form::Tunnel).unwrap().header
    }

    /// Decodes the frame's metadata from `header` instead of its own virtio header.
    fn read(&self, header: VirtioHeader, form: Form) -> Result<Meta, VnetError> {
        let stack = dissect(&self.frame, LinkType::Ethernet, &Ports::ASSIGNED);
        understand(&header, &self.frame, LinkType::Ethernet, &stack, form)
    }

    /// Checks that the frame is rejected after `change` is applied to its header.
    #[track_caller]
    fn refuses(&self, change: impl FnOnce(&mut VirtioHeader), why: VnetError) {
        self.refuses_as(self.header(), change, why);
    }

    /// Checks that the frame is rejected after `change` is applied to `header`, which is valid for the frame.
    #[track_caller]
    fn refuses_as(
        &self,
        mut header: VirtioHeader,
        change: impl FnOnce(&mut VirtioHeader),
        why: VnetError,
    ) {
        assert!(self.read(header, Form::Tunnel).is_ok(), "the unchanged header is valid");
        change(&mut header);
        assert_eq!(self.read(header, Form::Tunnel), Err(why));
    }
}

fn tcp4() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.timestamps(1, 2))
}

fn tcp6() -> Packet {
    Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t)
}

fn udp4() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u)
}

fn vxlan() -> Packet {
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    outer.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t)
}

// Rules: C3
#[test]
fn a_large_send_of_windows_gets_the_pseudo_header_sum_that_the_kernel_takes() {
    for packet in
        [Packet::new().ethernet(|e| e).ipv4(|ip| ip), Packet::new().ethernet(|e| e).ipv6(|ip| ip)]
    {
        let mut case = Case::superframe(packet.tcp(|t| t).payload_len(5000), 1448);
        let whole = case.frame.clone();
        let Checksum::Partial { start, offset } = case.meta.checksum else { panic!("partial") };
        let at = usize::from(start) + usize::from(offset);
        assert_eq!(case.describe(Form::Short).unwrap().pseudo_sum, None);
        // The sum covers everything in the pseudo-header but the length.
        let length = (whole.len() - usize::from(start)) as u32;
        let sum = u32::from(u16::from_be_bytes([whole[at], whole[at + 1]]));
        let without = (sum + 65_535 - length) % 65_535;
        case.frame[at..at + 2].copy_from_slice(&(without as u16).to_be_bytes());
        let described = case.describe(Form::Short).unwrap();
        let expected = [whole[at], whole[at + 1]];
        assert_eq!(described.pseudo_sum, Some((at, expected)));
        // Without a segment size, the frame is a single packet, and its partial checksum has the usual form.
        case.meta.gso = None;
        assert_eq!(case.describe(Form::Short).unwrap().pseudo_sum, None);
    }
}

#[test]
fn superframes_are_described_with_type_size_true_header_length_and_checksum_place() {
    for (packet, kind, place, header_length) in [
        (tcp4(), GSO_TCP_IPV4, (34, 16), 66),
        (tcp6(), GSO_TCP_IPV6, (54, 16), 74),
        (udp4(), GSO_UDP_SEGMENTS, (34, 6), 42),
    ] {
        let case = Case::superframe(packet.payload_len(5000), 1000);
        let header = case.header();
        assert_eq!((header.flags, header.gso_type, header.gso_size), (1, kind, 1000));
        assert_eq!((header.checksum_start, header.checksum_offset), place);
        assert_eq!((header.header_length, header.buffers), (header_length, 1));
        assert_eq!((header.outer_transport, header.inner_network), (0, 0));
        let read = case.read(header, Form::Short).unwrap();
        let gso = Gso { segments: 5, untrusted: true, ..case.meta.gso.unwrap() };
        assert_eq!(read, Meta { gso: Some(gso), ..case.meta });
    }
}

#[test]
fn v06_verified_packets_get_a_seed_and_needs_checksum_since_data_valid_is_ignored() {
    for packet in [tcp4(), tcp6(), udp4(), vxlan()] {
        let packet = packet.payload_len(700);
        let (seeded, start, offset) = packet.build_partial();
        let frame = packet.build();
        let meta = Meta { checksum: Checksum::Unnecessary { levels: 1 }, ..Meta::default() };
        let mut case = Case { frame, meta };
        let described = case.describe(Form::Short).unwrap();
        let (at, pseudo_sum) = described.pseudo_sum.expect("a pseudo_sum");
        case.frame[at..at + 2].copy_from_slice(&pseudo_sum);
        assert_eq!(case.frame, seeded, "the frame has the oracle's partial checksum");
        let header = described.header;
        assert_eq!(header.flags, FLAG_NEEDS_CHECKSUM);
        let place = (usize::from(header.checksum_start), usize::from(header.checksum_offset));
        assert_eq!((place, header.gso_type), ((start, offset), GSO_NONE));
    }
}

#[test]
fn what_is_not_verified_whole_or_padded_stays_complete() {
    let around = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    let tunnelled = around.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(9).build();
    let level = |levels| Checksum::Unnecessary { levels };
    let padded = tcp4().pad_to(80).build();
    let none = udp4().payload_len(9);
    let zero = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero()).build();
    for (frame, checksum) in [
        (tunnelled.clone(), level(0)),
        (padded, level(0)),
        (zero, level(0)),
        (none.build(), Checksum::None),
        (none.build(), Checksum::Complete { sum: 1 }),
    ] {
        let case = Case { frame, meta: Meta { checksum, ..Meta::default() } };
        let described = case.describe(Form::Short).unwrap();
        assert_eq!((described.pseudo_sum, described.header.flags), (None, 0), "{:?}", case.meta);
    }
    let case = Case { frame: tunnelled, meta: Meta { checksum: level(1), ..Meta::default() } };
    assert!(case.describe(Form::Short).unwrap().pseudo_sum.is_some());
}

#[test]
fn v08_tunnels_are_described_by_their_places_in_the_longest_form_only() {
    let case = Case::superframe(vxlan().payload_len(3000), 1000);
    let header = case.header();
    assert_eq!(header.gso_type, GSO_TCP_IPV4 | GSO_TUNNEL_IPV4);
    assert_eq!((header.outer_transport, header.inner_network), (34, 64));
    assert_eq!(header.flags, FLAG_NEEDS_CHECKSUM | FLAG_UDP_TUNNEL_CHECKSUM);
    for form in [Form::Short, Form::Buffers, Form::Hash] {
        assert_eq!(case.describe(form), Err(VnetError::TunnelForm));
        assert_eq!(case.read(header, form), Err(VnetError::TunnelForm));
    }
    let outer = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u.checksum_zero());
    let packet = outer.vxlan(|v| v).ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(3000);
    let header = Case::superframe(packet, 1000).header();
    assert_eq!(header.gso_type, GSO_TCP_IPV6 | GSO_TUNNEL_IPV6);
    assert_eq!(header.flags, FLAG_NEEDS_CHECKSUM, "the outer packet has no checksum");
    let nested = Packet::new().ethernet(|e| e).ipv4(|ip| ip).ipv4(|ip| ip).tcp(|t| t);
    let nested = Case::superframe(nested.payload_len(3000), 1000);
    assert_eq!(nested.describe(Form::Tunnel), Err(VnetError::Inexpressible));
}

#[test]
fn v08_every_lie_about_a_tunnel_is_refused_by_name() {
    let case = Case::superframe(vxlan().payload_len(3000), 1000);
    case.refuses(|h| h.gso_type |= GSO_TUNNEL_IPV6, VnetError::TunnelTwice);
    case.refuses(|h| h.gso_type = GSO_TUNNEL_IPV4, VnetError::TunnelInner);
    case.refuses(|h| h.gso_type = GSO_TUNNEL_IPV4 | GSO_UDP, VnetError::TunnelInner);
    case.refuses(|h| h.gso_type = GSO_TCP_IPV4 | GSO_TUNNEL_IPV6, VnetError::TunnelPlaces);
    case.refuses(|h| h.flags = 0, VnetError::ChecksumMissing);
    case.refuses(|h| h.outer_transport += 1, VnetError::TunnelPlaces);
    case.refuses(|h| h.inner_network = 0, VnetError::TunnelPlaces);
    case.refuses(|h| h.gso_type = GSO_TCP_IPV6 | GSO_TUNNEL_IPV4, VnetError::TypeMismatch);
    let mut blank = Case::superframe(vxlan().payload_len(3000), 1000);
    let header = blank.header();
    blank.frame[40..42].fill(0);
    assert_eq!(blank.read(header, Form::Tunnel), Err(VnetError::TunnelPseudoSumMissing));
    let plain = Case::superframe(tcp4().payload_len(3000), 1000);
    plain.refuses(|h| h.gso_type |= GSO_TUNNEL_IPV4, VnetError::TunnelPlaces);
}

#[test]
fn v09_a_superframe_of_one_packet_has_no_type() {
    for packet in [tcp4(), vxlan()] {
        let case = Case::superframe(packet.payload_len(1000), 1000);
        let header = case.header();
        assert_eq!((header.gso_type, header.gso_size), (GSO_NONE, 0));
        assert_eq!(header.flags, FLAG_NEEDS_CHECKSUM);
        assert_eq!(case.read(header, Form::Short).unwrap().gso, None);
    }
    // The reader must treat the frame as a plain packet (rule V6).
    let case = Case::superframe(tcp4().payload_len(1000), 1000);
    let header = VirtioHeader { gso_type: GSO_TCP_IPV4, gso_size: 1000, ..case.header() };
    assert_eq!(case.read(header, Form::Short).unwrap().gso, None);
}

#[test]
fn cwr_needs_the_ecn_bit_and_cwr_on_every_packet_cannot_be_described() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.cwr()).payload_len(3000);
    let mut case = Case::superframe(packet, 1000);
    assert_eq!(case.header().gso_type, GSO_TCP_IPV4 | GSO_ECN);
    case.meta.gso.as_mut().unwrap().cwr = Cwr::Every;
    assert_eq!(case.describe(Form::Tunnel), Err(VnetError::Inexpressible));
}

#[test]
fn v20_a_tag_beside_the_frame_moves_every_place() {
    let mut case = Case::superframe(vxlan().payload_len(3000), 1000);
    let before = case.header();
    case.meta.vlan = Some(VlanTag { protocol: 0x8100, tci: 7 });
    let after = case.header();
    assert_eq!(after.header_length, before.header_length + 4);
    assert_eq!(after.checksum_start, before.checksum_start + 4);
    assert_eq!(after.outer_transport, before.outer_transport + 4);
    assert_eq!(after.inner_network, before.inner_network + 4);
    assert_eq!(after.checksum_offset, before.checksum_offset);
}

#[test]
fn v01_v20_a_frame_without_ethernet_header_is_refused_and_the_header_length_is_not_believed() {
    let stack = dissect(&[0; 13], LinkType::Ethernet, &Ports::ASSIGNED);
    let header = VirtioHeader::default();
    let refused = understand(&header, &[0; 13], LinkType::Ethernet, &stack, Form::Short);
    assert_eq!(refused, Err(VnetError::Short));
    let case = Case::superframe(tcp4().payload_len(3000), 1000);
    for header_length in [0, 10, 66, 3066, u16::MAX] {
        let header = VirtioHeader { header_length, ..case.header() };
        assert_eq!(case.read(header, Form::Short), case.read(case.header(), Form::Short));
    }
}

#[test]
fn v02_types_and_sizes_that_do_not_exist_are_refused() {
    let case = Case::superframe(tcp4().payload_len(3000), 1000);
    for kind in (0..=u8::MAX).filter(|kind| kind & (GSO_TUNNEL_IPV4 | GSO_TUNNEL_IPV6) == 0) {
        let read = case.read(VirtioHeader { gso_type: kind, ..case.header() }, Form::Short);
        let expected = match kind & !GSO_ECN {
            GSO_TCP_IPV4 => true,
            GSO_NONE => kind == 0,
            _ => false,
        };
        assert_eq!(read.is_ok(), expected, "type {kind:#x}: {read:?}");
    }
    case.refuses(|h| h.gso_size = 0, VnetError::SizeZero);
    case.refuses(|h| h.gso_size = u16::MAX, VnetError::SizeReserved);
    case.refuses(|h| h.gso_type = GSO_TCP_IPV6, VnetError::TypeMismatch);
    case.refuses(|h| h.gso_type = 2, VnetError::UnknownType);
    let udp = Case::superframe(udp4().payload_len(3000), 1000);
    udp.refuses(|h| h.gso_type |= GSO_ECN, VnetError::EcnWithoutTcp);
    udp.refuses(|h| h.gso_type = GSO_TCP_IPV4, VnetError::TypeMismatch);
}

#[test]
fn v03_b32_a_checksum_outside_the_frame_or_inside_its_headers_is_refused() {
    let (frame, start, offset) = tcp4().payload_len(10).build_partial();
    let (start, offset, len) = (start as u16, offset as u16, frame.len() as u16);
    let checksum = Checksum::Partial { start, offset };
    let mut case = Case { frame, meta: Meta { checksum, ..Meta::default() } };
    assert_eq!(case.read(case.header(), Form::Short), Ok(case.meta));
    case.refuses(|h| h.checksum_offset = len, VnetError::ChecksumOutside);
    case.refuses(|h| h.checksum_start = u16::MAX, VnetError::ChecksumOutside);
    case.refuses(
        |h| (h.checksum_start, h.checksum_offset) = (start, len - start - 1),
        VnetError::ChecksumOutside,
    );
    case.refuses(|h| h.checksum_start = 33, VnetError::ChecksumInHeaders);
    case.meta.checksum = Checksum::Partial { start: 33, offset };
    assert_eq!(case.describe(Form::Short), Err(VnetError::ChecksumInHeaders));
    case.meta.checksum = Checksum::Partial { start: len, offset: 0 };
    assert_eq!(case.describe(Form::Short), Err(VnetError::ChecksumOutside));
}

#[test]
fn v04_the_checksum_of_a_superframe_is_partial_and_in_its_place() {
    let tcp = Case::superframe(tcp4().payload_len(3000), 1000);
    tcp.refuses(|h| h.checksum_offset = 6, VnetError::ChecksumPlace);
    tcp.refuses(|h| h.checksum_start = 38, VnetError::ChecksumPlace);
    assert!(tcp.read(VirtioHeader { flags: 0, ..tcp.header() }, Form::Short).is_ok(), "rule V5");
    let mut udp = Case::superframe(udp4().payload_len(3000), 1000);
    udp.refuses(|h| h.flags = 0, VnetError::ChecksumMissing);
    udp.meta.checksum = Checksum::None;
    assert_eq!(udp.describe(Form::Short), Err(VnetError::ChecksumMissing));
}

#[test]
fn v04_at_most_128_datagrams() {
    let full = Case::superframe(udp4().payload_len(128 * 100), 100);
    assert_eq!(full.read(full.header(), Form::Short).unwrap().gso.unwrap().segments, 128);
    let beyond = Case::superframe(udp4().payload_len(128 * 100 + 1), 100);
    assert_eq!(beyond.describe(Form::Short), Err(VnetError::TooManySegments));
    full.refuses(|h| h.gso_size = 99, VnetError::TooManySegments);
}

#[test]
fn datagrams_to_fragment_are_written_and_parsed() {
    let (frame, start, offset) = udp4().payload_len(4000).build_superframe();
    let size = core::num::NonZeroU16::new(1480).unwrap();
    let gso = Gso { size: GsoSize::Fragments(size), ..Gso::every(1).unwrap() };
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let case = Case { frame, meta: Meta { checksum, gso: Some(gso), ..Meta::default() } };
    assert_eq!(case.header().gso_type, GSO_UDP);
    let read = case.read(case.header(), Form::Short).unwrap().gso.unwrap();
    assert_eq!((read.size, read.segments), (GsoSize::Fragments(size), 3));
    let parts =
        Case { meta: Meta { gso: Some(Gso { size: GsoSize::Parts, ..gso }), ..case.meta }, ..case };
    assert_eq!(parts.describe(Form::Short), Err(VnetError::Inexpressible));
}

#[test]
fn t12_the_inner_checksum_marks_a_tunnel_for_a_packet_socket() {
    let case = Case::superframe(vxlan().payload_len(3000), 1000);
    let header = VirtioHeader { gso_type: GSO_TCP_IPV4, ..case.header() };
    assert_eq!(case.read(header, Form::Short).unwrap().gso.unwrap().segments, 3);
    let unset = VirtioHeader { flags: 0, ..header };
    assert_eq!(case.read(unset, Form::Short), Err(VnetError::ChecksumMissing));
}

#[test]
fn t12_the_outer_checksum_marks_merged_datagrams_with_any_content() {
    // A program passes these tunnel packets to one send call with `UDP_SEGMENT`.
    let message = |byte: u8| vxlan().payload(&[byte; 1000]).build()[42..].to_vec();
    let messages = [1, 2, 3].map(message);
    let outer = |payload: &[u8]| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        outer.udp(|u| u.destination_port(4789)).payload(payload)
    };
    let size = messages[0].len() as u16;
    let mut case = Case::superframe(outer(&messages.concat()), size);
    let Checksum::Partial { start, offset } = case.meta.checksum else { unreachable!() };
    assert_eq!((start, offset), (34, 6));
    let header = VirtioHeader {
        flags: FLAG_NEEDS_CHECKSUM,
        gso_type: GSO_UDP_SEGMENTS,
        gso_size: size,
        header_length: 42,
        checksum_start: start,
        checksum_offset: offset,
        ..VirtioHeader::default()
    };
    case.meta = case.read(header, Form::Short).unwrap();
    assert_eq!((case.meta.gso.unwrap().size(), case.meta.gso.unwrap().segments), (Some(size), 3));
    let mut stack = Stack::new(0);
    let (link, ports) = (LinkType::Ethernet, &Ports::ASSIGNED);
    case.meta.dissect_into(&case.frame, link, ports, &mut stack);
    let described = describe(&case.frame, case.frame.len(), &stack, &case.meta, Form::Short);
    assert_eq!(
        described.map(|described| described.header),
        Ok(VirtioHeader { buffers: 1, ..header })
    );
    let slices = [&case.frame[..]];
    let outgoing = Outgoing::PARTIAL_CHECKSUMS;
    let mut segments = Segments::new(&slices, &case.meta, link, ports, outgoing).unwrap();
    let mut packet = [0; 2000];
    for message in &messages {
        let segment = segments.write_next(&mut packet).unwrap().unwrap();
        assert_eq!(segment.meta.checksum, Checksum::Partial { start, offset });
        // The IP ID increases from packet to packet.
        let mut expected = outer(message).build_partial().0;
        expected[18..20].copy_from_slice(&packet[18..20]);
        expected[24..26].copy_from_slice(&packet[24..26]);
        assert_eq!(packet[..segment.len()], expected);
    }
    assert_eq!(segments.write_next(&mut packet), Ok(None));
    case.refuses_as(header, |h| h.gso_type = GSO_TCP_IPV4, VnetError::TypeMismatch);
    case.refuses_as(header, |h| h.checksum_start = 0, VnetError::ChecksumInHeaders);
}

#[test]
fn c50_the_outer_checksum_is_that_of_one_superframe_whose_inner_one_is_remote() {
    // A capture on the sender would show this frame: the inner checksum is left to the receiver, and the outer checksum
    // to the device.
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    let packet = packet.vxlan(|v| v.remote_checksum()).ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t);
    let frame = packet.payload_len(3000).build_superframe().0;
    let checksum = Checksum::Partial { start: 34, offset: 6 };
    let meta = Meta { checksum, gso: Gso::every(1000), ..Meta::default() };
    let (link, ports) = (LinkType::Ethernet, &Ports::ASSIGNED);
    let (mut stack, whole) = (Stack::new(0), dissect(&frame, link, ports));
    meta.dissect_into(&frame, link, ports, &mut stack);
    assert_eq!(stack, whole, "dissection ends after the TCP header");
    meta.dissect_into(&frame[..150], link, ports, &mut stack);
    assert_eq!(stack.layers(), whole.layers(), "the first bytes suffice");
    let slices = [&frame[..]];
    let cut = Segments::new(&slices, &meta, link, ports, Outgoing::default());
    assert_eq!(cut.err(), Some(NoSegments::ChecksumStart), "the frame is not segmented as UDP");
}

#[test]
fn verified_by_the_device_means_the_first_checksum() {
    let case = Case { frame: tcp4().build(), meta: Meta::default() };
    let header = VirtioHeader { flags: FLAG_DATA_VALID, ..VirtioHeader::default() };
    let read = case.read(header, Form::Short).unwrap();
    assert_eq!(read.checksum, Checksum::Unnecessary { levels: 0 });
    assert_eq!(case.read(VirtioHeader::default(), Form::Short), Ok(Meta::default()));
}

#[test]
fn a_partial_checksum_without_a_flag_is_found_by_its_seed() {
    for packet in [tcp4(), tcp6(), udp4(), vxlan()] {
        let packet = packet.payload_len(77);
        let find = |frame: &[u8]| {
            unflagged_partial(frame, &dissect(frame, LinkType::Ethernet, &Ports::ASSIGNED))
        };
        let (frame, start, offset) = packet.build_partial();
        let expected = Checksum::Partial { start: start as u16, offset: offset as u16 };
        assert_eq!(find(&frame), Some(expected));
        assert_eq!(find(&packet.build()), None);
    }
}

#[test]
fn a_complete_checksum_that_is_its_seed_is_complete() {
    for packet in [tcp4(), tcp6(), udp4(), vxlan()] {
        let with = |word: u16| packet.clone().payload(&word.to_be_bytes());
        let (partial, start, offset) = with(0).build_partial();
        let at = start + offset;
        let checksum = |frame: &[u8]| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let pseudo_sum = checksum(&partial);
        // Sums are modulo 65535. Adding a word lowers the complement of the sum by that word.
        let word = (checksum(&with(0).build()) + 65_535 - pseudo_sum) % 65_535;
        let frame = with(word as u16).build();
        assert_eq!(checksum(&frame), pseudo_sum);
        assert!(grosso_testkit::oracle::is_right(&frame, grosso_testkit::oracle::Link::Ethernet));
        let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
        assert_eq!(unflagged_partial(&frame, &stack), None);
    }
}

#[test]
fn every_refusal_has_a_name_of_its_own() {
    let names: BTreeSet<_> = VnetError::ALL.iter().map(|e| e.name()).collect();
    assert_eq!(names.len(), VnetError::ALL.len());
}

proptest::proptest! {
    /// Tests that arbitrary headers from a guest, with arbitrary frames, are either rejected or consistent.
    #[test]
    fn hostile_headers_are_refused_or_hold_together(
        bytes: [u8; 24],
        picked in 0_usize..4,
        payload_len in 0_usize..4000,
        flips in proptest::collection::vec((0_usize..120, 0_u8..8), 0..3),
    ) {
        let packet = [tcp4(), tcp6(), udp4(), vxlan()][picked].clone().payload_len(payload_len);
        let (mut frame, ..) = packet.build_superframe();
        for (at, bit) in flips {
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
        for form in Form::ALL {
            let (mut header, _) = VirtioHeader::parse(&bytes, form, Order::NATIVE).unwrap();
            header.gso_type &= 0xe7;
            let Ok(meta) = understand(&header, &frame, LinkType::Ethernet, &stack, form) else {
                continue;
            };
            if let Checksum::Partial { start, offset } = meta.checksum {
                assert!(usize::from(start) + usize::from(offset) + 2 <= frame.len());
            }
            if let Some(gso) = meta.gso {
                assert!(gso.untrusted && gso.segments > 1);
            }
            // The decoded metadata can be encoded again if the form can express it.
            let _ = describe(&frame, frame.len(), &stack, &meta, form);
        }
    }
}
