//! Tests of the memory that reassembly uses: a warm reassembler does not allocate memory for fragments, and a flood
//! stays within the limits.

use std::ops::Range;

use grosso::{
    Frame,
    reassemble::{Outcome, Reassembler, ReassemblyMode, ReassemblyRules},
};
use grosso_rig::{
    allocator::{allocations, live_bytes},
    engine::PORTS,
    fragments::{Piece, Version, cut},
};
use grosso_wire::LinkType;

/// Tests datagrams in order and out of order, duplicates, overlaps, and datagrams that are never complete.
#[test]
fn no_fragment_is_allocated_for_once_the_reassembler_is_warm() {
    for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry, ReassemblyMode::Virtual] {
        let mut rules = ReassemblyRules::new(mode);
        rules.verify = true;
        rules.limits.datagrams = 20;
        let mut reassembler = Reassembler::new(rules, LinkType::Ethernet, PORTS, 1)
            .expect("rules without contradictions");
        let frames = fragments();
        let mut whole = 0_u64;
        let mut round = |number: u64| {
            for frame in &frames {
                let mut sink = |outcome: Outcome<'_, &[u8]>| {
                    whole += u64::from(matches!(outcome, Outcome::Datagram(_)));
                };
                reassembler.push(Frame::new(&frame[..]), number * 20_000_000_000, &mut sink);
            }
            whole
        };
        let warm = (0..4).map(&mut round).last().unwrap_or(0);
        let before = allocations();
        let now = (4..10).map(&mut round).last().unwrap_or(0);
        let count = allocations() - before;
        assert_eq!(count, 0, "{mode:?}: allocations in 6 x {} fragments", frames.len());
        assert!(
            mode == ReassemblyMode::Virtual || now - warm > 6 * 20,
            "datagrams were among them"
        );
    }
}

/// Tests that a million incomplete datagrams, from one source or each from a different source, stay within the memory
/// limits, and that datagrams from an honest sender are still reassembled.
#[test]
fn b40_p32_a_flood_of_fragments_keeps_memory_constant() {
    // In the first case, the leading bytes of the source address change, so that each fragment comes from a new
    // network. In the second case, the identification changes.
    for (of, number_at) in [("spoofed sources", 22..26), ("one source", 58..62)] {
        for mode in [ReassemblyMode::Coalesce, ReassemblyMode::KeepGeometry] {
            flood(of, &number_at, mode);
        }
    }
}

fn flood(of: &str, number_at: &Range<usize>, mode: ReassemblyMode) {
    let case = format!("{of} {mode:?}");
    let mut rules = ReassemblyRules::new(mode);
    // The full size of a buffer in the ring is counted, no matter how much of it is used.
    rules.limits.buffer_bytes = 2048;
    let limits = rules.limits;
    let mut reassembler = Reassembler::new(rules, LinkType::Ethernet, PORTS, 1)
        .expect("rules without contradictions");
    let templates = [(64, true, 8), (64, true, 64), (8, false, 1)].map(|(offset, more, len)| {
        Version::V6.frame(1, &Piece { offset, more, data: vec![1; len] })
    });
    let data = Version::V4.udp(&[0x5a; 400]);
    let honest: Vec<_> = cut(&data, 136).iter().map(|p| Version::V4.frame(1, p)).collect();
    let mut whole = 0_u32;
    let mut push = |numbers: Range<u32>| {
        let mut sink = |outcome: Outcome<'_, Inline>| {
            whole += u32::from(matches!(outcome, Outcome::Datagram(_)));
        };
        for number in numbers {
            let mut stale = Inline::new(&templates[number as usize % templates.len()]);
            stale.bytes[number_at.clone()].copy_from_slice(&number.to_be_bytes());
            reassembler.push(Frame::new(stale), 1, &mut sink);
            if number.is_multiple_of(HONEST_EVERY) {
                let piece = &honest[(number / HONEST_EVERY) as usize % honest.len()];
                reassembler.push(Frame::new(Inline::new(piece)), 1, &mut sink);
            }
        }
        (reassembler.held_bytes(), whole)
    };
    let (_, _) = push(0..200_000);
    let before = (allocations(), live_bytes());
    let (held, whole) = push(200_000..1_000_000);
    assert_eq!((allocations(), live_bytes()), before, "{case}");
    let cap = if of == "one source" { limits.source_bytes } else { limits.memory_bytes };
    // The honest sender's incomplete datagrams are held in addition to the flooding source's share.
    let under_way = if of == "one source" { 16_384 } else { 0 };
    assert!(held > cap * 9 / 10 && held <= cap + under_way, "{case}: {held} bytes held");
    let sent = 1_000_000 / HONEST_EVERY / honest.len() as u32;
    assert_eq!(whole, sent, "{case}: datagrams of the honest sender");
}

/// Number of flood fragments per fragment from the honest sender.
const HONEST_EVERY: u32 = 100;

/// A buffer that stores its bytes inline, so it needs no allocation.
struct Inline {
    bytes: [u8; 192],
    len: usize,
}

impl Inline {
    fn new(frame: &[u8]) -> Self {
        let mut bytes = [0; 192];
        bytes[..frame.len()].copy_from_slice(frame);
        Self { bytes, len: frame.len() }
    }
}

impl AsRef<[u8]> for Inline {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the fragments of several datagrams of both IP versions: in order, reversed, duplicated, overlapping, and
/// without the first fragment.
fn fragments() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (id, version) in (0..40).flat_map(|id| Version::ALL.map(|version| (id, version))) {
        let data = version.udp(&grosso_testkit::stream(id, 4000 + id as usize * 200));
        let mut pieces = cut(&data, 1024);
        match id % 5 {
            0 => pieces.reverse(),
            1 => pieces.insert(2, pieces[1].clone()),
            2 => pieces.insert(2, Piece::of(&data, 8, 64)),
            3 => drop(pieces.remove(0)),
            _ => {}
        }
        frames.extend(pieces.iter().map(|piece| version.frame(id, piece)));
    }
    frames
}
