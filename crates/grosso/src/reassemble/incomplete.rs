//! Incomplete datagram that waits for missing fragments.

use core::ops::Range;

use grosso_checksum::Sum;

use crate::{
    checksum::Checksum,
    flow::Place,
    meta::Meta,
    reassemble::{
        examine::ArrivedFragment,
        identity::{Flow, Key},
        queue::Link,
        reason::Discard,
        store::{Bit, Pages, Store},
    },
};

#[derive(Debug)]
pub(crate) struct Incomplete {
    pub(crate) key: Key,
    pub(crate) place: Place,
    /// Index of the source entry to which the datagram counts.
    pub(crate) share: usize,
    pub(crate) created_ns: u64,
    /// Whether the datagram was discarded and only its key is kept.
    pub(crate) is_dead: bool,
    pub(crate) by_age: Link,
    pub(crate) by_use: Link,
    pub(crate) by_source: Link,
    /// Memory that the datagram occupies, in bytes.
    pub(crate) held_bytes: usize,
    pub(crate) contents: Contents,
}

/// State collected from the fragments that have arrived so far.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) pages: Pages,
    /// Units of the latest consecutive fragments. They are entered into the bitmap only when the bitmap is needed.
    run: Range<u32>,
    pub(crate) fragments: u16,
    /// Number of 8-byte units present.
    pub(crate) units: u32,
    /// Highest offset that a fragment reaches.
    pub(crate) reach: u32,
    /// End of the datagram, or `None` until its last fragment has arrived.
    pub(crate) end: Option<u32>,
    /// Length of the headers in the first fragment's frame.
    pub(crate) header_len: u16,
    /// Offset of the IP header.
    pub(crate) ip: u16,
    /// Number of data bytes in the first fragment.
    pub(crate) first_len: u32,
    /// Flow, or `None` until the first fragment has arrived.
    pub(crate) flow: Option<Flow>,
    /// Whether the fragments that have arrived so far were forwarded, which happens only in virtual mode.
    pub(crate) is_released: bool,
    /// ECN codepoints of the fragments that have arrived. Bit `n` is set if codepoint `n` has occurred.
    ecn_seen: u8,
    /// ECN codepoint of the first fragment.
    ecn: u8,
    /// Length of the longest fragment, including its IP header.
    pub(crate) largest: u32,
    /// Length of the longest fragment with DF set.
    largest_whole: u32,
    /// Metadata of the first fragment, except the time.
    pub(crate) meta: Meta,
    /// Checksum state shared by all fragments.
    pub(crate) checksum: Option<Checksum>,
    /// Sum of the data that has arrived, or `None` if a fragment's sum is unknown.
    pub(crate) sum: Option<Sum>,
    /// Number of fragments that the source had sent when this datagram's latest fragment arrived.
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

    /// Records that units have arrived.
    pub(crate) fn cover<B>(&mut self, store: &mut Store<B>, units: Range<u32>) {
        if units.start != self.run.end {
            self.chart(store);
            self.run.start = units.start;
        }
        self.run.end = units.end;
    }

    /// Enters the pending units into the bitmap.
    pub(crate) fn chart<B>(&mut self, store: &mut Store<B>) {
        store.set(&self.pages, Bit::Covered, &self.run);
        self.run.start = self.run.end;
    }

    /// Records a fragment that is kept. `units` are the units that are new. If `keeps_first` is set, a repeated first
    /// fragment has no effect.
    pub(crate) fn add(
        &mut self,
        arrival: &ArrivedFragment,
        meta: &Meta,
        units: u32,
        keeps_first: bool,
    ) {
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

    /// Records a fragment that continues the data received so far and is not the last.
    #[inline]
    pub(crate) fn append(&mut self, arrival: &ArrivedFragment, meta: &Meta, units: &Range<u32>) {
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

    /// Returns the length of the datagram, if nothing is missing (rule F16).
    pub(crate) fn complete_len(&self) -> Option<u32> {
        let end = self.end?;
        (self.flow.is_some() && self.units == end.div_ceil(8)).then_some(end)
    }

    /// Returns the ECN field of the whole datagram (RFC 3168 section 5.3, rule F21).
    pub(crate) fn ecn(&self) -> Result<u8, Discard> {
        let congested = self.ecn_seen & 1 << CONGESTION_EXPERIENCED != 0;
        let incapable = self.ecn_seen & 1 != 0;
        match (incapable, congested) {
            (true, _) if self.ecn_seen != 1 => Err(Discard::EcnMixed),
            (false, true) => Ok(CONGESTION_EXPERIENCED),
            _ => Ok(self.ecn),
        }
    }

    /// Returns whether the datagram must not be refragmented into pieces longer than the fragments that arrived (rule
    /// F20).
    pub(crate) fn dont_fragment(&self) -> bool {
        self.largest_whole == self.largest
    }
}

/// Returns the checksum state of a datagram of which one fragment has arrived. A partial checksum is discarded, because
/// completing it over one fragment would be wrong for the whole datagram.
fn alone(state: Checksum) -> Checksum {
    match state {
        Checksum::Partial { .. } => Checksum::None,
        state => state,
    }
}

/// Combines checksum states according to rule F23. States that differ become `None`. Sums are added in
/// [`Contents::sum`].
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

    /// Checks every set of ECN code points against Linux's `ip_frag_ecn_table`.
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
            // Unless the set contains only CE, the first fragment has the highest code point in the set that is not CE
            // (3).
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
