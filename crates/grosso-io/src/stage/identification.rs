//! Chooses identifications for fragments. An identification is not soon repeated for the same pair of addresses, and
//! outsiders cannot predict it.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Generator of identifications that uses the hash-based algorithm of RFC 7739 section 5.3: a counter shared by several
/// pairs of addresses, plus an offset for each pair.
#[derive(Debug)]
pub(super) struct Identifications {
    secret: u64,
    counters: Box<[u32]>,
}

impl Identifications {
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, counters: vec![0; COUNTERS].into_boxed_slice() }
    }

    /// Returns the next identification for this source and destination address.
    pub(super) fn next(&mut self, addresses: &[u8]) -> u32 {
        let mut hasher = DefaultHasher::new();
        (self.secret, addresses).hash(&mut hasher);
        let hash = hasher.finish();
        let start = hash as u32;
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        start.wrapping_add(*counter)
    }
}

/// Number of counters, which take 8 KiB. Linux has at least as many (`ip_idents`).
const COUNTERS: usize = 2048;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Identifications;

    #[test]
    fn one_pair_of_addresses_gets_each_number_once_and_steps_by_one_when_alone() {
        let mut identifications = Identifications::new(1);
        let numbers: Vec<u32> = (0..1000).map(|_| identifications.next(&[1; 32])).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
    }

    #[test]
    fn without_the_secret_identifications_reveal_no_other_pair() {
        let first = |secret, pair: u8| Identifications::new(secret).next(&[pair; 32]);
        let starts: HashSet<u32> = (0..100).map(|pair| first(1, pair)).collect();
        let others: HashSet<u32> = (0..100).map(|pair| first(2, pair)).collect();
        assert_eq!((starts.len(), others.len()), (100, 100));
        assert!(starts.is_disjoint(&others));
        assert_eq!(first(1, 7), first(1, 7));
    }
}
