//! IP fragments in captures: those that become datagrams, and the reasons why the others do not.

mod lanes;
mod survey;

use grosso::reassemble::{Datagram, ReassemblyMode, ReassemblyRules};

pub(crate) use self::{
    lanes::{Arrival, Lanes, Visitor},
    survey::Survey,
};
use crate::arguments::Waiting;

/// The datagram that a packet completed, if any.
#[derive(Default)]
pub(crate) struct Joined {
    pub(crate) is_whole: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Visitor for Joined {
    fn datagram(&mut self, _lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        self.is_whole = true;
        self.bytes.clear();
        datagram.copy_to(&mut self.bytes);
    }
}

/// The rules by which fragments of a file are joined.
pub(crate) fn rules(waiting: &Waiting) -> ReassemblyRules {
    let mut rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    rules.overlap = waiting.overlap.into();
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
