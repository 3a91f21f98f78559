//! Bounded storage for per-flow state, including flows without held packets.

use alloc::{boxed::Box, vec};

/// Set-associative table from the seeded hash of a flow or connection to its state. A flood of flows needs no more
/// memory than a few flows, and an attacker who does not know the seed cannot evict a chosen flow.
#[derive(Debug)]
pub(crate) struct FlowMemory<H, T> {
    ways: Box<[Option<Remembered<H, T>>]>,
    /// Most recently used way. It is checked first, because packets arrive in bursts.
    latest: usize,
}

#[derive(Clone, Debug)]
struct Remembered<H, T> {
    flow: H,
    used_ns: u64,
    value: T,
}

impl<H: Copy + PartialEq + Into<u64>, T: Clone> FlowMemory<H, T> {
    /// Creates an empty memory with room for [`FLOWS_MAX`] flows.
    pub(crate) fn new() -> Self {
        Self { ways: vec![None; FLOWS_MAX].into_boxed_slice(), latest: 0 }
    }

    /// Returns the state of a flow if the flow is tracked.
    pub(crate) fn get(&self, flow: H) -> Option<&T> {
        let set = self.ways.get(set(flow.into()))?.iter().flatten();
        set.into_iter().find(|way| way.flow == flow).map(|way| &way.value)
    }

    /// Returns a mutable reference to the state of a flow, if the flow is tracked.
    pub(crate) fn get_mut(&mut self, flow: H) -> Option<&mut T> {
        let set = self.ways.get_mut(set(flow.into()))?.iter_mut().flatten();
        set.into_iter().find(|way| way.flow == flow).map(|way| &mut way.value)
    }

    /// Returns the states of all tracked flows.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.ways.iter().flatten().map(|way| &way.value)
    }

    /// Returns the state of the flow that would be evicted if `flow` were inserted.
    pub(crate) fn victim(&self, flow: H) -> Option<&T> {
        let set = self.ways.get(set(flow.into()))?;
        if set.iter().flatten().any(|way| way.flow == flow) {
            return None;
        }
        let used_ns = |way: &&Option<Remembered<H, T>>| way.as_ref().map(|way| way.used_ns);
        set.iter().min_by_key(used_ns)?.as_ref().map(|way| &way.value)
    }

    /// Returns the state of a flow. If the flow is not tracked, inserts `fresh` first, evicting the least recently used
    /// flow if the set is full.
    #[inline(always)]
    pub(crate) fn entry(&mut self, flow: H, now_ns: u64, fresh: impl FnOnce() -> T) -> &mut T {
        let latest = self.ways.get(self.latest).and_then(Option::as_ref);
        if latest.is_none_or(|way| way.flow != flow) {
            self.latest = self.place_of(flow);
        }
        let way = &mut self.ways[self.latest];
        if way.as_ref().is_some_and(|way| way.flow != flow) {
            *way = None;
        }
        let remembered = way.get_or_insert_with(|| Remembered { flow, used_ns: 0, value: fresh() });
        remembered.used_ns = now_ns;
        &mut remembered.value
    }

    /// Returns the way that a flow occupies. If it has none, returns the way to use for it: a free one, or the least
    /// recently used one.
    #[inline(never)]
    fn place_of(&self, flow: H) -> usize {
        let set = set(flow.into());
        let ways = &self.ways[set.clone()];
        let is_own =
            |way: &Option<Remembered<H, T>>| way.as_ref().is_some_and(|way| way.flow == flow);
        let used_ns = |way: &Option<Remembered<H, T>>| way.as_ref().map(|way| way.used_ns);
        let at = match ways.iter().position(is_own) {
            Some(own) => own,
            None => (0..ways.len()).min_by_key(|&at| used_ns(&ways[at])).unwrap_or(0),
        };
        set.start + at
    }
}

/// Returns the ways that a flow may use, selected by all bits of its hash.
fn set(flow: u64) -> core::ops::Range<usize> {
    let mixed = (flow ^ (flow >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (mixed >> 32) as usize % (FLOWS_MAX / WAYS) * WAYS;
    first..first + WAYS
}

/// Number of ways in a set.
const WAYS: usize = 4;

/// Maximum number of tracked flows. Each takes about 128 bytes. A full set evicts its least recently used flow.
pub const FLOWS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{FLOWS_MAX, FlowMemory, WAYS, set};

    #[test]
    fn the_flow_that_was_not_used_for_longest_is_forgotten() {
        let mut memory = FlowMemory::<u64, _>::new();
        // Ten flows that belong to the same set.
        let flows: Vec<u64> = (0..).filter(|&flow| set(flow) == set(0)).take(10).collect();
        let flow = |i: u64| flows[i as usize];
        for i in 0..WAYS as u64 {
            *memory.entry(flow(i), i, || 0) = i;
        }
        memory.entry(flow(0), 100, || panic!("the flow is in the memory"));
        assert_eq!(*memory.entry(flow(9), 101, || 9), 9);
        assert_eq!(memory.get(flow(1)), None);
        assert_eq!([0, 2, 3, 9].map(|i| memory.get(flow(i)).copied()), [0, 2, 3, 9].map(Some));
        *memory.get_mut(flow(2)).unwrap() = 7;
        assert_eq!(memory.get(flow(2)), Some(&7));
    }

    #[test]
    fn a_flood_takes_no_more_memory() {
        let mut memory = FlowMemory::<u64, _>::new();
        // Miri is several hundred times slower. This smaller number of flows is still enough to fill the memory.
        let flows = if cfg!(miri) { 6 * FLOWS_MAX as u64 } else { 1_000_000 };
        for flow in 0..flows {
            memory.entry(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), flow, || ());
        }
        assert_eq!(memory.ways.len(), FLOWS_MAX);
        assert!(memory.ways.iter().all(Option::is_some));
    }
}
