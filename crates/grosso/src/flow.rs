//! Flows: what identifies them, and the bounded table that finds the held train of one.
//!
//! A flow is the 5-tuple of every IP level down to the deepest that can be read, with the identifiers in between:
//! VLAN, MPLS label, PPPoE session, VNI. It is kept only as a seeded hash. Two flows with one hash cost a train that
//! ends early; they are never merged, because a merge compares the headers themselves (P21).

use alloc::{boxed::Box, vec};
use core::{
    hash::{BuildHasher, Hasher},
    ops::Range,
};

use arrayvec::ArrayVec;
use foldhash::fast::FixedState;
use grosso_wire::{Kind, Layer, geneve, ipv4, ipv6, mpls, pppoe, udp, vlan, vxlan};

use crate::{
    bytes::u64_at,
    coalesce::profile::{BucketChoice, TableShape},
};

/// The seeded hash of a flow, and of its outermost pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowHash {
    /// All of the flow.
    pub(crate) flow: u64,
    /// Only the outermost addresses; zero when there are none.
    pub(crate) pair: u32,
}

/// Where the identifying fields of a header stack lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    words: ArrayVec<KeyWord, KEY_WORDS_MAX>,
    /// How many of the first words, from which one on, are the outermost addresses.
    addresses: Range<u8>,
    /// What the header kinds add: two stacks whose words agree by chance are different flows.
    kinds: u64,
}

/// Eight bytes of a frame, and which bits of them identify.
#[derive(Clone, Copy, Debug)]
struct KeyWord {
    at: u16,
    mask: u64,
}

impl Keys {
    /// The identifying fields of these headers: the laws that are [`crate::template::laws::Law::Key`].
    pub(crate) fn of(layers: &[Layer]) -> Self {
        let mut keys = Self::default();
        for layer in layers {
            match layer.kind {
                Kind::Ipv4 => keys.addresses(layer.offset, ipv4::field::SOURCE.start, 1),
                Kind::Ipv6 => keys.addresses(layer.offset, ipv6::field::SOURCE.start, 4),
                // Source and destination port.
                Kind::Tcp | Kind::Udp => {
                    keys.kinds = keys.kinds << 8 | layer.kind as u64;
                    keys.word(layer.offset, udp::field::SOURCE_PORT.start, u64::MAX << 32);
                }
                Kind::Vlan => keys.word(layer.offset, vlan::field::TCI.start, 0x0fff << 48),
                Kind::Vxlan | Kind::VxlanGpe => {
                    keys.word(layer.offset, vxlan::field::VNI.start, u64::MAX << 40);
                }
                Kind::Geneve => keys.word(layer.offset, geneve::field::VNI.start, u64::MAX << 40),
                Kind::Mpls => keys.word(layer.offset, mpls::field::ENTRY.start, u64::MAX << 44),
                Kind::Pppoe => keys.word(layer.offset, pppoe::field::SESSION.start, u64::MAX << 48),
                _ => {}
            }
        }
        keys
    }

    fn addresses(&mut self, header: u16, start: usize, words: u8) {
        let first = self.words.len() as u8;
        if self.addresses.is_empty() {
            self.addresses = first..first + words;
        }
        for word in 0..words {
            self.word(header, start + usize::from(word) * 8, u64::MAX);
        }
    }

    /// Words beyond the room for them are left out, which only makes more packets look like one flow.
    fn word(&mut self, header: u16, start: usize, mask: u64) {
        let word = KeyWord { at: header + start as u16, mask };
        let _ = self.words.try_push(word);
    }
}

/// Hashes flows with one random seed.
#[derive(Clone, Debug)]
pub(crate) struct FlowHasher {
    state: FixedState,
    pair_factor: u64,
}

impl FlowHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: FixedState::with_seed(seed), pair_factor: seed | 1 }
    }

    /// Hashes the identifying fields of one packet.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], keys: &Keys) -> FlowHash {
        let mut flow = self.state.build_hasher();
        let mut addresses = 0_u64;
        for (i, word) in keys.words.iter().enumerate() {
            let value = u64_at(packet, word.at as usize) & word.mask;
            flow.write_u64(value);
            if keys.addresses.contains(&(i as u8)) {
                addresses = value ^ addresses.rotate_left(7);
            }
        }
        flow.write_u64(keys.kinds);
        let pair = ((addresses ^ addresses >> 29).wrapping_mul(self.pair_factor) >> 32) as u32 | 1;
        FlowHash { flow: flow.finish(), pair: if keys.addresses.is_empty() { 0 } else { pair } }
    }
}

/// Ways of a bucket. Together with their tags they fill one cache line.
pub(crate) const WAYS: usize = 8;

/// Where an entry lies in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    bucket: u32,
    way: u32,
}

/// A set-associative table from flow to the slot of its train: one cache line a lookup.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    choice: BucketChoice,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket {
    /// Part of the flow's hash, never zero; zero marks a free way.
    tags: [u32; WAYS],
    slots: [u32; WAYS],
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The slot of the flow's train.
    Slot(u32),
    /// Nothing, and this place is free.
    Free(Place),
    /// Nothing, and the bucket is full.
    Full(u32),
}

impl Table {
    pub(crate) fn new(shape: TableShape) -> Self {
        let buckets = shape.buckets.clamp(1, BUCKETS_MAX).next_power_of_two();
        let empty = Bucket { tags: [0; WAYS], slots: [0; WAYS] };
        Self { buckets: vec![empty; buckets].into_boxed_slice(), choice: shape.choice }
    }

    /// Looks a flow up.
    #[inline]
    pub(crate) fn find(&self, hash: u64, device_hash: Option<u32>) -> Found {
        let choice = match self.choice {
            BucketChoice::Seeded => hash as usize,
            BucketChoice::Device => device_hash.unwrap_or(0) as usize,
        };
        let index = choice & (self.buckets.len() - 1);
        let bucket = &self.buckets[index];
        let tag = tag(hash);
        for way in 0..WAYS {
            if bucket.tags[way] == tag {
                return Found::Slot(bucket.slots[way]);
            }
        }
        match bucket.tags.iter().position(|&tag| tag == 0) {
            Some(way) => Found::Free(Place { bucket: index as u32, way: way as u32 }),
            None => Found::Full(index as u32),
        }
    }

    /// Puts a flow into a free place.
    #[inline]
    pub(crate) fn insert(&mut self, place: Place, hash: u64, slot: u32) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket as usize) {
            bucket.tags[place.way as usize & (WAYS - 1)] = tag(hash);
            bucket.slots[place.way as usize & (WAYS - 1)] = slot;
        }
    }

    /// Frees a place.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket as usize) {
            bucket.tags[place.way as usize & (WAYS - 1)] = 0;
        }
    }

    /// The slots of a full bucket.
    pub(crate) fn slots(&self, bucket: u32) -> [u32; WAYS] {
        self.buckets.get(bucket as usize).map_or([0; WAYS], |bucket| bucket.slots)
    }
}

#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

/// Most buckets of a table: 2 MiB of cache lines.
const BUCKETS_MAX: usize = 1 << 15;

/// Words of identifying fields that are hashed: five IPv6 levels with everything in between.
const KEY_WORDS_MAX: usize = 32;
