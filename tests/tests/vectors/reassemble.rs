//! Generates the conformance vectors for reassembly. A vector contains fragments in order of arrival, and the datagrams
//! that an implementation must build from them.

use grosso::reassemble::{ReassemblyMode, ReassemblyRules, ReassemblyVerdict};
use grosso_rig::fragments::{Piece, Rig, Version, cut};
use grosso_testkit::random::Random;
use serde::Serialize;
use serde_json::Value;

use super::book::{Book, Pair, Span};

#[derive(Serialize)]
struct Vector {
    name: String,
    rules: &'static [&'static str],
    shows: &'static str,
    r#in: Span,
    /// The fate of each fragment.
    fates: Vec<&'static str>,
    /// The datagrams, in order of completion.
    out: Vec<usize>,
}

/// Builds the pair of files.
pub(crate) fn book() -> Book {
    let mut book = Book::new("reassemble");
    for (name, rules, shows, pieces) in cases() {
        for (version, suffix) in [(Version::V4, "ipv4"), (Version::V6, "ipv6")] {
            let data = data(version);
            let frames: Vec<_> =
                pieces(&data).iter().map(|(id, piece)| version.frame(*id, piece)).collect();
            let span = book.frames(&frames);
            let (fates, whole) = reassembled(&frames);
            let out = whole.iter().map(|frame| book.frame(frame)).collect();
            let name = format!("{name}_{suffix}");
            book.vector(&Vector { name, rules, shows, r#in: span, fates, out });
        }
    }
    book
}

/// Asserts that the engine reassembles the fragments in the files into the datagrams in the files, and that copying the
/// fragments to their offsets gives the same datagrams.
pub(crate) fn assert_passes(pair: &Pair, vector: &Value) {
    let name = &vector["name"];
    let (fates, whole) = reassembled(&pair.frames(&vector["in"]));
    assert_eq!(vector["fates"], serde_json::json!(fates), "{name}");
    assert_eq!(whole, pair.frames(&vector["out"]), "{name}");
    for datagram in whole {
        let version = if datagram[12] == 8 { Version::V4 } else { Version::V6 };
        assert!([1, 2].iter().any(|id| datagram == version.whole(*id, &data(version))), "{name}");
    }
}

/// Returns the fate of each fragment, and the datagrams.
fn reassembled(frames: &[Vec<u8>]) -> (Vec<&'static str>, Vec<Vec<u8>>) {
    let mut rig = Rig::new(ReassemblyRules::new(ReassemblyMode::Coalesce));
    let fates = frames.iter().map(|frame| fate(rig.push(frame))).collect();
    let whole = rig.take_whole();
    rig.finish();
    (fates, whole)
}

fn fate(verdict: ReassemblyVerdict) -> &'static str {
    match verdict {
        ReassemblyVerdict::Passed(reason) => reason.name(),
        ReassemblyVerdict::Held => "held",
        ReassemblyVerdict::Forwarded => "forwarded",
        ReassemblyVerdict::Completed => "completed",
        ReassemblyVerdict::Duplicate => "duplicate",
        ReassemblyVerdict::Discarded(reason) => reason.name(),
    }
}

/// Returns the data of every datagram, which is UDP with a correct checksum.
fn data(version: Version) -> Vec<u8> {
    version.udp(&Random::new(18).bytes(400 - 8))
}

/// Function that splits the data into fragments, each with its identification.
type Pieces = fn(&[u8]) -> Vec<(u32, Piece)>;
type Case = (&'static str, &'static [&'static str], &'static str, Pieces);

/// Returns the pieces of datagram 1 between these offsets.
fn places(data: &[u8], places: &[(usize, usize)]) -> Vec<(u32, Piece)> {
    places.iter().map(|&(start, end)| (1, Piece::of(data, start, end))).collect()
}

fn cases() -> Vec<Case> {
    vec![
        ("f16_in_order", &["F16"], "Fragments that arrive in order form the datagram.", |data| {
            places(data, &[(0, 160), (160, 320), (320, 400)])
        }),
        (
            "f16_last_first",
            &["F16"],
            "Fragments that arrive in another order form the datagram.",
            |data| places(data, &[(320, 400), (160, 320), (0, 160)]),
        ),
        (
            "f16_a_gap_stays",
            &["F16"],
            "A datagram with a missing fragment is not reassembled.",
            |data| places(data, &[(0, 160), (320, 400)]),
        ),
        (
            "f01_identifications",
            &["F1"],
            "Alternating fragments of two datagrams are not mixed.",
            |data| {
                let pieces = cut(data, 160);
                pieces.into_iter().flat_map(|piece| [(1, piece.clone()), (2, piece)]).collect()
            },
        ),
        ("f15_duplicate", &["F15"], "A duplicate fragment is ignored.", |data| {
            places(data, &[(0, 160), (0, 160), (160, 400)])
        }),
        (
            "f14_overlap",
            &["F14"],
            "An overlap discards the datagram, regardless of later fragments.",
            |data| places(data, &[(0, 160), (80, 240), (160, 320), (320, 400)]),
        ),
        (
            "f14_overlap_of_other_bytes",
            &["F14"],
            "An overlap with different bytes discards the datagram.",
            |data| {
                let mut pieces = places(data, &[(0, 160), (0, 160), (160, 400)]);
                pieces[1].1.data.iter_mut().for_each(|byte| *byte ^= 1);
                pieces
            },
        ),
        (
            "f14_inside_the_first",
            &["F14", "F12"],
            "A last fragment inside the first discards the datagram (teardrop).",
            |data| {
                let tail = Piece { offset: 80, more: false, data: data[80..120].to_vec() };
                vec![(1, Piece::of(data, 0, 160)), (1, tail), (1, Piece::of(data, 160, 400))]
            },
        ),
        (
            "f12_two_ends",
            &["F12"],
            "Last fragments with different ends discard the datagram.",
            |data| {
                let end =
                    |at: usize| Piece { offset: 320, more: false, data: data[320..at].to_vec() };
                vec![(1, end(400)), (1, end(360)), (1, Piece::of(data, 0, 320))]
            },
        ),
        (
            "f12_beyond_the_end",
            &["F12"],
            "A fragment beyond the end discards the datagram.",
            |data| {
                let beyond = Piece { offset: 400, more: true, data: vec![7; 80] };
                let [first, last] = [Piece::of(data, 0, 160), Piece::of(data, 160, 400)];
                vec![(1, last), (1, beyond), (1, first)]
            },
        ),
        (
            "f13_beyond_65535",
            &["F13"],
            "A datagram longer than 65535 bytes is discarded.",
            |data| {
                let far = Piece { offset: 65528, more: false, data: vec![7; 80] };
                vec![(1, Piece::of(data, 0, 160)), (1, far)]
            },
        ),
        ("f11_empty", &["F11"], "A fragment without data discards the datagram.", |data| {
            let empty = Piece { offset: 160, more: true, data: Vec::new() };
            vec![(1, Piece::of(data, 0, 160)), (1, empty), (1, Piece::of(data, 160, 400))]
        }),
        (
            "f10_no_multiple_of_8",
            &["F10"],
            "The length of every fragment except the last must be a multiple of 8.",
            |data| {
                let odd = Piece { offset: 0, more: true, data: data[..157].to_vec() };
                vec![(1, odd), (1, Piece::of(data, 160, 400))]
            },
        ),
        (
            "f05_the_key_is_free_again",
            &["F5"],
            "After a complete datagram, another one can have the same key.",
            |data| places(data, &[(0, 160), (160, 400), (0, 200), (200, 400)]),
        ),
    ]
}
