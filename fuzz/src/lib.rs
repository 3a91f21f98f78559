//! Helpers of the fuzz targets: decisions read from the fuzzer's bytes.

use grosso_testkit::{oracle::Link, random::Random, stack::Stack};

/// Decisions taken from the fuzzer's bytes, one after the other; zero once the bytes are used up.
#[derive(Debug)]
pub struct Decisions<'a> {
    bytes: &'a [u8],
}

impl<'a> Decisions<'a> {
    /// Decisions from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether all bytes are used up.
    pub fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// The next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// One of `choices`, which are not empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A random generator whose seed is the next two bytes: few enough values that the fuzzer can explore them.
    pub fn random(&mut self) -> Random {
        Random::new(self.word().into())
    }

    /// The remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.bytes
    }
}

/// A stack of at most two tunnels over this link.
pub fn stack(decisions: &mut Decisions<'_>, link: Link) -> Stack {
    Stack::random(&mut decisions.random(), link)
}
