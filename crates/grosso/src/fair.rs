//! Fair dropping of frames from a queue that fills up.
//!
//! A full queue drops every arriving frame, so a small flow loses the same fraction of its packets as the flows that
//! filled the queue. [`FairShare`] drops frames earlier, and only those of flows above the max-min fair share: a flow
//! that uses less than an equal share loses nothing. It drops a flow's oldest frames, so that the sender detects the
//! loss as soon as possible and no frame is reordered.
//!
//! The frames themselves stay in the owner's queue and are not copied. Whenever the owner removes a frame, it asks
//! whether to drop it.
//!
//! ```
//! use grosso::fair::FairShare;
//! use grosso_wire::{LinkType, Ports};
//! # use grosso_testkit::Packet;
//! # let from = |port| {
//! #     let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
//! #     packet.udp(|udp| udp.source_port(port).destination_port(9)).build()
//! # };
//! # let (greedy, quiet) = (from(1), from(2));
//!
//! let mut fair = FairShare::new(LinkType::Ethernet, Ports::ASSIGNED, 7);
//! for frame in [&greedy, &greedy, &quiet, &greedy] {
//!     fair.join(frame);
//! }
//! fair.shed(2, 0);
//! let dropped: Vec<bool> = (0..4).map(|_| fair.leave()).collect();
//! assert_eq!(dropped, [true, true, false, false], "each flow keeps one frame");
//! ```

use alloc::{boxed::Box, collections::VecDeque, vec, vec::Vec};

use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use crate::flow::{FlowHasher, Keys};

/// Record of the frames in one queue: the flow of each frame, and the number of queued frames per flow.
#[derive(Debug)]
pub struct FairShare {
    link: LinkType,
    ports: Ports,
    hasher: FlowHasher,
    stack: Stack,
    /// Number of queued frames to keep in each bucket. Flows in the same bucket share its allowance.
    waiting: Box<[u32; BUCKETS]>,
    /// Scratch space for [`Self::level`], kept to reuse its memory.
    counts: Vec<u32>,
    /// Queued frames, starting with the oldest.
    queue: VecDeque<Counted>,
    /// Number of queued frames that are not marked for dropping.
    kept: usize,
    /// Time in nanoseconds after which the queue no longer counts as shared by several flows.
    shared_until_ns: u64,
}

/// A frame in the queue.
#[derive(Clone, Copy, Debug)]
struct Counted {
    bucket: u16,
    is_shed: bool,
}

impl FairShare {
    /// Creates the record of an empty queue. `seed` should be random, so that an attacker cannot choose flows that
    /// share a bucket with a victim's flow.
    #[must_use]
    pub fn new(link: LinkType, ports: Ports, seed: u64) -> Self {
        Self {
            link,
            ports,
            hasher: FlowHasher::new(seed),
            stack: Stack::new(0),
            waiting: vec![0; BUCKETS].try_into().unwrap_or_else(|_| Box::new([0; BUCKETS])),
            counts: Vec::new(),
            queue: VecDeque::new(),
            kept: 0,
            shared_until_ns: 0,
        }
    }

    /// Returns the number of queued frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a frame at the end of the queue.
    pub fn join(&mut self, frame: &[u8]) {
        dissect_into(frame, self.link, &self.ports, &mut self.stack);
        let keys = Keys::of(self.stack.layers(), frame);
        let hash = u64::from(self.hasher.flow(frame, &keys));
        let bucket = (hash % BUCKETS as u64) as u16;
        *self.of(bucket) += 1;
        self.queue.push_back(Counted { bucket, is_shed: false });
        self.kept += 1;
    }

    /// Marks frames of flows above their fair share for dropping, so that at most `keep` frames remain. Marks none if a
    /// single flow has had the queue to itself for some time, because no other flow would benefit.
    pub fn shed(&mut self, keep: usize, now_ns: u64) {
        if self.kept <= keep {
            return;
        }
        let (level, flows) = self.level(keep);
        if flows > 1 {
            self.shared_until_ns = now_ns.saturating_add(SHARED_NS);
        } else if now_ns >= self.shared_until_ns {
            return;
        }
        let Self { waiting, queue, kept, .. } = self;
        for place in queue.iter_mut().filter(|place| !place.is_shed) {
            let waiting = &mut waiting[place.bucket as usize % BUCKETS];
            if *waiting > level {
                *waiting -= 1;
                *kept -= 1;
                place.is_shed = true;
            }
        }
    }

    /// Removes the oldest frame from the record and returns whether the owner must drop it. Returns false if the record
    /// is empty.
    pub fn leave(&mut self) -> bool {
        let Some(place) = self.queue.pop_front() else { return false };
        if !place.is_shed {
            *self.of(place.bucket) -= 1;
            self.kept -= 1;
        }
        place.is_shed
    }

    /// Returns the maximum number of frames per flow (at least one) such that all flows together keep at most `keep`
    /// frames, and the number of flows.
    fn level(&mut self, keep: usize) -> (u32, usize) {
        let Self { waiting, counts, .. } = self;
        counts.clear();
        counts.extend(waiting.iter().filter(|waiting| **waiting > 0));
        counts.sort_unstable();
        let mut left = keep;
        for (at, own) in counts.iter().map(|own| *own as usize).enumerate() {
            let share = left / (counts.len() - at);
            if own > share {
                return (share.max(1) as u32, counts.len());
            }
            left -= own;
        }
        (u32::MAX, counts.len())
    }

    fn of(&mut self, bucket: u16) -> &mut u32 {
        &mut self.waiting[bucket as usize % BUCKETS]
    }
}

/// Number of buckets. Two flows share a bucket with probability 1/4096.
const BUCKETS: usize = 4096;
/// Time in nanoseconds for which a queue counts as shared after it held frames of several flows. During this time, a
/// flow that is alone in the queue is limited too, because a slow flow seldom has a packet in the queue although it
/// uses it.
const SHARED_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests;
