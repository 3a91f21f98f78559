//! IP fragments in captures: those that become datagrams, and the reasons why the others do not.

mod lanes;
mod survey;

use grosso::reassemble::{Datagram, Overlap, ReassemblyMode, ReassemblyRules};

pub use self::{
    lanes::{Arrival, Lanes, Visitor},
    survey::Survey,
};

/// The bounds of the wait for fragments, and the policy for overlaps.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Nanoseconds of capture time to wait for the rest of a datagram.
    pub timeout: u64,
    /// The policy for overlapping fragments.
    pub overlap: Overlap,
    /// Most bytes of incomplete datagrams.
    pub memory: usize,
    /// An IPv4 datagram is given up once more than this many other fragments from its source have arrived since its
    /// last one; 0 means no limit.
    pub distance: u32,
}

/// The datagram that a packet completed, if any.
#[derive(Default)]
pub struct Joined {
    /// Whether the packet completed one.
    pub is_whole: bool,
    /// The bytes of the datagram.
    pub bytes: Vec<u8>,
}

impl Visitor for Joined {
    fn datagram(&mut self, _lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        self.is_whole = true;
        self.bytes.clear();
        datagram.copy_to(&mut self.bytes);
    }
}

/// The rules by which fragments of a file are joined.
pub fn rules(waiting: &Waiting) -> ReassemblyRules {
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = waiting.overlap;
    rules.limits.datagrams = DATAGRAMS_MAX;
    rules.limits.memory_bytes = waiting.memory;
    // No sender competes for memory in a file: if it is short, the datagram that waited longest is given up.
    rules.limits.source_bytes = usize::MAX;
    rules.limits.ipv4_ns = waiting.timeout;
    rules.limits.ipv6_ns = waiting.timeout;
    // On a host, many fragments in between mean that an identification was used again, since its memory is short (rule
    // F4). In a file they only tell how many datagrams were in flight at once.
    rules.limits.distance = waiting.distance;
    rules
}

/// Most incomplete datagrams of an interface and direction at once: more than the default memory can hold.
const DATAGRAMS_MAX: usize = 16384;
