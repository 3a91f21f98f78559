//! Tests fragments at all offsets and in all orders, with overlaps and duplicates, against a byte map.

use grosso::reassemble::{Overlap, ReassemblyMode, ReassemblyVerdict, reason::Discard};
use grosso_rig::fragments::{Fate, Oracle, Piece, Rig, Version, cut, random_pieces};
use grosso_testkit::random::Random;

use super::{DEAD, data, overlap, push_all, relations::RELATIONS, rules, whole};

#[test]
fn p27_f14_all_interval_relations_with_equal_and_with_other_bytes() {
    for version in Version::ALL {
        let data = data(version, 400, 27);
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            for ((name, start, end), same) in
                RELATIONS.into_iter().flat_map(|relation| [(relation, true), (relation, false)])
            {
                let (first, mut second) =
                    (Piece::of(&data, 160, 240), Piece::of(&data, start, end));
                if !same {
                    // Every byte of the second fragment differs.
                    second.data.iter_mut().for_each(|byte| *byte ^= 1);
                }
                let mut rig = Rig::new(rules(mode));
                push_all(&mut rig, version, 1, &[first]);
                let verdict = rig.push(&version.frame(1, &second));
                let disjoint = end <= 160 || start >= 240;
                let expected = match (disjoint, name, same) {
                    (true, ..) => ReassemblyVerdict::Held,
                    (false, "equals", true) => ReassemblyVerdict::Duplicate,
                    _ => ReassemblyVerdict::Discarded(Discard::Overlap),
                };
                assert_eq!(verdict, expected, "{version:?} {mode:?} {name} same {same}");
                if !same && !disjoint {
                    // Later fragments with the same key are also discarded.
                    assert!(
                        push_all(&mut rig, version, 1, &cut(&data, 80)).iter().all(|v| *v == DEAD)
                    );
                }
                if disjoint && same {
                    let mut places = vec![0, start, end, 160, 240, 400];
                    places.sort_unstable();
                    places.dedup();
                    for pair in places.windows(2) {
                        if pair != [start, end] && pair != [160, 240] {
                            rig.push(&version.frame(1, &Piece::of(&data, pair[0], pair[1])));
                        }
                    }
                    assert_eq!(rig.take_whole(), [version.whole(1, &data)], "{name}");
                }
                rig.finish();
            }
        }
    }
}

// Rules: B70
#[test]
fn p26_the_bytes_of_a_later_fragment_never_replace_earlier_ones() {
    let data = data(Version::V4, 96, 26);
    let mut late = Piece::of(&data, 24, 48);
    late.data.fill(0xee);
    for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1]] {
        let pieces = [Piece::of(&data, 0, 32), late.clone(), Piece::of(&data, 32, 64)];
        let mut pieces = order.map(|at| pieces[at].clone()).to_vec();
        pieces.push(Piece::of(&data, 64, 96));
        assert_eq!(
            whole(rules(ReassemblyMode::Coalesce), Version::V4, &pieces),
            Vec::<Vec<u8>>::new()
        );
        let linux = whole(overlap(Overlap::Linux), Version::V4, &pieces);
        assert!(linux.iter().all(|whole| *whole == Version::V4.whole(1, &data)));
    }
    // Teardrop: a second fragment that starts inside the first and ends before the first does.
    let teardrop = [Piece::of(&data, 0, 40), Piece::of(&data[..32], 24, 32)];
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    let verdicts = push_all(&mut rig, Version::V4, 1, &teardrop);
    assert_eq!(verdicts[1], ReassemblyVerdict::Discarded(Discard::EndConflict));
    rig.finish();
}

#[test]
fn f15_linux_ignores_what_lies_in_a_run_and_drop_does_not() {
    let data = data(Version::V4, 4440, 15);
    let pieces = |places: &[(usize, usize)]| -> Vec<_> {
        places.iter().map(|&(start, end)| Piece::of(&data, start, end)).collect()
    };
    let in_order = pieces(&[(0, 1480), (1480, 2960), (800, 2400)]);
    let apart = pieces(&[(1480, 2960), (0, 1480), (800, 2400)]);
    let contains = pieces(&[(1480, 2960), (1472, 2968)]);
    let verdict = |policy, pieces: &[Piece]| {
        let mut rig = Rig::new(overlap(policy));
        push_all(&mut rig, Version::V4, 1, pieces).pop()
    };
    let overlaps = Some(ReassemblyVerdict::Discarded(Discard::Overlap));
    assert_eq!(verdict(Overlap::Linux, &in_order), Some(ReassemblyVerdict::Duplicate));
    assert_eq!(verdict(Overlap::Linux, &apart), overlaps);
    assert_eq!(verdict(Overlap::Linux, &contains), overlaps);
    for pieces in [&in_order, &apart, &contains] {
        assert_eq!(verdict(Overlap::Drop, pieces), overlaps);
    }
}

#[test]
fn f05_the_key_is_free_after_completion_and_in_linux_after_a_kill() {
    let data = data(Version::V4, 64, 5);
    let pieces = cut(&data, 32);
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    for _ in 0..2 {
        let verdicts = push_all(&mut rig, Version::V4, 1, &pieces);
        assert_eq!(verdicts, [ReassemblyVerdict::Held, ReassemblyVerdict::Completed]);
    }
    let killed = [Piece::of(&data, 0, 32), Piece::of(&data, 8, 40)];
    let again = |policy| {
        let mut rig = Rig::new(overlap(policy));
        push_all(&mut rig, Version::V4, 1, &killed);
        push_all(&mut rig, Version::V4, 1, &pieces)
    };
    assert_eq!(again(Overlap::Linux), [ReassemblyVerdict::Held, ReassemblyVerdict::Completed]);
    assert_eq!(again(Overlap::Drop), [DEAD, DEAD]);
}

#[test]
fn f12_ends_that_contradict_each_other_kill() {
    let data = data(Version::V6, 64, 12);
    let last = |start: usize, end: usize| Piece::of(&data[..end], start, end);
    for pieces in [
        // A last fragment that ends before another, a second end, and a fragment after the end.
        [Piece::of(&data, 32, 56), last(8, 16)],
        [last(32, 48), last(32, 40)],
        [last(32, 48), last(48, 64)],
        [last(32, 48), Piece::of(&data, 40, 56)],
    ] {
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        let verdicts = push_all(&mut rig, Version::V6, 1, &pieces);
        assert_eq!(verdicts[1], ReassemblyVerdict::Discarded(Discard::EndConflict), "{pieces:?}");
        rig.finish();
    }
}

#[test]
fn a_fragment_that_comes_again_as_the_last_is_no_duplicate() {
    let data = data(Version::V4, 64, 13);
    let (more, last) = (Piece::of(&data, 16, 32), Piece::of(&data[..32], 16, 32));
    for pieces in [[more.clone(), last.clone()], [last, more]] {
        let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
        let verdicts = push_all(&mut rig, Version::V4, 1, &pieces);
        assert_eq!(verdicts[1], ReassemblyVerdict::Discarded(Discard::Overlap));
    }
}

#[test]
fn a_fragment_that_is_two_others_together_is_no_duplicate() {
    let data = data(Version::V6, 96, 14);
    let halves = [Piece::of(&data, 16, 32), Piece::of(&data, 32, 48)];
    for order in [[0, 1], [1, 0]] {
        for mode in
            [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry, ReassemblyMode::Virtual]
        {
            let mut rig = Rig::new(rules(mode));
            push_all(&mut rig, Version::V6, 1, &order.map(|at: usize| halves[at].clone()));
            let verdict = rig.push(&Version::V6.frame(1, &Piece::of(&data, 16, 48)));
            assert_eq!(verdict, ReassemblyVerdict::Discarded(Discard::Overlap), "{mode:?}");
            rig.finish();
        }
    }
}

/// Tests every order of up to seven fragments, with an odd length at the end.
// Rules: F16
#[test]
fn every_order_of_up_to_seven_fragments_gives_the_datagram() {
    for version in Version::ALL {
        for count in 2..=7 {
            let data = data(version, count * 16 - 3, count as u64);
            let frames: Vec<_> = cut(&data, 16).iter().map(|p| version.frame(1, p)).collect();
            let expected = version.whole(1, &data);
            let mut rigs = [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry]
                .map(|mode| Rig::new(rules(mode)));
            for_each_order(&mut (0..count).collect::<Vec<_>>(), 0, &mut |order| {
                for rig in &mut rigs {
                    order.iter().for_each(|&at| _ = rig.push(&frames[at]));
                    assert_eq!(rig.take_whole(), std::slice::from_ref(&expected), "{order:?}");
                }
            });
            rigs.iter_mut().for_each(Rig::finish);
        }
    }
}

fn for_each_order(items: &mut Vec<usize>, fixed: usize, act: &mut impl FnMut(&[usize])) {
    if fixed == items.len() {
        return act(items);
    }
    for at in fixed..items.len() {
        items.swap(fixed, at);
        for_each_order(items, fixed + 1, act);
        items.swap(fixed, at);
    }
}

/// Compares random fragments of one key, valid and invalid, with the byte map.
// Rules: F16
#[test]
fn random_fragments_agree_with_the_byte_map() {
    let mut completed = 0;
    for seed in 0..6000 {
        let mut random = Random::new(seed);
        let version = *random.choose(&Version::ALL);
        let policy =
            *random.choose(&[Overlap::Drop, Overlap::Linux, Overlap::First, Overlap::Last]);
        let len = match random.one_in(8) {
            true => random.within(6000, 9000),
            false => random.within(17, 400),
        };
        let pieces = random_pieces(&mut random, version, &data(version, len, seed));
        let mut oracle = Oracle::new(version, policy);
        let mut rules = overlap(policy);
        if random.one_in(2) && matches!(policy, Overlap::Drop | Overlap::Linux) {
            rules.mode = ReassemblyMode::KeepGeometry;
        }
        let mut rig = Rig::new(rules);
        for piece in &pieces {
            let fate = match rig.push(&version.frame(1, piece)) {
                ReassemblyVerdict::Held => Fate::Held,
                ReassemblyVerdict::Duplicate => Fate::Duplicate,
                ReassemblyVerdict::Completed => Fate::Completed,
                ReassemblyVerdict::Discarded(Discard::Dead) => Fate::Dead,
                ReassemblyVerdict::Discarded(_) => Fate::Killed,
                other => panic!("{other:?}"),
            };
            assert_eq!(fate, oracle.push(piece), "seed {seed} {policy:?}: {piece:?} of {pieces:?}");
        }
        let expected: Vec<_> = oracle.complete.iter().map(|data| version.whole(1, data)).collect();
        completed += expected.len();
        assert_eq!(rig.take_whole(), expected, "seed {seed} {policy:?}: {pieces:?}");
        rig.finish();
    }
    assert!(completed > 2000, "only {completed} were complete");
}
