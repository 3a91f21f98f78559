//! Benchmark step that decapsulates and coalesces tunneled traffic.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta,
    tunnel::decapsulate::{Decapsulation, DecapsulationRules, Presented},
};
use grosso_testkit::workloads::{POLL, Workload};
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use crate::{SEED, step::Step};

/// The order of decapsulation and coalescing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Decapsulate each packet, then merge the inner packets.
    Packets,
    /// Merge the packets with their tunnel headers, then decapsulate the superframes.
    Superframes,
}

impl Ends {
    /// Both orders.
    pub const ALL: [Self; 2] = [Self::Packets, Self::Superframes];

    /// Returns the name shown in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Superframes => "superframes",
        }
    }
}

/// A step that decapsulates the packets of a workload and coalesces them, in polls, repeatedly. No checksums were
/// verified before.
#[derive(Debug)]
pub struct Terminator<'a> {
    frames: &'a [Vec<u8>],
    ends: Ends,
    rules: DecapsulationRules,
    stack: Stack,
    coalescer: Coalescer<&'a [u8]>,
    whole: Vec<u8>,
    next: usize,
    /// Number of bytes delivered.
    pub delivered_bytes: u64,
    /// Number of frames delivered.
    pub delivered: u64,
}

impl<'a> Terminator<'a> {
    /// Creates a terminator at the first poll of the workload.
    #[must_use]
    pub fn new(workload: &'a Workload, ends: Ends) -> Self {
        let mut rules = DecapsulationRules::default();
        rules.presented = Presented::Alone;
        let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
        Self {
            frames: &workload.frames,
            ends,
            rules,
            stack: Stack::new(0),
            coalescer: Coalescer::new(CoalesceOptions::new(link, SEED).ports(ports)),
            whole: Vec::new(),
            next: 0,
            delivered_bytes: 0,
            delivered: 0,
        }
    }

    /// Processes every poll of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.frames.len().div_ceil(POLL)).map(|_| self.step()).sum()
    }

    fn poll(&self) -> &'a [Vec<u8>] {
        &self.frames[self.next..self.frames.len().min(self.next + POLL)]
    }
}

impl<'a> Step for Terminator<'a> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.poll().iter().map(Vec::as_slice)
    }

    /// Processes one poll and returns the number of packets received.
    fn step(&mut self) -> usize {
        let poll = self.poll();
        let Self { ends, rules, stack, coalescer, whole, delivered_bytes, delivered, .. } = self;
        let mut plan = |frame: &[u8], meta: &Meta| {
            dissect_into(frame, LinkType::Ethernet, &Ports::ASSIGNED, stack);
            Decapsulation::plan(frame, stack, meta, LinkType::Ethernet, rules)
        };
        match ends {
            Ends::Packets => {
                let mut sink = |mut delivery: Delivery<'_, &'a [u8]>| {
                    *delivered += 1;
                    *delivered_bytes += delivery.header().len() as u64;
                    while let Some(part) = delivery.next_part() {
                        *delivered_bytes += part.bytes().len() as u64;
                    }
                };
                for frame in poll {
                    let Ok(plan) = plan(frame, &Meta::default()) else { continue };
                    let packet = frame.get(plan.inner()).unwrap_or_default();
                    let _ = coalescer.push(Frame { buffer: packet, meta: plan.meta }, 0, &mut sink);
                }
                coalescer.poll_end(0, &mut sink);
            }
            Ends::Superframes => {
                // A superframe is decapsulated as one piece, so its payload is copied.
                let mut sink = |delivery: Delivery<'_, &'a [u8]>| {
                    whole.clear();
                    delivery.copy_to(whole);
                    let Ok(plan) = plan(whole, &delivery.meta) else { return };
                    *delivered += 1;
                    *delivered_bytes += plan.inner().len() as u64;
                };
                for frame in poll {
                    let _ = coalescer.push(Frame::new(frame.as_slice()), 0, &mut sink);
                }
                coalescer.poll_end(0, &mut sink);
            }
        }
        self.next = (self.next + POLL) % self.frames.len().next_multiple_of(POLL);
        poll.len()
    }
}

#[cfg(test)]
mod tests {
    use grosso_testkit::workloads::workload;

    use super::*;
    use crate::TERMINATED;

    #[test]
    fn both_ways_give_the_same_superframes() {
        for &name in TERMINATED {
            let workload = workload(name, SEED);
            let came_out = |ends| {
                let mut terminator = Terminator::new(&workload, ends);
                terminator.trace();
                (terminator.delivered, terminator.delivered_bytes)
            };
            let (frames, bytes) = came_out(Ends::Packets);
            assert!(frames > 0 && frames * 6 < workload.frames.len() as u64, "{name}: {frames}");
            assert_eq!((frames, bytes), came_out(Ends::Superframes), "{name}");
        }
    }
}
