//! A capture pushed through coalescers as if it arrived now.

use grosso::{
    Coalescer, Frame, Meta, Profile, Sink, Verdict,
    checksum::Checksum,
    coalesce::reason::{Close, NoMerge, Pass},
    stats::CoalesceStats,
};
use grosso_io::capture::{
    ChecksumState, ENTERPRISE_NUMBER, Interface, MAGIC, Offload, Packet, PacketMeta, flag,
    options::code,
};
use grosso_wire::{LinkType, Ports, dissect};

use crate::{
    arguments::{Batch, Rules},
    checksums::is_seeded,
    error::Failure,
    input::Links,
    meta,
};

/// A packet on its way through a coalescer: its bytes, and what is needed to write it again.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) data: Vec<u8>,
    /// Its place in the capture, counted from 1.
    pub(crate) number: u64,
    pub(crate) timestamp_ns: u64,
    pub(crate) interface: u32,
    pub(crate) flags: Option<u32>,
    /// What our own option said, when it was there.
    pub(crate) offload: Option<Box<Offload>>,
}

impl AsRef<[u8]> for Record {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Record {
    fn fill(&mut self, packet: &Packet<'_>, timestamp_ns: u64) {
        self.data.clear();
        self.data.extend_from_slice(packet.data);
        self.number = packet.number;
        self.timestamp_ns = timestamp_ns;
        self.interface = packet.interface;
        self.flags = None;
        self.offload = None;
    }

    /// What the capture said about the packet.
    pub(crate) fn meta(&mut self) -> PacketMeta {
        PacketMeta {
            timestamp_ns: Some(self.timestamp_ns),
            interface: self.interface,
            original_len: self.data.len() as u32,
            flags: self.flags,
            offload: self.offload.take().map(|offload| *offload),
        }
    }
}

/// Takes what is delivered, and gives records back to be filled again.
pub(crate) trait Receiver: Sink<Record> {
    /// A record that is not in use.
    fn recycle(&mut self) -> Record;
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The engine took it.
    Engine(Verdict),
    /// It stays outside, in its place: the caller writes it as it stands.
    Aside(Aside),
}

/// Why a packet stays outside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Aside {
    /// Its link type has no view here.
    LinkType,
    /// It carries options that a superframe could not give back.
    Options,
    /// The capture cut it, or lies about its length.
    Length,
    /// It has no time, or one that nanoseconds cannot hold.
    Time,
    /// Too many interfaces send at once.
    Interfaces,
}

impl Aside {
    pub(crate) const ALL: [Self; 5] =
        [Self::LinkType, Self::Options, Self::Length, Self::Time, Self::Interfaces];

    /// The name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LinkType => "capture-link-type",
            Self::Options => "capture-options",
            Self::Length => "capture-length",
            Self::Time => "capture-time",
            Self::Interfaces => "capture-interfaces",
        }
    }

    /// A sentence for people.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::LinkType => "Its link type is not one I can parse.",
            Self::Options => "It carries options that a superframe could not give back.",
            Self::Length => "The capture cut it, so its bytes are not all there.",
            Self::Time => "It has no time, or one that nanoseconds cannot hold.",
            Self::Interfaces => "Too many interfaces send at once.",
        }
    }
}

/// Coalescers over the packets of a capture: one for each interface and direction.
pub(crate) struct Replay {
    profile: Profile,
    batch: Batch,
    links: Links,
    seed: u64,
    lanes: Vec<Lane>,
    /// Packets of the poll so far.
    polled: u64,
    stamp: Option<u64>,
    /// Of lanes that are gone.
    stats: CoalesceStats,
    /// Packets that stayed outside, by reason.
    pub(crate) asides: [u64; Aside::ALL.len()],
}

/// The packets of one interface in one direction.
struct Lane {
    interface: u32,
    direction: u32,
    link: LinkType,
    coalescer: Coalescer<Record>,
    /// The flags of what is held but those about offloads: a superframe has room for one word.
    flags: u32,
    last_ns: u64,
}

impl Replay {
    /// A replay by these rules.
    pub(crate) fn new(rules: &Rules, links: Links) -> Result<Self, Failure> {
        Ok(Self {
            profile: profile(rules)?,
            batch: rules.batch,
            links,
            seed: super::random_seed(),
            lanes: Vec::new(),
            polled: 0,
            stamp: None,
            stats: CoalesceStats::default(),
            asides: [0; Aside::ALL.len()],
        })
    }

    /// The rules.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Takes the next packet. What it completes is delivered before this returns, so a packet that
    /// stays aside may be written at once and nothing is overtaken.
    pub(crate) fn push(&mut self, packet: &Packet<'_>, sink: &mut impl Receiver) -> Fate {
        self.begin(packet, sink);
        let fate = self.place(packet, sink);
        if let Fate::Aside(aside) = fate {
            self.asides[aside as usize] += 1;
        }
        self.end(packet, sink);
        fate
    }

    /// Delivers everything, because the capture or its section ends.
    pub(crate) fn finish(&mut self, sink: &mut impl Receiver) {
        for mut lane in self.lanes.drain(..) {
            lane.coalescer.finish(sink);
            add(&mut self.stats, lane.coalescer.stats());
        }
    }

    /// What all coalescers did; complete after [`Self::finish`].
    pub(crate) fn stats(&self) -> &CoalesceStats {
        &self.stats
    }

    /// A poll that ends where the timestamp changes ends before the packet.
    fn begin(&mut self, packet: &Packet<'_>, sink: &mut impl Receiver) {
        if self.batch == Batch::Stamp && self.stamp != packet.timestamp_ns {
            let before = self.stamp.unwrap_or(0);
            self.poll_end(before, sink);
            self.stamp = packet.timestamp_ns;
        }
    }

    fn end(&mut self, packet: &Packet<'_>, sink: &mut impl Receiver) {
        self.polled += 1;
        if let Batch::Packets(most) = self.batch
            && self.polled >= most
        {
            self.polled = 0;
            self.poll_end(packet.timestamp_ns.unwrap_or(0), sink);
        }
    }

    fn poll_end(&mut self, now_ns: u64, sink: &mut impl Receiver) {
        for lane in &mut self.lanes {
            lane.coalescer.poll_end(now_ns, sink);
        }
    }

    fn place(&mut self, packet: &Packet<'_>, sink: &mut impl Receiver) -> Fate {
        let Some(link) = self.links.of(packet) else { return Fate::Aside(Aside::LinkType) };
        let said = Said::by(packet);
        let direction = said.kept_flags() & DIRECTION;
        let Some(lane) = self.lane(packet.interface, direction, link) else {
            return Fate::Aside(Aside::Interfaces);
        };
        match aside(packet, &said) {
            Err(aside) => {
                lane.coalescer.make_way(packet.data, None, sink);
                Fate::Aside(aside)
            }
            Ok(now_ns) => Fate::Engine(lane.push(packet, said, now_ns, sink)),
        }
    }

    /// The lane of an interface and direction; `None` when there are too many.
    fn lane(&mut self, interface: u32, direction: u32, link: LinkType) -> Option<&mut Lane> {
        let is_it = |lane: &Lane| lane.interface == interface && lane.direction == direction;
        let index = match self.lanes.iter().position(is_it) {
            Some(index) => index,
            None if self.lanes.len() >= LANES_MAX => return None,
            None => {
                let profile = self.profile.clone();
                let coalescer = Coalescer::new(profile, link, Ports::ASSIGNED, self.seed);
                self.lanes.push(Lane {
                    interface,
                    direction,
                    link,
                    coalescer,
                    flags: 0,
                    last_ns: 0,
                });
                self.lanes.len() - 1
            }
        };
        self.lanes.get_mut(index)
    }
}

impl Lane {
    fn push(
        &mut self,
        packet: &Packet<'_>,
        said: Said,
        now_ns: u64,
        sink: &mut impl Receiver,
    ) -> Verdict {
        self.make_way(said.kept_flags(), now_ns, sink);
        let mut record = sink.recycle();
        record.fill(packet, now_ns);
        record.flags = said.flags;
        let meta = self.engine_meta(packet.data, &said, now_ns);
        record.offload = said.offload.filter(|_| said.has_option).map(Box::new);
        self.coalescer.push(Frame { buffer: record, meta }, now_ns, sink)
    }

    /// Delivers what could not be given back exactly if this packet joined it: a superframe holds
    /// one word of flags, and arrivals as steps forward of less than 4.3 seconds.
    fn make_way(&mut self, flags: u32, now_ns: u64, sink: &mut impl Receiver) {
        let hold_ns = self.coalescer.profile().limits.hold_ns;
        if let Some(deadline) = self.coalescer.deadline() {
            let created = deadline.saturating_sub(hold_ns);
            let is_far = now_ns.saturating_sub(created) > u64::from(u32::MAX);
            if is_far || now_ns < self.last_ns || flags != self.flags {
                self.coalescer.finish(sink);
            } else if hold_ns > 0 && deadline <= now_ns {
                self.coalescer.expire(now_ns, sink);
            }
        }
        self.flags = flags;
        self.last_ns = now_ns;
    }

    /// What is told to the engine. That a checksum is valid is not: it costs little to verify, and
    /// if the capture were wrong, cutting would write another checksum than was there. That one is
    /// partial the packet tells itself when the capture does not.
    fn engine_meta(&self, data: &[u8], said: &Said, now_ns: u64) -> Meta {
        let mut meta = Meta { timestamp_ns: Some(now_ns), ..Meta::default() };
        let stack = dissect(data, self.link, &Ports::ASSIGNED);
        let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
        meta.checksum = match state.to_engine(&stack) {
            partial @ Checksum::Partial { .. } => partial,
            _ if is_seeded(data, &stack) => {
                ChecksumState::Partial { place: None }.to_engine(&stack)
            }
            _ => Checksum::None,
        };
        if data.len() > WIRE_BYTES_MAX {
            meta.gso = meta::opaque();
        }
        let Some(offload) = &said.offload else { return meta };
        if let Some(gso) = &offload.gso {
            meta.gso = gso.to_engine().or_else(meta::opaque);
        }
        meta.vlan = offload.vlan();
        meta.hash = offload.hash;
        meta
    }
}

/// What the options of a packet say.
struct Said {
    flags: Option<u32>,
    offload: Option<Offload>,
    /// Whether our own option is there, and not only flags.
    has_option: bool,
    /// Whether there are options that a superframe could not give back.
    has_others: bool,
}

impl Said {
    fn by(packet: &Packet<'_>) -> Self {
        let options = packet.options();
        let mut said = Self { flags: None, offload: None, has_option: false, has_others: false };
        if options.as_bytes().is_empty() {
            return said;
        }
        for option in &options {
            match option {
                Ok(option) if option.code == code::PACKET_FLAGS && option.value.len() == 4 => {}
                Ok(option)
                    if option.code == code::CUSTOM_BINARY && is_ours(packet, option.value) =>
                {
                    said.has_option = true;
                }
                _ => said.has_others = true,
            }
        }
        let meta = packet.meta();
        said.flags = meta.flags;
        said.offload = meta.offload;
        said
    }
}

impl Said {
    /// The flags that a superframe keeps. That a checksum was partial is kept elsewhere; that it was
    /// verified is not kept.
    fn kept_flags(&self) -> u32 {
        self.flags.unwrap_or(0) & !flag::OFFLOADS
    }
}

/// When the packet arrived, unless it has to stay outside.
fn aside(packet: &Packet<'_>, said: &Said) -> Result<u64, Aside> {
    if said.has_others {
        return Err(Aside::Options);
    }
    if packet.original_len as usize != packet.data.len() {
        return Err(Aside::Length);
    }
    let time = packet.timestamp_ns.filter(|&time| is_exact(packet.description, time));
    time.ok_or(Aside::Time)
}

/// Whether a time in nanoseconds gives back the time in the file.
fn is_exact(interface: &Interface, time_ns: u64) -> bool {
    let unit = interface.resolution.to_byte();
    let is_coarse = if unit & 0x80 == 0 { unit <= 9 } else { unit & 0x7f <= 28 };
    let is_clamped = time_ns == u64::MAX || (time_ns == 0 && interface.offset_seconds != 0);
    is_coarse && !is_clamped
}

fn is_ours(packet: &Packet<'_>, value: &[u8]) -> bool {
    let number = packet.order().u32_bytes(ENTERPRISE_NUMBER);
    value.strip_prefix(&number).is_some_and(|rest| rest.starts_with(&MAGIC))
}

/// The profile that the user asks for.
fn profile(rules: &Rules) -> Result<Profile, Failure> {
    let Some(mut profile) = Profile::named(&rules.profile) else {
        let names: Vec<_> = Profile::all().into_iter().map(|profile| profile.name).collect();
        let message = format!("no profile {:?}; there are {}", rules.profile, names.join(", "));
        return Err(Failure::usage("usage.profile", message));
    };
    let limits = &mut profile.limits;
    limits.hold_ns = rules.hold;
    limits.parts = PARTS_MAX;
    limits.tcp_segments = limits.tcp_segments.min(ARRIVALS_MAX);
    if let Some(size) = rules.max_size {
        limits.size_bytes = size;
    }
    if let Some(segments) = rules.max_segs {
        limits.tcp_segments = segments.min(ARRIVALS_MAX);
        limits.udp_segments = segments.min(ARRIVALS_MAX);
    }
    if let Some(flows) = rules.flows {
        limits.flows = flows;
        // Twice the room, so that buckets of eight rarely overflow.
        profile.table.buckets = (flows / 4).max(1);
    }
    if let Some(tunnels) = rules.tunnels {
        profile.tunnels_max = tunnels;
    }
    profile.udp &= !rules.no_udp;
    Ok(profile)
}

/// Adds what a coalescer did.
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
    add_all(&mut total.segments, &stats.segments);
}

fn add_all<const N: usize>(total: &mut [u64; N], more: &[u64; N]) {
    for (total, more) in total.iter_mut().zip(more) {
        *total += more;
    }
}

/// The bits of `epb_flags` that say whether a packet came or went.
const DIRECTION: u32 = 0b11;
/// The longest frame that any wire carries: jumbo frames with room for tags. What is longer is a
/// superframe, and one that does not say its segment size must not give its own as that.
const WIRE_BYTES_MAX: usize = 9216 + 64;
/// Most interfaces and directions at once; each has tables of its own.
const LANES_MAX: usize = 16;
/// Most packets held by one lane: with 1500 bytes each, 50 MB.
const PARTS_MAX: usize = 32768;
/// Most packets of a superframe whose times fit into one option of 65,535 bytes.
const ARRIVALS_MAX: u16 = 16_374;
