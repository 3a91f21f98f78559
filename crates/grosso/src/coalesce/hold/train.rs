//! Held trains: their slots, their order by age, and the counters for ordering flushes.

use alloc::vec::Vec;

use grosso_wire::{ipv4, tcp};

use crate::{
    bytes::{u16_at, u32_at},
    coalesce::{
        emit::reason::{Close, NoMerge},
        hold::address_pairs::AddressPairs,
        predict::prediction::Joined,
        profile::{
            Acknowledgments, AtLimit, FixedIdentification, Push, Rules, Sizes, Vary, ZeroEcho,
        },
        rx::{bounds::Bounds, examine::Candidate, policy::Policy, shapes::CachedStack},
        slots::{
            pool::{List, Part},
            prediction_id::PredictionId,
            shape_id::ShapeId,
            slot_map::SlotMap,
            train_id::TrainId,
        },
    },
    flow::{FlowHash, Place},
    frame::Frame,
    meta::{IpLevels, Meta},
    template::{compare::ON_LAST_ONLY, shape::Shape},
};

/// A train: the first packet, whose headers are the template for the superframe, the payloads of the other packets, and
/// the state for checking further packets.
#[derive(Debug)]
pub(crate) struct Train<B> {
    /// Complete first packet.
    pub(crate) first: Part<B>,
    /// Payloads of the other packets.
    pub(crate) rest: List,
    pub(crate) meta: Meta,
    /// ID of the headers in the cache of known headers.
    pub(crate) known: ShapeId,
    /// Position in the flow table.
    pub(crate) place: Place,
    pub(crate) created_ns: u64,
    pub(crate) payload_len: usize,
    /// Payload length in bytes of every packet except the last, which may be shorter.
    pub(crate) size: u16,
    pub(crate) packets: u16,
    /// FIN and PSH flags of the last packet.
    pub(crate) ending_flags: u8,
    pub(crate) fixed_ids: IpLevels,
    pub(crate) partial: bool,
    pub(crate) flow: FlowHash,
    /// Prediction of the next packet, if there is one.
    pub(crate) prediction: PredictionId,
    /// Number of trains started before this one.
    number: u64,
    older: TrainId,
    newer: TrainId,
}

/// A mergeable packet that has not joined a train yet.
#[derive(Debug)]
pub(crate) struct Examined<B> {
    pub(crate) frame: Frame<B>,
    pub(crate) candidate: Candidate,
    /// ID of the headers in the cache of known headers.
    pub(crate) known: ShapeId,
    pub(crate) flow: FlowHash,
    pub(crate) now_ns: u64,
    /// Whether the packet resembles the prediction of its flow.
    pub(crate) resembles: bool,
}

impl<B: AsRef<[u8]>> Train<B> {
    /// Returns a train with one packet, which is started after the train `older`.
    #[inline(always)]
    fn start(examined: Examined<B>, place: Place, number: u64, older: TrainId) -> Self {
        let Examined { frame, candidate, known, flow, now_ns, .. } = examined;
        let whole = 0..frame.buffer.as_ref().len();
        Self {
            first: Part::new(frame.buffer, whole),
            rest: List::EMPTY,
            meta: frame.meta,
            known,
            place,
            flow,
            created_ns: now_ns,
            payload_len: candidate.payload_len,
            size: candidate.size,
            packets: candidate.packets,
            ending_flags: 0,
            fixed_ids: candidate.fixed_ids,
            partial: candidate.partial,
            prediction: PredictionId::NONE,
            number,
            older,
            newer: TrainId::NONE,
        }
    }

    /// Returns the data for predicting the packet after the one that was appended last.
    pub(crate) fn joined<'a>(
        &'a self,
        (slot, is_watched): (TrainId, bool),
        known: &'a CachedStack,
        rules: &'a Rules,
        last: &'a [u8],
    ) -> Joined<'a> {
        Joined {
            slot,
            flow: self.flow,
            id: self.known,
            known,
            rules,
            vlan: self.meta.vlan,
            packets: self.packets,
            payload_len: self.payload_len,
            size: self.size.into(),
            fixed_ids: self.fixed_ids,
            is_partial: self.partial,
            is_watched,
            first: self.first.buffer.as_ref(),
            last,
        }
    }

    /// Returns whether the packets have no payload.
    pub(crate) fn is_empty(&self) -> bool {
        self.payload_len == 0
    }

    /// Returns the number of trains started before this one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Checks that a packet's headers agree with the train's first packet wherever they must be equal. Checks each
    /// field separately if comparison by masks is disabled.
    pub(crate) fn agrees(
        &self,
        examined: &Examined<B>,
        known: &CachedStack,
        has_masks: bool,
    ) -> Result<(), NoMerge> {
        let (first, packet) = (self.first.buffer.as_ref(), examined.frame.buffer.as_ref());
        if examined.known != self.known {
            return Err(NoMerge::HeaderStack);
        }
        let agrees = match has_masks {
            true => known.equality.agrees(first, packet),
            false => known.obeys_equality(first, packet),
        };
        if agrees { Ok(()) } else { Err(known.difference(first, packet)) }
    }

    /// Checks all conditions other than equality of headers. Returns the IP levels whose identification is fixed.
    pub(crate) fn admits<P: Policy>(
        &self,
        examined: &Examined<B>,
        known: &CachedStack,
    ) -> Result<IpLevels, NoMerge> {
        let Examined { frame, candidate, .. } = examined;
        let (first, packet) = (self.first.buffer.as_ref(), frame.buffer.as_ref());
        let (shape, rules) = (&known.shape, P::rules(known));
        if let Some(at) = shape.sequence {
            self.admits_sequence(first, packet, at as usize)?;
        }
        let mut fixed_ids = self.fixed_ids;
        if rules.identification == Vary::Equal {
            fixed_ids = self.admits_identifications(shape, first, packet, candidate)?;
            let needs_df = rules.fixed_identification == FixedIdentification::DontFragment;
            if needs_df && !all_forbid_fragments(first, shape, fixed_ids) {
                return Err(NoMerge::Identification);
            }
        }
        if rules.sizes == Sizes::EqualButLast {
            self.admits_size(candidate)?;
        }
        self.admits_more(candidate, known.bounds)?;
        self.admits_metadata(examined, shape)?;
        Ok(fixed_ids)
    }

    /// Checks that a packet has the same metadata as the train and the same checksums present.
    #[inline(always)]
    pub(crate) fn admits_metadata(
        &self,
        examined: &Examined<B>,
        shape: &Shape,
    ) -> Result<(), NoMerge> {
        let Examined { frame, candidate, .. } = examined;
        if candidate.partial != self.partial {
            return Err(NoMerge::ChecksumState);
        }
        if frame.meta.vlan != self.meta.vlan {
            return Err(NoMerge::VlanTag);
        }
        match self.tunnel_checksums_agree(frame.buffer.as_ref(), shape) {
            true => Ok(()),
            false => Err(NoMerge::ChecksumPresence),
        }
    }

    /// Checks that tunnel packets with and without a UDP checksum are not mixed (rule T2).
    pub(crate) fn tunnel_checksums_agree(&self, packet: &[u8], shape: &Shape) -> bool {
        let first = self.first.buffer.as_ref();
        let tunnels = shape.covers.split_last().map_or(&[][..], |(_, tunnels)| tunnels);
        tunnels.iter().filter(|tunnel| tunnel.zero_means_none).all(|tunnel| {
            let at = tunnel.at as usize;
            (u16_at(first, at) == 0) == (u16_at(packet, at) == 0)
        })
    }

    /// Adds an admitted packet to the train's state. Returns the reason if no packet may follow it.
    pub(crate) fn join<P: Policy>(
        &mut self,
        candidate: &Candidate,
        fixed_ids: IpLevels,
        known: &CachedStack,
    ) -> Option<Close> {
        let rules = P::rules(known);
        self.fixed_ids = fixed_ids;
        self.packets += candidate.packets;
        self.payload_len += candidate.payload_len;
        self.ending_flags |= candidate.flags & ON_LAST_ONLY;
        let is_short = rules.sizes == Sizes::EqualButLast
            && (candidate.size < self.size || candidate.short_tail);
        let is_full = known.bounds.ends_full && self.packets >= known.bounds.packets_max;
        let is_long =
            rules.at_limit == AtLimit::Ends && self.payload_len >= known.bounds.payload_full;
        ending(candidate.flags, rules)
            .or_else(|| is_short.then_some(Close::ShortSegment))
            .or_else(|| is_full.then_some(Close::SegmentLimit))
            .or_else(|| is_long.then_some(Close::SegmentLimit))
    }

    /// Checks that the sequence number of a packet continues the train (rule G32.8), in serial arithmetic (RFC 9293
    /// section 3.4).
    #[inline(always)]
    pub(crate) fn admits_sequence(
        &self,
        first: &[u8],
        packet: &[u8],
        at: usize,
    ) -> Result<(), NoMerge> {
        let expected = u32_at(first, at).wrapping_add(self.payload_len as u32);
        match u32_at(packet, at).wrapping_sub(expected) as i32 {
            0 => Ok(()),
            ..0 => Err(NoMerge::TcpSequenceBehind),
            _ => Err(NoMerge::TcpSequenceAhead),
        }
    }

    #[inline(always)]
    pub(crate) fn admits_identifications(
        &self,
        shape: &Shape,
        first: &[u8],
        packet: &[u8],
        candidate: &Candidate,
    ) -> Result<IpLevels, NoMerge> {
        let mut fixed_ids = self.fixed_ids;
        for ip in &shape.identifications {
            let at = ip.header as usize + ipv4::field::IDENTIFICATION.start;
            let step = u16_at(packet, at).wrapping_sub(u16_at(first, at));
            fixed_ids =
                self.admits_identification(step, ip.level as usize, fixed_ids, candidate)?;
        }
        Ok(fixed_ids)
    }

    /// Checks rule G14: the second packet of a train determines whether the identification of an IP level increases or
    /// stays fixed.
    fn admits_identification(
        &self,
        step: u16,
        level: usize,
        fixed_ids: IpLevels,
        candidate: &Candidate,
    ) -> Result<IpLevels, NoMerge> {
        // The metadata of a superframe already says whether its identifications are fixed.
        let brings_fixed = (candidate.packets > 1).then(|| candidate.fixed_ids.contains(level));
        let decides = self.packets == 1 && step == 0 && brings_fixed != Some(false);
        let fixed_ids = if decides { fixed_ids.with(level) } else { fixed_ids };
        let is_fixed = fixed_ids.contains(level);
        let expected = if is_fixed { 0 } else { self.packets };
        if step != expected || brings_fixed.is_some_and(|brought| brought != is_fixed) {
            return Err(NoMerge::Identification);
        }
        Ok(fixed_ids)
    }

    /// Checks that the payload of a packet is not too long for the train, and that a superframe has the segment size of
    /// the train (rules G32.6, G32.7, U12).
    #[inline(always)]
    pub(crate) fn admits_size(&self, candidate: &Candidate) -> Result<(), NoMerge> {
        if candidate.size > self.size {
            return Err(NoMerge::Longer);
        }
        if candidate.packets > 1 && candidate.size != self.size {
            return Err(NoMerge::SuperframeSize);
        }
        Ok(())
    }

    /// Checks that a packet would not exceed the limits on the train's payload and number of packets (rules G60, G64,
    /// U13).
    #[inline(always)]
    pub(crate) fn admits_more(&self, candidate: &Candidate, bounds: Bounds) -> Result<(), NoMerge> {
        if self.payload_len + candidate.payload_len > bounds.payload_max {
            return Err(NoMerge::SizeLimit);
        }
        if u32::from(self.packets) + u32::from(candidate.packets) > u32::from(bounds.packets_max) {
            return Err(NoMerge::SegmentLimit);
        }
        Ok(())
    }
}

/// All held trains.
#[derive(Debug)]
pub(crate) struct Trains<B> {
    slots: SlotMap<TrainId, Option<Train<B>>>,
    free: Vec<TrainId>,
    /// Address hashes of the trains that were held when the last ordering flush ran.
    pairs: AddressPairs,
    /// Number of trains started before the last ordering flush.
    noted: u64,
    oldest: TrainId,
    newest: TrainId,
    /// Number of trains started so far.
    count: u64,
    limit: usize,
}

impl<B: AsRef<[u8]>> Trains<B> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: SlotMap::default(),
            free: Vec::new(),
            pairs: AddressPairs::new(),
            noted: 0,
            oldest: TrainId::NONE,
            newest: TrainId::NONE,
            count: 0,
            limit: limit.clamp(1, FLOWS_MAX),
        }
    }

    /// Returns whether no train is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == TrainId::NONE
    }

    /// Returns the number of held trains.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether another train would exceed the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.limit
    }

    /// Adds a train that starts with this packet, as the newest. The caller must have checked that there is room.
    #[inline(always)]
    pub(crate) fn insert(&mut self, examined: Examined<B>, place: Place) -> TrainId {
        let (older, number) = (self.newest, self.count);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.grow(),
        };
        // The train is written in place, because copying it right after writing its fields would be slow.
        self.slots[slot] = Some(Train::start(examined, place, number, older));
        match self.train_mut(older) {
            Some(older) => older.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.count += 1;
        slot
    }

    /// Removes and returns a held train.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: TrainId) -> Option<Train<B>> {
        let &Train { number, older, newer, .. } = self.held(slot)?;
        if number < self.noted {
            self.pairs.forget(slot);
        }
        self.free.push(slot);
        match self.train_mut(older) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.train_mut(newer) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        // This is the last operation, so that the train is moved only once.
        self.slots.get_mut(slot)?.take()
    }

    /// Returns a train that must exist because the flow table or another list of held trains refers to it.
    #[inline(always)]
    pub(crate) fn held(&self, slot: TrainId) -> Option<&Train<B>> {
        let train = self.train(slot);
        debug_assert!(train.is_some(), "{slot:?} is held");
        train
    }

    /// Returns a mutable reference to the train that [`Self::held`] returns.
    #[inline(always)]
    pub(crate) fn held_mut(&mut self, slot: TrainId) -> Option<&mut Train<B>> {
        let train = self.train_mut(slot);
        debug_assert!(train.is_some(), "{slot:?} is held");
        train
    }

    /// Returns a train that may have been delivered since its ID was stored.
    pub(crate) fn train(&self, slot: TrainId) -> Option<&Train<B>> {
        self.slots.get(slot)?.as_ref()
    }

    fn train_mut(&mut self, slot: TrainId) -> Option<&mut Train<B>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Returns the slot of the oldest train and its creation time.
    pub(crate) fn oldest(&self) -> Option<(TrainId, u64)> {
        self.train(self.oldest).map(|train| (self.oldest, train.created_ns))
    }

    /// Returns the oldest of these trains.
    pub(crate) fn oldest_of(&self, slots: &[TrainId]) -> Option<TrainId> {
        let number = |&slot: &TrainId| self.held(slot).map(|train| (train.number, slot));
        slots.iter().filter_map(number).min().map(|(_, slot)| slot)
    }

    /// Returns the slot of a train between these addresses. `pair_of` computes the hashes of trains that were started
    /// since the last query.
    pub(crate) fn between(
        &mut self,
        pair: u32,
        mut pair_of: impl FnMut(&Train<B>) -> u32,
    ) -> Option<TrainId> {
        let mut slot = self.newest;
        while let Some(train) = self.train(slot).filter(|train| train.number >= self.noted) {
            let (started, older) = (pair_of(train), train.older);
            self.pairs.note(slot, started);
            slot = older;
        }
        self.noted = self.count;
        self.pairs.find(pair)
    }

    fn grow(&mut self) -> TrainId {
        let slot = self.slots.push(None);
        // Memory is reserved for all slots: all of them may be free at the same time, and freeing a slot must not
        // allocate.
        self.free.reserve(self.slots.len());
        slot
    }
}

/// Returns the reason if the flags of a packet end its train (rule G36).
#[inline(always)]
pub(crate) fn ending(flags: u8, rules: &Rules) -> Option<Close> {
    const FIN: u8 = tcp::FIN as u8;
    match flags & ON_LAST_ONLY {
        0 => None,
        flags if flags & FIN != 0 => Some(Close::Finish),
        _ => (rules.push == Push::Ends).then_some(Close::Push),
    }
}

/// Returns whether DF is set in the IPv4 headers of these levels.
fn all_forbid_fragments(packet: &[u8], shape: &Shape, levels: IpLevels) -> bool {
    let mut fixed = shape.identifications.iter().filter(|ip| levels.contains(ip.level as usize));
    fixed.all(|ip| {
        let word = u16_at(packet, ip.header as usize + ipv4::field::FRAGMENT.start);
        word & ipv4::DONT_FRAGMENT != 0
    })
}

/// Checks that fields of a TCP packet that may only increase have not decreased since the last packet of the train. A
/// timestamp is compared with the one that the superframe would have.
pub(crate) fn beside_last(
    first: &[u8],
    last: &[u8],
    packet: &[u8],
    candidate: &Candidate,
    known: &CachedStack,
) -> Result<(), NoMerge> {
    let tcp_at = known.shape.transport;
    let since = |at: usize| u32_at(packet, at).wrapping_sub(u32_at(last, at)) as i32;
    let acknowledged = since(tcp_at + tcp::field::ACKNOWLEDGMENT.start);
    if acknowledged < 0 {
        return Err(NoMerge::TcpAcknowledgment);
    }
    if candidate.payload_len == 0 {
        let window = tcp_at + tcp::field::WINDOW.start;
        let is_update = u16_at(packet, window) != u16_at(last, window);
        let joins = match known.rules.acknowledgments {
            // `Train::gathers` handles acknowledgments that wait unmerged.
            Acknowledgments::Alone
            | Acknowledgments::Vector
            | Acknowledgments::Filter
            | Acknowledgments::FilterAggressive => false,
            Acknowledgments::WindowUpdates => acknowledged == 0 && is_update,
            Acknowledgments::Join => acknowledged > 0 || is_update,
            Acknowledgments::Newer => acknowledged > 0,
        };
        if !joins {
            return Err(NoMerge::TcpAcknowledgmentAlone);
        }
    }
    if let Some(at) = known.timestamps {
        let at = usize::from(at);
        let kept = if known.rules.timestamp_value == Vary::First { first } else { last };
        // Timestamps are compared in serial arithmetic (RFC 7323 section 5.2).
        let is_older = (u32_at(packet, at).wrapping_sub(u32_at(kept, at)) as i32) < 0;
        if is_older || known.rules.zero_echo != ZeroEcho::Joins && echoes_zero(packet, known) {
            return Err(NoMerge::TcpTimestamp);
        }
    }
    Ok(())
}

/// Returns whether timestamps may vary and the packet has one with a zero echo.
#[inline]
pub(crate) fn echoes_zero(packet: &[u8], known: &CachedStack) -> bool {
    known.timestamps.is_some_and(|at| u32_at(packet, usize::from(at) + 4) == 0)
}

/// Upper bound on the configurable number of trains.
const FLOWS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
