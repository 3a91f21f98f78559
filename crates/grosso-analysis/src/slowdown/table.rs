//! Tracks the flows of a capture in bounded memory.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

#[cfg(feature = "tables")]
use super::flows::FlowRow;
use super::{
    causes,
    connection::Connection,
    datagrams::UdpFlow,
    event::SequenceEvent,
    flows::{FlowOrder, JudgedFlow, ROWS_MAX, Ranking},
    frame::TcpFrame,
    identification::Source,
    mark::{EndedTrain, FlowMark, SlotSide},
    merging::Merging,
    slots::{FlowSlot, Slots},
    summary::{Slowdowns, Totals},
    turns::Turns,
};
use crate::{
    evidence::{Judgment, Path, Sight, too_big},
    headers::Endpoint,
};

/// Tracker for TCP connections: processes the frames of a capture and finds what slows down each direction.
#[derive(Debug, Default)]
pub struct Connections {
    slots: Slots<Connection>,
    /// UDP flows, which appear only in the flow table.
    datagrams: Slots<UdpFlow>,
    totals: Totals,
    turns: Turns,
    /// Path MTUs reported by ICMP messages; at most [`PATHS_MAX`].
    paths: HashMap<Path, TooBig>,
    sources: Sources,
}

/// ICMP messages about one path.
#[derive(Clone, Copy, Debug, Default)]
struct TooBig {
    mtu: u16,
    quoted: u16,
    /// Times of the first and last messages in nanoseconds.
    since_ns: u64,
    last_ns: u64,
}

/// Table of source addresses: the next expected IP ID of each, and the connection that used the previous one.
#[derive(Debug)]
struct Sources {
    hasher: RandomState,
    slots: Vec<(u32, u32, u16)>,
}

impl Connections {
    /// Enables the flow table. It lists the `limit` largest directions by the sort key `order`, but at most
    /// [`ROWS_MAX`].
    ///
    /// [`ROWS_MAX`]: super::ROWS_MAX
    pub fn list_flows(&mut self, order: FlowOrder, limit: usize) {
        self.totals.ranking = Some(Ranking::new(order, limit.min(ROWS_MAX)));
    }

    /// Enables the flow table for all directions. Rows of evicted flows accumulate until [`Self::drain_flows`] is
    /// called.
    #[cfg(feature = "tables")]
    pub(crate) fn list_all_flows(&mut self) {
        self.totals.ranking = Some(Ranking::new(FlowOrder::default(), usize::MAX));
    }

    /// Returns the rows of the flows evicted since the last call.
    #[cfg(feature = "tables")]
    pub(crate) fn drain_flows(&mut self) -> impl Iterator<Item = FlowRow> {
        self.totals.ranking.iter_mut().flat_map(Ranking::drain)
    }

    /// Returns whether the flow table is enabled.
    pub(crate) const fn lists_flows(&self) -> bool {
        self.totals.ranking.is_some()
    }

    /// Sets the description of the merge rules that is reported along with the trains.
    pub(crate) fn merged_by(&mut self, rules: String) {
        if let Some(ranking) = &mut self.totals.ranking {
            ranking.merged_by = Some(rules);
        }
    }

    /// Processes a frame with its classification; `is_bad` means that a checksum in it is complete but wrong.
    /// Returns what the sequence numbers show about a TCP frame, or `None` if its data follows the earlier data
    /// directly.
    pub fn observe(
        &mut self,
        sight: &Sight<'_>,
        judgment: &Judgment,
        is_bad: bool,
    ) -> Option<SequenceEvent> {
        self.mark(sight, judgment, is_bad)?.event
    }

    /// Processes a frame like [`Self::observe`]. If it has a payload, returns its direction, so that its train can be
    /// reported later.
    pub(crate) fn mark(
        &mut self,
        sight: &Sight<'_>,
        judgment: &Judgment,
        is_bad: bool,
    ) -> Option<FlowMark> {
        let Some(transport) = &sight.transport else {
            self.take_message(sight);
            return None;
        };
        if !transport.is_tcp() {
            return self.mark_datagram(sight, judgment);
        }
        let mut frame = TcpFrame::of(sight, judgment, is_bad)?;
        let (place, replaced) = self.slots.place(sight.endpoints);
        if let Some(before) = replaced {
            causes::judge(&before, &mut self.totals);
            self.totals.evicted += 1;
        }
        let FlowSlot { serial, tracked: connection, .. } = self.slots.get_mut(place)?;
        let (serial, side) = (*serial, usize::from(place.side));
        let is_guessed = frame.is_packet_of(connection.figures_mut(side).mss.into());
        if is_guessed {
            frame.make_packet();
        }
        if frame.payload > 0 {
            frame.turn = self.turns.count(connection.streams[side].turn);
        }
        if frame.identification.is_some() {
            let order = &mut connection.streams[side].order;
            let source =
                order.source.get_or_insert_with(|| self.sources.place(&sight.endpoints.source));
            order.shared += u32::from(self.sources.is_shared(*source, place.slot, &frame));
        }
        let event = connection.observe(side, &frame);
        if !self.paths.is_empty() && frame.payload > 0 {
            self.compare_with_path(sight, place, &frame, is_guessed);
        }
        let mark = FlowMark { event, ..FlowMark::new(place, serial, true, frame.packets) };
        (frame.payload > 0).then_some(mark)
    }

    /// Processes a UDP frame if the flow table is enabled.
    fn mark_datagram(&mut self, sight: &Sight<'_>, judgment: &Judgment) -> Option<FlowMark> {
        let ranking = self.totals.ranking.as_mut()?;
        if sight.transport.is_none_or(|transport| transport.payload == 0) {
            return None;
        }
        let (place, replaced) = self.datagrams.place(sight.endpoints);
        if let Some(before) = replaced {
            add_datagrams(&before, ranking);
        }
        let slot = self.datagrams.get_mut(place)?;
        let packets = slot.tracked.observe(place.side.into(), sight, judgment);
        Some(FlowMark::new(place, slot.serial, false, packets))
    }

    /// Returns the trains of a direction; `None` if another flow has taken its place.
    fn merging_mut(&mut self, mark: &FlowMark) -> Option<&mut Merging> {
        let (serial, merging) = if mark.is_tcp {
            let slot = self.slots.get_mut(mark.place)?;
            (slot.serial, &mut slot.merging)
        } else {
            let slot = self.datagrams.get_mut(mark.place)?;
            (slot.serial, &mut slot.merging)
        };
        let is_it = serial == mark.serial;
        is_it.then(|| &mut merging.get_or_insert_default()[usize::from(mark.place.side)])
    }

    /// Adds a train delivered by a coalescer.
    pub(crate) fn add_train(&mut self, train: &EndedTrain) {
        if let Some(merging) = self.merging_mut(&train.first) {
            merging.add(train);
        }
    }

    /// Adds the waiting time of a frame delivered by a coalescer.
    pub(crate) fn add_hold(&mut self, mark: &FlowMark, waited_ns: u64) {
        if let Some(merging) = self.merging_mut(mark) {
            merging.hold(waited_ns);
        }
    }

    /// Processes an ICMP message about a packet that exceeds the path MTU.
    fn take_message(&mut self, sight: &Sight<'_>) {
        let Some((path, mtu, quoted)) = too_big(sight.packet.data, sight.stack) else { return };
        if self.paths.len() >= PATHS_MAX && !self.paths.contains_key(&path) {
            return;
        }
        let since_ns = sight.packet.timestamp_ns.unwrap_or(0);
        let first = TooBig { mtu, quoted, since_ns, last_ns: since_ns };
        let known = self.paths.entry(path).or_insert(first);
        known.mtu = known.mtu.min(mtu);
        known.quoted = known.quoted.max(quoted);
        known.last_ns = since_ns;
    }

    /// Compares a packet with the path MTU from ICMP messages. `is_guessed` means that the packet may actually be a
    /// superframe.
    fn compare_with_path(
        &mut self,
        sight: &Sight<'_>,
        place: SlotSide,
        frame: &TcpFrame,
        is_guessed: bool,
    ) {
        let Some(transport) = &sight.transport else { return };
        let ip = transport.ip.offset as usize;
        let path = Path::at(sight.packet.data, ip, frame.identification.is_some());
        let Some(message) = path.and_then(|path| self.paths.get(&path)) else { return };
        let Some(FlowSlot { tracked: connection, .. }) = self.slots.get_mut(place) else { return };
        let settled_ns =
            message.since_ns.saturating_add(connection.round_trip_ns().max(SETTLED_NS));
        let figures = connection.figures_mut(place.side.into());
        figures.icmp_mtu = message.mtu;
        figures.icmp_quoted = message.quoted;
        figures.is_icmp_repeated |= message.last_ns > settled_ns;
        if frame.time_ns > settled_ns && frame.ip_bytes > u32::from(message.mtu) {
            if is_guessed {
                figures.above_mtu_guessed += 1;
            } else {
                figures.above_mtu += frame.packets;
            }
        }
    }

    /// Returns the causes that slow down the observed directions.
    pub fn conclude(mut self) -> Slowdowns {
        for slot in &self.slots.slots {
            causes::judge(slot, &mut self.totals);
        }
        if let Some(ranking) = &mut self.totals.ranking {
            self.datagrams.slots.iter().for_each(|slot| add_datagrams(slot, ranking));
        }
        self.totals.conclude()
    }
}

/// Adds both directions of a UDP flow to a ranking.
fn add_datagrams(slot: &FlowSlot<UdpFlow>, ranking: &mut Ranking) {
    let flows = [slot.endpoints, slot.endpoints.reversed()];
    for (side, (flow, figures)) in flows.iter().zip(&slot.tracked.figures).enumerate() {
        if figures.frames > 0 {
            let merging = slot.merging.as_ref().map(|sides| &sides[side]);
            ranking.add(&JudgedFlow { flow, figures, round_trip_ns: 0, cause: None, merging });
        }
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self { hasher: RandomState::new(), slots: Vec::new() }
    }
}

impl Sources {
    /// Returns the table slot and the tag for a host's IP IDs.
    fn place(&mut self, source: &Endpoint) -> Source {
        if self.slots.is_empty() {
            self.slots.resize(SOURCES_MAX, (0, 0, 0));
        }
        let hash = self.hasher.hash_one(source.address());
        Source { tag: (hash >> 32) as u32 | 1, place: (hash as usize % SOURCES_MAX) as u16 }
    }

    /// Returns whether the frame's IP ID continues the sequence of another connection of the same host.
    fn is_shared(&mut self, source: Source, slot: u32, frame: &TcpFrame) -> bool {
        let Some(identification) = frame.identification else { return false };
        let Source { tag, place } = source;
        let next = identification.wrapping_add(frame.packets as u16);
        let known = &mut self.slots[usize::from(place)];
        let (known, other, expected) = std::mem::replace(known, (tag, slot, next));
        known == tag && other != slot && expected == identification
    }
}

// Each of the two streams takes at most 488 bytes. Holes are allocated separately, because few directions have any.
const _: () = assert!(size_of::<Connection>() <= 1024);
/// Maximum number of paths whose MTU is stored.
const PATHS_MAX: usize = 1 << 12;
/// Number of table slots for the IP IDs of source addresses: 12 KB.
const SOURCES_MAX: usize = 1 << 10;
/// Minimum time that a sender has to obey an ICMP message, in nanoseconds.
const SETTLED_NS: u64 = 5_000_000;
