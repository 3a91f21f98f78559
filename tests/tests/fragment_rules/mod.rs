//! Tests IP reassembly rule by rule: the F rules in `linux-offloads`, the kernel's test cases, bugs and pitfalls in
//! other implementations, and a comparison with a plain byte map.

mod bounds;
mod kernel_cases;
mod malformed;
mod modes;
mod order;
mod relations;
mod result;
mod round_trip;
mod shortcut;

use grosso::reassemble::{
    Overlap, ReassemblyMode, ReassemblyRules, ReassemblyVerdict, reason::Discard,
};
use grosso_rig::fragments::{Piece, Rig, Version};
use grosso_testkit::random::Random;

/// Returns the default rules for a mode.
fn rules(mode: ReassemblyMode) -> ReassemblyRules {
    ReassemblyRules::new(mode)
}

/// Returns the default rules with another policy, in the mode that supports all policies.
fn overlap(overlap: Overlap) -> ReassemblyRules {
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = overlap;
    rules
}

/// Returns the data of a UDP datagram with this total length and a correct checksum.
fn data(version: Version, len: usize, seed: u64) -> Vec<u8> {
    version.udp(&Random::new(seed).bytes(len - 8))
}

/// Pushes fragments of one datagram and returns the verdicts.
fn push_all(rig: &mut Rig, version: Version, id: u32, pieces: &[Piece]) -> Vec<ReassemblyVerdict> {
    pieces.iter().map(|piece| rig.push(&version.frame(id, piece))).collect()
}

/// Returns the complete frames that a run of these fragments delivers.
fn whole(rules: ReassemblyRules, version: Version, pieces: &[Piece]) -> Vec<Vec<u8>> {
    let mut rig = Rig::new(rules);
    push_all(&mut rig, version, 1, pieces);
    let whole = rig.take_whole();
    rig.finish();
    whole
}

const DEAD: ReassemblyVerdict = ReassemblyVerdict::Discarded(Discard::Dead);
