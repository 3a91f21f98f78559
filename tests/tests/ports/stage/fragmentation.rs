//! Tests the stage that fragments and reassembles packets.

use core::num::NonZeroU16;
use std::collections::HashSet;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Fragmented, Gso, GsoSize},
    reassemble::{ReassemblyMode, ReassemblyRules},
};
use grosso_io::{
    Port, Transmitted,
    stage::{Fragmentation, FragmentationOptions},
};
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
};

use super::ends::{Reluctant, counter, ethernet, fragments, insist, receive, send};

fn udp4(df: bool, id: u16) -> Packet {
    Packet::new().ethernet(|e| e).ipv4(move |ip| ip.df(df).id(id)).udp(|u| u)
}

fn udp6() -> Packet {
    Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u)
}

/// Returns the frames that a stage sent.
fn on_the_wire(mut far: impl Port) -> Vec<Vec<u8>> {
    receive(&mut far, 0).into_iter().map(|(frame, _)| frame).collect()
}

#[test]
fn what_forbids_fragments_is_dropped_by_name_or_cut_with_an_identification_of_its_own() {
    let (near, far) = ethernet(64);
    let mut near = Fragmentation::new(near, &fragments(1500)).unwrap();
    let frame = udp4(true, 0).payload_len(3000).build();
    assert_eq!(send(&mut near, &frame), Transmitted::Taken);
    let fits = udp4(true, 0).payload_len(1472).build();
    assert_eq!(send(&mut near, &fits), Transmitted::Taken);
    assert_eq!(counter(&mut near, "frag_dont_fragment"), 1);
    assert_eq!(counter(&mut near, "ip_frag_fails"), 1);
    assert_eq!(on_the_wire(far), [fits]);

    let (near, far) = ethernet(64);
    let mut options = fragments(1500);
    options.ignore_df = true;
    let mut near = Fragmentation::new(near, &options).unwrap();
    for _ in 0..2 {
        assert_eq!(send(&mut near, &frame), Transmitted::Taken);
    }
    let wire = on_the_wire(far);
    let ids: HashSet<_> = wire.iter().map(|fragment| [fragment[18], fragment[19]]).collect();
    assert_eq!((wire.len(), ids.len()), (6, 2), "no two datagrams have one");
    assert!(wire.iter().all(|fragment| fragment[20] & 0x40 == 0 && fragment.len() <= 1514));
    assert!(wire.iter().all(|fragment| oracle::sum(&fragment[14..34]) == 0xffff));
}

#[test]
fn s49_superframes_whose_packets_fit_the_mtu_pass_and_frames_without_ip() {
    let (near, mut far) = ethernet(64);
    let mut near = Fragmentation::new(near, &fragments(1500)).unwrap();
    let mut other = vec![0; 3000];
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(send(&mut near, &other), Transmitted::Taken);
    let train = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(6000).build();
    let meta = |size| Meta { gso: Gso::every(size), ..Meta::default() };
    assert_eq!(near.transmit(&[&train], &meta(1440)).unwrap(), Transmitted::Taken);
    assert_eq!(receive(&mut far, 0), [(other, Meta::default()), (train.clone(), meta(1440))]);
    assert_eq!(near.stats().cut.superframes, 0);

    // One byte more does not fit: the train is segmented, and each of its packets fragmented.
    assert_eq!(near.transmit(&[&train], &meta(1441)).unwrap(), Transmitted::Taken);
    assert_eq!((near.stats().cut.superframes, near.stats().cut.cut), (1, 4));
    assert!(
        receive(&mut far, 0).iter().all(|(frame, meta)| frame.len() <= 1514 && meta.gso.is_none())
    );
}

#[test]
fn partial_checksums_are_completed_before_anything_is_cut() {
    let (near, far) = ethernet(64);
    let mut near = Fragmentation::new(near, &fragments(1500)).unwrap();
    let mut far = Fragmentation::new(far, &fragments(1500)).unwrap();
    let (frame, start, offset) = udp6().payload_len(4000).build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { checksum, ..Meta::default() };
    assert_eq!(near.transmit(&[&frame[..80], &frame[80..]], &meta).unwrap(), Transmitted::Taken);
    let received = receive(&mut far, 0);
    assert_eq!(received[0].0, udp6().payload_len(4000).build());
    assert!(oracle::is_right(&received[0].0, Link::Ethernet));
}

#[test]
fn s30_a_superframe_that_stands_for_one_datagram_is_cut_to_the_mtu() {
    let (near, far) = ethernet(64);
    let mut near = Fragmentation::new(near, &fragments(1280)).unwrap();
    let mut far = Fragmentation::new(far, &fragments(1280)).unwrap();
    for frame in [udp4(false, 7).payload_len(5000).build(), udp6().payload_len(5000).build()] {
        let cut = GsoSize::Fragments(NonZeroU16::new(1480).unwrap());
        let gso = Gso::every(1).map(|gso| Gso { size: cut, ..gso });
        let meta = Meta { gso, ..Meta::default() };
        assert_eq!(near.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
        assert_eq!(receive(&mut far, 0)[0].0, frame);
    }
    assert_eq!((near.stats().cut.fragments, near.stats().cut.refused()), (10, 0));
}

#[test]
fn no_room_in_the_middle_of_a_datagram_loses_nothing_and_sends_nothing_twice() {
    let (near, mut far) = ethernet(3);
    let mut near = Fragmentation::new(near, &fragments(1500)).unwrap();
    let [first, second] = [20_000, 3000].map(|len| udp6().payload_len(len).build());
    assert_eq!(send(&mut near, &first), Transmitted::Taken);
    let mut wire = Vec::new();
    loop {
        assert_eq!(send(&mut near, &second), Transmitted::NoRoom, "nothing overtakes");
        wire.extend(receive(&mut far, 0));
        if near.flush().unwrap() == Transmitted::Taken {
            break;
        }
    }
    assert_eq!(send(&mut near, &second), Transmitted::Taken);
    wire.extend(receive(&mut far, 0));
    assert_eq!(near.flush().unwrap(), Transmitted::Taken);
    wire.extend(receive(&mut far, 0));
    assert_eq!(wire.len(), 14 + 3);
    assert_eq!(counter(&mut near, "ip_frag_creates"), 14 + 3);
    let distinct: HashSet<&Vec<u8>> = wire.iter().map(|(frame, _)| frame).collect();
    assert_eq!(distinct.len(), wire.len());
}

#[test]
fn buffers_of_the_device_are_held_only_where_geometry_is_kept() {
    for (mode, held) in [(ReassemblyMode::Coalesce, 0), (ReassemblyMode::KeepGeometry, 13)] {
        let (mut near, far) = ethernet(64);
        let mut options = FragmentationOptions::new(1);
        options.rules = Some(ReassemblyRules::new(mode));
        let mut far = Fragmentation::new(Reluctant::new(far, 0.0), &options).unwrap();
        let (source, wire) = ethernet(64);
        let mut source = Fragmentation::new(source, &fragments(1500)).unwrap();
        let frame = udp6().payload_len(20_000).build();
        insist(&mut source, &frame, &Meta::default());
        let pieces = on_the_wire(wire);
        let [rest @ .., last] = &pieces[..] else { panic!("there are fragments") };
        rest.iter().for_each(|piece| insist(&mut near, piece, &Meta::default()));
        assert!(receive(&mut far, 0).is_empty());
        assert_eq!((far.inner().outside, far.held_fragments()), (held, 13), "{mode:?}");
        insist(&mut near, last, &Meta::default());
        assert_eq!(receive(&mut far, 1)[0].0, frame, "{mode:?}");
        assert_eq!((far.inner().outside, far.held_fragments()), (0, 0), "{mode:?}");
    }
}

#[test]
fn fragments_pass_where_they_are_not_to_be_joined_and_never_more_than_were_asked_for() {
    let frame = udp6().payload_len(8000).build();
    let mut virtual_mode = fragments(1500);
    virtual_mode.rules = Some(ReassemblyRules::new(ReassemblyMode::Virtual));
    let mut none = fragments(1500);
    none.rules = None;
    for options in [virtual_mode, none] {
        let (source, wire) = ethernet(64);
        let mut source = Fragmentation::new(source, &options).unwrap();
        insist(&mut source, &frame, &Meta::default());
        let (mut near, far) = ethernet(64);
        let mut far = Fragmentation::new(far, &options).unwrap();
        // The first fragment, which is the only one with ports, arrives last and releases the others.
        let pieces = on_the_wire(wire);
        pieces.iter().rev().for_each(|piece| insist(&mut near, piece, &Meta::default()));
        let mut given = Vec::new();
        // One call delivers at most the requested number of frames.
        while given.len() < 6 {
            let mut count = 0;
            let said = far.receive(0, 2, &mut |frame| {
                given.push(frame.buffer.as_ref().len());
                count += 1;
            });
            assert_eq!(said.unwrap(), count);
            assert!(count <= 2);
        }
        given.sort_unstable();
        assert_eq!(given, [830, 1510, 1510, 1510, 1510, 1510]);
    }
}

/// Passes fragments through a stage with the options `joins`, and then through one with the options `sends`. Returns
/// the frames that the second stage sends.
fn passed_on(
    pieces: &[Vec<u8>],
    joins: &FragmentationOptions,
    sends: &FragmentationOptions,
) -> Vec<Vec<u8>> {
    let (mut source, near) = ethernet(64);
    let mut near = Fragmentation::new(near, joins).unwrap();
    let (far, wire) = ethernet(64);
    let mut far = Fragmentation::new(far, sends).unwrap();
    pieces.iter().for_each(|piece| insist(&mut source, piece, &Meta::default()));
    for (frame, meta) in receive(&mut near, 0) {
        insist(&mut far, &frame, &meta);
    }
    assert_eq!(far.stats().cut.refused(), 0);
    on_the_wire(wire)
}

#[test]
fn s61_s62_what_came_in_fragments_leaves_in_the_same_fragments_whatever_the_mtu() {
    let mut joins = FragmentationOptions::new(1);
    joins.forwards = true;
    let mut plain = FragmentationOptions::new(2);
    plain.rules = None;
    let options = &[0x94, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 1];
    let with_options = Packet::new().ethernet(|e| e).ipv4(|ip| ip.options(options).df(false));
    let with_options = with_options.udp(|u| u).payload_len(4000).build();
    for (frame, mtus) in [
        (udp4(false, 7).payload_len(4000).build(), [100, 996, 1003]),
        (udp4(true, 7).payload_len(4000).build(), [576, 1000, 1500]),
        (with_options, [100, 576, 1499]),
        (udp6().payload_len(4000).build(), [1280, 1281, 1400]),
    ] {
        for mtu in mtus {
            let (source, wire) = ethernet(64);
            let mut source = Fragmentation::new(source, &plain).unwrap();
            let largest = NonZeroU16::new(mtu).unwrap();
            // DF does not forbid fragmentation of a packet that arrived in fragments.
            let fragmented = Some(Fragmented { largest, identification: 0x0a0b_0c0d });
            let meta = Meta { fragmented, ..Meta::default() };
            insist(&mut source, &frame, &meta);
            let pieces = on_the_wire(wire);
            assert!(pieces.len() > 2, "{mtu}");
            for sends in [&plain, &fragments(1500), &fragments(9000)] {
                let sent = passed_on(&pieces, &joins, sends);
                let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
                assert_eq!(lengths(&sent), lengths(&pieces), "{mtu} to {:?}", sends.mtu);
                assert!(sent == pieces, "{mtu} to {:?}", sends.mtu);
            }
            // The stage at the destination reassembles the fragments.
            let whole = passed_on(&pieces, &FragmentationOptions::new(3), &plain);
            assert_eq!(whole, std::slice::from_ref(&frame), "{mtu}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |options: &FragmentationOptions| {
        Fragmentation::new(ethernet(1).0, options).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(refused(&fragments(67)), "an MTU of 67 is below the minimum of 68 bytes");
    let mut rules = ReassemblyRules::new(ReassemblyMode::KeepGeometry);
    rules.overlap = grosso::reassemble::Overlap::First;
    let mut options = fragments(1500);
    options.rules = Some(rules);
    assert!(refused(&options).contains("overlapping"));
}
