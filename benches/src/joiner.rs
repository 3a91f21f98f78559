//! Benchmark step that reassembles the fragments of a workload.

use grosso::{
    Frame,
    reassemble::{Outcome, Reassembler, ReassemblyMode, ReassemblyRules},
};
use grosso_testkit::workloads::{POLL, Workload};
use grosso_wire::{LinkType, Ports};

use crate::{SEED, step::Step};

/// Reassembly method, which determines how a datagram is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Fragments are copied into pages, which are delivered.
    Coalesce,
    /// Fragments are copied into pages, and the transport checksum is verified from the sums of the copies.
    Verify,
    /// Fragments stay in their original buffers, and the delivery refers to them.
    KeepGeometry,
}

impl Join {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Coalesce, Self::Verify, Self::KeepGeometry];

    /// Returns the name shown in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coalesce => "coalesce",
            Self::Verify => "verify",
            Self::KeepGeometry => "geometry",
        }
    }

    fn rules(self) -> ReassemblyRules {
        let mode = if self == Self::KeepGeometry {
            ReassemblyMode::KeepGeometry
        } else {
            ReassemblyMode::Coalesce
        };
        let mut rules = ReassemblyRules::new(mode);
        rules.verify = self == Self::Verify;
        rules
    }
}

/// A step that reassembles the fragments of a workload in polls, repeatedly. The buffers are slices of the trace.
#[derive(Debug)]
pub struct Joiner<'a> {
    frames: &'a [Vec<u8>],
    reassembler: Reassembler<&'a [u8]>,
    next: usize,
    delivered_bytes: u64,
}

impl<'a> Joiner<'a> {
    /// Creates a joiner with the default rules, at the first poll of the workload.
    ///
    /// # Panics
    /// Never panics: the rules do not contradict each other.
    #[must_use]
    pub fn new(workload: &'a Workload, join: Join) -> Self {
        let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
        let reassembler = Reassembler::new(join.rules(), link, ports, SEED);
        let reassembler = reassembler.expect("rules without contradictions");
        Self { frames: &workload.frames, reassembler, next: 0, delivered_bytes: 0 }
    }

    /// Reassembles every fragment of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.frames.len().div_ceil(POLL)).map(|_| self.step()).sum()
    }

    /// Returns the number of datagrams reassembled so far.
    #[must_use]
    pub fn datagrams(&self) -> u64 {
        self.reassembler.stats().datagrams
    }

    fn poll(&self) -> &'a [Vec<u8>] {
        &self.frames[self.next..self.frames.len().min(self.next + POLL)]
    }
}

impl<'a> Step for Joiner<'a> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.poll().iter().map(Vec::as_slice)
    }

    /// Processes one poll and returns the number of fragments pushed.
    #[inline]
    fn step(&mut self) -> usize {
        let poll = self.poll();
        let delivered_bytes = &mut self.delivered_bytes;
        let mut sink = |outcome: Outcome<'_, &'a [u8]>| {
            if let Outcome::Datagram(datagram) = outcome {
                datagram.slices().for_each(|slice| *delivered_bytes += slice.len() as u64);
            }
        };
        for frame in poll {
            let _ = self.reassembler.push(Frame::new(frame), 0, &mut sink);
        }
        self.next = (self.next + POLL) % self.frames.len().next_multiple_of(POLL);
        poll.len()
    }
}
