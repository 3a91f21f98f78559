//! One held train, and all of them: slots, age and the counters that barriers ask.

use alloc::{boxed::Box, vec, vec::Vec};

use grosso_wire::Stack;

use crate::{
    bytes::{u16_at, u32_at},
    coalesce::{
        examine::Candidate,
        pool::{List, Part},
        reason::{Close, NoMerge},
    },
    flow::Place,
    meta::{IpLevels, Meta},
    template::compare,
};

/// A train: its first packet, which is the template, and what the laws need to know of the rest.
#[derive(Debug)]
pub(crate) struct Train<B> {
    /// The first packet, whole.
    pub(crate) first: Part<B>,
    /// The payloads of the others.
    pub(crate) rest: List,
    pub(crate) meta: Meta,
    pub(crate) stack: Stack,
    /// Where its flow stands in the table.
    pub(crate) place: Place,
    pub(crate) created_ns: u64,
    pub(crate) header_len: usize,
    /// Where the transport header starts.
    pub(crate) transport: usize,
    pub(crate) payload_len: usize,
    pub(crate) payload_max: usize,
    /// Payload bytes of every packet but the last.
    pub(crate) size: u16,
    pub(crate) packets: u16,
    /// FIN and PSH of the last packet.
    pub(crate) ending_flags: u8,
    pub(crate) fixed_ids: IpLevels,
    pub(crate) is_tcp: bool,
    pub(crate) partial: bool,
    pub(crate) remote_checksum: bool,
    pub(crate) verified_levels: u8,
    /// Outermost addresses, for barriers.
    pub(crate) pair: u32,
    older: u32,
    newer: u32,
}

impl<B: AsRef<[u8]>> Train<B> {
    #[inline]
    pub(crate) fn start(
        first: Part<B>,
        meta: Meta,
        stack: Stack,
        candidate: &Candidate,
        place: Place,
        now_ns: u64,
    ) -> Self {
        Self {
            first,
            rest: List::EMPTY,
            meta,
            stack,
            place,
            created_ns: now_ns,
            header_len: candidate.header_len,
            transport: candidate.transport,
            payload_len: candidate.payload_len,
            payload_max: candidate.payload_max,
            size: candidate.size,
            packets: candidate.packets,
            ending_flags: 0,
            fixed_ids: candidate.fixed_ids,
            is_tcp: candidate.is_tcp,
            partial: candidate.partial,
            remote_checksum: candidate.remote_checksum,
            verified_levels: candidate.verified_levels,
            pair: candidate.pair,
            older: NONE,
            newer: NONE,
        }
    }

    /// Whether a packet obeys every law of this train; the order of the questions is that of their cost.
    #[inline]
    pub(crate) fn admits(
        &self,
        packet: &[u8],
        candidate: &Candidate,
        meta: &Meta,
        segments_max: u16,
    ) -> Result<IpLevels, NoMerge> {
        let first = self.first.buffer.as_ref();
        if candidate.header_len != self.header_len || !compare::equal(&self.stack, first, packet) {
            return Err(compare::difference(&self.stack, first, packet));
        }
        if self.is_tcp {
            self.admits_sequence(first, packet)?;
        }
        let fixed_ids = self.admits_identifications(first, packet, candidate)?;
        self.admits_size(candidate, segments_max)?;
        if candidate.partial != self.partial {
            return Err(NoMerge::ChecksumState);
        }
        if meta.vlan != self.meta.vlan {
            return Err(NoMerge::VlanTag);
        }
        Ok(fixed_ids)
    }

    /// Rule G32.8, in serial arithmetic (RFC 9293 section 3.4).
    #[inline]
    fn admits_sequence(&self, first: &[u8], packet: &[u8]) -> Result<(), NoMerge> {
        let at = self.transport + 4;
        let expected = u32_at(first, at).wrapping_add(self.payload_len as u32);
        match u32_at(packet, at).wrapping_sub(expected) as i32 {
            0 => Ok(()),
            ..0 => Err(NoMerge::TcpSequenceBehind),
            _ => Err(NoMerge::TcpSequenceAhead),
        }
    }

    /// Rule G14: the second packet decides whether the identification of an IP level steps or stays.
    #[inline]
    fn admits_identifications(
        &self,
        first: &[u8],
        packet: &[u8],
        candidate: &Candidate,
    ) -> Result<IpLevels, NoMerge> {
        let mut fixed = self.fixed_ids;
        let decided = self.packets > 1;
        let mut level = 0;
        for layer in self.stack.layers() {
            match layer.kind {
                grosso_wire::Kind::Ipv4 => {
                    let at = layer.offset as usize + 4;
                    let step = u16_at(packet, at).wrapping_sub(u16_at(first, at));
                    // A superframe of several packets brings its own mode along.
                    let brings_fixed =
                        (candidate.packets > 1).then(|| candidate.fixed_ids.contains(level));
                    if !decided && step == 0 && brings_fixed != Some(false) {
                        fixed = fixed.with(level);
                    }
                    let is_fixed = fixed.contains(level);
                    let expected = if is_fixed { 0 } else { self.packets };
                    if step != expected || brings_fixed.is_some_and(|brought| brought != is_fixed) {
                        return Err(NoMerge::Identification);
                    }
                    level += 1;
                }
                grosso_wire::Kind::Ipv6 => level += 1,
                _ => {}
            }
        }
        Ok(fixed)
    }

    /// Rules G32.6, G32.7, G60, U12.
    #[inline]
    fn admits_size(&self, candidate: &Candidate, segments_max: u16) -> Result<(), NoMerge> {
        if candidate.size > self.size {
            return Err(NoMerge::Longer);
        }
        if candidate.packets > 1 && candidate.size != self.size {
            return Err(NoMerge::SuperframeSize);
        }
        if self.payload_len + candidate.payload_len > self.payload_max {
            return Err(NoMerge::SizeLimit);
        }
        if u32::from(self.packets) + u32::from(candidate.packets) > u32::from(segments_max) {
            return Err(NoMerge::SegmentLimit);
        }
        Ok(())
    }
}

/// All held trains.
#[derive(Debug)]
pub(crate) struct Trains<B> {
    slots: Vec<Option<Train<B>>>,
    free: Vec<u32>,
    /// The outermost addresses of the train in each slot, zero when it is free: what a barrier scans.
    pairs: Vec<u32>,
    /// Held trains by part of their addresses' hash, so that most barriers need not scan.
    pair_counts: Box<[u16]>,
    oldest: u32,
    newest: u32,
    limit: usize,
}

impl<B: AsRef<[u8]>> Trains<B> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            pairs: Vec::new(),
            pair_counts: vec![0; PAIR_COUNTS].into_boxed_slice(),
            oldest: NONE,
            newest: NONE,
            limit: limit.clamp(1, FLOWS_MAX),
        }
    }

    /// Whether another train would exceed the limit.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.limit
    }

    /// Holds a train, as the newest; there must be room.
    #[inline]
    pub(crate) fn insert(&mut self, mut train: Train<B>) -> u32 {
        train.older = self.newest;
        train.newer = NONE;
        let pair = train.pair;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.grow(),
        };
        self.pair_counts[pair as usize % PAIR_COUNTS] += 1;
        self.pairs[slot as usize] = pair;
        self.slots[slot as usize] = Some(train);
        match self.newest {
            NONE => self.oldest = slot,
            newest => {
                if let Some(newest) = self.train_mut(newest) {
                    newest.newer = slot;
                }
            }
        }
        self.newest = slot;
        slot
    }

    /// Lets a train go.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Train<B>> {
        let train = self.slots.get_mut(slot as usize)?.take()?;
        self.pair_counts[train.pair as usize % PAIR_COUNTS] -= 1;
        self.pairs[slot as usize] = 0;
        self.free.push(slot);
        match self.train_mut(train.older) {
            Some(older) => older.newer = train.newer,
            None => self.oldest = train.newer,
        }
        match self.train_mut(train.newer) {
            Some(newer) => newer.older = train.older,
            None => self.newest = train.older,
        }
        Some(train)
    }

    #[inline]
    pub(crate) fn train(&self, slot: u32) -> Option<&Train<B>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn train_mut(&mut self, slot: u32) -> Option<&mut Train<B>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// The slot of the train that was created first, and when.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<(u32, u64)> {
        self.train(self.oldest).map(|train| (self.oldest, train.created_ns))
    }

    /// The oldest of these slots, by creation.
    pub(crate) fn oldest_of(&self, slots: &[u32]) -> Option<u32> {
        let mut at = self.oldest;
        loop {
            let train = self.train(at)?;
            if slots.contains(&at) {
                return Some(at);
            }
            at = train.newer;
        }
    }

    /// The slot of a train between these addresses.
    pub(crate) fn between(&self, pair: u32) -> Option<u32> {
        if self.pair_counts[pair as usize % PAIR_COUNTS] == 0 {
            return None;
        }
        self.pairs.iter().position(|&held| held == pair).map(|slot| slot as u32)
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let slot = self.slots.len() as u32;
        self.slots.push(None);
        self.pairs.push(0);
        // Every slot may be free at once, and freeing one must not allocate.
        self.free.reserve(self.slots.len());
        slot
    }
}

/// Which flags of a packet end the train that it joins, and as what (rule G36).
#[inline]
pub(crate) fn ending(flags: u8) -> Option<Close> {
    const FIN: u8 = grosso_wire::tcp::FIN as u8;
    match flags & compare::ON_LAST_ONLY {
        0 => None,
        flags if flags & FIN != 0 => Some(Close::Finish),
        _ => Some(Close::Push),
    }
}

/// No slot.
const NONE: u32 = u32::MAX;

/// Most trains that any limit allows.
const FLOWS_MAX: usize = 1 << 20;

/// Counters of held trains by address pair.
const PAIR_COUNTS: usize = 1024;
