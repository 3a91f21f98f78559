//! IP reassembly, rule by rule: the F rules of `linux-offloads`, the kernel's cases, the bugs and the
//! pitfalls of others, and a byte map that knows no cleverness.

mod bounds;
mod kernel_cases;
mod malformed;
mod modes;
mod order;
mod relations;
mod result;
mod round_trip;
mod shortcut;

use grosso::reassemble::{Mode, Overlap, Rules, Verdict, reason::Discard};
use grosso_testkit::random::Random;
use grosso_tests::fragments::{Piece, Rig, Version};

/// The default rules of a mode.
fn rules(mode: Mode) -> Rules {
    Rules::new(mode)
}

/// The default rules with another policy, in the mode that has them all.
fn overlap(overlap: Overlap) -> Rules {
    let mut rules = Rules::new(Mode::Coalesce);
    rules.overlap = overlap;
    rules
}

/// The data of a UDP datagram of so many bytes in all, with a right checksum.
fn data(version: Version, len: usize, seed: u64) -> Vec<u8> {
    version.udp(&Random::new(seed).bytes(len - 8))
}

/// Pushes pieces of one datagram and gives the verdicts.
fn push_all(rig: &mut Rig, version: Version, id: u32, pieces: &[Piece]) -> Vec<Verdict> {
    pieces.iter().map(|piece| rig.push(&version.frame(id, piece))).collect()
}

/// What a run of these pieces gives: whole frames.
fn whole(rules: Rules, version: Version, pieces: &[Piece]) -> Vec<Vec<u8>> {
    let mut rig = Rig::new(rules);
    push_all(&mut rig, version, 1, pieces);
    let whole = rig.take_whole();
    rig.finish();
    whole
}

const DEAD: Verdict = Verdict::Discarded(Discard::Dead);
