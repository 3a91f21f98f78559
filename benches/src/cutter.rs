//! Benchmark step that fragments the datagrams of a workload.

use grosso::{
    Frame, Meta,
    reassemble::{Outcome, Reassembler, ReassemblyMode, ReassemblyRules},
    segment::{FragmentOptions, Fragments},
};
use grosso_testkit::workloads::Workload;
use grosso_wire::{LinkType, Ports};

use crate::{SEED, step::Step};

/// A step that fragments whole datagrams repeatedly, writing headers and copying data.
#[derive(Debug)]
pub struct Cutter {
    datagrams: Vec<Vec<u8>>,
    fragment: Vec<u8>,
    next: usize,
}

impl Cutter {
    /// Creates a cutter for the datagrams whose fragments the workload contains.
    ///
    /// # Panics
    /// Panics if the workload has no fragments.
    #[must_use]
    pub fn new(workload: &Workload) -> Self {
        let datagrams = joined(workload);
        assert!(!datagrams.is_empty(), "a workload of fragments");
        Self { datagrams, fragment: vec![0; 1 << 16], next: 0 }
    }

    /// Fragments every datagram once.
    pub fn trace(&mut self) -> usize {
        (0..self.datagrams.len()).map(|_| self.step()).sum()
    }
}

impl Step for Cutter {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.datagrams[self.next].as_slice())
    }

    /// Creates the fragments of one datagram. Returns their number.
    #[inline]
    fn step(&mut self) -> usize {
        let slices = [self.datagrams[self.next].as_slice()];
        let options = FragmentOptions::new(MTU, SEED as u32);
        let plan = Fragments::of_packet(&slices, &Meta::default(), LinkType::Ethernet, &options);
        let mut plan = plan.expect("a datagram that has fragments");
        let mut fragments = 0;
        while let Ok(Some(_)) = plan.write_next(core::hint::black_box(&mut self.fragment)) {
            fragments += 1;
        }
        self.next = (self.next + 1) % self.datagrams.len();
        fragments
    }
}

fn joined(workload: &Workload) -> Vec<Vec<u8>> {
    let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
    let reassembler =
        Reassembler::new(ReassemblyRules::new(ReassemblyMode::Coalesce), link, ports, SEED);
    let mut reassembler = reassembler.expect("rules without contradictions");
    let mut datagrams = Vec::new();
    for frame in &workload.frames {
        reassembler.push(Frame::new(frame.as_slice()), 0, &mut |outcome: Outcome<'_, &[u8]>| {
            if let Outcome::Datagram(datagram) = outcome {
                let mut whole = Vec::new();
                datagram.copy_to(&mut whole);
                datagrams.push(whole);
            }
        });
    }
    datagrams
}

/// MTU of the workloads' fragments.
const MTU: u16 = 1500;
