//! Counters of a reassembler.

use super::reason::{Discard, Pass};

/// Counters of a reassembler since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassembleStats {
    /// Number of frames pushed.
    pub frames_in: u64,
    /// Number of frames delivered unchanged, by reason.
    pub passed: [u64; Pass::COUNT],
    /// Number of fragments pushed, except those that passed through.
    pub fragments_in: u64,
    /// Number of fragments in datagrams that were delivered complete.
    pub fragments_joined: u64,
    /// Number of fragments delivered unchanged with their flow.
    pub fragments_forwarded: u64,
    /// Number of duplicate fragments.
    pub duplicates: u64,
    /// Number of fragments discarded, by reason.
    pub fragments_discarded: [u64; Discard::COUNT],
    /// Number of datagrams that were delivered complete or whose fragments were all forwarded.
    pub datagrams: u64,
    /// Number of incomplete datagrams discarded, by reason. This includes datagrams that were discarded with their
    /// first fragment.
    pub datagrams_discarded: [u64; Discard::COUNT],
    /// Number of fragments with segmentation parameters in their metadata, which were removed (rule F25).
    pub gso_stripped: u64,
    /// Maximum memory held so far, in bytes.
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
    /// Returns the number of fragments that were pushed and neither delivered nor discarded.
    #[must_use]
    pub fn fragments_held(&self) -> u64 {
        let discarded: u64 = self.fragments_discarded.iter().sum();
        let gone = self.fragments_joined + self.fragments_forwarded + self.duplicates + discarded;
        self.fragments_in - gone
    }
}
