//! Flows: what identifies them, and the bounded table that finds the held train of one.
//!
//! A flow is the 5-tuple of every IP level down to the deepest that can be read, with the
//! identifiers in between: VLAN, MPLS label, PPPoE session, VNI. It is kept only as a seeded hash.
//! Two flows with one hash cost a train that ends early; they are never merged, because a merge
//! compares the headers themselves (P21).

use alloc::{boxed::Box, vec};
use core::{
    hash::{BuildHasher, Hasher},
    ops::Range,
};

use arrayvec::ArrayVec;
use foldhash::quality::FixedState;
use grosso_wire::{Kind, Layer, geneve, gre, ipv4, ipv6, mpls, pppoe, udp, vlan, vxlan};

use crate::{
    bytes::{u16_at, u64_at},
    coalesce::profile::{BucketChoice, TableShape},
};

/// Where the identifying fields of a header stack lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    words: ArrayVec<KeyWord, KEY_WORDS_MAX>,
    /// How many of the first words, from which one on, are the outermost addresses.
    addresses: Range<u8>,
}

/// Eight bytes of a frame, and which bits of them identify.
#[derive(Clone, Copy, Debug)]
struct KeyWord {
    at: u16,
    mask: u64,
    /// What the kind of header adds, in bits that the mask leaves free.
    kind: u64,
}

impl Keys {
    /// The identifying fields of these headers: the laws that are `Law::Key`.
    pub(crate) fn of(layers: &[Layer], packet: &[u8]) -> Self {
        let mut keys = Self::default();
        for layer in layers {
            match layer.kind {
                Kind::Ipv4 => keys.addresses(layer.offset, ipv4::field::SOURCE.start, 1),
                Kind::Ipv6 => keys.addresses(layer.offset, ipv6::field::SOURCE.start, 4),
                // Source and destination port.
                Kind::Tcp | Kind::Udp => {
                    // The kind tells the transport, which the ports alone do not.
                    let at = layer.offset + udp::field::SOURCE_PORT.start as u16;
                    keys.push(KeyWord { at, mask: u64::MAX << 32, kind: layer.kind as u64 });
                }
                Kind::Vlan => keys.word(layer.offset, vlan::field::TCI.start, 0x0fff << 48),
                Kind::Vxlan | Kind::VxlanGpe => {
                    keys.word(layer.offset, vxlan::field::VNI.start, u64::MAX << 40);
                }
                Kind::Geneve => keys.word(layer.offset, geneve::field::VNI.start, u64::MAX << 40),
                Kind::Gre => keys.gre(layer.offset, packet),
                Kind::Mpls => keys.word(layer.offset, mpls::field::ENTRY.start, u64::MAX << 44),
                Kind::Pppoe => keys.word(layer.offset, pppoe::field::SESSION.start, u64::MAX << 48),
                _ => {}
            }
        }
        keys
    }

    /// Whether a packet with these keys and another one with its own are of one flow.
    pub(crate) fn are_alike(&self, packet: &[u8], others: &Self, other: &[u8]) -> bool {
        let alike = |(own, its): (&KeyWord, &KeyWord)| own.read(packet) == its.read(other);
        self.words.len() == others.words.len() && self.words.iter().zip(&others.words).all(alike)
    }

    /// The GRE key, behind the checksum when there is one (RFC 2890).
    fn gre(&mut self, header: u16, packet: &[u8]) {
        let flags = u16_at(packet, header as usize + gre::field::FLAGS.start);
        if flags & gre::FLAG_KEY != 0 {
            let start = if flags & gre::FLAG_CHECKSUM != 0 { 8 } else { 4 };
            self.word(header, start, u64::MAX << 32);
        }
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

    fn word(&mut self, header: u16, start: usize, mask: u64) {
        self.push(KeyWord { at: header + start as u16, mask, kind: 0 });
    }

    /// Words beyond the room for them are left out, which only makes more packets look like one
    /// flow.
    fn push(&mut self, word: KeyWord) {
        let _ = self.words.try_push(word);
    }
}

impl KeyWord {
    #[inline(always)]
    fn read(&self, packet: &[u8]) -> u64 {
        (u64_at(packet, self.at as usize) & self.mask) | self.kind
    }
}

/// Hashes flows with one random seed.
#[derive(Clone, Debug)]
pub(crate) struct FlowHasher {
    state: FixedState,
    pair_factor: u64,
    /// All flows share one hash: what an attacker dreams of (P21).
    #[cfg(test)]
    collides: bool,
}

impl FlowHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: FixedState::with_seed(seed),
            // Spread over all bits, so that even a poor seed mixes.
            pair_factor: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            #[cfg(test)]
            collides: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn colliding() -> Self {
        Self { collides: true, ..Self::new(1) }
    }

    /// The hash of a packet's flow.
    #[inline(always)]
    pub(crate) fn flow(&self, packet: &[u8], keys: &Keys) -> u64 {
        #[cfg(test)]
        if self.collides {
            return 1 << 32;
        }
        let mut flow = self.state.build_hasher();
        let (pairs, last) = keys.words.as_chunks();
        for [high, low] in pairs {
            flow.write_u128(u128::from(high.read(packet)) << 64 | u128::from(low.read(packet)));
        }
        for word in last {
            flow.write_u64(word.read(packet));
        }
        flow.finish()
    }

    /// The hash of a packet's outermost addresses, never zero; zero when it has none.
    #[inline(always)]
    pub(crate) fn pair(&self, packet: &[u8], keys: &Keys) -> u32 {
        let range = keys.addresses.start as usize..keys.addresses.end as usize;
        let words = keys.words.get(range).unwrap_or_default();
        if words.is_empty() {
            return 0;
        }
        let addresses = words.iter().fold(0_u64, |addresses, word| {
            u64_at(packet, word.at as usize) ^ addresses.rotate_left(7)
        });
        let product = u128::from(addresses) * u128::from(self.pair_factor);
        ((product >> 64) as u32 ^ (product >> 32) as u32 ^ product as u32) | 1
    }
}

/// Ways of a bucket. Together with their tags they are in one cache line.
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
    /// A byte of each flow's tag, with its highest bit set; zero marks a free way.
    fingerprints: [u8; WAYS],
    /// The other bits of the tags.
    remainders: [u16; WAYS],
    slots: [u32; WAYS],
}

/// Part of a flow's hash.
#[derive(Clone, Copy, Debug)]
struct Tag {
    fingerprint: u8,
    remainder: u16,
}

impl Tag {
    /// The bits of the hash that do not choose the bucket.
    #[inline(always)]
    fn of(hash: u64) -> Self {
        Self { fingerprint: (hash >> 56) as u8 | 0x80, remainder: (hash >> 32) as u16 }
    }
}

impl Bucket {
    const EMPTY: Self = Self { fingerprints: [0; WAYS], remainders: [0; WAYS], slots: [0; WAYS] };

    #[inline(always)]
    fn slot(&self, tag: Tag) -> Option<u32> {
        let mut ways = self.ways_with(tag.fingerprint);
        while ways != 0 {
            let way = first_way(ways);
            if self.remainders[way] == tag.remainder {
                return Some(self.slots[way]);
            }
            ways &= ways - 1;
        }
        None
    }

    /// The first free way.
    #[inline(always)]
    fn free_way(&self) -> Option<usize> {
        let ways = self.ways_with(0);
        (ways != 0).then(|| first_way(ways))
    }

    /// The ways with a fingerprint, by the highest bit of a byte of each: all are compared at once, without a branch.
    /// The first is right; one behind it may have a fingerprint that differs in the lowest bit, but is not free unless
    /// the first is.
    #[inline(always)]
    fn ways_with(&self, fingerprint: u8) -> u64 {
        const LOWEST: u64 = u64::MAX / 0xff;
        let differing = u64::from_le_bytes(self.fingerprints) ^ (u64::from(fingerprint) * LOWEST);
        differing.wrapping_sub(LOWEST) & !differing & (LOWEST << 7)
    }
}

/// The first of some ways, of which there is one.
#[inline(always)]
fn first_way(ways: u64) -> usize {
    ways.trailing_zeros() as usize / 8 % WAYS
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
        Self { buckets: vec![Bucket::EMPTY; buckets].into_boxed_slice(), choice: shape.choice }
    }

    /// Looks a flow up.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, device_hash: Option<u32>) -> Found {
        let tag = Tag::of(hash);
        let choice = match self.choice {
            BucketChoice::Seeded => hash as usize,
            BucketChoice::Device => {
                if let Some(slot) = self.find_anywhere(tag) {
                    return Found::Slot(slot);
                }
                device_hash.unwrap_or(0) as usize
            }
        };
        let index = choice & (self.buckets.len() - 1);
        let bucket = &self.buckets[index];
        if let Some(slot) = bucket.slot(tag) {
            return Found::Slot(slot);
        }
        match bucket.free_way() {
            Some(way) => Found::Free(Place { bucket: index as u32, way: way as u32 }),
            None => Found::Full(index as u32),
        }
    }

    /// Looks a flow up in every bucket: a device gives no hash, or another one, to the fragments
    /// and broken packets of a flow, and its order must hold all the same.
    #[inline(never)]
    fn find_anywhere(&self, tag: Tag) -> Option<u32> {
        self.buckets.iter().find_map(|bucket| bucket.slot(tag))
    }

    /// Puts a flow into a free place.
    #[inline]
    pub(crate) fn insert(&mut self, place: Place, hash: u64, slot: u32) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket as usize) {
            let (way, tag) = (place.way as usize % WAYS, Tag::of(hash));
            bucket.fingerprints[way] = tag.fingerprint;
            bucket.remainders[way] = tag.remainder;
            bucket.slots[way] = slot;
        }
    }

    /// Frees a place.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket as usize) {
            bucket.fingerprints[place.way as usize % WAYS] = 0;
        }
    }

    /// The slots of a full bucket.
    pub(crate) fn slots(&self, bucket: u32) -> [u32; WAYS] {
        self.buckets.get(bucket as usize).map_or([0; WAYS], |bucket| bucket.slots)
    }
}

/// Most buckets of a table: 2 MiB of cache lines.
const BUCKETS_MAX: usize = 1 << 15;

/// Words of identifying fields that are hashed: five IPv6 levels with everything in between.
const KEY_WORDS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports, Stack, dissect};

    use super::{FlowHasher, Found, Keys, Table, WAYS};
    use crate::{
        coalesce::{BucketChoice, TableShape},
        template::laws::{self, Law},
    };

    /// Every kind of header that has laws, in a few frames.
    fn frames() -> [Vec<u8>; 4] {
        [
            Packet::new().ethernet(|e| e).vlan(|v| v.id(7)).ipv4(|ip| ip).tcp(|t| t),
            Packet::new().ethernet(|e| e).mpls(|m| m).ipv6(|ip| ip).udp(|u| u),
            Packet::new()
                .ethernet(|e| e)
                .pppoe(|p| p)
                .ipv4(|ip| ip)
                .gre(|g| g)
                .ipv4(|ip| ip)
                .tcp(|t| t),
            Packet::new()
                .ethernet(|e| e)
                .ipv4(|ip| ip)
                .udp(|u| u)
                .vxlan(|v| v)
                .ethernet(|e| e)
                .ipv4(|ip| ip)
                .udp(|u| u),
        ]
        .map(|packet| packet.payload_len(20).build())
    }

    fn flow(frame: &[u8], stack: &Stack) -> u64 {
        FlowHasher::new(1).flow(frame, &Keys::of(stack.layers(), frame))
    }

    #[test]
    fn a_flow_is_told_by_its_key_fields_and_by_nothing_else() {
        for frame in frames() {
            let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
            assert!(stack.layers().len() > 3, "{frame:02x?}");
            let original = flow(&frame, &stack);
            for layer in stack.layers() {
                for field in laws::of(layer.kind, &frame[layer.offset as usize..]) {
                    let end = (layer.offset as usize + field.bytes.end).min(layer.end());
                    let first = layer.offset as usize + field.bytes.start;
                    // The last bit of a field: for a VLAN tag it is in the identifier, not in the
                    // priority.
                    let mut changed = frame.clone();
                    let bit = if layer.kind == grosso_wire::Kind::Mpls { 0x10 } else { 0x01 };
                    let at =
                        if layer.kind == grosso_wire::Kind::Mpls { first + 2 } else { end - 1 };
                    if first >= end {
                        continue;
                    }
                    changed[at] ^= bit;
                    let is_protocol = field.law
                        == Law::Key(crate::coalesce::reason::NoMerge::OtherFlow)
                        && layer.kind == grosso_wire::Kind::Ipv4
                        && field.bytes == grosso_wire::ipv4::field::PROTOCOL;
                    let differs = flow(&changed, &stack) != original;
                    let is_key = matches!(field.law, Law::Key(_)) && !is_protocol;
                    assert_eq!(differs, is_key, "{:?} {:?}", layer.kind, field);
                }
            }
        }
    }

    #[test]
    fn the_transport_is_part_of_the_flow() {
        let tcp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(20).build();
        let stack = dissect(&tcp, LinkType::Ethernet, &Ports::ASSIGNED);
        let mut layers = stack.layers().to_vec();
        let hasher = FlowHasher::new(1);
        let as_tcp = Keys::of(&layers, &tcp);
        layers[2].kind = grosso_wire::Kind::Udp;
        let as_udp = Keys::of(&layers, &tcp);
        assert_ne!(hasher.flow(&tcp, &as_tcp), hasher.flow(&tcp, &as_udp));
        assert_eq!(hasher.pair(&tcp, &as_tcp), hasher.pair(&tcp, &as_udp));
    }

    /// How often each value of some bits of the hash comes, of flows that differ in one field by one.
    fn counts(seed: u64, field: core::ops::Range<usize>, bits: core::ops::Range<u32>) -> Vec<u32> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t);
        let mut frame = packet.payload_len(20).build();
        let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
        let keys = Keys::of(stack.layers(), &frame);
        let hasher = FlowHasher::new(seed);
        let mut counts = std::vec![0; 1 << bits.len()];
        for number in 0..NEIGHBOURS {
            frame[field.clone()].copy_from_slice(&(0x4000 + number as u16).to_be_bytes());
            let value = hasher.flow(&frame, &keys) >> bits.start;
            counts[value as usize % (1 << bits.len())] += 1;
        }
        counts
    }

    /// Connections of one client take consecutive ports, clients of one network consecutive addresses: as many as there
    /// are buckets must not meet in a few of them, nor agree in what tells them apart there.
    #[test]
    fn p21_neighbours_spread_over_buckets_and_tags() {
        let fields = [
            ("source address", 28),
            ("destination address", 32),
            ("source port", 34),
            ("destination port", 36),
        ];
        // The buckets of the default profile, and parts of the tag.
        for bits in [0..10, 33..43, 44..54, 54..64] {
            for (name, field) in fields {
                for seed in 0..SEEDS {
                    let counts = counts(seed, field..field + 2, bits.clone());
                    let expected = f64::from(NEIGHBOURS) / counts.len() as f64;
                    let deviation = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
                    let chi_square: f64 = counts.iter().map(deviation).sum();
                    assert!(
                        chi_square < CHI_SQUARE_MAX,
                        "{name}, bits {bits:?}, seed {seed}: {chi_square}"
                    );
                }
            }
        }
    }

    /// Flows that differ in one field only.
    const NEIGHBOURS: u32 = 1024;

    /// Seeds that are tried, from 0 on.
    const SEEDS: u64 = 256;

    /// What balls thrown into as many bins exceed less than once in 10^12 times: eight standard deviations above the
    /// 1023 degrees of freedom.
    const CHI_SQUARE_MAX: f64 = 1023.0 + 8.0 * 45.2;

    #[test]
    fn another_seed_gives_another_hash() {
        let [frame, ..] = frames();
        let keys = Keys::of(dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED).layers(), &frame);
        let [one, two] = [1, 2].map(FlowHasher::new);
        assert_ne!(one.flow(&frame, &keys), two.flow(&frame, &keys));
        assert_ne!(one.pair(&frame, &keys), two.pair(&frame, &keys));
    }

    #[test]
    fn a_full_bucket_says_so_and_a_freed_way_is_used_again() {
        let mut table = Table::new(TableShape { buckets: 1, choice: BucketChoice::Seeded });
        let flow = |i: u64| i << 33;
        let mut places = Vec::new();
        for i in 1..=WAYS as u64 {
            let Found::Free(place) = table.find(flow(i), None) else { panic!("no room for {i}") };
            table.insert(place, flow(i), i as u32);
            places.push(place);
        }
        assert_eq!(table.find(flow(9), None), Found::Full(0));
        assert_eq!(table.find(flow(3), None), Found::Slot(3));
        table.remove(places[2]);
        assert_eq!(table.find(flow(3), None), Found::Free(places[2]));
    }

    #[test]
    fn g02_without_a_device_hash_all_flows_share_bucket_zero() {
        let table = Table::new(TableShape { buckets: 8, choice: BucketChoice::Device });
        let bucket = |hash, device| match table.find(hash, device) {
            Found::Free(place) => place.bucket,
            found => panic!("{found:?}"),
        };
        assert!((0..100).all(|hash| bucket(hash << 40 | hash, None) == 0));
        assert_eq!(bucket(0, Some(0xffff_fffd)), 5);
    }
}
