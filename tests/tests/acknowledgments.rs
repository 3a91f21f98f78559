//! Tests that batches of acknowledgments are complete, in order and bounded, and are filtered by the rules of CAKE.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Profile, Sink, Verdict,
    acknowledge::{Kept, RECORDS_MAX, Record},
    coalesce::{
        Acknowledgments, Vector,
        reason::{Close, NoMerge, Pass},
    },
};
use grosso_rig::engine::{Engine, PORTS};
use grosso_testkit::{Packet, headers::Tcp};
use grosso_wire::LinkType;

fn profile(acknowledgments: Acknowledgments) -> Profile {
    let mut profile = Profile::linux();
    profile.rules.acknowledgments = acknowledgments;
    profile
}

fn vector() -> Profile {
    profile(Acknowledgments::Vector)
}

fn frame(edit: impl FnOnce(Tcp) -> Tcp, payload: usize) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    packet.tcp(|tcp| edit(tcp.sequence(1))).payload_len(payload).build()
}

fn acknowledgment(number: u32) -> Vec<u8> {
    frame(|tcp| tcp.ack(number), 0)
}

/// Returns an acknowledgment with these SACK blocks.
fn selective(number: u32, blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (left, right) in blocks {
        options.extend(left.to_be_bytes());
        options.extend(right.to_be_bytes());
    }
    frame(|tcp| tcp.ack(number).options(&options), 0)
}

/// Returns the deliveries of one poll, after checking that they are complete.
fn poll(profile: Profile, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut engine = Engine::new(profile);
    for frame in frames {
        engine.push(frame);
    }
    engine.poll_end(0);
    engine.checked(frames).into_iter().map(|out| out.bytes).collect()
}

/// A sink that collects the records of acknowledgments, and the buffers.
#[derive(Default)]
struct Kinds {
    vectors: Vec<Vec<Record>>,
    closed: Vec<Close>,
    packets: usize,
    discarded: Vec<Vec<u8>>,
}

impl Sink<Vec<u8>> for Kinds {
    fn deliver(&mut self, _: Delivery<'_, Vec<u8>>) {
        self.packets += 1;
    }

    fn deliver_vector(&mut self, vector: Vector<'_, Vec<u8>>) {
        self.closed.push(vector.closed);
        self.vectors.push(vector.records().to_vec());
    }

    fn discard(&mut self, buffer: Vec<u8>) {
        self.discarded.push(buffer);
    }
}

fn kinds(profile: Profile, frames: &[Vec<u8>]) -> (Kinds, Coalescer<Vec<u8>>) {
    let mut coalescer =
        Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(PORTS));
    let mut kinds = Kinds::default();
    for frame in frames {
        coalescer.push(Frame::new(frame.clone()), 0, &mut kinds);
    }
    coalescer.poll_end(0, &mut kinds);
    assert_eq!(coalescer.stats().packets_held(), 0);
    (kinds, coalescer)
}

#[test]
fn vector_is_one_delivery_and_its_packets_are_whole() {
    let frames: Vec<_> = (1..=20).map(acknowledgment).collect();
    let (kinds, _) = kinds(vector(), &frames);
    let [records] = &kinds.vectors[..] else { panic!("{:?}", kinds.vectors) };
    assert!(records.iter().map(|record| record.acknowledgment).eq(1..=20));
    assert_eq!(
        poll(vector(), &frames),
        frames,
        "a consumer without support for records gets the packets"
    );
}

#[test]
fn vector_has_at_most_as_many_as_its_records() {
    let frames: Vec<_> = (1..=2 * RECORDS_MAX as u32 + 1).map(acknowledgment).collect();
    let (kinds, coalescer) = kinds(vector(), &frames);
    let lengths: Vec<_> = kinds.vectors.iter().map(Vec::len).collect();
    assert_eq!(lengths, [RECORDS_MAX, RECORDS_MAX, 1]);
    assert_eq!(coalescer.stats().refused[NoMerge::SegmentLimit.index()], 2);
}

#[test]
fn p10_vectors_and_data_of_a_flow_wait_for_each_other() {
    let data = |at: u32| frame(|tcp| tcp.sequence(at), 100);
    let late = |number| frame(|tcp| tcp.sequence(201).ack(number), 0);
    let frames =
        [data(1), data(101), late(7), late(8), data(201), data(301), late(9), late(10)].to_vec();
    for profile in [vector(), profile(Acknowledgments::Filter)] {
        let (kinds, coalescer) = kinds(profile.clone(), &frames);
        assert_eq!(coalescer.stats().superframes, 2);
        if profile == vector() {
            assert_eq!(kinds.vectors.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
            assert_eq!(kinds.closed, [Close::NoMerge, Close::PollEnd]);
        }
        assert_eq!(poll(profile, &frames).len(), 6, "two superframes, four acknowledgments");
    }
}

#[test]
fn what_is_in_no_record_ends_the_vector_and_stays_in_order() {
    let sack = selective(3, &[(10, 20)]);
    let finish = frame(|tcp| tcp.ack(4).fin(), 0);
    let reset = frame(|tcp| tcp.ack(4).rst(), 0);
    let accurate = frame(|tcp| tcp.ack(4).ae(), 0);
    for (odd, reason) in [
        (sack, Pass::TcpOptions),
        (finish, Pass::TcpFlags),
        (reset, Pass::TcpReset),
        (accurate, Pass::TcpFlags),
    ] {
        let frames = [acknowledgment(1), acknowledgment(2), odd, acknowledgment(5)].to_vec();
        let mut engine = Engine::new(vector());
        let verdicts: Vec<_> = frames.iter().map(|frame| engine.push(frame)).collect();
        engine.poll_end(0);
        let passed = Verdict::Passed(reason);
        assert_eq!(verdicts, [Verdict::Held, Verdict::Joined, passed, Verdict::Held]);
        let out = engine.checked(&frames);
        assert!(out.iter().map(|out| &out.bytes).eq(&frames), "in order");
    }
}

#[test]
fn vectors_of_two_flows_and_of_other_options_are_apart_or_together() {
    let other = |number| frame(|tcp| tcp.source_port(9).ack(number), 0);
    let timed = |number| frame(|tcp| tcp.ack(number).timestamps(number, 3), 0);
    let frames =
        [acknowledgment(1), other(1), acknowledgment(2), other(2), timed(3), other(3)].to_vec();
    let (kinds, _) = kinds(vector(), &frames);
    assert_eq!(kinds.vectors.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(kinds.vectors[0][2].timestamps(), Some((3, 3)));
}

#[test]
fn damaged_acknowledgments_are_in_no_vector() {
    let mut damaged = acknowledgment(2);
    damaged[45] ^= 1;
    let frames = [acknowledgment(1), damaged, acknowledgment(3)].to_vec();
    let (kinds, coalescer) = kinds(vector(), &frames);
    assert_eq!(kinds.vectors.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(coalescer.stats().passed[Pass::Checksum.index()], 1);
}

/// Returns the acknowledgment numbers delivered in one poll, and for each reason the number of acknowledgments kept.
fn filtered(filtering: Acknowledgments, frames: &[Vec<u8>]) -> (Vec<usize>, [u64; Kept::COUNT]) {
    let mut engine = Engine::new(profile(filtering));
    for frame in frames {
        engine.push(frame);
    }
    engine.poll_end(0);
    assert_eq!(engine.stats().packets_held(), 0);
    let stats = engine.stats();
    assert_eq!(stats.filtered + stats.kept.iter().sum::<u64>(), frames.len() as u64);
    let kept = stats.kept;
    let mut places = Vec::new();
    for out in engine.delivered {
        let from = places.last().map_or(0, |last| last + 1);
        let place = frames[from..].iter().position(|frame| *frame == out.bytes);
        places.push(from + place.expect("unchanged, and in order"));
    }
    (places, kept)
}

/// Filters two acknowledgments aggressively. Returns `None` if the first one is dropped, otherwise the reason why it is
/// kept.
fn first_goes(first: Vec<u8>, second: Vec<u8>) -> Option<Kept> {
    let (places, kept) = filtered(Acknowledgments::FilterAggressive, &[first, second]);
    match places[..] {
        [1] => None,
        [0, 1] => Kept::ALL
            .iter()
            .copied()
            .find(|reason| *reason != Kept::Newest && kept[reason.index()] == 1),
        _ => panic!("{places:?}"),
    }
}

#[test]
fn thinning_keeps_the_newest_and_conservatively_one_more() {
    let frames: Vec<_> = (1..=20).map(acknowledgment).collect();
    let (places, kept) = filtered(Acknowledgments::Filter, &frames);
    assert_eq!(places, [18, 19]);
    assert_eq!((kept[Kept::Spare.index()], kept[Kept::Newest.index()]), (1, 1));
    let (places, _) = filtered(Acknowledgments::FilterAggressive, &frames);
    assert_eq!(places, [19]);
    let (places, _) = filtered(Acknowledgments::Filter, &frames[..2]);
    assert_eq!(places, [0, 1]);
}

#[test]
fn thinning_gives_the_buffers_of_dropped_ones_back() {
    let frames: Vec<_> = (1..=20).map(acknowledgment).collect();
    let thin = profile(Acknowledgments::FilterAggressive);
    let (kinds, coalescer) = kinds(thin, &frames);
    assert_eq!(kinds.discarded, frames[..19]);
    assert_eq!((coalescer.stats().filtered, kinds.packets), (19, 1));
}

#[test]
fn thinning_keeps_flags_and_reserved_bits() {
    for edit in [Tcp::psh as fn(Tcp) -> Tcp, Tcp::ae, |tcp| tcp.reserved(1)] {
        let first = frame(|tcp| edit(tcp.ack(1)), 0);
        assert_eq!(first_goes(first, acknowledgment(2)), Some(Kept::Flags));
    }
    assert_eq!(first_goes(acknowledgment(1), acknowledgment(2)), None);
}

#[test]
fn thinning_drops_none_beside_which_marks_change() {
    let marked = |number: u32| frame(|tcp| tcp.ack(number).ece(), 0);
    let reduced = |number: u32| frame(|tcp| tcp.ack(number).cwr(), 0);
    for odd in [marked, reduced] {
        // The last acknowledgment before the marking changes must never be dropped.
        let frames =
            [acknowledgment(1), acknowledgment(2), odd(3), odd(4), odd(5), acknowledgment(6)];
        let (places, _) = filtered(Acknowledgments::FilterAggressive, &frames);
        assert!(places.contains(&1) && places.contains(&4), "{places:?}");
        assert_eq!(first_goes(odd(1), odd(2)), None);
        assert!(first_goes(odd(1), acknowledgment(2)).is_some());
    }
}

#[test]
fn thinning_keeps_unknown_options() {
    let with = |options: &[u8]| frame(|tcp| tcp.ack(1).options(options), 0);
    let next = || acknowledgment(2);
    let signature: Vec<_> = [1, 1, 19, 18].into_iter().chain([7; 16]).collect();
    assert_eq!(first_goes(with(&signature), next()), None);
    assert_eq!(first_goes(with(&[1, 1, 1, 0]), next()), None);
    for unknown in
        [&[30, 4, 0, 0][..], &[2, 4, 5, 180], &[1, 3, 3, 7], &[1, 1, 4, 2], &[1, 1, 8, 9]]
    {
        assert_eq!(first_goes(with(unknown), next()), Some(Kept::Options), "{unknown:?}");
    }
}

#[test]
fn thinning_keeps_newer_timestamps() {
    let timed = |number, value, echo| frame(|tcp| tcp.ack(number).timestamps(value, echo), 0);
    assert_eq!(first_goes(timed(1, 5, 5), timed(2, 5, 5)), None);
    assert_eq!(first_goes(timed(1, u32::MAX, 5), timed(2, 1, 5)), None);
    assert_eq!(first_goes(timed(1, 6, 5), timed(2, 5, 5)), Some(Kept::Timestamp));
    assert_eq!(first_goes(timed(1, 5, 6), timed(2, 5, 5)), Some(Kept::Timestamp));
    assert_eq!(first_goes(timed(1, 5, 5), acknowledgment(2)), Some(Kept::Timestamp));
}

#[test]
fn thinning_keeps_what_acknowledges_more() {
    assert_eq!(first_goes(acknowledgment(2), acknowledgment(1)), Some(Kept::Ahead));
    assert_eq!(first_goes(acknowledgment(u32::MAX), acknowledgment(1)), None);
}

#[test]
fn thinning_keeps_what_the_later_one_does_not_speak_of() {
    let first = |blocks| selective(5, blocks);
    let wider = selective(5, &[(10, 40)]);
    assert_eq!(first_goes(first(&[(10, 20)]), wider.clone()), None);
    assert_eq!(first_goes(first(&[(10, 20), (30, 40)]), wider), None);
    let same_ranges = selective(6, &[(10, 20)]);
    assert_eq!(first_goes(first(&[(10, 20)]), same_ranges), None);
    for missing in [selective(6, &[(12, 40)]), selective(6, &[(30, 40)]), acknowledgment(6)] {
        assert_eq!(first_goes(first(&[(10, 20)]), missing), Some(Kept::Selective));
    }
}

#[test]
fn thinning_keeps_reports_of_duplicates() {
    let below = selective(50, &[(10, 20)]);
    assert_eq!(first_goes(below, selective(51, &[(10, 90)])), Some(Kept::DuplicateSelective));
    let inside = selective(5, &[(12, 14), (10, 20)]);
    assert_eq!(first_goes(inside, selective(6, &[(10, 90)])), Some(Kept::DuplicateSelective));
}

#[test]
fn p12_thinning_never_touches_duplicates() {
    let frames = vec![acknowledgment(7); 5];
    let (places, kept) = filtered(Acknowledgments::FilterAggressive, &frames);
    assert_eq!(places.len(), 5);
    assert_eq!(kept[Kept::Duplicate.index()], 4);
    assert_eq!(
        first_goes(selective(5, &[(10, 20)]), selective(5, &[(10, 20)])),
        Some(Kept::Duplicate)
    );
}
