use std::vec::Vec;

use grosso_testkit::{
    Packet,
    oracle::{Link, is_right},
};
use grosso_wire::{LinkType, Ports};

use super::{Outgoing, Segments};
use crate::{
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize, IpLevels, Meta},
};

#[test]
fn without_an_inner_checksum_nothing_is_left_to_the_device_and_the_outer_one_is_right() {
    let tunnel = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    let inner = tunnel.ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
    let superframe = inner.payload_len(250).build();
    let members = Gso::every(100).map(|gso| Gso { partial_members: true, ..gso });
    for gso in [Gso::every(100), members] {
        for outgoing in [Outgoing::PARTIAL_CHECKSUMS, Outgoing::GSO_PARTIAL] {
            let (slices, meta) = ([&superframe[..]], Meta { gso, ..Meta::default() });
            let plan =
                Segments::new(&slices, &meta, LinkType::Ethernet, &Ports::ASSIGNED, outgoing);
            let mut plan = plan.unwrap();
            let mut lengths = Vec::new();
            let mut buffer = [0xa5; 400];
            while let Some(segment) = plan.write_next(&mut buffer).unwrap() {
                assert_eq!(segment.meta.checksum, Checksum::None);
                assert!(is_right(&buffer[..segment.len()], Link::Ethernet));
                lengths.push(segment.payload_len);
            }
            assert_eq!(lengths, [100, 100, 50]);
        }
    }
}

#[test]
fn a_device_gets_no_packet_count_beyond_its_field() {
    let packet = |bytes| Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(bytes);
    for (bytes, told) in [(65_535, 65_535), (65_536, 0), (70_000, 0)] {
        let (superframe, start, offset) = packet(bytes).build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let meta = Meta { checksum, gso: Gso::every(1), ..Meta::default() };
        let (slices, ports) = ([&superframe[..]], Ports::ASSIGNED);
        let plan = Segments::new(&slices, &meta, LinkType::Ethernet, &ports, Outgoing::GSO_PARTIAL);
        let mut buffer = std::vec![0; superframe.len()];
        let first = plan.unwrap().write_next(&mut buffer).unwrap().unwrap();
        assert_eq!(first.meta.gso.map(|gso| gso.segments), Some(told), "{bytes}: {first:?}");
    }
}

/// Returns superframes of 100-byte packets in which the IP ID, the sequence number and the outer checksum wrap.
fn stacks(payload_len: usize) -> Vec<Vec<u8>> {
    let ipv4 = |p: Packet| p.ipv4(|ip| ip.id(0xfffd));
    let tcp = |p: Packet| p.tcp(|tcp| tcp.sequence(u32::MAX - 250).cwr().psh().fin());
    let plain = ipv4(Packet::new().ethernet(|e| e));
    let vxlan = |p: Packet| p.udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    let remote = |p: Packet| p.vxlan(|v| v.remote_checksum()).ethernet(|e| e);
    let stacks = [
        tcp(plain.clone()),
        plain.clone().udp(|u| u),
        plain.clone().udp(|u| u.checksum_zero()),
        tcp(Packet::new().ethernet(|e| e).ipv6(|ip| ip)),
        tcp(ipv4(vxlan(plain.clone()))),
        ipv4(vxlan(plain.clone())).udp(|u| u),
        ipv4(vxlan(plain.clone())).udp(|u| u.checksum_zero()),
        tcp(ipv4(plain.clone().gre(|g| g.checksum()))),
        tcp(ipv4(remote(plain.clone().udp(|u| u)))),
        tcp(ipv4(remote(plain.clone().udp(|u| u.checksum_zero())))),
    ];
    let bytes: Vec<u8> = (0..payload_len).map(|i| (i * i / 8) as u8).collect();
    stacks.map(|stack| stack.payload(&bytes).build()).to_vec()
}

#[test]
fn an_incremental_header_is_the_header_that_every_packet_has() {
    let every = Gso::every(100).expect("a size");
    let fixed = Gso { fixed_ids: IpLevels::ALL, cwr: Cwr::Every, ..every };
    let (parts, mut were_derived) = (Gso { size: GsoSize::Parts, ..every }, 0);
    let lengths = [1037, 1000];
    let superframes = lengths.map(|len| stacks(len).into_iter().map(move |frame| (len, frame)));
    for (len, superframe) in superframes.into_iter().flatten() {
        let (first, rest) = superframe.split_at(superframe.len() - len + 100);
        let (short, others) = rest.split_at(260);
        let slices = [&[first][..], &short.chunks(100).collect::<Vec<_>>()].concat();
        let slices = [slices, others.chunks(100).collect()].concat();
        for (gso, outgoing) in [
            (every, Outgoing::default()),
            (fixed, Outgoing::default()),
            (parts, Outgoing::default()),
            (every, Outgoing::PARTIAL_CHECKSUMS),
        ] {
            let meta = Meta { gso: Some(gso), ..Meta::default() };
            let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
            let plan = Segments::new(&slices, &meta, link, &ports, outgoing);
            let (mut fast, mut slow) = (plan.clone().unwrap(), plan.unwrap());
            let (mut packet, mut expected) = ([0; 400], [0; 400]);
            while let Some(segment) = fast.write_next(&mut packet).unwrap() {
                slow.incremental = None;
                assert_eq!(slow.write_next(&mut expected), Ok(Some(segment)));
                assert_eq!(packet[..segment.len()], expected[..segment.len()]);
            }
            were_derived += u32::from(fast.incremental.is_some());
        }
    }
    // Ten header stacks, each with four settings and two lengths.
    assert_eq!(were_derived, 10 * 4 * 2);
}

#[test]
fn c10_a_datagram_that_is_like_another_never_has_a_checksum_of_zero() {
    let packet = Packet::new().ipv4(|ip| ip).udp(|udp| udp);
    let checksums = |payload: &[u8]| -> Vec<u16> {
        let superframe = packet.clone().payload(payload).build();
        let meta = Meta { gso: Gso::every(100), ..Meta::default() };
        let (slices, ports) = ([&superframe[..]], Ports::ASSIGNED);
        let plan = Segments::new(&slices, &meta, LinkType::Raw, &ports, Outgoing::default());
        let (mut plan, mut buffer, mut found) = (plan.unwrap(), [0; 200], Vec::new());
        while plan.write_next(&mut buffer).unwrap().is_some() {
            found.push(u16::from_be_bytes([buffer[26], buffer[27]]));
        }
        found
    };
    let mut payload = [0; 500];
    let [_, _, _, before, _] = checksums(&payload)[..] else { panic!("five packets") };
    payload[300..302].copy_from_slice(&before.to_be_bytes());
    assert_eq!(checksums(&payload)[3], 0xffff);
}

// Rules: S14
#[test]
fn partial_checksums_are_completed_without_device_offload() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(250);
    let (frame, start, offset) = packet.build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let gso = Gso::every(100).map(|gso| Gso { partial_members: true, ..gso });
    let (slices, meta) = ([&frame[..]], Meta { gso, checksum, ..Meta::default() });
    let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
    for outgoing in [Outgoing::default(), Outgoing::COMPLETE] {
        let mut plan = Segments::new(&slices, &meta, link, &ports, outgoing).unwrap();
        let mut buffer = [0; 400];
        while let Some(segment) = plan.write_next(&mut buffer).unwrap() {
            let is_complete = segment.meta.checksum == Checksum::None;
            assert_eq!(is_complete, outgoing.complete);
            let packet = &buffer[..segment.len()];
            assert_eq!(is_right(packet, Link::Ethernet), outgoing.complete);
        }
        assert_eq!(plan.remaining(), 0);
    }
}

#[test]
fn c52_a_packet_whose_sums_are_all_left_to_others_is_the_same_without_reading_its_payload() {
    let tunnel = Packet::new().ipv4(|ip| ip).udp(|u| u).vxlan(|v| v.remote_checksum());
    let inner = tunnel.ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp);
    let with = inner.payload_len(250).build();
    let mut without = with.clone();
    without[26..28].fill(0);
    let meta = Meta { gso: Gso::every(100), ..Meta::default() };
    for (superframe, reads) in [(with, true), (without, false)] {
        let slices = [&superframe[..]];
        let ports = Ports::ASSIGNED;
        let plan = Segments::new(&slices, &meta, LinkType::Raw, &ports, Outgoing::default());
        let (mut copied, mut left) = (plan.clone().unwrap(), plan.unwrap());
        assert_eq!(left.sums_payload, reads);
        let (mut packet, mut header) = ([0; 400], [0; 400]);
        while let Some(segment) = copied.write_next(&mut packet).unwrap() {
            let scattered = left.scatter_next(&mut header, |_| {}).unwrap().unwrap();
            assert_eq!(scattered, segment);
            assert_eq!(header[..segment.header_len], packet[..segment.header_len]);
        }
    }
}
