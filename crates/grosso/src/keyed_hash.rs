//! Hash function with secret keys.
//!
//! The hashed words come from packets, so an attacker can choose them. Both factors of every product therefore depend
//! on a secret, which is derived from the seed or from the preceding words. No known constant makes a product zero, and
//! no choice of words makes two products equal for every seed.

use core::hash::{BuildHasher, Hasher};

/// Secret keys of the hash function.
#[derive(Clone)]
pub(crate) struct KeyedHash {
    start: u64,
    factor: u64,
    last: u64,
}

impl KeyedHash {
    /// Derives keys from a seed with SplitMix64. The seed should be random.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut key = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        Self { start: key(), factor: key(), last: key() | 1 }
    }

    /// Returns the initial chain value. A chain value is a hash before the final mixing, so similar words may give
    /// similar values.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Adds two words to a chain value.
    pub(crate) fn chain(&self, chain: u64, one: u64, other: u64) -> u64 {
        folded(one ^ chain, other ^ self.factor)
    }

    /// Returns the hash for a chain value.
    pub(crate) fn spread(&self, chain: u64) -> u64 {
        folded(chain, self.last)
    }
}

/// Omits the keys.
impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash")
    }
}

impl<'a> BuildHasher for &'a KeyedHash {
    type Hasher = KeyedHasher<'a>;

    fn build_hasher(&self) -> KeyedHasher<'a> {
        KeyedHasher { hash: self, chain: self.start }
    }
}

/// Hash computation in progress.
#[derive(Debug)]
pub(crate) struct KeyedHasher<'a> {
    hash: &'a KeyedHash,
    chain: u64,
}

impl Hasher for KeyedHasher<'_> {
    fn write_u128(&mut self, value: u128) {
        self.chain = self.hash.chain(self.chain, (value >> 64) as u64, value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.chain = self.hash.chain(self.chain, value, 0);
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks();
        chunks.iter().for_each(|chunk| self.write_u128(u128::from_be_bytes(*chunk)));
        let mut padded = [0; 16];
        padded[..rest.len()].copy_from_slice(rest);
        self.write_u128(u128::from_be_bytes(padded));
        self.write_usize(bytes.len());
    }

    fn finish(&self) -> u64 {
        self.hash.spread(self.chain)
    }
}

/// Returns the XOR of the two halves of a product.
#[inline(always)]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(seed: u64, words: &[u64]) -> u64 {
        let keyed = KeyedHash::new(seed);
        let mut hasher = (&keyed).build_hasher();
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    #[test]
    fn places_and_numbers_of_words_count() {
        for seed in 0..100 {
            assert_ne!(hash(seed, &[1, 2]), hash(seed, &[2, 1]));
            assert_ne!(hash(seed, &[]), hash(seed, &[0]));
            assert_ne!(hash(seed, &[0]), hash(seed, &[0, 0]));
        }
    }

    #[test]
    fn pairs_and_words_are_hashed_alike() {
        let keyed = KeyedHash::new(3);
        let mut hasher = (&keyed).build_hasher();
        hasher.write_u128(1 << 64 | 2);
        hasher.write_u64(3);
        let chain = keyed.chain(keyed.chain(keyed.start(), 1, 2), 3, 0);
        assert_eq!(keyed.spread(chain), hasher.finish());
    }

    #[test]
    fn bytes_count_each() {
        let keyed = KeyedHash::new(7);
        let of = |bytes: &[u8]| {
            let mut hasher = (&keyed).build_hasher();
            hasher.write(bytes);
            hasher.finish()
        };
        let bytes: [u8; 37] = core::array::from_fn(|at| at as u8);
        for at in 0..bytes.len() {
            let mut other = bytes;
            other[at] ^= 0x80;
            assert_ne!(of(&bytes), of(&other), "{at}");
        }
        assert_ne!(of(&[]), of(&[0]));
        assert_ne!(of(&[1; 16]), of(&[1; 17]));
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(std::format!("{:?}", KeyedHash::new(1)), "KeyedHash");
    }
}
