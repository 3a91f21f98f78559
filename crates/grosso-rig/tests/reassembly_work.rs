//! Tests that reassembly never exceeds a fixed number of instructions per fragment, whatever the input. Valgrind counts
//! the instructions.
//!
//! A fragment costs about the same in the best and the worst order, in short and long datagrams, and with an empty and
//! a full table (B40, P31).

use std::hint::black_box;

use grosso::{
    Frame,
    reassemble::{Outcome, Reassembler, ReassemblyMode, ReassemblyRules},
};
use grosso_rig::{
    engine::PORTS,
    fragments::{Piece, Version, cut},
    instructions,
    kernel::skip,
};
use grosso_wire::LinkType;

/// Fragments in order of arrival.
type Frames = Vec<Vec<u8>>;
/// A function that returns the frames to push first, and then the frames whose instructions are counted.
type Flood = fn() -> (Frames, Frames);

/// The floods to measure.
const FLOODS: &[(&str, Flood)] = &[
    ("in order, of 2 KB", || (vec![], datagrams(2048, <[Piece]>::to_vec))),
    ("in order, of 16 KB", || (vec![], datagrams(16_000, <[Piece]>::to_vec))),
    ("every other from the end, of 2 KB", || (vec![], datagrams(2048, worst))),
    ("every other from the end, of 16 KB", || (vec![], datagrams(16_000, worst))),
    ("of one source, into an empty table", || (vec![], stale(0..800, one_source))),
    ("of one source, into a full table", || {
        (stale(0..60_000, one_source), stale(60_000..64_000, one_source))
    }),
    ("of spoofed sources, into an empty table", || (vec![], stale(0..800, spoofed))),
    ("of spoofed sources, into a full table", || {
        (stale(0..60_000, spoofed), stale(60_000..64_000, spoofed))
    }),
];

/// Pairs of floods that should cost the same: the second may cost at most this many percent more than the first.
const ALIKE: &[(usize, usize, f64)] =
    &[(0, 1, 10.0), (2, 3, 10.0), (1, 3, 150.0), (4, 5, 10.0), (6, 7, 10.0)];

#[test]
fn b40_p31_no_order_and_no_flood_makes_a_fragment_dear() {
    if let Some(flood) = instructions::case() {
        return run(flood);
    }
    let count = |flood| -> Result<f64, String> {
        let counted = count(flood)?;
        println!("{:<44} {counted:>8.0} instructions a fragment", FLOODS[flood].0);
        Ok(counted)
    };
    let counts: Result<Vec<f64>, String> = (0..FLOODS.len()).map(count).collect();
    let counts = match counts {
        Ok(counts) => counts,
        Err(why) => return skip(&why),
    };
    for &(cheap, dear, percent) in ALIKE {
        let more = (counts[dear] / counts[cheap] - 1.0) * 100.0;
        assert!(more < percent, "{}: {more:.0} % more than {}", FLOODS[dear].0, FLOODS[cheap].0);
    }
}

/// Returns the number of instructions per fragment in a flood.
fn count(flood: usize) -> Result<f64, String> {
    let test = "reassembly_work::b40_p31_no_order_and_no_flood_makes_a_fragment_dear";
    Ok(instructions::count(test, flood)? / FLOODS[flood].1().1.len() as f64)
}

fn run(flood: usize) {
    let (before, counted) = FLOODS[flood].1();
    let reassembler = Reassembler::new(
        ReassemblyRules::new(ReassemblyMode::Coalesce),
        LinkType::Ethernet,
        PORTS,
        1,
    );
    let mut reassembler = reassembler.expect("rules without contradictions");
    push(&mut reassembler, &before);
    measured(&mut reassembler, &counted);
}

/// Pushes the frames. Callgrind counts the instructions in this function.
#[inline(never)]
fn measured<'a>(reassembler: &mut Reassembler<&'a [u8]>, frames: &'a [Vec<u8>]) {
    push(reassembler, frames);
    // Prevents a tail call, so that the call above returns to this function.
    black_box(reassembler.held_bytes());
}

fn push<'a>(reassembler: &mut Reassembler<&'a [u8]>, frames: &'a [Vec<u8>]) {
    for frame in frames {
        reassembler.push(Frame::new(&frame[..]), 1, &mut |_: Outcome<'_, &[u8]>| {});
    }
}

/// Returns complete datagrams of `len` bytes in 8-byte fragments; `arrange` determines their order.
fn datagrams(len: usize, arrange: fn(&[Piece]) -> Vec<Piece>) -> Frames {
    let data = Version::V4.udp(&vec![0x5a; len - 8]);
    let pieces = arrange(&cut(&data, 8));
    let ids = 0..(16_000 / len) as u32;
    ids.flat_map(|id| pieces.iter().map(move |p| Version::V4.frame(id, p)).collect::<Vec<_>>())
        .collect()
}

/// Returns every second piece in reverse order, followed by the pieces in between: no piece continues the one before
/// it.
fn worst(pieces: &[Piece]) -> Vec<Piece> {
    let mut arranged: Vec<_> = pieces.iter().step_by(2).rev().cloned().collect();
    arranged.extend(pieces.iter().skip(1).step_by(2).cloned());
    arranged
}

/// Returns fragments of datagrams that are never completed, one for each datagram.
fn stale(numbers: std::ops::Range<u32>, edit: fn(&mut [u8], u32)) -> Frames {
    let piece = Piece { offset: 64, more: true, data: vec![1; 8] };
    let template = Version::V6.frame(0, &piece);
    let numbered = |number| {
        let mut frame = template.clone();
        edit(&mut frame, number);
        frame
    };
    numbers.map(numbered).collect()
}

/// Gives every frame a new identification.
fn one_source(frame: &mut [u8], number: u32) {
    frame[58..62].copy_from_slice(&number.to_be_bytes());
}

/// Gives every frame a new source network.
fn spoofed(frame: &mut [u8], number: u32) {
    frame[22..26].copy_from_slice(&number.to_be_bytes());
}
