//! Reassembly of IPv4 and IPv6 fragments.
//!
//! A fragment is first [examined](reason::Pass) on its own; then its datagram is looked up. A bitmap of 8-byte units
//! tracks each datagram, so every fragment costs the same regardless of its offset and order of arrival. A fragment
//! that cannot be used safely is [discarded](reason::Discard) for a named reason. The total size of held buffers is
//! limited. At the limit, the datagram that has waited longest for a fragment is evicted. A source that exceeds its
//! share loses one of its own datagrams instead.
//!
//! ```
//! use grosso::{Frame, reassemble::{ReassemblyMode, Outcome, Reassembler, ReassemblyRules, ReassemblyVerdict}};
//! use grosso_wire::{LinkType, Ports};
//! # use grosso_testkit::Packet;
//! # fn piece(offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
//! #     let ip = Packet::new().ethernet(|e| e).ipv4(move |ip| {
//! #         ip.df(false).fragment_offset(offset / 8).more_fragments(more).protocol(17)
//! #     });
//! #     ip.payload(data).build()
//! # }
//! let last = piece(16, false, b"the end");
//! let first = piece(0, true, b"\x30\x39\x00\x35\x00\x17\x00\x00The data");
//!
//! let rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
//! let mut reassembler =
//!     Reassembler::new(rules, LinkType::Ethernet, Ports::ASSIGNED, 0x5eed)?;
//! let mut whole = Vec::new();
//! let mut sink = |outcome: Outcome<'_, &[u8]>| {
//!     if let Outcome::Datagram(datagram) = outcome {
//!         datagram.copy_to(&mut whole); // or write `datagram.slices()` with one vectored write
//!     }
//! };
//! assert_eq!(reassembler.push(Frame::new(&last[..]), 0, &mut sink), ReassemblyVerdict::Held);
//! assert_eq!(reassembler.push(Frame::new(&first[..]), 9, &mut sink), ReassemblyVerdict::Completed);
//! assert_eq!(&whole[14 + 20 + 8..], b"The datathe end");
//! # Ok::<(), grosso::reassemble::OverlapNeedsCoalesce>(())
//! ```

mod append;
mod delivery;
mod examine;
mod identity;
mod incomplete;
mod insert;
mod judge;
mod latest;
pub(crate) mod queue;
pub mod reason;
mod recent;
mod render;
mod rules;
mod stats;
mod store;

use alloc::{vec, vec::Vec};

use grosso_wire::{LinkType, Ports, Stack, dissect_into};

pub use delivery::{Datagram, Discarded, Outcome, ReassemblySink, Returned, Transport};
pub use identity::{Flow, Identity};
pub use reason::IcmpError;
pub use rules::{Overlap, OverlapNeedsCoalesce, ReassemblyLimits, ReassemblyMode, ReassemblyRules};
pub use stats::ReassembleStats;
pub use store::Fragment;

use crate::{
    flow::{BucketChoice, FlowHasher, Keys, Table, TableShape},
    frame::Frame,
    keyed_hash::KeyedHash,
    meta::Meta,
    reassemble::{
        examine::{Refusal, examine},
        incomplete::{Contents, Incomplete},
        latest::LatestHeaders,
        queue::{Queue, Slab},
        reason::{Discard, Pass},
        recent::Recent,
        store::{Bit, Store, units},
    },
    template::HEADER_BYTES_MAX,
};

/// Result of pushing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReassemblyVerdict {
    /// The frame is not a fragment, or is a fragment that cannot be reassembled. It was delivered unchanged.
    Passed(Pass),
    /// The fragment is held until its datagram is complete.
    Held,
    /// The fragment was delivered unchanged, after the fragments that waited for it ([`ReassemblyMode::Virtual`]).
    Forwarded,
    /// The fragment completed its datagram, which was delivered.
    Completed,
    /// The fragment is a duplicate.
    Duplicate,
    /// The fragment was discarded.
    Discarded(Discard),
}

/// Reassembler for the IP fragments of one link. The [module documentation](self) has an example.
///
/// Time is an argument: nanoseconds of any monotonic clock. See [`ReassemblyRules`] for the rules and
/// [`ReassemblyLimits`] for the bounds. Like [`Coalescer`](crate::Coalescer), the type is aligned so that reassemblers
/// of different queues can be adjacent in memory.
#[derive(Debug)]
#[repr(align(128))]
pub struct Reassembler<B> {
    rules: ReassemblyRules,
    link: LinkType,
    ports: Ports,
    network: u64,
    outside: FlowHasher,
    state: KeyedHash,
    table: Table<u64, u32>,
    datagrams: Slab<Incomplete>,
    recent: Recent,
    store: Store<B>,
    /// Queues of all datagrams by age, including discarded ones. IPv4 and IPv6 have separate queues, because their
    /// timeouts differ.
    ages: [Queue; 2],
    /// Incomplete datagrams, by arrival time of their latest fragment.
    by_use: Queue,
    /// Discarded datagrams, by time of discard.
    tombstones: Queue,
    tombstone_count: usize,
    sources: Vec<Source>,
    /// Memory of all datagrams, in bytes.
    held_bytes: usize,
    held_fragments: usize,
    stats: ReassembleStats,
    stack: Stack,
    latest: LatestHeaders,
    header: [u8; HEADER_BYTES_MAX],
}

/// State of one source, or of several sources with the same hash.
#[derive(Clone, Copy, Debug)]
struct Source {
    held_bytes: usize,
    /// Number of fragments received from the source. The counter wraps.
    count: u32,
    /// Datagrams from the source, by arrival time of their latest fragment.
    by_use: Queue,
}

impl<B: AsRef<[u8]>> Reassembler<B> {
    /// Creates a reassembler for frames of one link type. `seed` is the key for hashing; use a random value, so that an
    /// attacker cannot choose datagrams that share a bucket (P50).
    ///
    /// # Errors
    /// Returns [`OverlapNeedsCoalesce`] if the rules mix overlapping bytes in a mode that keeps fragments.
    pub fn new(
        rules: ReassemblyRules,
        link: LinkType,
        ports: Ports,
        seed: u64,
    ) -> Result<Self, OverlapNeedsCoalesce> {
        let gathers = rules.mode == ReassemblyMode::Coalesce;
        if matches!(rules.overlap, Overlap::First | Overlap::Last) && !gathers {
            return Err(OverlapNeedsCoalesce);
        }
        let keys = rules.limits.datagrams.saturating_add(rules.limits.tombstones);
        // At most a quarter of the ways are used, so buckets are hardly ever full.
        let buckets = keys / 2 + 1;
        Ok(Self {
            link,
            ports,
            network: 0,
            outside: FlowHasher::new(seed),
            state: KeyedHash::new(seed),
            table: Table::new(TableShape { buckets, choice: BucketChoice::Seeded }),
            datagrams: Slab::default(),
            recent: Recent::new(),
            store: Store::new(gathers),
            ages: [Queue::EMPTY; 2],
            by_use: Queue::EMPTY,
            tombstones: Queue::EMPTY,
            tombstone_count: 0,
            sources: vec![Source { held_bytes: 0, count: 0, by_use: Queue::EMPTY }; SOURCES],
            held_bytes: 0,
            held_fragments: 0,
            stats: ReassembleStats::default(),
            stack: Stack::new(0),
            latest: LatestHeaders::new(),
            header: [0; HEADER_BYTES_MAX],
            rules,
        })
    }

    /// Pushes one frame and delivers the datagram that it completes. Datagrams that have timed out are discarded first.
    pub fn push(
        &mut self,
        frame: Frame<B>,
        now_ns: u64,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> ReassemblyVerdict {
        let packet = frame.buffer.as_ref();
        self.stats.frames_in += 1;
        self.expire(now_ns, sink);
        if let Some((slot, arrival)) = self.recent.examine(packet, &frame.meta) {
            self.stats.fragments_in += 1;
            return match self.append(slot, frame, &arrival, sink) {
                Ok(verdict) => verdict,
                Err(frame) => self.insert(slot, frame, arrival, now_ns, sink),
            };
        }
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        match examine(packet, &self.stack, &frame.meta, &self.rules) {
            Ok((mut key, arrival)) => {
                key.outside = self.outside(packet, arrival.outside, &frame.meta);
                self.stats.fragments_in += 1;
                let slot = self.find_or_start(key, now_ns, sink);
                if !key.is_atomic {
                    self.recent.remember(slot, &arrival, packet, &self.stack, &frame.meta);
                }
                self.insert(slot, frame, arrival, now_ns, sink)
            }
            Err(Refusal::Pass(reason)) => {
                self.stats.passed[reason.index()] += 1;
                sink.take(Outcome::Passed { frame, reason });
                ReassemblyVerdict::Passed(reason)
            }
            Err(Refusal::Discard { reason, error, ip }) => {
                self.stats.fragments_in += 1;
                self.discard(frame, reason, error, ip, sink)
            }
        }
    }

    /// Sets an identifier for the network from which the following frames come. Use it if the frames themselves do not
    /// identify their network, for example after decapsulation from different tunnels. Fragments of different networks
    /// are never combined. The default is 0.
    pub fn set_network(&mut self, network: u64) {
        if network != self.network {
            self.network = network;
            self.recent.clear();
        }
    }

    /// Sets the UDP ports that identify tunnels inside the frames, instead of the ports passed to [`Self::new`].
    pub fn set_ports(&mut self, ports: Ports) {
        if ports != self.ports {
            self.ports = ports;
            self.recent.clear();
            self.latest.clear();
        }
    }

    /// Discards the datagrams that have timed out, oldest first (rules F3, F40).
    pub fn expire(&mut self, now_ns: u64, sink: &mut (impl ReassemblySink<B> + ?Sized)) {
        for version in 0..self.ages.len() {
            while let Some((slot, created_ns)) = self.oldest(version) {
                if now_ns.saturating_sub(created_ns) < self.age_ns_max(version) {
                    break;
                }
                self.end(slot, Discard::Timeout, sink);
            }
        }
    }

    /// Returns the time at which [`Self::expire`] must be called next, in the caller's nanoseconds, or `None` if no
    /// datagram is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let due = |version| {
            let (_, created_ns) = self.oldest(version)?;
            Some(created_ns.saturating_add(self.age_ns_max(version)))
        };
        (0..self.ages.len()).filter_map(due).min()
    }

    /// Discards all held fragments, oldest datagram first.
    pub fn finish(&mut self, sink: &mut (impl ReassemblySink<B> + ?Sized)) {
        for version in 0..self.ages.len() {
            while let Some((slot, _)) = self.oldest(version) {
                self.end(slot, Discard::Finished, sink);
            }
        }
    }

    /// Returns the identity of the datagram that a fragment belongs to, or `None` if the frame would be passed through
    /// or discarded rather than held.
    pub fn identify(&mut self, frame: &Frame<B>) -> Option<Identity> {
        let packet = frame.buffer.as_ref();
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        let (mut key, arrival) = examine(packet, &self.stack, &frame.meta, &self.rules).ok()?;
        key.outside = self.outside(packet, arrival.outside, &frame.meta);
        Some(key.identity())
    }

    /// Returns the counters since creation.
    #[must_use]
    pub fn stats(&self) -> &ReassembleStats {
        &self.stats
    }

    /// Returns the rules and limits.
    #[must_use]
    pub fn rules(&self) -> &ReassemblyRules {
        &self.rules
    }

    /// Returns the memory of incomplete datagrams in bytes, at most [`ReassemblyLimits::memory_bytes`].
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns the number of incomplete datagrams.
    #[must_use]
    pub fn held_datagrams(&self) -> usize {
        self.datagrams.len() - self.tombstone_count
    }

    /// Returns the number of held fragments.
    #[must_use]
    pub fn held_fragments(&self) -> usize {
        self.held_fragments
    }

    /// Returns the hash of the headers around a fragment, which is the same for all fragments of a datagram.
    fn outside(&self, packet: &[u8], layers: usize, meta: &Meta) -> u64 {
        let vlan = meta.vlan.map_or(0, |tag| u64::from(tag.tci & VLAN_ID) + 1) ^ self.network;
        let around = self.stack.layers().get(..layers).unwrap_or_default();
        // A link-layer header alone does not identify a network.
        if around.len() <= 1 {
            return vlan;
        }
        u64::from(self.outside.flow(packet, &Keys::of(around, packet))) ^ vlan
    }

    fn oldest(&self, version: usize) -> Option<(u32, u64)> {
        let slot = self.ages.get(version)?.first()?;
        Some((slot, self.datagrams.used(slot)?.created_ns))
    }

    fn age_ns_max(&self, version: usize) -> u64 {
        let limits = &self.rules.limits;
        if version == 0 { limits.ipv4_ns } else { limits.ipv6_ns }
    }

    /// Discards a single frame.
    fn discard(
        &mut self,
        frame: Frame<B>,
        reason: Discard,
        error: Option<IcmpError>,
        ip: u16,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> ReassemblyVerdict {
        if let Some(error) = error {
            let quote = frame.buffer.as_ref().get(usize::from(ip)..).unwrap_or_default();
            sink.take(Outcome::Problem { error, quote });
        }
        self.stats.fragments_discarded[reason.index()] += 1;
        sink.take(Outcome::Returned { frame, why: Returned::Discarded(reason) });
        ReassemblyVerdict::Discarded(reason)
    }

    /// Discards a datagram, and remembers its key if the rules require it.
    fn kill(&mut self, slot: u32, reason: Discard, sink: &mut (impl ReassemblySink<B> + ?Sized)) {
        let wanted = reason.kills_key() && self.rules.overlap == Overlap::Drop;
        if !wanted || self.rules.limits.tombstones == 0 {
            return self.end(slot, reason, sink);
        }
        self.empty(slot, reason, sink);
        self.bury(slot);
    }

    /// Discards a datagram, unless it already was, and forgets its key.
    fn end(&mut self, slot: u32, reason: Discard, sink: &mut (impl ReassemblySink<B> + ?Sized)) {
        if self.datagrams.used(slot).is_some_and(|datagram| !datagram.is_dead) {
            self.empty(slot, reason, sink);
        }
        self.forget(slot);
    }

    /// Discards everything that an incomplete datagram holds.
    fn empty(&mut self, slot: u32, reason: Discard, sink: &mut (impl ReassemblySink<B> + ?Sized)) {
        let Some(datagram) = self.datagrams.used_mut(slot) else { return };
        let key = datagram.key;
        let mut contents = core::mem::replace(&mut datagram.contents, Contents::new());
        contents.chart(&mut self.store);
        self.stats.datagrams_discarded[reason.index()] += 1;
        if reason == Discard::Timeout
            && let Some(quote) = quote_of(&self.store, &contents)
        {
            sink.take(Outcome::Problem { error: IcmpError::TimeExceeded, quote });
        }
        sink.take(Outcome::Discarded(Discarded {
            identity: key.identity(),
            reason,
            fragments: contents.fragments,
            end: contents.end,
            reach: contents.reach,
            pages: contents.pages,
            holes: &self.store,
        }));
        if !contents.is_released {
            self.held_fragments -= usize::from(contents.fragments);
            self.stats.fragments_discarded[reason.index()] += u64::from(contents.fragments);
        }
        if self.rules.mode != ReassemblyMode::Coalesce && !contents.is_released {
            let mut from = 0;
            while let Some(unit) = self.store.next(&contents.pages, Bit::Start, true, from) {
                from = unit + 1;
                let number = self.store.index(&contents.pages, unit);
                if let Some(fragment) = self.store.fragments.remove(number) {
                    let why = Returned::Discarded(reason);
                    sink.take(Outcome::Returned { frame: fragment.frame, why });
                }
            }
        }
        self.store.release(&mut contents.pages);
        self.retire(slot);
    }

    /// Unlinks an empty datagram from all lists. Its entry in the table remains.
    fn retire(&mut self, slot: u32) {
        self.account(slot, 0);
        let Some(datagram) = self.datagrams.used(slot) else { return };
        let share = datagram.share;
        self.by_use.unlink(&mut self.datagrams, |d| &mut d.by_use, slot);
        if let Some(source) = self.sources.get_mut(share) {
            source.by_use.unlink(&mut self.datagrams, |d| &mut d.by_source, slot);
        }
    }

    /// Removes a datagram that was not discarded and whose contents have been moved elsewhere.
    fn detach(&mut self, slot: u32) {
        self.retire(slot);
        self.forget(slot);
    }

    /// Moves an emptied datagram to the queue of discarded datagrams.
    fn bury(&mut self, slot: u32) {
        if self.tombstone_count >= self.rules.limits.tombstones
            && let Some(oldest) = self.tombstones.first()
        {
            self.forget(oldest);
        }
        if let Some(datagram) = self.datagrams.used_mut(slot) {
            datagram.is_dead = true;
            self.tombstone_count += 1;
            self.tombstones.push(&mut self.datagrams, |d| &mut d.by_use, slot);
        }
    }

    /// Forgets the key of an emptied datagram.
    fn forget(&mut self, slot: u32) {
        let Some(datagram) = self.datagrams.used(slot) else { return };
        let (version, place, is_dead) =
            (usize::from(datagram.key.is_ipv6), datagram.place, datagram.is_dead);
        if is_dead {
            self.tombstone_count -= 1;
            self.tombstones.unlink(&mut self.datagrams, |d| &mut d.by_use, slot);
        }
        if let Some(age) = self.ages.get_mut(version) {
            age.unlink(&mut self.datagrams, |d| &mut d.by_age, slot);
        }
        self.table.remove(place);
        self.datagrams.remove(slot);
        self.recent.forget(slot);
    }

    /// Updates the recorded memory of a datagram.
    fn account(&mut self, slot: u32, bytes: usize) {
        let Some(datagram) = self.datagrams.used_mut(slot) else { return };
        let before = core::mem::replace(&mut datagram.held_bytes, bytes);
        self.held_bytes = self.held_bytes - before + bytes;
        self.stats.held_bytes_max = self.stats.held_bytes_max.max(self.held_bytes as u64);
        if let Some(source) = self.sources.get_mut(datagram.share) {
            source.held_bytes = source.held_bytes - before + bytes;
        }
    }
}

/// Returns the available part of a datagram's first fragment, starting with its IP header.
fn quote_of<'a, B: AsRef<[u8]>>(store: &'a Store<B>, contents: &Contents) -> Option<&'a [u8]> {
    if contents.flow.is_none() || contents.is_released {
        return None;
    }
    if let Some(fragment) = store.fragments.get(store.index(&contents.pages, units(0, 0).start)) {
        return fragment.frame.buffer.as_ref().get(usize::from(contents.ip)..fragment.range().end);
    }
    let header_len = usize::from(contents.header_len) - usize::from(contents.ip);
    let quote = store.front(&contents.pages, header_len, contents.first_len as usize);
    (!quote.is_empty()).then_some(quote)
}

/// Number of sources that are distinguished. If there are more, several sources share the same limits.
const SOURCES: usize = 4096;
/// VLAN ID bits in a VLAN tag.
const VLAN_ID: u16 = 0x0fff;
