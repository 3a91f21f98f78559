//! Tests that all ways of segmenting a superframe give the same packets on the wire.

use grosso::{
    Meta,
    checksum::{self, Checksum},
    meta::{Cwr, Gso, GsoSize, IpLevels},
    segment::{NoSegments, Outgoing},
};
use grosso_rig::engine::cut;
use grosso_testkit::{
    Packet,
    oracle::{Description, Lengths, Link, is_right, join, parse, segment},
    random::Random,
};
use grosso_wire::{LinkType, ethernet};
use proptest::prelude::*;

use super::trains::readable_train;

proptest! {
    #![proptest_config(super::cases(400))]

    /// Tests three ways of segmenting: completely, as in the oracle; with partial checksums, which are completed
    /// afterwards; and into frames with repeated headers, which a device segments afterwards.
    #[test]
    fn partial_work_and_the_rest_of_it_are_the_whole_work(
        seed in any::<u64>().no_shrink(),
        count in 2..20_usize,
    ) {
        let train = readable_train(seed, count).frames;
        let (superframe, meta, description) = superframe(&train);
        let expected = segment(&superframe, Link::Ethernet, description).expect("a superframe");
        prop_assert_eq!(&expected, &train);
        prop_assert_eq!(&wire(&superframe, &meta, Outgoing::default()), &train);
        let normal = |frames: &[Vec<u8>]| frames.iter().map(|f| normal_form(f)).collect::<Vec<_>>();
        let partial = wire(&superframe, &meta, Outgoing::PARTIAL_CHECKSUMS);
        prop_assert_eq!(normal(&partial), normal(&train));
        let repeated = wire(&superframe, &meta, Outgoing::GSO_PARTIAL);
        prop_assert_eq!(normal(&repeated), normal(&train));
    }

    /// Tests payload that is split into slices at any positions. Some slices are empty.
    #[test]
    fn scattered_payload_is_cut_like_contiguous_payload(
        seed in any::<u64>().no_shrink(),
        count in 2..12_usize,
        tears in 0..20_usize,
    ) {
        let train = readable_train(seed, count).frames;
        let (superframe, meta, _) = superframe(&train);
        let header_len = header_len(&train[0]);
        let mut random = Random::new(seed);
        let mut ends: Vec<usize> =
            (0..tears).map(|_| random.within(header_len, superframe.len())).collect();
        ends.extend([header_len, superframe.len()]);
        ends.sort_unstable();
        let mut start = 0;
        let slices: Vec<&[u8]> = ends
            .iter()
            .map(|end| {
                let slice = &superframe[start..*end];
                start = *end;
                slice
            })
            .collect();
        let outgoings =
            [Outgoing::default(), Outgoing::PARTIAL_CHECKSUMS, Outgoing::GSO_PARTIAL];
        for outgoing in outgoings {
            let whole = cut(&[&superframe], &meta, LinkType::Ethernet, outgoing);
            prop_assert_eq!(cut(&slices, &meta, LinkType::Ethernet, outgoing), whole);
        }
    }

    /// Tests slices that each contain the payload of one packet, so no segment size is needed (K98).
    #[test]
    fn k98_slices_of_any_length_are_packets(seed in any::<u64>().no_shrink(), count in 2..12_usize) {
        let train = readable_train(seed, count).frames;
        let (superframe, meta, _) = superframe(&train);
        let header_len = header_len(&train[0]);
        let mut random = Random::new(seed);
        let mut slices = vec![&superframe[..header_len]];
        let mut rest = &superframe[header_len..];
        while !rest.is_empty() {
            let (slice, behind) = rest.split_at(random.within(1, rest.len()));
            slices.push(slice);
            rest = behind;
        }
        let gso = meta.gso.map(|gso| Gso { size: GsoSize::Parts, ..gso });
        let meta = Meta { gso, ..meta };
        let packets = match cut(&slices, &meta, LinkType::Ethernet, Outgoing::default()) {
            Ok(packets) => packets,
            Err(error) => {
                prop_assert_eq!((error, slices.len()), (NoSegments::Whole, 2));
                return Ok(());
            }
        };
        let payloads: Vec<&[u8]> = packets.iter().map(|(packet, _)| &packet[header_len..]).collect();
        prop_assert_eq!(&payloads[..], &slices[1..]);
        let wrong = packets.iter().find(|(packet, _)| {
            !is_right(packet, Link::Ethernet)
        });
        prop_assert_eq!(wrong, None);
    }
}

/// Tests every special segment size, with all payload lengths near its multiples (B18).
#[test]
fn b18_every_size_and_length_gives_the_computed_number_of_packets() {
    let sizes =
        [1, 2, 3, 7, 8, 9, 1447, 1448, 1449, 8948, 32767, 32768, 32769, 65494, 65495, 65507, 65535];
    for udp in [false, true] {
        for size in sizes {
            let around = |len: usize| [len.saturating_sub(1), len, len + 1];
            let lengths = [0, size, 2 * size, 3 * size, 64 * size].into_iter().flat_map(around);
            for len in lengths.filter(|len| *len <= 200_000) {
                assert_arithmetic(udp, size, len);
            }
        }
    }
}

/// Tests one payload with all small and all large segment sizes, and some in between.
#[test]
fn b18_every_size_cuts_one_payload() {
    for size in 1..=u16::MAX {
        if size < 2000 || size.is_multiple_of(97) || size > 65_000 {
            assert_arithmetic(size % 2 == 0, size.into(), 4001);
        }
    }
}

/// Tests the sequence numbers, identifications and flags of packets far into a large superframe.
#[test]
fn a_superframe_of_half_a_megabyte_is_the_one_of_the_oracle() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(65_000));
    let packet = packet.tcp(|t| t.sequence(u32::MAX - 5000).psh().cwr()).payload_len(524_000);
    let (bytes, start, offset) = packet.build_superframe();
    for size in [7, 1448, 9000] {
        for fixed_ids in [IpLevels::NONE, IpLevels::ALL] {
            let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
            let gso = Gso::every(size).map(|gso| Gso { fixed_ids, ..gso });
            let meta = Meta { checksum, gso, ..Meta::default() };
            let description = Description {
                gso_size: size.into(),
                fixed_ids: fixed_ids.bits().into(),
                cwr_on_all: false,
            };
            let expected = segment(&bytes, Link::Ethernet, description).expect("a superframe");
            assert!(wire(&bytes, &meta, Outgoing::default()) == expected, "size {size}");
        }
    }
}

fn assert_arithmetic(udp: bool, size: usize, len: usize) {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(7));
    let packet = if udp { packet.udp(|u| u) } else { packet.tcp(|t| t) }.payload_len(len);
    let header_len = packet.header_len();
    let (bytes, start, offset) = packet.build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { checksum, gso: Gso::every(size as u16), ..Meta::default() };
    let packets = match cut(&[&bytes], &meta, LinkType::Ethernet, Outgoing::default()) {
        Ok(packets) => packets,
        Err(NoSegments::TooLong) => {
            let packet_len = header_len - ethernet::HEADER_LEN + size;
            assert!(len > size && packet_len > 65535, "size {size}, length {len}");
            return;
        }
        Err(error) => {
            assert_eq!(error, NoSegments::Whole);
            assert!(len <= size, "size {size}, length {len}");
            return;
        }
    };
    let whole = vec![size; len / size];
    let rest = Some(len % size).filter(|rest| *rest > 0);
    let expected: Vec<usize> = whole.into_iter().chain(rest).collect();
    let lengths: Vec<usize> = packets.iter().map(|(packet, _)| packet.len() - header_len).collect();
    assert!(lengths == expected, "size {size}, length {len}");
    let payload: Vec<u8> =
        packets.iter().flat_map(|(packet, _)| packet[header_len..].to_vec()).collect();
    assert!(payload == bytes[header_len..], "size {size}, length {len}");
}

/// Returns the superframe into which the oracle merges a train.
fn superframe(train: &[Vec<u8>]) -> (Vec<u8>, Meta, Description) {
    let (bytes, description) = join(train, Link::Ethernet);
    let parsed = parse(&train[0], Link::Ethernet, Lengths::Declared);
    let transport = parsed.last().expect("a transport header");
    let offset = if transport.name == "tcp" { 16 } else { 6 };
    let checksum = Checksum::Partial { start: transport.offset as u16, offset };
    let gso = Gso::every(description.gso_size as u16).map(|gso| Gso {
        segments: train.len() as u16,
        fixed_ids: IpLevels::from_bits(description.fixed_ids as u8),
        cwr: if description.cwr_on_all { Cwr::Every } else { Cwr::First },
        ..gso
    });
    (bytes, Meta { checksum, gso, ..Meta::default() }, description)
}

/// Returns the packets that a device sends. The device repeats headers if requested, and completes checksums.
fn wire(superframe: &[u8], meta: &Meta, outgoing: Outgoing) -> Vec<Vec<u8>> {
    let packets = cut(&[superframe], meta, LinkType::Ethernet, outgoing).expect("a superframe");
    packets.into_iter().flat_map(|(packet, meta)| finish(packet, &meta)).collect()
}

fn finish(mut packet: Vec<u8>, meta: &Meta) -> Vec<Vec<u8>> {
    if meta.gso.is_some() {
        return wire(&packet, meta, Outgoing::default());
    }
    if let Checksum::Partial { start, offset } = meta.checksum {
        checksum::complete(&mut packet, start, offset).expect("a checksum inside its packet");
    }
    vec![packet]
}

/// Returns the packet with all ones instead of a checksum of zero. The two are equivalent: a device that completes a
/// checksum writes all ones (rule C3).
fn normal_form(packet: &[u8]) -> Vec<u8> {
    let parsed = parse(packet, Link::Ethernet, Lengths::Declared);
    let mut packet = packet.to_vec();
    if let Some(tcp) = parsed.last().filter(|last| last.name == "tcp")
        && packet[tcp.offset + 16..tcp.offset + 18] == [0xff, 0xff]
    {
        packet[tcp.offset + 16..tcp.offset + 18].fill(0);
    }
    packet
}

fn header_len(frame: &[u8]) -> usize {
    parse(frame, Link::Ethernet, Lengths::Declared).last().map_or(0, |last| last.inside())
}
