//! Finds out which IP fragments in a capture form complete datagrams, and why the others do not.

mod lanes;
mod survey;

use grosso::reassemble::{Datagram, Overlap, ReassemblyMode, ReassemblyRules};

pub use self::{
    lanes::{Arrival, Lanes, Visitor},
    survey::Survey,
};

/// Limits on incomplete datagrams, and the policy for overlapping fragments.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Maximum wait for the rest of a datagram, in nanoseconds of capture time.
    pub timeout: u64,
    /// Policy for overlapping fragments.
    pub overlap: Overlap,
    /// Maximum memory for incomplete datagrams, in bytes.
    pub memory: usize,
    /// Number of fragments after which an incomplete IPv4 datagram is abandoned; 0 means no limit. The fragments
    /// counted are those that the same source has sent for other datagrams since the datagram's last fragment.
    pub distance: u32,
}

impl Waiting {
    /// Default timeout, in command-line syntax.
    pub const TIMEOUT: &str = "30s";
    /// Name of the default policy for overlapping fragments.
    pub const OVERLAP: &str = "drop";
    /// Default memory limit, in command-line syntax.
    pub const MEMORY: &str = "64M";
    /// Default value of [`Waiting::distance`], in command-line syntax.
    pub const DISTANCE: &str = "0";
}

impl Default for Waiting {
    /// Returns limits of 30 seconds and 64 MiB, with no limit on fragments of other datagrams.
    fn default() -> Self {
        Self { timeout: 30_000_000_000, overlap: Overlap::Drop, memory: 64 << 20, distance: 0 }
    }
}

/// Datagram completed by a packet, if any.
#[derive(Default)]
pub struct Joined {
    /// Whether the packet completed a datagram.
    pub is_whole: bool,
    /// Bytes of the datagram.
    pub bytes: Vec<u8>,
}

impl Visitor for Joined {
    fn datagram(&mut self, _lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        self.is_whole = true;
        self.bytes.clear();
        datagram.copy_to(&mut self.bytes);
    }
}

/// Returns the rules for reassembling fragments in a file.
pub fn rules(waiting: &Waiting) -> ReassemblyRules {
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = waiting.overlap;
    rules.limits.datagrams = DATAGRAMS_MAX;
    rules.limits.memory_bytes = waiting.memory;
    // A file needs no memory limit per sender. If memory runs out, the datagram that has waited longest is abandoned.
    rules.limits.source_bytes = usize::MAX;
    rules.limits.ipv4_ns = waiting.timeout;
    rules.limits.ipv6_ns = waiting.timeout;
    // On a host, many fragments in between mean that an IP ID was reused (rule F4). In a file, they only show how many
    // datagrams were in flight at once.
    rules.limits.distance = waiting.distance;
    rules
}

/// Maximum number of incomplete datagrams per interface and direction. The default memory cannot hold this many.
const DATAGRAMS_MAX: usize = 16384;
