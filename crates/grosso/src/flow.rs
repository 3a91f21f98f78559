//! Flow identity, and the bounded table that maps each flow to its held train.
//!
//! A flow is the 5-tuple of every IP level down to the deepest readable one, with the identifiers in between: VLAN,
//! MPLS label, PPPoE session, VNI. Only a seeded hash of these fields is stored. Two flows with the same hash end each
//! other's trains early, but are never merged, because merging compares the headers themselves (P21).

use alloc::{boxed::Box, vec};
use core::{marker::PhantomData, ops::Range};

use arrayvec::ArrayVec;
use grosso_wire::Layer;

use crate::{bytes::u64_at, keyed_hash::KeyedHash};

/// Offsets of the fields in a header stack that identify the flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    words: ArrayVec<KeyWord, KEY_WORDS_MAX>,
    /// Range of the words that contain the outermost addresses.
    addresses: Range<u8>,
}

/// Eight bytes of a frame, with a mask of the bits that identify the flow.
#[derive(Clone, Copy, Debug)]
struct KeyWord {
    at: u16,
    mask: u64,
    /// Kind of the header. It is stored in bits that the mask clears.
    kind: u64,
}

impl Keys {
    /// Returns the fields in these headers that identify the flow: those with `Law::Key`.
    pub(crate) fn of(layers: &[Layer], packet: &[u8]) -> Self {
        let mut keys = Self::default();
        for layer in layers {
            let header = packet.get(layer.offset as usize..).unwrap_or_default();
            let first = keys.words.len() as u8;
            for word in layer.kind.spec().layout(header).key() {
                // The header kind is part of the key, because a TCP flow and a UDP flow may have the same ports.
                let kind = layer.kind as u64 & !word.mask;
                keys.push(KeyWord { at: layer.offset + word.at, mask: word.mask, kind });
            }
            if keys.addresses.is_empty() && layer.kind.is_ip() {
                keys.addresses = first..keys.words.len() as u8;
            }
        }
        keys
    }

    /// Returns whether two packets belong to the same flow. `self` describes `packet`, and `others` describes `other`.
    pub(crate) fn are_alike(&self, packet: &[u8], others: &Self, other: &[u8]) -> bool {
        let agree = |(own, its): (&KeyWord, &KeyWord)| own.read(packet) == its.read(other);
        self.words.len() == others.words.len() && self.words.iter().zip(&others.words).all(agree)
    }

    /// Returns the mask of the identifying bits as bytes, each with its offset in the frame.
    pub(crate) fn bits(&self) -> impl Iterator<Item = (usize, u8)> {
        self.words.iter().flat_map(|word| {
            let bytes = word.mask.to_be_bytes();
            bytes.into_iter().enumerate().map(|(i, bits)| (usize::from(word.at) + i, bits))
        })
    }

    /// Adds a word. Words beyond the capacity are omitted, which can only make different flows look like one.
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

/// Seeded hash of a flow's identifying fields. Flows with equal hashes share a table entry but never a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FlowHash(u64);

impl FlowHash {
    /// Hash value for "no flow".
    pub(crate) const NONE: Self = Self(0);

    /// Creates a hash with this value, for testing collisions.
    #[cfg(test)]
    pub(crate) const fn new(hash: u64) -> Self {
        Self(hash)
    }
}

impl From<FlowHash> for u64 {
    fn from(FlowHash(hash): FlowHash) -> Self {
        hash
    }
}

/// Hash function for flows, keyed with a random seed.
#[derive(Clone, Debug)]
pub(crate) struct FlowHasher {
    flows: KeyedHash,
    /// Whether all flows get the same hash, which is the worst case that an attacker could cause (P21).
    #[cfg(test)]
    collides: bool,
}

impl FlowHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            flows: KeyedHash::new(seed),
            #[cfg(test)]
            collides: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn colliding() -> Self {
        Self { collides: true, ..Self::new(1) }
    }

    /// Returns the hash of a packet's flow.
    #[inline(always)]
    pub(crate) fn flow(&self, packet: &[u8], keys: &Keys) -> FlowHash {
        #[cfg(test)]
        if self.collides {
            return FlowHash(1 << 32);
        }
        FlowHash(self.flows.spread(self.chain(packet, &keys.words)))
    }

    /// Returns the nonzero hash of a packet's outermost addresses, or zero if it has no addresses.
    #[inline(always)]
    pub(crate) fn address_pair(&self, packet: &[u8], keys: &Keys) -> u32 {
        let range = keys.addresses.start as usize..keys.addresses.end as usize;
        let words = keys.words.get(range).unwrap_or_default();
        if words.is_empty() {
            return 0;
        }
        let chain = self.chain(packet, words);
        ((chain >> 32) ^ chain) as u32 | 1
    }

    /// Hashes a packet's words in pairs.
    #[inline(always)]
    fn chain(&self, packet: &[u8], words: &[KeyWord]) -> u64 {
        let mut chain = self.flows.start();
        let (pairs, last) = words.as_chunks();
        for [one, other] in pairs {
            chain = self.flows.chain(chain, one.read(packet), other.read(packet));
        }
        for word in last {
            chain = self.flows.chain(chain, word.read(packet), 0);
        }
        chain
    }
}

/// Number of ways per bucket. The ways of a bucket and their tags fit into one cache line.
pub(crate) const WAYS: usize = 8;

/// Position of an entry in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    bucket: u32,
    way: u32,
}

/// Shape of the flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableShape {
    /// Number of buckets, rounded up to a power of two. Each bucket has eight ways.
    pub buckets: usize,
    /// Method for choosing the bucket of a packet.
    pub choice: BucketChoice,
}

/// Method for choosing the bucket of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketChoice {
    /// By the engine's seeded flow hash.
    Seeded,
    /// By the low bits of the device's hash, or bucket 0 if there is none, as in Linux (rules G2, G3). Use this only
    /// for comparisons, because a few flows without a device hash fill bucket 0.
    Device,
}

/// Set-associative table that maps a hash, for example that of a flow, to the slot of a train. A lookup reads one cache
/// line.
#[derive(Debug)]
pub(crate) struct Table<H, I> {
    buckets: Box<[Bucket<I>]>,
    choice: BucketChoice,
    hash: PhantomData<H>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket<I> {
    /// First byte of each way's tag. Its highest bit is always set; zero marks a free way.
    fingerprints: [u8; WAYS],
    /// Remaining bits of each way's tag.
    remainders: [u16; WAYS],
    slots: [I; WAYS],
}

/// Part of a flow's hash that distinguishes flows in the same bucket.
#[derive(Clone, Copy, Debug)]
struct Tag {
    fingerprint: u8,
    remainder: u16,
}

impl Tag {
    /// Returns the bits of the hash that do not choose the bucket.
    fn of(hash: u64) -> Self {
        Self { fingerprint: (hash >> 56) as u8 | 0x80, remainder: (hash >> 32) as u16 }
    }
}

impl<I: Copy + Default> Bucket<I> {
    fn new() -> Self {
        Self { fingerprints: [0; WAYS], remainders: [0; WAYS], slots: [I::default(); WAYS] }
    }

    #[inline(always)]
    fn slot(&self, tag: Tag) -> Option<I> {
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

    /// Returns the first free way.
    #[inline(always)]
    fn free_way(&self) -> Option<usize> {
        let ways = self.ways_with(0);
        (ways != 0).then(|| first_way(ways))
    }

    /// Returns the ways that may have this fingerprint, as one byte per way with the highest bit set for a match. All
    /// ways are compared at once, without branches. The first match is exact. A later one may differ in the lowest bit,
    /// but a free way never matches a flow's fingerprint.
    #[inline(always)]
    fn ways_with(&self, fingerprint: u8) -> u64 {
        const LOWEST: u64 = u64::MAX / 0xff;
        let differing = u64::from_le_bytes(self.fingerprints) ^ (u64::from(fingerprint) * LOWEST);
        differing.wrapping_sub(LOWEST) & !differing & (LOWEST << 7)
    }
}

/// Returns the first way in `ways`, which must not be empty.
fn first_way(ways: u64) -> usize {
    ways.trailing_zeros() as usize / 8 % WAYS
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<I> {
    /// The flow was found, and its train is in this slot.
    Slot(I),
    /// The flow was not found, and this way is free.
    Free(Place),
    /// The flow was not found, and the bucket is full.
    Full(u32),
}

impl<H: Copy + Into<u64>, I: Copy + Default> Table<H, I> {
    pub(crate) fn new(shape: TableShape) -> Self {
        let buckets = shape.buckets.clamp(1, BUCKETS_MAX).next_power_of_two();
        Self {
            buckets: vec![Bucket::new(); buckets].into_boxed_slice(),
            choice: shape.choice,
            hash: PhantomData,
        }
    }

    /// Looks up a flow.
    #[inline(always)]
    pub(crate) fn find(&self, hash: H, device_hash: Option<u32>) -> Found<I> {
        let hash = hash.into();
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

    /// Looks up a flow in every bucket. Fragments and malformed packets have no device hash or one that differs from
    /// the rest of their flow, but must not be reordered either.
    #[inline(never)]
    fn find_anywhere(&self, tag: Tag) -> Option<I> {
        self.buckets.iter().find_map(|bucket| bucket.slot(tag))
    }

    /// Inserts a flow into a free way.
    #[inline]
    pub(crate) fn insert(&mut self, place: Place, hash: H, slot: I) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket as usize) {
            let (way, tag) = (place.way as usize % WAYS, Tag::of(hash.into()));
            bucket.fingerprints[way] = tag.fingerprint;
            bucket.remainders[way] = tag.remainder;
            bucket.slots[way] = slot;
        }
    }

    /// Frees a way.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket as usize) {
            bucket.fingerprints[place.way as usize % WAYS] = 0;
        }
    }

    /// Returns the slots of a full bucket.
    pub(crate) fn slots(&self, bucket: u32) -> [I; WAYS] {
        self.buckets
            .get(bucket as usize)
            .map_or_else(|| [I::default(); WAYS], |bucket| bucket.slots)
    }
}

/// Maximum number of buckets. Their cache lines occupy 2 MiB in total.
const BUCKETS_MAX: usize = 1 << 15;

/// Maximum number of hashed words, enough for five IPv6 levels with all headers in between.
const KEY_WORDS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::Packet;
    use grosso_wire::{Kind, Law, LinkType, Ports, dissect};

    use super::{BucketChoice, FlowHasher, Found, Keys, Table, TableShape, WAYS};

    /// Returns frames that together contain every type of header that has laws.
    fn frames() -> [Vec<u8>; 4] {
        [
            Packet::new().ethernet(|e| e).vlan(|v| v.id(7)).ipv4(|ip| ip).tcp(|t| t),
            Packet::new().ethernet(|e| e).mpls(|m| m).ipv6(|ip| ip).udp(|u| u),
            Packet::new()
                .ethernet(|e| e)
                .pppoe(|p| p)
                .ipv4(|ip| ip)
                .gre(|g| g.checksum().key(7))
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

    #[test]
    fn a_flow_is_identified_only_by_its_key_fields() {
        for frame in frames() {
            let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
            assert!(stack.layers().len() > 3, "{frame:02x?}");
            let (hasher, keys) = (FlowHasher::new(1), Keys::of(stack.layers(), &frame));
            let original = hasher.flow(&frame, &keys);
            for layer in stack.layers() {
                let header = &frame[layer.offset as usize..layer.end()];
                let layout = layer.kind.spec().layout(header);
                let mut bits = std::vec![0_u8; header.len()];
                for field in layout.fields {
                    let Law::Key { bits: of_field } = field.law else { continue };
                    for (i, at) in field.bytes.clone().enumerate() {
                        bits[at] = of_field.checked_shr(56 - 8 * i.min(7) as u32).unwrap() as u8;
                    }
                }
                for (at, bits) in bits.iter().enumerate() {
                    for bit in 0..8 {
                        let mut changed = frame.clone();
                        changed[layer.offset as usize + at] ^= 1 << bit;
                        let differs = hasher.flow(&changed, &keys) != original;
                        assert_eq!(differs, bits >> bit & 1 != 0, "{} {at} {bit}", layer.kind);
                    }
                }
            }
        }
    }

    #[test]
    fn these_bits_identify_and_no_others() {
        let frame = [0; 40];
        let bits = |kind: Kind| {
            let spec = kind.spec();
            let words = spec.layout(&frame).key().iter();
            words.map(|word| (word.at, word.mask)).collect::<Vec<_>>()
        };
        let all = u64::MAX;
        assert_eq!(bits(Kind::Vlan), [(0, 0x0fff << 48)]);
        assert_eq!(bits(Kind::Mpls), [(0, all << 44)]);
        assert_eq!(bits(Kind::Pppoe), [(2, all << 48)]);
        assert_eq!(bits(Kind::Ipv4), [(12, all)]);
        assert_eq!(bits(Kind::Ipv6), [8, 16, 24, 32].map(|at| (at, all)));
        assert_eq!(bits(Kind::Tcp), [(0, all << 32)]);
        assert_eq!(bits(Kind::Udp), [(0, all << 32)]);
        for kind in [Kind::Vxlan, Kind::VxlanGpe, Kind::Geneve] {
            assert_eq!(bits(kind), [(4, all << 40)]);
        }
        for (flags, key) in [(0, None), (0x20, Some(4)), (0x80, None), (0xa0, Some(8))] {
            let words = Kind::Gre.spec().layout(&[flags]).key();
            let words: Vec<_> = words.iter().map(|word| (word.at, word.mask)).collect();
            assert_eq!(words, key.map(|at| (at, all << 32)).into_iter().collect::<Vec<_>>());
        }
        for kind in [Kind::Ethernet, Kind::Ipv6Extension, Kind::Icmp, Kind::Gue, Kind::Esp] {
            assert_eq!(bits(kind), []);
        }
    }

    #[test]
    fn the_transport_is_part_of_the_flow() {
        let tcp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(20).build();
        let stack = dissect(&tcp, LinkType::Ethernet, &Ports::ASSIGNED);
        let mut layers = stack.layers().to_vec();
        let hasher = FlowHasher::new(1);
        let as_tcp = Keys::of(&layers, &tcp);
        layers[2].kind = Kind::Udp;
        let as_udp = Keys::of(&layers, &tcp);
        assert_ne!(hasher.flow(&tcp, &as_tcp), hasher.flow(&tcp, &as_udp));
        assert_eq!(hasher.address_pair(&tcp, &as_tcp), hasher.address_pair(&tcp, &as_udp));
    }

    /// Returns how often each value of these hash bits occurs among flows that differ in one field.
    fn counts(seed: u64, field: core::ops::Range<usize>, bits: core::ops::Range<u32>) -> Vec<u32> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t);
        let mut frame = packet.payload_len(20).build();
        let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
        let keys = Keys::of(stack.layers(), &frame);
        let hasher = FlowHasher::new(seed);
        let mut counts = std::vec![0; 1 << bits.len()];
        for number in 0..NEIGHBOURS {
            frame[field.clone()].copy_from_slice(&(0x4000 + number as u16).to_be_bytes());
            let value = u64::from(hasher.flow(&frame, &keys)) >> bits.start;
            counts[value as usize % (1 << bits.len())] += 1;
        }
        counts
    }

    /// Checks that neighboring flows (consecutive client ports, consecutive addresses in a network) spread over the
    /// buckets, and that flows in one bucket differ in their tags.
    #[test]
    #[cfg_attr(miri, ignore = "four million hashes take Miri hours")]
    fn p21_neighbours_spread_over_buckets_and_tags() {
        let fields = [
            ("source address", 28),
            ("destination address", 32),
            ("source port", 34),
            ("destination port", 36),
        ];
        // The bits that select a bucket in the default profile, and parts of the tag.
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

    /// Number of flows that differ in only one field.
    const NEIGHBOURS: u32 = 1024;

    /// Number of seeds to test, starting at 0.
    const SEEDS: u64 = 256;

    /// Upper bound for chi-square. A uniform distribution exceeds this bound less than once in 10^12 trials. It is
    /// eight standard deviations above the expected value for 1023 degrees of freedom.
    const CHI_SQUARE_MAX: f64 = 1023.0 + 8.0 * 45.2;

    /// Tests addresses that could cancel the seed. In the IPv6 case, two addresses differ from the original in two
    /// words, and the two differences are equal after the hash's rotation. In the IPv4 case, the addresses equal a
    /// public constant in a hash, so that the product with any port would be zero.
    #[test]
    fn p21_no_addresses_cancel_the_seed() {
        let pair = |d: u64, seed: u64| {
            let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t);
            let mut frame = packet.payload_len(20).build();
            for (at, difference) in [(14 + 24, d), (14 + 32, d.rotate_left(7))] {
                let word = u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
                frame[at..at + 8].copy_from_slice(&(word ^ difference).to_be_bytes());
            }
            let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
            FlowHasher::new(seed).address_pair(&frame, &Keys::of(stack.layers(), &frame))
        };
        let equal = (0..100).filter(|seed| pair(0, *seed) == pair(0x1234_5678, *seed)).count();
        assert!(equal < 2, "{equal} of 100 seeds");

        let flow = |port: u16| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| {
                ip.source([0xc0, 0xac, 0x29, 0xb7]).destination([0xc9, 0x7c, 0x50, 0xdd])
            });
            let frame = packet.tcp(|t| t.source_port(port)).payload_len(20).build();
            let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
            FlowHasher::new(7).flow(&frame, &Keys::of(stack.layers(), &frame))
        };
        assert_ne!(flow(1), flow(2));
    }

    #[test]
    fn another_seed_gives_another_hash() {
        let [frame, ..] = frames();
        let keys = Keys::of(dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED).layers(), &frame);
        let [one, two] = [1, 2].map(FlowHasher::new);
        assert_ne!(one.flow(&frame, &keys), two.flow(&frame, &keys));
        assert_ne!(one.address_pair(&frame, &keys), two.address_pair(&frame, &keys));
    }

    #[test]
    fn a_full_bucket_is_reported_and_a_freed_way_is_reused() {
        let mut table =
            Table::<u64, u32>::new(TableShape { buckets: 1, choice: BucketChoice::Seeded });
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
        let table = Table::<u64, u32>::new(TableShape { buckets: 8, choice: BucketChoice::Device });
        let bucket = |hash, device| match table.find(hash, device) {
            Found::Free(place) => place.bucket,
            found => panic!("{found:?}"),
        };
        assert!((0..100).all(|hash| bucket(hash << 40 | hash, None) == 0));
        assert_eq!(bucket(0, Some(0xffff_fffd)), 5);
    }
}
