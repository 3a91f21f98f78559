//! Tests the headers and the metadata of a complete datagram.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::VlanTag,
    reassemble::{
        ReassemblyMode, ReassemblyVerdict, Transport,
        reason::{Discard, Pass},
    },
};
use grosso_rig::fragments::{Piece, Rig, Version, cut};
use grosso_testkit::{Packet, oracle};

use super::{data, push_all, rules};

fn link() -> Packet {
    Packet::new().ethernet(|e| e)
}

#[test]
fn f01_protocol_is_a_key_in_ipv4_and_not_in_ipv6() {
    let later = |version: Version, next: u8| {
        let packet = match version {
            Version::V4 => link().ipv4(|ip| ip.id(1).df(false).protocol(next).fragment_offset(2)),
            Version::V6 => link().ipv6(|ip| ip).fragment(|f| f.id(1).offset(2).next_header(next)),
        };
        packet.payload(&[7; 5]).build()
    };
    for (version, expected) in
        [(Version::V4, ReassemblyVerdict::Held), (Version::V6, ReassemblyVerdict::Completed)]
    {
        let first = Piece { offset: 0, more: true, data: vec![1; 16] };
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        rig.push(&version.frame(1, &first));
        assert_eq!(rig.push(&later(version, 99)), expected, "{version:?}");
        if let Some(whole) = rig.whole.pop() {
            // The datagram gets the next header of the first fragment.
            assert_eq!((whole.bytes[20], whole.flow.protocol), (17, 17));
        }
    }
}

#[test]
fn p30_f01_another_address_identification_or_network_is_another_datagram() {
    let first = |edit: fn(Packet) -> Packet| edit(Packet::new()).payload(&[1; 16]).build();
    let frames = [
        first(|p| p.ethernet(|e| e).ipv4(|ip| ip.df(false).protocol(17).more_fragments(true))),
        first(|p| {
            p.ethernet(|e| e).ipv4(|ip| ip.df(false).protocol(17).more_fragments(true).id(1))
        }),
        first(|p| {
            let ip = p.ethernet(|e| e);
            ip.ipv4(|ip| ip.df(false).protocol(17).more_fragments(true).source([1, 2, 3, 4]))
        }),
        first(|p| {
            let ip = p.ethernet(|e| e).vlan(|v| v.id(5));
            ip.ipv4(|ip| ip.df(false).protocol(17).more_fragments(true))
        }),
        first(|p| {
            let outer = p.ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v.vni(7));
            let ip = outer.ethernet(|e| e);
            ip.ipv4(|ip| ip.df(false).protocol(17).more_fragments(true))
        }),
        first(|p| {
            let outer = p.ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v.vni(8));
            let ip = outer.ethernet(|e| e);
            ip.ipv4(|ip| ip.df(false).protocol(17).more_fragments(true))
        }),
    ];
    let mut rig = Rig::new(rules(ReassemblyMode::KeepGeometry));
    for (count, frame) in frames.iter().enumerate() {
        assert_eq!(rig.push(frame), ReassemblyVerdict::Held);
        assert_eq!(rig.held_datagrams(), count + 1);
    }
    // A tag that the device removed also distinguishes datagrams; TTL, TOS and MAC addresses do not.
    let tag = Some(VlanTag { protocol: 0x8100, tci: 9 });
    rig.push_frame(&frames[0], Meta { vlan: tag, ..Meta::default() });
    rig.push_frame(&frames[4], Meta { vlan: tag, ..Meta::default() });
    assert_eq!(rig.held_datagrams(), frames.len() + 2);
    let rest = Packet::new()
        .ethernet(|e| e.source([2; 6]))
        .ipv4(|ip| ip.df(false).protocol(17).fragment_offset(2).ttl(3).tos(0x20));
    assert_eq!(rig.push(&rest.payload(&[1; 3]).build()), ReassemblyVerdict::Completed);
}

#[test]
fn f20_header_is_that_of_the_first_fragment_with_its_options() {
    let data = data(Version::V4, 64, 20);
    let frame = |piece: &Piece, ttl: u8, options: &[u8]| {
        let (offset, more) = ((piece.offset / 8) as u16, piece.more);
        let packet = link().ipv4(|ip| {
            let ip = ip.id(1).df(false).ttl(ttl).tos(u8::from(more) * 0xb8).options(options);
            ip.protocol(17).fragment_offset(offset).more_fragments(more)
        });
        packet.payload(&piece.data).build()
    };
    let pieces = cut(&data, 32);
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
        let mut rig = Rig::new(rules(mode));
        rig.push(&frame(&pieces[1], 3, &[1, 1, 1, 1, 1, 1, 1, 0]));
        rig.push(&frame(&pieces[0], 9, &[0x94, 4, 0, 0]));
        let expected = link()
            .ipv4(|ip| ip.id(1).df(false).ttl(9).tos(0xb8).options(&[0x94, 4, 0, 0]).protocol(17));
        assert_eq!(rig.take_whole(), [expected.payload(&data).build()]);
    }
}

#[test]
fn f20_p38_the_longest_fragment_and_whether_it_may_be_cut_are_remembered() {
    let data = data(Version::V4, 96, 21);
    let frame = |piece: &Piece, df: bool| {
        let (offset, more) = ((piece.offset / 8) as u16, piece.more);
        let packet = link()
            .ipv4(|ip| ip.id(1).df(df).protocol(17).fragment_offset(offset).more_fragments(more));
        packet.payload(&piece.data).build()
    };
    let pieces = [Piece::of(&data, 0, 24), Piece::of(&data, 24, 80), Piece::of(&data, 80, 96)];
    for (marks, expected) in [
        ([false; 3], false),
        ([true; 3], true),
        ([false, true, false], true),
        ([true, false, true], false),
    ] {
        let mut rig = Rig::new(rules(ReassemblyMode::KeepGeometry));
        pieces.iter().zip(marks).for_each(|(piece, df)| _ = rig.push(&frame(piece, df)));
        let whole = rig.whole.pop().expect("a datagram");
        assert_eq!((whole.dont_fragment, whole.fragment_bytes_max), (expected, 20 + 56));
        let word = u16::from_be_bytes([whole.bytes[20], whole.bytes[21]]);
        assert_eq!(word, if expected { 0x4000 } else { 0 });
    }
}

#[test]
fn p35_f21_congestion_marks_survive_in_all_sixteen_combinations() {
    let data = [0x5a; 64];
    for version in Version::ALL {
        for marks in 1..16_u8 {
            let code_points: Vec<u8> = (0..4).filter(|bit| marks >> bit & 1 == 1).collect();
            let count = code_points.len().max(2);
            let pieces = cut(&data[..count * 16], 16);
            let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
            let code_point = |at: usize| code_points[at.min(code_points.len() - 1)];
            for (at, piece) in pieces.iter().enumerate() {
                let mut frame = version.frame(1, piece);
                mark(version, &mut frame, code_point(at));
                rig.push(&frame);
            }
            let mut expected = version.whole(1, &data[..count * 16]);
            let not_capable = marks & 1 != 0;
            if not_capable && marks != 1 {
                assert_eq!(rig.discarded, [(Discard::EcnMixed, vec![])], "{marks:04b}");
                assert!(rig.whole.is_empty());
                continue;
            }
            let congested = marks & 8 != 0;
            mark(version, &mut expected, if congested { 3 } else { code_point(0) });
            assert_eq!(rig.take_whole(), [expected], "{version:?} {marks:04b}");
        }
    }
}

/// Sets the ECN bits; the DSCP is not zero.
fn mark(version: Version, frame: &mut [u8], code_point: u8) {
    match version {
        Version::V4 => {
            frame[15] = 0x28 | code_point;
            frame[24..26].fill(0);
            let checksum = oracle::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        Version::V6 => {
            frame[14] = 0x62;
            frame[15] = 0x80 | code_point << 4;
        }
    }
}

#[test]
fn f22_the_fragment_header_is_gone_and_lengths_are_right() {
    for (version, count) in [(Version::V4, 3), (Version::V6, 3)] {
        let data = data(version, count * 1448 - 5, 22);
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        push_all(&mut rig, version, 7, &cut(&data, 1448));
        let whole = rig.whole.pop().expect("a datagram");
        assert_eq!(whole.bytes, version.whole(7, &data));
        assert!(oracle::is_right(&whole.bytes, oracle::Link::Ethernet));
        assert_eq!(whole.fragments, 3);
        assert_eq!(whole.flow.ports.map(|ports| ports[0].to_be_bytes()), Some([data[0], data[1]]));
    }
}

#[test]
fn f23_sums_are_added_and_different_states_give_no_verdict() {
    for version in Version::ALL {
        let data = data(version, 333, 23);
        let pieces = cut(&data, 120);
        let frames: Vec<_> = pieces.iter().map(|piece| version.frame(1, piece)).collect();
        let complete = |frame: &[u8]| Checksum::Complete { sum: oracle::sum(&frame[14..]) };
        let unnecessary = |levels| Checksum::Unnecessary { levels };
        let partial = Checksum::Partial { start: 34, offset: 6 };
        let whole = version.whole(1, &data);
        let sums = [0, 1, 2].map(|at: usize| complete(&frames[at]));
        for (states, expected) in [
            (sums, complete(&whole)),
            ([sums[0], Checksum::None, sums[2]], Checksum::None),
            ([unnecessary(1), unnecessary(0), unnecessary(2)], unnecessary(0)),
            ([unnecessary(1), sums[1], unnecessary(2)], Checksum::None),
            ([partial, partial, partial], Checksum::None),
            ([partial, Checksum::None, Checksum::None], Checksum::None),
        ] {
            for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
                let mut rig = Rig::new(rules(mode));
                for (frame, checksum) in frames.iter().zip(states).rev() {
                    rig.push_frame(frame, Meta { checksum, ..Meta::default() });
                }
                let whole = rig.whole.pop().expect("a datagram");
                assert_eq!(whole.meta.checksum, expected, "{version:?} {mode:?} {states:?}");
                assert_eq!(whole.transport, Transport::Unread);
            }
        }
    }
}

/// Tests a device's sum, which also includes the bytes after the packet.
#[test]
fn f23_padding_is_taken_off_the_sum() {
    let data = data(Version::V4, 33, 24);
    let mut rig = Rig::new(rules(ReassemblyMode::KeepGeometry));
    for piece in cut(&data, 16) {
        let mut frame = Version::V4.frame(1, &piece);
        frame.extend([0xde, 0xad, 0xbe, 0xef, 0x77]);
        let checksum = Checksum::Complete { sum: oracle::sum(&frame[14..]) };
        rig.push_frame(&frame, Meta { checksum, ..Meta::default() });
    }
    let whole = rig.whole.pop().expect("a datagram");
    assert_eq!(whole.meta.checksum, Checksum::Complete { sum: oracle::sum(&whole.bytes[14..]) });
}

#[test]
fn the_transport_checksum_is_verified_when_asked() {
    for (version, mode) in Version::ALL.into_iter().flat_map(|version| {
        [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry].map(|mode| (version, mode))
    }) {
        let verdict = |data: &[u8], state: fn(&[u8]) -> Checksum| {
            let mut asked = rules(mode);
            asked.verify = true;
            let mut rig = Rig::new(asked);
            for piece in cut(data, 56).iter().rev() {
                let frame = version.frame(1, piece);
                let checksum = state(&frame[14..]);
                rig.push_frame(&frame, Meta { checksum, ..Meta::default() });
            }
            let whole = rig.whole.pop().expect("a datagram");
            (whole.transport, whole.meta.checksum)
        };
        let right = data(version, 301, 25);
        let mut wrong = right.clone();
        wrong[200] ^= 1;
        let mut absent = right.clone();
        absent[6..8].fill(0);
        let mut lying = right.clone();
        lying[5] ^= 1;
        let none: fn(&[u8]) -> Checksum = |_| Checksum::None;
        let verified = Checksum::Unnecessary { levels: 0 };
        assert_eq!(verdict(&right, none), (Transport::Right, verified));
        assert_eq!(verdict(&wrong, none), (Transport::Wrong, Checksum::None));
        assert_eq!(verdict(&absent, none), (Transport::Absent, Checksum::None));
        assert_eq!(verdict(&lying, none), (Transport::Unknown, Checksum::None));
        let summed: fn(&[u8]) -> Checksum = |bytes| Checksum::Complete { sum: oracle::sum(bytes) };
        assert_eq!(verdict(&right, summed).0, Transport::Right);
        assert_eq!(verdict(&wrong, summed).0, Transport::Wrong);
        let device: fn(&[u8]) -> Checksum = |_| Checksum::Unnecessary { levels: 0 };
        assert_eq!(verdict(&wrong, device), (Transport::Unread, verified));
    }
}

/// Tests fragments inside all headers that the dissector supports. The lengths in the outer headers are adapted to the
/// complete datagram.
#[test]
fn fragments_inside_vlan_pppoe_and_tunnels_become_a_datagram_there() {
    type Around = fn(Packet) -> Packet;
    let around: [(&str, Around); 8] = [
        ("vlan", |p| p.ethernet(|e| e).vlan(|v| v.id(7))),
        ("pppoe", |p| p.ethernet(|e| e).pppoe(|s| s)),
        ("mpls", |p| p.ethernet(|e| e).mpls(|m| m)),
        ("ipip", |p| p.ethernet(|e| e).ipv4(|ip| ip.id(3))),
        ("ip6", |p| p.ethernet(|e| e).ipv6(|ip| ip)),
        ("gre with a checksum", |p| p.ethernet(|e| e).ipv4(|ip| ip).gre(|g| g.checksum())),
        ("vxlan over ipv6 with a checksum", |p| {
            p.ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).vxlan(|v| v.vni(3)).ethernet(|e| e)
        }),
        ("geneve in vxlan", |p| {
            let outer = p.ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e);
            outer.ipv4(|ip| ip).udp(|u| u).geneve(|g| g).ethernet(|e| e)
        }),
    ];
    for (name, around) in around {
        for version in Version::ALL {
            let data = data(version, 777, 26);
            let expected = version.whole_behind(around(Packet::new()), 5, &data);
            for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
                let mut rig = Rig::new(rules(mode));
                for piece in cut(&data, 256).iter().rev() {
                    rig.push(&version.behind(around(Packet::new()), 5, piece));
                }
                let whole = rig.take_whole();
                assert_eq!(whole, std::slice::from_ref(&expected), "{name} {version:?} {mode:?}");
            }
        }
    }
}

/// Tests that fragments inside a tunnel pass unchanged, even malformed and atomic ones, because the tunnel's endpoint
/// reassembles only fragments of the tunnel's own packets.
#[test]
fn fragments_inside_a_tunnel_pass_where_they_are_for_others() {
    type Around = fn(Packet) -> Packet;
    let around: [(&str, bool, Around); 4] = [
        ("vlan", true, |p| p.ethernet(|e| e).vlan(|v| v.id(7))),
        ("ipip", false, |p| p.ethernet(|e| e).ipv4(|ip| ip.id(3))),
        ("gre over ipv6", false, |p| p.ethernet(|e| e).ipv6(|ip| ip).gre(|g| g)),
        ("vxlan", false, |p| {
            p.ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v).ethernet(|e| e)
        }),
    ];
    let mut rules = rules(ReassemblyMode::Coalesce);
    rules.in_tunnels = false;
    for (name, is_joined, around) in around {
        for version in Version::ALL {
            let data = data(version, 777, 26);
            let mut pieces = cut(&data, 256);
            if !is_joined {
                pieces.push(Piece { offset: 8, more: true, data: vec![1; 3] });
                pieces.push(Piece { offset: 0, more: false, data: vec![2; 40] });
            }
            let mut rig = Rig::new(rules.clone());
            let passed = |piece| {
                let verdict = rig.push(&version.behind(around(Packet::new()), 5, piece));
                matches!(verdict, ReassemblyVerdict::Passed(Pass::Whole))
            };
            let passed = pieces.iter().map(passed).filter(|passed| *passed).count();
            let expected = if is_joined { 0 } else { pieces.len() };
            assert_eq!(passed, expected, "{name} {version:?}");
        }
    }
}

/// Tests a fragment of a tunnel's packet: the outermost datagram is reassembled first, and the caller then pushes the
/// result to reassemble the inner one.
#[test]
fn fragments_in_fragments_are_joined_from_outside() {
    let inner_data = data(Version::V4, 600, 27);
    let inner: Vec<_> = cut(&inner_data, 304)
        .iter()
        .map(|piece| Version::V4.behind(Packet::new(), 2, piece))
        .collect();
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    for (id, packet) in inner.iter().enumerate() {
        for piece in cut(packet, 160) {
            let (offset, more) = ((piece.offset / 8) as u16, piece.more);
            let outer = link().ipv4(|ip| {
                let ip = ip.source([9; 4]).id(id as u16 + 70).df(false).protocol(4);
                ip.fragment_offset(offset).more_fragments(more)
            });
            rig.push(&outer.payload(&piece.data).build());
        }
    }
    let outer = rig.take_whole();
    assert_eq!(outer.len(), inner.len());
    outer.iter().for_each(|frame| _ = rig.push(frame));
    let whole = rig.take_whole();
    assert_eq!(whole.len(), 1);
    assert!(whole[0].ends_with(&inner_data));
    rig.finish();
}
