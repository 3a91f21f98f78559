//! Replay window, and the high half of extended sequence numbers.
//!
//! The window is a ring of bits, one for each recent packet, and moves by whole words (RFC 6479). The ring has one word
//! more than the window, so that a word is cleared before it is reused. The size of the window is exact nevertheless,
//! because a number is compared with the edge of the window before its bit is read.

use alloc::{boxed::Box, vec};

use super::reason::Refusal;

/// Set of accepted sequence numbers.
#[derive(Clone, Debug)]
pub(super) struct ReplayWindow {
    /// Number of packets that the window covers, or 0 if replay protection is off.
    packets: u64,
    /// Highest accepted sequence number, or 0 before the first packet.
    top: u64,
    /// Ring of bits. Bit `n` stands for the numbers that equal `n` modulo the length of the ring.
    accepted: Box<[u64]>,
}

impl ReplayWindow {
    /// Returns a window in which every number up to `top` counts as accepted.
    pub(super) fn new(packets: u32, top: u64) -> Self {
        let words = (packets as usize).div_ceil(WORD_BITS) + 1;
        let mark = if top == 0 { 0 } else { u64::MAX };
        let mut window = Self {
            packets: packets.into(),
            top,
            accepted: vec![mark; words.next_power_of_two()].into_boxed_slice(),
        };
        // In the word that contains `top`, the higher bits stand for later numbers.
        let right_of_top = u64::MAX << (top % WORD_BITS as u64) << 1;
        *window.word(top) &= !right_of_top;
        window
    }

    /// Marks a number as accepted. It must have been [checked](Self::check), and its packet must be authentic.
    pub(super) fn accept(&mut self, sequence: u64) {
        if self.packets == 0 {
            return;
        }
        let (word, top_word) = (sequence / WORD_BITS as u64, self.top / WORD_BITS as u64);
        if word > top_word {
            let fresh = (word - top_word).min(self.accepted.len() as u64);
            for ahead in 0..fresh {
                *self.word((word - ahead) * WORD_BITS as u64) = 0;
            }
        }
        self.top = self.top.max(sequence);
        *self.word(sequence) |= 1 << (sequence % WORD_BITS as u64);
    }

    /// Returns the word of the ring that contains the bit of a number.
    fn word(&mut self, sequence: u64) -> &mut u64 {
        let mask = self.accepted.len() - 1;
        &mut self.accepted[(sequence / WORD_BITS as u64) as usize & mask]
    }

    /// Checks that a packet with this number has not been accepted before and is not below the window.
    pub(super) fn check(&self, sequence: u64) -> Result<(), Refusal> {
        if self.packets == 0 {
            return Ok(());
        }
        if sequence == 0 {
            return Err(Refusal::SequenceZero);
        }
        if sequence > self.top {
            return Ok(());
        }
        if self.top - sequence >= self.packets {
            return Err(Refusal::TooOld);
        }
        let word =
            self.accepted[(sequence / WORD_BITS as u64) as usize & (self.accepted.len() - 1)];
        if word & 1 << (sequence % WORD_BITS as u64) != 0 {
            return Err(Refusal::Replayed);
        }
        Ok(())
    }

    /// Returns the full value of an extended sequence number, given its low half. Among the 2^32 numbers from the start
    /// of the window on, only one has this low half (RFC 4303 appendix A2.1).
    pub(super) fn extend(&self, low: u32) -> Result<u64, Refusal> {
        let edge = i128::from(self.top) - i128::from(self.packets) + 1;
        let ahead = low.wrapping_sub(edge as u32);
        // The result is not a valid number if it is negative or exceeds 64 bits.
        u64::try_from(edge + i128::from(ahead)).map_err(|_| Refusal::TooOld)
    }

    /// Returns the highest accepted sequence number, or 0 before the first packet.
    pub(super) const fn top(&self) -> u64 {
        self.top
    }
}

const WORD_BITS: usize = u64::BITS as usize;
