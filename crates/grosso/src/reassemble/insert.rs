//! Insertion of a fragment into its datagram.

use grosso_checksum::Sum;
use grosso_wire::Kind;

use crate::{
    checksum::Checksum,
    flow::{Found, Place},
    frame::Frame,
    keyed_hash::KeyedHash,
    meta::Meta,
    reassemble::{
        Discard, Outcome, Overlap, Reassembler, ReassemblyLimits, ReassemblyMode, ReassemblySink,
        ReassemblyVerdict, Returned, SOURCES,
        delivery::{Datagram, Transport},
        examine::ArrivedFragment,
        identity::{Flow, Key},
        incomplete::{Contents, Incomplete},
        judge::{Judgement, digest_of},
        queue::Link,
        render::{self, Rendered, Whole},
        store::{Bit, Fragment, Store, units},
    },
};

impl<B: AsRef<[u8]>> Reassembler<B> {
    /// Inserts a fragment into the datagram in this slot.
    pub(super) fn insert(
        &mut self,
        slot: u32,
        frame: Frame<B>,
        mut arrival: ArrivedFragment,
        now_ns: u64,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> ReassemblyVerdict {
        if self.datagrams.used(slot).is_none_or(|datagram| datagram.is_dead) {
            return self.discard(frame, Discard::Dead, None, 0, sink);
        }
        let slot = self.renew(slot, now_ns, sink);
        match self.judge(slot, &mut arrival, frame.buffer.as_ref()) {
            Judgement::Kills(reason, error) => {
                self.kill(slot, reason, sink);
                self.discard(frame, reason, error, arrival.ip, sink)
            }
            Judgement::Duplicate => {
                self.stats.duplicates += 1;
                sink.take(Outcome::Returned { frame, why: Returned::Duplicate });
                ReassemblyVerdict::Duplicate
            }
            judgement @ (Judgement::Fits | Judgement::Mixes) => {
                let (pages, needed) = self.needed(slot, &arrival, frame.buffer.as_ref().len());
                if let Err(reason) = self.make_room(slot, needed, sink) {
                    self.end(slot, reason, sink);
                    return self.discard(frame, reason, None, arrival.ip, sink);
                }
                if pages > 0
                    && let Some(datagram) = self.datagrams.used_mut(slot)
                {
                    let units = units(arrival.offset, arrival.end());
                    self.store.provide(&mut datagram.contents.pages, &units);
                }
                let mixes = matches!(judgement, Judgement::Mixes);
                self.keep(slot, frame, &arrival, mixes, sink);
                self.settle(slot, sink)
            }
        }
    }

    /// Returns the slot of the datagram with this key, creating the datagram if necessary.
    pub(super) fn find_or_start(
        &mut self,
        key: Key,
        now_ns: u64,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> u32 {
        let hash = key.hash(&self.state);
        let mut found = self.table.find(hash, None);
        if let Found::Slot(slot) = found {
            if self.datagrams.used(slot).is_some_and(|datagram| datagram.key == key) {
                return slot;
            }
            // The slot's datagram has another key with the same tag. The probability of this is 1 in 2^31.
            self.end(slot, Discard::TableFull, sink);
            found = self.table.find(hash, None);
        }
        // An atomic fragment is a complete datagram, so it must not take a slot from waiting datagrams.
        if !key.is_atomic
            && self.held_datagrams() >= self.rules.limits.datagrams.max(1)
            && let Some(oldest) = self.by_use.first()
        {
            self.end(oldest, Discard::TableFull, sink);
            found = self.table.find(hash, None);
        }
        let place = loop {
            match found {
                Found::Free(place) => break place,
                Found::Slot(slot) => self.end(slot, Discard::TableFull, sink),
                Found::Full(bucket) => {
                    let created_ns =
                        |slot: u32| self.datagrams.used(slot).map_or(u64::MAX, |d| d.created_ns);
                    let [first, others @ ..] = self.table.slots(bucket);
                    let older = |oldest: u32, slot: u32| {
                        if created_ns(slot) < created_ns(oldest) { slot } else { oldest }
                    };
                    self.end(others.into_iter().fold(first, older), Discard::TableFull, sink);
                }
            }
            found = self.table.find(hash, None);
        };
        self.start(key, hash, place, now_ns)
    }

    fn start(&mut self, key: Key, hash: u64, place: Place, now_ns: u64) -> u32 {
        let share = key.source_hash(&self.state) as usize % SOURCES;
        let slot = self.datagrams.insert(Incomplete {
            key,
            place,
            share,
            created_ns: now_ns,
            is_dead: false,
            by_age: Link::NONE,
            by_use: Link::NONE,
            by_source: Link::NONE,
            held_bytes: 0,
            contents: Contents::new(),
        });
        self.table.insert(place, hash, slot);
        if let Some(age) = self.ages.get_mut(usize::from(key.is_ipv6)) {
            age.push(&mut self.datagrams, |d| &mut d.by_age, slot);
        }
        self.by_use.push(&mut self.datagrams, |d| &mut d.by_use, slot);
        if let Some(source) = self.sources.get_mut(share) {
            source.by_use.push(&mut self.datagrams, |d| &mut d.by_source, slot);
        }
        slot
    }

    /// Records the arrival of a datagram's fragment. Reassembly starts over if too many other fragments from its source
    /// have arrived in the meantime (rule F4).
    fn renew(
        &mut self,
        slot: u32,
        now_ns: u64,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> u32 {
        let Some(datagram) = self.datagrams.used_mut(slot) else { return slot };
        let Some(source) = self.sources.get_mut(datagram.share) else { return slot };
        source.count = source.count.wrapping_add(1);
        let count = source.count;
        let gap = count.wrapping_sub(datagram.contents.source_count);
        let distance = self.rules.limits.distance;
        let key = datagram.key;
        if !key.is_ipv6 && distance > 0 && datagram.contents.fragments > 0 && gap > distance {
            self.end(slot, Discard::Distance, sink);
            let slot = self.find_or_start(key, now_ns, sink);
            if let Some(datagram) = self.datagrams.used_mut(slot) {
                datagram.contents.source_count = count;
            }
            return slot;
        }
        datagram.contents.source_count = count;
        source.by_use.renew(&mut self.datagrams, |d| &mut d.by_source, slot);
        self.by_use.renew(&mut self.datagrams, |d| &mut d.by_use, slot);
        slot
    }

    /// Returns the number of pages that a fragment needs and its datagram lacks, and the memory in bytes that the
    /// datagram occupies with these pages.
    fn needed(&self, slot: u32, arrival: &ArrivedFragment, buffer_len: usize) -> (usize, usize) {
        let Some(datagram) = self.datagrams.used(slot) else { return (0, 0) };
        let contents = &datagram.contents;
        let units = units(arrival.offset, arrival.end());
        let pages = self.store.pages_missing(&contents.pages, &units);
        let datagram = if contents.fragments == 0 { size_of::<Incomplete>() } else { 0 };
        let keeps = self.rules.mode != ReassemblyMode::Coalesce && !contents.is_released;
        let buffer = if keeps { kept_bytes::<B>(&self.rules.limits, buffer_len) } else { 0 };
        (pages, datagram + pages * self.store.page_bytes() + buffer)
    }

    /// Evicts datagrams until there is room for more data of this one. As long as its source exceeds the limit per
    /// source, only datagrams from that source are evicted. After that, the datagrams that have waited longest for a
    /// fragment are evicted, whatever their source (P32).
    fn make_room(
        &mut self,
        slot: u32,
        needed: usize,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> Result<(), Discard> {
        if needed == 0 {
            return Ok(());
        }
        let limits = self.rules.limits;
        let Some(share) = self.datagrams.used(slot).map(|datagram| datagram.share) else {
            return Err(Discard::TableFull);
        };
        while let Some(source) = self.sources.get(share)
            && source.held_bytes + needed > limits.source_bytes
        {
            let victim = source.by_use.first().filter(|&victim| victim != slot);
            self.end(victim.ok_or(Discard::SourceFull)?, Discard::SourceFull, sink);
        }
        while self.held_bytes + needed > limits.memory_bytes {
            let victim = self.by_use.first().filter(|&victim| victim != slot);
            self.end(victim.ok_or(Discard::MemoryFull)?, Discard::MemoryFull, sink);
        }
        let held = self.datagrams.used(slot).map_or(0, |datagram| datagram.held_bytes);
        self.account(slot, held + needed);
        Ok(())
    }

    /// Keeps a fragment or its data. The caller must have reserved the memory and the pages.
    fn keep(
        &mut self,
        slot: u32,
        frame: Frame<B>,
        arrival: &ArrivedFragment,
        mixes: bool,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) {
        let Some(datagram) = self.datagrams.used_mut(slot) else { return };
        let contents = &mut datagram.contents;
        let packet = frame.buffer.as_ref();
        let units = units(arrival.offset, arrival.end());
        let covered = match mixes {
            true => self.store.count(&contents.pages, Bit::Covered, &units),
            false => 0,
        };
        let sum = match self.rules.mode {
            ReassemblyMode::Coalesce => {
                let summed = self.rules.verify && arrival.sum.is_none();
                gather(&mut self.store, contents, arrival, packet, self.rules.overlap, summed)
            }
            ReassemblyMode::KeepGeometry if self.rules.verify => arrival.sum.or_else(|| {
                packet.get(arrival.data.start as usize..arrival.data.end as usize).map(Sum::of)
            }),
            ReassemblyMode::KeepGeometry | ReassemblyMode::Virtual => arrival.sum,
        };
        contents.sum = contents.sum.zip(sum).map(|(before, sum)| before + sum).filter(|_| !mixes);
        // Only the last run can grow, and only at its end (rule F15).
        if contents.fragments == 0 || arrival.offset != contents.reach {
            self.store.mark(&contents.pages, Bit::Run, units.start);
        }
        self.store.mark(&contents.pages, Bit::Start, units.start);
        contents.cover(&mut self.store, units.clone());
        let keeps_first = self.rules.overlap == Overlap::First && contents.flow.is_some();
        contents.add(arrival, &frame.meta, units.end - units.start - covered, keeps_first);
        if mixes {
            contents.checksum = Some(Checksum::None);
        }
        self.stats.gso_stripped += u64::from(frame.meta.gso.is_some());
        if self.rules.mode == ReassemblyMode::Coalesce {
            self.held_fragments += 1;
            return sink.take(Outcome::Returned { frame, why: Returned::Gathered });
        }
        // A fragment's segmentation parameters do not apply to the datagram (rule F25).
        let frame = Frame { meta: Meta { gso: None, ..frame.meta }, ..frame };
        if let (true, Some(flow)) = (contents.is_released, contents.flow) {
            let number = digest(&self.state, frame.buffer.as_ref(), arrival);
            self.store.set_index(&contents.pages, units.start, number);
            self.stats.fragments_forwarded += 1;
            return sink.take(Outcome::Fragment { frame, flow });
        }
        self.held_fragments += 1;
        let number = self.store.fragments.insert(Fragment::new(frame, &arrival.data));
        self.store.set_index(&contents.pages, units.start, number);
    }

    /// Delivers the datagram if the fragment that was just kept completes it. In virtual mode, delivers the waiting
    /// fragments once the first fragment has arrived.
    fn settle(
        &mut self,
        slot: u32,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> ReassemblyVerdict {
        let Some(datagram) = self.datagrams.used(slot) else { return ReassemblyVerdict::Held };
        let contents = &datagram.contents;
        let (is_released, has_first) = (contents.is_released, contents.flow.is_some());
        let complete_len = contents.complete_len();
        if self.rules.mode != ReassemblyMode::Virtual {
            return match complete_len {
                Some(len) => self.complete(slot, len, sink),
                None => ReassemblyVerdict::Held,
            };
        }
        if has_first && !is_released {
            self.release(slot, sink);
        }
        if complete_len.is_some() {
            self.stats.datagrams += 1;
            self.remove(slot);
            return ReassemblyVerdict::Completed;
        }
        if has_first { ReassemblyVerdict::Forwarded } else { ReassemblyVerdict::Held }
    }

    /// Releases the fragments that waited for the first fragment.
    fn release(&mut self, slot: u32, sink: &mut (impl ReassemblySink<B> + ?Sized)) {
        let Some(datagram) = self.datagrams.used_mut(slot) else { return };
        let contents = &mut datagram.contents;
        let Some(flow) = contents.flow else { return };
        let mut freed = 0;
        let mut from = 0;
        while let Some(unit) = self.store.next(&contents.pages, Bit::Start, true, from) {
            from = unit + 1;
            let number = self.store.index(&contents.pages, unit);
            let Some(fragment) = self.store.fragments.remove(number) else { continue };
            freed += kept_bytes::<B>(&self.rules.limits, fragment.frame.buffer.as_ref().len());
            let number = digest_of(&self.state, fragment.bytes());
            self.store.set_index(&contents.pages, unit, number);
            self.stats.fragments_forwarded += 1;
            sink.take(Outcome::Fragment { frame: fragment.frame, flow });
        }
        contents.is_released = true;
        self.held_fragments -= usize::from(contents.fragments);
        let held = datagram.held_bytes - freed;
        self.account(slot, held);
    }

    /// Delivers a complete datagram.
    fn complete(
        &mut self,
        slot: u32,
        len: u32,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> ReassemblyVerdict {
        let Some(datagram) = self.datagrams.used(slot) else { return ReassemblyVerdict::Held };
        let (key, contents) = (datagram.key, &datagram.contents);
        let Some(flow) = contents.flow else { return ReassemblyVerdict::Held };
        let gathered = if self.rules.mode == ReassemblyMode::Coalesce { len } else { 0 };
        let (header, data) = front(&self.store, contents, gathered > 0);
        let sum = || contents.sum.unwrap_or_else(|| sum_of(&self.store, contents, gathered));
        let rendered = contents.ecn().and_then(|ecn| {
            let whole = Whole {
                first: header,
                ip: usize::from(contents.ip),
                is_ipv6: key.is_ipv6,
                ecn,
                dont_fragment: contents.dont_fragment(),
                data_len: len as usize,
            };
            let link = (self.link, &self.ports);
            render::render(&whole, link, &mut self.latest, &mut self.header, sum)
        });
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(reason) => {
                self.kill(slot, reason, sink);
                return ReassemblyVerdict::Discarded(reason);
            }
        };
        let (checksum, transport) =
            self.checksums(contents, key.is_ipv6, &flow, (data, len as usize), &rendered, sum);
        let meta = Meta { checksum, ..contents.meta };
        let (pages, fragments) = (contents.pages, contents.fragments);
        let (fragment_bytes_max, dont_fragment) = (contents.largest, contents.dont_fragment());
        self.stats.datagrams += 1;
        self.stats.fragments_joined += u64::from(fragments);
        self.held_fragments -= usize::from(fragments);
        self.detach(slot);
        let header = self.header.get(..rendered.len).unwrap_or_default();
        let kept = if gathered > 0 { 0 } else { fragments };
        let rest = self.store.starts(&pages, units(0, 0).start, kept);
        sink.take(Outcome::Datagram(Datagram {
            len: header.len() + len as usize,
            header,
            store: &mut self.store,
            pages,
            rest,
            gathered,
            identity: key.identity(),
            flow,
            meta,
            transport,
            fragments,
            fragment_bytes_max: fragment_bytes_max as u16,
            dont_fragment,
        }));
        ReassemblyVerdict::Completed
    }

    /// Returns the checksum state of a whole datagram whose headers have been written, and of its transport checksum.
    /// `data` is the start of the `len` bytes after the headers.
    fn checksums(
        &self,
        contents: &Contents,
        is_ipv6: bool,
        flow: &Flow,
        (data, len): (&[u8], usize),
        rendered: &Rendered,
        sum: impl Fn() -> Sum,
    ) -> (Checksum, Transport) {
        let header = self.header.get(..rendered.len).unwrap_or_default();
        let checksum = contents.checksum.unwrap_or_default();
        let mut transport = Transport::Unread;
        if self.rules.verify && !matches!(checksum, Checksum::Unnecessary { .. }) {
            let ip = header.get(usize::from(contents.ip)..).unwrap_or_default();
            let kind = if is_ipv6 { Kind::Ipv6 } else { Kind::Ipv4 };
            transport = render::verify(ip, kind, flow, data, len, sum());
        }
        let checksum = match checksum {
            Checksum::Complete { .. } => {
                let headers = header.get(rendered.network..).map_or(Sum::ZERO, Sum::of);
                Checksum::Complete { sum: (headers + sum()).fold() }
            }
            Checksum::None if transport == Transport::Right && !rendered.is_covered => {
                Checksum::Unnecessary { levels: 0 }
            }
            checksum => checksum,
        };
        (checksum, transport)
    }

    /// Removes a datagram after all of its fragments have been released.
    fn remove(&mut self, slot: u32) {
        if let Some(datagram) = self.datagrams.used_mut(slot) {
            self.store.release(&mut datagram.contents.pages);
        }
        self.detach(slot);
    }
}

/// Returns the memory that a kept buffer counts as, in bytes, regardless of how full it is (P33).
pub(super) fn kept_bytes<B>(limits: &ReassemblyLimits, len: usize) -> usize {
    len.max(limits.buffer_bytes) + size_of::<Fragment<B>>()
}

/// Copies a fragment's data to its position, and a first fragment's headers before the data. Returns the sum of the
/// data if it is known.
fn gather<B: AsRef<[u8]>>(
    store: &mut Store<B>,
    contents: &Contents,
    arrival: &ArrivedFragment,
    packet: &[u8],
    overlap: Overlap,
    summed: bool,
) -> Option<Sum> {
    let pages = &contents.pages;
    let range = arrival.data.start as usize..arrival.data.end as usize;
    let data = packet.get(range).unwrap_or_default();
    let units = units(arrival.offset, arrival.end());
    if arrival.is_first() && !(overlap == Overlap::First && contents.flow.is_some()) {
        store.write_header(pages, packet.get(..arrival.data.start as usize).unwrap_or_default());
    }
    if overlap == Overlap::First && store.any(pages, Bit::Covered, &units) {
        for (unit, bytes) in units.zip(data.chunks(8)) {
            if !store.any(pages, Bit::Covered, &(unit..unit + 1)) {
                store.write(pages, unit, bytes, false);
            }
        }
        return None;
    }
    let sum = store.write(pages, units.start, data, summed);
    if summed { Some(sum) } else { arrival.sum }
}

/// Returns the headers of the first fragment, and the contiguous data after them.
fn front<'a, B: AsRef<[u8]>>(
    store: &'a Store<B>,
    contents: &Contents,
    gathered: bool,
) -> (&'a [u8], &'a [u8]) {
    if gathered {
        let header_len = usize::from(contents.header_len);
        let len = contents.first_len as usize;
        return store.front(&contents.pages, header_len, len).split_at(header_len);
    }
    let number = store.index(&contents.pages, units(0, 0).start);
    let first = store.fragments.get(number);
    first.map_or((&[], &[]), |fragment| (fragment.header(), fragment.bytes()))
}

/// Returns the sum of all data of a complete datagram. The length of every fragment except the last is even.
fn sum_of<B: AsRef<[u8]>>(store: &Store<B>, contents: &Contents, gathered: u32) -> Sum {
    let pages = &contents.pages;
    if gathered > 0 {
        return Sum::of_parts(store.slices(pages, 0, gathered));
    }
    let mut sum = Sum::ZERO;
    let mut starts = store.starts(pages, units(0, 0).start, contents.fragments);
    while let Some(number) = store.next_start(&mut starts) {
        let fragment = store.fragments.get(number);
        sum += fragment.map_or(Sum::ZERO, |fragment| Sum::of(fragment.bytes()));
    }
    sum
}

fn digest(state: &KeyedHash, packet: &[u8], arrival: &ArrivedFragment) -> u32 {
    let range = arrival.data.start as usize..arrival.data.end as usize;
    digest_of(state, packet.get(range).unwrap_or_default())
}
