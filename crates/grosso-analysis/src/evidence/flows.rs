//! Learns the properties of flows and paths, frame by frame.

use std::{cell::Cell, collections::HashMap};

use grosso_wire::{Kind, tcp};

use super::{
    MTU_DEFAULT, SEGMENT_BYTES_MIN,
    announced::{self, Path},
    counters::AddressCounters,
    identifications::Identifications,
    lengths::Lengths,
    sight::{Seal, Sight},
};
use crate::headers::{Endpoints, Transport, u32_at};

/// Properties of the flows in a capture; at most `FLOWS_MAX` flows.
#[derive(Debug, Default)]
pub struct Flows {
    /// Index of each flow.
    places: HashMap<Endpoints, usize>,
    flows: Vec<Flow>,
    /// Flow of the last lookup, as a cache: packets of a flow tend to arrive together, and each causes several lookups.
    last: Cell<Option<(Endpoints, usize)>>,
    /// Path MTUs from ICMP messages, each with the number of the first packet to which it applies; at most
    /// [`PATHS_MAX`] paths.
    paths: HashMap<Path, Vec<(u64, u16)>>,
    counters: AddressCounters,
    /// Largest MTU suggested by an announced MSS.
    announced_mtu: usize,
    /// Number of packets in flows that exceeded the limit and are not tracked.
    pub overflowed: u64,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// MSS announced by the sender: the largest segment that it accepts, which also suggests its MTU.
    pub(super) announced: Option<u16>,
    first: Era,
    /// Later eras. The segment size changes at the start of each. At most [`ERAS_MAX`] are stored.
    later: Vec<Era>,
    last: Option<Last>,
    /// Sequence number after the last data byte so far.
    sequence_max: Option<u32>,
    /// Sequence number of the first frame that was too long for Ethernet.
    long_start: Option<u32>,
    /// Whether any frame was too long for Ethernet.
    pub(super) has_long: bool,
    /// IP IDs that contradict the current era, with the number of the first packet that had one.
    odd: Option<(u64, Identifications)>,
}

/// Period during which a flow uses one segment size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Era {
    /// Number of the era's first packet.
    from: u64,
    /// Number of the last frame whose IP ID proves that it belongs to the era.
    known: u64,
    /// Whether only IP IDs distinguish the era from the previous one. The frames between the two may then belong to
    /// either.
    is_blurred: bool,
    /// Path MTU according to an ICMP message.
    pub(super) path_mtu: Option<u16>,
    /// MTU from a newer ICMP message that the sender has not yet obeyed. It retransmits the lost data when it does.
    unheeded_mtu: Option<u16>,
    pub(super) identifications: Identifications,
    /// Payload lengths of frames without PSH, FIN or SYN.
    pub(super) lengths: Lengths,
    /// Payload lengths of frames with PSH, FIN or SYN. Most of these frames end a write by the sending program.
    pub(super) ends: Lengths,
    /// Largest payload covered by a complete and valid checksum.
    pub(super) sealed_max: u32,
}

impl Era {
    /// Returns the largest payload known to have been a single wire packet.
    pub(super) fn packet_max(&self) -> usize {
        (self.sealed_max as usize).max(self.identifications.single_max())
    }
}

/// The previous frame of the flow.
#[derive(Clone, Copy, Debug)]
struct Last {
    number: u64,
    identification: u16,
    payload: u32,
    options: u16,
    sequence_end: u32,
}

impl Flows {
    /// Learns from a frame. `seal` verifies its checksum, and is called only if the result matters.
    pub(super) fn learn(&mut self, sight: &Sight<'_>, seal: impl FnOnce() -> Seal) {
        let (packet, number) = (sight.packet.data, sight.packet.number);
        if let Some((path, mtu, _)) = announced::too_big(packet, sight.stack) {
            self.counters.count(sight);
            self.shrink(path, mtu, number);
            return;
        }
        let Some(transport) = &sight.transport else {
            self.counters.count(sight);
            return;
        };
        let path_mtu = self.path_mtu(packet, transport, number);
        let flags = if transport.is_tcp() { transport.flags(packet) } else { 0 };
        let announced =
            if flags & tcp::SYN != 0 { announced::mss(packet, transport) } else { None };
        if let Some(mss) = announced {
            let headers = if transport.ip.kind == Kind::Ipv4 { HEADERS_IPV4 } else { HEADERS_IPV6 };
            self.announced_mtu = self.announced_mtu.max(usize::from(mss) + headers);
        }
        let place = self.place_of(sight.endpoints);
        let step = place.and_then(|place| self.flows.get(place)?.step(packet, transport));
        let is_free = step.is_some_and(|first| self.counters.is_free(sight, first));
        self.counters.count(sight);
        let Some(flow) = place.and_then(|place| self.flows.get_mut(place)) else { return };
        flow.announced = announced.or(flow.announced);
        flow.record_path_mtu(path_mtu, number);
        if transport.is_tcp() {
            flow.advance(packet, number, transport);
            flow.remember(packet, number, transport, is_free);
        }
        let era = flow.latest_mut();
        let is_end = flags & (tcp::PSH | tcp::FIN | tcp::SYN) != 0;
        let lengths = if is_end { &mut era.ends } else { &mut era.lengths };
        lengths.count(transport.payload);
        let is_news = transport.payload > era.packet_max().max(SEGMENT_BYTES_MIN);
        if is_news && seal() == Seal::Valid {
            era.sealed_max = u32::try_from(transport.payload).unwrap_or(u32::MAX);
        }
    }

    /// Returns the properties of a flow.
    pub(super) fn get(&self, endpoints: &Endpoints) -> Option<&Flow> {
        self.flows.get(self.place(endpoints)?)
    }

    /// Returns the largest MTU suggested by an announced MSS; 0 if no MSS was announced.
    pub(super) const fn announced_mtu(&self) -> usize {
        self.announced_mtu
    }

    /// Returns the number of known flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns whether no flow is known.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Records that the MTU of a path changed to `mtu`, starting with packet `number`.
    fn shrink(&mut self, path: Path, mtu: u16, number: u64) {
        if self.paths.len() >= PATHS_MAX && !self.paths.contains_key(&path) {
            return;
        }
        let changes = self.paths.entry(path).or_default();
        if changes.len() < ERAS_MAX && changes.last().is_none_or(|&(_, before)| before != mtu) {
            changes.push((number, mtu));
        }
    }

    fn path_mtu(&self, packet: &[u8], transport: &Transport, number: u64) -> Option<u16> {
        if self.paths.is_empty() {
            return None;
        }
        let ip = &transport.ip;
        let path = Path::at(packet, ip.offset as usize, ip.kind == Kind::Ipv4)?;
        let changes = self.paths.get(&path)?;
        changes.iter().rev().find(|(from, _)| *from <= number).map(|&(_, mtu)| mtu)
    }

    /// Returns the index of a flow, and adds the flow if it is unknown. Returns `None` if the limit is reached.
    fn place_of(&mut self, endpoints: Endpoints) -> Option<usize> {
        if let Some(place) = self.place(&endpoints) {
            return Some(place);
        }
        if self.flows.len() >= FLOWS_MAX {
            self.overflowed += 1;
            return None;
        }
        self.places.insert(endpoints, self.flows.len());
        self.flows.push(Flow::default());
        Some(self.flows.len() - 1)
    }

    fn place(&self, endpoints: &Endpoints) -> Option<usize> {
        if let Some((last, place)) = self.last.get()
            && last == *endpoints
        {
            return Some(place);
        }
        let place = *self.places.get(endpoints)?;
        self.last.set(Some((*endpoints, place)));
        Some(place)
    }
}

impl Flow {
    /// Returns the era to which a packet belongs.
    pub(super) fn era(&self, number: u64) -> &Era {
        self.later.iter().rev().find(|era| era.from <= number).unwrap_or(&self.first)
    }

    /// Returns whether a packet may belong to a different era than the one that [`Self::era`] returns.
    pub(super) fn is_between_eras(&self, number: u64) -> bool {
        let era = self.era(number);
        let next = self.later.iter().find(|next| next.from > number);
        era.unheeded_mtu.is_some() || next.is_some_and(|next| next.is_blurred) && number > era.known
    }

    fn latest_mut(&mut self) -> &mut Era {
        self.later.last_mut().unwrap_or(&mut self.first)
    }

    fn begin(&mut self, era: Era) {
        if self.later.len() < ERAS_MAX {
            self.later.push(era);
        }
    }

    /// Records the MTU from an ICMP message. Packets do not get shorter until the sender obeys the message.
    fn record_path_mtu(&mut self, path_mtu: Option<u16>, number: u64) {
        let is_new = self.sequence_max.is_none();
        let era = *self.latest_mut();
        if path_mtu == era.unheeded_mtu.or(era.path_mtu) {
            return;
        }
        let next = Era { from: number, ..Era::default() };
        self.begin(if is_new {
            Era { path_mtu, ..next }
        } else {
            Era { path_mtu: era.path_mtu, unheeded_mtu: path_mtu, ..next }
        });
        self.last = None;
    }

    /// Tracks the sequence numbers of the stream. Begins a new era if the sender goes back because its packets were too
    /// long for the path.
    fn advance(&mut self, packet: &[u8], number: u64, transport: &Transport) {
        if transport.payload == 0 {
            return;
        }
        let start = sequence(packet, transport);
        let end = start.wrapping_add(u32::try_from(transport.payload).unwrap_or(u32::MAX));
        let is_behind = |one: u32, other: u32| one.wrapping_sub(other).cast_signed() < 0;
        let Era { path_mtu, unheeded_mtu, .. } = *self.latest_mut();
        if self.sequence_max.is_some_and(|max| is_behind(start, max)) {
            // A path with a smaller MTU drops all long packets. The ICMP message about it may not be in the capture.
            let is_all_lost = self.long_start.take_if(|long| !is_behind(*long, start)).is_some();
            if is_all_lost || unheeded_mtu.is_some() {
                let path_mtu = unheeded_mtu.or(path_mtu);
                self.begin(Era { from: number, path_mtu, ..Era::default() });
                self.last = None;
            }
        } else if !self.has_long {
            let is_long = transport.payload + transport.overhead() > MTU_DEFAULT;
            self.has_long = is_long;
            self.long_start = is_long.then_some(start);
        }
        if self.sequence_max.is_none_or(|max| is_behind(max, end)) {
            self.sequence_max = Some(end);
        }
    }

    /// Returns the number and IP ID of the previous frame if this frame continues the stream without a gap. The packets
    /// of the previous frame then used the IDs up to this frame's.
    fn step(&self, packet: &[u8], transport: &Transport) -> Option<(u64, u16)> {
        let last = self.last.filter(|_| transport.is_tcp())?;
        transport.identification(packet)?;
        let is_next = last.payload > 0 && last.sequence_end == sequence(packet, transport);
        (is_next && usize::from(last.options) == transport.options())
            .then_some((last.number, last.identification))
    }

    /// Stores a frame as the previous one. `is_free` means that no other packet used an IP ID between the two frames,
    /// so the difference between their IDs is the number of packets in the earlier frame.
    fn remember(&mut self, packet: &[u8], number: u64, transport: &Transport, is_free: bool) {
        let Some(identification) = transport.identification(packet) else { return };
        let payload = u32::try_from(transport.payload).unwrap_or(u32::MAX);
        let options = transport.options() as u16;
        let sequence_end = sequence(packet, transport).wrapping_add(payload);
        let last = Last { number, identification, payload, options, sequence_end };
        if let Some(before) = self.last.replace(last).filter(|_| is_free) {
            self.narrow(packet, before, transport);
        }
    }

    fn narrow(&mut self, packet: &[u8], last: Last, transport: &Transport) {
        let identification = transport.identification(packet).unwrap_or(0);
        let step = u32::from(identification.wrapping_sub(last.identification));
        let era = self.latest_mut();
        if step == 0 {
            era.identifications.fixed += 1;
            return;
        }
        let (path_mtu, unheeded_mtu) = (era.path_mtu, era.unheeded_mtu);
        if era.identifications.narrow(last.payload, step) {
            era.known = last.number;
            self.odd = None;
            return;
        }
        // One contradicting frame may be a coincidence. A second one that agrees with it begins a new era.
        let mut identifications = match self.odd {
            Some((_, odd)) => odd,
            None => Identifications::default(),
        };
        let is_first = self.odd.is_none();
        let agrees = identifications.narrow(last.payload, step);
        let from = self.odd.map_or(last.number, |(from, _)| from);
        if is_first || !agrees {
            let mut alone = Identifications::default();
            alone.narrow(last.payload, step);
            self.odd = Some((last.number, alone));
        } else {
            self.odd = None;
            self.begin(Era {
                from,
                known: last.number,
                is_blurred: true,
                path_mtu,
                unheeded_mtu,
                identifications,
                ..Era::default()
            });
        }
    }
}

/// Returns the sequence number in a TCP header.
fn sequence(packet: &[u8], transport: &Transport) -> u32 {
    u32_at(packet, transport.layer.offset as usize + tcp::field::SEQUENCE.start)
}

/// Length of the IPv4 and TCP headers without options. The MSS does not include these headers.
const HEADERS_IPV4: usize = 40;
/// Length of the IPv6 and TCP headers without options.
const HEADERS_IPV6: usize = 60;
/// Maximum number of tracked flows. This many take about 30 MB.
const FLOWS_MAX: usize = 1 << 16;
/// Maximum number of paths whose MTU is tracked.
const PATHS_MAX: usize = 1 << 12;
/// Maximum number of segment size changes tracked per flow or path.
const ERAS_MAX: usize = 16;
