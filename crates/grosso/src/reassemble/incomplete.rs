//! A datagram of which fragments are missing.

use core::{
    hash::{BuildHasher, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use foldhash::fast::FixedState;
use grosso_checksum::Sum;

use crate::{
    checksum::Checksum,
    flow::Place,
    meta::Meta,
    reassemble::{
        delivery::Flow,
        examine::Arrival,
        queue::Link,
        reason::Discard,
        store::{Bit, Pages, Store},
    },
};

/// What the fragments of one datagram share (rule F1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Source and destination, big-endian; of IPv4 the first word is both.
    pub(crate) addresses: [u64; 4],
    pub(crate) identification: u32,
    /// Of IPv4 only.
    pub(crate) protocol: u8,
    pub(crate) is_ipv6: bool,
    /// Its only fragment is all of it, and has nothing to do with others (RFC 6946).
    pub(crate) is_atomic: bool,
    /// The seeded hash of what the headers around tell: VLAN, session, tunnel.
    pub(crate) outside: u64,
}

impl Key {
    pub(crate) fn hash(&self, state: &FixedState) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u64(self.addresses[0]);
        if self.is_ipv6 {
            self.addresses[1..].iter().for_each(|&word| hasher.write_u64(word));
        }
        let version = u64::from(self.is_ipv6) << 40 | u64::from(self.is_atomic) << 41;
        let protocol = u64::from(self.protocol) << 32 | version;
        hasher.write_u64(u64::from(self.identification) | protocol);
        hasher.write_u64(self.outside);
        hasher.finish()
    }

    /// The hash of the source: an IPv4 address, or the first 64 bits of an IPv6 address, which one
    /// host may fill as it likes.
    pub(crate) fn source_hash(&self, state: &FixedState) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u64(self.addresses[0] >> if self.is_ipv6 { 0 } else { 32 });
        hasher.write_u64(u64::from(self.is_ipv6));
        hasher.finish()
    }

    pub(crate) fn identity(&self) -> Identity {
        let [a, b, c, d] = self.addresses;
        let wide = |high: u64, low: u64| {
            IpAddr::V6(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)))
        };
        let (source, destination) = match self.is_ipv6 {
            true => (wide(a, b), wide(c, d)),
            false => {
                (IpAddr::V4(Ipv4Addr::from((a >> 32) as u32)), IpAddr::V4(Ipv4Addr::from(a as u32)))
            }
        };
        let protocol = (!self.is_ipv6).then_some(self.protocol);
        let (identification, outside) = (self.identification, self.outside);
        Identity { source, destination, identification, protocol, outside }
    }
}

/// Which datagram fragments are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// Who sent it.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// The identification: 16 bits in IPv4, 32 in IPv6.
    pub identification: u32,
    /// The protocol, which tells datagrams apart in IPv4 only.
    pub protocol: Option<u8>,
    /// A hash of what the headers around tell, VLAN, session and tunnel, by the seed of the
    /// reassembler. 0 when there is nothing.
    pub outside: u64,
}

#[derive(Debug)]
pub(crate) struct Incomplete {
    pub(crate) key: Key,
    pub(crate) place: Place,
    /// Which source's share it is in.
    pub(crate) share: usize,
    pub(crate) created_ns: u64,
    /// Killed: only the key is remembered.
    pub(crate) is_dead: bool,
    pub(crate) by_age: Link,
    pub(crate) by_use: Link,
    pub(crate) by_source: Link,
    /// Memory that it takes, in bytes.
    pub(crate) held_bytes: usize,
    pub(crate) contents: Contents,
}

/// What the fragments that came so far tell.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) pages: Pages,
    /// The units of the latest fragments, each of which continued the one before: they are there,
    /// but not on the map as long as nobody asks.
    run: Range<u32>,
    pub(crate) fragments: u16,
    /// Units of 8 bytes that are there.
    pub(crate) units: u32,
    /// Where the fragment ends that reaches farthest.
    pub(crate) reach: u32,
    /// Where the datagram ends, once its last fragment came.
    pub(crate) end: Option<u32>,
    /// Where the headers of the first fragment end in its frame.
    pub(crate) header_len: u16,
    /// Where its IP header starts.
    pub(crate) ip: u16,
    /// Data bytes of the first fragment.
    pub(crate) first_len: u32,
    /// What the first fragment tells.
    pub(crate) flow: Option<Flow>,
    /// In the mode that forwards: the fragments so far have left.
    pub(crate) is_released: bool,
    /// The ECN code points that came: bit `n` for code point `n`.
    ecn_seen: u8,
    /// That of the first fragment.
    ecn: u8,
    /// The longest fragment, IP header and data.
    pub(crate) largest: u32,
    /// The longest that must not be fragmented further.
    largest_whole: u32,
    /// The first fragment's, but for the time.
    pub(crate) meta: Meta,
    /// The state that all checksums were in.
    pub(crate) checksum: Option<Checksum>,
    /// The sum of the data that are there, while each fragment's is known.
    pub(crate) sum: Option<Sum>,
    /// The count of the source's fragments when the last one of this datagram came.
    pub(crate) source_count: u32,
}

impl Contents {
    pub(crate) fn new() -> Self {
        Self {
            pages: Pages::NONE,
            run: 0..0,
            fragments: 0,
            units: 0,
            reach: 0,
            end: None,
            header_len: 0,
            ip: 0,
            first_len: 0,
            flow: None,
            is_released: false,
            ecn_seen: 0,
            ecn: 0,
            largest: 0,
            largest_whole: 0,
            meta: Meta::default(),
            checksum: None,
            sum: Some(Sum::ZERO),
            source_count: 0,
        }
    }

    /// Takes note that units are there.
    #[inline]
    pub(crate) fn cover<B>(&mut self, store: &mut Store<B>, units: Range<u32>) {
        if units.start != self.run.end {
            self.chart(store);
            self.run.start = units.start;
        }
        self.run.end = units.end;
    }

    /// Puts on the map what is not yet there.
    pub(crate) fn chart<B>(&mut self, store: &mut Store<B>) {
        store.set(&self.pages, Bit::Covered, &self.run);
        self.run.start = self.run.end;
    }

    /// Takes note of a fragment that is kept. `units` are new. `keeps_first` says that another first
    /// fragment changes nothing.
    #[inline]
    pub(crate) fn add(&mut self, arrival: &Arrival, meta: &Meta, units: u32, keeps_first: bool) {
        self.fragments += 1;
        self.units += units;
        self.reach = self.reach.max(arrival.end());
        if !arrival.more {
            self.end = Some(arrival.end());
        }
        self.ecn_seen |= 1 << arrival.ecn;
        self.largest = self.largest.max(arrival.size());
        if arrival.dont_fragment {
            self.largest_whole = self.largest_whole.max(arrival.size());
        }
        self.checksum = Some(match self.checksum {
            None => alone(meta.checksum),
            Some(before) => together(before, meta.checksum),
        });
        let timestamp_ns = meta.timestamp_ns;
        if arrival.is_first() && !keeps_first {
            self.header_len = arrival.data.start as u16;
            self.ip = arrival.ip;
            self.first_len = arrival.len();
            self.flow = arrival.flow;
            self.ecn = arrival.ecn;
            self.meta = Meta { checksum: Checksum::None, gso: None, ..*meta };
        }
        self.meta.timestamp_ns = timestamp_ns;
    }

    /// Takes note of a fragment that carries on where the data ended so far, and is not the last.
    #[inline]
    pub(crate) fn append(&mut self, arrival: &Arrival, meta: &Meta, units: &Range<u32>) {
        self.fragments += 1;
        self.units += units.end - units.start;
        self.reach = arrival.end();
        self.ecn_seen |= 1 << arrival.ecn;
        self.largest = self.largest.max(arrival.size());
        if arrival.dont_fragment {
            self.largest_whole = self.largest_whole.max(arrival.size());
        }
        if self.checksum != Some(Checksum::None) || meta.checksum != Checksum::None {
            self.checksum = self.checksum.map(|before| together(before, meta.checksum));
        }
        self.meta.timestamp_ns = meta.timestamp_ns;
    }

    /// Where the datagram ends, if nothing is missing (rule F16).
    pub(crate) fn complete_len(&self) -> Option<u32> {
        let end = self.end?;
        (self.flow.is_some() && self.units == end.div_ceil(8)).then_some(end)
    }

    /// The congestion mark of the whole (RFC 3168 section 5.3, rule F21).
    pub(crate) fn ecn(&self) -> Result<u8, Discard> {
        let congested = self.ecn_seen & 1 << CONGESTION_EXPERIENCED != 0;
        let incapable = self.ecn_seen & 1 != 0;
        match (incapable, congested) {
            (true, _) if self.ecn_seen != 1 => Err(Discard::EcnMixed),
            (false, true) => Ok(CONGESTION_EXPERIENCED),
            _ => Ok(self.ecn),
        }
    }

    /// Whether the whole must not be cut into pieces longer than those that came (rule F20).
    pub(crate) fn dont_fragment(&self) -> bool {
        self.largest_whole == self.largest
    }
}

/// What the state of one fragment's checksums says of the whole. A checksum that is still to be
/// computed over a fragment would be wrong for the whole.
fn alone(state: Checksum) -> Checksum {
    match state {
        Checksum::Partial { .. } => Checksum::None,
        state => state,
    }
}

/// Rule F23: different states say nothing, and sums are added, which [`Contents::sum`] does.
fn together(before: Checksum, state: Checksum) -> Checksum {
    match (before, state) {
        (Checksum::Complete { .. }, Checksum::Complete { .. }) => before,
        (Checksum::Unnecessary { levels }, Checksum::Unnecessary { levels: more }) => {
            Checksum::Unnecessary { levels: levels.min(more) }
        }
        _ => Checksum::None,
    }
}

const CONGESTION_EXPERIENCED: u8 = 3;

#[cfg(test)]
mod tests {
    use super::Contents;
    use crate::reassemble::reason::Discard;

    /// Every set of code points, as `ip_frag_ecn_table` of Linux has it.
    #[test]
    fn f21_all_sixteen_combinations_of_code_points() {
        let dropped = Err(Discard::EcnMixed);
        let table = [
            Ok(2),
            Ok(0),
            Ok(2),
            dropped,
            Ok(2),
            dropped,
            Ok(2),
            dropped,
            Ok(3),
            dropped,
            Ok(3),
            dropped,
            Ok(3),
            dropped,
            Ok(3),
            dropped,
        ];
        for (seen, expected) in (0_u8..).zip(table) {
            // A first fragment with a code point of the set; the highest one below 3.
            let ecn = (0..3).rev().find(|bit| seen >> bit & 1 == 1).unwrap_or(2);
            let contents = Contents { ecn_seen: seen, ecn, ..Contents::new() };
            let expected = match (seen, expected) {
                (1 | 2 | 4 | 6, Ok(_)) => Ok(ecn),
                (_, expected) => expected,
            };
            assert_eq!(contents.ecn(), expected, "{seen:04b}");
        }
    }
}
