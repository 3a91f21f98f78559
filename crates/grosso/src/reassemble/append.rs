//! Fast path for a fragment that continues the data received so far, which is the common case. It compares the fragment
//! with no others and evicts nothing, and its cost does not depend on the length of the datagram.

use crate::{
    frame::Frame,
    reassemble::{
        Outcome, Reassembler, ReassemblyMode, ReassemblySink, ReassemblyVerdict, Returned,
        examine::ArrivedFragment,
        insert::kept_bytes,
        judge::END_MAX,
        store::{Bit, Fragment, units},
    },
};

impl<B: AsRef<[u8]>> Reassembler<B> {
    /// Adds a fragment that continues the datagram in this slot. Returns the fragment unchanged if this is not
    /// possible.
    pub(super) fn append(
        &mut self,
        slot: u32,
        frame: Frame<B>,
        arrival: &ArrivedFragment,
        sink: &mut (impl ReassemblySink<B> + ?Sized),
    ) -> Result<ReassemblyVerdict, Frame<B>> {
        let Some(datagram) = self.datagrams.used_mut(slot) else { return Err(frame) };
        let Some(source) = self.sources.get_mut(datagram.share) else { return Err(frame) };
        let contents = &mut datagram.contents;
        let (end, packet) = (arrival.end(), frame.buffer.as_ref());
        let units = units(arrival.offset, end);
        let carries_on = arrival.offset == contents.reach
            && arrival.more
            && arrival.len().is_multiple_of(8)
            && arrival.len() > 0
            && contents.end.is_none()
            && end <= END_MAX
            && contents.fragments < self.rules.limits.fragments;
        // The latest fragment from this source, and from any source, belongs to this datagram, so the queues need no
        // update.
        let is_latest = !datagram.is_dead
            && contents.source_count == source.count
            && self.by_use.last() == slot
            && source.by_use.last() == slot;
        let gathers = self.rules.mode == ReassemblyMode::Coalesce;
        let is_plain = frame.meta.gso.is_none()
            && self.rules.mode != ReassemblyMode::Virtual
            && (gathers || !self.rules.verify);
        if !(carries_on && is_latest && is_plain) {
            return Err(frame);
        }
        let buffer = if gathers { 0 } else { kept_bytes::<B>(&self.rules.limits, packet.len()) };
        let pages = self.store.pages_missing(&contents.pages, &units);
        let needed = buffer + pages * self.store.page_bytes();
        let has_room = source.held_bytes + needed <= self.rules.limits.source_bytes
            && self.held_bytes + needed <= self.rules.limits.memory_bytes;
        if !has_room {
            return Err(frame);
        }
        source.count = source.count.wrapping_add(1);
        contents.source_count = source.count;
        source.held_bytes += needed;
        datagram.held_bytes += needed;
        self.held_bytes += needed;
        self.stats.held_bytes_max = self.stats.held_bytes_max.max(self.held_bytes as u64);
        self.held_fragments += 1;
        if pages > 0 {
            self.store.provide(&mut contents.pages, &units);
        }
        self.store.mark(&contents.pages, Bit::Start, units.start);
        contents.cover(&mut self.store, units.clone());
        contents.append(arrival, &frame.meta, &units);
        if !gathers {
            // A device's sum is not used if the headers were taken from the previous fragment.
            contents.sum = None;
            let number = self.store.fragments.insert(Fragment::new(frame, &arrival.data));
            self.store.set_index(&contents.pages, units.start, number);
            return Ok(ReassemblyVerdict::Held);
        }
        let data = packet.get(arrival.data.start as usize..arrival.data.end as usize);
        let summed = self.rules.verify;
        let sum = self.store.write(&contents.pages, units.start, data.unwrap_or_default(), summed);
        contents.sum = contents.sum.filter(|_| summed).map(|before| before + sum);
        sink.take(Outcome::Returned { frame, why: Returned::Gathered });
        Ok(ReassemblyVerdict::Held)
    }
}
