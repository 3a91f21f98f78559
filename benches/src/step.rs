//! Defines work that runs in steps, on bytes that are either in the cache or not.

use std::hint::black_box;

/// Work that is repeated endlessly, step by step.
pub trait Step {
    /// Returns the frames that the next step will read.
    fn upcoming(&self) -> impl Iterator<Item = &[u8]>;

    /// Runs one step. Returns the number of packets that it processed.
    fn step(&mut self) -> usize;

    /// Reads every cache line of the next step's frames.
    fn touch(&self) {
        self.upcoming().for_each(touch);
    }
}

/// Reads every cache line of a slice.
pub fn touch(bytes: &[u8]) {
    black_box(bytes.iter().step_by(CACHE_LINE_BYTES).fold(0_u8, |sum, b| sum.wrapping_add(*b)));
}

/// State of the cache at the start of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Every cache line of the frames was just read, outside the measured time.
    Hot,
    /// The trace, which is longer than the inner caches, is streamed from memory.
    Cold,
}

impl Cache {
    /// Returns the name shown in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }
}

const CACHE_LINE_BYTES: usize = 64;
