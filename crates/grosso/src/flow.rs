//! Flows: what identifies them, and the bounded table that finds the held train of one.
//!
//! A flow is the 5-tuple of every IP level down to the deepest that can be read, with the identifiers in between:
//! VLAN, MPLS label, PPPoE session, VNI. It is kept only as a seeded hash. Two flows with one hash cost a train that
//! ends early; they are never merged, because a merge compares the headers themselves (P21).

use alloc::{boxed::Box, vec};
use core::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use grosso_wire::{Kind, Layer, geneve, ipv4, ipv6, mpls, pppoe, udp, vlan, vxlan};

use crate::{
    bytes::{u16_at, u32_at, u64_at},
    coalesce::profile::{BucketChoice, TableShape},
};

/// The seeded hash of a flow, and of its outermost pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowHash {
    /// All of the flow.
    pub(crate) flow: u64,
    /// Only the outermost addresses; never zero.
    pub(crate) pair: u32,
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

    /// Hashes the identifying fields of `layers`, which are those of one packet.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], layers: &[Layer]) -> FlowHash {
        let mut flow = self.state.build_hasher();
        let mut pair = 0;
        for layer in layers {
            let start = layer.offset as usize;
            match layer.kind {
                Kind::Ipv4 => {
                    let addresses = u64_at(packet, start + ipv4::field::SOURCE.start);
                    flow.write_u64(addresses);
                    pair = self.pair(pair, addresses);
                }
                Kind::Ipv6 => {
                    let at = start + ipv6::field::SOURCE.start;
                    let words = [0, 8, 16, 24].map(|offset| u64_at(packet, at + offset));
                    words.iter().for_each(|&word| flow.write_u64(word));
                    pair = self.pair(pair, words[0] ^ words[1] ^ words[2] ^ words[3]);
                }
                // The kind tells the transport, which the ports alone do not.
                Kind::Tcp | Kind::Udp => {
                    let ports = u32_at(packet, start + udp::field::SOURCE_PORT.start);
                    flow.write_u64(u64::from(ports) << 8 | layer.kind as u64);
                }
                Kind::Vlan => {
                    flow.write_u64(u64::from(u16_at(packet, start + vlan::field::TCI.start) & 0x0fff));
                }
                Kind::Vxlan | Kind::VxlanGpe | Kind::Geneve => {
                    const _: () = assert!(vxlan::field::VNI.start == geneve::field::VNI.start);
                    flow.write_u64(u64::from(u32_at(packet, start + vxlan::field::VNI.start) >> 8));
                }
                Kind::Mpls => {
                    flow.write_u64(u64::from(u32_at(packet, start + mpls::field::ENTRY.start) >> 12));
                }
                Kind::Pppoe => {
                    flow.write_u64(u64::from(u16_at(packet, start + pppoe::field::SESSION.start)));
                }
                _ => {}
            }
        }
        FlowHash { flow: flow.finish(), pair }
    }

    #[inline]
    fn pair(&self, known: u32, addresses: u64) -> u32 {
        if known != 0 {
            return known;
        }
        ((addresses ^ addresses >> 29).wrapping_mul(self.pair_factor) >> 32) as u32 | 1
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
