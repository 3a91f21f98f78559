//! Tests the limits on memory, on the number of datagrams and fragments, and on time.

use grosso::reassemble::{
    IcmpError, ReassemblyMode, ReassemblyRules, ReassemblyVerdict, Returned, reason::Discard,
};
use grosso_rig::fragments::{Piece, Rig, Version, cut};
use grosso_testkit::Packet;

use super::{data, push_all, rules};

const SECOND_NS: u64 = 1_000_000_000;

/// Returns the first fragment of a datagram, from source number `source`.
fn stale(source: u32, id: u16) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| {
        ip.source(source.to_be_bytes()).id(id).df(false).protocol(17).more_fragments(true)
    });
    packet.payload(&[0x11; 1480]).build()
}

#[test]
fn f03_time_runs_from_the_first_fragment_whatever_comes_later() {
    for (version, limit_ns) in [(Version::V4, 30 * SECOND_NS), (Version::V6, 60 * SECOND_NS)] {
        let data = data(version, 400, 3);
        let pieces = cut(&data, 8);
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        rig.now_ns = 5 * SECOND_NS;
        for piece in &pieces[..20] {
            rig.push(&version.frame(1, piece));
            assert_eq!(rig.deadline(), Some(5 * SECOND_NS + limit_ns));
            rig.now_ns += SECOND_NS;
        }
        rig.now_ns = 5 * SECOND_NS + limit_ns - 1;
        rig.expire();
        assert_eq!(rig.held_datagrams(), 1);
        rig.now_ns += 1;
        // The next push is sufficient to expire the datagram.
        rig.push(&version.frame(2, &pieces[1]));
        assert_eq!(rig.discarded, [(Discard::Timeout, vec![])]);
        assert_eq!(rig.deadline(), Some(rig.now_ns + limit_ns));
        rig.finish();
    }
}

#[test]
fn f40_the_sender_gets_an_error_only_with_the_first_fragment() {
    for version in Version::ALL {
        let data = data(version, 3000, 40);
        let pieces = cut(&data, 1000);
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            for (which, told) in [(0, true), (1, false)] {
                let frame = version.frame(1, &pieces[which]);
                let mut rig = Rig::new(rules(mode));
                rig.push(&frame);
                rig.now_ns = 60 * SECOND_NS;
                rig.expire();
                let quote = (IcmpError::TimeExceeded, frame[14..].to_vec());
                assert_eq!(rig.problems, if told { vec![quote] } else { vec![] });
                assert_eq!(rig.discarded.len(), 1);
                rig.finish();
            }
        }
    }
    assert_eq!(IcmpError::TimeExceeded.type_and_code(false), (11, 1));
    assert_eq!(IcmpError::TimeExceeded.type_and_code(true), (3, 1));
}

#[test]
fn f04_a_datagram_starts_anew_when_its_source_sent_too_much_in_between() {
    let data = data(Version::V4, 64, 4);
    let pieces = cut(&data, 32);
    for (between, distance, expected) in [
        (63, 64, ReassemblyVerdict::Completed),
        (64, 64, ReassemblyVerdict::Held),
        (300, 0, ReassemblyVerdict::Completed),
        (2, 1, ReassemblyVerdict::Held),
    ] {
        let mut limited = rules(ReassemblyMode::Coalesce);
        limited.limits.distance = distance;
        let mut rig = Rig::new(limited);
        rig.push(&Version::V4.frame(1, &pieces[0]));
        for id in 0..between {
            rig.push(&Version::V4.frame(1000 + id, &pieces[0]));
        }
        assert_eq!(rig.push(&Version::V4.frame(1, &pieces[1])), expected, "{between} {distance}");
        rig.finish();
    }
    // IPv6 identifications are long enough, so the distance is not limited.
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    (0..300).for_each(|id| _ = rig.push(&Version::V6.frame(id, &pieces[0])));
    assert_eq!(rig.push(&Version::V6.frame(0, &pieces[1])), ReassemblyVerdict::Completed);
}

#[test]
fn p33_f02_memory_is_that_of_the_buffers_however_little_they_carry() {
    let tiny = |id| Version::V6.frame(id, &Piece { offset: 8, more: true, data: vec![1; 8] });
    let mut limited = rules(ReassemblyMode::KeepGeometry);
    limited.limits.buffer_bytes = 2048;
    limited.limits.memory_bytes = 100_000;
    limited.limits.source_bytes = 100_000;
    let mut rig = Rig::new(limited);
    (0..100).for_each(|id| _ = rig.push(&tiny(id)));
    // Each fragment needs a buffer, a page of positions and an entry for its datagram, so fewer than 25 of them fit.
    assert!((15..25).contains(&rig.held_datagrams()), "{}", rig.held_datagrams());
    assert!(rig.held_bytes() > rig.held_datagrams() * 4096);
    rig.finish();
}

/// Tests that a sender which never completes a datagram cannot prevent the reassembly of other senders' datagrams.
#[test]
fn p32_a_stale_sender_does_not_silence_the_rest() {
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
        let mut rig = Rig::new(rules(mode));
        let data = data(Version::V4, 20_000, 32);
        for round in 0..300_u32 {
            for id in 0..20 {
                rig.push(&stale(0x0a00_0001, (round * 20 + id) as u16));
            }
            push_all(&mut rig, Version::V4, 60_000 + round, &cut(&data, 1480));
            assert_eq!(rig.whole.drain(..).count(), 1, "{mode:?} round {round}");
            rig.returned.clear();
        }
        assert!(rig.discarded.iter().all(|(reason, _)| *reason == Discard::SourceFull));
        assert!(rig.held_bytes() <= rules(mode).limits.source_bytes);
        rig.finish();
    }
}

/// Tests that the datagrams of an honest sender are reassembled during a flood in which each packet has a new spoofed
/// source.
#[test]
fn p32_spoofed_sources_do_not_silence_an_honest_one() {
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
        let mut rig = Rig::new(rules(mode));
        let data = data(Version::V4, 20_000, 33);
        let mut source = 0_u32;
        for round in 0..40 {
            for piece in cut(&data, 1480) {
                for _ in 0..20 {
                    source = source.wrapping_add(0x9e37_79b9);
                    rig.push(&stale(source, 1));
                }
                rig.push(&Version::V4.frame(round, &piece));
            }
            assert_eq!(rig.whole.drain(..).count(), 1, "{mode:?} round {round}");
            rig.returned.clear();
        }
        let evicted = rig.discarded.iter().filter(|(reason, _)| *reason == Discard::MemoryFull);
        assert!(evicted.count() > 5000);
        rig.finish();
    }
}

#[test]
fn f02_what_does_not_fit_alone_is_discarded() {
    let data = data(Version::V4, 40_000, 2);
    for (memory_bytes, source_bytes, reason) in [
        (20_000, 1 << 20, Discard::MemoryFull),
        (1 << 20, 20_000, Discard::SourceFull),
        (0, 1 << 20, Discard::MemoryFull),
    ] {
        let mut limited = rules(ReassemblyMode::Coalesce);
        limited.limits.memory_bytes = memory_bytes;
        limited.limits.source_bytes = source_bytes;
        let mut rig = Rig::new(limited);
        let verdicts = push_all(&mut rig, Version::V4, 1, &cut(&data, 1480));
        assert!(verdicts.contains(&ReassemblyVerdict::Discarded(reason)), "{verdicts:?}");
        assert!(rig.whole.is_empty());
        rig.finish();
    }
}

// Rules: B71
#[test]
fn a_datagram_of_too_many_fragments_is_killed() {
    let data = data(Version::V4, 4096, 6);
    let mut limited = rules(ReassemblyMode::Coalesce);
    limited.limits.fragments = 100;
    for (size, killed) in [(48, false), (8, true)] {
        let mut rig = Rig::new(limited.clone());
        let verdicts = push_all(&mut rig, Version::V4, 1, &cut(&data, size));
        let limit = ReassemblyVerdict::Discarded(Discard::FragmentLimit);
        assert_eq!(verdicts.contains(&limit), killed);
        assert_eq!(rig.whole.len(), usize::from(!killed));
        rig.finish();
    }
}

#[test]
fn keys_of_the_dead_are_bounded_and_end_with_their_time() {
    let data = data(Version::V4, 64, 7);
    let mut limited = rules(ReassemblyMode::Coalesce);
    limited.limits.tombstones = 10;
    let mut rig = Rig::new(limited);
    let kill = |rig: &mut Rig, id| {
        let overlapping = [Piece::of(&data, 0, 32), Piece::of(&data, 8, 40)];
        push_all(rig, Version::V4, id, &overlapping);
    };
    let is_dead = |rig: &mut Rig, id| {
        let verdict = rig.push(&Version::V4.frame(id, &Piece::of(&data, 32, 64)));
        verdict == ReassemblyVerdict::Discarded(Discard::Dead)
    };
    (0..20).for_each(|id| kill(&mut rig, id));
    assert_eq!((rig.held_datagrams(), rig.held_bytes()), (0, 0));
    assert!((10..20).all(|id| is_dead(&mut rig, id)));
    assert!((0..10).all(|id| !is_dead(&mut rig, id)));
    rig.now_ns = 30 * SECOND_NS;
    assert!((10..20).all(|id| !is_dead(&mut rig, id)));
    rig.finish();
}

#[test]
fn more_datagrams_than_the_limit_drop_the_one_that_waited_longest() {
    let data = data(Version::V4, 64, 8);
    let pieces = cut(&data, 16);
    let mut limited = rules(ReassemblyMode::Coalesce);
    limited.limits.datagrams = 4;
    let mut rig = Rig::new(limited);
    (0..4).for_each(|id| _ = rig.push(&Version::V4.frame(id, &pieces[0])));
    // The first datagram is now the youngest.
    rig.push(&Version::V4.frame(0, &pieces[1]));
    rig.push(&Version::V4.frame(4, &pieces[0]));
    assert_eq!(rig.discarded, [(Discard::TableFull, vec![])]);
    let rest: Vec<_> =
        (0..5).map(|id| push_all(&mut rig, Version::V4, id, &pieces[2..])[1]).collect();
    assert_eq!(rest[0], ReassemblyVerdict::Completed, "{rest:?}");
    rig.finish();
}

/// Tests that finishing the engine while it holds datagrams returns every buffer.
#[test]
fn b43_everything_comes_back_at_the_end() {
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry, ReassemblyMode::Virtual] {
        let mut rig = Rig::new(rules(mode));
        let data = data(Version::V6, 300, 43);
        for id in 0..200 {
            rig.push(&Version::V6.frame(id, &Piece::of(&data, 16 + id as usize % 9 * 8, 200)));
            rig.push(&Version::V4.frame(id, &Piece::of(&data, 16, 104)));
        }
        assert_eq!(rig.held_datagrams(), 400);
        rig.finish();
        assert_eq!(rig.discarded.len(), 400);
        let finished = Returned::Discarded(Discard::Finished);
        let back = rig.returned.iter().filter(|(_, why)| *why == finished).count();
        assert_eq!(back, if mode == ReassemblyMode::Coalesce { 0 } else { 400 });
        // The engine can also be used again.
        push_all(&mut rig, Version::V6, 1, &cut(&data, 80));
        rig.finish();
    }
}

#[test]
fn missing_ranges_are_reported() {
    let data = data(Version::V4, 400, 9);
    let places = [(16, 40), (40, 80), (120, 128), (160, 400)];
    for (last, holes) in [(3, vec![0..16, 80..120]), (4, vec![0..16, 80..120, 128..160])] {
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        let pieces: Vec<_> =
            places[..last].iter().map(|&(start, end)| Piece::of(&data, start, end)).collect();
        push_all(&mut rig, Version::V4, 1, &pieces);
        rig.finish();
        assert_eq!(rig.discarded, [(Discard::Finished, holes)]);
    }
}

/// Tests that fragments in the worst order need no more memory than fragments in the best order.
#[test]
fn b40_p31_the_worst_order_takes_no_more_memory_than_the_best() {
    let data = data(Version::V4, 16_000, 40);
    let pieces = cut(&data, 8);
    let mut alternating: Vec<_> = pieces.iter().step_by(2).rev().cloned().collect();
    alternating.extend(pieces.iter().skip(1).step_by(2).cloned());
    let held = |pieces: &[Piece]| {
        let mut rig = Rig::new(ReassemblyRules::new(ReassemblyMode::Coalesce));
        push_all(&mut rig, Version::V4, 1, &pieces[..pieces.len() - 1]);
        let held = rig.held_bytes();
        push_all(&mut rig, Version::V4, 1, &pieces[pieces.len() - 1..]);
        assert_eq!(rig.take_whole(), [Version::V4.whole(1, &data)]);
        held
    };
    assert_eq!(held(&pieces), held(&alternating));
}
