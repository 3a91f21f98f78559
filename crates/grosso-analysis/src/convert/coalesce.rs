//! `grosso coalesce`: merges packets as a receiving host would, so that `segment` can restore them.

use grosso::{
    Delivery, Profile, Sink,
    acknowledge::Kept,
    checksum::Checksum,
    coalesce::{
        Level,
        reason::{Close, NoMerge, Pass, Release},
    },
};
use grosso_capture::{Format, Offload, Packet, PacketMeta, SegmentTransport, TunnelPort};
use grosso_io::PortBuffer;
use grosso_wire::tcp;

use crate::{
    capture::{
        CaptureCommand, Files, Frame, Outcome, Output, Session, Transform, survey, transform,
    },
    error::Failure,
    evidence::{Given, Judge},
    links::Links,
    replay::{
        Aside, Fate, FlowTrains, MarkedPacket, Purpose, Receiver, Records, Replay, Rules, Seen,
        Streams, note_blind_flows,
    },
    report::{InputFacts, OutputFacts, counts},
    reports::coalesce::{CoalesceReport, buckets, original},
    slowdown::Connections,
    units,
};

/// Options for `grosso coalesce`, which merges packets as a receiving host does.
#[derive(Debug, Default)]
pub struct Coalesce {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Merge rules.
    pub rules: Rules,
    /// Empty table of TCP connections that already knows which flows to list.
    pub connections: Connections,
}

impl CaptureCommand for Coalesce {
    type Report = CoalesceReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<CoalesceReport>, Failure> {
        let judge = survey(&files.captures, self.given, session)?;
        let mut input = files.input(session)?;
        let is_written = files.target.path.is_some();
        let purpose = if is_written { Purpose::Writes } else { Purpose::Counts };
        let replay = Replay::new(&self.rules, purpose)?;
        let format = files.target.format(Format::Pcapng);
        let is_pcapng_unasked = input.is_pcap() && format == Format::Pcapng && is_written;
        note_format(format, is_pcapng_unasked, replay.profile(), session);
        let output = files.output(Format::Pcapng, &input, session)?;
        let (links, writer) = (input.links, Writer::new(output));
        let mut streams = self.connections.lists_flows().then(|| Streams::new(self.connections));
        if let Some(streams) = &mut streams {
            streams.connections.merged_by(replay.rules_text());
        }
        let mut work =
            CoalesceWork { links, judge, purpose, replay, writer, streams, cut_packets: 0 };
        let done = transform(&mut input, &mut work)?;
        work.section();
        let CoalesceWork { replay, mut writer, streams, cut_packets, .. } = work;
        writer.failure.take().map_or(Ok(()), Err)?;
        let (facts, place) = writer.output.finish(&input)?;
        note_cut(cut_packets, purpose, session);
        let mut report = report(&replay, input.facts(done.bytes), facts);
        report.flows = streams.and_then(|streams| streams.conclude().flows);
        report.elapsed_s = session.elapsed_s();
        if let Some(&superframes) = report.passed.get(Pass::Superframe.name()) {
            let frames = units::count(superframes, "superframe");
            session.note(format!("{frames} of the input could not be merged further"));
            session.hint("to start from single packets, run `grosso wire` first");
        }
        note_disorder(&replay, session);
        note_blind_flows(replay.blind_flows, session);
        Ok(done.outcome((report, place), input, false))
    }
}

/// State of the command while it reads the capture.
struct CoalesceWork {
    links: Links,
    judge: Judge,
    purpose: Purpose,
    replay: Replay,
    writer: Writer,
    /// Flows tracked for the table in the report, if the table was requested.
    streams: Option<Streams>,
    cut_packets: u64,
}

impl CoalesceWork {
    fn push(&mut self, packet: &Packet<'_>) -> Fate {
        let seen = Seen::of(packet, self.links, self.purpose, &mut self.judge);
        self.cut_packets += u64::from(packet.is_cut());
        let Some(streams) = &mut self.streams else {
            return self.replay.push(&seen, &mut self.writer);
        };
        let mark = streams.observe(packet, &seen, &self.judge);
        self.writer.trains.begin(&seen, mark);
        let fate = self.replay.push(&seen, &mut self.writer);
        self.writer.trains.settle(Some(fate), &mut streams.connections);
        fate
    }
}

impl Transform for CoalesceWork {
    fn output(&mut self) -> &mut Output {
        &mut self.writer.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, .. } = frame;
        if let Fate::Aside(_) = self.push(packet) {
            self.writer.output.copy(entry)?;
        }
        self.writer.failure.take().map_or(Ok(()), Err)
    }

    /// Passes the packet to the replay, which may flush trains as a result.
    fn unparsed(&mut self, packet: &Packet<'_>) {
        self.push(packet);
    }

    /// Flushes all trains, because the held packets use the old section's interface numbers.
    fn section(&mut self) {
        self.replay.finish(&mut self.writer);
        if let Some(streams) = &mut self.streams {
            self.writer.trains.settle(None, &mut streams.connections);
        }
    }
}

/// Notes how many packets the capture truncated, and whether they could merge.
fn note_cut(packets: u64, purpose: Purpose, session: &Session) {
    if packets == 0 {
        return;
    }
    let are = if packets == 1 { "packet is" } else { "packets are" };
    let fate = match purpose {
        Purpose::Writes => "these packets are not merged, so that `segment` restores the input",
        Purpose::Counts | Purpose::Looks => {
            "these packets are merged if their headers match, and their checksums are assumed to \
             be correct"
        }
    };
    session.note(format!("{packets} {are} truncated: {fate}"));
}

/// Prints a note if out-of-order packets prevented merging and resequencing is off.
fn note_disorder(replay: &Replay, session: &Session) {
    let stats = replay.stats();
    // Only late packets indicate reordering. A packet ahead of the expected sequence number may just follow a loss.
    let behind = stats.refused[NoMerge::TcpSequenceBehind as usize];
    if replay.profile().reorder.level != Level::Off || behind * 50 < stats.packets_in.max(1) {
        return;
    }
    let packets = units::count(behind, "packet");
    session.note(format!(
        "{packets} arrived out of order and therefore flushed the trains of their flows"
    ));
    session.hint("to restore the order, pass --reorder batch; `grosso whatif` shows the gain");
}

fn note_format(format: Format, is_pcapng_unasked: bool, profile: &Profile, session: &Session) {
    if !profile.rules.is_invertible() {
        let name = &profile.name;
        session.note(format!("profile {name} is lossy, so `segment` cannot restore the packets"));
        session
            .hint("use --profile linux, which merges packets only if `segment` can restore them");
    } else if format == Format::Pcap {
        session.note(
            "pcap cannot record how to split superframes, so `segment` cannot restore the packets",
        );
    } else if is_pcapng_unasked {
        session.note(
            "writing pcapng, because pcap cannot record how to split superframes; -F pcap \
                   forces pcap",
        );
    }
}

fn report(replay: &Replay, input: InputFacts, output: OutputFacts) -> CoalesceReport {
    let stats = replay.stats();
    let mut trains = stats.segments;
    trains[0] += replay.asides.iter().sum::<u64>();
    let mut passed = counts(Pass::ALL.iter().map(|reason| reason.name()), &stats.passed);
    passed.extend(counts(Aside::ALL.iter().map(|aside| aside.name()), &replay.asides));
    CoalesceReport {
        input,
        output,
        profile: replay.profile().name.to_string(),
        superframes: stats.superframes,
        superframe_packets: stats.superframe_packets,
        trains: buckets(&trains),
        passed,
        not_merged: counts(NoMerge::ALL.iter().map(|reason| reason.name()), &stats.refused),
        closed: counts(Close::ALL.iter().map(|reason| reason.name()), &stats.closed),
        waited: counts(Release::ALL.iter().map(|reason| reason.name()), &stats.reorder.released),
        filtered: stats.filtered,
        kept: counts(Kept::ALL.iter().map(|reason| reason.name()), &stats.kept),
        original: original(replay.profile(), stats),
        flows: None,
        elapsed_s: 0.0,
    }
}

/// Capture metadata kept for a packet until it is written.
#[derive(Debug, Default)]
struct Record {
    timestamp_ns: u64,
    interface: u32,
    flags: Option<u32>,
    /// Reference to the packet in the flow table; `None` if the packet has no payload.
    marked: Option<MarkedPacket>,
    /// Contents of Grosso's custom capture option, if the packet has one.
    offload: Option<Box<Offload>>,
    /// Tunnels around the packet that use non-standard ports.
    tunnels: Vec<TunnelPort>,
}

impl Record {
    /// Returns the capture metadata for a packet of `original_len` bytes.
    fn meta(&mut self, original_len: u32) -> PacketMeta {
        PacketMeta {
            timestamp_ns: Some(self.timestamp_ns),
            interface: self.interface,
            original_len,
            flags: self.flags,
            offload: self.offload.take().map(|offload| *offload),
        }
    }
}

/// Writer of the packets and superframes that the coalescer delivers.
struct Writer {
    output: Output,
    records: Records<Record>,
    frame: Vec<u8>,
    arrivals_ns: Vec<u32>,
    trains: FlowTrains,
    /// First write error, kept here because a delivery callback cannot return it.
    failure: Option<Failure>,
}

impl Writer {
    fn new(output: Output) -> Self {
        Self {
            output,
            records: Records::default(),
            frame: Vec::new(),
            arrivals_ns: Vec::new(),
            trains: FlowTrains::default(),
            failure: None,
        }
    }

    fn write_single(&mut self, delivery: &mut Delivery<'_, PortBuffer>) -> Result<(), Failure> {
        let Some(part) = delivery.next_part() else { return Ok(()) };
        let (packet, record) = (part.buffer.as_ref(), self.records.of_mut(&part.buffer));
        let written = self.output.write(&record.meta(packet.len() as u32), packet);
        self.records.give_back(part.buffer);
        written
    }

    /// Writes a superframe along with everything needed to restore its packets.
    fn write_train(&mut self, delivery: &mut Delivery<'_, PortBuffer>) -> Result<(), Failure> {
        self.frame.clear();
        delivery.copy_to(&mut self.frame);
        self.arrivals_ns.clear();
        let mut first = None;
        let mut last_ns = 0;
        // Tunnel ports common to all packets.
        let mut shared: Option<Vec<TunnelPort>> = None;
        while let Some(part) = delivery.next_part() {
            let record = self.records.of_mut(&part.buffer);
            let tunnels = core::mem::take(&mut record.tunnels);
            match &mut shared {
                Some(shared) if *shared != tunnels => shared.clear(),
                Some(_) => {}
                None => shared = Some(tunnels),
            }
            match first {
                None => first = Some((record.timestamp_ns, record.interface, record.flags)),
                Some(_) => self.arrivals_ns.push(step(last_ns, record.timestamp_ns)),
            }
            last_ns = record.timestamp_ns;
            for &arrival in record.offload.iter().flat_map(|offload| &offload.arrivals_ns) {
                self.arrivals_ns.push(arrival);
                last_ns += u64::from(arrival);
            }
            self.records.give_back(part.buffer);
        }
        let Some((timestamp_ns, interface, flags)) = first else { return Ok(()) };
        // If a superframe in the input lacks its packets' timestamps, the list has gaps and is useless.
        if self.arrivals_ns.len() + 1 != delivery.packets as usize {
            self.arrivals_ns.clear();
        }
        let arrivals = core::mem::take(&mut self.arrivals_ns);
        let meta = PacketMeta {
            timestamp_ns: Some(timestamp_ns),
            interface,
            original_len: self.frame.len() as u32,
            flags,
            offload: Some(Offload {
                transport: transport(delivery),
                arrivals_ns: arrivals,
                tunnel_ports: shared.unwrap_or_default(),
                ..Offload::new(&delivery.meta)
            }),
        };
        let written = self.output.write(&meta, &self.frame);
        self.arrivals_ns = meta.offload.map(|offload| offload.arrivals_ns).unwrap_or_default();
        written
    }
}

impl Sink<PortBuffer> for Writer {
    fn deliver(&mut self, mut delivery: Delivery<'_, PortBuffer>) {
        self.trains.leave(&delivery, |buffer| self.records.of(buffer).marked);
        let written = if delivery.is_joined() {
            self.write_train(&mut delivery)
        } else {
            self.write_single(&mut delivery)
        };
        if let Err(failure) = written {
            self.failure.get_or_insert(failure);
        }
    }

    fn discard(&mut self, buffer: PortBuffer) {
        self.records.give_back(buffer);
    }
}

impl Receiver for Writer {
    fn keep(&mut self, seen: &Seen<'_>) -> PortBuffer {
        let (buffer, record) = self.records.add(&seen.data);
        record.timestamp_ns = seen.time.unwrap_or(0);
        record.interface = seen.packet.interface;
        record.flags = seen.said.flags;
        record.marked = self.trains.pushed();
        let said = seen.said.offload.as_ref().filter(|_| seen.said.has_option);
        record.offload = said.cloned().map(Box::new);
        record.tunnels.clone_from(&seen.tunnels);
        buffer
    }

    fn at(&mut self, now_ns: u64) {
        self.trains.at(now_ns);
    }
}

/// Returns the transport of a superframe: TCP if the checksum offset is that of a TCP header, otherwise UDP.
fn transport(delivery: &Delivery<'_, PortBuffer>) -> SegmentTransport {
    let in_tcp = tcp::field::CHECKSUM.start as u16;
    match delivery.meta.checksum {
        Checksum::Partial { offset, .. } if offset == in_tcp => SegmentTransport::Tcp,
        _ => SegmentTransport::Udp,
    }
}

/// Returns the time between two arrivals in nanoseconds. The caller ensures that it fits in 32 bits.
fn step(from_ns: u64, to_ns: u64) -> u32 {
    u32::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(u32::MAX)
}
