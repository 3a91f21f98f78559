//! Two fragments in each of the thirteen relations of intervals, with equal and with different bytes, in both orders
//! and under every policy, compared with the byte map.

use grosso::reassemble::{Overlap, ReassemblyMode, ReassemblyVerdict, reason::Discard};
use grosso_rig::fragments::{Fate, Oracle, Piece, Rig, Version};

use super::{data, overlap};

/// The thirteen relations of two intervals (Allen 1983). The first interval is 160..240, and the offsets here are those
/// of the second.
pub(crate) const RELATIONS: [(&str, usize, usize); 13] = [
    ("before", 40, 120),
    ("meets", 80, 160),
    ("overlaps", 120, 200),
    ("finished by", 120, 240),
    ("contains", 120, 280),
    ("starts", 160, 200),
    ("equals", 160, 240),
    ("started by", 160, 280),
    ("during", 184, 216),
    ("finishes", 200, 240),
    ("overlapped by", 200, 280),
    ("met by", 240, 320),
    ("after", 280, 360),
];

/// Pushes two fragments, and then fragments that fill all holes. The data ends at 400, or at the end of the fragment
/// that ends later; this fragment is then the last one.
#[test]
fn p27_f14_all_interval_relations_under_every_policy() {
    let (mut cases, mut completed) = (0, 0);
    for version in Version::ALL {
        let whole = data(version, 400, 27);
        for (name, start, end) in RELATIONS {
            let cases_of = [false, true].into_iter().flat_map(|same| {
                [false, true].into_iter().flat_map(move |swapped| {
                    [400, end.max(240)].map(move |behind| (same, swapped, behind))
                })
            });
            for (same, swapped, behind) in cases_of {
                let data = &whole[..behind];
                let (first, mut second) = (Piece::of(data, 160, 240), Piece::of(data, start, end));
                if !same {
                    second.data.iter_mut().for_each(|byte| *byte ^= 0x5a);
                }
                let mut pieces = vec![first, second];
                if swapped {
                    pieces.reverse();
                }
                pieces.extend(fillers(data, (start, end)));
                for (policy, mode) in POLICIES {
                    let case = format!("{version:?} {name} {same} {swapped} {behind} {policy:?}");
                    cases += 1;
                    completed += agrees_with_the_byte_map(version, &pieces, (policy, mode), &case);
                }
            }
        }
    }
    assert_eq!(cases, 2 * 13 * 8 * POLICIES.len());
    assert!(completed > cases / 2, "only {completed} of {cases} gave a datagram");
}

/// Tests that the default policy gives exactly the result of RFC 5722 section 4 and P27 for each relation.
#[test]
fn p27_only_the_same_fragment_again_is_harmless() {
    for version in Version::ALL {
        let data = data(version, 400, 28);
        for ((name, start, end), same) in
            RELATIONS.into_iter().flat_map(|relation| [(relation, true), (relation, false)])
        {
            let mut second = Piece::of(&data, start, end);
            if !same {
                second.data[0] ^= 1;
            }
            let mut rig = Rig::new(overlap(Overlap::Drop));
            rig.push(&version.frame(1, &Piece::of(&data, 160, 240)));
            let expected = match name {
                "before" | "meets" | "met by" | "after" => ReassemblyVerdict::Held,
                "equals" if same => ReassemblyVerdict::Duplicate,
                _ => ReassemblyVerdict::Discarded(Discard::Overlap),
            };
            assert_eq!(rig.push(&version.frame(1, &second)), expected, "{version:?} {name} {same}");
        }
    }
}

/// Every policy, in every mode that reassembles datagrams and supports it.
const POLICIES: [(Overlap, ReassemblyMode); 6] = [
    (Overlap::Drop, ReassemblyMode::Coalesce),
    (Overlap::Drop, ReassemblyMode::KeepGeometry),
    (Overlap::Linux, ReassemblyMode::Coalesce),
    (Overlap::Linux, ReassemblyMode::KeepGeometry),
    (Overlap::First, ReassemblyMode::Coalesce),
    (Overlap::Last, ReassemblyMode::Coalesce),
];

/// Returns fragments of the data that neither 160..240 nor the given interval covers.
fn fillers(data: &[u8], (start, end): (usize, usize)) -> Vec<Piece> {
    let mut places = [0, 160, 240, start, end, data.len()].map(|place| place.min(data.len()));
    places.sort_unstable();
    let within = |from, (start, end): (usize, usize)| (start..end).contains(&from);
    let holes = places.windows(2).filter(|pair| pair[0] < pair[1]);
    let holes = holes.filter(|pair| !within(pair[0], (160, 240)) && !within(pair[0], (start, end)));
    holes.map(|pair| Piece::of(data, pair[0], pair[1])).collect()
}

/// Asserts the fate of each fragment, and returns the number of datagrams.
fn agrees_with_the_byte_map(
    version: Version,
    pieces: &[Piece],
    (policy, mode): (Overlap, ReassemblyMode),
    case: &str,
) -> usize {
    let mut oracle = Oracle::new(version, policy);
    let mut rules = overlap(policy);
    rules.mode = mode;
    let mut rig = Rig::new(rules);
    for piece in pieces {
        let fate = match rig.push(&version.frame(1, piece)) {
            ReassemblyVerdict::Held => Fate::Held,
            ReassemblyVerdict::Duplicate => Fate::Duplicate,
            ReassemblyVerdict::Completed => Fate::Completed,
            ReassemblyVerdict::Discarded(Discard::Dead) => Fate::Dead,
            ReassemblyVerdict::Discarded(_) => Fate::Killed,
            other => panic!("{other:?}"),
        };
        assert_eq!(fate, oracle.push(piece), "{case} {mode:?}: {piece:?} of {pieces:?}");
    }
    let expected: Vec<_> = oracle.complete.iter().map(|data| version.whole(1, data)).collect();
    assert_eq!(rig.take_whole(), expected, "{case} {mode:?}");
    rig.finish();
    expected.len()
}
