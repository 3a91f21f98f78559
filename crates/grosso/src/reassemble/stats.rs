//! Counters of a reassembler.

use super::reason::{Discard, Pass};

/// Counters of a reassembler since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassembleStats {
    /// Frames pushed.
    pub frames_in: u64,
    /// Frames that left unchanged, by reason.
    pub passed: [u64; Pass::COUNT],
    /// Fragments among the frames pushed: those that did not pass.
    pub fragments_in: u64,
    /// Fragments in datagrams that left whole.
    pub fragments_joined: u64,
    /// Fragments that left unchanged, their flow known.
    pub fragments_forwarded: u64,
    /// Fragments that had arrived before.
    pub duplicates: u64,
    /// Fragments discarded, by reason.
    pub fragments_discarded: [u64; Discard::COUNT],
    /// Datagrams that left whole, or all of whose fragments have left.
    pub datagrams: u64,
    /// Incomplete datagrams that were discarded, by reason; those discarded with their first fragment are included.
    pub datagrams_discarded: [u64; Discard::COUNT],
    /// Fragments that arrived with a description of their segmentation (rule F25).
    pub gso_stripped: u64,
    /// Most memory that was held at once, in bytes.
    pub held_bytes_max: u64,
}

impl Default for ReassembleStats {
    fn default() -> Self {
        Self {
            frames_in: 0,
            passed: [0; Pass::COUNT],
            fragments_in: 0,
            fragments_joined: 0,
            fragments_forwarded: 0,
            duplicates: 0,
            fragments_discarded: [0; Discard::COUNT],
            datagrams: 0,
            datagrams_discarded: [0; Discard::COUNT],
            gso_stripped: 0,
            held_bytes_max: 0,
        }
    }
}

impl ReassembleStats {
    /// Fragments pushed that neither left nor were discarded yet.
    #[must_use]
    pub fn fragments_held(&self) -> u64 {
        let discarded: u64 = self.fragments_discarded.iter().sum();
        let gone = self.fragments_joined + self.fragments_forwarded + self.duplicates + discarded;
        self.fragments_in - gone
    }
}
