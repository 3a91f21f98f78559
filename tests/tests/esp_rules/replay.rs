//! Tests the replay window and extended sequence numbers against an oracle that keeps a list of accepted numbers.

use std::collections::BTreeSet;

use grosso::tunnel::esp::{Decryptor, EspMode, REPLAY_WINDOW_PACKETS_MAX, Refusal};
use grosso_testkit::{Packet, random::Random};
use proptest::prelude::*;

use super::association::{Recipe, decrypt};

/// RFC 4303 section 3.4.3 and appendix A2, implemented literally.
struct Oracle {
    window: u64,
    extended: bool,
    top: u64,
    accepted: BTreeSet<u64>,
}

impl Oracle {
    /// Creates an oracle that has accepted everything up to `top`.
    fn new(recipe: &Recipe, top: u64) -> Self {
        let window = recipe.window.into();
        let accepted = (top.saturating_sub(window)..=top).filter(|&number| number > 0).collect();
        Self { window, extended: recipe.extended, top, accepted }
    }

    /// Returns the result for an authentic packet with this number.
    fn receive(&mut self, sequence: u64) -> Result<u64, Refusal> {
        let low = sequence as u32;
        let taken_for = match self.extended {
            true => self.high(low).map(|high| high << 32 | u64::from(low)),
            false => Some(low.into()),
        };
        let Some(taken_for) = taken_for else { return Err(Refusal::TooOld) };
        if taken_for == 0 {
            return Err(Refusal::SequenceZero);
        }
        // Signed arithmetic is needed because the left edge may be before the first number.
        let edge = i128::from(self.top) - i128::from(self.window) + 1;
        if i128::from(taken_for) < edge {
            return Err(Refusal::TooOld);
        }
        if self.accepted.contains(&taken_for) {
            return Err(Refusal::Replayed);
        }
        if taken_for != sequence {
            return Err(Refusal::Integrity);
        }
        self.accepted.insert(sequence);
        self.top = self.top.max(sequence);
        Ok(sequence)
    }

    /// Returns the high half for this low half, if there is one (RFC 4303 appendix A2.1).
    fn high(&self, low: u32) -> Option<u64> {
        let window = self.window as u32;
        let (top_high, top_low) = (self.top >> 32, self.top as u32);
        let left = top_low.wrapping_sub(window - 1);
        if top_low >= window - 1 {
            // Case A: the window lies within one subspace.
            if low >= left {
                Some(top_high)
            } else {
                (top_high + 1 < 1 << 32).then_some(top_high + 1)
            }
        } else if low >= left {
            // Case B: the window spans two subspaces.
            top_high.checked_sub(1)
        } else {
            Some(top_high)
        }
    }
}

/// A receiver and an oracle, which must agree.
struct Both {
    recipe: Recipe,
    decryptor: Decryptor,
    oracle: Oracle,
    frame: Vec<u8>,
}

impl Both {
    fn new(recipe: Recipe, top: u64) -> Self {
        let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).build();
        Self { recipe, decryptor: recipe.decryptor(top), oracle: Oracle::new(&recipe, top), frame }
    }

    fn receive(&mut self, sequence: u64) {
        let wire = match sequence {
            // A sequence number that no encryptor of Grosso uses.
            0 => {
                let mut wire = self.recipe.encrypted(1, &self.frame);
                wire[38..42].fill(0);
                wire
            }
            _ => self.recipe.encrypted(sequence, &self.frame),
        };
        self.receive_as(sequence, &wire);
    }

    fn receive_as(&mut self, sequence: u64, wire: &[u8]) {
        let expected = self.oracle.receive(sequence);
        let received = decrypt(&mut self.decryptor, wire);
        assert_eq!(
            received.map(|_| sequence),
            expected,
            "{sequence:#x} with top {:#x}, {:?}",
            self.oracle.top,
            self.recipe
        );
        assert_eq!(self.decryptor.last_sequence(), self.oracle.top);
    }
}

fn recipe(window: u32, extended: bool) -> Recipe {
    Recipe { window, extended, ..Recipe::new(EspMode::Transport) }
}

/// Tests all 32768 sequences of five packets, chosen with repetition from eight packets around both edges of the
/// smallest window.
#[test]
fn every_order_and_every_replay_around_the_edges() {
    for (extended, middle) in [(false, 32), (true, (1 << 32) - 12)] {
        let recipe = recipe(32, extended);
        let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).build();
        let packets = [0, 1, 2, 31, 32, 33, 34, 65].map(|step| {
            let sequence = middle + step;
            (sequence, recipe.encrypted(sequence, &frame))
        });
        for order in 0..8_usize.pow(5) {
            let mut both = Both::new(recipe, middle);
            for place in 0..5 {
                let (sequence, wire) = &packets[order >> (3 * place) & 7];
                both.receive_as(*sequence, wire);
            }
        }
    }
}

#[test]
fn the_first_packet_may_be_any_but_zero() {
    for extended in [false, true] {
        for first in [1, 2, 31, 32, 33, 64, 1000, 1 << 31, u64::from(u32::MAX)] {
            let mut both = Both::new(recipe(32, extended), 0);
            both.receive(0);
            for sequence in [first, first, 1, 2, first - 1, first + 1] {
                if sequence > 0 && (extended || sequence <= u64::from(u32::MAX)) {
                    both.receive(sequence);
                }
            }
        }
    }
}

/// Tests sequence numbers near their end. 32-bit numbers run out. 64-bit numbers continue, and their low half may wrap
/// at any position in the window.
#[test]
fn b25_the_high_half_follows_the_low_one_over_its_end() {
    let end = 1_u64 << 32;
    for window in [32, 64, 1000] {
        for late in [1, 2, 31, 32, 33, 999, 1000, 1001] {
            let mut both = Both::new(recipe(window, true), end - 50);
            for sequence in [end - 2, end - 1, end, end + 1, end + 40] {
                both.receive(sequence);
                both.receive(sequence - late);
                both.receive(sequence);
            }
        }
    }
    // The sequence number must not wrap after the last 64-bit value.
    let mut both = Both::new(recipe(64, true), u64::MAX - 2);
    for sequence in [u64::MAX - 1, u64::MAX, u64::MAX - 70, u64::MAX - 3, u64::MAX] {
        both.receive(sequence);
    }
}

#[test]
fn without_a_window_everything_genuine_is_taken() {
    let recipe = recipe(0, false);
    let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).build();
    let mut decryptor = recipe.decryptor(0);
    for sequence in [5, 5, 1, u64::from(u32::MAX), 5] {
        let wire = recipe.encrypted(sequence, &frame);
        assert_eq!(decrypt(&mut decryptor, &wire).as_ref(), Ok(&frame));
    }
    assert_eq!((decryptor.last_sequence(), decryptor.stats().packets), (0, 5));
}

/// Tests RFC 4303 section 3.4.3: a forged packet far ahead must not close the window for all others.
#[test]
fn a_forged_packet_does_not_move_the_window() {
    let mut both = Both::new(recipe(64, false), 0);
    both.receive(1);
    let mut forged = recipe(64, false).encrypted(1_000_000, &both.frame);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert_eq!(decrypt(&mut both.decryptor, &forged), Err(Refusal::Integrity));
    assert_eq!(both.decryptor.last_sequence(), 1);
    both.receive(2);
    both.receive(1_000_000);
    both.receive(3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Tests random walks near the end of the low half and of the whole number. Window lengths are multiples of the
    /// word length, or one more or less.
    #[test]
    fn the_window_is_that_of_the_oracle(
        seed in any::<u64>().no_shrink(),
        extended in any::<bool>(),
        count in 1..120_usize,
    ) {
        let mut random = Random::new(seed);
        let windows = [32, 33, 63, 64, 65, 96, 127, 128, 129, 1024, REPLAY_WINDOW_PACKETS_MAX];
        let window = *random.choose(&windows);
        let ends = [0, 1, 40, 1 << 31, (1 << 32) - 40, 1 << 32, (1 << 32) + 40, 3 << 32];
        let start = match extended {
            true => *random.choose(&ends),
            false => ends[random.below(5)],
        };
        let max = if extended { u64::MAX } else { u32::MAX.into() };
        let mut both = Both::new(recipe(window, extended), start);
        for _ in 0..count {
            let top = both.oracle.top;
            let span = *random.choose(&[2, 40, 64, u64::from(window), 3 * u64::from(window)]);
            let step = random.below(span as usize + 2) as u64;
            let sequence = match random.below(10) {
                0..4 => top.saturating_add(step),
                4..8 => top.saturating_sub(step),
                8 => top.saturating_sub(u64::from(window) - 1 + step % 3),
                _ => top.saturating_add(1 << random.below(33)),
            };
            both.receive(sequence.clamp(1, max));
        }
    }
}
