//! Tests an example of every reason that the engine can report.

use std::collections::BTreeSet;

use grosso::{
    Frame, Meta, Profile, Verdict,
    checksum::Checksum,
    coalesce::{
        Batch, Bypass, Hold, Reorder,
        reason::{Close, NoMerge, Pass},
    },
    meta::VlanTag,
};
use grosso_rig::{
    engine::{Engine, Out},
    frames::{Path, Segment, at, plain},
    superframe::Superframe,
};
use grosso_testkit::{
    Packet,
    headers::{Geneve, Ipv4, Tcp, Udp, Vxlan},
};

/// One frame of a scenario.
type Pushed = Frame<Vec<u8>>;

fn known(packet: &Packet) -> Pushed {
    Frame::new(packet.build())
}

/// Returns one TCP segment over IPv4, modified by `change`.
fn ipv4(change: impl Fn(Segment) -> Segment) -> Pushed {
    Frame::new(Path::Ipv4.train(&[100], |_, s| change(s)).remove(0))
}

fn tcp(change: impl FnOnce(Tcp) -> Tcp + Copy + 'static) -> Pushed {
    ipv4(|s| s.tcp(change))
}

/// Returns IPv4, UDP and VXLAN around an Ethernet frame.
fn vxlan(change: impl FnOnce(Vxlan) -> Vxlan) -> Packet {
    Packet::new()
        .ethernet(|e| e)
        .ipv4(|ip| ip)
        .udp(|u| u.checksum_zero())
        .vxlan(change)
        .ethernet(|e| e)
}

fn geneve(change: impl FnOnce(Geneve) -> Geneve) -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).geneve(change).ethernet(|e| e)
}

/// Returns IPv4 and TCP with payload after the headers of `packet`.
fn inner(packet: Packet) -> Pushed {
    known(&packet.ipv4(|ip| ip).tcp(|t| t).payload_len(100))
}

/// Returns a segment whose correct checksum is zero; 0xffff in its place is also valid.
fn other_form_of_zero() -> Pushed {
    let frame = |payload: &[u8], change: fn(Tcp) -> Tcp| {
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(change).payload(payload).build()
    };
    let checksum = frame(&[0, 0], |t| t)[50..52].to_vec();
    assert_eq!(frame(&checksum, |t| t)[50..52], [0, 0]);
    Frame::new(frame(&checksum, |t| t.checksum_raw(0xffff)))
}

fn with_meta(mut frame: Pushed, change: impl FnOnce(&mut Meta)) -> Pushed {
    change(&mut frame.meta);
    frame
}

/// Returns a superframe of two segments of `size` bytes.
fn superframe(sequence: u32, id: u16, size: u16) -> Pushed {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
    let packet = packet.tcp(|t| t.sequence(sequence)).payload_len(2 * usize::from(size));
    let Superframe { bytes, meta } = Superframe::new(&packet, size).gso(|gso| gso.segments = 2);
    Frame { buffer: bytes, meta }
}

/// Returns a frame for each reason to pass.
fn passing() -> Vec<(Pass, Pushed)> {
    let ethernet = || Packet::new().ethernet(|e| e);
    let udp = |change: fn(Segment) -> Segment, len: usize| {
        Frame::new(Path::Ipv4.datagrams(&[len], |_, s| change(s)).remove(0))
    };
    let many_options = |packet: Packet| packet.destination_options(|d| d.data(&[0; 200]));
    vec![
        (Pass::NotIp, known(&ethernet().payload(&[0; 46]))),
        (Pass::Truncated, ipv4(|s| s.frame(|packet| packet.truncate(40)))),
        (Pass::Malformed, tcp(|t| t.data_offset_raw(4))),
        (Pass::TooDeep, ipv4(|s| s.link(|packet| (0..14).fold(packet, |p, _| p.vlan(|v| v))))),
        (Pass::HeaderTooLong, {
            let packet = (0..3).fold(ethernet().ipv6(|ip| ip), |packet, _| many_options(packet));
            known(&packet.tcp(|t| t).payload_len(100))
        }),
        (Pass::Protocol, known(&ethernet().ipv4(|ip| ip).sctp(|s| s).payload_len(100))),
        (Pass::Encrypted, known(&ethernet().ipv4(|ip| ip).esp(|e| e).payload_len(100))),
        (Pass::Fragment, ipv4(|s| s.ipv4(|ip| ip.more_fragments(true)))),
        (Pass::Padded, ipv4(|s| s.frame(|packet| packet.trailer(&[0])))),
        (Pass::Short, ipv4(|s| s.frame(|packet| packet.truncate(153)))),
        (Pass::LengthZero, ipv4(|s| s.ipv4(|ip| ip.total_len_raw(0)))),
        (Pass::Ipv4Options, ipv4(|s| s.ipv4(|ip| ip.options(&[1])))),
        (
            Pass::Ipv6Extension,
            known(&ethernet().ipv6(|ip| ip).hop_by_hop(|h| h).tcp(|t| t).payload_len(100)),
        ),
        (Pass::Ipv4ReservedBit, ipv4(|s| s.ipv4(|ip| ip.reserved_bit(true)))),
        (Pass::Ipv4Checksum, ipv4(|s| s.ipv4(|ip| ip.checksum_xor(1)))),
        (Pass::Checksum, tcp(|t| t.checksum_xor(1))),
        (Pass::ChecksumForm, other_form_of_zero()),
        (Pass::ChecksumNone, udp(|s| s.udp(|u| u.checksum_zero()), 100)),
        (
            Pass::ChecksumPartial,
            with_meta(tcp(|t| t), |meta| {
                meta.checksum = Checksum::Partial { start: 14, offset: 10 }
            }),
        ),
        (Pass::RemoteChecksum, inner(vxlan(|v| v.remote_checksum()))),
        (Pass::Empty, udp(|s| s, 0)),
        (Pass::TcpSynchronize, tcp(Tcp::syn)),
        (Pass::TcpReset, tcp(Tcp::rst)),
        (Pass::TcpUrgent, tcp(Tcp::urg)),
        (Pass::TcpFlags, tcp(Tcp::ece)),
        (Pass::TcpOptions, tcp(|t| t.options(&[1, 1, 1, 1]))),
        (Pass::Congestion, ipv4(|s| s.ipv4(|ip| ip.tos(3)))),
        (Pass::TcpFinish, tcp(Tcp::fin)),
        (Pass::TcpPush, tcp(Tcp::psh)),
        (Pass::TunnelLevels, inner(ethernet().ipv4(|ip| ip).ipv4(|ip| ip))),
        (Pass::GreFlags, inner(ethernet().ipv4(|ip| ip).gre(|g| g.sequence(1)))),
        (Pass::GeneveControl, inner(geneve(|g| g.control(true)))),
        (Pass::TcpOff, tcp(|t| t)),
        (Pass::UdpOff, udp(|s| s, 100)),
        (Pass::Superframe, {
            let untrusted =
                |meta: &mut Meta| meta.gso.iter_mut().for_each(|gso| gso.untrusted = true);
            with_meta(superframe(0, 0, 100), untrusted)
        }),
    ]
}

/// Returns the reason why the second packet of a flow passes after the first was delivered unmerged.
fn bypassed() -> Pass {
    let mut profile = Profile::linux();
    profile.bypass = Some(Bypass { probe_bytes: 1, joined_min: 1, skip_bytes: 100 });
    let mut engine = Engine::new(profile);
    engine.push_frame(tcp(|t| t), 0);
    match engine.push_frame(tcp(|t| t), 0) {
        Verdict::Passed(reason) => reason,
        verdict => panic!("{verdict:?}"),
    }
}

/// Returns the reason why the packet of a second flow passes unmerged if there is room for only one flow.
fn without_a_place() -> Pass {
    let mut profile = Profile::inet_lro();
    profile.limits.flows = 1;
    let mut engine = Engine::new(profile);
    engine.push_frame(tcp(|t| t), 0);
    match engine.push_frame(tcp(|t| t.source_port(9)), 0) {
        Verdict::Passed(reason) => reason,
        verdict => panic!("{verdict:?}"),
    }
}

/// Returns the frames of a flow under reordering repair for each of two reasons. The last frame passes unmerged for
/// this reason.
fn repairing() -> [(Pass, Vec<Vec<u8>>); 2] {
    let again = |sequence| at(1, move |s: Segment| s.tcp(move |t| t.sequence(sequence)));
    [(Pass::TcpLate, 100), (Pass::TcpOverlap, 101)]
        .map(|(reason, sequence)| (reason, Path::Ipv4.train(&[100, 100], again(sequence))))
}

#[test]
fn every_reason_to_pass_is_produced() {
    let mut engine = Engine::new(Profile::linux());
    assert_eq!(engine.push_excluded(&tcp(|t| t).buffer), Verdict::Passed(Pass::Excluded));
    let mut produced = BTreeSet::from([Pass::Excluded, bypassed(), without_a_place()]);
    for (reason, frame) in passing() {
        let mut profile = match reason {
            Pass::TcpFlags | Pass::TcpOptions | Pass::Congestion => Profile::inet_lro(),
            _ => Profile::linux(),
        };
        profile.extension_headers = reason != Pass::Ipv6Extension;
        profile.tcp = reason != Pass::TcpOff;
        profile.udp = reason != Pass::UdpOff;
        let mut engine = Engine::new(profile);
        assert_eq!(engine.push_frame(frame, 0), Verdict::Passed(reason));
        assert_eq!(engine.stats().passed[reason.index()], 1, "{reason}");
        produced.insert(reason);
    }
    produced.extend(repairing().map(|(reason, frames)| {
        let mut profile = Profile::linux();
        profile.reorder = Reorder::WITHIN_BATCH;
        let mut engine = Engine::new(profile);
        frames.iter().for_each(|frame| {
            engine.push(frame);
            engine.poll_end(0);
        });
        assert_eq!(engine.verdicts.last(), Some(&Verdict::Passed(reason)));
        reason
    }));
    assert_eq!(produced, BTreeSet::from_iter(Pass::ALL.iter().copied()));
}

/// Returns two frames of one flow for each reason why the second does not merge with the first.
fn refusing() -> Vec<(NoMerge, [Pushed; 2])> {
    let second = |change: fn(Segment) -> Segment| {
        let frames = Path::Ipv4.train(&[100, 100], at(1, change));
        <[_; 2]>::try_from(frames).unwrap().map(Frame::new)
    };
    let second_v6 = |change: fn(Segment) -> Segment| {
        let frames = Path::Ipv6.train(&[100, 100], at(1, change));
        <[_; 2]>::try_from(frames).unwrap().map(Frame::new)
    };
    let options = |data: &'static [u8]| {
        let packet =
            Packet::new().ethernet(|e| e).ipv6(|ip| ip).destination_options(|d| d.data(data));
        known(&packet.tcp(|t| t).payload_len(100))
    };
    let stamped =
        |value, kind| {
            Frame::new(
                Path::Ipv4
                    .train(&[100], |_, s| {
                        s.tcp(move |t| {
                            if kind == 8 { t.timestamps(value, 1) } else { t.options(&[kind; 12]) }
                        })
                    })
                    .remove(0),
            )
        };
    let outer = |sequence: u32, checksum: fn(Udp) -> Udp| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(checksum);
        let packet = packet.vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip);
        known(&packet.tcp(|t| t.sequence(sequence)).payload_len(100))
    };
    let partial = Path::Ipv4.train(&[100, 100], plain).remove(1);
    let seed = {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.tcp(|t| t.sequence(200)).payload_len(100).build_partial()
    };
    assert_eq!(partial[..50], seed.0[..50]);
    let tag = VlanTag { protocol: 0x8100, tci: 1 };
    vec![
        (NoMerge::LinkHeader, second(|s| s.ethernet(|e| e.source([2; 6])))),
        (
            NoMerge::VlanTag,
            second(|s| s).map(|frame| {
                let is_first = frame.buffer[41] == 100;
                with_meta(frame, |meta| meta.vlan = is_first.then_some(tag))
            }),
        ),
        (NoMerge::TypeOfService, second(|s| s.tos(4))),
        (NoMerge::DontFragment, second(|s| s.ipv4(|ip: Ipv4| ip.df(false)))),
        (NoMerge::TimeToLive, second(|s| s.ttl(9))),
        (NoMerge::Identification, second(|s| s.ipv4(|ip| ip.id(2)))),
        (NoMerge::TrafficClassOrFlowLabel, second_v6(|s| s.ipv6(|ip| ip.flow_label(1)))),
        (NoMerge::Ipv6Extension, [options(&[1, 4, 0, 0, 0, 0]), options(&[1, 4, 0, 0, 0, 1])]),
        (NoMerge::TunnelHeader, [inner(geneve(|g| g)), inner(geneve(|g| g.reserved(1)))]),
        (NoMerge::HeaderStack, second_v6(|s| s.extensions(|packet| packet.hop_by_hop(|h| h)))),
        (NoMerge::ChecksumPresence, [outer(100, |u| u), outer(200, Udp::checksum_zero)]),
        (NoMerge::ChecksumState, {
            let [first, mut second] = second(|s| s);
            second.buffer = seed.0;
            let checksum = Checksum::Partial { start: seed.1 as u16, offset: seed.2 as u16 };
            [first, with_meta(second, |meta| meta.checksum = checksum)]
        }),
        (NoMerge::TcpAcknowledgment, second(|s| s.tcp(|t| t.ack(1)))),
        (NoMerge::TcpFlags, second(|s| s.tcp(Tcp::ece))),
        (NoMerge::TcpWindow, second(|s| s.tcp(|t| t.window(1)))),
        (NoMerge::TcpUrgentPointer, second(|s| s.tcp(|t| t.urgent_pointer(1)))),
        (NoMerge::TcpTimestamp, [stamped(1, 8), stamped(2, 8)]),
        (NoMerge::TcpOptions, [stamped(1, 8), stamped(1, 1)]),
        (NoMerge::TcpSequenceBehind, second(|s| s.tcp(|t| t.sequence(199)))),
        (NoMerge::TcpSequenceAhead, second(|s| s.tcp(|t| t.sequence(201)))),
        (
            NoMerge::TcpAcknowledgmentAlone,
            [tcp(|t| t.sequence(1)), {
                let empty = Path::Ipv4.train(&[0], |_, s| s.tcp(|t| t.sequence(101)));
                Frame::new(empty.into_iter().next().unwrap())
            }],
        ),
        (NoMerge::Longer, {
            let frames = Path::Ipv4.train(&[100, 101], plain);
            <[_; 2]>::try_from(frames).unwrap().map(Frame::new)
        }),
        (NoMerge::SuperframeSize, [superframe(0, 0, 100), superframe(200, 2, 99)]),
        (NoMerge::SizeLimit, {
            let frames = Path::Ipv4.train(&[40_000, 40_000], plain);
            <[_; 2]>::try_from(frames).unwrap().map(Frame::new)
        }),
        (NoMerge::SegmentLimit, second(|s| s)),
    ]
}

/// Reasons without an example: tests cannot create two flows with the same hash.
const ONLY_WITH_A_HASH_COLLISION: [NoMerge; 1] = [NoMerge::OtherFlow];

#[test]
fn every_reason_not_to_merge_is_produced() {
    let mut produced = BTreeSet::from(ONLY_WITH_A_HASH_COLLISION);
    for (reason, [first, second]) in refusing() {
        let mut profile = match reason {
            NoMerge::TcpAcknowledgmentAlone => Profile::freebsd(),
            _ => Profile::linux(),
        };
        profile.batch = Batch::AsItCame;
        if reason == NoMerge::SegmentLimit {
            profile.limits.tcp_segments = 1;
        }
        let mut engine = Engine::new(profile);
        assert_eq!(engine.push_frame(first, 0), Verdict::Held, "{reason}");
        assert_eq!(engine.push_frame(second, 0), Verdict::Refused(reason));
        assert_eq!(engine.stats().refused[reason.index()], 1, "{reason}");
        produced.insert(reason);
    }
    assert_eq!(produced, BTreeSet::from_iter(NoMerge::ALL.iter().copied()));
}

/// Returns the deliveries for these packets under a profile, each pushed at the time of its index.
fn poll(frames: &[Vec<u8>], change: impl Fn(&mut Profile)) -> Vec<Out> {
    let mut profile = Profile::linux();
    change(&mut profile);
    let holds = profile.limits.hold_ns > 0;
    let mut engine = Engine::new(profile);
    for (now, frame) in (0..).zip(frames) {
        if holds {
            engine.expire(now);
        }
        engine.push_frame(Frame::new(frame.clone()), now);
    }
    engine.finish();
    engine.delivered
}

/// Returns more header stacks than the engine remembers: every length of TCP options after up to six VLAN tags.
fn header_stacks() -> Vec<Vec<u8>> {
    let stack = |tags: usize, words: usize| {
        Path::Ipv4.train(&[100], move |_, s| {
            s.link(move |packet| (0..tags).fold(packet, |packet, _| packet.vlan(|v| v)))
                .tcp(move |t| t.options(&vec![1; 4 * words]))
        })
    };
    (0..7).flat_map(|tags| (0..11).flat_map(move |words| stack(tags, words))).collect()
}

/// Tests a train that was delivered because the cache of header stacks was full. The next packet's headers take over
/// the train's position in the cache, but the packet must not find the old train there.
#[test]
fn a_train_that_left_with_all_known_headers_is_found_no_more() {
    let mut frames = header_stacks();
    let last = frames.remove(10);
    frames.truncate(64);
    frames.push(frames[0].clone());
    let mut engine = Engine::new(Profile::linux());
    frames.iter().for_each(|frame| _ = engine.push(frame));
    assert_eq!(engine.delivered.len(), 65 - 6, "each number of tags is a flow");
    assert_eq!(engine.push(&last), Verdict::Held);
    let closed = engine.delivered.last().map(|out| out.closed);
    assert_eq!((engine.delivered.len(), closed), (65, Some(Close::HeaderStacksFull)));
}

#[test]
fn every_reason_to_close_is_produced() {
    let last = |change: fn(Segment) -> Segment| Path::Ipv4.train(&[100, 100], at(1, change));
    let connections = |count: u16| -> Vec<Vec<u8>> {
        let first =
            |port| Path::Ipv4.train(&[100], move |_, s| s.tcp(move |t| t.source_port(port)));
        (0..count).flat_map(first).collect()
    };
    let ahead = last(|s| s.tcp(|t| t.sequence(500)));
    let same = |_: &mut Profile| ();
    let scenarios = [
        (Close::PollEnd, poll(&last(|s| s), same)),
        (Close::HoldTime, poll(&last(|s| s), |profile| profile.limits.hold_ns = 1)),
        (Close::Push, poll(&last(|s| s.tcp(Tcp::psh)), same)),
        (Close::Finish, poll(&last(|s| s.tcp(Tcp::fin)), same)),
        (Close::ShortSegment, poll(&Path::Ipv4.train(&[100, 99], plain), same)),
        (Close::SegmentLimit, poll(&Path::Ipv4.datagrams(&[100; 64], plain), same)),
        (
            Close::AcknowledgmentClock,
            poll(&Path::Ipv4.train(&[100; 3], plain), |profile| {
                (profile.hold, profile.limits.hold_ns) = (Hold::Controlled, 1000);
            }),
        ),
        (Close::NoMerge, poll(&last(|s| s.ttl(9)), same)),
        (Close::Barrier, poll(&Path::Ipv4.train(&[100, 0], plain), same)),
        (Close::BucketFull, poll(&connections(9), |profile| profile.table.buckets = 1)),
        (Close::TableFull, poll(&connections(3), |profile| profile.limits.flows = 2)),
        (Close::HeaderStacksFull, poll(&header_stacks(), same)),
        (
            Close::ReorderFull,
            poll(&ahead, |profile| {
                profile.reorder = Reorder::WITHIN_BATCH;
                profile.reorder.flow_runs = 1;
            }),
        ),
        (Close::PartsFull, poll(&last(|s| s), |profile| profile.limits.parts = 0)),
        (Close::Never, poll(&Path::Ipv4.train(&[0], plain), same)),
    ];
    for (reason, delivered) in &scenarios {
        assert!(delivered.iter().any(|out| out.closed == *reason), "{reason}");
    }
    let produced = BTreeSet::from_iter(scenarios.iter().map(|(reason, _)| *reason));
    assert_eq!(produced, BTreeSet::from_iter(Close::ALL.iter().copied()));
}

/// Tests that an outer checksum verified by the device yields the sum of the inner packet, so that the inner checksum
/// is verified without reading the payload.
#[test]
fn c30_a_verified_checksum_around_a_packet_verifies_the_inner_one() {
    let verdicts = |wrong: u16, flip: u8, state: Checksum| {
        let mut engine = Engine::new(Profile::linux());
        for number in 0..3_u16 {
            let packet = geneve(|g| g).ipv4(|ip| ip.id(number));
            let tcp = |t: Tcp| t.sequence(100 * u32::from(number)).checksum_xor(wrong);
            let mut packet = known(&packet.tcp(tcp).payload_len(100));
            *packet.buffer.last_mut().unwrap() ^= flip;
            engine.push_frame(with_meta(packet, |meta| meta.checksum = state), 0);
        }
        engine.verdicts
    };
    let refused = vec![Verdict::Passed(Pass::Checksum); 3];
    for state in [Checksum::None, Checksum::Unnecessary { levels: 0 }] {
        assert!(!verdicts(0, 0, state).contains(&refused[0]), "{state:?}");
        assert_eq!(verdicts(1, 0, state), refused, "{state:?}");
    }
    assert_eq!(verdicts(0, 1, Checksum::None), refused);
    // The device has verified the payload, so the result is the same as for a correct packet.
    let merged = verdicts(0, 1, Checksum::Unnecessary { levels: 0 });
    assert_eq!(merged, verdicts(0, 0, Checksum::None));
}
