//! Benchmark step that coalesces a workload.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile,
    checksum::{Checksum, make_partial},
};
use grosso_testkit::workloads::{POLL, Workload};
use grosso_wire::{LinkType, Ports, dissect};

use crate::{
    SEED,
    step::{Cache, Step},
};

/// The party that verifies the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The device, which has verified the checksums of all levels.
    Trusted,
    /// The engine, which reads the payload in order to verify checksums that have not been verified before.
    Verified,
}

impl Trust {
    /// Both verifiers, the cheaper one first.
    pub const ALL: [Self; 2] = [Self::Trusted, Self::Verified];

    /// Returns the name shown in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Verified => "verified",
        }
    }

    /// Returns the corresponding checksum state.
    #[must_use]
    pub const fn checksum(self) -> Checksum {
        match self {
            Self::Trusted => Checksum::Unnecessary { levels: u8::MAX },
            Self::Verified => Checksum::None,
        }
    }
}

/// Makes the innermost checksum of each packet partial, as a sending host does if its device completes checksums.
/// Returns the checksum state to put into every packet's metadata.
#[must_use]
pub fn leave_checksums(workload: &mut Workload) -> Checksum {
    let mut left = Checksum::None;
    for frame in &mut workload.frames {
        let stack = dissect(frame, LinkType::Ethernet, &Ports::ASSIGNED);
        left = make_partial(frame, &stack);
    }
    left
}

/// A step that coalesces the frames of a workload in polls, repeatedly. The buffers are slices of the trace.
#[derive(Debug)]
pub struct Receiver<'a> {
    frames: &'a [Vec<u8>],
    coalescer: Coalescer<&'a [u8]>,
    meta: Meta,
    next: usize,
    /// Prefetching distance in packets; zero disables prefetching.
    ahead: usize,
    delivered_bytes: u64,
}

impl<'a> Receiver<'a> {
    /// Creates a receiver with the profile `linux`, at the first poll of the workload.
    #[must_use]
    pub fn new(workload: &'a Workload, trust: Trust) -> Self {
        Self::with_profile(workload, Profile::linux(), trust)
    }

    /// Creates a receiver with the given profile.
    #[must_use]
    pub fn with_profile(workload: &'a Workload, profile: Profile, trust: Trust) -> Self {
        let meta = Meta { checksum: trust.checksum(), ..Meta::default() };
        let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
        let coalescer =
            Coalescer::new(CoalesceOptions::new(link, SEED).profile(profile).ports(ports));
        Self { frames: &workload.frames, coalescer, meta, next: 0, ahead: 0, delivered_bytes: 0 }
    }

    /// Returns the receiver for a workload whose innermost checksums [are left to a device](leave_checksums).
    #[must_use]
    pub fn completing(self, checksum: Checksum) -> Self {
        Self { meta: Meta { checksum, ..self.meta }, ..self }
    }

    /// Enables prefetching: packets that are not in the cache are fetched from memory while earlier packets are
    /// coalesced.
    #[must_use]
    pub fn fetching(self, cache: Cache) -> Self {
        Self { ahead: if cache == Cache::Cold { AHEAD } else { 0 }, ..self }
    }

    /// Coalesces every poll of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.frames.len().div_ceil(POLL)).map(|_| self.step()).sum()
    }

    /// Returns the number of packets pushed per delivered frame.
    #[must_use]
    pub fn packets_a_frame(&self) -> f64 {
        let stats = self.coalescer.stats();
        stats.packets_out as f64 / stats.frames_out.max(1) as f64
    }

    fn poll(&self) -> &'a [Vec<u8>] {
        &self.frames[self.next..self.frames.len().min(self.next + POLL)]
    }
}

impl<'a> Step for Receiver<'a> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.poll().iter().map(Vec::as_slice)
    }

    /// Processes one poll and returns the number of packets pushed.
    #[inline]
    fn step(&mut self) -> usize {
        let poll = self.poll();
        let delivered_bytes = &mut self.delivered_bytes;
        let mut sink = |mut delivery: Delivery<'_, &'a [u8]>| {
            *delivered_bytes += delivery.header().len() as u64;
            while let Some(part) = delivery.next_part() {
                *delivered_bytes += part.bytes().len() as u64;
            }
        };
        for (index, frame) in poll.iter().enumerate() {
            if self.ahead > 0
                && let Some(buffer) = self.frames.get(self.next + index + self.ahead)
            {
                self.coalescer.prefetch(&Frame { buffer, meta: self.meta });
            }
            let _ = self.coalescer.push(Frame { buffer: frame, meta: self.meta }, 0, &mut sink);
        }
        self.coalescer.poll_end(0, &mut sink);
        self.next = (self.next + POLL) % self.frames.len().next_multiple_of(POLL);
        poll.len()
    }
}

/// Distance in packets between the packet being coalesced and the one being prefetched. One packet is not enough if
/// coalescing a packet takes less time than fetching one.
const AHEAD: usize = 2;
