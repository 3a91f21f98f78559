//! Passes the packets of a capture to coalescers. The captured timestamps serve as the clock.

mod flow_trains;
mod records;
mod rules;
mod seen;

use std::path::Path;

use grosso::{
    CoalesceOptions, Frame, Profile, Sink, Verdict,
    coalesce::{
        Batch as Order, Level, RoundTrips,
        reason::{Close, NoMerge, Pass, Release},
    },
    stats::CoalesceStats,
};
use grosso_io::{PortBuffer, PortCoalescer};
use grosso_wire::{LinkType, Ports};

pub use self::rules::{Batch, Bounds, HoldTime, Repair, Rules};
pub(crate) use self::{
    flow_trains::{FlowReplay, FlowTrains, MarkedPacket, Streams, why},
    records::Records,
    seen::{Arrived, Seen, meta_of},
};
use crate::{
    capture::{Session, random_seed},
    error::Failure,
    profile, units,
};

/// Receiver of deliveries, which also stores packets until they are delivered.
pub(crate) trait Receiver: Sink<PortBuffer> {
    /// Stores a packet in a buffer.
    fn keep(&mut self, seen: &Seen<'_>) -> PortBuffer;

    /// Sets the time of subsequent deliveries.
    fn at(&mut self, _now_ns: u64) {}
}

/// Result of replaying one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The engine processed the packet.
    Engine(Verdict),
    /// The packet bypasses the engine. The caller writes it unchanged, at the same position.
    Aside(Aside),
}

/// Purpose of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Deliveries are written to a file, so segmenting a superframe must restore every packet.
    Writes,
    /// Deliveries are counted as if they were written, but packets truncated by the capture may merge.
    Counts,
    /// Deliveries are only examined, so packets may merge even if they could not be restored from a file.
    Looks,
}

/// Reason why a packet bypasses the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Aside {
    /// The link type is not supported.
    LinkType,
    /// The packet has options that would be lost in a superframe.
    Options,
    /// The packet is truncated, or its recorded length is wrong.
    Length,
    /// The packet has no timestamp, or the timestamp cannot be expressed in nanoseconds.
    Time,
    /// Too many interfaces are in use at once.
    Interfaces,
}

impl Aside {
    pub(crate) const ALL: [Self; 5] =
        [Self::LinkType, Self::Options, Self::Length, Self::Time, Self::Interfaces];

    /// Returns the reason's name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LinkType => "capture_link_type",
            Self::Options => "capture_options",
            Self::Length => "capture_length",
            Self::Time => "capture_time",
            Self::Interfaces => "capture_interfaces",
        }
    }

    /// Returns a sentence that explains the reason to users.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::LinkType => "The link type is not supported.",
            Self::Options => "The packet has pcapng options that would be lost in a superframe.",
            Self::Length => "The headers are truncated, or a length field is wrong.",
            Self::Time => {
                "The packet has no timestamp, or a timestamp that exceeds the range of 64-bit \
                 nanoseconds."
            }
            Self::Interfaces => {
                "The capture has too many interfaces that are active at the same time."
            }
        }
    }
}

/// Coalescers for the packets of a capture: one per device and direction.
pub(crate) struct Replay {
    profile: Profile,
    batch: Batch,
    purpose: Purpose,
    seed: u64,
    lanes: Vec<Lane>,
    /// Round-trip time measurement; `None` unless the hold time depends on it.
    round_trips: Option<RoundTrips>,
    /// Number of packets in the current poll so far.
    polled: u64,
    stamp: Option<u64>,
    /// Total counts of the lanes that have ended.
    stats: CoalesceStats,
    /// Number of packets that bypassed the engine, by reason.
    pub(crate) asides: [u64; Aside::ALL.len()],
    /// Number of flows without a measured round-trip time, counted if the hold time depends on it.
    pub(crate) blind_flows: u64,
}

/// Coalescer for one device and direction.
struct Lane {
    device: u32,
    direction: u32,
    /// UDP ports that identify tunnels.
    ports: Ports,
    coalescer: PortCoalescer,
    /// Flags of the held packets, apart from those that concern offloads. A superframe can store only one word of
    /// flags.
    flags: u32,
    last_ns: u64,
    /// Whether a poll is in progress.
    is_polling: bool,
    /// Whether polls have no time limit. A train whose hold time expires is then flushed within the poll.
    is_poll_long: bool,
}

impl Replay {
    /// Creates a replay with these rules.
    pub(crate) fn new(rules: &Rules, purpose: Purpose) -> Result<Self, Failure> {
        let (profile, seed) = (asked_for(rules)?, random_seed());
        Ok(Self {
            round_trips: profile.wants_round_trips().then(|| RoundTrips::new(seed)),
            profile,
            batch: rules.batch,
            purpose,
            seed,
            lanes: Vec::new(),
            polled: 0,
            stamp: None,
            stats: CoalesceStats::default(),
            asides: [0; Aside::ALL.len()],
            blind_flows: 0,
        })
    }

    /// Returns the merge profile.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Processes the next packet. Everything that becomes due is delivered before this returns, so a packet that
    /// bypasses the engine can be written immediately without overtaking others.
    pub(crate) fn push(&mut self, seen: &Seen<'_>, sink: &mut dyn Receiver) -> Fate {
        self.push_as(&seen.arrived(), sink, |sink| sink.keep(seen))
    }

    /// Processes the next packet, given its properties. `keep` copies it into a buffer.
    pub(crate) fn push_as(
        &mut self,
        packet: &Arrived<'_>,
        sink: &mut dyn Receiver,
        keep: impl FnOnce(&mut dyn Receiver) -> PortBuffer,
    ) -> Fate {
        self.begin(packet.timestamp_ns, sink);
        let fate = self.place(packet, sink, keep);
        if let Fate::Aside(aside) = fate {
            self.asides[aside as usize] += 1;
        }
        self.end(packet.timestamp_ns, sink);
        fate
    }

    /// Flushes all trains at the end of the capture or of a section.
    pub(crate) fn finish(&mut self, sink: &mut dyn Receiver) {
        let now_ns = self.stamp.unwrap_or(0);
        for mut lane in self.lanes.drain(..) {
            lane.expire(now_ns, sink);
            lane.coalescer.finish(sink);
            add(&mut self.stats, lane.coalescer.stats());
            self.blind_flows += lane.coalescer.flows_without_round_trip() as u64;
        }
        self.polled = 0;
    }

    /// Returns the total counts over all coalescers. They are complete only after [`Self::finish`].
    pub(crate) fn stats(&self) -> &CoalesceStats {
        &self.stats
    }

    /// Ends the poll before a packet, if the batch rule ends polls by time.
    fn begin(&mut self, now: Option<u64>, sink: &mut dyn Receiver) {
        let before = self.stamp;
        let is_over = match self.batch {
            Batch::Packets(_) => false,
            Batch::Stamp => before != now,
            Batch::Gap(most_ns) => {
                let passed = before.zip(now).map(|(before, now)| now.saturating_sub(before));
                passed.is_none_or(|passed_ns| passed_ns > most_ns)
            }
        };
        if is_over {
            self.poll_end(before.unwrap_or(0), false, sink);
        }
        self.stamp = now;
    }

    fn end(&mut self, now: Option<u64>, sink: &mut dyn Receiver) {
        self.polled += 1;
        // If the budget was used up without a gap, more packets were already waiting, so the poll was full.
        let (most, is_full) = match self.batch {
            Batch::Packets(most) => (most, false),
            Batch::Gap(_) => (POLL_PACKETS_MAX, true),
            Batch::Stamp => return,
        };
        if self.polled >= most {
            self.poll_end(now.unwrap_or(0), is_full, sink);
        }
    }

    /// Ends a poll. `is_full` means that more packets may already have been waiting.
    fn poll_end(&mut self, now_ns: u64, is_full: bool, sink: &mut dyn Receiver) {
        self.polled = 0;
        for lane in &mut self.lanes {
            lane.expire(now_ns, sink);
            match is_full {
                true => lane.coalescer.poll_end_full(now_ns, sink),
                false => lane.coalescer.poll_end(now_ns, sink),
            }
            lane.is_polling = is_full && lane.coalescer.profile().outlasts_full_polls();
        }
    }

    fn place(
        &mut self,
        packet: &Arrived<'_>,
        sink: &mut dyn Receiver,
        keep: impl FnOnce(&mut dyn Receiver) -> PortBuffer,
    ) -> Fate {
        let Some(link) = packet.link else { return Fate::Aside(Aside::LinkType) };
        let round_trip = self.round_trip(packet, link);
        let flags = packet.flags;
        let direction = flags & DIRECTION;
        let to_keep = if self.purpose == Purpose::Looks { direction } else { flags };
        let Some(index) = self.lane(packet.device, direction, link, packet.ports) else {
            return Fate::Aside(Aside::Interfaces);
        };
        self.look_for(index, packet.ports, link, sink);
        let Some(lane) = self.lanes.get_mut(index) else {
            return Fate::Aside(Aside::Interfaces);
        };
        match packet.time {
            Err(aside) => {
                lane.coalescer.flush_before(packet.data, None, sink);
                Fate::Aside(aside)
            }
            Ok(now_ns) => {
                if let Some(round_trip_ns) = round_trip {
                    lane.coalescer.learn_round_trip(packet.data, round_trip_ns, now_ns);
                }
                lane.make_way(to_keep, now_ns, sink);
                let frame = Frame { buffer: keep(sink), meta: packet.meta };
                lane.is_polling = true;
                Fate::Engine(lane.coalescer.push(frame, now_ns, sink))
            }
        }
    }

    /// Returns the round-trip time of the packet's connection in nanoseconds, if this packet reveals one.
    fn round_trip(&mut self, packet: &Arrived<'_>, link: LinkType) -> Option<u64> {
        let now_ns = packet.time.ok()?;
        self.round_trips.as_mut()?.observe(packet.data, link, &packet.ports, now_ns)
    }

    /// Returns the index of the lane for a device and direction, or `None` if there are already `LANES_MAX` lanes.
    fn lane(&mut self, device: u32, direction: u32, link: LinkType, ports: Ports) -> Option<usize> {
        let is_it = |lane: &Lane| lane.device == device && lane.direction == direction;
        match self.lanes.iter().position(is_it) {
            Some(index) => Some(index),
            None if self.lanes.len() >= LANES_MAX => None,
            None => {
                let profile = self.profile.clone();
                let coalescer = PortCoalescer::new(
                    CoalesceOptions::new(link, self.seed).profile(profile).ports(ports),
                );
                self.lanes.push(Lane {
                    device,
                    direction,
                    ports,
                    coalescer,
                    flags: 0,
                    last_ns: 0,
                    is_polling: false,
                    is_poll_long: matches!(self.batch, Batch::Packets(_)),
                });
                Some(self.lanes.len() - 1)
            }
        }
    }

    /// Changes the tunnel ports of a lane. Held packets are flushed first, so that the packets of a flow stay in order
    /// even if captures record different ports.
    fn look_for(&mut self, index: usize, ports: Ports, link: LinkType, sink: &mut dyn Receiver) {
        let Some(lane) = self.lanes.get_mut(index).filter(|lane| lane.ports != ports) else {
            return;
        };
        lane.coalescer.finish(sink);
        let next = PortCoalescer::new(
            CoalesceOptions::new(link, self.seed).profile(self.profile.clone()).ports(ports),
        );
        let before = core::mem::replace(&mut lane.coalescer, next);
        lane.ports = ports;
        add(&mut self.stats, before.stats());
        self.blind_flows += before.flows_without_round_trip() as u64;
    }
}

impl Lane {
    /// Flushes the trains whose hold time has expired, each at its deadline. During a poll, only trains that are held
    /// across polls are flushed, or none if the poll is processed as a whole (by flow or in order). A hold time
    /// therefore never makes trains shorter.
    fn expire(&mut self, now_ns: u64, sink: &mut dyn Receiver) {
        let profile = self.coalescer.profile();
        let is_whole = profile.batch != Order::AsItCame || profile.reorder.level == Level::Batch;
        let is_within_poll = self.is_poll_long && profile.limits.hold_ns > 0 && !is_whole;
        let mut before = None;
        while let Some(deadline) = self.coalescer.deadline()
            && deadline <= now_ns
            && before != Some(deadline)
            && (is_within_poll || !self.is_polling)
        {
            sink.at(deadline);
            self.coalescer.expire(deadline, sink);
            before = Some(deadline);
        }
        sink.at(now_ns);
    }

    /// Flushes the held packets if joining them would make it impossible to restore this packet exactly. A superframe
    /// stores one word of flags, and stores arrival times as forward steps of less than 4.3 seconds.
    fn make_way(&mut self, flags: u32, now_ns: u64, sink: &mut dyn Receiver) {
        self.expire(now_ns, sink);
        let hold_ns = self.coalescer.profile().limits.hold_ns;
        if let Some(deadline) = self.coalescer.deadline() {
            let created = deadline.saturating_sub(hold_ns);
            let is_far = now_ns.saturating_sub(created) > u64::from(u32::MAX);
            if is_far || now_ns < self.last_ns || flags != self.flags {
                self.coalescer.finish(sink);
            }
        }
        self.flags = flags;
        self.last_ns = now_ns;
    }
}

/// Notes how many flows have no measured round-trip time, if the hold time depends on it.
pub(crate) fn note_blind_flows(flows: u64, session: &Session) {
    if flows == 0 {
        return;
    }
    let flows = units::count(flows, "flow");
    session.note(format!("this capture shows no round-trip time for {flows}: `auto` assumes 1 ms"));
    session.hint("if you know the round-trip time, pass --round-trip 200us");
}

/// Returns the profile that the user selected, with the overriding options applied.
fn asked_for(rules: &Rules) -> Result<Profile, Failure> {
    let mut profile = profile::find(&rules.profile, Path::new(""))?;
    let bounds = &rules.bounds;
    rules.hold.into_iter().for_each(|hold| hold.apply(&mut profile));
    rules.reorder.into_iter().for_each(|repair| repair.apply(&mut profile));
    let limits = &mut profile.limits;
    limits.parts = limits.parts.min(PARTS_MAX);
    limits.tcp_segments = limits.tcp_segments.min(ARRIVALS_MAX);
    limits.udp_segments = limits.udp_segments.min(ARRIVALS_MAX);
    if let Some(size) = bounds.max_size {
        limits.size_bytes = size;
    }
    if let Some(segments) = bounds.max_segs {
        limits.tcp_segments = segments.min(ARRIVALS_MAX);
        limits.udp_segments = segments.min(ARRIVALS_MAX);
    }
    if let Some(flows) = bounds.flows {
        limits.flows = flows;
        // The table has twice as many slots as flows, so that its buckets of eight rarely overflow.
        profile.table.buckets = (flows / 4).max(1);
    }
    if let Some(tunnels) = bounds.tunnels {
        profile.tunnels_max = tunnels;
    }
    profile.udp &= !bounds.no_udp;
    if let Some(round_trip_ns) = bounds.round_trip {
        profile.reorder.round_trip_ns = round_trip_ns;
    }
    Ok(profile)
}

/// Adds the counts of a coalescer to `total`.
fn add(total: &mut CoalesceStats, stats: &CoalesceStats) {
    total.frames_in += stats.frames_in;
    total.bytes_in += stats.bytes_in;
    total.packets_in += stats.packets_in;
    total.frames_out += stats.frames_out;
    total.bytes_out += stats.bytes_out;
    total.packets_out += stats.packets_out;
    total.superframes += stats.superframes;
    total.superframe_packets += stats.superframe_packets;
    add_all::<{ Pass::COUNT }>(&mut total.passed, &stats.passed);
    add_all::<{ NoMerge::COUNT }>(&mut total.refused, &stats.refused);
    add_all::<{ Close::COUNT }>(&mut total.closed, &stats.closed);
    total.filtered += stats.filtered;
    add_all(&mut total.kept, &stats.kept);
    total.vectors += stats.vectors;
    total.vector_packets += stats.vector_packets;
    add_all(&mut total.segments, &stats.segments);
    total.reorder.waited += stats.reorder.waited;
    add_all::<{ Release::COUNT }>(&mut total.reorder.released, &stats.reorder.released);
    total.reorder.bytes_max = total.reorder.bytes_max.max(stats.reorder.bytes_max);
}

fn add_all<const N: usize>(total: &mut [u64; N], more: &[u64; N]) {
    for (total, more) in total.iter_mut().zip(more) {
        *total += more;
    }
}

/// Direction bits of `epb_flags`.
const DIRECTION: u32 = 0b11;
/// Maximum number of packets in a poll that ends at a gap: the NAPI budget.
const POLL_PACKETS_MAX: u64 = 64;
/// Maximum number of lanes at once. Each has its own tables.
const LANES_MAX: usize = 16;
/// Maximum number of packets held by one lane: 50 MB if each is 1500 bytes long.
const PARTS_MAX: usize = 32768;
/// Maximum number of packets in a superframe. Their timestamps must fit into one option of 65,535 bytes.
const ARRIVALS_MAX: u16 = 16_374;
