//! The reassembler, with fragments of a few datagrams at any offset, of any length, damaged or not, and with any mode,
//! policy, limits and timing. No fragment is lost, and no limit is exceeded. If only offsets and bytes vary, a byte map
//! predicts the result of each fragment.

use crate::Decisions;
use grosso::{
    Meta,
    checksum::Checksum,
    reassemble::{Overlap, ReassemblyMode, ReassemblyRules, ReassemblyVerdict, reason::Discard},
};
use grosso_rig::fragments::{Fate, Oracle, Piece, Rig, Version};

/// Maximum number of fragments. More fragments would take longer without finding more.
const FRAGMENTS_MAX: usize = 64;
/// Number of datagrams to reassemble in parallel.
const KEYS: usize = 3;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    if decisions.byte().is_multiple_of(2) {
        beside_the_byte_map(&mut decisions);
    } else {
        anything(&mut decisions);
    }
}

fn beside_the_byte_map(decisions: &mut Decisions<'_>) {
    let version = decisions.choose(&Version::ALL);
    let policies = [Overlap::Drop, Overlap::Linux, Overlap::First, Overlap::Last];
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = decisions.choose(&policies);
    // The byte map does not model this rule.
    rules.limits.distance = 0;
    let keeps = matches!(rules.overlap, Overlap::Drop | Overlap::Linux);
    if keeps && decisions.byte() > 127 {
        rules.mode = ReassemblyMode::KeepGeometry;
    }
    let mut oracles = [(); KEYS].map(|()| Oracle::new(version, rules.overlap));
    let mut rig = Rig::new(rules);
    for _ in 0..FRAGMENTS_MAX {
        if decisions.is_over() {
            break;
        }
        let key = usize::from(decisions.byte()) % KEYS;
        let piece = piece(decisions);
        // Skips packets that are not fragments, and first fragments without a complete transport header.
        if piece.offset == 0 && (!piece.more || (1..8).contains(&piece.data.len())) {
            continue;
        }
        let fate = match rig.push(&version.frame(key as u32, &piece)) {
            ReassemblyVerdict::Held => Fate::Held,
            ReassemblyVerdict::Duplicate => Fate::Duplicate,
            ReassemblyVerdict::Completed => Fate::Completed,
            ReassemblyVerdict::Discarded(Discard::Dead) => Fate::Dead,
            ReassemblyVerdict::Discarded(_) => Fate::Killed,
            other => panic!("{other:?}"),
        };
        assert_eq!(fate, oracles[key].push(&piece), "{piece:?}");
    }
    let mut expected = oracles.iter().map(|oracle| oracle.complete.len()).sum::<usize>();
    for whole in rig.take_whole() {
        let of = |(key, oracle): (usize, &Oracle)| {
            oracle.complete.iter().any(|data| version.whole(key as u32, data) == whole)
        };
        assert!(oracles.iter().enumerate().any(of), "{whole:02x?}");
        expected -= 1;
    }
    assert_eq!(expected, 0);
    rig.finish();
}

fn anything(decisions: &mut Decisions<'_>) {
    let mut rules = ReassemblyRules::new(decisions.choose(&[
        ReassemblyMode::Coalesce,
        ReassemblyMode::KeepGeometry,
        ReassemblyMode::Virtual,
    ]));
    rules.overlap = decisions.choose(&[Overlap::Drop, Overlap::Linux]);
    let choices = decisions.byte();
    rules.verify = choices & 1 != 0;
    if choices & 2 != 0 {
        rules.limits.datagrams = 2;
        rules.limits.tombstones = usize::from(choices >> 2 & 1);
    }
    if choices & 8 != 0 {
        rules.limits.memory_bytes = 20_000;
    }
    if choices & 16 != 0 {
        rules.limits.source_bytes = 15_000;
    }
    if choices & 32 != 0 {
        rules.limits.fragments = 3;
    }
    let mut rig = Rig::new(rules);
    for _ in 0..FRAGMENTS_MAX {
        if decisions.is_over() {
            break;
        }
        let action = decisions.byte();
        let version = Version::ALL[usize::from(action & 1)];
        let piece = piece(decisions);
        let mut frame = version.frame(u32::from(action >> 1 & 1), &piece);
        if action & 4 != 0 {
            let at = usize::from(decisions.byte()) % frame.len();
            frame[at] ^= decisions.byte();
        }
        if action & 8 != 0 {
            frame.truncate(usize::from(decisions.byte()));
        }
        if action & 16 != 0 {
            rig.now_ns += u64::from(decisions.byte()) * 1_000_000_000;
            rig.expire();
        }
        let checksum = match action >> 5 {
            0 => Checksum::Complete { sum: decisions.word() },
            1 => Checksum::Partial { start: decisions.word(), offset: decisions.word() },
            2 => Checksum::Unnecessary { levels: 3 },
            _ => Checksum::None,
        };
        rig.push_frame(&frame, Meta { checksum, ..Meta::default() });
    }
    rig.finish();
}

/// Returns a piece that is likely to touch others: it is near the start, and a few units long.
fn piece(decisions: &mut Decisions<'_>) -> Piece {
    let (place, shape) = (decisions.byte(), decisions.byte());
    let offset = if place > 250 { decisions.word() & 0xfff8 } else { u16::from(place & 15) * 8 };
    let units = usize::from(shape & 7);
    let len = if shape & 0xc0 == 0xc0 { units * 8 + usize::from(place >> 4) } else { units * 8 };
    // In most pieces, the bytes at equal offsets are equal.
    let salt = if shape & 0x38 == 0x38 { place } else { 0 };
    let data = (0..len).map(|at| (usize::from(offset) + at) as u8 ^ salt).collect();
    Piece { offset: offset.into(), more: place & 16 == 0, data }
}
