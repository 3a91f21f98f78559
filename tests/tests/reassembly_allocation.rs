//! Memory of reassembly: nothing is allocated for a fragment once it is warm, and a flood takes what
//! the limits say.
//!
//! A test binary of its own, because the allocator that counts is that of the whole program.

use grosso::{
    Frame,
    reassemble::{Mode, Outcome, Reassembler, Rules},
};
use grosso_tests::{
    allocator::{Counting, allocations, live_bytes},
    engine::PORTS,
    fragments::{Piece, Version, cut},
};
use grosso_wire::LinkType;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Datagrams in order and not, duplicates, overlaps, and what never is complete.
#[test]
fn no_fragment_is_allocated_for_once_the_reassembler_is_warm() {
    for mode in [Mode::Coalesce, Mode::KeepGeometry, Mode::Virtual] {
        let mut rules = Rules::new(mode);
        rules.verify = true;
        rules.limits.datagrams = 20;
        let mut reassembler =
            Reassembler::new(rules, LinkType::Ethernet, PORTS, 1).expect("rules that agree");
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
        assert!(mode == Mode::Virtual || now - warm > 6 * 20, "datagrams were among them");
    }
}

/// A million datagrams that are never complete, each from a source of its own, take the memory of
/// the limits and no more.
#[test]
fn b40_p32_a_flood_of_fragments_keeps_memory_constant() {
    for mode in [Mode::Coalesce, Mode::KeepGeometry] {
        let rules = Rules::new(mode);
        let memory_bytes = rules.limits.memory_bytes;
        let mut reassembler =
            Reassembler::new(rules, LinkType::Ethernet, PORTS, 1).expect("rules that agree");
        let piece = Piece { offset: 64, more: true, data: vec![1; 64] };
        let template = Version::V6.frame(1, &piece);
        let mut push = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                let mut buffer = Inline { bytes: [0; 160], len: template.len() };
                buffer.bytes[..template.len()].copy_from_slice(&template);
                // The first bytes of the source: another network each time.
                buffer.bytes[22..26].copy_from_slice(&number.to_be_bytes());
                reassembler.push(Frame::new(buffer), 1, &mut |_: Outcome<'_, Inline>| {});
            }
            reassembler.held_bytes()
        };
        let held = push(0..200_000);
        let before = (allocations(), live_bytes());
        assert_eq!(push(200_000..1_000_000), held, "{mode:?}");
        assert_eq!((allocations(), live_bytes()), before, "{mode:?}");
        assert!(held > memory_bytes * 9 / 10 && held <= memory_bytes, "{held} bytes held");
    }
}

/// A buffer that owns its bytes without an allocation.
struct Inline {
    bytes: [u8; 160],
    len: usize,
}

impl AsRef<[u8]> for Inline {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The fragments of some datagrams of either version: in order, from the end, twice, overlapping,
/// and without their first.
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
