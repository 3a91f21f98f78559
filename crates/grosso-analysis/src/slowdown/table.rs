//! Table of the connections of a capture, in bounded memory.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use super::{
    causes,
    connection::Connection,
    flows::{FlowOrder, Ranking},
    frame::TcpFrame,
    identification::Source,
    summary::{Slowdowns, Totals},
};
use crate::{
    evidence::{Judgment, Path, Sight, too_big},
    headers::{Endpoint, Endpoints},
};

/// Tracker of TCP connections: processes the frames of a capture and finds what slows each direction.
#[derive(Debug, Default)]
pub struct Connections {
    places: HashMap<Endpoints, (u32, u8)>,
    slots: Vec<(Endpoints, Connection)>,
    /// Cached lookup of the last frame: consecutive packets often belong to one connection.
    last: Option<(Endpoints, (u32, u8))>,
    /// Slot at which the next search for an idle connection starts.
    hand: usize,
    totals: Totals,
    /// MTUs of paths according to ICMP messages; at most [`PATHS_MAX`].
    paths: HashMap<Path, TooBig>,
    sources: Sources,
}

/// ICMP messages about one path.
#[derive(Clone, Copy, Debug, Default)]
struct TooBig {
    mtu: u16,
    quoted: u16,
    /// Times of the first and the last message in nanoseconds.
    since_ns: u64,
    last_ns: u64,
}

/// Table with the next expected identification of each source address, and its connection.
#[derive(Debug)]
struct Sources {
    hasher: RandomState,
    slots: Vec<(u32, u32, u16)>,
}

impl Connections {
    /// Enables the flow table with the `limit` largest directions by one figure; at most [`ROWS_MAX`].
    ///
    /// [`ROWS_MAX`]: super::ROWS_MAX
    pub fn list_flows(&mut self, order: FlowOrder, limit: usize) {
        self.totals.ranking = Some(Ranking::new(order, limit));
    }

    /// Processes a frame with its classification; `is_bad` says whether one of its checksums is complete but wrong.
    pub fn observe(&mut self, sight: &Sight<'_>, judgment: &Judgment, is_bad: bool) {
        if sight.transport.is_none() {
            self.take_message(sight);
            return;
        }
        let Some(mut frame) = TcpFrame::of(sight, judgment, is_bad) else { return };
        let (slot, side) = self.place(sight.endpoints);
        let Some((_, connection)) = self.slots.get_mut(slot as usize) else { return };
        let side = usize::from(side);
        let is_guessed = frame.is_packet_of(connection.figures_mut(side).mss.into());
        if is_guessed {
            frame.make_packet();
        }
        if frame.identification.is_some() {
            let order = &mut connection.streams[side].order;
            let source =
                order.source.get_or_insert_with(|| self.sources.place(&sight.endpoints.source));
            order.shared += u32::from(self.sources.is_shared(*source, slot, &frame));
        }
        connection.observe(side, &frame);
        if !self.paths.is_empty() && frame.payload > 0 {
            self.compare_with_path(sight, (slot, side), &frame, is_guessed);
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

    /// Compares a packet with the path MTU from ICMP messages. `is_guessed` means that the packet may be a superframe.
    fn compare_with_path(
        &mut self,
        sight: &Sight<'_>,
        (slot, side): (u32, usize),
        frame: &TcpFrame,
        is_guessed: bool,
    ) {
        let Some(transport) = &sight.transport else { return };
        let ip = transport.ip.offset as usize;
        let path = Path::at(sight.packet.data, ip, frame.identification.is_some());
        let Some(message) = path.and_then(|path| self.paths.get(&path)) else { return };
        let Some((_, connection)) = self.slots.get_mut(slot as usize) else { return };
        let settled_ns = message.since_ns + connection.round_trip_ns().max(SETTLED_NS);
        let figures = connection.figures_mut(side);
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

    /// Returns the slot of a flow's connection, and the flow's direction in it.
    fn place(&mut self, endpoints: Endpoints) -> (u32, u8) {
        if let Some((last, (slot, side))) = self.last {
            if last == endpoints {
                return (slot, side);
            }
            // A frame in the opposite direction needs no lookup either.
            if last == endpoints.reversed() {
                return (slot, 1 - side);
            }
        }
        let place = match self.places.get(&endpoints) {
            Some(&place) => place,
            None => (self.insert(endpoints), 0),
        };
        self.last = Some((endpoints, place));
        place
    }

    fn insert(&mut self, endpoints: Endpoints) -> u32 {
        let new = (endpoints, Connection::default());
        let slot = if self.slots.len() < CONNECTIONS_MAX {
            self.slots.push(new);
            self.slots.len() - 1
        } else {
            let slot = self.idle();
            let (before, connection) = std::mem::replace(&mut self.slots[slot], new);
            self.places.remove(&before);
            self.places.remove(&before.reversed());
            causes::judge(&before, &connection, &mut self.totals);
            self.totals.evicted += 1;
            slot
        };
        let number = u32::try_from(slot).unwrap_or(u32::MAX);
        // The opposite direction comes first, because a flow from an endpoint to itself is its own reverse.
        self.places.insert(endpoints.reversed(), (number, 1));
        self.places.insert(endpoints, (number, 0));
        number
    }

    /// Returns the slot of a connection without a frame since the last search passed it.
    fn idle(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % CONNECTIONS_MAX;
            if !std::mem::take(&mut self.slots[slot].1.is_recent) {
                return slot;
            }
        }
    }

    /// Returns the causes that slow the observed directions.
    pub fn conclude(mut self) -> Slowdowns {
        for (endpoints, connection) in &self.slots {
            causes::judge(endpoints, connection, &mut self.totals);
        }
        self.totals.conclude()
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self { hasher: RandomState::new(), slots: Vec::new() }
    }
}

impl Sources {
    /// Returns the table slot and the tag for the identifications of a host.
    fn place(&mut self, source: &Endpoint) -> Source {
        if self.slots.is_empty() {
            self.slots.resize(SOURCES_MAX, (0, 0, 0));
        }
        let hash = self.hasher.hash_one(source.address());
        Source { tag: (hash >> 32) as u32 | 1, place: (hash as usize % SOURCES_MAX) as u16 }
    }

    /// Returns whether the identification of a frame continues that of another connection of the same host.
    fn is_shared(&mut self, source: Source, slot: u32, frame: &TcpFrame) -> bool {
        let Some(identification) = frame.identification else { return false };
        let Source { tag, place } = source;
        let next = identification.wrapping_add(frame.packets as u16);
        let known = &mut self.slots[usize::from(place)];
        let (known, other, expected) = std::mem::replace(known, (tag, slot, next));
        known == tag && other != slot && expected == identification
    }
}

/// Maximum number of connections at once: about 40 MB. A further connection replaces an idle one, whose causes are
/// found first.
pub const CONNECTIONS_MAX: usize = 1 << 15;

// Two streams of at most 480 bytes each, without holes, which few directions have.
const _: () = assert!(size_of::<Connection>() <= 1024);
/// Maximum number of paths whose MTU is stored.
const PATHS_MAX: usize = 1 << 12;
/// Number of slots for identifications of source addresses: 12 KB.
const SOURCES_MAX: usize = 1 << 10;
/// Minimum time that a sender has to obey a message, in nanoseconds.
const SETTLED_NS: u64 = 5_000_000;
