//! Finds the IP fragments in captures that form complete datagrams, and the reasons why other fragments do not.

mod lanes;
mod survey;

use grosso::reassemble::{Datagram, Overlap, ReassemblyMode, ReassemblyRules};

pub use self::{
    lanes::{Arrival, Lanes, Visitor},
    survey::Survey,
};

/// Limits for incomplete datagrams, and the policy for overlapping fragments.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Capture time to wait for the rest of a datagram, in nanoseconds.
    pub timeout: u64,
    /// The policy for overlapping fragments.
    pub overlap: Overlap,
    /// Maximum number of bytes of incomplete datagrams.
    pub memory: usize,
    /// Limit after which an IPv4 datagram is abandoned: the number of fragments of other datagrams from the same source
    /// since its last fragment; 0 means no limit.
    pub distance: u32,
}

impl Waiting {
    /// Default time to wait, in the syntax of the command line.
    pub const TIMEOUT: &str = "30s";
    /// Name of the default policy for overlapping fragments.
    pub const OVERLAP: &str = "drop";
    /// Default limit of memory, in the syntax of the command line.
    pub const MEMORY: &str = "64M";
    /// Default limit for fragments of other datagrams, in the syntax of the command line.
    pub const DISTANCE: &str = "0";
}

impl Default for Waiting {
    /// Creates limits of 30 seconds and 64 MiB, without a limit for the number of other fragments.
    fn default() -> Self {
        Self { timeout: 30_000_000_000, overlap: Overlap::Drop, memory: 64 << 20, distance: 0 }
    }
}

/// The datagram that a packet completed, if any.
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

/// Returns the rules for reassembling the fragments of a file.
pub fn rules(waiting: &Waiting) -> ReassemblyRules {
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = waiting.overlap;
    rules.limits.datagrams = DATAGRAMS_MAX;
    rules.limits.memory_bytes = waiting.memory;
    // A file needs no memory limit per sender. If memory runs out, the datagram that has waited longest is abandoned.
    rules.limits.source_bytes = usize::MAX;
    rules.limits.ipv4_ns = waiting.timeout;
    rules.limits.ipv6_ns = waiting.timeout;
    // On a host, many fragments in between mean that an identification was reused (rule F4). In a file, they only show
    // how many datagrams were in flight at once.
    rules.limits.distance = waiting.distance;
    rules
}

/// Maximum number of incomplete datagrams per interface and direction: more than the default memory can hold.
const DATAGRAMS_MAX: usize = 16384;
